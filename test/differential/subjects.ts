/**
 * The subjects: the stores that are compared. The first is the reference for all others.
 *
 * A subject is opened for each chapter and provides an empty database that several writers share, as processes do. To compare another
 * store, add an entry to `subjects`.
 */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Store } from "../../src/kernel/contract.ts";
import type { Ports } from "../../src/kernel/ports.ts";
import { nodePorts, wallMs } from "../../src/node/ports.ts";
import { MemoryDatabase } from "../../src/stores/memory/memory.ts";
import { CLOCK } from "../../src/stores/postgres/statements.ts";
import { openSqlite } from "../../src/stores/sqlite/sqlite.ts";
import { connect, poolOn } from "../postgres/kit.ts";
import { freshDatabase } from "../postgres/server.ts";

/** A clock that the run moves on, for stores that take theirs from outside. */
export class TestClock {
  /** The time that has passed in small steps, and in jumps. */
  stepsMs = 0;
  #leapsMs = 0;

  readonly nowMs = (): number => START_MS + this.stepsMs + this.#leapsMs;

  readonly leap = async (ms: number): Promise<void> => {
    this.#leapsMs += ms;
  };
}

const START_MS = 1_800_000_000_000;

/** A database as a chapter finds it: empty. */
export interface Ground {
  readonly ports: Ports;
  /** About what the store's clock says. */
  nowMs(): number;
  /** Jumps forward by this much time. */
  leap(ms: number): Promise<void>;
  connect(namespace: "ours" | "theirs"): Promise<Store>;
  close(): Promise<void>;
}

export interface Subject {
  readonly name: string;
  /** A server is asked for everything, so it plays fewer chapters where time is short. */
  readonly isServer?: boolean;
  open(clock: TestClock): Promise<Ground>;
  /** Gives back what is shared by its chapters. */
  close?(): Promise<void>;
}

/** Runs every decision twice, as the check for purity does. */
const twice: Ports = { ...nodePorts, trap: (decision) => decision() };

export function memory(
  name: string,
  options: { readonly lanes?: number; readonly ports?: Ports; readonly wrap?: (store: Store) => Store } = {},
): Subject {
  const { lanes = 1, ports = nodePorts, wrap = (store: Store) => store } = options;
  return {
    name,
    async open(clock) {
      const database = new MemoryDatabase(clock.nowMs);
      return {
        ports,
        nowMs: clock.nowMs,
        leap: clock.leap,
        connect: async (namespace) => wrap(database.connect(namespace, { lanes })),
        close: async () => {},
      };
    },
  };
}

function sqlite(name: string): Subject {
  return {
    name,
    async open(clock) {
      const folder = mkdtempSync(join(tmpdir(), "pawl-differential-"));
      const { nowMs, leap } = clock;
      const options = { path: join(folder, "pawl.db"), ports: nodePorts, wallMs: nowMs, patienceMs: 30_000 };
      return {
        ports: nodePorts,
        nowMs,
        leap,
        connect: (namespace) => openSqlite({ ...options, namespace, durability: "process" }),
        close: async () => rmSync(folder, { recursive: true, force: true }),
      };
    },
  };
}

/** One database for all chapters, each in namespaces of its own, on the server's clock and what a chapter adds to it. */
function postgres(name: string): Subject {
  let database: Promise<{ url: string; pool: ReturnType<typeof poolOn>; drop(): Promise<void> }> | undefined;
  let chapters = 0;
  const found = async () => {
    const { url, drop } = await freshDatabase();
    return { url, drop, pool: poolOn(url, 20) };
  };
  return {
    name,
    isServer: true,
    async open() {
      database ??= found();
      const { url, pool } = await database;
      chapters += 1;
      const chapter = chapters;
      const leaps = `leaps_of_${chapter}`;
      await pool.query(`create table ${leaps} as select 0::bigint as ms`);
      const options = { pool, durability: "process", clock: `(${CLOCK} + (select ms from ${leaps}))` } as const;
      let leapsMs = 0;
      return {
        ports: nodePorts,
        nowMs: () => wallMs() + leapsMs,
        async leap(ms) {
          leapsMs += ms;
          await pool.query(`update ${leaps} set ms = $1`, [leapsMs]);
        },
        connect: (namespace) => connect(url, { ...options, namespace: `${namespace} ${chapter}` }),
        close: async () => {},
      };
    },
    async close() {
      const opened = await database;
      await opened?.pool.end();
      await opened?.drop();
    },
  };
}

export const subjects: readonly Subject[] = [
  memory("memory"),
  memory("memory with 3 lanes", { lanes: 3, ports: twice }),
  sqlite("SQLite"),
  postgres("PostgreSQL"),
];
