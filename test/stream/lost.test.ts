/**
 * Goal: an event that the store has lost is reported, wherever that can be seen, and one that was removed or is not asked for is not taken for lost (G20).
 * Method: rows are removed behind the handle's back: by the store's own `prune` on every store, and by SQL where there is some. Then what may look
 * like a loss and is none: events that were archived, filtered or imported, and those that are appended while a stream is read.
 */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { type FollowedEvent, open, type Pawl, projection, type ReadEventsOptions, reaction } from "../../src/index.ts";
import { streamAt } from "../../src/stream/stored.ts";
import { codeOf } from "../kernel/kit.ts";
import { EVERY, onStores, PATIENCE, type Place, SQL } from "../workflow/kit.ts";
import { account, all, brief, Deposited, deposits, Opened } from "./kit.ts";

const count = projection("count", { on: [Deposited] }, (row: number | undefined) => (row ?? 0) + 1);

/** What a reading of all streams gives, and how it ends. */
async function readAll(pawl: Pawl, options: ReadEventsOptions = {}): Promise<readonly string[]> {
  const seen: string[] = [];
  try {
    for await (const one of pawl.events.read(options) as AsyncIterable<FollowedEvent>) seen.push(brief(one));
  } catch (error) {
    const { code, data } = error as { code: string; data: { stream: string; version: number } };
    seen.push(`${code} ${data.stream} ${data.version}`);
  }
  return seen;
}

onStores(EVERY, (place) => {
  test("a stream whose last events are lost is not read as a shorter one", async () => {
    const pawl = await place.open();
    const ann = pawl.stream("ann");
    await ann.append(deposits(3));
    await pawl.aggregate(account, "ann").state();
    await pawl.kernel.prune(streamAt("ann"), 3, 10);
    expect(await codeOf(all(ann.read()))).toBe("event_gone");
    expect(await codeOf(all(ann.read({ from: 3 })))).toBe("event_gone");
    expect(await codeOf(all(ann.read({ backwards: true })))).toBe("event_gone");
    expect(await codeOf(pawl.aggregate(account, "ann").state())).toBe("event_gone");
    expect(await codeOf(pawl.aggregate(account, "ann").execute("look"))).toBe("event_gone");
    const to = { write: (_: string, done: () => void) => done() };
    expect(await codeOf(pawl.streams.export("ann", to))).toBe("event_gone");
    expect(await all(ann.read({ from: 4 }))).toEqual([]);
  });

  test("a reader of all streams reports a gap in the versions of one of them", async () => {
    const pawl = await place.open();
    await pawl.stream("ann").append(deposits(6));
    await pawl.stream("bob").append([Opened()]);
    const [, , third] = await all(pawl.events.read());
    await pawl.kernel.prune(streamAt("ann"), 2, 10);
    expect(await readAll(pawl)).toEqual(["event_gone ann 2"]);
    // What was read before is not missed.
    const rest = ["ann 4 Deposited", "ann 5 Deposited", "ann 6 Deposited", "bob 1 Opened"];
    expect(await readAll(pawl, { after: third?.cursor })).toEqual(rest);
    const follow = pawl.kernel.follow.bind(pawl.kernel);
    pawl.kernel.follow = async (query) => {
      const page = await follow(query);
      return { ...page, entries: page.entries.filter(({ version }) => version !== 5) };
    };
    expect(await readAll(pawl, { after: third?.cursor })).toEqual(["ann 4 Deposited", "event_gone ann 5"]);
  });

  describe("what is no loss", () => {
    test("an event that is appended between the looks at the record and at the log is read", async () => {
      const pawl = await place.open();
      await pawl.stream("ann").append(deposits(2));
      const read = pawl.kernel.read.bind(pawl.kernel);
      let isFirst = true;
      pawl.kernel.read = async (keys) => {
        if (isFirst) {
          isFirst = false;
          await pawl.stream("ann").append(deposits(1));
        }
        return read(keys);
      };
      expect((await all(pawl.stream("ann").read())).map(brief)).toEqual([
        "ann 1 Deposited",
        "ann 2 Deposited",
        "ann 3 Deposited",
      ]);
      isFirst = true;
      expect((await all(pawl.stream("new").read())).map(brief)).toEqual([]);
    });

    test("events that were removed while all streams are read", async () => {
      const pawl = await place.open();
      await pawl.stream("ann").append(deposits(600));
      await pawl.stream("bob").append([Opened()]);
      const seen: string[] = [];
      for await (const one of pawl.events.read({ from: "kept" })) {
        seen.push(brief(one));
        if (one.version === 3) await pawl.streams.prune("ann", { before: 590, discard: true });
      }
      expect(seen.at(-1)).toBe("bob 1 Opened");
      expect(await readAll(pawl, { from: "kept" })).toEqual([...seen.slice(-12)]);
      await pawl.streams.close("ann", { discard: true });
      expect(await readAll(pawl, { from: "kept" })).toEqual(["bob 1 Opened", "ann 601 $closed"]);
      expect((await all(pawl.stream("ann").read({ from: "kept" }))).map(brief)).toEqual(["ann 601 $closed"]);
    });

    test("events of other types, and imported ones", async () => {
      const pawl = await place.open();
      await pawl.stream("ann").append([Opened(), ...deposits(2), Opened(), ...deposits(1)]);
      expect(await readAll(pawl, { events: [Opened] })).toEqual(["ann 1 Opened", "ann 4 Opened"]);
      const folder = mkdtempSync(join(tmpdir(), "pawl-lost-"));
      try {
        const path = join(folder, "export.jsonl");
        await pawl.streams.export("ann", path);
        await using other = await open("memory:");
        await other.streams.import(path);
        expect(await readAll(other)).toEqual((await all(pawl.stream("ann").read())).map(brief));
      } finally {
        rmSync(folder, { recursive: true, force: true });
      }
    });
  });
});

/** Removes an event from the log, and leaves its place in the order of all streams. */
async function lose(place: Place, stream: string, version: number): Promise<void> {
  const plain = await place.connect();
  const [log, record] = place.store === "SQLite" ? ["pawl_log", "pawl_record"] : ["pawl.log", "pawl.record"];
  await plain.query(
    `delete from ${log} where version = ${version} and record in (select id from ${record} where namespace = ? and key = ?)`,
    place.namespace,
    stream,
  );
}

onStores(SQL, (place) => {
  test.each([
    { where: "in the middle", lost: 2 },
    { where: "at the end", lost: 3 },
  ])("an event that is lost $where is reported by all readers", async ({ lost }) => {
    const pawl = await place.open();
    await pawl.stream("ann").append(deposits(3));
    await pawl.stream("bob").append(deposits(1));
    await lose(place, "ann", lost);
    const before = ["ann 1 Deposited", "ann 2 Deposited"].slice(0, lost - 1);
    const gone = `event_gone ann ${lost}`;
    expect((await all(pawl.stream("bob").read())).map(brief)).toEqual(["bob 1 Deposited"]);
    expect(await codeOf(all(pawl.stream("ann").read()))).toBe("event_gone");
    expect(await codeOf(pawl.aggregate(account, "ann").state())).toBe("event_gone");
    expect(await readAll(pawl)).toEqual([...before, gone]);
    expect(await readAll(pawl, { events: [Deposited] })).toEqual([...before, gone]);
    expect(await readAll(pawl, { prefix: "b" })).toEqual(["bob 1 Deposited"]);
  });

  test("a reaction has a dead letter for it, and handles the others; a projection stops at it, and says so", async () => {
    const pawl = await place.open();
    await pawl.stream("ann").append(deposits(3));
    await pawl.stream("bob").append(deposits(1));
    await lose(place, "ann", 2);
    const seen: string[] = [];
    const mail = reaction("mail", { on: [Deposited] }, (e) => {
      seen.push(brief(e));
    });
    pawl.work([mail, count]);
    await expect.poll(() => seen.length, PATIENCE).toBe(3);
    expect(seen.toSorted()).toEqual(["ann 1 Deposited", "ann 3 Deposited", "bob 1 Deposited"]);
    const { letters } = await pawl.reactions.deadLetters("mail");
    expect(letters).toMatchObject([
      { stream: "ann", version: 2, message: expect.stringContaining("not there any more") },
    ]);
    const failure = async () => (await pawl.projection(count).status()).building?.failure;
    await expect.poll(failure, PATIENCE).toMatchObject({ stream: "ann", version: 2 });
    // The tries that follow find the same, and are counted.
    await expect.poll(async () => (await failure())?.count, PATIENCE).toBeGreaterThan(1);
    expect(await codeOf(pawl.projection(count).get("bob"))).toBe("projection_building");
  });
});
