// One tenant has much to do; the others do not wait for all of it, because those that wait take turns by tenant.

import { workflow } from "pawl";
import { openTest } from "pawl/testing";

const report = workflow(
  {
    name: "report",
    concurrency: { max: 1 },
    fairness: {
      key: (job: { tenant: string; n: number }) => job.tenant,
      weight: ({ tenant }) => (tenant === "gold" ? 2 : 1),
    },
  },
  async (ctx, { tenant, n }) => ctx.step("write", () => order.push(`${tenant}-${n}`)),
);

const order: string[] = [];
const pawl = openTest();

const runs = [];
for (let n = 1; n <= 4; n++) runs.push(await pawl.start(report, { tenant: "big", n }));
for (let n = 1; n <= 3; n++) runs.push(await pawl.start(report, { tenant: "gold", n }));
runs.push(await pawl.start(report, { tenant: "small", n: 1 }));
// This one is urgent for its tenant.
runs.push(await pawl.start(report, { tenant: "big", n: 5 }, { priority: 10 }));

pawl.work([report]);
await Promise.all(runs.map((run) => run.result()));
console.log(order.join(" "));
await pawl.close();

// Output:
// big-1 big-5 gold-1 gold-2 small-1 big-2 gold-3 big-3 big-4
