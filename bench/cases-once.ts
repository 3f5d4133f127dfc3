/**
 * One-time operations: those of Pawl compared with the bare statements that one would write instead, in turns on one machine, 100 callers.
 *
 * The statements are as bare as can be: one conditional `UPDATE`, or one `INSERT … ON CONFLICT DO NOTHING`, each a transaction of its own; on
 * PostgreSQL prepared and over 32 connections, on SQLite prepared and one after the other. They keep no audit log, do not
 * recognize a caller that asks again, and have no lease and no fingerprint. Pawl is measured through its public API, with all of these.
 *
 * o1: a one-time action each is consumed: `update … set used_at = … where id = … and used_at is null`
 * o2: all consume one action that has a use for each of them: `update … set uses = uses - 1 where id = … and uses > 0`
 *     o2k is the same for consumers with a key of their own, who can ask again; the statement knows nothing of that
 * o3: calls under new idempotency keys, whose results are stored: `insert … on conflict do nothing`, with the result
 *     o3a by an attempt that holds the key first, which is two commits; o3b in one decision, which is one; o3c with an effect in the same
 *     commit, beside a transaction with both rows
 * o4: calls with keys that have a result. o4a compared with the insert, which does nothing and returns nothing; o4b with a `select` of the result
 * o5: a machine each is moved: `update … set state = 'paid' where id = … and state = 'pending'`
 */

import type { DatabaseSync, StatementSync } from "node:sqlite";
import pg from "pg";
import { machine, open, type Pawl } from "../src/index.ts";
import { isPostgres } from "../src/stores/postgres/pool.ts";
import { atLeast, CALLERS, type Case } from "./comparisons.ts";
import type { Place } from "./ground.ts";
import type { PostgresGround } from "./ground-postgres.ts";
import { NAMESPACE } from "./ours.ts";
import { openRaw } from "./raw.ts";
import { measureOf, type Result, resultOf, type Target } from "./result.ts";
import type { Setting } from "./rounds.ts";
import { collectGarbage } from "./usage.ts";

/** One side of a case, on a database of its own. */
interface Session {
  /** Creates what must exist before the clock starts, for `count` calls. */
  prepare(count: number): Promise<unknown>;
  /** The call with this number. Throws if its outcome is wrong. */
  call(number: number): Promise<unknown>;
  close(): Promise<unknown>;
}

interface Contender {
  readonly name: string;
  open(place: Place): Promise<Session>;
}

const idOf = (number: number): string => `once-${String(number).padStart(8, "0")}`;

function check(isRight: boolean): void {
  if (!isRight) throw new Error("a call has a wrong outcome");
}

// --------------------------------------------------------------------------------------------------------------- ours

interface Doing {
  prepare?(pawl: Pawl, count: number): Promise<unknown>;
  call(pawl: Pawl, number: number): Promise<unknown>;
}

function ours(name: string, { prepare, call }: Doing): Contender {
  return {
    name,
    open: async (place) => {
      const pawl = await open(place, { namespace: NAMESPACE, actions: { pepper: "a pepper for the benchmark" } });
      return {
        prepare: async (count) => prepare?.(pawl, count),
        call: (number) => call(pawl, number),
        close: () => pawl.close(),
      };
    },
  };
}

const AT_ONCE = 300;

/** Makes what is needed, some at a time. */
async function inShares(count: number, make: (numbers: readonly number[]) => Promise<unknown>): Promise<void> {
  for (let first = 0; first < count; first += AT_ONCE)
    await make(Array.from({ length: Math.min(AT_ONCE, count - first) }, (_, index) => first + index));
}

const consumeEach = ours("Pawl, actions.consume", {
  prepare: (pawl, count) =>
    inShares(count, (numbers) => pawl.actions.createMany(numbers.map((number) => ({ id: idOf(number) })))),
  call: (pawl, number) => pawl.actions.consume(idOf(number), { by: "ann", consumerKey: idOf(number) }),
});

const consumeOne = (isKnown: boolean) =>
  ours(`Pawl, actions.consume${isKnown ? " with keys" : ""}`, {
    prepare: (pawl, count) => pawl.actions.create({ id: "one", uses: count }),
    call: (pawl, number) => pawl.actions.consume("one", { by: "ann", consumerKey: isKnown ? idOf(number) : undefined }),
  });

/** The value that is stored as the result. */
const answerOf = (number: number) => ({ status: 201, order: idOf(number) });

const byAttempt = (pawl: Pawl, number: number) =>
  pawl.idempotent(idOf(number), { scope: "ann", fingerprint: { number } }, ({ commit }) =>
    commit(() => answerOf(number)),
  );

const inDecision = (pawl: Pawl, number: number) =>
  pawl.transact((tx) => tx.idempotent(idOf(number), { scope: "ann", fingerprint: { number } }, () => answerOf(number)));

const withEffect = (pawl: Pawl, number: number) => {
  const order = pawl.slot<string>(idOf(number));
  return pawl.transact(
    (tx) =>
      tx.idempotent(idOf(number), { scope: "ann", fingerprint: { number } }, () => {
        tx.slot(order).set("placed");
        return answerOf(number);
      }),
    { touches: [order] },
  );
};

const idempotentNew = (name: string, act: typeof byAttempt) =>
  ours(name, { call: async (pawl, number) => check(!(await act(pawl, number)).replayed) });

/** The number of keys with results; each is used many times. */
const KEYS = 1000;

const idempotentAgain = ours("Pawl, idempotent", {
  prepare: (pawl) => inShares(KEYS, (numbers) => Promise.all(numbers.map((number) => inDecision(pawl, number)))),
  call: async (pawl, number) => check((await byAttempt(pawl, number % KEYS)).replayed),
});

const order = machine("order", {
  initial: "pending",
  transitions: { pending: ["paid", "canceled"], paid: [], canceled: [] },
});

const transitions = ours("Pawl, transition", {
  prepare: (pawl, count) =>
    inShares(count, (numbers) => Promise.all(numbers.map((number) => pawl.machine(order).create(idOf(number))))),
  call: (pawl, number) => pawl.machine(order).transition(idOf(number), "paid", { actor: "ann" }),
});

// ------------------------------------------------------------------------------------------------------ bare statements

const NAMES = {
  update: "conditional UPDATE",
  insert: "INSERT … ON CONFLICT",
  answer: "INSERT … ON CONFLICT and SELECT",
  effect: "BEGIN, INSERT twice, COMMIT",
} as const;

/** A table, rows in it, and the statement of a call; `?` are its values. */
interface Bare {
  readonly name: string;
  readonly table: string;
  /** The rows that exist before: one for each number, or this many. */
  readonly fill?: {
    readonly into: string;
    row(number: number, count: number): readonly (string | number)[];
    readonly rows?: number;
  };
  readonly text: string;
  values(number: number): readonly (string | number)[];
  /** How many rows it must have changed. */
  readonly changes: number;
  /** What is asked for besides. */
  readonly select?: { readonly text: string; values(number: number): readonly (string | number)[] };
  /** What is done in the same transaction, which then is one of several statements. */
  readonly effect?: { readonly text: string; values(number: number): readonly (string | number)[] };
}

const COUPONS = "create table coupon (id text primary key, used_at bigint, used_by text, uses bigint not null)";
const FRESH = "coupon (id, uses)";
const ANSWERS = "create table answer (id text primary key, response text not null)";
const insertAnswer = "insert into answer (id, response) values (?, ?) on conflict do nothing";
const response = (number: number): string => JSON.stringify(answerOf(number));

const updateEach: Bare = {
  name: NAMES.update,
  table: COUPONS,
  fill: { into: FRESH, row: (number) => [idOf(number), 1] },
  text: "update coupon set used_at = ?, used_by = ? where id = ? and used_at is null",
  values: (number) => [Date.now(), "ann", idOf(number)],
  changes: 1,
};

const updateOne: Bare = {
  name: NAMES.update,
  table: COUPONS,
  fill: { into: FRESH, row: (_, count) => ["one", count], rows: 1 },
  text: "update coupon set uses = uses - 1, used_at = ?, used_by = ? where id = ? and uses > 0",
  values: () => [Date.now(), "ann", "one"],
  changes: 1,
};

const insertNew: Bare = {
  name: NAMES.insert,
  table: ANSWERS,
  text: insertAnswer,
  values: (number) => [idOf(number), response(number)],
  changes: 1,
};

const insertBoth: Bare = {
  ...insertNew,
  name: NAMES.effect,
  table: `${ANSWERS}; create table orders (id text primary key, state text not null)`,
  effect: { text: "insert into orders (id, state) values (?, ?)", values: (number) => [idOf(number), "placed"] },
};

const insertAgain: Bare = {
  name: NAMES.insert,
  table: ANSWERS,
  fill: { into: "answer (id, response)", row: (number) => [idOf(number), response(number)], rows: KEYS },
  text: insertAnswer,
  values: (number) => [idOf(number % KEYS), response(number)],
  changes: 0,
};

const selectAgain: Bare = {
  ...insertAgain,
  name: NAMES.answer,
  select: { text: "select response from answer where id = ?", values: (number) => [idOf(number % KEYS)] },
};

const moveEach: Bare = {
  name: NAMES.update,
  table: "create table orders (id text primary key, state text not null)",
  fill: { into: "orders (id, state)", row: (number) => [idOf(number), "pending"] },
  text: "update orders set state = 'paid' where id = ? and state = 'pending'",
  values: (number) => [idOf(number)],
  changes: 1,
};

const bare = (one: Bare): Contender => ({
  name: one.name,
  open: (place) => (isPostgres(place) ? barePostgres(place, one) : bareSqlite(place, one)),
});

const FILLED_AT_ONCE = 200;

/** Runs the statements that make what is there before the clock starts. */
async function fill(
  { fill: filling }: Bare,
  count: number,
  run: (text: string, values: (string | number)[]) => unknown,
): Promise<void> {
  if (filling === undefined) return;
  const { into, row, rows = count } = filling;
  for (let first = 0; first < rows; first += FILLED_AT_ONCE) {
    const share = Array.from({ length: Math.min(FILLED_AT_ONCE, rows - first) }, (_, index) =>
      row(first + index, count),
    );
    const texts = share.map((values) => `(${values.map(() => "?").join()})`);
    await run(`insert into ${into} values ${texts.join()}`, share.flat());
  }
}

/** The store's own settings, and a statement for each call. */
async function bareSqlite(path: Place, one: Bare): Promise<Session> {
  const db: DatabaseSync = openRaw(path);
  db.exec(one.table);
  let act: StatementSync | undefined;
  let ask: StatementSync | undefined;
  let affect: StatementSync | undefined;
  const [begin, commit] = [db.prepare("begin immediate"), db.prepare("commit")];
  return {
    prepare: async (count) => {
      db.exec("begin immediate");
      await fill(one, count, (text, values) => db.prepare(text).run(...values));
      db.exec("commit");
      act = db.prepare(one.text);
      ask = one.select === undefined ? undefined : db.prepare(one.select.text);
      affect = one.effect === undefined ? undefined : db.prepare(one.effect.text);
    },
    call: async (number) => {
      if (affect !== undefined) begin.run();
      check(act?.run(...one.values(number)).changes === one.changes);
      if (affect !== undefined) {
        affect.run(...(one.effect?.values(number) ?? []));
        commit.run();
      }
      if (ask !== undefined) check(ask.get(...(one.select?.values(number) ?? [])) !== undefined);
    },
    close: async () => db.close(),
  };
}

const CONNECTIONS = 32;

async function barePostgres(url: Place, one: Bare): Promise<Session> {
  const pool = new pg.Pool({ connectionString: url, max: CONNECTIONS, idleTimeoutMillis: 0 });
  // The database is dropped as soon as the round is over, which may be before the last goodbye.
  pool.on("error", () => {});
  await pool.query(one.table);
  const says = (text: string): string => {
    let index = 0;
    return text.replaceAll("?", () => `$${++index}`);
  };
  const [act, ask, affect] = [one.text, one.select?.text ?? "", one.effect?.text ?? ""].map(says);
  const both = async (number: number): Promise<void> => {
    const client = await pool.connect();
    try {
      await client.query("begin");
      await client.query({ name: "act", text: act ?? "", values: [...one.values(number)] });
      await client.query({ name: "affect", text: affect ?? "", values: [...(one.effect?.values(number) ?? [])] });
      await client.query("commit");
    } finally {
      client.release();
    }
  };
  return {
    prepare: async (count) => {
      await fill(one, count, (text, values) => pool.query(says(text), values));
      // Connections are made before the clock starts.
      const clients = await Promise.all(Array.from({ length: CONNECTIONS }, () => pool.connect()));
      for (const each of clients) each.release();
    },
    call: async (number) => {
      if (one.effect !== undefined) return both(number);
      const { rowCount } = await pool.query({ name: "act", text: act ?? "", values: [...one.values(number)] });
      check(rowCount === one.changes);
      if (one.select === undefined) return;
      const { rows } = await pool.query({ name: "ask", text: ask ?? "", values: [...one.select.values(number)] });
      check(rows.length === 1);
    },
    close: () => pool.end(),
  };
}

// -------------------------------------------------------------------------------------------------------------- rounds

/** How often each of the callers calls, in a round of each side. */
interface Turns {
  readonly base: number;
  readonly ours: number;
}

interface Comparison {
  readonly id: string;
  readonly title: string;
  readonly base: Bare;
  readonly ours: Contender;
  readonly isAimedAt: boolean;
}

const comparisons: readonly Comparison[] = [
  { id: "o1", title: "consume, an action each", base: updateEach, ours: consumeEach, isAimedAt: true },
  { id: "o2", title: "consume, all the same action", base: updateOne, ours: consumeOne(false), isAimedAt: true },
  {
    id: "o2k",
    title: "consume, all the same action, with keys",
    base: updateOne,
    ours: consumeOne(true),
    isAimedAt: false,
  },
  {
    id: "o3a",
    title: "idempotent calls, new, by an attempt",
    base: insertNew,
    ours: idempotentNew("Pawl, idempotent and commit", byAttempt),
    isAimedAt: true,
  },
  {
    id: "o3b",
    title: "idempotent calls, new, in one decision",
    base: insertNew,
    ours: idempotentNew("Pawl, tx.idempotent", inDecision),
    isAimedAt: true,
  },
  {
    id: "o3c",
    title: "idempotent calls, new, with an effect",
    base: insertBoth,
    ours: idempotentNew("Pawl, tx.idempotent", withEffect),
    isAimedAt: true,
  },
  { id: "o4a", title: "idempotent calls, again", base: insertAgain, ours: idempotentAgain, isAimedAt: false },
  { id: "o4b", title: "idempotent calls, again, answered", base: selectAgain, ours: idempotentAgain, isAimedAt: true },
  { id: "o5", title: "transitions, a machine each", base: moveEach, ours: transitions, isAimedAt: true },
];

const ROUNDS = 5;

/** Calls per second, by 100 callers, each of which waits for one call before the next; the first tenth is not counted. */
async function rateOf(setting: Setting, contender: Contender, turns: number): Promise<number> {
  const place = await setting.ground.fresh();
  try {
    const session = await contender.open(place);
    const warmUps = Math.ceil(turns / 10);
    await session.prepare(CALLERS * (turns + warmUps));
    if (!setting.quick) await setting.ground.settle();
    const all = async (from: number, to: number): Promise<void> => {
      const call = async (caller: number): Promise<void> => {
        for (let turn = from; turn < to; turn++) await session.call(turn * CALLERS + caller);
      };
      await Promise.all(Array.from({ length: CALLERS }, (_, caller) => call(caller)));
    };
    await all(0, warmUps);
    collectGarbage();
    const startedMs = performance.now();
    await all(warmUps, warmUps + turns);
    const ms = performance.now() - startedMs;
    await session.close();
    return ((CALLERS * turns) / ms) * 1000;
  } finally {
    await setting.ground.remove(place);
  }
}

function once({ id, title: of, base, ours: mine, isAimedAt }: Comparison, full: Turns, target: Target): Case {
  const title = `${of}: 100 callers`;
  const run = async (setting: Setting): Promise<readonly Result[]> => {
    const turns = setting.quick ? { base: 4, ours: 4 } : full;
    const rates: Record<keyof Turns, number[]> = { base: [], ours: [] };
    const warmUps = setting.quick ? 0 : 1;
    for (let round = 0; round < setting.rounds(ROUNDS) + warmUps; round++) {
      const pair = {
        base: await rateOf(setting, bare(base), turns.base),
        ours: await rateOf(setting, mine, turns.ours),
      };
      if (round < warmUps) continue;
      rates.base.push(pair.base);
      rates.ours.push(pair.ours);
    }
    const measures = { base: measureOf(base.name, rates.base), ours: measureOf(mine.name, rates.ours) };
    return [resultOf({ id, title, unit: "commits/s", ...measures, target: isAimedAt ? target : null })];
  };
  return { id, title, run };
}

export const sqliteOnceCases: readonly Case[] = comparisons.map((one) =>
  once(one, { base: 15, ours: 150 }, atLeast(5)),
);

export const postgresOnceCases: readonly Case<PostgresGround>[] = comparisons.map((one) =>
  once(one, { base: 60, ours: 80 }, atLeast(2)),
);
