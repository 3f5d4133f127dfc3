/**
 * The routes of each capability: what goes in, what comes out, and that it is what the library does.
 */

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { apiKeys } from "../../src/http/server/index.ts";
import { event, machine, open, projection, reaction, signal, workflow } from "../../src/index.ts";
import { queueUp } from "../lock/kit.ts";
import { scratchFolder } from "../sqlite/kit.ts";
import { refusal, type Send, sender, served } from "./kit.ts";

const folder = scratchFolder("in memory");

const hello = workflow("hello", async (ctx, who: string) => ctx.step("greet", () => `hello ${who}`));

describe("runs", () => {
  test("a run is started, and its result comes when it has ended", async () => {
    const { pawl, send } = await served();
    pawl.work([hello]);
    const started = await send("POST", "/v1/runs", { workflow: "hello", input: "ann", id: "r 1" });
    expect(started).toMatchObject({ status: 201, json: { id: "r 1" } });
    expect(started.headers.get("location")).toBe("/v1/runs/r%201");
    const result = await send("GET", "/v1/runs/r%201/result?wait=30s");
    expect(result).toMatchObject({ status: 200, json: { id: "r 1", status: "completed", value: "hello ann" } });
    expect(await pawl.run("r 1").result()).toBe("hello ann");
  });

  test("a run that has not ended is 202, also after a wait", async () => {
    const { send } = await served();
    await send("POST", "/v1/runs", { workflow: "nobody's", id: "r1" });
    for (const path of ["/v1/runs/r1/result", "/v1/runs/r1/result?wait=5ms"])
      expect(await send("GET", path)).toMatchObject({ status: 202, json: { id: "r1", status: "pending" } });
  });

  test("the key is the actor of the runs that it starts", async () => {
    const { pawl, as } = await served();
    const send = await as(["write"]);
    await send("POST", "/v1/runs", { workflow: "hello", input: "ann", id: "r1" });
    expect((await pawl.run("r1").status()).origin.actor).toMatch(/^key:/);
  });
});

describe("slots", () => {
  test("a slot is read and written with versions as ETags", async () => {
    const { send } = await served();
    expect(await send("GET", "/v1/slots/x")).toMatchObject({ status: 200, json: { name: "x", version: 0 } });
    const value = { at: { $date: "2030-01-01T00:00:00.000Z" }, n: 1 };
    const first = await send("PUT", "/v1/slots/x", { value }, { "if-match": '"0"' });
    expect(first.headers.get("etag")).toBe('"1"');
    const read = await send("GET", "/v1/slots/x");
    expect(read.json).toEqual({ name: "x", version: 1, value });
    expect((await send("GET", "/v1/slots/x", undefined, { "if-none-match": '"1"' })).status).toBe(304);
    const stale = await send("PUT", "/v1/slots/x", { value: 2 }, { "if-match": '"0"' });
    expect(stale).toMatchObject({ status: 412, json: { code: "version_conflict", data: { current: 1 } } });
    const conflict = await send("PUT", "/v1/slots/x", { value: 2, expectedVersion: 0 });
    expect(refusal(conflict)).toEqual({ status: 409, code: "version_conflict" });
  });

  test("If-None-Match: * writes only where nothing is stored", async () => {
    const { send } = await served();
    const create = { "if-none-match": "*" };
    expect(await send("PUT", "/v1/slots/x", { value: 1 }, create)).toMatchObject({ status: 200, json: { version: 1 } });
    const exists = await send("PUT", "/v1/slots/x", { value: 2 }, create);
    expect(exists).toMatchObject({ status: 412, json: { code: "version_conflict", data: { current: 1 } } });
    await send("DELETE", "/v1/slots/x");
    expect((await send("PUT", "/v1/slots/x", { value: 3 }, create)).status).toBe(200);
    const append = () => send("POST", "/v1/streams/s/events", { events: [{ name: "Said" }] }, create);
    expect((await append()).status).toBe(201);
    expect(refusal(await append())).toEqual({ status: 412, code: "concurrency_conflict" });
  });

  test("a condition that is not checked is refused, and nothing is written", async () => {
    const { send, pawl } = await served({
      machines: [machine("order", { initial: "open", transitions: { open: ["paid"], paid: [] } })],
    });
    for (const [method, path, body, headers] of [
      ["PUT", "/v1/slots/x", { value: 1 }, { "if-none-match": '"1"' }],
      ["PUT", "/v1/slots/x", { value: 1 }, { "if-none-match": "" }],
      ["PUT", "/v1/slots/x", { value: 1, expectedVersion: 1 }, { "if-match": '"2"' }],
      ["PUT", "/v1/slots/x", { value: 1, expectedVersion: 1 }, { "if-none-match": "*" }],
      ["POST", "/v1/streams/x/events", { events: [{ name: "A" }], expectedVersion: 1 }, { "if-match": '"0"' }],
      ["POST", "/v1/machines/order/x/transition", { to: "paid", expectedVersion: 1 }, { "if-match": '"2"' }],
      ["PUT", "/v1/slots/x", { value: 1 }, { "if-none-match": "*", "if-match": '"0"' }],
      ["DELETE", "/v1/slots/x", undefined, { "if-none-match": "*" }],
      ["POST", "/v1/runs", { workflow: "w", id: "r" }, { "if-none-match": "*" }],
      ["POST", "/v1/runs", { workflow: "w", id: "r" }, { "if-match": '"1"' }],
    ] as const)
      expect(refusal(await send(method, path, body, headers)), JSON.stringify([method, path, headers])).toEqual({
        status: 400,
        code: "invalid_request",
      });
    expect(await pawl.slot("x").get()).toMatchObject({ version: 0 });
    expect((await pawl.runs.list()).runs).toEqual([]);
  });
});

describe("runs, operated", () => {
  const go = signal<string>("go");
  const waits = workflow("waits", async (ctx) => ctx.waitForSignal(go));

  test("a signal reaches the run, and one with an id counts once", async () => {
    const { pawl, send } = await served();
    pawl.work([waits]);
    await send("POST", "/v1/runs", { workflow: "waits", id: "r1" });
    const signal = { name: "go", payload: "now", id: "s1" };
    expect((await send("POST", "/v1/runs/r1/signals", signal)).json).toEqual({ isNew: true });
    const result = await send("GET", "/v1/runs/r1/result?wait=30s");
    expect(result.json).toMatchObject({ value: { ok: true, value: "now" } });
    expect(refusal(await send("POST", "/v1/runs/r1/signals", { name: "go" }))).toEqual({
      status: 409,
      code: "run_ended",
    });
  });

  test("a run that was canceled has no result, and says so", async () => {
    const { send } = await served();
    await send("POST", "/v1/runs", { workflow: "waits", id: "r1" });
    expect(await send("POST", "/v1/runs/r1/cancel", { reason: "enough" })).toMatchObject({ status: 200 });
    const result = await send("GET", "/v1/runs/r1/result?wait=30s");
    expect(result).toMatchObject({ status: 409, json: { code: "run_canceled", data: { reason: "enough" } } });
    expect((await send("DELETE", "/v1/runs/r1")).status).toBe(204);
    expect(refusal(await send("GET", "/v1/runs/r1"))).toEqual({ status: 404, code: "run_not_found" });
  });

  test("only an operator ends a run by force", async () => {
    const { send, as } = await served();
    await send("POST", "/v1/runs", { workflow: "waits", id: "r1" });
    const writer = await as(["write"]);
    expect(refusal(await writer("POST", "/v1/runs/r1/cancel", { force: true }))).toEqual({
      status: 403,
      code: "scope_missing",
    });
    expect((await writer("POST", "/v1/runs/r1/cancel")).status).toBe(200);
  });

  test("many runs are changed together, and each has its outcome", async () => {
    const { send } = await served();
    for (const id of ["a", "b"]) await send("POST", "/v1/runs", { workflow: "waits", id });
    const named = await send("POST", "/v1/runs/bulk", { action: "cancel", ids: ["a", "x"] });
    expect(named.json).toEqual({
      items: [
        { id: "a", ok: true },
        { id: "x", ok: false, code: "run_not_found", detail: 'there is no run "x"' },
      ],
      next: null,
    });
    const chosen = await send("POST", "/v1/runs/bulk", { action: "delete", filter: { status: "canceled" } });
    expect(chosen.json).toEqual({ items: [{ id: "a", ok: true }], next: null });
    expect((await send("GET", "/v1/runs")).json["items"]).toHaveLength(1);
  });

  test("a workflow is paused and resumed", async () => {
    const { send } = await served();
    expect((await send("POST", "/v1/workflows/waits/pause", { reason: "incident" })).status).toBe(204);
    const paused = await send("GET", "/v1/workflows/paused");
    expect(paused.json["items"]).toMatchObject([{ workflow: "waits", reason: "incident" }]);
    expect((await send("POST", "/v1/workflows/waits/resume")).json).toEqual({ wasPaused: true });
  });
});

describe("locks", () => {
  test("a grant keeps others out until it is released, and its fence rises", async () => {
    const { send } = await served();
    const first = await send("POST", "/v1/locks/a%2Fb/acquire", { lease: "1m", by: "ann" });
    expect(first).toMatchObject({ status: 200, json: { fence: expect.any(Number), grant: expect.any(String) } });
    expect(refusal(await send("POST", "/v1/locks/a%2Fb/acquire", {}))).toEqual({ status: 409, code: "lock_busy" });
    const { grant, fence } = first.json;
    const renewed = await send("POST", "/v1/locks/a%2Fb/renew", { grant, lease: "2m" });
    expect(renewed.json).toMatchObject({ fence });
    expect(Date.parse(String(renewed.json["expiresAt"]))).toBeGreaterThan(Date.parse(String(first.json["expiresAt"])));
    expect((await send("POST", "/v1/locks/a%2Fb/release", { grant })).json).toEqual({ released: true });
    const second = await send("POST", "/v1/locks/a%2Fb/acquire", {});
    expect(Number(second.json["fence"])).toBeGreaterThan(Number(fence));
    expect(refusal(await send("POST", "/v1/locks/a%2Fb/renew", { grant }))).toEqual({ status: 409, code: "lock_lost" });
  });

  test("a caller that waits gets the lock when it is released", async () => {
    const { pawl, send } = await served();
    const { grant } = (await send("POST", "/v1/locks/x/acquire", {})).json;
    const waiting = send("POST", "/v1/locks/x/acquire", { wait: "60s" });
    await expect.poll(async () => (await pawl.mutex("x").inspect()).waiting).toBe(1);
    await send("POST", "/v1/locks/x/release", { grant });
    expect(await waiting).toMatchObject({ status: 200 });
  });

  test("a grant is not renewed by the server: it ends with its lease", async () => {
    const { send } = await served();
    await send("POST", "/v1/locks/x/acquire", { lease: "20ms" });
    expect(await send("POST", "/v1/locks/x/acquire", { wait: "60s" })).toMatchObject({ status: 200 });
  });

  test("only operators see grants, and force a release, which is in the history", async () => {
    const { send, as } = await served();
    const { grant } = (await send("POST", "/v1/locks/x/acquire", { by: "ann" })).json;
    const reader = await as(["read"]);
    const seen = await reader("GET", "/v1/locks/x");
    expect(seen.text).not.toContain(String(grant));
    expect(seen.json).toMatchObject({ holders: [{ by: "ann" }] });
    expect((await send("GET", "/v1/locks/x")).text).toContain(String(grant));
    expect((await reader("POST", "/v1/locks/x/force-release", { reason: "stuck" })).status).toBe(403);
    expect((await send("POST", "/v1/locks/x/force-release", { reason: "stuck" })).json).toEqual({ released: 1 });
    expect((await send("GET", "/v1/locks/x/history")).json["items"]).toMatchObject([
      { name: "forced", data: { reason: "stuck" } },
    ]);
    expect((await send("GET", "/v1/locks/x/why")).json).toMatchObject({ isWaiting: false });
  });

  test("why a lock is not free has no ticket of one who waits, which becomes its grant", async () => {
    const { pawl, as } = await served();
    await pawl.mutex("y").acquire();
    // "x" is kept for it, until it can have both.
    const { ticket } = await queueUp(pawl.mutex(["x", "y"]));
    const reader = await as(["read"]);
    const why = await reader("GET", "/v1/locks/x/why");
    expect(why.text).not.toContain(ticket);
    expect(why.json).toMatchObject({ isWaiting: true, chain: [{ is: "lock" }, { is: "plain", name: "" }] });
    const asked = await reader("GET", `/v1/locks/x/why?waiter=${ticket}`);
    expect(asked.json).toMatchObject({ isWaiting: true, chain: [{ is: "plain", name: ticket }, { is: "lock" }] });
  });

  test("a semaphore has as many grants as permits", async () => {
    const { send } = await served();
    const statuses: number[] = [];
    for (let i = 0; i < 3; i++) statuses.push((await send("POST", "/v1/semaphores/s/acquire", { permits: 2 })).status);
    expect(statuses).toEqual([200, 200, 409]);
    expect((await send("GET", "/v1/semaphores/s")).json).toMatchObject({ permits: 2, waiting: 0 });
  });
});

describe("rate limits and dedupe", () => {
  test("tokens are taken until there are none", async () => {
    const { send } = await served();
    const figures = { max: 1, per: "1h" };
    expect((await send("POST", "/v1/rate-limits/mail/acquire", figures)).json).toEqual({ waitedMs: 0 });
    const late = await send("POST", "/v1/rate-limits/mail/acquire", figures);
    expect(refusal(late)).toEqual({ status: 429, code: "rate_limited" });
    expect(Number(late.headers.get("retry-after"))).toBeGreaterThan(3000);
    expect((await send("GET", "/v1/rate-limits/mail?max=1&per=1h")).json).toMatchObject({ max: 1, remaining: 0 });
    expect(refusal(await send("POST", "/v1/rate-limits/pawl.http/acquire", figures)).status).toBe(400);
  });

  test("a message is handled once by each consumer", async () => {
    const { send } = await served();
    const results = [];
    for (const path of ["/v1/dedupe/a", "/v1/dedupe/a", "/v1/dedupe/b"])
      results.push((await send("POST", path, { messageId: "m1" })).json["deduplicated"]);
    expect(results).toEqual([false, true, false]);
  });
});

describe("repeated requests", () => {
  test("another If-Match is another request", async () => {
    const { pawl, send } = await served();
    const put = (match: string | undefined) =>
      send("PUT", "/v1/slots/x", { value: 1 }, { "idempotency-key": "k", ...(match && { "if-match": match }) });
    const first = await put('"0"');
    expect(first.status).toBe(200);
    expect(await put('"0"')).toMatchObject({ status: 200, text: first.text });
    for (const match of ['"1"', undefined])
      expect(refusal(await put(match))).toEqual({ status: 422, code: "idempotency_mismatch" });
    expect((await pawl.slot("x").get()).version).toBe(1);
  });

  test("so is another If-None-Match", async () => {
    const { send } = await served();
    const put = (headers: Record<string, string>) =>
      send("PUT", "/v1/slots/x", { value: 1 }, { "idempotency-key": "k", ...headers });
    const create = { "if-none-match": "*" };
    const first = await put(create);
    expect(first.status).toBe(200);
    expect(await put(create)).toMatchObject({ status: 200, text: first.text });
    expect(refusal(await put({}))).toEqual({ status: 422, code: "idempotency_mismatch" });
  });

  test("an action whose id is made by the server is the same again, for the same API key", async () => {
    const { pawl, send, url } = await served();
    const { id, key } = await apiKeys(pawl).create({ name: "x", scopes: ["write"] });
    const create = (by: Send) => by("POST", "/v1/actions", { owner: "ann" }, { "idempotency-key": "k" });
    const first = await create(sender(url, key));
    expect(first.status).toBe(201);
    const again = await create(sender(url, key));
    expect(again).toMatchObject({ status: 201, text: first.text });
    expect(again.headers.get("idempotent-replayed")).toBe("true");
    expect(await pawl.actions.get(String(first.json["id"]))).toMatchObject({ owner: "ann", id: null });
    // The key of another is apart; a key that was rotated cannot open it.
    expect((await create(send)).json["id"]).not.toBe(first.json["id"]);
    const rotated = await apiKeys(pawl).rotate(id);
    expect(refusal(await create(sender(url, rotated.key)))).toEqual({ status: 500, code: "response_not_kept" });
    expect((await pawl.actions.list()).actions).toHaveLength(2);
  });

  test("a rotation that is repeated is one rotation, and its response has no key any more", async () => {
    const { pawl, send, url } = await served();
    const { id } = await apiKeys(pawl).create({ name: "x", scopes: ["read"] });
    const rotate = () => send("POST", `/v1/keys/${id}/rotate`, {}, { "idempotency-key": "k" });
    const { json: first } = await rotate();
    const again = await rotate();
    const { key, ...rest } = first;
    expect(again).toMatchObject({ status: 200, json: rest });
    expect(again.json).not.toHaveProperty("key");
    expect((await sender(url, String(key))("GET", "/v1/slots")).status).toBe(200);
    expect((await apiKeys(pawl).history(id)).map(({ name }) => name)).toEqual(["created", "rotated"]);
  });

  test("the id that was made is not in the database", async () => {
    const path = join(folder, "pawl.db");
    const pawl = await open(path, { logger: false });
    const { send, close } = await served({}, pawl);
    const { json } = await send("POST", "/v1/actions", {}, { "idempotency-key": "k" });
    await close();
    await pawl.close();
    const bytes = readdirSync(folder).map((name) => readFileSync(join(folder, name)).toString("latin1"));
    expect(bytes.join("")).toContain(String(json["ref"]));
    expect(bytes.join("")).not.toContain(String(json["id"]));
  });
});

describe("actions", () => {
  const secure = () =>
    open("memory:", {
      logger: false,
      actions: {
        pepper: "a pepper of sixteen bytes",
        keys: { current: "k1", ring: { k1: new Uint8Array(32).fill(7) } },
      },
    });

  test("an action has one winner, who gets the payload, also again with the idempotency key", async () => {
    await using pawl = await secure();
    const { send } = await served({}, pawl);
    const created = await send("POST", "/v1/actions", { id: "c1", payload: { code: "SECRET-CANARY" } });
    expect(created).toMatchObject({ status: 201, json: { id: "c1", isNew: true } });
    const winner = await send("POST", "/v1/actions/c1/consume", { by: "ann" }, { "idempotency-key": "k1" });
    expect(winner.json).toMatchObject({ payload: { code: "SECRET-CANARY" }, replayed: false });
    const loser = await send("POST", "/v1/actions/c1/consume", {}, { "idempotency-key": "k2" });
    expect(loser).toMatchObject({ status: 409, json: { code: "already_used", data: { by: "ann" } } });
    expect((await send("GET", "/v1/actions/c1")).json).toMatchObject({ state: "consumed" });
    expect((await send("GET", "/v1/actions?state=consumed")).json["items"]).toHaveLength(1);
    expect((await send("GET", "/v1/actions/c1/history")).json["items"]).toHaveLength(2);
  });

  test("a use that is repeated counts once, and its response says how many are left by then", async () => {
    await using pawl = await secure();
    const { send } = await served({}, pawl);
    await send("POST", "/v1/actions", { id: "c1", uses: 10, payload: 1 });
    const use = (key: string) => send("POST", "/v1/actions/c1/consume", {}, { "idempotency-key": key });
    const { json: first } = await use("k1");
    expect(first).toMatchObject({ payload: 1, replayed: false, usesLeft: 9 });
    await use("k2");
    expect((await use("k1")).json).toEqual({ ...first, replayed: true, usesLeft: 8 });
    expect((await send("GET", "/v1/actions/c1")).json).toMatchObject({ usesLeft: 8 });
  });

  test("the sixth wrong PIN finds it locked, and the right one too", async () => {
    await using pawl = await secure();
    const { send } = await served({}, pawl);
    await send("POST", "/v1/actions", { id: "p1", pin: "4711" });
    const tries = [];
    for (let i = 0; i < 6; i++) tries.push(refusal(await send("POST", "/v1/actions/p1/consume", { pin: "0000" })));
    expect(tries.slice(0, 4)).toEqual(Array(4).fill({ status: 401, code: "invalid_pin" }));
    expect(tries.at(-1)).toEqual({ status: 423, code: "locked" });
    expect(refusal(await send("POST", "/v1/actions/p1/consume", { pin: "4711" }))).toEqual({
      status: 423,
      code: "locked",
    });
    for (const pin of [4711, "４７１１", "1".repeat(1000)])
      expect((await send("POST", "/v1/actions", { id: "p2", pin })).status, String(pin)).toBe(400);
  });

  test("an effect that takes time is claimed, completed or abandoned", async () => {
    await using pawl = await secure();
    const { send } = await served({}, pawl);
    const { json } = await send("POST", "/v1/actions", {});
    const id = encodeURIComponent(String(json["id"]));
    const claim = await send("POST", `/v1/actions/${id}/claim`, { lease: "1m" });
    expect((await send("POST", `/v1/actions/${id}/abandon`, { fence: claim.json["fence"] })).json).toEqual({
      isNew: true,
    });
    const again = await send("POST", `/v1/actions/${id}/claim`, {});
    const done = await send("POST", `/v1/actions/${id}/complete`, { fence: again.json["fence"] });
    expect(done.json).toMatchObject({ replayed: false, usesLeft: 0 });
    const ref = `ref:${json["ref"]}`;
    expect((await send("GET", `/v1/actions/${ref}`)).json).toMatchObject({ id: null, state: "consumed" });
    expect(refusal(await send("POST", `/v1/actions/${ref}/cancel`, {})).code).toBe("already_used");
  });
});

describe("refusals say what is possible", () => {
  const words = /expected one of "pending"\|"queued"/;
  test.each([
    ["a status", "GET", "/v1/runs?status=bogus", undefined, [/at status: /, words]],
    ["the status of tasks", "GET", "/v1/tasks?status=bogus", undefined, [/at status: /, words]],
    [
      "one of several",
      "POST",
      "/v1/tasks/redrive",
      { status: ["failed", "x"] },
      [/at status\.1: .*"failed"\|"timed_out"/],
    ],
    [
      "an action",
      "POST",
      "/v1/runs/bulk",
      { action: "x", filter: { tag: "t" } },
      [/at action: .*"cancel"\|"retry"\|"delete"/],
    ],
    [
      "a member of one alternative",
      "POST",
      "/v1/runs/bulk",
      { action: "retry", filter: { status: "x" } },
      [/at filter\.status: /, words],
    ],
    ["a duration without a unit", "GET", "/v1/runs/r/result?wait=1", undefined, [/needs a unit, such as "1s"/]],
    [
      "a tag that is none",
      "PUT",
      "/v1/slots/x",
      { value: { a: [{ $foo: 1 }] } },
      [/ at \$\.a\[0\]: /, /\{"\$\$foo": 1\} is an object with the key "\$foo"/],
    ],
  ] as const)("%s", async (_, method, path, body, says) => {
    const { send, pawl } = await served();
    const refused = await send(method, path, body);
    expect(refused.status).toBe(400);
    for (const one of says) expect(refused.json["detail"]).toMatch(one);
    expect((await pawl.slot("x").get()).version).toBe(0);
  });

  test("a path that there is not: where the document is, below the prefix", async () => {
    const { send } = await served({ prefix: "/pawl" });
    const { json } = await send("GET", "/pawl/nope");
    expect(json).toMatchObject({ code: "route_not_found" });
    const [document = ""] = /\/\S+json/.exec(String(json["detail"])) ?? [];
    expect(document).toBe("/pawl/v1/openapi.json");
    expect((await send("GET", document)).status).toBe(200);
  });
});

describe("many at once", () => {
  const done = workflow("done", async (_, n: number) => n);
  const Sent = event<string>("Sent");
  const mail = reaction("mail", { on: [Sent], target: (one) => one.stream }, async () => {});
  const refused = { status: 400, code: "invalid_argument" };

  test("a filter without a condition changes nothing, unless the request says that all are meant", async () => {
    const { pawl, send } = await served();
    await pawl.work([done, mail]).ready;
    await (await pawl.start(done, 1, { id: "r" })).result();
    const bulk = (body: object) => send("POST", "/v1/runs/bulk", { action: "delete", ...body });
    for (const filter of [{}, { prefix: "" }]) expect(refusal(await bulk({ filter }))).toEqual(refused);
    expect((await bulk({ filter: { status: [] } })).json["items"]).toEqual([]);
    expect(refusal(await send("POST", "/v1/tasks/redrive", {}))).toEqual(refused);
    expect((await send("POST", "/v1/tasks/redrive", { all: true })).json).toMatchObject({ redriven: 0 });
    for (const verb of ["unblock", "reset", "prioritize"]) {
      const change = (body: object) => send("POST", `/v1/reactions/mail/${verb}`, body);
      for (const filter of [{}, { dryRun: true }]) expect(refusal(await change(filter)), verb).toEqual(refused);
      expect((await change({ all: true })).json, verb).toEqual({ changed: 0 });
    }
    for (const verb of ["pause", "resume"]) {
      const change = (targets: object) => send("POST", `/v1/reactions/mail/${verb}`, { targets });
      expect(refusal(await change({})), verb).toEqual(refused);
      expect((await change({ all: true })).json, verb).toEqual({ changed: 0 });
    }
    expect((await pawl.runs.list()).runs).toHaveLength(1);
    expect((await bulk({ filter: {}, all: true })).json["items"]).toEqual([{ id: "r", ok: true }]);
  });
});

describe("machines", () => {
  const order = machine("order", { initial: "pending", transitions: { pending: ["paid"], paid: [] } });

  test("an instance moves along its transitions, and refused attempts are in its history", async () => {
    const { send } = await served({ machines: [order] });
    const created = await send("POST", "/v1/machines/order/o-1", { data: { total: 3 } });
    expect(created).toMatchObject({ status: 201, json: { state: "pending", data: { total: 3 }, allowed: ["paid"] } });
    const moved = await send("POST", "/v1/machines/order/o-1/transition", { to: "paid", expectedVersion: 1 });
    expect(moved.json).toMatchObject({ outcome: "moved", state: "paid", version: 2 });
    const refused = await send("POST", "/v1/machines/order/o-1/transition", { to: "pending" });
    expect(refusal(refused)).toEqual({ status: 409, code: "illegal_transition" });
    const history = await send("GET", "/v1/machines/order/o-1/history");
    expect(history.json["items"]).toMatchObject([{ to: "pending" }, { to: "paid" }, { code: "illegal_transition" }]);
    expect((await send("GET", "/v1/machines/order?state=paid")).json["items"]).toHaveLength(1);
    expect(refusal(await send("GET", "/v1/machines/order/o-2"))).toEqual({ status: 404, code: "machine_not_found" });
    expect(refusal(await send("GET", "/v1/machines/ticket/o-1"))).toEqual({ status: 404, code: "machine_unknown" });
  });
});

describe("streams", () => {
  const events = [{ name: "Deposited", data: { amount: 10 } }];

  test("events are appended and read, and a stale version is refused with the current one", async () => {
    const { send } = await served();
    const first = await send("POST", "/v1/streams/a/events", { events, expectedVersion: 0 });
    expect(first).toMatchObject({ status: 201, json: { stream: "a", version: 1 } });
    const stale = await send("POST", "/v1/streams/a/events", { events, expectedVersion: 0 });
    expect(stale).toMatchObject({ status: 409, json: { code: "concurrency_conflict", data: { version: 1 } } });
    const failed = await send("POST", "/v1/streams/a/events", { events }, { "if-match": '"0"' });
    expect(failed).toMatchObject({ status: 412, json: { code: "concurrency_conflict" } });
    await send("POST", "/v1/streams/a/events", { events: [...events, ...events] }, { "if-match": '"1"' });
    const page = await send("GET", "/v1/streams/a/events?limit=2");
    expect(page.json).toMatchObject({ items: [{ version: 1 }, { version: 2, data: { amount: 10 } }], next: "3" });
    const last = await send("GET", "/v1/streams/a/events?direction=backwards&limit=1");
    expect(last.json).toMatchObject({ items: [{ version: 3 }], next: "2" });
    expect((await send("GET", "/v1/streams/a")).json).toEqual({ id: "a", version: 3 });
    const all = await send("GET", "/v1/events?limit=2");
    expect(all.json["items"]).toHaveLength(2);
    const rest = await send("GET", `/v1/events?after=${all.json["next"]}`);
    expect(rest.json["items"]).toHaveLength(1);
  });
});

describe("reactions", () => {
  test("a blocked target is shown, skipped and sent again", async () => {
    const { pawl, send } = await served();
    const Sent = event<string>("Sent");
    let isBroken = true;
    const handled: string[] = [];
    const mail = reaction("mail", { on: [Sent], target: (one) => one.stream, retry: { attempts: 1 } }, async (one) => {
      if (isBroken) throw new Error("no mail today");
      handled.push(one.data);
    });
    await pawl.work([mail]).ready;
    await send("POST", "/v1/streams/a/events", { events: [{ name: "Sent", data: "hello" }] });
    const blocked = async () => (await send("GET", "/v1/reactions/mail/targets?status=blocked")).json["items"];
    await expect.poll(blocked).toMatchObject([{ target: "a", lastError: { message: "no mail today" } }]);
    // Where user code threw is for those who have the database.
    expect((await pawl.reactions.target("mail", "a")).lastError?.stack).toContain("routes.test.ts");
    expect(JSON.stringify(await blocked())).not.toContain("routes.test.ts");
    expect((await send("GET", "/v1/reactions")).json["items"]).toMatchObject([{ name: "mail", on: ["Sent"] }]);
    expect((await send("POST", "/v1/reactions/mail/unblock", { target: "a", dryRun: true })).json).toEqual({
      changed: 1,
    });
    const letter = await send("POST", "/v1/reactions/mail/skip", { target: "a", reason: "spam" });
    expect(letter.json).toMatchObject({ stream: "a", version: 1, reason: "spam" });
    expect((await send("GET", "/v1/reactions/mail/dead-letters")).json["items"]).toHaveLength(1);
    expect(letter.text + (await send("GET", "/v1/reactions/mail/dead-letters")).text).not.toContain("routes.test.ts");
    expect((await pawl.reactions.deadLetters("mail")).letters[0]?.stack).toContain("routes.test.ts");
    isBroken = false;
    const redriven = await send("POST", "/v1/reactions/mail/dead-letters/redrive", { stream: "a", version: 1 });
    expect(redriven.status).toBe(204);
    await expect.poll(() => handled).toEqual(["hello"]);
    for (const verb of ["pause", "resume"])
      expect((await send("POST", `/v1/reactions/mail/${verb}`)).json).toEqual({ changed: null });
    expect(refusal(await send("GET", "/v1/reactions/none"))).toEqual({ status: 404, code: "reaction_not_found" });
    expect(refusal(await send("GET", "/v1/reactions/none/targets")).status).toBe(404);
  });
});

describe("schedules", () => {
  test("a schedule is created, changed, previewed, triggered and deleted", async () => {
    const { send } = await served();
    const body = { name: "nightly", workflow: "report", cron: "0 3 * * *", timezone: "Europe/Berlin", input: { a: 1 } };
    expect(await send("POST", "/v1/schedules", body)).toMatchObject({ status: 201, json: { state: "active" } });
    expect((await send("GET", "/v1/schedules")).json["items"]).toHaveLength(1);
    const preview = await send("GET", "/v1/schedules/nightly/preview?count=2&from=2030-01-01T00:00:00Z");
    expect(preview.json["items"]).toEqual(["2030-01-01T02:00:00.000Z", "2030-01-02T02:00:00.000Z"]);
    const updated = await send("PATCH", "/v1/schedules/nightly", { every: "1h" });
    expect(updated.json).toMatchObject({ everyMs: 3_600_000, cron: null });
    expect((await send("POST", "/v1/schedules/nightly/pause", { reason: "no" })).json).toMatchObject({
      state: "paused",
    });
    expect((await send("POST", "/v1/schedules/nightly/resume")).json).toMatchObject({ state: "active" });
    const triggered = await send("POST", "/v1/schedules/nightly/trigger");
    expect((await send("GET", `/v1/runs/${encodeURIComponent(String(triggered.json["run"]))}`)).json).toMatchObject({
      workflow: "report",
    });
    const trigger = (body?: object, headers?: Record<string, string>) =>
      send("POST", "/v1/schedules/nightly/trigger", body, headers);
    const named = await trigger({ id: "again" }, { "idempotency-key": "k1" });
    expect(named.json["run"]).not.toBe(triggered.json["run"]);
    expect((await trigger({ id: "again" }, { "idempotency-key": "k2" })).json).toEqual(named.json);
    expect((await trigger({ id: "again" })).json).toEqual(named.json);
    expect((await trigger({ id: "other" })).json).not.toEqual(named.json);
    expect(refusal(await trigger({ id: "" }))).toEqual({ status: 400, code: "invalid_id" });
    const from = "2020-01-01T00:00:00Z";
    const filled = await send("POST", "/v1/schedules/nightly/backfill", { from, to: "2020-01-01T02:00:00Z" });
    expect(filled.json["runs"]).toHaveLength(3);
    expect((await send("GET", "/v1/schedules/nightly/history?limit=2")).json["items"]).toHaveLength(2);
    expect((await send("DELETE", "/v1/schedules/nightly")).json).toEqual({ deleted: true });
    expect(refusal(await send("GET", "/v1/schedules/nightly"))).toEqual({ status: 404, code: "schedule_not_found" });
  });
});

describe("projections", () => {
  test("one that stopped is shown, built again and deleted, each with its scope", async () => {
    const { pawl, send, as } = await served();
    const Sent = event<string>("Sent");
    let isBroken = true;
    const rows = projection("rows", { on: [Sent] }, (_, e): string => {
      if (isBroken) throw new Error("no row today");
      return e.data;
    });
    await pawl.work([rows]).ready;
    await pawl.stream("a").append([Sent("hello")]);
    const one = async () => (await send("GET", "/v1/projections/rows")).json;
    await expect.poll(one, { timeout: 30_000 }).toMatchObject({
      live: null,
      building: { behind: 1, failure: { message: "no row today", stream: "a", version: 1 } },
    });
    expect((await pawl.projection("rows").status()).building?.failure?.stack).toContain("routes.test.ts");
    const shown = await send("GET", "/v1/projections");
    expect(shown.json["items"]).toMatchObject([{ name: "rows", live: null }]);
    expect(shown.text + JSON.stringify(await one())).not.toContain("routes.test.ts");
    isBroken = false;
    const [read, operate] = [await as(["read"]), await as(["operate"])];
    expect((await read("POST", "/v1/projections/rows/rebuild")).status).toBe(403);
    expect((await read("DELETE", "/v1/projections/rows")).status).toBe(403);
    expect((await operate("POST", "/v1/projections/rows/rebuild", { from: "kept" })).json).toEqual({ generation: 2 });
    await expect
      .poll(one, { timeout: 30_000 })
      .toMatchObject({ name: "rows", live: { generation: 2, behind: 0 }, building: null });
    expect((await operate("DELETE", "/v1/projections/rows")).status).toBe(204);
    for (const [method, path] of [
      ["GET", ""],
      ["POST", "/rebuild"],
      ["DELETE", ""],
    ] as const)
      expect(refusal(await send(method, `/v1/projections/rows${path}`))).toEqual({
        status: 404,
        code: "projection_not_found",
      });
  });
});
