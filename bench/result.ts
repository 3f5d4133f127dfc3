/**
 * The results of a run of the benchmark: for each case two measures, their ratio, and the target.
 *
 * A ratio of two things measured in turns on one machine says more than a rate: rates of two machines, or of two hours of
 * one machine, cannot be compared. Every round is kept, so that the spread can be seen.
 */

export type Unit = "commits/s" | "pairs/s" | "ms" | "MiB" | "transactions" | "bytes" | "runs";

export interface Measure {
  readonly name: string;
  readonly median: number;
  readonly min: number;
  readonly max: number;
  readonly rounds: readonly number[];
}

export interface Target {
  readonly is: "at least" | "at most";
  readonly ratio: number;
}

export interface Result {
  /** The case, and where a case has several comparisons, which one: "a", "f2". */
  readonly id: string;
  readonly title: string;
  readonly unit: Unit;
  /** What ours is held against: the raw limit, or ours under easier conditions. */
  readonly base: Measure;
  readonly ours: Measure;
  /** Ours divided by base, by their medians. */
  readonly ratio: number;
  /** The same by the best round of each: where it is far from `ratio`, the machine was busy with something else. */
  readonly bestRatio: number;
  /** Null for a case without a target. */
  readonly target: Target | null;
  readonly reached: boolean | null;
  /** Whatever else was counted, by name. */
  readonly details: Readonly<Record<string, number | string>>;
}

export interface Machine {
  readonly platform: string;
  readonly cpu: string;
  readonly cores: number;
  readonly memoryGiB: number;
  readonly node: string;
  /** Name and version, such as "SQLite 3.53.4". */
  readonly database: string;
  /** Of the database's files; null where they are on another machine. */
  readonly disk: Disk | null;
}

export interface Disk {
  readonly fileSystem: string;
  /** Median of writing 4 KiB and waiting until it is on the disk. */
  readonly syncMs: number;
}

/** The databases that Pawl stores in. */
export const STORES = ["sqlite", "postgres"] as const;
export type StoreName = (typeof STORES)[number];

/** One store, measured in one go. */
export interface Report {
  readonly date: string;
  readonly mode: "full" | "quick";
  readonly seconds: number;
  readonly machine: Machine;
  readonly results: readonly Result[];
  /** What could not be measured here, and why. */
  readonly notes: readonly string[];
}

/** What is saved: each store that was measured. */
export type Saved = { readonly format: 2 } & { readonly [store in StoreName]?: Report };

export function measureOf(name: string, rounds: readonly number[]): Measure {
  return { name, median: median(rounds), min: Math.min(...rounds), max: Math.max(...rounds), rounds };
}

export function median(figures: readonly number[]): number {
  const sorted = figures.toSorted((a, b) => a - b);
  const upper = sorted[sorted.length >> 1] ?? Number.NaN;
  const lower = sorted[(sorted.length - 1) >> 1] ?? Number.NaN;
  return (upper + lower) / 2;
}

export function resultOf(
  parts: Omit<Result, "ratio" | "bestRatio" | "reached" | "details"> & { details?: Result["details"] },
): Result {
  const { target } = parts;
  const ratio = parts.ours.median / parts.base.median;
  const best = ({ min, max }: Measure) => (isLowerBetter(parts.unit) ? min : max);
  const bestRatio = best(parts.ours) / best(parts.base);
  const reached = target === null ? null : target.is === "at least" ? ratio >= target.ratio : ratio <= target.ratio;
  return { ...parts, ratio, bestRatio, reached, details: parts.details ?? {} };
}

export function isLowerBetter(unit: Unit): boolean {
  return unit !== "commits/s" && unit !== "pairs/s";
}
