/**
 * Archives: where events go before they are removed from the store, and from where they are read afterwards.
 *
 * An archive is an object of the user's with one or two methods; `jsonLines` is one. What it stores is checked before anything is removed: it must have
 * taken every event, and where it can read, it must return the same ones.
 */

import { createHash } from "node:crypto";
import { checkBoolean } from "../../kernel/check.ts";
import type { Address, StoredEntry } from "../../kernel/contract.ts";
import { InvalidArgumentError } from "../../kernel/errors.ts";
import type { Kernel } from "../../kernel/kernel.ts";
import { withDeadline } from "../archive-deadline.ts";
import { ArchiveIncompleteError, EventsArchivedError } from "../errors.ts";

/** An event as an archive stores it. */
export interface ArchivedEvent {
  readonly stream: string;
  readonly version: number;
  readonly name: string;
  /** The store's clock when it was committed, in milliseconds since 1970. */
  readonly atMs: number;
  /** Its id, data, shape and origin, as the handle's codec wrote them. Only a handle with that codec and namespace can read it. */
  readonly text: string;
}

/** The versions to read, both included. */
export interface ArchivedRange {
  readonly from: number;
  readonly to: number;
}

export interface Archive {
  /**
   * Stores the events of one stream, in order, and resolves when they are durable. After a crash the same events are given again: they must replace
   * those that are there. Events before them, which were given earlier, must stay.
   */
  write(stream: string, events: AsyncIterable<ArchivedEvent>): Promise<void>;
  /** Reads events back, in order. Without it, what is archived is out of Pawl's reach (`events_archived`). */
  read?(stream: string, range: ArchivedRange): AsyncIterable<ArchivedEvent>;
}

export function checkArchive(archive: unknown): Archive {
  const given = archive as Partial<Archive> | null;
  if (typeof given !== "object" || given === null || typeof given.write !== "function")
    throw new InvalidArgumentError("the archive", "must have the method write, as jsonLinesArchive(folder) does");
  if (given.read !== undefined && typeof given.read !== "function")
    throw new InvalidArgumentError("the archive", "must have a method read, or none");
  if (Object.prototype.toString.call(given.read) === "[object AsyncFunction]")
    throw new InvalidArgumentError(
      "read of the archive",
      "must return an async iterable, not a promise: make it an async generator (async *read)",
    );
  return given as Archive;
}

/** The archives of handles that have one. */
const archives = new WeakMap<Kernel, Archive>();

export function setArchive(kernel: Kernel, archive: Archive): void {
  archives.set(kernel, archive);
}

export const archiveOf = (kernel: Kernel): Archive | undefined => archives.get(kernel);

/** The archive to use: the one that is given, or that of the handle; undefined where the events are discarded. */
export function archiveFor(
  kernel: Kernel,
  { archive, discard = false }: { readonly archive?: Archive | undefined; readonly discard?: boolean | undefined },
): Archive | undefined {
  const given = archive === undefined ? undefined : withDeadline(kernel, checkArchive(archive));
  if (checkBoolean(discard, "discard")) {
    if (given === undefined) return undefined;
    throw new InvalidArgumentError("discard", "must not be true where an archive is given");
  }
  const found = given ?? archiveOf(kernel);
  if (found === undefined)
    throw new InvalidArgumentError(
      "the archive",
      "must be given, here or to open(…). To remove the events without a copy, give discard: true",
    );
  return found;
}

/** Whether removed events can be read with this handle. */
export const canReadArchive = (kernel: Kernel): boolean => archiveOf(kernel)?.read !== undefined;

/** How many events there were, and a hash of all of them. */
class Tally {
  readonly #hash = createHash("sha256");
  count = 0;

  add({ version, name, atMs, text }: ArchivedEvent): void {
    this.count += 1;
    this.#hash.update(`${JSON.stringify([version, name, atMs, text])}\n`);
  }

  digest(): string {
    return this.#hash.digest("hex");
  }
}

/**
 * Passes events to an archive, and checks that it stored all of them. Throws `archive_incomplete`, and whatever the archive throws. Returns how many there
 * were.
 */
export async function writeToArchive(
  archive: Archive,
  stream: string,
  range: ArchivedRange,
  entries: AsyncIterable<StoredEntry>,
): Promise<number> {
  const given = new Tally();
  await archive.write(stream, tallied(stream, entries, given));
  const events = range.to - range.from + 1;
  if (given.count !== events)
    throw new ArchiveIncompleteError(stream, events, given.count, `it took ${given.count} of them`);
  if (archive.read === undefined) return events;
  const found = new Tally();
  for await (const event of archive.read(stream, range)) {
    found.add(event);
    // It may never end.
    if (found.count > events)
      throw new ArchiveIncompleteError(stream, events, found.count, "it returned more than these");
  }
  if (found.count !== events)
    throw new ArchiveIncompleteError(stream, events, found.count, `it returned ${found.count} of them`);
  if (found.digest() !== given.digest())
    throw new ArchiveIncompleteError(stream, events, found.count, "it returned others than it was given");
  return events;
}

async function* tallied(
  stream: string,
  entries: AsyncIterable<StoredEntry>,
  given: Tally,
): AsyncGenerator<ArchivedEvent> {
  for await (const { version, name, atMs, data: text } of entries) {
    const event: ArchivedEvent = { stream, version, name, atMs, text };
    given.add(event);
    yield event;
  }
}

/** Reads removed events of a stream as entries, without gaps, and no more than are asked for. Throws `events_archived` where there is no reader, or it does not have them. */
export async function* archivedEntries(
  kernel: Kernel,
  { key: stream }: Pick<Address, "key">,
  { from, to }: ArchivedRange,
  firstVersion: number,
): AsyncGenerator<StoredEntry> {
  const archive = archiveOf(kernel);
  let next = from;
  if (archive?.read !== undefined)
    for await (const { version, name, atMs, text } of archive.read(stream, { from, to })) {
      if (version !== next) break;
      next += 1;
      yield { version, name, data: text, atMs, position: 0 };
      // It is not asked for more: it may never end.
      if (next > to) break;
    }
  if (next <= to) throw new EventsArchivedError(stream, firstVersion, next);
}
