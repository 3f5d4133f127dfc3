/**
 * Pawl: the kernel on a store, opened as `open` does it, used in five ways. The place determines the store.
 *
 * - plain: `kernel.transact`, the path of everything that was not claimed first. Rows that this process wrote last are not read again.
 * - locked: the same by decisions that look at the store's clock, so that their rows are locked and read each time.
 * - new: as plain, for records that are said to be new, and so assumed to be absent.
 * - held: `Held.commit`, the path of the holder of a record's lease.
 * - slot: `slot.update`, the public API.
 */

import { claimDue, Held } from "../src/kernel/claim/claim.ts";
import { address, newAddress, type Store } from "../src/kernel/contract.ts";
import type { Tx } from "../src/kernel/decision.ts";
import type { Draft } from "../src/kernel/draft.ts";
import type { Kernel } from "../src/kernel/kernel.ts";
import { nodePorts, wallMs } from "../src/node/ports.ts";
import { type Pawl, pawlOn } from "../src/pawl.ts";
import { isPostgres, poolFor } from "../src/stores/postgres/pool.ts";
import { openPostgres } from "../src/stores/postgres/postgres.ts";
import { openSqlite } from "../src/stores/sqlite/sqlite.ts";
import type { Contender, Session, Timing } from "./contender.ts";
import type { Place } from "./ground.ts";
import { type Plan, recordAt, stepAt } from "./plan.ts";

export const NAMESPACE = "bench";

export interface Ours {
  readonly pawl: Pawl;
  readonly kernel: Kernel;
  /** How many transactions the store was asked for so far. */
  transactions(): number;
}

export async function openOurs(place: Place): Promise<Ours> {
  const store = await openStore(place);
  let transactions = 0;
  const commit = store.commit.bind(store);
  store.commit = (batch) => {
    transactions += 1;
    return commit(batch);
  };
  const pawl = pawlOn(store, nodePorts, { namespace: NAMESPACE });
  return { pawl, kernel: pawl.kernel, transactions: () => transactions };
}

function openStore(place: Place): Promise<Store> {
  const options = { namespace: NAMESPACE, ports: nodePorts, durability: "full", patienceMs: 30_000 } as const;
  if (!isPostgres(place)) return openSqlite({ ...options, path: place, wallMs });
  return poolFor(place).then((pool) => openPostgres({ ...options, ...pool, schema: "pawl" }));
}

/** One commit to one record: the `step`-th of the plan. */
export type Act = (step: number) => Promise<unknown>;
export type Way = (ours: Ours, plan: Plan) => Promise<readonly Act[]>;

async function plain({ kernel }: Ours, plan: Plan): Promise<readonly Act[]> {
  const write = writer(plan);
  return plan.keys.map((key) => {
    const at = address(plan.space, key);
    return (step) => kernel.transact((tx) => write(tx.record(at), step), [at]);
  });
}

async function asNew({ kernel }: Ours, plan: Plan): Promise<readonly Act[]> {
  const write = writer(plan);
  return plan.keys.map((key) => {
    const at = newAddress(address(plan.space, key));
    return (step) => kernel.transact((tx) => write(tx.record(at), step), [at]);
  });
}

async function locked({ kernel }: Ours, plan: Plan): Promise<readonly Act[]> {
  const write = writer(plan);
  return plan.keys.map((key) => {
    const at = address(plan.space, key);
    const decide = (tx: Tx, step: number) => tx.nowMs > 0 && write(tx.record(at), step);
    return (step) => kernel.transact((tx) => decide(tx, step), [at]);
  });
}

async function held({ kernel }: Ours, plan: Plan): Promise<readonly Act[]> {
  const write = writer(plan);
  const rows = await kernel.read(plan.keys.map((key) => address(plan.space, key)));
  return rows.map((row) => {
    if (row === null || row.holder === null) throw new Error("the records of this plan must be claimed first");
    const mine = new Held(kernel, row);
    return (step) => mine.commit((record) => write(record, step));
  });
}

async function slot({ pawl }: Ours, plan: Plan): Promise<readonly Act[]> {
  return plan.keys.map((key) => {
    const counter = pawl.slot(key, { initial: 0 });
    return () => counter.update((count) => count + 1);
  });
}

function writer({ values, logged }: Plan): (record: Draft, step: number) => void {
  return (record, step) => {
    record.write({ value: values[step] });
    if (logged) record.append("step", values[step]);
  };
}

class OursSession implements Session {
  readonly #ours: Ours;
  readonly #way: Way;

  constructor(ours: Ours, way: Way) {
    this.#ours = ours;
    this.#way = way;
  }

  async run(plan: Plan): Promise<Timing> {
    const acts = await this.#way(this.#ours, plan);
    const latenciesMs: number[] = [];
    const alone = plan.callers === 1;
    const call = async (caller: number): Promise<void> => {
      for (let turn = 0; turn < plan.turns; turn++) {
        const act = acts[recordAt(plan, turn, caller)];
        const startedMs = alone ? performance.now() : 0;
        await act?.(stepAt(plan, turn));
        if (alone) latenciesMs.push(performance.now() - startedMs);
      }
    };
    const before = this.#ours.transactions();
    const startedMs = performance.now();
    await Promise.all(Array.from({ length: plan.callers }, (_, caller) => call(caller)));
    const ms = performance.now() - startedMs;
    return { ms, transactions: this.#ours.transactions() - before, latenciesMs };
  }

  close(): Promise<void> {
    return this.#ours.pawl.close();
  }
}

/** One more way to use it. */
export function contender(name: string, way: Way): Contender {
  return { name, open: async (place) => new OursSession(await openOurs(place), way) };
}

export const ours = contender("Pawl", plain);
export const oursNew = contender("Pawl, assumed absent", asNew);
export const oursLocked = contender("Pawl, locked", locked);
export const oursHeld = contender("Pawl, as holder", held);
export const oursSlot = contender("Pawl, slot.update", slot);

const FOR_LONG_MS = 60 * 60 * 1000;
const CLAIMED_AT_ONCE = 500;

/** Creates the plan's records and claims them, for contenders that work on claimed records. */
export async function claimAll(place: Place, plan: Plan): Promise<void> {
  const { kernel } = await openOurs(place);
  const make = (key: string) => {
    const at = address(plan.space, key);
    return kernel.transact((tx) => tx.record(at).write({ value: null, kind: "bench", dueMs: tx.nowMs }), [at]);
  };
  await Promise.all(plan.keys.map(make));
  const claim = { kinds: ["bench"], by: "bench", leaseMs: FOR_LONG_MS, limit: CLAIMED_AT_ONCE };
  let claimed = 0;
  while (claimed < plan.keys.length) claimed += (await claimDue(kernel, claim)).held.length;
  await kernel.close();
}
