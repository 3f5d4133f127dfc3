// Hono: a receiver of webhooks of any sender that follows Standard Webhooks. A delivery that is repeated gets the stored response.

import { createHmac } from "node:crypto";
import { Hono } from "hono";
import { open } from "pawl";
import { honoWebhook } from "pawl/webhook";

// The sender gives it to you; keep it out of the code.
const secret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3";

await using pawl = await open("shop.db");
const stock = pawl.slot<number>("stock", { initial: 10 });
const webhook = honoWebhook(pawl, { secrets: secret, consumer: "stock" });

const app = new Hono();
app.post("/hooks/sold", webhook, async (c) => {
  const { attempt, json } = webhook.delivery(c);
  const { count } = json<{ count: number }>();
  // The effect and the response in one commit: the effect happens once, whatever crashes.
  await attempt.commit((tx) => ({ json: { left: tx.slot(stock).update((now) => now - count).value } }));
  return c.body(null);
});

/** What a sender does. */
async function deliver(id: string, body: string, secret: string): Promise<Response> {
  const seconds = Math.floor((await pawl.transact((tx) => tx.nowMs)) / 1000);
  const key = Buffer.from(secret.slice("whsec_".length), "base64");
  const signature = createHmac("sha256", key).update(`${id}.${seconds}.${body}`).digest("base64");
  const headers = { "webhook-id": id, "webhook-timestamp": `${seconds}`, "webhook-signature": `v1,${signature}` };
  return app.request("/hooks/sold", { method: "POST", headers, body });
}

for (const id of ["msg_1", "msg_1", "msg_2"]) {
  const response = await deliver(id, '{"count":3}', secret);
  console.log(id, response.status, await response.text(), response.headers.get("idempotent-replayed") ?? "first");
}
const forged = await deliver("msg_3", '{"count":3}', "whsec_QUJDREVGR0hJSktMTU5PUFFSU1RVVldY");
console.log(forged.status, ((await forged.json()) as { code: string }).code);

// Output:
// msg_1 200 {"left":7} first
// msg_1 200 {"left":7} true
// msg_2 200 {"left":4} first
// 401 signature_invalid
