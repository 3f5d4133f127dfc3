/**
 * A process that is killed: it starts a run, says when it is in the middle of the second step, and never ends it.
 */

import { open, workflow } from "../../../src/index.ts";

const [path = ""] = process.argv.slice(2);
const pawl = await open(path, { namespace: "victims" });
const it = workflow("it", async (ctx) => [
  await ctx.step("one", () => "victim one"),
  await ctx.step("two", () => {
    process.stdout.write("in step two\n");
    return new Promise<string>(() => {});
  }),
]);
pawl.work([it], { lease: 500 });
await pawl.start(it, undefined, { id: "one" });
