/**
 * Removing deleted records permanently, in pieces.
 *
 * Goal: however much a sweep has to remove, none of its transactions is long, and others commit in between; stopped anywhere, it leaves
 * nothing inconsistent (G7, G19).
 * Method: every statement of the process is recorded with what it changed, so that the length of a transaction is counted in rows, not in
 * time. Interruptions come when a part of a long log is gone: the store is closed, the record is created again, the file is locked.
 */

import { join } from "node:path";
import { DatabaseSync, StatementSync } from "node:sqlite";
import { setImmediate as turn } from "node:timers/promises";
import { afterEach, describe, expect, it } from "vitest";
import { type Address, address } from "../../src/kernel/contract.ts";
import { nodePorts, wallMs } from "../../src/node/ports.ts";
import { type Pawl, pawlOn } from "../../src/pawl.ts";
import { openSqlite, type SqliteStore } from "../../src/stores/sqlite/sqlite.ts";
import { allOf, integrityOf, scratchFolder } from "./kit.ts";

const folder = scratchFolder("in memory");
const MOST_AT_ONCE = 1000;

interface Opened {
  readonly path: string;
  readonly store: SqliteStore;
  readonly pawl: Pawl;
}

const opened: Opened[] = [];
afterEach(async () => {
  for (const { pawl } of opened.splice(0)) await pawl.close();
});

let count = 0;
async function arrive(path = join(folder, `${++count}.db`)): Promise<Opened> {
  const options = { path, namespace: "default", ports: nodePorts, wallMs, patienceMs: 20_000 } as const;
  const store = await openSqlite({ ...options, durability: "process" });
  const pawl = pawlOn(store, nodePorts, { namespace: "default" });
  opened.push({ path, store, pawl });
  // The first commit of a handle sweeps by itself; the call waits until that is done.
  await pawl.slot("warm").set(1);
  await store.sweep(1);
  return { path, store, pawl };
}

/** Makes a record with a log and deletes it, so that it may be swept immediately. */
async function discard({ pawl }: Opened, at: Address, entries: number, data: unknown = null, fence = 0): Promise<void> {
  await pawl.kernel.transact(
    (tx) => {
      const record = tx.record(at);
      record.write({ value: 1, fence });
      for (let i = 0; i < entries; i++) record.append("noted", data);
    },
    [at],
  );
  await pawl.kernel.transact((tx) => tx.record(at).remove(0), [at]);
}

const at = (n: number) => address("trail", `t${String(n).padStart(4, "0")}`);

function contentOf(path: string): { rows: number; entries: number; floor: number } {
  const db = new DatabaseSync(path);
  const number = (sql: string) => Number(allOf(db, sql)[0]?.["n"] ?? 0);
  const content = {
    rows: number("select count(*) as n from pawl_record where space = 'trail'"),
    entries: number("select count(*) as n from pawl_log"),
    floor: number("select number as n from pawl_meta where name = 'fence_floor'"),
  };
  db.close();
  return content;
}

/** How many rows each transaction removed, in order, while `act` ran. */
async function removedBy(act: () => Promise<void>): Promise<number[]> {
  const { run } = StatementSync.prototype;
  const transactions: number[] = [];
  StatementSync.prototype.run = function (this: StatementSync, ...args: Parameters<typeof run>) {
    const result = run.apply(this, args);
    if (this.sourceSQL === "begin immediate") transactions.push(0);
    if (this.sourceSQL.trimStart().startsWith("delete from"))
      transactions.push((transactions.pop() ?? 0) + Number(result.changes));
    return result;
  } as typeof run;
  try {
    await act();
  } finally {
    StatementSync.prototype.run = run;
  }
  return transactions.filter((removed) => removed > 0);
}

/** Waits until a part of the log is gone, and the row is still there. */
async function halfway({ store }: Opened, one: Address, entries: number): Promise<void> {
  for (;;) {
    const [first] = await store.entries(one, 0, 1);
    if (first === undefined) throw new Error("the log was gone before it could be read");
    if (first.version > 1 && first.version <= entries) return;
    await turn();
  }
}

describe("a sweep with much to remove", () => {
  it("removes a bounded number of entries and rows in one transaction, and returns how many rows are gone", async () => {
    const ground = await arrive();
    for (let n = 0; n < 3; n++) await discard(ground, at(n), 2500, null, 10 * n);
    for (let n = 3; n < 6; n++) await discard(ground, at(n), MOST_AT_ONCE, null, n);
    await Promise.all(Array.from({ length: 200 }, (_, n) => discard(ground, at(n + 10), n % 4)));
    const { rows, entries } = contentOf(ground.path);
    expect([rows, entries]).toEqual([206, 3 * 2500 + 3 * MOST_AT_ONCE + 300]);
    let gone = 0;
    const removed = await removedBy(async () => {
      gone = await ground.store.sweep(1000);
    });
    expect(gone).toBe(206);
    expect(Math.max(...removed)).toBeLessThanOrEqual(MOST_AT_ONCE);
    expect(removed.reduce((sum, n) => sum + n, 0)).toBe(rows + entries);
    expect(contentOf(ground.path)).toEqual({ rows: 0, entries: 0, floor: 21 });
    expect(await ground.store.sweep(1000)).toBe(0);
  });

  it("removes a bounded number of bytes in one transaction", async () => {
    const ground = await arrive();
    await discard(ground, at(1), 40, "x".repeat(500_000));
    const removed = await removedBy(async () => {
      expect(await ground.store.sweep(10)).toBe(1);
    });
    // At most 4 MiB, and the entry that exceeds it.
    expect(Math.max(...removed)).toBeLessThanOrEqual(9);
    expect(contentOf(ground.path)).toMatchObject({ rows: 0, entries: 0 });
  });

  it("keeps to its limit also where rows take several transactions", async () => {
    const ground = await arrive();
    for (let n = 0; n < 4; n++) await discard(ground, at(n), 1500);
    expect(await ground.store.sweep(3)).toBe(3);
    expect(contentOf(ground.path)).toMatchObject({ rows: 1, entries: 1500 });
    expect(await ground.store.sweep(3)).toBe(1);
  });

  it("lets commits in between, of its own process and of others", async () => {
    const ground = await arrive();
    const other = await arrive(ground.path);
    for (let n = 0; n < 4; n++) await discard(ground, at(n), 5000);
    let isSwept = false;
    const sweep = ground.store.sweep(10).then((gone) => {
      isSwept = true;
      return gone;
    });
    await halfway(ground, at(0), 5000);
    for (const { pawl } of [ground, other]) await pawl.slot<number>("n", { initial: 0 }).update((n) => n + 1);
    expect(isSwept).toBe(false);
    expect(await sweep).toBe(4);
    expect((await other.pawl.slot<number>("n").get()).value).toBe(2);
    expect(contentOf(ground.path)).toMatchObject({ rows: 0, entries: 0 });
  });
});

describe("a sweep that is interrupted", () => {
  it("leaves the row, its fence and the rest of its log to the next one", async () => {
    const ground = await arrive();
    await discard(ground, at(1), 4000, null, 41);
    const sweep = ground.store.sweep(10);
    await halfway(ground, at(1), 4000);
    await ground.store.close();
    expect(await sweep).toBe(0);
    const left = contentOf(ground.path);
    expect(left).toMatchObject({ rows: 1, floor: 0 });
    expect(left.entries).toBeGreaterThan(0);
    expect(left.entries).toBeLessThan(4000);
    expect(integrityOf(ground.path)).toBe("ok");
    // A process that starts sweeps first.
    await arrive(ground.path);
    expect(contentOf(ground.path)).toEqual({ rows: 0, entries: 0, floor: 42 });
  });

  it("leaves alone what is made again meanwhile: it continues where it was, with the rest of its log", async () => {
    const ground = await arrive();
    const other = await arrive(ground.path);
    await discard(ground, at(1), 4000, null, 7);
    await discard(ground, at(2), 1);
    const sweep = ground.store.sweep(10);
    await halfway(ground, at(1), 4000);
    const appended = await other.pawl.kernel.transact(
      (tx) => {
        const record = tx.record(at(1));
        record.write({ value: "again" });
        return [record.append("anew", null), record.fence];
      },
      [at(1)],
    );
    expect(appended).toEqual([4001, 7]);
    expect(await sweep).toBe(1);
    const entries = await other.store.entries(at(1), 0, 10_000);
    const [first] = entries;
    expect(entries.map(({ version }) => version)).toEqual(
      Array.from({ length: 4002 - (first?.version ?? 0) }, (_, i) => (first?.version ?? 0) + i),
    );
    expect(entries.at(-1)).toMatchObject({ version: 4001, name: "anew" });
    expect(await other.store.sweep(10)).toBe(0);
  });

  it("resumes when another process that took the file is done with it", async () => {
    const ground = await arrive();
    await discard(ground, at(1), 4000);
    const sweep = ground.store.sweep(10);
    await halfway(ground, at(1), 4000);
    const db = new DatabaseSync(ground.path, { timeout: 5000 });
    db.exec("begin immediate");
    const before = contentOf(ground.path);
    await new Promise((resolve) => setTimeout(resolve, 60));
    expect(contentOf(ground.path)).toEqual(before);
    db.exec("commit");
    db.close();
    expect(await sweep).toBe(1);
  });

  it("counts each row once where two sweep at the same time", async () => {
    const ground = await arrive();
    const other = await arrive(ground.path);
    for (let n = 0; n < 10; n++) await discard(ground, at(n), 700);
    const counts = await Promise.all([ground.store.sweep(10), other.store.sweep(10), ground.store.sweep(10)]);
    expect(counts.reduce((sum, n) => sum + n, 0)).toBe(10);
    expect(contentOf(ground.path)).toMatchObject({ rows: 0, entries: 0 });
  });
});
