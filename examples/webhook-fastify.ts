// Fastify: a receiver of the calls of tasks. A delivery that is repeated is not handled again. While secrets are rotated, the receiver knows both.

import type { AddressInfo } from "node:net";
import { fastify } from "fastify";
import { httpTasks, open, type TaskResponse } from "pawl";
import { fastifyWebhook } from "pawl/webhook";

// Both sides have it, and neither has it in its code.
const [older, newer] = ["whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3", "whsec_QUJDREVGR0hJSktMTU5PUFFSU1RVVldY"];

await using pawl = await open("shop.db");
const webhook = fastifyWebhook(pawl, { secrets: [older, newer], consumer: "stock" });

const app = fastify();
// An instance of its own: the plugin applies to all of its routes.
await app.register(async (hooks) => {
  await hooks.register(webhook);
  hooks.post<{ Body: { item: string } }>("/hooks/sold", async (request) => {
    const { task } = webhook.delivery(request);
    return { sold: request.body.item, attempt: task?.attempt };
  });
});
await app.listen({ port: 0, host: "127.0.0.1" });
const { port } = app.server.address() as AddressInfo;

// The sender: it signs what it calls.
for (const secrets of [older, newer]) {
  const worker = pawl.work([httpTasks({ secrets, allow: ["127.0.0.1/32"] })]);
  const { task } = await pawl.tasks.create({ targetUrl: `http://127.0.0.1:${port}/hooks/sold`, body: { item: "cup" } });
  const { outcome } = await pawl.tasks.get(task.id, { wait: "1 minute" });
  console.log((outcome?.value as TaskResponse | undefined)?.body);
  await worker.stop();
}
await app.close();

// Output:
// {"sold":"cup","attempt":1}
// {"sold":"cup","attempt":1}
