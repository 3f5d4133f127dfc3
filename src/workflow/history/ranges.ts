/**
 * Ranges of versions: how lists of facts are stored, and how to look a fact up in them.
 */

import type { VersionRange } from "../stored.ts";

/** Versions as ranges, in order. */
export function rangesOf(versions: readonly number[]): readonly VersionRange[] {
  const ranges: [number, number][] = [];
  for (const version of [...new Set(versions)].sort((a, b) => a - b)) {
    const last = ranges.at(-1);
    if (last !== undefined && last[1] === version - 1) last[1] = version;
    else ranges.push([version, version]);
  }
  return ranges;
}

/** The same ranges in order, merged where they overlap or touch. */
export function merged(ranges: readonly VersionRange[]): readonly VersionRange[] {
  const inOrder: [number, number][] = [];
  for (const [from, to] of [...ranges].sort((one, other) => one[0] - other[0])) {
    const last = inOrder.at(-1);
    if (last !== undefined && from <= last[1] + 1) last[1] = Math.max(last[1], to);
    else inOrder.push([from, to]);
  }
  return inOrder;
}

/** Whether one of these ranges, which are in order, contains the version. */
export function isIn(ranges: readonly VersionRange[], version: number): boolean {
  let from = 0;
  for (let to = ranges.length; from < to; ) {
    const middle = (from + to) >> 1;
    if ((ranges[middle]?.[1] ?? 0) < version) from = middle + 1;
    else to = middle;
  }
  return (ranges[from]?.[0] ?? Number.POSITIVE_INFINITY) <= version;
}
