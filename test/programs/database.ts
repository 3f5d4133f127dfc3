/**
 * The simulated database with transactions that hold other SQL as well, so that `ctx.step.tx` runs in the simulator.
 *
 * The only statement is "insert" with one key: it counts in a row of its own, which is part of the same commit as the step's record. Statements and
 * decisions are collected while the transaction is open and written when it commits, if the rows that were read are still the same.
 */

import type {
  Batch,
  Executor,
  Found,
  Joined,
  Joining,
  Key,
  Put,
  Row,
  SharedWork,
  SqlStore,
} from "../../src/kernel/contract.ts";
import { keyText, NEW_ROW } from "../../src/kernel/contract.ts";
import { StoreError } from "../../src/kernel/errors.ts";
import type { Process } from "../../src/testing/sim/process.ts";
import { SimulatedDatabase, SimulatedStore } from "../../src/testing/sim/store.ts";
import type { World } from "../../src/testing/sim/world.ts";

/** Where the statements' rows are. */
export const EFFECTS = "sql-effect";

export class ProgramDatabase extends SimulatedDatabase {
  readonly #inWorld: World;
  /** How many shared transactions failed because others wrote what they had read. A real database would have let them wait. */
  moved = 0;

  constructor(world: World) {
    super(world);
    this.#inWorld = world;
  }

  override connect(process: Process, namespace: string): SimulatedStore {
    return new ProgramStore(this.#inWorld, process, this, namespace);
  }
}

/** One open transaction. */
class Shared {
  readonly inserted: string[] = [];
  /** What was read, by key, and what is to be written. */
  readonly read = new Map<string, Row | null>();
  puts: readonly Put[] = [];
}

class ProgramStore extends SimulatedStore implements SqlStore {
  readonly maxShared: number;
  readonly #database: ProgramDatabase;
  /** Shared transactions have lanes of their own. */
  readonly #joint: SimulatedStore;
  readonly #open = new Map<Executor, Shared>();

  constructor(world: World, process: Process, database: ProgramDatabase, namespace: string) {
    super(world, process, database, namespace);
    this.#database = database;
    this.#joint = new SimulatedStore(world, process, database, namespace);
    this.maxShared = this.#joint.lanes;
  }

  override settle(lane: number): Promise<{ epoch: number; sequence: number }> {
    return lane < this.lanes ? super.settle(lane) : this.#joint.settle(lane - this.lanes);
  }

  async share<T>(mark: Pick<Batch, "lane" | "epoch" | "sequence">, work: SharedWork<T>): Promise<T> {
    const shared = new Shared();
    const executor: Executor = async () => [];
    this.#open.set(executor, shared);
    const sql = {
      query: async (_text: string, values: readonly unknown[] = []) => {
        shared.inserted.push(String(values[0]));
        return { rows: [], rowCount: 1 };
      },
    };
    try {
      const value = await work(sql, executor);
      await this.#commit({ ...mark, lane: mark.lane - this.lanes }, shared);
      return value;
    } finally {
      this.#open.delete(executor);
    }
  }

  async join(executor: Executor, { lock, decide }: Joining): Promise<Joined> {
    const shared = this.#open.get(executor);
    if (shared === undefined) throw new StoreError("store_refused", "fail", "simulated: no such transaction");
    const { memory } = this.#database;
    const take = async (keys: readonly Key[]): Promise<Found> => {
      const rows = await memory.connect("simulated").read(keys);
      for (const [at, key] of keys.entries()) shared.read.set(keyText(key), rows[at] ?? null);
      return { nowMs: memory.nowMs(), fenceFloor: memory.fenceFloor, rows };
    };
    let verdict = decide(await take(lock));
    while ("lock" in verdict) verdict = decide(await take(verdict.lock));
    shared.puts = verdict.puts;
    return { written: true, committed: Promise.resolve(true) };
  }

  #moved(): StoreError {
    this.#database.moved += 1;
    return new StoreError("store_busy", "retry", "simulated: the rows moved under the shared transaction");
  }

  async #commit(mark: Pick<Batch, "lane" | "epoch" | "sequence">, shared: Shared): Promise<void> {
    const effects = shared.inserted.map((key): Key => ({ space: EFFECTS, key }));
    const lock = [...shared.puts.map(({ row }) => row), ...effects].map(({ space, key }) => ({ space, key }));
    const decide = ({ rows }: Found): { puts: readonly Put[] } => {
      const isMoved = shared.puts.some(({ row }, at) => {
        const read = shared.read.get(keyText(row)) ?? null;
        const now = rows[at];
        return now === undefined || now?.version !== read?.version;
      });
      if (isMoved || rows.some((row) => row === undefined)) throw this.#moved();
      const inserted = effects.map((key, at): Put => {
        const was = rows[shared.puts.length + at] ?? null;
        return { was, row: { ...(was ?? NEW_ROW), ...key, version: (was?.version ?? 0) + 1, value: "1" }, entries: [] };
      });
      return { puts: [...shared.puts, ...inserted] };
    };
    const receipt = await this.#joint.commit({ ...mark, lock, needsClock: true, decide });
    if (!receipt.committed) throw this.#moved();
  }

  override abandon(): void {
    this.#joint.abandon();
    super.abandon();
  }
}
