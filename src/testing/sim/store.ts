/**
 * The simulated store: a memory store over an unreliable connection.
 *
 * Each call stops before its effect and again before its reply. A commit works as on the most difficult real store, a database server: rows are
 * locked and read, the decisions run, the writes are sent; in between other processes run, find those rows locked, and the process may be paused
 * or crash. A commit whose rows are all known is sent immediately, without the clock.
 *
 * A rewind takes back some commits, as the promotion of a standby that was behind or a restore does: locks and requests are lost with the old
 * server, processes keep what they have in memory, and replies of the old server may still arrive. A process notices, as `watchRestarts`
 * says, by the first reply from the other server.
 */

import type { Batch, Found, Key, Put, Receipt, Row } from "../../kernel/contract.ts";
import { keyText } from "../../kernel/contract.ts";
import { StoreError } from "../../kernel/errors.ts";
import { type MemoryBackup, MemoryDatabase, type MemoryStore } from "../../stores/memory/memory.ts";
import { WrappedStore } from "../wrapped-store.ts";
import { type Commit, Database, type ProcessStore } from "./database.ts";
import type { Process } from "./process.ts";
import type { World } from "./world.ts";

/** The server ends a transaction that is idle for this long, and releases its locks. */
const IDLE_LIMIT_MS = 5_000;
/** The most commits that a rewind loses. */
const MAX_LOST = 12;

/** A transaction on the server. */
interface Transaction {
  /** The time that its decisions saw, if they did. */
  nowMs: number | null;
  /** The server ended it because it was idle. */
  isOver: boolean;
  /** The server it is bound to, by the number of rewinds before it; null while it is a message that any server may receive. */
  server: number | null;
}

/** The database in memory that all simulated processes share. */
export class SimulatedDatabase extends Database {
  readonly #world: World;
  readonly memory: MemoryDatabase;
  /** By row: the transaction that has locked it. */
  readonly locks = new Map<string, Transaction>();
  /** The database before each of the last commits, the oldest first. Empty if there are no rewinds. */
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

  /** Returns a backup, if there can be rewinds. */
  backup(): MemoryBackup | undefined {
    return this.#world.faults.mix.rewind === 0 ? undefined : this.memory.backup();
  }

  /** Records a commit, and the backup from before it. */
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
    // The clock has advanced meanwhile, unless it is that of another server, behind by as much.
    if (this.#world.random.chance(0.7)) this.jumpClock(1 + this.#world.random.below(1_000));
    const to = this.commits.length - lost;
    this.rewinds.push({ to, lost: this.commits.splice(to) });
    this.locks.clear();
    this.#world.note(`the store loses its last ${lost} commits; ${to} remain`);
    for (const { changed } of this.memory.watchers) changed();
  }

  async end(): Promise<void> {}
}

export class SimulatedStore extends WrappedStore<MemoryStore> implements ProcessStore {
  /** With one lane it stands for a file on this machine, with several for a server. */
  override readonly isRemote: boolean;
  override readonly hasOneWriter: boolean;
  readonly #world: World;
  readonly #process: Process;
  readonly #database: SimulatedDatabase;
  /** By lane: the open transaction. */
  readonly #open: (Transaction | undefined)[] = [];
  /** The number of rewinds before the last reply: another number is another server. */
  #server: number;
  #restarted: () => void = () => {};

  constructor(world: World, process: Process, database: SimulatedDatabase, namespace: string) {
    super(database.memory.connect(namespace, { lanes: world.lanes }));
    this.#world = world;
    this.#process = process;
    this.#database = database;
    this.#server = database.rewinds.length;
    this.isRemote = world.lanes > 1;
    this.hasOneWriter = world.lanes === 1;
  }

  override async settle(lane: number): Promise<{ epoch: number; sequence: number }> {
    return this.call("settle", () => {
      // The new epoch ends the lane's open transaction.
      this.#release(this.#open[lane]);
      return this.inner.settle(lane);
    });
  }

  override async commit(batch: Batch): Promise<Receipt> {
    const { faults } = this.#world;
    const transaction: Transaction = { nowMs: null, isOver: false, server: null };
    this.#open[batch.lane] = transaction;
    await this.#stop("commit: lock");
    this.#refuse();
    if (faults.strikes("lostRequest")) throw this.#unknown("the request was lost");
    // A commit without locks is only a message, which may have been sent to the old server and reach the new one.
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
      // It arrives after its caller got the error, unless its epoch or its server has ended by then.
      transaction.server ??= this.#database.rewinds.length;
      this.#world.scheduler.after(this.#world.random.below(4_000), () => {
        this.#write(batch, puts, transaction).catch(() => {});
      });
      throw this.#unknown("no reply in time");
    }
    const receipt = await this.#write(batch, puts, transaction);
    const server = this.#database.rewinds.length;
    if (faults.strikes("lostReply")) throw this.#unknown("the reply was lost");
    await this.#reply("commit");
    this.#replied(server);
    return receipt;
  }

  /** Locks and reads the rows, and runs the decisions. */
  async #decide(batch: Batch, transaction: Transaction): Promise<readonly Put[]> {
    const lock = async (keys: readonly Key[]): Promise<Found> => {
      const rows: (Row | null | undefined)[] = [];
      for (const key of keys) {
        const text = keyText(key);
        const isFree = !this.#database.locks.has(text) || this.#database.locks.get(text) === transaction;
        if (!isFree || this.#world.faults.strikes("busy")) rows.push(undefined);
        else {
          this.#database.locks.set(text, transaction);
          rows.push((await this.inner.read([key]))[0] ?? null);
        }
      }
      // Without locks and without a request for it, the clock is not read.
      if (batch.needsClock || keys.length > 0) {
        transaction.nowMs ??= this.#database.memory.nowMs();
        this.#replied(this.#database.rewinds.length);
      }
      return { nowMs: transaction.nowMs, fenceFloor: this.#database.memory.fenceFloor, rows };
    };
    try {
      let verdict = batch.decide(await lock(batch.lock));
      while ("lock" in verdict) {
        if (verdict.lock.length > 0) await this.#stop("commit: lock more");
        this.#checkServer(transaction);
        verdict = batch.decide(await lock(verdict.lock));
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
        throw new StoreError("store_unreachable", "retry", "simulated: the transaction was idle for too long");
      for (const { row } of puts) {
        const holder = this.#database.locks.get(keyText(row));
        if (holder !== undefined && holder !== transaction)
          throw new StoreError("store_busy", "retry", "simulated: a row is locked");
      }
      const before = this.#database.backup();
      const receipt = await this.inner.commit({ ...batch, lock: [], decide: () => ({ puts }) });
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

  override watch(changed: () => void): () => void {
    let isComing = false;
    return this.inner.watch(() => {
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

  #replied(server: number): void {
    if (server === this.#server) return;
    this.#server = server;
    this.#restarted();
  }

  override async close(): Promise<void> {
    await this.inner.close();
  }

  abandon(): void {
    for (const transaction of this.#open)
      if (transaction !== undefined)
        this.#world.scheduler.after(this.#world.random.below(1_000), () => this.#release(transaction));
    void this.inner.close();
  }

  protected override async call<T>(label: string, effect: () => Promise<T>): Promise<T> {
    const { faults } = this.#world;
    await this.#stop(label);
    this.#world.rewindStore();
    const noReply = new StoreError("store_unreachable", "retry", "simulated: no reply");
    if (faults.strikes("lostRequest")) throw noReply;
    if (faults.strikes("busy")) throw new StoreError("store_busy", "retry", "simulated: busy");
    const result = await effect();
    const server = this.#database.rewinds.length;
    if (faults.strikes("lostReply")) throw noReply;
    await this.#reply(label);
    this.#replied(server);
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
