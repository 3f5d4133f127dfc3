/**
 * Calls: what reaches a receiver, what is recorded, and what happens with each way in which a receiver can behave.
 */

import { Webhook } from "standardwebhooks";
import { expect, test } from "vitest";
import { httpTasks } from "../../src/index.ts";
import { onStores, PATIENCE } from "../workflow/kit.ts";
import {
  type Behavior,
  closesHalfway,
  dies,
  drips,
  ended,
  KEYS,
  receiver,
  reply,
  resets,
  SECRET,
  sendsTenGigabytes,
  silence,
  TASKS,
} from "./kit.ts";

/** A policy without waits, for tests. */
const QUICK = { delay: 1, maxDelay: 1 };

onStores(["memory", "SQLite", "PostgreSQL"], (place) => {
  test("a task is a call that succeeds", async () => {
    const pawl = await place.open();
    pawl.work([TASKS]);
    const { url, seen } = await receiver(reply(201, "made", { "x-id": "7" }));
    const created = await pawl.tasks.create({ targetUrl: url, body: { a: 1 }, headers: { "x-a": "b" }, tags: ["t"] });
    expect(created).toMatchObject({
      isNew: true,
      signalToken: null,
      task: { targetUrl: url, method: "POST", tags: ["t"] },
    });
    const task = await ended(pawl, created);
    expect(task).toMatchObject({
      status: "completed",
      outcome: {
        status: "completed",
        by: "response",
        value: { status: 201, body: "made", headers: { "x-id": "7" }, isCut: false },
      },
    });
    expect(task.outcome?.at).toEqual(task.endedAt);
    expect(seen).toMatchObject([
      {
        method: "POST",
        path: "/hook",
        body: '{"a":1}',
        headers: { "content-type": "application/json", "x-a": "b", "pawl-task-id": task.id, "pawl-attempt": "1" },
      },
    ]);
    expect(await pawl.tasks.attempts(task.id)).toMatchObject([{ number: 1, status: 201, body: "made", error: null }]);
  });

  test("a call that fails is made again, with the same key and a higher fence", async () => {
    const pawl = await place.open();
    pawl.work([TASKS]);
    const { url, seen } = await receiver(reply(500), reply(503), reply(200));
    const task = await ended(pawl, await pawl.tasks.create({ targetUrl: url, retry: QUICK }));
    expect(task.status).toBe("completed");
    expect(seen.map(({ attempt }) => attempt)).toEqual([1, 2, 3]);
    expect(new Set(seen.map(({ key }) => key)).size).toBe(1);
    expect(new Set(seen.map(({ headers }) => headers["webhook-id"]))).toEqual(new Set([seen[0]?.key]));
    const fences = seen.map(({ fence }) => fence);
    expect(fences).toEqual([...new Set(fences)].sort((a, b) => a - b));
    expect((await pawl.tasks.attempts(task.id)).map(({ status }) => status)).toEqual([500, 503, 200]);
  });

  test("a task that is created in one process is called by another", async () => {
    const creator = await place.open();
    const { url } = await receiver();
    const created = await creator.tasks.create({ targetUrl: url });
    expect(created.task.status).toBe("pending");
    (await place.open()).work([TASKS]);
    expect((await ended(creator, created)).status).toBe("completed");
  });

  test("a worker that dies in the middle of a call is replaced: the call has the same key and a higher fence", async () => {
    const first = await place.openHandle();
    first.pawl.work([TASKS], { lease: 100 });
    const { url, seen, behave } = await receiver(silence);
    const created = await first.pawl.tasks.create({ targetUrl: url });
    await expect.poll(() => seen.length, PATIENCE).toBeGreaterThan(0);
    first.die();
    behave(reply());
    const second = await place.open();
    second.work([TASKS]);
    expect((await ended(second, created)).status).toBe("completed");
    // On a slow machine, the first may have lost its lease once before it died, and have called again.
    const fences = seen.map(({ fence }) => fence);
    expect(fences.length).toBeGreaterThan(1);
    expect(fences).toEqual([...new Set(fences)].sort((a, b) => a - b));
    expect(new Set(seen.map(({ key }) => key)).size).toBe(1);
  });

  test("a worker that stops leaves the task to another, and no attempt counts that it gave up", async () => {
    const first = await place.open();
    const worker = first.work([TASKS]);
    const { url, seen, behave } = await receiver(silence);
    const created = await first.tasks.create({ targetUrl: url });
    await expect.poll(() => seen.length, PATIENCE).toBe(1);
    behave(reply());
    await worker.stop({ timeout: 1 });
    const second = await place.open();
    second.work([TASKS]);
    expect((await ended(second, created)).status).toBe("completed");
    expect(await second.tasks.attempts(created.task.id)).toMatchObject([{ number: 1, status: 200 }]);
  });
});

onStores(["memory"], (place) => {
  test("each call is signed as Standard Webhooks says", async () => {
    const pawl = await place.open();
    const other = `whsec_${Buffer.alloc(32, 9).toString("base64")}`;
    pawl.work([httpTasks({ secrets: [other, SECRET], allow: ["127.0.0.1/32"] })]);
    const { url, seen } = await receiver();
    await ended(pawl, await pawl.tasks.create({ targetUrl: url, body: { b: "ü" } }));
    const [{ body, headers } = { body: "", headers: {} }] = seen;
    for (const secret of [other, SECRET])
      expect(new Webhook(secret).verify(body, headers as Record<string, string>)).toEqual({ b: "ü" });
  });

  test.each<[string, Behavior, object]>([
    ["a 400", reply(400), { code: "http_status" }],
    ["a 404", reply(404), { code: "http_status" }],
    ["a 410", reply(410), { code: "http_status" }],
    [
      "a redirect, which is not followed",
      reply(302, "", { location: "http://169.254.169.254/" }),
      { code: "http_status" },
    ],
  ])("%s fails at once", async (_, behavior, error) => {
    const pawl = await place.open();
    pawl.work([TASKS]);
    const { url, seen } = await receiver(behavior);
    const task = await ended(pawl, await pawl.tasks.create({ targetUrl: url, retry: QUICK }));
    expect(task).toMatchObject({ status: "failed", outcome: { status: "failed", by: "response", error } });
    expect(seen).toHaveLength(1);
    const [attempt] = await pawl.tasks.attempts(task.id);
    expect(task.outcome?.value).toMatchObject({ status: attempt?.status });
  });

  test.each<[string, Behavior, string, number?]>([
    ["dies", dies, "network"],
    ["resets the connection", resets, "network"],
    ["closes half-way", closesHalfway, "network"],
    ["never replies", silence, "timeout", 20],
    ["drips without an end", drips, "timeout", 20],
    ["sends 10 GB", sendsTenGigabytes, "body_too_large"],
    ["returns 408", reply(408), "none"],
    ["returns 429", reply(429), "none"],
    ["returns 500", reply(500), "none"],
  ])("a receiver that %s is called again", async (_, behavior, code, timeout) => {
    const pawl = await place.open();
    pawl.work([TASKS]);
    const { url, seen } = await receiver(behavior, reply(200, "at last"));
    const options = { targetUrl: url, retry: QUICK, ...(timeout === undefined ? {} : { timeout }) };
    const task = await ended(pawl, await pawl.tasks.create(options));
    expect(task.outcome).toMatchObject({ status: "completed", value: { body: "at last" } });
    const attempts = await pawl.tasks.attempts(task.id);
    expect(attempts.map(({ error }) => error?.code ?? "none")).toEqual([code, "none"]);
    expect(attempts.length).toBe(2);
    expect(new Set(seen.map(({ key }) => key)).size).toBe(1);
  });

  test("an attempt that timed out is over: its connection is closed, and what it returns later counts for nothing", async () => {
    const pawl = await place.open();
    pawl.work([TASKS]);
    const late = Promise.withResolvers<void>();
    const closed = Promise.withResolvers<void>();
    const slow: Behavior = (response) => {
      response.socket?.on("close", () => closed.resolve());
      void late.promise.then(() => response.end("too late"));
    };
    const { url } = await receiver(slow, reply(200, "second"));
    const task = await ended(pawl, await pawl.tasks.create({ targetUrl: url, timeout: 20, retry: QUICK }));
    await closed.promise;
    late.resolve();
    expect(task.outcome).toMatchObject({ value: { body: "second" } });
    expect((await pawl.tasks.attempts(task.id)).map(({ body }) => body)).toEqual(["", "second"]);
  });

  test("a target that asks for time gets it", async () => {
    const pawl = await place.open();
    pawl.work([TASKS]);
    const { url } = await receiver(reply(429, "", { "retry-after": "3600" }));
    const { task } = await pawl.tasks.create({ targetUrl: url, retry: QUICK });
    await expect.poll(async () => (await pawl.run(task.id).status()).status, PATIENCE).toBe("waiting");
    const { dueAt } = await pawl.run(task.id).status();
    const [attempt] = await pawl.tasks.attempts(task.id);
    expect((dueAt?.getTime() ?? 0) - (attempt?.startedAt.getTime() ?? 0)).toBeGreaterThanOrEqual(3_600_000);
  });

  test("the statuses that are tried again can be chosen", async () => {
    const pawl = await place.open();
    pawl.work([TASKS]);
    const { url, seen } = await receiver(reply(409), reply(503));
    const task = await ended(pawl, await pawl.tasks.create({ targetUrl: url, retry: QUICK, retryStatuses: [409] }));
    expect(task.outcome).toMatchObject({ status: "failed", value: { status: 503 } });
    expect(seen).toHaveLength(2);
  });

  test("when its attempts are used up, a task has failed, with the last response", async () => {
    const pawl = await place.open();
    pawl.work([TASKS]);
    const { url, seen } = await receiver(reply(500, "no"));
    const created = await pawl.tasks.create({ targetUrl: url, retry: { ...QUICK, attempts: 3 } });
    const task = await ended(pawl, created);
    expect(task.outcome).toMatchObject({
      status: "failed",
      value: { status: 500, body: "no" },
      error: { code: "http_status" },
    });
    expect(seen).toHaveLength(3);
    await expect(pawl.run(task.id).result()).rejects.toMatchObject({ code: "run_failed" });
  });

  test("a private address is refused when the task is created, where this process would call it", async () => {
    const pawl = await place.open();
    pawl.work([httpTasks()]);
    for (const targetUrl of ["http://127.0.0.1:8080/", "http://0x7f.1/", "http://[::ffff:7f00:1]/"])
      await expect(pawl.tasks.create({ targetUrl })).rejects.toMatchObject({ code: "target_forbidden" });
    await expect(
      pawl.tasks.create({ targetUrl: "https://example.com/", onCompleteUrl: "http://10.0.0.1/" }),
    ).rejects.toMatchObject({ code: "target_forbidden" });
  });

  test("a port of a database is refused when the task is created, unless this process may call it", async () => {
    const pawl = await place.open();
    pawl.work([httpTasks({ allowPorts: [9200] })]);
    const create = (targetUrl: string) => pawl.tasks.create({ targetUrl, delay: "1 hour" });
    for (const targetUrl of ["https://example.com:9300/", "https://example.com:5432/"]) {
      await expect(create(targetUrl)).rejects.toMatchObject({ code: "target_forbidden" });
      await expect(
        pawl.tasks.create({ targetUrl: "https://example.com/", onCompleteUrl: targetUrl }),
      ).rejects.toMatchObject({ code: "target_forbidden" });
      await expect(pawl.transact((tx) => tx.tasks.create({ targetUrl }))).rejects.toMatchObject({
        code: "target_forbidden",
      });
    }
    expect(await create("https://example.com:9200/")).toMatchObject({ isNew: true });
  });

  test("a private address is refused at the call, where another process created the task; nothing is sent", async () => {
    const { url, seen } = await receiver();
    const creator = await place.open();
    const { port } = new URL(url);
    const byAddress = await creator.tasks.create({ targetUrl: url });
    const byName = await creator.tasks.create({ targetUrl: `http://localhost:${port}/` });
    const worker = await place.open();
    worker.work([httpTasks()]);
    for (const created of [byAddress, byName]) {
      const task = await ended(worker, created);
      expect(task.outcome).toMatchObject({ status: "failed", error: { code: "target_forbidden" } });
      expect(await worker.tasks.attempts(task.id)).toHaveLength(1);
    }
    expect(seen).toEqual([]);
  });

  test("many tasks run together, over connections that are kept", async () => {
    const pawl = await place.open();
    pawl.work([TASKS], { concurrency: 50 });
    const { url, seen, connections } = await receiver();
    const all = await Promise.all(
      Array.from({ length: 300 }, (_, n) => pawl.tasks.create({ targetUrl: url, body: { n } })),
    );
    for (const created of all) expect((await ended(pawl, created)).status).toBe("completed");
    expect(new Set(seen.map(({ key }) => key)).size).toBe(300);
    expect(seen).toHaveLength(300);
    expect(connections()).toBeLessThanOrEqual(60);
  });

  test("a task whose token cannot be opened here is left to processes with the key, and that is no attempt", async () => {
    const creator = await place.open(KEYS);
    const { url, seen } = await receiver();
    const { task } = await creator.tasks.create({ targetUrl: url, waitForSignal: true, retry: { attempts: 1 } });
    const other = (byte: number) => ({ current: "k", ring: { k: new Uint8Array(32).fill(byte) } });
    const lines: string[] = [];
    const logger = { warn: (line: string) => void lines.push(line), error: (line: string) => void lines.push(line) };
    for (const [options, code] of [
      [{ logger }, "key_unavailable"],
      [{ logger, actions: { keys: other(9) } }, "decrypt_failed"],
    ] as const) {
      lines.length = 0;
      const { pawl } = await place.openHandle(options);
      const worker = pawl.work([TASKS]);
      await expect.poll(() => lines.join(), PATIENCE).toContain(`run "${task.id}" of "pawl.task" had trouble`);
      await worker.stop();
      expect(lines.join(), code).toContain('key "k"');
      expect((await creator.whyWaiting({ run: task.id })).says).toContain('key "k"');
    }
    expect(await creator.tasks.attempts(task.id)).toEqual([]);
    creator.work([TASKS]);
    await expect.poll(() => seen.length, PATIENCE).toBe(1);
    expect(seen).toMatchObject([{ attempt: 1, headers: { "pawl-signal-token": expect.stringMatching(/^sig_/) } }]);
    await expect.poll(async () => (await creator.run(task.id).status()).trouble, PATIENCE).toBe(null);
  });

  test("httpTask alone is no work, nor is httpTasks twice", async () => {
    const pawl = await place.open(KEYS);
    const { httpTask } = await import("../../src/index.ts");
    expect(() => pawl.work([httpTask])).toThrowError(expect.objectContaining({ code: "invalid_argument" }));
    expect(() => pawl.work([httpTasks(), httpTasks()])).toThrowError(
      expect.objectContaining({ code: "invalid_argument" }),
    );
  });
});
