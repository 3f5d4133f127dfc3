// An expense waits for a decision, however long that takes; no process needs to run meanwhile. If there is none in time, a reminder is sent. A
// signal that arrives before the run waits for it is kept; one that arrives twice with the same id counts once.

import { open, signal, workflow } from "pawl";

const decided = signal<{ by: string; isApproved: boolean }>("decided");

const expense = workflow("expense", async (ctx, cents: number) => {
  const decision = await ctx.waitForSignal(decided, { timeout: "50ms" });
  if (decision.ok) return `${decision.value.isApproved ? "paid" : "refused"} by ${decision.value.by}`;
  await ctx.step("remind", () => console.log(`no decision about ${cents} in time`));
  const { value } = await ctx.waitForSignal(decided);
  return `${value.isApproved ? "paid" : "refused"} late by ${value.by}`;
});

await using pawl = await open("expenses.db");

// No worker runs yet: the run exists, and signals to it are kept.
const early = await pawl.start(expense, 1000, { id: "expense-1" });
console.log(await early.signal(decided, { by: "ann", isApproved: true }, { id: "click-1" }));
console.log(await early.signal(decided, { by: "ann", isApproved: true }, { id: "click-1" }));

pawl.work([expense]);
console.log(await early.result());

const late = await pawl.start(expense, 2000, { id: "expense-2" });
await late.result({ timeout: "1s" }).catch((error: Error) => console.log(error.message));
await late.signal(decided, { by: "bob", isApproved: false }, { id: "click-2" });
console.log(await late.result());

await late.signal(decided, { by: "eve", isApproved: true }).catch((error: Error) => console.log(error.message));

// Output:
// { isNew: true }
// { isNew: false }
// paid by ann
// no decision about 2000 in time
// run "expense-2" had no result within 1000 ms; it continues
// refused late by bob
// run "expense-2" is completed
