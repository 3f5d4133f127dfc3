/**
 * The raw limit: the same rows in the same tables with the same durability, through bare `node:sqlite`.
 *
 * It has the store's own schema and settings, and commits as many rows in a transaction as there are callers. It is as fast
 * as we know to make it, and does less than any library could: it is the only writer, it gives out the rows' numbers and
 * knows their versions, so it reads nothing and checks nothing; its values are text before the clock starts; it names only
 * the columns that change; no promise is awaited. Two ways to do it are measured, one statement for each row and one
 * for all rows of a turn, and the faster one is the limit. Both say `or rollback`, which spares SQLite copying pages to undo a statement.
 */

import { DatabaseSync, type SQLInputValue, type StatementSync } from "node:sqlite";
import { migrate } from "../src/stores/sqlite/schema.ts";
import type { Contender, Session, Timing } from "./contender.ts";
import { NAMESPACE } from "./ours.ts";
import { type Plan, recordAt, stepAt } from "./plan.ts";
import { type Column, cellOf, type See, turnAt, turnsOfRun } from "./run-rows.ts";

/** The settings of the SQLite store; a test holds the two together. */
const SETTINGS = [
  "journal_mode = wal",
  "synchronous = 2",
  "fullfsync = on",
  "checkpoint_fullfsync = on",
  "wal_autocheckpoint = 4000",
  "cache_size = -16384",
];

export function openRaw(path: string): DatabaseSync {
  const db = new DatabaseSync(path, { timeout: 0 });
  for (const setting of SETTINGS) db.exec(`pragma ${setting}`);
  migrate(db);
  return db;
}

/** What raw knows of its rows: their numbers, and the versions they had when the plan began. */
interface Rows {
  readonly ids: readonly number[];
  readonly versions: readonly number[];
}

/** One turn of a plan, inside a transaction. */
export type Turn = (turn: number, atMs: number) => void;
type Way = (db: DatabaseSync, plan: Plan, texts: readonly string[], rows: Rows) => Turn | Promise<Turn>;

const INSERT =
  "insert or rollback into pawl_record (id, namespace, space, key, version, fence, wakes, tries, head, value) values";
const insertedRow = (plan: Plan) => `(?, '${NAMESPACE}', '${plan.space}', ?, 1, 0, 0, 0, ${plan.logged ? 1 : 0}, ?)`;
const APPEND = "insert or rollback into pawl_log (record, version, name, data, at) values";
const APPENDED_ROW = "(?, ?, 'step', ?, ?)";

/** The ways that know one commit at a time cannot write one record many times in a transaction. */
function refuseHot(plan: Plan): void {
  if (plan.hot) throw new Error("raw has no plan for a record that is written many times in a transaction");
}

/** A statement for each row. */
const rowByRow: Way = (db, plan, texts, { ids, versions }) => {
  refuseHot(plan);
  const insert = db.prepare(`${INSERT} ${insertedRow(plan)}`);
  const update = db.prepare("update pawl_record set version = ?, head = ?, value = ? where id = ?");
  const append = db.prepare(`${APPEND} ${APPENDED_ROW}`);
  return (turn, atMs) => {
    const step = stepAt(plan, turn);
    const text = texts[step] ?? "";
    const head = plan.logged ? step + 1 : 0;
    const first = recordAt(plan, turn, 0);
    for (let index = first; index < first + plan.callers; index++) {
      const id = ids[index] ?? 0;
      const version = versions[index] ?? 0;
      if (version + step === 0) insert.run(id, plan.keys[index] ?? "", text);
      else update.run(version + step + 1, head, text, id);
    }
    if (!plan.logged) return;
    for (let index = first; index < first + plan.callers; index++) append.run(ids[index] ?? 0, head, text, atMs);
  };
};

/** A statement for all rows of a turn. */
const manyAtOnce: Way = (db, plan, texts, { ids, versions }) => {
  refuseHot(plan);
  const times = (row: string) => Array.from({ length: plan.callers }, () => row).join(", ");
  const insert = db.prepare(`${INSERT} ${times(insertedRow(plan))}`);
  const update = db.prepare(
    `update or rollback pawl_record set version = v.column2, head = v.column3, value = v.column4
     from (values ${times("(?, ?, ?, ?)")}) v where id = v.column1`,
  );
  const append = db.prepare(`${APPEND} ${times(APPENDED_ROW)}`);
  return (turn, atMs) => {
    const step = stepAt(plan, turn);
    const text = texts[step] ?? "";
    const head = plan.logged ? step + 1 : 0;
    const first = recordAt(plan, turn, 0);
    const isNew = (versions[first] ?? 0) + step === 0;
    const records: SQLInputValue[] = [];
    const entries: SQLInputValue[] = [];
    for (let index = first; index < first + plan.callers; index++) {
      const id = ids[index] ?? 0;
      if (isNew) records.push(id, plan.keys[index] ?? "", text);
      else records.push(id, (versions[index] ?? 0) + step + 1, head, text);
      entries.push(id, head, text, atMs);
    }
    (isNew ? insert : update).run(...records);
    if (plan.logged) append.run(...entries);
  };
};

/**
 * The rows that were seen to be written: a statement for all rows of a turn, one for all their entries, and one for those that are followed.
 * Raw is the only writer, so it knows the positions of the entries.
 */
const seenAtOnce =
  (see: See): Way =>
  async (db, plan, _texts, { ids }) => {
    const seen = await see(NAMESPACE, plan);
    const times = (width: number, rows: number) => Array.from({ length: rows }, () => questionMarks(width)).join(", ");
    const prepared = new Map<string, StatementSync>();
    const prepare = (text: string): StatementSync => {
      const statement = prepared.get(text) ?? db.prepare(text);
      prepared.set(text, statement);
      return statement;
    };
    const rowCount = plan.hot ? 1 : plan.callers;
    const written = (isNew: boolean, columns: readonly Column[]) =>
      isNew
        ? `insert or rollback into pawl_record (id, namespace, space, key, ${columns.join(", ")})
           values ${times(4 + columns.length, rowCount)}`
        : `update or rollback pawl_record set ${columns.map((column, at) => `${column} = v.column${at + 2}`).join(", ")}
           from (values ${times(1 + columns.length, rowCount)}) v where id = v.column1`;
    const turnWith = (turn: number) => {
      const { row, columns, entries } = turnAt(plan, seen, turn);
      const isNew = plan.hot ? turn === 0 : stepAt(plan, turn) === 0;
      const cells = columns.map((column) => cellOf(row, column));
      const followed = entries.filter(({ isFollowed }) => isFollowed === true).length * rowCount;
      return {
        isNew,
        cells,
        entries,
        write: prepare(written(isNew, columns)),
        append: prepare(`insert or rollback into pawl_log (position, record, version, name, data, at)
          values ${times(6, rowCount * entries.length)}`),
        follow:
          followed === 0
            ? null
            : prepare(`insert or rollback into pawl_followed (namespace, space, position, record, version)
                values ${times(5, followed)}`),
      };
    };
    const turns = Array.from({ length: plan.hot ? plan.turns : plan.commitsPerRecord }, (_, turn) => turnWith(turn));
    let position = 0;
    return (turn, atMs) => {
      const one = turns[plan.hot ? turn : stepAt(plan, turn)];
      if (one === undefined) throw new Error("there is no such turn");
      const first = recordAt(plan, turn, 0);
      const records: SQLInputValue[] = [];
      const entries: SQLInputValue[] = [];
      const followed: SQLInputValue[] = [];
      for (let index = first; index < first + rowCount; index++) {
        const id = ids[index] ?? 0;
        records.push(id);
        if (one.isNew) records.push(NAMESPACE, plan.space, plan.keys[index] ?? "");
        for (const cell of one.cells) records.push(cell);
        for (const { version, name, data, isFollowed } of one.entries) {
          entries.push(++position, id, version, name, data, atMs);
          if (isFollowed === true) followed.push(NAMESPACE, plan.space, position, id, version);
        }
      }
      one.write.run(...records);
      one.append.run(...entries);
      one.follow?.run(...followed);
    };
  };

const questionMarks = (count: number): string => `(${Array.from({ length: count }, () => "?").join(", ")})`;

class RawSession implements Session {
  readonly #db: DatabaseSync;
  readonly #way: Way;
  readonly #begin: StatementSync;
  readonly #commit: StatementSync;

  constructor(db: DatabaseSync, way: Way) {
    this.#db = db;
    this.#way = way;
    this.#begin = db.prepare("begin immediate");
    this.#commit = db.prepare("commit");
  }

  async run(plan: Plan): Promise<Timing> {
    const texts = plan.values.map((value) => JSON.stringify(value));
    const doTurn = await this.#way(this.#db, plan, texts, this.#rows(plan));
    const latenciesMs: number[] = [];
    const alone = plan.callers === 1;
    const startedMs = performance.now();
    for (let turn = 0; turn < plan.turns; turn++) {
      const turnStartedMs = alone ? performance.now() : 0;
      this.#begin.run();
      doTurn(turn, Date.now());
      this.#commit.run();
      if (alone) latenciesMs.push(performance.now() - turnStartedMs);
    }
    return { ms: performance.now() - startedMs, transactions: plan.turns, latenciesMs };
  }

  #rows(plan: Plan): Rows {
    const find = this.#db.prepare("select id, version from pawl_record where namespace = ? and space = ? and key = ?");
    const rows = plan.keys.map((key) => find.get(NAMESPACE, plan.space, key));
    return {
      ids: rows.map((row, index) => Number(row?.["id"] ?? index + 1)),
      versions: rows.map((row) => Number(row?.["version"] ?? 0)),
    };
  }

  async close(): Promise<void> {
    this.#db.close();
  }
}

/** The bare group commit of rows that were seen. */
export const rawSeen = (name: string, see: See): Contender => contender(name, seenAtOnce(see));

/** One more way of writing rows. */
export const rawWith = (name: string, way: Way): Contender => contender(name, way);

function contender(name: string, way: Way): Contender {
  return { name, open: async (path) => new RawSession(openRaw(path), way) };
}

export const rawRows = contender("raw, a statement for each row", rowByRow);
export const rawRuns = contender("raw, the rows of runs", seenAtOnce(turnsOfRun));
export const rawMany = contender("raw, a statement for each turn", manyAtOnce);
