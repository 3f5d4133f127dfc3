/**
 * Goal: however large events are, readers hold a few megabytes of them at a time, and lose none.
 * Method: a stream of events of almost a megabyte each; what each read of the store returns is measured.
 */

import { expect, test, vi } from "vitest";
import {
  type Archive,
  type ArchivedEvent,
  aggregate,
  event,
  open,
  type Pawl,
  projection,
  reaction,
} from "../../src/index.ts";
import { PAGE_BYTES } from "../../src/kernel/kernel.ts";
import { routersOf, unrouted } from "../../src/stream/closing/needs.ts";
import { streamAt } from "../../src/stream/stored.ts";
import { EVERY, onStores, PATIENCE } from "../workflow/kit.ts";
import { all } from "./kit.ts";

const Large = event<{ readonly n: number; readonly text: string }>("Large");
const Small = event<{ readonly n: number }>("Small");

const TEXT = "x".repeat(900_000);
const COUNT = 14;
const versions = Array.from({ length: COUNT + 3 }, (_, i) => i + 1);

const sums = aggregate("sums", {
  initial: { sum: 0 },
  on: [
    [Large, ({ sum }, { n }) => ({ sum: sum + n })],
    [Small, ({ sum }, { n }) => ({ sum: sum + n })],
  ],
  commands: {},
});

const rows = projection("rows", { on: [Large, Small] }, (row: readonly number[] | undefined, e) => [
  ...(row ?? []),
  e.data.n,
]);

/** Large events, with a small one at either end and one in between. */
async function appendAll(pawl: Pawl, stream: string): Promise<void> {
  for (const n of versions) {
    const isSmall = n === 1 || n === 9 || n === versions.length;
    await pawl.stream(stream).append([isSmall ? Small({ n }) : Large({ n, text: TEXT })]);
  }
}

/** The most bytes that one read of entries has returned since. */
function mostBytes(pawl: Pawl): () => number {
  let most = 0;
  const measure = (entries: readonly { readonly data: string }[]): void => {
    most = Math.max(
      most,
      entries.reduce((bytes, { data }) => bytes + data.length, 0),
    );
  };
  const { kernel } = pawl;
  const [entries, follow] = [kernel.entries.bind(kernel), kernel.follow.bind(kernel)];
  vi.spyOn(kernel, "entries").mockImplementation(async (...query) => {
    const read = await entries(...query);
    measure(read);
    return read;
  });
  vi.spyOn(kernel, "follow").mockImplementation(async (query) => {
    const page = await follow(query);
    measure(page.entries);
    return page;
  });
  return () => most;
}

const MOST = PAGE_BYTES + 1024 * 1024;
const versionOf = ({ version }: { readonly version: number }): number => version;

/** An archive in memory. */
function archiveOf(kept: ArchivedEvent[]): Archive {
  return {
    async write(_, events) {
      for await (const one of events) kept.push(one);
    },
    async *read(stream, { from, to }) {
      yield* kept.filter((one) => one.stream === stream && one.version >= from && one.version <= to);
    },
  };
}

onStores(EVERY, (place) => {
  test("large events are read, folded and exported a few at a time, and all of them", async () => {
    const pawl = await place.open();
    await appendAll(pawl, "s");
    const most = mostBytes(pawl);
    expect((await all(pawl.stream("s").read())).map(versionOf)).toEqual(versions);
    expect((await all(pawl.stream("s").read({ from: 5 }))).map(versionOf)).toEqual(versions.slice(4));
    expect((await all(pawl.stream("s").read({ backwards: true }))).map(versionOf)).toEqual(versions.toReversed());
    expect((await all(pawl.events.read())).map(versionOf)).toEqual(versions);
    expect((await all(pawl.events.read({ events: [Small] }))).map(versionOf)).toEqual([1, 9, versions.length]);
    expect(await pawl.aggregate(sums, "s").state()).toMatchObject({ version: versions.length, state: { sum: 153 } });
    const written: number[] = [];
    const to = {
      write(piece: string, done: () => void) {
        written.push(piece.length);
        done();
      },
    };
    expect(await pawl.streams.export("s", to)).toEqual({ streams: 1, events: versions.length });
    expect(Math.max(...written)).toBeLessThan(MOST);
    expect(most()).toBeLessThan(MOST);
  });

  test("large events are handled by a reaction and made into rows, each once and in order", async () => {
    const pawl = await place.open();
    await appendAll(pawl, "s");
    const most = mostBytes(pawl);
    const seen: number[] = [];
    const each = reaction("each", { on: [Large, Small] }, (e) => {
      seen.push(e.data.n);
    });
    const together = reaction("together", { on: [Large, Small], target: "all" }, (e) => {
      seen.push(-e.data.n);
    });
    pawl.work([each, together, rows]);
    await expect.poll(() => seen.length, PATIENCE).toBe(2 * versions.length);
    expect(seen.filter((n) => n > 0)).toEqual(versions);
    expect(seen.filter((n) => n < 0)).toEqual(versions.map((n) => -n));
    await pawl.projection(rows).waitFor({ stream: "s", version: versions.length }, { timeout: "2 minutes" });
    expect(await pawl.projection(rows).get("s")).toEqual(versions);
    expect(most()).toBeLessThan(MOST);
  });

  test("what is waited for is found behind large events that the projection is not about", async () => {
    const pawl = await place.open();
    await appendAll(pawl, "s");
    const ones = projection("ones", { on: [Small] }, (row: number | undefined) => (row ?? 0) + 1);
    pawl.work([ones]);
    const most = mostBytes(pawl);
    await pawl.projection(ones).waitFor({ stream: "s", version: 8 }, { timeout: "2 minutes" });
    await pawl.projection(ones).waitFor({ stream: "s", version: versions.length - 1 }, { timeout: "2 minutes" });
    expect(most()).toBeLessThan(MOST);
  });
});

onStores(EVERY, (place) => {
  test("a closing finds what reactions have not routed in pages, refused or forced", async () => {
    const pawl = await place.open({ archive: archiveOf([]) });
    await appendAll(pawl, "s");
    const each = reaction("each", { on: [Large, Small] }, () => {});
    const worker = pawl.work([each]);
    await expect.poll(async () => (await pawl.reactions.list()).length, PATIENCE).toBe(1);
    await pawl.reactions.pause("each");
    await worker.stop();
    await appendAll(pawl, "t");
    const most = mostBytes(pawl);
    await expect(pawl.streams.close("t")).rejects.toMatchObject({
      code: "stream_in_use",
      data: { reactions: [{ reaction: "each", events: versions.length }] },
    });
    const { kernel } = pawl;
    const found = await all(unrouted(kernel, streamAt("t"), versions.length, await routersOf(kernel)));
    expect(found.length).toBe(versions.length);
    // A closing keeps many of them until it writes their letters.
    expect(JSON.stringify(found).length).toBeLessThan(10_000);
    await pawl.streams.close("t", { force: true });
    expect((await pawl.reactions.deadLetters("each")).letters.map(versionOf)).toEqual(versions);
    expect(most()).toBeLessThan(MOST);
  });
});

test("large events that were archived are read in both directions, and handled by a new reaction", async () => {
  const kept: ArchivedEvent[] = [];
  const pawl = await open("memory:", { archive: archiveOf(kept) });
  await appendAll(pawl, "s");
  const { version } = await pawl.streams.close("s");
  expect(kept.length).toBe(versions.length);
  const upTo = [...versions, version];
  expect((await all(pawl.stream("s").read())).map(versionOf)).toEqual(upTo);
  expect((await all(pawl.stream("s").read({ backwards: true }))).map(versionOf)).toEqual(upTo.toReversed());
  const seen: number[] = [];
  const each = reaction("each", { on: [Large, Small] }, (e) => {
    seen.push(e.data.n);
  });
  pawl.work([each, rows]);
  await expect.poll(() => seen, PATIENCE).toEqual(versions);
  await expect.poll(() => pawl.projection(rows).get("s"), PATIENCE).toEqual(versions);
  await pawl.close();
});
