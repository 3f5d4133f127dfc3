/**
 * A worker of the crew: opens the store and does every kind of work concurrently, until it is stopped or killed.
 *
 * It reports each attempt and each result to its parent (`bench.ts`), and reads commands as lines of JSON. Arguments: one JSON object.
 */

import { flushCompileCache } from "node:module";
import { createInterface } from "node:readline";
import { PawlError } from "../../../src/index.ts";
import type { Pawl } from "../../../src/pawl.ts";
import { Bench, type Order, say, skewDate } from "../bench.ts";
import { monotonicNs } from "../ledger.ts";
import { allWorks } from "../works/index.ts";
import { openAs } from "./open.ts";

export interface WorkerArguments {
  /** A path or an address, as `open` takes it. */
  readonly store: string;
  /** How many connections the pool has that it opens the store with; null for it to open the address itself. */
  readonly poolMax: number | null;
  readonly namespace: string;
  readonly patienceMs: number;
  readonly life: string;
  readonly seed: number;
  /** How far off the clock of JavaScript is; 0 where libfaketime does it. */
  readonly skewMs: number;
  readonly works: readonly string[];
}

const args = JSON.parse(process.argv[2] ?? "") as WorkerArguments;
flushCompileCache();
if (args.skewMs !== 0) skewDate(args.skewMs);
const note = (what: string, data: unknown) => say({ is: "note", work: "crew", what, data, at: monotonicNs() });

// Orders that come before the bench is there wait for it.
const early: Order[] = [];
let obey = (order: Order): void => void early.push(order);
const lines = createInterface({ input: process.stdin });
lines.on("line", (line) => obey(JSON.parse(line) as Order));
// A parent that is gone takes its workers with it.
lines.on("close", () => process.exit(3));

process.on("warning", (warning) => {
  if (warning.name === "PawlWarning") note("warned", { code: "code" in warning ? warning.code : null });
});
note("started", { wallMs: Date.now() });
const { pawl, end } = await openPatiently();
const bench = new Bench(pawl, args.life, args.seed);
for (const order of early) bench.obey(order);
obey = (order) => bench.obey(order);
note("opened", {});
await Promise.all(allWorks.filter(({ name }) => args.works.includes(name)).map((work) => work.act(bench)));
await pawl.close();
await end();
note("closed", {});
process.exit(0);

/** The store may be away when the worker starts. */
async function openPatiently(): Promise<{ readonly pawl: Pawl; readonly end: () => Promise<void> }> {
  for (;;) {
    try {
      return await openAs(args);
    } catch (error) {
      if (!(error instanceof PawlError) || !/^store_|^outcome_unknown$/.test(error.code)) throw error;
      note("open refused", { code: error.code, message: error.message });
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }
}
