/**
 * The entries of a stream, in order and without gaps, wherever they are: from the archive where they were removed from the store.
 *
 * `firstVersion` in the stream's value is raised before events are removed. So when the store lacks an event, the stream's record, read after that,
 * tells whether it was removed, which the archive may have, or is lost.
 */

import type { Address, FollowedEntry, StoredEntry } from "../../kernel/contract.ts";
import { type Kernel, PAGE_BYTES } from "../../kernel/kernel.ts";
import { EventGoneError, EventsArchivedError } from "../errors.ts";
import type { ArchivedProgress } from "../reactions/stored.ts";
import {
  CLOSED,
  firstVersionOf,
  PRUNED,
  REMOVED,
  type RemovedValue,
  STREAMS,
  type StoredEvent,
  type StreamValue,
  streamAt,
} from "../stored.ts";
import { archivedEntries } from "./archive.ts";
import { hasRemoved } from "./decide.ts";

/** How many entries are read at a time. */
export const PAGE = 500;

/** What the record of a stream says; undefined if there is none. */
export async function readStreamValue(
  kernel: Kernel,
  at: Address,
): Promise<{ readonly value: StreamValue; readonly head: number; readonly status: string | null } | undefined> {
  const [row] = await kernel.read([at]);
  if (row == null || row.value === null) return undefined;
  return { value: kernel.decode(at, row.value) as StreamValue, head: row.head, status: row.status };
}

/** The first version that the store keeps. */
export async function readFirstVersion(kernel: Kernel, at: Address): Promise<number> {
  return firstVersionOf((await readStreamValue(kernel, at))?.value ?? {});
}

/**
 * Reads the entries from a version on, as many at a time as have about `pageBytes`. Throws `events_archived` where they were removed and cannot be read, and `event_gone` where one is
 * missing that was not removed.
 */
export async function* streamEntries(
  kernel: Kernel,
  at: Address,
  from: number,
  to: number = Number.POSITIVE_INFINITY,
  pageBytes = PAGE_BYTES,
): AsyncGenerator<StoredEntry> {
  // The last entry of a log is never removed: where the end is asked for, all entries up to the head must be there.
  let head: number | undefined = Number.isFinite(to) ? 0 : undefined;
  for (let next = from; next <= to; ) {
    const isHeadKnown = head !== undefined;
    const [rows, { entries: page, hasMore }] = await Promise.all([
      isHeadKnown ? [] : kernel.read([at]),
      kernel.entryPage(at, next - 1, Math.min(PAGE, to - next + 1), pageBytes),
    ]);
    head ??= rows[0]?.head ?? 0;
    if (page.length === 0) {
      if (next > head) return;
      // The head may have been read after the page.
      if (!isHeadKnown) continue;
    }
    if (page[0]?.version !== next) {
      const first = await readFirstVersion(kernel, at);
      if (next >= first) throw new EventGoneError(at.key, next);
      const last = Math.min(to, first - 1);
      yield* archivedEntries(kernel, at, { from: next, to: last }, first);
      next = last + 1;
      continue;
    }
    for (const entry of page) {
      if (entry.version !== next) throw new EventGoneError(at.key, next);
      next += 1;
      yield entry;
    }
    if (!hasMore && next > head) return;
  }
}

/** The first event of those that are kept that was committed at this time or later; the last one, if all are older. */
export async function versionAt(kernel: Kernel, at: Address, ms: number): Promise<number> {
  let last = 1;
  for await (const entry of streamEntries(kernel, at, await readFirstVersion(kernel, at))) {
    last = entry.version;
    const { atMs = entry.atMs } = kernel.decode(at, entry.data) as StoredEvent;
    if (atMs >= ms) break;
  }
  return last;
}

/** Where a reader of all streams is. */
export interface ReaderPlace {
  readonly after: number;
  readonly prefix?: string | undefined;
  readonly names?: readonly string[] | undefined;
  /** What it has read from the archive before. */
  readonly archived?: Removals | undefined;
}

/** All that was removed at a time: the highest position, and the version of the record that says so. */
export interface Removals {
  readonly upTo: number;
  readonly at?: number | undefined;
}

/**
 * Throws `events_archived` if events that a reader of all streams has not read yet were removed. To be called after what it read, because events are
 * said to be removed before they are. Returns what was removed; while that is the same, the next check would say the same.
 */
export async function checkNoneRemoved(
  kernel: Kernel,
  { after, prefix = "", names, archived }: ReaderPlace,
  checked: Removals | undefined,
): Promise<Removals> {
  const removed = await readRemovals(kernel);
  if (removed.upTo <= after || (removed.upTo === checked?.upTo && removed.at === checked.at)) return removed;
  const wanted = names === undefined ? undefined : new Set(names);
  for await (const { at, value } of removedStreams(kernel, null, prefix)) {
    const isPast = (value.removedUpTo ?? removed.upTo) <= after || isAmong(value, archived);
    if (!isPast && (wanted === undefined || hasRemoved(value, wanted)))
      throw new EventsArchivedError(at.key, firstVersionOf(value), firstVersionOf(value) - 1);
  }
  return removed;
}

/** Whether the last removal of a stream was among these. */
function isAmong({ removedAt, removedUpTo }: StreamValue, removals: Removals | undefined): boolean {
  if (removals === undefined) return false;
  // By a release that did not number removals yet.
  if (removedAt === undefined || removals.at === undefined) return (removedUpTo ?? 0) <= removals.upTo;
  return removedAt <= removals.at;
}

/**
 * Entries of a page without those that were read from the archive before: events are said to be removed before they are, so the store may still have
 * them.
 */
export async function withoutArchived(
  kernel: Kernel,
  entries: readonly FollowedEntry[],
  archived: Removals | undefined,
): Promise<readonly FollowedEntry[]> {
  if (archived === undefined || (entries[0]?.position ?? 0) > archived.upTo) return entries;
  const streams = [...new Set(entries.flatMap(({ key, position }) => (position > archived.upTo ? [] : [key])))];
  const rows = await kernel.read(streams.map(streamAt));
  const first = new Map<string, number>();
  for (const row of rows) {
    if (row == null || row.value === null) continue;
    const value = kernel.decode(row, row.value) as StreamValue;
    if (isAmong(value, archived)) first.set(row.key, firstVersionOf(value));
  }
  return entries.filter(({ key, version }) => version >= (first.get(key) ?? 1));
}

/** Streams with removed events, in the order of their ids. */
export async function* removedStreams(
  kernel: Kernel,
  from: string | null = null,
  prefix = "",
): AsyncGenerator<{ readonly at: Address; readonly value: StreamValue }> {
  for (let after = from; ; ) {
    const statuses = [CLOSED, PRUNED];
    const rows = await kernel.list({ space: STREAMS, prefix, statuses, after, limit: PAGE });
    for (const row of rows) {
      const value = kernel.decode(row, row.value ?? "") as StreamValue;
      if (firstVersionOf(value) > 1) yield { at: streamAt(row.key), value };
    }
    if (rows.length < PAGE) return;
    after = rows.at(-1)?.key ?? null;
  }
}

/**
 * The next page of events that were removed, stream by stream, and where to continue after it; undefined if there is none. Throws `events_archived`
 * where they cannot be read here.
 */
export async function archivedPage(
  kernel: Kernel,
  from: ArchivedProgress,
  names: ReadonlySet<string>,
  limit = PAGE,
): Promise<{ readonly entries: readonly FollowedEntry[]; readonly next: ArchivedProgress } | undefined> {
  const found = await nextArchived(kernel, from, names);
  if (found === undefined) return undefined;
  const { at, firstVersion, version } = found;
  const to = Math.min(version + Math.min(limit, PAGE), firstVersion - 1);
  const entries: FollowedEntry[] = [];
  let reached = version;
  let characters = 0;
  for await (const entry of archivedEntries(kernel, at, { from: version + 1, to }, firstVersion)) {
    entries.push({ ...entry, space: at.space, key: at.key });
    reached = entry.version;
    characters += entry.data.length;
    if (characters >= PAGE_BYTES) break;
  }
  const isLast = reached === firstVersion - 1;
  return { entries, next: isLast ? { after: at.key } : { after: from.after, stream: at.key, version: reached } };
}

/** The next stream with removed events, and how many of them are done; undefined if there is none. */
async function nextArchived(
  kernel: Kernel,
  { after, stream, version = 0 }: ArchivedProgress,
  names: ReadonlySet<string>,
): Promise<{ readonly at: Address; readonly firstVersion: number; readonly version: number } | undefined> {
  if (stream !== undefined) {
    const at = streamAt(stream);
    return { at, firstVersion: await readFirstVersion(kernel, at), version };
  }
  for await (const { at, value } of removedStreams(kernel, after))
    if (hasRemoved(value, names)) return { at, firstVersion: firstVersionOf(value), version: 0 };
  return undefined;
}

/** What was removed so far. */
export async function readRemovals(kernel: Kernel): Promise<{ readonly upTo: number; readonly at: number }> {
  const [row] = await kernel.read([REMOVED]);
  if (row == null || row.value === null) return { upTo: 0, at: 0 };
  return { upTo: (kernel.decode(REMOVED, row.value) as RemovedValue).upTo, at: row.version };
}

/** Whether two of them are the same. */
export const isSameProgress = (one: ArchivedProgress | undefined, other: ArchivedProgress): boolean =>
  one?.after === other.after && one.stream === other.stream && one.version === other.version;
