/**
 * Goal: the rows of a projection and its progress are one commit, so that a crash neither loses nor repeats an event; readers never see a part of
 * a rebuild; and a caller can wait for what it appended.
 * Method: counts that would be wrong if an event were applied twice or left out; workers that die before each of their commits; rebuilds under appends.
 */

import { describe, expect, expectTypeOf, test } from "vitest";
import { event, type Pawl, projection, reaction, workflow } from "../../src/index.ts";
import { GENERATIONS, type GenerationValue, generationAt } from "../../src/stream/projections/stored.ts";
import { openTest } from "../../src/testing/index.ts";
import { codeOf } from "../kernel/kit.ts";
import { EVERY, onStores, PATIENCE, SQL } from "../workflow/kit.ts";
import { type Balance, balances, buildingFailure, Deposited, deposits, Opened, Withdrawn } from "./kit.ts";

const succeeds = (promise: Promise<unknown>): Promise<boolean> =>
  promise.then(
    () => true,
    () => false,
  );

/** The number of rows of any generation. */
async function rowsOf(pawl: Pawl, name: string): Promise<number> {
  let count = 0;
  for (let generation = 1; generation < 10; generation++)
    count += (
      await pawl.kernel.list({ space: `projection-row/${generation}/${name}`, prefix: "", after: null, limit: 1000 })
    ).length;
  return count;
}

onStores(EVERY, (place) => {
  test("each event is in its row once, and rows are read by key and listed", async () => {
    const pawl = await place.open();
    await pawl.stream("ann").append([Opened(), ...deposits(3)]);
    pawl.work([balances]);
    const appended = await pawl.stream("bob").append([Deposited({ amount: 5 }), Withdrawn({ amount: 2 }), Opened()]);
    const handle = pawl.projection(balances);
    await handle.waitFor(appended);
    const ann = await handle.get("ann");
    expectTypeOf(ann).toEqualTypeOf<Balance | undefined>();
    expect(ann).toEqual({ balance: 6, events: 3 });
    expect(await handle.get("bob")).toEqual({ balance: 3, events: 2 });
    expect(await handle.get("eve")).toBeUndefined();
    expect(await handle.list()).toEqual({
      rows: [
        { key: "ann", row: { balance: 6, events: 3 } },
        { key: "bob", row: { balance: 3, events: 2 } },
      ],
      next: null,
    });
    expect(await handle.list({ limit: 1 })).toMatchObject({ rows: [{ key: "ann" }], next: "ann" });
    expect(await handle.list({ after: "ann", prefix: "b" })).toMatchObject({ rows: [{ key: "bob" }], next: null });
    expect(await pawl.projection("balances").get("bob")).toEqual({ balance: 3, events: 2 });
  });

  test("an event may change several rows, none, or remove one", async () => {
    const pawl = await place.open();
    const pairs = projection(
      "pairs",
      { on: [Deposited], key: (e) => (e.data.amount === 0 ? undefined : [e.stream, "sum"]) },
      (row: number | undefined, e, key) =>
        e.data.amount < 0 && key !== "sum" ? undefined : (row ?? 0) + e.data.amount,
    );
    pawl.work([pairs]);
    const handle = pawl.projection(pairs);
    const append = async (stream: string, amount: number) => {
      const appended = await pawl.stream(stream).append([Deposited({ amount })]);
      await handle.waitFor(appended);
    };
    await append("a", 3);
    await append("b", 4);
    await append("b", 0);
    expect((await handle.list()).rows).toEqual([
      { key: "a", row: 3 },
      { key: "b", row: 4 },
      { key: "sum", row: 7 },
    ]);
    await append("a", -1);
    expect((await handle.list()).rows).toEqual([
      { key: "b", row: 4 },
      { key: "sum", row: 6 },
    ]);
  });

  test("an event whose key names a row twice changes it once", async () => {
    const pawl = await place.open();
    const touched = projection(
      "touched",
      { on: [Deposited], key: (e) => [e.stream, "all", e.stream] },
      (count: number | undefined) => (count ?? 0) + 1,
    );
    pawl.work([touched]);
    const handle = pawl.projection(touched);
    await handle.waitFor(await pawl.stream("a").append(deposits(2)));
    expect((await handle.list()).rows).toEqual([
      { key: "a", row: 2 },
      { key: "all", row: 2 },
    ]);
  });

  test("a worker that dies anywhere loses nothing and repeats nothing", async () => {
    const reference = await place.open();
    const total = 5;
    let sum = 0;
    for (let round = 1; round <= total; round++) {
      const handle = await place.openHandle();
      handle.dieBefore(round);
      handle.pawl.work([balances], { lease: "500ms" });
      sum += round;
      await reference.stream(`s-${round % 3}`).append([Deposited({ amount: round })]);
      const isOver = async () =>
        handle.isDead() ||
        (
          await reference
            .projection(balances)
            .status()
            .catch(() => null)
        )?.live?.behind === 0;
      await expect.poll(isOver, PATIENCE).toBe(true);
      handle.die();
    }
    reference.work([balances], { lease: "500ms" });
    await expect.poll(async () => (await reference.projection(balances).status()).live?.behind, PATIENCE).toBe(0);
    const { rows } = await reference.projection(balances).list();
    expect(rows.reduce((all, { row }) => all + row.balance, 0)).toBe(sum);
    expect(rows.reduce((all, { row }) => all + row.events, 0)).toBe(total);
  });

  describe("a rebuild", () => {
    test("becomes what readers see while others append all the time, and lacks nothing", async () => {
      const pawl = await place.open();
      pawl.work([balances]);
      const handle = pawl.projection(balances);
      await handle.waitFor(await pawl.stream("s-0").append(deposits(1)));
      let isLive = false;
      let appends = 0;
      const load = Array.from({ length: 8 }, async (_, i) => {
        for (; !isLive && appends < 20_000; appends += 1) await pawl.stream(`s-${i}`).append(deposits(1));
      });
      const generation = await handle.rebuild();
      await expect.poll(async () => (await handle.status()).live?.generation, PATIENCE).toBe(generation);
      isLive = true;
      await Promise.all(load);
      for (let i = 0; i < 8; i++) {
        const version = await pawl.stream(`s-${i}`).head();
        await handle.waitFor({ stream: `s-${i}`, version });
        expect((await handle.get(`s-${i}`))?.events).toBe(version);
      }
    });

    test("runs beside what readers see, and replaces it as a whole, with the same code", async () => {
      const pawl = await place.open();
      for (let i = 0; i < 20; i++) await pawl.stream(`s-${i}`).append(deposits(2));
      pawl.work([balances]);
      const handle = pawl.projection(balances);
      await expect.poll(() => succeeds(handle.list()), PATIENCE).toBe(true);
      const generation = await handle.rebuild();
      expect(await handle.rebuild()).toBe(generation);
      // Never fewer rows, nor a row that lacks events, while it is built and replaced.
      await expect
        .poll(async () => {
          const { rows } = await handle.list();
          expect(rows).toHaveLength(20);
          expect(new Set(rows.map(({ row }) => row.balance))).toEqual(new Set([3]));
          expect(await handle.get("s-7")).toEqual({ balance: 3, events: 2 });
          return (await handle.status()).live?.generation;
        }, PATIENCE)
        .toBe(generation);
      expect((await handle.status()).building).toBeNull();
      // What is not seen any more is removed.
      await expect.poll(() => rowsOf(pawl, "balances"), PATIENCE).toBe(20);
      await expect
        .poll(
          async () => (await pawl.kernel.list({ space: GENERATIONS, prefix: "", after: null, limit: 10 })).length,
          PATIENCE,
        )
        .toBe(1);
    });

    test("happens by itself when the code has changed; the older code goes on until then, and does not build again", async () => {
      const [older, newer] = [await place.open({ logger: false }), await place.open({ logger: false })];
      const doubled = projection(
        "balances",
        { on: [Deposited, Withdrawn], version: "2" },
        (row: Balance | undefined, e) => ({
          balance: (row?.balance ?? 0) + 2 * e.data.amount,
          events: (row?.events ?? 0) + 1,
        }),
      );
      older.work([balances]);
      const first = await older.stream("ann").append(deposits(3));
      await older.projection(balances).waitFor(first);
      expect(await newer.projection(doubled).get("ann")).toEqual({ balance: 6, events: 3 });
      newer.work([doubled]);
      await expect.poll(() => newer.projection(doubled).get("ann"), PATIENCE).toEqual({ balance: 12, events: 3 });
      // A process of the older release is started again: it leaves the projection as it is.
      const again = await place.open({ logger: false });
      again.work([balances]);
      const next = await again.stream("ann").append(deposits(1));
      await newer.projection(doubled).waitFor(next);
      expect(await again.projection(balances).get("ann")).toEqual({ balance: 14, events: 4 });
      expect((await again.projection(balances).status()).building).toBeNull();
      // To go back is explicit.
      await again.projection(balances).rebuild();
      await expect.poll(() => again.projection(balances).get("ann"), PATIENCE).toEqual({ balance: 7, events: 4 });
    });

    test("waits for a first build: nothing is read of a part", async () => {
      const pawl = await place.open();
      expect(await codeOf(pawl.projection(balances).get("ann"))).toBe("projection_not_found");
      expect(await codeOf(pawl.projection(balances).list())).toBe("projection_not_found");
      expect(await codeOf(pawl.projection(balances).rebuild())).toBe("projection_not_found");
      expect(await codeOf(pawl.projection(balances).delete())).toBe("projection_not_found");
      const stuck = projection("stuck", { on: [Deposited] }, (): number => {
        throw new Error("no");
      });
      const other = await place.open({ logger: false });
      await pawl.stream("ann").append(deposits(1));
      other.work([stuck]);
      await expect
        .poll(() => buildingFailure(pawl, stuck), PATIENCE)
        .toMatchObject({ message: expect.stringContaining("no"), stream: "ann", version: 1 });
      expect(await codeOf(pawl.projection(stuck).get("ann"))).toBe("projection_building");
      expect(await codeOf(pawl.projection(stuck).list())).toBe("projection_building");
    });
  });

  test("a wait for a projection that no worker has says so when it gives up", async () => {
    const pawl = await place.open();
    const appended = await pawl.stream("ann").append(deposits(1));
    const late = async () =>
      pawl
        .projection(balances)
        .waitFor(appended, { timeout: 50 })
        .catch((error: { readonly data: { readonly reason: unknown } }) => error.data.reason);
    expect(await late()).toBe("no worker has begun it; one that is started with it (pawl.work) builds it");
    const worker = pawl.work([balances]);
    await pawl.projection(balances).waitFor(appended);
    await worker.stop();
    const next = await pawl.stream("ann").append(deposits(1));
    await expect(pawl.projection(balances).waitFor(next, { timeout: 50 })).rejects.toThrow(
      "within 50 ms: no worker has it now; start one with it (pawl.work)",
    );
  });

  test("an event that cannot be applied stops its projection after those before it, and not others; other code continues", async () => {
    const pawl = await place.open({ logger: false });
    let isBroken = true;
    const fragile = projection("fragile", { on: [Deposited], version: "1" }, (row: number | undefined, e) => {
      if (isBroken && e.data.amount === 3) throw new Error("three");
      return (row ?? 0) + e.data.amount;
    });
    pawl.work([fragile, balances]);
    const first = await pawl.stream("ann").append(deposits(2));
    await pawl.projection(fragile).waitFor(first);
    const appended = await pawl
      .stream("ann")
      .append([Deposited({ amount: 2 }), Deposited({ amount: 3 }), Deposited({ amount: 4 })]);
    await pawl.projection(balances).waitFor(appended);
    await expect
      .poll(async () => (await pawl.projection(fragile).status()).live?.failure, PATIENCE)
      .toMatchObject({ stream: "ann", version: 4 });
    expect(await pawl.projection(fragile).get("ann")).toBe(5);
    await expect(pawl.projection(fragile).waitFor(appended, { timeout: 50 })).rejects.toMatchObject({
      code: "projection_timeout",
      data: { reason: expect.stringMatching(/^it does not get ahead at event \d+ of stream ".*": three$/) },
    });
    isBroken = false;
    await pawl.projection(fragile).waitFor(appended, { timeout: "2 minutes" });
    expect(await pawl.projection(fragile).get("ann")).toBe(12);
    expect((await pawl.projection(fragile).status()).live?.failure).toBeNull();
  });

  test("a row that cannot be stored, a key that is none, and a promise are failures that name their event", async () => {
    const pawl = await place.open({ logger: false });
    const odd = (name: string, make: (amount: number) => unknown) =>
      projection(name, { on: [Deposited] }, (_row: unknown, e) => make(e.data.amount) as number);
    const results = [
      odd("a function", (n) => (n === 2 ? () => {} : n)),
      odd("a promise", (n) => (n === 2 ? Promise.resolve() : n)),
      projection("no key", { on: [Deposited], key: (e) => (e.data.amount === 2 ? (7 as never) : "k") }, () => 1),
      projection("empty key", { on: [Deposited], key: (e) => (e.data.amount === 2 ? "" : "k") }, () => 1),
    ];
    await pawl.stream("ann").append(deposits(3));
    pawl.work(results);
    for (const one of results)
      await expect.poll(async () => (await buildingFailure(pawl, one))?.version, PATIENCE).toBe(2);
  });

  describe("waitFor", () => {
    test("returns at once for what the projection is not about, refuses what was not appended, and times out", async () => {
      const pawl = await place.open();
      pawl.work([balances]);
      const handle = pawl.projection(balances);
      const opened = await pawl.stream("ann").append([Opened()]);
      await handle.waitFor(opened);
      expect(await codeOf(handle.waitFor({ stream: "ann", version: 2 }))).toBe("invalid_argument");
      expect(await codeOf(handle.waitFor({ stream: "ann", version: -1 }))).toBe("invalid_argument");
      // The last event of the append is not its own, one before it is.
      const mixed = await pawl.stream("ann").append([...deposits(1), Opened()]);
      await handle.waitFor(mixed);
      expect(await handle.get("ann")).toEqual({ balance: 1, events: 1 });
    });

    test("is true for many callers at a time, in another process too", async () => {
      const [worker, pawl] = [await place.open(), await place.open()];
      worker.work([balances]);
      const handle = pawl.projection(balances);
      await expect.poll(() => succeeds(handle.status()), PATIENCE).toBe(true);
      await Promise.all(
        Array.from({ length: 30 }, async (_, i) => {
          const appended = await pawl.stream(`s-${i}`).append(deposits(1));
          await handle.waitFor(appended);
          expect(await handle.get(`s-${i}`)).toEqual({ balance: 1, events: 1 });
        }),
      );
    });
  });

  test("a projection that is deleted is gone with its rows, and is built again by a worker that is started with it", async () => {
    const pawl = await place.open();
    const worker = pawl.work([balances]);
    const appended = await pawl.stream("ann").append(deposits(3));
    await pawl.projection(balances).waitFor(appended);
    await pawl.projection(balances).delete();
    await expect(pawl.projection(balances).get("ann")).rejects.toMatchObject({
      code: "projection_not_found",
      message: expect.stringContaining("it was deleted; a worker that is started with it"),
    });
    await expect.poll(() => rowsOf(pawl, "balances"), PATIENCE).toBe(0);
    await worker.stop();
    pawl.work([balances]);
    await expect
      .poll(
        () =>
          pawl
            .projection(balances)
            .get("ann")
            .catch(() => null),
        PATIENCE,
      )
      .toEqual({ balance: 6, events: 3 });
  });

  test("it is fed by what reactions emit, too", async () => {
    const pawl = await place.open();
    const Copied = event<{ readonly amount: number }>("Copied");
    const copy = reaction("copy", { on: [Deposited] }, (e, { emit }) => emit("copies", [Copied(e.data)]));
    const copies = projection("copies", { on: [Copied] }, (n: number | undefined) => (n ?? 0) + 1);
    pawl.work([copy, copies]);
    await pawl.stream("ann").append(deposits(4));
    await expect
      .poll(
        () =>
          pawl
            .projection(copies)
            .get("copies")
            .catch(() => null),
        PATIENCE,
      )
      .toBe(4);
  });
});

onStores(SQL, (place) => {
  const p = (n: number): string => (place.store === "SQLite" ? "?" : `$${n}`);
  const table = (generation: number) => `balances_${generation}_${place.namespace.replace(/\W/g, "_")}`;
  const inSql = (version: string, factor = 1) =>
    projection.sql(
      "balances",
      {
        on: [Deposited],
        version,
        setUp: (sql, { generation }) =>
          sql.query(`create table ${table(generation)} (stream text primary key, balance integer, events integer)`),
        swap: async (sql, { previous }) => {
          if (previous !== null) await sql.query(`drop table ${table(previous)}`);
        },
      },
      async (events, sql, { generation }) => {
        for (const { stream, data } of events)
          await sql.query(
            `insert into ${table(generation)} (stream, balance, events) values (${p(1)}, ${p(2)}, 1)
             on conflict (stream) do update set balance = ${table(generation)}.balance + excluded.balance, events = ${table(generation)}.events + 1`,
            [stream, data.amount * factor],
          );
      },
    );
  const read = async (pawl: Pawl, generation: number) =>
    pawl.transact.sql(async (sql) =>
      (
        await sql.query<{ stream: string; balance: number; events: number }>(
          `select stream, balance, events from ${table(generation)} order by stream`,
        )
      ).rows.map(({ stream, balance, events }) => `${stream} ${balance} ${events}`),
    );

  describe("in SQL", () => {
    test("the user's rows and the progress are one transaction, whenever the worker dies", async () => {
      const reference = await place.open();
      const sums = inSql("1");
      for (let round = 1; round <= 4; round++) {
        const handle = await place.openHandle();
        handle.dieBefore(round + 1);
        handle.pawl.work([sums], { lease: "500ms" });
        await reference.stream(`s-${round % 2}`).append([Deposited({ amount: round })]);
        const isOver = async () =>
          handle.isDead() ||
          (
            await reference
              .projection(sums)
              .status()
              .catch(() => null)
          )?.live?.behind === 0;
        await expect.poll(isOver, PATIENCE).toBe(true);
        handle.die();
      }
      reference.work([sums], { lease: "500ms" });
      await expect.poll(async () => (await reference.projection(sums).status()).live?.behind, PATIENCE).toBe(0);
      expect(await read(reference, 1)).toEqual(["s-0 6 2", "s-1 4 2"]);
    });

    test("a rebuild has tables of its own, and swap is one transaction with what readers see", async () => {
      const pawl = await place.open({ logger: false });
      const first = pawl.work([inSql("1")]);
      const appended = await pawl.stream("ann").append(deposits(3));
      await expect.poll(() => succeeds(pawl.projection(inSql("1")).waitFor(appended)), PATIENCE).toBe(true);
      expect(await read(pawl, 1)).toEqual(["ann 6 3"]);
      await first.stop();
      pawl.work([inSql("2", 10)]);
      await expect.poll(async () => (await pawl.projection("balances").status()).live?.generation, PATIENCE).toBe(2);
      expect(await read(pawl, 2)).toEqual(["ann 60 3"]);
      await expect(read(pawl, 1)).rejects.toThrow();
    });

    test("a rebuild becomes what readers see although each page of it, and of the other one, finds new events", async () => {
      const pawl = await place.open({ logger: false });
      let isLoaded = false;
      let sent = 0;
      let largest = 0;
      const sends = new Set<Promise<unknown>>();
      const sums = projection.sql(
        "loaded",
        {
          on: [Deposited],
          version: "1",
          setUp: (sql, { generation }) => sql.query(`create table loaded_${table(generation)} (amount integer)`),
          swap: async (sql, { previous }) => {
            if (previous !== null) await sql.query(`drop table loaded_${table(previous)}`);
          },
        },
        async (events, sql, { generation }) => {
          largest = Math.max(largest, generation);
          for (const { data } of events)
            await sql.query(`insert into loaded_${table(generation)} values (${p(1)})`, [data.amount]);
          if (!isLoaded || sent > 2000) return;
          sent += 1;
          const send = pawl.stream("load").append(deposits(2));
          sends.add(send);
          // SQLite has one writer: there it is appended right after this transaction.
          if (place.store === "PostgreSQL") await send;
        },
      );
      pawl.work([sums]);
      await pawl.projection(sums).waitFor(await pawl.stream("load").append(deposits(3)));
      isLoaded = true;
      const generation = await pawl.projection(sums).rebuild();
      await pawl.stream("load").append(deposits(1));
      await expect
        .poll(async () => (await pawl.projection(sums).status()).live?.generation, { ...PATIENCE, interval: 5 })
        .toBe(generation);
      // Events kept coming for all that time.
      expect(sent).toBeLessThan(2000);
      isLoaded = false;
      await Promise.all(sends);
      const version = await pawl.stream("load").head();
      await pawl.projection(sums).waitFor({ stream: "load", version });
      const rows = await pawl.transact.sql((sql) => sql.query(`select amount from loaded_${table(generation)}`));
      expect(rows.rows).toHaveLength(version);
    });

    test("a generation that is held back for one whose worker died gets ahead again", async () => {
      const pawl = await place.open({ logger: false });
      const sums = inSql("1");
      pawl.work([sums], { lease: "500ms" });
      const handle = pawl.projection(sums);
      await handle.waitFor(await pawl.stream("ann").append(deposits(1)));
      const at = generationAt("balances", 1);
      await pawl.kernel.transact(
        (tx) => {
          const record = tx.record(at);
          record.write({ value: { ...(record.value as GenerationValue), heldFor: { generation: 2, fence: 7 } } });
        },
        [at],
      );
      await handle.waitFor(await pawl.stream("ann").append(deposits(2)));
      expect(await read(pawl, 1)).toEqual(["ann 4 3"]);
    });

    test("SQL that was too slow for one page is applied in larger and larger pages again", async () => {
      const pawl = await place.open({ logger: false });
      const name = `slow_${place.namespace.replace(/\W/g, "_")}`;
      const pages: number[] = [];
      const sums = projection.sql(
        "slow",
        { on: [Deposited], version: "1", setUp: (sql) => sql.query(`create table ${name} (amount integer)`) },
        async (events, sql) => {
          if (events.length > 30) throw new Error("it took too long");
          for (const { data } of events) await sql.query(`insert into ${name} values (${p(1)})`, [data.amount]);
          pages.push(events.length);
        },
      );
      const appended = await pawl.stream("ann").append(deposits(100));
      pawl.work([sums]);
      await pawl.projection(sums).waitFor(appended);
      expect(pages.slice(0, 5)).toEqual([1, 2, 4, 8, 16]);
      expect(pages.length).toBeLessThan(20);
      const rows = await pawl.transact.sql((sql) => sql.query(`select amount from ${name}`));
      expect(rows.rows).toHaveLength(100);
    });

    test("SQL that fails is rolled back, and named with its event", async () => {
      const pawl = await place.open({ logger: false });
      let isBroken = true;
      const name = `broken_${place.namespace.replace(/\W/g, "_")}`;
      const sums = projection.sql(
        "broken",
        { on: [Deposited], version: "1", setUp: (sql) => sql.query(`create table ${name} (amount integer)`) },
        async (events, sql) => {
          for (const { data } of events) {
            await sql.query(`insert into ${name} values (${p(1)})`, [data.amount]);
            if (isBroken && data.amount === 2) await sql.query("select * from nowhere_at_all");
          }
        },
      );
      await pawl.stream("ann").append(deposits(3));
      pawl.work([sums]);
      await expect.poll(() => buildingFailure(pawl, sums), PATIENCE).toMatchObject({ stream: "ann", version: 2 });
      isBroken = false;
      await expect.poll(async () => (await pawl.projection(sums).status()).live?.behind, PATIENCE).toBe(0);
      const rows = await pawl.transact.sql(
        async (sql) => (await sql.query<{ amount: number }>(`select amount from ${name}`)).rows,
      );
      expect(rows.map(({ amount }) => amount)).toEqual([1, 2, 3]);
    });

    test("a statement that fails and is not awaited fails its page, whatever is awaited after it", async () => {
      const pawl = await place.open({ logger: false });
      let isBroken = true;
      const name = `forgotten_${place.namespace.replace(/\W/g, "_")}`;
      const sums = projection.sql(
        "forgotten",
        {
          on: [Deposited],
          version: "1",
          setUp: (sql) => sql.query(`create table ${name} (amount integer primary key)`),
        },
        async (events, sql) => {
          for (const { data } of events) {
            void sql.query(`insert into ${isBroken ? "nowhere_at_all" : name} values (${p(1)})`, [data.amount]);
            // It has failed by the time that the function returns.
            await new Promise((resolve) => setTimeout(resolve, 5));
          }
        },
      );
      await pawl.stream("ann").append(deposits(3));
      pawl.work([sums]);
      await expect
        .poll(() => buildingFailure(pawl, sums), PATIENCE)
        .toMatchObject({ stream: "ann", version: 1, message: expect.stringContaining("nowhere_at_all") });
      isBroken = false;
      await expect.poll(async () => (await pawl.projection(sums).status()).live?.behind, PATIENCE).toBe(0);
      const { rows } = await pawl.transact.sql((sql) => sql.query<{ amount: number }>(`select amount from ${name}`));
      expect(rows.map(({ amount }) => amount)).toEqual([1, 2, 3]);
    });
  });
});

test("openTest runs reactions and projections when its clock moves, and its scoped handles have its runs", async () => {
  await using pawl = openTest();
  const flow = workflow("flow", async (ctx) => {
    await ctx.sleep("1 hour");
    return (await ctx.stream("ann").append([Deposited({ amount: 2 })])).version;
  });
  const started: string[] = [];
  const start = reaction("start", { on: [Opened] }, async (e, { commit }) => {
    started.push(e.stream);
    await commit((tx) => tx.start(flow, undefined, { id: `flow-${e.stream}` }));
  });
  pawl.work([flow, start, balances]);
  await pawl.with({ actor: "ann" }).stream("ann").append([Opened()]);
  await pawl.clock.advance("1s");
  expect(started).toEqual(["ann"]);
  expect(await pawl.run(flow, "flow-ann").result()).toBe(2);
  await pawl.clock.advance("1s");
  expect(await pawl.projection(balances).get("ann")).toEqual({ balance: 2, events: 1 });
  const run = await pawl.with({ actor: "bob" }).start(flow, undefined, { id: "other" });
  await run.until("waiting");
  expect(await run.result()).toBe(3);
});
