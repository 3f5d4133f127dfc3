/**
 * `npm start`: the server, with a demonstration in it.
 *
 * A shop on an SQLite file in a folder of its own: orders that are charged, approved by a signal and shipped; HTTP tasks that call a receiver in this process; a
 * schedule; a reaction. A new order comes every few seconds, so that there is always something to see. It prints where to look.
 *
 * Guarantees: it listens on loopback only; Ctrl-C ends it, and removes the folder unless `--db` names a database to keep.
 */

import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { readSecrets } from "../src/cli/keyring.ts";
import { apiKeys, serve } from "../src/http/server/index.ts";
import { event, httpTasks, open, reaction, schedule, signal, workflow } from "../src/index.ts";

const ORDER_EVERY_MS = 4000;
const GRACE_MS = 3000;

const { values } = parseArgs({ options: { port: { type: "string" }, db: { type: "string" } } });
const folder = values.db === undefined ? mkdtempSync(join(tmpdir(), "pawl-start-")) : undefined;
const store = resolve(values.db ?? join(folder ?? "", "pawl.db"));

const approved = signal<{ by: string }>("approved");
const Shipped = event<{ order: string }>("Shipped");

const fulfil = workflow("fulfil", async (ctx, order: { id: string; cents: number }) => {
  const receipt = await ctx.step("charge", ({ key }) => `receipt-${key.slice(0, 6)}`);
  const approval = await ctx.waitForSignal(approved, { timeout: "20s" });
  await ctx.lock("warehouse", () => ctx.sleep("2s"));
  await ctx.stream(`order-${order.id}`).append([Shipped({ order: order.id })]);
  return { receipt, by: approval.ok ? approval.value.by : "nobody" };
});
const report = workflow("report", async () => ({ orders: "counted" }));
const everyTen = schedule("report", { every: "10s" }, report);
const mail = reaction("mail", { on: [Shipped] }, async () => {});

/** What tasks call: it refuses every third call, so that attempts are made again. */
let calls = 0;
const receiver = createServer((request, response) => {
  calls += 1;
  request.resume();
  response.writeHead(calls % 3 === 0 ? 503 : 200).end(`call ${calls}`);
});
await new Promise<void>((listening) => receiver.listen(0, "127.0.0.1", listening));
const targetUrl = `http://127.0.0.1:${(receiver.address() as AddressInfo).port}/orders`;

const { keys, webhookSecrets } = await readSecrets({ is: "sqlite", path: store, shown: store }, process.env, true);
const pawl = await open(store, keys === undefined ? {} : { actions: { keys } });
const { key } = await apiKeys(pawl).create({ name: "demonstration", scopes: ["admin"], by: "npm start" });
pawl.work([fulfil, report, everyTen, mail, httpTasks({ secrets: webhookSecrets, allow: ["127.0.0.0/8"] })]);
const server = await serve(pawl, values.port === undefined ? {} : { port: Number(values.port) }).catch(
  (error: unknown) => {
    console.error(`The server cannot listen: ${String(error)}. Try npm start -- --port 0`);
    process.exit(1);
  },
);

const stopping = new AbortController();
for (const name of ["SIGINT", "SIGTERM"] as const)
  process.on(name, () => {
    if (stopping.signal.aborted) process.exit(1);
    stopping.abort();
  });

console.log(`The server, with a demonstration in it: ${server.url}

  Read      ${server.url}/docs, ${server.url}/v1/openapi.json
  Measure   ${server.url}/metrics
  Database  ${store}

In another terminal:

  export PAWL_URL=${server.url} PAWL_KEY=${key}
  npx node --conditions=pawl-source src/cli/bin.ts runs --watch
  npx node --conditions=pawl-source src/cli/bin.ts tasks
  npx node --conditions=pawl-source src/cli/bin.ts run signal order-1 approved '{"by":"you"}'
  curl -H "Authorization: Bearer $PAWL_KEY" $PAWL_URL/v1/schedules

npm run demo shows processes that are killed all the time. Ctrl-C ends this.`);

for (let number = 1; !stopping.signal.aborted; number++) {
  const id = `order-${number}`;
  await pawl.start(fulfil, { id: String(number), cents: 100 * number }, { id, ifExists: "restart" }).catch(() => {});
  await pawl.tasks.create({ targetUrl, body: { order: id }, tags: ["demonstration"] });
  if (number % 2 === 0)
    await pawl
      .run("fulfil", `order-${number - 1}`)
      .signal(approved, { by: "ann" })
      .catch(() => {});
  await sleep(ORDER_EVERY_MS, undefined, { signal: stopping.signal }).catch(() => {});
}
await Promise.all([server.close({ timeout: GRACE_MS }), pawl.close()]);
receiver.closeAllConnections();
receiver.close();
if (folder !== undefined) rmSync(folder, { recursive: true, force: true });
console.log("Stopped; nothing was left behind.");
