/**
 * What ten commits to one record, as the steps of a run make them, cost the server, counted instead of timed: transactions, and bytes of its
 * log. A busy machine
 * changes them little, so they can be compared between machines; autovacuum adds a transaction now and then.
 *
 * Method: a longer and a shorter series of runs are compared, so that the cost of opening and closing cancels out, and so do the pages
 * that the server logs whole when they are touched first after a checkpoint. Transactions are those of the database, counted by the
 * server when all connections are closed. Bytes of the log are from the first commit to the last; they are those of the whole server, so
 * it must have no other users meanwhile.
 */

import { setTimeout as sleep } from "node:timers/promises";
import type { Case } from "./comparisons.ts";
import type { Contender } from "./contender.ts";
import type { Place } from "./ground.ts";
import { nameOf, type PostgresGround } from "./ground-postgres.ts";
import { claimAll, ours, oursHeld } from "./ours.ts";
import { type Plan, steps } from "./plan.ts";
import { byHand, rawPostgres } from "./raw-postgres.ts";
import { measureOf, type Result, resultOf } from "./result.ts";

interface Cost {
  readonly transactions: number;
  readonly bytes: number;
}

interface Counted extends Cost {
  readonly name: string;
}

/** The number of concurrent callers, and the number of runs that each of them makes in the shorter series. */
const SERIES = [
  { id: "t1", callers: 1, runs: 20, title: "a run of ten steps, one at a time" },
  { id: "t2", callers: 100, runs: 5, title: "a run of ten steps, 100 at a time" },
] as const;

export const counts: Case<PostgresGround> = {
  id: "t",
  title: "transactions and log of a run of ten steps",
  async run({ ground, quick }) {
    const results: Result[] = [];
    for (const { id, callers, runs, title } of SERIES) {
      const counted: Counted[] = [];
      for (const contender of quick ? [rawPostgres, ours] : [rawPostgres, ours, oursHeld, byHand])
        counted.push({
          name: contender.name,
          ...(await costOfRun(ground, contender, callers, quick ? quickRuns(callers) : runs)),
        });
      results.push(
        told(`${id}a`, `${title}: transactions`, "transactions", counted),
        told(`${id}b`, `${title}: log of the server`, "bytes", counted),
      );
    }
    return results;
  },
};

function told(id: string, title: string, unit: keyof Cost, counted: readonly Counted[]): Result {
  const [base, mine] = counted.map((cost) => measureOf(cost.name, [cost[unit]]));
  if (base === undefined || mine === undefined) throw new Error("nothing was counted");
  const details = Object.fromEntries(counted.map((cost) => [cost.name, cost[unit]]));
  return resultOf({ id, title, unit, base, ours: mine, target: null, details });
}

/** Enough that what the server does by itself does not outweigh them. */
const quickRuns = (callers: number): number => Math.ceil(20 / callers);

/** What one run costs, by the difference of two series. */
async function costOfRun(ground: PostgresGround, contender: Contender, callers: number, runs: number): Promise<Cost> {
  const claimed = contender === oursHeld;
  const series = (count: number) => steps({ callers, turns: count * 10, claimed });
  const short = await costOf(ground, contender, series(runs));
  const long = await costOf(ground, contender, series(2 * runs));
  return {
    transactions: (long.transactions - short.transactions) / (runs * callers),
    bytes: (long.bytes - short.bytes) / (runs * callers),
  };
}

async function costOf(ground: PostgresGround, contender: Contender, plan: Plan): Promise<Cost> {
  const place = await ground.fresh();
  try {
    // All records are made and claimed beforehand, which must not count.
    const before = plan.claimed ? await claimed(ground, place, plan) : 0;
    const session = await contender.open(place);
    await ground.settle();
    const from = await logPosition(ground);
    const bytes = await session
      .run(plan)
      .then(async () => (await logPosition(ground)) - from)
      .finally(() => session.close());
    return { transactions: (await transactionsOf(ground, place)) - before, bytes };
  } finally {
    await ground.remove(place);
  }
}

async function claimed(ground: PostgresGround, place: Place, plan: Plan): Promise<number> {
  await claimAll(place, plan);
  return transactionsOf(ground, place);
}

async function logPosition(ground: PostgresGround): Promise<number> {
  const [row] = await ground.ask("select pg_current_wal_insert_lsn() - '0/0' as bytes");
  return Number(row?.["bytes"]);
}

/** Each server process adds what it counted when it ends, so all of them must have ended. */
async function transactionsOf(ground: PostgresGround, place: Place): Promise<number> {
  const name = nameOf(place);
  const there = `select count(*)::int as there from pg_stat_activity
    where datname = '${name}' and backend_type = 'client backend'`;
  for (let tries = 0; ; tries++) {
    const [row] = await ground.ask(there);
    if (row?.["there"] === 0) break;
    if (tries > 200) throw new Error("a connection to the database was not closed");
    await sleep(25);
  }
  const [row] = await ground.ask(`select xact_commit::int as count from pg_stat_database where datname = '${name}'`);
  return Number(row?.["count"]);
}
