/**
 * Where the tests of idempotency and dedupe stand: a store in memory or in a file, with a clock that is moved by hand, and any number of
 * processes on it.
 */

import { afterEach, beforeEach } from "vitest";
import type { Attempt } from "../../src/idempotency/attempt.ts";
import { Idempotency, type IdempotentOptions } from "../../src/idempotency/idempotency.ts";
import type { Store } from "../../src/kernel/contract.ts";
import type { Tx } from "../../src/kernel/decision.ts";
import { Kernel } from "../../src/kernel/kernel.ts";
import type { Ports } from "../../src/kernel/ports.ts";
import { plainly } from "../../src/kernel/sql/in-sql.ts";
import { MemoryDatabase } from "../../src/stores/memory/memory.ts";
import { openSqlite } from "../../src/stores/sqlite/sqlite.ts";
import { countingChance, drained, gate, ManualClock, temporaryFolder } from "../kernel/kit.ts";

/** One process on the store. */
export interface Member {
  readonly kernel: Kernel;
  readonly keys: Idempotency<Tx, object>;
}

export interface Place {
  readonly clock: ManualClock;
  /** The store's clock moves on, and no process notices. */
  jump(ms: number): void;
  join(): Promise<Member>;
  /** Removed rows are gone for good. */
  sweepStore(): Promise<void>;
  close(): Promise<void>;
}

export const places = [
  ["memory", () => place((wallMs) => new MemoryDatabase(wallMs))],
  ["SQLite", () => place()],
] as const;

let runs = 0;

async function place(database?: (wallMs: () => number) => MemoryDatabase): Promise<Place> {
  const clock = new ManualClock();
  let aheadMs = 0;
  const wallMs = (): number => clock.wallMs() + aheadMs;
  const memory = database?.(wallMs);
  const folder = temporaryFolder();
  const path = folder.file(`keys-${++runs}.db`);
  const ports: Ports = { clock, chance: countingChance() };
  const kernels: Kernel[] = [];
  const stores: Store[] = [];
  const connect = async (): Promise<Store> =>
    memory?.connect("test") ??
    openSqlite({ path, namespace: "test", ports, wallMs, durability: "process", patienceMs: 1_000 });
  return {
    clock,
    jump(ms) {
      aheadMs += ms;
    },
    async join() {
      // Decisions run twice in memory, and must write the same.
      const trap = memory === undefined ? undefined : <T>(decision: () => T): T => decision();
      const store = await connect();
      stores.push(store);
      const kernel = new Kernel(store, { ...ports, trap }, { namespace: "test", patienceMs: 1_000 });
      kernels.push(kernel);
      const keys = new Idempotency(kernel, plainly);
      kernel.sweeper.add(keys.queues);
      return { kernel, keys };
    },
    async sweepStore() {
      for (const store of stores) await store.sweep(1_000);
    },
    async close() {
      await drained();
      for (const kernel of kernels) await kernel.close();
      folder.remove();
    },
  };
}

/** Two processes on one store, started anew for each test of the describe block. What it returns is always about the current test. */
export function twoProcesses(open: () => Promise<Place>) {
  let place: Place;
  let a: Member;
  let b: Member;
  let runCount: number;
  beforeEach(async () => {
    place = await open();
    a = await place.join();
    b = await place.join();
    runCount = 0;
  });
  afterEach(() => place.close());

  const countRun = (): void => {
    runCount += 1;
  };
  return {
    place: {
      get clock(): ManualClock {
        return place.clock;
      },
      jump: (ms: number) => place.jump(ms),
      join: () => place.join(),
      sweepStore: () => place.sweepStore(),
    },
    a: memberOf(() => a),
    b: memberOf(() => b),
    /** How often the work ran. */
    ran: () => runCount,
    countRun,

    /** Work that returns this value. */
    work:
      (value: unknown = "done") =>
      () => {
        countRun();
        return value;
      },

    /** Work that has begun, and ends when the test resolves it. */
    async slowly(member: Member, key = "k", options: IdempotentOptions = {}) {
      const begun = gate();
      const end = Promise.withResolvers<unknown>();
      let attempt: Attempt<Tx, object> | undefined;
      const answer = member.keys.idempotent(key, options, async (given) => {
        countRun();
        attempt = given;
        begun.open();
        return end.promise;
      });
      answer.catch(() => {});
      await begun.opened;
      if (attempt === undefined) throw new Error("it has not begun");
      return { answer, attempt, ...end };
    },
  };
}

const memberOf = (current: () => Member): Member => ({
  get kernel() {
    return current().kernel;
  },
  get keys() {
    return current().keys;
  },
});
