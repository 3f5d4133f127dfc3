/**
 * Middleware for Express. It comes after the middleware that parses the body; in a handler, `attempt(req)` returns the attempt.
 *
 *     const idempotency = expressIdempotency(pawl, { scope: (req: express.Request) => accountOf(req) });
 *     app.post("/orders/:id", express.json(), idempotency, (req, res) => { … });
 *
 * The types of the request are those of `scope`, whose parameter is annotated with Express's own type. They are not part of the
 * middleware's type: Express would infer the types of all handlers of a route from it, and `req.params` would lose its names. So the
 * handler has the types that it has without the middleware. Like Express itself, this trusts that whatever `scope` reads of the request
 * was put there by middleware that came before.
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

export interface ExpressIdempotency<Face, Touch> {
  (req: ExpressRequest, res: ExpressResponse, next: (error?: unknown) => void): Promise<void>;
  /** Returns the attempt that a handler runs in; undefined for a request without a key. */
  attempt(req: ExpressRequest): HttpAttempt<Face, Touch> | undefined;
}

/** Makes the handlers after it idempotent. Annotate the parameter of `scope` with the request's type: `(req: express.Request) => …`. */
export function expressIdempotency<Face, Touch, R extends ExpressRequest = ExpressRequest>(
  pawl: IdempotentHandle<Face, Touch>,
  options: MiddlewareOptions<R>,
): ExpressIdempotency<Face, Touch> {
  const gate = new Gate(pawl, options);
  const attempts = new WeakMap<ExpressRequest, HttpAttempt<Face, Touch>>();
  const middleware = async (
    request: ExpressRequest,
    res: ExpressResponse,
    next: (error?: unknown) => void,
  ): Promise<void> => {
    const req = request as R;
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
  return Object.assign(middleware, { attempt: (req: ExpressRequest) => attempts.get(req) });
}
