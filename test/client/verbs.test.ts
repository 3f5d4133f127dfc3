/**
 * Goal: every verb of the client does what the verb of that name does in the library, with its types.
 * Method: a real server on a handle in memory, with a worker; what the client sees is compared with what the handle sees.
 */

import { expect, onTestFinished, test } from "vitest";
import { createClient, isPawlError, named, PawlHttpError } from "../../src/http/client/index.ts";
import { event, machine, open, projection, reaction, signal, workflow } from "../../src/index.ts";
import { queueUp } from "../lock/kit.ts";
import { connected, PATIENCE } from "./kit.ts";

const approved = signal<{ by: string }>("approved");
const fulfil = workflow("fulfil", async (ctx, order: { id: string; at: Date }) => {
  const { value } = await ctx.waitForSignal(approved);
  return { order: order.id, by: value.by, at: order.at, parts: new Map([[1, 2n]]) };
});
const failing = workflow("failing", async (ctx) => {
  await ctx.step(
    "fail",
    () => {
      throw Object.assign(new Error("no"), { code: "E_NO" });
    },
    { retry: { attempts: 1 } },
  );
});
const echo = workflow("echo", async (_ctx, input: unknown) => input);

async function allOf<T>(items: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = [];
  for await (const one of items) all.push(one);
  return all;
}

/** The code with which something is refused. */
const codeOf = (promise: PromiseLike<unknown>): Promise<unknown> =>
  Promise.resolve(promise).then(
    () => "done",
    (error: unknown) => (error instanceof PawlHttpError ? error.code : error),
  );

test("runs: start, signal, result, status and history, typed by the definition", async () => {
  const { client, pawl } = await connected();
  pawl.work([fulfil]);
  const at = new Date(0);
  const run = await client.start(fulfil, { id: "o-1", at }, { id: "f-1", tags: ["a"] });
  expect((await client.start(fulfil, { id: "o-1", at }, { id: "f-1", tags: ["a"] })).id).toBe("f-1");
  expect(await run.signal(approved, { by: "ann" }, { id: "s-1" })).toEqual({ isNew: true });
  expect(await run.signal("approved", { by: "bob" }, { id: "s-1" })).toEqual({ isNew: false });
  const result: { order: string; by: string; at: Date; parts: Map<number, bigint> } = await run.result();
  expect(result).toEqual({ order: "o-1", by: "ann", at, parts: new Map([[1, 2n]]) });
  expect(await run.status()).toEqual(await pawl.run("f-1").status());
  expect(await run.history()).toEqual(await pawl.run("f-1").history());
  expect(await codeOf(run.signal(approved, { by: "eve" }))).toBe("run_ended");
  const typed = await client.start(named<typeof fulfil>("fulfil"), { id: "o-2", at });
  await client.run(fulfil, typed.id).cancel({ reason: "test" });
  expect(await codeOf(typed.result())).toBe("run_canceled");
});

test("runs: refusals have the code and the data of the library", async () => {
  const { client, pawl } = await connected();
  pawl.work([failing, echo]);
  const run = await client.start(failing, undefined, { id: "x" });
  const error = await run.result().catch((error: unknown) => error);
  expect(isPawlError(error, "run_failed") && error.data.run).toBe("x");
  expect(await codeOf(client.start("echo", 1, { id: "x" }))).toBe("run_conflict");
  expect(await codeOf(client.run("none").status())).toBe("run_not_found");
  expect(await codeOf(client.run("none").result({ timeout: 10 }))).toBe("run_not_found");
  await run.retry();
  expect(await codeOf(run.result())).toBe("run_failed");
  await client.runs.delete("x");
  expect(await codeOf(run.status())).toBe("run_not_found");
});

test("a signal that came too late has the outcome with its times, as one in time", async () => {
  const actions = { keys: { current: "k", ring: { k: new Uint8Array(32).fill(7) } } };
  const pawl = await open("memory:", { logger: false, actions });
  onTestFinished(() => pawl.close());
  const { client } = await connected({}, {}, pawl);
  const targetUrl = "https://example.com/";
  const { signalToken } = await client.tasks.create({ targetUrl, waitForSignal: true, delay: "1h" });
  const value = { at: "2030-01-01T00:00:00.000Z" };
  const first = await client.tasks.signal(signalToken ?? "", { status: "completed", value });
  expect(first.outcome.at).toBeInstanceOf(Date);
  const late = await client.tasks.trySignal(signalToken ?? "", { status: "failed" });
  expect(late).toEqual({ ok: false, code: "task_settled", task: first.task, outcome: first.outcome });
});

test("the headers of a task may be Headers, and what would be left out of them is refused", async () => {
  const { client, pawl } = await connected();
  const targetUrl = "https://example.com/";
  const headers = new Headers({ "X-A": "1", "x-b": "2" });
  const { task } = await client.tasks.create({ id: "t", targetUrl, headers });
  expect(task.id).toBe("t");
  // The same request, so it has the same headers.
  expect(await pawl.tasks.create({ id: "t", targetUrl, headers })).toMatchObject({ isNew: false });
  for (const lost of [new Map([["x-a", "1"]]), new URLSearchParams("x-a=1")])
    expect(await codeOf(client.tasks.create({ targetUrl, headers: lost as never }))).toBe("invalid_argument");
});

test("an event type that is known by its type makes events", async () => {
  const { client, pawl } = await connected();
  const deposited = event<{ cents: number }>("deposited");
  const known = named<typeof deposited>("deposited");
  await client.stream("a").append([known({ cents: 5 })]);
  const read = await allOf(client.stream("a").read({ events: [known] }));
  expect(read.map((one) => known.is(one) && one.data.cents)).toEqual([5]);
  expect(await allOf(pawl.stream("a").read({ events: [deposited] }))).toMatchObject([{ data: { cents: 5 } }]);
});

test("a result that does not come in time is result_timeout, and one that comes later is waited for", async () => {
  const { client, pawl } = await connected();
  const run = await client.start(echo, { a: 1 });
  expect(await codeOf(run.result({ timeout: 300 }))).toBe("result_timeout");
  const stop = new AbortController();
  const waiting = run.result({ abortSignal: stop.signal });
  stop.abort(new Error("enough"));
  await expect(waiting).rejects.toThrow("enough");
  pawl.work([echo]);
  expect(await run.result()).toEqual({ a: 1 });
});

test("runs are listed as pages, and iterated over all pages", async () => {
  const { client } = await connected();
  for (let i = 0; i < 7; i++) await client.start(echo, i, { id: `r-${i}`, tags: i % 2 === 0 ? ["even"] : [] });
  const page = await client.runs.list({ limit: 3, order: "id" });
  expect(page.runs.map(({ id }) => id)).toEqual(["r-0", "r-1", "r-2"]);
  expect(page.runs[0]?.startedAt).toBeInstanceOf(Date);
  const all: string[] = [];
  for await (const { id } of client.runs.list({ limit: 2, order: "id", workflow: echo, tag: "even" })) all.push(id);
  expect(all).toEqual(["r-0", "r-2", "r-4", "r-6"]);
  const changed = await client.runs.change({ action: "cancel", filter: { workflow: echo, tag: "even" }, reason: "x" });
  expect(changed.items.map(({ ok }) => ok)).toEqual([true, true, true, true]);
  expect(await codeOf(client.runs.change({ action: "cancel", filter: {} }))).toBe("invalid_argument");
  expect((await client.runs.change({ action: "cancel", filter: {}, all: true })).items).toHaveLength(7);
});

test("the history of a run is followed until it has ended", async () => {
  const { client, pawl } = await connected();
  const run = await client.start(fulfil, { id: "o", at: new Date(0) });
  pawl.work([fulfil]);
  const seen: string[] = [];
  for await (const { name, version } of run.follow()) {
    seen.push(name);
    if (version === 1) await run.signal(approved, { by: "ann" });
  }
  expect(seen).toEqual((await run.history()).map(({ name }) => name));
});

test("workflows are paused and resumed", async () => {
  const { client } = await connected();
  await client.workflows.pause(echo, { reason: "maintenance" });
  expect(await client.workflows.paused()).toEqual([
    { workflow: "echo", since: expect.any(Date), reason: "maintenance" },
  ]);
  expect([await client.workflows.resume("echo"), await client.workflows.resume("echo")]).toEqual([true, false]);
});

test("slots: get, set, trySet, update, delete and list", async () => {
  const { client } = await connected();
  const visits = client.slot<number>("visits/..", { initial: 0 });
  expect(await visits.get()).toEqual({ value: 0, version: 0 });
  await Promise.all(Array.from({ length: 10 }, () => visits.update((n) => n + 1)));
  expect(await visits.get()).toEqual({ value: 10, version: 10 });
  expect(await visits.trySet(5, { expectedVersion: 1 })).toEqual({ ok: false, code: "version_conflict", current: 10 });
  expect(await codeOf(visits.set(5, { expectedVersion: 1 }))).toBe("version_conflict");
  expect(await codeOf(visits.delete({ expectedVersion: 1 }))).toBe("version_conflict");
  expect((await client.slots.list()).slots).toEqual([{ name: "visits/..", value: 10, version: 10 }]);
  expect(await visits.delete({ expectedVersion: 10 })).toEqual({ deleted: true });
  expect((await visits.get()).value).toBe(0);
  expect(await client.slot<Date>("none").get()).toEqual({ value: undefined, version: 0 });
});

test("a slot is watched until the signal aborts", async () => {
  const { client, pawl } = await connected();
  const slot = client.slot<number>("n", { initial: -1 });
  const stop = new AbortController();
  const seen: number[] = [];
  for await (const { value } of slot.watch({ abortSignal: stop.signal })) {
    seen.push(value);
    if (value === 2) stop.abort();
    else await pawl.slot<number>("n").set(seen.length);
  }
  expect(seen).toEqual([-1, 1, 2]);
});

test("locks: one holder at a time, with rising fences; the lease is renewed", async () => {
  const { client } = await connected();
  let inside = 0;
  const fences = await Promise.all(
    Array.from({ length: 4 }, () =>
      client.lock(
        "door",
        async ({ fence, abortSignal }) => {
          inside += 1;
          expect([inside, abortSignal.aborted]).toEqual([1, false]);
          await new Promise((resolve) => setTimeout(resolve, 20));
          inside -= 1;
          return fence;
        },
        { lease: "2s" },
      ),
    ),
  );
  expect(new Set(fences).size).toBe(4);
  const hold = await client.mutex("door", { lease: "2s" }).acquire({ by: "ann" });
  const { until } = (await client.mutex("door").inspect()).holders[0] ?? {};
  // Renewed by itself.
  await expect
    .poll(async () => (await client.mutex("door").inspect()).holders[0]?.until?.getTime(), { timeout: PATIENCE })
    .toBeGreaterThan((until as Date).getTime());
  expect(await client.mutex("door").tryAcquire()).toEqual({ ok: false, code: "lock_busy" });
  expect(await codeOf(client.mutex("door").acquire({ timeout: 50 }))).toBe("lock_timeout");
  expect(await hold.release()).toEqual({ released: true });
  expect(hold.abortSignal.aborted).toBe(false);
});

test("a hold whose release was forced is aborted, and what runs under it throws lock_lost", async () => {
  const { client } = await connected();
  const work = client.lock(
    "door",
    async ({ abortSignal }) => {
      await client.mutex("door").forceRelease({ reason: "stuck" });
      // On a slow machine, the lease has ended by now.
      if (!abortSignal.aborted) await new Promise((resolve) => abortSignal.addEventListener("abort", resolve));
      return (abortSignal.reason as PawlHttpError).code;
    },
    { lease: 300 },
  );
  expect(await codeOf(work)).toBe("lock_lost");
  expect((await client.mutex("door").history()).length).toBe(1);
});

test("a hold that is lost because the server is away throws lock_lost, whatever becomes of its release", async () => {
  let isDown = false;
  const reach: typeof fetch = (input, init) =>
    isDown ? Promise.reject(new TypeError("connection refused")) : fetch(input, init);
  const { client } = await connected({}, { fetch: reach, patience: "2s" });
  const untilLost = async ({ abortSignal }: { readonly abortSignal: AbortSignal }): Promise<void> => {
    isDown = true;
    await new Promise((resolve) => abortSignal.addEventListener("abort", resolve));
  };
  expect(await codeOf(client.lock("door", untilLost, { lease: 300 }))).toBe("lock_lost");
  isDown = false;
  await client.mutex("door").acquire({ timeout: PATIENCE });
});

test("semaphores and rate limits", async () => {
  const { client } = await connected();
  const seats = client.semaphore("seats", { permits: 2 });
  const [one, two, three] = [await seats.tryAcquire(), await seats.tryAcquire(), await seats.tryAcquire()];
  expect([one.ok, two.ok, three.ok]).toEqual([true, true, false]);
  for (const got of [one, two]) if (got.ok) await got.hold.release();
  const mail = client.rateLimit("mail", { max: 1, per: "1 hour" });
  expect(await mail.tryAcquire()).toEqual({ ok: true });
  expect(await mail.tryAcquire()).toEqual({ ok: false, code: "rate_limited", retryAfterMs: expect.any(Number) });
  expect(await codeOf(mail.acquire({ timeout: 10 }))).toBe("rate_limited");
  expect(await mail.inspect()).toMatchObject({ max: 1, remaining: 0 });
  expect(await mail.tryAcquire({ key: "another" })).toEqual({ ok: true });
  expect(await mail.inspect({ key: "another" })).toMatchObject({ remaining: 0 });
  expect(await mail.inspect({ key: "a third" })).toMatchObject({ remaining: 1 });
});

test("dedupe", async () => {
  const { client } = await connected();
  expect(await client.dedupe("billing", "evt_1")).toEqual({ deduplicated: false });
  expect(await client.dedupe("billing", "evt_1", { ttl: "1 day" })).toEqual({ deduplicated: true });
  expect(await client.dedupe("mailing", "evt_1")).toEqual({ deduplicated: false });
});

test("actions: create, consume, claim, complete, cancel, list and history", async () => {
  const pawl = await open("memory:", {
    logger: false,
    actions: { pepper: "p".repeat(32), keys: { current: "a", ring: { a: new Uint8Array(32).fill(1) } } },
  });
  const { client } = await connected({}, {}, pawl);
  const expiresAt = new Date(4_000_000_000_000);
  const coupon = { id: "coupon", owner: "ann", payload: { percent: 10n }, expiresAt };
  expect(await client.actions.create(coupon)).toMatchObject({ id: "coupon", isNew: true });
  expect(await client.actions.get("coupon")).toEqual(await pawl.actions.get("coupon"));
  const used = await client.actions.consume<{ percent: bigint }>("coupon", { by: "order-1", consumerKey: "k" });
  expect(used).toMatchObject({ payload: { percent: 10n }, consumedAt: expect.any(Date), usesLeft: 0 });
  expect(await client.actions.tryConsume("coupon", { by: "order-2" })).toMatchObject({
    ok: false,
    code: "already_used",
  });
  expect(await client.actions.tryConsume("none")).toMatchObject({ ok: false, code: "action_not_found" });
  expect(await client.actions.get("none")).toBeNull();
  expect((await client.actions.history("coupon")).map(({ name }) => name)).toEqual(["created", "consumed"]);
  await client.actions.create({ id: "seat" });
  const claim = await client.actions.claim("seat", { lease: "1 min" });
  expect(await client.actions.tryClaim("seat")).toMatchObject({ ok: false, code: "claimed" });
  expect(await client.actions.abandon("seat", claim)).toEqual({ isNew: true });
  const again = await client.actions.claim("seat");
  expect((await client.actions.complete("seat", again)).payload).toBeUndefined();
  const { actions } = await client.actions.list({ owner: "ann" });
  const ref = actions[0]?.ref ?? "";
  expect(await client.actions.get({ ref })).toMatchObject({ id: "coupon" });
  expect(await client.actions.tryCancel({ ref })).toMatchObject({ ok: false, code: "already_used" });
  const secret = await client.actions.create();
  expect(await client.actions.cancel(secret.id)).toMatchObject({ canceledAt: expect.any(Date), isNew: true });
  await pawl.close();
});

test("machines: typed by the definition", async () => {
  const door = machine("door", {
    initial: "closed",
    transitions: { closed: ["open"], open: ["closed"] },
    initialData: { by: "nobody", at: new Date(0) },
  });
  const { client, pawl } = await connected({ machines: [door] });
  const doors = client.machine(door);
  const created = await doors.create("d-1");
  expect(created).toEqual(await pawl.machine(door).get("d-1"));
  const moved = await doors.transition("d-1", "open", { patch: { by: "ann" }, eventId: "e-1" });
  expect([moved.state, moved.data, moved.deduplicated]).toEqual(["open", { by: "ann", at: new Date(0) }, false]);
  expect((await doors.transition("d-1", "open", { patch: { by: "ann" }, eventId: "e-1" })).deduplicated).toBe(true);
  expect(await doors.tryTransition("d-1", "open")).toMatchObject({
    ok: false,
    code: "illegal_transition",
    from: "open",
  });
  expect(await doors.tryCreate("d-1")).toMatchObject({ ok: false, code: "machine_exists", state: "open" });
  expect(await doors.get("none")).toBeNull();
  expect(await doors.history("d-1")).toEqual(await pawl.machine(door).history("d-1"));
  expect((await doors.list({ state: "open" })).instances.map(({ id }) => id)).toEqual(["d-1"]);
  expect(await codeOf(client.machine("window").get("w"))).toBe("machine_unknown");
});

const Deposited = event<{ amount: bigint }>("deposited");
const Closed = event("closed");

test("streams: append, read, follow; all streams in one order", async () => {
  const { client, pawl } = await connected();
  const account = client.stream("account/1");
  expect(await account.append([Deposited({ amount: 5n }), Closed()], { expectedVersion: 0 })).toMatchObject({
    version: 2,
  });
  expect(await account.tryAppend([Closed()], { expectedVersion: 0 })).toEqual({
    ok: false,
    code: "concurrency_conflict",
    version: 2,
  });
  await account.append([{ name: "deposited", data: { amount: 6n } }]);
  expect(await account.head()).toBe(3);
  const amounts: bigint[] = [];
  for await (const { data } of account.read({ events: [Deposited] })) amounts.push(data.amount);
  expect(amounts).toEqual([5n, 6n]);
  expect(await allOf(account.read())).toEqual(await allOf(pawl.stream("account/1").read()));
  const backwards = await allOf(account.read({ backwards: true, from: 2 }));
  expect(backwards.map(({ version }) => version)).toEqual([2, 1]);
  const all = await allOf(client.events.read());
  // Cursors over HTTP are sealed.
  const withoutCursor = <E extends object>(one: E) => ({ ...one, cursor: undefined });
  expect(all.map(withoutCursor)).toEqual((await allOf(pawl.events.read())).map(withoutCursor));
  expect(await allOf(client.events.read({ after: all[1]?.cursor ?? "" }))).toEqual(all.slice(2));
  const followed: number[] = [];
  for await (const { version } of account.follow({ from: 2 })) {
    followed.push(version);
    if (version === 3) await account.append([Closed()]);
    if (version === 4) break;
  }
  expect(followed).toEqual([2, 3, 4]);
  for await (const one of client.events.follow({ events: [Closed] })) {
    expect(one).toEqual(all[1]);
    break;
  }
  const personal = event("named", {
    personal: { subject: (data: { id: string; name: string }) => data.id, fields: ["name"] },
  });
  expect(await codeOf(account.append([personal({ id: "1", name: "Ann" })]))).toBe("invalid_argument");
});

test("projections: one is shown by its name, built again and deleted", async () => {
  const { pawl, client } = await connected();
  const Noted = event<string>("Noted");
  await pawl.work([projection("notes", { on: [Noted] }, (_, e): string => e.data)]).ready;
  const at = await pawl.stream("notes").append([Noted("x")]);
  await pawl.projection("notes").waitFor(at);
  const notes = client.projection("notes");
  expect(await notes.status()).toMatchObject({ live: { generation: 1, behind: 0, behindSince: null, failure: null } });
  expect(await client.projections.list()).toMatchObject([{ name: "notes", live: { generation: 1 }, building: null }]);
  expect(await notes.rebuild()).toBe(2);
  await notes.delete();
  expect(await codeOf(notes.status())).toBe("projection_not_found");
});

test("reactions: a target that is blocked is skipped, and its dead letter sent again", async () => {
  const { client, pawl } = await connected();
  const mail = reaction("mail", { on: [Closed], target: (e) => e.stream, retry: { attempts: 1 } }, () => {
    throw new Error("no mail");
  });
  pawl.work([mail]);
  await client.stream("a").append([Closed()]);
  await expect
    .poll(async () => (await client.reactions.targets("mail")).targets[0]?.status, { timeout: PATIENCE })
    .toBe("blocked");
  expect((await client.reactions.list()).map(({ name }) => name)).toEqual(["mail"]);
  expect(await client.reactions.skip("mail", "a", { reason: "broken" })).toMatchObject({ stream: "a", target: "a" });
  const { letters } = await client.reactions.deadLetters("mail");
  expect(letters).toMatchObject([{ stream: "a", version: 1, at: expect.any(Date) }]);
  await client.reactions.pause("mail");
  expect((await client.reactions.get("mail")).pausedAt).toBeInstanceOf(Date);
  await client.reactions.resume("mail");
  expect(await client.reactions.pauseTargets("mail", { target: "a" })).toBe(1);
  expect(await client.reactions.resumeTargets("mail", { target: "a" })).toBe(1);
  await client.reactions.redrive("mail", { stream: "a", version: 1 });
  expect(await codeOf(client.reactions.get("none"))).toBe("reaction_not_found");
  // As in the library, an empty filter is all of them.
  for (const verb of ["pauseTargets", "resumeTargets", "prioritize", "unblock", "reset"] as const)
    expect(await codeOf(client.reactions[verb]("mail", {})), verb).toBe("done");
  expect(await client.tasks.redriveAll()).toMatchObject({ redriven: 0 });
});

test("schedules: create, update, pause, trigger, preview, history and delete", async () => {
  const { client, pawl } = await connected();
  const starts = new Date(4_000_000_000_000);
  const created = await client.schedules.create(
    "nightly",
    { cron: "0 3 * * *", timezone: "Europe/Berlin" },
    echo,
    new Set([1]),
  );
  expect(created).toEqual(await pawl.schedules.get("nightly"));
  expect((await client.schedules.update("nightly", { every: "1 hour", starts })).everyMs).toBe(3_600_000);
  expect((await client.schedules.preview("nightly", { count: 2 })).map(Number)).toEqual([+starts, +starts + 3_600_000]);
  expect((await client.schedules.pause("nightly", { reason: "x" })).state).toBe("paused");
  expect((await client.schedules.resume("nightly")).state).toBe("active");
  const { run } = await client.schedules.trigger("nightly");
  pawl.work([echo]);
  expect(await client.run(run).result()).toEqual(new Set([1]));
  const entries: unknown[] = [];
  for await (const { by } of client.schedules.history("nightly")) entries.push(by);
  expect(entries).toEqual(["trigger"]);
  const again = await client.schedules.trigger("nightly", { id: "again" });
  expect(await client.schedules.trigger("nightly", { id: "again" })).toEqual(again);
  expect(await pawl.schedules.trigger("nightly", { id: "again" })).toEqual(again);
  expect((await client.schedules.list({ prefix: "n" })).schedules.map(({ name }) => name)).toEqual(["nightly"]);
  expect(await client.schedules.delete("nightly")).toEqual({ deleted: true });
  expect(await client.schedules.get("nightly")).toBeNull();
});

test("keys: created, rotated and revoked; a key is refused when it has ended", async () => {
  const { client, url } = await connected();
  const created = await client.keys.create({
    name: "reader",
    scopes: ["read"],
    expiresAt: new Date(4_000_000_000_000),
  });
  const reader = createClient({ url, key: created.key });
  expect(await codeOf(reader.slots.list())).toBe("done");
  expect(await codeOf(reader.slot("x").set(1))).toBe("scope_missing");
  const rotated = await client.keys.rotate(created.id);
  expect(await codeOf(reader.slots.list())).toBe("unauthorized");
  await client.keys.revoke(created.id);
  expect(await codeOf(createClient({ url, key: rotated.key }).slots.list())).toBe("unauthorized");
  expect(await client.keys.get(created.id)).toMatchObject({ name: "reader", revokedAt: expect.any(Date) });
  expect((await client.keys.history(created.id)).map(({ name }) => name)).toEqual(["created", "rotated", "revoked"]);
  expect((await client.keys.list()).keys.map(({ id }) => id)).toContain(created.id);
});

test("whyWaiting", async () => {
  const { client } = await connected();
  const run = await client.start(echo, 1, { delay: "1 hour" });
  expect((await client.whyWaiting({ run: run.id })).isWaiting).toBe(true);
  expect((await client.whyWaiting({ lock: "free" })).isWaiting).toBe(false);
});

test("whyWaiting says of a waiter for a lock what the library says", async () => {
  const { client, pawl } = await connected();
  for (const [kind, lock] of [
    ["mutex", pawl.mutex("m")],
    ["semaphore", pawl.semaphore("m", { permits: 1 })],
  ] as const) {
    await lock.acquire({ by: "ann" });
    const { ticket: waiter } = await queueUp(lock, "bob");
    const why = await client.whyWaiting({ lock: "m", kind, waiter });
    expect(why).toEqual(await pawl.whyWaiting({ lock: "m", kind, waiter }));
    expect(why).toMatchObject({ isWaiting: true, chain: [{ name: "bob" }, { is: "lock" }, { name: "ann" }] });
    expect(await client.whyWaiting({ lock: "m", kind, waiter: "another" })).toMatchObject({ isWaiting: false });
  }
  // The server has no such locks.
  expect(await codeOf(client.whyWaiting({ lock: "m", kind: "rwlock" }))).toBe("invalid_argument");
});

test("a key that no header can have is refused, and in no message; one with a line end at its end is used", async () => {
  const { url, key } = await connected();
  for (const given of [`${key.slice(0, 30)}\n${key.slice(30)}`, `${key}…`]) {
    let message = "";
    try {
      await createClient({ url, key: given, patience: 0 }).runs.list();
    } catch (error) {
      message = String(error);
    }
    expect(message).toContain("the key must be a string of visible ASCII characters");
    expect(message).not.toContain(key.slice(0, 10));
  }
  expect((await createClient({ url, key: `${key}\n` }).runs.list()).runs).toEqual([]);
});

test("arguments that cannot be sent are refused before a request", async () => {
  const url = "http://127.0.0.1:1";
  for (const options of [
    { url: "nowhere" },
    { url: "ftp://x" },
    { url: `${url}?key=x` },
    { url, patience: "soon" },
    { url, kee: "x" },
  ])
    expect(() => createClient(options as { url: string })).toThrow(PawlHttpError);
  const client = createClient({ url, patience: 0 });
  expect(await codeOf(client.slot("").get())).toBe("invalid_argument");
  expect(await codeOf(client.slot("\ud800").get())).toBe("invalid_argument");
  expect(await codeOf(client.slot("x").set(() => {}))).toBe("invalid_value");
  expect(await codeOf(client.slot("x").get())).toBe("server_unreachable");
});
