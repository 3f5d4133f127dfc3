/**
 * Goal: what a call changes happens once, whatever happens to its requests and replies; and no call is sent again where that may do harm.
 * Method: a real server behind a proxy that drops or breaks replies; a `fetch` that fails as it is told, with a clock that the test moves.
 */

import { describe, expect, onTestFinished, test } from "vitest";
import { Client, createClient, PawlHttpError } from "../../src/http/client/index.ts";
import { Transport } from "../../src/http/client/transport.ts";
import { platform } from "../../src/http/platform/platform.ts";
import { workflow } from "../../src/index.ts";
import { connected, proxyTo } from "./kit.ts";

const echo = workflow("echo", async (_ctx, input: unknown) => input);

describe("replies that are lost", () => {
  test.each(["drop", "break"] as const)(
    "what a call changes happens once, and the caller gets the reply: %s",
    async (fate) => {
      const { url, key, pawl } = await connected();
      pawl.work([echo]);
      // Of each call, the first two replies are lost.
      let lost = 0;
      const proxy = await proxyTo(url, () => (++lost % 3 === 0 ? "pass" : fate));
      const client = createClient({ url: proxy.url, key });
      expect(await client.stream("s").append([{ name: "a" }, { name: "b" }])).toMatchObject({ version: 2 });
      expect(await pawl.stream("s").head()).toBe(2);
      expect(await client.slot("x").set("y")).toEqual({ version: 1 });
      expect(await pawl.slot("x").get()).toEqual({ value: "y", version: 1 });
      const run = await client.start(echo, { a: 1 });
      expect(await run.result()).toEqual({ a: 1 });
      expect((await pawl.runs.list()).runs.length).toBe(1);
      expect(await client.dedupe("c", "m")).toEqual({ deduplicated: false });
      expect(await client.rateLimit("r", { max: 1, per: "1 hour" }).tryAcquire()).toEqual({ ok: true });
      const hold = await client.mutex("door").tryAcquire();
      expect(hold.ok && (await hold.hold.release())).toEqual({ released: true });
      expect(proxy.requests.length).toBeGreaterThan(20);
    },
  );

  test("an event stream continues after the last event, however often its connection is lost", async () => {
    const { url, key } = await connected();
    const proxy = await proxyTo(url, () => "pass");
    const client = createClient({ url: proxy.url, key });
    const writer = createClient({ url, key }).stream("s");
    await writer.append([{ name: "n", data: 1 }]);
    const seen: unknown[] = [];
    for await (const { data, version } of client.stream("s").follow()) {
      seen.push(data);
      if (version === 5) break;
      proxy.cut();
      await writer.append([{ name: "n", data: version + 1 }]);
    }
    expect(seen).toEqual([1, 2, 3, 4, 5]);
    expect(proxy.requests.length).toBeGreaterThan(1);
  });
});

/** A transport whose attempts end as it is told, with a clock that only waiting moves; `wallMs` is what the machine's clock shows then. */
function told(outcomes: readonly (Response | Error)[], patienceMs = 30_000, wallMs = (ms: number) => ms) {
  let nowMs = 0;
  const sent: { readonly atMs: number; readonly key: string | null }[] = [];
  const transport = new Transport({
    url: "http://server",
    key: "k",
    patienceMs,
    attemptMs: 1e9,
    abortSignal: undefined,
    platform: {
      ...platform,
      nowMs: () => wallMs(nowMs),
      runningMs: () => nowMs,
      random: () => 0,
      after: (ms, callback) => {
        if (ms < 1e8)
          queueMicrotask(() => {
            nowMs += ms;
            callback();
          });
        return () => {};
      },
    },
    fetch: async (_url, init) => {
      sent.push({ atMs: nowMs, key: new Headers(init.headers).get("idempotency-key") });
      const outcome = outcomes[Math.min(sent.length, outcomes.length) - 1];
      if (outcome instanceof Response) return outcome.clone();
      throw outcome;
    },
  });
  return { transport, sent };
}

const problem = (status: number, code: string, headers: Record<string, string> = {}) =>
  new Response(JSON.stringify({ code, detail: "no", data: {} }), { status, headers });
const done = new Response(JSON.stringify({ id: "r1", items: [], next: null }));

test("a stream of events that is silent, and whose connection cannot be closed, is opened again", async () => {
  const unhandled: unknown[] = [];
  const note = (error: unknown): void => void unhandled.push(error);
  process.on("unhandledRejection", note);
  onTestFinished(() => void process.off("unhandledRejection", note));
  const bodies = [
    new ReadableStream({
      cancel: () => {
        throw new Error("it cannot be closed");
      },
    }),
    'id: 1\ndata: {"version":1,"value":"x"}\n\n',
  ];
  let opened = 0;
  const transport = new Transport({
    url: "http://server",
    key: "k",
    patienceMs: 30_000,
    attemptMs: 1e9,
    abortSignal: undefined,
    // Only the first stream is silent for long.
    platform: {
      ...platform,
      after: (ms, callback) => {
        if (ms < 1e8 && opened === 1) queueMicrotask(callback);
        return () => {};
      },
    },
    fetch: async () => {
      opened += 1;
      return new Response(bodies[opened - 1] ?? null, { headers: { "content-type": "text/event-stream" } });
    },
  });
  for await (const { value } of new Client(transport).slot("x").watch()) {
    expect(value).toBe("x");
    break;
  }
  await new Promise((resolve) => setImmediate(resolve));
  expect([opened, unhandled]).toEqual([2, []]);
});

describe("attempts", () => {
  test("all attempts of a call have one key, and two calls have different ones", async () => {
    const { transport, sent } = told([new TypeError("fetch failed"), problem(503, "store_busy"), done]);
    await transport.call({ method: "POST", path: "/runs", body: {} });
    await transport.call({ method: "POST", path: "/runs", body: {} });
    expect(new Set(sent.slice(0, 3).map(({ key }) => key)).size).toBe(1);
    expect(new Set(sent.map(({ key }) => key)).size).toBe(2);
  });

  test("a clock that is set back during a call lengthens no wait", async () => {
    const setBack = (ms: number): number => (ms === 0 ? 3_600_000 : ms);
    const polls = told([new Response('{"status":"running"}', { status: 202 })], 30_000, setBack);
    const result = new Client(polls.transport).run("r").result({ timeout: "2s" });
    await expect(result).rejects.toMatchObject({ code: "result_timeout" });
    expect(polls.sent.at(-1)?.atMs).toBe(2_000);
    const calls = told([problem(503, "store_busy")], 1_000, setBack);
    await expect(calls.transport.call({ method: "GET", path: "/runs" })).rejects.toMatchObject({ code: "store_busy" });
    expect(calls.sent.at(-1)?.atMs).toBe(1_000);
  });

  test("a read has no key", async () => {
    const { transport, sent } = told([done]);
    await transport.call({ method: "GET", path: "/runs" });
    expect(sent).toEqual([{ atMs: 0, key: null }]);
  });

  test("Retry-After is waited for", async () => {
    const { transport, sent } = told([problem(429, "rate_limited", { "retry-after": "7" }), done]);
    await transport.call({ method: "POST", path: "/runs" });
    expect(sent.map(({ atMs }) => atMs)).toEqual([0, 7000]);
  });

  test("patience is the bound, and the last refusal is what is thrown", async () => {
    const { transport, sent } = told([problem(503, "store_busy")]);
    await expect(transport.call({ method: "GET", path: "/runs" })).rejects.toMatchObject({
      code: "store_busy",
      status: 503,
    });
    expect(sent.at(-1)?.atMs).toBeLessThanOrEqual(30_000);
    expect(sent.length).toBeGreaterThan(5);
  });

  test("without patience there is one attempt", async () => {
    const { transport, sent } = told([new TypeError("x")], 0);
    await expect(transport.call({ method: "GET", path: "/runs" })).rejects.toMatchObject({
      code: "server_unreachable",
    });
    expect(sent.length).toBe(1);
  });

  test("an unknown outcome is not sent again, except where it does no harm", async () => {
    const unknown = problem(504, "outcome_unknown");
    const once = told([unknown, done]);
    await expect(once.transport.call({ method: "POST", path: "/streams/s/events" })).rejects.toMatchObject({
      code: "outcome_unknown",
    });
    expect(once.sent.length).toBe(1);
    const again = told([unknown, done]);
    await again.transport.call({ method: "POST", path: "/runs", isRepeatable: true });
    expect(again.sent.length).toBe(2);
  });

  test("an abort ends a call that waits for its next attempt", async () => {
    const { transport } = told([problem(503, "store_busy")]);
    const stop = new AbortController();
    const call = transport.call({ method: "GET", path: "/runs", abortSignal: stop.signal });
    stop.abort(new Error("enough"));
    await expect(call).rejects.toThrow("enough");
    await expect(transport.with({ abortSignal: stop.signal }).call({ method: "GET", path: "/" })).rejects.toThrow(
      "enough",
    );
  });

  test("a response that is not the server's is named as such", async () => {
    const page = told([new Response("<html>", { status: 200 })]);
    await expect(page.transport.call({ method: "GET", path: "/runs" })).rejects.toMatchObject({
      code: "unexpected_response",
    });
    const gone = told([new Response("<html>", { status: 404 })]);
    await expect(gone.transport.call({ method: "GET", path: "/runs" })).rejects.toMatchObject({
      code: "unexpected_response",
      status: 404,
    });
  });

  test("the key of the API is in no error", async () => {
    const { transport } = told([new TypeError("x")], 0);
    const error = await transport.call({ method: "GET", path: "/runs" }).catch((error: unknown) => error);
    expect(error).toBeInstanceOf(PawlHttpError);
    expect(JSON.stringify([String(error), error])).not.toContain("Bearer");
  });
});
