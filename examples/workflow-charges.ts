// Twelve charges, one a month, each with its own key. The key is derived from the run, the step's name and how often the name was used
// before: it is the same for each attempt and after a crash, and different for the next charge. A key derived from the order alone would charge
// once in twelve months. Concurrent steps with the same name have no order to count by, so each needs an id.

import { open, workflow } from "pawl";

/** Stands for a provider that charges once for each key, and loses every third reply. */
const ledger = new Map<string, number>();
let requests = 0;
function charge(cents: number, key: string): void {
  ledger.set(key, cents);
  requests += 1;
  if (requests % 3 === 0) throw new Error("the reply is lost");
}
const quick = { delay: "1ms" } as const;

const subscription = workflow({ name: "subscription", retry: quick }, async (ctx, months: number) => {
  for (let month = 0; month < months; month += 1) {
    await ctx.step("charge", ({ key }) => charge(500, key));
    await ctx.sleep("1ms");
  }
});

type Line = { readonly id: string; readonly cents: number };
const invoice = workflow({ name: "invoice", retry: quick }, async (ctx, lines: readonly Line[]) => {
  await Promise.all(lines.map((line) => ctx.step("charge", ({ key }) => charge(line.cents, key), { id: line.id })));
});

const forgetful = workflow("forgetful", async (ctx) => {
  await Promise.all([1, 2].map((cents) => ctx.step("charge", ({ key }) => charge(cents, key))));
});

await using pawl = await open("billing.db");
pawl.work([subscription, invoice, forgetful]);

await (await pawl.start(subscription, 12)).result();
console.log("requests:", requests, "charges:", ledger.size);

const lines = ["a", "b", "c"].map((id) => ({ id, cents: 100 }));
const run = await pawl.start(invoice, lines);
await run.result();
console.log("charges:", ledger.size);
const steps = (await run.history()).map(({ name }) => name).filter((name) => name.startsWith("step"));
console.log(steps.sort());

await (await pawl.start(forgetful, undefined, { id: "f-1" }))
  .result()
  .catch((error: Error) => console.log(error.message));

// Output:
// requests: 17 charges: 12
// charges: 15
// [ 'step charge#=a', 'step charge#=b', 'step charge#=c' ]
// run "f-1" failed: step "charge" is already under way: to run several concurrently, give each an id, as in { id: item.id }
