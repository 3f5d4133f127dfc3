/**
 * Requests that are repeated with the same `Idempotency-Key` after their server died (G2).
 *
 * Goal: one effect, whatever the server was doing when it died, and a response that says what the first one said or would have said.
 * Method: for every n, a server loses its store before and after call n of the request; the request is repeated on another server until it
 * gets a response, and once more. The keys of attempts that the dead server holds are freed as if their leases had ended.
 */

import type { Hono } from "hono";
import { describe, expect, test } from "vitest";
import { apiKeys, createApp } from "../../src/http/server/index.ts";
import { keyAt } from "../../src/idempotency/stored.ts";
import { machine, type Pawl } from "../../src/index.ts";
import { inboxAt } from "../../src/workflow/stored.ts";
import { onStores, type Place } from "../workflow/kit.ts";

const order = machine("order", { initial: "pending", transitions: { pending: ["paid"], paid: [] } });
const SECURE = {
  logger: false,
  actions: { pepper: "a pepper of sixteen bytes", keys: { current: "k1", ring: { k1: new Uint8Array(32).fill(7) } } },
} as const;

interface Got {
  readonly status: number;
  readonly json: Record<string, unknown>;
  readonly etag: string | null;
}

interface Case {
  prepare?(pawl: Pawl): Promise<unknown>;
  readonly method?: "PUT" | "DELETE";
  readonly path: string;
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
  /** The status of the first response. */
  readonly status: number;
  /** Checks that there was one effect, and that the response is the one to it. */
  check(pawl: Pawl, got: Got): Promise<void>;
}

const coupon = (pawl: Pawl, pin?: string) =>
  pawl.actions.create({ id: "c1", uses: 5, payload: "percent", ...(pin === undefined ? {} : { pin }) });

const CASES: Readonly<Record<string, Case>> = {
  "events that are appended without an expected version": {
    path: "/v1/streams/s/events",
    body: { events: [{ name: "A" }, { name: "B" }] },
    status: 201,
    async check(pawl, { json, etag }) {
      const ids: string[] = [];
      for await (const { id } of pawl.stream("s").read()) ids.push(id);
      expect(json).toEqual({ stream: "s", version: 2, ids });
      expect(etag).toBe('"2"');
    },
  },
  "a run without an id": {
    path: "/v1/runs",
    body: { workflow: "w" },
    status: 201,
    async check(pawl, { json }) {
      expect((await pawl.runs.list()).runs.map(({ id }) => id)).toEqual([json["id"]]);
    },
  },
  "a signal without an id": {
    prepare: (pawl) => pawl.start("w", undefined, { id: "r" }),
    path: "/v1/runs/r/signals",
    body: { name: "go" },
    status: 200,
    async check(pawl, { json }) {
      expect(json).toEqual({ isNew: true });
      expect(await pawl.kernel.entries(inboxAt("r", 1), 0, 10)).toHaveLength(1);
    },
  },
  "an action without an id": {
    path: "/v1/actions",
    body: { pin: "4711", payload: "percent" },
    status: 201,
    async check(pawl, { json }) {
      expect((await pawl.actions.list()).actions).toHaveLength(1);
      expect(await pawl.actions.get(String(json["id"]))).not.toBeNull();
    },
  },
  "a use of an action": {
    prepare: (pawl) => coupon(pawl),
    path: "/v1/actions/c1/consume",
    body: {},
    status: 200,
    async check(pawl, { json }) {
      expect(json).toMatchObject({ payload: "percent", usesLeft: 4 });
      expect((await pawl.actions.get("c1"))?.usesLeft).toBe(4);
    },
  },
  "a use of an action with a PIN": {
    prepare: (pawl) => coupon(pawl, "4711"),
    path: "/v1/actions/c1/consume",
    body: { pin: "4711" },
    status: 200,
    async check(pawl, { json }) {
      expect(json).toMatchObject({ payload: "percent", usesLeft: 4 });
      expect((await pawl.actions.get("c1"))?.usesLeft).toBe(4);
    },
  },
  "tokens of a rate limit": {
    path: "/v1/rate-limits/mail/acquire",
    body: { max: 10, per: "100 days" },
    status: 200,
    async check(pawl, { json }) {
      expect(json).toEqual({ waitedMs: 0 });
      expect(await pawl.rateLimit("mail", { max: 10, per: "100 days" }).inspect()).toMatchObject({ remaining: 9 });
    },
  },
  "an instance of a machine": {
    path: "/v1/machines/order/o1",
    body: {},
    status: 201,
    async check(_, { json }) {
      expect(json).toMatchObject({ state: "pending", version: 1 });
    },
  },
  "a transition": {
    prepare: (pawl) => pawl.machine(order).create("o1"),
    path: "/v1/machines/order/o1/transition",
    body: { to: "paid" },
    status: 200,
    async check(pawl, { json, etag }) {
      expect(json).toMatchObject({ state: "paid", outcome: "moved", version: 2 });
      expect(etag).toBe('"2"');
      expect(await pawl.machine(order).history("o1")).toHaveLength(2);
    },
  },
  "a transition that is refused, which is in the history": {
    prepare: (pawl) => pawl.machine(order).create("o1"),
    path: "/v1/machines/order/o1/transition",
    body: { to: "pending" },
    status: 409,
    async check(pawl, { json }) {
      expect(json).toMatchObject({ code: "illegal_transition", data: { from: "pending", allowed: ["paid"] } });
      expect(await pawl.machine(order).history("o1")).toHaveLength(2);
    },
  },
  "a conditional write": {
    prepare: (pawl) => pawl.slot("x").set(1),
    method: "PUT",
    path: "/v1/slots/x",
    body: { value: 2 },
    headers: { "if-match": '"1"' },
    status: 200,
    async check(pawl, { json, etag }) {
      expect(json).toEqual({ name: "x", version: 2 });
      expect(etag).toBe('"2"');
      expect(await pawl.slot("x").get()).toEqual({ value: 2, version: 2 });
    },
  },
  "a conditional delete": {
    prepare: (pawl) => pawl.slot("x").set(1),
    method: "DELETE",
    path: "/v1/slots/x",
    headers: { "if-match": '"1"' },
    status: 200,
    async check(pawl, { json }) {
      expect(json).toEqual({ deleted: true });
      expect((await pawl.slot("x").get()).version).toBe(0);
    },
  },
  "a message": {
    path: "/v1/dedupe/billing",
    body: { messageId: "m1" },
    status: 200,
    async check(_, { json }) {
      expect(json).toEqual({ deduplicated: false });
    },
  },
  "a run of a schedule": {
    prepare: (pawl) => pawl.schedules.create("nightly", { cron: "0 0 1 1 *" }, "w"),
    path: "/v1/schedules/nightly/trigger",
    status: 201,
    async check(pawl, { json }) {
      expect((await pawl.runs.list()).runs.map(({ id }) => id)).toEqual([json["run"]]);
    },
  },
};

const KEY = "order-17";

/** Sends the request of a case; dies at a call to its store, and sends it again. Returns whether the server lived long enough to die. */
async function sweep(place: Place, one: Case, call: number, when: "before" | "after"): Promise<boolean> {
  place.begin();
  const keeper = await place.open(SECURE);
  await one.prepare?.(keeper);
  const { key, id } = await apiKeys(keeper).create({ name: "test", scopes: ["write", "operate"] });
  const send = async (app: Hono): Promise<Got> => {
    const response = await app.request(one.path, {
      method: one.method ?? "POST",
      headers: {
        authorization: `Bearer ${key}`,
        "idempotency-key": KEY,
        ...(one.body === undefined ? {} : { "content-type": "application/json" }),
        ...one.headers,
      },
      ...(one.body === undefined ? {} : { body: JSON.stringify(one.body) }),
    });
    const { requestId: _, ...json } = (await response.json()) as Record<string, unknown>;
    return { status: response.status, json, etag: response.headers.get("etag") };
  };
  const options = { machines: [order], limits: { requests: false, keyless: false }, logger: false } as const;
  const first = await place.openHandle(SECURE);
  const { died, bury } = first.dieAt(call, when);
  const sent = send(createApp(first.pawl, options));
  sent.catch(() => {});
  const got = await Promise.race([died.then(() => undefined), sent]);
  if (!first.isDead()) first.die();
  // As if the lease of the dead server's attempt had ended.
  const at = keyAt(`pawl.http\npawl.server\n${id}`, KEY);
  await keeper.kernel.transact(
    (tx) => {
      const record = tx.record(at);
      if (record.exists && record.status === "in_progress") record.write({ dueMs: tx.nowMs });
    },
    [at],
  );
  const app = createApp(await place.open(SECURE), options);
  const second = await send(app);
  const again = await send(app);
  for (const later of [second, again]) {
    expect(later.status).toBe(one.status);
    await one.check(keeper, later);
    if (got !== undefined) expect(without(later)).toEqual(without(got));
  }
  expect(without(again)).toEqual(without(second));
  // Hashes of PINs take turns in a process.
  bury();
  await place.end();
  return got === undefined;
}

/** A payload that comes from the action again says so. */
const without = ({ json: { replayed: _, ...json }, ...got }: Got) => ({ ...got, json });

onStores(["memory", "SQLite"], (place) => {
  describe.each(["before", "after"] as const)("a server that dies %s a call to its store", (when) => {
    test.each(Object.keys(CASES))("%s: one effect, and the same response", async (name) => {
      let call = 1;
      while (await sweep(place, CASES[name] as Case, call, when)) call += 1;
      expect(call).toBeGreaterThan(2);
    });
  });
});
