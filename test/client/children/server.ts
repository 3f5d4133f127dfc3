/**
 * A server in a process of its own, without keys: `server.ts <store> <port>`. It prints where it listens; it works on runs of `count`, which raise a slot.
 */

import { serve } from "../../../src/http/server/index.ts";
import { open, workflow } from "../../../src/index.ts";

const [store = "", port = "0"] = process.argv.slice(2);
const pawl = await open(store, { logger: false });
const count = workflow("count", async (ctx, by: number) =>
  ctx.slot<number>("count", { scope: "global", initial: 0 }).update((n) => n + by),
);
pawl.work([count]);
const server = await serve(pawl, { port: Number(port), keys: "none", logger: false });
console.log(server.url);
process.on("SIGTERM", async () => {
  await server.close({ timeout: "5s" });
  await pawl.close();
  process.exit(0);
});
