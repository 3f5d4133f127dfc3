/**
 * Transactions that wait for the user's code, on SQLite: what a caller gets when they do not end, or cannot begin.
 *
 * Goal: a transaction that hangs loses the file at its deadline and the next one runs; a caller waits no longer than its patience, counted
 * from its call; closing always settles; a connection that could not be opened is opened by the next call (G2, G19).
 * Method: a real file, and a clock that is moved by hand. The connection fails to open because the folder is elsewhere for a while.
 */

import { mkdirSync, renameSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { afterEach, describe, expect, it } from "vitest";
import { StoreError } from "../../src/kernel/errors.ts";
import type { Ports } from "../../src/kernel/ports.ts";
import { wallMs } from "../../src/node/ports.ts";
import { type Pawl, pawlOn } from "../../src/pawl.ts";
import { SHARED_MS } from "../../src/stores/sqlite/shared.ts";
import { openSqlite, type SqliteStore } from "../../src/stores/sqlite/sqlite.ts";
import { codeOf, countingChance, drained, ManualClock } from "../kernel/kit.ts";
import { allOf, scratchFolder } from "./kit.ts";

const folder = scratchFolder("in memory");
const MARK = { lane: 1, epoch: 1, sequence: 1 };

interface Ground {
  readonly folder: string;
  readonly path: string;
  readonly clock: ManualClock;
  readonly store: SqliteStore;
  readonly pawl: Pawl;
  /** The ids in the table `t`, as another connection sees them. */
  ids(): unknown[];
}

const opened: SqliteStore[] = [];
afterEach(async () => {
  for (const store of opened.splice(0)) await store.close();
});

let count = 0;
async function arrive(patienceMs = 30_000): Promise<Ground> {
  const own = join(folder, String(++count));
  mkdirSync(own);
  const path = join(own, "pawl.db");
  const clock = new ManualClock();
  const ports: Ports = { clock, chance: countingChance() };
  const store = await openSqlite({ path, namespace: "default", ports, wallMs, durability: "process", patienceMs });
  opened.push(store);
  const db = new DatabaseSync(path);
  db.exec("create table t (id text primary key)");
  db.close();
  return {
    folder: own,
    path,
    clock,
    store,
    pawl: pawlOn(store, ports, { namespace: "default", patienceMs }),
    ids() {
      const db = new DatabaseSync(path);
      const rows = allOf(db, "select id from t order by id");
      db.close();
      return rows.map((row) => row["id"]);
    },
  };
}

/** A transaction that has written and never ends by itself; `late` is what its next statement gets when it resumes. */
async function hang({ store }: Ground, id = "hanging") {
  const begun = Promise.withResolvers<void>();
  const gate = Promise.withResolvers<void>();
  const late = Promise.withResolvers<unknown>();
  const outcome = codeOf(
    store.share(MARK, async (sql) => {
      await sql.query("insert into t values (?)", [id]);
      begun.resolve();
      await gate.promise;
      late.resolve(await codeOf(sql.query("insert into t values ('late')")));
    }),
  );
  await begun.promise;
  return {
    outcome,
    async resume(): Promise<unknown> {
      gate.resolve();
      return late.promise;
    },
  };
}

/** "ok", or the code it was refused with. */
async function insert({ store }: Ground, id: string): Promise<unknown> {
  const inserted = store.share(MARK, (sql) => sql.query("insert into t values (?)", [id]));
  const outcome = await codeOf(inserted);
  return typeof outcome === "object" && outcome !== null && "notRefused" in outcome ? "ok" : outcome;
}

describe("a transaction that hangs", () => {
  it("is rolled back at its deadline and not before, and the next one runs", async () => {
    const ground = await arrive();
    const hanging = await hang(ground);
    const next = insert(ground, "next");
    let isOver = false;
    void hanging.outcome.then(() => {
      isOver = true;
    });
    await ground.clock.advance(SHARED_MS - 1);
    expect(isOver).toBe(false);
    await ground.clock.advance(1);
    expect(await hanging.outcome).toBe("store_busy");
    expect(await next).toBe("ok");
    expect(await hanging.resume()).toBe("store_busy");
    expect(ground.ids()).toEqual(["next"]);
  });

  it("does not keep the store from closing: it and those that wait are refused, and nothing is written", async () => {
    const ground = await arrive();
    const hanging = await hang(ground);
    const waiting = [insert(ground, "a"), insert(ground, "b")];
    await ground.store.close();
    expect(await hanging.outcome).toBe("closed");
    expect(await Promise.all(waiting)).toEqual(["closed", "closed"]);
    expect(await hanging.resume()).toBe("closed");
    // The deadline of a transaction that is over does nothing.
    await ground.clock.advance(2 * SHARED_MS);
    expect(await insert(ground, "after")).toBe("closed");
    expect(ground.ids()).toEqual([]);
  });

  it("does not keep the handle from closing, either", async () => {
    const ground = await arrive();
    const begun = Promise.withResolvers<void>();
    const hanging = codeOf(
      ground.pawl.transact.sql(() => {
        begun.resolve();
        return new Promise(() => {});
      }),
    );
    await begun.promise;
    const closing = ground.pawl.close();
    await ground.clock.advance(SHARED_MS);
    await closing;
    expect(await hanging).toBe("store_busy");
  });

  it("delays later callers no longer than their patience, counted from their call", async () => {
    const ground = await arrive(SHARED_MS + 1000);
    const first = await hang(ground, "first");
    const second = codeOf(ground.store.share(MARK, () => new Promise(() => {})));
    const third = insert(ground, "third");
    await ground.clock.advance(SHARED_MS);
    const fourth = insert(ground, "fourth");
    expect(await first.outcome).toBe("store_busy");
    await ground.clock.advance(999);
    let isTold = false;
    void third.then(() => {
      isTold = true;
    });
    await drained();
    expect(isTold).toBe(false);
    await ground.clock.advance(1);
    expect(isTold).toBe(true);
    expect(await third).toBe("store_busy");
    await ground.clock.advance(SHARED_MS - 1000);
    expect(await second).toBe("store_busy");
    expect(await fourth).toBe("ok");
    expect(ground.ids()).toEqual(["fourth"]);
    expect(ground.clock.timerCount).toBe(0);
  });
});

describe("a connection that cannot be opened", () => {
  it("fails the call that wanted it with the store's error, and the next call opens it", async () => {
    const ground = await arrive();
    const elsewhere = `${ground.folder}-elsewhere`;
    renameSync(ground.folder, elsewhere);
    const refused = await ground.store.share(MARK, async () => {}).catch((error: unknown) => error);
    expect(refused).toBeInstanceOf(StoreError);
    expect(refused).toMatchObject({ code: "store_unreachable", data: { remedy: "fail" } });
    expect(String(refused)).toContain(ground.path);
    renameSync(elsewhere, ground.folder);
    expect(await insert(ground, "a")).toBe("ok");
    expect(ground.ids()).toEqual(["a"]);
    await ground.store.close();
  });

  it("does not keep the store from closing", async () => {
    const ground = await arrive();
    renameSync(ground.folder, `${ground.folder}-gone`);
    expect(await insert(ground, "a")).toBe("store_unreachable");
    await ground.store.close();
    expect(await insert(ground, "b")).toBe("closed");
  });

  it("nor does one that is being opened", async () => {
    const ground = await arrive();
    const opening = insert(ground, "a");
    await ground.store.close();
    expect(await opening).toBe("closed");
    expect(ground.ids()).toEqual([]);
  });
});
