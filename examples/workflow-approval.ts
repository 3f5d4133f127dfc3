// An expense waits for a decision, for as long as it may take, and nobody has to be running meanwhile. One that gets none in time is
// passed on. A signal that comes before it is waited for is kept; one that comes twice under one id counts once.

import { open, signal, workflow } from "pawl";

const decided = signal<{ by: string; isApproved: boolean }>("decided");

const expense = workflow("expense", async (ctx, cents: number) => {
  const decision = await ctx.waitForSignal(decided, { timeout: "50ms" });
  if (decision.ok) return `${decision.value.isApproved ? "paid" : "refused"} by ${decision.value.by}`;
  await ctx.step("remind", () => console.log(`nobody decided about ${cents} in time`));
  const { value } = await ctx.waitForSignal(decided);
  return `${value.isApproved ? "paid" : "refused"} late by ${value.by}`;
});

await using pawl = await open("expenses.db");

// No worker runs yet: the run is there all the same, and what is sent to it is kept.
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
// nobody decided about 2000 in time
// run "expense-2" had no result within 1000 ms; it goes on
// refused late by bob
// run "expense-2" is completed
