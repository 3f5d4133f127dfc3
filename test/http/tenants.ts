/**
 * Two tenants on one server, one of which has something of everything, and requests of the other.
 */

import { expect, onTestFinished } from "vitest";
import { apiKeys } from "../../src/http/server/index.ts";
import { event, machine, NonRetryableError, open, type Pawl, reaction } from "../../src/index.ts";
import { wallMs } from "../../src/node/ports.ts";
import { MemoryDatabase } from "../../src/stores/memory/memory.ts";
import { Random } from "../../src/testing/sim/random.ts";
import { PATIENCE } from "../workflow/kit.ts";
import { type Drawn, operationsOf, type ShownOperation } from "./document.ts";
import { type Got, type Send, type Served, served } from "./kit.ts";
import { bytesOf, type Twins, twinOf, twins, withoutChance } from "./twins.ts";

const order = machine("order", { initial: "pending", transitions: { pending: ["paid"], paid: [] } });
export const SECRET = "b-secret-7";

export async function tenants() {
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
  return { kit, database, b: of("b"), a: await kit.as(["admin"], "a"), own: await kit.as(["admin"], "b") };
}

/** Something of everything, under one id; returns the token of a task, and the id of a key. */
export async function fill(
  { pawl: root }: Served,
  pawl: Pawl,
  own: Send,
  id = SECRET,
): Promise<{ readonly token: string; readonly key: string }> {
  const Secret = event<string>("Secret");
  await pawl.start("w", { secret: 1 }, { id });
  await pawl.slot(id).set("secret");
  // Not renewed while a test takes its time.
  await pawl.mutex(id, { lease: "1 day" }).tryAcquire();
  await pawl.semaphore(id, { permits: 1, lease: "1 day" }).tryAcquire();
  await pawl.rateLimit(id, { max: 1, per: "1h" }).acquire();
  await pawl.actions.create({ id, payload: "secret" });
  await pawl.machine(order).create(id);
  await pawl.stream(id).append([Secret("secret")]);
  await pawl.schedules.create(id, { cron: "0 0 1 1 *" }, "w");
  await pawl.workflows.pause(id);
  const options = { id: `${id}t`, targetUrl: "http://example.com/", idempotencyKey: id, waitForSignal: true };
  const { signalToken } = await pawl.tasks.create(options);
  await own("POST", `/v1/dedupe/${encodeURIComponent(id)}`, { messageId: id });
  const blocked = reaction(id, { on: [Secret], target: () => id, retry: { attempts: 1 } }, async () => {
    throw new NonRetryableError("secret");
  });
  const worker = pawl.work([blocked]);
  const targets = async () => (await pawl.reactions.targets(id, { status: "blocked" })).targets.length;
  await expect.poll(targets, PATIENCE).toBe(1);
  await worker.stop();
  const { id: key } = await apiKeys(root).create({ name: "secret", scopes: ["read"], namespace: "b" });
  return { token: String(signalToken), key };
}

/** What arrives of a stream of events at first. */
async function listen(url: string, key: string, path: string): Promise<Got> {
  const headers = { authorization: `Bearer ${key}`, accept: "text/event-stream" };
  const stop = new AbortController();
  const { status, headers: got, body } = await fetch(`${url}${path}`, { headers, signal: stop.signal });
  let text = "";
  const timer = setTimeout(() => stop.abort(), 50);
  try {
    for await (const part of body?.pipeThrough(new TextDecoderStream()) ?? []) text += part;
  } catch (error) {
    if (!stop.signal.aborted) throw error;
  }
  clearTimeout(timer);
  return { status, headers: got, text, json: {} };
}

/** The two ids that take the place of a parameter. */
type Pairs = (path: string, name: string) => Twins;

/** What all requests with an id in them get. */
async function compare(
  send: (path: string, body: string | undefined) => Promise<Got>,
  operation: ShownOperation,
  pairs: Pairs,
  drawn: Drawn,
  isOwn: boolean,
): Promise<readonly [absent: Got & { readonly bytes: string }, foreign: Got & { readonly bytes: string }]> {
  const { path } = operation;
  const got = async (which: keyof Twins) => {
    const of = (name: string): string =>
      name === "name" && path.startsWith("/v1/machines") ? "order" : pairs(path, name)[which];
    const query = new URLSearchParams(drawn.url.split("?")[1] ?? "");
    if (query.has("wait")) query.set("wait", "1ms");
    if (query.has("prefix")) query.set("prefix", of("prefix"));
    const body = drawn.body as Readonly<Record<string, unknown>> | undefined;
    const named = NAMES.filter((name) => typeof body?.[name] === "string").map((name) => [name, of(name)]);
    const text = JSON.stringify(
      body && { ...body, ...Object.fromEntries(named), ...("wait" in body ? { wait: 1 } : {}) },
    );
    const response = await send(operation.at(of) + (query.size === 0 ? "" : `?${query}`), text);
    const both = pairs(path, /\{(?!name\}\/\{)(\w+)\}/.exec(path)?.[1] ?? "id");
    // What it has made itself may be in its lists, under either id.
    const ids = isOwn && response.status !== 404 ? [both.absent, both.foreign] : [both[which]];
    return { ...response, bytes: bytesOf(response, ...ids) };
  };
  return [await got("absent"), await got("foreign")];
}

const base64url = (text: string): string => Buffer.from(text).toString("base64url");
/** Members of bodies that name something. */
const NAMES = ["id", "name", "messageId", "prefix", "idempotencyKey"];
const METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
const hasId = ({ path }: ShownOperation): boolean => path.includes("{");
const isJson = ({ responses }: ShownOperation): boolean =>
  !("200" in responses) || "application/json" in (responses["200"].content ?? { "application/json": {} });
const sends = ({ responses }: ShownOperation): boolean => "text/event-stream" in (responses["200"]?.content ?? {});

/** Every stored record of a tenant. */
const storedOf = (database: MemoryDatabase, namespace: string): readonly string[] =>
  [...(database.backup().namespaces.get(namespace)?.rows.values() ?? [])]
    .map(({ space, key, version }) => `${space} ${key} ${version}`)
    .sort();

/** Sends all requests with ids of this seed, those that are drawn `rounds` times, and checks that there is no difference and no effect. */
export async function fuzz(seed: number, rounds: number): Promise<void> {
  const random = new Random(seed);
  const { kit, database, a, b, own } = await tenants();
  const ids = twins(random);
  const made = await fill(kit, b, own, ids.foreign);
  const keys = twinOf(made.key);
  // The token itself is all that a signal needs. One that was changed does not say whether its namespace exists.
  const drawn = `sig_${"A".repeat(43)}`;
  const tokens = { foreign: `${drawn}.${base64url("b")}`, absent: `${drawn}.${base64url("c")}` };
  const pairs: Pairs = (path, name) =>
    path.startsWith("/v1/keys/")
      ? keys
      : name === "token"
        ? tokens
        : path.startsWith("/v1/tasks")
          ? { foreign: `${ids.foreign}t`, absent: `${ids.absent}t` }
          : ids;
  const stored = async () => [...storedOf(database, "b"), JSON.stringify(await apiKeys(kit.pawl).get(made.key))];
  const before = await stored();
  const reader = await kit.key(["admin"], "a");
  expect(before.length).toBeGreaterThan(15);
  const operations = operationsOf((await kit.send("GET", "/v1/openapi.json")).json);
  const differing: string[] = [];
  let absents = 0;
  const note = (what: string, [absent, foreign]: readonly string[]): void => {
    if (absent !== foreign) differing.push(`${what}: ${absent}\nis not\n${foreign}`);
  };
  const nothing = (operation: ShownOperation): Drawn => ({ rule: "", url: operation.path, body: undefined });

  // Before the other tenant has anything under these ids, what is refused and what is read is the same to the last byte.
  for (const operation of operations.filter(hasId)) {
    const isDocumented = (method: string): boolean =>
      operations.some((one) => one.path === operation.path && one.method.toUpperCase() === method);
    for (const method of METHODS) {
      if (isDocumented(method) && !(method === "GET" && isJson(operation))) continue;
      const pair = await compare((path) => a(method, path), operation, pairs, nothing(operation), false);
      note(
        `${method} ${operation.path}`,
        pair.map(({ bytes }) => bytes),
      );
      if (pair[0].status === 404) absents += 1;
    }
    if (!sends(operation)) continue;
    const pair = await compare((path) => listen(kit.url, reader, path), operation, pairs, nothing(operation), false);
    note(
      `events of ${operation.path}`,
      pair.map(({ bytes }) => bytes),
    );
  }
  expect(absents).toBeGreaterThan(30);
  // Then it does everything that it may with either.
  for (let round = 0; round < rounds; round++)
    for (const operation of operations) {
      if (!isJson(operation)) continue;
      const drawn = operation.valid(seed + round);
      if (!hasId(operation) && !drawn.url.includes("prefix=") && drawn.body === undefined) continue;
      const method = operation.method.toUpperCase();
      const pair = await compare((path, body) => a(method, path, body), operation, pairs, drawn, true);
      const bytes = pair.map(({ bytes }) => bytes);
      note(`${operation.operationId} of round ${round}`, pair[0].status === 404 ? bytes : bytes.map(withoutChance));
      if (pair[0].status === 404) absents += 1;
    }
  if (differing.length > 0) expect.fail(differing.join("\n\n"));
  expect(absents).toBeGreaterThan(60);
  expect(await stored()).toEqual(before);
}
