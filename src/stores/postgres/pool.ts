/**
 * Pawl's own pool, for users who pass a connection string. `pg` is installed by the application, and loaded only when needed.
 */

import { InvalidArgumentError, StoreError } from "../../kernel/errors.ts";
import type { PgPool } from "./connections.ts";

/** One connection for each lane, one that listens, one that notifies, and a few for reads. */
const MAX_CONNECTIONS = 10;
const CONNECT_MS = 5000;

export const isPostgres = (where: string): boolean => /^postgres(ql)?:\/\//i.test(where);

/** `patienceMs` limits how long a connection may take to be made. */
export async function poolFor(
  url: string,
  patienceMs = CONNECT_MS,
): Promise<{ pool: PgPool; endPool: () => Promise<void> }> {
  if (!URL.canParse(url))
    throw new InvalidArgumentError(
      "the store",
      "must be postgres://user:password@host:port/database: special characters in the name or the password are percent-encoded",
    );
  const { default: pg } = await load();
  const pool = new pg.Pool({
    connectionString: url,
    max: MAX_CONNECTIONS,
    connectionTimeoutMillis: Math.max(1, Math.min(CONNECT_MS, patienceMs)),
    // Making a connection costs more than keeping it.
    idleTimeoutMillis: 0,
    keepAlive: true,
    fallback_application_name: "pawl",
  });
  // A broken idle connection is replaced when it is needed.
  pool.on("error", () => {});
  return { pool, endPool: () => pool.end() };
}

async function load(): Promise<typeof import("pg")> {
  try {
    return await import("pg");
  } catch (cause) {
    throw new StoreError("store_unfit", "fail", "PostgreSQL needs the package pg: run npm install pg", { cause });
  }
}
