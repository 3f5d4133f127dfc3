/**
 * What the tests of the PostgreSQL store share: stores in schemas of their own on the test server, and a clock that can be moved.
 */

import pg from "pg";
import type { Ports } from "../../src/kernel/ports.ts";
import { nodePorts } from "../../src/node/ports.ts";
import { openPostgres, type PostgresOptions, type PostgresStore } from "../../src/stores/postgres/postgres.ts";
import { CLOCK } from "../../src/stores/postgres/statements.ts";
import type { Harness } from "../../src/testing/conformance/conformance.ts";

export type StoreOptions = Partial<Omit<PostgresOptions, "pool" | "endPool">> & { readonly max?: number };

/** A store with a pool of its own. */
export async function connect(url: string, options: StoreOptions = {}): Promise<PostgresStore> {
  const { max = 8, ...rest } = options;
  const pool = new pg.Pool({ connectionString: url, max, idleTimeoutMillis: 0, connectionTimeoutMillis: 5000 });
  pool.on("error", () => {});
  const ports: Ports = nodePorts;
  return openPostgres({
    pool,
    endPool: () => pool.end(),
    schema: "pawl",
    namespace: "default",
    ports,
    durability: "full",
    patienceMs: 10_000,
    ...rest,
  });
}

let schemas = 0;

/** A fresh schema for each law, with a clock that is the server's and a shift that the laws change. */
export function harness(url: string, lanes: number): () => Promise<Harness> {
  return async () => {
    schemas += 1;
    const schema = `law "${process.pid}" ${schemas}`;
    const shift = `"clock_${process.pid}_${schemas}"`;
    const admin = new pg.Client({ connectionString: url });
    await admin.connect();
    await admin.query(`create table ${shift} as select 0::bigint as ms`);
    const clock = `(${CLOCK} + (select ms from ${shift}))`;
    return {
      connect: (namespace = "default") => connect(url, { schema, namespace, lanes, clock }),
      clock: {
        advance: async (ms) => void (await admin.query(`update ${shift} set ms = ms + $1`, [ms])),
        set: async (ms) => void (await admin.query(`update ${shift} set ms = $1::bigint - ${CLOCK}`, [ms])),
      },
      async close() {
        await admin.query(`drop schema if exists "${schema.replaceAll('"', '""')}" cascade; drop table ${shift}`);
        await admin.end();
      },
    };
  };
}
