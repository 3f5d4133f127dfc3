// Next, and any function from Request to Response: a receiver of webhooks as a route handler. Where there is no handle, as in an edge runtime,
// `verifyWebhook` alone verifies a delivery.

import { createHmac } from "node:crypto";
import { open } from "pawl";
import { verifyWebhook, webhookFetch } from "pawl/webhook";

// The sender gives it to you; keep it out of the code.
const secret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3";

await using pawl = await open("shop.db");

// In app/hooks/[shop]/route.ts: the request may be a NextRequest.
export const POST = webhookFetch(
  pawl,
  async (delivery, _request: Request, context: { params: Promise<{ shop: string }> }) => {
    const { item } = delivery.json<{ item: string }>();
    return Response.json({ sold: item, shop: (await context.params).shop });
  },
  { secrets: secret, consumer: "sales" },
);

// In an edge runtime: what follows must be idempotent by the delivery's id.
export async function edge(request: Request): Promise<Response> {
  const { headers } = request;
  const { id, json } = await verifyWebhook(
    { headers, body: await request.text() },
    { secrets: secret, tolerance: "1 min" },
  );
  return Response.json({ id, item: json<{ item: string }>().item });
}

/** What a sender does. */
async function signed(id: string, body: string): Promise<Request> {
  const seconds = Math.floor((await pawl.transact((tx) => tx.nowMs)) / 1000);
  const key = Buffer.from(secret.slice("whsec_".length), "base64");
  const signature = createHmac("sha256", key).update(`${id}.${seconds}.${body}`).digest("base64");
  const headers = { "webhook-id": id, "webhook-timestamp": `${seconds}`, "webhook-signature": `v1,${signature}` };
  return new Request("http://shop/hooks/7", { method: "POST", headers, body });
}

const context = { params: Promise.resolve({ shop: "7" }) };
for (let i = 0; i < 2; i++) {
  const response = await POST(await signed("msg_1", '{"item":"cup"}'), context);
  console.log(response.status, await response.text(), response.headers.get("idempotent-replayed") ?? "first");
}
console.log(await (await edge(await signed("msg_2", '{"item":"pot"}'))).text());

// Output:
// 200 {"sold":"cup","shop":"7"} first
// 200 {"sold":"cup","shop":"7"} true
// {"id":"msg_2","item":"pot"}
