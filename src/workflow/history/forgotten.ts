/**
 * What a retry forgets: which facts of the history are ignored from then on, and which children are retried.
 *
 * A run that fails keeps with it what a retry would forget, as versions of its history. A few of them are in the run's record. Many are
 * listed in the history itself, in facts of their own before the one that ends the run, and the record says where: it is read and written
 * whenever something arrives for the run, and must not grow with every failure.
 */

import type { Address } from "../../kernel/contract.ts";
import type { Draft } from "../../kernel/draft.ts";
import type { Kernel } from "../../kernel/kernel.ts";
import type { Forgettable } from "../execution/memory.ts";
import { parseFact, type RunValue, type ToRetry, type VersionRange, type Word } from "../stored.ts";
import { isIn, merged, rangesOf } from "./ranges.ts";

/** The record holds at most this many of each. */
const MOST_IN_RECORD = 100;
/** One fact lists at most this many. */
const MOST_IN_FACT = 1000;

/** What a fact of the history lists. */
interface Listed {
  readonly facts?: readonly VersionRange[];
  /** Where the history has the starts of children that are waited for, and of others. */
  readonly children?: readonly VersionRange[];
  readonly left?: readonly VersionRange[];
}

/** What a retry would forget, as it is stored with a run that fails; writes the lists if there are many. */
export function forgetsOf(
  record: Draft,
  { facts, children }: Forgettable,
): NonNullable<RunValue["forgets"]> | undefined {
  if (facts.length + children.length === 0) return undefined;
  const ranges = rangesOf(facts.map(({ version }) => version));
  if (ranges.length + children.length <= MOST_IN_RECORD) return { facts: ranges, children: children.map(toRetry) };
  const versions = (ofWaiting: boolean): readonly VersionRange[] =>
    rangesOf(children.filter(({ waits }) => waits === ofWaiting).map(({ at }) => at.version));
  const lists = list(record, { facts: ranges, children: versions(true), left: versions(false) });
  return { facts: [], children: [], lists };
}

const toRetry = ({ id, run, waits }: Forgettable["children"][number]): ToRetry =>
  waits ? { id, run } : { id, run, isLeft: true };

/** A run's record with more facts that do not count; writes a list of them if there are many. */
export function withSkips(record: Draft, value: RunValue, skips: readonly VersionRange[]): RunValue {
  const all = [...(value.skips ?? []), ...skips];
  if (all.length <= MOST_IN_RECORD) return { ...value, skips: all };
  return { ...value, skips: [], skipLists: [...(value.skipLists ?? []), list(record, { facts: merged(all) })] };
}

/** Writes lists to the history; returns where they are. */
function list(record: Draft, { facts = [], children = [], left = [] }: Listed): VersionRange {
  const from = record.head + 1;
  const write = (listed: Listed): number => record.append("forgettable" satisfies Word, listed);
  for (let at = 0; at < facts.length; at += MOST_IN_FACT) write({ facts: facts.slice(at, at + MOST_IN_FACT) });
  for (let at = 0; at < children.length; at += MOST_IN_FACT) write({ children: children.slice(at, at + MOST_IN_FACT) });
  for (let at = 0; at < left.length; at += MOST_IN_FACT) write({ left: left.slice(at, at + MOST_IN_FACT) });
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
  const waited = merged(listed.flatMap(({ children = [] }) => children));
  const left = merged(listed.flatMap((one) => one.left ?? []));
  const starts = merged([...waited, ...left]);
  const found: ToRetry[] = [];
  for await (const { version, name, data } of kernel.entriesAfter(at, from - 1)) {
    if (version > (starts.at(-1)?.[1] ?? 0)) break;
    if (!isIn(starts, version)) continue;
    const { run } = kernel.decodeFresh(at, data) as { run: string };
    found.push({ id: parseFact(name).id, run, ...(isIn(left, version) ? { isLeft: true } : {}) });
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
