/**
 * `npm run bench:peers -- queues`: a queue with a concurrency limit, and cron, in Pawl and in pg-boss, on one PostgreSQL server, in turns.
 *
 *   npm run bench:peers -- queues              about four minutes: each waits for the next minute
 *   npm run bench:peers -- queues --quick      the limit only, in some seconds
 *
 * limit: jobs of which one may run at a time are there before the worker. Each takes up to `WORK_MS`. From the end of one to the beginning of the next: the median and the longest of
 * all. Two that overlap end the comparison with an error.
 * cron: how much later than the minute the job of `* * * * *` begins.
 *
 * Both work in the process that starts the jobs, with their default settings. pg-boss polls: at least each half second, as it is set here, where its default is two; and its
 * schedules are looked at every 30 s by default, which is left as it is.
 */

import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { PgBoss } from "pg-boss";
import { open, workflow } from "../../src/index.ts";
import { median } from "../result.ts";
import { openPostgres } from "./postgres.ts";

interface QueuePeer {
  readonly name: string;
  /** Starts this many jobs, of which one runs at a time, and then works on them. Resolves when all of them have run. */
  limit(database: string, jobs: number, work: () => Promise<void>): Promise<void>;
  /** Runs a job each minute until it is closed. */
  cron(database: string, begun: () => void): Promise<{ close(): Promise<void> }>;
}

const WORK_MS = 10;
const JOBS = { quick: 15, full: 60 } as const;
const CRON_WITHIN_MS = 150_000;

const pawl: QueuePeer = {
  name: "Pawl",
  async limit(database, jobs, work) {
    await using handle = await open(database);
    const job = workflow({ name: "job", concurrency: { max: 1 } }, (ctx) => ctx.step("work", work));
    const runs = [];
    for (let count = 0; count < jobs; count++) runs.push(await handle.start(job));
    handle.work([job]);
    await Promise.all(runs.map((run) => run.result()));
  },
  async cron(database, begun) {
    const handle = await open(database);
    const job = workflow("job", async (ctx) => {
      await ctx.step("begin", begun);
    });
    handle.work([job]);
    await handle.schedules.create("minutely", { cron: "* * * * *" }, job);
    return handle;
  },
};

const pgBoss: QueuePeer = {
  name: "pg-boss",
  async limit(database, jobs, work) {
    const boss = await openBoss(database);
    await boss.createQueue("job", { policy: "singleton" });
    for (let count = 0; count < jobs; count++) await boss.send("job", {});
    const done = Promise.withResolvers<void>();
    let left = jobs;
    await boss.work("job", { pollingIntervalSeconds: 0.5 }, async () => {
      await work();
      left -= 1;
      if (left === 0) done.resolve();
    });
    await done.promise;
    await boss.stop({ graceful: false });
  },
  async cron(database, begun) {
    const boss = await openBoss(database);
    await boss.createQueue("job");
    await boss.work("job", { pollingIntervalSeconds: 0.5 }, async () => begun());
    await boss.schedule("job", "* * * * *");
    return { close: () => boss.stop({ graceful: false }) };
  },
};

async function openBoss(database: string): Promise<PgBoss> {
  const boss = new PgBoss(database);
  boss.on("error", (error) => console.error(String(error)));
  await boss.start();
  return boss;
}

const { values } = parseArgs({
  args: process.argv.slice(3),
  options: { quick: { type: "boolean", default: false } },
});

const postgres = await openPostgres();
try {
  console.log(`${postgres.server}, Node ${process.versions.node}\n`);
  console.log("| | from the end of a job to the next, median | longest | cron: after the minute |\n|---|---|---|---|");
  for (const peer of [pawl, pgBoss]) {
    const gaps = await onDatabase((database) => gapsOf(peer, database));
    const late = values.quick
      ? "not measured"
      : `${(await onDatabase((database) => latenessOf(peer, database))).toFixed(0)} ms`;
    console.log(`| ${peer.name} | ${median(gaps).toFixed(1)} ms | ${Math.max(...gaps).toFixed(1)} ms | ${late} |`);
  }
} finally {
  await postgres.close();
}

async function onDatabase<T>(use: (database: string) => Promise<T>): Promise<T> {
  const database = await postgres.create();
  try {
    return await use(database);
  } finally {
    await postgres.drop(database);
  }
}

async function gapsOf(peer: QueuePeer, database: string): Promise<readonly number[]> {
  const gaps: number[] = [];
  let endedMs: number | undefined;
  let working = 0;
  await peer.limit(database, values.quick ? JOBS.quick : JOBS.full, async () => {
    if (endedMs !== undefined) gaps.push(performance.now() - endedMs);
    working += 1;
    if (working > 1) throw new Error(`${peer.name} ran two jobs together`);
    await sleep(Math.random() * WORK_MS);
    working -= 1;
    endedMs = performance.now();
  });
  return gaps;
}

async function latenessOf(peer: QueuePeer, database: string): Promise<number> {
  const begun = Promise.withResolvers<number>();
  const minuteOf = (ms: number): number => Math.floor(ms / 60_000);
  const from = minuteOf(Date.now());
  // Jobs of the minute in which the schedule was created may be made up for: they do not count.
  const opened = await peer.cron(database, () => {
    if (minuteOf(Date.now()) > from) begun.resolve(Date.now());
  });
  try {
    const atMs = await Promise.race([begun.promise, sleep(CRON_WITHIN_MS)]);
    if (atMs === undefined) throw new Error(`${peer.name} began no job within ${CRON_WITHIN_MS} ms`);
    return atMs % 60_000;
  } finally {
    await opened.close();
  }
}
