/**
 * The stage that laws are played on: writers connected to one fresh database, and short ways to say what they do.
 *
 * A `Writer` knows what the kernel knows of its store: the epoch and the sequence of each lane. It is patient, as the kernel
 * is: "busy, try again" is a legal answer, and so is a row that another has locked. It changes nothing that a store answers.
 *
 * Time and chance come from `src/node/`, for waiting only. What time it is, the store is asked.
 */

import assert from "node:assert/strict";
import {
  type DuePage,
  type Entry,
  type Found,
  type Key,
  keyText,
  type Put,
  type Receipt,
  type Row,
  type Store,
  type StoredEntry,
  type Verdict,
} from "../../kernel/contract.ts";
import { StoreError } from "../../kernel/errors.ts";
import { pause } from "../../kernel/ports.ts";
import { nodePorts } from "../../node/ports.ts";

/** A store's clock that the suite may move. */
export interface HarnessClock {
  /** Moves the clock on. */
  advance(ms: number): void | Promise<void>;
  /** Sets the clock, also back. */
  set(nowMs: number): void | Promise<void>;
}

/** One fresh, empty database, for one law. */
export interface Harness {
  /** A new writer on the database; the same namespace unless one is named. Closed stores may be closed again. */
  connect(namespace?: string): Promise<Store>;
  /** Where the store's clock can be moved. Without it, laws about time wait for real time to pass. */
  readonly clock?: HarnessClock;
  /** Gives back what was opened. Every store is closed by then. */
  close(): Promise<void>;
}

/** A law as it is written down: it gets a stage of its own. */
export interface Rule {
  readonly name: string;
  readonly setsClock: boolean;
  readonly check: (stage: Stage) => Promise<void>;
}

export function rule(name: string, check: (stage: Stage) => Promise<void>): Rule {
  return { name, setsClock: false, check };
}

/** A law that only a clock that can be set will show. */
export function clockRule(name: string, check: (stage: Stage, clock: HarnessClock) => Promise<void>): Rule {
  return {
    name,
    setsClock: true,
    check(stage) {
      const { clock } = stage;
      if (clock === undefined)
        throw new Error(
          "this law needs a store whose clock can be set: give the harness a `clock`, or name the law in `differences`",
        );
      return check(stage, clock);
    },
  };
}

export class Stage {
  readonly #harness: Harness;
  readonly patienceMs: number;
  readonly #writers: Writer[] = [];

  constructor(harness: Harness, patienceMs: number) {
    this.#harness = harness;
    this.patienceMs = patienceMs;
  }

  get clock(): HarnessClock | undefined {
    return this.#harness.clock;
  }

  async connect(namespace?: string): Promise<Writer> {
    const writer = new Writer(await this.#harness.connect(namespace), this.#writers.length, this.patienceMs);
    this.#writers.push(writer);
    return writer;
  }

  async connectTwo(): Promise<readonly [Writer, Writer]> {
    return [await this.connect(), await this.connect()];
  }

  async connectAll(count: number): Promise<readonly Writer[]> {
    const writers: Writer[] = [];
    for (let i = 0; i < count; i++) writers.push(await this.connect());
    return writers;
  }

  /** Waits until the store's clock is there, or moves it there where that can be done. */
  async reach(writer: Writer, atMs: number): Promise<void> {
    const nowMs = await writer.nowMs();
    if (nowMs < atMs && this.clock !== undefined) await this.clock.advance(atMs - nowMs);
    await this.until(`the store's clock reaches ${atMs}`, async () => (await writer.nowMs()) >= atMs);
  }

  /** Looks again and again until it is so; fails when patience ends. */
  async until(what: string, look: () => boolean | Promise<boolean>): Promise<void> {
    const giveUpAtMs = nodePorts.clock.nowMs() + this.patienceMs;
    while (!(await look())) {
      if (nodePorts.clock.nowMs() >= giveUpAtMs) assert.fail(`waited ${this.patienceMs} ms, and not yet so: ${what}`);
      await rest(1);
    }
  }

  async end(): Promise<void> {
    await Promise.allSettled(this.#writers.map((writer) => writer.store.close()));
    await this.#harness.close();
  }
}

/** Lets everything that is under way have its turn. */
export const turn = (): Promise<void> => new Promise((resolve) => nodePorts.clock.soon(resolve));

export const rest = (ms: number): Promise<void> => pause(nodePorts.clock, ms);

/** What one commit does: which rows it locks first, and what it says to those it finds. */
export interface Plan {
  readonly lock?: readonly Key[];
  readonly lane?: number;
  readonly needsClock?: boolean;
  readonly maxBytes?: number;
  /** The round is 0 at the first call for a batch, and one more at each further call. */
  readonly decide: (found: Found, round: number) => Verdict;
}

/** The epoch that a lane writes in, and the last sequence it used: this writer's own count after `settle`. */
export interface Mark {
  readonly epoch: number;
  readonly sequence: number;
}

/** Rows by name, as a patient commit has found them. */
export type Known = ReadonlyMap<string, Row | null>;

export class Writer {
  readonly store: Store;
  readonly #index: number;
  readonly #patienceMs: number;
  readonly #marks = new Map<number, Mark>();

  constructor(store: Store, index: number, patienceMs: number) {
    this.store = store;
    this.#index = index;
    this.#patienceMs = patienceMs;
  }

  async settle(lane = 0): Promise<Mark> {
    const { epoch, sequence } = await this.patiently(() => this.store.settle(lane));
    this.#marks.set(lane, { epoch, sequence });
    return { epoch, sequence };
  }

  /** One batch; a store that is busy is asked again, with the next sequence. */
  commit(plan: Plan): Promise<Receipt> {
    const { lane = 0, lock = [], needsClock = false, maxBytes } = plan;
    return this.patiently(async () => {
      const { epoch, sequence: last } = this.#marks.get(lane) ?? (await this.settle(lane));
      const sequence = last + 1;
      this.#marks.set(lane, { epoch, sequence });
      let round = 0;
      const decide = (found: Found) => plan.decide(found, round++);
      return this.store.commit({ lane, epoch, sequence, lock, needsClock, maxBytes, decide });
    });
  }

  /** Writes on what the puts say they replace, without a look; the store must agree. Answers the rows as stored. */
  async write(...puts: readonly Put[]): Promise<readonly Row[]> {
    const receipt = await this.commit({ decide: () => ({ puts }) });
    assert.ok(receipt.committed, "a batch whose rows are as it says was refused");
    return puts.map(({ row }, index) => ({ ...row, id: receipt.ids[index] ?? Number.NaN }));
  }

  async make(...rows: readonly Row[]): Promise<readonly Row[]> {
    return this.write(...rows.map((row) => making(row)));
  }

  async makeOne(row: Row, ...data: readonly string[]): Promise<Row> {
    return only(await this.write(making(row, ...data)));
  }

  async change(was: Row, columns: Partial<Row>, ...data: readonly string[]): Promise<Row> {
    return only(await this.write(changing(was, columns, ...data)));
  }

  /** Deleted as the kernel deletes, and kept until then. */
  async remove(was: Row, keptUntilMs: number): Promise<Row> {
    return only(await this.write(removing(was, keptUntilMs)));
  }

  /** The locked way, as often as it takes: locked rows are waited for, and rows that moved are looked at again. */
  async transact(keys: readonly Key[], decide: (rows: Known) => readonly Key[] | readonly Put[]): Promise<void> {
    const giveUpAtMs = nodePorts.clock.nowMs() + this.#patienceMs;
    for (let attempt = 1; ; attempt++) {
      let locked = false;
      const rows = new Map<string, Row | null>();
      let asked = keys;
      const receipt = await this.commit({
        lock: keys,
        decide(found, round) {
          if (round === 0) {
            rows.clear();
            asked = keys;
            locked = false;
          }
          asked.forEach((key, index) => {
            const row = found.rows[index];
            if (row === undefined) locked = true;
            else rows.set(keyText(key), row);
          });
          if (locked) return { puts: [] };
          const answer = decide(rows);
          if (arePuts(answer)) return { puts: answer };
          asked = answer;
          return { lock: answer };
        },
      });
      if (receipt.committed && !locked) return;
      if (nodePorts.clock.nowMs() >= giveUpAtMs)
        assert.fail(`for ${this.#patienceMs} ms, the rows were never to be had, in ${attempt} tries`);
      await this.#standBack(attempt);
    }
  }

  async read(...keys: readonly Key[]): Promise<readonly (Row | null)[]> {
    const rows = await this.patiently(() => this.store.read(keys));
    return rows.map((row) => (row === null ? null : plain(row)));
  }

  async readOne(key: Key): Promise<Row | null> {
    const rows = await this.read(key);
    assert.equal(rows.length, 1, "a read of one key has one answer");
    return rows[0] ?? null;
  }

  async list(
    prefix = "",
    more: { space?: string; after?: string | null; limit?: number } = {},
  ): Promise<readonly Row[]> {
    const query = { space: SPACE, after: null, limit: 1000, ...more, prefix };
    return (await this.patiently(() => this.store.list(query))).map(plain);
  }

  async listKeys(prefix = "", more: Parameters<Writer["list"]>[1] = {}): Promise<readonly string[]> {
    return (await this.list(prefix, more)).map((row) => row.key);
  }

  entries(key: Key, after = 0, limit = 1000): Promise<readonly StoredEntry[]> {
    return this.patiently(() => this.store.entries(key, after, limit));
  }

  /** What a log says, without stamps and positions. */
  async log(key: Key, after = 0, limit = 1000): Promise<readonly Entry[]> {
    return (await this.entries(key, after, limit)).map(({ version, name, data }) => ({ version, name, data }));
  }

  due(kinds: readonly string[], limit = 1000): Promise<DuePage> {
    return this.patiently(() => this.store.due({ kinds, limit }));
  }

  async dueKeys(kinds: readonly string[], limit = 1000): Promise<readonly string[]> {
    return (await this.due(kinds, limit)).keys.map(({ key }) => key);
  }

  sweep(limit = 1000): Promise<number> {
    return this.patiently(() => this.store.sweep(limit));
  }

  /** The store's clock. */
  async nowMs(): Promise<number> {
    return (await this.due(["nothing is of this kind"], 1)).nowMs;
  }

  /** Found by a batch that locks this key and writes nothing. */
  async found(...keys: readonly Key[]): Promise<Found> {
    let seen: Found | undefined;
    const receipt = await this.commit({
      lock: keys,
      decide(found) {
        seen = found;
        return { puts: [] };
      },
    });
    assert.ok(receipt.committed && seen !== undefined);
    return seen;
  }

  /** The rows as a batch finds them that locks them: a store that remembers rows must not remember wrongly. */
  async locked(...keys: readonly Key[]): Promise<readonly (Row | null | undefined)[]> {
    return (await this.found(...keys)).rows.map((row) => (row ? plain(row) : row));
  }

  async patiently<T>(ask: () => Promise<T>): Promise<T> {
    const giveUpAtMs = nodePorts.clock.nowMs() + this.#patienceMs;
    for (let attempt = 1; ; attempt++) {
      try {
        return await ask();
      } catch (error) {
        if (!(error instanceof StoreError) || error.data.remedy !== "retry") throw error;
        if (nodePorts.clock.nowMs() >= giveUpAtMs) throw error;
      }
      await this.#standBack(attempt);
    }
  }

  /** Each writer at its own pace, so that they do not knock in step. */
  #standBack(attempt: number): Promise<void> {
    return rest(Math.min(50, attempt) * (0.25 + nodePorts.chance.random()) + this.#index);
  }
}

function arePuts(answer: readonly Key[] | readonly Put[]): answer is readonly Put[] {
  return answer.every((item) => "was" in item);
}

export const SPACE = "space";

export const at = (key: string, space = SPACE): Key => ({ space, key });

const BLANK: Row = {
  id: 0,
  space: SPACE,
  key: "",
  version: 1,
  stamp: 1,
  fence: 0,
  wakes: 0,
  tries: 0,
  holder: null,
  kind: null,
  status: null,
  dueMs: null,
  head: 0,
  value: "0",
};

/** A row that is not stored yet. */
export const blank = (key: string, columns: Partial<Row> = {}): Row => ({ ...BLANK, key, ...columns });

const entriesOf = (head: number, data: readonly string[]): readonly Entry[] =>
  data.map((text, index) => ({ version: head + index + 1, name: "said", data: text }));

export const making = (row: Row, ...data: readonly string[]): Put => ({
  was: null,
  row: { ...row, head: data.length },
  entries: entriesOf(0, data),
});

export const changing = (was: Row, columns: Partial<Row>, ...data: readonly string[]): Put => ({
  was,
  row: { ...was, version: was.version + 1, stamp: was.stamp + 1, head: was.head + data.length, ...columns },
  entries: entriesOf(was.head, data),
});

export const removing = (was: Row, keptUntilMs: number): Put =>
  changing(was, { value: null, kind: null, status: null, holder: null, tries: 0, dueMs: keptUntilMs });

/** The columns of the contract, whatever else a store's rows carry. */
export function plain(row: Row): Row {
  const { id, space, key, version, stamp, fence, wakes, tries, holder, kind, status, dueMs, head, value } = row;
  return { id, space, key, version, stamp, fence, wakes, tries, holder, kind, status, dueMs, head, value };
}

export function only<T>(items: readonly T[]): T {
  const [first] = items;
  assert.ok(first !== undefined && items.length === 1, "one was expected");
  return first;
}

/** Whole numbers from `from` up to and without `to`. */
export const range = (from: number, to: number): readonly number[] =>
  Array.from({ length: to - from }, (_, index) => from + index);

/** The refusal's own names, sorted, to compare. */
export const texts = (keys: readonly Key[]): readonly string[] => keys.map(keyText).sort();

export function isWithin(nowMs: number | null, before: number, after: number): void {
  assert.ok(nowMs !== null && Number.isSafeInteger(nowMs), `the clock said ${nowMs}`);
  assert.ok(before <= nowMs && nowMs <= after, `${nowMs} is not between ${before} and ${after}`);
}
