/**
 * Requests: each adds its name to two lists, once, under an idempotency key, although it is sent again by workers that do not know its outcome.
 *
 * There are four ways to do that: `commit` and `commitSql` of an attempt, `tx.idempotent` in a decision, and `dedupe`. The answer is
 * where in the lists the name came to stand. With SQL there is a row in a table of the user's as well. Every few seconds all of them move
 * on to new lists, so that none gets long.
 *
 * Checked: each acknowledged request is in both of its lists, where its answer says, and no name is there twice (G1, G2); a repeated
 * request gets the same result (G3); lists and rows tell the same story (G29); and all decisions can be put in one order that explains all lists
 * (G32).
 */

import { PawlError, StoreError, type TransactOptions, type Tx } from "../../../src/index.ts";
import type { Pawl } from "../../../src/pawl.ts";
import type { Bench } from "../bench.ts";
import { monotonicNs } from "../ledger.ts";
import { LEASE_MS } from "./claims.ts";
import { type Evidence, overlaps, type Work } from "./work.ts";

const NAME = "requests";
const LISTS = 5;
const CALLERS = 2;
const WINDOW_MS = 4_000;
const MAX_PAUSE_MS = 80;
const TABLE = "fault_requests";
const WAYS = ["commit", "commitSql", "transact", "dedupe"] as const;

export interface Request {
  readonly id: string;
  readonly way: (typeof WAYS)[number];
  /** Two, in the order in which they are written. */
  readonly lists: readonly [string, string];
}

/** Where it stands in each list; null for a message that had been handled before. */
export interface Placed {
  readonly at: readonly [number, number] | null;
  readonly replayed: boolean;
}

export interface RequestState {
  readonly lists: ReadonlyMap<string, readonly string[]>;
  /** The requests that have a row of the user's, as often as they have one. */
  readonly rows: readonly string[];
}

export const requests: Work = {
  name: NAME,

  async prepare(pawl) {
    // Without a unique key, so that a row that is there twice shows.
    await pawl.transact.sql((sql) => sql.query(`create table ${TABLE} (id text)`));
  },

  async act(bench) {
    await Promise.all(Array.from({ length: CALLERS }, () => call(bench)));
  },

  again({ input }) {
    const request = input as Request;
    return { id: request.id, task: request };
  },

  isCommit: ({ answer, output }) => answer === "yes" && !(output as Placed).replayed,

  async judge(pawl, evidence) {
    const unknown = evidence.operations.filter(({ answer }) => answer === "unknown");
    const done = new Set(evidence.operations.filter(requests.isCommit).map(({ input }) => (input as Request).id));
    const happened = new Set(unknown.map(({ input }) => (input as Request).id).filter((id) => !done.has(id)));
    return {
      wrong: checkRequests(evidence, await look(pawl, evidence)),
      unknown: unknown.length,
      happened: happened.size,
    };
  },
};

async function call(bench: Bench): Promise<void> {
  const { random } = bench;
  while (!bench.isOver) {
    const task = bench.take(NAME) as Request | undefined;
    if (task === undefined && bench.isHealing) {
      await bench.sleep(20);
      continue;
    }
    const request = task ?? draw(bench);
    await bench.attempt(NAME, request, () => send(bench.pawl, request));
    await bench.sleep(random.unit() * MAX_PAUSE_MS);
  }
}

function draw(bench: Bench): Request {
  const { random } = bench;
  const window = Math.floor(monotonicNs() / 1e6 / WINDOW_MS);
  const first = random.below(LISTS);
  const second = (first + 1 + random.below(LISTS - 1)) % LISTS;
  return {
    id: bench.mark(),
    way: random.pick(WAYS),
    lists: [`list/${window}/${first}`, `list/${window}/${second}`],
  };
}

const listOf = (pawl: Pawl, name: string) => pawl.slot<readonly string[]>(name, { initial: [] });

/** Where the name came to stand. */
function add(tx: Tx, pawl: Pawl, { id, lists }: Request): [number, number] {
  const [first, second] = lists.map((name) => {
    const list = tx.slot(listOf(pawl, name));
    const { value } = list.get();
    list.set([...value, id]);
    return value.length;
  });
  return [first ?? -1, second ?? -1];
}

async function send(pawl: Pawl, request: Request): Promise<Placed> {
  const { id, way, lists } = request;
  const options = { fingerprint: request, lease: LEASE_MS };
  const touches: TransactOptions = { touches: lists.map((name) => listOf(pawl, name)) };
  if (way === "transact") {
    const { value, replayed } = await pawl.transact(
      (tx) => tx.idempotent(id, { fingerprint: request }, () => add(tx, pawl, request)),
      touches,
    );
    return { at: value, replayed };
  }
  if (way === "dedupe") {
    const { deduplicated, value } = await pawl.dedupe("lists", id, (tx) => add(tx, pawl, request), touches);
    return { at: value ?? null, replayed: deduplicated };
  }
  let failed: unknown;
  try {
    const { value, replayed } = await pawl.idempotent(id, options, (attempt) =>
      way === "commit"
        ? attempt.commit((tx) => add(tx, pawl, request), touches)
        : attempt.commitSql(async (sql, tx) => {
            // The value as it is, because the two databases mark its place differently; it has no quote in it.
            await sql.query(`insert into ${TABLE} (id) values ('${id}')`).catch((error: unknown) => {
              failed = error;
              throw error;
            });
            return tx((tx) => add(tx, pawl, request), touches);
          }),
    );
    return { at: value, replayed };
  } catch (error) {
    if (error !== failed || error instanceof PawlError) throw error;
    // What the database says to a statement of ours ends its transaction, and nothing of it is there.
    throw new StoreError("store_unreachable", "retry", "a statement failed, and its transaction with it", {
      cause: error,
    });
  }
}

async function look(pawl: Pawl, { operations }: Evidence): Promise<RequestState> {
  const names = new Set(operations.flatMap(({ input }) => (input as Request).lists));
  const lists = new Map<string, readonly string[]>();
  for (const name of names) lists.set(name, (await listOf(pawl, name).get()).value);
  const { rows } = await pawl.transact.sql((sql) => sql.query<{ id: string }>(`select id from ${TABLE}`));
  return { lists, rows: rows.map(({ id }) => id) };
}

/** Holds what was answered against the lists as they are in the end. */
export function checkRequests({ operations, doubts }: Evidence, { lists, rows }: RequestState): string[] {
  const wrong: string[] = [];
  const asked = new Map(operations.map(({ input }) => [(input as Request).id, input as Request]));
  const places = new Map<string, Map<string, number[]>>();
  for (const [name, ids] of lists)
    for (const [at, id] of ids.entries()) {
      const request = asked.get(id);
      if (request === undefined) wrong.push(`request ${id} is in ${name}, and no worker sent it`);
      else if (!request.lists.includes(name)) wrong.push(`request ${id} is in ${name}, where it does not belong`);
      const of = places.get(id) ?? new Map<string, number[]>();
      places.set(id, of.set(name, [...(of.get(name) ?? []), at]));
    }
  for (const [id, of] of places) {
    for (const [name, all] of of) if (all.length > 1) wrong.push(`request ${id} is in ${name} ${all.length} times`);
    if (of.size < 2) wrong.push(`request ${id} is in ${[...of.keys()].join()} only`);
  }
  for (const { input, answer, output, life, startedAt, endedAt } of operations) {
    const { id, lists: names } = input as Request;
    if (answer !== "yes") continue;
    const { at, replayed } = output as Placed;
    // Whoever heard of an earlier answer only read it, and may have read what the standby never got.
    if (replayed && overlaps(doubts, startedAt, endedAt ?? startedAt)) continue;
    const there = places.get(id);
    if (there === undefined) wrong.push(`request ${id} was acknowledged and is lost`);
    else if (at !== null)
      for (const [i, name] of names.entries())
        if (!there.get(name)?.includes(at[i] ?? -1))
          wrong.push(`${life} was told that request ${id} is at ${at[i]} of ${name}, and it is at ${there.get(name)}`);
  }
  for (const [id, all] of Map.groupBy(rows, (id) => id)) {
    if (all.length > 1) wrong.push(`request ${id} has ${all.length} rows`);
    if (!places.has(id)) wrong.push(`request ${id} has a row and is in no list`);
  }
  const withRow = new Set(rows);
  for (const id of places.keys())
    if (asked.get(id)?.way === "commitSql" && !withRow.has(id))
      wrong.push(`request ${id} is in its lists without a row`);
  const cycle = findCycle(lists);
  if (cycle.length > 0) wrong.push(`no order explains the lists: ${cycle.join(" before ")}`);
  return wrong;
}

/** Requests that each come before the next in some list, and the last before the first; none if one order explains all lists. */
function findCycle(lists: ReadonlyMap<string, readonly string[]>): readonly string[] {
  const next = new Map<string, Set<string>>();
  const waitsFor = new Map<string, number>();
  for (const ids of lists.values())
    for (const [at, id] of ids.entries()) {
      const after = next.get(id) ?? new Set();
      next.set(id, after);
      if (!waitsFor.has(id)) waitsFor.set(id, 0);
      const following = ids[at + 1];
      if (following === undefined || after.has(following)) continue;
      after.add(following);
      waitsFor.set(following, (waitsFor.get(following) ?? 0) + 1);
    }
  const free = [...waitsFor].filter(([, count]) => count === 0).map(([id]) => id);
  for (let id = free.pop(); id !== undefined; id = free.pop()) {
    waitsFor.delete(id);
    for (const following of next.get(id) ?? []) {
      const count = (waitsFor.get(following) ?? 0) - 1;
      waitsFor.set(following, count);
      if (count === 0) free.push(following);
    }
  }
  // Whatever is left is in a cycle or behind one: walked backwards, it comes to a cycle.
  const path: string[] = [];
  let at = [...waitsFor.keys()][0];
  while (at !== undefined && !path.includes(at)) {
    path.unshift(at);
    const here = at;
    at = [...waitsFor.keys()].find((id) => next.get(id)?.has(here) === true);
  }
  return at === undefined ? [] : path.slice(0, path.indexOf(at) + 1);
}
