// A run starts others, waits for all of them and adds up their results. A child that fails makes its `call` throw; one that still
// runs when the parent ends is canceled with it.

import { open, workflow } from "pawl";

const count = workflow("count", async (ctx, text: string) => {
  if (text === "") throw new Error("nothing to count");
  return ctx.step("count", () => text.length);
});

const total = workflow("total", async (ctx, texts: readonly string[]) => {
  const counts = await Promise.all(texts.map((text) => ctx.call(count, text)));
  return counts.reduce((sum, one) => sum + one, 0);
});

await using pawl = await open("texts.db");
pawl.work([count, total]);

const run = await pawl.start(total, ["one", "three"], { id: "total-1" });
console.log(await run.result());
const { runs } = await pawl.runs.list({ workflow: count, order: "id" });
console.log(runs.map(({ id, parent, status }) => `${id} of ${parent} is ${status}`).join("\n"));

await (await pawl.start(total, ["", "three"], { id: "total-2" }))
  .result()
  .catch((error: Error) => console.log(error.message));

// Output:
// 8
// total-1/count of total-1 is completed
// total-1/count#2 of total-1 is completed
// run "total-2" failed: nothing to count
