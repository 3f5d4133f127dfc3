// Several runs need the same work done once: each calls a child with the same id. The first call starts it, the others attach to it, even after it has
// ended. Another input with that id is refused with an error that the code can catch.

import { isPawlError, open, workflow } from "pawl";

const rates = workflow("rates", (ctx, day: string) =>
  ctx.step("fetch", () => {
    console.log("fetched:", day);
    return { day, eur: 1.1 };
  }),
);

const invoice = workflow("invoice", async (ctx, day: string) => {
  const { eur } = await ctx.call(rates, day, { id: `rates-${day}`, whenParentEnds: "leave" });
  return 100 * eur;
});

const mistaken = workflow("mistaken", async (ctx, day: string) => {
  try {
    return (await ctx.call(rates, day, { id: "rates-2030-01-01" })).eur;
  } catch (error) {
    return isPawlError(error, "run_conflict") ? error.message : "?";
  }
});

await using pawl = await open("rates.db");
pawl.work([rates, invoice, mistaken]);
const runs = await Promise.all([1, 2, 3].map(() => pawl.start(invoice, "2030-01-01")));
console.log(await Promise.all(runs.map((run) => run.result())));
console.log(await (await pawl.start(mistaken, "2030-01-02")).result());

// Output:
// fetched: 2030-01-01
// [ 110.00000000000001, 110.00000000000001, 110.00000000000001 ]
// run "rates-2030-01-01" was started with another input
