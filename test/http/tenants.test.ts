/**
 * Two tenants on one server (G26).
 *
 * Goal: a key cannot read, change, count or guess what is in another namespace.
 * Method: one tenant has something of everything. The other sends each request of the OpenAPI document twice, to an id of the first tenant and to one
 * that does not exist: the responses are the same but for the id. Afterwards everything of the first tenant is as it was.
 */

import { expect, onTestFinished, test } from "vitest";
import { apiKeys } from "../../src/http/server/index.ts";
import { event, machine, open, type Pawl, workflow } from "../../src/index.ts";
import { wallMs } from "../../src/node/ports.ts";
import { MemoryDatabase } from "../../src/stores/memory/memory.ts";
import { operationsOf } from "./document.ts";
import { type Got, type Send, served } from "./kit.ts";

const order = machine("order", { initial: "pending", transitions: { pending: ["paid"], paid: [] } });
const SECRET = "b-secret-7";
const OTHER = "x-absent-9";

async function tenants() {
  const database = new MemoryDatabase(wallMs);
  const actions = { pepper: "a pepper of sixteen bytes", keys: { current: "k1", ring: { k1: new Uint8Array(32) } } };
  const handles = new Map<string, Pawl>();
  for (const namespace of ["root", "a", "b"]) {
    const pawl = await open({ store: database.connect(namespace), namespace, logger: false, actions });
    handles.set(namespace, pawl);
    onTestFinished(() => pawl.close());
  }
  const of = (namespace: string): Pawl => handles.get(namespace) as Pawl;
  const limits = { requests: false, keyless: false } as const;
  const kit = await served({ namespaces: (name) => handles.get(name), machines: [order], limits }, of("root"));
  return { kit, b: of("b"), a: await kit.as(["admin"], "a"), own: await kit.as(["admin"], "b") };
}

/** Something of everything, under one id. */
async function fill(pawl: Pawl, own: Send): Promise<void> {
  await pawl.start("w", { secret: 1 }, { id: SECRET });
  await pawl.slot(SECRET).set("secret");
  await pawl.mutex(SECRET).tryAcquire();
  await pawl.semaphore(SECRET, { permits: 1 }).tryAcquire();
  await pawl.rateLimit(SECRET, { max: 1, per: "1h" }).acquire();
  await pawl.actions.create({ id: SECRET, payload: "secret" });
  await pawl.machine(order).create(SECRET);
  await pawl.stream(SECRET).append([event<string>("Secret")("secret")]);
  await pawl.schedules.create(SECRET, { cron: "0 0 1 1 *" }, "w");
  await pawl.workflows.pause(SECRET);
  await pawl.tasks.create({ id: `${SECRET}t`, targetUrl: "http://example.com/" });
  await own("POST", "/v1/dedupe/c", { messageId: SECRET });
}

/** Everything that can be seen of a tenant. */
async function stateOf(own: Send): Promise<string> {
  const texts: string[] = [];
  const paths = [
    "runs",
    "tasks",
    "slots",
    "actions",
    "machines/order",
    "events",
    "schedules",
    "reactions",
    "workflows/paused",
    "keys",
  ];
  for (const path of paths) texts.push((await own("GET", `/v1/${path}`)).text);
  for (const path of ["locks", "semaphores", "slots", "streams", "runs"])
    texts.push((await own("GET", `/v1/${path}/${SECRET}`)).text);
  texts.push((await own("GET", `/v1/tasks/${SECRET}t`)).text);
  // `next` of all events is another text each time, and leases are renewed meanwhile.
  return texts.join("\n").replace(/"(requestId|next|until)":"[^"]*"/g, "");
}

/** A response without what differs by chance. */
const shape = ({ status, text, headers }: Got) => ({
  status,
  type: headers.get("content-type"),
  etag: headers.get("etag"),
  text: text
    .replaceAll(SECRET, "ID")
    .replaceAll(OTHER, "ID")
    .replace(/"requestId":"[^"]*"/g, "")
    .replace(/[0-9a-f]{8}-[0-9a-f-]{27}|sig_[\w-]+|pawl_[\w-]+/g, "CHANCE")
    .replace(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, "TIME")
    .replace(/fence \d+/g, "fence")
    .replace(/"(fence|cursor|next|ref|key|id)":("[^"]*"|\d+)/g, '"$1":0'),
});

test("what belongs to another tenant is the same as what does not exist, on every route", async () => {
  const { kit, a, b, own } = await tenants();
  await fill(b, own);
  const before = await stateOf(own);
  const { json } = await kit.send("GET", "/v1/openapi.json");
  const differing: string[] = [];
  let count = 0;
  for (const operation of operationsOf(json)) {
    const { path, method, responses, operationId } = operation;
    if (!path.includes("{") || "text/event-stream" in (responses["200"]?.content ?? {})) continue;
    const drawn = operation.valid(0);
    const query = drawn.url.includes("?")
      ? drawn.url.slice(drawn.url.indexOf("?")).replace(/wait=[^&]*/, "wait=5ms")
      : "";
    const body = JSON.stringify(drawn.body)?.replace(/"wait":("[^"]*"|\d+)/, '"wait":"5ms"');
    const got: Got[] = [];
    for (const id of [OTHER, SECRET])
      got.push(
        await a(
          method.toUpperCase(),
          operation.at((name) =>
            name === "name" && path.startsWith("/v1/machines") ? "order" : path.startsWith("/v1/tasks") ? `${id}t` : id,
          ) + query,
          body,
        ),
      );
    const [absent, foreign] = got.map(shape);
    count += 1;
    if (JSON.stringify(absent) !== JSON.stringify(foreign))
      differing.push(`${operationId}: ${JSON.stringify(absent)} is not ${JSON.stringify(foreign)}`);
  }
  expect(differing).toEqual([]);
  expect(count).toBeGreaterThan(50);
  expect(await stateOf(own)).toBe(before);
});

test("lists and streams of events show only what is in the namespace of the key", async () => {
  const { a, b, own } = await tenants();
  await fill(b, own);
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

test("a run is worked on where it was started, and only that tenant gets its result", async () => {
  const { a, b, own } = await tenants();
  b.work([workflow("w", async () => "secret")]);
  await own("POST", "/v1/runs", { workflow: "w", id: SECRET });
  expect((await own("GET", `/v1/runs/${SECRET}/result?wait=60s`)).json).toMatchObject({ value: "secret" });
  expect((await a("GET", `/v1/runs/${SECRET}/result?wait=1ms`)).status).toBe(404);
});
