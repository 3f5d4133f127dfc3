/**
 * A process that pauses in the middle of a decision: it reports that, and then waits, so that its parent can stop it there.
 *
 * "locked": it adds one to the slot "a", whose row, and that of "b", the store has locked by then. "held": it has claimed a record, and
 * appends to its log what it decides without asking the store. It reports the outcome, and ends when it reads "end".
 */

import { writeSync } from "node:fs";
import { createInterface } from "node:readline";
import { PawlError } from "../../../src/index.ts";
import { claimDue } from "../../../src/kernel/claim/claim.ts";
import { open } from "../../../src/open.ts";

const STILL_MS = 500;

const [store = "", mode = "", lease = ""] = process.argv.slice(2);
const say = (line: string): void => void writeSync(1, `${line}\n`);
const pawl = await open(store, { patience: "30s" });
let hasStood = false;

/** Only the first time: a decision may run again. */
function standStill(): void {
  if (hasStood) return;
  hasStood = true;
  say("deciding");
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, STILL_MS);
}

async function outcome(act: () => Promise<unknown>): Promise<void> {
  try {
    say(`done ${JSON.stringify(await act())}`);
  } catch (error) {
    say(error instanceof PawlError ? `refused ${error.code}` : `failed ${error}`);
  }
}

if (mode === "locked") {
  const [a, b] = [pawl.slot<number>("a", { initial: 0 }), pawl.slot<number>("b", { initial: 0 })];
  await outcome(() =>
    pawl.transact(
      (tx) => {
        const { value } = tx.slot(a).get();
        standStill();
        tx.slot(b).set(value + 1);
        return tx.slot(a).set(value + 1);
      },
      { touches: [a, b] },
    ),
  );
} else {
  const { held } = await claimDue(pawl.kernel, { kinds: ["job"], by: "stopped", leaseMs: Number(lease), limit: 1 });
  const [job] = held;
  if (job === undefined) throw new Error("there was nothing to claim");
  await outcome(() =>
    job.commit((record) => {
      standStill();
      return record.append("late", { fence: job.fence });
    }),
  );
  await outcome(() => job.renew(Number(lease)));
  await outcome(() => job.rest(() => null));
}
const lines = createInterface({ input: process.stdin });
lines.on("line", () => void pawl.close().then(() => process.exit(0)));
lines.on("close", () => process.exit(3));
