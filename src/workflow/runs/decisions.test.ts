/**
 * Goal: what others may do to a run is decided by its status alone, and each decision does all it says or nothing.
 * Method: every verb on a run of every status, on a memory store with time standing still.
 */

import { describe, expect, test } from "vitest";
import { type Bench, bench, codeOf } from "../../../test/kernel/kit.ts";
import type { Row } from "../../kernel/contract.ts";
import { fingerprintOf } from "../../kernel/fingerprint.ts";
import {
  deletingQueueOf,
  endedQueueOf,
  inboxAt,
  newQueueOf,
  queueOf,
  type RunStatus,
  type RunValue,
  runAt,
  STATUSES,
} from "../stored.ts";
import { cancelRun, endRun } from "./end.ts";
import { notifyParent, signalRun } from "./messages.ts";
import { resolveStep, retryRun, retrySome } from "./retry.ts";
import { type StartRequest, startRun } from "./start.ts";

const request = (more: Partial<StartRequest> = {}): StartRequest => ({
  id: "one",
  workflow: "it",
  input: 1,
  fingerprint: fingerprintOf(1),
  timeoutMs: null,
  ifExists: "join",
  ...more,
});

const start = ({ kernel }: Bench, more: Partial<StartRequest> = {}) =>
  kernel.transact((tx) => startRun(tx, request(more)), [runAt(more.id ?? "one")]);

/** A run of this status. */
async function runOf(status: RunStatus): Promise<Bench> {
  const on = bench();
  await start(on);
  const held = status === "running" ? { holder: "ann", dueMs: on.clock.wallMs() + 1000 } : { dueMs: null };
  if (status !== "pending") await on.kernel.transact((tx) => tx.record(runAt("one")).write({ status, ...held }), []);
  return on;
}

async function rowOf({ kernel }: Bench, id = "one"): Promise<Row> {
  const [row = null] = await kernel.read([runAt(id)]);
  if (row === null) throw new Error(`${id} is not there`);
  return row;
}

const storedIn = (row: Row): RunValue => JSON.parse(row.value ?? "null") as RunValue;

async function logOf({ kernel }: Bench, at = runAt("one")): Promise<string[]> {
  return (await kernel.entries(at, 0, 100)).map(({ name }) => name);
}

const ENDS: readonly RunStatus[] = ["completed", "failed", "canceled", "timed_out", "expired"];
const endedOr = (status: RunStatus, other: string): string => (ENDS.includes(status) ? "run_ended" : other);

describe("start", () => {
  const lease = { by: "ann", leaseMs: 500 };
  const rules: [string, Partial<StartRequest>, (nowMs: number) => object][] = [
    ["a run is pending and due at once", {}, (nowMs) => ({ status: "pending", dueMs: nowMs, holder: null, tries: 0 })],
    [
      "or leased by the commit that starts it",
      { lease },
      (nowMs) => ({ status: "running", dueMs: nowMs + 500, holder: "ann", tries: 1 }),
    ],
    ["a delay makes it due later", { delayMs: 70 }, (nowMs) => ({ status: "pending", dueMs: nowMs + 70 })],
    ["no delay is none", { delayMs: 0, lease }, () => ({ status: "running" })],
    ["a time to come is kept", { atMs: 9e12 }, () => ({ status: "pending", dueMs: 9e12 })],
    ["a delayed run is leased to nobody", { delayMs: 1, lease }, () => ({ status: "pending", holder: null, tries: 0 })],
    ["a time that has passed is now", { atMs: 5, lease }, () => ({ status: "running", holder: "ann" })],
  ];
  test.each(rules)("%s", async (_, more, row) => {
    const on = bench();
    expect(await start(on, more)).toMatchObject({ isNew: true });
    const kind = more.lease !== undefined && more.delayMs !== 1 ? queueOf("it") : newQueueOf("it");
    expect(await rowOf(on)).toMatchObject({ kind, head: 1, ...row(on.clock.wallMs()) });
    expect(await logOf(on)).toEqual(["started"]);
  });

  test("a short input is in the record for whoever begins the run, and no longer when it has ended", async () => {
    const cases = [
      { more: { input: { a: 1 } }, stored: { input: { a: 1 } } },
      { more: { input: { a: 1 }, lease }, stored: {} },
      { more: { input: "x".repeat(2000) }, stored: {} },
    ];
    for (const { more, stored } of cases) {
      const on = bench();
      await start(on, more);
      const { input, ...rest } = storedIn(await rowOf(on));
      expect(input === undefined ? {} : { input }).toEqual(stored);
      await on.kernel.transact((tx) => endRun(tx, tx.record(runAt("one")), "one", "completed", { ok: 1 }), []);
      expect(storedIn(await rowOf(on))).toEqual({ ...rest, endedAtMs: expect.any(Number), outcome: { ok: 1 } });
    }
  });

  test("the time limit counts from when the run is to begin", async () => {
    const on = bench();
    await start(on, { delayMs: 100, timeoutMs: 50 });
    expect(storedIn(await rowOf(on)).deadlineMs).toBe(on.clock.wallMs() + 150);
  });

  for (const status of STATUSES) {
    const isOver = ENDS.includes(status);
    test(`the same id on a run that is ${status} joins it, refuses another input, rejects or restarts it`, async () => {
      const on = await runOf(status);
      const before = await rowOf(on);
      expect(await start(on)).toMatchObject({ isNew: false, isLeased: false });
      expect(await codeOf(start(on, { fingerprint: fingerprintOf(2), input: 2 }))).toBe("run_conflict");
      expect(await codeOf(start(on, { workflow: "other" }))).toBe("run_conflict");
      expect(await codeOf(start(on, { ifExists: "reject" }))).toBe("run_exists");
      expect(await rowOf(on)).toEqual(before);
      expect(await start(on, { ifExists: "restart" })).toMatchObject({ isNew: isOver });
      expect(storedIn(await rowOf(on))).toMatchObject(
        isOver ? { incarnation: 2, from: before.head + 1 } : { incarnation: 1 },
      );
    });
  }

  const same: [unknown, unknown, boolean][] = [
    [{ a: 1, b: 2 }, { b: 2, a: 1 }, true],
    [{ a: { b: 1, c: [1, 2] } }, { a: { c: [1, 2], b: 1 } }, true],
    [[1, 2], [2, 1], false],
    [1, "1", false],
    [undefined, null, false],
    [{}, [], false],
    [{ a: undefined }, {}, false],
    [new Date(0), new Date(1), false],
    [new Date(5), new Date(5), true],
  ];
  test.each(same)("inputs %j and %j are the same: %s", (a, b, isSame) => {
    expect(fingerprintOf(a) === fingerprintOf(b)).toBe(isSame);
  });
});

describe("signal", () => {
  test.each(STATUSES)("to a run that is %s is kept, or refused with all it would have done", async (status) => {
    const on = await runOf(status);
    const send = (id?: string) =>
      on.kernel
        .transact((tx) => signalRun(tx, "one", { name: "go", payload: 1, id }), [runAt("one")])
        .then(() => "kept");
    const wakes = (await rowOf(on)).wakes;
    const answer = await send("a").catch((error: { code: string }) => error.code);
    expect(answer).toBe(endedOr(status, "kept"));
    expect(await logOf(on, inboxAt("one", 1))).toEqual(answer === "kept" ? ["signal go"] : []);
    if (answer === "kept") expect((await rowOf(on)).wakes).toBe(wakes + 1);
    else expect(await codeOf(send("a"))).toBe("run_ended");
  });

  test("makes no lease shorter", async () => {
    const on = await runOf("running");
    await on.kernel.transact((tx) => signalRun(tx, "one", { name: "go", payload: 1 }), []);
    expect(await rowOf(on)).toMatchObject({ holder: "ann", dueMs: on.clock.wallMs() + 1000 });
  });

  test("makes one that waits due", async () => {
    const on = await runOf("waiting");
    await on.kernel.transact((tx) => signalRun(tx, "one", { name: "go", payload: 1 }), []);
    expect(await rowOf(on)).toMatchObject({ dueMs: on.clock.wallMs() });
  });

  test("is known by its id, for each run on its own", async () => {
    const on = bench();
    await start(on);
    await start(on, { id: "two" });
    const send = (run: string, id: string) =>
      on.kernel.transact((tx) => signalRun(tx, run, { name: "go", payload: 1, id }).isNew, []);
    expect(await send("one", "a")).toBe(true);
    expect(await send("one", "a")).toBe(false);
    expect(await send("one", "b")).toBe(true);
    expect(await send("two", "a")).toBe(true);
  });
});

describe("cancel", () => {
  const answers: Record<RunStatus, string> = {
    pending: "canceled",
    queued: "canceled",
    parked: "canceled",
    running: "running",
    waiting: "waiting",
    completed: "completed",
    failed: "failed",
    canceled: "canceled",
    timed_out: "timed_out",
    expired: "expired",
  };
  test.each(Object.entries(answers))("of a run that is %s answers %s", async (status, answer) => {
    const on = await runOf(status as RunStatus);
    const before = await rowOf(on);
    const said = await on.kernel.transact((tx) => cancelRun(tx, "one", { reason: "enough" }), [runAt("one")]);
    expect(said).toBe(answer);
    const after = await rowOf(on);
    if (ENDS.includes(status as RunStatus)) expect(after).toEqual(before);
    else if (said === "canceled") {
      // A worker that knows the workflow sets how long it is kept.
      expect(after).toMatchObject({
        status: "canceled",
        kind: endedQueueOf("it"),
        dueMs: on.clock.wallMs(),
        holder: null,
      });
      expect(await logOf(on)).toContain("canceled");
    } else {
      expect(after).toMatchObject({ status, wakes: before.wakes + 1 });
      expect(storedIn(after).cancel).toEqual({ reason: "enough" });
    }
  });

  test.each([
    ["keeps the first reason", { reason: "first" }, { reason: "first" }],
    ["counts, if it was to resume after the first", { reason: "first", resumes: true }, { reason: "second" }],
  ])("a second one %s", async (_, cancel, expected) => {
    const on = await runOf("running");
    await on.kernel.transact(
      (tx) => {
        const run = tx.record(runAt("one"));
        run.write({ value: { ...(run.value as RunValue), cancel } });
      },
      [runAt("one")],
    );
    await on.kernel.transact((tx) => cancelRun(tx, "one", { reason: "second" }), [runAt("one")]);
    expect(storedIn(await rowOf(on)).cancel).toEqual(expected);
  });
});

describe("retry", () => {
  const allowed: readonly RunStatus[] = ["failed", "parked", "expired"];
  test.each(STATUSES)("of a run that is %s", async (status) => {
    const on = await runOf(status);
    const before = await rowOf(on);
    const retry = on.kernel.transact((tx) => retryRun(tx, "one"), [runAt("one")]);
    if (allowed.includes(status)) {
      await retry;
      expect(await rowOf(on)).toMatchObject({ status: "pending", dueMs: on.clock.wallMs(), holder: null, tries: 0 });
      expect(await logOf(on)).toEqual(["started", "retried"]);
    } else {
      await expect(retry).rejects.toMatchObject({ data: { run: "one" } });
      expect(await rowOf(on)).toEqual(before);
    }
  });

  test("leaves nothing of the end: outcome, parking, cancellation, time limit", async () => {
    const on = bench();
    await start(on, { timeoutMs: 5 });
    await on.kernel.transact((tx) => {
      const run = tx.record(runAt("one"));
      run.write({ value: { ...(run.value as RunValue), cancel: {}, parked: { reason: "x" } } });
      endRun(tx, run, "one", "failed", { error: "no" });
    }, []);
    await on.kernel.transact((tx) => retryRun(tx, "one", [[1, 1]]), []);
    const value = storedIn(await rowOf(on));
    expect(Object.keys(value)).not.toEqual(expect.arrayContaining(["outcome"]));
    for (const gone of ["outcome", "parked", "cancel", "deadlineMs"]) expect(value).not.toHaveProperty(gone);
  });
});

describe("retry of a run with children that failed", () => {
  const kids = (count: number): { id: string; run: string }[] =>
    Array.from({ length: count }, (_, n) => ({ id: `kid#${n}`, run: `one/kid#${n}` }));

  /** A run that failed with these children, as its record lists them. */
  async function failedWith(count: number): Promise<Bench> {
    const on = bench();
    await start(on);
    for (const { id, run } of kids(count)) {
      await start(on, { id: run, parent: { run: "one", id, incarnation: 1, waits: true } });
      await fail(on, run);
    }
    await fail(on, "one", { facts: [], children: kids(count) });
    return on;
  }

  const fail = ({ kernel }: Bench, id: string, forgets?: RunValue["forgets"]) =>
    kernel.transact((tx) => {
      const run = tx.record(runAt(id));
      if (forgets !== undefined) run.write({ value: { ...(run.value as RunValue), forgets } });
      endRun(tx, run, id, "failed", { error: "no" }, { keptMs: null });
    }, []);

  const statuses = async (on: Bench, count: number): Promise<string[]> =>
    Promise.all(kids(count).map(async ({ run }) => (await rowOf(on, run)).status ?? ""));

  const retry = (on: Bench) => on.kernel.transact((tx) => retryRun(tx, "one"), []);
  /** One commit of the worker that takes the run. */
  const some = (on: Bench, children: readonly { id: string; run: string }[]) =>
    on.kernel.transact((tx) => retrySome(tx, tx.record(runAt("one")), children), []);

  test("a hundred are retried by the same commit", async () => {
    const on = await failedWith(100);
    await retry(on);
    expect(storedIn(await rowOf(on))).not.toHaveProperty("retrying");
    expect(new Set(await statuses(on, 100))).toEqual(new Set(["pending"]));
  });

  test("more are left to the worker that takes it, a hundred in each commit", async () => {
    const on = await failedWith(250);
    await retry(on);
    expect(new Set(await statuses(on, 250))).toEqual(new Set(["failed"]));
    for (const done of [100, 200, 250]) {
      expect(storedIn(await rowOf(on)).retrying).toMatchObject({ done: Math.max(0, Math.ceil(done / 100) - 1) * 100 });
      await some(on, kids(250));
      expect((await statuses(on, 250)).filter((status) => status === "pending")).toHaveLength(done);
    }
    expect(storedIn(await rowOf(on))).not.toHaveProperty("retrying");
    // Once more changes nothing.
    const before = await rowOf(on);
    await some(on, kids(250));
    expect(await rowOf(on)).toEqual(before);
  });

  test("children of children share the room of the commit", async () => {
    const on = await failedWith(60);
    for (const { run } of kids(60)) {
      await start(on, { id: `${run}/x` });
      await fail(on, `${run}/x`);
      await on.kernel.transact((tx) => {
        const kid = tx.record(runAt(run));
        const children = [{ id: "x", run: `${run}/x` }];
        kid.write({ value: { ...(kid.value as RunValue), forgets: { facts: [], children } } });
      }, []);
    }
    await retry(on);
    expect(new Set(await statuses(on, 60))).toEqual(new Set(["pending"]));
    const below = await Promise.all(kids(60).map(async ({ run }) => (await rowOf(on, `${run}/x`)).status));
    expect(below.filter((status) => status === "pending")).toHaveLength(40);
    const left = await Promise.all(kids(60).map(async ({ run }) => storedIn(await rowOf(on, run)).retrying));
    expect(left.filter((retrying) => retrying !== undefined)).toHaveLength(20);
  });

  test("one that is gone, is being deleted, or has ended otherwise, is told instead", async () => {
    const on = await failedWith(4);
    await on.kernel.transact((tx) => {
      tx.record(runAt("one/kid#0")).remove();
      tx.record(runAt("one/kid#1")).write({ kind: deletingQueueOf("it") });
      tx.record(runAt("one/kid#2")).write({ status: "completed" });
    }, []);
    await retry(on);
    expect(await logOf(on, inboxAt("one", 1))).toEqual([
      // From before.
      ...kids(4).map(({ id }) => `child ${id}`),
      ...["child kid#0", "child kid#1", "child kid#2"],
    ]);
    expect(storedIn(await rowOf(on)).endingsAfter).toBe(4);
    expect((await rowOf(on, "one/kid#3")).status).toBe("pending");
  });
});

describe("resolving a step", () => {
  test.each(STATUSES)("of a run that is %s", async (status) => {
    const on = await runOf(status);
    if (status === "parked")
      await on.kernel.transact((tx) => void tx.record(runAt("one")).append("intent charge", {}), []);
    const before = await rowOf(on);
    const resolve = on.kernel.transact(
      (tx) => resolveStep(tx, "one", before.head, "charge", { done: true, value: 7 }),
      [],
    );
    if (status === "parked") {
      await resolve;
      expect(await logOf(on)).toEqual(["started", "intent charge", "step charge"]);
      expect(await rowOf(on)).toMatchObject({ status: "pending", dueMs: on.clock.wallMs() });
    } else {
      expect(await codeOf(resolve)).toBe("run_conflict");
      expect(await rowOf(on)).toEqual(before);
    }
  });
});

test("a step is not resolved on a history that has moved on since it was looked at", async () => {
  const on = await runOf("parked");
  const { head } = await rowOf(on);
  await on.kernel.transact((tx) => void tx.record(runAt("one")).append("parked", {}), []);
  const resolve = on.kernel.transact((tx) => resolveStep(tx, "one", head, "a", { done: false }), []);
  expect(await codeOf(resolve)).toBe("run_conflict");
});

describe("news for a parent", () => {
  const tell = (on: Bench, incarnation = 1) => {
    const parent = { run: "one", id: "child", incarnation, waits: true };
    return on.kernel.transact((tx) => notifyParent(tx, parent, "kid", { ok: 1 }), []);
  };

  test.each(STATUSES)("that is %s are kept, or nobody's any more", async (status) => {
    const on = await runOf(status);
    await tell(on);
    expect(await logOf(on, inboxAt("one", 1))).toEqual(ENDS.includes(status) ? [] : ["child child"]);
  });

  test("of an earlier incarnation, or one that is gone, are nobody's", async () => {
    const on = await runOf("waiting");
    await tell(on, 2);
    expect(await logOf(on, inboxAt("one", 1))).toEqual([]);
    const empty = bench();
    await tell(empty);
    expect(await logOf(empty, inboxAt("one", 1))).toEqual([]);
  });

  test("come with the commit that ends the child", async () => {
    const on = bench();
    await start(on);
    await start(on, { id: "kid", parent: { run: "one", id: "kid", incarnation: 1, waits: true } });
    await on.kernel.transact(
      (tx) => endRun(tx, tx.record(runAt("kid")), "kid", "completed", { ok: 1 }, { keptMs: null }),
      [],
    );
    expect(await rowOf(on, "kid")).toMatchObject({ status: "completed", dueMs: null });
    expect(await logOf(on, inboxAt("one", 1))).toEqual(["child kid"]);
  });

  test("do not come from a child that nobody waits for", async () => {
    const on = bench();
    await start(on);
    await start(on, { id: "kid", parent: { run: "one", id: "kid", incarnation: 1, waits: false } });
    await on.kernel.transact(
      (tx) => endRun(tx, tx.record(runAt("kid")), "kid", "completed", { ok: 1 }, { keptMs: null }),
      [],
    );
    expect(await logOf(on, inboxAt("one", 1))).toEqual([]);
  });
});

test.each([
  ["signal", (on: Bench) => on.kernel.transact((tx) => signalRun(tx, "one", { name: "go", payload: 1, id: "a" }), [])],
  ["cancel", (on: Bench) => on.kernel.transact((tx) => cancelRun(tx, "one", {}), [])],
  ["retry", (on: Bench) => on.kernel.transact((tx) => retryRun(tx, "one"), [])],
  ["resolve", (on: Bench) => on.kernel.transact((tx) => resolveStep(tx, "one", 1, "a", { done: false }), [])],
] as const)("%s: a run that does not exist is run_not_found, and nothing is made", async (_, act) => {
  const on = bench();
  expect(await codeOf(act(on))).toBe("run_not_found");
  expect(await on.kernel.read([runAt("one"), inboxAt("one", 1)])).toEqual([null, null]);
});
