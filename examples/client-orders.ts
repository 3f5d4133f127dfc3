// The client: a program without a database uses Pawl through a server. What it starts is typed by the definition of the workflow, which only the server's side
// executes.

import { type EventType, open, signal, workflow } from "pawl";
import { createClient, isPawlError, named } from "pawl/client";
import { serve } from "pawl/server";

// shared.ts
const approved = signal<{ by: string }>("approved");
const fulfil = workflow("fulfil", async (ctx, order: { id: string; cents: number }) => {
  const approval = await ctx.waitForSignal(approved);
  return `${order.id}: ${order.cents} cents, approved by ${approval.value.by}`;
});

// server.ts
await using pawl = await open("shop.db");
pawl.work([fulfil]);
const server = await serve(pawl, { port: 0, keys: "none" });

// client.ts
const client = createClient({ url: server.url });
const run = await client.start(fulfil, { id: "o-1", cents: 4200 }, { id: "fulfil-o-1" });
await run.signal(approved, { by: "ann" });
const text: string = await run.result({ timeout: "1 minute" });
console.log(text);

const visits = client.slot<number>("visits", { initial: 0 });
await Promise.all(Array.from({ length: 10 }, () => visits.update((n) => n + 1)));
console.log((await visits.get()).value);

await client.lock("report", async ({ fence, abortSignal }) => {
  console.log("locked with a fence:", fence > 0, "and still held:", !abortSignal.aborted);
});

for await (const { id, status } of client.runs.list({ workflow: fulfil })) console.log(id, status);

const deposited = named<EventType<{ cents: number }>>("deposited");
await client.stream("account/ann").append([deposited({ cents: 500 })], { expectedVersion: 0 });
for await (const event of client.stream("account/ann").read({ events: [deposited] }))
  if (deposited.is(event)) console.log(event.version, event.data.cents);

try {
  await client.start(fulfil, { id: "o-2", cents: 1 }, { id: "fulfil-o-1" });
} catch (error) {
  if (!isPawlError(error, "run_conflict")) throw error;
  console.log(error.status, error.code, error.data.run);
}
await server.close();

// Output:
// o-1: 4200 cents, approved by ann
// 10
// locked with a fence: true and still held: true
// fulfil-o-1 completed
// 1 500
// 409 run_conflict fulfil-o-1
