/**
 * A process under load, made to be killed: several concurrent callers update, delete, and move amounts between slots with a
 * log entry in the same commit. Each writes down what was acknowledged, in a file that outlives the process, before it
 * asks for more; so each caller has at most one commit with an unknown outcome.
 *
 * Arguments: the database, the ledger, a name for this process among those that share the file, and its number of lives.
 */

import { openSync, writeSync } from "node:fs";
import { flushCompileCache } from "node:module";
import { address } from "../../../src/kernel/contract.ts";
import { open } from "../../../src/open.ts";

const CALLERS = 8;
const ACCOUNTS = 4;

const [path = "", ledgerPath = "", who = "", life = ""] = process.argv.slice(2);
flushCompileCache();
const ledger = openSync(ledgerPath, "a");
const acknowledged = (what: string, name: string, number: number): void => {
  writeSync(ledger, `${what} ${name} ${number}\n`);
};

const pawl = await open(path);
process.stdout.write("open\n");
await Promise.all(Array.from({ length: CALLERS }, (_, index) => call(`${who}${index}`)));

async function call(caller: string): Promise<void> {
  const count = pawl.slot<number>(`count/${caller}`, { initial: 0 });
  const toggled = pawl.slot<number>(`toggle/${caller}-${life}`);
  for (let toggles = 0; ; ) {
    const { value } = await count.update((n) => n + 1);
    acknowledged("count", `${caller}`, value);

    toggles += 1;
    if (toggles % 2 === 1) await toggled.set(toggles);
    else await toggled.delete();
    acknowledged("toggle", `${caller}-${life}`, toggles);

    acknowledged("pair", caller, await pair(caller));
  }
}

/** Two slots that always add up to zero, a log as long as their number, and a transfer between two accounts of all. */
function pair(caller: string): Promise<number> {
  const left = pawl.slot<{ n: number; filling: string }>(`left/${caller}`);
  const right = pawl.slot<{ n: number }>(`right/${caller}`);
  const from = pawl.slot<number>(`account/${Math.floor(Math.random() * ACCOUNTS)}`, { initial: 0 });
  const to = pawl.slot<number>(`account/${Math.floor(Math.random() * ACCOUNTS)}`, { initial: 0 });
  const trail = address("trail", caller);
  // Values of several pages make the log file long enough to be copied back while the load goes on.
  const filling = "x".repeat(Math.floor(Math.random() * 20_000));
  return pawl.kernel.transact(
    (tx) => {
      const n = (left.within(tx).get().value?.n ?? 0) + 1;
      left.within(tx).set({ n, filling });
      from.within(tx).update((amount) => amount - n);
      right.within(tx).set({ n: -n });
      to.within(tx).update((amount) => amount + n);
      const record = tx.record(trail);
      if (!record.exists) record.write({ value: null });
      record.append("paired", n);
      return n;
    },
    [left.touches, right.touches, trail],
  );
}
