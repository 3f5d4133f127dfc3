// Goal: the commands do the same on PostgreSQL as on SQLite, and the same as a process of its own.
// Method: the command lines of `cases.ts` on a PostgreSQL database that `fill` made, in this process; and one command line for each exit code as a real
// process. On SQLite, `commands.test.ts` runs all of them.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ownDatabase } from "../postgres/own-database.ts";
import type { Case } from "./cases.ts";
import { call, expectCases, fill, KEYS, linesOf, run, served } from "./kit.ts";

const database = ownDatabase();
const fresh = ownDatabase();
let folder = "";
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "pawl-cli-stores-"));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const here = (args: readonly string[]) => call(args, { env: KEYS });

test("on PostgreSQL, where doctor also looks at the server", async () => {
  const at = ["--store", database.url];
  expect(await here([...at, "runs"])).toMatchObject({
    code: 5,
    err: expect.stringContaining("(database_not_found)"),
  });
  await fill(database.url);
  const doctor = await here([...at, "--json", "doctor"]);
  expect(doctor.code, doctor.out + doctor.err).toBe(1);
  expect(doctor.out).toContain("PostgreSQL");
  expect(doctor.out).toContain("smtp is down");
  await expectCases(at, here);
});

test("servers that start together on a new PostgreSQL database make one admin key", async () => {
  const stop = new AbortController();
  const started: Record<string, unknown>[] = [];
  const serving = Array.from({ length: 3 }, () =>
    call(["--store", fresh.url, "--json", "serve", "--port", "0"], {
      env: KEYS,
      interruption: stop.signal,
      onOut: (text) => started.push(...linesOf(text)),
    }),
  );
  await expect.poll(() => started.length).toBe(3);
  expect(started.filter(({ key }) => key !== null)).toHaveLength(1);
  stop.abort();
  for (const { code, err } of await Promise.all(serving)) expect(code, err).toBe(0);
});

test("--grace bounds the whole stop of a server, also where the database does not reply", async () => {
  const url = fresh.url;
  const { child, url: address } = await served(["--store", url, "--no-work", "--grace", "1s"], KEYS);
  const { out: key } = await call(["--store", url, "keys", "create", "ops", "--scope", "write"]);
  await fresh.admin.query("begin");
  await fresh.admin.query("lock table pawl.record");
  const waiting = fetch(`${address}/v1/runs`, {
    method: "POST",
    headers: { authorization: `Bearer ${key.trim()}`, "content-type": "application/json" },
    body: '{"workflow":"nobody"}',
  }).catch(() => null);
  const waiters = "select count(*)::int as n from pg_locks where not granted";
  await expect.poll(async () => (await fresh.admin.query(waiters)).rows[0].n).toBeGreaterThan(0);
  child.signal("SIGTERM");
  expect(await child.ended).toEqual({ code: 1, signal: null });
  expect(child.complaints).toMatch(/^pawl: it did not stop within 1 s: [^\n]*\(stop_timed_out\)$/m);
  await fresh.admin.query("rollback");
  await waiting;
});

/** One for each exit code that is not that of a server which is gone. */
const AS_PROCESSES: readonly Case[] = [
  { args: ["runs", "--status", "failed,completed"], json: { id: "f-1", status: "failed" } },
  { args: ["tasks", "redrive", "--all", "--status", "failed", "--yes"] },
  { args: ["run", "start", "nobody", "{b:2}"], code: 2 },
  { args: ["run", "show", "nothing"], code: 3 },
  { args: ["run", "retry", "d-1"], code: 4 },
];

test("as processes, on SQLite", async () => {
  const store = join(folder, "sqlite.db");
  await fill(store);
  const asProcess = (args: readonly string[]) => run(args, { env: KEYS });
  await expectCases(["--store", store], asProcess, AS_PROCESSES);
  expect((await asProcess(["--store", join(folder, "missing.db"), "runs"])).code).toBe(5);
  expect(await asProcess(["--store", store, "--json", "doctor"])).toMatchObject({ code: 1 });
});
