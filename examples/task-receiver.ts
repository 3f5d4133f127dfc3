// biome-ignore-all lint/style/noRestrictedGlobals: the receiver of the example is a real one.

// A receiver that does the work of a task once, also when attempts overlap. The first attempt is slow: the task gives it up and makes another one, while the
// receiver still works on the first. Both have the same key, and the second has a higher fence. So the receiver knows that they are one piece of work, and
// which of them is the newer: when the first is done at last, what it brings is refused.

import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { httpTasks, open, type Pawl, type TaskResponse } from "pawl";

/** What the receiver knows of a piece of work: which attempt has it, and its result. */
interface Work {
  readonly fence: number;
  readonly result?: string;
}

/** Takes the work for this attempt, or returns the result that there is, or that a newer attempt has it. */
const begin = (db: Pawl, key: string, fence: number): Promise<Work | "stale"> =>
  db.transact((tx) => {
    const slot = tx.slot(db.slot<Work>(`work/${key}`));
    const { value } = slot.get();
    if (value?.result !== undefined) return value;
    if (value !== undefined && value.fence > fence) return "stale";
    slot.set({ fence });
    return { fence };
  });

/** Stores the result in one commit with its effect, unless a newer attempt has the work. */
const finish = (db: Pawl, key: string, fence: number, result: string): Promise<boolean> =>
  db.transact((tx) => {
    const slot = tx.slot(db.slot<Work>(`work/${key}`));
    const { value } = slot.get();
    if (value?.fence !== fence || value.result !== undefined) return false;
    slot.set({ fence, result });
    tx.slot(db.slot<number>("invoices", { initial: 0 })).update((count) => count + 1);
    return true;
  });

await using db = await open("receiver.db");
const goOn = Promise.withResolvers<void>();
const firstIsDone = Promise.withResolvers<boolean>();
const service = createServer(async ({ headers }, response) => {
  const key = String(headers["idempotency-key"]);
  const fence = Number(headers["pawl-fence"]);
  const attempt = headers["pawl-attempt"];
  const work = await begin(db, key, fence);
  if (work === "stale") return void response.writeHead(409).end();
  if (work.result !== undefined) return void response.end(work.result);
  // The first attempt is slow.
  if (attempt === "1") await goOn.promise;
  const isStored = await finish(db, key, fence, `invoice by attempt ${attempt}`);
  if (attempt === "1") firstIsDone.resolve(isStored);
  response.writeHead(isStored ? 200 : 409).end(`invoice by attempt ${attempt}`);
});
service.listen(0, "127.0.0.1");
await once(service, "listening");
const { port } = service.address() as AddressInfo;

await using pawl = await open("shop.db");
pawl.work([httpTasks({ allow: ["127.0.0.1/32"] })]);
const { task } = await pawl.tasks.create({
  targetUrl: `http://127.0.0.1:${port}/invoices`,
  body: { order: 42 },
  timeout: "300 ms",
  retry: { delay: "10 ms" },
});
const { outcome } = await pawl.tasks.get(task.id, { wait: "1 minute" });
console.log(outcome?.status, (outcome?.value as TaskResponse | undefined)?.body);

goOn.resolve();
console.log("the first attempt was stored:", await firstIsDone.promise);
console.log("invoices:", (await db.slot<number>("invoices").get()).value);
for (const { number, status, error } of await pawl.tasks.attempts(task.id)) console.log(number, status ?? error?.code);

service.closeAllConnections();
service.close();

// Output:
// completed invoice by attempt 2
// the first attempt was stored: false
// invoices: 1
// 1 timeout
// 2 200
