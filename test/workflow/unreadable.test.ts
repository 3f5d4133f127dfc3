/**
 * Goal: a bad number is refused before it is written, and one record that cannot be read affects no other: others are listed, claimed,
 * canceled and started as ever, and it is shown with the reason, parked and deleted.
 * Method: on every store, runs are started with bad times; records are damaged by another connection, in their numbers and in their values, as
 * a lost codec key or an older release has left them.
 */

import { DatabaseSync } from "node:sqlite";
import pg from "pg";
import { describe, expect, test } from "vitest";
import {
  jsonCodec,
  machine,
  type Pawl,
  type Run,
  type RunEvent,
  signal,
  transformed,
  workflow,
} from "../../src/index.ts";
import { address, type Row } from "../../src/kernel/contract.ts";
import { runAt } from "../../src/workflow/stored.ts";
import { wrongPlaces } from "../flow/checker.ts";
import { codeOf } from "../kernel/kit.ts";
import { EVERY, factsOf, onStores, PATIENCE, type Place, reaches, resultOf } from "./kit.ts";

const echo = workflow("echo", async (_ctx, input: unknown) => input);
const go = signal<number>("go");
const waits = workflow("waits", async (ctx, _input: unknown) => (await ctx.waitForSignal(go)).value);

/** A codec whose key is a text: another key cannot open what it sealed. */
const keyed = (key: string) =>
  transformed(jsonCodec, {
    name: "keyed",
    seal: (text) => `${key}:${Buffer.from(text).toString("base64")}`,
    open: (sealed) => {
      if (!sealed.startsWith(`${key}:`)) throw new Error("another key");
      return Buffer.from(sealed.slice(key.length + 1), "base64").toString();
    },
  });

/** Changes columns of a record by another connection. */
async function damage(
  place: Place,
  pawl: Pawl,
  { space, key }: { readonly space: string; readonly key: string },
  columns: Readonly<Record<string, string | bigint>>,
): Promise<void> {
  const names = Object.keys(columns);
  const values = Object.values(columns);
  if (place.store === "SQLite") {
    const db = new DatabaseSync(place.where, { timeout: 5000 });
    const set = names.map((name) => `${name} = ?`).join(", ");
    db.prepare(`update pawl_record set ${set} where namespace = ? and space = ? and key = ?`).run(
      ...values,
      place.namespace,
      space,
      key,
    );
    db.close();
  } else if (place.store === "PostgreSQL") {
    const client = new pg.Client({ connectionString: place.where });
    await client.connect();
    const set = names.map((name, index) => `${name} = $${index + 4}`).join(", ");
    await client.query(`update pawl.record set ${set} where namespace = $1 and space = $2 and key = $3`, [
      place.namespace,
      space,
      key,
      ...values.map(String),
    ]);
    await client.end();
  } else {
    // The row is the store's own, and what it holds is changed in place.
    const [row] = await pawl.kernel.read([address(space, key)]);
    const changes = names.map((name, index) => {
      const value = values[index];
      return [name === "due" ? "dueMs" : name, typeof value === "bigint" ? Number(value) : value];
    });
    Object.assign(row as Row, Object.fromEntries(changes));
  }
}

const ids = async (pawl: Pawl): Promise<string[]> => (await pawl.runs.list({ order: "id" })).runs.map(({ id }) => id);

const infoOf = async (pawl: Pawl, id: string) => (await pawl.runs.list()).runs.find((run) => run.id === id);

onStores(EVERY, (place) => {
  describe("a time that could not be read back", () => {
    const bad = [
      ["nanoseconds", () => Date.now() * 1e6],
      ["microseconds", () => Date.now() * 1e3],
      ["an invalid Date", () => new Date("31.12.2026")],
      ["a date as a text", () => "2026-12-31" as never],
      ["NaN", () => Number.NaN],
      ["Infinity", () => Number.POSITIVE_INFINITY],
      ["a fraction", () => Date.now() + 0.5],
      ["a time before 1970", () => -1],
    ] as const;

    test.each(bad)("%s is refused by start, and nothing is written", async (_, make) => {
      const pawl = await place.open();
      const at = make();
      expect(await codeOf(pawl.start(echo, 1, { id: "one", at }))).toBe("invalid_argument");
      expect(await codeOf(pawl.transact((tx) => tx.start(echo, 1, { id: "one", at })))).toBe("invalid_argument");
      expect(await ids(pawl)).toEqual([]);
    });

    const columns = [
      ["dueMs", 1.8e18],
      ["dueMs", Number.NaN],
      ["dueMs", -1],
      ["dueMs", 0.5],
      ["fence", 2 ** 53],
      ["wakes", 2 ** 53],
      ["tries", Number.POSITIVE_INFINITY],
      ["tries", -1],
    ] as const;
    test.each(columns)("the kernel refuses %s %s from any caller, whatever it catches", async (name, number) => {
      const pawl = await place.open();
      const at = address("thing", "one");
      const write = pawl.kernel.transact(
        (tx) => {
          try {
            tx.record(at).write({ value: 1, [name]: number });
          } catch {
            // A decision that continues after the error.
          }
        },
        [at],
      );
      await expect(write).rejects.toMatchObject({ code: "invalid_value", data: { path: name, name: 'thing "one"' } });
      expect(await pawl.kernel.read([at])).toEqual([null]);
    });

    test("a version that is used up is refused, and the others of the batch are committed", async () => {
      const pawl = await place.open();
      const slot = pawl.slot<number>("worn");
      await slot.set(1);
      await damage(place, pawl, slot.touches, { version: BigInt(Number.MAX_SAFE_INTEGER) });
      const [worn, other] = await Promise.allSettled([slot.set(2), pawl.slot("fine").set(1)]);
      expect(worn).toMatchObject({ status: "rejected", reason: { code: "invalid_value" } });
      expect(other).toMatchObject({ status: "fulfilled", value: { version: 1 } });
    });
  });

  describe("a run with a time out of range, as older releases wrote it", () => {
    const NANOSECONDS = 1_800_000_000_000_000_000n;

    async function poisoned(): Promise<Pawl> {
      const pawl = await place.open();
      await pawl.start(echo, "bad", { id: "bad", delay: "1 hour" });
      await damage(place, pawl, runAt("bad"), { due: NANOSECONDS });
      return pawl;
    }

    test("others are started, run, listed and canceled", async () => {
      const pawl = await poisoned();
      await pawl.start(echo, "later", { id: "later", delay: "1 hour" });
      pawl.work([echo]);
      expect(await resultOf(await pawl.start(echo, "fine", { id: "fine" }))).toBe("fine");
      expect(await resultOf(await pawl.start(echo, "soon", { id: "soon", delay: 50 }))).toBe("soon");
      expect(await ids(pawl)).toEqual(["bad", "fine", "later", "soon"]);
      expect(await pawl.run(echo, "later").cancel()).toEqual({ status: "canceled" });
    });

    test("it is listed with the reason, and can be canceled", async () => {
      const pawl = await poisoned();
      const info = await infoOf(pawl, "bad");
      expect(info).toMatchObject({ id: "bad", workflow: "echo", status: "pending", dueAt: null });
      expect(info?.unreadable).toMatch(/dueMs cannot be read: 1800000000000000000 is not a time/);
      expect(await pawl.run(echo, "bad").status()).toEqual(info);
      expect(await pawl.run(echo, "bad").cancel()).toEqual({ status: "canceled" });
      expect(await infoOf(pawl, "bad")).toMatchObject({ status: "canceled", unreadable: null });
    });

    test("it can be deleted, and its id used again", async () => {
      const pawl = await poisoned();
      await pawl.runs.delete("bad");
      expect(await ids(pawl)).toEqual([]);
      pawl.work([echo]);
      expect(await resultOf(await pawl.start(echo, "again", { id: "bad" }))).toBe("again");
    });
  });

  describe("a run whose numbers leave no room for a claim", () => {
    test("is not claimed but reported, and uses no place of others", async () => {
      const pawl = await place.open();
      const names = ["fence", "wakes", "tries"] as const;
      const at = new Date(Date.now() - 60_000);
      for (const name of names) {
        await pawl.start(echo, name, { id: `bad-${name}`, at });
        await damage(place, pawl, runAt(`bad-${name}`), { [name]: BigInt(Number.MAX_SAFE_INTEGER) + 1n });
      }
      for (let i = 0; i < 5; i++) await pawl.start(echo, i, { id: `fine-${i}` });
      const told: RunEvent[] = [];
      // Fewer at a time than there are unreadable ones.
      pawl.work([echo], { concurrency: 2, on: (event) => void told.push(event) });
      for (let i = 0; i < 5; i++) expect(await resultOf(pawl.run(echo, `fine-${i}`) as Run)).toBe(i);
      expect(await resultOf(await pawl.start(echo, "soon", { delay: 20 }))).toBe("soon");
      const troubles = told.filter(({ type }) => type === "run.trouble");
      for (const name of names) {
        expect(String(troubles.map(({ error }) => error))).toMatch(`bad-${name}`);
        expect(await infoOf(pawl, `bad-${name}`)).toMatchObject({ unreadable: expect.stringContaining(name) });
        await pawl.runs.delete(`bad-${name}`);
        expect(await infoOf(pawl, `bad-${name}`)).toBeUndefined();
      }
    });
  });

  describe("a run whose record was written with another codec key", () => {
    /** Two runs of the old key, one due and one that waits, and a handle with the new key. */
    async function rekeyed(): Promise<{ readonly old: Pawl; readonly pawl: Pawl }> {
      const old = await place.open({ codec: keyed("old") });
      const worker = old.work([waits]);
      await reaches(await old.start(waits, 1, { id: "waiting" }), "waiting");
      await worker.stop();
      await old.start(echo, 1, { id: "due" });
      return { old, pawl: await place.open({ codec: keyed("new") }) };
    }

    const unreadable = expect.stringContaining('the transform "keyed" could not open it');

    test("is listed as unreadable, with the content of its columns, beside the others", async () => {
      const { pawl } = await rekeyed();
      await pawl.start(echo, 1, { id: "mine" });
      expect((await pawl.runs.list({ order: "id" })).runs).toMatchObject([
        { id: "due", workflow: "echo", status: "pending", incarnation: 0, tags: [], unreadable },
        { id: "mine", workflow: "echo", status: "pending", incarnation: 1, unreadable: null },
        { id: "waiting", workflow: "waits", status: "waiting", unreadable },
      ]);
      expect((await pawl.runs.list({ tag: "none" })).runs).toEqual([]);
      const info = await pawl.run(echo, "due").status();
      expect(Math.abs(info.startedAt.getTime() - Date.now())).toBeLessThan(600_000);
      expect(await codeOf(pawl.run(waits, "due").status())).toBe("run_conflict");
      const why = await pawl.whyWaiting({ run: "due" });
      expect(why.says).toMatch(/run "due" is pending and cannot be read/);
    });

    test("is parked with the reason by a worker that claims it, and others are run", async () => {
      const { old, pawl } = await rekeyed();
      const told: RunEvent[] = [];
      const worker = pawl.work([echo], { on: (event) => void told.push(event) });
      expect(await resultOf(await pawl.start(echo, "mine"))).toBe("mine");
      await expect.poll(async () => (await infoOf(pawl, "due"))?.status, PATIENCE).toBe("parked");
      expect(await infoOf(pawl, "due")).toMatchObject({ parkedReason: unreadable, unreadable });
      expect(told).toContainEqual({ type: "run.parked", workflow: "echo", run: "due", message: unreadable });
      await expect(resultOf(pawl.run(echo, "due"))).rejects.toMatchObject({
        code: "run_parked",
        data: { reason: unreadable },
      });
      await worker.stop();
      // Nothing was lost: with the right key it is resumed.
      expect(await infoOf(old, "due")).toMatchObject({
        unreadable: null,
        parkedReason: "a worker could not read its record",
      });
      old.work([echo]);
      await old.run(echo, "due").retry();
      expect(await resultOf(old.run(echo, "due") as Run)).toBe(1);
    });

    test("refuses what needs its record with a code, and can be deleted", async () => {
      const { old, pawl } = await rekeyed();
      const due = pawl.run(echo, "due");
      expect(await codeOf(due.cancel())).toBe("unsupported_encoding");
      expect(await codeOf(due.signal(go, 1))).toBe("unsupported_encoding");
      expect(await codeOf(pawl.start(echo, 1, { id: "due" }))).toBe("unsupported_encoding");
      await pawl.runs.delete("due");
      await pawl.runs.delete("waiting");
      expect(await ids(pawl)).toEqual([]);
      expect(await ids(old)).toEqual([]);
    });

    test("is not deleted while a worker that can read it holds it", async () => {
      const { old, pawl } = await rekeyed();
      let release = () => {};
      const held = new Promise<void>((resolve) => {
        release = resolve;
      });
      const slow = workflow("slow", async (ctx) => ctx.step("wait", () => held));
      old.work([slow]);
      const run = await old.start(slow, undefined, { id: "slow" });
      await reaches(run, "running");
      await expect(pawl.runs.delete("slow")).rejects.toMatchObject({ code: "run_alive", data: { status: "running" } });
      release();
      await resultOf(run);
      await pawl.runs.delete("slow");
    });

    test("slots, machines and actions of another key do not keep others from being listed", async () => {
      const old = await place.open({ codec: keyed("old") });
      const pawl = await place.open({ codec: keyed("new") });
      const light = machine("light", { initial: "red", transitions: { red: ["green"], green: [] } });
      for (const [handle, name] of [
        [old, "a-theirs"],
        [pawl, "b-ours"],
      ] as const) {
        await handle.slot(name).set(1);
        await handle.machine(light).create(name);
        await handle.actions.create({ id: name });
      }
      const slots = await pawl.slots.list();
      expect(slots.slots.map(({ name }) => name)).toEqual(["b-ours"]);
      expect(slots.unreadable).toEqual([{ id: "a-theirs", reason: unreadable }]);
      const machines = await pawl.machine(light).list();
      expect(machines.instances.map(({ id }) => id)).toEqual(["b-ours"]);
      expect(machines.unreadable).toEqual([{ id: "a-theirs", reason: unreadable }]);
      const actions = await pawl.actions.list();
      expect(actions.actions.map(({ id }) => id)).toEqual(["b-ours"]);
      expect(actions.unreadable).toEqual([{ id: expect.any(String), reason: unreadable }]);
      expect((await pawl.slots.list({ limit: 1 })).next).toBe("a-theirs");
    });
  });

  describe("one damaged run among others", () => {
    const spoil = (pawl: Pawl, id: string) => damage(place, pawl, runAt(id), { value: "no JSON" });

    test.each([
      { which: "the first", damaged: ["b"] },
      { which: "one in the middle", damaged: ["d"] },
      { which: "the last", damaged: ["f"] },
      { which: "two after each other", damaged: ["b", "c"] },
      { which: "three, and the last of them", damaged: ["d", "e", "f"] },
      { which: "all", damaged: ["b", "c", "d", "e", "f"] },
    ])("$which of a line for a limit leaves it, is parked, and the others are admitted", async ({ damaged }) => {
      const begun: string[] = [];
      const last = workflow({ name: "last", concurrency: { max: 1 }, tries: 2 }, async (ctx, id: string) => {
        await ctx.step("begin", () => void begun.push(id));
        if (id === "a") await ctx.waitForSignal(go);
      });
      const starting = await place.open();
      const line = ["a", "b", "c", "d", "e", "f"];
      for (const id of line) await starting.start(last, id, { id });
      const values = new Map(
        (await starting.kernel.read(line.map(runAt))).map((row) => [row?.key ?? "", row?.value ?? ""]),
      );
      for (const id of damaged) await spoil(starting, id);
      const pawl = await place.open();
      const told: RunEvent[] = [];
      pawl.work([last], { on: (event) => void told.push(event) });
      await reaches(pawl.run(last, "a"), "waiting");
      // One that comes later finds the end of its line, or a line that is mended.
      await pawl.start(last, "late", { id: "late" });
      await pawl.run(last, "a").signal(go, 1);
      const others = [...line, "late"].filter((id) => !damaged.includes(id));
      await expect.poll(() => begun, PATIENCE).toEqual(others);
      for (const id of damaged)
        await expect.poll(async () => (await infoOf(pawl, id))?.status, PATIENCE).toBe("parked");
      const unreadable = expect.stringContaining("its record cannot be read");
      for (const id of damaged)
        expect(told).toContainEqual({ type: "run.parked", workflow: "last", run: id, message: unreadable });
      // When it can be read again, it waits in line, has a place and ends.
      for (const id of damaged) await damage(place, starting, runAt(id), { value: values.get(id) ?? "" });
      const later = await place.open();
      for (const id of damaged) await later.run(last, id).retry();
      for (const id of damaged) await resultOf(later.run(last, id) as Run);
      await expect.poll(() => wrongPlaces(later.kernel), PATIENCE).toEqual([]);
    });

    test("a parent that cannot be read does not keep its child from ending", async () => {
      const pawl = await place.open();
      const child = workflow("child", async (ctx) => (await ctx.waitForSignal(go)).value);
      const parent = workflow("parent", async (ctx) => ctx.call(child, undefined, { id: "child" }));
      pawl.work([parent, child]);
      await reaches(await pawl.start(parent, undefined, { id: "parent" }), "waiting");
      await reaches(pawl.run(child, "child"), "waiting");
      await spoil(pawl, "parent");
      await pawl.run(child, "child").signal(go, 7);
      expect(await resultOf(pawl.run(child, "child"))).toBe(7);
    });

    test("a child that cannot be read does not keep its parent from ending", async () => {
      const pawl = await place.open();
      const parent = workflow("parent", async (ctx) => {
        await ctx.start(waits, 1, { id: "child", whenParentEnds: "cancel" });
        return (await ctx.waitForSignal(go)).value;
      });
      pawl.work([parent, waits]);
      const run = await pawl.start(parent, undefined, { id: "parent" });
      await reaches(run, "waiting");
      await reaches(pawl.run(waits, "child"), "waiting");
      await spoil(pawl, "child");
      await run.signal(go, 7);
      expect(await resultOf(run)).toBe(7);
    });

    test("a waiter that cannot be read is skipped by the lock", async () => {
      const pawl = await place.open();
      const locked = workflow("locked", async (ctx, name: string) => ctx.lock("door", async () => name));
      pawl.work([locked]);
      const hold = await pawl.mutex("door").acquire();
      await reaches(await pawl.start(locked, "bad", { id: "bad" }), "waiting");
      await reaches(await pawl.start(locked, "good", { id: "good" }), "waiting");
      await spoil(pawl, "bad");
      await hold.release();
      expect(await resultOf(pawl.run(locked, "good"))).toBe("good");
    });
  });

  describe("deleting a run", () => {
    test("a run that has not ended is refused, whatever it does", async () => {
      const pawl = await place.open();
      const fails = workflow({ name: "fails", tries: 1 }, async (ctx) => {
        await ctx.step.atMostOnce("pay", () => {
          throw new Error("no");
        });
      });
      const worker = pawl.work([waits, fails]);
      await reaches(await pawl.start(waits, 1, { id: "waiting" }), "waiting");
      await worker.stop();
      await pawl.start(waits, 1, { id: "pending" });
      for (const status of ["waiting", "pending"])
        await expect(pawl.runs.delete(status)).rejects.toMatchObject({
          code: "run_alive",
          data: { run: status, status },
        });
      expect(await codeOf(pawl.runs.delete("none"))).toBe("run_not_found");
      expect(await codeOf(pawl.runs.delete(""))).toBe("invalid_id");
      expect(await ids(pawl)).toEqual(["pending", "waiting"]);
    });

    test("an ended run is deleted with its history, its inbox and its signals' ids; its id can be used again", async () => {
      const pawl = await place.open();
      pawl.work([waits]);
      const keys: string[] = [];
      const named = workflow("named", async (ctx, _input: unknown) => {
        await ctx.step("note", ({ key }) => void keys.push(key));
        return (await ctx.waitForSignal(go)).value;
      });
      pawl.work([named]);
      const life = async (value: number): Promise<void> => {
        const run = await pawl.start(named, 1, { id: "one", ifExists: "restart" });
        await run.signal(go, value, { id: "signal-1" });
        await run.signal(go, 99, { id: "signal-2" });
        expect(await resultOf(run)).toBe(value);
      };
      await life(1);
      await life(2);
      await pawl.runs.delete("one");
      expect(await codeOf(pawl.run(named, "one").status())).toBe("run_not_found");
      expect(await codeOf(pawl.run(named, "one").history())).toBe("run_not_found");
      expect(await pawl.kernel.list({ space: "inbox", prefix: "", after: null, limit: 10 })).toEqual([]);
      expect(await pawl.kernel.list({ space: "inbox/2", prefix: "", after: null, limit: 10 })).toEqual([]);
      expect(await pawl.kernel.list({ space: "signal-id", prefix: "", after: null, limit: 10 })).toEqual([]);
      // The signals of before are not received, their ids count anew, and no step has a key that was used before.
      await life(3);
      await life(4);
      expect(new Set(keys).size).toBe(4);
      expect((await factsOf(pawl.run(named, "one"))).filter((name) => name === "started").length).toBe(2);
      await pawl.runs.delete("one");
      await life(5);
      expect(new Set(keys).size).toBe(5);
      expect((await factsOf(pawl.run(named, "one"))).filter((name) => name === "started").length).toBe(1);
      await pawl.runs.delete("one");
      expect(await pawl.kernel.list({ space: "signal-id", prefix: "", after: null, limit: 10 })).toEqual([]);
    });

    test("more signals than one commit removes", async () => {
      const pawl = await place.open();
      const run = await pawl.start(waits, 1, { id: "one" });
      for (let i = 0; i < 12; i++)
        await Promise.all(Array.from({ length: 50 }, (_, j) => run.signal(go, j, { id: `${i}-${j}` })));
      await run.cancel();
      await pawl.runs.delete("one");
      expect(await pawl.kernel.list({ space: "signal-id", prefix: "", after: null, limit: 10 })).toEqual([]);
    });
  });
});
