/**
 * The kernel: one verb to write, a few ways to read, and a bell that rings when something changed.
 *
 * Capabilities (slots, locks, workflows, …) are decisions handed to `transact`, and reads. They never see the store. Reads are
 * tried again while the store is busy; writes go through the batcher, which does the same for them.
 */

import { Batcher } from "./batcher.ts";
import type { Codec } from "./codec/codec.ts";
import { jsonCodec } from "./codec/json.ts";
import type { Address, DuePage, DueQuery, Executor, Key, ListQuery, Put, Row, Store, StoredEntry } from "./contract.ts";
import { type Decision, Guard } from "./decision.ts";
import { deepFreeze, Encoding } from "./encoding.ts";
import { ClosedError, StoreError, UsedInBodyError } from "./errors.ts";
import { Joint, type JointWork } from "./joint.ts";
import { type Ports, pause } from "./ports.ts";

export interface KernelOptions {
  readonly namespace: string;
  readonly codec?: Codec | undefined;
  readonly maxValueBytes?: number | undefined;
  /** How long a call may wait for a store that is busy or away. */
  readonly patienceMs?: number | undefined;
}

/** Rings with what this process committed, or with nothing when another process did. */
export type Bell = (puts: readonly Put[] | undefined) => void;

const MAX_VALUE_BYTES = 1024 * 1024;
const PATIENCE_MS = 30_000;
/** So many log entries are read at a time. */
const PAGE = 500;
/** Whoever deletes sweeps up: one small sweep for so many deletions. */
const SWEEP_EVERY = 256;

export class Kernel {
  readonly #store: Store;
  readonly #ports: Ports;
  readonly #batcher: Batcher;
  readonly #joint: Joint;
  readonly namespace: string;
  readonly #encoding: Encoding;
  readonly #guard = new Guard();
  readonly #patienceMs: number;
  readonly #bells = new Set<Bell>();
  readonly #restartListeners = new Set<() => void>();
  #unwatch: (() => void) | undefined;
  /** The first commit sweeps, for those who never delete that many. */
  #deletions = SWEEP_EVERY;
  #closed: Promise<void> | undefined;

  constructor(store: Store, ports: Ports, options: KernelOptions) {
    this.#store = store;
    this.#ports = ports;
    this.#patienceMs = options.patienceMs ?? PATIENCE_MS;
    const { namespace, codec = jsonCodec, maxValueBytes = MAX_VALUE_BYTES } = options;
    this.namespace = namespace;
    this.#encoding = new Encoding(namespace, codec, maxValueBytes);
    this.#batcher = new Batcher(store, ports, {
      encoding: this.#encoding,
      guard: this.#guard,
      patienceMs: this.#patienceMs,
      committed: (puts) => this.#committed(puts),
    });
    store.watchRestarts?.(() => {
      for (const restarted of [...this.#restartListeners]) restarted();
    });
    this.#joint = new Joint(store, {
      encoding: this.#encoding,
      guard: this.#guard,
      ports,
      patienceMs: this.#patienceMs,
      committed: () => this.#ring(undefined),
    });
  }

  get ports(): Ports {
    return this.#ports;
  }

  /** Whether an open transaction keeps all other commits waiting. */
  get isSingleWriter(): boolean {
    return this.#store.lanes === 1;
  }

  /** Runs the decision and commits what it writes; the keys are those it is known to touch. */
  transact<T>(decide: Decision<T>, keys: readonly Address[]): Promise<T> {
    this.#checkOutside();
    return this.#batcher.submit(decide, keys);
  }

  /** The same for a decision that keeps a lease: it does not wait behind all others. */
  transactUrgently<T>(decide: Decision<T>, keys: readonly Address[]): Promise<T> {
    this.#checkOutside();
    return this.#batcher.submit(decide, keys, { isUrgent: true });
  }

  /** The same for the holder of a record's lease, without a read where the store can do without. */
  transactHeld<T>(decide: Decision<T>, held: Address): Promise<T> {
    return this.#batcher.submit(decide, [held], { isHolder: true });
  }

  /** Runs the decision inside a transaction that somebody else opened; it holds once they commit. */
  within<T>(executor: Executor, decide: Decision<T>, keys: readonly Address[]): Promise<T> {
    this.#checkOutside();
    if (this.#guard.isBroken()) return new Promise(() => {});
    if (this.#closed !== undefined) throw new ClosedError();
    return this.#joint.within(executor, decide, keys);
  }

  /** Opens a transaction for the work, which may run SQL and join decisions to it, and commits all of it. */
  share<T>(work: JointWork<T>): Promise<T> {
    this.#checkOutside();
    if (this.#guard.isBroken()) return new Promise(() => {});
    if (this.#closed !== undefined) throw new ClosedError();
    return this.#joint.share(work);
  }

  /** Keeps the row of a record that this process holds, for `transactHeld`. */
  hold(at: Address, row: Row): void {
    this.#batcher.know(at, row);
  }

  /** The same for a record that is about to be made by a commit of this process, which will hold it: then the row is known. */
  expect(at: Address, isExpected: boolean): void {
    this.#batcher.expect(at, isExpected);
  }

  held(at: Address): Row | undefined {
    return this.#batcher.known(at);
  }

  letGo(at: Address): void {
    this.#batcher.forget(at);
  }

  read(keys: readonly Address[]): Promise<readonly (Row | null)[]> {
    return this.#patiently(() => this.#store.read(keys));
  }

  list(query: ListQuery): Promise<readonly Row[]> {
    return this.#patiently(() => this.#store.list(query));
  }

  entries(at: Address, after: number, limit: number): Promise<readonly StoredEntry[]> {
    return this.#patiently(() => this.#store.entries(at, after, limit));
  }

  /** All entries after this version, in pages: each is read when the one before is done with. */
  async *entriesAfter(at: Address, after: number): AsyncGenerator<StoredEntry> {
    for (let seen = after; ; ) {
      const page = await this.entries(at, seen, PAGE);
      yield* page;
      const last = page.at(-1);
      if (page.length < PAGE || last === undefined) return;
      seen = last.version;
    }
  }

  due(query: DueQuery): Promise<DuePage> {
    return this.#patiently(() => this.#store.due(query));
  }

  encode(key: Key, value: unknown): string {
    return this.#encoding.encode(key, value);
  }

  /** A stored text as a value, frozen like those that decisions see. */
  decode(key: Key, text: string): unknown {
    const value = this.#encoding.decode(key, text);
    deepFreeze(value);
    return value;
  }

  /** The same as a value of one's own, which may be changed. */
  decodeFresh(key: Key, text: string): unknown {
    return this.#encoding.decode(key, text);
  }

  /** Rings after every commit that this process makes, and soon, not surely, after those of others. */
  listen(bell: Bell): () => void {
    this.#bells.add(bell);
    this.#unwatch ??= this.#store.watch(() => this.#ring(undefined));
    return () => {
      this.#bells.delete(bell);
      if (this.#bells.size > 0) return;
      this.#unwatch?.();
      this.#unwatch = undefined;
    };
  }

  /** Calls back when the store may have lost commits (`Store.watchRestarts`). Returns how to stop it. */
  onRestart(restarted: () => void): () => void {
    this.#restartListeners.add(restarted);
    return () => void this.#restartListeners.delete(restarted);
  }

  /** Lets what was submitted finish, then closes the store. */
  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  async #close(): Promise<void> {
    await Promise.all([this.#batcher.close(), this.#joint.close()]);
    this.#unwatch?.();
    await this.#store.close();
    // Whoever still listens looks once more, and learns that it is over.
    this.#ring(undefined);
    this.#bells.clear();
  }

  #committed(puts: readonly Put[]): void {
    for (const put of puts) if (put.row.value === null) this.#deletions += 1;
    if (this.#deletions >= SWEEP_EVERY) {
      this.#deletions = 0;
      // A sweep that fails is made up for by the next one.
      this.#store.sweep(2 * SWEEP_EVERY).catch(() => {});
    }
    this.#ring(puts);
  }

  #ring(puts: readonly Put[] | undefined): void {
    if (this.#bells.size > 0) for (const bell of [...this.#bells]) bell(puts);
  }

  /** In the body of a run this would happen again at each replay. */
  #checkOutside(): void {
    const place = this.#ports.bodies?.current();
    if (place !== undefined && place.step === undefined) throw new UsedInBodyError(place.run);
  }

  async #patiently<T>(read: () => Promise<T>): Promise<T> {
    this.#checkOutside();
    if (this.#guard.isBroken()) return new Promise(() => {});
    if (this.#closed !== undefined) throw new ClosedError();
    const giveUpAtMs = this.#ports.clock.nowMs() + this.#patienceMs;
    for (let failures = 1; ; failures++) {
      try {
        return await read();
      } catch (error) {
        if (!(error instanceof StoreError) || error.data.remedy !== "retry") throw error;
        if (giveUpAtMs <= this.#ports.clock.nowMs()) throw error;
        await pause(this.#ports.clock, Math.min(50, 2 ** failures) * (0.25 + this.#ports.chance.random()));
      }
    }
  }
}
