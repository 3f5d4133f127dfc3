/**
 * Lists: decisions over many keys that must be serializable together (G32), whatever strikes.
 *
 * Workers follow random plans over lists by every path (`test/serializable`), and create one of two keys while they look at the other.
 * Every few seconds all of them move on to new keys, so that each history can be checked by itself. What a decision saw and wrote is
 * reported before the store gets it, so that the content of an attempt without a result is known: it happened if
 * anything of it was seen, and then all of it must have.
 */

import { PawlError } from "../../../src/index.ts";
import type { LastRead, ListOperation, ListTransaction } from "../../../src/testing/checkers/lists/transactions.ts";
import { checkSerializable } from "../../../src/testing/checkers/serializable.ts";
import { actOnce, actOnPair, type Desk, lastReads, type Outcome, windowOf } from "../../serializable/paths.ts";
import type { Bench } from "../bench.ts";
import { monotonicNs, type Operation } from "../ledger.ts";
import { type Evidence, overlaps, type Work } from "./work.ts";

const NAME = "lists";
const CALLERS = 3;
const WINDOW_MS = 4_000;
const MAX_PAUSE_MS = 150;
/** All who use a pair come to it within about so long. */
const PAIR_MS = 20;

export interface ListsInput {
  readonly mark: string;
  readonly window: string;
  readonly about: string;
}

/** What a run of a decision saw and wants to write. */
export interface DecidedNote {
  readonly mark: string;
  readonly operations: readonly ListOperation[];
}

export const lists: Work = {
  name: NAME,

  async act(bench) {
    let values = 0;
    const nextValue = () => {
      values += 1;
      return uniqueValue(bench.life, values);
    };
    await Promise.all([
      ...Array.from({ length: CALLERS }, () => call(bench, nextValue)),
      callOnPairs(bench, nextValue),
    ]);
  },

  async judge(pawl, evidence) {
    const keys = new Set<string>();
    for (const { operations } of transactionsOf(evidence).flatMap(([, all]) => all))
      for (const { key } of operations) keys.add(key);
    const last = await lastReads(pawl, [...keys]);
    return checkLists(evidence, last);
  },

  isCommit: ({ answer, output }) =>
    answer === "yes" && (output as Outcome).outcome === "committed" && isWriter((output as Outcome).operations),
};

/** Unique among all lives of all workers: "w3#7" is the seventh life of the third. */
function uniqueValue(life: string, count: number): number {
  const [place = 0, number = 0] = (life.match(/\d+/g) ?? []).map(Number);
  return (number * 1_000_000 + count) * 64 + place;
}

function deskOf(bench: Bench, window: string, nextValue: () => number): Desk {
  return {
    pawl: bench.pawl,
    name: bench.life,
    random: bench.random,
    nextValue,
    hasSql: true,
    sleep: (ms) => bench.sleep(ms),
    isConnectionLost,
    record: async (about, run) => {
      const mark = bench.mark();
      const decided = (operations: readonly ListOperation[]) =>
        bench.note(NAME, "decided", { mark, operations } satisfies DecidedNote);
      const answer = await bench.attempt(NAME, { mark, window, about } satisfies ListsInput, () => run(decided));
      return answer.is === "yes" ? answer.output : { outcome: "unknown", operations: [] };
    },
  };
}

/** In the transaction of `transact.sql`, before its end, the driver's own errors come through: nothing of it was committed. */
function isConnectionLost(error: unknown): boolean {
  if (!(error instanceof Error) || error instanceof PawlError) return false;
  const code = "code" in error ? String(error.code) : "";
  return /^(08|25|40|53|55|57|E[A-Z]+$)/.test(code) || /terminat|not queryable|closed/i.test(error.message);
}

const nowOf = (): number => monotonicNs() / 1e6;
const windowNow = (): string => `lists${Math.floor(nowOf() / WINDOW_MS)}`;

async function call(bench: Bench, nextValue: () => number): Promise<void> {
  while (!bench.isOver) {
    if (!bench.isHealing) {
      const window = windowNow();
      await actOnce(deskOf(bench, window, nextValue), windowOf(window));
    }
    await bench.sleep(bench.random.unit() * MAX_PAUSE_MS);
  }
}

/** Comes to each pair at its time, with workers of other processes. */
async function callOnPairs(bench: Bench, nextValue: () => number): Promise<void> {
  while (!bench.isOver) {
    const pair = Math.floor(nowOf() / PAIR_MS) + 1;
    await bench.sleep(Math.max(1, pair * PAIR_MS - nowOf()));
    if (bench.isHealing) continue;
    const window = windowNow();
    await actOnPair(deskOf(bench, window, nextValue), windowOf(window), pair, bench.random.below(2) as 0 | 1);
    await bench.sleep(bench.random.unit() * MAX_PAUSE_MS);
  }
}

/** Checks each window by itself; `last` is what every list holds in the end. */
export function checkLists(
  evidence: Evidence,
  last: ReadonlyMap<string, LastRead>,
): { readonly wrong: readonly string[]; readonly unknown: number; readonly happened: number } {
  const wrong: string[] = [];
  let unknown = 0;
  let happened = 0;
  for (const [window, transactions] of transactionsOf(evidence)) {
    const mine = new Map([...last].filter(([key]) => key.startsWith(`${window}/`)));
    const report = checkSerializable(transactions, { realTime: true, last: mine });
    wrong.push(...report.violations.map(({ message }) => `${window}: ${message}`));
    unknown += report.unknown;
    happened += report.unknownCommitted;
  }
  return { wrong, unknown, happened };
}

/** What was done in each window. What only read in a time of doubt may have seen what is gone afterwards, and tells nothing. */
function transactionsOf({ operations, notes, doubts }: Evidence): [string, readonly ListTransaction[]][] {
  const decided = new Map<string, readonly ListOperation[]>();
  for (const { what, data } of notes)
    if (what === "decided") decided.set((data as DecidedNote).mark, (data as DecidedNote).operations);
  const windows = new Map<string, ListTransaction[]>();
  for (const operation of operations) {
    const { mark, window, about } = operation.input as ListsInput;
    const { outcome, operations: done } = outcomeOf(operation, decided.get(mark) ?? []);
    const { startedAt, endedAt } = operation;
    const onlyRead = outcome === "aborted" || !isWriter(done);
    if (onlyRead && overlaps(doubts, startedAt, endedAt ?? startedAt)) continue;
    const transaction: ListTransaction = {
      id: mark,
      about,
      outcome,
      operations: done,
      startedAt,
      endedAt: endedAt ?? undefined,
    };
    const transactions = windows.get(window) ?? [];
    windows.set(window, transactions);
    transactions.push(transaction);
  }
  return [...windows];
}

function outcomeOf({ answer, output }: Operation, decided: readonly ListOperation[]): Outcome {
  if (answer === "yes") return output as Outcome;
  if (answer === "no") return { outcome: "aborted", operations: decided.filter(({ op }) => op !== "read") };
  return { outcome: "unknown", operations: decided };
}

const isWriter = (operations: readonly ListOperation[]): boolean => operations.some(({ op }) => op !== "read");
