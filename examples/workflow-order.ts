// An order is charged, approved and shipped. The result of each step is recorded before the next one begins, so any process can continue
// where another one died, and no recorded step is repeated.

import { open, signal, workflow } from "pawl";

type Order = { readonly id: string; readonly cents: number; readonly graceMs: number };

/** Stands for a payment provider, which charges once for each key. */
const charges = new Map<string, string>();
function charge(order: Order, key: string): string {
  if (!charges.has(key)) charges.set(key, `charge of ${order.cents} for ${order.id}`);
  return charges.get(key) ?? "";
}

const approved = signal<{ by: string }>("approved");

const fulfil = workflow("fulfil", async (ctx, order: Order) => {
  const paid = await ctx.step("charge", ({ key }) => charge(order, key));
  const approval = await ctx.waitForSignal(approved, { timeout: "2 days" });
  if (!approval.ok) return ctx.step("refund", () => `refunded: ${paid}`);
  await ctx.sleep(order.graceMs);
  return ctx.step("ship", () => `shipped: ${paid}, approved by ${approval.value.by}`);
});

await using pawl = await open("shop.db");
pawl.work([fulfil]);

const order = { id: "o-1", cents: 4200, graceMs: 20 };
const run = await pawl.start(fulfil, order, { id: "fulfil-o-1" });
const again = await pawl.start(fulfil, order, { id: "fulfil-o-1" });
console.log("the same id is the same run:", run.id === again.id);

await run.signal(approved, { by: "ann" }, { id: "approval-1" });
console.log(await run.result());
console.log((await run.history()).map(({ name }) => name).join(", "));

// Output:
// the same id is the same run: true
// shipped: charge of 4200 for o-1, approved by ann
// started, step charge, wait approved, received approved, sleep 1, woke 1, step ship, completed
