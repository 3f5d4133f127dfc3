// Goal: `pawl serve` serves a database at once, protects it, and stops as it should; and its key ring is safe.
// Method: the real process on an SQLite file, asked over HTTP; files of keys with other rights and contents.

import { once } from "node:events";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { createServer as createHttpServer } from "node:http";
import { type AddressInfo, createServer } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterAll, beforeAll, describe, expect, it, test } from "vitest";
import { parseKeys, readSecrets } from "../../src/cli/keyring.ts";
import { apiKeys } from "../../src/http/server/index.ts";
import { open } from "../../src/index.ts";
import { call, KEYS, linesOf, run, type Served, served } from "./kit.ts";

let folder = "";
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "pawl-serve-"));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** A folder in which `pawl` is installed. */
function installed(): string {
  const home = mkdtempSync(join(folder, "installed-"));
  mkdirSync(join(home, "node_modules"));
  symlinkSync(join(import.meta.dirname, "../.."), join(home, "node_modules/pawl"), "dir");
  return home;
}

const ask = (url: string, key: string | null, path: string) =>
  fetch(`${url}${path}`, { headers: { authorization: `Bearer ${key}` } });

test("a first start makes the database, its keys and one admin key; a second one shows no key; SIGTERM ends it with 0", async () => {
  const home = mkdtempSync(join(folder, "first-"));
  const store = join(home, "pawl.db");
  const workflows = join(installed(), "app.ts");
  writeFileSync(
    workflows,
    'import { workflow } from "pawl";\nexport const all = [workflow("hello", async (_, name: string) => ["hello", name].join(" "))];\nexport const other = 1;\n',
  );
  const first = await served(["--store", store, "--import", workflows]);
  expect(first).toMatchObject({
    url: expect.stringMatching(/^http:\/\/127\.0\.0\.1:\d+$/),
    key: expect.stringMatching(/^pawl_/),
    work: ["hello"],
  });
  expect(statSync(`${store}.keys`).mode & 0o777).toBe(0o600);
  expect((await ask(first.url, first.key, "/v1/runs")).status).toBe(200);
  expect((await ask(first.url, "pawl_wrong", "/v1/runs")).status).toBe(401);
  expect((await call(["--store", store, "run", "start", "hello", '"ann"', "--id", "h-1"])).code).toBe(0);
  expect((await call(["--store", store, "--json", "--watch", "run", "show", "h-1"])).out).toContain(
    '"result":"hello ann"',
  );
  first.child.signal("SIGTERM");
  expect(await first.child.ended).toEqual({ code: 0, signal: null });

  const keys = readFileSync(`${store}.keys`, "utf8");
  const second = await served(["--store", store, "--no-work"]);
  expect(second).toMatchObject({ key: null, work: null });
  expect((await ask(second.url, first.key, "/v1/runs")).status).toBe(200);
  second.child.signal("SIGINT");
  expect(await second.child.ended).toEqual({ code: 0, signal: null });
  expect(readFileSync(`${store}.keys`, "utf8")).toBe(keys);
  expect(readdirSync(home).toSorted()).toEqual(["pawl.db", "pawl.db.keys"]);
});

test("it serves the database, also in a shell whose commands ask a server", async () => {
  const store = join(mkdtempSync(join(folder, "shell-")), "pawl.db");
  for (const [args, env] of [
    [["--store", store], {}],
    [[], { PAWL_STORE: store }],
  ] as const) {
    const server = await served([...args, "--no-work"], { PAWL_URL: "http://127.0.0.1:1", ...env });
    expect(server.store).toBe(store);
    server.child.signal("SIGTERM");
    await server.child.ended;
  }
});

test("the state machines of imported files are served, also by a server that does not work", async () => {
  const store = join(mkdtempSync(join(folder, "machines-")), "pawl.db");
  const app = join(installed(), "app.ts");
  writeFileSync(
    app,
    'import { machine } from "pawl";\nexport const order = machine("order", { initial: "open", transitions: { open: ["paid"], paid: [] } });\n',
  );
  const { child, url, key, work, machines } = await served(["--store", store, "--no-work", "--import", app]);
  expect({ work, machines }).toEqual({ work: null, machines: ["order"] });
  const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
  const post = async (path: string, body: object) =>
    (await fetch(`${url}${path}`, { method: "POST", headers, body: JSON.stringify(body) })).json();
  await post("/v1/machines/order/o-1", {});
  expect(await post("/v1/machines/order/o-1/transition", { to: "paid" })).toMatchObject({ state: "paid" });
  child.signal("SIGTERM");
  await child.ended;
});

test("tasks may call the addresses and the ports that it is given, and no other private ones", async () => {
  const store = join(mkdtempSync(join(folder, "allow-")), "pawl.db");
  const { child, url, key } = await served(["--store", store, "--allow", "10.0.0.0/8", "--allow-port", "9200,5984"]);
  const create = async (targetUrl: string) => {
    const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
    const body = JSON.stringify({ targetUrl, delay: "1h" });
    return (await fetch(`${url}/v1/tasks`, { method: "POST", headers, body })).status;
  };
  for (const targetUrl of ["http://10.0.0.1/", "http://10.0.0.1:9200/", "http://example.com:5984/"])
    expect(await create(targetUrl), targetUrl).toBe(201);
  for (const targetUrl of ["http://192.168.0.1:9200/", "http://10.0.0.1:6379/", "http://example.com:22/"])
    expect(await create(targetUrl), targetUrl).toBe(400);
  child.signal("SIGTERM");
  await child.ended;
});

describe("other namespaces", () => {
  /** A URL that keeps the paths of its requests. */
  async function listening() {
    const paths: string[] = [];
    const receiver = createHttpServer((request, response) => {
      paths.push(request.url ?? "");
      response.end();
    }).listen(0, "127.0.0.1");
    await once(receiver, "listening");
    const { port } = receiver.address() as AddressInfo;
    return { paths, url: `http://127.0.0.1:${port}`, close: () => receiver.close() };
  }
  const ALLOW = ["--allow", "127.0.0.1/32"];
  /** By another process. */
  const createKey = async (store: string) => {
    const line = ["--store", store, "--json", "keys", "create", "shop", "--scope", "write", "--for-namespace", "acme"];
    return String(linesOf((await run(line)).out)[0]?.["key"]);
  };
  const post = async (url: string, key: string, body: object) => {
    const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
    expect((await fetch(url, { method: "POST", headers, body: JSON.stringify(body) })).status).toBe(201);
  };
  const stopped = async ({ child }: Served) => {
    child.signal("SIGTERM");
    expect(await child.ended, child.complaints).toEqual({ code: 0, signal: null });
    expect(child.complaints).not.toContain("failed");
  };

  it("are worked on after a restart without a request of theirs", async () => {
    const store = join(mkdtempSync(join(folder, "tenant-")), "pawl.db");
    const receiver = await listening();
    const key = await createKey(store);
    const first = await served(["--store", store, ...ALLOW]);
    await post(`${first.url}/v1/tasks`, key, { targetUrl: `${receiver.url}/late`, delay: "3s" });
    await first.child.kill();
    const second = await served(["--store", store, ...ALLOW]);
    await expect.poll(() => receiver.paths, { timeout: 30_000 }).toEqual(["/late"]);
    await stopped(second);
    receiver.close();
  });

  it("are worked on soon after another process has created their first key", async () => {
    const store = join(mkdtempSync(join(folder, "later-")), "pawl.db");
    const receiver = await listening();
    const server = await served(["--store", store, ...ALLOW]);
    const line = ["--store", store, "--namespace", "acme", "tasks", "create", `${receiver.url}/created`];
    expect((await run(line)).code).toBe(0);
    await createKey(store);
    await expect.poll(() => receiver.paths, { timeout: 30_000 }).toEqual(["/created"]);
    await stopped(server);
    receiver.close();
  });

  it("have none of the schedules that an imported file declares, but its workflows, and schedules of their own", async () => {
    const store = join(mkdtempSync(join(folder, "schedules-")), "pawl.db");
    const app = join(installed(), "app.ts");
    writeFileSync(
      app,
      `import { schedule, workflow } from "pawl";
export const hello = workflow("hello", async () => "hello");
export const often = schedule("often", { every: "1s" }, hello);
`,
    );
    const key = await createKey(store);
    const server = await served(["--store", store, "--import", app]);
    await post(`${server.url}/v1/schedules`, key, { name: "own", workflow: "hello", every: "1s" });
    const ended = async (namespace: string) =>
      linesOf(
        (await call(["--store", store, "--namespace", namespace, "--json", "runs", "--status", "completed"])).out,
      );
    await expect.poll(async () => (await ended("acme")).length, { timeout: 30_000 }).toBeGreaterThan(1);
    await expect.poll(async () => (await ended("default")).length, { timeout: 30_000 }).toBeGreaterThan(1);
    const names = async (namespace: string) =>
      linesOf((await call(["--store", store, "--namespace", namespace, "--json", "schedules"])).out).map(
        ({ name }) => name,
      );
    expect(await names("acme")).toEqual(["own"]);
    expect(await names("default")).toEqual(["often"]);
    await stopped(server);
  });
});

test("the first admin key is not lost where the server cannot listen: the next start shows it", async () => {
  const store = join(mkdtempSync(join(folder, "lost-")), "pawl.db");
  const busy = createServer().listen(0, "127.0.0.1");
  await once(busy, "listening");
  const { port } = busy.address() as AddressInfo;
  expect(await call(["--store", store, "serve", "--port", String(port)])).toMatchObject({
    code: 1,
    out: "",
    err: expect.stringContaining("(port_in_use)"),
  });
  busy.close();
  const { child, key } = await served(["--store", store]);
  expect(key).toMatch(/^pawl_/);
  child.signal("SIGTERM");
  await child.ended;
});

test("a database that was used with a key file gets no other one unnoticed", async () => {
  const home = mkdtempSync(join(folder, "restored-"));
  const store = join(home, "pawl.db");
  const start = async (...args: readonly string[]) => {
    const { child } = await served(["--store", store, ...args]);
    child.signal("SIGTERM");
    expect(await child.ended).toEqual({ code: 0, signal: null });
  };
  await start();
  const first = readFileSync(`${store}.keys`, "utf8");
  rmSync(`${store}.keys`);
  /** Ends at once if it is not refused. */
  const refusal = async () => {
    const stop = new AbortController();
    return call(["--store", store, "serve", "--port", "0"], { interruption: stop.signal, onOut: () => stop.abort() });
  };
  expect(await refusal()).toMatchObject({
    code: 1,
    err: expect.stringMatching(/pawl\.db\.keys is not there: restore it[^\n]*--new-keys \(key_file_missing\)\n$/),
  });
  expect(readdirSync(home)).toEqual(["pawl.db"]);
  writeFileSync(`${store}.keys`, JSON.stringify({ keys: KEYS.PAWL_KEYS, webhookSecrets: [] }), { mode: 0o600 });
  expect(await refusal()).toMatchObject({
    code: 4,
    err: expect.stringMatching(/the key "k1" of \S+pawl\.db\.keys is not the one [^\n]*\(key_conflict\)\n$/),
  });
  rmSync(`${store}.keys`);
  await start("--new-keys", "--lease", "5s");
  expect(JSON.parse(readFileSync(`${store}.keys`, "utf8")).keys).toMatch(/^k2:/);
  await start();
  writeFileSync(`${store}.keys`, first, { mode: 0o600 });
  await start();
});

test("the pepper of actions comes from the environment or a file of its owner", async () => {
  const home = mkdtempSync(join(folder, "pepper-"));
  const store = join(home, "pawl.db");
  const file = join(home, "pepper");
  const [older, newer] = ["an older pepper of many bytes", "a newer pepper of many bytes"];
  const withPin = async (id: string, env: Readonly<Record<string, string>>): Promise<number> => {
    const server = await served(["--store", store], env);
    const as = {
      headers: { authorization: `Bearer ${key ?? server.key}`, "content-type": "application/json" },
      method: "POST",
    };
    key ??= server.key;
    await fetch(`${server.url}/v1/actions`, { ...as, body: JSON.stringify({ id, pin: "4711" }) });
    const { status } = await fetch(`${server.url}/v1/actions/a/consume`, { ...as, body: '{"pin":"4711"}' });
    server.child.signal("SIGTERM");
    await server.child.ended;
    return status;
  };
  let key: string | null = null;
  expect(await withPin("a", { PAWL_PEPPER: older })).toBe(200);
  expect(await withPin("b", {})).toBe(501);
  writeFileSync(file, `${newer}\n${older}\n`, { mode: 0o600 });
  // It was used already: 409, and the PIN of before is still known.
  expect(await withPin("c", { PAWL_PEPPER_FILE: file })).toBe(409);
  const refused = async (env: Readonly<Record<string, string>>) =>
    call(["--store", store, "serve", "--port", "0"], { env });
  expect(await refused({ PAWL_PEPPER: "short" })).toMatchObject({
    code: 2,
    err: expect.stringMatching(/16 bytes.*\(invalid_pepper\)\n$/),
  });
  expect(await refused({ PAWL_PEPPER: older, PAWL_PEPPER_FILE: file })).toMatchObject({ code: 2 });
  expect(await refused({ PAWL_PEPPER_FILE: `${file}x` })).toMatchObject({
    code: 2,
    err: expect.stringContaining("there is no file"),
  });
  chmodSync(file, 0o644);
  expect(await refused({ PAWL_PEPPER_FILE: file })).toMatchObject({
    code: 1,
    err: expect.stringContaining("chmod 600"),
  });
});

test("the banner tells the key ring from API keys, and says if calls are not signed", async () => {
  const store = join(mkdtempSync(join(folder, "banner-")), "pawl.db");
  const stop = new AbortController();
  const started = (env: Readonly<Record<string, string>>) =>
    call(["--store", store, "serve", "--port", "0"], {
      env: { ...KEYS, ...env },
      interruption: stop.signal,
      onOut: () => stop.abort(),
    });
  expect((await started({ PAWL_WEBHOOK_SECRETS: "whsec_short" })).err).toMatch(
    /^pawl: PAWL_WEBHOOK_SECRETS must be [^\n]*\(invalid_secrets\)\n$/,
  );
  const unsigned = await started({});
  expect(unsigned.out).toMatch(/^ {2}key ring {3}PAWL_KEYS$/m);
  expect(unsigned.out).toMatch(/^ {2}signing {4}none, [^\n]*PAWL_WEBHOOK_SECRETS$/m);
  const signed = await started({ PAWL_WEBHOOK_SECRETS: `whsec_${Buffer.alloc(32, 1).toString("base64")}` });
  expect(signed.out).not.toContain("signing");
});

test("it listens on no other address without a key, and with one it does", async () => {
  const store = join(mkdtempSync(join(folder, "open-")), "pawl.db");
  const refused = await call(["--store", store, "serve", "--host", "0.0.0.0", "--port", "0"]);
  expect(refused).toMatchObject({ code: 1, err: expect.stringContaining("pawl keys create") });
  expect((await call(["--store", store, "keys", "create", "ops", "--scope", "admin"])).code).toBe(0);
  const { child, key } = await served(["--store", store, "--host", "0.0.0.0"]);
  expect(key).toBe(null);
  child.signal("SIGTERM");
  expect(await child.ended).toEqual({ code: 0, signal: null });
});

test("what it cannot do is one line: a port in use, an import without workflows, an address of another machine", async () => {
  const store = join(mkdtempSync(join(folder, "refused-")), "pawl.db");
  const { child, url } = await served(["--store", store]);
  const inUse = await call(["--store", store, "serve", "--port", new URL(url).port]);
  expect(inUse).toMatchObject({
    code: 1,
    err: expect.stringMatching(/^pawl: port \d+ of 127\.0\.0\.1 is in use[^\n]*\(port_in_use\)\n$/),
  });
  child.signal("SIGTERM");
  await child.ended;
  const empty = join(folder, "empty.ts");
  writeFileSync(empty, "export const nothing = 1;\n");
  expect((await call(["--store", store, "serve", "--import", empty])).err).toContain("(no_definitions)");
  expect((await call(["--store", store, "serve", "--import", join(folder, "missing.ts")])).err).toContain(
    "(import_failed)",
  );
  const throwing = join(folder, "throwing.ts");
  writeFileSync(throwing, '\nthrow new Error("no settings");\n');
  expect((await call(["--store", store, "serve", "--import", throwing])).err).toMatch(
    /cannot be imported: no settings \(at \S+throwing\.ts:\d+:\d+\) \(import_failed\)\n$/,
  );
  expect((await call(["--store", store, "serve", "--allow", "10.0.0.0/99"])).code).toBe(2);
  expect(await call(["--store", store, "serve", "--allow-port", "9200,abc"])).toMatchObject({
    code: 2,
    err: expect.stringMatching(/^pawl: option '--allow-port <ports>' argument '9200,abc' is invalid[^\n]*65535/),
  });
  expect((await call(["--store", store, "serve", "--allow-port", "9200,http"])).code).toBe(2);
  expect((await call(["--store", store, "serve", "--grace", "soon"])).code).toBe(2);
});

describe("servers that start together on a new database", () => {
  it("make one admin key, which all of them accept", async () => {
    const store = join(mkdtempSync(join(folder, "together-")), "pawl.db");
    const servers = await Promise.all([served(["--store", store]), served(["--store", store])]);
    const keys = servers.flatMap(({ key }) => key ?? []);
    expect(keys).toHaveLength(1);
    for (const { url } of servers) expect((await ask(url, keys[0] ?? null, "/v1/runs")).status).toBe(200);
    for (const { child } of servers) child.signal("SIGTERM");
    for (const { child } of servers) expect(await child.ended).toEqual({ code: 0, signal: null });
  });

  it("have one decision on it, and a database that had a key gets no other", async () => {
    const store = join(mkdtempSync(join(folder, "decision-")), "pawl.db");
    const another = () => open(store, { logger: false });
    const handles = await Promise.all([another(), another(), another(), another()]);
    const first = { name: "first", scopes: ["admin"], by: "a test" } as const;
    const made = await Promise.all(handles.map((handle) => apiKeys(handle).createFirst(first)));
    expect(made.filter((one) => one !== undefined)).toHaveLength(1);
    expect((await apiKeys(handles[0]).list()).keys).toHaveLength(1);
    expect(await apiKeys(handles[1]).createFirst(first)).toBe(undefined);
    await Promise.all(handles.map((handle) => handle.close()));
  });
});

describe("--grace", () => {
  it("aborts steps and releases their runs, leaves those that do not react to their leases, and ends a process that a module would keep", async () => {
    const store = join(mkdtempSync(join(folder, "grace-")), "pawl.db");
    const app = join(installed(), "app.ts");
    writeFileSync(
      app,
      `import { writeFileSync } from "node:fs";
import { workflow } from "pawl";
const begun = (name) => writeFileSync(${JSON.stringify(dirname(store))} + "/" + name, "");
const aborted = (abortSignal) => new Promise((_, reject) => abortSignal.addEventListener("abort", () => reject(abortSignal.reason)));
export const reacts = workflow("reacts", (ctx) => ctx.step("wait", ({ abortSignal }) => (begun("reacts"), aborted(abortSignal))));
export const stays = workflow("stays", (ctx) => ctx.step("wait", () => (begun("stays"), new Promise(() => {}))));
setInterval(() => {}, 1000);
`,
    );
    const server = await served(["--store", store, "--import", app, "--grace", "5s"]);
    const names = ["reacts", "stays"];
    for (const name of names) expect((await call(["--store", store, "run", "start", name, "--id", name])).code).toBe(0);
    const shown = async (id: string) => linesOf((await call(["--store", store, "--json", "run", "show", id])).out)[0];
    for (const name of names) await expect.poll(() => existsSync(join(dirname(store), name))).toBe(true);
    server.child.signal("SIGTERM");
    expect(await server.child.ended, server.child.complaints).toEqual({ code: 0, signal: null });
    expect(await shown("reacts")).toMatchObject({ endedAt: null, worker: null });
    expect(await shown("stays")).toMatchObject({ endedAt: null, worker: expect.any(String) });
  });
});

describe("the key ring", () => {
  const key = (byte: number) => Buffer.alloc(32, byte).toString("base64");

  it("of PAWL_KEYS seals with its first key", () => {
    const { current, ring } = parseKeys(`new:${key(1)}, old:${key(2)}`);
    expect({ current, ids: Object.keys(ring), bytes: ring["old"]?.[0] }).toEqual({
      current: "new",
      ids: ["new", "old"],
      bytes: 2,
    });
  });

  it.each(["", "k1", `k1:${key(1).slice(4)}`, `:${key(1)}`, `k1:${key(1)},`])("of PAWL_KEYS is refused: %j", (text) => {
    expect(() => parseKeys(text)).toThrow("PAWL_KEYS must be");
  });

  const placeIn = (home: string) => ({ is: "sqlite", path: join(home, "x.db"), shown: "x.db" }) as const;

  it("is made once, however many processes start together", async () => {
    const place = placeIn(mkdtempSync(join(folder, "ring-")));
    const all = await Promise.all(Array.from({ length: 8 }, () => readSecrets(place, {}, true)));
    expect(new Set(all.map((one) => JSON.stringify(one))).size).toBe(1);
  });

  it("is not made by a command that only looks", async () => {
    const home = mkdtempSync(join(folder, "none-"));
    expect(await readSecrets(placeIn(home), {}, false)).toMatchObject({ keys: undefined, webhookSecrets: [] });
    expect(readdirSync(home)).toEqual([]);
  });

  it("is refused if others can read it, or if it is damaged", async () => {
    const place = placeIn(mkdtempSync(join(folder, "bad-")));
    await readSecrets(place, {}, true);
    chmodSync(`${place.path}.keys`, 0o644);
    await expect(readSecrets(place, {}, true)).rejects.toMatchObject({ code: "insecure_keys" });
    writeFileSync(`${place.path}.keys`, "{");
    chmodSync(`${place.path}.keys`, 0o600);
    await expect(readSecrets(place, {}, true)).rejects.toMatchObject({ code: "invalid_keys" });
  });
});
