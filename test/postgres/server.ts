/**
 * Real PostgreSQL servers for tests and development, out of npm (tools/postgres): start, stop, kill, replicate, promote.
 *
 * Each server is a `postgres` process of its own, on a free port of 127.0.0.1, with a data folder in the system's
 * temporary folder. A process that starts servers has one such home for all of them. Each server gets a copy of a data
 * folder that initdb made once for its version: in this home, or in that of the test run (setup.ts). PostgreSQL refuses to run as root; for
 * root it runs as the user "nobody", who then owns the home.
 *
 * The npm packages hold the shared libraries without the short names that the programs ask for, and make these links in
 * an install script, which may never run. So the links are made here, in the home, and nothing in node_modules changes.
 *
 * Guarantees: commits are as durable as in production (fsync, full_page_writes and synchronous_commit are on) unless
 * `settings` says otherwise; only this machine can connect; when this process ends, however it ends, its servers
 * end and the home is deleted, by a shell that waits for just that.
 * Out of scope: Windows has no such shell, so there a server outlives a process that was killed. All users of this machine
 * can connect without a password.
 */

import type { ChildProcess } from "node:child_process";
import { spawn, spawnSync } from "node:child_process";
import { randomInt, randomUUID } from "node:crypto";
import { once } from "node:events";
import * as fs from "node:fs";
import { createServer } from "node:net";
import * as path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import {
  copyOwned,
  copyTree,
  home,
  isPartOfBackup,
  makeServerFolder,
  readIfThere,
  sharedServerVariable,
  writeOwned,
} from "./home.ts";
import { findNative, type PostgresVersion, type Programs, preparePrograms } from "./programs.ts";

export type { PostgresVersion };
export { sharedServerVariable };
export type StopMode = "fast" | "immediate" | "smart";
export type Settings = Readonly<Record<string, string | number | boolean>>;
export type FreshDatabase = {
  readonly url: string;
  /** Has it dropped soon; with `wait`, it is gone when the promise resolves. */
  drop(options?: { readonly wait: boolean }): Promise<void>;
};

/** The versions that tools/postgres has for this platform. */
export const postgresVersions: readonly PostgresVersion[] = ([14, 15, 16, 17, 18] as const).filter(
  (version) => findNative(version) !== null,
);

/** What every server runs with. The values that are PostgreSQL's own are here because tests rely on them. */
const commonSettings: Settings = {
  listen_addresses: "127.0.0.1",
  unix_socket_directories: "",
  fsync: "on",
  full_page_writes: "on",
  synchronous_commit: "on",
  wal_level: "replica",
  max_connections: 100,
  shared_buffers: "128MB",
  max_wal_size: "512MB",
  timezone: "UTC",
  log_timezone: "UTC",
  lc_messages: "C",
  log_line_prefix: "%m [%p] ",
  // Segments are files of the data folder, so that a killed server leaves none behind when its folder is deleted.
  ...(process.platform === "win32" ? {} : { dynamic_shared_memory_type: "mmap" }),
};

const readyWithinMs = 120_000;
const streamsWithinMs = 120_000;

/** A copy of a server's data, taken while it worked on. */
export type Backup = { readonly folder: string; delete(): Promise<void> };

/** Starts a server of its own, empty but for the database "postgres". The first of a version takes a second more, for initdb. */
export async function startPostgres(
  options: { version?: PostgresVersion; settings?: Settings } = {},
): Promise<PostgresServer> {
  const { version = 18, settings = {} } = options;
  const programs = await preparePrograms(version);
  const folder = makeServerFolder();
  await copyTree(programs.template, path.join(folder, "data"));
  const server = new PostgresServer(programs, folder, settings);
  await startOnFreePort(server);
  return server;
}

/**
 * A database of its own on the server that the whole test run shares: `PAWL_TEST_POSTGRES` names one that is there
 * already; else vitest's set-up (setup.ts) starts one when it is first asked; else it belongs to this process.
 */
export async function freshDatabase(): Promise<FreshDatabase> {
  sharedServer ??= findSharedServer();
  const server = await sharedServer;
  const name = databaseName();
  const url = await createDatabaseOn(server, name);
  return { url, drop: ({ wait } = { wait: false }) => dropShared(server, name, wait) };
}

/** The keeper of the shared server drops it soon; of a server that somebody else gave us, nothing may be left when we end. */
async function dropShared(server: string, name: string, wait: boolean): Promise<void> {
  const { PAWL_TEST_POSTGRES: given = "", [sharedServerVariable]: keeper } = process.env;
  if (given !== "" || keeper === undefined) return dropDatabaseOn(server, name);
  const answer = await fetch(`${keeper}/${encodeURIComponent(name)}${wait ? "?wait" : ""}`, { method: "DELETE" });
  const text = await answer.text();
  if (!answer.ok) throw new Error(`the database ${name} was not dropped: ${text}`);
}

export async function dropDatabaseOn(server: string, name: string): Promise<void> {
  await query(server, `drop database if exists ${pg.escapeIdentifier(name)} with (force)`);
}

let sharedServer: Promise<string> | undefined;

async function findSharedServer(): Promise<string> {
  const { PAWL_TEST_POSTGRES: given, [sharedServerVariable]: keeper } = process.env;
  if (given !== undefined && given !== "") return given;
  if (keeper === undefined) return (await startPostgres()).url;
  const answer = await fetch(keeper);
  const text = await answer.text();
  if (!answer.ok) throw new Error(`the shared PostgreSQL server did not start: ${text}`);
  return text;
}

// ------------------------------------------------------------------------------------------------------- one server

export class PostgresServer {
  readonly version: PostgresVersion;
  readonly #programs: Programs;
  readonly #folder: string;
  readonly #settings: Settings;
  readonly #synchronousStandbys: string[] = [];
  #port = 0;
  #postmaster: ChildProcess | null = null;

  /** Not started yet: that is for `startPostgres` and `standby`. */
  constructor(programs: Programs, folder: string, settings: Settings) {
    this.version = programs.version;
    this.#programs = programs;
    this.#folder = folder;
    this.#settings = settings;
  }

  get port(): number {
    return this.#port;
  }

  /** The database "postgres", as superuser. */
  get url(): string {
    return `postgres://postgres@127.0.0.1:${this.#port}/postgres`;
  }

  get isRunning(): boolean {
    return this.#postmaster !== null;
  }

  /** The process id of the postmaster. */
  processId(): number {
    const pid = this.#postmaster?.pid;
    if (pid === undefined) throw new Error("this PostgreSQL server is not running");
    return pid;
  }

  /** Creates an empty database and returns its URL. */
  async createDatabase(name: string = databaseName()): Promise<string> {
    return createDatabaseOn(this.url, name);
  }

  /**
   * Starts it again on the same data and port, or for the first time on the port given. After a kill, PostgreSQL refuses
   * to start until the last of the orphaned backends has noticed and left, so that refusal is tried again.
   */
  async start(port: number = this.#port): Promise<void> {
    if (this.isRunning) throw new Error("this PostgreSQL server is running already");
    this.#port = port;
    this.#writeSettings();
    const deadline = Date.now() + readyWithinMs;
    for (;;) {
      const logStart = this.#logSize();
      if (await this.#startOnce(deadline)) return;
      const reason = this.#logFrom(logStart);
      const isAfterKill = /pre-existing shared memory block|lock file "postmaster.pid" already exists/.test(reason);
      if (!isAfterKill || Date.now() > deadline)
        throw new Error(`PostgreSQL ${this.version} did not start:\n${reason}`);
      await sleep(100);
    }
  }

  /**
   * Ends it and waits for the end. "fast" rolls back what is open and writes a checkpoint; "immediate" is a crash that
   * the next start recovers from; "smart" waits until the last client has left.
   */
  async stop(mode: StopMode = "fast"): Promise<void> {
    if (!this.isRunning) return;
    const ended = this.#ended();
    this.#signal(({ fast: "SIGINT", immediate: "SIGQUIT", smart: "SIGTERM" } as const)[mode]);
    await ended;
  }

  /** Sends a signal to the postmaster; after SIGKILL it waits for its end. Backends that are left over end by themselves. */
  async kill(signal: NodeJS.Signals = "SIGKILL"): Promise<void> {
    const ended = signal === "SIGKILL" ? this.#ended() : null;
    this.#signal(signal);
    await ended;
  }

  /**
   * A second server that streams from this one, from a copy made while this one works on. When `synchronous`, no commit
   * of this one is acknowledged before that one has it on disk: from now on, commits wait when it is gone.
   */
  async standby({ synchronous }: { synchronous: boolean }): Promise<PostgresServer> {
    const name = `standby_${randomUUID().slice(0, 8)}`;
    const folder = makeServerFolder();
    await this.#copyLive(path.join(folder, "data"), name, { "standby.signal": "", "postgresql.auto.conf": "" });
    const standby = new PostgresServer(this.#programs, folder, {
      ...this.#settings,
      primary_conninfo: `host=127.0.0.1 port=${this.#port} user=postgres application_name=${name}`,
      primary_slot_name: name,
    });
    await startOnFreePort(standby);
    await this.#waitForStandby(name, ["async", "sync", "quorum", "potential"]);
    if (synchronous) {
      this.#synchronousStandbys.push(name);
      const names = `FIRST ${this.#synchronousStandbys.length} (${this.#synchronousStandbys.join(", ")})`;
      await query(this.url, `alter system set synchronous_standby_names = '${names}'`);
      await query(this.url, "select pg_reload_conf()");
      await this.#waitForStandby(name, ["sync"]);
    }
    return standby;
  }

  /** Makes a standby a server of its own that accepts writes. */
  async promote(): Promise<void> {
    const [row] = await query(this.url, "select pg_promote(true, 60) as promoted");
    if (row?.["promoted"] !== true) throw new Error(`the standby was not promoted:\n${this.log()}`);
  }

  /** From now on, a standby receives nothing more; what it has already is what it will be promoted with. */
  async detach(): Promise<void> {
    await query(this.url, "alter system set primary_conninfo = ''");
    await query(this.url, "select pg_reload_conf()");
    const deadline = Date.now() + streamsWithinMs;
    while ((await query(this.url, "select from pg_stat_wal_receiver")).length > 0) {
      if (Date.now() > deadline) throw new Error(`the standby does not stop receiving:\n${this.log()}`);
      await sleep(5);
    }
  }

  /**
   * Copies the data while the server works on. `ending` is called when all is copied but the log: whatever was committed before then
   * is in the backup; some of what is committed after it may be.
   */
  async backup(ending: () => void = () => {}): Promise<Backup> {
    const folder = makeServerFolder();
    const to = path.join(folder, "data");
    const slot = `backup_${randomUUID().slice(0, 8)}`;
    await this.#copyLive(to, slot, {}, ending);
    const log = path.join(this.#dataFolder(), "pg_wal");
    const names = fs.readdirSync(log).filter((name) => /^[0-9A-F]{24}$|\.history$/.test(name));
    for (const name of names) await copyOwned(path.join(log, name), path.join(to, "pg_wal", name));
    await query(this.url, "select pg_drop_replication_slot($1)", [slot]);
    return { folder, delete: () => fs.promises.rm(folder, { recursive: true, force: true }) };
  }

  /** Puts a backup in the place of the data. It must be stopped, and is to be started again. */
  async restore({ folder }: Backup): Promise<void> {
    if (this.isRunning) throw new Error("this PostgreSQL server is running");
    this.#removeSharedMemory();
    await fs.promises.rm(this.#dataFolder(), { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
    await copyTree(path.join(folder, "data"), this.#dataFolder());
  }

  /** The end of the server's log, for the message of a failure. */
  log(): string {
    return this.#logFrom(Math.max(0, this.#logSize() - 8_000));
  }

  /** Ends it and deletes its data. */
  async destroy(): Promise<void> {
    if (this.isRunning) {
      const stopped = this.stop("immediate");
      if (process.platform !== "win32") this.#signal("SIGCONT");
      await stopped;
    }
    this.#removeSharedMemory();
    await fs.promises.rm(this.#folder, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.destroy();
  }

  /** Resolves to true when it accepts connections, to false when it ended instead. */
  async #startOnce(deadline: number): Promise<boolean> {
    const log = fs.openSync(this.#logFile(), "a");
    const postmaster = spawn(this.#programs.path("postgres"), ["-D", this.#dataFolder()], {
      ...home().owner,
      cwd: this.#folder,
      env: this.#programs.environment,
      detached: true,
      stdio: ["ignore", log, log],
    });
    fs.closeSync(log);
    const { pid } = postmaster;
    if (pid === undefined) throw (await once(postmaster, "error"))[0];
    this.#postmaster = postmaster;
    home().remember(pid);
    postmaster.once("exit", () => {
      this.#postmaster = null;
      home().forget(pid);
    });
    postmaster.unref();
    while (this.isRunning && !this.#isReady()) {
      if (Date.now() > deadline) {
        await this.stop("immediate");
        throw new Error(`PostgreSQL ${this.version} was not ready in time:\n${this.log()}`);
      }
      await sleep(20);
    }
    return this.isRunning;
  }

  /** Resolves when the postmaster ends. Only whoever waits for that keeps this process alive for it. */
  async #ended(): Promise<void> {
    const postmaster = this.#postmaster;
    if (postmaster === null) return;
    postmaster.ref();
    await once(postmaster, "exit");
  }

  /** The postmaster writes how far it is into line 8 of its pid file. */
  #isReady(): boolean {
    const lines = readIfThere(path.join(this.#dataFolder(), "postmaster.pid")).split("\n");
    const state = lines[7]?.trim();
    return lines[0] === String(this.#postmaster?.pid) && (state === "ready" || state === "standby");
  }

  #signal(signal: NodeJS.Signals): void {
    const pid = this.processId();
    if (process.platform !== "win32") {
      process.kill(pid, signal);
      return;
    }
    const args = ["kill", signal.slice(3), String(pid)];
    spawnSync(this.#programs.path("pg_ctl"), args, { env: this.#programs.environment });
  }

  #writeSettings(): void {
    const settings = { ...commonSettings, port: this.#port, ...this.#settings };
    const lines = Object.entries(settings).map(([key, value]) => `${key} = '${String(value).replaceAll("'", "''")}'\n`);
    fs.writeFileSync(path.join(this.#dataFolder(), "postgresql.conf"), lines.join(""));
  }

  /**
   * PostgreSQL's low-level backup: between its start and its stop the files may be copied although they change, and the
   * label that the stop returns tells the copy where to replay from. The slot keeps the log from that point on.
   */
  async #copyLive(
    to: string,
    slot: string,
    extra: Readonly<Record<string, string>>,
    ending: () => void = () => {},
  ): Promise<void> {
    const [start, stop] =
      this.version >= 15
        ? ["pg_backup_start($1, true)", "pg_backup_stop(false)"]
        : ["pg_start_backup($1, true, false)", "pg_stop_backup(false, false)"];
    const client = await connect(this.url);
    try {
      await client.query("select pg_create_physical_replication_slot($1, true)", [slot]);
      await client.query(`select ${start}`, [slot]);
      await copyTree(this.#dataFolder(), to, isPartOfBackup);
      ending();
      const { rows } = await client.query<{ labelfile: string }>(`select labelfile from ${stop}`);
      const label = rows[0]?.labelfile;
      if (label === undefined) throw new Error("PostgreSQL gave no backup label");
      const files = { backup_label: label, ...extra };
      for (const [name, content] of Object.entries(files)) writeOwned(path.join(to, name), content);
    } finally {
      await client.end();
    }
  }

  async #waitForStandby(name: string, syncStates: readonly string[]): Promise<void> {
    const deadline = Date.now() + streamsWithinMs;
    const sql = `select from pg_stat_replication
      where application_name = $1 and state = 'streaming' and sync_state = any($2)`;
    while ((await query(this.url, sql, [name, syncStates])).length === 0) {
      if (Date.now() > deadline) throw new Error(`the standby does not stream:\n${this.log()}`);
      await sleep(50);
    }
  }

  /** A killed postmaster leaves a small System V segment behind, which only a restart would remove. */
  #removeSharedMemory(): void {
    const id = readIfThere(path.join(this.#dataFolder(), "postmaster.pid")).split("\n")[6]?.trim().split(/\s+/)[1];
    if (id !== undefined && process.platform !== "win32") spawnSync("ipcrm", ["-m", id], { ...home().owner });
  }

  #dataFolder(): string {
    return path.join(this.#folder, "data");
  }

  #logFile(): string {
    return path.join(this.#folder, "log");
  }

  #logSize(): number {
    return fs.statSync(this.#logFile(), { throwIfNoEntry: false })?.size ?? 0;
  }

  #logFrom(start: number): string {
    return Buffer.from(readIfThere(this.#logFile())).subarray(start).toString("utf8");
  }
}

/** Another process may take a port between the moment it was seen free and the moment the server binds it. */
async function startOnFreePort(server: PostgresServer): Promise<void> {
  for (let triesLeft = 10; ; triesLeft--) {
    try {
      await server.start(await findFreePort());
      return;
    } catch (error) {
      if (triesLeft > 1 && /could not bind IPv4 address/.test(String(error))) continue;
      await server.destroy();
      throw error;
    }
  }
}

/** A port below those that systems give to outgoing connections, which could take it while the server is stopped. */
async function findFreePort(): Promise<number> {
  for (;;) {
    const port = randomInt(16_000, 32_000);
    const probe = createServer();
    const isFree = await new Promise<boolean>((resolve) => {
      probe.once("error", () => resolve(false));
      probe.listen({ port, host: "127.0.0.1", exclusive: true }, () => resolve(true));
    });
    if (!isFree) continue;
    await new Promise((resolve) => probe.close(resolve));
    return port;
  }
}

// ------------------------------------------------------------------------------------------------ talking to servers

async function connect(url: string): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: url });
  // A server that ends while we are connected says so here too; the query in flight has already been rejected.
  client.on("error", () => {});
  await client.connect();
  return client;
}

async function query(url: string, sql: string, values: unknown[] = []): Promise<Record<string, unknown>[]> {
  const client = await connect(url);
  try {
    return (await client.query<Record<string, unknown>>(sql, values)).rows;
  } finally {
    await client.end();
  }
}

function databaseName(): string {
  return `pawl_test_${randomUUID().replaceAll("-", "")}`;
}

async function createDatabaseOn(server: string, name: string): Promise<string> {
  await query(server, `create database ${pg.escapeIdentifier(name)}`);
  const url = new URL(server);
  url.pathname = `/${encodeURIComponent(name)}`;
  return String(url);
}
