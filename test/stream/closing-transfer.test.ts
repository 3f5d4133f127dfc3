/**
 * Goal: an export has everything of its events, any handle can import it, and an import that was interrupted is repeated without a trace; on every store.
 * Method: streams are exported from one store, imported into another and exported again: the files are equal. Imports are ended after each of their commits.
 */

import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Writable } from "node:stream";
import { afterEach, beforeEach, expect, test } from "vitest";
import { type Archive, event, jsonCodec, jsonLinesArchive, open, type Pawl, transformed } from "../../src/index.ts";
import { codeOf } from "../kernel/kit.ts";
import { EVERY, onStores } from "../workflow/kit.ts";
import { account, all, Deposited, deposits, Opened } from "./kit.ts";

const Noted = event<unknown>("Noted", { shape: 2, upcast: { 1: (data) => data } });

let folder = "";
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "pawl-transfer-"));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const path = (name: string): string => join(folder, name);
const text = (name: string): string => readFileSync(path(name), "utf8");

async function* pieces(content: string, size: number): AsyncGenerator<Uint8Array> {
  const bytes = Buffer.from(content);
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
}

/** A handle with three streams: one with an archive and a restart, one closed, one with values that JSON lacks. */
async function source(archive: Archive): Promise<Pawl> {
  const pawl = await open("memory:", { archive });
  await pawl.stream("year/ann").append(deposits(3), { actor: "bob", correlationId: "c-1", causationId: "m-1" });
  await pawl.streams.close("year/ann", { restart: Opened(), actor: "bob", reason: "new year" });
  await pawl.stream("year/ann").append(deposits(450));
  await pawl.stream("year/bob").append(deposits(2));
  await pawl.streams.close("year/bob");
  await pawl
    .stream("year/cid")
    .append([Noted({ at: new Date(7), big: 2n, map: new Map([[1, "ü\u2028"]]), none: undefined })]);
  await pawl.stream("other").append(deposits(1));
  return pawl;
}

onStores(EVERY, (place) => {
  test("what is exported and imported is the same, and is exported again as the same file", async () => {
    const from = await source(jsonLinesArchive(path("archive")));
    expect(await from.streams.export({ prefix: "year/" }, path("a.jsonl"))).toEqual({ streams: 3, events: 459 });
    const to = await place.open();
    const dry = await to.streams.import(path("a.jsonl"), { dryRun: true });
    expect(dry).toEqual({ streams: 3, events: 459, skipped: 0 });
    expect(await to.stream("year/ann").head()).toBe(0);
    expect(await to.streams.import(path("a.jsonl"))).toEqual({ streams: 3, events: 459, skipped: 0 });
    for (const stream of ["year/ann", "year/bob", "year/cid"])
      expect(await all(to.stream(stream).read())).toEqual(await all(from.stream(stream).read()));
    expect(await to.stream("other").head()).toBe(0);
    await to.streams.export({ prefix: "" }, path("b.jsonl"));
    expect(text("b.jsonl")).toBe(text("a.jsonl"));
    expect(readdirSync(folder).toSorted()).toEqual(["a.jsonl", "archive", "b.jsonl"]);
    // Again: all of it is there. In small pieces, which end anywhere.
    expect(await to.streams.import(pieces(text("a.jsonl"), 7))).toEqual({ streams: 3, events: 0, skipped: 459 });
    // The closed stream is closed, the restarted one is open, and its times are those of its events.
    expect(await codeOf(to.stream("year/bob").append(deposits(1)))).toBe("stream_closed");
    const { version } = await to.stream("year/ann").append(deposits(1), { expectedVersion: 455 });
    expect(version).toBe(456);
    expect((await to.aggregate(account, "year/ann").state()).state.count).toBe(454);
    const [first] = await all(from.stream("year/ann").read());
    const found = to.events.read({ prefix: "year/", since: first?.at ?? 0, until: Number(first?.at) + 1 });
    expect((await all(found)).map(({ id }) => id)).toContain(first?.id);
    // It has moved on; what is imported is its beginning.
    expect(await to.streams.import(path("a.jsonl"))).toMatchObject({ events: 0, skipped: 459 });
    await from.close();
  });

  test("a stream of which events were removed is continued, and stays one", async () => {
    const from = await open("memory:");
    await from.stream("ann").append(deposits(4));
    await from.streams.export("ann", path("half.jsonl"));
    await from.stream("ann").append(deposits(4));
    await from.streams.export("ann", path("whole.jsonl"));
    const archive = jsonLinesArchive(path("archive"));
    const to = await place.open({ archive });
    await to.streams.import(path("half.jsonl"));
    await to.aggregate(account, "ann").execute("look");
    await to.streams.prune("ann", { before: 3 });
    expect(await to.streams.import(path("whole.jsonl"))).toEqual({ streams: 1, events: 4, skipped: 4 });
    // Readers of all streams still know.
    const blind = await place.open();
    expect(await codeOf(all(blind.events.read()))).toBe("events_archived");
    expect(await codeOf(blind.streams.import(path("whole.jsonl")))).toBe("events_archived");
    await from.close();
  });

  test("a stream with other events is refused, and left as it is", async () => {
    const from = await source(jsonLinesArchive(path("archive")));
    await from.streams.export("year/bob", path("a.jsonl"));
    const to = await place.open();
    await to.stream("year/bob").append(deposits(1));
    const refused = { code: "stream_exists", data: { stream: "year/bob", version: 1 } };
    await expect(to.streams.import(path("a.jsonl"))).rejects.toMatchObject(refused);
    await expect(to.streams.import(path("a.jsonl"), { dryRun: true })).rejects.toMatchObject(refused);
    expect(await to.stream("year/bob").head()).toBe(1);
    await from.close();
  });

  test("an import that another append overtakes is refused", async () => {
    const from = await open("memory:");
    await from.stream("ann").append(deposits(3));
    await from.streams.export("ann", path("a.jsonl"));
    const [handle, other] = [await place.openHandle(), await place.open()];
    const reached = Promise.withResolvers<void>();
    const isAppended = reached.promise.then(() => other.stream("ann").append(deposits(1)));
    // Its commit is under way when the other one is made.
    const transact = handle.pawl.kernel.transact.bind(handle.pawl.kernel);
    handle.pawl.kernel.transact = (...given) => {
      handle.hold("request", isAppended);
      reached.resolve();
      return transact(...given);
    };
    const outcome = codeOf(handle.pawl.streams.import(path("a.jsonl")));
    expect([await outcome, await other.stream("ann").head()]).toEqual(["stream_exists", 1]);
    await from.close();
  });

  test("an import whose process dies before any of its commits is repeated, and nothing is there twice", async () => {
    const from = await source(jsonLinesArchive(path("archive")));
    await from.streams.export({ prefix: "year/" }, path("a.jsonl"));
    const reference = await place.open();
    for (let round = 1; ; round++) {
      const handle = await place.openHandle();
      const crash = handle.dieAt(round * 3, round % 2 === 0 ? "before" : "after");
      const importing = handle.pawl.streams.import(path("a.jsonl"));
      await Promise.race([importing, crash.died]);
      if (!handle.isDead()) break;
      handle.die();
    }
    expect(await reference.streams.import(path("a.jsonl"))).toMatchObject({ events: 0, skipped: 459 });
    await reference.streams.export({ prefix: "" }, path("b.jsonl"));
    expect(text("b.jsonl")).toBe(text("a.jsonl"));
    await from.close();
  });
});

test("an export goes to a stream of Node too, which is not ended, and whose failure is reported", async () => {
  const from = await source(jsonLinesArchive(path("archive")));
  let written = "";
  const sink = new Writable({
    write(piece, _, done) {
      written += String(piece);
      done();
    },
  });
  expect(await from.streams.export({ prefix: "year/" }, sink)).toEqual({ streams: 3, events: 459 });
  expect(sink.writableEnded).toBe(false);
  await from.streams.export({ prefix: "year/" }, path("a.jsonl"));
  expect(written).toBe(text("a.jsonl"));
  const broken = new Writable({ write: (_piece, _encoding, done) => done(new Error("pipe closed")) });
  await expect(from.streams.export("other", broken)).rejects.toThrow("pipe closed");
  expect(await from.streams.export("nobody", path("none.jsonl"))).toEqual({ streams: 0, events: 0 });
  expect(text("none.jsonl")).toBe("");
  await from.close();
});

test("an export that lacks removed events is not made", async () => {
  const pawl = await open("memory:");
  await pawl.stream("ann").append(deposits(2));
  await pawl.streams.close("ann", { discard: true });
  expect(await codeOf(pawl.streams.export({ prefix: "" }, path("a.jsonl")))).toBe("events_archived");
  expect(readdirSync(folder)).toEqual([]);
  await pawl.close();
});

test("what is damaged, cut out or encrypted for another handle is refused with its line", async () => {
  const from = await source(jsonLinesArchive(path("archive")));
  await from.streams.export("year/bob", path("a.jsonl"));
  const lines = text("a.jsonl").trimEnd().split("\n");
  const refused = async (content: string) => {
    const to = await open("memory:");
    const outcome = await to.streams.import(pieces(content, 1000)).catch(({ code, data }) => `${code} ${data.line}`);
    await to.close();
    return outcome;
  };
  expect(lines).toHaveLength(3);
  expect(await refused([lines[0], lines[2]].join("\n"))).toBe("archive_damaged 2");
  expect(await refused(lines.slice(1).join("\n"))).toBe("archive_damaged 1");
  expect(await refused(`${lines[0]}\n\n{}`)).toBe("archive_damaged 3");
  expect(await refused(`${lines[0]}\n${lines[1]?.replace("Deposited", "Withdrawn")}`)).toBe("archive_damaged 2");
  // The archive of a handle with another codec.
  const hidden = transformed(jsonCodec, {
    name: "hidden",
    seal: (plain) => Buffer.from(plain).toString("base64"),
    open: (sealed) => Buffer.from(sealed, "base64").toString(),
  });
  const other = await open("memory:", { codec: hidden, archive: jsonLinesArchive(path("hidden")) });
  await other.stream("ann").append([Deposited({ amount: 1 })]);
  await other.streams.close("ann", { restart: Opened() });
  expect(await refused(readFileSync(join(path("hidden"), "ann.jsonl"), "utf8"))).toBe("archive_damaged 1");
  // Its export can be read by all.
  await other.streams.export("ann", path("plain.jsonl"));
  expect(await refused(text("plain.jsonl"))).toEqual({ streams: 1, events: 3, skipped: 0 });
  // An archive of a handle without a codec of its own is an export of what was removed.
  expect(await refused(readFileSync(join(path("archive"), "year%2fbob.jsonl"), "utf8"))).toMatchObject({ events: 2 });
  writeFileSync(path("empty.jsonl"), "");
  expect(await from.streams.import(path("empty.jsonl"))).toEqual({ streams: 0, events: 0, skipped: 0 });
  await Promise.all([other.close(), from.close()]);
});

test.each([5, null, undefined, "", {}, [], () => {}])(
  "%o is neither a place to export to nor something to import",
  async (bad) => {
    const pawl = await open("memory:");
    await pawl.stream("ann").append(deposits(1));
    expect(await codeOf(pawl.streams.export("ann", bad as never))).toBe("invalid_argument");
    expect(await codeOf(pawl.streams.import(bad as never))).toBe("invalid_argument");
    expect(await codeOf(pawl.streams.export((typeof bad === "string" ? 5 : bad) as never, path("a.jsonl")))).toMatch(
      /^invalid_/,
    );
    await pawl.close();
  },
);
