/**
 * The kernel: one method to write, a few to read, and listeners that are notified of commits.
 *
 * Capabilities (slots, locks, workflows, …) are decisions handed to `transact`, and reads. They never see the store. Reads are
 * retried while the store is busy; writes go through the batcher, which does the same for them.
 */

import { backoffMs, STORE_BACKOFF } from "./backoff.ts";
import { Batcher } from "./batcher.ts";
import { utf8Length } from "./check.ts";
import { CLOSING_MS } from "./closing.ts";
import type { Codec } from "./codec/codec.ts";
import { jsonCodec } from "./codec/json.ts";
import type {
  Address,
  DuePage,
  DueQuery,
  Executor,
  FollowPage,
  FollowQuery,
  Key,
  ListQuery,
  Put,
  Row,
  Store,
  StoredEntry,
} from "./contract.ts";
import { type Decision, DecisionGuard } from "./decision.ts";
import { deepFreeze, Encoding } from "./encoding.ts";
import { ClosedError, StoreError, UsedInBodyError } from "./errors.ts";
import { Leases } from "./lease.ts";
import { type Ports, pause } from "./ports.ts";
import { Joint, type JointWork } from "./sql/joint.ts";
import { Sweeper } from "./sweeper.ts";

export interface KernelOptions {
  readonly namespace: string;
  readonly codec?: Codec | undefined;
  readonly maxValueBytes?: number | undefined;
  /** How long a call may wait for a store that is busy or unreachable. Default: 30 s. */
  readonly patienceMs?: number | undefined;
}

/** Called with what this process committed, or with undefined when another process committed. */
export type CommitListener = (puts: readonly Put[] | undefined) => void;

const MAX_VALUE_BYTES = 1024 * 1024;
const PATIENCE_MS = 30_000;
/** How often a decision is made again because it lacked something. */
const MOST_ROUNDS = 20;
/** How many log entries, or records, are read at a time. */
const PAGE = 500;
/** A page of log entries ends when it has as many bytes: a page of large ones would not fit into memory. */
export const PAGE_BYTES = 4 * 1024 * 1024;

/** Entries of one log. */
export interface EntryPage {
  readonly entries: readonly StoredEntry[];
  /** Whether the page ended because of one of its limits. Otherwise it has the last entry. */
  readonly hasMore: boolean;
}

const bytesOf = (entries: readonly StoredEntry[]): number =>
  entries.reduce((bytes, { data }) => bytes + utf8Length(data), 0);

export class Kernel {
  readonly #store: Store;
  readonly #ports: Ports;
  readonly #batcher: Batcher;
  readonly #joint: Joint;
  readonly namespace: string;
  /** The leases that this handle keeps. */
  readonly leases: Leases;
  readonly sweeper: Sweeper;
  /** The claim loops that run on this handle, and whether they still turn. */
  readonly loops = new Set<{ readonly isStalled: boolean }>();
  readonly #encoding: Encoding;
  readonly #guard = new DecisionGuard();
  /** How long a call may wait. */
  readonly patienceMs: number;
  readonly #listeners = new Set<CommitListener>();
  readonly #restartListeners = new Set<() => void>();
  readonly #mends: ((error: unknown) => Promise<boolean>)[] = [];
  #unwatch: (() => void) | undefined;
  #closed: Promise<void> | undefined;

  constructor(store: Store, ports: Ports, options: KernelOptions) {
    this.#store = store;
    this.#ports = ports;
    this.leases = new Leases(ports.clock);
    this.sweeper = new Sweeper({
      clock: ports.clock,
      due: (query) => this.due(query),
      removeDeleted: (limit) => store.sweep(limit),
    });
    this.patienceMs = options.patienceMs ?? PATIENCE_MS;
    const { namespace, codec = jsonCodec, maxValueBytes = MAX_VALUE_BYTES } = options;
    this.namespace = namespace;
    this.#encoding = new Encoding(namespace, codec, maxValueBytes);
    this.#batcher = new Batcher(store, ports, {
      encoding: this.#encoding,
      guard: this.#guard,
      patienceMs: this.patienceMs,
      committed: (puts) => this.#committed(puts),
    });
    store.watchRestarts?.(() => {
      for (const restarted of [...this.#restartListeners]) restarted();
    });
    this.#joint = new Joint(store, {
      encoding: this.#encoding,
      guard: this.#guard,
      ports,
      patienceMs: this.patienceMs,
      committed: (puts) => {
        this.sweeper.committed(puts);
        this.#notify(undefined);
      },
    });
  }

  /** See `Tx.handle`. */
  get handle(): object {
    return this.#encoding;
  }

  get ports(): Ports {
    return this.#ports;
  }

  /** Whether an open transaction makes all other commits wait. */
  get isSingleWriter(): boolean {
    return this.#store.hasOneWriter;
  }

  /** Runs the decision and commits what it writes; `keys` are the records that it is known to touch. */
  transact<T>(decide: Decision<T>, keys: readonly Address[]): Promise<T> {
    this.#checkOutside();
    return this.#batcher.submit(decide, keys);
  }

  /** Adds a way to do outside a decision what a decision lacked (`Capability.mend`). */
  addMend(mend: (error: unknown) => Promise<boolean>): void {
    this.#mends.push(mend);
  }

  /** Commits, and again each time that a capability has done what the decision lacked, as its error says. */
  async mending<T>(commit: () => Promise<T>): Promise<T> {
    for (let round = 1; ; round++)
      try {
        return await commit();
      } catch (error) {
        if (round === MOST_ROUNDS || !(await this.#isMended(error))) throw error;
      }
  }

  async #isMended(error: unknown): Promise<boolean> {
    for (const mend of this.#mends) if (await mend(error)) return true;
    return false;
  }

  /** Like `transact`, for a decision that renews a lease: it comes before all others. */
  transactUrgently<T>(decide: Decision<T>, keys: readonly Address[]): Promise<T> {
    this.#checkOutside();
    return this.#batcher.submit(decide, keys, { isUrgent: true });
  }

  /** Like `transact`, for the holder of a record's lease: without a read if the row is known. `also` are other records that it touches. */
  transactHeld<T>(decide: Decision<T>, held: Address, also: readonly Address[] = []): Promise<T> {
    return this.#batcher.submit(decide, also.length === 0 ? [held] : [held, ...also], { isHolder: true });
  }

  /** Like `transactHeld`, for a decision that needs the store's clock: its records are read under their locks, also where they could be assumed. */
  transactLocked<T>(decide: Decision<T>, keys: readonly Address[]): Promise<T> {
    return this.#batcher.submit(decide, keys, { isLocked: true });
  }

  /** Runs the decision inside a transaction that the application opened; it takes effect when that commits. */
  within<T>(executor: Executor, decide: Decision<T>, keys: readonly Address[]): Promise<T> {
    this.#checkOutside();
    if (this.#guard.isInsideDecision()) return new Promise(() => {});
    if (this.#closed !== undefined) throw new ClosedError();
    return this.#joint.within(executor, decide, keys);
  }

  /** Opens a transaction for the work, which may run SQL and decisions in it, and commits it. */
  share<T>(work: JointWork<T>): Promise<T> {
    this.#checkOutside();
    if (this.#guard.isInsideDecision()) return new Promise(() => {});
    if (this.#closed !== undefined) throw new ClosedError();
    return this.#joint.share(work);
  }

  /** Throws `invalid_argument` if the store cannot share a transaction with SQL. */
  checkSql(): void {
    this.#joint.checkSql();
  }

  /** Keeps the row of a record that this process holds, for `transactHeld`. */
  hold(at: Address, row: Row): void {
    this.#batcher.know(at, row);
  }

  /** Declares that a commit of this process is about to create a record and will hold it: its row is then kept, too. */
  expect(at: Address, isExpected: boolean): void {
    this.#batcher.expect(at, isExpected);
  }

  held(at: Address): Row | undefined {
    return this.#batcher.known(at);
  }

  letGo(at: Address): void {
    this.#batcher.forget(at);
  }

  /** As `letGo`, of a record that this process has just released and will probably claim next: it may be assumed that no other has written it since. */
  released(at: Address): void {
    this.#batcher.released(at);
  }

  read(keys: readonly Address[]): Promise<readonly (Row | null)[]> {
    return this.#patiently(() => this.#store.read(keys));
  }

  list(query: ListQuery): Promise<readonly Row[]> {
    return this.#patiently(() => this.#store.list(query));
  }

  /** All records of a space whose keys begin with this, in the order of their keys, read page by page. */
  async *rows(space: string, prefix = ""): AsyncGenerator<Row> {
    for (let after: string | null = null; ; ) {
      const page: readonly Row[] = await this.list({ space, prefix, after, limit: PAGE });
      yield* page;
      if (page.length < PAGE) return;
      after = page.at(-1)?.key ?? null;
    }
  }

  entries(at: Address, after: number, limit: number, maxBytes?: number): Promise<readonly StoredEntry[]> {
    return this.#patiently(() => this.#store.entries(at, after, limit, maxBytes));
  }

  /** The same, bounded by bytes as well, so that entries of any size fit into memory; and whether the page ended because of that, or of its limit. */
  async entryPage(at: Address, after: number, limit: number, maxBytes = PAGE_BYTES): Promise<EntryPage> {
    const entries = await this.entries(at, after, limit, maxBytes);
    return { entries, hasMore: entries.length >= limit || bytesOf(entries) >= maxBytes };
  }

  /** All entries after version `after`, read page by page. Where the beginning was pruned, those that are left. */
  async *entriesAfter(at: Address, after: number): AsyncGenerator<StoredEntry> {
    for (let seen = after; ; ) {
      const { entries, hasMore } = await this.entryPage(at, seen, PAGE);
      yield* entries;
      if (!hasMore) return;
      seen = entries.at(-1)?.version ?? seen;
    }
  }

  /**
   * A page of followed entries (`Store.follow`), bounded by bytes as well. An entry is the key of its own data: `decode(entry, entry.data)`.
   */
  follow(query: FollowQuery): Promise<FollowPage> {
    return this.#patiently(async () => {
      const sentMs = this.#ports.clock.nowMs();
      const page = await this.#store.follow({ maxBytes: PAGE_BYTES, ...query });
      this.#batcher.sawClock(page.nowMs, sentMs);
      return page;
    });
  }

  /** Removes the oldest entries of a log, in a bounded step (`Store.prune`). Safe to repeat. Returns how many; 0 when none is left. */
  prune(at: Address, upTo: number, limit: number): Promise<number> {
    return this.#patiently(() => this.#store.prune(at, upTo, limit));
  }

  due(query: DueQuery): Promise<DuePage> {
    return this.#patiently(() => this.#store.due(query));
  }

  encode(key: Key, value: unknown): string {
    return this.#encoding.encode(key, value);
  }

  /** Decodes a stored text; the value is frozen like those that decisions see. */
  decode(key: Key, text: string): unknown {
    const value = this.#encoding.decode(key, text);
    deepFreeze(value);
    return value;
  }

  /** Decodes a stored text to a value that the caller may change. */
  decodeFresh(key: Key, text: string): unknown {
    return this.#encoding.decode(key, text);
  }

  /** Calls back after every commit of this process, and soon, but not reliably, after those of others. Returns a function that stops it. */
  listen(listener: CommitListener): () => void {
    this.#listeners.add(listener);
    this.#unwatch ??= this.#store.watch(() => this.#notify(undefined));
    return () => {
      this.#listeners.delete(listener);
      if (this.#listeners.size > 0) return;
      this.#unwatch?.();
      this.#unwatch = undefined;
    };
  }

  /** Calls back when the store may have lost commits (`Store.watchRestarts`). Returns a function that stops it. */
  onRestart(restarted: () => void): () => void {
    this.#restartListeners.add(restarted);
    return () => void this.#restartListeners.delete(restarted);
  }

  /** Waits for what was submitted, and for transactions with other SQL at most for `sqlMs`; then closes the store. */
  close(sqlMs = CLOSING_MS): Promise<void> {
    this.#closed ??= this.#close(sqlMs);
    return this.#closed;
  }

  async #close(sqlMs: number): Promise<void> {
    const joint = this.#joint.close(sqlMs);
    if (this.sweeper.isSweeping) await this.sweeper.close();
    await Promise.all([this.#batcher.close(), joint]);
    this.#unwatch?.();
    await this.#store.close();
    // Remaining listeners read once more, and get `closed`.
    this.#notify(undefined);
    this.#listeners.clear();
  }

  #committed(puts: readonly Put[]): void {
    this.sweeper.committed(puts);
    this.#notify(puts);
  }

  #notify(puts: readonly Put[] | undefined): void {
    if (this.#listeners.size > 0) for (const listener of [...this.#listeners]) listener(puts);
  }

  /** In the body of a run, the call would be repeated at each replay. */
  #checkOutside(): void {
    const place = this.#ports.bodies?.current();
    if (place !== undefined && place.step === undefined) throw new UsedInBodyError(place.run);
  }

  async #patiently<T>(read: () => Promise<T>): Promise<T> {
    this.#checkOutside();
    if (this.#guard.isInsideDecision()) return new Promise(() => {});
    if (this.#closed !== undefined) throw new ClosedError();
    const giveUpAtMs = this.#ports.clock.nowMs() + this.patienceMs;
    for (let failures = 1; ; failures++) {
      try {
        return await read();
      } catch (error) {
        if (!(error instanceof StoreError) || error.data.remedy !== "retry") throw error;
        if (giveUpAtMs <= this.#ports.clock.nowMs()) throw error;
        await pause(this.#ports.clock, backoffMs(STORE_BACKOFF, failures, this.#ports.chance));
      }
    }
  }
}
