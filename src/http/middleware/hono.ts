/**
 * Middleware for Hono; in a handler, `attempt(c)` returns the attempt.
 *
 *     const idempotency = honoIdempotency(pawl, { scope: (c: Context<Env>) => c.get("user") });
 *     app.post("/orders/:id", idempotency, (c) => c.json({ id: c.req.param("id") }, 201));
 *
 * The types of the context are those of `scope`, whose parameter is annotated with Hono's own type. They are not part of the
 * middleware's type, so the handler keeps its path's parameters, its validated input and its variables, and `hc` of `hono/client` sees the
 * handler's responses. This trusts that the variables that `scope` reads were set by middleware that came before.
 */

import { enterFetch, leaveFetch, responseOf } from "./fetch.ts";
import { Gate, type HttpAttempt, type IdempotentHandle, type MiddlewareOptions } from "./gate.ts";

/** What is used of Hono's context. */
export interface HonoContext {
  readonly req: { readonly raw: Request; arrayBuffer(): Promise<ArrayBuffer> };
  get res(): Response;
  set res(response: Response | undefined);
}

export interface HonoIdempotency<Face, Touch> {
  (c: HonoContext, next: () => Promise<void>): Promise<Response | undefined>;
  /** Returns the attempt that a handler runs in; undefined for a request without a key. */
  attempt(c: HonoContext): HttpAttempt<Face, Touch> | undefined;
}

/** Makes the handlers after it idempotent. Annotate the parameter of `scope` with the context's type: `(c: Context<Env>) => …`. */
export function honoIdempotency<Face, Touch, Context extends HonoContext = HonoContext>(
  pawl: IdempotentHandle<Face, Touch>,
  options: MiddlewareOptions<Context>,
): HonoIdempotency<Face, Touch> {
  const gate = new Gate(pawl, options);
  const attempts = new WeakMap<HonoContext, HttpAttempt<Face, Touch>>();
  const middleware = async (context: HonoContext, next: () => Promise<void>): Promise<Response | undefined> => {
    const c = context as Context;
    const { fingerprint } = gate;
    const custom = fingerprint === undefined ? undefined : () => fingerprint(c);
    const entry = await enterFetch(gate, await unread(c), () => gate.scope(c), custom);
    if (entry.is === "reply") return responseOf(entry.reply);
    if (entry.is === "pass") {
      await next();
      return undefined;
    }
    const { visit } = entry;
    attempts.set(c, visit.attempt);
    try {
      await next();
    } catch (error) {
      await visit.fail(error);
      throw error;
    }
    const response = await leaveFetch(visit, c.res, gate.maxBodyBytes);
    // Hono adds the headers of a response that it replaces to the one that replaces it.
    c.res = undefined;
    c.res = response;
    return undefined;
  };
  return Object.assign(middleware, { attempt: (c: HonoContext) => attempts.get(c) });
}

/** The request with a body that can be read. One that was read before is kept by Hono. */
async function unread({ req }: HonoContext): Promise<Request> {
  if (!req.raw.bodyUsed) return req.raw;
  const { method, headers, url } = req.raw;
  return new Request(url, { method, headers, body: await req.arrayBuffer() });
}
