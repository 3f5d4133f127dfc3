/** Databases of all three kinds, to which any number of stores can be connected, each as a process would be. */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import pg from "pg";
import type { Store } from "../../src/kernel/contract.ts";
import { nodePorts, wallMs } from "../../src/node/ports.ts";
import { MemoryDatabase } from "../../src/stores/memory/memory.ts";
import { openPostgres } from "../../src/stores/postgres/postgres.ts";
import { openSqlite } from "../../src/stores/sqlite/sqlite.ts";
import { freshDatabase } from "../postgres/server.ts";

/** A database, with a namespace for each trial. */
export interface Ground {
  connect(namespace: string): Promise<Store>;
  leave(): Promise<void>;
}

const PATIENCE_MS = 30_000;

async function memory(): Promise<Ground> {
  const database = new MemoryDatabase(wallMs);
  return { connect: async (namespace) => database.connect(namespace), leave: async () => {} };
}

async function sqlite(): Promise<Ground> {
  const folder = mkdtempSync(join(tmpdir(), "pawl-once-"));
  const path = join(folder, "shop.db");
  const options = { path, ports: nodePorts, wallMs, durability: "process", patienceMs: PATIENCE_MS } as const;
  return {
    connect: (namespace) => openSqlite({ ...options, namespace }),
    leave: async () => rmSync(folder, { recursive: true, force: true, maxRetries: 3 }),
  };
}

async function postgres(): Promise<Ground> {
  const { url, drop } = await freshDatabase();
  const pool = new pg.Pool({ connectionString: url, max: 30, idleTimeoutMillis: 0 });
  pool.on("error", () => {});
  const options = { pool, schema: "pawl", ports: nodePorts, durability: "full", patienceMs: PATIENCE_MS } as const;
  return {
    connect: (namespace) => openPostgres({ ...options, namespace }),
    async leave() {
      await pool.end();
      await drop();
    },
  };
}

export const grounds = [
  ["memory", memory],
  ["SQLite", sqlite],
  ["PostgreSQL", postgres],
] as const;
