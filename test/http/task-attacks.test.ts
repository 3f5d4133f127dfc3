/**
 * Attacks on tasks, their signal tokens and PINs, by their numbers, each by requests to a real server: what a receiver sends, what a client puts into a
 * task, and floods of guesses.
 */

import type { Socket } from "node:net";
import { Webhook } from "standardwebhooks";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { Pepper } from "../../src/action/pepper.ts";
import { httpTasks, open } from "../../src/index.ts";
import { gate } from "../kernel/kit.ts";
import { type Behavior, drips, KEYS, receiver, reply, SECRET, sendsTenGigabytes, tokenOf } from "../task/kit.ts";
import { type Got, refusal, sender, served } from "./kit.ts";

const NEXT_SECRET = `whsec_${Buffer.alloc(32, 9).toString("base64")}`;
const QUICK = { delay: "1ms", maxDelay: "1ms" };
const MIB = 1024 * 1024;

/** A server that also makes the calls of its tasks. */
async function withTasks(...[options]: Parameters<typeof served>) {
  const pawl = await open("memory:", {
    logger: false,
    actions: { ...KEYS.actions, pepper: "a pepper of sixteen bytes" },
  });
  onTestFinished(() => pawl.close());
  pawl.work([httpTasks({ secrets: [NEXT_SECRET, SECRET], allow: ["127.0.0.1/32"] })]);
  return served(options, pawl);
}

const itemsOf = ({ json }: Got) => json["items"] as Record<string, unknown>[];

describe("what a receiver sends", () => {
  const attacks: { rule: string; behavior: Behavior; timeout?: string; code: string }[] = [
    { rule: "10 GB", behavior: sendsTenGigabytes, code: "body_too_large" },
    { rule: "a trickle without an end", behavior: drips, timeout: "50ms", code: "timeout" },
  ];
  test.each(attacks)("51: $rule is cut off, and the call is made again", async ({ behavior, timeout, code }) => {
    const { url, send } = await withTasks();
    const sockets: Socket[] = [];
    const bad: Behavior = (response, seen) => {
      if (response.socket !== null) sockets.push(response.socket);
      behavior(response, seen);
    };
    const target = await receiver(bad, bad, reply(200, "at last"));
    await send("POST", "/v1/tasks", { targetUrl: target.url, id: "t1", retry: QUICK, ...(timeout && { timeout }) });
    expect((await send("GET", "/v1/tasks/t1?wait=60s")).json).toMatchObject({
      status: "completed",
      outcome: { value: { body: "at last" } },
    });
    const attempts = itemsOf(await send("GET", "/v1/tasks/t1/attempts"));
    // On a slow machine a good reply may be late, too.
    const codes = attempts.map(({ error }) => (error as { code: string } | null)?.code);
    expect(codes.slice(0, 2).concat(codes.slice(-1))).toEqual([code, code, undefined]);
    if (timeout === undefined) expect(codes).toHaveLength(3);
    for (const { body } of attempts) expect(String(body).length).toBeLessThanOrEqual(16 * 1024);
    await expect.poll(() => sockets.every(({ destroyed }) => destroyed)).toBe(true);
    // What it could send is what was read, and what the two sockets hold.
    for (const { bytesWritten } of sockets) expect(bytesWritten).toBeLessThan(32 * MIB);
    expect((await fetch(`${url}/livez`)).status).toBe(200);
  });

  test("53: a 410 stops, whatever the list says", async () => {
    const { send } = await withTasks();
    const target = await receiver(reply(410), reply(200));
    const task = { targetUrl: target.url, id: "t1", retry: QUICK, retryStatuses: [410, "5xx"] };
    await send("POST", "/v1/tasks", task);
    const ended = await send("GET", "/v1/tasks/t1?wait=60s");
    expect(ended.json).toMatchObject({ status: "failed", outcome: { error: { code: "http_status" } } });
    expect(target.seen).toHaveLength(1);
  });

  const waits = [
    { text: "3600", seconds: 3600 },
    { text: "99999999999999999999", seconds: 86_400 },
    { text: "Fri, 31 Dec 9999 23:59:59 GMT", seconds: 86_400 },
  ];
  test.each(waits)("53: Retry-After: $text is a wait of $seconds s", async ({ text, seconds }) => {
    const { send } = await withTasks();
    const target = await receiver(reply(503, "", { "retry-after": text }));
    await send("POST", "/v1/tasks", { targetUrl: target.url, id: "t1", retry: QUICK });
    const run = async () => (await send("GET", "/v1/runs/t1")).json;
    await expect.poll(async () => (await run())["status"]).toBe("waiting");
    const [attempt] = itemsOf(await send("GET", "/v1/tasks/t1/attempts"));
    const waitMs = Date.parse(String((await run())["dueAt"])) - Date.parse(String(attempt?.["startedAt"]));
    expect(waitMs).toBeGreaterThanOrEqual(seconds * 1000);
    // From the beginning of the attempt, so its own time is in it: no other wait is as near.
    expect(waitMs).toBeLessThan(2 * seconds * 1000);
  });
});

describe("what a task sends", () => {
  const bad: { rule: string; headers: Record<string, string> }[] = [
    { rule: "a line end in a value", headers: { "x-a": "1\r\nhost: evil.example" } },
    { rule: "a line feed in a value", headers: { "x-a": "1\nwebhook-id: 1" } },
    { rule: "a line end in a name", headers: { "x-a: 1\r\nhost": "evil.example" } },
    { rule: "Host", headers: { Host: "evil.example" } },
    { rule: "the signature", headers: { "Webhook-Signature": "v1,x" } },
    { rule: "the id that is signed", headers: { "webhook-id": "msg_1" } },
    { rule: "what looks like the signature", headers: { webhook_signature: "v1,x" } },
    { rule: "what looks like the key", headers: { "idempotency.key": "k" } },
    { rule: "a length", headers: { "content-length": "5" } },
    { rule: "an encoding", headers: { "Transfer-Encoding": "chunked" } },
  ];
  test("52: line ends in headers, and headers that every attempt sets itself, are refused", async () => {
    const { send } = await withTasks();
    const target = await receiver();
    for (const { rule, headers } of bad) {
      const refused = await send("POST", "/v1/tasks", { targetUrl: target.url, headers });
      expect(refusal(refused), rule).toEqual({ status: 400, code: "invalid_argument" });
    }
    expect(itemsOf(await send("GET", "/v1/tasks"))).toEqual([]);
    expect(target.seen).toEqual([]);
  });

  test("53: calls and notifications are signed with each secret, over id, time and the bytes of the body", async () => {
    const { send } = await withTasks();
    const target = await receiver();
    const body = { text: "ü 😀" };
    await send("POST", "/v1/tasks", { targetUrl: target.url, onCompleteUrl: target.url, body, id: "t.1" });
    await expect.poll(() => target.seen.length).toBe(2);
    for (const { body, headers } of target.seen) {
      const signed = headers as Record<string, string>;
      for (const secret of [NEXT_SECRET, SECRET])
        expect(new Webhook(secret).verify(body, signed)).toEqual(JSON.parse(body));
      expect(() => new Webhook(SECRET).verify(`${body} `, signed)).toThrow();
      // Where ids have no dots, no other id, time and body are signed with the same bytes.
      expect(signed["webhook-id"]).toMatch(/^msg_[0-9a-f]{32}(_\d+)?$/);
    }
    expect(target.seen.map((one) => JSON.parse(one.body))).toEqual([
      body,
      expect.objectContaining({ type: "task.completed" }),
    ]);
  });
});

describe("guesses", () => {
  const LIMIT = 20;
  const signaled = { status: "completed", value: 1 };

  test("54, 60: a flood of wrong tokens is cut off by address, costs as much as a right one, and settles nothing", async () => {
    const limits = { keyless: { max: LIMIT, per: "1 hour" } } as const;
    const kit = await withTasks({ limits, trustedProxies: ["127.0.0.0/8"] });
    const { pawl, send } = kit;
    const created = await pawl.tasks.create({
      targetUrl: "https://example.com/",
      delay: "1 hour",
      waitForSignal: true,
    });
    const token = tokenOf(created);
    await send("GET", "/v1/runs");
    const transact = vi.spyOn(pawl.kernel, "transact");
    onTestFinished(() => transact.mockRestore());
    const from = (address: string, token: string) =>
      sender(kit.url)("POST", `/v1/signals/${token}`, signaled, { "x-forwarded-for": address });
    // Of the shape of a token, so each could be one.
    const wrong = Array.from({ length: 400 }, (_, i) => `sig_${String(i).padStart(43, "A")}`);
    const responses = await Promise.all(wrong.map((one) => from("203.0.113.1", one)));
    const notFound = responses.filter(({ status }) => status === 404);
    expect(notFound).toHaveLength(LIMIT);
    expect(new Set(notFound.map(({ json: { requestId: _, ...rest } }) => JSON.stringify(rest))).size).toBe(1);
    for (const response of responses)
      if (response.status !== 404) {
        expect(refusal(response)).toEqual({ status: 429, code: "rate_limited" });
        expect(Number(response.headers.get("retry-after"))).toBeGreaterThan(0);
      }
    const perGuess = transact.mock.calls.length / LIMIT;
    expect(perGuess).toBe(1);
    // The right one is refused there, too; with a key, and from elsewhere, all is as it was.
    expect((await from("203.0.113.1", token)).status).toBe(429);
    expect((await fetch(`${kit.url}/livez`)).status).toBe(200);
    expect((await send("GET", `/v1/tasks/${created.task.id}`)).json).toMatchObject({ outcome: null });
    transact.mockClear();
    expect((await from("203.0.113.2", token)).json).toMatchObject({ isNew: true, outcome: { by: "signal" } });
    expect(transact).toHaveBeenCalledTimes(perGuess);
  });

  /** Notes how many PINs are hashed, and holds each hash until `until`. */
  function heldHashes(until: Promise<unknown> = Promise.resolve()) {
    const counts = { now: 0, most: 0, all: 0 };
    const { pin } = Pepper.prototype;
    const spy = vi.spyOn(Pepper.prototype, "pin").mockImplementation(async function (this: Pepper, ...given) {
      counts.now += 1;
      counts.all += 1;
      counts.most = Math.max(counts.most, counts.now);
      await until;
      return pin.apply(this, given).finally(() => {
        counts.now -= 1;
      });
    });
    onTestFinished(() => spy.mockRestore());
    return counts;
  }

  test("59: of a flood of PINs two are hashed concurrently, the others are busy, and the server serves", async () => {
    const { url, pawl, send } = await withTasks();
    const ids = Array.from({ length: 60 }, (_, i) => `a${i}`);
    for (const id of ids) await pawl.actions.create({ id, uses: 2 });
    await pawl.actions.create({ id: "with", pin: "4711" });
    ids.push("with");
    const held = gate();
    const counts = heldHashes(held.opened);
    const refused: Got[] = [];
    const flood = ids.map(async (id) => {
      const response = await send("POST", `/v1/actions/${id}/consume`, { pin: "0000" });
      refused.push(response);
      return response;
    });
    // All but the two that are hashed, and those that may wait behind them, are refused while the two still run.
    await expect.poll(() => refused.length).toBe(flood.length - 10);
    for (const response of refused) {
      expect(refusal(response)).toEqual({ status: 503, code: "busy" });
      expect(response.headers.get("retry-after")).toBe("1");
    }
    expect(counts.most).toBe(2);
    expect((await fetch(`${url}/livez`)).status).toBe(200);
    expect((await send("GET", "/v1/actions/a59")).status).toBe(200);
    held.open();
    const responses = await Promise.all(flood);
    expect(counts).toEqual({ now: 0, most: 2, all: 10 });
    // A refusal has cost nothing: no use, and no try.
    const isBusy = new Set(ids.filter((_, i) => responses[i]?.status === 503));
    for (const action of (await pawl.actions.list({ limit: 100 })).actions) {
      if (action.id === "with") expect(action.pinTriesLeft).toBe(isBusy.has("with") ? 5 : 4);
      else expect(action.usesLeft).toBe(isBusy.has(action.id ?? "") ? 2 : 1);
    }
    expect((await send("POST", "/v1/actions/with/consume", { pin: "4711" })).status).toBe(200);
  });

  test("60: a PIN costs one hash whether the action has one, has none, or is not there", async () => {
    const { pawl, send } = await withTasks();
    await pawl.actions.create({ id: "with", pin: "4711" });
    await pawl.actions.create({ id: "without" });
    const counts = heldHashes();
    const guess = async (id: string) => {
      counts.all = 0;
      const { status } = await send("POST", `/v1/actions/${id}/consume`, { pin: "0000" });
      return { status, hashes: counts.all };
    };
    expect(await guess("with")).toEqual({ status: 401, hashes: 1 });
    expect(await guess("without")).toEqual({ status: 200, hashes: 1 });
    expect(await guess("missing")).toEqual({ status: 404, hashes: 1 });
  });
});
