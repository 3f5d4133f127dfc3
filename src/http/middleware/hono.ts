/**
 * Middleware for Hono: `app.use("/orders", honoIdempotency(pawl, { scope: (c) => c.get("user") }))`. In a handler, `attempt(c)` of the
 * middleware gives the attempt.
 */

import { enterFetch, leaveFetch, responseOf } from "./fetch.ts";
import { Gate, type HttpAttempt, type IdempotentHandle, type MiddlewareOptions } from "./gate.ts";

/** What is used of Hono's context. */
export interface HonoContext {
  readonly req: { readonly raw: Request; arrayBuffer(): Promise<ArrayBuffer> };
  get res(): Response;
  set res(response: Response | undefined);
}

export interface HonoIdempotency<Face, Touch, Context> {
  (c: Context, next: () => Promise<void>): Promise<Response | undefined>;
  /** The attempt that a handler runs in; undefined for a request without a key. */
  attempt(c: Context): HttpAttempt<Face, Touch> | undefined;
}

export function honoIdempotency<Face, Touch, Context extends HonoContext>(
  pawl: IdempotentHandle<Face, Touch>,
  options: MiddlewareOptions<Context>,
): HonoIdempotency<Face, Touch, Context> {
  const gate = new Gate(pawl, options);
  const attempts = new WeakMap<HonoContext, HttpAttempt<Face, Touch>>();
  const middleware = async (c: Context, next: () => Promise<void>): Promise<Response | undefined> => {
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
  return Object.assign(middleware, { attempt: (c: Context) => attempts.get(c) });
}

/** The request with a body that can be read. One that was read before is kept by Hono. */
async function unread({ req }: HonoContext): Promise<Request> {
  if (!req.raw.bodyUsed) return req.raw;
  const { method, headers, url } = req.raw;
  return new Request(url, { method, headers, body: await req.arrayBuffer() });
}
