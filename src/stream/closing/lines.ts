/**
 * Files of JSON Lines, as archives and exports have them: one event for each line, with a checksum.
 */

import { createReadStream } from "node:fs";
import { open } from "node:fs/promises";
import { checkText } from "../../kernel/check.ts";
import { InvalidArgumentError } from "../../kernel/errors.ts";
import { hash } from "../../kernel/fingerprint.ts";
import { ArchiveDamagedError } from "../errors.ts";
import type { ArchivedEvent } from "./archive.ts";

/** A line. Names here are permanent. */
interface Line {
  readonly stream: string;
  readonly version: number;
  readonly name: string;
  readonly at: string;
  readonly text: string;
  readonly sum: string;
}

export function checkPath(path: unknown, what: string): string {
  if (path === "") throw new InvalidArgumentError(what, "must not be empty");
  return checkText(path, what, 4096);
}

/** Lines are written in pieces of about this many characters. */
const PIECE = 64 * 1024;

const sumOf = ({ stream, version, name, at, text }: Omit<Line, "sum">): string =>
  hash(stream, String(version), name, at, text);

export function toLine({ stream, version, name, atMs, text }: ArchivedEvent): string {
  const line = { stream, version, name, at: new Date(atMs).toISOString(), text };
  return JSON.stringify({ ...line, sum: sumOf(line) } satisfies Line);
}

/** The event of a line. Throws `archive_damaged`. */
export function parseLine(where: string, text: string, number: number): ArchivedEvent {
  let line: unknown;
  try {
    line = JSON.parse(text);
  } catch {
    throw new ArchiveDamagedError(where, number, "it is not JSON");
  }
  if (!isLine(line)) throw new ArchiveDamagedError(where, number, "it is not an event");
  if (line.sum !== sumOf(line)) throw new ArchiveDamagedError(where, number, "its checksum is not that of its content");
  const { stream, version, name, at, text: content } = line;
  return { stream, version, name, atMs: Date.parse(at), text: content };
}

function isLine(line: unknown): line is Line {
  if (typeof line !== "object" || line === null) return false;
  const { stream, version, name, at, text, sum } = line as Partial<Record<keyof Line, unknown>>;
  const areTexts = [stream, name, at, text, sum].every((one) => typeof one === "string");
  return (
    areTexts && Number.isSafeInteger(version) && (version as number) > 0 && !Number.isNaN(Date.parse(at as string))
  );
}

/** The lines of a file. */
export const readLines = (file: string): AsyncGenerator<string> => splitLines(createReadStream(file));

/** The lines of a text that comes in pieces. Only a line feed ends a line: JSON may contain other separators. */
export async function* splitLines(pieces: AsyncIterable<unknown>): AsyncGenerator<string> {
  const decoder = new TextDecoder("utf-8", { fatal: true });
  let rest = "";
  for await (const piece of pieces) {
    const text = typeof piece === "string" ? piece : decoder.decode(piece as Uint8Array, { stream: true });
    const [first = "", ...others] = text.split("\n");
    if (others.length === 0) {
      rest += first;
      continue;
    }
    yield rest + first;
    rest = others.pop() ?? "";
    yield* others;
  }
  rest += decoder.decode();
  if (rest !== "") yield rest;
}

/** Lines in pieces that are worth a write. */
export async function* toPieces(lines: AsyncIterable<string>): AsyncGenerator<string> {
  let piece = "";
  for await (const line of lines) {
    piece += `${line}\n`;
    if (piece.length < PIECE) continue;
    yield piece;
    piece = "";
  }
  if (piece !== "") yield piece;
}

/** Writes lines to a new file, and makes it durable. */
export async function writeLines(path: string, lines: AsyncIterable<string>): Promise<void> {
  const file = await open(path, "w");
  try {
    for await (const piece of toPieces(lines)) await file.appendFile(piece);
    await file.sync();
  } finally {
    await file.close();
  }
}

/** Makes the names in a folder durable, where the system can do that. */
export async function syncFolder(folder: string): Promise<void> {
  try {
    const handle = await open(folder, "r");
    await handle.sync().finally(() => handle.close());
  } catch {
    // Windows opens no folders.
  }
}
