/**
 * Rounds: all sides of a comparison take turns, each time on a fresh file in the same folder, and the first round of each is
 * thrown away. Whatever else the machine does meets all of them alike.
 *
 * In the thrown-away round, sides that are to write the same rows are checked for it: a contender that does less work than
 * it should ends the benchmark.
 */

import { createHash } from "node:crypto";
import { rmSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import type { Contender, Timing } from "./contender.ts";
import { claimAll } from "./ours.ts";
import { commitCount, type Plan } from "./plan.ts";
import { type Measure, measureOf, median, type Unit } from "./result.ts";

/** What a case may ask of the run that it is part of. */
export interface Setting {
  /** Where the databases are made. */
  readonly folder: string;
  readonly quick: boolean;
  /** How many rounds a case runs that would by itself run `wished`. */
  rounds(wished: number): number;
}

export interface Side {
  readonly name: string;
  readonly contender: Contender;
  readonly plan: () => Plan;
}

export interface SideMeasure extends Measure {
  /** How many commits shared a transaction. */
  readonly commitsPerTransaction: number;
}

export interface Comparison {
  readonly unit: Extract<Unit, "commits/s" | "ms">;
  readonly rounds: number;
  readonly sides: readonly Side[];
  /** All sides must leave the same rows behind. */
  readonly sameRows: boolean;
}

/** Measures each side so many times, in turns; the answers are in the order of the sides. */
export async function compare(setting: Setting, comparison: Comparison): Promise<readonly SideMeasure[]> {
  const { sides, unit, rounds, sameRows } = comparison;
  const figures = sides.map((): number[] => []);
  const sharing = sides.map((): number[] => []);
  const rowsLeft = new Set<string>();
  for (let round = 0; round <= setting.rounds(rounds); round++) {
    for (const [index, side] of sides.entries()) {
      const warmUp = round === 0;
      const plan = side.plan();
      const timing = await playOnce(setting, side.contender, plan, (path) => {
        if (warmUp && sameRows) rowsLeft.add(fingerprint(path));
      });
      if (rowsLeft.size > 1) throw new Error(`"${side.name}" left other rows than "${sides[0]?.name}"`);
      if (warmUp) continue;
      figures[index]?.push(unit === "ms" ? median(timing.latenciesMs) : (commitCount(plan) / timing.ms) * 1000);
      sharing[index]?.push(commitCount(plan) / timing.transactions);
    }
  }
  return sides.map(({ name }, index) => ({
    ...measureOf(name, figures[index] ?? []),
    commitsPerTransaction: median(sharing[index] ?? []),
  }));
}

async function playOnce(
  setting: Setting,
  contender: Contender,
  plan: Plan,
  after: (path: string) => void,
): Promise<Timing> {
  const path = join(setting.folder, "round.db");
  removeDatabase(path);
  try {
    if (plan.claimed) await claimAll(path, plan);
    const session = await contender.open(path);
    collectGarbage();
    const timing = await session.run(plan);
    await session.close();
    after(path);
    return timing;
  } finally {
    removeDatabase(path);
  }
}

export function removeDatabase(path: string): void {
  for (const suffix of ["", "-wal", "-shm"]) rmSync(path + suffix, { force: true });
}

/** Everything that was written, but for the times and the fences that come from them. */
function fingerprint(path: string): string {
  const db = new DatabaseSync(path, { readOnly: true });
  const hash = createHash("sha256");
  const queries = [
    `select namespace, space, key, version, wakes, tries, holder, kind, status, head, value from pawl_record
     order by namespace, space, key`,
    "select r.key, l.version, l.name, l.data from pawl_log l join pawl_record r on r.id = l.record order by r.key, l.version",
  ];
  for (const query of queries) for (const row of db.prepare(query).iterate()) hash.update(JSON.stringify(row));
  db.close();
  return hash.digest("hex");
}

setFlagsFromString("--expose-gc");
const gc: unknown = runInNewContext("gc");

/** So that no side pays for the garbage of the one before. */
export function collectGarbage(): void {
  if (typeof gc === "function") gc();
}
