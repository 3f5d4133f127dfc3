// biome-ignore-all lint/style/noRestrictedGlobals: the receiver of the example is a real one.

// Express: a receiver of the calls of tasks. Each is verified, and handled once, however often it is delivered.

import { once } from "node:events";
import type { AddressInfo } from "node:net";
import express from "express";
import { httpTasks, open } from "pawl";
import { expressWebhook } from "pawl/webhook";

// Both sides have it, and neither has it in its code.
const secret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3";

await using pawl = await open("shop.db");
const stock = pawl.slot<number>("stock", { initial: 10 });
const webhook = expressWebhook(pawl, { secrets: secret, consumer: "stock" });

const app = express();
// Before any body parser: the signature is about the bytes.
app.post("/hooks/sold", webhook, async (req, res) => {
  const { attempt, json, task } = webhook.delivery(req);
  const { count } = json<{ count: number }>();
  await attempt.commit((tx) => ({ json: { left: tx.slot(stock).update((now) => now - count).value } }));
  console.log("handled attempt", task?.attempt);
  res.end();
});
const server = app.listen(0, "127.0.0.1");
await once(server, "listening");
const { port } = server.address() as AddressInfo;

// The sender: it signs what it calls.
pawl.work([httpTasks({ secrets: secret, allow: ["127.0.0.1/32"] })]);
const targetUrl = `http://127.0.0.1:${port}/hooks/sold`;
const { task } = await pawl.tasks.create({ targetUrl, body: { count: 3 } });
const { outcome } = await pawl.tasks.get(task.id, { wait: "1 minute" });
console.log(outcome?.status, (await stock.get()).value);

const forged = await fetch(targetUrl, { method: "POST", body: '{"count":9}' });
console.log(forged.status, ((await forged.json()) as { code: string }).code, (await stock.get()).value);

server.closeAllConnections();
server.close();

// Output:
// handled attempt 1
// completed 7
// 401 signature_invalid 7
