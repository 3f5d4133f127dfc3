/**
 * Requests that wait, and the limits on them: they end with their API key, share their places fairly, and hold little for a client that does not read.
 */

import { connect, type Socket } from "node:net";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { createClient } from "../../src/http/client/index.ts";
import { apiKeys } from "../../src/http/server/index.ts";
import { event, open } from "../../src/index.ts";
import { scratchFolder } from "../sqlite/kit.ts";
import { follow, refusal, type Served, sender, served } from "./kit.ts";

const folder = scratchFolder("in memory");
const unauthorized = { status: 401, code: "unauthorized" };

const waiting = (kit: Served, count: number) =>
  expect.poll(async () => (await kit.send("GET", "/metrics")).text).toContain(`pawl_http_waiting ${count}\n`);

/** A stream and each kind of long poll with a key; each waits. */
async function waitWith(kit: Served, key: string) {
  const send = sender(kit.url, key);
  await kit.pawl.start("w", undefined, { id: "r1" });
  await kit.pawl.tasks.create({ targetUrl: "https://example.com/", id: "t1", delay: "1 day" });
  await kit.pawl.mutex("door").acquire();
  const waits = {
    events: ["/v1/slots/x/events", "/v1/runs/r1/events", "/v1/streams/s/events", "/v1/events"].map((path) =>
      follow(kit, path, 99, undefined, key),
    ),
    polls: [
      send("GET", "/v1/runs/r1/result?wait=60s"),
      send("GET", "/v1/tasks/t1?wait=60s"),
      send("POST", "/v1/locks/door/acquire", { wait: "60s" }),
      send("POST", "/v1/locks/door/acquire", { wait: "60s" }, { "idempotency-key": "k" }),
    ],
  };
  await waiting(kit, 8);
  return waits;
}

async function allEnd({ events, polls }: Awaited<ReturnType<typeof waitWith>>): Promise<void> {
  // A stream that breaks off rejects.
  await Promise.all(events);
  for (const poll of polls) expect(refusal(await poll)).toEqual(unauthorized);
}

describe("the end of an API key", () => {
  test("a key that is revoked takes its event streams and long polls along, and no others", async () => {
    const kit = await served();
    const keys = apiKeys(kit.pawl);
    const { id, key } = await keys.create({ name: "x", scopes: ["read", "write"] });
    const waits = await waitWith(kit, key);
    const other = follow(kit, "/v1/slots/y/events", 2);
    await waiting(kit, 9);
    await keys.revoke(id);
    await allEnd(waits);
    await waiting(kit, 1);
    await kit.pawl.slot("y").set(1);
    expect(await other).toHaveLength(2);
    // Nothing is left in the line for the lock.
    expect((await kit.pawl.mutex("door").inspect()).waiters).toHaveLength(0);
  });

  test("so does one that another process revokes", async () => {
    const path = join(folder, "pawl.db");
    const pawl = await open(path, { logger: false });
    const kit = await served({}, pawl);
    const { id, key } = await apiKeys(pawl).create({ name: "x", scopes: ["read", "write"] });
    const waits = await waitWith(kit, key);
    const other = await open(path, { logger: false });
    await apiKeys(other).revoke(id);
    await other.close();
    await allEnd(waits);
  });

  test("so does one that expires, or whose time of grace ends", async () => {
    const kit = await served();
    const keys = apiKeys(kit.pawl);
    const { key: short } = await keys.create({ name: "x", scopes: ["read"], expiresAt: Date.now() + 3000 });
    await follow(kit, "/v1/slots/x/events", 99, undefined, short);
    const { id, key } = await keys.create({ name: "y", scopes: ["read", "write"] });
    const waits = await waitWith(kit, key);
    const rotated = await keys.rotate(id, { grace: "500ms" });
    const current = follow(kit, "/v1/slots/y/events", 2, undefined, rotated.key);
    await allEnd(waits);
    await waiting(kit, 1);
    await kit.pawl.slot("y").set(1);
    expect(await current).toHaveLength(2);
  });

  test("what waits is no reason to read a key for each request", async () => {
    const kit = await served();
    const { id, key } = await apiKeys(kit.pawl).create({ name: "x", scopes: ["read"] });
    const streams = Array.from({ length: 20 }, () => follow(kit, "/v1/slots/x/events", 99, undefined, key));
    await waiting(kit, 20);
    let read = 0;
    const { read: reading } = kit.pawl.kernel;
    kit.pawl.kernel.read = async (keys) => {
      read += keys.filter(({ space }) => space === "api_key").length;
      return reading.call(kit.pawl.kernel, keys);
    };
    // One look at all keys that are watched, after a commit that is not theirs.
    await kit.pawl.slot("z").set(1);
    await apiKeys(kit.pawl).revoke(id);
    await Promise.all(streams);
    expect(read).toBeLessThan(5);
  });
});

describe("places", () => {
  test("one key has at most its share of them; the others are for other keys", async () => {
    const kit = await served({ limits: { waiting: 8 } });
    await kit.pawl.start("w", undefined, { id: "r1" });
    const [one, other] = [await kit.key(["read"]), await kit.key(["read"])];
    const first = [
      follow(kit, "/v1/slots/x/events", 2, undefined, one),
      follow(kit, "/v1/slots/x/events", 2, undefined, one),
    ];
    await waiting(kit, 2);
    const refused = await sender(kit.url, one)("GET", "/v1/slots/x/events");
    expect(refusal(refused)).toEqual({ status: 503, code: "too_many_waiting" });
    expect(refused.headers.get("retry-after")).toBe("1");
    expect((await sender(kit.url, one)("GET", "/v1/runs/r1/result?wait=60s")).status).toBe(202);
    const second = follow(kit, "/v1/slots/x/events", 2, undefined, other);
    await waiting(kit, 3);
    await kit.pawl.slot("x").set(1);
    for (const shown of await Promise.all([...first, second])) expect(shown).toHaveLength(2);
    // Each place is free again.
    await waiting(kit, 0);
    const again = follow(kit, "/v1/slots/x/events", 1, undefined, one);
    expect(await again).toHaveLength(1);
  });

  test("a tenant that has fewer of them than another gets one of that one's, whatever waits there", async () => {
    await using other = await open("memory:", { namespace: "b", logger: false });
    const kit = await served({ limits: { waiting: 4, waitingPerKey: 2 }, namespaces: () => other });
    const figures = { max: 1, per: "60s" };
    await kit.pawl.rateLimit("r", figures).acquire();
    await kit.pawl.start("w", undefined, { id: "r1" });
    const [one, two, foreign] = [
      await kit.key(["read", "write"]),
      await kit.key(["read"]),
      await kit.key(["read"], "b"),
    ];
    const send = sender(kit.url, one);
    const run = send("GET", "/v1/runs/r1/result?wait=60s");
    await waiting(kit, 1);
    const rate = send("POST", "/v1/rate-limits/r/acquire", { ...figures, wait: "60s" });
    await waiting(kit, 2);
    const last = [1, 2].map(() => follow(kit, "/v1/slots/x/events", 2, undefined, two));
    await waiting(kit, 4);
    const others = [follow(kit, "/v1/slots/y/events", 2, undefined, foreign)];
    // As if its time were over.
    expect((await run).status).toBe(202);
    others.push(follow(kit, "/v1/slots/y/events", 2, undefined, foreign));
    expect(refusal(await rate)).toEqual({ status: 503, code: "too_many_waiting" });
    const more = await sender(kit.url, await kit.key(["read"], "b"))("GET", "/v1/slots/y/events");
    expect(refusal(more)).toEqual({ status: 503, code: "too_many_waiting" });
    await other.slot("y").set(1);
    for (const shown of await Promise.all(others)) expect(shown).toHaveLength(2);
    await kit.pawl.slot("x").set(1);
    for (const shown of await Promise.all(last)) expect(shown).toHaveLength(2);
  });
});

/** Opens a stream and reads nothing of it. Returns the connection. */
async function unread(kit: Served, path: string, key: string): Promise<Socket> {
  const { hostname, port } = new URL(kit.url);
  const socket = connect(Number(port), hostname);
  onTestFinished(() => void socket.destroy());
  socket.on("error", () => {});
  socket.pause();
  socket.write(`GET ${path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${key}\r\naccept: text/event-stream\r\n\r\n`);
  return socket;
}

describe("clients that do not read", () => {
  test.each([
    ["a slot", "/v1/slots/x/events"],
    ["a stream", "/v1/streams/x/events"],
    ["all streams", "/v1/events"],
  ])("%s: beyond the bound on unread bytes they are disconnected; one that reads gets everything", async (_, path) => {
    const kit = await served({ limits: { waitingPerKey: 100, unreadBytes: 2 ** 20 } });
    const key = await kit.key(["read"]);
    const Said = event<string>("Said");
    const write = (text: string) =>
      path === "/v1/slots/x/events" ? kit.pawl.slot("x").set(text) : kit.pawl.stream("x").append([Said(text)]);
    for (let i = 0; i < 20; i += 1) await unread(kit, path, key);
    await waiting(kit, 20);
    const seen: string[] = [];
    const reader = createClient({ url: kit.url, key });
    const stop = new AbortController();
    const reading = (async () => {
      const { signal: abortSignal } = stop;
      if (path === "/v1/slots/x/events")
        for await (const { value } of reader.slot("x").watch({ abortSignal })) seen.push(value as string);
      else for await (const { data } of reader.stream("x").follow({ abortSignal })) seen.push(data as string);
    })();
    await waiting(kit, 21);
    // The operating system takes some of it, so that one write may not be enough.
    const most = 4;
    let written = 0;
    for (; ; written += 1) {
      const text = `${written} ${"x".repeat(500_000)}`;
      await write(text);
      await expect.poll(() => seen.at(-1) === text).toBe(true);
      const { text: shown } = await kit.send("GET", "/metrics");
      if (Number(/pawl_http_waiting (\d+)/.exec(shown)?.[1]) <= most) break;
    }
    if (path !== "/v1/slots/x/events") expect(seen).toHaveLength(written + 1);
    stop.abort();
    await reading;
  });

  test("a stream whose client has not read everything ends with its key, too", async () => {
    const kit = await served();
    const { id, key } = await apiKeys(kit.pawl).create({ name: "x", scopes: ["read"] });
    for (let i = 0; i < 20; i += 1) await kit.pawl.stream("x").append([event<string>("Said")("x".repeat(500_000))]);
    await unread(kit, "/v1/streams/x/events", key);
    await waiting(kit, 1);
    await apiKeys(kit.pawl).revoke(id);
    await waiting(kit, 0);
  });
});
