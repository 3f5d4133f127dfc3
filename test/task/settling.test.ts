/**
 * Settling: a response, a signal, the timeout and a cancellation have one outcome, and every caller gets it (G15).
 *
 * The rule is a table in `src/task/decide.test.ts`; here it is met with real processes and stores, in all orders and concurrently.
 */

import { describe, expect, test } from "vitest";
import type { CreatedTask, Pawl, TaskOutcome } from "../../src/index.ts";
import { onStores, PATIENCE } from "../workflow/kit.ts";
import { ended, KEYS, receiver, reply, silence, TASKS, tokenOf } from "./kit.ts";

const COMPLETED = { status: "completed", value: { n: 1 } } as const;
const FAILED = { status: "failed", value: "no" } as const;

const waits = (pawl: Pawl, created: CreatedTask, status = "waiting") =>
  expect.poll(async () => (await pawl.tasks.get(created.task.id)).status, PATIENCE).toBe(status);

onStores(["memory", "SQLite", "PostgreSQL"], (place) => {
  test("a task that waits for a signal is completed by it, in one commit", async () => {
    const { pawl, commits } = await place.openHandle(KEYS);
    const worker = pawl.work([TASKS]);
    const { url } = await receiver();
    const created = await pawl.tasks.create({ targetUrl: url, waitForSignal: true });
    await waits(pawl, created);
    await worker.stop();
    const before = commits();
    const signaled = await pawl.tasks.signal(tokenOf(created), COMPLETED);
    expect(commits() - before).toBe(1);
    expect(signaled).toMatchObject({ task: created.task.id, isNew: true, outcome: { ...COMPLETED, by: "signal" } });
    expect(await pawl.tasks.get(created.task.id)).toMatchObject({ status: "completed", outcome: signaled.outcome });
  });

  test("the call carries the token, so the receiver can signal before it has returned: that is kept", async () => {
    const pawl = await place.open(KEYS);
    pawl.work([TASKS]);
    const signaled = Promise.withResolvers<TaskOutcome>();
    const { url } = await receiver((response, { headers }) => {
      pawl.tasks.signal(String(headers["pawl-signal-token"]), COMPLETED).then(({ outcome }) => {
        signaled.resolve(outcome);
        response.writeHead(500).end("it failed after all");
      }, signaled.reject);
    });
    const created = await pawl.tasks.create({ targetUrl: url, waitForSignal: true });
    const outcome = await signaled.promise;
    expect((await ended(pawl, created)).outcome).toEqual(outcome);
  });

  test("the same signal again is the same; another is refused with the outcome", async () => {
    const pawl = await place.open(KEYS);
    const { url } = await receiver();
    const created = await pawl.tasks.create({ targetUrl: url, waitForSignal: true });
    const token = tokenOf(created);
    const { outcome } = await pawl.tasks.signal(token, FAILED);
    expect(outcome).toMatchObject({ ...FAILED, by: "signal" });
    expect(await pawl.tasks.signal(token, { ...FAILED })).toEqual({ task: created.task.id, outcome, isNew: false });
    for (const other of [COMPLETED, { status: "failed" }, { status: "failed", value: "yes" }] as const) {
      const late = { ok: false, code: "task_settled", task: created.task.id, outcome };
      expect(await pawl.tasks.trySignal(token, other)).toEqual(late);
      await expect(pawl.tasks.signal(token, other)).rejects.toMatchObject({ code: "task_settled", data: { outcome } });
    }
    expect(await pawl.tasks.cancel(created.task.id)).toEqual({ canceled: false, outcome });
    expect((await pawl.tasks.get(created.task.id)).outcome).toEqual(outcome);
  });

  test("after the timeout, a signal and a cancellation get the timeout", async () => {
    const pawl = await place.open(KEYS);
    pawl.work([TASKS]);
    const { url } = await receiver();
    const created = await pawl.tasks.create({ targetUrl: url, waitForSignal: true, maxWaitTime: 10 });
    const { outcome } = await ended(pawl, created);
    expect(outcome).toMatchObject({ status: "timed_out", by: "timeout" });
    await expect(pawl.tasks.signal(tokenOf(created), COMPLETED)).rejects.toMatchObject({
      code: "task_timed_out",
      data: { task: created.task.id, outcome },
    });
    expect(await pawl.tasks.cancel(created.task.id)).toEqual({ canceled: false, outcome });
  });

  test("the time to wait ends by the store's clock, also if no worker is left to notice", async () => {
    const pawl = await place.open(KEYS);
    const worker = pawl.work([TASKS]);
    const { url } = await receiver();
    const created = await pawl.tasks.create({ targetUrl: url, waitForSignal: true, maxWaitTime: 2_000 });
    await waits(pawl, created);
    await worker.stop();
    const until = (await pawl.run(created.task.id).status()).dueAt?.getTime() ?? 0;
    await expect.poll(() => pawl.transact((tx) => tx.nowMs), PATIENCE).toBeGreaterThanOrEqual(until);
    const tried = await pawl.tasks.trySignal(tokenOf(created), COMPLETED);
    expect(tried).toMatchObject({ ok: false, code: "task_timed_out", outcome: { status: "timed_out", by: "timeout" } });
    expect(await pawl.tasks.get(created.task.id)).toMatchObject({ status: "timed_out" });
  });

  test("a cancellation closes the connection of a call that is under way, in another process", async () => {
    const worker = await place.open(KEYS);
    worker.work([TASKS]);
    const caller = await place.open(KEYS);
    const { url, seen, connections } = await receiver(silence);
    const created = await caller.tasks.create({ targetUrl: url, waitForSignal: true });
    await expect.poll(() => seen.length, PATIENCE).toBe(1);
    const { canceled, outcome } = await caller.tasks.cancel(created.task.id, { reason: "changed my mind" });
    expect(canceled).toBe(true);
    expect(outcome).toMatchObject({ status: "canceled", by: "cancel", reason: "changed my mind" });
    await expect.poll(connections, PATIENCE).toBe(0);
    expect(await caller.tasks.cancel(created.task.id)).toEqual({ canceled: true, outcome });
    await expect(caller.tasks.signal(tokenOf(created), COMPLETED)).rejects.toMatchObject({
      code: "task_settled",
      data: { outcome },
    });
    expect((await worker.tasks.get(created.task.id)).outcome).toEqual(outcome);
    expect(seen).toHaveLength(1);
  });

  test.each(["delayed", "queued", "between attempts"])(
    "a task that is %s can be canceled, and signaled",
    async (state) => {
      const pawl = await place.open(KEYS);
      pawl.work([TASKS]);
      const { url, seen } = await receiver(reply(503));
      const concurrency = { key: "one", max: 1 };
      const blocker = await pawl.tasks.create({ targetUrl: url, concurrency, retry: { delay: "1 hour" } });
      await waits(pawl, blocker);
      const options = {
        delayed: { delay: "1 hour" },
        queued: { concurrency },
        "between attempts": { retry: { delay: "1 hour" } },
      }[state];
      const one = await pawl.tasks.create({ targetUrl: url, waitForSignal: true, ...options });
      const other = await pawl.tasks.create({ targetUrl: url, waitForSignal: true, ...options });
      const status = { delayed: "pending", queued: "queued", "between attempts": "waiting" }[state];
      for (const created of [one, other]) await waits(pawl, created, status);
      expect(await pawl.tasks.cancel(one.task.id)).toMatchObject({ canceled: true });
      expect(await pawl.tasks.signal(tokenOf(other), COMPLETED)).toMatchObject({ isNew: true });
      expect((await pawl.tasks.get(one.task.id)).status).toBe("canceled");
      expect((await pawl.tasks.get(other.task.id)).outcome).toMatchObject({ ...COMPLETED, by: "signal" });
      const calls = seen.length;
      // The one that was first in line is not held up by those that have left it.
      expect(await pawl.tasks.cancel(blocker.task.id)).toMatchObject({ canceled: true });
      expect(seen).toHaveLength(calls);
    },
  );

  test("of many callers in several processes one is the first, and all get its outcome", async () => {
    const handles = await Promise.all(Array.from({ length: 3 }, () => place.open(KEYS)));
    const [pawl] = handles as [Pawl, ...Pawl[]];
    for (const one of handles) one.work([TASKS]);
    const { url } = await receiver();
    for (let round = 0; round < 10; round++) {
      const created = await pawl.tasks.create({ targetUrl: url, waitForSignal: true, maxWaitTime: 20 });
      const token = tokenOf(created);
      // Half of the rounds begin where the timeout may come at any moment, or has come; the others right after the creation.
      if (round % 2 === 0) {
        const status = async () => (await pawl.tasks.get(created.task.id)).status;
        await expect.poll(status, PATIENCE).toMatch(/^(waiting|timed_out)$/);
      }
      const outcomes = await Promise.all(
        handles.flatMap((one, n) => [
          one.tasks.cancel(created.task.id, { reason: String(n) }).then(({ outcome }) => outcome),
          one.tasks
            .trySignal(token, { status: "completed", value: n })
            .then((tried) => "outcome" in tried && tried.outcome),
          one.tasks.trySignal(token, FAILED).then((tried) => "outcome" in tried && tried.outcome),
          one.tasks.get(created.task.id, { wait: "60s" }).then(({ outcome }) => outcome),
        ]),
      );
      const { outcome } = await pawl.tasks.get(created.task.id);
      expect(outcome).not.toBeNull();
      for (const one of outcomes) expect(one).toEqual(outcome);
    }
  });

  test("settling is part of a commit with other things, or did not happen", async () => {
    const pawl = await place.open(KEYS);
    const { url } = await receiver();
    const [one, other, third] = await pawl.transact((tx) => [
      tx.tasks.create({ targetUrl: url, waitForSignal: true, idempotencyKey: "a" }),
      tx.tasks.create({ targetUrl: url, waitForSignal: true }),
      tx.tasks.create({ targetUrl: url }),
    ]);
    if (one === undefined || other === undefined || third === undefined) throw new Error("three were created");
    const again = await pawl.transact((tx) =>
      tx.tasks.create({ targetUrl: url, waitForSignal: true, idempotencyKey: "a" }),
    );
    expect(again).toMatchObject({ isNew: false, signalToken: one.signalToken, task: { id: one.task.id } });
    await expect(
      pawl.transact((tx) => {
        tx.tasks.signal(tokenOf(one), COMPLETED);
        throw new Error("no");
      }),
    ).rejects.toThrow("no");
    expect((await pawl.tasks.get(one.task.id)).outcome).toBeNull();
    await pawl.transact((tx) => {
      tx.tasks.signal(tokenOf(one), COMPLETED);
      tx.tasks.cancel(third.task.id);
    });
    const statuses = [one, other, third].map(async ({ task }) => (await pawl.tasks.get(task.id)).status);
    expect(await Promise.all(statuses)).toEqual(["completed", "pending", "canceled"]);
    await expect(pawl.transact((tx) => tx.tasks.signal(tokenOf(one), FAILED))).rejects.toMatchObject({
      code: "task_settled",
    });
  });
});

describe("tokens", () => {
  onStores(["memory"], (place) => {
    test.each(["", "sig_", "sig_x", `sig_${"a".repeat(43)}`, `sig_${"a".repeat(44)}`, "x".repeat(47), "pawl_x", 5])(
      "%j is none",
      async (token) => {
        const pawl = await place.open(KEYS);
        await expect(pawl.tasks.signal(token as string, COMPLETED)).rejects.toMatchObject({ code: "token_not_found" });
      },
    );

    test("a token that is cut or changed is none", async () => {
      const pawl = await place.open(KEYS);
      const token = tokenOf(await pawl.tasks.create({ targetUrl: "https://example.com/", waitForSignal: true }));
      for (const other of [
        token.slice(0, -1),
        `${token}a`,
        token.toUpperCase(),
        ` ${token}`,
        token.replace(/.$/, (last) => (last === "A" ? "B" : "A")),
      ])
        expect((await pawl.tasks.signal(other, COMPLETED).catch((error) => error)).code).toBe("token_not_found");
    });

    test("a token of another namespace is none", async () => {
      const pawl = await place.open(KEYS);
      const token = tokenOf(await pawl.tasks.create({ targetUrl: "https://example.com/", waitForSignal: true }));
      place.begin();
      const stranger = await place.open(KEYS);
      await expect(stranger.tasks.signal(token, COMPLETED)).rejects.toMatchObject({ code: "token_not_found" });
    });

    test("without a key ring, nothing is created that would need a token", async () => {
      const pawl = await place.open();
      const options = { targetUrl: "https://example.com/", waitForSignal: true };
      await expect(pawl.tasks.create(options)).rejects.toMatchObject({ code: "keys_missing" });
      expect((await pawl.tasks.list()).tasks).toEqual([]);
    });

    test("a value that cannot be stored is refused, and settles nothing", async () => {
      const pawl = await place.open(KEYS);
      const created = await pawl.tasks.create({ targetUrl: "https://example.com/", waitForSignal: true });
      const value = (): void => {};
      await expect(pawl.tasks.signal(tokenOf(created), { status: "completed", value })).rejects.toMatchObject({
        code: "invalid_value",
      });
      for (const wrong of [undefined, null, "completed", {}, { status: "canceled" }, { status: "completed", vaule: 1 }])
        await expect(pawl.tasks.signal(tokenOf(created), wrong as never)).rejects.toMatchObject({
          code: "invalid_argument",
        });
      expect((await pawl.tasks.get(created.task.id)).outcome).toBeNull();
    });
  });
});
