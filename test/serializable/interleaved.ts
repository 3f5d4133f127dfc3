/**
 * A store in memory whose commits really meet: rows are locked and read, then others have their turn, then the decisions run, then others
 * have their turn again, and then the rows are written, as with a server. And the same store with one of its promises broken.
 *
 * It stands on the memory store and the contract alone, so it needs no change when the kernel or the real stores do.
 */

import { setImmediate as turn } from "node:timers/promises";
import type { Batch, Found, Key, Put, Receipt, Row, Store } from "../../src/kernel/contract.ts";
import { keyText } from "../../src/kernel/contract.ts";
import { StoreError } from "../../src/kernel/errors.ts";
import { wallMs } from "../../src/node/ports.ts";
import { MemoryDatabase, type MemoryStore } from "../../src/stores/memory/memory.ts";
import type { Random } from "../../src/testing/sim/random.ts";
import { WrappedStore } from "../../src/testing/wrapped-store.ts";

/** What a store does no more. */
export interface Weakness {
  /** Which rows it locks. */
  readonly locks?: (row: Row | null, isLate: boolean) => boolean;
  /** Rows that moved are written over. */
  readonly overwrites?: boolean;
  /** A commit is written in two parts. */
  readonly tears?: boolean;
  /** Several rows are read at several moments. */
  readonly readsApart?: boolean;
  /** What this writer read last is used without a check. */
  readonly remembers?: boolean;
  /** A refused batch is reported as committed. */
  readonly lies?: boolean;
  /** A commit is reported before it is written. */
  readonly hurries?: boolean;
  /** The reply is lost, and the batch is reported as not committed. */
  readonly forgets?: boolean;
  /** Deletions are not written. */
  readonly keeps?: boolean;
  /** Rows are read before others have written, although they are locked after. */
  readonly looksEarly?: boolean;
}

/** What all writers share. */
export class InterleavedDatabase {
  readonly memory = new MemoryDatabase(wallMs);
  readonly locks = new Map<string, object>();

  connect(namespace: string, lanes: number, random: Random, weakness: Weakness = {}): Store {
    return new InterleavedStore(this, this.memory.connect(namespace, { lanes }), random, weakness);
  }
}

class InterleavedStore extends WrappedStore<MemoryStore> {
  readonly #database: InterleavedDatabase;
  readonly #random: Random;
  readonly #weakness: Weakness;
  readonly #remembered = new Map<string, Row | null>();

  constructor(database: InterleavedDatabase, memory: MemoryStore, random: Random, weakness: Weakness) {
    super(memory);
    this.#database = database;
    this.#random = random;
    this.#weakness = weakness;
  }

  override async commit(batch: Batch): Promise<Receipt> {
    const transaction = {};
    try {
      await this.#others();
      const nowMs = batch.lock.length > 0 || batch.needsClock ? this.#database.memory.nowMs() : null;
      const found = async (keys: readonly Key[], isLate: boolean): Promise<Found> => ({
        nowMs,
        fenceFloor: this.#database.memory.fenceFloor,
        rows: await this.#lock(keys, transaction, isLate),
      });
      let verdict = batch.decide(await found(batch.lock, false));
      while ("lock" in verdict) {
        await this.#others();
        const late = await found(verdict.lock, true);
        verdict = batch.decide(nowMs === null ? { ...late, nowMs: this.#database.memory.nowMs() } : late);
      }
      const { puts } = verdict;
      await this.#others();
      if (this.#weakness.hurries === true && puts.length > 0) {
        const ids = puts.map(({ row }) => row.id);
        void this.#othersOften()
          .then(() => this.#write(batch, puts, transaction))
          .catch(() => {});
        return { committed: true, nowMs: wallMs(), ids };
      }
      return await this.#write(batch, puts, transaction);
    } finally {
      for (const [text, holder] of this.#database.locks) if (holder === transaction) this.#database.locks.delete(text);
    }
  }

  async #lock(keys: readonly Key[], transaction: object, isLate: boolean): Promise<(Row | null | undefined)[]> {
    const { locks: mayLock = () => true, remembers, looksEarly } = this.#weakness;
    const early = looksEarly === true ? await this.inner.read(keys) : null;
    if (early !== null) await this.#others();
    const rows = early ?? (await this.inner.read(keys));
    return keys.map((key, i) => {
      const text = keyText(key);
      const row = rows[i] ?? null;
      const holder = this.#database.locks.get(text);
      if (holder !== undefined && holder !== transaction) return undefined;
      if (mayLock(row, isLate)) this.#database.locks.set(text, transaction);
      const known = this.#remembered.get(text);
      this.#remembered.set(text, row);
      return remembers === true && known !== undefined && this.#random.chance(0.5) ? known : row;
    });
  }

  async #write(batch: Batch, given: readonly Put[], transaction: object): Promise<Receipt> {
    const { overwrites, tears, lies, forgets, keeps } = this.#weakness;
    for (const { row } of given) {
      const holder = this.#database.locks.get(keyText(row));
      if (holder !== undefined && holder !== transaction)
        throw new StoreError("store_busy", "retry", "another has locked a row");
    }
    const now = await this.inner.read(given.map(({ row }) => row));
    const isStill = now.every((row, i) => row?.version === given[i]?.was?.version);
    const puts =
      overwrites !== true || isStill
        ? given
        : given.map((put, i): Put => {
            const was = now[i] ?? null;
            return { ...put, was, row: { ...put.row, id: was?.id ?? 0, version: (was?.version ?? 0) + 1 } };
          });
    const kept = keeps === true ? puts.filter(({ row }) => row.value !== null) : puts;
    const write = (some: readonly Put[]) => this.inner.commit({ ...batch, lock: [], decide: () => ({ puts: some }) });
    if (tears === true && isStill && kept.length > 1) {
      const half = Math.ceil(kept.length / 2);
      const first = await write(kept.slice(0, half));
      await this.#othersOften();
      const second = await write(kept.slice(half));
      if (!first.committed || !second.committed) return { committed: false, moved: [] };
      return { ...second, ids: [...first.ids, ...second.ids] };
    }
    const receipt = await write(kept);
    if (receipt.committed && kept.length < given.length) return { ...receipt, ids: given.map(({ row }) => row.id) };
    if (!receipt.committed && lies === true)
      return { committed: true, nowMs: wallMs(), ids: given.map(({ row }) => row.id) };
    if (forgets === true && this.#random.chance(0.05))
      throw new StoreError("store_busy", "retry", "it was not written, or so it is told");
    return receipt;
  }

  /** Others have their turn, or several. */
  async #others(): Promise<void> {
    for (let i = this.#random.below(4); i >= 0; i--) await turn();
  }

  /** Long enough for another process to read in between. */
  async #othersOften(): Promise<void> {
    for (let i = 0; i < 8; i++) await this.#others();
  }

  override async read(keys: readonly Key[]): Promise<readonly (Row | null)[]> {
    await this.#others();
    if (this.#weakness.readsApart !== true) return this.inner.read(keys);
    const rows: (Row | null)[] = [];
    for (const key of keys) {
      rows.push((await this.inner.read([key]))[0] ?? null);
      await this.#others();
    }
    return rows;
  }
}
