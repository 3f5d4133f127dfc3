// How long runs are kept after they have ended: per workflow and outcome, and for all other workflows as `open` says. Workers delete them then.
// Runs that ended before there was a retention are deleted by their ids.

import { open, workflow } from "pawl";

const fulfil = workflow(
  { name: "fulfil", retention: { completed: "7 days", failed: "90 days" } },
  async (ctx, item: string) => ctx.step("ship", () => `${item} is on its way`),
);

await using pawl = await open("shop.db", { retention: "30 days" });
pawl.work([fulfil]);
const run = await pawl.start(fulfil, "a book", { id: "order-7" });
console.log(await run.result());

const endedBefore = new Date("2100-01-01");
let after: string | null = null;
do {
  const page = await pawl.runs.list({ workflow: fulfil, endedBefore, after });
  for (const { id } of page.runs) await pawl.runs.delete(id);
  after = page.next;
} while (after !== null);

console.log(await run.result().catch((error) => error.code));
// The id is free: this is another run, with another input.
console.log(await (await pawl.start(fulfil, "a lamp", { id: "order-7" })).result());

// Output:
// a book is on its way
// run_not_found
// a lamp is on its way
