/**
 * Shared by the tests of the PostgreSQL store: stores in schemas of their own on the test server, and a clock that can be moved.
 */

import pg from "pg";
import { StoreError } from "../../src/kernel/errors.ts";
import type { Ports } from "../../src/kernel/ports.ts";
import { nodePorts } from "../../src/node/ports.ts";
import { openPostgres, type PostgresOptions, type PostgresStore } from "../../src/stores/postgres/postgres.ts";
import { quoted } from "../../src/stores/postgres/schema.ts";
import { CLOCK } from "../../src/stores/postgres/statements.ts";
import type { Harness, HarnessClock } from "../../src/testing/conformance/conformance.ts";

export type StoreOptions = Partial<Omit<PostgresOptions, "endPool">> & { readonly max?: number };

export function poolOn(url: string, max = 8): pg.Pool {
  const pool = new pg.Pool({ connectionString: url, max, idleTimeoutMillis: 0, connectionTimeoutMillis: 5000 });
  pool.on("error", () => {});
  return pool;
}

const DEFAULTS = {
  schema: "pawl",
  namespace: "default",
  ports: nodePorts,
  durability: "full",
  patienceMs: 10_000,
} as const;

/** A store with a pool of its own, unless it is given one. */
export async function connect(url: string, options: StoreOptions = {}): Promise<PostgresStore> {
  const { max, pool: given, ...rest } = options;
  if (given !== undefined) return openPostgres({ ...DEFAULTS, ...rest, pool: given });
  const pool = poolOn(url, max);
  return openPostgres({ ...DEFAULTS, ...rest, pool, endPool: () => pool.end() });
}

/** A store that never prepares a statement, because it found that they do not persist. */
export async function connectUnprepared(url: string, options: StoreOptions = {}): Promise<PostgresStore> {
  const pool = poolOn(url, options.max);
  const store = await openPostgres({ ...DEFAULTS, ...options, pool, endPool: () => pool.end() });
  await store.read([]);
  await pool.query("deallocate all");
  // The connection that the store has just used is the only one, so its next statement is not there any more.
  const refusal = await store.read([]).catch((error: unknown) => error);
  if (!(refusal instanceof StoreError) || refusal.code !== "store_busy")
    throw new Error("the store did not notice that its statement is missing");
  return store;
}

/** Ports where the test of LISTEN, which takes two seconds where it fails, takes a moment. */
export const hastyPorts: Ports = {
  ...nodePorts,
  clock: { ...nodePorts.clock, after: (ms, callback) => nodePorts.clock.after(ms === 2000 ? 50 : ms, callback) },
};

export interface HarnessOptions {
  /** Connections, and with them schemas, that are used again by law after law, where making them takes longer than the laws. */
  readonly pool?: pg.Pool;
  readonly connect?: typeof connect;
}

let schemas = 0;

/** A schema for one law, with a clock that is the server's and a shift that the law changes. */
class Ground {
  readonly schema: string;
  readonly clock: string;
  readonly #shift: string;

  constructor() {
    schemas += 1;
    this.schema = `law "${process.pid}" ${schemas}`;
    this.#shift = `"clock_${process.pid}_${schemas}"`;
    this.clock = `(${CLOCK} + (select ms from ${this.#shift}))`;
  }

  async make(admin: pg.Pool): Promise<void> {
    await admin.query(`create table ${this.#shift} as select 0::bigint as ms`);
  }

  /** As it was at first, but for numbers that never come twice. */
  async clear(admin: pg.Pool): Promise<void> {
    const s = quoted(this.schema);
    const tables = ["record", "log", "followed", "writer"].map((table) => `delete from ${s}.${table}`);
    const floor = `delete from ${s}.meta where name = 'fence_floor'`;
    await admin.query(`${tables.join("; ")}; ${floor}; update ${this.#shift} set ms = 0`);
  }

  async drop(admin: pg.Pool): Promise<void> {
    await admin.query(`drop schema if exists ${quoted(this.schema)} cascade; drop table ${this.#shift}`);
  }

  clockOf(admin: pg.Pool): HarnessClock {
    return {
      advance: async (ms) => void (await admin.query(`update ${this.#shift} set ms = ms + $1`, [ms])),
      set: async (ms) => void (await admin.query(`update ${this.#shift} set ms = $1::bigint - ${CLOCK}`, [ms])),
    };
  }
}

/** An empty schema for each law. */
export function harness(url: string, lanes: number, options: HarnessOptions = {}): () => Promise<Harness> {
  const { pool, connect: open = connect } = options;
  const left: Ground[] = [];
  return async () => {
    const admin = pool ?? poolOn(url, 1);
    const used = left.pop();
    const ground = used ?? new Ground();
    await (used === undefined ? ground.make(admin) : ground.clear(admin));
    const { schema, clock } = ground;
    return {
      connect: (namespace = "default") =>
        open(url, { schema, namespace, lanes, clock, ...(pool === undefined ? {} : { pool }) }),
      clock: ground.clockOf(admin),
      async close() {
        if (pool !== undefined) left.push(ground);
        else {
          await ground.drop(admin);
          await admin.end();
        }
      },
    };
  };
}
