/**
 * Opens the store as a process of the crew was told to: by its address, or with a pool of `pg` that the process has already.
 */

import pg from "pg";
import { open } from "../../../src/open.ts";
import type { Pawl } from "../../../src/pawl.ts";
import type { WorkerArguments } from "./worker.ts";

/** `end` ends what is not Pawl's to end. */
export async function openAs(
  args: Pick<WorkerArguments, "store" | "poolMax" | "namespace" | "patienceMs">,
): Promise<{ readonly pawl: Pawl; readonly end: () => Promise<void> }> {
  const { store, poolMax, namespace, patienceMs: patience } = args;
  if (poolMax === null) return { pawl: await open(store, { namespace, patience }), end: async () => {} };
  const pool = new pg.Pool({ connectionString: store, max: poolMax, connectionTimeoutMillis: 5_000 });
  pool.on("error", () => {});
  try {
    return { pawl: await open({ pool, namespace, patience }), end: () => pool.end() };
  } catch (error) {
    await pool.end();
    throw error;
  }
}
