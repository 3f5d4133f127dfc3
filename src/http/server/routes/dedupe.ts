/**
 * Messages that are delivered more than once: `pawl.dedupe`.
 */

import { z } from "@hono/zod-openapi";
import { idSchema } from "../ids.ts";
import { given } from "../pages.ts";
import { add, type Routing } from "../route.ts";
import { duration } from "../schemas.ts";

export function dedupe(routing: Routing): void {
  add(routing, {
    method: "post",
    path: "/v1/dedupe/{consumer}",
    tag: "dedupe",
    operation: "dedupe",
    summary: "Marks a message as handled by a consumer, and says whether it was before",
    scope: "write",
    params: { consumer: idSchema("The name of the consumer.", "billing") },
    body: z.strictObject({
      messageId: idSchema("The id of the message.", "evt_1"),
      ttl: duration.optional().openapi({ description: "How long it is remembered. Default: 7 days." }),
    }),
    returns: { 200: z.object({ deduplicated: z.boolean() }).openapi("Deduplicated") },
    refuses: ["invalid_id", "invalid_duration"],
    decide:
      ({ params, body: { messageId, ttl } }) =>
      (tx) => {
        const isNew = tx.dedupe(params.consumer, messageId, given({ ttl }));
        return { status: 200, json: { deduplicated: !isNew } };
      },
  });
}
