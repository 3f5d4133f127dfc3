/** One attempt: what is resolved and checked before any packet is sent, and what is recorded of a reply. */

import { describe, expect, test } from "vitest";
import type { HttpClient, HttpReply, HttpRequest } from "../kernel/http.ts";
import { nodePorts } from "../node/ports.ts";
import { type Caller, makeCall } from "./call.ts";
import { parsePorts, parseRanges } from "./target.ts";

const PUBLIC = "93.184.216.34";
const ok: HttpReply = { status: 200, headers: {}, body: Buffer.from("fine"), isCut: false };

/** A client that notes what it is asked. */
function client(
  answers: readonly (readonly string[])[],
  reply: (request: HttpRequest) => Promise<HttpReply> = async () => ok,
) {
  const resolved: string[] = [];
  const sent: HttpRequest[] = [];
  const http: HttpClient = {
    async resolve(hostname) {
      resolved.push(hostname);
      return answers[resolved.length - 1] ?? [];
    },
    send(request) {
      sent.push(request);
      return reply(request);
    },
    close() {},
  };
  return { http, resolved, sent };
}

const attempt = (
  http: HttpClient,
  {
    url = "http://example.com/a",
    allow = [] as string[],
    allowPorts = [] as number[],
    timeoutMs = 60_000,
    abortSignal = new AbortController().signal,
  } = {},
) => {
  const caller: Caller = {
    http,
    clock: nodePorts.clock,
    allow: parseRanges(allow, "allow"),
    allowPorts: parsePorts(allowPorts, "allowPorts"),
    mostBytes: 100,
  };
  const call = { url, method: "POST", headers: {}, body: "x", timeoutMs, nowMs: () => 1000 };
  return makeCall(caller, call, abortSignal);
};

describe("before a packet is sent", () => {
  test("a name is resolved once, and the request goes to the address that was checked", async () => {
    const { http, resolved, sent } = client([[PUBLIC], ["127.0.0.1"]]);
    expect(await attempt(http)).toMatchObject({ status: 200, body: "fine" });
    expect(resolved).toEqual(["example.com"]);
    expect(sent.map(({ address }) => address)).toEqual([PUBLIC]);
  });

  test.each([
    ["an answer of private addresses", ["10.0.0.1"]],
    ["an answer whose first address is good", [PUBLIC, "127.0.0.1"]],
    ["an answer whose last address is good", ["169.254.169.254", PUBLIC]],
    ["an answer with a good and a bad address of IPv6", ["2606:2800:220:1::1", "::1"]],
    ["an answer that hides IPv4 in IPv6", ["::ffff:127.0.0.1"]],
    ["an answer that hides IPv4 in an interface of ISATAP", ["2606:4700::5efe:a00:1"]],
    ["an answer of a cloud's metadata service", ["168.63.129.16"]],
    ["an answer with a zone", ["fe80::1%lo"]],
    ["an answer that is no address", ["localhost"]],
  ])("%s is forbidden, and nothing is sent", async (_, addresses) => {
    const { http, sent } = client([addresses]);
    const { error } = await attempt(http);
    expect(error?.code).toBe("target_forbidden");
    expect(sent).toEqual([]);
  });

  test("a name that is good at the first attempt and bad at the second is checked each time", async () => {
    const { http, sent } = client([[PUBLIC], ["127.0.0.1"]]);
    expect((await attempt(http)).error).toBeUndefined();
    expect((await attempt(http)).error?.code).toBe("target_forbidden");
    expect(sent).toHaveLength(1);
  });

  test("an address in the URL is checked without the resolver", async () => {
    const { http, resolved, sent } = client([]);
    expect((await attempt(http, { url: "http://2130706433/" })).error?.code).toBe("target_forbidden");
    expect((await attempt(http, { url: "http://[::ffff:7f00:1]/" })).error?.code).toBe("target_forbidden");
    expect(resolved).toEqual([]);
    expect(sent).toEqual([]);
  });

  test("what the operator lists is allowed", async () => {
    const { http, sent } = client([["10.1.2.3"]]);
    expect((await attempt(http, { allow: ["10.0.0.0/8"] })).status).toBe(200);
    expect(sent.map(({ address }) => address)).toEqual(["10.1.2.3"]);
  });

  test("a port of a database is forbidden before its name is resolved, unless the operator lists it", async () => {
    const { http, resolved, sent } = client([[PUBLIC]]);
    const url = "http://example.com:9200/a";
    expect((await attempt(http, { url })).error).toMatchObject({
      code: "target_forbidden",
      message: expect.stringContaining("allowPorts"),
    });
    expect([resolved, sent]).toEqual([[], []]);
    expect((await attempt(http, { url, allowPorts: [9200] })).status).toBe(200);
  });

  test("a name without an address is a network error", async () => {
    expect((await attempt(client([[]]).http)).error).toMatchObject({ code: "network" });
  });

  test("what another release stored is checked again", async () => {
    expect((await attempt(client([[PUBLIC]]).http, { url: "http://example.com:22/" })).error?.code).toBe(
      "invalid_target",
    );
  });
});

describe("the time of an attempt", () => {
  test("ends also while a name is being resolved", async () => {
    const http = { ...client([]).http, resolve: () => new Promise<never>(() => {}) };
    expect((await attempt(http, { timeoutMs: 5 })).error?.code).toBe("timeout");
  });

  test("ends the request, and what comes later counts for nothing", async () => {
    const late = Promise.withResolvers<HttpReply>();
    const { http, sent } = client([[PUBLIC]], () => late.promise);
    const made = await attempt(http, { timeoutMs: 5 });
    expect(made.error?.code).toBe("timeout");
    expect(sent[0]?.abortSignal.aborted).toBe(true);
    late.resolve(ok);
    await late.promise;
    expect(made.status).toBeUndefined();
  });

  test("nothing is sent if it ended while the name was resolved", async () => {
    const answer = Promise.withResolvers<readonly string[]>();
    const { http, sent } = client([]);
    await attempt({ ...http, resolve: () => answer.promise }, { timeoutMs: 5 });
    answer.resolve([PUBLIC]);
    await new Promise(setImmediate);
    expect(sent).toEqual([]);
  });
});

test("an abort from outside rejects, so that nothing is recorded", async () => {
  const abort = new AbortController();
  const { http, sent } = client([[PUBLIC]], () => new Promise(() => {}));
  const made = attempt(http, { abortSignal: abort.signal });
  await new Promise(setImmediate);
  abort.abort(new Error("lost"));
  await expect(made).rejects.toThrow("lost");
  expect(sent[0]?.abortSignal.aborted).toBe(true);
  await expect(attempt(http, { abortSignal: abort.signal })).rejects.toThrow("lost");
});

describe("what is kept of a reply", () => {
  const of = (reply: Partial<HttpReply>) => attempt(client([[PUBLIC]], async () => ({ ...ok, ...reply })).http);
  test("a long body is kept in part", async () => {
    const made = await of({ body: Buffer.from("ü".repeat(10_000)) });
    expect(made).toMatchObject({ isCut: true, body: "ü".repeat(8192) });
    expect(made.error).toBeUndefined();
  });

  test("a character that the cut divides is left out", async () => {
    expect((await of({ body: Buffer.from(`x${"ü".repeat(10_000)}`) })).body).toBe(`x${"ü".repeat(8191)}`);
  });

  test("bytes that are no text are replaced", async () => {
    expect((await of({ body: Buffer.from([0xff, 0x61]) })).body).toBe("\ufffda");
  });

  test("a body that was cut off is an error", async () => {
    expect((await of({ isCut: true })).error?.code).toBe("body_too_large");
  });

  test("many and long headers are kept in part", async () => {
    const headers = Object.fromEntries(Array.from({ length: 60 }, (_, i) => [`x-${i}`, "y".repeat(2000)]));
    const kept = Object.entries((await of({ headers })).headers ?? {});
    expect(kept).toHaveLength(50);
    expect(kept[0]?.[1]).toHaveLength(1000);
  });

  test("what Retry-After says, as a time from now", async () => {
    expect((await of({ headers: { "retry-after": "7" } })).retryAfterMs).toBe(7000);
    expect((await of({ headers: { "retry-after": "Thu, 01 Jan 1970 00:00:11 GMT" } })).retryAfterMs).toBe(10_000);
  });
});
