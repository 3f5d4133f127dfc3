/**
 * A real PgBouncer in front of a server: start, kill, stop, pause, and everything that its admin console can do.
 *
 * It is the `pgbouncer` of the machine, as a process of its own on a free port of 127.0.0.1, with its files in a folder of its own. Like
 * PostgreSQL it refuses to run as root; then it runs as the user "nobody". It accepts all clients as "postgres", without a password.
 *
 * Guarantees: it starts again on the same port; when this process ends, however it ends, so does PgBouncer, and its folder is deleted, by a
 * shell that waits for just that.
 * Out of scope: passwords, TLS and Unix sockets.
 */

import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { appendFileSync, chownSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { delimiter, join } from "node:path";
import pg from "pg";

export type PoolMode = "transaction" | "session";

export interface BouncerSettings {
  readonly poolMode: PoolMode;
  /** How many server connections all clients share. */
  readonly serverConnections: number;
  /** How many prepared statements it keeps for each server connection; null for a version that does not know of them. */
  readonly preparedStatements: number | null;
}

/** A program, and its version as a number that can be compared: 1.24.1 is 12401. */
export interface BouncerProgram {
  readonly path: string;
  readonly name: string;
  readonly version: number;
}

/** The first version that keeps prepared statements for its clients. */
export const KEEPS_PREPARED = 12_100;

/** Where packages put it, which is not on the path of everybody. */
const FOLDERS = ["/usr/sbin", "/usr/local/sbin", "/usr/local/bin", "/opt/homebrew/bin"];

/** The `pgbouncer` of this machine, or the one given; null if there is none. */
export function findBouncer(given?: string): BouncerProgram | null {
  const folders = [...(process.env["PATH"] ?? "").split(delimiter), ...FOLDERS];
  const path = given ?? folders.map((folder) => join(folder, "pgbouncer")).find((file) => existsSync(file));
  if (path === undefined) return null;
  const said = spawnSync(path, ["--version"], { encoding: "utf8" });
  const [name, major, minor, patch] = /PgBouncer (\d+)\.(\d+)\.(\d+)/i.exec(said.stdout ?? "") ?? [];
  if (name === undefined) return null;
  return { path, name, version: Number(major) * 10_000 + Number(minor) * 100 + Number(patch) };
}

export interface BouncerCounts {
  starts: number;
  /** As PgBouncer counts them, over all of its lives, as far as they were asked for. */
  transactions: number;
  clients: number;
}

/** Ports that neither the system nor the test servers pick for themselves. */
const PORTS = { first: 10_000, count: 6_000 };
const USER = "postgres";
const READY_WITHIN_MS = 10_000;
const ANSWER_MS = 5_000;

const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

export class Bouncer {
  readonly counts: BouncerCounts = { starts: 0, transactions: 0, clients: 0 };
  readonly settings: BouncerSettings;
  readonly #program: BouncerProgram;
  readonly #database: string;
  readonly #upstreamPort: number;
  readonly #owner = findOwner();
  readonly #folder: string;
  #port = 0;
  #process: ChildProcess | null = null;
  #guard: ChildProcess | null = null;
  /** What this life has counted so far. */
  #counted = 0;
  #reloads = 0;

  private constructor(program: BouncerProgram, database: string, upstreamPort: number, settings: BouncerSettings) {
    this.#program = program;
    this.#database = database;
    this.#upstreamPort = upstreamPort;
    this.settings = settings;
    // Not the temporary folder of root, which may be closed to everybody else.
    this.#folder = mkdtempSync("/tmp/pawl-pgbouncer-");
    this.#give(this.#folder);
  }

  static async start(
    program: BouncerProgram,
    options: { readonly database: string; readonly upstreamPort: number; readonly settings: BouncerSettings },
  ): Promise<Bouncer> {
    const bouncer = new Bouncer(program, options.database, options.upstreamPort, options.settings);
    for (let tries = 1; ; tries++) {
      bouncer.#port = await findFreePort();
      try {
        await bouncer.start();
        return bouncer;
      } catch (error) {
        if (tries < 10 && /Address already in use/i.test(bouncer.log())) continue;
        await bouncer.destroy();
        throw error;
      }
    }
  }

  get port(): number {
    return this.#port;
  }

  get isRunning(): boolean {
    return this.#process !== null;
  }

  /** The database, through PgBouncer. */
  get url(): string {
    return `postgres://${USER}@127.0.0.1:${this.#port}/${this.#database}`;
  }

  /** Starts it, for the first time or again, and waits until it answers. */
  async start(): Promise<void> {
    if (this.isRunning) return;
    await this.#dismissGuard();
    this.#write();
    const child = spawn(this.#program.path, ["-q", join(this.#folder, "pgbouncer.ini")], {
      ...this.#owner,
      cwd: this.#folder,
      stdio: "ignore",
    });
    if (child.pid === undefined) throw (await once(child, "error"))[0];
    this.#process = child;
    this.#guard = startGuard(child.pid, this.#folder);
    child.once("exit", () => {
      this.#process = null;
    });
    const deadlineMs = performance.now() + READY_WITHIN_MS;
    for (;;) {
      try {
        await this.admin("show version");
        break;
      } catch (error) {
        if (!this.isRunning || performance.now() > deadlineMs) {
          await this.kill();
          throw new Error(`PgBouncer did not start: ${error}\n${this.log()}`);
        }
        await sleep(20);
      }
    }
    this.#counted = 0;
    this.counts.starts += 1;
  }

  /** Nothing of it runs any more. */
  async kill(): Promise<void> {
    const child = this.#process;
    if (child === null) return;
    const ended = once(child, "exit");
    child.kill("SIGKILL");
    await ended;
  }

  /** Ends it by its own command, which closes all connections immediately. */
  async shutDown(): Promise<void> {
    const child = this.#process;
    if (child === null) return;
    const ended = once(child, "exit");
    await this.admin("shutdown").catch(() => {});
    const late = setTimeout(() => child.kill("SIGKILL"), 2_000);
    await ended;
    clearTimeout(late);
  }

  /** Suspends it for this long, without its knowledge. */
  async pause(ms: number): Promise<void> {
    const child = this.#process;
    if (child === null) return;
    child.kill("SIGSTOP");
    await sleep(ms);
    child.kill("SIGCONT");
  }

  /** Reads its settings anew, each time with a few of them changed. */
  async reload(): Promise<void> {
    this.#reloads += 1;
    this.#write();
    await this.admin("reload");
  }

  /** A command of the admin console. */
  async admin(command: string): Promise<Record<string, unknown>[]> {
    const url = new URL(this.url);
    url.pathname = "/pgbouncer";
    const client = new pg.Client({
      connectionString: url.href,
      connectionTimeoutMillis: ANSWER_MS,
      query_timeout: ANSWER_MS,
    });
    client.on("error", () => {});
    try {
      await client.connect();
      return (await client.query<Record<string, unknown>>(command)).rows;
    } finally {
      await client.end().catch(() => {});
    }
  }

  /** The same for the database: `pause`, `resume`, `kill`, `reconnect`. */
  async command(verb: "pause" | "resume" | "kill" | "reconnect"): Promise<void> {
    await this.admin(`${verb} ${this.#database}`);
  }

  /** As before any fault: running, and not paused. */
  async mend(): Promise<void> {
    await this.start();
    // It says that nothing was paused.
    await this.command("resume").catch(() => {});
  }

  /** Looks at what it has counted. */
  async count(): Promise<void> {
    const ours = (row: Record<string, unknown>) => row["database"] === this.#database;
    const transactions = Number((await this.admin("show stats")).find(ours)?.["total_xact_count"] ?? 0);
    this.counts.transactions += Math.max(0, transactions - this.#counted);
    this.#counted = Math.max(this.#counted, transactions);
    const clients = (await this.admin("show clients")).filter(ours).length;
    this.counts.clients = Math.max(this.counts.clients, clients);
  }

  /** The end of its log, for the message of a failure. */
  log(): string {
    const file = join(this.#folder, "log");
    return existsSync(file) ? readFileSync(file, "utf8").slice(-8_000) : "";
  }

  /** Ends it and deletes its files. */
  async destroy(): Promise<void> {
    await this.kill();
    await this.#dismissGuard();
    rmSync(this.#folder, { recursive: true, force: true, maxRetries: 3 });
  }

  /** Tells the guard of a life that is over that its work is done, and waits for its end: nothing of it is left when this process ends. */
  async #dismissGuard(): Promise<void> {
    const guard = this.#guard;
    this.#guard = null;
    if (guard === null || guard.exitCode !== null || guard.signalCode !== null) return;
    guard.ref();
    const ended = once(guard, "exit");
    guard.stdin?.end("over\n");
    await ended;
  }

  #write(): void {
    const { poolMode, serverConnections, preparedStatements } = this.settings;
    const isOdd = this.#reloads % 2 === 1;
    // In session mode a client keeps its connection, so there may never be fewer.
    const shared = poolMode === "transaction" && isOdd ? serverConnections + 1 : serverConnections;
    const lines = [
      "[databases]",
      `${this.#database} = host=127.0.0.1 port=${this.#upstreamPort} dbname=${this.#database}`,
      "[pgbouncer]",
      "listen_addr = 127.0.0.1",
      `listen_port = ${this.#port}`,
      "unix_socket_dir =",
      "auth_type = trust",
      `auth_file = ${join(this.#folder, "users")}`,
      `admin_users = ${USER}`,
      `logfile = ${join(this.#folder, "log")}`,
      `pool_mode = ${poolMode}`,
      `default_pool_size = ${shared}`,
      "max_client_conn = 500",
      // Server connections come and go while nothing is wrong.
      `server_lifetime = ${isOdd ? 5 : 20}`,
      // Not 15 seconds: for this long every client is refused after one connection to the server failed.
      "server_login_retry = 1",
      ...(preparedStatements === null ? [] : [`max_prepared_statements = ${preparedStatements}`]),
    ];
    this.#own("pgbouncer.ini", `${lines.join("\n")}\n`);
    this.#own("users", `"${USER}" ""\n`);
    appendFileSync(join(this.#folder, "log"), "");
    this.#give(join(this.#folder, "log"));
  }

  #own(name: string, text: string): void {
    const file = join(this.#folder, name);
    writeFileSync(file, text);
    this.#give(file);
  }

  #give(file: string): void {
    if ("uid" in this.#owner) chownSync(file, this.#owner.uid, this.#owner.gid);
  }
}

type Owner = { readonly uid: number; readonly gid: number } | Record<never, never>;

/** PgBouncer refuses to run as root, so then it runs as an unprivileged user. */
function findOwner(): Owner {
  if (process.getuid?.() !== 0) return {};
  const [uid, gid] = ["-u", "-g"].map((flag) => Number(spawnSync("id", [flag, "nobody"], { encoding: "utf8" }).stdout));
  if (!uid || !gid) throw new Error('PgBouncer does not run as root, and there is no user "nobody" to run it as');
  return { uid, gid };
}

/** Its input ends when our process does, even by SIGKILL: then PgBouncer is ended too. Otherwise it is shut down explicitly. */
const GUARD = 'read -r word && exit 0; kill -CONT "$1"; kill -KILL "$1"; rm -rf "$2"';

function startGuard(pid: number, folder: string): ChildProcess {
  const guard = spawn("sh", ["-c", GUARD, "pawl-pgbouncer-guard", String(pid), folder], {
    cwd: "/",
    detached: true,
    stdio: ["pipe", "ignore", "ignore"],
  });
  guard.on("error", () => {});
  guard.stdin.on("error", () => {});
  guard.unref();
  return guard;
}

async function findFreePort(): Promise<number> {
  for (;;) {
    const port = PORTS.first + Math.floor(Math.random() * PORTS.count);
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
