/**
 * What laws run with: writers connected to one fresh database, and helpers for what they do.
 *
 * A `Writer` knows what the kernel knows of its store: the epoch and the sequence of each lane. It retries as the kernel does: "busy, try
 * again" is a legal reply, and so is a row that another transaction has locked. It changes nothing that a store returns.
 *
 * Time and randomness come from `src/node/`, for waiting only. The current time is read from the store.
 */

import assert from "node:assert/strict";
import {
  type DuePage,
  type Entry,
  type FollowPage,
  type FollowQuery,
  type Found,
  type Key,
  keyText,
  NEW_ROW,
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
  /** Moves the clock forward. */
  advance(ms: number): void | Promise<void>;
  /** Sets the clock, forward or back. */
  set(nowMs: number): void | Promise<void>;
}

/** One fresh, empty database, for one law. */
export interface Harness {
  /** Connects a new writer to the database. Default: the same namespace for all. Closing a closed store again must be allowed. */
  connect(namespace?: string): Promise<Store>;
  /** Moves the store's clock, if that is possible. Without it, laws about time wait for real time to pass. */
  readonly clock?: HarnessClock;
  /** Releases what was opened. Every store is closed by then. */
  close(): Promise<void>;
}

/** A law before it has a harness: it gets its own context. */
export interface Rule {
  readonly name: string;
  readonly setsClock: boolean;
  readonly check: (context: LawContext) => Promise<void>;
}

export function rule(name: string, check: (context: LawContext) => Promise<void>): Rule {
  return { name, setsClock: false, check };
}

/** A law that needs a clock that can be set. */
export function clockRule(name: string, check: (context: LawContext, clock: HarnessClock) => Promise<void>): Rule {
  return {
    name,
    setsClock: true,
    check(context) {
      const { clock } = context;
      if (clock === undefined)
        throw new Error(
          "this law needs a store whose clock can be set: add a `clock` to the harness, or name the law in `differences`",
        );
      return check(context, clock);
    },
  };
}

export class LawContext {
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

  /** Moves the store's clock to this time, or waits for it if the clock cannot be moved. */
  async advanceTo(writer: Writer, atMs: number): Promise<void> {
    const nowMs = await writer.nowMs();
    if (nowMs < atMs && this.clock !== undefined) await this.clock.advance(atMs - nowMs);
    await this.until(`the store's clock reaches ${atMs}`, async () => (await writer.nowMs()) >= atMs);
  }

  /** Polls until the condition holds; fails when the time limit ends. */
  async until(what: string, look: () => boolean | Promise<boolean>): Promise<void> {
    const giveUpAtMs = nodePorts.clock.nowMs() + this.patienceMs;
    while (!(await look())) {
      if (nodePorts.clock.nowMs() >= giveUpAtMs)
        assert.fail(`this did not happen within ${this.patienceMs} ms: ${what}`);
      await sleep(1);
    }
  }

  async end(): Promise<void> {
    await Promise.allSettled(this.#writers.map((writer) => writer.store.close()));
    await this.#harness.close();
  }
}

/** Waits until pending callbacks have run. */
export const turn = (): Promise<void> => new Promise((resolve) => nodePorts.clock.soon(resolve));

export const sleep = (ms: number): Promise<void> => pause(nodePorts.clock, ms);

/** One commit: which rows it locks first, and its decision on what it finds. */
export interface CommitPlan {
  readonly lock?: readonly Key[];
  readonly lane?: number;
  readonly needsClock?: boolean;
  readonly maxBytes?: number;
  /** The round is 0 at the first call for a batch, and increases by one with each further call. */
  readonly decide: (found: Found, round: number) => Verdict;
}

/** The epoch that a lane writes in, and the last sequence it used, as counted by this writer after `settle`. */
export interface Mark {
  readonly epoch: number;
  readonly sequence: number;
}

/** Rows by name, as a commit that waits for its locks has found them. */
export type KnownRows = ReadonlyMap<string, Row | null>;

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
    const { epoch, sequence } = await this.retryBusy(() => this.store.settle(lane));
    this.#marks.set(lane, { epoch, sequence });
    return { epoch, sequence };
  }

  /** Commits one batch; retries a busy store, with the next sequence. */
  commit(plan: CommitPlan): Promise<Receipt> {
    const { lane = 0, lock = [], needsClock = false, maxBytes } = plan;
    return this.retryBusy(async () => {
      const { epoch, sequence: last } = this.#marks.get(lane) ?? (await this.settle(lane));
      const sequence = last + 1;
      this.#marks.set(lane, { epoch, sequence });
      let round = 0;
      const decide = (found: Found) => plan.decide(found, round++);
      return this.store.commit({ lane, epoch, sequence, lock, needsClock, maxBytes, decide });
    });
  }

  /** Writes the puts without reading first; the store must agree. Returns the rows as stored. */
  async write(...puts: readonly Put[]): Promise<readonly Row[]> {
    const receipt = await this.commit({ decide: () => ({ puts }) });
    assert.ok(receipt.committed, "a batch whose rows are unchanged was refused");
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

  /** Deletes a row as the kernel does, kept until that time. */
  async remove(was: Row, keptUntilMs: number): Promise<Row> {
    return only(await this.write(removing(was, keptUntilMs)));
  }

  /** Locks, decides and writes, as often as needed: waits for locked rows, and reads rows that moved again. */
  async transact(keys: readonly Key[], decide: (rows: KnownRows) => readonly Key[] | readonly Put[]): Promise<void> {
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
        assert.fail(`the rows could not be locked for ${this.#patienceMs} ms, in ${attempt} attempts`);
      await this.#backOff(attempt);
    }
  }

  async read(...keys: readonly Key[]): Promise<readonly (Row | null)[]> {
    const rows = await this.retryBusy(() => this.store.read(keys));
    return rows.map((row) => (row === null ? null : plain(row)));
  }

  async readOne(key: Key): Promise<Row | null> {
    const rows = await this.read(key);
    assert.equal(rows.length, 1, "a read of one key returns one result");
    return rows[0] ?? null;
  }

  async list(
    prefix = "",
    more: { space?: string; after?: string | null; limit?: number } = {},
  ): Promise<readonly Row[]> {
    const query = { space: SPACE, after: null, limit: 1000, ...more, prefix };
    return (await this.retryBusy(() => this.store.list(query))).map(plain);
  }

  async listKeys(prefix = "", more: Parameters<Writer["list"]>[1] = {}): Promise<readonly string[]> {
    return (await this.list(prefix, more)).map((row) => row.key);
  }

  entries(key: Key, after = 0, limit = 1000, maxBytes?: number): Promise<readonly StoredEntry[]> {
    return this.retryBusy(() => this.store.entries(key, after, limit, maxBytes));
  }

  /** The entries of a log, without stamps and positions. */
  async log(key: Key, after = 0, limit = 1000): Promise<readonly Entry[]> {
    return (await this.entries(key, after, limit)).map(({ version, name, data }) => ({ version, name, data }));
  }

  follow(query: Partial<FollowQuery> = {}): Promise<FollowPage> {
    return this.retryBusy(() => this.store.follow({ space: SPACE, after: 0, limit: 1000, ...query }));
  }

  due(kinds: readonly string[], limit = 1000): Promise<DuePage> {
    return this.retryBusy(() => this.store.due({ kinds, limit }));
  }

  async dueKeys(kinds: readonly string[], limit = 1000): Promise<readonly string[]> {
    return (await this.due(kinds, limit)).keys.map(({ key }) => key);
  }

  prune(key: Key, upTo: number, limit = 1000): Promise<number> {
    return this.retryBusy(() => this.store.prune(key, upTo, limit));
  }

  sweep(limit = 1000): Promise<number> {
    return this.retryBusy(() => this.store.sweep(limit));
  }

  /** The store's clock. */
  async nowMs(): Promise<number> {
    return (await this.due(["no record has this kind"], 1)).nowMs;
  }

  /** Returns what a batch finds that locks these keys and writes nothing. */
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

  /** The rows as a batch finds them that locks them: a store that caches rows must not return stale ones. */
  async locked(...keys: readonly Key[]): Promise<readonly (Row | null | undefined)[]> {
    return (await this.found(...keys)).rows.map((row) => (row ? plain(row) : row));
  }

  async retryBusy<T>(ask: () => Promise<T>): Promise<T> {
    const giveUpAtMs = nodePorts.clock.nowMs() + this.#patienceMs;
    for (let attempt = 1; ; attempt++) {
      try {
        return await ask();
      } catch (error) {
        if (!(error instanceof StoreError) || error.data.remedy !== "retry") throw error;
        if (nodePorts.clock.nowMs() >= giveUpAtMs) throw error;
      }
      await this.#backOff(attempt);
    }
  }

  /** Pauses differ between writers, so that they do not retry at the same times. */
  #backOff(attempt: number): Promise<void> {
    return sleep(Math.min(50, attempt) * (0.25 + nodePorts.chance.random()) + this.#index);
  }
}

function arePuts(answer: readonly Key[] | readonly Put[]): answer is readonly Put[] {
  return answer.every((item) => "was" in item);
}

export const SPACE = "space";

export const at = (key: string, space = SPACE): Key => ({ space, key });

/** A row that is not stored yet. */
export const blank = (key: string, columns: Partial<Row> = {}): Row => ({
  ...NEW_ROW,
  space: SPACE,
  key,
  version: 1,
  stamp: 1,
  value: "0",
  ...columns,
});

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

/** The same, with entries that are followed. */
export const followed = (put: Put): Put => ({
  ...put,
  entries: put.entries.map((entry) => ({ ...entry, isFollowed: true })),
});

export const removing = (was: Row, keptUntilMs: number): Put =>
  changing(was, { value: null, kind: null, status: null, holder: null, tries: 0, dueMs: keptUntilMs });

/** Only the columns of the contract, without others that a store's rows have. */
export function plain(row: Row): Row {
  const { id, space, key, version, stamp, fence, wakes, tries, holder, kind, status, dueMs, head, value } = row;
  return { id, space, key, version, stamp, fence, wakes, tries, holder, kind, status, dueMs, head, value };
}

export function only<T>(items: readonly T[]): T {
  const [first] = items;
  assert.ok(first !== undefined && items.length === 1, "one was expected");
  return first;
}

/** Whole numbers from `from` up to, but not including, `to`. */
export const range = (from: number, to: number): readonly number[] =>
  Array.from({ length: to - from }, (_, index) => from + index);

/** The names of the keys, sorted, to compare. */
export const texts = (keys: readonly Key[]): readonly string[] => keys.map(keyText).sort();

export function isWithin(nowMs: number | null, before: number, after: number): void {
  assert.ok(nowMs !== null && Number.isSafeInteger(nowMs), `the clock said ${nowMs}`);
  assert.ok(before <= nowMs && nowMs <= after, `${nowMs} is not between ${before} and ${after}`);
}
