/**
 * `jsonLines`: an archive in a folder, one file for each stream, one line for each event.
 *
 * A file is replaced whole: what it had and what is new are written to another file, which is made durable and then takes its name. So a crash leaves the
 * file as it was before or as it is after, and at most a folder `.writing-…` beside it. Each line has a checksum, which is checked whenever it is read.
 *
 * Writers of one stream do not undo each other's work: those of a process take turns, and a file that another process has replaced since it was read is
 * read again. Only a process that is stopped between that look and the renaming, for as long as another one needs to close the stream twice, could put
 * an older file in the place of a newer one.
 */

import { mkdir, mkdtemp, rename, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import { hash } from "../../kernel/fingerprint.ts";
import { ArchiveDamagedError } from "../errors.ts";
import type { Archive, ArchivedEvent } from "./archive.ts";
import { checkPath, parseLine, readLines, syncFolder, toLine, writeLines } from "./lines.ts";

/** File names have at most 255 bytes, and an id of 256 bytes can be three times as long when it is encoded. */
const MAX_NAME = 200;

/** An archive in a folder, which is created if it does not exist: a file of JSON Lines for each stream. */
export function jsonLines(folder: string): Archive {
  const path = checkPath(folder, "the folder");
  return {
    write: (stream, events) => writeFileOf(path, stream, events),
    read: (stream, { from, to }) => readFileOf(join(path, fileNameOf(stream)), stream, from, to),
  };
}

/** Nothing of a stream's id can leave the folder, or be special in a file system. Ids that are too long end in a hash. */
export function fileNameOf(stream: string): string {
  // Capitals too: some file systems do not distinguish them.
  const encoded = Array.from(Buffer.from(stream), (byte) =>
    SAFE.test(String.fromCharCode(byte)) ? String.fromCharCode(byte) : `%${byte.toString(16).padStart(2, "0")}`,
  ).join("");
  return `${encoded.length > MAX_NAME ? `${encoded.slice(0, MAX_NAME)}-${hash(stream)}` : encoded}.jsonl`;
}

const SAFE = /[a-z0-9_-]/;

interface ArchivedLine {
  readonly event: ArchivedEvent;
  readonly text: string;
}

/** The lines of a file, checked; none if there is no file. */
async function* linesOf(file: string, stream: string): AsyncGenerator<ArchivedLine> {
  if ((await idOf(file)) === undefined) return;
  let number = 0;
  for await (const text of readLines(file)) {
    number += 1;
    const event = parseLine(file, text, number);
    if (event.stream !== stream) throw new ArchiveDamagedError(file, number, `it is of stream "${event.stream}"`);
    yield { event, text };
  }
}

async function* readFileOf(file: string, stream: string, from: number, to: number): AsyncGenerator<ArchivedEvent> {
  for await (const { event } of linesOf(file, stream)) {
    if (event.version > to) return;
    if (event.version >= from) yield event;
  }
}

async function writeFileOf(folder: string, stream: string, events: AsyncIterable<ArchivedEvent>): Promise<void> {
  await mkdir(folder, { recursive: true });
  const file = join(folder, fileNameOf(stream));
  const aside = await mkdtemp(join(folder, ".writing-"));
  try {
    const added = join(aside, "added");
    await writeLines(added, textsOf(events));
    await inTurn(file, async () => {
      for (;;) {
        const before = await idOf(file);
        const whole = join(aside, "whole");
        await writeLines(whole, merged(linesOf(file, stream), linesOf(added, stream)));
        if ((await idOf(file)) !== before) continue;
        await rename(whole, file);
        return syncFolder(folder);
      }
    });
  } finally {
    await rm(aside, { recursive: true, force: true });
  }
}

/** The last writer of each file in this process. */
const turns = new Map<string, Promise<unknown>>();

async function inTurn<T>(file: string, work: () => Promise<T>): Promise<T> {
  const before = turns.get(file) ?? Promise.resolve();
  const mine = before.then(work);
  const settled = mine.catch(() => {});
  turns.set(file, settled);
  try {
    return await mine;
  } finally {
    if (turns.get(file) === settled) turns.delete(file);
  }
}

async function* textsOf(events: AsyncIterable<ArchivedEvent>): AsyncGenerator<string> {
  for await (const event of events) yield toLine(event);
}

/**
 * What a file has, with what is added in its place. Later events stay where all others are the same: then a later archiving wrote them. Otherwise they are of
 * a past that the store lost.
 */
async function* merged(old: AsyncGenerator<ArchivedLine>, added: AsyncGenerator<ArchivedLine>): AsyncGenerator<string> {
  let isSame = true;
  let next = await old.next();
  for await (const { event, text } of added) {
    for (; next.done !== true && next.value.event.version < event.version; next = await old.next())
      yield next.value.text;
    if (next.done !== true && next.value.event.version === event.version) {
      isSame &&= next.value.text === text;
      next = await old.next();
    }
    yield text;
  }
  for (; isSame && next.done !== true; next = await old.next()) yield next.value.text;
}

/** What a file is known by; undefined if there is none. */
async function idOf(file: string): Promise<string | undefined> {
  try {
    const { ino, size, mtimeNs } = await stat(file, { bigint: true });
    return `${ino} ${size} ${mtimeNs}`;
  } catch (error) {
    if ((error as { code?: unknown }).code === "ENOENT") return undefined;
    throw error;
  }
}
