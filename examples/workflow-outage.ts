// Two parallel steps fail in an outage, and the run fails with them. When the outage is over, `retry` repeats the steps whose failure ended the
// run, and nothing else: neither the charge, nor the step whose failure the code handled.

import { open, RunFailedError, workflow } from "pawl";

let isOutage = true;

/** Stands for services that fail during the outage. */
function call(service: string): string {
  console.log("called:", service);
  if (isOutage && service !== "charge" && service !== "letter") throw new Error(`${service} is unreachable`);
  return service;
}

const once = { retry: { attempts: 1 } };

const order = workflow("order", async (ctx) => {
  await ctx.step("charge", () => call("charge"));
  const by = await ctx.step("mail", () => call("mail"), once).catch(() => ctx.step("letter", () => call("letter")));
  await Promise.all([ctx.step("ship", () => call("ship"), once), ctx.step("invoice", () => call("invoice"), once)]);
  return `charged, shipped, invoiced, notified by ${by}`;
});

// The run fails on purpose, so its line on stderr is not wanted.
await using pawl = await open("outage.db", { logger: false });
pawl.work([order]);
const run = await pawl.start(order, undefined, { id: "order-1" });
await run.result().catch((error) => console.log(error instanceof RunFailedError, error.message));

isOutage = false;
await run.retry();
console.log(await run.result());

// Output:
// called: charge
// called: mail
// called: letter
// called: ship
// called: invoice
// true run "order-1" failed: ship is unreachable
// called: ship
// called: invoice
// charged, shipped, invoiced, notified by letter
