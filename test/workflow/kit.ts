/**
 * What the tests of workflows share: every store behind one interface, so that a rule is written once and tested on all of them.
 *
 * A place is a database with a namespace of its own for each test. Any number of handles can be opened on it, as processes would have
 * them; each can count the transactions it asks its store for, and can die: then nothing that it sent to the store gets a reply any more,
 * and nothing that it does reaches the store, as after `kill -9`, but its leases last.
 */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import pg from "pg";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect } from "vitest";
import {
  type Context,
  type OpenOptions,
  open,
  type Pawl,
  type Run,
  type RunEvent,
  type RunStatus,
  workflow,
} from "../../src/index.ts";
import type { SqlStore, Store } from "../../src/kernel/contract.ts";
import { nodePorts, wallMs } from "../../src/node/ports.ts";
import { MemoryDatabase } from "../../src/stores/memory/memory.ts";
import { openPostgres } from "../../src/stores/postgres/postgres.ts";
import { openSqlite } from "../../src/stores/sqlite/sqlite.ts";
import { runAt } from "../../src/workflow/stored.ts";
import { freshDatabase } from "../postgres/server.ts";
import { groundOn, type Plain } from "../sql/grounds.ts";

export type StoreName = "memory" | "SQLite" | "PostgreSQL";

/** The options of handles; the place sets the store and the namespace. */
export type HandleOptions = Omit<OpenOptions, "store" | "pool" | "namespace">;

export interface Handle {
  readonly pawl: Pawl;
  /** How many transactions there were so far that read under locks or wrote, with and without SQL of the user's. */
  commits(): number;
  isDead(): boolean;
  /** The next commit waits for this before it reaches the store, or before its reply comes back. */
  hold(what: "request" | "answer", until: Promise<unknown>): void;
  /** From now on nothing passes between this handle and its store. */
  die(): void;
  /** As `die`, before the commit that is the `count`-th from now: it and all that follow are lost. */
  dieBefore(count: number): void;
  /**
   * As `die`, before or after the call of the store that is the `count`-th from now, of whatever kind. `bury` lets that call and the later ones fail, so that
   * what they hold in this process, which goes on, is free again.
   */
  dieAt(count: number, when: "before" | "after"): { readonly died: Promise<void>; bury(): void };
}

/** Where the databases of a place are, and how to remove them. */
interface Ground {
  /** A URL or a path; none for memory. */
  readonly where: string;
  connect(namespace: string): Promise<Store & Partial<SqlStore>>;
  leave(): Promise<void>;
}

const makeGround: Record<StoreName, () => Promise<Ground>> = {
  async memory() {
    const database = new MemoryDatabase(wallMs);
    return { where: "", connect: async (namespace) => database.connect(namespace), leave: async () => {} };
  },
  async SQLite() {
    const folder = mkdtempSync(join(tmpdir(), "pawl-workflow-"));
    const path = join(folder, "shop.db");
    return {
      where: path,
      connect: (namespace) =>
        openSqlite({ path, namespace, ports: nodePorts, wallMs, durability: "full", patienceMs: 30_000 }),
      leave: async () => rmSync(folder, { recursive: true, force: true, maxRetries: 3 }),
    };
  },
  async PostgreSQL() {
    const { url, drop } = await freshDatabase();
    const pool = new pg.Pool({ connectionString: url, max: 20, idleTimeoutMillis: 0 });
    pool.on("error", () => {});
    return {
      where: url,
      connect: (namespace) =>
        openPostgres({
          pool,
          namespace,
          schema: "pawl",
          ports: nodePorts,
          durability: "full",
          patienceMs: 30_000,
        }),
      async leave() {
        await pool.end();
        await drop();
      },
    };
  },
};

export class Place {
  readonly store: StoreName;
  #ground: Ground | undefined;
  #tests = 0;
  #endings: (() => Promise<unknown>)[] = [];

  constructor(store: StoreName) {
    this.store = store;
  }

  get where(): string {
    return this.#made.where;
  }

  get namespace(): string {
    return `test-${this.#tests}`;
  }

  get #made(): Ground {
    if (this.#ground === undefined) throw new Error("the place is not made yet");
    return this.#ground;
  }

  async make(): Promise<void> {
    this.#ground = await makeGround[this.store]();
  }

  begin(): void {
    this.#tests += 1;
  }

  /** Ends everything that the test opened, the last first. */
  async end(): Promise<void> {
    const endings = this.#endings.reverse();
    this.#endings = [];
    for (const end of endings) await end();
  }

  async leave(): Promise<void> {
    await this.#ground?.leave();
  }

  async open(options?: HandleOptions): Promise<Pawl> {
    return (await this.openHandle(options)).pawl;
  }

  async openHandle(options: HandleOptions = {}): Promise<Handle> {
    const store = await this.#made.connect(this.namespace);
    const close = store.close.bind(store);
    let commits = 0;
    let left = Number.POSITIVE_INFINITY;
    let isDead = false;
    let held: { request?: Promise<unknown>; answer?: Promise<unknown> } = {};
    const die = (): void => {
      isDead = true;
      Object.assign(store, dead);
    };
    /** Whether a call that is made now may reach the store. */
    const passes = (): boolean => {
      left -= 1;
      if (left <= 0) die();
      return !isDead;
    };
    const commit = store.commit.bind(store);
    store.commit = async (batch) => {
      const { request, answer } = held;
      held = {};
      await request;
      if (!passes()) return never();
      const receipt = await commit(batch);
      // A batch that only found out that it needs a lock has not reached the database.
      if (!receipt.committed || receipt.ids.length > 0 || batch.lock.length > 0) commits += 1;
      await answer;
      return receipt;
    };
    const share = store.share?.bind(store);
    if (share !== undefined)
      store.share = (mark, work, dropped) => {
        if (!passes()) return never();
        commits += 1;
        return share(mark, work, dropped);
      };
    const pawl = await open({
      store,
      namespace: this.namespace,
      checkPurity: this.store === "memory",
      ...options,
    });
    this.#endings.push(() => (isDead ? close() : pawl.close()));
    return {
      pawl,
      commits: () => commits,
      isDead: () => isDead,
      hold(what, until) {
        held[what] = until;
      },
      die,
      dieBefore(count) {
        left = count;
      },
      dieAt(count, when) {
        let calls = 0;
        const { promise: died, resolve } = Promise.withResolvers<void>();
        const { promise: lost, reject } = Promise.withResolvers<never>();
        lost.catch(() => {});
        const stop = (): Promise<never> => {
          die();
          for (const name of Object.keys(dead)) Object.assign(store, { [name]: () => lost });
          resolve();
          return lost;
        };
        const methods = store as unknown as Record<string, (...given: readonly unknown[]) => Promise<unknown>>;
        for (const name of CALLS) {
          const call = methods[name]?.bind(store);
          if (call === undefined) continue;
          methods[name] = async (...given) => {
            const isLast = ++calls === count;
            if (isLast && when === "before") return stop();
            const result = await call(...given);
            if (isLast) return stop();
            return isDead ? lost : result;
          };
        }
        return { died, bury: () => reject(new Error("the process has died")) };
      },
    };
  }

  /** A connection of the application's own, with a table for its orders; not on memory. */
  async connect(): Promise<Plain> {
    const plain = await groundOn(this.where).connect();
    this.#endings.push(() => plain.end());
    return plain;
  }

  /** A statement as this database wants it, from one with ?. */
  says(text: string): string {
    return groundOn(this.where).says(text);
  }
}

const never = (): Promise<never> => new Promise(() => {});

const CALLS = ["settle", "commit", "read", "list", "entries", "follow", "due", "sweep", "prune"] as const;

const dead = {
  settle: never,
  commit: never,
  read: never,
  list: never,
  entries: never,
  follow: never,
  due: never,
  sweep: never,
  prune: never,
  join: never,
  share: never,
};

export const EVERY: readonly StoreName[] = ["memory", "SQLite", "PostgreSQL"];
export const SQL: readonly StoreName[] = ["SQLite", "PostgreSQL"];

/** Runs the tests on these stores, one after the other. */
export function onStores(stores: readonly StoreName[], laws: (place: Place) => void): void {
  describe.each(stores)("on %s", (store) => {
    const place = new Place(store);
    beforeAll(() => place.make());
    beforeEach(() => place.begin());
    afterEach(() => place.end());
    afterAll(() => place.leave());
    laws(place);
  });
}

/** Long enough for any machine; a test that needs it has failed. */
export const PATIENCE = { timeout: 120_000, interval: 5 } as const;

/** How a step is tried again where the test waits for it. */
export const SOON = { delay: 1, jitter: 0 } as const;

/** Starts a run of a workflow that is only this function, on a handle of its own. */
export const runsOn =
  (place: Place) =>
  async <T>(body: (ctx: Context) => PromiseLike<T>, on?: (event: RunEvent) => void): Promise<Run<T>> => {
    const pawl = await place.open();
    const it = workflow("it", body);
    pawl.work([it], { on });
    return pawl.start(it, undefined, { id: "one" });
  };

export const resultOf = <T>(run: Run<T>): Promise<T> => run.result({ timeout: "20s" });

/** Waits until the run has this status. */
export async function reaches(run: Run, status: RunStatus): Promise<void> {
  await expect.poll(async () => (await run.status()).status, PATIENCE).toBe(status);
}

/** The facts of a run's history, by name. */
export async function factsOf(run: Run): Promise<string[]> {
  return (await run.history()).map(({ name }) => name);
}

/** Ends the lease of a run now, as if its time had passed: the next worker that looks takes the run over. */
export async function endLease(pawl: Pawl, id: string): Promise<void> {
  const at = runAt(id);
  await pawl.kernel.transact((tx) => tx.record(at).write({ dueMs: tx.nowMs }), [at]);
}

/**
 * Lets another worker take over a run whose worker is alive and renews its lease: ends the lease, again and again, until the run has a fence
 * of another. A lease that the new worker has is left alone. By a handle other than the new worker's, which is notified of the commits of others.
 */
export async function loseLease(pawl: Pawl, id: string): Promise<void> {
  const at = runAt(id);
  const old = await pawl.kernel.transact((tx) => tx.record(at).fence, [at]);
  const isTaken = () =>
    pawl.kernel.transact(
      (tx) => {
        const record = tx.record(at);
        if (record.fence === old && (record.dueMs ?? 0) > tx.nowMs) record.write({ dueMs: tx.nowMs });
        return record.fence !== old;
      },
      [at],
    );
  await expect.poll(isTaken, PATIENCE).toBe(true);
}
