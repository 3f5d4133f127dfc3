// Reminders until an approval arrives, and a search in two places that takes the first result. What loses a `ctx.race` is canceled; what loses a
// `Promise.race` continues.

import { open, type Received, signal, workflow } from "pawl";

const approved = signal<{ by: string }>("approved");
const reminded = Promise.withResolvers<void>();

const remind = workflow("remind", async (ctx) => {
  for (let reminders = 0; ; reminders += 1) {
    const received = await ctx.race<Received<{ by: string }> | undefined>([
      ctx.waitForSignal(approved),
      async (ctx) => void (await ctx.sleep("20ms")),
    ]);
    if (received !== undefined) return reminders > 0 ? `approved by ${received.value.by}` : "approved early";
    await ctx.step("remind", () => reminded.resolve());
  }
});

const search = workflow("search", async (ctx) => {
  return ctx.race<string>([
    ctx.step("here", () => "found here"),
    async (ctx) => {
      try {
        await ctx.sleep("1 hour");
        return await ctx.step("there", () => "found there");
      } finally {
        await ctx.step("clean up", () => console.log("the slow branch has cleaned up"));
      }
    },
  ]);
});

await using pawl = await open("races.db");
pawl.work([remind, search]);

const reminding = await pawl.start(remind);
await reminded.promise;
await reminding.signal(approved, { by: "ann" });
console.log(await reminding.result());
console.log(await (await pawl.start(search)).result());

// Output:
// approved by ann
// the slow branch has cleaned up
// found here
