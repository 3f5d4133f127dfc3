/**
 * What a case is, and the two kinds that most of them are: ours beside the raw limit, and ours under hard conditions beside ours
 * under easy ones.
 */

import type { Contender } from "./contender.ts";
import type { Ground, Sameness } from "./ground.ts";
import type { PlanOptions, steps } from "./plan.ts";
import { type Result, resultOf, type Target, type Unit } from "./result.ts";
import { compare, type Setting, type Side, type SideMeasure } from "./rounds.ts";

export interface Case<G extends Ground = Ground> {
  readonly id: string;
  readonly title: string;
  run(setting: Setting<G>): Promise<readonly Result[]>;
}

export const CALLERS = 100;
export const atLeast = (ratio: number): Target => ({ is: "at least", ratio });
export const atMost = (ratio: number): Target => ({ is: "at most", ratio });

/** How much a case writes: turns of all its callers, and rounds of that. */
interface Size {
  readonly turns: number;
  readonly rounds: number;
}

/** Of whole records, so that none is left in the middle. */
function turnsOf(setting: Setting, { turns }: Size, commitsPerRecord = 1): number {
  const wanted = setting.quick ? Math.max(10, Math.round(turns / 20)) : turns;
  return Math.ceil(wanted / commitsPerRecord) * commitsPerRecord;
}

// ------------------------------------------------------------------------------------------ ours and the raw limit

export interface AgainstRaw {
  readonly id: string;
  readonly title: string;
  readonly unit: Extract<Unit, "commits/s" | "ms">;
  readonly size: Size;
  /** The raw limit, or several ways to it, of which the best counts. */
  readonly raws: readonly Contender[];
  readonly contender: Contender;
  readonly make: typeof steps;
  readonly options: Omit<PlanOptions, "turns">;
  readonly target: Target | null;
  /** Lengths for a contender that writes rows of its own, as many and as long. */
  readonly same?: Sameness | null;
}

export function againstRaw(spec: AgainstRaw): Case {
  const { id, title, unit, size, raws, contender, make, options, target, same = "rows" } = spec;
  const run = async (setting: Setting): Promise<readonly Result[]> => {
    // One plan for all, so that random keys are the same ones too.
    const plan = make({ ...options, turns: turnsOf(setting, size, options.commitsPerRecord) });
    const sides = [...raws, contender].map((one): Side => ({ name: one.name, contender: one, plan: () => plan }));
    const measures = await compare(setting, { unit, rounds: size.rounds, sides, same });
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

export function amongOurs({ id, title, size, contender, make, easy, hard, target }: AmongOurs): Case {
  const run = async (setting: Setting): Promise<readonly Result[]> => {
    const turns = turnsOf(setting, size);
    const sides = [easy, hard].map(
      ([name, options]): Side => ({ name, contender, plan: () => make({ ...options, turns }) }),
    );
    const measures = await compare(setting, { unit: "commits/s", rounds: size.rounds, sides, same: null });
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
    measures.flatMap(({ name, median, commitsPerTransaction, cpuMsPerCommit }) => [
      [name, median],
      [`${name}: commits in a transaction`, commitsPerTransaction],
      [`${name}: processor's time of a commit, in ms`, cpuMsPerCommit],
    ]),
  );
}
