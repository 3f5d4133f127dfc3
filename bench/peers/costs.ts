/**
 * What a run costs PostgreSQL, counted instead of timed: transactions, and bytes of its log.
 *
 * Method: the contender visits its database several times. Server processes add their counts when they end, so
 * transactions are counted from before a visit to after it. A visit without work says what opening and closing cost; one that stays for a
 * second longer says what the contender costs while it is idle, by polling. Both are taken off what a visit with runs
 * cost. The log is the whole server's, from the opening to the end of a visit, and the server has no other users meanwhile.
 */

import { setTimeout as sleep } from "node:timers/promises";
import type { Peer, PeerSession } from "./peer.ts";
import type { Postgres } from "./postgres.ts";
import { atOnce } from "./protocols.ts";

export interface Cost {
  readonly steps: number;
  readonly transactions: number;
  readonly bytes: number;
}

export interface Costs {
  /** In a second, by a contender that has nothing to do. */
  readonly idle: { readonly transactions: number; readonly bytes: number };
  readonly perRun: readonly Cost[];
}

interface Visit {
  readonly transactions: number;
  readonly bytes: number;
  readonly ms: number;
}

const IDLE_MS = 1000;
const WARM_UP = { runs: 20, steps: 10 } as const;

export async function costsOf(
  postgres: Postgres,
  peer: Peer,
  folder: string,
  stepCounts: readonly number[],
  runs: number,
): Promise<Costs> {
  const database = await postgres.create();
  const visit = async (work: (session: PeerSession) => Promise<unknown>): Promise<Visit> => {
    const before = await postgres.transactions(database);
    const session = await peer.open({ folder, database });
    const from = await postgres.logPosition();
    const startedMs = performance.now();
    try {
      await work(session);
    } finally {
      await session.close();
    }
    const ms = performance.now() - startedMs;
    const bytes = (await postgres.logPosition()) - from;
    return { transactions: (await postgres.transactions(database)) - before, bytes, ms };
  };
  try {
    // The first visit creates the tables, and touches their pages for the first time.
    await visit((session) => atOnce(session, WARM_UP.steps, WARM_UP.runs));
    const nothing = await visit(async () => {});
    const idle = await visit(() => sleep(IDLE_MS));
    const rate = (of: "transactions" | "bytes") => Math.max(0, (idle[of] - nothing[of]) / (idle.ms - nothing.ms));
    const perRun: Cost[] = [];
    for (const steps of stepCounts) {
      const busy = await visit((session) => atOnce(session, steps, runs));
      const net = (of: "transactions" | "bytes") =>
        Math.max(0, busy[of] - nothing[of] - rate(of) * (busy.ms - nothing.ms)) / runs;
      perRun.push({ steps, transactions: net("transactions"), bytes: net("bytes") });
    }
    return { idle: { transactions: rate("transactions") * 1000, bytes: rate("bytes") * 1000 }, perRun };
  } finally {
    await postgres.drop(database);
  }
}
