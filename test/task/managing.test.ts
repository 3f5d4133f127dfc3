/**
 * What can be done with tasks: creating the same one again, limits, lists, notifications, sending dead ones again, and schedules.
 */

import { readFileSync } from "node:fs";
import { Webhook } from "standardwebhooks";
import { describe, expect, test, vi } from "vitest";
import {
  type CreatedTask,
  httpTask,
  type Pawl,
  schedule,
  type TaskInfo,
  type TaskOptions,
  workflow,
} from "../../src/index.ts";
import type { Codec } from "../../src/kernel/codec/codec.ts";
import { jsonCodec } from "../../src/kernel/codec/json.ts";
import { StoreError } from "../../src/kernel/errors.ts";
import { hash } from "../../src/kernel/fingerprint.ts";
import { sweepMark } from "../../src/task/records.ts";
import { keyAt, tokenAt } from "../../src/task/stored.ts";
import { checkToken } from "../../src/task/token.ts";
import { endRun, withoutStack } from "../../src/workflow/runs/end.ts";
import { startRun } from "../../src/workflow/runs/start.ts";
import { runAt } from "../../src/workflow/stored.ts";
import { onStores, PATIENCE } from "../workflow/kit.ts";
import { type Behavior, ended, KEYS, receiver, reply, SECRET, silence, TASKS, tokenOf } from "./kit.ts";

const URL_TEXT = "https://example.com/hook";
const QUICK = { delay: 1, maxDelay: 1 };
const COMPLETED = { status: "completed", value: 1 } as const;

const idsOf = (tasks: readonly TaskInfo[]): string[] => tasks.map(({ id }) => id);

/** Ends a task as its worker would, where there is none. */
const fail = (pawl: Pawl, id: string): Promise<void> =>
  pawl.kernel.transact(
    (tx) => endRun(tx, tx.record(runAt(id)), id, "failed", { error: withoutStack(new Error("no")) }),
    [runAt(id)],
  );

onStores(["memory", "SQLite", "PostgreSQL"], (place) => {
  test("the same idempotency key with the same request is the same task, with the same token", async () => {
    const pawl = await place.open(KEYS);
    const options = { targetUrl: URL_TEXT, body: { a: 1, b: 2 }, idempotencyKey: "order-1", waitForSignal: true };
    const first = await pawl.tasks.create(options);
    const other = await place.open(KEYS);
    const again = await Promise.all(
      Array.from({ length: 5 }, () => other.tasks.create({ ...options, body: { a: 1, b: 2 }, method: "post" })),
    );
    for (const one of again) expect(one).toEqual({ ...first, isNew: false });
    await pawl.tasks.signal(tokenOf(first), COMPLETED);
    expect(await other.tasks.create(options)).toMatchObject({
      signalToken: first.signalToken,
      task: { status: "completed" },
    });
    expect(idsOf((await pawl.tasks.list()).tasks)).toEqual([first.task.id]);
  });

  test.each([{ id: "t" }, { idempotencyKey: "k" }, { id: "t", idempotencyKey: "k" }])(
    "a task that one commit creates twice with %o is the same task, with the same token",
    async (names) => {
      const pawl = await place.open(KEYS);
      for (const waitForSignal of [true, false]) {
        const named = Object.fromEntries(Object.entries(names).map(([name, text]) => [name, text + waitForSignal]));
        const options = { targetUrl: URL_TEXT, waitForSignal, body: "x".repeat(5000), ...named };
        const [first, again] = await pawl.transact(
          (tx) => [tx.tasks.create(options), tx.tasks.create(options)] as const,
        );
        expect(first.isNew).toBe(true);
        expect(again).toEqual({ ...first, isNew: false });
        expect(await pawl.tasks.create(options)).toEqual(again);
        if (waitForSignal) expect(await pawl.tasks.signal(tokenOf(again), COMPLETED)).toMatchObject({ isNew: true });
      }
    },
  );

  test("of concurrent creations with one key, one is new", async () => {
    const pawl = await place.open(KEYS);
    const other = await place.open(KEYS);
    const options = { targetUrl: URL_TEXT, idempotencyKey: "k", waitForSignal: true };
    const all = await Promise.all(
      Array.from({ length: 20 }, (_, n) => (n % 2 === 0 ? pawl : other).tasks.create(options)),
    );
    expect(all.filter(({ isNew }) => isNew)).toHaveLength(1);
    expect(new Set(all.map(({ signalToken }) => signalToken)).size).toBe(1);
    expect(new Set(all.map(({ task }) => task.id)).size).toBe(1);
  });

  test("at most `max` tasks of a key are under way; the others begin in order", async () => {
    const pawl = await place.open();
    pawl.work([TASKS]);
    let open = 0;
    let most = 0;
    const slow: Behavior = (response) => {
      open += 1;
      most = Math.max(most, open);
      setTimeout(() => {
        open -= 1;
        response.end();
      }, 5);
    };
    const { url, seen } = await receiver(slow);
    const all: CreatedTask[] = [];
    for (let n = 0; n < 8; n++)
      all.push(await pawl.tasks.create({ targetUrl: url, body: { n }, concurrency: { key: "vendor", max: 2 } }));
    for (const created of all) expect((await ended(pawl, created)).status).toBe("completed");
    expect(most).toBeLessThanOrEqual(2);
    expect(seen).toHaveLength(8);
    // Another key does not wait.
    await ended(pawl, await pawl.tasks.create({ targetUrl: url, concurrency: { key: "other", max: 1 } }));
  });

  test("notifications are signed, retried, and in order, with a stable id", async () => {
    const pawl = await place.open(KEYS);
    pawl.work([TASKS]);
    const { url } = await receiver(reply(404));
    const inbox = await receiver(reply(500), reply());
    const created = await pawl.tasks.create({ id: "t", targetUrl: url, onCompleteUrl: inbox.url });
    expect((await ended(pawl, created)).status).toBe("failed");
    // While the first notification is being tried again, the task ends for the second time.
    await expect.poll(() => inbox.seen.length, PATIENCE).toBe(1);
    await pawl.tasks.redrive("t");
    expect((await ended(pawl, created)).status).toBe("failed");
    await expect
      .poll(async () => (await pawl.tasks.deliveries("t")).map(({ status }) => status), PATIENCE)
      .toEqual(["completed", "completed"]);
    const ids = inbox.seen.map(({ headers }) => headers["webhook-id"]);
    expect(ids).toEqual([ids[0], ids[0], ids[2]]);
    expect(ids[2]).not.toBe(ids[0]);
    const deliveries = await pawl.tasks.deliveries("t");
    expect(deliveries).toMatchObject([
      { id: ids[0], url: inbox.url, attempts: 2, lastStatus: 200, lastError: null },
      { id: ids[2], url: inbox.url, attempts: 1, lastStatus: 200 },
    ]);
    for (const { body, headers } of inbox.seen) {
      const said = new Webhook(SECRET).verify(body, headers as Record<string, string>);
      expect(said).toMatchObject({ type: "task.failed", data: { id: "t", status: "failed", by: "response" } });
    }
  });

  test.each(["cancel", "signal", "timeout"] as const)(
    "a task that ends by %s is notified, also if it had not begun",
    async (how) => {
      const pawl = await place.open(KEYS);
      pawl.work([TASKS]);
      const { url } = await receiver();
      const inbox = await receiver();
      const created = await pawl.tasks.create({
        targetUrl: url,
        onCompleteUrl: inbox.url,
        waitForSignal: true,
        ...(how === "timeout" ? { maxWaitTime: 5 } : { delay: "1 hour" }),
      });
      if (how === "cancel") await pawl.tasks.cancel(created.task.id, { reason: "no" });
      if (how === "signal") await pawl.tasks.signal(tokenOf(created), { status: "completed", value: { big: 5n } });
      const { outcome, id } = await ended(pawl, created);
      await expect.poll(() => inbox.seen.length, PATIENCE).toBe(1);
      const said = JSON.parse(inbox.seen[0]?.body ?? "");
      expect(said).toMatchObject({
        type: `task.${{ cancel: "canceled", signal: "completed", timeout: "timed_out" }[how]}`,
        data: { id, status: outcome?.status, by: outcome?.by, at: outcome?.at.toISOString() },
      });
      await expect.poll(async () => (await pawl.tasks.deliveries(id))[0]?.status, PATIENCE).toBe("completed");
    },
  );

  test("dead tasks are sent again, with the same key and token, and count on", async () => {
    const pawl = await place.open(KEYS);
    pawl.work([TASKS]);
    const { url, seen, behave } = await receiver(reply(400));
    const created = await pawl.tasks.create({ targetUrl: url, waitForSignal: true, tags: ["a"], idempotencyKey: "k" });
    expect((await ended(pawl, created)).status).toBe("failed");
    const { outcome } = await pawl.tasks.get(created.task.id);
    await expect(pawl.tasks.signal(tokenOf(created), COMPLETED)).rejects.toMatchObject({ data: { outcome } });
    behave(reply());
    const again = await pawl.tasks.redrive(created.task.id);
    expect(again).toMatchObject({ id: created.task.id, outcome: null, tags: ["a"] });
    await expect.poll(() => seen.length, PATIENCE).toBe(2);
    expect(seen.map(({ attempt }) => attempt)).toEqual([1, 2]);
    expect(seen[1]?.key).toBe(seen[0]?.key);
    expect(seen[1]?.fence).toBeGreaterThan(seen[0]?.fence ?? 0);
    expect(seen[1]?.headers["pawl-signal-token"]).toBe(created.signalToken);
    await pawl.tasks.signal(tokenOf(created), COMPLETED);
    expect(await pawl.tasks.get(created.task.id)).toMatchObject({ status: "completed" });
    await expect(pawl.tasks.redrive(created.task.id)).rejects.toMatchObject({ code: "task_not_dead" });
    expect(
      (await pawl.tasks.create({ targetUrl: url, waitForSignal: true, tags: ["a"], idempotencyKey: "k" })).isNew,
    ).toBe(false);
  });

  test("the token of a task that was deleted is no token, also where another task has its id", async () => {
    const pawl = await place.open(KEYS);
    const options = { id: "t", targetUrl: URL_TEXT, waitForSignal: true, body: "first" };
    const first = await pawl.tasks.create(options);
    const gone = async (): Promise<void> => {
      const refused = { code: "token_not_found" };
      await expect(pawl.tasks.signal(tokenOf(first), COMPLETED)).rejects.toMatchObject(refused);
      const decided = pawl.transact((tx) => void tx.tasks.signal(tokenOf(first), COMPLETED));
      await expect(decided).rejects.toMatchObject(refused);
      expect(await pawl.tasks.trySignal(tokenOf(first), COMPLETED)).toEqual({ ok: false, ...refused });
    };
    await pawl.tasks.signal(tokenOf(first), COMPLETED);
    await pawl.runs.delete("t");
    await gone();
    const second = await pawl.tasks.create({ ...options, body: "second" });
    expect(second.isNew).toBe(true);
    await gone();
    expect((await pawl.tasks.get("t")).outcome).toBeNull();
    await pawl.tasks.signal(tokenOf(second), COMPLETED);
    expect(await pawl.tasks.get("t")).toMatchObject({ status: "completed" });
    await gone();
  });

  test("the token of a task settles no run that was started by name in its place", async () => {
    const pawl = await place.open(KEYS);
    const first = await pawl.tasks.create({ id: "t", targetUrl: URL_TEXT, waitForSignal: true });
    await pawl.tasks.signal(tokenOf(first), COMPLETED);
    await pawl.start("pawl.task", { targetUrl: URL_TEXT }, { id: "t", ifExists: "restart" });
    await expect(pawl.tasks.signal(tokenOf(first), COMPLETED)).rejects.toMatchObject({ code: "token_not_found" });
    expect((await pawl.tasks.get("t")).outcome).toBeNull();
  });

  test("a token of an earlier version, whose run does not have it, is valid, also after the task was sent again", async () => {
    const pawl = await place.open(KEYS);
    const { task, signalToken } = await pawl.tasks.create({ id: "t", targetUrl: URL_TEXT, waitForSignal: true });
    const token = tokenAt(checkToken(signalToken));
    await pawl.kernel.transact(
      (tx) => {
        const { tokenHash: _, ...value } = tx.record(runAt("t")).value as Record<string, unknown>;
        tx.record(runAt("t")).write({ value });
        tx.record(token).write({ value: { task: task.id } });
      },
      [runAt("t"), token],
    );
    await fail(pawl, "t");
    const signal = () => pawl.tasks.trySignal(signalToken ?? "", COMPLETED);
    expect(await signal()).toMatchObject({ ok: false, code: "task_settled" });
    await pawl.tasks.redrive("t");
    expect(await signal()).toMatchObject({ ok: true, task: "t" });
  });

  test("a task that is sent again stays where it was in lists", async () => {
    const pawl = await place.open();
    for (const id of ["b", "a", "c"]) await pawl.tasks.create({ id, targetUrl: URL_TEXT });
    await fail(pawl, "b");
    const before = await pawl.tasks.get("b");
    expect((await pawl.tasks.redrive("b")).createdAt).toEqual(before.createdAt);
    for (const order of ["oldest", "newest", "id"] as const) {
      const ids = { oldest: ["b", "a", "c"], newest: ["c", "a", "b"], id: ["a", "b", "c"] }[order];
      expect(idsOf((await pawl.tasks.list({ order })).tasks)).toEqual(ids);
    }
  });

  test("all dead tasks that a filter lets through are sent again, once each", async () => {
    const pawl = await place.open();
    pawl.work([TASKS]);
    const { url, seen, behave } = await receiver(reply(400));
    const all = await Promise.all(
      Array.from({ length: 12 }, (_, n) =>
        pawl.tasks.create({ id: `t${n}`, targetUrl: url, tags: [n % 2 === 0 ? "even" : "odd"] }),
      ),
    );
    for (const created of all) await ended(pawl, created);
    behave(reply());
    const redriven = await Promise.all([
      pawl.tasks.redriveAll({ tag: "even" }),
      pawl.tasks.redriveAll({ tag: "even" }),
    ]);
    expect(redriven.reduce((sum, one) => sum + one.redriven, 0)).toBe(6);
    for (const created of all) await ended(pawl, created);
    expect((await pawl.tasks.list({ status: "completed" })).tasks.every(({ tags }) => tags.includes("even"))).toBe(
      true,
    );
    expect(seen).toHaveLength(18);
    expect(await pawl.tasks.redriveAll({ status: "timed_out" })).toEqual({ redriven: 0, unreadable: [] });
    const before = await pawl.tasks.get("t1");
    expect(await pawl.tasks.redriveAll()).toEqual({ redriven: 6, unreadable: [] });
    expect((await pawl.tasks.get("t1")).createdAt).toEqual(before.createdAt);
  });

  test("a dead task that cannot be read does not keep the others from being sent again", async () => {
    const pawl = await place.open();
    pawl.work([TASKS]);
    const { url, behave } = await receiver(reply(400));
    for (const id of ["a", "b"]) await ended(pawl, await pawl.tasks.create({ id, targetUrl: url }));
    // As an older version stored it, which did not check what is started by its name.
    await pawl.kernel.transact(
      (tx) => {
        const request = {
          id: "bad",
          workflow: "pawl.task",
          input: { target: "x" },
          fingerprint: null,
          timeoutMs: null,
        };
        startRun(tx, { ...request, ifExists: "join" });
        endRun(tx, tx.record(runAt("bad")), "bad", "failed", { error: withoutStack(new Error("no")) });
      },
      [runAt("bad")],
    );
    behave(reply());
    const { redriven, unreadable } = await pawl.tasks.redriveAll();
    expect(redriven).toBe(2);
    expect(unreadable).toEqual([{ id: "bad", reason: expect.stringContaining('must not have "target"') }]);
    await expect(pawl.tasks.get("bad")).rejects.toMatchObject({ code: "run_unreadable" });
    await expect(pawl.tasks.redrive("bad")).rejects.toMatchObject({ code: "run_unreadable" });
    expect((await pawl.tasks.list()).unreadable).toMatchObject([{ id: "bad" }]);
  });

  test("the request of a task is checked wherever its workflow is named", async () => {
    const pawl = await place.open();
    const bad = { target: "x" };
    const stored = { url: URL_TEXT, headers: { host: "other" } };
    for (const input of [bad, stored, undefined]) {
      const refused = { code: "schema_mismatch" };
      await expect(pawl.schedules.create("s", { every: "1h" }, "pawl.task", input)).rejects.toMatchObject(refused);
      await expect(pawl.start("pawl.task", input)).rejects.toMatchObject(refused);
      await expect(pawl.transact((tx) => void tx.start("pawl.task", input))).rejects.toMatchObject(refused);
    }
    await pawl.schedules.create("s", { every: "1h" }, "pawl.task", { targetUrl: URL_TEXT });
    await expect(pawl.schedules.update("s", { input: bad })).rejects.toMatchObject({ code: "schema_mismatch" });
    await pawl.schedules.update("s", { input: { targetUrl: `${URL_TEXT}/2` } });
    const { run } = await pawl.schedules.trigger("s");
    expect(await pawl.tasks.get(run)).toMatchObject({ targetUrl: `${URL_TEXT}/2` });
  });

  test("the workflow of notifications cannot be started from outside, whatever names it", async () => {
    const pawl = await place.open();
    const { url } = await receiver();
    const inbox = await receiver();
    const name = "pawl.task.delivery";
    const same = workflow(name, async () => {});
    const parent = workflow("parent", async (ctx) => ctx.call(same));
    pawl.work([TASKS, parent]);
    const refused = { code: "invalid_argument", message: expect.stringContaining(`must not be "${name}"`) };
    for (const input of [undefined, null, 5, {}, { task: "t", url: inbox.url, key: "k", body: "forged" }]) {
      await expect(pawl.start(name, input)).rejects.toMatchObject(refused);
      await expect(pawl.transact((tx) => void tx.start(name, input))).rejects.toMatchObject(refused);
      await expect(pawl.schedules.create("s", { every: "1h" }, name, input)).rejects.toMatchObject(refused);
    }
    await expect(pawl.start(same)).rejects.toMatchObject(refused);
    expect(() => schedule("s", { every: "1h" }, same)).toThrow(name);
    await expect((await pawl.start(parent)).result({ timeout: "60s" })).rejects.toMatchObject({
      code: "run_failed",
      message: expect.stringContaining(name),
    });
    await ended(pawl, await pawl.tasks.create({ id: "t", targetUrl: url, onCompleteUrl: inbox.url }));
    await expect.poll(async () => (await pawl.tasks.deliveries("t"))[0]?.status, PATIENCE).toBe("completed");
    expect(inbox.seen).toHaveLength(1);
  });

  test("a schedule creates tasks", async () => {
    const pawl = await place.open();
    const { url, seen } = await receiver();
    const hourly = schedule("sync", { every: "1 hour", overlap: "skip" }, httpTask, {
      targetUrl: url,
      body: { full: true },
    });
    pawl.work([TASKS, hourly]);
    await pawl.schedules.create("at-run-time", { every: "1 hour" }, httpTask, { targetUrl: url });
    await expect.poll(async () => (await pawl.schedules.list()).schedules.length, PATIENCE).toBe(2);
    for (const name of ["sync", "at-run-time"]) {
      const { run } = (await pawl.schedules.trigger(name)) as { run: string };
      expect(await pawl.tasks.get(run, { wait: "60s" })).toMatchObject({ status: "completed", targetUrl: url });
    }
    expect(seen.map(({ body }) => body)).toEqual(['{"full":true}', ""]);
    expect(new Set(seen.map(({ key }) => key)).size).toBe(2);
  });

  test("a workflow can call one", async () => {
    const pawl = await place.open();
    const { url } = await receiver(reply(200, "from outside"));
    const parent = workflow("parent", async (ctx, target: string) => {
      const { value } = await ctx.call(httpTask, { targetUrl: target, retry: QUICK });
      return value?.body;
    });
    pawl.work([TASKS, parent]);
    expect(await (await pawl.start(parent, url)).result({ timeout: "60s" })).toBe("from outside");
  });
});

describe("creating", () => {
  onStores(["memory"], (place) => {
    test("another request under an idempotency key is refused", async () => {
      const pawl = await place.open(KEYS);
      const first: TaskOptions = { targetUrl: URL_TEXT, body: "a", idempotencyKey: "k" };
      await pawl.tasks.create(first);
      const others: Partial<TaskOptions>[] = [
        { body: "b" },
        { targetUrl: `${URL_TEXT}2` },
        { method: "PUT" },
        { headers: { a: "b" } },
        { tags: ["t"] },
        { delay: 5 },
        { priority: 1 },
        { id: "other" },
        { waitForSignal: true },
        { onCompleteUrl: URL_TEXT },
        { retry: { attempts: 2 } },
      ];
      for (const other of others)
        await expect(pawl.tasks.create({ ...first, ...other })).rejects.toMatchObject({ code: "idempotency_mismatch" });
      expect((await pawl.tasks.list()).tasks).toHaveLength(1);
    });

    test("the same id is the same task, and another request under it is refused", async () => {
      const pawl = await place.open(KEYS);
      const options = { id: "t", targetUrl: URL_TEXT, waitForSignal: true };
      const first = await pawl.tasks.create(options);
      expect(await pawl.tasks.create(options)).toEqual({ ...first, isNew: false });
      await expect(pawl.tasks.create({ ...options, body: "b" })).rejects.toMatchObject({
        code: "run_conflict",
        message: expect.stringMatching(/^task "/),
      });
      await pawl.start("other", undefined, { id: "r" });
      await expect(pawl.tasks.create({ id: "r", targetUrl: URL_TEXT })).rejects.toMatchObject({ code: "run_conflict" });
      for (const id of ["r", "none"])
        for (const verb of ["get", "cancel", "redrive", "attempts", "deliveries"] as const)
          await expect(pawl.tasks[verb](id)).rejects.toMatchObject({ code: "task_not_found" });
    });

    test("the key of a task that was deleted is free again", async () => {
      const pawl = await place.open();
      const options = { targetUrl: URL_TEXT, idempotencyKey: "k" };
      const first = await pawl.tasks.create(options);
      await pawl.tasks.cancel(first.task.id);
      await pawl.runs.delete(first.task.id);
      expect(await pawl.tasks.create({ ...options, body: "new" })).toMatchObject({ isNew: true });
    });

    test("the key of a task that was deleted never finds what has its id by now", async () => {
      const pawl = await place.open(KEYS);
      const options = { targetUrl: URL_TEXT, waitForSignal: true };
      const create = () => pawl.tasks.create({ ...options, idempotencyKey: "k" });
      const first = await create();
      const { id } = first.task;
      await pawl.tasks.cancel(id);
      await pawl.runs.delete(id);
      const other = await pawl.tasks.create({ ...options, id, body: "of another" });
      expect(other.isNew).toBe(true);
      const again = await create();
      expect(again.isNew).toBe(true);
      expect(again.task.id).not.toBe(id);
      expect(again.signalToken).not.toBe(other.signalToken);
      // From now on it is the key of that one.
      expect(await create()).toEqual({ ...again, isNew: false });
      await pawl.tasks.cancel(again.task.id);
      await pawl.runs.delete(again.task.id);
      await pawl.start("other", undefined, { id: again.task.id });
      expect((await create()).task.id).not.toBe(again.task.id);
    });

    test("a key with an id is that of the task with this id, or a conflict", async () => {
      const pawl = await place.open();
      const keyed = { id: "t", targetUrl: URL_TEXT, idempotencyKey: "k" };
      const recreate = async (options: TaskOptions): Promise<void> => {
        await pawl.tasks.cancel("t");
        await pawl.runs.delete("t");
        expect((await pawl.tasks.create(options)).isNew).toBe(true);
      };
      await pawl.tasks.create(keyed);
      await recreate({ id: "t", targetUrl: URL_TEXT });
      expect(await pawl.tasks.create(keyed)).toMatchObject({ isNew: false, task: { id: "t" } });
      await recreate({ id: "t", targetUrl: URL_TEXT, body: "other" });
      await expect(pawl.tasks.create(keyed)).rejects.toMatchObject({ code: "run_conflict" });
    });

    test("begins later, or at a time", async () => {
      const pawl = await place.open();
      pawl.work([TASKS]);
      const later = await pawl.tasks.create({ targetUrl: "https://example.com/", delay: "1 hour" });
      expect(later.task.scheduledAt?.getTime()).toBe(later.task.createdAt.getTime() + 3_600_000);
      const at = new Date(Date.now() + 86_400_000);
      expect((await pawl.tasks.create({ targetUrl: URL_TEXT, at })).task.scheduledAt).toEqual(at);
      const { url } = await receiver();
      const soon = await pawl.tasks.create({ targetUrl: url, delay: 5 });
      expect((await ended(pawl, soon)).status).toBe("completed");
    });

    test("a task of a higher priority goes first in line", async () => {
      const pawl = await place.open();
      pawl.work([TASKS]);
      const gate = Promise.withResolvers<void>();
      const { url, seen } = await receiver((response) => void gate.promise.then(() => response.end()), reply());
      const concurrency = { key: "k", max: 1 };
      const create = (body: string, priority: number) =>
        pawl.tasks.create({ targetUrl: url, body, priority, concurrency });
      const all = [await create("first", 0), await create("low", 0), await create("high", 10)];
      expect(all.map(({ task }) => task.status)).toEqual(["running", "queued", "queued"]);
      gate.resolve();
      for (const created of all) await ended(pawl, created);
      expect(seen.map(({ body }) => body)).toEqual(["first", "high", "low"]);
    });

    test("at most `max` begin in a time; the others have their turn later", async () => {
      const pawl = await place.open();
      pawl.work([TASKS]);
      const { url, seen } = await receiver();
      const rateLimit = { key: "k", max: 2, per: "1 hour" };
      const all = [];
      for (let n = 0; n < 3; n++) all.push(await pawl.tasks.create({ targetUrl: url, rateLimit }));
      for (const created of all.slice(0, 2)) await ended(pawl, created);
      expect((await pawl.run(all[2]?.task.id ?? "").status()).dueAt?.getTime()).toBeGreaterThan(Date.now() + 1_000_000);
      expect(seen).toHaveLength(2);
    });

    test("a creation is one commit, and so is a call that succeeds", async () => {
      const { pawl, commits } = await place.openHandle(KEYS);
      pawl.work([TASKS]);
      const gate = Promise.withResolvers<void>();
      const { url } = await receiver((response) => void gate.promise.then(() => response.end()));
      const before = commits();
      const created = await pawl.tasks.create({ targetUrl: url });
      expect(commits() - before).toBe(1);
      gate.resolve();
      await ended(pawl, created);
      expect(commits() - before).toBe(2);
    });
  });
});

describe("lists", () => {
  onStores(["memory"], (place) => {
    test("by status, tag and prefix, in pages", async () => {
      const pawl = await place.open();
      for (let n = 0; n < 7; n++)
        await pawl.tasks.create({ id: `${n % 2 === 0 ? "a" : "b"}${n}`, targetUrl: URL_TEXT, tags: [`t${n % 3}`] });
      await pawl.start("other", undefined, { id: "a-run" });
      await pawl.tasks.cancel("a0");
      const list = async (options?: Parameters<Pawl["tasks"]["list"]>[0]) =>
        idsOf((await pawl.tasks.list(options)).tasks);
      expect(await list()).toEqual(["a6", "b5", "a4", "b3", "a2", "b1", "a0"]);
      expect(await list({ order: "oldest", status: "pending" })).toEqual(["b1", "a2", "b3", "a4", "b5", "a6"]);
      expect(await list({ status: ["canceled", "completed"] })).toEqual(["a0"]);
      expect(await list({ tag: "t1", order: "id" })).toEqual(["a4", "b1"]);
      expect(await list({ prefix: "b", order: "id" })).toEqual(["b1", "b3", "b5"]);
      const first = await pawl.tasks.list({ limit: 4 });
      const second = await pawl.tasks.list({ limit: 4, after: first.next });
      expect([...idsOf(first.tasks), ...idsOf(second.tasks)]).toEqual(await list());
      expect(second.next).toBeNull();
    });

    test("a task that no codec here can decode is listed as such, and keeps no other from being sent again", async () => {
      const codec: Codec = {
        encode: (value, at) => jsonCodec.encode(value, at),
        decode: (text, at) => {
          if (at.key === "bad") throw new Error("sealed with another key");
          return jsonCodec.decode(text, at);
        },
      };
      const pawl = await place.open();
      for (const id of ["a", "bad", "c"]) {
        await pawl.tasks.create({ id, targetUrl: URL_TEXT });
        await fail(pawl, id);
      }
      const other = await place.open({ codec });
      const unreadable = [{ id: "bad", reason: expect.stringContaining("sealed with another key") }];
      const listed = await other.tasks.list({ order: "id" });
      expect([idsOf(listed.tasks), listed.unreadable]).toEqual([["a", "c"], unreadable]);
      expect(await other.tasks.redriveAll()).toEqual({ redriven: 2, unreadable });
    });

    test("a store that fails is an error, and not a list of tasks that cannot be read", async () => {
      const pawl = await place.open();
      await pawl.tasks.create({ targetUrl: URL_TEXT });
      const gone = new StoreError("store_unreachable", "retry", "the server cannot be reached");
      const reading = vi.spyOn(pawl.kernel, "entries").mockRejectedValue(gone);
      await expect(pawl.tasks.list()).rejects.toBe(gone);
      reading.mockRestore();
      expect((await pawl.tasks.list()).tasks).toHaveLength(1);
    });

    test("waiting for a task ends with its time, and with its caller", async () => {
      const pawl = await place.open();
      const { task } = await pawl.tasks.create({ targetUrl: URL_TEXT });
      expect((await pawl.tasks.get(task.id, { wait: 5 })).status).toBe("pending");
      const abort = new AbortController();
      const waiting = pawl.tasks.get(task.id, { wait: "1 hour", abortSignal: abort.signal });
      abort.abort(new Error("gone"));
      await expect(waiting).rejects.toThrow("gone");
    });
  });
});

describe("notifications", () => {
  onStores(["memory"], (place) => {
    test("one that is given up is visible, and the task has its outcome all the same", async () => {
      const pawl = await place.open();
      pawl.work([TASKS]);
      const { url } = await receiver();
      const gone = await receiver(reply(410, "gone"));
      const created = await pawl.tasks.create({ targetUrl: url, onCompleteUrl: gone.url });
      const task = await ended(pawl, created);
      await expect.poll(async () => (await pawl.tasks.deliveries(task.id))[0]?.status, PATIENCE).toBe("failed");
      expect(await pawl.tasks.deliveries(task.id)).toMatchObject([{ attempts: 1, lastStatus: 410, deliveredAt: null }]);
      expect((await pawl.tasks.get(task.id)).outcome).toEqual(task.outcome);
      expect(gone.seen).toHaveLength(1);
    });

    test("a task that is sent again before its end was notified is notified of it all the same", async () => {
      const pawl = await place.open();
      const inbox = await receiver();
      const created = await pawl.tasks.create({ id: "t", targetUrl: URL_TEXT, onCompleteUrl: inbox.url });
      await fail(pawl, "t");
      await pawl.tasks.redrive("t");
      await pawl.tasks.cancel("t");
      pawl.work([TASKS]);
      await expect.poll(() => inbox.seen.length, PATIENCE).toBe(2);
      const types = inbox.seen.map(({ body }) => JSON.parse(body).type);
      expect(types).toEqual(["task.failed", "task.canceled"]);
      expect((await pawl.tasks.get(created.task.id)).status).toBe("canceled");
    });

    test("no run that is started beforehand, under whatever id, keeps a task from being notified or sent again", async () => {
      const pawl = await place.open();
      pawl.work([TASKS]);
      const { url } = await receiver(reply(404));
      const inbox = await receiver();
      for (let end = 1; end <= 3; end++)
        await pawl.start("other", end, { id: `delivery/${hash("t")}/000000000${end}` });
      const created = await pawl.tasks.create({ id: "t", targetUrl: url, onCompleteUrl: inbox.url });
      for (let end = 1; end <= 2; end++) {
        expect((await ended(pawl, created)).status).toBe("failed");
        await expect
          .poll(async () => (await pawl.tasks.deliveries("t")).map(({ status }) => status), PATIENCE)
          .toEqual(Array.from({ length: end }, () => "completed"));
        await pawl.tasks.redrive("t");
      }
    });

    test("a task is notified although a notification of one that had its id before is still there", async () => {
      const pawl = await place.open();
      // The versions of a record begin again a week after its deletion, and so do the numbers of the ends.
      const id = `delivery/${hash("t")}/0000000001`;
      const input = { task: "t", url: URL_TEXT, key: "msg_before_1", body: "{}" };
      const before = { id, workflow: "pawl.task.delivery", input, fingerprint: "before", timeoutMs: null } as const;
      await pawl.kernel.transact((tx) => startRun(tx, { ...before, ifExists: "join" }), [runAt(id)]);
      await pawl.tasks.create({ id: "t", targetUrl: URL_TEXT, onCompleteUrl: URL_TEXT });
      await fail(pawl, "t");
      // This notifies of the end.
      await pawl.tasks.redrive("t");
      expect((await pawl.tasks.deliveries("t")).map(({ id }) => id)).toEqual([
        "msg_before_1",
        expect.stringMatching(/^msg_[0-9a-f]{32}_1$/),
      ]);
    });

    test("of more than a hundred, the last are listed", async () => {
      const pawl = await place.open();
      await pawl.tasks.create({ id: "t", targetUrl: URL_TEXT, onCompleteUrl: URL_TEXT });
      for (let end = 1; end <= 103; end++) {
        await fail(pawl, "t");
        await pawl.tasks.redrive("t");
      }
      const ids = (await pawl.tasks.deliveries("t")).map(({ id }) => Number(id.split("_").at(-1)));
      // The 104th end is still to come.
      expect([ids.length, ids[0], ids.at(-1)]).toEqual([99, 5, 103]);
    });

    test("a run that is canceled as a run is notified as a task", async () => {
      const pawl = await place.open();
      pawl.work([TASKS]);
      const { url, seen } = await receiver(silence);
      const inbox = await receiver();
      const { task } = await pawl.tasks.create({ targetUrl: url, onCompleteUrl: inbox.url });
      await expect.poll(() => seen.length, PATIENCE).toBe(1);
      await pawl.run(task.id).cancel({ reason: "by hand" });
      await expect.poll(() => inbox.seen.length, PATIENCE).toBe(1);
      expect(JSON.parse(inbox.seen[0]?.body ?? "")).toMatchObject({
        type: "task.canceled",
        data: { reason: "by hand" },
      });
    });
  });
});

describe("what is beside a task", () => {
  onStores(["memory"], (place) => {
    test("is removed once the task is gone, and not before", async () => {
      const pawl = await place.open(KEYS);
      const options = {
        id: "t",
        targetUrl: URL_TEXT,
        waitForSignal: true,
        idempotencyKey: "k",
        onCompleteUrl: URL_TEXT,
      };
      const { pawl: other } = await place.openHandle(KEYS);
      const token = tokenOf(await pawl.tasks.create(options));
      const marks = [keyAt("k"), tokenAt(checkToken(token))];
      const sweep = () =>
        pawl.kernel.transact((tx) => {
          for (const at of marks) tx.record(at).write({ dueMs: tx.nowMs });
          return marks.map((at) => sweepMark(tx, at));
        }, marks);
      expect(await sweep()).toEqual([false, false]);
      expect((await other.tasks.create(options)).signalToken).toBe(token);
      await pawl.tasks.cancel("t");
      await pawl.runs.delete("t");
      expect(await sweep()).toEqual([true, true]);
      await expect(pawl.tasks.signal(token, COMPLETED)).rejects.toMatchObject({ code: "token_not_found" });
    });
  });
});

describe("what is stored", () => {
  onStores(["SQLite"], (place) => {
    test("a target that returns what it got puts no token into the database, or into what anyone can read", async () => {
      const pawl = await place.open(KEYS);
      pawl.work([TASKS]);
      const inbox = await receiver();
      const echo: Behavior = (response, { attempt, headers }) => {
        const token = String(headers["pawl-signal-token"]);
        const escaped = [...token].map((char) => `%${char.charCodeAt(0).toString(16)}`).join("");
        const echoed = JSON.stringify({ headers, escaped });
        const body = `${echoed}${".".repeat(16 * 1024 - echoed.length - 40)}${token}${token}`;
        response.writeHead(attempt === 1 ? 500 : 404, {
          "x-echo": token,
          "x-long": "x".repeat(970) + token,
          [`x-${token}`]: "1",
        });
        response.end(body);
      };
      const { url, seen } = await receiver(echo);
      const options = { targetUrl: url, waitForSignal: true, onCompleteUrl: inbox.url, retry: QUICK };
      const created = await pawl.tasks.create(options);
      const { id } = await ended(pawl, created);
      await expect.poll(async () => (await pawl.tasks.deliveries(id))[0]?.status, PATIENCE).toBe("completed");
      expect(seen.map(({ headers }) => headers["pawl-signal-token"])).toEqual(Array(2).fill(created.signalToken));
      const dump = ["", "-wal"].map((end) => readFileSync(`${place.where}${end}`, "latin1")).join("");
      const shown = await Promise.all([
        pawl.tasks.get(id),
        pawl.tasks.attempts(id),
        pawl.run(id).history(),
        inbox.seen,
      ]);
      const start = tokenOf(created).slice(4, 12);
      for (const text of [dump, ...shown.map((one) => JSON.stringify(one))]) {
        expect(text).toContain("[signal token]");
        for (const written of [start, start.toLowerCase()]) expect(text).not.toContain(written);
        expect(text).not.toContain("%73%69%67%5f");
      }
    });

    test("a stolen database has no token, also after it was shown again", async () => {
      const pawl = await place.open(KEYS);
      pawl.work([TASKS]);
      const { url } = await receiver();
      const options = { targetUrl: url, waitForSignal: true, idempotencyKey: "k", onCompleteUrl: url };
      const created = await pawl.tasks.create(options);
      await pawl.tasks.create(options);
      const token = tokenOf(created);
      await pawl.tasks.signal(token, COMPLETED);
      await expect
        .poll(async () => (await pawl.tasks.deliveries(created.task.id))[0]?.status, PATIENCE)
        .toBe("completed");
      const dump = ["", "-wal"].map((end) => readFileSync(`${place.where}${end}`, "latin1")).join("");
      const [, random = ""] = /^sig_([\w-]{43})/.exec(token) ?? [];
      expect(dump).toContain(created.task.id);
      expect(random).toHaveLength(43);
      expect(dump).not.toContain(random);
      expect(dump).not.toContain(Buffer.from(random, "base64url").toString("latin1"));
    });
  });
});
