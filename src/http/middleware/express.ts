/**
 * Middleware for Express. It comes after the middleware that parses the body; in a handler, `attempt(req)` returns the attempt.
 *
 *     const idempotency = expressIdempotency(pawl, { scope: (req: express.Request) => accountOf(req) });
 *     app.post("/orders/:id", express.json(), idempotency, (req, res) => { … });
 *
 * The types of the request are those of `scope`, whose parameter is annotated with Express's own type. They are not part of the
 * middleware's type: Express would infer the types of all handlers of a route from it, and `req.params` would lose its names. So the
 * handler has the types that it has without the middleware. What `scope` reads from the request must have been set by middleware that came
 * before, as everywhere in Express.
 */

import { capture, type NodeResponse, sendReply } from "./capture.ts";
import {
  type BegunRequest,
  type HttpAttempt,
  type IdempotentHandle,
  MiddlewareCore,
  type MiddlewareOptions,
} from "./core.ts";
import { KEY_HEADER } from "./key.ts";
import { fingerprintOfParsed, headerOf, type NodeRequest } from "./node.ts";

/** The part of Express's request that is used. */
export interface ExpressRequest extends NodeRequest {
  readonly originalUrl: string;
  readonly body?: unknown;
  /** The bytes of the body, if a parser's `verify` has kept them. */
  readonly rawBody?: unknown;
}

export interface ExpressResponse extends NodeResponse {
  readonly writableEnded: boolean;
  once(event: "close", listener: () => void): unknown;
}

export interface ExpressIdempotency<TxView, TxOptions> {
  (req: ExpressRequest, res: ExpressResponse, next: (error?: unknown) => void): Promise<void>;
  /** Returns the attempt that a handler runs in; undefined for a request without a key. */
  attempt(req: ExpressRequest): HttpAttempt<TxView, TxOptions> | undefined;
}

/** Makes the handlers after it idempotent. Annotate the parameter of `scope` with the request's type: `(req: express.Request) => …`. */
export function expressIdempotency<TxView, TxOptions, R extends ExpressRequest = ExpressRequest>(
  pawl: IdempotentHandle<TxView, TxOptions>,
  options: MiddlewareOptions<R>,
): ExpressIdempotency<TxView, TxOptions> {
  const core = new MiddlewareCore(pawl, options);
  const attempts = new WeakMap<ExpressRequest, HttpAttempt<TxView, TxOptions>>();
  const middleware = expressHandling<TxView, TxOptions>(core.maxBodyBytes, async (request) => {
    const req = request as R;
    const begun = await core.begin({
      method: req.method ?? "",
      key: headerOf(req, KEY_HEADER),
      scope: () => core.scope(req),
      fingerprint: async () => {
        const { fingerprint } = core;
        if (fingerprint !== undefined) return { of: await fingerprint(req) };
        return { of: fingerprintOfParsed(req, req.originalUrl, req.body, req.rawBody) };
      },
    });
    if (begun.is === "pending") attempts.set(req, begun.pending.attempt);
    return begun;
  });
  return Object.assign(middleware, { attempt: (req: ExpressRequest) => attempts.get(req) });
}

/** Middleware that runs the handlers after it as `begin` says, and stores their response. @internal */
export function expressHandling<TxView, TxOptions>(
  maxBodyBytes: number,
  begin: (req: ExpressRequest) => Promise<BegunRequest<TxView, TxOptions>>,
): (req: ExpressRequest, res: ExpressResponse, next: (error?: unknown) => void) => Promise<void> {
  return async (req, res, next) => {
    try {
      const begun = await begin(req);
      if (begun.is === "reply") return sendReply(res, begun.reply);
      if (begun.is === "pending") {
        const { pending } = begun;
        let hasReplied = false;
        capture(
          res,
          maxBodyBytes,
          (outcome) => {
            hasReplied = true;
            return pending.finish(outcome);
          },
          next,
        );
        // The client has disconnected. If the handler still ends in time, its reply is stored.
        res.once("close", () => {
          if (!hasReplied) pending.lapse();
        });
      }
    } catch (error) {
      return next(error);
    }
    next();
  };
}
