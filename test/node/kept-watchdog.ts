/**
 * Keeps the watchdog's thread for all files that share a process. Otherwise each test whose handle is the only one that works would start and end a
 * thread, which takes 20 ms of processor time. That the thread comes and goes with the work is tested in a process without this
 * (src/node/watchdog.test.ts).
 */

import { startWatchdog } from "../../src/node/watchdog.ts";

/** Never stopped. The longest limit there is: what a test sets is shorter, and the shortest counts. */
startWatchdog({ limitMs: 2 ** 31 - 1 });
