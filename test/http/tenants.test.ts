/**
 * Two tenants on one server (G26).
 *
 * Goal: a key cannot read, change, count or guess what is in another namespace.
 * Method: one tenant has something of everything, under ids of any characters. The other sends requests of each route of the OpenAPI document, with every
 * method, twice: with an id of the first tenant, and with one that never existed and differs in one character. Status, headers and body are the same, byte for
 * byte, but for the date, the id of the request and the id that was asked for. Afterwards every record of the first tenant is as it was.
 */

import { expect, test } from "vitest";
import { createClient } from "../../src/http/client/index.ts";
import { apiKeys } from "../../src/http/server/index.ts";
import { event, workflow } from "../../src/index.ts";
import { refusal, type Send, sender } from "./kit.ts";
import { fill, fuzz, SECRET, tenants } from "./tenants.ts";

test("what belongs to another tenant is the same as what does not exist, on every route", () => fuzz(1, 1));

test("lists and streams of events show only what is in the namespace of the key", async () => {
  const { kit, a, b, own } = await tenants();
  await fill(kit, b, own);
  for (const path of ["runs", "tasks", "slots", "actions", "machines/order", "events", "schedules", "workflows/paused"])
    expect((await a("GET", `/v1/${path}`)).json["items"], path).toEqual([]);
});

test("no cursor says how much others append: it is sealed, for one namespace, and as long as any other", async () => {
  const { a, b, own } = await tenants();
  const Said = event<string>("Said");
  const append = (send: Send) => send("POST", "/v1/streams/s/events", { events: [{ name: "Said" }] });
  const page = async (query = "") => {
    const { json } = await a("GET", `/v1/events${query}`);
    return json as { items: { version: number; cursor: string; position?: unknown }[]; next: string };
  };
  await append(a);
  const quiet = [await page(), await page()];
  for (let i = 0; i < 120; i++) await b.stream("other").append([Said("x")]);
  await append(a);
  const busy = [await page(), await page()];
  const cursors = [...quiet, ...busy].flatMap(({ items, next }) => [...items.map(({ cursor }) => cursor), next]);
  for (const cursor of cursors) expect(cursor).toMatch(/^[\w-]{40,}$/);
  // Nothing but the event itself is new, and that of an event is the same in each page.
  expect(busy[0]?.items.map(({ version }) => version)).toEqual([1, 2]);
  expect(busy[0]?.items).toEqual(busy[1]?.items);
  expect(busy[0]?.items[0]).toEqual(quiet[0]?.items[0]);
  expect(busy[0]?.items[0]).not.toHaveProperty("position");
  // `next` differs whether others append or not.
  const nexts = [...quiet, ...busy].map(({ next }) => next);
  expect(new Set(nexts).size).toBe(nexts.length);
  expect(new Set(cursors.map((cursor) => cursor.length)).size).toBe(2);
  const shown =
    Buffer.from(cursors.join(), "latin1").toString() + Buffer.from(cursors.join(""), "base64url").toString("latin1");
  expect(shown).not.toMatch(/\d{8}/);
  // They are what they were before, for the tenant that they were made for.
  const [first] = busy[0]?.items ?? [];
  expect((await page(`?after=${first?.cursor}`)).items.map(({ version }) => version)).toEqual([2]);
  expect((await page(`?after=${quiet[0]?.next}`)).items.map(({ version }) => version)).toEqual([2]);
  expect((await page(`?after=${busy[0]?.next}`)).items).toEqual([]);
  const refused = { status: 400, json: { code: "invalid_argument" } };
  for (const cursor of ["1", "0", "999999", "", "x".repeat(60), `${first?.cursor.slice(0, -2)}AA`])
    expect(await a("GET", `/v1/events?after=${cursor}`), cursor).toMatchObject(refused);
  expect(await own("GET", `/v1/events?after=${first?.cursor}`)).toMatchObject(refused);
});

test("no page of a list says how much others write: its next is sealed, for one namespace, unless it is an id of the tenant's own", async () => {
  const { a, b, own } = await tenants();
  const bodies = {
    runs: () => ({ workflow: "w" }),
    tasks: () => ({ targetUrl: "http://example.com/" }),
    actions: () => ({}),
  };
  const refused = { status: 400, json: { code: "invalid_argument" } };
  for (const [path, body] of Object.entries(bodies)) {
    for (let i = 0; i < 5; i++) {
      expect((await a("POST", `/v1/${path}`, body())).status, path).toBe(201);
      await b.slot(`other ${path} ${i}`).set(i);
    }
    const ids: unknown[] = [];
    const nexts: unknown[] = [];
    for (let next: unknown = "", most = 10; next !== null && most > 0; most--) {
      const page = await a("GET", `/v1/${path}?limit=2${next === "" ? "" : `&after=${next}`}`);
      ids.push(...(page.json["items"] as { id?: string; ref?: string }[]).map(({ id, ref }) => id ?? ref));
      next = page.json["next"];
      if (next !== null) nexts.push(next);
    }
    expect(new Set(ids).size, path).toBe(5);
    expect(nexts).toHaveLength(2);
    for (const next of nexts) {
      expect(next, path).toMatch(/^[\w-]{40,}$/);
      expect(Buffer.from(String(next), "base64url").toString("latin1")).not.toMatch(/\d{8}/);
      expect(await own("GET", `/v1/${path}?after=${next}`), path).toMatchObject(refused);
    }
    for (const after of ["1", "999999", "x".repeat(60)])
      expect(await a("GET", `/v1/${path}?after=${after}`), path).toMatchObject(refused);
    // The same page has the same next.
    expect((await a("GET", `/v1/${path}?limit=2`)).json["next"]).toBe(nexts[0]);
  }
  const bulk = { action: "cancel", filter: { workflow: "w" }, limit: 3 };
  const first = (await a("POST", "/v1/runs/bulk", bulk)).json as { items: unknown[]; next: string };
  expect([first.items.length, first.next]).toEqual([3, expect.stringMatching(/^[\w-]{40,}$/)]);
  const { items, next } = (await a("POST", "/v1/runs/bulk", { ...bulk, after: first.next })).json as typeof first;
  expect([items.length, next]).toEqual([2, null]);
  const byId = await a("GET", "/v1/runs?limit=1&order=id");
  expect((byId.json["items"] as { id: string }[])[0]?.id).toBe(byId.json["next"]);
});

test("an administrator of a tenant manages only the keys of that tenant", async () => {
  const { kit, a } = await tenants();
  const foreign = await apiKeys(kit.pawl).create({ name: "x", scopes: ["read"], namespace: "b" });
  for (const [method, path] of [
    ["GET", ""],
    ["GET", "/history"],
    ["POST", "/rotate"],
    ["POST", "/revoke"],
  ] as const) {
    const known = await a(method, `/v1/keys/${foreign.id}${path}`);
    const unknown = await a(method, `/v1/keys/${"0".repeat(16)}${path}`);
    expect(known.status).toBe(404);
    expect(known.text.replaceAll(foreign.id, "ID").replace(/"requestId.*/, "")).toBe(
      unknown.text.replaceAll("0".repeat(16), "ID").replace(/"requestId.*/, ""),
    );
  }
  const { items } = (await a("GET", "/v1/keys?namespace=b")).json as { items: { namespace: string }[] };
  expect(new Set(items.map(({ namespace }) => namespace))).toEqual(new Set(["a"]));
  const made = await a("POST", "/v1/keys", { name: "mine", scopes: ["read"] });
  expect(made.json).toMatchObject({ namespace: "a" });
  expect((await a("POST", "/v1/keys", { name: "theirs", scopes: ["read"], namespace: "b" })).status).toBe(403);
  expect((await a("GET", "/metrics")).status).toBe(403);
  expect((await kit.send("GET", "/metrics")).status).toBe(200);
});

test("the idempotency keys of two API keys are independent, and those of two tenants", async () => {
  const { kit, a, own } = await tenants();
  const key = { "idempotency-key": "same" };
  const second = await kit.as(["write"], "a");
  for (const [i, send] of [a, second, own].entries()) {
    const made = await send("POST", "/v1/runs", { workflow: "w", id: `r${i}` }, key);
    expect(made).toMatchObject({ status: 201, json: { id: `r${i}` } });
  }
  const other = await a("POST", "/v1/runs", { workflow: "w", id: "r9" }, key);
  expect(other).toMatchObject({ status: 422, json: { code: "idempotency_mismatch" } });
});

test("a signal token finds the task of its tenant alone; with any part changed, and in another namespace, it finds nothing", async () => {
  const { kit, a, b } = await tenants();
  const create = async (send: Send, id: string): Promise<string> => {
    const task = { id, targetUrl: "http://example.com/", waitForSignal: true };
    return String((await send("POST", "/v1/tasks", task)).json["signalToken"]);
  };
  const token = await create(await kit.as(["write"], "b"), "t");
  const anyone = sender(kit.url);
  const signal = (text: string, send: Send = anyone) => send("POST", `/v1/signals/${text}`, { status: "completed" });
  const [random = "", where] = token.split(".");
  expect(where).toBe(Buffer.from("b").toString("base64url"));
  const part = (namespace: string) => Buffer.from(namespace).toString("base64url");
  for (const wrong of [
    random,
    `${random}.`,
    `${random}.${part("a")}`,
    `${random}.${part("never")}`,
    `${random}.${part("\0")}`,
    `${random}._w`,
    // It decodes to the same name.
    `${random}.${where?.replace(/g$/, "h")}`,
    `${random}.${"A".repeat(500)}`,
    `${token}?namespace=a`,
    `${token}?namespace=root`,
  ])
    expect(refusal(await signal(wrong)), wrong).toEqual({ status: 404, code: "token_not_found" });
  expect((await b.tasks.get("t")).outcome).toBeNull();
  // Neither a key of another tenant nor the namespace in the query makes a difference.
  expect(await signal(token, a)).toMatchObject({ status: 200, json: { task: "t", isNew: true } });
  expect(await signal(`${token}?namespace=b`)).toMatchObject({ status: 200, json: { isNew: false } });
  const key = await kit.key(["write"], "a");
  const client = createClient({ url: kit.url, key });
  const made = await client.tasks.create({ targetUrl: "http://example.com/", waitForSignal: true });
  expect(await client.tasks.signal(String(made.signalToken), { status: "failed" })).toMatchObject({ isNew: true });
});

test("a run is worked on where it was started, and only that tenant gets its result", async () => {
  const { a, b, own } = await tenants();
  b.work([workflow("w", async () => "secret")]);
  await own("POST", "/v1/runs", { workflow: "w", id: SECRET });
  expect((await own("GET", `/v1/runs/${SECRET}/result?wait=60s`)).json).toMatchObject({ value: "secret" });
  expect((await a("GET", `/v1/runs/${SECRET}/result?wait=1ms`)).status).toBe(404);
});
