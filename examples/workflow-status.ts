// Why a run does not continue: its status names the step that failed, with the error and the time of the next attempt, and the signal that it
// waits for. `whyWaiting` returns the same in words.

import { open, signal, workflow } from "pawl";

const approved = signal("approved");

const order = workflow("order", async (ctx) => {
  const charged = ctx.step("charge", () => Promise.reject(new Error("503")), {
    retry: { delay: "2 minutes", maxDelay: "5 minutes" },
  });
  await Promise.all([charged, ctx.waitForSignal(approved)]);
});

await using pawl = await open("shop.db");
const { promise: rested, resolve } = Promise.withResolvers<void>();
pawl.work([order], { on: ({ type }) => void (type === "run.rested" && resolve()) });

const run = await pawl.start(order, undefined, { id: "order-7" });
await rested;

const info = await run.status();
for (const { kind, name, attempt, lastError, nextAttemptAt, since } of info.doing)
  console.log(kind, name, { attempt, lastError }, (nextAttemptAt ?? since) > since);

const { says } = await pawl.whyWaiting({ run: "order-7" });
console.log(says.replaceAll(/\d{4}-\S+Z/g, "…"));

// Output:
// step charge { attempt: 1, lastError: '503' } true
// signal approved { attempt: null, lastError: null } false
// run "order-7" waits for attempt 2 of step "charge" at … since … (the last error: 503) and waits for signal "approved" since …, and then needs a worker that knows it
