// At most two runs of a customer, and three in all. What exceeds a limit waits in line, and begins in the commit that ends another run.

import { open, workflow } from "pawl";

let now = 0;
let most = 0;

const convert = workflow(
  {
    name: "convert",
    concurrency: [{ max: 2, key: (video: { customer: string; file: string }) => video.customer }, { max: 3 }],
  },
  async (ctx, { file }) => {
    await ctx.step("begin", () => {
      most = Math.max(most, ++now);
    });
    await ctx.sleep("50ms");
    await ctx.step("end", () => {
      now -= 1;
    });
    return `${file}.webm`;
  },
);

await using pawl = await open("videos.db");

const runs = [];
for (const [n, customer] of ["ann", "ann", "ann", "bob", "bob"].entries())
  runs.push(await pawl.start(convert, { customer, file: `${customer}-${n}` }, { id: `convert-${n}` }));

console.log((await runs[2]?.status())?.status, (await runs[3]?.status())?.status, (await runs[4]?.status())?.status);
const { chain } = await pawl.whyWaiting({ run: "convert-2" });
for (const { says } of chain.slice(0, 2)) console.log(says);
pawl.work([convert]);
console.log((await Promise.all(runs.map((run) => run.result()))).join(" "));
console.log("at most", most, "at the same time");

// Output:
// queued pending queued
// run "convert-2" is queued: 1 run of its workflow with its keys waits in this line, and 0 of them are before it in its priority
// the concurrency limit of workflow "convert" for the key "ann" has admitted 2 runs that have not ended: "convert-0", "convert-1", and its max is 2 (pawl.runs.list({ workflow: "convert" }) shows runs with their status)
// ann-0.webm ann-1.webm ann-2.webm bob-3.webm bob-4.webm
// at most 3 at the same time
