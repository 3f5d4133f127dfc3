/**
 * The cases: what is compared with what, how much of it, and what is aimed at.
 *
 * Sizes are such that a full run ends within six minutes on a busy machine with two cores; a quick run is only there to see
 * that everything runs, and its figures mean nothing. A round is long enough that SQLite copies its log back at least once.
 */

import type { Contender } from "./contender.ts";
import { million } from "./million.ts";
import { ours, oursHeld, oursSlot } from "./ours.ts";
import { counters, type PlanOptions, steps } from "./plan.ts";
import { processes } from "./processes.ts";
import { rawMany, rawRows } from "./raw.ts";
import { type Result, resultOf, type Target, type Unit } from "./result.ts";
import { compare, type Setting, type Side, type SideMeasure } from "./rounds.ts";

export interface Case {
  readonly id: string;
  readonly title: string;
  run(setting: Setting): Promise<readonly Result[]>;
}

const CALLERS = 100;
const atLeast = (ratio: number): Target => ({ is: "at least", ratio });
const atMost = (ratio: number): Target => ({ is: "at most", ratio });

/** How much a case writes: turns of all its callers, and rounds of that. */
interface Size {
  readonly turns: number;
  readonly rounds: number;
}

function turnsOf(setting: Setting, { turns }: Size): number {
  return setting.quick ? Math.max(10, Math.round(turns / 20)) : turns;
}

// ------------------------------------------------------------------------------------------ ours and the raw limit

interface AgainstRaw {
  readonly id: string;
  readonly title: string;
  readonly unit: Extract<Unit, "commits/s" | "ms">;
  readonly size: Size;
  readonly contender: Contender;
  readonly make: typeof steps;
  readonly options: Omit<PlanOptions, "turns">;
  readonly target: Target | null;
}

function againstRaw(spec: AgainstRaw): Case {
  const { id, title, unit, size, contender, make, options, target } = spec;
  const run = async (setting: Setting): Promise<readonly Result[]> => {
    // One plan for all, so that random keys are the same ones too.
    const plan = make({ ...options, turns: turnsOf(setting, size) });
    // With one caller, a statement for each row is a statement for each turn.
    const raws = options.callers === 1 ? [rawRows] : [rawRows, rawMany];
    const sides = [...raws, contender].map((one): Side => ({ name: one.name, contender: one, plan: () => plan }));
    const measures = await compare(setting, { unit, rounds: size.rounds, sides, sameRows: true });
    const mine = nth(measures, raws.length);
    const base = measures.slice(0, raws.length).reduce((best, one) => (isBetter(unit, one, best) ? one : best));
    return [resultOf({ id, title, unit, base, ours: mine, target, details: detailsOf(measures) })];
  };
  return { id, title, run };
}

function isBetter(unit: Unit, one: SideMeasure, other: SideMeasure): boolean {
  return unit === "ms" ? one.median < other.median : one.median > other.median;
}

// ---------------------------------------------------------------------------------------------------- ours and ours

interface AmongOurs {
  readonly id: string;
  readonly title: string;
  readonly size: Size;
  readonly contender: Contender;
  readonly make: typeof steps;
  readonly easy: readonly [name: string, options: Omit<PlanOptions, "turns">];
  readonly hard: readonly [name: string, options: Omit<PlanOptions, "turns">];
  readonly target: Target | null;
}

function amongOurs({ id, title, size, contender, make, easy, hard, target }: AmongOurs): Case {
  const run = async (setting: Setting): Promise<readonly Result[]> => {
    const turns = turnsOf(setting, size);
    const sides = [easy, hard].map(
      ([name, options]): Side => ({ name, contender, plan: () => make({ ...options, turns }) }),
    );
    const measures = await compare(setting, { unit: "commits/s", rounds: size.rounds, sides, sameRows: false });
    const [base, mine] = [nth(measures, 0), nth(measures, 1)];
    return [resultOf({ id, title, unit: "commits/s", base, ours: mine, target, details: detailsOf(measures) })];
  };
  return { id, title, run };
}

function nth(measures: readonly SideMeasure[], index: number): SideMeasure {
  const measure = measures[index];
  if (measure === undefined) throw new Error("a side was not measured");
  return measure;
}

function detailsOf(measures: readonly SideMeasure[]): Record<string, number> {
  return Object.fromEntries(
    measures.flatMap(({ name, median, commitsPerTransaction }) => [
      [name, median],
      [`${name}: commits in a transaction`, commitsPerTransaction],
    ]),
  );
}

// -------------------------------------------------------------------------------------------------------- the cases

export const cases: readonly Case[] = [
  againstRaw({
    id: "a",
    title: "100 callers, a record and a log entry",
    unit: "commits/s",
    size: { turns: 1600, rounds: 5 },
    contender: ours,
    make: steps,
    options: { callers: CALLERS },
    target: atLeast(0.6),
  }),
  againstRaw({
    id: "b",
    title: "the same by the holder, nothing read",
    unit: "commits/s",
    size: { turns: 1600, rounds: 5 },
    contender: oursHeld,
    make: steps,
    options: { callers: CALLERS, claimed: true },
    target: atLeast(0.6),
  }),
  againstRaw({
    id: "c",
    title: "the same, each commit a new record",
    unit: "commits/s",
    size: { turns: 1600, rounds: 5 },
    contender: ours,
    make: steps,
    options: { callers: CALLERS, commitsPerRecord: 1 },
    target: atLeast(0.6),
  }),
  againstRaw({
    id: "d",
    title: "a lone caller: time of a commit",
    unit: "ms",
    size: { turns: 400, rounds: 9 },
    contender: ours,
    make: steps,
    options: { callers: 1 },
    target: atMost(1.5),
  }),
  amongOurs({
    id: "e",
    title: "100 callers on one hot record",
    size: { turns: 400, rounds: 5 },
    contender: ours,
    make: steps,
    easy: ["on 100 records", { callers: CALLERS }],
    hard: ["on one record", { callers: CALLERS, hot: true }],
    target: atLeast(1),
  }),
  amongOurs({
    id: "f1",
    title: "random keys, ten commits to each",
    size: { turns: 1000, rounds: 3 },
    contender: ours,
    make: steps,
    easy: ["ordered keys", { callers: CALLERS }],
    hard: ["random keys", { callers: CALLERS, order: "random" }],
    target: atLeast(0.75),
  }),
  amongOurs({
    id: "f2",
    title: "random keys, only new records",
    size: { turns: 1000, rounds: 3 },
    contender: ours,
    make: steps,
    easy: ["ordered keys", { callers: CALLERS, commitsPerRecord: 1 }],
    hard: ["random keys", { callers: CALLERS, commitsPerRecord: 1, order: "random" }],
    target: atLeast(0.75),
  }),
  againstRaw({
    id: "f3",
    title: "random keys, only new records",
    unit: "commits/s",
    size: { turns: 600, rounds: 3 },
    contender: ours,
    make: steps,
    options: { callers: CALLERS, commitsPerRecord: 1, order: "random" },
    target: atLeast(0.6),
  }),
  { id: "g", title: "a million records that come due", run: million },
  { id: "h", title: "two and four processes on one file", run: processes },
  againstRaw({
    id: "i1",
    title: "slot.update, 100 callers, a slot each",
    unit: "commits/s",
    size: { turns: 400, rounds: 5 },
    contender: oursSlot,
    make: counters,
    options: { callers: CALLERS },
    target: null,
  }),
  amongOurs({
    id: "i2",
    title: "slot.update, 100 callers on one slot",
    size: { turns: 400, rounds: 5 },
    contender: oursSlot,
    make: counters,
    easy: ["on 100 slots", { callers: CALLERS }],
    hard: ["on one slot", { callers: CALLERS, hot: true }],
    target: null,
  }),
];
