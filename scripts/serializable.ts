/**
 * `npm run serializable`: many random decisions over many keys, by every path and from several processes, and a check that there is an
 * order which explains all of them (G32).
 *
 *   npm run serializable -- --store postgres --transactions 1000000 --seed 1 --processes 3
 *   npm run serializable -- --store sqlite --transactions 100000
 *   npm run serializable -- --store memory --lanes 3
 *
 * It prints what was done by each path, and exits with 1 and the smallest cycle if there is one. It uses the server that
 * `PAWL_TEST_POSTGRES` names, or starts one.
 */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { freshDatabase } from "../test/postgres/server.ts";
import { describeTotals, runLists } from "../test/serializable/run.ts";

const { values } = parseArgs({
  options: {
    store: { type: "string", default: "postgres" },
    transactions: { type: "string", default: "1000000" },
    seed: { type: "string", default: "1" },
    processes: { type: "string", default: "3" },
    callers: { type: "string", default: "20" },
    pairs: { type: "string", default: "2" },
    lanes: { type: "string", default: "3" },
    keys: { type: "string", default: "4" },
  },
});

const atLeast = (least: number, text: string, name: string): number => {
  const number = Number(text);
  if (!(number >= least)) throw new Error(`--${name} must be a number of at least ${least}, not "${text}"`);
  return number;
};

const startedMs = performance.now();
const seconds = () => (performance.now() - startedMs) / 1000;
const { where, leave } = await ground(values.store);
let toldMs = 0;
const totals = await runLists({
  store: where,
  transactions: atLeast(1, values.transactions, "transactions"),
  seed: atLeast(0, values.seed, "seed"),
  processes: atLeast(1, values.processes, "processes"),
  callers: atLeast(0, values.callers, "callers"),
  pairCallers: atLeast(0, values.pairs, "pairs"),
  lanes: atLeast(1, values.lanes, "lanes"),
  windowSize: atLeast(1, values.keys, "keys"),
  checked({ transactions, windows, violations }) {
    if (performance.now() - toldMs < 5_000 && violations.length === 0) return;
    toldMs = performance.now();
    console.log(
      `${seconds().toFixed(1).padStart(8)} s  ${transactions} transactions in ${windows} windows, ${violations.length} violations`,
    );
  },
});
console.log(`\n${describeTotals(totals, seconds())}`);
await leave();
process.exit(totals.violations.length === 0 ? 0 : 1);

async function ground(store: string): Promise<{ where: string; leave: () => Promise<void> }> {
  if (store === "memory") return { where: "memory:", leave: async () => {} };
  if (store === "postgres") {
    const { url, drop } = await freshDatabase();
    return { where: url, leave: drop };
  }
  if (store !== "sqlite") throw new Error(`--store must be postgres, sqlite or memory, not "${store}"`);
  const folder = mkdtempSync(join(tmpdir(), "pawl-serializable-"));
  return {
    where: join(folder, "lists.db"),
    leave: async () => rmSync(folder, { recursive: true, force: true, maxRetries: 3 }),
  };
}
