/**
 * Bad input and attacks, by their numbers, each by a request to a real server. None of them may reach the library, cost memory or time beyond its
 * limits, or keep others from being served: the health route responds after each.
 */

import { randomUUID } from "node:crypto";
import { connect } from "node:net";
import { afterEach, describe, expect, onTestFinished, test, vi } from "vitest";
import { apiKeys, type Scope, serve } from "../../src/http/server/index.ts";
import { makeKey } from "../../src/http/server/keys/text.ts";
import { event, open, reaction, workflow } from "../../src/index.ts";
import { type StoreCode, StoreError, UnsupportedEncodingError } from "../../src/kernel/errors.ts";
import { type Got, refusal, type Served, sender, served } from "./kit.ts";

const unauthorized = { status: 401, code: "unauthorized" };
const without = ({ json: { requestId: _, ...rest } }: Got) => rest;

/** The server that a test has attacked. */
let attacked: Served | undefined;
async function attack(...given: Parameters<typeof served>): Promise<Served> {
  attacked = await served(...given);
  return attacked;
}

afterEach(async () => {
  attacked = undefined;
});

async function isHealthy({ url }: { readonly url: string }): Promise<boolean> {
  return (await fetch(`${url}/livez`)).status === 200;
}

/** Sends bytes as they are, and returns what comes until the server closes the connection. */
function raw(url: string, bytes: string | Buffer, { end = false } = {}): Promise<string> {
  const { promise, resolve } = Promise.withResolvers<string>();
  const socket = connect(Number(new URL(url).port), "127.0.0.1");
  let text = "";
  socket.on("data", (chunk) => {
    text += chunk.toString();
  });
  socket.on("error", () => {});
  socket.on("close", () => resolve(text));
  socket.write(bytes);
  if (end) socket.end();
  onTestFinished(() => void socket.destroy());
  return promise;
}

const statusOf = (response: string): number => Number(/^HTTP\/1\.1 (\d+)/.exec(response)?.[1]);

describe("keys", () => {
  test("1: no key, or what is none, is refused without a look at the store", async () => {
    const kit = await attack();
    const read = vi.spyOn(kit.pawl.kernel, "read");
    const transact = vi.spyOn(kit.pawl.kernel, "transact");
    const good = await kit.key(["read"]);
    const last = good.at(-1) === "0" ? "1" : "0";
    transact.mockClear();
    const bad = [undefined, "", "x", "pawl_", `${good.slice(0, -1)}${last}`, good.slice(0, 40), `${good} ${good}`];
    for (const key of bad) expect(refusal(await sender(kit.url, key)("GET", "/v1/runs")), key).toEqual(unauthorized);
    for (const authorization of [`Basic ${good}`, good, `Bearer ${good}, Bearer ${good}`])
      expect(refusal(await sender(kit.url)("GET", "/v1/runs", undefined, { authorization }))).toEqual(unauthorized);
    expect(read).not.toHaveBeenCalled();
    expect(transact).not.toHaveBeenCalled();
  });

  test("2: an unknown key, a revoked one and one that expired get the same response", async () => {
    const kit = await attack();
    const keys = apiKeys(kit.pawl);
    await using elsewhere = await open("memory:", { logger: false });
    const unknown = await apiKeys(elsewhere).create({ name: "x", scopes: ["admin"] });
    const revoked = await keys.create({ name: "x", scopes: ["admin"] });
    await keys.revoke(revoked.id);
    const expired = await keys.create({ name: "x", scopes: ["admin"], expiresAt: 1 });
    const foreign = await keys.create({ name: "x", scopes: ["admin"], namespace: "not served" });
    const responses = await Promise.all(
      [unknown, revoked, expired, foreign].map(({ key }) => sender(kit.url, key)("GET", "/v1/runs")),
    );
    for (const response of responses) {
      expect(refusal(response)).toEqual(unauthorized);
      expect(without(response)).toEqual(without(responses[0] as Got));
      expect(response.headers.get("www-authenticate")).toBe("Bearer");
    }
  });

  test("3: a missing scope is refused, and no scope but admin includes another", async () => {
    const kit = await attack();
    const routes: [Scope, string, string][] = [
      ["read", "GET", "/v1/runs"],
      ["write", "PUT", "/v1/slots/x"],
      ["operate", "POST", "/v1/workflows/w/pause"],
      ["admin", "GET", "/v1/keys"],
    ];
    for (const has of ["read", "write", "operate", "admin"] as const) {
      const send = await kit.as([has]);
      for (const [needs, method, path] of routes) {
        const response = await send(method, path, method === "GET" ? undefined : method === "PUT" ? { value: 1 } : {});
        if (has === needs || has === "admin") expect(response.status, `${has} ${path}`).toBeLessThan(300);
        else expect(refusal(response), `${has} ${path}`).toEqual({ status: 403, code: "scope_missing" });
      }
    }
  });

  test("5: a key in the query is refused, and never logged", async () => {
    const lines: string[] = [];
    const log = (line: string) => void lines.push(line);
    const kit = await attack({ logger: { warn: log, error: log } });
    const key = await kit.key(["admin"]);
    for (const query of [`key=${key}`, `x=${key}`, "api_key=1", "access_token=1"])
      expect(refusal(await kit.send("GET", `/v1/runs?${query}`)), query).toEqual(unauthorized);
    expect(lines.join("")).not.toContain(key);
  });

  test("18: beyond its limit, a key gets 429 and is told when to come again; others are served", async () => {
    const kit = await attack({ limits: { requests: { max: 3, per: "1 hour" } } });
    const send = await kit.as(["read"]);
    const statuses: number[] = [];
    for (let i = 0; i < 4; i++) statuses.push((await send("GET", "/v1/runs")).status);
    expect(statuses).toEqual([200, 200, 200, 429]);
    const late = await send("GET", "/v1/runs");
    expect(late.json).toMatchObject({ code: "rate_limited" });
    expect(Number(late.headers.get("retry-after"))).toBeGreaterThan(0);
    expect((await (await kit.as(["read"]))("GET", "/v1/runs")).status).toBe(200);
  });

  test("18: what a key may not do counts, too", async () => {
    const kit = await attack({ limits: { requests: { max: 2, per: "1 hour" } } });
    const send = await kit.as(["read"]);
    const statuses: number[] = [];
    for (let i = 0; i < 3; i++) statuses.push((await send("DELETE", "/v1/slots/x")).status);
    expect(statuses).toEqual([403, 403, 429]);
  });

  test("18: so does an address that has sent too many requests without a key", async () => {
    const kit = await attack({ limits: { keyless: { max: 2, per: "1 hour" } } });
    const anyone = sender(kit.url);
    const statuses: number[] = [];
    for (let i = 0; i < 4; i++) statuses.push((await anyone("GET", "/v1/runs")).status);
    expect(statuses).toEqual([401, 401, 429, 429]);
    expect(Number((await anyone("GET", "/v1/runs")).headers.get("retry-after"))).toBeGreaterThan(1000);
    expect((await kit.send("GET", "/v1/runs")).status).toBe(200);
  });

  test("18: from such an address, an unknown key is refused without a query, and a valid one is served", async () => {
    const kit = await attack({ limits: { keyless: { max: 2, per: "1 hour" } } });
    const { kernel } = kit.pawl;
    const unseen = await kit.key(["read"]);
    const revoked = await apiKeys(kit.pawl).create({ name: "x", scopes: ["read"] });
    await apiKeys(kit.pawl).revoke(revoked.id);
    const guess = () => sender(kit.url, makeKey(randomUUID).key)("GET", "/v1/runs");
    expect((await guess()).status).toBe(401);
    expect((await guess()).status).toBe(401);
    const [read, list, transact] = [vi.spyOn(kernel, "read"), vi.spyOn(kernel, "list"), vi.spyOn(kernel, "transact")];
    const bodyOf = ({ status, json: { requestId: _, data: __, ...rest } }: Got) => ({ status, rest });
    const without = bodyOf(await sender(kit.url)("GET", "/v1/runs"));
    expect(without).toMatchObject({ status: 429, rest: { code: "rate_limited" } });
    for (let i = 0; i < 50; i++) expect(bodyOf(await guess())).toEqual(without);
    expect(bodyOf(await sender(kit.url, revoked.key)("GET", "/v1/runs"))).toEqual(without);
    for (const query of [read, transact]) expect(query).not.toHaveBeenCalled();
    // The keys that there are were looked at once, for all of them.
    expect(list.mock.calls.length).toBeLessThanOrEqual(1);
    expect((await sender(kit.url, unseen)("GET", "/v1/runs")).status).toBe(200);
    vi.restoreAllMocks();
  });

  test("2: a key that ends while the body of its request is on its way ends the request", async () => {
    const kit = await attack();
    const { id, key } = await apiKeys(kit.pawl).create({ name: "stolen", scopes: ["write"] });
    const head = `Host: x\r\nAuthorization: Bearer ${key}\r\nContent-Type: application/json\r\nContent-Length: 11\r\nConnection: close`;
    const [begun, kept] = [connect(Number(new URL(kit.url).port), "127.0.0.1"), "kept"];
    let text = "";
    begun.on("data", (chunk) => {
      text += chunk.toString();
    });
    begun.write(`PUT /v1/slots/${kept} HTTP/1.1\r\n${head}\r\n\r\n{"value":`);
    await new Promise((resolve) => setTimeout(resolve, 1500));
    await apiKeys(kit.pawl).revoke(id);
    begun.write("7}");
    await new Promise((resolve) => begun.on("close", resolve));
    expect(statusOf(text)).toBe(401);
    expect(await kit.pawl.slot(kept).get()).toMatchObject({ version: 0 });
  });

  test("61: what is stored of a key does not open anything", async () => {
    const kit = await attack();
    const { id, key } = await apiKeys(kit.pawl).create({ name: "CANARY", scopes: ["read"] });
    expect(key).toMatch(/^pawl_[A-Za-z0-9_-]{59}_[0-9a-f]{8}$/);
    const rows = [];
    for await (const { value } of kit.pawl.kernel.rows("api_key")) rows.push(value);
    expect(rows.join("")).toContain("CANARY");
    const secret = key.slice("pawl_".length + id.length, -9);
    expect(rows.join("")).not.toContain(secret);
  });

  test("a repeated creation does not show the key again", async () => {
    const kit = await attack();
    const again = { "idempotency-key": "k1" };
    const first = await kit.send("POST", "/v1/keys", { name: "x", scopes: ["read"] }, again);
    expect(first).toMatchObject({ status: 201, json: { key: expect.stringMatching(/^pawl_/) } });
    const second = await kit.send("POST", "/v1/keys", { name: "x", scopes: ["read"] }, again);
    const { key: _, ...info } = first.json;
    expect(second).toMatchObject({ status: 201 });
    expect(second.json).toEqual(info);
    expect(second.headers.get("idempotent-replayed")).toBe("true");
  });

  test("a key is rotated with a time of grace, and every change says by whom", async () => {
    const kit = await attack();
    const created = await kit.send("POST", "/v1/keys", { name: "x", scopes: ["read"] });
    const { id, key } = created.json as { id: string; key: string };
    const rotated = await kit.send("POST", `/v1/keys/${id}/rotate`, { grace: "1h" });
    for (const one of [key, String(rotated.json["key"])])
      expect((await sender(kit.url, one)("GET", "/v1/runs")).status).toBe(200);
    const again = await kit.send("POST", `/v1/keys/${id}/rotate`, {});
    expect((await sender(kit.url, key)("GET", "/v1/runs")).status).toBe(200);
    expect((await sender(kit.url, String(rotated.json["key"]))("GET", "/v1/runs")).status).toBe(401);
    await kit.send("POST", `/v1/keys/${id}/revoke`);
    for (const one of [key, String(again.json["key"])])
      expect((await sender(kit.url, one)("GET", "/v1/runs")).status).toBe(401);
    const history = await kit.send("GET", `/v1/keys/${id}/history`);
    const by = expect.stringMatching(/^key:/);
    expect(history.json["items"]).toMatchObject(
      ["created", "rotated", "rotated", "revoked"].map((name) => ({ name, by })),
    );
  });
});

describe("bodies", () => {
  const big = 2 ** 20 + 1;

  test("6: a body over the limit is refused, announced or in chunks, without being held in memory", async () => {
    const kit = await attack();
    const text = JSON.stringify({ value: "x".repeat(big) });
    expect(refusal(await kit.send("PUT", "/v1/slots/x", text))).toEqual({ status: 413, code: "request_too_large" });
    const key = await kit.key(["write"]);
    global.gc?.();
    const before = process.memoryUsage().arrayBuffers;
    let most = 0;
    let sent = 0;
    const chunk = new Uint8Array(64 * 1024).fill(97);
    const body = new ReadableStream<Uint8Array>({
      pull(controller) {
        most = Math.max(most, process.memoryUsage().arrayBuffers);
        sent += chunk.length;
        // Without an end: only a server that stops reading responds.
        if (sent < 256 * 1024 * 1024) controller.enqueue(chunk);
        else controller.close();
      },
    });
    const init = {
      method: "PUT",
      body,
      duplex: "half",
      headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
    };
    const status = await fetch(`${kit.url}/v1/slots/x`, init as RequestInit).then(
      (response) => response.status,
      () => 413,
    );
    expect(status).toBe(413);
    expect(sent).toBeLessThan(128 * 1024 * 1024);
    expect(most - before).toBeLessThan(64 * 1024 * 1024);
    expect(await isHealthy(kit)).toBe(true);
  });

  const bodies: {
    rule: string;
    body: string | Uint8Array;
    headers?: Record<string, string>;
    status: number;
    code: string;
  }[] = [
    {
      rule: "7: a Content-Encoding",
      body: "{}",
      headers: { "content-encoding": "gzip" },
      status: 415,
      code: "unsupported_content_encoding",
    },
    {
      rule: "8: a form",
      body: "a=1",
      headers: { "content-type": "application/x-www-form-urlencoded" },
      status: 415,
      code: "not_json",
    },
    { rule: "8: text", body: "{}", headers: { "content-type": "text/plain" }, status: 415, code: "not_json" },
    {
      rule: "8: another charset",
      body: "{}",
      headers: { "content-type": "application/json; charset=utf-16" },
      status: 415,
      code: "not_json",
    },
    { rule: "9: JSON that is cut off", body: '{"value": [1, 2', status: 400, code: "invalid_json" },
    {
      rule: "9: bytes that are not UTF-8",
      body: Uint8Array.from([0x22, 0xc3, 0x28, 0x22]),
      status: 400,
      code: "invalid_json",
    },
    { rule: "9: nothing but spaces", body: "  ", status: 400, code: "invalid_json" },
    {
      rule: "10: a level too many",
      body: `{"value":${"[".repeat(64)}${"]".repeat(64)}}`,
      status: 400,
      code: "too_deep",
    },
    { rule: "10: a hundred thousand levels", body: "[".repeat(100_000), status: 400, code: "too_deep" },
    {
      rule: "11: keys without end",
      body: `{${Array.from({ length: 120_000 }, (_, i) => `"${i.toString(36)}":0`).join()}}`,
      status: 400,
      code: "too_many_members",
    },
    { rule: "30: 1e400", body: '{"value":1e400}', status: 400, code: "unsafe_number" },
    { rule: "30: -1e400", body: '{"value":-1e400}', status: 400, code: "unsafe_number" },
    {
      rule: "31: an integer beyond 2^53 that has no double",
      body: '{"value":9007199254740993}',
      status: 400,
      code: "unsafe_number",
    },
    {
      rule: "31: an integer of a million digits",
      body: `{"value":${"9".repeat(1_000_000)}}`,
      status: 400,
      code: "unsafe_number",
    },
    {
      rule: "34: a tag that is not known",
      body: '{"value":{"$regexp":"a"}}',
      status: 400,
      code: "unsupported_encoding",
    },
    { rule: "a body that is no object", body: "[]", status: 400, code: "invalid_request" },
    { rule: "a member that there is not", body: '{"value":1,"valeu":2}', status: 400, code: "invalid_request" },
  ];
  test.each(bodies)("$rule is refused", async ({ body, headers, status, code }) => {
    const kit = await attack();
    expect(refusal(await kit.send("PUT", "/v1/slots/x", body, headers))).toEqual({ status, code });
    expect((await kit.pawl.slot("x").get()).version).toBe(0);
    expect(await isHealthy(kit)).toBe(true);
  });

  test("11: a million keys do not block the event loop: other requests are served meanwhile", async () => {
    const kit = await attack({ limits: { bodyBytes: 2 ** 25 } });
    const body = `{${Array.from({ length: 1_000_000 }, (_, i) => `"${i}":0`).join()}}`;
    const parse = vi.spyOn(JSON, "parse");
    onTestFinished(() => parse.mockRestore());
    const refused = await kit.send("PUT", "/v1/slots/x", body);
    expect(refusal(refused)).toEqual({ status: 400, code: "too_many_members" });
    // It is refused by the scan, which stops at the limit; parsing it would block.
    expect(parse.mock.calls.every(([text]) => text.length < body.length)).toBe(true);
  });

  const kept = [
    { rule: "28: __proto__ is a name like others", text: '{"__proto__":{"admin":true},"constructor":{"prototype":1}}' },
    { rule: "31: an integer that has a double", text: "9007199254740992" },
    {
      rule: "32: tagged values",
      text: '[{"$number":"-0"},{"$number":"NaN"},{"$bigint":"123456789012345678901"},{"$set":[1]}]',
    },
    {
      rule: "32: bytes, maps and dates",
      text: '{"a":{"$bytes":"AAEC"},"b":{"$map":[[1,{"$date":"2030-01-01T00:00:00.000Z"}]]}}',
    },
    { rule: "22: a lone surrogate in a value, which is no id", text: '"\\ud800"' },
    { rule: "an object that looks like a tag", text: '{"$$date":"not a date"}' },
    { rule: "64 levels, the body included", text: `${"[".repeat(63)}${"]".repeat(63)}` },
  ];
  test.each(kept)("$rule, and comes back as it was sent", async ({ text }) => {
    const kit = await attack();
    expect((await kit.send("PUT", "/v1/slots/x", `{"value":${text}}`)).status).toBe(200);
    expect((await kit.send("GET", "/v1/slots/x")).text).toBe(`{"name":"x","version":1,"value":${text}}`);
    expect(Object.getPrototypeOf({})).toBe(Object.prototype);
    expect(({} as { admin?: boolean }).admin).toBeUndefined();
  });

  test("29: of a duplicate key the last one counts", async () => {
    const kit = await attack();
    await kit.send("PUT", "/v1/slots/x", '{"value":1,"value":2}');
    expect((await kit.pawl.slot("x").get()).value).toBe(2);
  });

  test("33: what a step cannot return fails its run with a clear error, and the worker survives", async () => {
    const bad = workflow("bad", async (ctx, kind: string) =>
      ctx.step("make", () => {
        const cycle: unknown[] = [];
        cycle.push(cycle);
        return { cycle, function: () => 1, big: "x".repeat(50 * 1024 * 1024) }[kind];
      }),
    );
    const kit = await attack();
    kit.pawl.work([bad]);
    for (const input of ["cycle", "function", "big"]) {
      await kit.send("POST", "/v1/runs", { workflow: "bad", input, id: input });
      const result = await kit.send("GET", `/v1/runs/${input}/result?wait=60s`);
      expect(result).toMatchObject({ status: 409, json: { code: "run_failed" } });
      expect(result.text).not.toMatch(/\\n\s+at /);
    }
  });
});

describe("HTTP", () => {
  test("12: slow headers and a slow body are 408", async () => {
    const kit = await attack({ headersTimeout: "300ms", requestTimeout: "600ms" });
    const key = await kit.key(["write"]);
    const headers = await raw(kit.url, "GET /livez HTTP/1.1\r\nHost: x\r\n");
    expect(statusOf(headers)).toBe(408);
    const head = `PUT /v1/slots/x HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${key}\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n`;
    const body = await raw(kit.url, `${head}{"value"`);
    expect(statusOf(body)).toBe(408);
    expect(body).toContain('"code":"request_timeout"');
    expect(await isHealthy(kit)).toBe(true);
  });

  test("13: headers over 16 KiB are 431", async () => {
    const kit = await attack();
    const response = await raw(kit.url, `GET /livez HTTP/1.1\r\nHost: x\r\nX-Big: ${"a".repeat(20_000)}\r\n\r\n`);
    expect(statusOf(response)).toBe(431);
    expect(response).toContain('"code":"headers_too_large"');
  });

  test("14: Content-Length with Transfer-Encoding is 400, and what follows is not a request", async () => {
    const kit = await attack();
    const smuggled = "0\r\n\r\nGET /livez HTTP/1.1\r\nHost: x\r\n\r\n";
    const response = await raw(
      kit.url,
      `POST /v1/runs HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n${smuggled}`,
    );
    expect(response.match(/HTTP\/1\.1/g)).toHaveLength(1);
    expect(statusOf(response)).toBe(400);
  });

  test("15: an unknown method is 405, and the response names the ones that there are", async () => {
    const kit = await attack();
    expect(statusOf(await raw(kit.url, "BREW /v1/runs HTTP/1.1\r\nHost: x\r\n\r\n"))).toBe(405);
    expect(statusOf(await raw(kit.url, "CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n"))).toBe(405);
    const known = await kit.send("PROPFIND", "/v1/runs");
    expect(refusal(known)).toEqual({ status: 405, code: "method_not_allowed" });
    expect(known.headers.get("allow")).toBe("POST, GET");
    expect(refusal(await kit.send("GET", "/v1/nothing"))).toEqual({ status: 404, code: "route_not_found" });
  });

  test("16: more idle connections than there may be are closed, and the health route responds", async () => {
    const kit = await attack({ connections: 50 });
    const sockets = Array.from({ length: 300 }, () => connect(Number(new URL(kit.url).port), "127.0.0.1"));
    let closed = 0;
    for (const socket of sockets) socket.on("error", () => {}).on("close", () => closed++);
    onTestFinished(() => sockets.forEach((socket) => void socket.destroy()));
    await expect.poll(() => closed).toBeGreaterThanOrEqual(250);
    for (let i = 0; i < 5; i++) expect(await isHealthy(kit)).toBe(true);
    expect((await kit.send("GET", "/v1/runs")).status).toBe(200);
  });

  test("16: where all connections are busy, the next one is refused, and the health route responds", async () => {
    const kit = await attack({ connections: 3, limits: { keyless: false } });
    const key = await kit.key(["read"]);
    await kit.pawl.start("nobody's", undefined, { id: "r1" });
    const stop = new AbortController();
    onTestFinished(() => stop.abort());
    // One that meets a probe is refused, and asks again.
    const wait = async () => {
      const headers = { authorization: `Bearer ${key}` };
      const { signal } = stop;
      while (!signal.aborted) await fetch(`${kit.url}/v1/runs/r1/result?wait=60s`, { headers, signal }).catch(() => {});
    };
    const waits = [wait(), wait(), wait()];
    const next = () => raw(kit.url, "GET /v1/runs HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    await expect.poll(async () => statusOf(await next())).toBe(503);
    expect(statusOf(await raw(kit.url, "GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))).toBe(200);
    // A slot of that name is not the health route.
    const slot = "GET /v1/slots/livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    await expect.poll(async () => statusOf(await raw(kit.url, slot))).toBe(503);
    // So is a request behind another one on its connection, which must not stay open without a response.
    const behind = "GET /livez HTTP/1.1\r\nHost: x\r\n\r\nGET /v1/runs HTTP/1.1\r\nHost: x\r\n\r\n";
    await expect
      .poll(async () => (await raw(kit.url, behind)).match(/HTTP\/1.1 \d+/g))
      .toEqual(["HTTP/1.1 200", "HTTP/1.1 503"]);
    stop.abort();
    await Promise.all(waits);
  });

  test("17: X-Forwarded-For counts only if it comes from a proxy that was named", async () => {
    const limits = { keyless: { max: 1, per: "1 hour" } };
    const ignored = await attack({ limits });
    const proxied = await attack({ limits, trustedProxies: ["127.0.0.0/8", "10.0.0.0/8"] });
    const from = (kit: Served, address: string) =>
      sender(kit.url)("GET", "/v1/runs", undefined, { "x-forwarded-for": address });
    const statuses = async (kit: Served) => {
      const list: number[] = [];
      for (const address of ["203.0.113.1", "203.0.113.2", "203.0.113.1, 10.0.0.1"])
        list.push((await from(kit, address)).status);
      return list;
    };
    expect(await statuses(ignored)).toEqual([401, 429, 429]);
    expect(await statuses(proxied)).toEqual([401, 401, 429]);
  });

  test.each([
    ["no Host", "GET /v1/slots HTTP/1.1\r\nConnection: close\r\n\r\n"],
    [
      "another Expect than 100-continue",
      "PUT /v1/slots/a HTTP/1.1\r\nHost: x\r\nExpect: x\r\nContent-Length: 2\r\n\r\n{}",
    ],
  ])("%s is refused as a problem", async (_, request) => {
    const { url } = await attack();
    const response = await raw(url, request);
    expect(statusOf(response)).toBe(400);
    expect(response.toLowerCase()).toContain("content-type: application/problem+json");
    expect(response).toContain('"code":"invalid_request"');
  });

  test("19: an unexpected Host is in no link and in no response", async () => {
    const kit = await attack();
    const key = await kit.key(["admin"]);
    const get = (path: string) =>
      raw(
        kit.url,
        `GET ${path} HTTP/1.1\r\nHost: evil.example\r\nX-Forwarded-Host: evil.example\r\nConnection: close\r\n\r\n`,
      );
    const body = '{"workflow":"w","id":"r1"}';
    const started = await raw(
      kit.url,
      `POST /v1/runs HTTP/1.1\r\nHost: evil.example\r\nAuthorization: Bearer ${key}\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\nConnection: close\r\n\r\n${body}`,
    );
    expect(started).toContain("location: /v1/runs/r1");
    for (const response of [started, await get("/docs"), await get("/v1/openapi.json"), await get("/v1/runs")])
      expect(response).not.toContain("evil");
  });

  test("an error of the server has an id and no details, which are in the log", async () => {
    const lines: string[] = [];
    const kit = await attack({ logger: { warn: () => {}, error: (line) => void lines.push(line) } });
    vi.spyOn(kit.pawl.kernel, "read").mockImplementation((keys) => {
      if (keys[0]?.space === "slot") throw new Error("select secret from table");
      return Object.getPrototypeOf(kit.pawl.kernel).read.call(kit.pawl.kernel, keys);
    });
    const failed = await kit.send("GET", "/v1/slots/x");
    expect(refusal(failed)).toEqual({ status: 500, code: "internal" });
    expect(failed.text).not.toContain("secret");
    expect(lines.join("")).toContain(String(failed.json["requestId"]));
    expect(lines.join("")).toContain("select secret");
  });

  const driven = (code: StoreCode) => new StoreError(code, "fail", "/srv/app.db failed (no such table: record)");

  test.each([
    { rule: "what the driver of a store says is in the log only", error: driven("store_io"), status: 500 },
    { rule: "so for a store that is lost in a commit", error: driven("outcome_unknown"), status: 504 },
    {
      rule: "what is damaged is in the log, too",
      error: new UnsupportedEncodingError("$", "it is no JSON"),
      status: 500,
    },
    { rule: "a store that is busy is not news", error: driven("store_busy"), status: 503, isLogged: false },
  ])("$rule", async ({ error, status, isLogged = true }) => {
    const lines: string[] = [];
    const kit = await attack({ logger: { warn: () => {}, error: (line) => void lines.push(line) } });
    vi.spyOn(kit.pawl.kernel, "read").mockImplementation((keys) => {
      if (keys[0]?.space === "slot") throw error;
      return Object.getPrototypeOf(kit.pawl.kernel).read.call(kit.pawl.kernel, keys);
    });
    const failed = await kit.send("GET", "/v1/slots/x");
    expect(refusal(failed)).toEqual({ status, code: error.code });
    expect(failed.text).not.toMatch(/srv|table/);
    const [line = ""] = lines;
    const said = line.includes(`request ${failed.json["requestId"]} failed: `) && line.includes(error.message);
    expect(said).toBe(isLogged);
  });
});

describe("ids and names", () => {
  const odd = [
    "a/b",
    "..",
    ".",
    "%2F",
    "'; drop table--",
    "%",
    "_",
    "é",
    "e\u0301",
    "a\u202eb",
    "?",
    "#",
    "\\",
    "run/a",
    "a b",
    "+",
  ];

  test("23 to 27: ids are literal, and distinct", async () => {
    const kit = await attack();
    const key = await kit.key(["admin"]);
    // As bytes: fetch would resolve dots.
    const request = (method: string, id: string, body = "") =>
      raw(
        kit.url,
        `${method} /v1/slots/${id.replace(/[^a-z]/gu, (char) => encodeURIComponent(char).replace(/[.'_-]/g, (c) => `%${c.charCodeAt(0).toString(16)}`))} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${key}\r\nContent-Type: application/json\r\nContent-Length: ${Buffer.byteLength(body)}\r\nConnection: close\r\n\r\n${body}`,
      );
    for (const id of odd) expect(statusOf(await request("PUT", id, JSON.stringify({ value: id }))), id).toBe(200);
    for (const id of odd) {
      expect((await kit.pawl.slot(id).get()).value, id).toBe(id);
      expect(await request("GET", id), id).toContain(JSON.stringify({ name: id, version: 1, value: id }));
    }
    expect((await kit.send("GET", "/v1/slots?limit=1000")).json["items"]).toHaveLength(odd.length);
  });

  test("25: a prefix is literal, too", async () => {
    const kit = await attack();
    for (const id of ["a%b", "aXb", "a_b"]) await kit.send("POST", "/v1/runs", { workflow: "w", id });
    for (const prefix of ["a%25", "a_"]) {
      const page = await kit.send("GET", `/v1/runs?prefix=${prefix}`);
      expect(page.json["items"], prefix).toHaveLength(1);
    }
  });

  const refused = [
    { rule: "20: an empty id", path: "/v1/slots/" },
    { rule: "20: an id over 256 bytes", path: `/v1/slots/${"a".repeat(257)}` },
    { rule: "20: 86 characters of three bytes", path: `/v1/slots/${"%E2%82%AC".repeat(86)}` },
    { rule: "20: a control character", path: "/v1/slots/a%0Ab" },
    { rule: "21: NUL", path: "/v1/slots/a%00b" },
    { rule: "22: a lone surrogate, in the bytes that some encoders make of it", path: "/v1/slots/%ED%A0%80" },
    { rule: "22: bytes that are not UTF-8", path: "/v1/slots/%FF" },
    { rule: "a % that escapes nothing", path: "/v1/slots/%zz" },
  ];
  test.each(refused)("$rule is refused", async ({ path }) => {
    const kit = await attack();
    expect(refusal(await kit.send("GET", path))).toEqual({ status: 400, code: "invalid_id" });
  });

  describe.each(["locks", "semaphores"])("21: NUL in a name or a grant of %s", (path) => {
    test.each([
      ["acquire", {}],
      ["renew", { grant: "g" }],
      ["release", { grant: "g" }],
      ["force-release", { reason: "r" }],
    ])("is refused by %s", async (verb, body) => {
      const { send } = await attack();
      const wrong = { status: 400, code: "invalid_id" };
      expect(refusal(await send("POST", `/v1/${path}/a%00b/${verb}`, body))).toEqual(wrong);
      if ("grant" in body)
        expect(refusal(await send("POST", `/v1/${path}/a/${verb}`, { grant: "a\0b" }))).toEqual(wrong);
    });
  });

  test("21: NUL in where a list of a reaction continues is refused", async () => {
    const kit = await attack();
    kit.pawl.work([reaction("mailer", { on: [event("noted")] }, () => {})]);
    await expect.poll(async () => (await kit.send("GET", "/v1/reactions/mailer")).status).toBe(200);
    for (const list of ["targets", "dead-letters"])
      expect(refusal(await kit.send("GET", `/v1/reactions/mailer/${list}?after=a%00b`)), list).toEqual({
        status: 400,
        code: "invalid_id",
      });
  });

  test("20 to 22: ids in bodies are checked alike", async () => {
    const kit = await attack();
    for (const id of ['""', `"${"a".repeat(257)}"`, '"a\\u0000b"', '"\\ud800"'])
      expect(refusal(await kit.send("POST", "/v1/runs", `{"workflow":"w","id":${id}}`)), id).toEqual({
        status: 400,
        code: "invalid_id",
      });
  });
});

describe("time and numbers", () => {
  const cases: { rule: string; method: string; path: string; body?: unknown }[] = [
    ...["5", "", "-5s", "1 parsec", -5, null].map((delay) => ({
      rule: `38: the duration ${JSON.stringify(delay)}`,
      method: "POST",
      path: "/v1/runs",
      body: { workflow: "w", delay },
    })),
    { rule: "38: a wait without a unit", method: "GET", path: "/v1/runs/r/result?wait=5" },
    { rule: "38: a wait of an hour", method: "GET", path: "/v1/runs/r/result?wait=1h" },
    ...["2026-02-31T00:00:00Z", "+275760-09-13T00:00:00Z", "10000-01-01T00:00:00Z", "tomorrow", 1].map((at) => ({
      rule: `39: the time ${at}`,
      method: "POST",
      path: "/v1/runs",
      body: { workflow: "w", at },
    })),
    ...[0, "10 years", -1, "NaN"].map((lease) => ({
      rule: `40: a lease of ${lease}`,
      method: "POST",
      path: "/v1/locks/x/acquire",
      body: { lease },
    })),
    ...[0, -1, 1.5].map((permits) => ({
      rule: `41: ${permits} permits`,
      method: "POST",
      path: "/v1/semaphores/x/acquire",
      body: { permits },
    })),
    ...[-2, 2 ** 53, 1.5].map((expectedVersion) => ({
      rule: `42: expectedVersion ${expectedVersion}`,
      method: "POST",
      path: "/v1/streams/s/events",
      body: { events: [{ name: "A" }], expectedVersion },
    })),
    ...["61 * * * *", "* * *", ""].map((cron) => ({
      rule: `43: cron ${JSON.stringify(cron)}`,
      method: "POST",
      path: "/v1/schedules",
      body: { name: "n", workflow: "w", cron },
    })),
    { rule: "a limit of 0", method: "GET", path: "/v1/runs?limit=0" },
    { rule: "a limit of 1001", method: "GET", path: "/v1/runs?limit=1001" },
    { rule: "a parameter that there is not", method: "GET", path: "/v1/runs?limt=1" },
    { rule: "a parameter twice", method: "GET", path: "/v1/runs?limit=1&limit=2" },
  ];
  test("what is out of range is refused with 400, and writes nothing", async () => {
    const kit = await attack();
    await kit.pawl.start("w", undefined, { id: "r" });
    for (const { rule, method, path, body } of cases) {
      const response = await kit.send(method, path, body);
      expect(response.status, rule).toBe(400);
      expect(response.headers.get("content-type"), rule).toBe("application/problem+json");
    }
    expect((await kit.send("GET", "/v1/runs")).json["items"]).toHaveLength(1);
    expect((await kit.send("GET", "/v1/schedules")).json["items"]).toHaveLength(0);
    expect(await kit.pawl.stream("s").head()).toBe(0);
  });

  test("43: a cron in a gap of daylight saving time, and on 29 February, has defined times", async () => {
    const kit = await attack();
    await kit.send("POST", "/v1/schedules", {
      name: "gap",
      workflow: "w",
      cron: "30 2 * * *",
      timezone: "Europe/Berlin",
    });
    await kit.send("POST", "/v1/schedules", { name: "leap", workflow: "w", cron: "0 0 29 2 *" });
    const gap = await kit.send("GET", "/v1/schedules/gap/preview?count=2&from=2030-03-30T12:00:00Z");
    expect(gap.json["items"]).toEqual(
      await kit.pawl.schedules
        .preview("gap", { count: 2, from: Date.UTC(2030, 2, 30, 12) })
        .then((list) => list.map((at) => at.toISOString())),
    );
    const leap = await kit.send("GET", "/v1/schedules/leap/preview?count=1&from=2029-01-01T00:00:00Z");
    expect(leap.json["items"]).toEqual(["2032-02-29T00:00:00.000Z"]);
    const never = { name: "never", workflow: "w", cron: "0 0 31 2 *" };
    expect((await kit.send("POST", "/v1/schedules", never)).json).toMatchObject({ state: "ended", nextAt: null });
  });
});

describe("where it listens", () => {
  test("on another address than loopback only once a key can be used", async () => {
    await using pawl = await open("memory:", { logger: false });
    const any = { hostname: "0.0.0.0", port: 0, logger: false } as const;
    await expect(serve(pawl, any)).rejects.toMatchObject({ code: "invalid_argument" });
    const { id } = await apiKeys(pawl).create({ name: "first", scopes: ["admin"] });
    const server = await serve(pawl, any);
    await server.close();
    await expect(serve(pawl, { ...any, keys: "none" })).rejects.toMatchObject({ code: "invalid_argument" });
    await apiKeys(pawl).revoke(id);
    await expect(serve(pawl, any)).rejects.toMatchObject({ code: "invalid_argument" });
  });

  test("without keys everyone on this machine may do everything", async () => {
    const kit = await attack({ keys: "none" });
    expect((await sender(kit.url)("PUT", "/v1/slots/x", { value: 1 })).status).toBe(200);
  });
});
