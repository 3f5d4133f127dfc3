/**
 * Locks: those of Pawl compared with hand-written ones, in turns on one machine.
 *
 * - Redis: `SET NX PX` and a compare-and-delete in Lua, every write synced, pipelined (`redis.ts`)
 * - a lease row in PostgreSQL: a row for each lock, taken by an upsert where it is free or over, and freed by its holder
 * - an advisory lock of PostgreSQL: no lease, nothing written; it is held by a connection, and gone with it
 *
 * l1: 100 callers acquire and release a lock each, repeatedly.
 * l2: several processes want one lock, hold it for a moment, and do something else before they come back. Every hold is written down,
 *     and if two overlap, the benchmark ends with an error.
 * l3: one process holds the lock, another waits for it, and the first releases it: the time from that call to the moment when the other holds it, by
 *     the clock that all processes of a machine share.
 *
 * Redis and the lease row have to be polled: every 50 ms here, with some chance, which is more often than the usual libraries do.
 */

import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import pg from "pg";
import { atLeast, atMost, CALLERS, type Case } from "./comparisons.ts";
import type { Place } from "./ground.ts";
import type { PostgresGround } from "./ground-postgres.ts";
import { openOurs } from "./ours.ts";
import { findRedis, Redis, type RedisServer, redisLock, startRedis } from "./redis.ts";
import { type Measure, measureOf, median, type Result, resultOf, type Target } from "./result.ts";
import type { Setting } from "./rounds.ts";
import { collectGarbage } from "./usage.ts";

const CONTENDERS = {
  pawl: { name: "Pawl", open: openPawl },
  redis: { name: "Redis, polled", open: openRedis },
  lease: { name: "lease row, polled", open: openLease },
  advisory: { name: "advisory lock", open: openAdvisory },
} as const;

type Contender = keyof typeof CONTENDERS;

/** Acquires a lock. Returns the function that releases it. */
interface Locker {
  acquire(name: string): Promise<() => Promise<unknown>>;
  close(): Promise<unknown>;
}

const CONNECTIONS = 32;
const pollMs = (): number => 25 + 50 * Math.random();

async function openPawl(place: Place): Promise<Locker> {
  const { pawl } = await openOurs(place);
  return {
    acquire: async (name) => {
      const hold = await pawl.mutex(name).acquire();
      return async () => {
        if (!(await hold.release()).released) throw new Error("the lock was lost");
      };
    },
    close: () => pawl.close(),
  };
}

async function openRedis(place: Place): Promise<Locker> {
  const redis = await Redis.connect(place);
  return { acquire: (name) => redisLock(redis, name, pollMs), close: async () => redis.close() };
}

const TABLE = "create table if not exists lease (name text primary key, holder text, fence bigint, until timestamptz)";
const TAKE = `insert into lease as l values ($1, $2, 1, now() + interval '30 s')
  on conflict (name) do update set holder = excluded.holder, fence = l.fence + 1, until = excluded.until
  where l.holder is null or l.until < now() returning fence`;
const FREE = "update lease set holder = null where name = $1 and holder = $2";

async function openLease(place: Place): Promise<Locker> {
  const pool = await connect(place);
  // Two concurrent statements can conflict, in spite of "if not exists".
  await pool.query(TABLE).catch(() => pool.query(TABLE));
  let tokens = 0;
  return {
    acquire: async (name) => {
      const holder = `${process.pid}-${tokens++}`;
      const values = [name, holder];
      while ((await pool.query({ name: "take", text: TAKE, values })).rowCount === 0) await sleep(pollMs());
      return async () => {
        if ((await pool.query({ name: "free", text: FREE, values })).rowCount !== 1)
          throw new Error("the lock was lost");
      };
    },
    close: () => pool.end(),
  };
}

const LOCK = "select pg_advisory_lock(hashtextextended($1, 0))";
const UNLOCK = "select pg_advisory_unlock(hashtextextended($1, 0)) as ok";

async function openAdvisory(place: Place): Promise<Locker> {
  const pool = await connect(place);
  return {
    acquire: async (name) => {
      const client = await pool.connect();
      await client.query({ name: "lock", text: LOCK, values: [name] });
      return async () => {
        const { rows } = await client.query<{ ok: boolean }>({ name: "unlock", text: UNLOCK, values: [name] });
        client.release();
        if (rows[0]?.ok !== true) throw new Error("the lock was lost");
      };
    },
    close: () => pool.end(),
  };
}

async function connect(place: Place): Promise<pg.Pool> {
  const pool = new pg.Pool({ connectionString: place, max: CONNECTIONS, idleTimeoutMillis: 0 });
  // The database is dropped as soon as the round is over, which may be before the last goodbye.
  pool.on("error", () => {});
  return pool;
}

// ------------------------------------------------------------------------------------------------------------ rounds

/** All contenders in turns, each time with a fresh database. Returns the results of `play`, for each of them. */
async function inTurns<T>(
  setting: Setting,
  { contenders, rounds, redis }: Bout,
  play: (contender: Contender, place: Place) => Promise<T>,
): Promise<ReadonlyMap<Contender, readonly T[]>> {
  const played = new Map(contenders.map((contender): [Contender, T[]] => [contender, []]));
  const warmUps = setting.quick ? 0 : 1;
  for (let round = 0; round < setting.rounds(rounds) + warmUps; round++)
    for (const contender of contenders) {
      const place = contender === "redis" ? await emptied(redis) : await setting.ground.fresh();
      try {
        if (!setting.quick && contender !== "redis") await setting.ground.settle();
        collectGarbage();
        const done = await play(contender, place);
        if (round >= warmUps) played.get(contender)?.push(done);
      } finally {
        if (contender !== "redis") await setting.ground.remove(place);
      }
    }
  return played;
}

interface Bout {
  readonly contenders: readonly Contender[];
  readonly rounds: number;
  readonly redis: RedisServer | null;
}

/** Runs a bout with a Redis server of its own, or without one, which is noted in the report. */
async function withRedis<T>(
  setting: Setting,
  { contenders, rounds }: Pick<Bout, "contenders" | "rounds">,
  run: (bout: Bout) => Promise<T>,
): Promise<T> {
  const redis = findRedis() === null ? null : await startRedis(setting.folder);
  if (redis === null) setting.note("There is no redis-server here, so locks were not measured beside Redis.");
  try {
    return await run({ contenders: contenders.filter((one) => one !== "redis" || redis !== null), rounds, redis });
  } finally {
    await redis?.stop();
  }
}

async function emptied(server: RedisServer | null): Promise<Place> {
  if (server === null) throw new Error("there is no Redis");
  const redis = await Redis.connect(server.place);
  await redis.send("flushall");
  redis.close();
  return server.place;
}

/** Ours beside each of the others, with the same title and unit; the ids end in a letter for each. */
function besideAll(
  parts: Pick<Result, "id" | "title" | "unit">,
  measures: ReadonlyMap<Contender, Measure>,
  targets: Targets,
  more: Result["details"] = {},
): Result[] {
  const details = { ...Object.fromEntries([...measures.values()].map(({ name, median }) => [name, median])), ...more };
  const letters = { lease: "a", advisory: "b", redis: "c" } as const;
  const mine = measures.get("pawl");
  return (["lease", "advisory", "redis"] as const).flatMap((other) => {
    const base = measures.get(other);
    if (mine === undefined || base === undefined) return [];
    const id = `${parts.id}${letters[other]}`;
    return [resultOf({ ...parts, id, base, ours: mine, target: targets[other] ?? null, details })];
  });
}

type Targets = Partial<Record<Contender, Target>>;

function measuresOf(figures: ReadonlyMap<Contender, readonly number[]>): ReadonlyMap<Contender, Measure> {
  return new Map([...figures].map(([contender, rounds]) => [contender, measureOf(CONTENDERS[contender].name, rounds)]));
}

// ------------------------------------------------------------------------------------------------- without contention

function uncontended(contenders: readonly Contender[], fullTurns: number, targets: Targets): Case {
  const id = "l1";
  const title = "a lock each, 100 callers: acquire and release";
  const run = (setting: Setting) =>
    withRedis(setting, { contenders, rounds: 5 }, async (bout) => {
      const turns = setting.quick ? 10 : fullTurns;
      const rates = await inTurns(setting, bout, async (contender, place) => {
        const locker = await CONTENDERS[contender].open(place);
        await pairs(locker, Math.ceil(turns / 10));
        const startedMs = performance.now();
        await pairs(locker, turns);
        const ms = performance.now() - startedMs;
        await locker.close();
        return ((CALLERS * turns) / ms) * 1000;
      });
      return besideAll({ id, title, unit: "pairs/s" }, measuresOf(rates), targets);
    });
  return { id, title, run };
}

async function pairs(locker: Locker, turns: number): Promise<void> {
  const call = async (caller: number): Promise<void> => {
    for (let turn = 0; turn < turns; turn++) await (await locker.acquire(`lock-${caller}`))();
  };
  await Promise.all(Array.from({ length: CALLERS }, (_, caller) => call(caller)));
}

// --------------------------------------------------------------------------------------------------- under contention

const PROCESSES = 3;
const CALLERS_EACH = 3;
const HELD_MS = 1;
/** What a caller does besides takes up to this long. */
const ELSEWHERE_MS = 20;

/** When a caller got the lock, and when it began to release it, by the clock that all processes share. */
type Held = readonly [hadMs: number, releasedMs: number];

function contended(contenders: readonly Contender[]): Case {
  const id = "l2";
  const title = `one lock, ${PROCESSES} processes with ${CALLERS_EACH} callers each`;
  const run = (setting: Setting) =>
    withRedis(setting, { contenders, rounds: 3 }, async (bout) => {
      const ms = setting.quick ? 300 : 2000;
      const rounds = await inTurns(setting, bout, async (contender, place) => {
        const answers = await withProcesses(PROCESSES, { contender, place, ms }, (children) =>
          Promise.all(children.map((child) => child.ask<Held[][]>("contend"))),
        );
        return { rate: rateOf(answers.flat()), share: shareOf(answers.flat()) };
      });
      const rates = measuresOf(new Map([...rounds].map(([one, played]) => [one, played.map(({ rate }) => rate)])));
      const shares = [...rounds].map(([one, played]): [string, number] => [
        `${CONTENDERS[one].name}: the least share of a caller, of the largest`,
        median(played.map(({ share }) => share)),
      ]);
      return besideAll({ id, title, unit: "pairs/s" }, rates, {}, Object.fromEntries(shares));
    });
  return { id, title, run };
}

/** Pairs per second, from the first to the last. Throws if two callers held the lock at the same time. */
export function rateOf(callers: readonly (readonly Held[])[]): number {
  const all = callers.flat().toSorted(([a], [b]) => a - b);
  for (const [index, [hadMs]] of all.slice(1).entries()) {
    const overlapMs = (all[index]?.[1] ?? 0) - hadMs;
    if (overlapMs > 0) throw new Error(`two callers held the lock at the same time, for ${overlapMs.toFixed(3)} ms`);
  }
  return (all.length / ((all.at(-1)?.[1] ?? 0) - (all[0]?.[0] ?? 0))) * 1000;
}

/** The smallest number of holds of a caller, divided by the largest. */
function shareOf(callers: readonly (readonly Held[])[]): number {
  const counts = callers.map(({ length }) => length);
  return Math.min(...counts) / Math.max(...counts);
}

// ---------------------------------------------------------------------------------------------------------- hand-offs

/** The other waits for at least this long, and up to twice as long, before it is its turn. */
const WAITED_MS = 30;

function handOffs(contenders: readonly Contender[], targets: Targets): Case {
  const id = "l3";
  const title = "a lock given back to one who waits in another process";
  const run = (setting: Setting) =>
    withRedis(setting, { contenders, rounds: 3 }, async (bout) => {
      const count = setting.quick ? 4 : 40;
      const medians = await inTurns(setting, bout, (contender, place) =>
        // They contend for a while before, so that code that runs for the first time is not what is measured.
        withProcesses(2, { contender, place, ms: setting.quick ? 0 : 2000 }, async ([first, second]) => {
          if (first === undefined || second === undefined) throw new Error("two processes are needed");
          const latenciesMs: number[] = [];
          let [holder, waiter] = [first, second];
          await holder.ask("acquire");
          for (let i = 0; i < count; i++) {
            const had = waiter.ask<number>("acquire");
            await sleep(WAITED_MS * (1 + Math.random()));
            const releasedMs = await holder.ask<number>("release");
            latenciesMs.push((await had) - releasedMs);
            [holder, waiter] = [waiter, holder];
          }
          await holder.ask("release");
          if (Math.min(...latenciesMs) < 0) throw new Error("the lock was acquired before it was released");
          return median(latenciesMs);
        }),
      );
      return besideAll({ id, title, unit: "ms" }, measuresOf(medians), targets);
    });
  return { id, title, run };
}

// ----------------------------------------------------------------------------------------------------- other processes

interface Order {
  readonly contender: Contender;
  readonly place: Place;
  readonly ms: number;
}

/** One of the other processes: it executes one command at a time, and replies when that is done. */
interface Process {
  ask<T>(what: Wish): Promise<T>;
}

type Wish = "open" | "contend" | "acquire" | "release";

/** Lets other processes open the lock, and ends them afterwards. */
async function withProcesses<T>(
  count: number,
  order: Order,
  act: (children: readonly Process[]) => Promise<T>,
): Promise<T> {
  const file = fileURLToPath(import.meta.url);
  const children = Array.from({ length: count }, () => fork(file, { execArgv: process.execArgv }));
  const asking = (child: ChildProcess): Process => ({
    ask<A>(what: Wish) {
      const answer = answerOf<A>(child);
      child.send({ ...order, what });
      return answer;
    },
  });
  try {
    const processes = children.map(asking);
    await Promise.all(processes.map((one) => one.ask("open")));
    return await act(processes);
  } finally {
    await Promise.all(children.map(end));
  }
}

function answerOf<T>(child: ChildProcess): Promise<T> {
  return new Promise((resolve, reject) => {
    const onExit = (code: number | null) => reject(new Error(`a process that locks ended with ${code}`));
    child.once("exit", onExit);
    child.once("message", (answer: T) => {
      child.off("exit", onExit);
      resolve(answer);
    });
  });
}

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  if (child.connected) child.disconnect();
  await once(child, "exit");
}

/** The same for all processes of the machine, and never set. */
const sharedMs = (): number => Number(process.hrtime.bigint() / 1000n) / 1000;

/** What one of the other processes does. */
function obey(): void {
  let locker: Locker | undefined;
  let release: () => Promise<unknown> = async () => {};
  const had = async (): Promise<number> => {
    release = (await locker?.acquire("one")) ?? release;
    return sharedMs();
  };
  const released = async (): Promise<number> => {
    const ms = sharedMs();
    await release();
    return ms;
  };
  const call = async (untilMs: number): Promise<Held[]> => {
    const all: Held[] = [];
    while (locker !== undefined && sharedMs() < untilMs) {
      const giveBack = await locker.acquire("one");
      const hadMs = sharedMs();
      await sleep(HELD_MS);
      all.push([hadMs, sharedMs()]);
      await giveBack();
      await sleep(ELSEWHERE_MS * Math.random());
    }
    return all;
  };
  const contend = (ms: number) => Promise.all(Array.from({ length: CALLERS_EACH }, () => call(sharedMs() + ms)));
  const answer = async ({ contender, place, ms, what }: Order & { readonly what: Wish }): Promise<unknown> => {
    if (what === "acquire") return had();
    if (what === "release") return released();
    if (what === "contend") return contend(ms);
    locker = await CONTENDERS[contender].open(place);
    await contend(ms / 5);
    return 0;
  };
  process.on("message", (order: Order & { readonly what: Wish }) => {
    void answer(order).then((value) => process.send?.(value));
  });
  // The parent has its result, or is gone.
  process.once("disconnect", () => void locker?.close().finally(() => process.exit()));
}

if (import.meta.main) obey();

/** Compared with what is available without a PostgreSQL server. */
export const sqliteLockCases: readonly Case[] = [
  uncontended(["redis", "pawl"], 200, { redis: atLeast(1) }),
  contended(["redis", "pawl"]),
  handOffs(["redis", "pawl"], { redis: atMost(0.1) }),
];

export const postgresLockCases: readonly Case<PostgresGround>[] = [
  uncontended(["lease", "advisory", "redis", "pawl"], 60, { lease: atLeast(3) }),
  contended(["lease", "advisory", "redis", "pawl"]),
  handOffs(["lease", "advisory", "redis", "pawl"], { lease: atMost(0.1), redis: atMost(0.1) }),
];
