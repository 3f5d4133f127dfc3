/**
 * Receivers of web-standard requests: a function from `Request` to `Response`, as in Deno, Bun and many frameworks, and a route handler of Next:
 *
 *     export const POST = webhookFetch(pawl, async (delivery) => Response.json(await save(delivery.json())), { secrets, consumer: "orders" });
 *
 * `core.ts` says how a delivery is handled.
 */

import { checkFunction } from "../../kernel/check.ts";
import type { IdempotentHandle } from "../middleware/core.ts";
import { copyBody, handlePending, responseOf } from "../middleware/fetch.ts";
import { type ReceivedWebhook, WebhookCore, type WebhookOptions } from "./core.ts";

/**
 * Makes a function that verifies a delivery, handles it once and returns the response. The handler gets the request too; a route's context, as
 * Next gives one, comes third.
 */
export function webhookFetch<TxView, TxOptions, R extends Request = Request, Context extends readonly unknown[] = []>(
  pawl: IdempotentHandle<TxView, TxOptions>,
  handler: (
    delivery: ReceivedWebhook<TxView, TxOptions>,
    request: R,
    ...context: Context
  ) => Response | Promise<Response>,
  options: WebhookOptions,
): (request: R, ...context: Context) => Promise<Response> {
  const core = new WebhookCore(pawl, options);
  checkFunction(handler, "the handler");
  return async (request, ...context) => {
    const received = await core.begin(request.headers, await copyBody(request, core.maxBodyBytes));
    if (!("delivery" in received)) return responseOf(received.begun.reply);
    return handlePending(received.begun.pending, core.maxBodyBytes, () =>
      handler(received.delivery, request, ...context),
    );
  };
}
