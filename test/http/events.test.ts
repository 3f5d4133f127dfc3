/**
 * Server-sent events, long polls, and the end of a server.
 */

import { describe, expect, test, vi } from "vitest";
import { createClient } from "../../src/http/client/index.ts";
import { CursorKey } from "../../src/http/server/cursors.ts";
import { apiKeys } from "../../src/http/server/index.ts";
import { wantsEvents } from "../../src/http/server/sse.ts";
import { Unread } from "../../src/http/server/unread.ts";
import { event, open, signal, workflow } from "../../src/index.ts";
import { follow, refusal, sender, served } from "./kit.ts";

describe("server-sent events", () => {
  test("the history of a run is followed to its end, and resumed after the last event", async () => {
    const go = signal<string>("go");
    const waits = workflow("waits", async (ctx) => (await ctx.waitForSignal(go)).ok);
    const kit = await served();
    kit.pawl.work([waits]);
    await kit.pawl.start("waits", undefined, { id: "r1" });
    const all = follow(kit, "/v1/runs/r1/events", 99);
    await kit.send("POST", "/v1/runs/r1/signals", { name: "go", payload: "x" });
    const events = await all;
    expect(events[0]).toMatchObject({ id: "1", event: "started" });
    expect(events.at(-1)).toEqual({ id: undefined, event: "ended", data: { status: "completed" } });
    const rest = await follow(kit, "/v1/runs/r1/events", 99, "1");
    expect(rest).toEqual(events.slice(1));
    const last = String(events.at(-2)?.id);
    const done = await kit.send("GET", "/v1/runs/r1/events", undefined, { "last-event-id": last });
    expect(done.status).toBe(204);
    expect(refusal(await kit.send("GET", "/v1/runs/none/events"))).toEqual({ status: 404, code: "run_not_found" });
  });

  test("a slot is followed from its value now", async () => {
    const kit = await served();
    await kit.pawl.slot("x").set("a");
    const two = follow(kit, "/v1/slots/x/events", 2);
    await expect.poll(async () => (await kit.send("PUT", "/v1/slots/x", { value: "b" })).status).toBe(200);
    expect((await two)[0]).toMatchObject({ event: "value", data: { name: "x" } });
  });

  test("events of a stream and of all streams are followed as they are appended", async () => {
    const Said = event<string>("Said");
    const kit = await served();
    await kit.pawl.stream("a").append([Said("1"), Said("2")]);
    const one = follow(kit, "/v1/streams/a/events", 2, "1");
    const all = follow(kit, "/v1/events", 4);
    await kit.pawl.stream("b").append([Said("3")]);
    await kit.pawl.stream("a").append([Said("4")]);
    expect(await one).toMatchObject([
      { id: "2", event: "Said", data: { data: "2" } },
      { id: "3", data: { data: "4" } },
    ]);
    const seen = await all;
    expect(seen.map(({ data }) => (data as { data: string }).data)).toEqual(["1", "2", "3", "4"]);
    const rest = await follow(kit, "/v1/events", 1, seen[2]?.id);
    expect(rest).toMatchObject([{ data: { data: "4" } }]);
  });

  test("each stream has its turns as one of its tenant and its key", async () => {
    await using pawl = await open("memory:", { logger: false });
    await using other = await open("memory:", { namespace: "b", logger: false });
    const kit = await served({ namespaces: () => other }, pawl);
    const turn = vi.spyOn(Unread.prototype, "turn");
    const a = await apiKeys(pawl).create({ name: "a", scopes: ["read"] });
    const b = await apiKeys(pawl).create({ name: "b", scopes: ["read"], namespace: "b" });
    for (const { id, key, namespace } of [a, b])
      for (const path of ["/v1/slots/x/events", "/v1/streams/x/events", "/v1/events", "/v1/runs/r/events"]) {
        await (namespace === "b" ? other : pawl).start("w", undefined, { id: "r" });
        turn.mockClear();
        const stop = new AbortController();
        const headers = { authorization: `Bearer ${key}`, accept: "text/event-stream" };
        expect((await fetch(`${kit.url}${path}`, { headers, signal: stop.signal })).status, path).toBe(200);
        expect(turn.mock.calls[0]?.[0], path).toEqual({ namespace, keyId: id });
        stop.abort();
      }
    turn.mockRestore();
  });

  test("no more requests wait than may: events are refused, and a long poll returns immediately", async () => {
    const kit = await served({ limits: { waiting: 1 } });
    await kit.pawl.start("w", undefined, { id: "r1" });
    const first = follow(kit, "/v1/slots/x/events", 2);
    await expect.poll(async () => (await kit.send("GET", "/metrics")).text).toContain("pawl_http_waiting 1");
    const refused = await kit.send("GET", "/v1/runs/r1/events");
    expect(refusal(refused)).toEqual({ status: 503, code: "too_many_waiting" });
    expect((await kit.send("GET", "/v1/runs/r1/result?wait=60s")).status).toBe(202);
    await kit.pawl.slot("x").set(1);
    expect(await first).toHaveLength(2);
  });

  test("what cannot be read is refused as without a stream, and not by one that breaks off", async () => {
    const Said = event<string>("Said");
    const kit = await served();
    await kit.pawl.stream("ann").append([Said("1"), Said("2")]);
    await kit.pawl.streams.close("ann", { discard: true });
    const { kernel } = kit.pawl;
    const ahead = (await new CursorKey(kernel).of(kernel.namespace)).ofPlace("1000000");
    const accept = { accept: "text/event-stream" };
    for (const [path, code] of [
      ["/v1/streams/ann/events", "events_archived"],
      [`/v1/events?after=${encodeURIComponent(ahead)}`, "cursor_ahead"],
      [`/v1/events?prefix=${"x".repeat(300)}`, "invalid_id"],
    ] as const) {
      const refused = await kit.send("GET", path, undefined, accept);
      expect(refusal(refused)).toEqual(refusal(await kit.send("GET", path)));
      expect(refused.json["code"]).toBe(code);
      expect(refused.text).not.toContain("1000000");
    }
    const client = createClient({ url: kit.url, key: await kit.key(["read"]) });
    await expect(client.stream("ann").follow().next()).rejects.toMatchObject({ code: "events_archived" });
    expect((await kit.send("GET", "/metrics")).text).toContain("pawl_http_waiting 0");
  });

  test("a request for the head of a stream of events keeps no place", async () => {
    const kit = await served({ limits: { waiting: 1, waitingPerKey: 1 } });
    for (let i = 0; i < 3; i++) {
      const head = await kit.send("HEAD", "/v1/slots/x/events");
      expect(head).toMatchObject({ status: 200, text: "" });
      expect(head.headers.get("content-type")).toBe("text/event-stream");
    }
    expect((await kit.send("GET", "/metrics")).text).toContain("pawl_http_waiting 0");
  });
});

describe("closing", () => {
  test("what waits ends immediately, a request in progress is finished, and no new one is taken", async () => {
    const kit = await served();
    await kit.pawl.start("w", undefined, { id: "r1" });
    const poll = kit.send("GET", "/v1/runs/r1/result?wait=60s");
    const events = follow(kit, "/v1/slots/x/events", 99);
    await expect.poll(async () => (await kit.send("GET", "/metrics")).text).toContain("pawl_http_waiting 2");
    await kit.close({ timeout: 60_000 });
    expect((await poll).status).toBe(202);
    expect(await events).toHaveLength(1);
    await expect(kit.send("GET", "/livez")).rejects.toThrow();
  });
});

test("a page of events is sent unless the client accepts exactly event streams", async () => {
  const { send } = await served();
  for (const accept of ["text/event-streamx", "application/json, x-text/event-stream", "*/*"])
    for (const path of ["/v1/events", "/v1/streams/s/events"])
      expect((await send("GET", path, undefined, { accept })).headers.get("content-type")).toBe("application/json");
});

test.each(["text/event-stream;q=0.9", "application/json, Text/Event-Stream"])("%s accepts event streams", (accept) =>
  expect(wantsEvents(accept)).toBe(true),
);

describe("a wait for tokens of a rate limit", () => {
  const taking = { max: 1, per: "30s", wait: "60s" };
  const path = "/v1/rate-limits/mail/acquire";

  test("takes a place, without which it does not wait, and ends with its API key", async () => {
    const kit = await served({ limits: { waiting: 1, waitingPerKey: 1 } });
    const created = await kit.send("POST", "/v1/keys", { name: "writer", scopes: ["write"] });
    const send = sender(kit.url, String(created.json["key"]));
    expect((await send("POST", path, taking)).status).toBe(200);
    const waiting = send("POST", path, taking);
    await expect.poll(async () => (await kit.send("GET", "/metrics")).text).toContain("pawl_http_waiting 1");
    expect(refusal(await kit.send("POST", path, taking))).toEqual({ status: 429, code: "rate_limited" });
    expect((await kit.send("POST", `/v1/keys/${created.json["id"]}/revoke`)).status).toBe(200);
    expect(refusal(await waiting)).toEqual({ status: 401, code: "unauthorized" });
    expect((await kit.send("GET", "/metrics")).text).toContain("pawl_http_waiting 0");
  });

  test("ends with its server, as a refusal after which it is repeated", async () => {
    const lines: string[] = [];
    const log = (line: string) => void lines.push(line);
    const kit = await served({ logger: { warn: log, error: log } });
    expect((await kit.send("POST", path, taking)).status).toBe(200);
    const waiting = kit.send("POST", path, taking);
    await expect.poll(async () => (await kit.send("GET", "/metrics")).text).toContain("pawl_http_waiting 1");
    await kit.close({ timeout: 60_000 });
    expect(refusal(await waiting)).toEqual({ status: 503, code: "server_closing" });
    expect((await waiting).headers.get("retry-after")).toBe("1");
    expect(lines).toEqual([]);
  });
});

describe("health and metrics", () => {
  test("a process is ready as long as its store responds and its workers turn", async () => {
    const kit = await served();
    expect((await kit.send("GET", "/readyz")).text).toBe("ready\n");
    const loop = { isStalled: true };
    kit.pawl.kernel.loops.add(loop);
    expect(await kit.send("GET", "/readyz")).toMatchObject({ status: 503, text: "worker\n" });
    kit.pawl.kernel.loops.delete(loop);
    await kit.pawl.close();
    expect(await kit.send("GET", "/readyz")).toMatchObject({ status: 503, text: "store\n" });
    expect((await kit.send("GET", "/livez")).text).toBe("live\n");
  });

  test("metrics have the depth of queues, requests and commits", async () => {
    const kit = await served();
    await kit.send("GET", "/metrics");
    await kit.send("POST", "/v1/runs", { workflow: 'a"b', id: "r1" });
    const { text, headers } = await kit.send("GET", "/metrics");
    expect(headers.get("content-type")).toContain("text/plain; version=0.0.4");
    expect(text).toContain('pawl_runs{workflow="a\\"b",status="pending"} 1\n');
    expect(text).toContain('pawl_http_requests_total{method="POST",route="/v1/runs",status="201"} 1\n');
    expect(Number(/^pawl_commits_total (\d+)$/m.exec(text)?.[1])).toBeGreaterThan(0);
    for (const line of text.trim().split("\n"))
      expect(line).toMatch(/^(?:# (?:HELP|TYPE) |[a-z_]+(?:\{.*\})? [\d.e+-]+$)/);
  });

  test("the page of docs has every route, and nothing inline", async () => {
    const kit = await served();
    const { text, headers } = await kit.send("GET", "/docs");
    expect(headers.get("content-security-policy")).toContain("default-src 'none'");
    expect(text).toContain("/v1/locks/{name}/acquire");
    expect(text).not.toMatch(/<script|<style|style=|\son[a-z]+=|javascript:/);
    expect((await kit.send("GET", "/docs/style.css")).headers.get("content-type")).toBe("text/css");
  });
});
