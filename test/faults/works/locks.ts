/**
 * Locks: a few mutexes, two of them also acquired together, and a semaphore, used by plain code and by runs all the time.
 *
 * The holder of a mutex uses a table of the user's own under its fence: the transaction raises the fence of that resource, or is refused
 * because a higher one was there. Some hold it for longer than a lease; some continue after they learned that the lock is lost, so that
 * only the table protects its rows. Runs do the same in a plain step, which an old worker may repeat, and in one whose record is in the
 * transaction. Every grant, use and release is a line in the ledger.
 *
 * Checked: in the table no older fence comes after a newer one, acknowledged uses are there once, and refused ones are not (G1, G2, G6); no
 * fence is assigned twice, and a later request gets a higher one (G7); a lock is not granted while others hold a lease on it, by the
 * database's clock, and no other holds a mutex between two uses of a run that holds it (G8); what has ended holds nothing (G30). The run
 * checks that all runs have ended and no plain code is left in any lock soon after the last fault (G25).
 */

import {
  type Context,
  checkFence,
  FENCES_TABLE,
  type Hold,
  type Lock,
  PawlError,
  StaleFenceError,
  StoreError,
  type Workflow,
  workflow,
} from "../../../src/index.ts";
import type { Sql } from "../../../src/kernel/contract.ts";
import type { Pawl } from "../../../src/pawl.ts";
import { ENDED, type RunStatus } from "../../../src/workflow/stored.ts";
import type { Bench } from "../bench.ts";
import type { Operation } from "../ledger.ts";
import { LEASE_MS } from "./claims.ts";
import { hasRoom, OPEN } from "./room.ts";
import { type Evidence, overlaps, type Work } from "./work.ts";

const NAME = "locks";
const WORKFLOW = "keeper";
const HANDS = 6;
const CLIENTS = 2;
const MAX_PAUSE_MS = 60;
/** So many runs at once, and no more: the line must not be longer than can be worked off when faults are over. */
const MOST_RUNS = 5;
const RETRY = { attempts: 1000, delay: 10, maxDelay: 300 } as const;
const ROLLED_BACK = "rolled back";
const GIVEN_UP = "given up";
const USES = "fault_uses";
const VAULT = "fault_vault";

/** By name: the locks that are acquired together. */
const SINGLE = ["a", "b", "c", "d", "e", "f", "g", "h"];
const MUTEXES: Readonly<Record<string, readonly string[]>> = {
  ...Object.fromEntries(SINGLE.map((name) => [name, [name]])),
  "a+b": ["a", "b"],
};
const ROOM = "room";
const PERMITS = 2;

const lockOf = (pawl: Pawl, name: string): Lock =>
  name === ROOM
    ? pawl.semaphore(ROOM, { permits: PERMITS, lease: LEASE_MS })
    : pawl.mutex(MUTEXES[name] ?? [], { lease: LEASE_MS });

/** All locks that there are, one by one. */
const single = (pawl: Pawl): readonly Lock[] => [...SINGLE, ROOM].map((name) => lockOf(pawl, name));

/** The locks behind a name. */
const partsOf = (name: string): readonly string[] => MUTEXES[name] ?? [name];

export interface Job {
  readonly lock: string;
  readonly napMs: number;
}

export type Wish =
  | { readonly verb: "acquire"; readonly lock: string; readonly waitMs: number }
  | { readonly verb: "use"; readonly lock: string; readonly fence: number; readonly mark: string }
  | { readonly verb: "release"; readonly lock: string; readonly ticket: string; readonly fence: number }
  | { readonly verb: "start"; readonly run: string; readonly job: Job }
  | { readonly verb: "cancel"; readonly run: string };

/** A grant as its holder heard of it, with its lease by the database's clock if it was still there to be looked at. */
export interface LockGrant {
  readonly ticket: string;
  readonly fence: number;
  readonly sinceMs: number | null;
  readonly untilMs: number | null;
}

/** The result: losing a race, or a lock, is a result here. */
export type LockResult =
  | LockGrant
  | { readonly used: true }
  | { readonly released: boolean }
  | { readonly refused: string };

/** A run uses a lock; `mark` is what it writes. */
export interface RunUse {
  readonly run: string;
  readonly lock: string;
  readonly fence: number;
  readonly mark: string;
}

export const locks: Work = {
  name: NAME,

  async prepare(pawl) {
    await pawl.transact.sql(async (sql) => {
      await sql.query(FENCES_TABLE);
      // Without a unique key, so that a row that is there twice shows.
      await sql.query(`create table ${USES} (lock text, n bigint, fence bigint, mark text)`);
      await sql.query(`create table ${VAULT} (lock text primary key, uses bigint not null)`);
      for (const name of SINGLE) await sql.query(`insert into ${VAULT} (lock, uses) values ('${name}', 0)`);
    });
  },

  async act(bench) {
    const hands = Array.from({ length: HANDS }, () => hand(bench));
    const keeper = keeperOf(bench);
    const clients = Array.from({ length: CLIENTS }, () => client(bench, keeper));
    await Promise.all([...hands, ...clients, work(bench, keeper), helpParked(bench, keeper)]);
  },

  again({ input }) {
    const wish = input as Wish;
    return wish.verb === "start" || wish.verb === "cancel" ? { id: `${wish.verb} ${wish.run}`, task: wish } : null;
  },

  isCommit({ answer, output }) {
    const heard = output as LockResult;
    return answer === "yes" && !("refused" in heard) && !("released" in heard && !heard.released);
  },

  // Three leases, and the slow poll that makes up for a lost wake-up.
  healsWithinMs: 12_000,

  async isHealed(pawl) {
    for (const lock of single(pawl)) {
      const { holders, waiters } = await lock.inspect();
      // The holds of runs have no leases.
      if ([...holders, ...waiters].some(({ until }) => until !== null && until.getTime() > Date.now())) return false;
    }
    return (await pawl.runs.list({ workflow: WORKFLOW, status: OPEN, limit: 1 })).runs.length === 0;
  },

  async judge(pawl, evidence) {
    const state = await look(pawl);
    const unknown = evidence.operations.filter(
      ({ answer, input }) => answer === "unknown" && (input as Wish).verb === "use",
    );
    const marks = new Set(state.rows.map(({ mark }) => mark));
    const happened = unknown.filter(({ input }) => marks.has((input as { mark: string }).mark)).length;
    return { wrong: checkLockUses(evidence, state), unknown: unknown.length, happened };
  },
};

// ------------------------------------------------------------------------------------------------- plain code

/** Takes one lock after another. */
async function hand(bench: Bench): Promise<void> {
  const { random } = bench;
  while (!bench.isOver) {
    if (bench.isHealing) await bench.sleep(20);
    else await holdOnce(bench, random.pick([...Object.keys(MUTEXES), ROOM, ROOM, ROOM]));
    await bench.sleep(random.unit() * MAX_PAUSE_MS);
  }
}

async function holdOnce(bench: Bench, lock: string): Promise<void> {
  const { random } = bench;
  const handle = lockOf(bench.pawl, lock);
  let hold: Hold | undefined;
  const wish: Wish = { verb: "acquire", lock, waitMs: 500 + random.below(5_000) };
  await attempt(bench, wish, async () => {
    hold = await acquire(bench, handle, wish.waitMs);
    if (hold === undefined) return { refused: GIVEN_UP };
    return { ticket: hold.ticket, fence: hold.fence, ...(await leaseOf(handle, hold)) };
  });
  if (hold === undefined) return;
  const { ticket, fence, abortSignal } = hold;
  abortSignal.addEventListener("abort", () => bench.note(NAME, "lock lost", { lock, ticket, fence }));
  const isStubborn = random.chance(0.7);
  for (let uses = random.below(4); uses > 0 && (isStubborn || !abortSignal.aborted); uses--) {
    if (lock !== ROOM) {
      const mark = bench.mark();
      await attempt(bench, { verb: "use", lock, fence, mark }, () => useOnce(bench.pawl, lock, fence, mark));
    }
    if (!bench.isHealing) await bench.sleep(random.unit() * (random.chance(0.1) ? 1.5 * LEASE_MS : 80));
  }
  const held = hold;
  await attempt(bench, { verb: "release", lock, ticket, fence }, () => held.release());
}

/** Waits for the lock, until faults are over: then no new work begins. */
async function acquire(bench: Bench, handle: Lock, timeout: number): Promise<Hold | undefined> {
  const over = new AbortController();
  const watching = setInterval(() => bench.isHealing && over.abort(), 20);
  try {
    return await handle.acquire({ by: bench.life, timeout, abortSignal: over.signal });
  } catch (error) {
    if (error !== over.signal.reason) throw error;
    return undefined;
  } finally {
    clearInterval(watching);
  }
}

/** When the hold was granted and until when it holds, as the database has it; nulls if it is gone, or cannot be had. */
async function leaseOf(handle: Lock, { ticket }: Hold): Promise<Pick<LockGrant, "sinceMs" | "untilMs">> {
  try {
    const mine = (await handle.inspect()).holders.find((holder) => holder.ticket === ticket);
    return { sinceMs: mine?.since.getTime() ?? null, untilMs: mine?.until?.getTime() ?? null };
  } catch (error) {
    if (!(error instanceof StoreError)) throw error;
    return { sinceMs: null, untilMs: null };
  }
}

const attempt = (bench: Bench, wish: Wish, act: () => Promise<LockResult>) =>
  bench.attempt(NAME, wish, async (): Promise<LockResult> => {
    try {
      return await act();
    } catch (error) {
      if (error instanceof StoreError || !(error instanceof PawlError)) throw error;
      return { refused: error.code };
    }
  });

/** What the database says to a statement of ours ends its transaction, and nothing of it is there. */
async function useOnce(pawl: Pawl, lock: string, fence: number, mark: string): Promise<LockResult> {
  let failed: unknown;
  try {
    await pawl.transact.sql((sql) =>
      useIn(sql, lock, fence, mark).catch((error: unknown) => {
        failed = error;
        throw error;
      }),
    );
    return { used: true };
  } catch (error) {
    if (error !== failed || error instanceof PawlError) throw error;
    return { refused: ROLLED_BACK };
  }
}

/** Uses what the mutexes protect, under their fence. Values as they are, because the databases mark their places differently. */
async function useIn(sql: Sql, lock: string, fence: number, mark: string): Promise<void> {
  for (const part of partsOf(lock)) {
    await checkFence(sql, part, fence);
    await sql.query(`update ${VAULT} set uses = uses + 1 where lock = '${part}'`);
    await sql.query(
      `insert into ${USES} (lock, n, fence, mark) select lock, uses, ${fence}, '${mark}' from ${VAULT} where lock = '${part}'`,
    );
  }
}

// ------------------------------------------------------------------------------------------------- runs

type Keeper = Workflow<Job, string>;

const keeperOf = (bench: Bench): Keeper =>
  workflow(WORKFLOW, (ctx: Context, { lock, napMs }: Job) => {
    const use = async (fence: number, act: (mark: string) => Promise<void>): Promise<void> => {
      const mark = bench.mark();
      bench.note(NAME, "run uses", { run: ctx.runId, lock, fence, mark } satisfies RunUse);
      try {
        await act(mark);
      } catch (error) {
        if (error instanceof StaleFenceError) bench.note(NAME, "run refused", { run: ctx.runId, lock, fence });
        throw error;
      }
    };
    return ctx.mutex(partsOf(lock)).with(async (hold) => {
      await ctx.step(
        "first",
        () => use(hold.fence, (mark) => bench.pawl.transact.sql((sql) => useIn(sql, lock, hold.fence, mark))),
        { retry: RETRY },
      );
      await ctx.sleep(napMs);
      await ctx.step.tx("second", (sql) => use(hold.fence, (mark) => useIn(sql, lock, hold.fence, mark)), {
        retry: RETRY,
      });
      return "done";
    });
  });

/** Takes part in the work; now and then it stops in good order, and another begins. */
async function work(bench: Bench, keeper: Keeper): Promise<void> {
  const { pawl, random } = bench;
  while (!bench.isOver) {
    const worker = pawl.work([keeper], {
      lease: LEASE_MS,
      warm: random.chance(0.3) ? 0 : 100,
      on: ({ type, run, error }) => {
        if (type === "run.trouble" && !(error instanceof StoreError))
          bench.note(NAME, "trouble", { run, error: String(error) });
      },
    });
    const turns = 20 + random.below(200);
    for (let turn = 0; !bench.isOver && (turn < turns || bench.isHealing); turn++) await bench.sleep(50);
    await worker.stop(random.chance(0.5) ? { timeout: 100 } : undefined);
  }
}

/** Starts runs, and cancels some. */
async function client(bench: Bench, keeper: Keeper): Promise<void> {
  const { pawl, random } = bench;
  const start = (run: string, job: Job) =>
    attempt(bench, { verb: "start", run, job }, async () => {
      await pawl.start(keeper, job, { id: run });
      return { used: true };
    });
  const cancel = (run: string) =>
    attempt(bench, { verb: "cancel", run }, async () => {
      await pawl.run(keeper, run).cancel();
      return { used: true };
    });
  const room = hasRoom(bench, keeper.name, MOST_RUNS);
  while (!bench.isOver) {
    const task = bench.take(NAME) as Wish | undefined;
    if (task?.verb === "start") await start(task.run, task.job);
    else if (task?.verb === "cancel") await cancel(task.run);
    else if (!bench.isHealing && (await room())) {
      const run = `keeper-${bench.mark()}`;
      const job = { lock: random.pick(Object.keys(MUTEXES)), napMs: random.below(100) };
      const { is } = await start(run, job);
      if (is === "yes" && random.chance(0.15)) {
        await bench.sleep(random.unit() * 200);
        await cancel(run);
      }
    }
    await bench.sleep(random.unit() * MAX_PAUSE_MS);
  }
}

/** A run on which workers died again and again is let go on: it keeps what it holds until somebody does that. */
async function helpParked(bench: Bench, keeper: Keeper): Promise<void> {
  const { pawl } = bench;
  for (; !bench.isOver; await bench.sleep(1_000)) {
    try {
      const { runs } = await pawl.runs.list({ status: "parked", workflow: keeper.name });
      for (const { id } of runs) await pawl.run(keeper, id).retry();
    } catch {
      // Another was faster, or the next turn tries again.
    }
  }
}

// ------------------------------------------------------------------------------------------------- the judgement

/** One use of a mutex, as the table has it. */
export interface Row {
  readonly lock: string;
  readonly n: number;
  readonly fence: number;
  readonly mark: string;
}

export interface LocksState {
  readonly rows: readonly Row[];
  /** For each mutex, how often it was used, and its highest fence, as the user's tables have them. */
  readonly vault: ReadonlyMap<string, { readonly uses: number; readonly fence: number }>;
  /** Who holds or waits in the end. */
  readonly left: readonly { readonly lock: string; readonly run: string | null; readonly waiting: number }[];
  readonly runs: ReadonlyMap<string, RunStatus>;
  /** What those threw that failed, with their histories. */
  readonly failures?: ReadonlyMap<string, string>;
}

async function look(pawl: Pawl): Promise<LocksState> {
  const [rows, vault] = await pawl.transact.sql(async (sql) => [
    (await sql.query<Row>(`select lock, n, fence, mark from ${USES}`)).rows,
    (
      await sql.query<{ lock: string; uses: number; fence: number | null }>(
        `select lock, uses, fence from ${VAULT} left join pawl_fences on resource = lock`,
      )
    ).rows,
  ]);
  const left: LocksState["left"][number][] = [];
  for (const lock of single(pawl)) {
    const { name, holders, waiting } = await lock.inspect();
    for (const { run, until } of holders)
      if (until === null || until.getTime() > Date.now()) left.push({ lock: name, run, waiting });
    if (waiting > 0 && holders.length === 0) left.push({ lock: name, run: null, waiting });
  }
  const runs = new Map<string, RunStatus>();
  const failures = new Map<string, string>();
  for (let after: string | null = null; ; ) {
    const page = await pawl.runs.list({ workflow: WORKFLOW, order: "id", after, limit: 1000 });
    for (const { id, status, error } of page.runs) {
      runs.set(id, status);
      if (status !== "failed") continue;
      const names = (await pawl.run(WORKFLOW, id).history()).map(({ name, data }) => `${name} ${JSON.stringify(data)}`);
      failures.set(id, `${error}, after ${names.join(", ")}`);
    }
    if (page.next === null) break;
    after = page.next;
  }
  return {
    // PostgreSQL gives large numbers as text.
    rows: rows.map((row) => ({ ...row, n: Number(row.n), fence: Number(row.fence) })),
    vault: new Map(vault.map(({ lock, uses, fence }) => [lock, { uses: Number(uses), fence: Number(fence ?? 0) }])),
    left,
    runs,
    failures,
  };
}

/** Holds what workers said against the tables and locks as they are in the end. */
export function checkLockUses(evidence: Evidence, state: LocksState): string[] {
  const asked = evidence.operations.map((operation) => ({ ...operation, wish: operation.input as Wish }));
  const uses = evidence.notes
    .filter(({ what }) => what === "run uses")
    .map(({ data, at, life }) => ({ ...(data as RunUse), at, life }));
  const grants = [...plainGrants(asked, evidence), ...runGrants(uses, evidence)];
  return [
    ...checkTable(state),
    ...checkUses(asked, uses, state),
    ...checkFences(grants),
    ...checkLeases(asked, grants),
    ...checkRunHolds(grants),
    ...checkEnds(asked, evidence, state),
  ];
}

type Asked = Operation & { readonly wish: Wish };
type Used = RunUse & { readonly at: number; readonly life: string };

/** A lock that somebody had: when it asked, if that is known, and when it had it in hand, by the ledger's clock. */
interface Grant extends Omit<LockGrant, "ticket"> {
  readonly lock: string;
  readonly who: string;
  readonly isRun: boolean;
  readonly askedAt: number | null;
  readonly heardAt: number;
}

/** What was read while the primary showed commits that were lost afterwards is no grant for certain. */
function plainGrants(asked: readonly Asked[], { doubts }: Evidence): Grant[] {
  return asked.flatMap(({ wish, answer, output, startedAt, endedAt }) => {
    if (wish.verb !== "acquire" || answer !== "yes" || "refused" in (output as LockResult)) return [];
    const heardAt = endedAt ?? startedAt;
    if (overlaps(doubts, startedAt, heardAt)) return [];
    const { ticket, ...granted } = output as LockGrant;
    return partsOf(wish.lock).map((lock) => ({
      ...granted,
      lock,
      who: ticket,
      isRun: false,
      askedAt: startedAt,
      heardAt,
    }));
  });
}

/** A run is known to have had a lock when it used it. */
function runGrants(uses: readonly Used[], { doubts }: Evidence): Grant[] {
  const grants = new Map<string, Grant>();
  for (const { run, lock: name, fence, at } of uses) {
    if (overlaps(doubts, at, at)) continue;
    for (const lock of partsOf(name)) {
      const key = `${lock} ${fence} ${run}`;
      const heardAt = Math.min(at, grants.get(key)?.heardAt ?? at);
      grants.set(key, { lock, fence, who: run, isRun: true, askedAt: null, heardAt, sinceMs: null, untilMs: null });
    }
  }
  return [...grants.values()];
}

/** No older fence after a newer one, no gap, nothing twice; and what the tables say at a glance is what their rows say. */
function checkTable({ rows, vault }: LocksState): string[] {
  const wrong: string[] = [];
  const byLock = Map.groupBy(rows, ({ lock }) => lock);
  for (const [lock, { uses, fence }] of vault) {
    const all = (byLock.get(lock) ?? []).toSorted((a, b) => a.n - b.n);
    const marks = new Set<string>();
    let highest = 0;
    for (const [i, row] of all.entries()) {
      if (row.n !== i + 1) wrong.push(`${lock} has use ${row.n} where ${i + 1} belongs`);
      if (marks.has(row.mark)) wrong.push(`${row.mark} is there twice in ${lock}`);
      marks.add(row.mark);
      if (row.fence < highest) wrong.push(`${lock} was used under fence ${row.fence}, after fence ${highest}`);
      highest = Math.max(highest, row.fence);
    }
    if (uses !== all.length) wrong.push(`${lock} counts ${uses} uses, and has ${all.length}`);
    if (fence !== highest) wrong.push(`${lock} has seen fence ${fence}, and its rows ${highest}`);
  }
  return wrong;
}

/** What was acknowledged is there, in all that was locked; what was refused is nowhere, and with reason. */
function checkUses(asked: readonly Asked[], uses: readonly Used[], { rows }: LocksState): string[] {
  const wrong: string[] = [];
  const byMark = Map.groupBy(rows, ({ mark }) => mark);
  const known = new Set(uses.map(({ mark }) => mark));
  const all = [
    ...uses.map((use) => ({ ...use, answer: "unknown", output: undefined })),
    ...asked.flatMap(({ wish, answer, output, life }) =>
      wish.verb === "use" ? [{ ...wish, answer, output, life }] : [],
    ),
  ];
  for (const { lock, fence, mark, answer, output, life } of all) {
    known.add(mark);
    const found = byMark.get(mark) ?? [];
    const refused =
      answer === "yes" && "refused" in (output as LockResult) ? (output as { refused: string }).refused : null;
    if (found.length > 0 && found.length < partsOf(lock).length) wrong.push(`${mark} is in one of ${lock} only`);
    if (found.some((row) => row.fence !== fence)) wrong.push(`${mark} is there with another fence than ${fence}`);
    if (answer === "yes" && refused === null && found.length === 0)
      wrong.push(`${mark} was acknowledged to ${life} and is lost`);
    if ((answer === "no" || refused !== null) && found.length > 0)
      wrong.push(`${mark} was refused (${refused ?? answer}) and is there`);
    if (refused === "stale_fence" && !rows.some((row) => partsOf(lock).includes(row.lock) && row.fence > fence))
      wrong.push(`${mark} was refused under fence ${fence} of ${lock}, and there is no higher one`);
    if (refused !== null && refused !== "stale_fence" && refused !== ROLLED_BACK)
      wrong.push(`${mark} was refused with ${refused}`);
  }
  for (const mark of byMark.keys()) if (!known.has(mark)) wrong.push(`${mark} exists, and no worker requested it`);
  return wrong;
}

/** No fence is given out twice, and who asked after another had it gets a higher one. */
function checkFences(grants: readonly Grant[]): string[] {
  const wrong: string[] = [];
  for (const [lock, all] of Map.groupBy(grants, (grant) => grant.lock)) {
    const byFence = all.toSorted((a, b) => a.fence - b.fence);
    for (const [i, { fence, who }] of byFence.entries()) {
      const next = byFence[i + 1];
      if (next?.fence === fence) wrong.push(`fence ${fence} of ${lock} was given to ${who} and to ${next.who}`);
    }
    // Of all that have a higher fence, the one that was had first.
    let earliest: Grant | undefined;
    for (const grant of byFence.toReversed()) {
      if (grant.askedAt !== null && earliest !== undefined && grant.askedAt > earliest.heardAt)
        wrong.push(
          `${grant.who} asked for ${lock} after ${earliest.who} had fence ${earliest.fence}, and got ${grant.fence}`,
        );
      if (earliest === undefined || grant.heardAt < earliest.heardAt) earliest = grant;
    }
  }
  return wrong;
}

/** Nobody is granted what as many others as may have a lease on, by the database's clock, and have not begun to give back. */
function checkLeases(asked: readonly Asked[], grants: readonly Grant[]): string[] {
  const wrong: string[] = [];
  const releasedAt = new Map<string, number>();
  for (const { wish, startedAt } of asked)
    if (wish.verb === "release")
      releasedAt.set(wish.ticket, Math.min(startedAt, releasedAt.get(wish.ticket) ?? startedAt));
  for (const [lock, all] of Map.groupBy(grants, (grant) => grant.lock)) {
    const permits = lock === ROOM ? PERMITS : 1;
    const byFence = all.toSorted((a, b) => a.fence - b.fence);
    for (const [i, { who, fence, sinceMs, heardAt }] of byFence.entries()) {
      if (sinceMs === null) continue;
      const holding = byFence
        .slice(0, i)
        .filter(
          (other) =>
            other.untilMs !== null &&
            other.untilMs > sinceMs &&
            (releasedAt.get(other.who) ?? Number.POSITIVE_INFINITY) > heardAt,
        );
      if (holding.length >= permits)
        wrong.push(
          `${who} was granted ${lock} under fence ${fence}, while it was held by ${holding.map((one) => one.who).join(", ")}`,
        );
    }
  }
  return wrong;
}

/** A run has its mutex without a break, from its first use to its last. */
function checkRunHolds(grants: readonly Grant[]): string[] {
  const wrong: string[] = [];
  for (const [lock, all] of Map.groupBy(grants, (grant) => grant.lock))
    for (const [run, own] of Map.groupBy(
      all.filter(({ isRun }) => isRun),
      ({ who }) => who,
    )) {
      const fences = own.map(({ fence }) => fence);
      const [first, last] = [Math.min(...fences), Math.max(...fences)];
      for (const { who, fence } of all)
        if (who !== run && fence > first && fence < last)
          wrong.push(`${who} had ${lock} under fence ${fence}, and run ${run} held it from ${first} to ${last}`);
    }
  return wrong;
}

/** All runs ended, and as canceled only if somebody wanted that; what was started is there; nobody holds anything. */
function checkEnds(asked: readonly Asked[], { doubts }: Evidence, state: LocksState): string[] {
  const { left, runs, failures = new Map<string, string>() } = state;
  const wrong: string[] = [];
  const canceled = new Set<string>();
  for (const { wish, answer, startedAt, endedAt } of asked) {
    if (wish.verb === "cancel") canceled.add(wish.run);
    const isSure = answer === "yes" && !overlaps(doubts, startedAt, endedAt ?? startedAt);
    if (wish.verb === "start" && isSure && !runs.has(wish.run))
      wrong.push(`the start of ${wish.run} was acknowledged, and it is lost`);
  }
  for (const [run, status] of runs)
    if (status !== "completed" && !(status === "canceled" && canceled.has(run)))
      wrong.push(`${run} is ${status} in the end${failures.has(run) ? `: ${failures.get(run)}` : ""}`);
  for (const { lock, run, waiting } of left) {
    const status = run === null ? undefined : runs.get(run);
    if (status !== undefined && ENDED.has(status)) wrong.push(`run ${run} is ${status}, and still holds ${lock}`);
    else wrong.push(`in the end ${lock} is held by ${run ?? "somebody"}, and ${waiting} wait`);
  }
  return wrong;
}
