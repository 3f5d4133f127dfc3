// The first workflow of the README. Stop it with Ctrl-C while the run sleeps, and start it again: it resumes, and charges nothing twice.

import { open, workflow } from "pawl";

/** Stands for a payment provider that charges once per idempotency key. */
async function charge(cents: number, idempotencyKey: string): Promise<string> {
  console.log(`charging ${cents} cents`);
  return `receipt-${idempotencyKey.slice(0, 6)}`;
}

const fulfil = workflow("fulfil", async (ctx, order: { id: string; cents: number }) => {
  const receipt = await ctx.step("charge", ({ key }) => charge(order.cents, key));
  await ctx.sleep("3s"); // or "30 days": a run that sleeps needs no process
  await ctx.step("ship", () => console.log(`shipping ${order.id}`));
  return receipt;
});

const pawl = await open("shop.db"); // an SQLite file; "postgres://…" for several machines
pawl.work([fulfil]); // this process executes runs of `fulfil`

const order = { id: "o-1", cents: 4200 };
const run = await pawl.start(fulfil, order, { id: "fulfil-o-1" }); // the same id is the same run
console.log(await run.result());
await pawl.close();

// Output:
// charging 4200 cents
// shipping o-1
// receipt-20e0a3
