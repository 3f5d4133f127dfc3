/**
 * Plans: what a random transaction over lists does, drawn before it runs, so that a decision that runs again does the same.
 *
 * A plan is a few steps on named lists. Some names are not known beforehand: which list is next depends on what was read, so that keys
 * turn up late. A plan is followed on a `Table`, which is a decision's view of the store by whichever of its faces; what was seen
 * and done comes back as operations for the checker.
 */

import type { ListOperation } from "../../src/testing/checkers/lists/transactions.ts";
import type { Random } from "../../src/testing/sim/random.ts";

/** One list as a decision sees it. */
export interface Place {
  readonly list: readonly number[] | null;
  /** The record's version, where this face tells it. */
  readonly version: number | undefined;
  /** Writes the list; returns the record's version. */
  write(list: readonly number[]): number | undefined;
  remove(): number | undefined;
}

export interface Table {
  open(key: string): Place;
}

export interface Step {
  readonly act: "read" | "append" | "flip";
  /** Several: which of them depends on what was read so far. */
  readonly among: readonly string[];
  readonly value: number;
}

export interface Plan {
  readonly steps: readonly Step[];
  /** Whether the decision changes its mind at the end, after writing. */
  readonly throws: boolean;
}

/** The lists of one window. */
export interface Lists {
  /** Are deleted and created again. */
  readonly mortal: readonly string[];
  /** Are created once, and then only grow. */
  readonly growing: readonly string[];
}

/** A list that is longer is deleted instead of made longer. */
export const MAX_LENGTH = 30;

export function drawPlan(random: Random, lists: Lists, nextValue: () => number): Plan {
  const count = 1 + random.below(5);
  const isReader = random.chance(0.1);
  const steps = Array.from({ length: count }, (_, i): Step => {
    const kind = random.unit();
    const act = isReader || kind < 0.45 ? "read" : kind < 0.82 ? "append" : "flip";
    const pick = () => pickOne(random, act === "flip" || random.chance(0.55) ? lists.mortal : lists.growing);
    const isLate = i > 0 && random.chance(0.25);
    const among = isLate ? [pick(), pick(), pick()] : [pick()];
    return { act, among, value: nextValue() };
  });
  return { steps, throws: random.chance(0.08) };
}

/** Some are wanted more often than others: a tenth of them about every third time. */
function pickOne(random: Random, from: readonly string[]): string {
  return from[Math.floor(random.unit() ** 2 * from.length)] as string;
}

/** Lists that a plan surely touches, in its order. */
export const foreseen = ({ steps }: Plan): readonly string[] => [
  ...new Set(steps.flatMap(({ among }) => (among.length === 1 ? among : []))),
];

/** Follows a plan, and tells what was seen and done. */
export function follow({ steps }: Plan, table: Table): ListOperation[] {
  const operations: ListOperation[] = [];
  let seen = 0;
  for (const { act, among, value } of steps) {
    const key = among[seen % among.length] as string;
    const place = table.open(key);
    const { list } = place;
    operations.push(readOf(key, place));
    seen += list === null ? 1 : list.length + (list.at(-1) ?? 0);
    if (act === "read") continue;
    if (list !== null && (act === "flip" || list.length >= MAX_LENGTH))
      operations.push({ op: "delete", key, version: place.remove() });
    else operations.push(append(key, place, value));
  }
  return operations;
}

export function readOf(key: string, { list, version }: Place): ListOperation {
  return { op: "read", key, list, version: list === null ? version : undefined };
}

export function append(key: string, place: Place, value: number): ListOperation {
  const { list } = place;
  return {
    op: list === null ? "create" : "append",
    key,
    value,
    version: place.write(list === null ? [value] : [...list, value]),
  };
}
