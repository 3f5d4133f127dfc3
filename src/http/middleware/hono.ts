/**
 * Middleware for Hono; in a handler, `attempt(c)` returns the attempt.
 *
 *     const idempotency = honoIdempotency(pawl, { scope: (c: Context<Env>) => c.get("user") });
 *     app.post("/orders/:id", idempotency, (c) => c.json({ id: c.req.param("id") }, 201));
 *
 * The types of the context are those of `scope`, whose parameter is annotated with Hono's own type. They are not part of the
 * middleware's type, so the handler keeps its path's parameters, its validated input and its variables, and `hc` of `hono/client` sees the
 * handler's responses. The variables that `scope` reads must have been set by middleware that came before.
 */

import {
  type BegunRequest,
  type HttpAttempt,
  type IdempotentHandle,
  MiddlewareCore,
  type MiddlewareOptions,
} from "./core.ts";
import { beginFetch, finishFetch, responseOf } from "./fetch.ts";

/** The part of Hono's context that is used. */
export interface HonoContext {
  readonly req: { readonly raw: Request; arrayBuffer(): Promise<ArrayBuffer> };
  get res(): Response;
  set res(response: Response | undefined);
}

export interface HonoIdempotency<TxView, TxOptions> {
  (c: HonoContext, next: () => Promise<void>): Promise<Response | undefined>;
  /** Returns the attempt that a handler runs in; undefined for a request without a key. */
  attempt(c: HonoContext): HttpAttempt<TxView, TxOptions> | undefined;
}

/** Makes the handlers after it idempotent. Annotate the parameter of `scope` with the context's type: `(c: Context<Env>) => …`. */
export function honoIdempotency<TxView, TxOptions, Context extends HonoContext = HonoContext>(
  pawl: IdempotentHandle<TxView, TxOptions>,
  options: MiddlewareOptions<Context>,
): HonoIdempotency<TxView, TxOptions> {
  const core = new MiddlewareCore(pawl, options);
  const attempts = new WeakMap<HonoContext, HttpAttempt<TxView, TxOptions>>();
  const middleware = honoHandling<TxView, TxOptions>(core.maxBodyBytes, async (context) => {
    const c = context as Context;
    const { fingerprint } = core;
    const custom = fingerprint === undefined ? undefined : () => fingerprint(c);
    const begun = await beginFetch(core, await unread(c), () => core.scope(c), custom);
    if (begun.is === "pending") attempts.set(c, begun.pending.attempt);
    return begun;
  });
  return Object.assign(middleware, { attempt: (c: HonoContext) => attempts.get(c) });
}

/** Middleware that runs the handlers after it as `begin` says, and stores their response. @internal */
export function honoHandling<TxView, TxOptions>(
  maxBodyBytes: number,
  begin: (c: HonoContext) => Promise<BegunRequest<TxView, TxOptions>>,
): (c: HonoContext, next: () => Promise<void>) => Promise<Response | undefined> {
  return async (c, next) => {
    const begun = await begin(c);
    if (begun.is === "reply") return responseOf(begun.reply);
    if (begun.is === "pass") {
      await next();
      return undefined;
    }
    const { pending } = begun;
    try {
      await next();
    } catch (error) {
      await pending.fail(error);
      throw error;
    }
    const response = await finishFetch(pending, c.res, maxBodyBytes);
    // When a response is replaced, Hono adds the old headers to the new response; clearing it first prevents that.
    c.res = undefined;
    c.res = response;
    return undefined;
  };
}

/** Returns a request whose body can be read. If the handler's chain has read it, Hono has kept it. @internal */
export async function unread({ req }: HonoContext): Promise<Request> {
  if (!req.raw.bodyUsed) return req.raw;
  const { method, headers, url } = req.raw;
  return new Request(url, { method, headers, body: await req.arrayBuffer() });
}
