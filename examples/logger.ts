// What an operator should know is logged, one line each. By default it is written to stderr; here it goes to the application's own logger, such as
// pino, winston or console.

import { open, workflow } from "pawl";

const logger = {
  warn: (line: string) => console.log("warn:", line),
  error: (line: string) => console.log("error:", line),
};

const pay = workflow("pay", (ctx) =>
  ctx.step("charge", () => Promise.reject(new Error("card declined")), { retry: { attempts: 1 } }),
);
const order = workflow("order", async (ctx) => {
  // A mistake: the run waits for the step, but nothing looks at its outcome.
  void ctx.step("mail", () => {});
  return "ordered";
});

await using pawl = await open("lines.db", { logger });
pawl.work([pay, order]);
await (await pawl.start(pay, undefined, { id: "pay-1" })).result().catch(() => {});
console.log(await (await pawl.start(order, undefined, { id: "order-1" })).result());

// Output:
// warn: pawl: run "pay-1" of "pay" failed: card declined
// warn: pawl: run "order-1" of "order": the workflow's function returned without awaiting step "mail"
// ordered
