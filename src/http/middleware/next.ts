/**
 * Route handlers of Next: `export const POST = nextIdempotency(pawl, async (request, context, attempt) => …, options)`.
 */

import { checkFunction } from "../../kernel/check.ts";
import { type HttpAttempt, type IdempotentHandle, MiddlewareCore, type MiddlewareOptions } from "./core.ts";
import { handleFetch } from "./fetch.ts";

/** Makes a route handler idempotent. `R` is Next's request, for `scope` too; `Context` has the route's params. */
export function nextIdempotency<TxView, TxOptions, R extends Request, Context>(
  pawl: IdempotentHandle<TxView, TxOptions>,
  handler: (request: R, context: Context, attempt?: HttpAttempt<TxView, TxOptions>) => Response | Promise<Response>,
  options: MiddlewareOptions<R, Request>,
): (request: R, context: Context) => Promise<Response> {
  const core = new MiddlewareCore(pawl, options);
  checkFunction(handler, "the handler");
  return (request, context) => handleFetch(core, request, (attempt) => handler(request, context, attempt));
}
