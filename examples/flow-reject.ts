// Starts beyond a limit can be refused with a typed error, can replace the oldest run, or can return the run that is there.

import { ConcurrencyLimitError, open, signal, workflow } from "pawl";

const done = signal("done");

const exporting = workflow(
  { name: "export", concurrency: { max: 1, key: (account: string) => account, excess: "reject" } },
  async (ctx) => void (await ctx.waitForSignal(done)),
);
const preview = workflow(
  { name: "preview", concurrency: { max: 1, excess: "replace" } },
  async (ctx) => void (await ctx.waitForSignal(done)),
);
const sync = workflow({ name: "sync", concurrency: { max: 1, excess: "drop" } }, async (ctx) => {
  await ctx.waitForSignal(done);
});

await using pawl = await open("limits.db");

await pawl.start(exporting, "account-7");
await pawl.start(exporting, "account-8");
await pawl.start(exporting, "account-7").catch((error: unknown) => {
  if (!(error instanceof ConcurrencyLimitError)) throw error;
  console.log(error.code, error.data);
});

const first = await pawl.start(preview);
await pawl.start(preview);
console.log("the first preview is", (await first.status()).status);

const running = await pawl.start(sync);
console.log("the same run:", (await pawl.start(sync)).id === running.id);

// Output:
// concurrency_limit { workflow: 'export', key: 'account-7', limit: 1 }
// the first preview is canceled
// the same run: true
