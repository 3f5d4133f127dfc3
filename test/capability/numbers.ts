/**
 * A small capability, as ARCHITECTURE.md walks through it: numbers to take, as at a counter. Each name has a line of numbers, each number is
 * given out once, and a line that has not been used for a day is removed. A clerk, given to `pawl.work`, calls the numbers of its line one
 * after another, in one process at a time.
 *
 * It is one file because it is small; the parts below would be `stored.ts`, `decide.ts`, `clerk.ts` and `capability.ts` of a folder in src/.
 */

import type { Capability, View } from "../../src/kernel/capability.ts";
import { checkId } from "../../src/kernel/check.ts";
import { type Held, wake } from "../../src/kernel/claim/claim.ts";
import { startWorker } from "../../src/kernel/claim/worker.ts";
import { type Address, address } from "../../src/kernel/contract.ts";
import type { Tx } from "../../src/kernel/decision.ts";
import type { Kernel } from "../../src/kernel/kernel.ts";

// stored.ts: one record for each line, whose value is the last number. `KIND` is the queue in which unused lines are due. A record has one kind
// and one time at which it is due, so it is in one queue at a time; what needs two, as lines do with their clerks, has two records.
const SPACE = "numbers";
const KIND = "numbers";
const KEPT_MS = 24 * 60 * 60 * 1000;
const lineAt = (name: string): Address => address(SPACE, checkId(name, "the name"));

// decide.ts: the rule, and the decision.

/** The rule, without a store or a clock: a table test is all it needs. */
export const decideNext = (last: number | undefined): number => (last ?? 0) + 1;

/** The decision: reads and writes the record of the line, in whatever commit it is part of. */
function takeNumber(tx: Tx, name: string): number {
  const record = tx.record(lineAt(name));
  const next = decideNext(record.value as number | undefined);
  record.write({ value: next, kind: KIND, dueMs: tx.nowMs + KEPT_MS });
  wakeClerk(tx, name);
  return next;
}

// clerk.ts: what is worked on.

/** What a clerk works on: one record for each line, due as long as numbers were taken that were not called. */
const CLERK = "clerk";
const clerkAt = (name: string): Address => address("clerks", checkId(name, "the name"));

/** What the application defines, and gives to `pawl.work`. */
export class Clerk {
  readonly line: string;
  readonly call: (number: number) => Promise<void> | void;

  constructor(line: string, call: (number: number) => Promise<void> | void) {
    this.line = line;
    this.call = call;
  }
}

/** The record is due now: a wake-up makes it so also where a worker holds it and is about to rest. */
function wakeClerk(tx: Tx, name: string): void {
  const at = clerkAt(name);
  if (!wake(tx, at)) tx.record(at).write({ value: 0, kind: `${CLERK} ${name}`, dueMs: tx.nowMs });
}

/** Calls the numbers that were taken. Each call is recorded before the next; after a crash, the last one may be called again. */
async function callNumbers(held: Held, { line, call }: Clerk): Promise<void> {
  for (;;) {
    const next = await held.look((record, tx) => {
      const called = record.value as number;
      return called < ((tx.record(lineAt(line)).value as number | undefined) ?? 0) ? called + 1 : undefined;
    });
    if (next === undefined) {
      if ((await held.rest(() => null)) === "rested") return;
      continue;
    }
    await call(next);
    // A call that succeeded shows that it is not this record that ends its processes: it is no suspect when it is claimed next.
    await held.commit((record) => record.write({ value: next, tries: 1 }));
  }
}

/** What is done when a line is due: it is removed, unless it was used in the meantime. */
function removeUnused(tx: Tx, at: Address): boolean {
  const record = tx.record(at);
  if (!record.exists || record.dueMs === null || tx.nowMs < record.dueMs) return false;
  record.remove();
  tx.record(clerkAt(at.key)).remove();
  return true;
}

// capability.ts

/** On the handle. */
export interface NumberVerbs {
  /** Takes the next number of a line. */
  takeNumber(name: string): Promise<number>;
}

/** Inside `transact`. */
export interface NumberTxVerbs {
  /** Takes the next number of a line, if this commit happens. */
  takeNumber(name: string): number;
}

export function numberCapability(kernel: Kernel): Capability {
  const verbs: NumberVerbs = {
    // The records that the decision touches: they are read in one go. One that is left out is found when the decision asks for it, a little later.
    takeNumber: async (name) => kernel.transact((tx) => takeNumber(tx, name), [lineAt(name), clerkAt(name)]),
  };
  const view: View<NumberTxVerbs> = { takeNumber };
  return {
    verbs,
    view,
    queues: [{ kind: KIND, chore: (at) => kernel.transact((tx) => removeUnused(tx, at), [at]) }],
    works: {
      accepts: (definition) => definition instanceof Clerk,
      start: (definitions, settings) => {
        const clerks = new Map((definitions as readonly Clerk[]).map((clerk) => [clerk.line, clerk]));
        // The settings have the name in its leases, their length, the concurrency, and where errors of clerks are logged.
        const worker = startWorker(kernel, {
          ...settings,
          kinds: Array.from(clerks.keys(), (line) => `${CLERK} ${line}`),
          work: async (held) => {
            const clerk = clerks.get(held.at.key);
            if (clerk !== undefined) await callNumbers(held, clerk);
          },
        });
        return worker;
      },
    },
  };
}
