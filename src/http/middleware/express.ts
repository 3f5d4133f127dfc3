/**
 * Middleware for Express: `app.post("/orders", express.json(), expressIdempotency(pawl, { scope: (req) => req.user.id }), handler)`. It comes
 * after whatever parses the body. In a handler, `attempt(req)` of the middleware gives the attempt.
 */

import { capture, type NodeResponse, sendReply } from "./capture.ts";
import { Gate, type HttpAttempt, type IdempotentHandle, type MiddlewareOptions } from "./gate.ts";
import { KEY_HEADER } from "./key.ts";
import { fingerprintOfParsed, headerOf, type NodeRequest } from "./node.ts";

/** What is used of Express's request. */
export interface ExpressRequest extends NodeRequest {
  readonly originalUrl: string;
  readonly body?: unknown;
  /** The bytes of the body, where a parser's `verify` has kept them. */
  readonly rawBody?: unknown;
}

export interface ExpressResponse extends NodeResponse {
  readonly writableEnded: boolean;
  once(event: "close", listener: () => void): unknown;
}

export interface ExpressIdempotency<Face, Touch, R> {
  (req: R, res: ExpressResponse, next: (error?: unknown) => void): Promise<void>;
  /** The attempt that a handler runs in; undefined for a request without a key. */
  attempt(req: R): HttpAttempt<Face, Touch> | undefined;
}

export function expressIdempotency<Face, Touch, R extends ExpressRequest>(
  pawl: IdempotentHandle<Face, Touch>,
  options: MiddlewareOptions<R>,
): ExpressIdempotency<Face, Touch, R> {
  const gate = new Gate(pawl, options);
  const attempts = new WeakMap<ExpressRequest, HttpAttempt<Face, Touch>>();
  const middleware = async (req: R, res: ExpressResponse, next: (error?: unknown) => void): Promise<void> => {
    try {
      const entry = await gate.enter({
        method: req.method ?? "",
        key: headerOf(req, KEY_HEADER),
        scope: () => gate.scope(req),
        fingerprint: async () => {
          const { fingerprint } = gate;
          if (fingerprint !== undefined) return { of: await fingerprint(req) };
          return { of: fingerprintOfParsed(req, req.originalUrl, req.body, req.rawBody) };
        },
      });
      if (entry.is === "reply") return sendReply(res, entry.reply);
      if (entry.is === "entered") {
        const { visit } = entry;
        attempts.set(req, visit.attempt);
        let hasReplied = false;
        capture(
          res,
          gate.maxBodyBytes,
          (outcome) => {
            hasReplied = true;
            return visit.leave(outcome);
          },
          next,
        );
        // The client has gone. Its handler may still come to an end, which is then stored; or it may not.
        res.once("close", () => {
          if (!hasReplied) visit.lapse();
        });
      }
    } catch (error) {
      return next(error);
    }
    next();
  };
  return Object.assign(middleware, { attempt: (req: R) => attempts.get(req) });
}
