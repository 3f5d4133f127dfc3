/**
 * The laws that every adapter of the middleware keeps, written once: a small shop behind a framework, and what its clients see.
 */

import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { HttpAttempt, IdempotentHandle, MiddlewareOptions } from "../../src/http/middleware/core.ts";
import { Idempotency } from "../../src/idempotency/idempotency.ts";
import { open, type Pawl } from "../../src/index.ts";
import { address } from "../../src/kernel/contract.ts";
import type { Tx } from "../../src/kernel/decision.ts";
import { plainly } from "../../src/kernel/sql/in-sql.ts";
import { type Gate, gate } from "../kernel/kit.ts";

/** What the shop replies; a list of pieces is sent as a stream. */
export interface ShopReply {
  readonly status: number;
  readonly headers: readonly (readonly [string, string | readonly string[]])[];
  readonly body: string | Uint8Array | null | readonly Uint8Array[];
}

export type ShopAttempt = HttpAttempt<Tx, object>;
/** The options, but for those that depend on the framework's request. */
export type ShopOptions = Omit<MiddlewareOptions<never>, "scope" | "fingerprint">;

/** The application behind the framework. */
export class Shop {
  handled = 0;
  slow: Gate = gate();
  arrived: Gate = gate();

  async handle(path: string, body: unknown, attempt: ShopAttempt | undefined): Promise<ShopReply> {
    this.handled += 1;
    const json = (status: number, value: object): ShopReply => ({
      status,
      headers: [
        ["Content-Type", "application/json"],
        ["Location", `/orders/${this.handled}`],
        ["X-Handled", String(this.handled)],
        ["Set-Cookie", [`a=${this.handled}`, "b=2"]],
      ],
      body: JSON.stringify(value),
    });
    switch (path) {
      case "/slow":
        this.arrived.open();
        await this.slow.opened;
        return json(201, { order: this.handled });
      case "/empty":
        return { status: 204, headers: [["X-Handled", String(this.handled)]], body: null };
      case "/bytes":
        return {
          status: 200,
          headers: [["Content-Type", "image/png"]],
          body: new Uint8Array([0x89, 0, 0xff, this.handled]),
        };
      case "/refused":
        return json(402, { refused: this.handled });
      case "/broken":
        return json(503, { broken: this.handled });
      case "/busy":
        return json(429, { busy: this.handled });
      case "/throws":
        throw new Error("a mistake");
      case "/stream":
        return {
          status: 200,
          headers: [["Content-Type", "text/plain"]],
          body: ["one ", "two ", String(this.handled)].map((text) => new TextEncoder().encode(text)),
        };
      case "/large":
        return {
          status: 200,
          headers: [["Content-Type", "application/octet-stream"]],
          body: Array.from({ length: 5 }, (_, i) => new Uint8Array(400_000).fill(i)),
        };
      case "/commit":
        await attempt?.commit((tx) => {
          const at = address("shop", "orders");
          const orders = tx.record(at).exists ? (tx.record(at).value as number) : 0;
          tx.record(at).write({ value: orders + 1 });
          return { status: 201, headers: { Location: `/orders/${orders + 1}` }, json: { orders: orders + 1 } };
        });
        return json(200, { ignored: true });
      default:
        return json(201, { order: this.handled, body });
    }
  }
}

/** A reply of the shop, for frameworks that speak in responses. */
export function shopResponse({ status, headers, body }: ShopReply): Response {
  const all = headers.flatMap(([name, values]) => [values].flat().map((value): [string, string] => [name, value]));
  const sent = Array.isArray(body) ? ReadableStream.from(body) : body;
  return new Response(sent as string | null, { status, headers: all });
}

export interface Running {
  /** Sends a request; a path, and what is in it. */
  fetch(path: string, init?: RequestInit): Promise<Response>;
  close(): Promise<void>;
}

export type Start = (handle: IdempotentHandle<Tx, object>, shop: Shop, options: ShopOptions) => Promise<Running>;

/** Who is calling. */
export const CALLER = "x-caller";

export function adapterLaws(name: string, start: Start, traits: { readonly readsRequest: boolean }): void {
  describe(name, () => {
    let pawl: Pawl;
    let shop: Shop;
    let running: Running[];
    beforeEach(async () => {
      pawl = await open("memory:");
      shop = new Shop();
      running = [];
    });
    afterEach(async () => {
      shop.slow.open();
      for (const one of running) await one.close();
      await pawl.close();
    });
    const serve = async (options: ShopOptions = {}): Promise<Running> => {
      const one = await start(new Idempotency(pawl.kernel, plainly), shop, options);
      running.push(one);
      return one;
    };
    const post = (
      to: Running,
      path: string,
      key: string | null,
      {
        body = { item: "teapot" },
        caller = "ann",
        method = "POST",
      }: { body?: unknown; caller?: string; method?: string } = {},
    ) =>
      to.fetch(path, {
        method,
        headers: {
          "content-type": "application/json",
          [CALLER]: caller,
          ...(key === null ? {} : { "idempotency-key": key }),
        },
        ...(method === "GET" ? {} : { body: JSON.stringify(body) }),
      });
    const seen = async (response: Response) => ({
      status: response.status,
      type: response.headers.get("content-type"),
      location: response.headers.get("location"),
      handled: response.headers.get("x-handled"),
      body: Buffer.from(await response.arrayBuffer()),
      replayed: response.headers.get("idempotent-replayed"),
    });
    const problemOf = async (response: Response) => {
      expect(response.headers.get("content-type")).toBe("application/problem+json");
      const problem = (await response.json()) as { status: number; code: string };
      expect(problem.status).toBe(response.status);
      return problem.code;
    };

    for (const path of ["/orders", "/refused", "/empty", "/bytes", "/stream"])
      test(`a request that is repeated gets the same reply, and is not handled again: ${path}`, async () => {
        const to = await serve();
        const first = await post(to, path, '"k"');
        expect(first.headers.get("idempotent-replayed")).toBeNull();
        const before = await seen(first);
        for (const key of ['"k"', "k"])
          expect(await seen(await post(to, path, key))).toEqual({ ...before, replayed: "true" });
        expect(shop.handled).toBe(1);
        expect((await seen(await post(to, path, "another"))).replayed).toBeNull();
        expect(shop.handled).toBe(2);
      });

    test("cookies are for the first one only", async () => {
      const to = await serve();
      expect((await post(to, "/orders", "k")).headers.getSetCookie()).toEqual(["a=1", "b=2"]);
      expect((await post(to, "/orders", "k")).headers.getSetCookie()).toEqual([]);
    });

    test("without a key every request is handled, unless one is required", async () => {
      const to = await serve();
      for (const count of [1, 2]) expect((await seen(await post(to, "/orders", null))).handled).toBe(String(count));
      const strict = await serve({ required: true });
      const refusal = await post(strict, "/orders", null);
      expect([refusal.status, await problemOf(refusal)]).toEqual([400, "idempotency_key_missing"]);
      expect((await post(strict, "/orders", null, { method: "GET" })).status).toBe(201);
      expect(shop.handled).toBe(3);
    });

    test("a malformed key is refused", async () => {
      const to = await serve();
      const refusal = await post(to, "/orders", '"a", "b"');
      expect([refusal.status, await problemOf(refusal)]).toEqual([400, "idempotency_key_malformed"]);
      expect(shop.handled).toBe(0);
    });

    test("a method that it is not about passes through", async () => {
      const to = await serve();
      for (const count of [1, 2])
        expect((await seen(await post(to, "/orders", "k", { method: "GET" }))).handled).toBe(String(count));
      const wide = await serve({ methods: ["PUT"] });
      for (const method of ["PUT", "PUT", "POST"]) await post(wide, "/orders", "k", { method });
      expect(shop.handled).toBe(4);
    });

    test("a repetition that overlaps a slow first request gets a conflict, and later the same reply", async () => {
      const to = await serve();
      const first = post(to, "/slow", "k");
      await shop.arrived.opened;
      const refusal = await post(to, "/slow", "k");
      expect([refusal.status, refusal.headers.get("retry-after")]).toEqual([409, "1"]);
      expect(await problemOf(refusal)).toBe("idempotency_in_progress");
      shop.slow.open();
      const before = await seen(await first);
      expect(await seen(await post(to, "/slow", "k"))).toEqual({ ...before, replayed: "true" });
      expect(shop.handled).toBe(1);
    });

    test("another request under the same key is refused: body, path, query and method count", async () => {
      const to = await serve();
      await post(to, "/orders?a=1", "k");
      for (const refused of [
        post(to, "/orders?a=1", "k", { body: { item: "cup" } }),
        post(to, "/orders?a=2", "k"),
        post(to, "/orders", "k"),
        post(to, "/orders/?a=1", "k"),
        post(to, "/other?a=1", "k"),
        post(to, "/orders?a=1", "k", { method: "PATCH" }),
      ]) {
        const response = await refused;
        expect([response.status, await problemOf(response)]).toEqual([422, "idempotency_mismatch"]);
      }
      expect(shop.handled).toBe(1);
    });

    test("another request is refused also while the first is under way", async () => {
      const to = await serve();
      const first = post(to, "/slow", "k");
      await shop.arrived.opened;
      expect((await post(to, "/slow", "k", { body: 1 })).status).toBe(422);
      shop.slow.open();
      expect((await first).status).toBe(201);
    });

    test("the keys of two callers have nothing to do with each other", async () => {
      const to = await serve();
      for (const [i, caller] of ["ann", "bob"].entries())
        expect((await seen(await post(to, "/orders", "k", { caller }))).handled).toBe(String(i + 1));
      for (const [i, caller] of ["ann", "bob"].entries())
        expect(await seen(await post(to, "/orders", "k", { caller }))).toMatchObject({
          handled: String(i + 1),
          replayed: "true",
        });
    });

    test("a reply that asks the client to retry is not stored, unless requested", async () => {
      const to = await serve();
      for (const [path, status] of [
        ["/broken", 503],
        ["/busy", 429],
        ["/throws", 500],
      ] as const)
        for (const handled of [1, 2]) {
          const before = shop.handled;
          const response = await post(to, path, path).catch(() => ({ status: 500, headers: new Headers() }));
          expect([path, response.status, response.headers.get("idempotent-replayed")]).toEqual([path, status, null]);
          expect([handled, shop.handled]).toEqual([handled, before + 1]);
        }
      const keen = await serve({ storeStatus: () => true });
      for (const replayed of [null, "true"])
        expect(await seen(await post(keen, "/broken", "again"))).toMatchObject({ status: 503, replayed });
    });

    test("a reply that is too large is sent in full, and not kept; the request is not handled again", async () => {
      const to = await serve();
      const first = await post(to, "/large", "k");
      const bytes = new Uint8Array(await first.arrayBuffer());
      expect([first.status, bytes.length, bytes[0], bytes[1_999_999]]).toEqual([200, 2_000_000, 0, 4]);
      for (let i = 0; i < 2; i++) {
        const again = await post(to, "/large", "k");
        expect([again.status, again.headers.get("idempotent-replayed")]).toEqual([500, "true"]);
        expect(await problemOf(again)).toBe("response_not_kept");
      }
      expect(shop.handled).toBe(1);
    });

    test("so it is with one that is within the limit, and larger than a record may be", async () => {
      const to = await serve({ maxBodyBytes: 10_000_000 });
      expect((await (await post(to, "/large", "k")).arrayBuffer()).byteLength).toBe(2_000_000);
      expect(await problemOf(await post(to, "/large", "k"))).toBe("response_not_kept");
      expect(shop.handled).toBe(1);
    });

    test("a limit of its own is kept to", async () => {
      const to = await serve({ maxBodyBytes: 60 });
      const first = await post(to, "/stream", "k");
      expect(await first.text()).toBe("one two 1");
      expect((await post(to, "/stream", "k")).headers.get("idempotent-replayed")).toBe("true");
      const long = await post(to, "/orders", "l");
      expect(await long.json()).toEqual({ order: 2, body: { item: "teapot" } });
      const tight = await serve({ maxBodyBytes: 30 });
      await post(tight, "/orders", "m");
      expect(await problemOf(await post(tight, "/orders", "m"))).toBe("response_not_kept");
    });

    test("what a handler commits is the reply, with its effect, whatever the handler sends", async () => {
      const to = await serve();
      for (const replayed of [null, "true"]) {
        const response = await post(to, "/commit", "k");
        expect(await seen(response)).toEqual({
          status: 201,
          type: "application/json",
          location: "/orders/1",
          handled: null,
          body: Buffer.from('{"orders":1}'),
          replayed,
        });
        expect(response.headers.getSetCookie()).toEqual([]);
      }
      const [row] = await pawl.kernel.read([address("shop", "orders")]);
      expect([row?.value, shop.handled]).toEqual(["1", 1]);
      expect((await post(to, "/commit", null)).status).toBe(200);
    });

    test("many concurrent requests: one is handled", async () => {
      const to = await serve();
      const replies = await Promise.all(Array.from({ length: 10 }, () => post(to, "/orders", "k")));
      expect(shop.handled).toBe(1);
      for (const { status } of replies) expect([201, 409]).toContain(status);
    });

    if (traits.readsRequest)
      test("a request that is too large is refused, and not handled, also if its length is unknown", async () => {
        const to = await serve({ maxBodyBytes: 1000 });
        const headers = { [CALLER]: "ann", "idempotency-key": "k" };
        const said = await to.fetch("/orders", { method: "POST", headers, body: "x".repeat(1001) });
        expect([said.status, await problemOf(said)]).toEqual([413, "request_too_large"]);
        let sent = 0;
        const endless = new ReadableStream<Uint8Array>({
          pull(controller) {
            sent += 1;
            controller.enqueue(new Uint8Array(100));
          },
        });
        const unsaid = await to.fetch("/orders", { method: "POST", headers, body: endless, duplex: "half" });
        expect([unsaid.status, await problemOf(unsaid)]).toEqual([413, "request_too_large"]);
        expect(sent).toBeLessThan(30);
        expect(shop.handled).toBe(0);
        const fits = await to.fetch("/orders", { method: "POST", headers, body: JSON.stringify("x".repeat(998)) });
        expect(fits.status).toBe(201);
      });
  });
}
