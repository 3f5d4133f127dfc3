/** A process that makes the calls of tasks until it is killed. */

import { httpTasks, open } from "../../../src/index.ts";

const [where = ""] = process.argv.slice(2);
const keys = { current: "k", ring: { k: new Uint8Array(32).fill(7) } };
const pawl = await open(where, { actions: { keys }, logger: false });
pawl.work([httpTasks({ allow: ["127.0.0.1/32"] })], { lease: 500 });
process.stdout.write("works\n");
