/**
 * Goal: a handler of web-standard requests does its work once for each key, and no request gets the reply of another (G3).
 * Method: the laws of all adapters; a property over requests that are changed in one place; then what only this one does.
 */

import fc from "fast-check";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { adapterLaws, CALLER, type Shop, shopResponse } from "../../../test/idempotency/adapters.ts";
import { codeOf } from "../../../test/kernel/kit.ts";
import { Idempotency } from "../../idempotency/idempotency.ts";
import { open } from "../../index.ts";
import type { Tx } from "../../kernel/decision.ts";
import { plainly } from "../../kernel/sql/in-sql.ts";
import type { Pawl } from "../../pawl.ts";
import { idempotentFetch } from "./fetch.ts";

adapterLaws(
  "idempotentFetch",
  async (pawl, shop: Shop, options) => {
    const handler = idempotentFetch(
      pawl,
      async (request, attempt) => {
        const body = request.method === "GET" ? null : await request.json();
        return shopResponse(await shop.handle(new URL(request.url).pathname, body, attempt));
      },
      { ...options, scope: (request) => request.headers.get(CALLER) ?? "" },
    );
    return { fetch: async (path, init) => handler(new Request(`http://shop${path}`, init)), close: async () => {} };
  },
  { readsRequest: true },
);

describe("idempotentFetch alone", () => {
  let pawl: Pawl;
  let keys: Idempotency<Tx, object>;
  beforeEach(async () => {
    pawl = await open("memory:");
    keys = new Idempotency(pawl.kernel, plainly);
  });
  afterEach(() => pawl.close());

  test("a request that is changed in any way does not get the reply of the first", async () => {
    await using quick = await open("memory:", { checkPurity: false });
    let handled = 0;
    const handler = idempotentFetch(
      new Idempotency(quick.kernel, plainly),
      async (request) => {
        handled += 1;
        return new Response(`${handled} ${(await request.arrayBuffer()).byteLength}`);
      },
      { scope: () => "ann" },
    );
    const requests = fc.record({
      method: fc.constantFrom("POST", "PATCH"),
      path: fc.webPath(),
      query: fc.webQueryParameters(),
      body: fc.uint8Array({ maxLength: 64 }),
    });
    /** The same request with something inserted, removed or changed. */
    const changes = fc.oneof(
      fc.record({ of: fc.constant("method" as const) }),
      fc.record({
        of: fc.constantFrom("path" as const, "query" as const),
        add: fc.constantFrom("/", "a", "%20", "=", ";"),
      }),
      fc.record({ of: fc.constant("append" as const), byte: fc.nat(255) }),
      fc.record({ of: fc.constant("flip" as const), at: fc.nat(63), bit: fc.nat(7) }),
      fc.record({ of: fc.constant("cut" as const), at: fc.nat(63) }),
    );
    type Shape = { method: string; path: string; query: string; body: Uint8Array };
    const changed = (
      shape: Shape,
      change: { of: string; add?: string; byte?: number; at?: number; bit?: number },
    ): Shape => {
      const { method, path, query, body } = shape;
      const at = body.length === 0 ? 0 : (change.at ?? 0) % body.length;
      switch (change.of) {
        case "method":
          return { ...shape, method: method === "POST" ? "PATCH" : "POST" };
        case "path":
          return { ...shape, path: `${path}${change.add}` };
        case "query":
          return { ...shape, query: `${query}${change.add}` };
        case "flip":
          return {
            ...shape,
            body: body.length === 0 ? new Uint8Array([0]) : body.with(at, (body[at] ?? 0) ^ (1 << (change.bit ?? 0))),
          };
        case "cut":
          return { ...shape, body: body.length === 0 ? new Uint8Array([7]) : body.slice(0, at) };
        default:
          return { ...shape, body: Uint8Array.from([...body, change.byte ?? 0]) };
      }
    };
    let key = 0;
    await fc.assert(
      fc.asyncProperty(requests, changes, async (shape, change) => {
        const send = ({ method, path, query, body }: Shape) =>
          handler(
            new Request(`http://shop/${path}?${query}`, {
              method,
              body: Buffer.from(body),
              headers: { "idempotency-key": String(key) },
            }),
          );
        // A path such as "/." is the same with a slash behind it.
        const urlOf = ({ path, query }: Shape) => new URL(`http://shop/${path}?${query}`).href;
        fc.pre(change.of !== "path" || urlOf(shape) !== urlOf(changed(shape, change)));
        key += 1;
        const first = await (await send(shape)).text();
        const other = await send(changed(shape, change));
        expect(other.status).toBe(422);
        expect(await (await send(shape)).text()).toBe(first);
        expect(handled).toBe(key);
      }),
      { numRuns: 200 },
    );
  });

  test("the handler gets the request as it came", async () => {
    class Special extends Request {
      readonly extra = 5;
    }
    const handler = idempotentFetch(
      keys,
      async (request) => new Response(`${(request as Special).extra} ${await request.text()}`),
      { scope: () => "ann" },
    );
    const init = { method: "POST", body: "hello", headers: { "idempotency-key": "k" } };
    expect(await (await handler(new Special("http://shop/", init))).text()).toBe("5 hello");
  });

  test("a custom fingerprint is used, and the body is not read for it", async () => {
    const handler = idempotentFetch(keys, async (request) => new Response(await request.text()), {
      scope: () => "ann",
      maxBodyBytes: 10,
      fingerprint: (request) => request.headers.get("digest"),
    });
    const send = (digest: string, body: string) =>
      handler(new Request("http://shop/", { method: "POST", body, headers: { "idempotency-key": "k", digest } }));
    expect((await send("a", "12345678901234567890")).status).toBe(200);
    expect((await send("a", "other")).headers.get("idempotent-replayed")).toBe("true");
    expect((await send("b", "other")).status).toBe(422);
  });

  test("a request whose header says that it is too long is refused before it is read", async () => {
    const handler = idempotentFetch(keys, () => new Response(), { scope: () => "ann", maxBodyBytes: 100 });
    let pulls = 0;
    const body = new ReadableStream<Uint8Array>(
      {
        pull(controller) {
          pulls += 1;
          controller.enqueue(new Uint8Array(50));
        },
      },
      { highWaterMark: 0 },
    );
    const headers = { "idempotency-key": "k", "content-length": "5000" };
    const response = await handler(new Request("http://shop/", { method: "POST", headers, body, duplex: "half" }));
    expect([response.status, pulls]).toEqual([413, 0]);
  });

  test("a handler's error is thrown, and frees the key; so does an incomplete body", async () => {
    let handled = 0;
    const handler = idempotentFetch(
      keys,
      () => {
        handled += 1;
        if (handled === 1) throw new Error("a mistake");
        const pieces = (async function* () {
          yield new Uint8Array(3);
          if (handled === 2) throw new Error("broken off");
        })();
        return new Response(ReadableStream.from(pieces));
      },
      { scope: () => "ann" },
    );
    const send = () => handler(new Request("http://shop/", { method: "POST", headers: { "idempotency-key": "k" } }));
    await expect(send()).rejects.toThrow("a mistake");
    await expect(send()).rejects.toThrow("broken off");
    expect([(await send()).status, handled]).toEqual([200, 3]);
  });

  test("an attempt that was taken over does not send its reply, but a 409", async () => {
    const takenOver = Promise.withResolvers<void>();
    const begun = Promise.withResolvers<void>();
    let handled = 0;
    const handler = idempotentFetch(
      keys,
      async () => {
        handled += 1;
        if (handled > 1) return new Response("fresh");
        begun.resolve();
        // The event loop is blocked for longer than the lease, as in a suspended process.
        const end = Date.now() + 60;
        while (Date.now() < end);
        await takenOver.promise;
        return new Response("stale");
      },
      { scope: () => "ann", lease: 50 },
    );
    const send = () => handler(new Request("http://shop/", { method: "POST", headers: { "idempotency-key": "k" } }));
    const stale = send();
    await begun.promise;
    let fresh = await send();
    while (fresh.status === 409) fresh = await send();
    takenOver.resolve();
    expect(await fresh.text()).toBe("fresh");
    expect((await stale).status).toBe(409);
    expect(await (await send()).text()).toBe("fresh");
  });

  test("a commit that is refused leaves the reply to the handler", async () => {
    const handler = idempotentFetch(
      keys,
      async (_, attempt) => {
        const code = await codeOf(attempt?.commit(() => ({ status: 7 })) ?? Promise.resolve());
        return new Response(String(code), { status: 202 });
      },
      { scope: () => "ann" },
    );
    const send = () => handler(new Request("http://shop/", { method: "POST", headers: { "idempotency-key": "k" } }));
    for (let i = 0; i < 2; i++) {
      const response = await send();
      expect([response.status, await response.text()]).toEqual([202, "invalid_argument"]);
    }
  });

  test("an invalid handle or scope is refused immediately, and a scope that returns no caller with the request", async () => {
    const handler = () => new Response();
    expect(() => idempotentFetch(undefined as never, handler, { scope: () => "a" })).toThrow("must be a Pawl");
    expect(() => idempotentFetch(keys, handler, {} as never)).toThrow("the scope");
    expect(() => idempotentFetch(keys, handler, { scope: () => "a", maxBodyBytes: 0 })).toThrow("maxBodyBytes");
    for (const scope of ["", undefined]) {
      const withoutCaller = idempotentFetch(keys, handler, { scope: () => scope as string });
      const request = new Request("http://shop/", { method: "POST", headers: { "idempotency-key": "k" } });
      expect(await codeOf(withoutCaller(request))).toBe("invalid_argument");
    }
  });
});
