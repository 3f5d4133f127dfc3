/**
 * Goal: what `jsonLinesArchive` was given is there after a crash at any moment, unchanged, in one file for each stream that is inside its folder; and what is
 * damaged is reported.
 * Method: the archive alone, with files that are read, cut and changed by hand; then with a handle, and values that JSON lacks.
 */

import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import {
  type Archive,
  type ArchivedEvent,
  event,
  jsonCodec,
  jsonLinesArchive,
  open,
  transformed,
} from "../../src/index.ts";
import { codeOf } from "../kernel/kit.ts";
import { all } from "./kit.ts";

let root = "";
let folder = "";
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), "pawl-archive-"));
  folder = join(root, "archive");
});
afterEach(() => rmSync(root, { recursive: true, force: true }));

const made = (stream: string, from: number, to: number, text = "text"): readonly ArchivedEvent[] =>
  Array.from({ length: to - from + 1 }, (_, i) => {
    const version = from + i;
    return { stream, version, name: "Deposited", atMs: 1_800_000_000_000 + version, text: `${text} ${version}\u2028"` };
  });

async function* flowing<T>(items: readonly T[], before: (item: T) => void = () => {}): AsyncGenerator<T> {
  for (const item of items) {
    before(item);
    yield item;
  }
}

const ALL = { from: 1, to: Number.MAX_SAFE_INTEGER };
const read = async (archive: Archive, stream: string, range = ALL) => all(archive.read?.(stream, range) ?? flowing([]));

test("events come back as they were given, in any range", async () => {
  const archive = jsonLinesArchive(folder);
  const events = made("ann", 1, 3000);
  await archive.write("ann", flowing(events));
  expect(await read(archive, "ann")).toEqual(events);
  expect(await read(archive, "ann", { from: 1200, to: 1300 })).toEqual(events.slice(1199, 1300));
  expect(await read(archive, "bob")).toEqual([]);
  expect(readdirSync(folder)).toEqual(["ann.jsonl"]);
});

test("what is written later continues the file, and what is written again replaces itself", async () => {
  const archive = jsonLinesArchive(folder);
  await archive.write("ann", flowing(made("ann", 1, 4)));
  await archive.write("ann", flowing(made("ann", 5, 8)));
  await archive.write("ann", flowing(made("ann", 5, 8)));
  expect(await read(archive, "ann")).toEqual(made("ann", 1, 8));
  // An earlier writer that was slow.
  await archive.write("ann", flowing(made("ann", 1, 4)));
  expect(await read(archive, "ann")).toEqual(made("ann", 1, 8));
  // A past that the store lost, as after a restore from a backup.
  await archive.write("ann", flowing(made("ann", 3, 5, "anew")));
  expect(await read(archive, "ann")).toEqual([...made("ann", 1, 2), ...made("ann", 3, 5, "anew")]);
});

test("a writing that fails leaves the file as it was, and nothing beside it", async () => {
  const archive = jsonLinesArchive(folder);
  await archive.write("ann", flowing(made("ann", 1, 4)));
  const failing = flowing(made("ann", 5, 8), ({ version }) => {
    if (version === 7) throw new Error("gone");
  });
  await expect(archive.write("ann", failing)).rejects.toThrow("gone");
  expect(await read(archive, "ann")).toEqual(made("ann", 1, 4));
  expect(readdirSync(folder)).toEqual(["ann.jsonl"]);
});

test("a file that is replaced while another is prepared is not undone", async () => {
  const archive = jsonLinesArchive(folder);
  await archive.write("ann", flowing(made("ann", 1, 4)));
  const { promise: isFree, resolve: free } = Promise.withResolvers<void>();
  async function* slow(): AsyncGenerator<ArchivedEvent> {
    yield* made("ann", 1, 4);
    await isFree;
  }
  const writing = archive.write("ann", slow());
  await archive.write("ann", flowing(made("ann", 5, 8)));
  free();
  await writing;
  expect(await read(archive, "ann")).toEqual(made("ann", 1, 8));
});

test("writers of one file take turns", async () => {
  const archive = jsonLinesArchive(folder);
  await Promise.all([1, 11, 21, 31, 41].map((from) => archive.write("ann", flowing(made("ann", from, from + 9)))));
  expect(await read(archive, "ann")).toEqual(made("ann", 1, 50));
});

test.each([
  "../x",
  "..",
  ".",
  "a/b",
  "a\\b",
  "C:",
  "con ",
  "%2e%2e",
  "Ann",
  "ann",
  "Ä",
  '*?<>|"',
  "x".repeat(256),
  "ß".repeat(128),
])("the file of stream %j is in the folder, and no other stream's", async (stream) => {
  const archive = jsonLinesArchive(folder);
  await archive.write("other", flowing(made("other", 1, 1)));
  await archive.write(stream, flowing(made(stream, 1, 2)));
  expect(readdirSync(folder)).toHaveLength(2);
  expect(readdirSync(root)).toEqual(["archive"]);
  expect(readdirSync(folder).every((name) => /^[a-z0-9_%-]+\.jsonl$/.test(name))).toBe(true);
  expect(readdirSync(folder).every((name) => name.length <= 255)).toBe(true);
  expect(await read(archive, stream)).toEqual(made(stream, 1, 2));
});

test("two long ids that begin alike have two files", async () => {
  const archive = jsonLinesArchive(folder);
  const [one, two] = [`${"x".repeat(250)}1`, `${"x".repeat(250)}2`];
  await archive.write(one, flowing(made(one, 1, 1)));
  await archive.write(two, flowing(made(two, 1, 2)));
  expect([(await read(archive, one)).length, (await read(archive, two)).length]).toEqual([1, 2]);
});

test.each([
  { damage: "a changed letter", change: (text: string) => text.replace("Deposited", "Deposixed") },
  { damage: "a changed version", change: (text: string) => text.replace('"version":2', '"version":3') },
  { damage: "a cut line", change: (text: string) => text.slice(0, -20) },
  { damage: "something else", change: () => "null\n" },
])("$damage is reported", async ({ change }) => {
  const archive = jsonLinesArchive(folder);
  await archive.write("ann", flowing(made("ann", 1, 3)));
  const file = join(folder, "ann.jsonl");
  writeFileSync(file, change(readFileSync(file, "utf8")));
  expect(await codeOf(read(archive, "ann"))).toBe("archive_damaged");
  // It is not replaced by something that looks whole.
  expect(await codeOf(archive.write("ann", flowing(made("ann", 4, 5))))).toBe("archive_damaged");
});

test("a file of another stream is not taken for its own", async () => {
  const archive = jsonLinesArchive(folder);
  await archive.write("ann", flowing(made("ann", 1, 3)));
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, "bob.jsonl"), readFileSync(join(folder, "ann.jsonl")));
  expect(await codeOf(read(archive, "bob"))).toBe("archive_damaged");
});

test("values that JSON lacks come back through the handle's codec, and what it encrypts stays encrypted", async () => {
  const Noted = event<unknown>("Noted");
  const data = { at: new Date(5), map: new Map([["a", 1n]]), none: undefined, text: "secret-canary" };
  const reversed = transformed(jsonCodec, {
    name: "reversed",
    seal: (text: string) => [...text].toReversed().join(""),
    open: (text: string) => [...text].toReversed().join(""),
  });
  const archive = jsonLinesArchive(folder);
  const pawl = await open({ store: join(root, "x.db"), archive, codec: reversed, durability: "process" });
  await pawl.stream("ann").append([Noted(data)], { actor: "bob" });
  const before = await all(pawl.stream("ann").read());
  await pawl.streams.close("ann", { restart: Noted(1) });
  expect((await all(pawl.stream("ann").read()))[0]).toEqual(before[0]);
  expect(before[0]?.data).toEqual(data);
  expect(existsSync(join(folder, "ann.jsonl"))).toBe(true);
  expect(readFileSync(join(folder, "ann.jsonl"), "utf8")).not.toContain("secret-canary");
  await pawl.close();
});
