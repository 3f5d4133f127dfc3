/**
 * Exporting and importing streams, as JSON Lines (`lines.ts`).
 *
 * An export has what readers see of each event: id, version, time, data, shape and origin. Its texts are those of `jsonCodec`, whatever the codec of the
 * handle, so that any handle can import them. An import appends the events with their ids and versions. What is there already must be the same, so
 * an import that was interrupted is repeated.
 */

import { mkdtemp, rename, rm } from "node:fs/promises";
import { dirname, join } from "node:path";
import { jsonCodec } from "../../kernel/codec/json.ts";
import type { Address, StoredEntry } from "../../kernel/contract.ts";
import type { Kernel } from "../../kernel/kernel.ts";
import { messageOf } from "../../kernel/log.ts";
import { ArchiveDamagedError, EventsArchivedError, StreamExistsError } from "../errors.ts";
import { CLOSED_EVENT, STREAMS, type StoredEvent, type StreamValue, statusOf, streamAt } from "../stored.ts";
import type { ArchivedEvent } from "./archive.ts";
import { streamEntries } from "./entries.ts";
import { parseLine, readLines, splitLines, syncFolder, toLine, toPieces, writeLines } from "./lines.ts";

/** A stream of Node, or anything that is written to in the same way. It is not ended. */
export interface ExportTarget {
  write(piece: string, written: (error?: Error | null) => void): unknown;
}

/** What a stream of Node also has. */
interface Emitter {
  on?(event: "error", listener: (error: Error) => void): unknown;
  off?(event: "error", listener: (error: Error) => void): unknown;
}

export interface Exported {
  readonly streams: number;
  readonly events: number;
  /** With `from: "kept"`: the streams of which older events were removed and cannot be read here, and their first versions that were written. */
  readonly partial?: readonly PartialExport[];
}

export interface PartialExport {
  readonly stream: string;
  readonly firstVersion: number;
}

/** What was written so far. */
interface Count {
  streams: number;
  events: number;
  readonly partial?: PartialExport[];
}

export interface Imported {
  readonly streams: number;
  /** How many events were appended, or would be. */
  readonly events: number;
  /** How many were there already. */
  readonly skipped: number;
}

/** How many events, and about how many characters of them, are appended in one commit. */
const MOST = { events: 200, characters: 1024 * 1024 };
const NOWHERE = { namespace: "", space: "", key: "" };

export async function exportStreams(
  kernel: Kernel,
  which: string | { readonly prefix: string },
  to: string | ExportTarget,
  isFromKept: boolean,
): Promise<Exported> {
  const count: Count = { streams: 0, events: 0, ...(isFromKept ? { partial: [] } : {}) };
  const lines = linesOf(kernel, typeof which === "string" ? onlyOne(which) : streamsOf(kernel, which.prefix), count);
  if (typeof to === "string") await writeFile(to, lines);
  else {
    // A stream of Node emits its error, too; without a listener that would end the process.
    const ignore = (): void => {};
    const emitter: Emitter = to as ExportTarget & Emitter;
    emitter.on?.("error", ignore);
    try {
      for await (const piece of toPieces(lines))
        await new Promise<void>((resolve, reject) =>
          to.write(piece, (error) => (error == null ? resolve() : reject(error))),
        );
    } catch (error) {
      // It is emitted after the callback.
      await new Promise<void>((resolve) => kernel.ports.clock.soon(resolve));
      throw error;
    } finally {
      emitter.off?.("error", ignore);
    }
  }
  return count;
}

/** The file appears when it is complete. */
async function writeFile(path: string, lines: AsyncIterable<string>): Promise<void> {
  const folder = dirname(path);
  const aside = await mkdtemp(join(folder, ".writing-"));
  try {
    await writeLines(join(aside, "whole"), lines);
    await rename(join(aside, "whole"), path);
    await syncFolder(folder);
  } finally {
    await rm(aside, { recursive: true, force: true });
  }
}

async function* onlyOne(stream: string): AsyncGenerator<string> {
  yield stream;
}

async function* streamsOf(kernel: Kernel, prefix: string): AsyncGenerator<string> {
  for await (const { key } of kernel.rows(STREAMS, prefix)) yield key;
}

async function* linesOf(kernel: Kernel, streams: AsyncIterable<string>, count: Count): AsyncGenerator<string> {
  for await (const stream of streams) {
    const at = streamAt(stream);
    let isEmpty = true;
    for await (const entry of entriesOf(kernel, at, count.partial)) {
      if (isEmpty) count.streams += 1;
      isEmpty = false;
      count.events += 1;
      yield toLine(portable(kernel, at, entry));
    }
  }
}

/** The entries of a stream: all of them, or, where that is wanted, those that can be read. */
async function* entriesOf(
  kernel: Kernel,
  at: Address,
  partial: PartialExport[] | undefined,
): AsyncGenerator<StoredEntry> {
  let isBegun = false;
  try {
    for await (const entry of streamEntries(kernel, at, 1)) {
      isBegun = true;
      yield entry;
    }
  } catch (error) {
    // What is removed in the middle of it would be a gap.
    if (partial === undefined || isBegun || !(error instanceof EventsArchivedError)) throw error;
    const { firstVersion } = error.data;
    partial.push({ stream: at.key, firstVersion });
    yield* streamEntries(kernel, at, firstVersion);
  }
}

/** An entry with its time, and with its text as any handle can read it. */
function portable(kernel: Kernel, at: Address, { version, name, data, atMs }: StoredEntry): ArchivedEvent {
  const { atMs: importedMs, ...stored } = kernel.decode(at, data) as StoredEvent;
  return { stream: at.key, version, name, atMs: importedMs ?? atMs, text: jsonCodec.encode(stored, NOWHERE) };
}

/** Events of one stream that follow each other. */
interface Chunk {
  readonly stream: string;
  readonly events: ImportedEvent[];
  characters: number;
}

interface ImportedEvent {
  readonly event: ArchivedEvent;
  /** What its text says. */
  readonly stored: StoredEvent;
  readonly line: number;
}

export async function importStreams(
  kernel: Kernel,
  source: string | AsyncIterable<string | Uint8Array>,
  isDry: boolean,
): Promise<Imported> {
  const where = typeof source === "string" ? source : "what is imported";
  const lines = typeof source === "string" ? readLines(source) : splitLines(source);
  const reached = new Map<string, number>();
  const count = { events: 0, skipped: 0 };
  let chunk: Chunk | undefined;
  const flush = async () => {
    if (chunk === undefined) return;
    const { events, skipped } = await importChunk(kernel, where, chunk, reached, isDry);
    count.events += events;
    count.skipped += skipped;
    chunk = undefined;
  };
  let line = 0;
  for await (const text of lines) {
    line += 1;
    if (text === "") continue;
    const event = parseLine(where, text, line);
    const isFull = chunk !== undefined && (chunk.events.length >= MOST.events || chunk.characters >= MOST.characters);
    if (isFull || chunk?.stream !== event.stream) await flush();
    chunk ??= { stream: streamAt(event.stream).key, events: [], characters: 0 };
    chunk.events.push({ event, stored: storedOf(where, event, line), line });
    chunk.characters += event.text.length;
  }
  await flush();
  return { streams: reached.size, ...count };
}

function storedOf(where: string, { text }: ArchivedEvent, line: number): StoredEvent {
  let stored: unknown;
  try {
    stored = jsonCodec.decode(text, NOWHERE);
  } catch (error) {
    throw new ArchiveDamagedError(where, line, `its event cannot be read: ${messageOf(error)}`);
  }
  const isEvent = typeof stored === "object" && stored !== null && typeof (stored as StoredEvent).id === "string";
  if (!isEvent) throw new ArchiveDamagedError(where, line, "it is not an event");
  return stored as StoredEvent;
}

/** Compares what is there, and appends the rest. */
async function importChunk(
  kernel: Kernel,
  where: string,
  { stream, events }: Chunk,
  reached: Map<string, number>,
  isDry: boolean,
): Promise<{ readonly events: number; readonly skipped: number }> {
  const at = streamAt(stream);
  for (const { event, line } of events) {
    const before = reached.get(stream) ?? 0;
    if (event.version !== before + 1)
      throw new ArchiveDamagedError(
        where,
        line,
        `event ${event.version} of stream "${stream}" follows event ${before}`,
      );
    reached.set(stream, event.version);
  }
  for (;;) {
    const [row] = await kernel.read([at]);
    const head = row?.head ?? 0;
    const there = events.filter(({ event }) => event.version <= head);
    await compare(
      kernel,
      at,
      there.map(({ event }) => event),
    );
    const missing = events.slice(there.length);
    const counted = { events: missing.length, skipped: there.length };
    if (missing.length === 0 || isDry) return counted;
    const isWritten = await kernel.transact(
      (tx) => {
        const record = tx.record(at);
        // Events were appended since it was looked at.
        if (record.head !== head) return false;
        let value = (record.value ?? {}) as StreamValue;
        if (!record.exists) record.write({ value });
        for (const { event, stored } of missing) {
          const { name, atMs } = event;
          const version = record.append(name, { ...stored, atMs } satisfies StoredEvent, { isFollowed: true });
          const { closed: _, ...open } = value;
          value = name === CLOSED_EVENT ? { ...open, closed: { version } } : open;
        }
        record.write({ value, status: statusOf(value) });
        return true;
      },
      [at],
    );
    if (isWritten) return counted;
  }
}

/** Throws `stream_exists` if one of the events is not the one that is there. */
async function compare(kernel: Kernel, at: Address, events: readonly ArchivedEvent[]): Promise<void> {
  const [first] = events;
  const last = events.at(-1);
  if (first === undefined || last === undefined) return;
  let index = 0;
  for await (const entry of streamEntries(kernel, at, first.version, last.version)) {
    const there = portable(kernel, at, entry);
    const event = events[index];
    const isSame =
      event !== undefined && there.name === event.name && there.atMs === event.atMs && there.text === event.text;
    if (!isSame) throw new StreamExistsError(at.key, entry.version);
    index += 1;
  }
}
