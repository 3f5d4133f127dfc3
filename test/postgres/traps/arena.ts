/**
 * The environment of a trap: a separate schema, stores and kernels on it, and ways to stop a transaction at a chosen place.
 *
 * A transaction is stopped in this process, by a pipeline that is held back (`watched.ts`), or on the server: in the middle of a statement
 * that reads, or in the middle of its COMMIT. Nothing here depends on which side is faster.
 *
 * A trap knows no test runner, so that the same function can be run on a source that lacks the guard (`guards.ts`).
 */

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import { claim, Held } from "../../../src/kernel/claim/claim.ts";
import { type Address, address, type Found, type Key, type Put, type Receipt } from "../../../src/kernel/contract.ts";
import { StoreError } from "../../../src/kernel/errors.ts";
import { Kernel, type KernelOptions } from "../../../src/kernel/kernel.ts";
import type { Ports } from "../../../src/kernel/ports.ts";
import { nodePorts } from "../../../src/node/ports.ts";
import type { PostgresStore } from "../../../src/stores/postgres/postgres.ts";
import { quoted } from "../../../src/stores/postgres/schema.ts";
import { blank, making } from "../../../src/testing/conformance/law-context.ts";
import { FaultyProxy } from "../../faults/proxy.ts";
import { connect, poolOn, type StoreOptions } from "../kit.ts";
import { WatchedPool } from "../watched.ts";

export interface Trap {
  /** A law, as the name of a test. */
  readonly name: string;
  readonly check: (arena: Arena) => Promise<void>;
  /** It changes settings of the whole server, so it needs one of its own. */
  readonly needsServer?: boolean;
}

export const trap = (name: string, check: Trap["check"], more: Omit<Trap, "name" | "check"> = {}): Trap => ({
  name,
  check,
  ...more,
});

/**
 * How long anything may take that should happen at once: as long as a busy machine needs. Where a guard is taken out and something may never
 * happen, the run of the guards sets it to less (`guarding.ts`).
 */
export const SOON_MS = Number(process.env["PAWL_TRAP_SOON_MS"] ?? 60_000);

/** Ports on which no poll of a listener comes that takes so long, so that what is heard was told or looked for at once. */
export const withoutPolls = (...pollsMs: readonly number[]): Ports => ({
  ...nodePorts,
  clock: {
    ...nodePorts.clock,
    after: (ms, callback) => (pollsMs.includes(ms) ? () => {} : nodePorts.clock.after(ms, callback)),
  },
});

export class Arena {
  readonly url: string;
  readonly schema = `trap ${randomUUID()}`;
  readonly s = quoted(this.schema);
  readonly #admin: pg.Client;
  readonly #ends: (() => Promise<unknown>)[] = [];
  readonly #gates: string[] = [];

  private constructor(url: string, admin: pg.Client) {
    this.url = url;
    this.#admin = admin;
  }

  static async enter(url: string): Promise<Arena> {
    const admin = new pg.Client({ connectionString: url });
    admin.on("error", () => {});
    await admin.connect();
    return new Arena(url, admin);
  }

  /** Runs a trap from beginning to end. */
  static async play(url: string, { check }: Trap): Promise<void> {
    const arena = await Arena.enter(url);
    try {
      await check(arena);
    } finally {
      await arena.leave();
    }
  }

  async leave(): Promise<void> {
    for (const name of this.#gates) await this.sql("delete from public.pawl_gate where name = $1", [name]);
    for (const end of this.#ends.splice(0).reverse()) await within("an end", end()).catch(() => {});
    await this.#admin.query(`drop schema if exists ${this.s} cascade`).catch(() => {});
    await this.#admin.end();
  }

  atEnd(end: () => Promise<unknown>): void {
    this.#ends.push(end);
  }

  /** The rows that a statement answers. */
  async sql(text: string, values: unknown[] = []): Promise<unknown[][]> {
    return (await this.#admin.query<unknown[]>({ text, values, rowMode: "array" })).rows;
  }

  /** The first column of the first row. */
  async value(text: string, values: unknown[] = []): Promise<unknown> {
    return (await this.sql(text, values))[0]?.[0];
  }

  /** A connection of the test's own, for a transaction that it keeps open. */
  async client(): Promise<pg.Client> {
    const client = new pg.Client({ connectionString: this.url });
    client.on("error", () => {});
    await client.connect();
    this.atEnd(() => client.end());
    return client;
  }

  async store(options: StoreOptions & { readonly url?: string } = {}): Promise<PostgresStore> {
    const { url = this.url, ...more } = options;
    const store = await connect(url, { schema: this.schema, ...more });
    this.atEnd(() => store.close());
    return store;
  }

  kernelOn(store: PostgresStore, options: Partial<KernelOptions> = {}): Kernel {
    const kernel = new Kernel(store, nodePorts, { namespace: "default", patienceMs: 10_000, ...options });
    this.atEnd(() => kernel.close());
    return kernel;
  }

  async kernel(options: StoreOptions & { readonly url?: string } = {}): Promise<Kernel> {
    return this.kernelOn(await this.store(options));
  }

  /** Another process, which listens, has said so, and counts how often it is rung. */
  async listener(options: StoreOptions = {}): Promise<{ readonly rings: number }> {
    const heard = { rings: 0 };
    const store = await this.store(options);
    const stop = store.watch(() => {
      heard.rings += 1;
    });
    this.atEnd(async () => stop());
    const hasSaid = `select count(*)::int from ${this.s}.writer where lane = -1`;
    await until("it has announced that it listens", async () => (await this.value(hasSaid)) === 1);
    await sleep(20);
    return heard;
  }

  /** A pool whose pipelines can be seen and held. */
  watched(url = this.url): WatchedPool {
    const pool = poolOn(url);
    this.atEnd(() => pool.end());
    return new WatchedPool(pool);
  }

  /** A way to the server that can lose what passes. */
  async proxy(): Promise<FaultyProxy> {
    const proxy = await FaultyProxy.start(Number(new URL(this.url).port));
    this.atEnd(() => proxy.close());
    return proxy;
  }

  /** Commits that write this key wait on the server, after everything else was done, until the gate opens. */
  async commitGate(key: string): Promise<ServerGate> {
    const gate = await this.#gate(key);
    await this.sql(`
      create or replace function ${this.s}.wait() returns trigger language plpgsql as $$ begin
        perform public.pawl_wait(new.key); return null; end $$`);
    await this.sql(`create constraint trigger wait_${this.#gates.length}
      after insert or update on ${this.s}.record deferrable initially deferred
      for each row when (new.key = ${pg.escapeLiteral(key)}) execute function ${this.s}.wait()`);
    return gate;
  }

  /**
   * A way in on which a statement that locks rows stops when it comes to the first absent key, with its snapshot taken and rows
   * before that key locked, until the gate opens.
   */
  async lookGate(): Promise<{ readonly url: string; readonly gate: ServerGate }> {
    const name = `look ${randomUUID()}`;
    const hooks = `hook_${randomUUID().replaceAll("-", "")}`;
    const gate = await this.#gate(name);
    // Found before the server's own function of that name, and does what that does.
    await this.sql(`create schema ${hooks}`);
    this.atEnd(() => this.sql(`drop schema if exists ${hooks} cascade`));
    await this.sql(`
      create function ${hooks}.nextval(at regclass) returns bigint language plpgsql volatile as $$ begin
        perform public.pawl_wait(${pg.escapeLiteral(name)}); return pg_catalog.nextval(at); end $$`);
    const url = new URL(this.url);
    url.searchParams.set("options", `-c search_path=${hooks},pg_catalog`);
    return { url: url.href, gate };
  }

  async #gate(name: string): Promise<ServerGate> {
    this.#gates.push(name);
    await this.sql("create table if not exists public.pawl_gate (name text primary key)");
    await this.sql(`
      create or replace function public.pawl_wait(at text) returns void language plpgsql volatile as $$ begin
        while exists (select from public.pawl_gate where name = at) loop
          perform pg_sleep(0.002);
        end loop; end $$`);
    await this.sql("insert into public.pawl_gate (name) values ($1)", [name]);
    return {
      reached: () => until("a transaction waits at the gate", async () => (await this.waitingFor("PgSleep")) > 0),
      open: async () => void (await this.sql("delete from public.pawl_gate where name = $1", [name])),
    };
  }

  /** How many connections to this database wait for this. */
  async waitingFor(event: string): Promise<number> {
    const text = "select count(*)::int from pg_stat_activity where wait_event = $1 and datname = current_database()";
    return Number(await this.value(text, [event]));
  }

  async entryCount(key: Key): Promise<number> {
    const text = `select count(*)::int from ${this.s}.past where space = $1 and key = $2`;
    return Number(await this.value(text, [key.space, key.key]));
  }
}

/** A place on the server where a transaction stops. */
export interface ServerGate {
  reached(): Promise<void>;
  open(): Promise<void>;
}

/** Looks again and again until it is so. */
export async function until(
  what: string,
  look: () => boolean | Promise<boolean>,
  ms = SOON_MS,
  everyMs = 5,
): Promise<void> {
  for (const giveUpAtMs = performance.now() + ms; !(await look()); await sleep(everyMs))
    if (performance.now() > giveUpAtMs) assert.fail(`this did not happen within ${ms} ms: ${what}`);
}

/** Fails if it takes longer. */
export async function within<T>(what: string, promise: Promise<T>, ms = SOON_MS): Promise<T> {
  const timer = new AbortController();
  const late = sleep(ms, undefined, { signal: timer.signal }).then(() =>
    assert.fail(`this did not happen within ${ms} ms: ${what}`),
  );
  late.catch(() => {});
  try {
    return await Promise.race([promise, late]);
  } finally {
    timer.abort();
  }
}

/** Whether it ends by itself in that time. */
export async function isPending(promise: Promise<unknown>, ms: number): Promise<boolean> {
  const pending = Symbol();
  const first = await Promise.race([promise.catch(() => undefined), sleep(ms, pending)]);
  return first === pending;
}

export const at = (key: string, space = "trap"): Address => address(space, key);

/** Counts one up on a record, makes it if it is not there, and says so in its log. */
export function addOne(kernel: Kernel, key: Address, by = ""): Promise<number> {
  return kernel.transact(
    (tx) => {
      const record = tx.record(key);
      const count = Number(record.value ?? 0) + 1;
      record.write({ value: count });
      record.append("added", by);
      return count;
    },
    [key],
  );
}

/** A record that can be claimed at once. */
export async function makeJob(kernel: Kernel, key: Address): Promise<void> {
  await kernel.transact((tx) => tx.record(key).write({ value: "job", kind: "job", dueMs: tx.nowMs }), [key]);
}

export async function claimJob(kernel: Kernel, key: Address, by: string, leaseMs = 20): Promise<Held> {
  let held: Held | undefined;
  await until(`${by} has the claim`, async () => {
    const row = await kernel.transact((tx) => claim(tx, key, { by, leaseMs }), [key]);
    if (row !== undefined) held = new Held(kernel, row);
    return held !== undefined;
  });
  assert.ok(held);
  return held;
}

/** One batch straight to the store, in lane 0 unless said otherwise, after settling it. */
export async function commit(
  store: PostgresStore,
  lock: readonly Key[],
  decide: (found: Found, round: number) => readonly Put[] | { readonly lock: readonly Key[] },
  lane = 0,
): Promise<Receipt> {
  const { epoch, sequence } = await store.settle(lane);
  let round = 0;
  return store.commit({
    lane,
    epoch,
    sequence: sequence + 1,
    lock,
    needsClock: false,
    decide: (found) => {
      const answer = decide(found, round++);
      return "lock" in answer ? answer : { puts: answer };
    },
  });
}

/** A row to make. */
export const make = (key: Key, value = "0", ...said: readonly string[]): Put =>
  making({ ...blank(key.key, { value }), space: key.space }, ...said);

/** The code of a refusal of the store's. */
export async function refusal(promise: Promise<unknown>): Promise<string> {
  try {
    await promise;
  } catch (error) {
    if (error instanceof StoreError) return error.code;
    throw error;
  }
  return "none";
}
