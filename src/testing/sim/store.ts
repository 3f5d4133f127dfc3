/**
 * The simulated store: a memory store behind a wire that fails.
 *
 * Each call stops before its effect and again before its reply. A commit has the shape of the hardest real one, a database
 * server: rows are locked and read, the decisions run, the writes are sent; in between others go on, find those rows locked,
 * and the process may stop or die. A commit whose rows are all known goes out at once, without a clock.
 *
 * A rewind puts the database back by some commits, as the promotion of a standby that was behind or a restore does: what was locked or on its way
 * is gone with the old server, processes keep what they remember, and replies that left the old server may still arrive. A process notices, as
 * `watchRestarts` says, by the first answer that comes from the other server.
 */

import type {
  Batch,
  DuePage,
  DueQuery,
  Found,
  Key,
  ListQuery,
  Put,
  Receipt,
  Row,
  StoredEntry,
} from "../../kernel/contract.ts";
import { keyText } from "../../kernel/contract.ts";
import { StoreError } from "../../kernel/errors.ts";
import { type MemoryBackup, MemoryDatabase, type MemoryStore } from "../../stores/memory/memory.ts";
import { type Commit, Database, type ProcessStore } from "./database.ts";
import type { Process } from "./process.ts";
import type { World } from "./world.ts";

/** How long the server lets a transaction stand idle before it ends it and gives its locks back. */
const IDLE_LIMIT_MS = 5_000;
/** A rewind loses at most so many commits. */
const MAX_LOST = 12;

/** One transaction on the server's side. */
interface Transaction {
  /** The clock that its decisions saw, if they could. */
  nowMs: number | null;
  /** The server ended it because it stood idle. */
  isOver: boolean;
  /** Which server it is bound to, by the number of rewinds before it; null while it is a message that any server may get. */
  server: number | null;
}

/** What all simulated processes share, in memory. */
export class SimulatedDatabase extends Database {
  readonly #world: World;
  readonly memory: MemoryDatabase;
  /** Which transaction has which row. */
  readonly locks = new Map<string, Transaction>();
  /** What the database was before each of the last commits, the oldest first. Only kept where the store may be rewound. */
  readonly #backups: MemoryBackup[] = [];
  diskFullUntilMs = 0;

  constructor(world: World) {
    super(() => world.nowMs);
    this.#world = world;
    this.memory = new MemoryDatabase(() => this.nowMs());
  }

  connect(process: Process, namespace: string): SimulatedStore {
    return new SimulatedStore(this.#world, process, this, namespace);
  }

  /** What it may be put back to, if it ever is. */
  backup(): MemoryBackup | undefined {
    return this.#world.faults.mix.rewind === 0 ? undefined : this.memory.backup();
  }

  /** Takes note of a commit, and of what was there before it. */
  committed(commit: Commit, before: MemoryBackup | undefined): void {
    this.commits.push(commit);
    if (before === undefined) return;
    this.#backups.push(before);
    if (this.#backups.length > MAX_LOST) this.#backups.shift();
  }

  override rewind(): void {
    const lost = Math.min(this.#backups.length, 1 + this.#world.random.below(MAX_LOST));
    const [backup] = this.#backups.splice(this.#backups.length - lost);
    if (backup === undefined) return;
    this.memory.restore(backup);
    // Its clock has gone on meanwhile, unless it is another server's that is behind by as much.
    if (this.#world.random.chance(0.7)) this.jumpClock(1 + this.#world.random.below(1_000));
    const to = this.commits.length - lost;
    this.rewinds.push({ to, lost: this.commits.splice(to) });
    this.locks.clear();
    this.#world.note(`the store goes back by ${lost} commits, to ${to}`);
    for (const { changed } of this.memory.watchers) changed();
  }

  async end(): Promise<void> {}
}

export class SimulatedStore implements ProcessStore {
  readonly lanes: number;
  readonly #world: World;
  readonly #process: Process;
  readonly #database: SimulatedDatabase;
  readonly #memory: MemoryStore;
  /** By lane: the transaction under way. */
  readonly #open: (Transaction | undefined)[] = [];
  /** How often the store had been rewound when it gave its last answer: another number is another server. */
  #server: number;
  #restarted: () => void = () => {};

  constructor(world: World, process: Process, database: SimulatedDatabase, namespace: string) {
    this.#world = world;
    this.#process = process;
    this.#database = database;
    this.#server = database.rewinds.length;
    this.lanes = world.lanes;
    this.#memory = database.memory.connect(namespace, { lanes: world.lanes });
  }

  async settle(lane: number): Promise<{ epoch: number; sequence: number }> {
    return this.#call("settle", () => {
      // The new epoch is the end of whatever this lane still had under way.
      this.#release(this.#open[lane]);
      return this.#memory.settle(lane);
    });
  }

  async commit(batch: Batch): Promise<Receipt> {
    const { faults } = this.#world;
    const transaction: Transaction = { nowMs: null, isOver: false, server: null };
    this.#open[batch.lane] = transaction;
    await this.#stop("commit: lock");
    this.#refuse();
    if (faults.strikes("lostRequest")) throw this.#unknown("the request was lost");
    // One that locks nothing is only a message, which may have been meant for the old server and reach the new one.
    if (batch.lock.length > 0) transaction.server = this.#database.rewinds.length;
    const puts = await this.#decide(batch, transaction);
    await this.#stop("commit: write");
    if (faults.strikes("serialization")) {
      this.#release(transaction);
      throw new StoreError("store_busy", "retry", "simulated: could not serialize access");
    }
    if (puts.length > 1 && faults.strikes("poison")) {
      this.#release(transaction);
      throw new StoreError("store_refused", "split", "simulated: one of the rows cannot be stored");
    }
    if (faults.strikes("lateRequest")) {
      // Still on its way: it arrives when its caller has long been told, unless its epoch or its server has ended by then.
      transaction.server ??= this.#database.rewinds.length;
      this.#world.scheduler.after(this.#world.random.below(4_000), () => {
        this.#write(batch, puts, transaction).catch(() => {});
      });
      throw this.#unknown("no answer in time");
    }
    const receipt = await this.#write(batch, puts, transaction);
    const server = this.#database.rewinds.length;
    if (faults.strikes("lostReply")) throw this.#unknown("the reply was lost");
    await this.#reply("commit");
    this.#answered(server);
    return receipt;
  }

  /** Locks, reads and lets the decisions run. */
  async #decide(batch: Batch, transaction: Transaction): Promise<readonly Put[]> {
    const take = async (keys: readonly Key[]): Promise<Found> => {
      const rows: (Row | null | undefined)[] = [];
      for (const key of keys) {
        const text = keyText(key);
        const isFree = !this.#database.locks.has(text) || this.#database.locks.get(text) === transaction;
        if (!isFree || this.#world.faults.strikes("busy")) rows.push(undefined);
        else {
          this.#database.locks.set(text, transaction);
          rows.push((await this.#memory.read([key]))[0] ?? null);
        }
      }
      // Nothing locked, nothing asked: the clock is not known.
      if (batch.needsClock || keys.length > 0) {
        transaction.nowMs ??= this.#database.memory.nowMs();
        this.#answered(this.#database.rewinds.length);
      }
      return { nowMs: transaction.nowMs, fenceFloor: this.#database.memory.fenceFloor, rows };
    };
    try {
      let verdict = batch.decide(await take(batch.lock));
      while ("lock" in verdict) {
        if (verdict.lock.length > 0) await this.#stop("commit: lock more");
        this.#checkServer(transaction);
        verdict = batch.decide(await take(verdict.lock));
      }
      if (batch.lock.length > 0)
        this.#world.scheduler.after(IDLE_LIMIT_MS, () => {
          transaction.isOver = true;
          this.#release(transaction);
        });
      if (this.#world.scheduler.keepsTrace)
        this.#world.note(
          `  decided: ${verdict.puts.map(({ row }) => `${row.space} ${row.key} v${row.version}`).join(", ")}`,
        );
      return verdict.puts;
    } catch (error) {
      this.#release(transaction);
      throw error;
    }
  }

  async #write(batch: Batch, puts: readonly Put[], transaction: Transaction): Promise<Receipt> {
    try {
      this.#checkServer(transaction);
      if (transaction.isOver)
        throw new StoreError("store_unreachable", "retry", "simulated: the transaction stood idle for too long");
      for (const { row } of puts) {
        const holder = this.#database.locks.get(keyText(row));
        if (holder !== undefined && holder !== transaction)
          throw new StoreError("store_busy", "retry", "simulated: a row is locked");
      }
      const before = this.#database.backup();
      const receipt = await this.#memory.commit({ ...batch, lock: [], decide: () => ({ puts }) });
      for (const { row } of puts) this.#world.scheduler.mix(`${row.key} ${row.version} ${row.value}`);
      if (receipt.committed && puts.length > 0)
        this.#database.committed(
          {
            nowMs: transaction.nowMs ?? receipt.nowMs,
            puts: puts.map((put, index) => ({ ...put, row: { ...put.row, id: receipt.ids[index] ?? 0 } })),
          },
          before,
        );
      return receipt;
    } finally {
      this.#release(transaction);
    }
  }

  #checkServer({ server }: Transaction): void {
    if (server !== null && server !== this.#database.rewinds.length) throw this.#unknown("the server is gone");
  }

  #release(transaction: Transaction | undefined): void {
    if (transaction === undefined) return;
    for (const [text, holder] of this.#database.locks) if (holder === transaction) this.#database.locks.delete(text);
    const lane = this.#open.indexOf(transaction);
    if (lane >= 0) this.#open[lane] = undefined;
  }

  read(keys: readonly Key[]): Promise<readonly (Row | null)[]> {
    return this.#call("read", () => this.#memory.read(keys));
  }

  list(query: ListQuery): Promise<readonly Row[]> {
    return this.#call("list", () => this.#memory.list(query));
  }

  entries(key: Key, after: number, limit: number): Promise<readonly StoredEntry[]> {
    return this.#call("entries", () => this.#memory.entries(key, after, limit));
  }

  due(query: DueQuery): Promise<DuePage> {
    return this.#call("due", () => this.#memory.due(query));
  }

  sweep(limit: number): Promise<number> {
    return this.#call("sweep", () => this.#memory.sweep(limit));
  }

  watch(changed: () => void): () => void {
    let isComing = false;
    return this.#memory.watch(() => {
      if (isComing || this.#world.faults.strikes("lostWake")) return;
      isComing = true;
      this.#process.stop("wake-up", () => {
        isComing = false;
        changed();
      });
    });
  }

  watchRestarts(restarted: () => void): void {
    this.#restarted = restarted;
  }

  #answered(server: number): void {
    if (server === this.#server) return;
    this.#server = server;
    this.#restarted();
  }

  async close(): Promise<void> {
    await this.#memory.close();
  }

  abandon(): void {
    for (const transaction of this.#open)
      if (transaction !== undefined)
        this.#world.scheduler.after(this.#world.random.below(1_000), () => this.#release(transaction));
    void this.#memory.close();
  }

  async #call<T>(label: string, effect: () => Promise<T>): Promise<T> {
    const { faults } = this.#world;
    await this.#stop(label);
    this.#world.rewindStore();
    const noAnswer = new StoreError("store_unreachable", "retry", "simulated: no answer");
    if (faults.strikes("lostRequest")) throw noAnswer;
    if (faults.strikes("busy")) throw new StoreError("store_busy", "retry", "simulated: busy");
    const result = await effect();
    const server = this.#database.rewinds.length;
    if (faults.strikes("lostReply")) throw noAnswer;
    await this.#reply(label);
    this.#answered(server);
    return result;
  }

  async #reply(label: string): Promise<void> {
    if (this.#world.faults.strikes("delay")) await this.#process.held(this.#world.random.below(60_000));
    await this.#stop(`${label}: reply`);
  }

  #stop(label: string): Promise<void> {
    return this.#process.arrive(label);
  }

  #refuse(): void {
    const { faults, random, scheduler } = this.#world;
    this.#world.jumpStoreClock();
    this.#world.rewindStore();
    if (faults.strikes("diskFull")) this.#database.diskFullUntilMs = scheduler.nowMs + random.below(2_000);
    if (scheduler.nowMs < this.#database.diskFullUntilMs && !faults.healed)
      throw new StoreError("store_full", "fail", "simulated: the disk is full");
    if (faults.strikes("busy")) throw new StoreError("store_busy", "retry", "simulated: busy");
  }

  #unknown(why: string): StoreError {
    return new StoreError("outcome_unknown", "settle", `simulated: ${why}`);
  }
}
