/**
 * What a retry forgets: which facts of the history do not count any more, and which children are retried.
 *
 * A run that fails keeps with it what a retry would forget, as versions of its history. A few of them are in the run's record. Many are
 * listed in the history itself, in facts of their own before the one that ends the run, and the record says where: it is read and written
 * whenever there is news for the run, and must not grow with what once failed.
 */

import type { Address } from "../kernel/contract.ts";
import type { Draft } from "../kernel/draft.ts";
import type { Kernel } from "../kernel/kernel.ts";
import type { Forgettable } from "./coroutine.ts";
import { type RunValue, rangesOf, type VersionRange } from "./run.ts";
import { parseFact, type Word } from "./words.ts";

/** The record holds at most this many of each. */
const MOST_IN_RECORD = 100;
/** One fact lists at most this many. */
const MOST_IN_FACT = 1000;

/** A child that is retried with its parent, by the operation that waits for it. */
export interface ToRetry {
  readonly id: string;
  readonly run: string;
}

/** What a fact of the history lists. */
interface Listed {
  readonly facts?: readonly VersionRange[];
  /** Where the history has the starts of children. */
  readonly children?: readonly VersionRange[];
}

/** What a retry would forget, as it is stored with a run that fails; writes the lists if there are many. */
export function forgetsOf(
  record: Draft,
  { facts, children }: Forgettable,
): NonNullable<RunValue["forgets"]> | undefined {
  if (facts.length + children.length === 0) return undefined;
  const ranges = rangesOf(facts.map(({ version }) => version));
  if (ranges.length + children.length <= MOST_IN_RECORD)
    return { facts: ranges, children: children.map(({ id, run }) => ({ id, run })) };
  const lists = list(record, { facts: ranges, children: rangesOf(children.map(({ at }) => at.version)) });
  return { facts: [], children: [], lists };
}

/** A run's record with more facts that do not count; writes a list of them if there are many. */
export function withSkips(record: Draft, value: RunValue, skips: readonly VersionRange[]): RunValue {
  const all = [...(value.skips ?? []), ...skips];
  if (all.length <= MOST_IN_RECORD) return { ...value, skips: all };
  return { ...value, skips: [], skipLists: [...(value.skipLists ?? []), list(record, { facts: merged(all) })] };
}

/** Writes lists to the history; returns where they are. */
function list(record: Draft, { facts = [], children = [] }: Listed): VersionRange {
  const from = record.head + 1;
  const write = (listed: Listed): number => record.append("forgettable" satisfies Word, listed);
  for (let at = 0; at < facts.length; at += MOST_IN_FACT) write({ facts: facts.slice(at, at + MOST_IN_FACT) });
  for (let at = 0; at < children.length; at += MOST_IN_FACT) write({ children: children.slice(at, at + MOST_IN_FACT) });
  return [from, record.head];
}

/** The facts of a run that do not count, in order. */
export async function skipsOf(kernel: Kernel, at: Address, value: RunValue): Promise<readonly VersionRange[]> {
  const { skips = [], skipLists = [] } = value;
  const all = [...skips];
  for (const lists of skipLists) for (const { facts = [] } of await readLists(kernel, at, lists)) all.push(...facts);
  return merged(all);
}

/** The children that are retried with a run, in the order in which they were started. */
export async function childrenToRetry(
  kernel: Kernel,
  at: Address,
  { from, retrying }: RunValue,
): Promise<readonly ToRetry[]> {
  if (retrying?.lists === undefined) return retrying?.children ?? [];
  const listed = await readLists(kernel, at, retrying.lists);
  const starts = merged(listed.flatMap(({ children = [] }) => children));
  const found: ToRetry[] = [];
  for await (const { version, name, data } of kernel.entriesAfter(at, from - 1)) {
    if (version > (starts.at(-1)?.[1] ?? 0)) break;
    if (!isIn(starts, version)) continue;
    const { run } = kernel.decodeFresh(at, data) as { run: string };
    found.push({ id: parseFact(name).id, run });
  }
  return found;
}

async function readLists(kernel: Kernel, at: Address, [from, to]: VersionRange): Promise<readonly Listed[]> {
  const listed: Listed[] = [];
  for await (const { version, data } of kernel.entriesAfter(at, from - 1)) {
    if (version > to) break;
    listed.push(kernel.decodeFresh(at, data) as Listed);
  }
  return listed;
}

/** Ranges in order, none of which touches another. */
export function merged(ranges: readonly VersionRange[]): readonly VersionRange[] {
  const inOrder: [number, number][] = [];
  for (const [from, to] of [...ranges].sort((one, other) => one[0] - other[0])) {
    const last = inOrder.at(-1);
    if (last !== undefined && from <= last[1] + 1) last[1] = Math.max(last[1], to);
    else inOrder.push([from, to]);
  }
  return inOrder;
}

/** Whether one of these ranges, which are in order, has the version. */
export function isIn(ranges: readonly VersionRange[], version: number): boolean {
  let from = 0;
  for (let to = ranges.length; from < to; ) {
    const middle = (from + to) >> 1;
    if ((ranges[middle]?.[1] ?? 0) < version) from = middle + 1;
    else to = middle;
  }
  return (ranges[from]?.[0] ?? Number.POSITIVE_INFINITY) <= version;
}
