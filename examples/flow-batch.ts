// Events are inserted together: one run for up to a hundred of them, or for what came within two seconds. Each caller gets the run that has its event.

import { workflow } from "pawl";
import { openTest } from "pawl/testing";

const insert = workflow(
  { name: "insert", batch: { size: 100, maxWait: "2s" } },
  async (ctx, events: readonly { user: string }[]) => {
    await ctx.step("insert", () => console.log(`inserted ${events.length}:`, events.map(({ user }) => user).join(" ")));
    return events.length;
  },
);

const pawl = openTest();
pawl.work([insert]);

const runs = [];
for (const user of ["ann", "bob", "cyd"]) runs.push(await pawl.start(insert, { user }, { id: `signup-${user}` }));
// A webhook that arrives twice is inserted once.
const again = await pawl.start(insert, { user: "ann" }, { id: "signup-ann" });
console.log("the same run:", again.id === runs[0]?.id);
console.log("inserted with bob's:", await runs[1]?.result());
await pawl.close();

// Output:
// the same run: true
// inserted 3: ann bob cyd
// inserted with bob's: 3
