/**
 * Registers: slots that behave like one value in one place (G10).
 *
 * Workers get, set, compare-and-swap, update and delete a few slots. Every few seconds all of them move on to new ones, so that
 * each history is short enough for a search over all orders, and long enough to have a fault in the middle. At the end each slot
 * is read once more: what was acknowledged long ago must still be there (G1).
 *
 * An attempt without an answer may have taken effect at any time after it began, or never. A definite no never did (G2).
 */

import type { Slot } from "../../../src/index.ts";
import { isLinearizable, type Operation as Step } from "../../../src/testing/index.ts";
import { register } from "../../simulation/scenarios/register.ts";
import type { Bench } from "../bench.ts";
import { monotonicNs, type Operation } from "../ledger.ts";
import { type Evidence, overlaps, type Work } from "./work.ts";

const NAME = "registers";
const KEYS = 10;
const CALLERS = 3;
const WINDOW_MS = 4_000;
const MAX_PAUSE_MS = 200;

type Verb = Parameters<typeof register.apply>[1];

export interface Wish {
  readonly key: string;
  readonly verb: Verb;
}

export const registers: Work = {
  name: NAME,

  async act(bench) {
    await Promise.all(Array.from({ length: CALLERS }, () => call(bench)));
  },

  async judge(pawl, evidence) {
    const keys = new Set(evidence.operations.map(({ input }) => (input as Wish).key));
    const last = new Map<string, unknown>();
    for (const key of keys) last.set(key, await pawl.slot<number>(key, { initial: 0 }).get());
    const unknown = evidence.operations.filter(
      ({ answer, input }) => answer === "unknown" && (input as Wish).verb.op !== "get",
    ).length;
    // Which of them happened cannot be told: any order that explains the rest will do.
    return { wrong: checkRegisters(evidence, last), unknown, happened: null };
  },

  isCommit: ({ answer, input, output }) => answer === "yes" && !wroteNothing((input as Wish).verb, output),
};

async function call(bench: Bench): Promise<void> {
  const { pawl, random } = bench;
  const seen = new Map<string, number>();
  while (!bench.isOver) {
    if (!bench.isHealing) {
      const window = Math.floor(monotonicNs() / 1e6 / WINDOW_MS);
      const key = `register/${window}/${random.below(KEYS)}`;
      const verb = draw(bench, seen.get(key) ?? 0);
      const answer = await bench.attempt(NAME, { key, verb } satisfies Wish, () =>
        perform(pawl.slot<number>(key, { initial: 0 }), verb),
      );
      const { output } = answer.is === "yes" ? answer : { output: {} };
      if ("version" in output && typeof output.version === "number") seen.set(key, output.version);
      if (seen.size > 4 * KEYS) seen.clear();
    }
    await bench.sleep(random.unit() * MAX_PAUSE_MS);
  }
}

function draw({ random }: Bench, seen: number): Verb {
  const value = random.below(1_000_000);
  const kind = random.unit();
  if (kind < 0.35) return { op: "get" };
  if (kind < 0.5) return { op: "set", value };
  if (kind < 0.7) return { op: "trySet", value, expectedVersion: random.chance(0.8) ? seen : 0 };
  if (kind < 0.92) return { op: "update", add: 1 + (value % 100) };
  return { op: "delete" };
}

function perform(slot: Slot<number, never>, verb: Verb): Promise<object> {
  switch (verb.op) {
    case "get":
      return slot.get();
    case "set":
      return slot.set(verb.value);
    case "trySet":
      return slot.trySet(verb.value, { expectedVersion: verb.expectedVersion });
    case "update":
      return slot.update((value) => value + verb.add);
    case "delete":
      return slot.delete();
  }
}

/** Looks for an order that explains every answer, slot by slot; `last` is what each holds in the end. */
export function checkRegisters({ operations, doubts }: Evidence, last: ReadonlyMap<string, unknown>): string[] {
  const histories = new Map<string, Step<Verb, unknown>[]>();
  for (const operation of operations) {
    const { key, verb } = operation.input as Wish;
    const history = histories.get(key) ?? [];
    histories.set(key, history);
    if (isTelling(operation, verb, doubts)) history.push(stepOf(operation, verb));
  }
  const wrong: string[] = [];
  for (const [key, history] of histories) {
    if (last.has(key))
      history.push({
        input: { op: "get" },
        startedAt: Number.MAX_SAFE_INTEGER - 1,
        endedAt: Number.MAX_SAFE_INTEGER,
        output: last.get(key),
      });
    if (!isLinearizable(history, register))
      wrong.push(`no order explains what ${key} answered: ${JSON.stringify(history)}`);
  }
  return wrong;
}

/** A definite no had no effect; whoever only reads without an answer, or reads what may be taken back, tells nothing. */
function isTelling(operation: Operation, verb: Verb, doubts: Evidence["doubts"]): boolean {
  const { answer, startedAt, endedAt, output } = operation;
  if (answer === "no") return false;
  if (answer !== "yes") return verb.op !== "get";
  return !(wroteNothing(verb, output) && overlaps(doubts, startedAt, endedAt ?? startedAt));
}

function wroteNothing(verb: Verb, output: unknown): boolean {
  if (verb.op === "get") return true;
  if (verb.op === "trySet") return !(output as { ok: boolean }).ok;
  return verb.op === "delete" && !(output as { deleted: boolean }).deleted;
}

function stepOf({ answer, startedAt, endedAt, output }: Operation, input: Verb): Step<Verb, unknown> {
  return { input, startedAt, endedAt: answer === "yes" ? endedAt : null, output };
}
