/**
 * Following: the entries of many logs in one order, with a cursor that nothing ever appears behind.
 *
 * The order is that of positions, which is the order of commits only if one waits for the other. So in the most important laws,
 * transactions overlap: many writers commit while a reader follows, and, if a store shares its transactions with other SQL,
 * transactions are held open and end in another order than they wrote.
 */

import assert from "node:assert/strict";
import type { FollowedEntry, Put, Row, SqlStore, Store } from "../../../kernel/contract.ts";
import { StoreError } from "../../../kernel/errors.ts";
import {
  at,
  blank,
  changing,
  followed,
  isWithin,
  type LawContext,
  making,
  only,
  type Rule,
  range,
  rule,
  turn,
  type Writer,
} from "../law-context.ts";

const nameOf = ({ key, version }: FollowedEntry): string => `${key} ${version}`;
const names = (entries: readonly FollowedEntry[]): readonly string[] => entries.map(nameOf);

/** Continues page by page, and checks each as it comes. */
class Reader {
  readonly #writer: Writer;
  readonly #limit: number;
  readonly seen: FollowedEntry[] = [];
  upTo = 0;

  constructor(writer: Writer, limit = 1000) {
    this.#writer = writer;
    this.#limit = limit;
  }

  /** Reads until there is no more for now; returns the new entries. */
  async follow(): Promise<readonly FollowedEntry[]> {
    const before = this.seen.length;
    for (let hasMore = true; hasMore; ) {
      const page = await this.#writer.follow({ after: this.upTo, limit: this.#limit });
      assert.ok(page.upTo >= this.upTo, `the cursor went back from ${this.upTo} to ${page.upTo}`);
      assert.ok(page.entries.length <= this.#limit, `${page.entries.length} entries, and the limit is ${this.#limit}`);
      assert.ok(!page.hasMore || page.upTo > this.upTo, `there are more entries, and the cursor stays at ${this.upTo}`);
      let last = this.upTo;
      for (const entry of page.entries) {
        assert.ok(entry.position > last, `${nameOf(entry)} has position ${entry.position}, and ${last} was read past`);
        assert.ok(entry.position <= page.upTo, `${nameOf(entry)} is beyond the cursor`);
        last = entry.position;
      }
      this.seen.push(...page.entries);
      this.upTo = page.upTo;
      hasMore = page.hasMore;
    }
    return this.seen.slice(before);
  }

  /** Every version of every record once, in order. */
  checkGapless(heads: ReadonlyMap<string, number>): void {
    const versions = new Map<string, number>();
    for (const { key, version } of this.seen) {
      assert.equal(
        version,
        (versions.get(key) ?? 0) + 1,
        `of ${key}, version ${version} came after ${versions.get(key)}`,
      );
      versions.set(key, version);
    }
    assert.deepEqual(new Map([...versions].sort()), new Map([...heads].sort()));
  }
}

/** Appends one followed entry to a record, and creates the record first if needed. */
async function append(writer: Writer, was: Row | string, ...data: readonly string[]): Promise<Row> {
  const texts = data.length > 0 ? data : ["said"];
  const put = typeof was === "string" ? making(blank(was), ...texts) : changing(was, {}, ...texts);
  return only(await writer.write(followed(put)));
}

// ------------------------------------------------------------------------------------------------ open transactions

const isSqlStore = (store: Store): store is SqlStore => "share" in store && "join" in store;

/** A transaction that has written, and is held open. */
interface OpenTransaction {
  commit(): Promise<void>;
  rollback(): Promise<void>;
}

class RolledBack extends Error {}

/** Writes in a transaction that is shared with other SQL, in as many decisions as there are puts. */
async function begin(writer: Writer, store: SqlStore, ...puts: readonly Put[]): Promise<OpenTransaction> {
  const lane = store.lanes;
  const { epoch, sequence } = await writer.settle(lane);
  const end = Promise.withResolvers<void>();
  const written = Promise.withResolvers<void>();
  const shared = writer.retryBusy(() =>
    store.share({ lane, epoch, sequence: sequence + 1 }, async (_, executor) => {
      for (const put of puts) {
        const joined = await store.join(executor, { lock: [put.row], decide: () => ({ puts: [put] }) });
        assert.ok(joined.written);
      }
      written.resolve();
      await end.promise;
    }),
  );
  await Promise.race([written.promise, shared]);
  return {
    async commit() {
      end.resolve();
      await shared;
    },
    async rollback() {
      end.reject(new RolledBack());
      await assert.rejects(shared, RolledBack);
    },
  };
}

/**
 * Tests stores that share their transactions, in the way that each allows. A server ends transactions that are idle for long, which happens
 * on a slow machine: then the check is repeated.
 */
async function shared(context: LawContext, check: (writer: Writer, store: SqlStore, round: number) => Promise<void>) {
  for (let round = 0; ; round++) {
    const writer = await context.connect();
    if (!isSqlStore(writer.store)) return;
    try {
      return await check(writer, writer.store, round);
    } catch (error) {
      if (!(error instanceof StoreError) || round === 5) throw error;
    }
  }
}

export const follows: readonly Rule[] = [
  rule("followed entries of many records come in one order, complete, and others are left out", async (context) => {
    const [writer, other] = await context.connectTwo();
    const rows = await writer.write(
      followed(making(blank("b"), "b1", "b2")),
      making(blank("silent"), "not followed"),
      followed(making(blank("a"), "a1")),
    );
    const [b, silent, a] = rows as [Row, Row, Row];
    await append(other, b, "b3");
    const put = changing(a, {}, "a2", "a3", "a4");
    await writer.write({
      ...put,
      entries: put.entries.map((entry) => ({ ...entry, isFollowed: entry.version !== 3 })),
    });
    await other.change(silent, {}, "again");
    const reader = new Reader(other);
    const entries = await reader.follow();
    assert.deepEqual(names(entries).toSorted(), ["a 1", "a 2", "a 4", "b 1", "b 2", "b 3"]);
    // An entry committed before another transaction began comes before it.
    assert.deepEqual(names(entries).slice(3), ["b 3", "a 2", "a 4"]);
    for (const entry of entries) {
      const stored = (await writer.entries(entry)).find(({ version }) => version === entry.version);
      const { version, name, data, atMs, position } = entry;
      assert.deepEqual({ version, name, data, atMs, position }, stored);
    }
  }),

  rule("a page has as many entries as requested, and the next one continues after it", async (context) => {
    const writer = await context.connect();
    const rows = await writer.write(...["a", "b", "c"].map((key) => followed(making(blank(key), "one", "two"))));
    for (const row of rows) await append(writer, row, "three", "four", "five");
    const all = names(await new Reader(writer).follow());
    assert.equal(all.length, 15);
    for (const limit of [1, 2, 7, 15, 16]) {
      const page = await writer.follow({ after: 0, limit });
      assert.equal(page.entries.length, Math.min(limit, 15));
      assert.deepEqual(names(await new Reader(writer, limit).follow()), all);
    }
  }),

  rule("a page has only entries of the requested space, keys and names", async (context) => {
    const writer = await context.connect();
    const named = (key: string, space: string): Put => {
      const put = followed(making(blank(key, { space }), "x", "y"));
      return {
        ...put,
        entries: put.entries.map((entry) => ({ ...entry, name: entry.version === 1 ? "made" : "Made" })),
      };
    };
    for (const [key, space] of [
      ["a", "one"],
      ["a", "two"],
      ["ab", "one"],
      ["b", "one"],
      ["A", "one"],
      ["\u{10ffff}z", "one"],
    ] as const)
      await writer.write(named(key, space));
    const chosen = async (query: Parameters<Writer["follow"]>[0]) => names((await writer.follow(query)).entries);
    assert.deepEqual(await chosen({ space: "two" }), ["a 1", "a 2"]);
    assert.deepEqual(await chosen({ space: "three" }), []);
    assert.deepEqual(await chosen({ space: "one", prefix: "a" }), ["a 1", "a 2", "ab 1", "ab 2"]);
    assert.deepEqual(await chosen({ space: "one", prefix: "ab" }), ["ab 1", "ab 2"]);
    assert.deepEqual(await chosen({ space: "one", prefix: "\u{10ffff}" }), ["\u{10ffff}z 1", "\u{10ffff}z 2"]);
    assert.deepEqual(await chosen({ space: "one", names: ["made"], prefix: "b" }), ["b 1"]);
    assert.deepEqual(await chosen({ space: "one", names: ["Made", "made"], prefix: "b" }), ["b 1", "b 2"]);
    assert.deepEqual(await chosen({ space: "one", names: [] }), []);
  }),

  rule("a page reads no more than its limit, and a reader gets past entries that do not match", async (context) => {
    const writer = await context.connect();
    let row = await append(writer, "many", ...range(0, 30).map(String));
    const wanted = await append(writer, "wanted");
    row = await append(writer, row, "last");
    const positions = (await writer.entries(row)).map(({ position }) => position);
    const found: string[] = [];
    let pages = 0;
    let after = 0;
    for (let hasMore = true; hasMore; pages++) {
      const page = await writer.follow({ after, limit: 10, prefix: wanted.key });
      assert.ok(page.upTo > after, `the cursor stayed at ${after}`);
      if (pages < 3)
        assert.ok(page.upTo < (positions[10 * (pages + 1)] ?? 0), `page ${pages} read more than ten entries`);
      found.push(...names(page.entries));
      after = page.upTo;
      hasMore = page.hasMore;
    }
    assert.deepEqual(found, ["wanted 1"]);
    assert.ok(pages <= 5, `it took ${pages} pages`);
  }),

  rule("a page says the store's clock, whether it has entries or not", async (context) => {
    const writer = await context.connect();
    await append(writer, "k");
    for (const after of [0, 1e6]) {
      const before = await writer.nowMs();
      const { nowMs } = await writer.follow({ after });
      const afterwards = await writer.nowMs();
      isWithin(nowMs, before, afterwards);
    }
  }),

  rule("a page ends when it has as many bytes as requested, and the next one continues after it", async (context) => {
    const writer = await context.connect();
    // Ten bytes each, and fewer characters.
    const row = await append(writer, "k", ...range(1, 5).map((n) => `${n}${n}${"\u{1f980}".repeat(2)}`));
    await append(writer, "other", "x".repeat(1000));
    await append(writer, row, "x".repeat(100), "last");
    for (const [maxBytes, pages] of [
      [1, [["k 1"], ["k 2"], ["k 3"], ["k 4"], ["k 5"], ["k 6"]]],
      [11, [["k 1", "k 2"], ["k 3", "k 4"], ["k 5"], ["k 6"]]],
      [31, [["k 1", "k 2", "k 3", "k 4"], ["k 5"], ["k 6"]]],
      [41, [["k 1", "k 2", "k 3", "k 4", "k 5"], ["k 6"]]],
      [1e6, [["k 1", "k 2", "k 3", "k 4", "k 5", "k 6"]]],
    ] as const) {
      const found: (readonly string[])[] = [];
      for (let after = 0, hasMore = true; hasMore; ) {
        const page = await writer.follow({ after, limit: 100, maxBytes, prefix: "k" });
        assert.ok(!page.hasMore || page.upTo > after, `there are more entries, and the cursor stays at ${after}`);
        if (page.entries.length > 0) found.push(names(page.entries));
        ({ upTo: after, hasMore } = page);
      }
      assert.deepEqual(found, pages, `for ${maxBytes} bytes`);
    }
    const { entries } = await writer.follow({ after: 0, limit: 2, maxBytes: 1e6 });
    assert.equal(entries.length, 2);
  }),

  rule("without entries to follow, a reader stays or advances, and the next entry is after it", async (context) => {
    const [writer, other] = await context.connectTwo();
    const reader = new Reader(other);
    assert.deepEqual(await reader.follow(), []);
    await writer.makeOne(blank("silent"), "not followed");
    assert.deepEqual(await reader.follow(), []);
    let row = await append(writer, "k");
    assert.deepEqual(names(await reader.follow()), ["k 1"]);
    assert.deepEqual(await reader.follow(), []);
    row = await append(writer, row, "two", "three");
    await other.change(row, {}, "not followed");
    assert.deepEqual(names(await reader.follow()), ["k 2", "k 3"]);
    assert.deepEqual(await reader.follow(), []);
  }),

  rule("a cursor that is ahead of the store gets a lower one", async (context) => {
    const writer = await context.connect();
    await append(writer, "k", "one", "two");
    const reader = new Reader(writer);
    await reader.follow();
    const ahead = reader.upTo + 1_000_000;
    const { entries, upTo, hasMore } = await writer.follow({ after: ahead });
    assert.deepEqual([entries, hasMore], [[], false]);
    assert.ok(
      upTo < ahead && upTo >= reader.upTo,
      `after ${ahead} it returned ${upTo}, and ${reader.upTo} was the last`,
    );
  }),

  rule("a batch that is refused leaves nothing to follow, and delays no reader", async (context) => {
    const [writer, other] = await context.connectTwo();
    const row = await append(writer, "k");
    const gone = { ...row, version: 77 };
    const refused = await other.commit({ decide: () => ({ puts: [followed(changing(gone, {}, "lost", "lost"))] }) });
    assert.equal(refused.committed, false);
    await assert.rejects(
      other.commit({
        lock: [row],
        decide: () => {
          throw new RolledBack();
        },
      }),
      RolledBack,
    );
    await append(writer, row, "two");
    const reader = new Reader(other);
    assert.deepEqual(names(await reader.follow()), ["k 1", "k 2"]);
  }),

  rule("each namespace is followed on its own", async (context) => {
    const [mine, theirs] = [await context.connect("mine"), await context.connect("theirs")];
    const row = await append(mine, "k", "of mine");
    await append(theirs, "k", "of theirs", "of theirs");
    await append(mine, row, "of mine");
    const said = async (writer: Writer) => (await new Reader(writer).follow()).map(({ data }) => data);
    assert.deepEqual(await said(mine), ["of mine", "of mine"]);
    assert.deepEqual(await said(theirs), ["of theirs", "of theirs"]);
  }),

  rule("a deleted record can be followed until it is swept, and then no longer", async (context) => {
    const writer = await context.connect();
    const kept = await append(writer, "kept");
    const doomed = await append(writer, "doomed", "one", "two");
    const long = await append(writer, "long", ...range(0, 1200).map(String));
    await append(writer, kept);
    const nowMs = await writer.nowMs();
    await writer.remove(doomed, nowMs + 1000);
    await writer.remove(long, nowMs + 1000);
    const keys = async () => [...new Set((await new Reader(writer).follow()).map(({ key }) => key))];
    assert.deepEqual(await keys(), ["kept", "doomed", "long"]);
    await context.advanceTo(writer, nowMs + 1100);
    // A long log may take several sweeps.
    await context.until("both are swept", async () => {
      await writer.sweep();
      return (await writer.read(at("doomed"), at("long"))).every((row) => row === null);
    });
    assert.deepEqual(await keys(), ["kept"]);
    const again = await append(writer, "doomed", "anew");
    assert.deepEqual(names((await new Reader(writer).follow()).slice(2)), [`${again.key} 1`]);
  }),

  rule("a reader that follows many writers misses nothing, and never goes back", async (context) => {
    const writers = await context.connectAll(6);
    const reader = new Reader(await context.connect(), 7);
    const heads = new Map<string, number>();
    let working = writers.length;
    const work = writers.map(async (writer, n) => {
      try {
        let row = await append(writer, `own-${n}`);
        for (let round = 1; round < 20; round++) {
          const other = { key: `new-${n}-${round}` };
          const more = round % 3 === 0 ? ["x", "y"] : ["x"];
          const [changed] = await writer.write(
            followed(changing(row, {}, ...more)),
            followed(making(blank(other.key), "x")),
          );
          assert.ok(changed);
          row = changed;
          heads.set(other.key, 1);
        }
        heads.set(row.key, row.head);
      } finally {
        working -= 1;
      }
    });
    const done = Promise.all(work);
    done.catch(() => {});
    while (working > 0) {
      await reader.follow();
      await turn();
    }
    await done;
    await context.until("everything is followed", async () => {
      await reader.follow();
      return reader.seen.length >= [...heads.values()].reduce((sum, head) => sum + head, 0);
    });
    reader.checkGapless(heads);
  }),

  rule("shared transactions that commit in reverse order are both followed", async (context) => {
    await shared(context, async (writer, store, round) => {
      const [other, reader] = [await context.connect(), new Reader(await context.connect())];
      await reader.follow();
      const [early, late] = [`early-${round}`, `late-${round}`];
      const first = await begin(writer, store, followed(making(blank(early), "one", "two")));
      // With one writer at a time, no other can commit in between.
      if (!store.hasOneWriter) {
        assert.ok(isSqlStore(other.store));
        const second = await begin(other, other.store, followed(making(blank(late), "one")));
        await second.commit();
        await append(other, `later-${round}`);
        await reader.follow();
      }
      await first.commit();
      if (store.hasOneWriter) await append(other, late);
      const wanted = store.hasOneWriter ? [early, early, late] : [early, early, late, `later-${round}`];
      await context.until("all are followed", async () => {
        await reader.follow();
        return reader.seen.length >= wanted.length;
      });
      assert.deepEqual(reader.seen.map(({ key }) => key).toSorted(), wanted.toSorted());
    });
  }),

  rule("a shared transaction that is rolled back leaves nothing to follow, and delays no reader", async (context) => {
    await shared(context, async (writer, store, round) => {
      const [other, reader] = [await context.connect(), new Reader(await context.connect())];
      const lost = await begin(writer, store, followed(making(blank(`lost-${round}`), "one", "two", "three")));
      if (!store.hasOneWriter) await append(other, `during-${round}`);
      await lost.rollback();
      await append(other, `after-${round}`);
      const wanted = store.hasOneWriter ? [`after-${round} 1`] : [`during-${round} 1`, `after-${round} 1`];
      await context.until("the entries after it are followed", async () => {
        await reader.follow();
        return reader.seen.length >= wanted.length;
      });
      assert.deepEqual(names(reader.seen).slice(-wanted.length), wanted);
    });
  }),

  rule(
    "entries that a shared transaction appends in several decisions are followed in their order, when it commits",
    async (context) => {
      await shared(context, async (writer, store, round) => {
        const reader = new Reader(await context.connect());
        const [a, b] = [`a-${round}`, `b-${round}`];
        const puts = [making(blank(b), "one"), making(blank(a), "one", "two"), making(blank(`c-${round}`), "one")];
        const open = await begin(writer, store, ...puts.map(followed));
        await reader.follow();
        await open.commit();
        await context.until("it is followed", async () => {
          await reader.follow();
          return reader.seen.length >= 4;
        });
        assert.deepEqual(names(reader.seen).slice(-4), [`${b} 1`, `${a} 1`, `${a} 2`, `c-${round} 1`]);
      });
    },
  ),
];
