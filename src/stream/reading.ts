/**
 * Reading events: of one stream, by version, and of all streams, in one order that never changes behind a reader (G12).
 */

import {
  checkBoolean,
  checkCount,
  checkDate,
  checkId,
  checkList,
  checkOptions,
  checkPrefix,
  optionNames,
} from "../kernel/check.ts";
import type { Address, Key, StoredEntry } from "../kernel/contract.ts";
import { InvalidArgumentError } from "../kernel/errors.ts";
import { type Kernel, PAGE_BYTES } from "../kernel/kernel.ts";
import { archivedEntries } from "./closing/archive.ts";
import { checkNoneRemoved, PAGE, type Removals, readFirstVersion, streamEntries } from "./closing/entries.ts";
import { CursorAheadError, EventGoneError } from "./errors.ts";
import {
  type AnyEventType,
  type EventRules,
  eventRules,
  type ReadableEvent,
  type StreamEvent,
  upcast,
} from "./event.ts";
import { checkNotLost, lostIn, Versions } from "./lost.ts";
import { subjectsOf } from "./personal/subjects.ts";
import { STREAMS, type StoredEvent, streamAt } from "./stored.ts";

/** The data of events that are read with `events: [...]`. */
export type DataOf<Types extends readonly AnyEventType[]> = {
  [Index in keyof Types]: Types[Index] extends ReadableEvent<infer Data> ? Data : never;
}[number];

export interface ReadStreamOptions<Types extends readonly AnyEventType[] = readonly AnyEventType[]> {
  /**
   * The first version to read. Events that were removed are read from the archive, or the reading throws `events_archived` where it needs
   * them; "kept" reads only what the store keeps. Default: 1, or the last one where it is read backwards.
   */
  readonly from?: number | "kept" | undefined;
  /** From newer to older. Default: false. */
  readonly backwards?: boolean | undefined;
  /** Only events of these types, in their newest shape. Default: all, as they are stored. */
  readonly events?: Types | undefined;
}

export interface ReadEventsOptions<Types extends readonly AnyEventType[] = readonly AnyEventType[]> {
  /** Where an earlier reading ended: its `cursor`, or that of an event. Default: the beginning. */
  readonly after?: string | undefined;
  /** "kept": leaves out events that were removed from the store. Default: throws `events_archived` where some of them were not read yet. */
  readonly from?: "kept" | undefined;
  /** Only events of these types, in their newest shape. Default: all, as they are stored. */
  readonly events?: Types | undefined;
  /** Only events of streams whose ids begin with this. */
  readonly prefix?: string | undefined;
  readonly correlationId?: string | undefined;
  /** Only events that were committed at this time or later. */
  readonly since?: Date | number | undefined;
  /** Only events that were committed before this time. */
  readonly until?: Date | number | undefined;
}

const STREAM_OPTIONS = optionNames<ReadStreamOptions>({ from: true, backwards: true, events: true });
const EVENTS_OPTIONS = optionNames<ReadEventsOptions>({
  after: true,
  from: true,
  events: true,
  prefix: true,
  correlationId: true,
  since: true,
  until: true,
});

/** An event of any stream, with the place from which reading can continue after it. */
export interface FollowedEvent<Data = unknown> extends StreamEvent<Data> {
  readonly cursor: string;
}

type Types = ReadonlyMap<string, EventRules> | undefined;

/** Reads a stream in pages, forwards or backwards. What is appended meanwhile is read as well, if it is read forwards. */
export function readStream<Data>(
  kernel: Kernel,
  id: string,
  options: ReadStreamOptions = {},
): AsyncGenerator<StreamEvent<Data>> {
  checkOptions(options, STREAM_OPTIONS);
  const { from, backwards = false, events } = options;
  const types = typesOf(events);
  checkBoolean(backwards, "backwards");
  if (from !== undefined && from !== "kept" && (!Number.isSafeInteger(from) || from < 1))
    throw new InvalidArgumentError("from", 'must be a version, which is a whole number from 1, or "kept"');
  return backwards ? readBackwards(kernel, id, from, types) : readForwards(kernel, id, from ?? 1, types);
}

async function* readForwards<Data>(
  kernel: Kernel,
  id: string,
  from: number | "kept",
  types: Types,
): AsyncGenerator<StreamEvent<Data>> {
  const at = streamAt(id);
  const first = from === "kept" ? await readFirstVersion(kernel, at) : from;
  for await (const page of pagesAfter(kernel, at, first - 1))
    for (const part of partsOf(page))
      for (const open of await toEvents<Data>(kernel, part, types, at)) {
        const event = open();
        if (event !== undefined) yield event;
      }
}

async function* readBackwards<Data>(
  kernel: Kernel,
  id: string,
  from: number | "kept" | undefined,
  types: Types,
): AsyncGenerator<StreamEvent<Data>> {
  const at = streamAt(id);
  const [row] = await kernel.read([at]);
  const oldest = from === "kept" ? await readFirstVersion(kernel, at) : 1;
  // Versions have no gaps, so that a page is known by its ends.
  let size = PAGE;
  for (
    let last = Math.min(typeof from === "number" ? from : Number.POSITIVE_INFINITY, row?.head ?? 0);
    last >= oldest;
  ) {
    const page = await pageUpTo(kernel, at, Math.max(oldest, last - size + 1), last);
    // Large events are followed by large ones more often than not.
    size = page.length < size ? Math.max(1, page.length) : Math.min(PAGE, 2 * size);
    for (const part of partsOf(page.toReversed()))
      for (const open of await toEvents<Data>(kernel, part, types, at)) {
        const event = open();
        if (event !== undefined) yield event;
      }
    last -= page.length;
  }
}

/** Some entries up to and including version `last`, at least one, and none before `first`. Where they begin to be archived, a page ends. */
async function pageUpTo(kernel: Kernel, at: Address, first: number, last: number): Promise<readonly StoredEntry[]> {
  // What the store lacks is at the beginning, and what comes after it has no gaps.
  const page = await keptUpTo(kernel, at, first, last);
  const isWhole = page.every(({ version }, index) => version === last - page.length + 1 + index);
  if (page.length > 0 && isWhole) return page;
  const kept = await readFirstVersion(kernel, at);
  if (last >= kept) throw new EventGoneError(at.key, last);
  const archived: StoredEntry[] = [];
  let characters = 0;
  for await (const entry of archivedEntries(kernel, at, { from: first, to: last }, kept)) {
    if (characters >= PAGE_BYTES) return pageUpTo(kernel, at, narrowed(first, last, archived.length), last);
    archived.push(entry);
    characters += entry.data.length;
  }
  return archived;
}

/**
 * Entries that the store has, up to and including version `last`, and none before `first`. A log is read forwards: where all of them are too many bytes,
 * fewer are read.
 */
export async function keptUpTo(
  kernel: Kernel,
  at: Address,
  first: number,
  last: number,
): Promise<readonly StoredEntry[]> {
  const { entries, hasMore } = await kernel.entryPage(at, first - 1, last - first + 1);
  const reached = entries.at(-1)?.version ?? last;
  if (hasMore && reached < last) return keptUpTo(kernel, at, narrowed(first, last, entries.length), last);
  return entries.filter(({ version }) => version <= last);
}

/** Where to begin so that entries up to `last` probably fit into a page, if only `fitted` of those from `first` on did. */
const narrowed = (first: number, last: number, fitted: number): number =>
  Math.min(last, Math.max(first + 1, last - Math.floor(fitted / 2)));

/** A reading of all streams, up to what is there when it gets there. */
export class EventReading<Data = unknown> implements AsyncIterable<FollowedEvent<Data>> {
  readonly #kernel: Kernel;
  readonly #options: ReadEventsOptions;
  readonly #types: Types;
  readonly #sinceMs: number;
  readonly #untilMs: number;
  readonly #versions: Versions;
  #after: number;
  /** What was removed when it was last found that nothing is lacking. */
  #checked: Removals | undefined;

  /** @internal */
  constructor(kernel: Kernel, options: ReadEventsOptions) {
    checkOptions(options, EVENTS_OPTIONS);
    const { after, from, events, prefix, correlationId, since, until } = options;
    if (from !== undefined && from !== "kept") throw new InvalidArgumentError("from", 'must be "kept"');
    this.#kernel = kernel;
    this.#options = options;
    this.#types = typesOf(events);
    this.#after = after === undefined ? 0 : checkCursor(after);
    this.#versions = new Versions(this.#after === 0);
    if (prefix !== undefined) checkPrefix(prefix, "the prefix");
    if (correlationId !== undefined) checkId(correlationId, "the correlation id");
    this.#sinceMs = since === undefined ? Number.NEGATIVE_INFINITY : checkDate(since, "since");
    this.#untilMs = until === undefined ? Number.POSITIVE_INFINITY : checkDate(until, "until");
  }

  /** Where to continue: everything before it was looked at. Store it, and give it to the next reading as `after`. */
  get cursor(): string {
    return String(this.#after);
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<FollowedEvent<Data>> {
    const { from, prefix, correlationId } = this.#options;
    const names = this.#types === undefined ? undefined : [...this.#types.keys()];
    for (let hasMore = true; hasMore; ) {
      const after = this.#after;
      const page = await this.#kernel.follow({ space: STREAMS, prefix, names, after, limit: PAGE });
      if (from !== "kept")
        this.#checked = await checkNoneRemoved(this.#kernel, { after, prefix, names }, this.#checked);
      if (page.upTo < after) throw new CursorAheadError(String(after), String(page.upTo));
      ({ hasMore } = page);
      const [lost] = await lostIn(this.#kernel, page);
      const entries =
        lost === undefined ? page.entries : page.entries.filter(({ position }) => position < lost.position);
      for (const part of partsOf(entries)) {
        const events = await toEvents<Data>(this.#kernel, part, this.#types);
        for (const [i, entry] of part.entries()) {
          const event = events[i]?.();
          // Of events that are not asked for, versions are not known.
          if (names === undefined && this.#versions.hasGap(entry.key, entry.version))
            await checkNotLost(this.#kernel, entry.key, entry.version);
          this.#after = entry.position;
          const atMs = event?.at.getTime() ?? Number.NaN;
          const isInTime = atMs >= this.#sinceMs && atMs < this.#untilMs;
          if (event !== undefined && isInTime && (correlationId === undefined || event.correlationId === correlationId))
            yield Object.freeze({ ...event, cursor: this.cursor });
        }
      }
      if (lost !== undefined) throw new EventGoneError(lost.key, lost.version);
      this.#after = page.upTo;
    }
  }
}

function checkCursor(cursor: unknown): number {
  const position = typeof cursor === "string" && /^\d{1,16}$/.test(cursor) ? Number(cursor) : Number.NaN;
  if (!Number.isSafeInteger(position))
    throw new InvalidArgumentError("after", "must be a cursor, as a reading gives it");
  return position;
}

export function typesOf(events: readonly unknown[] | undefined): Types {
  if (events === undefined) return undefined;
  checkList(events, "events");
  checkCount(events.length, "the number of events", 1000);
  return new Map(Array.from(events, (type) => [eventRules(type).name, eventRules(type)]));
}

/** A reader often takes only the first events of a page: the others are opened when it comes to them. */
const FIRST_PART = 20;
const partsOf = <Entry>(page: readonly Entry[]): readonly (readonly Entry[])[] =>
  page.length <= FIRST_PART ? [page] : [page.slice(0, FIRST_PART), page.slice(FIRST_PART)];

/** The entries of a stream after a version, page by page, wherever they are (`streamEntries`). */
export async function* pagesAfter(kernel: Kernel, at: Address, after: number): AsyncGenerator<readonly StoredEntry[]> {
  let page: StoredEntry[] = [];
  let characters = 0;
  for await (const entry of streamEntries(kernel, at, after + 1)) {
    page.push(entry);
    characters += entry.data.length;
    if (page.length < PAGE && characters < PAGE_BYTES) continue;
    yield page;
    page = [];
    characters = 0;
  }
  if (page.length > 0) yield page;
}

/** An event that was read. Throws where it cannot be decoded, decrypted or converted; undefined if its type was not asked for. */
export type OpenEvent<Data = unknown> = () => StreamEvent<Data> | undefined;

/**
 * Stored entries as events, in the same order. Each is opened by itself, so that one that cannot be read does not keep the others from being read. The
 * personal fields are those of people who were not forgotten until now. Without a key, an entry is its own, as `Kernel.follow` gives it.
 */
export async function toEvents<Data>(
  kernel: Kernel,
  entries: readonly (StoredEntry & Key)[],
  types: Types,
): Promise<readonly OpenEvent<Data>[]>;
export async function toEvents<Data>(
  kernel: Kernel,
  entries: readonly StoredEntry[],
  types: Types,
  key: Key,
): Promise<readonly OpenEvent<Data>[]>;
export async function toEvents<Data>(
  kernel: Kernel,
  entries: readonly StoredEntry[],
  types: Types,
  key?: Key,
): Promise<readonly OpenEvent<Data>[]> {
  const decoded = entries.map((entry) => decodeEntry(kernel, key ?? (entry as StoredEntry & Key), entry, types));
  const subjects = subjectsOf(kernel);
  const keys = await subjects.keysOf(decoded.flatMap((one) => one.stored?.personal ?? []));
  return decoded.map(({ at, entry, stored, error }) => () => {
    if (error !== undefined) throw error;
    if (stored === undefined) return undefined;
    const { name } = entry;
    return eventOf<Data>(at, entry, stored, subjects.open(at, name, stored, keys), types?.get(name));
  });
}

interface Decoded {
  readonly at: Key;
  readonly entry: StoredEntry;
  /** None if its type was not asked for. */
  readonly stored?: StoredEvent;
  readonly error?: unknown;
}

function decodeEntry(kernel: Kernel, at: Key, entry: StoredEntry, types: Types): Decoded {
  if (types !== undefined && !types.has(entry.name)) return { at, entry };
  try {
    return { at, entry, stored: kernel.decode(at, entry.data) as StoredEvent };
  } catch (error) {
    return { at, entry, error };
  }
}

function eventOf<Data>(
  key: Key,
  { version, name, atMs }: StoredEntry,
  { id, shape = 1, actor, correlation, causation, atMs: importedMs }: StoredEvent,
  data: unknown,
  type: EventRules | undefined,
): StreamEvent<Data> {
  return Object.freeze({
    stream: key.key,
    version,
    id,
    name,
    data: (type === undefined ? data : upcast(type, data, shape)) as Data,
    shape: type?.shape ?? shape,
    at: new Date(importedMs ?? atMs),
    ...(actor === undefined ? {} : { actor }),
    ...(correlation === undefined ? {} : { correlationId: correlation }),
    ...(causation === undefined ? {} : { causationId: causation }),
  });
}
