/**
 * The raw limit on PostgreSQL: the same rows in the same tables with the same durability, through bare `pg`.
 *
 * It has the store's own schema and commits as many rows in a transaction as there are callers. It is as fast as we know to make it,
 * and does less than any library could: it is the only writer, it gives out the rows' numbers and knows their versions, so it
 * reads nothing and checks nothing; its values are text before the clock starts; it names only the columns that change; it
 * writes no mark and sends no notification. Each statement is prepared, takes all its rows as arrays in binary form, and has the plan
 * that the store's statements are pinned to, set once for the connection. All statements of a turn go out together, with
 * BEGIN and COMMIT, and cost one round trip. Two ways are measured, all callers over one connection and half of them over each of
 * two, where one half's statements run while the other's log is synced; the faster one is the limit.
 *
 * `byHand` is what it replaces: 32 connections, and a transaction of its own for each commit, statement by statement.
 */

import pg from "pg";
import { int8Array, textArray } from "../src/stores/postgres/arrays.ts";
import type { PgClient } from "../src/stores/postgres/connections.ts";
import { type Call, Pipeline, type Result, type Statement, statement } from "../src/stores/postgres/pipeline.ts";
import type { Contender, Session, Timing } from "./contender.ts";
import type { Place } from "./ground.ts";
import { NAMESPACE } from "./ours.ts";
import { type Plan, recordAt, stepAt } from "./plan.ts";
import { type Column, cellOf, NUMBERS, type See, turnAt, turnsOfRun } from "./run-rows.ts";

/** What the store says anew in each transaction; a test holds the two together. */
export const SETTINGS = [
  "plan_cache_mode = force_generic_plan",
  "enable_seqscan = off",
  "enable_hashjoin = off",
  "enable_mergejoin = off",
  "enable_bitmapscan = off",
  "enable_material = off",
  "jit = off",
];

/** What raw knows of its rows: their numbers, and the versions they had when the plan began. */
interface Rows {
  readonly ids: readonly number[];
  readonly versions: readonly number[];
}

export const BEGIN: Call = { statement: statement("begin"), values: [] };
export const COMMIT: Call = { statement: statement("commit"), values: [] };

/** The statements of a turn. The id and the key of a row are expressions, because pgbench has to work them out. */
export function turnStatements(
  space: string,
  isLogged: boolean,
  { id, key }: { readonly id: string; readonly key: string },
): Record<"insert" | "update" | "append", string> {
  const head = isLogged ? 1 : 0;
  return {
    insert: `insert into pawl.record (id, namespace, space, key, version, fence, wakes, tries, head, value)
      select ${id}, '${NAMESPACE}', '${space}', ${key}, 1, 0, 0, 0, ${head}, v.value
      from unnest($1::bigint[], $2::text[], $3::text[]) v(id, key, value)`,
    update: `update pawl.record r set version = v.version, head = v.head, value = v.value
      from unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[]) v(id, version, head, value) where r.id = ${id}`,
    append: `insert into pawl.log (record, version, name, data, at)
      select ${id}, v.version, 'step', v.data, $4::text::bigint
      from unnest($1::bigint[], $2::bigint[], $3::text[]) v(id, version, data)`,
  };
}

async function connect(place: Place): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: place });
  await client.connect();
  return client;
}

async function rowsOf(client: pg.Client | pg.PoolClient, plan: Plan): Promise<Rows> {
  const { rows } = await client.query<{ key: string; id: string; version: string }>(
    "select key, id, version from pawl.record where namespace = $1 and space = $2",
    [NAMESPACE, plan.space],
  );
  const found = new Map(rows.map((row) => [row.key, row]));
  return {
    ids: plan.keys.map((key, index) => Number(found.get(key)?.id ?? index + 1)),
    versions: plan.keys.map((key) => Number(found.get(key)?.version ?? 0)),
  };
}

/** One connection, with what is prepared on it. */
class RawConnection {
  readonly client: pg.Client;
  /** The same, by what it takes besides queries of its own kind. */
  readonly #sender: Pick<PgClient, "query">;
  readonly #prepared = new Set<string>();

  constructor(client: pg.Client) {
    this.client = client;
    this.#sender = client;
  }

  send(calls: readonly Call[]): Promise<readonly Result[]> {
    return new Promise((resolve, reject) => {
      const done = (error: unknown, results: readonly Result[]) =>
        error === undefined ? resolve(results) : reject(error);
      this.#sender.query(new Pipeline(calls, this.#prepared, done));
    });
  }
}

class RawSession implements Session {
  readonly #connections: readonly RawConnection[];

  readonly #make: MakeTurns;

  constructor(connections: readonly RawConnection[], make: MakeTurns) {
    this.#connections = connections;
    this.#make = make;
  }

  async run(plan: Plan): Promise<Timing> {
    const [first] = this.#connections;
    if (first === undefined) throw new Error("raw has no connection");
    const rows = await rowsOf(first.client, plan);
    const share = Math.ceil(plan.callers / this.#connections.length);
    const latenciesMs: number[] = [];
    const alone = plan.callers === 1;
    const work = async (connection: RawConnection, doTurn: TurnCalls): Promise<number> => {
      for (let turn = 0; turn < plan.turns; turn++) {
        const sentMs = alone ? performance.now() : 0;
        const calls = doTurn(turn, Date.now());
        if (calls.length > 0) await connection.send(calls);
        if (alone) latenciesMs.push(performance.now() - sentMs);
      }
      return plan.turns;
    };
    const shares = this.#connections
      .map((connection, index) => ({
        connection,
        from: index * share,
        to: Math.min(plan.callers, (index + 1) * share),
      }))
      .filter(({ from, to }) => from < to);
    const turns = await Promise.all(shares.map((callers) => this.#make(plan, rows, callers)));
    const startedMs = performance.now();
    const transactions = await Promise.all(
      shares.map(({ connection }, index) => work(connection, turns[index] as TurnCalls)),
    );
    const ms = performance.now() - startedMs;
    return { ms, transactions: transactions.reduce((sum, one) => sum + one, 0), latenciesMs };
  }

  async close(): Promise<void> {
    await Promise.all(this.#connections.map(({ client }) => client.end()));
  }
}

/** Some of the callers, by their numbers. */
interface Callers {
  readonly from: number;
  readonly to: number;
}

/** What is sent in a turn. */
type TurnCalls = (turn: number, atMs: number) => readonly Call[];
type MakeTurns = (plan: Plan, rows: Rows, callers: Callers) => TurnCalls | Promise<TurnCalls>;

function turnsOf(plan: Plan, { ids, versions }: Rows, { from, to }: Callers): TurnCalls {
  if (plan.hot) throw new Error("raw has no plan for a record that is written many times in a transaction");
  const texts = plan.values.map((value) => JSON.stringify(value));
  const sql = turnStatements(plan.space, plan.logged, { id: "v.id", key: "v.key" });
  const [insert, update, append] = [statement(sql.insert), statement(sql.update), statement(sql.append)];
  const each = <T>(value: T): T[] => Array.from({ length: to - from }, () => value);
  return (turn, atMs) => {
    const step = stepAt(plan, turn);
    const text = texts[step] ?? "";
    const first = recordAt(plan, turn, from);
    const end = recordAt(plan, turn, to);
    const isNew = (versions[first] ?? 0) + step === 0;
    const numbers = int8Array(ids.slice(first, end));
    const values = textArray(each(text));
    const heads = int8Array(each(plan.logged ? step + 1 : 0));
    const calls = [BEGIN];
    if (isNew) calls.push({ statement: insert, values: [numbers, textArray(plan.keys.slice(first, end)), values] });
    else {
      const next = int8Array(versions.slice(first, end).map((version) => version + step + 1));
      calls.push({ statement: update, values: [numbers, next, heads, values] });
    }
    if (plan.logged) calls.push({ statement: append, values: [numbers, heads, values, String(atMs)] });
    calls.push(COMMIT);
    return calls;
  };
}

/** The rows that were seen to be written. Raw is the only writer, so it knows the positions of the entries that are followed. */
const turnsSeenBy =
  (see: See): MakeTurns =>
  async (plan, { ids }, { from, to }) => {
    const seen = await see(NAMESPACE, plan);
    const rowCount = plan.hot ? 1 : to - from;
    const written = (isNew: boolean, columns: readonly Column[]) => {
      const types = columns.map((column, at) => `$${at + 2}::${NUMBERS.has(column) ? "bigint" : "text"}[]`);
      const sets = columns.map((column) => `${column} = v.${column}`).join(", ");
      const names = columns.join(", ");
      const key = `$${columns.length + 2}::text[]`;
      return isNew
        ? `insert into pawl.record (id, namespace, space, key, ${names})
           select v.id, '${NAMESPACE}', '${plan.space}', v.key, ${columns.map((column) => `v.${column}`).join(", ")}
           from unnest($1::bigint[], ${types.join(", ")}, ${key}) v(id, ${names}, key)`
        : `update pawl.record r set ${sets} from unnest($1::bigint[], ${types.join(", ")}) v(id, ${names}) where r.id = v.id`;
    };
    const append = statement(`insert into pawl.log (record, version, position, name, data, at) overriding system value
      select v.id, v.version, v.position, v.name, v.data, $6::text::bigint
      from unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[], $5::text[]) v(id, version, position, name, data)`);
    const follow = statement(`insert into pawl.followed (namespace, space, position, record, version)
      select '${NAMESPACE}', '${plan.space}', v.position, v.id, v.version
      from unnest($1::bigint[], $2::bigint[], $3::bigint[]) v(id, version, position)`);
    const statements = new Map<string, Statement>();
    const turnWith = (turn: number) => {
      const { row, columns, entries } = turnAt(plan, seen, turn);
      const isNew = plan.hot ? turn === 0 : stepAt(plan, turn) === 0;
      const text = written(isNew, columns);
      const write = statements.get(text) ?? statement(text);
      statements.set(text, write);
      return { isNew, row, columns, entries, write };
    };
    const turns = Array.from({ length: plan.hot ? plan.turns : plan.commitsPerRecord }, (_, turn) => turnWith(turn));
    // Each share of the callers has positions of its own.
    const most = Math.max(...turns.map(({ entries }) => entries.length));
    const each = <T>(value: T): T[] => Array.from({ length: rowCount }, () => value);
    return (turn, atMs) => {
      const one = turns[plan.hot ? turn : stepAt(plan, turn)];
      if (one === undefined) throw new Error("there is no such turn");
      const first = recordAt(plan, turn, from);
      const numbers = ids.slice(first, first + rowCount);
      const cells = one.columns.map((column) => {
        const cell = cellOf(one.row, column);
        return NUMBERS.has(column) ? int8Array(each(cell as number | null)) : textArray(each(cell as string | null));
      });
      const keys = one.isNew ? [textArray(plan.keys.slice(first, first + rowCount))] : [];
      const firstPosition = 1 + (turn * (plan.hot ? 1 : plan.callers) + from) * most;
      const appended = numbers.flatMap((id) => one.entries.map((entry) => ({ ...entry, id })));
      const positioned = appended.map((entry, index) => ({ ...entry, position: firstPosition + index }));
      const calls: Call[] = [
        BEGIN,
        { statement: one.write, values: [int8Array(numbers), ...cells, ...keys] },
        {
          statement: append,
          values: [
            int8Array(positioned.map(({ id }) => id)),
            int8Array(positioned.map(({ version }) => version)),
            int8Array(positioned.map(({ position }) => position)),
            textArray(positioned.map(({ name }) => name)),
            textArray(positioned.map(({ data }) => data)),
            String(atMs),
          ],
        },
      ];
      const followed = positioned.filter(({ isFollowed }) => isFollowed === true);
      if (followed.length > 0)
        calls.push({
          statement: follow,
          values: [
            int8Array(followed.map(({ id }) => id)),
            int8Array(followed.map(({ version }) => version)),
            int8Array(followed.map(({ position }) => position)),
          ],
        });
      return [...calls, COMMIT];
    };
  };

function raw(name: string, count: number, make: MakeTurns = turnsOf): Contender {
  const connection = async (place: Place) => {
    const client = await connect(place);
    for (const setting of SETTINGS) await client.query(`set ${setting}`);
    return new RawConnection(client);
  };
  return {
    name,
    open: async (place) =>
      new RawSession(await Promise.all(Array.from({ length: count }, () => connection(place))), make),
  };
}

export const rawPostgres = raw("raw", 1);
export const rawPostgresTwice = raw("raw, two connections", 2);
export const rawRunsPostgres = raw("raw, the rows of runs", 1, turnsSeenBy(turnsOfRun));
export const rawRunsPostgresTwice = raw("raw, the rows of runs, two connections", 2, turnsSeenBy(turnsOfRun));

/** One more way of writing rows, over one connection. */
export const rawPostgresWith = (name: string, make: MakeTurns): Contender => raw(name, 1, make);

/** The bare group commit of rows that were seen, over this many connections. */
export const rawSeenPostgres = (name: string, see: See, count: number): Contender => raw(name, count, turnsSeenBy(see));

// ---------------------------------------------------------------------------------------------------------- by hand

const CONNECTIONS = 32;

const UPSERT: Statement = statement(`
  insert into pawl.record as r (namespace, space, key, version, fence, wakes, tries, head, value)
  values ($1, $2, $3, 1, 0, 0, 0, $4, $5)
  on conflict (namespace, space, key) do update set version = r.version + 1, head = r.head + excluded.head, value = excluded.value
  returning id, head`);
const APPEND: Statement = statement(
  "insert into pawl.log (record, version, name, data, at) values ($1, $2, 'step', $3, $4)",
);

class HandSession implements Session {
  readonly #pool: pg.Pool;

  constructor(pool: pg.Pool) {
    this.#pool = pool;
  }

  async run(plan: Plan): Promise<Timing> {
    const texts = plan.values.map((value) => JSON.stringify(value));
    const latenciesMs: number[] = [];
    const alone = plan.callers === 1;
    const call = async (caller: number): Promise<void> => {
      for (let turn = 0; turn < plan.turns; turn++) {
        const startedMs = alone ? performance.now() : 0;
        await this.#commit(plan, plan.keys[recordAt(plan, turn, caller)] ?? "", texts[stepAt(plan, turn)] ?? "");
        if (alone) latenciesMs.push(performance.now() - startedMs);
      }
    };
    const startedMs = performance.now();
    await Promise.all(Array.from({ length: plan.callers }, (_, caller) => call(caller)));
    return { ms: performance.now() - startedMs, transactions: plan.turns * plan.callers, latenciesMs };
  }

  async #commit({ space, logged }: Plan, key: string, text: string): Promise<void> {
    const client = await this.#pool.connect();
    try {
      await client.query("begin");
      const values = [NAMESPACE, space, key, logged ? 1 : 0, text];
      const { rows } = await client.query<{ id: string; head: string }>({ ...UPSERT, values });
      if (logged) await client.query({ ...APPEND, values: [rows[0]?.id, rows[0]?.head, text, Date.now()] });
      await client.query("commit");
    } finally {
      client.release();
    }
  }

  close(): Promise<void> {
    return this.#pool.end();
  }
}

export const byHand: Contender = {
  name: "by hand, a transaction for each commit",
  open: async (place) => {
    const pool = new pg.Pool({ connectionString: place, max: CONNECTIONS, idleTimeoutMillis: 0 });
    // The database is dropped as soon as the round is over, which may be before the last goodbye.
    pool.on("error", () => {});
    // Connections are made before the clock starts.
    const clients = await Promise.all(Array.from({ length: CONNECTIONS }, () => pool.connect()));
    for (const client of clients) client.release();
    return new HandSession(pool);
  },
};
