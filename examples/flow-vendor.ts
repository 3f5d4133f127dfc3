// A vendor allows three calls at a time, whatever workflow makes them: a limit with a name is shared by all workflows that name it. It also allows 100 charges
// in any minute: the rate is that of one workflow, and with `strict` no minute has more.

import { workflow } from "pawl";
import { openTest } from "pawl/testing";

const vendor = { name: "vendor", max: 3 };

const charge = workflow(
  { name: "charge", concurrency: vendor, rateLimit: { max: 100, per: "1 minute", strict: true } },
  async (ctx, order: number) => ctx.step("charge", () => `charged ${order}`),
);
const refund = workflow({ name: "refund", concurrency: vendor }, async (ctx, order: number) => {
  await ctx.sleep("1s");
  return ctx.step("refund", () => `refunded ${order}`);
});

const pawl = openTest();
pawl.work([charge, refund]);

const refunds = [];
for (let order = 1; order <= 3; order++) refunds.push(await pawl.start(refund, order));
const waiting = await pawl.start(charge, 4);
console.log("the charge is", (await waiting.status()).status);
console.log(await Promise.all(refunds.map((run) => run.result())), await waiting.result());

const charges = [];
for (let order = 5; order < 205; order++) charges.push(await pawl.start(charge, order));
const begunAt = pawl.clock.now().getTime();
await charges.at(-1)?.result();
console.log(`200 more took ${Math.round((pawl.clock.now().getTime() - begunAt) / 1000)} s`);
await pawl.close();

// Output:
// the charge is queued
// [ 'refunded 1', 'refunded 2', 'refunded 3' ] charged 4
// 200 more took 119 s
