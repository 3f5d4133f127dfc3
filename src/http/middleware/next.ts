/**
 * Route handlers of Next: `export const POST = nextIdempotency(pawl, async (request, context, attempt) => …, options)`.
 */

import { checkFunction } from "../../kernel/check.ts";
import { handleFetch } from "./fetch.ts";
import { Gate, type HttpAttempt, type IdempotentHandle, type MiddlewareOptions } from "./gate.ts";

/** Makes a route handler idempotent. `R` is Next's request, for `scope` too; `Context` has the route's params. */
export function nextIdempotency<Face, Touch, R extends Request, Context>(
  pawl: IdempotentHandle<Face, Touch>,
  handler: (request: R, context: Context, attempt?: HttpAttempt<Face, Touch>) => Response | Promise<Response>,
  options: MiddlewareOptions<R, Request>,
): (request: R, context: Context) => Promise<Response> {
  const gate = new Gate(pawl, options);
  checkFunction(handler, "the handler");
  return (request, context) => handleFetch(gate, request, (attempt) => handler(request, context, attempt));
}
