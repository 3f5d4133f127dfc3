/**
 * After "go", writes to a file whose lock another process holds, and prints how long its event loop was blocked meanwhile.
 * With "planted", its connection waits inside SQLite, which is the mistake to find.
 */

import { once } from "node:events";
import { open } from "../../../src/open.ts";
import { meterLoop, meterSqlite, plantBusyTimeout } from "./meter.ts";

const [path = "", planted = ""] = process.argv.slice(2);
if (planted === "planted") plantBusyTimeout(5000);
const pawl = await open(path);
const slot = pawl.slot<number>("held up", { initial: 0 });
process.stdout.write("ready\n");
await once(process.stdin, "data");

const waits = meterSqlite();
const loop = meterLoop();
const startedMs = performance.now();
const writing = slot.update((n) => n + 1);
// By now the write has met the lock; reading needs none.
await new Promise((resolve) => setTimeout(resolve, 50));
const { value: meanwhile } = await slot.get();
const readMs = performance.now() - startedMs;
const { value } = await writing;
const wroteMs = performance.now() - startedMs;
loop.stop();
await pawl.close();
process.stdout.write(`${JSON.stringify({ meanwhile, readMs, value, wroteMs, gaps: loop.gaps, waits })}\n`);
process.stdin.destroy();
