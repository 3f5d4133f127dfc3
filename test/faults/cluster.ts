/**
 * A PostgreSQL primary with a standby, and the proxies that lead to whichever is the primary now; with PgBouncer between, if that is wanted, and
 * one more proxy between it and the primary.
 *
 * The standby is synchronous, so that its promotion loses nothing; or it is not, and then the cluster can lose its last commits in two ways: by the
 * promotion of a standby that was behind, and by a backup that is restored.
 *
 * Everything here goes around the proxies, so that no fault keeps the harness from reading or from causing faults.
 */

import pg from "pg";
import { type PostgresServer, type PostgresVersion, startPostgres } from "../postgres/server.ts";
import { Bouncer, type BouncerProgram, type BouncerSettings } from "./bouncer.ts";
import { monotonicNs } from "./ledger.ts";
import { FaultyProxy } from "./proxy.ts";
import type { Span } from "./works/work.ts";

const DATABASE = "pawl_faults";

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** A PgBouncer to be put between the workers and the server. */
export interface BouncerChoice extends BouncerSettings {
  readonly program: BouncerProgram;
}

export class Cluster {
  primary: PostgresServer;
  /** Null while there is none: after a promotion, until a new one streams. */
  standby: PostgresServer | null = null;
  readonly proxies: FaultyProxy[] = [];
  bouncer: Bouncer | null = null;
  /** From PgBouncer to the primary. */
  behind: FaultyProxy | null = null;

  readonly #isSynchronous: boolean;

  private constructor(primary: PostgresServer, isSynchronous: boolean) {
    this.primary = primary;
    this.#isSynchronous = isSynchronous;
  }

  /** The number of proxies in front of it. */
  static async start(options: {
    readonly proxies: number;
    readonly version?: PostgresVersion | undefined;
    readonly bouncer?: BouncerChoice | undefined;
    /** Whether commits wait for the standby. Default: true. */
    readonly synchronous?: boolean;
  }): Promise<Cluster> {
    const { proxies, version = 18, bouncer, synchronous = true } = options;
    // A standby that lost its primary asks again soon, not after five seconds.
    const settings = { wal_retrieve_retry_interval: "100ms" };
    const cluster = new Cluster(await startPostgres({ version, settings }), synchronous);
    try {
      await cluster.primary.createDatabase(DATABASE);
      if (bouncer !== undefined) {
        const { program, ...settings } = bouncer;
        cluster.behind = await FaultyProxy.start(cluster.primary.port);
        const upstreamPort = cluster.behind.port;
        cluster.bouncer = await Bouncer.start(program, { database: DATABASE, upstreamPort, settings });
      }
      const port = cluster.bouncer?.port ?? cluster.primary.port;
      for (let i = 0; i < proxies; i++) cluster.proxies.push(await FaultyProxy.start(port));
      cluster.standby = await cluster.primary.standby({ synchronous });
    } catch (error) {
      await cluster.destroy();
      throw error;
    }
    return cluster;
  }

  /** The database on the primary of now. */
  get url(): string {
    const url = new URL(this.primary.url);
    url.pathname = `/${DATABASE}`;
    return url.href;
  }

  /** Asks the primary, or another, as superuser; from outside the database, so that its backends are all workers'. */
  async query(
    sql: string,
    values: unknown[] = [],
    server: PostgresServer = this.primary,
  ): Promise<Record<string, unknown>[]> {
    const client = new pg.Client({ connectionString: server.url });
    // A server that ends meanwhile says so here too.
    client.on("error", () => {});
    try {
      await client.connect();
      return (await client.query<Record<string, unknown>>(sql, values)).rows;
    } finally {
      await client.end().catch(() => {});
    }
  }

  /** The backends of the workers, with what they wait for. */
  async backends(): Promise<{ readonly pid: number; readonly waitsForStandby: boolean }[]> {
    const rows = await this.query("select pid, wait_event from pg_stat_activity where datname = $1", [DATABASE]);
    return rows.map((row) => ({ pid: Number(row["pid"]), waitsForStandby: row["wait_event"] === "SyncRep" }));
  }

  /** Waits until the primary responds again. */
  async untilUp(): Promise<void> {
    await this.#until("the primary does not come back", async () => {
      await this.query("select 1");
      return true;
    });
  }

  /** Waits until the standby has everything that the primary had when this was called. */
  async untilSynchronous(): Promise<void> {
    const [now] = await this.query("select pg_current_wal_flush_lsn()::text as lsn");
    await this.#until("the standby does not catch up", async () => {
      const sql = `select from pg_stat_replication
        where state = 'streaming' and sync_state = $2 and flush_lsn >= $1::pg_lsn`;
      return (await this.query(sql, [now?.["lsn"], this.#isSynchronous ? "sync" : "async"])).length > 0;
    });
  }

  /** Makes the standby the primary, leads everybody there, and does away with the old one, which must be dead. */
  async promote(): Promise<void> {
    const { primary: old, standby } = this;
    if (standby === null) throw new Error("there is no standby to promote");
    if (old.isRunning) throw new Error("the primary is still running");
    await standby.promote();
    this.primary = standby;
    this.standby = null;
    for (const proxy of this.behind === null ? this.proxies : [this.behind]) proxy.switchTo(standby.port);
    await old.destroy();
  }

  /** Makes a new standby of the primary if it has none, and waits until everything is as it was before the fault. */
  async mend(): Promise<void> {
    await this.untilUp();
    await this.bouncer?.mend();
    this.standby ??= await this.primary.standby({ synchronous: this.#isSynchronous });
    await this.untilSynchronous();
  }

  /**
   * Promotes the standby after it was behind for this long. Returns the time in which commits may have been lost: whatever was acknowledged before
   * it is on the standby, and whatever was asked for after it was asked of the new primary.
   */
  async promoteBehind(loadMs: number): Promise<Span> {
    const { primary, standby } = this;
    if (standby === null) throw new Error("there is no standby to promote");
    const from = monotonicNs();
    await this.untilSynchronous();
    await standby.detach();
    await pause(loadMs);
    await primary.stop("immediate");
    const to = monotonicNs();
    await this.promote();
    return { from, to };
  }

  /** Takes a backup, and replaces the primary's data by it after this long. Returns the time in which commits may have been lost. */
  async restoreBackup(loadMs: number): Promise<Span> {
    const { primary } = this;
    let from = Number.NaN;
    const backup = await primary.backup(() => {
      from = monotonicNs();
    });
    await pause(loadMs);
    await primary.stop("immediate");
    const to = monotonicNs();
    // It has what the backup lacks, under the same timeline, and cannot follow any more.
    await this.standby?.destroy();
    this.standby = null;
    await primary.restore(backup);
    await backup.delete();
    await primary.start();
    return { from, to };
  }

  async destroy(): Promise<void> {
    for (const proxy of this.proxies) await proxy.close();
    await this.bouncer?.destroy();
    await this.behind?.close();
    await this.standby?.destroy();
    await this.primary.destroy();
  }

  async #until(complaint: string, isDone: () => Promise<boolean>): Promise<void> {
    const deadlineMs = performance.now() + 30_000;
    let reason: unknown;
    while (performance.now() < deadlineMs) {
      try {
        if (await isDone()) return;
      } catch (error) {
        reason = error;
      }
      await pause(20);
    }
    throw new Error(`${complaint}: ${reason ?? ""}\n${this.primary.log()}`);
  }
}
