/**
 * Rounds: all sides of a comparison take turns, each time in a fresh database of the same kind, and the first round of each is
 * thrown away, but for a quick run, which has only one. Whatever else the machine does meets all of them alike.
 *
 * In the first round, sides that are to write the same rows are checked for it: a contender that does less work than
 * it should ends the benchmark.
 */

import type { Contender, Timing } from "./contender.ts";
import type { Ground, Place, Sameness } from "./ground.ts";
import { claimAll } from "./ours.ts";
import { commitCount, type Plan } from "./plan.ts";
import { type Measure, measureOf, median, type Unit } from "./result.ts";
import { collectGarbage, cpuMs } from "./usage.ts";

/** What a case may ask of the run that it is part of. */
export interface Setting<G extends Ground = Ground> {
  readonly ground: G;
  /** For what is no round: files of a case's own. */
  readonly folder: string;
  readonly quick: boolean;
  /** How many rounds a case runs that would by itself run `wished`. */
  rounds(wished: number): number;
  /** Says what could not be measured here, and why. */
  note(sentence: string): void;
}

export interface Side {
  readonly name: string;
  readonly contender: Contender;
  readonly plan: () => Plan;
}

export interface SideMeasure extends Measure {
  /** How many commits shared a transaction. */
  readonly commitsPerTransaction: number;
  /** Processor time of this process for a commit, which is affected little by what else the machine does. */
  readonly cpuMsPerCommit: number;
}

export interface Comparison {
  readonly unit: Extract<Unit, "commits/s" | "ms">;
  readonly rounds: number;
  readonly sides: readonly Side[];
  /** What all sides must leave behind alike, if anything. */
  readonly same: Sameness | null;
}

/** Measures each side `rounds` times, in turns. The results are in the order of the sides. */
export async function compare(setting: Setting, comparison: Comparison): Promise<readonly SideMeasure[]> {
  const { sides, unit, rounds, same } = comparison;
  const figures = sides.map((): number[] => []);
  const sharing = sides.map((): number[] => []);
  const costs = sides.map((): number[] => []);
  const rowsLeft = new Set<string>();
  const warmUps = setting.quick ? 0 : 1;
  for (let round = 0; round < setting.rounds(rounds) + warmUps; round++) {
    for (const [index, side] of sides.entries()) {
      const warmUp = round < warmUps;
      const plan = side.plan();
      const timing = await playOnce(setting, side.contender, plan, async (place) => {
        if (round === 0 && same !== null) rowsLeft.add(await setting.ground.fingerprint(place, same));
      });
      if (rowsLeft.size > 1) throw new Error(`"${side.name}" left other rows than "${sides[0]?.name}"`);
      if (warmUp) continue;
      figures[index]?.push(unit === "ms" ? median(timing.latenciesMs) : (commitCount(plan) / timing.ms) * 1000);
      sharing[index]?.push(commitCount(plan) / timing.transactions);
      costs[index]?.push(timing.cpuMs / commitCount(plan));
    }
  }
  return sides.map(({ name }, index) => ({
    ...measureOf(name, figures[index] ?? []),
    commitsPerTransaction: median(sharing[index] ?? []),
    cpuMsPerCommit: median(costs[index] ?? []),
  }));
}

async function playOnce(
  { ground, quick }: Setting,
  contender: Contender,
  plan: Plan,
  after: (place: Place) => Promise<void>,
): Promise<Timing & { readonly cpuMs: number }> {
  const place = await ground.fresh();
  try {
    if (plan.claimed) await claimAll(place, plan);
    const session = await contender.open(place);
    if (!quick) await ground.settle();
    collectGarbage();
    const beforeMs = cpuMs();
    const timing = await session.run(plan).finally(() => session.close());
    const usedMs = cpuMs() - beforeMs;
    await after(place);
    return { ...timing, cpuMs: usedMs };
  } finally {
    await ground.remove(place);
  }
}
