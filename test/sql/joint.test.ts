/**
 * Goal: a decision inside somebody's transaction is part of it: all or nothing with the rest, and as careful as one of Pawl's own.
 * Method: the same laws on PostgreSQL and on SQLite, with plain connections as the application would have them; then what only one
 * of them has. What became of it is read through a handle of its own.
 */

import { setTimeout as timer } from "node:timers/promises";
import pg from "pg";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { open, type Pawl, type SqlExecutor } from "../../src/index.ts";
import { address } from "../../src/kernel/contract.ts";
import { executorOf } from "../../src/kernel/sql.ts";
import {
  type Ground,
  grounds,
  isWaiting,
  type Plain,
  postgresGround,
  refusal,
  sleep,
  sqliteGround,
} from "./grounds.ts";

let count = 0;
/** A name that no other test has. */
const fresh = (what: string) => `${what}-${++count}`;

describe.each(grounds)("within a transaction on %s", (_, arrive) => {
  let ground: Ground;
  let pawl: Pawl;
  let plain: Plain;
  let table: string;
  beforeAll(async () => {
    ground = await arrive();
    pawl = await ground.open();
  });
  afterAll(async () => {
    await pawl.close();
    await ground.leave();
  });
  beforeEach(async () => {
    plain = await ground.connect();
    table = `t${++count}`;
    await plain.query(`create table ${table} (id text primary key)`);
  });
  afterEach(() => plain.end());

  const rows = async () => {
    const look = await ground.connect();
    const found = await look.query(`select id from ${table} order by id`);
    await look.end();
    return found.map((row) => row["id"]);
  };
  const insert = (id: string, by = plain) => by.query(`insert into ${table} values (?)`, id);

  test("what it writes holds once the transaction is committed, and not before", async () => {
    const slot = pawl.slot<string>(fresh("s"));
    await plain.query("begin");
    await insert("o-1");
    const answer = await pawl.within(plain.executor, (tx) => {
      tx.slot(slot).set("taken");
      return { at: tx.nowMs, id: tx.uuid() };
    });
    expect(answer.at).toBeGreaterThan(1e12);
    expect(answer.id).toMatch(/^[0-9a-f-]{36}$/);
    expect(await slot.get()).toEqual({ value: undefined, version: 0 });
    await plain.query("commit");
    expect(await slot.get()).toEqual({ value: "taken", version: 1 });
    expect(await rows()).toEqual(["o-1"]);
  });

  test("a rollback takes Pawl's part with it", async () => {
    const there = pawl.slot<number>(fresh("s"), { initial: 0 });
    const absent = pawl.slot<number>(fresh("s"));
    await there.set(1);
    await plain.query("begin");
    await insert("o-1");
    await pawl.within(plain.executor, (tx) => {
      tx.slot(there).set(2);
      tx.slot(absent).set(2);
    });
    await plain.query("rollback");
    expect(await there.get()).toEqual({ value: 1, version: 1 });
    expect(await absent.get()).toEqual({ value: undefined, version: 0 });
    expect(await rows()).toEqual([]);
    // What was locked is free again.
    await pawl.transact((tx) => [tx.slot(there).set(3), tx.slot(absent).set(3)]);
  });

  test("a decision that throws has written nothing, and leaves the transaction usable", async () => {
    const slot = pawl.slot<number>(fresh("s"));
    await plain.query("begin");
    await insert("before");
    const error = await refusal(() =>
      pawl.within(plain.executor, (tx) => {
        tx.slot(slot).set(1);
        throw new RangeError("too much");
      }),
    );
    expect(error).toEqual(new RangeError("too much"));
    await insert("after");
    const other = pawl.slot<number>(fresh("s"));
    await pawl.within(plain.executor, (tx) => tx.slot(other).set(2));
    await plain.query("commit");
    expect(await rows()).toEqual(["after", "before"]);
    expect(await slot.get()).toEqual({ value: undefined, version: 0 });
    expect((await other.get()).value).toBe(2);
  });

  test("an async decision is refused, and has written nothing", async () => {
    const slot = pawl.slot<number>(fresh("s"));
    const decide = (async (tx: Parameters<Parameters<Pawl["within"]>[1]>[0]) => tx.slot(slot).set(1)) as never;
    await plain.query("begin");
    expect(await refusal(() => pawl.within(plain.executor, decide))).toMatchObject({ code: "decision_async" });
    await plain.query("commit");
    expect(await slot.get()).toEqual({ value: undefined, version: 0 });
  });

  test("a second decision of the transaction sees what the first wrote", async () => {
    const slot = pawl.slot<number>(fresh("s"), { initial: 0 });
    await plain.query("begin");
    for (const expected of [1, 2, 3])
      expect(await pawl.within(plain.executor, (tx) => tx.slot(slot).update((n) => n + 1))).toEqual({
        value: expected,
        version: expected,
      });
    await plain.query("commit");
    expect(await slot.get()).toEqual({ value: 3, version: 3 });
  });

  test("a decision may come upon its keys one after another, and draws the same each time it runs", async () => {
    const [first, second, third] = [fresh("a"), fresh("z"), fresh("m")];
    await pawl.slot(first).set(second);
    await pawl.slot(second).set(third);
    const ids: string[] = [];
    await plain.query("begin");
    const found = await pawl.within(plain.executor, (tx) => {
      ids.push(tx.uuid());
      const toSecond = tx.slot(pawl.slot<string>(first)).get().value ?? "";
      const toThird = tx.slot(pawl.slot<string>(toSecond)).get().value ?? "";
      tx.slot(pawl.slot<string>(toThird)).set("found");
      return toThird;
    });
    await plain.query("commit");
    expect(found).toBe(third);
    expect(await pawl.slot(third).get()).toEqual({ value: "found", version: 1 });
    expect(ids.length).toBe(4);
    expect(new Set(ids).size).toBe(1);
  });

  test("naming the slots it touches saves the further runs", async () => {
    const [a, b] = [pawl.slot<number>(fresh("a")), pawl.slot<number>(fresh("b"))];
    let runs = 0;
    await plain.query("begin");
    const decide = (tx: Parameters<Parameters<Pawl["within"]>[1]>[0]) => {
      runs += 1;
      tx.slot(a).set(1);
      tx.slot(b).set(1);
    };
    await pawl.within(plain.executor, decide, { touches: [b, a] });
    await plain.query("commit");
    expect(runs).toBe(1);
    expect((await b.get()).value).toBe(1);
  });

  test("a decision that only reads sees what is committed, and writes nothing", async () => {
    const slot = pawl.slot<number>(fresh("s"));
    await slot.set(7);
    await plain.query("begin");
    expect(await pawl.within(plain.executor, (tx) => tx.slot(slot).get())).toEqual({ value: 7, version: 1 });
    expect(await pawl.within(plain.executor, () => "nothing at all")).toBe("nothing at all");
    await plain.query("commit");
    expect(await slot.get()).toEqual({ value: 7, version: 1 });
  });

  test("a slot is deleted and made again, and its versions go on rising", async () => {
    const slot = pawl.slot<string>(fresh("s"));
    await slot.set("first");
    await plain.query("begin");
    expect(await pawl.within(plain.executor, (tx) => tx.slot(slot).delete())).toEqual({ deleted: true });
    await plain.query("commit");
    expect(await slot.get()).toEqual({ value: undefined, version: 0 });
    await plain.query("begin");
    await pawl.within(plain.executor, (tx) => tx.slot(slot).set("again"));
    await plain.query("commit");
    expect(await slot.get()).toEqual({ value: "again", version: 3 });
  });

  const odd = `'"\\$1 ? :name %s \\u0041 ${"é"} 𝔘 😀 \\' --`;
  const values: readonly [string, unknown][] = [
    ["null", null],
    ["a number", -1.5e-7],
    ["a big number", 123456789012345678901234567890n],
    ["text with everything in it", `${odd}\n\t\u0000\u2028`],
    ["a date", new Date(86_400_000)],
    ["bytes", new Uint8Array([0, 255, 92, 39])],
    ["a map", new Map([[odd, new Set([1])]])],
    ["something nested", { [odd]: [[], {}, [null, { a: undefined }]] }],
    ["a long text", "😀".repeat(50_000)],
  ];
  test.each(values)("%s comes back as it was", async (_, value) => {
    const [made, changed] = [pawl.slot<unknown>(fresh("s")), pawl.slot<unknown>(fresh("s"))];
    await changed.set("before");
    await plain.query("begin");
    await pawl.within(plain.executor, (tx) => {
      tx.slot(made).set(value);
      tx.slot(changed).set(value);
    });
    expect(await pawl.within(plain.executor, (tx) => tx.slot(made).get().value)).toEqual(value);
    await plain.query("commit");
    expect((await made.get()).value).toEqual(value);
    expect((await changed.get()).value).toEqual(value);
  });

  const names = ["it's", 'say "so"', "back\\slash", "$1", "?", "{1,2}", "NULL", "😀/𝔘", "%_", "a".repeat(256), " "];
  test.each(names)("a slot named %j is found again", async (name) => {
    const slot = pawl.slot<string>(name);
    await plain.query("begin");
    await pawl.within(plain.executor, (tx) => tx.slot(slot).set(name));
    await plain.query("commit");
    expect((await slot.get()).value).toBe(name);
    await plain.query("begin");
    await pawl.within(plain.executor, (tx) => tx.slot(slot).update((was) => `${was}!`));
    await plain.query("commit");
    expect(await slot.get()).toEqual({ value: `${name}!`, version: 2 });
  });

  test("a namespace of its own keeps its slots apart", async () => {
    await using other = await ground.open({ namespace: `it's "${fresh("n")}"` });
    const name = fresh("s");
    await plain.query("begin");
    await pawl.within(plain.executor, (tx) => tx.slot(pawl.slot(name)).set("here"));
    await other.within(plain.executor, (tx) => tx.slot(other.slot(name)).set("there"));
    await plain.query("commit");
    expect((await pawl.slot(name).get()).value).toBe("here");
    expect((await other.slot(name).get()).value).toBe("there");
  });

  test("entries are appended to the logs of new records and of old ones", async () => {
    const { kernel } = pawl;
    const run = executorOf(plain.executor);
    const [old, made, quiet] = ["old", "made", "quiet"].map((key) => address("run", fresh(key)));
    if (old === undefined || made === undefined || quiet === undefined) throw new Error("three");
    await kernel.transact(
      (tx) => {
        tx.record(old).write({ value: 0 });
        tx.record(old).append("began", { by: "a batch" });
      },
      [old],
    );
    await plain.query("begin");
    await kernel.within(
      run,
      (tx) => {
        tx.record(old).append("went on", "it's");
        tx.record(made).write({
          value: 1,
          kind: "q",
          status: "waiting",
          dueMs: tx.nowMs + 5000,
          holder: "ann",
          fence: 7,
        });
        tx.record(made).append("began", 1);
        tx.record(made).append("ended", "😀");
        tx.record(quiet).write({ value: 2 });
      },
      [],
    );
    await kernel.within(run, (tx) => void tx.record(made).append("after all", null), []);
    await plain.query("commit");
    const entries = async (at: typeof old) =>
      (await kernel.entries(at, 0, 10)).map(({ version, name, data }) => [version, name, JSON.parse(data)]);
    expect(await entries(old)).toEqual([
      [1, "began", { by: "a batch" }],
      [2, "went on", "it's"],
    ]);
    expect(await entries(made)).toEqual([
      [1, "began", 1],
      [2, "ended", "😀"],
      [3, "after all", null],
    ]);
    expect(await entries(quiet)).toEqual([]);
    const [row] = await kernel.read([made]);
    expect(row).toMatchObject({ version: 2, head: 3, kind: "q", status: "waiting", holder: "ann", fence: 7, tries: 0 });
    expect((row?.dueMs ?? 0) - Date.now()).toBeGreaterThan(0);
    // A batch goes on where it stopped.
    await kernel.transact((tx) => void tx.record(made).append("and on", 4), [made]);
    expect((await entries(made)).at(-1)).toEqual([4, "and on", 4]);
  });

  test("a commit is heard by who watches, in this process and in another, within a second", async () => {
    await using mine = await ground.open();
    await using other = await ground.open();
    const name = fresh("s");
    const watchers = [mine, other].map((handle) => {
      const heard: unknown[] = [];
      const { promise, resolve } = Promise.withResolvers<number>();
      const stop = new AbortController();
      const ended = (async () => {
        for await (const { value } of handle.slot(name).watch({ abortSignal: stop.signal })) {
          heard.push(value);
          if (value === "now") resolve(performance.now());
        }
      })();
      return { heard, promise, stop, ended };
    });
    // Both listen and have seen that there is nothing.
    while (watchers.some(({ heard }) => heard.length === 0)) await sleep(10);
    // By then everybody has noticed that somebody listens.
    await sleep(1500);
    await plain.query("begin");
    await mine.within(plain.executor, (tx) => tx.slot(mine.slot(name)).set("now"));
    await sleep(200);
    expect(watchers.map(({ heard }) => heard)).toEqual([[undefined], [undefined]]);
    await plain.query("commit");
    const committedAtMs = performance.now();
    for (const { promise, stop, ended } of watchers) {
      const heardAtMs = await Promise.race([promise, timer(4000, Number.POSITIVE_INFINITY)]);
      expect(heardAtMs - committedAtMs).toBeLessThan(1000);
      stop.abort();
      await ended;
    }
  });

  describe("a wrong executor is told what to do, and has written nothing", () => {
    const runs = (change: (rows: readonly unknown[]) => unknown) => (): SqlExecutor => {
      const run = executorOf(plain.executor);
      return async (text: string, values: string[]) => change(await run(text, values[0]));
    };
    const wrong: readonly [string, () => unknown, RegExp][] = [
      ["one that answers nothing", runs(() => undefined), /must answer an array of rows, or an object with rows/],
      [
        "one that answers a number",
        runs((rows) => rows.length),
        /must answer an array of rows, or an object with rows/,
      ],
      [
        "one whose rows are arrays",
        runs((rows) => rows.map((row) => Object.values(row as object))),
        /must answer an array of rows, each an object by column name/,
      ],
      [
        "one whose columns are in capitals",
        runs((rows) => rows.map((row) => ({ PAWL: Object.values(row as object)[0] }))),
        /must answer an array of rows, each an object by column name/,
      ],
      ["one that answers only the first row", runs((rows) => ({ row: rows[0] })), /an object with rows/],
      ["nothing", () => undefined, /must be a function \(text, values\), or have query as a client of pg does/],
      ["null", () => null, /must be a function \(text, values\)/],
      ["a text", () => "postgres://localhost", /must be a function \(text, values\)/],
      ["an object without methods", () => ({ query: "select 1" }), /must be a function \(text, values\)/],
    ];
    test.each(wrong)("%s", async (_, executor, words) => {
      const slot = pawl.slot<number>(fresh("s"));
      await plain.query("begin");
      const error = await refusal(() => pawl.within(executor() as SqlExecutor, (tx) => tx.slot(slot).set(1)));
      expect(error.message).toMatch(words);
      expect(error.code).toMatch(/^(invalid_argument|store_refused)$/);
      await insert("after");
      await plain.query("commit");
      expect(await slot.get()).toEqual({ value: undefined, version: 0 });
      expect(await rows()).toEqual(["after"]);
    });
  });

  /** The executor, but for the answer to its nth statement, which was run and is lost; the end of a savepoint is not even run. */
  const failingAt = (nth: number): SqlExecutor => {
    const run = executorOf(plain.executor);
    let statements = 0;
    return async (text: string, values: string[]) => {
      statements += 1;
      const isLost = statements === nth;
      const found = isLost && text.startsWith("release") ? [] : await run(text, values[0]);
      if (isLost) throw new TypeError("the answer is lost");
      return found;
    };
  };

  test("an executor that fails at any of its statements leaves nothing written, and the transaction usable", async () => {
    let nth = 1;
    for (; ; nth++) {
      const slot = pawl.slot<number>(fresh("s"));
      await plain.query("begin");
      const answer = await pawl.within(failingAt(nth), (tx) => tx.slot(slot).set(1)).catch((error: unknown) => error);
      await insert(`after ${nth}`);
      await plain.query("commit");
      if (!(answer instanceof Error)) break;
      expect(answer).toEqual(new TypeError("the answer is lost"));
      expect(await slot.get()).toEqual({ value: undefined, version: 0 });
    }
    expect(nth).toBeGreaterThan(4);
    expect((await rows()).length).toBe(nth);
  });

  test("it leaves no savepoint behind, whether it succeeds or fails", async () => {
    const slot = pawl.slot<number>(fresh("s"));
    for (const executor of [plain.executor, failingAt(3)]) {
      await plain.query("begin");
      await pawl.within(executor, (tx) => tx.slot(slot).set(1)).catch(() => {});
      const error = await refusal(() => plain.query("rollback to savepoint pawl_joint"));
      expect(error.message).toMatch(/savepoint.*does not exist|no such savepoint/);
      await plain.query("rollback");
    }
  });

  test("a handle that is closed takes no decision", async () => {
    const closed = await ground.open();
    await closed.close();
    await plain.query("begin");
    expect(await refusal(() => closed.within(plain.executor, () => 1))).toMatchObject({ code: "closed" });
    await plain.query("commit");
  });

  test("fifty slots are written in one go", async () => {
    const slots = Array.from({ length: 50 }, () => pawl.slot<number>(fresh("s"), { initial: 0 }));
    await plain.query("begin");
    await pawl.within(plain.executor, (tx) => slots.map((slot, i) => tx.slot(slot).set(i)), { touches: slots });
    await pawl.within(plain.executor, (tx) => slots.map((slot) => tx.slot(slot).update((n) => n + 1)), {
      touches: slots,
    });
    await plain.query("commit");
    const found = await Promise.all(slots.map((slot) => slot.get()));
    expect(found).toEqual(slots.map((_, i) => ({ value: i + 1, version: 2 })));
  });
});

describe("within a transaction on PostgreSQL, among others", () => {
  let ground: Ground;
  let pawl: Pawl;
  const open_: Plain[] = [];
  const connect = async () => {
    const plain = await ground.connect();
    open_.push(plain);
    // So that deadlocks are found at once.
    await plain.query("set deadlock_timeout = '50ms'");
    return plain;
  };
  beforeAll(async () => {
    ground = await postgresGround();
    pawl = await ground.open();
  });
  afterEach(async () => {
    for (const plain of open_.splice(0)) await plain.end();
  });
  afterAll(async () => {
    await pawl.close();
    await ground.leave();
  });

  const counter = async (name = fresh("s")) => {
    const slot = pawl.slot<number>(name, { initial: 0 });
    await slot.set(0);
    return slot;
  };

  test("it waits for a row that another transaction has, and sees what became of it", async () => {
    const slot = await counter();
    const [first, second] = [await connect(), await connect()];
    await first.query("begin");
    await pawl.within(first.executor, (tx) => tx.slot(slot).update((n) => n + 1));
    await second.query("begin");
    const waiting = pawl.within(second.executor, (tx) => tx.slot(slot).update((n) => n + 10));
    expect(await isWaiting(waiting)).toBe(true);
    await first.query("commit");
    expect((await waiting).value).toBe(11);
    await second.query("commit");
    expect(await slot.get()).toEqual({ value: 11, version: 3 });
  });

  test("it waits for a row that a batch has", async () => {
    const slot = await counter();
    const plain = await connect();
    // A batch that is slow to write: it has locked its row by then.
    await plain.query(
      "create function dawdle() returns trigger language plpgsql as $$ begin perform pg_sleep(0.5); return new; end $$",
    );
    await plain.query(
      `create trigger dawdle before update on pawl.record for each row when (new.key = '${slot.name}' and new.value like '%500%')
       execute function dawdle()`,
    );
    const batch = slot.set(500);
    await sleep(150);
    await plain.query("begin");
    const startedMs = performance.now();
    const answer = await pawl.within(plain.executor, (tx) => tx.slot(slot).update((n) => n + 1));
    expect(performance.now() - startedMs).toBeGreaterThan(100);
    await plain.query("commit");
    await batch;
    expect(answer.value).toBe(501);
    await plain.query("drop trigger dawdle on pawl.record");
  });

  test("of two creators of one absent key, the second sees what the first made", async () => {
    const slot = pawl.slot<string>(fresh("s"));
    const [first, second] = [await connect(), await connect()];
    await first.query("begin");
    await second.query("begin");
    await pawl.within(first.executor, (tx) => tx.slot(slot).set("first"));
    const waiting = pawl.within(second.executor, (tx) => {
      const { value } = tx.slot(slot).get();
      tx.slot(slot).set(`${value}, second`);
    });
    expect(await isWaiting(waiting)).toBe(true);
    await first.query("commit");
    await waiting;
    await second.query("commit");
    expect(await slot.get()).toEqual({ value: "first, second", version: 2 });
  });

  test("a key that another made and rolled back is absent", async () => {
    const slot = pawl.slot<string>(fresh("s"));
    const [first, second] = [await connect(), await connect()];
    await first.query("begin");
    await pawl.within(first.executor, (tx) => tx.slot(slot).set("first"));
    await second.query("begin");
    const waiting = pawl.within(second.executor, (tx) => tx.slot(slot).get());
    expect(await isWaiting(waiting)).toBe(true);
    await first.query("rollback");
    expect(await waiting).toEqual({ value: undefined, version: 0 });
    await second.query("commit");
  });

  test("an absent key that was looked at stays absent until the transaction ends", async () => {
    const slot = pawl.slot<string>(fresh("s"));
    const plain = await connect();
    await plain.query("begin");
    expect((await pawl.within(plain.executor, (tx) => tx.slot(slot).get())).version).toBe(0);
    const batch = slot.set("batch");
    expect(await isWaiting(batch)).toBe(true);
    expect((await pawl.within(plain.executor, (tx) => tx.slot(slot).get())).version).toBe(0);
    await plain.query("commit");
    await batch;
    expect((await slot.get()).value).toBe("batch");
  });

  test("fifty creators and batches on one absent key are all counted", async () => {
    const slot = pawl.slot<number>(fresh("s"), { initial: 0 });
    const work = async () => {
      const plain = await connect();
      for (let i = 0; i < 5; i++) {
        await plain.query("begin");
        await pawl.within(plain.executor, (tx) => tx.slot(slot).update((n) => n + 1));
        await plain.query("commit");
        await slot.update((n) => n + 1);
      }
    };
    await Promise.all(Array.from({ length: 5 }, work));
    expect(await slot.get()).toEqual({ value: 50, version: 50 });
  });

  test("a row that somebody's transaction has stalls no batch: other keys go on, and this one when it ends", async () => {
    const [held, free] = [await counter(), await counter()];
    const plain = await connect();
    await plain.query("begin");
    await pawl.within(plain.executor, (tx) => tx.slot(held).update((n) => n + 1));
    const waiting = held.update((n) => n + 10);
    const both = pawl.transact((tx) => [tx.slot(held).update((n) => n + 100), tx.slot(free).update((n) => n + 100)]);
    const startedMs = performance.now();
    for (let i = 0; i < 20; i++) await free.update((n) => n + 1);
    expect(performance.now() - startedMs).toBeLessThan(3000);
    expect(await isWaiting(waiting, 1)).toBe(true);
    expect(await isWaiting(both, 1)).toBe(true);
    await plain.query("commit");
    await Promise.all([waiting, both]);
    expect((await held.get()).value).toBe(111);
    expect((await free.get()).value).toBe(120);
  });

  test("a batch that waits too long for such a row is told so, and has written nothing", async () => {
    await using hasty = await ground.open({ patience: 1500 });
    const slot = await counter();
    const plain = await connect();
    await plain.query("begin");
    await pawl.within(plain.executor, (tx) => tx.slot(slot).set(1));
    expect(await refusal(() => hasty.slot<number>(slot.name).set(2))).toMatchObject({ code: "store_busy" });
    await plain.query("rollback");
    expect(await slot.get()).toEqual({ value: 0, version: 1 });
  });

  test("two decisions that come upon the same keys in opposite order do not deadlock", async () => {
    const [a, b] = [await counter(fresh("a")), await counter(fresh("b"))];
    const work = async (slots: readonly (typeof a)[]) => {
      const plain = await connect();
      for (let i = 0; i < 25; i++) {
        await plain.query("begin");
        await pawl.within(plain.executor, (tx) => slots.map((slot) => tx.slot(slot).update((n) => n + 1)));
        await plain.query("commit");
      }
    };
    await Promise.all([work([a, b]), work([b, a]), work([a, b]), work([b, a])]);
    expect([(await a.get()).value, (await b.get()).value]).toEqual([100, 100]);
  });

  test("nor do two that find absent keys in opposite order", async () => {
    for (let round = 0; round < 10; round++) {
      const [a, b] = [fresh("a"), fresh("b")].map((name) => pawl.slot<number>(name, { initial: 0 }));
      if (a === undefined || b === undefined) throw new Error("two");
      const work = async (slots: readonly (typeof a)[]) => {
        const plain = await connect();
        await plain.query("begin");
        await pawl.within(plain.executor, (tx) => slots.map((slot) => tx.slot(slot).update((n) => n + 1)));
        await plain.query("commit");
      };
      await Promise.all([work([a, b]), work([b, a])]);
      expect([(await a.get()).value, (await b.get()).value]).toEqual([2, 2]);
    }
  });

  test("what was locked for a run that wanted more is given back before it waits", async () => {
    const [a, b] = [await counter(fresh("a")), await counter(fresh("b"))];
    const [holder, late] = [await connect(), await connect()];
    await holder.query("begin");
    await pawl.within(holder.executor, (tx) => tx.slot(a).update((n) => n + 1));
    await late.query("begin");
    // It has b, then wants a as well, which is not to be had.
    const waiting = pawl.within(late.executor, (tx) => [tx.slot(b).update((n) => n + 1), tx.slot(a).get()]);
    expect(await isWaiting(waiting)).toBe(true);
    // So b is free for everybody else.
    await b.update((n) => n + 10);
    await holder.query("commit");
    await waiting;
    await late.query("commit");
    expect((await b.get()).value).toBe(11);
  });

  test("of two transactions that lock in opposite order, one is told to begin again", async () => {
    const [a, b] = [await counter(fresh("a")), await counter(fresh("b"))];
    let told = 0;
    const work = async (...slots: readonly (typeof a)[]) => {
      const plain = await connect();
      for (;;) {
        await plain.query("begin");
        try {
          for (const slot of slots) {
            await pawl.within(plain.executor, (tx) => tx.slot(slot).update((n) => n + 1));
            await sleep(30);
          }
          await plain.query("commit");
          return;
        } catch (error) {
          expect(error).toMatchObject({ code: "store_busy", data: { remedy: "retry" } });
          told += 1;
          await plain.query("rollback");
        }
      }
    };
    await Promise.all([work(a, b), work(b, a)]);
    expect(told).toBeGreaterThan(0);
    expect([(await a.get()).value, (await b.get()).value]).toEqual([2, 2]);
  });

  test.each(["repeatable read", "serializable", "read uncommitted"])(
    "a transaction that is %s is refused, and stays usable",
    async (isolation) => {
      const slot = await counter();
      const plain = await connect();
      await plain.query(`begin isolation level ${isolation}`);
      const error = await refusal(() => pawl.within(plain.executor, (tx) => tx.slot(slot).set(1)));
      expect(error).toMatchObject({ code: "store_unfit" });
      expect(error.message).toContain(`begun as READ COMMITTED, and this one is ${isolation.toUpperCase()}`);
      expect(await plain.query("select 1 as one")).toEqual([{ one: 1 }]);
      await plain.query("commit");
      expect((await slot.get()).version).toBe(1);
    },
  );

  test("so is one whose isolation is the session's default", async () => {
    const plain = await connect();
    await plain.query("set default_transaction_isolation = 'serializable'");
    await plain.query("begin");
    expect(await refusal(() => pawl.within(plain.executor, () => 1))).toMatchObject({ code: "store_unfit" });
    await plain.query("rollback");
  });

  test("outside a transaction it is refused with a sentence, and nothing is written", async () => {
    const slot = await counter();
    const plain = await connect();
    const error = await refusal(() => pawl.within(plain.executor, (tx) => tx.slot(slot).set(1)));
    expect(error).toMatchObject({ code: "store_refused" });
    expect(error.message).toMatch(/needs a transaction that is open: run it inside one/);
    expect((await slot.get()).version).toBe(1);
  });

  test("a Pool instead of a client is refused with the same sentence", async () => {
    const slot = await counter();
    const pool = new pg.Pool({ connectionString: ground.where });
    const error = await refusal(() => pawl.within(pool, (tx) => tx.slot(slot).set(1)));
    expect(error.message).toMatch(/needs a transaction that is open.*with an executor of that transaction/);
    await pool.end();
    expect((await slot.get()).version).toBe(1);
  });

  test("a row that is not to be had in time leaves the transaction usable", async () => {
    const slot = await counter();
    const [holder, plain] = [await connect(), await connect()];
    await holder.query("begin");
    await pawl.within(holder.executor, (tx) => tx.slot(slot).set(1));
    await plain.query("begin");
    await plain.query("set local lock_timeout = '50ms'");
    const error = await refusal(() => pawl.within(plain.executor, (tx) => tx.slot(slot).set(2)));
    expect(error).toMatchObject({ code: "store_busy", data: { remedy: "retry" } });
    await holder.query("commit");
    await pawl.within(plain.executor, (tx) => tx.slot(slot).update((n) => n + 10));
    await plain.query("commit");
    expect((await slot.get()).value).toBe(11);
  });

  test("a transaction that has failed already takes no decision", async () => {
    const slot = await counter();
    const plain = await connect();
    await plain.query("begin");
    await refusal(() => plain.query("select 1 / 0"));
    const error = await refusal(() => pawl.within(plain.executor, (tx) => tx.slot(slot).set(1)));
    expect(error).toMatchObject({ code: "store_refused" });
    expect(error.message).toMatch(/current transaction is aborted/);
    await plain.query("rollback");
    expect((await slot.get()).version).toBe(1);
  });

  test("a savepoint of the owner's takes Pawl's part back as well", async () => {
    const slot = await counter();
    const plain = await connect();
    await plain.query("begin");
    await plain.query("savepoint mine");
    await pawl.within(plain.executor, (tx) => tx.slot(slot).update((n) => n + 1));
    await plain.query("rollback to mine");
    // What it had locked is free.
    await slot.update((n) => n + 10);
    await pawl.within(plain.executor, (tx) => tx.slot(slot).update((n) => n + 100));
    await plain.query("commit");
    expect((await slot.get()).value).toBe(110);
  });

  test("nothing is left in the session: no setting, no advisory lock", async () => {
    const plain = await connect();
    const settings = () =>
      plain.query("select name, setting from pg_settings where name <> 'transaction_isolation' order by name");
    const before = await settings();
    await plain.query("begin");
    const slot = pawl.slot(fresh("s"));
    await pawl.within(plain.executor, (tx) => tx.slot(slot).set(1));
    await plain.query("rollback");
    expect(await settings()).toEqual(before);
    const locks = await plain.query("select from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()");
    expect(locks).toEqual([]);
  });

  test("a batch, a transaction and another process count on one slot, and nothing is lost", async () => {
    await using other = await ground.open();
    const slot = await counter();
    const within = async () => {
      const plain = await connect();
      for (let i = 0; i < 20; i++) {
        await plain.query("begin");
        await pawl.within(plain.executor, (tx) => tx.slot(slot).update((n) => n + 1));
        await plain.query(i % 4 === 3 ? "rollback" : "commit");
      }
    };
    const batches = async (handle: Pawl) => {
      for (let i = 0; i < 20; i++) await handle.slot<number>(slot.name, { initial: 0 }).update((n) => n + 1);
    };
    await Promise.all([within(), within(), batches(pawl), batches(other)]);
    expect(await slot.get()).toEqual({ value: 70, version: 71 });
  });
});

describe("within a transaction on SQLite, among others", () => {
  let ground: Ground;
  let pawl: Pawl;
  beforeAll(async () => {
    ground = await sqliteGround();
    pawl = await ground.open();
  });
  afterAll(async () => {
    await pawl.close();
    await ground.leave();
  });

  test("outside a transaction it is a transaction of its own: whole, and committed when it returns", async () => {
    const [a, b] = [pawl.slot<number>(fresh("s")), pawl.slot<number>(fresh("s"))];
    const plain = await ground.connect();
    await pawl.within(plain.executor, (tx) => [tx.slot(a).set(1), tx.slot(b).set(1)]);
    expect([(await a.get()).value, (await b.get()).value]).toEqual([1, 1]);
    await refusal(() =>
      pawl.within(plain.executor, (tx) => {
        tx.slot(a).set(2);
        throw new Error("no");
      }),
    );
    expect((await a.get()).value).toBe(1);
    const failing = (text: string) => {
      if (text.includes("pawl_record")) throw new TypeError("out of order");
      return executorOf(plain.executor)(text);
    };
    await refusal(() => pawl.within(failing, (tx) => tx.slot(a).set(2)));
    // No transaction is left open, so others can write.
    await a.set(3);
    await plain.end();
  });

  test("while another writes, it is told to try again, and nothing was written", async () => {
    const slot = pawl.slot<number>(fresh("s"), { initial: 0 });
    const [first, second] = [await ground.connect(), await ground.connect()];
    await first.query("begin immediate");
    await pawl.within(first.executor, (tx) => tx.slot(slot).set(1));
    await second.query("begin");
    const error = await refusal(() => pawl.within(second.executor, (tx) => tx.slot(slot).update((n) => n + 10)));
    expect(error).toMatchObject({ code: "store_busy", data: { remedy: "retry" } });
    await first.query("commit");
    // The transaction is as it was, and has not read anything that is old.
    await pawl.within(second.executor, (tx) => tx.slot(slot).update((n) => n + 10));
    await second.query("commit");
    expect(await slot.get()).toEqual({ value: 11, version: 2 });
    await first.end();
    await second.end();
  });

  test("one that has read what is old by now is told so, and works when it begins again", async () => {
    const slot = pawl.slot<number>(fresh("s"), { initial: 0 });
    const plain = await ground.connect();
    await plain.query("begin");
    await plain.query("select count(*) from sqlite_schema");
    await slot.set(1);
    const error = await refusal(() => pawl.within(plain.executor, (tx) => tx.slot(slot).update((n) => n + 10)));
    expect(error).toMatchObject({ code: "store_busy" });
    await plain.query("rollback");
    await plain.query("begin");
    await pawl.within(plain.executor, (tx) => tx.slot(slot).update((n) => n + 10));
    await plain.query("commit");
    expect(await slot.get()).toEqual({ value: 11, version: 2 });
    await plain.end();
  });

  test("commits of this process wait for it, and see what it wrote", async () => {
    const slot = pawl.slot<number>(fresh("s"), { initial: 0 });
    await slot.set(1);
    const plain = await ground.connect();
    await plain.query("begin");
    await pawl.within(plain.executor, (tx) => tx.slot(slot).update((n) => n + 1));
    const batch = slot.update((n) => n * 10);
    expect(await isWaiting(batch)).toBe(true);
    await plain.query("commit");
    expect((await batch).value).toBe(20);
    await plain.end();
  });
});

describe("a store that is no database", () => {
  test("has no transaction to share, and says so", async () => {
    await using pawl = await open("memory:");
    const words = "the store must be SQLite or PostgreSQL to share a transaction with SQL";
    expect(
      await refusal(() =>
        pawl.within(
          () => [],
          () => 1,
        ),
      ),
    ).toMatchObject({ code: "invalid_argument", message: words });
    expect(await refusal(() => pawl.transact.sql(async () => 1))).toMatchObject({
      code: "invalid_argument",
      message: words,
    });
  });
});
