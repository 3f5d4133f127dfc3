/**
 * Paths: every way by which a transaction reaches the store, as a function that follows a plan and tells what came of it.
 *
 * All of them work on the same records: a list is the value of a slot, which the kernel's own callers reach by its address. So
 * transactions of different paths meet on the same keys.
 *
 * "Create mine, look at yours" is a separate shape: two callers each create an unused key, and look whether the other
 * one's is there. If both find nothing, no order explains it. It goes through every caller that takes a record for absent.
 */

import { type Pawl, PawlError, type Slot, type SqlExecutor } from "../../src/index.ts";
import { claimDue, type Held } from "../../src/kernel/claim/claim.ts";
import { type Address, address, newAddress } from "../../src/kernel/contract.ts";
import type { Tx as KernelTx } from "../../src/kernel/decision.ts";
import type { ListOperation, ListTransaction } from "../../src/testing/checkers/lists/transactions.ts";
import type { Random } from "../../src/testing/sim/random.ts";
import type { Tx } from "../../src/tx.ts";
import { drawPlan, follow, foreseen, type Lists, type Place, type Plan, type Table } from "./plan.ts";

/** A connection of the application's own, for `within`. */
export interface Plain {
  readonly executor: SqlExecutor;
  query(text: string): Promise<unknown>;
}

/** What the paths work with: one handle, as one process has it. */
export interface Desk {
  readonly pawl: Pawl;
  /** Names the process. */
  readonly name: string;
  readonly random: Random;
  readonly nextValue: () => number;
  /** Runs the work on a connection of the application's own; null where there is none free. */
  readonly borrow?: <T>(work: (plain: Plain) => Promise<T>) => Promise<T> | null;
  /** Whether the store shares transactions with SQL. */
  readonly hasSql: boolean;
  /** Begins a transaction, and records how it ends; `decided` is called for each execution of its decision, before the store gets it. */
  readonly record: (about: string, run: (decided: Decided) => Promise<Outcome>) => Promise<Outcome>;
  readonly sleep: (ms: number) => Promise<void>;
  /** Tells what the driver throws where a connection is lost in the user's own SQL: it was not committed. */
  readonly isConnectionLost?: (error: unknown) => boolean;
}

/** Keys that are used together for a while, and then never again. */
export interface Window {
  readonly name: string;
  readonly lists: Lists;
  /** Lists whose records are claimed. */
  readonly claimed: readonly string[];
}

export type Decided = (operations: readonly ListOperation[]) => void;

export interface Outcome {
  readonly outcome: ListTransaction["outcome"];
  readonly operations: readonly ListOperation[];
}

const LEASE_MS = 500;

const SLOTS = "slot";

/** The keys of a window: as many more as there are processes to keep out of each other's way. */
export const windowOf = (name: string, size = 1): Window => ({
  name,
  lists: {
    mortal: Array.from({ length: 14 * size }, (_, i) => `${name}/m${i}`),
    growing: Array.from({ length: 10 * size }, (_, i) => `${name}/g${i}`),
  },
  claimed: Array.from({ length: 4 }, (_, i) => `${name}/c${i}`),
});

/** The decision changed its mind; with what it had seen. */
class Refusal extends Error {
  readonly operations: readonly ListOperation[];
  constructor(operations: readonly ListOperation[]) {
    super("the plan says so");
    this.operations = operations;
  }
}

// ------------------------------------------------------------------------------------------------- faces

const atOf = (key: string): Address => address(SLOTS, key);

/** Lists as the kernel's own callers see them. */
class KernelTable implements Table {
  readonly #tx: KernelTx;
  readonly #at: (key: string) => Address;
  constructor(tx: KernelTx, at: (key: string) => Address = atOf) {
    this.#tx = tx;
    this.#at = at;
  }

  open(key: string): Place {
    const record = this.#tx.record(this.#at(key));
    const queue = queueOf(key);
    return {
      list: record.exists ? (record.value as number[]) : null,
      version: record.version,
      write: (list) => {
        // Lists that are claimed wait in the queue of their window from the moment they are made.
        record.write(record.exists || queue === null ? { value: list } : { value: list, kind: queue, dueMs: 0 });
        return record.version;
      },
      remove: () => {
        record.remove();
        return record.version;
      },
    };
  }
}

const queueOf = (key: string): string | null => {
  const [window = "", name = ""] = key.split("/");
  return name.startsWith("c") ? `lists-${window}` : null;
};

/** Lists as users see them. */
class SlotTable implements Table {
  readonly #pawl: Pawl;
  readonly #tx: Tx;
  constructor(pawl: Pawl, tx: Tx) {
    this.#pawl = pawl;
    this.#tx = tx;
  }

  open(key: string): Place {
    const slot = this.#tx.slot(this.#pawl.slot<readonly number[]>(key));
    const { value = null } = slot.get();
    return {
      list: value,
      version: undefined,
      write: (list) => slot.set(list).version,
      remove: () => {
        slot.delete();
        return undefined;
      },
    };
  }
}

// ------------------------------------------------------------------------------------------------- paths

/** How a plan is followed by one caller of the kernel. `note` gets the operations of each run; the last run is the one that counts. */
type Path = (
  desk: Desk,
  plan: Plan,
  window: Window,
  note: (run: () => ListOperation[]) => ListOperation[],
) => Promise<unknown>;

const slotsOf = (pawl: Pawl, keys: readonly string[]): Slot<readonly number[]>[] =>
  keys.map((key) => pawl.slot<readonly number[]>(key));

/** A decision on users' lists, for a plan. */
const onSlots =
  (pawl: Pawl, plan: Plan, note: Parameters<Path>[3]) =>
  (tx: Tx): void =>
    decideOn(plan, new SlotTable(pawl, tx), note);

function decideOn(plan: Plan, table: Table, note: Parameters<Path>[3]): void {
  const operations = note(() => follow(plan, table));
  if (plan.throws) throw new Refusal(operations);
}

const paths: Readonly<Record<string, Path>> = {
  /** All keys that are known beforehand are declared. */
  declared: ({ pawl }, plan, _, note) =>
    pawl.transact(onSlots(pawl, plan, note), { touches: slotsOf(pawl, foreseen(plan)) }),
  undeclared: ({ pawl }, plan, _, note) => pawl.transact(onSlots(pawl, plan, note)),
  /** Only the first is declared: the others turn up late. */
  late: ({ pawl }, plan, _, note) =>
    pawl.transact(onSlots(pawl, plan, note), { touches: slotsOf(pawl, foreseen(plan).slice(0, 1)) }),
  kernel: ({ pawl }, plan, _, note) =>
    pawl.kernel.transact((tx) => decideOn(plan, new KernelTable(tx), note), foreseen(plan).map(atOf)),
  /** Each record is taken for absent until the commit, right or wrong. */
  "taken for absent": ({ pawl, random }, plan, _, note) => {
    const at = (key: string) => newAddress(atOf(key));
    const keys = random.chance(0.5) ? foreseen(plan).map(at) : [];
    return pawl.kernel.transact((tx) => decideOn(plan, new KernelTable(tx, at), note), keys);
  },
  /** A plan that needs the store's clock goes the locked way. */
  clock: ({ pawl }, plan, _, note) =>
    pawl.transact((tx) => {
      void tx.nowMs;
      onSlots(pawl, plan, note)(tx);
    }),
  dedupe: async ({ pawl, nextValue }, plan, window, note) => {
    const message = `${window.name}/d${nextValue()}`;
    await pawl.dedupe("lists", message, onSlots(pawl, plan, note));
  },
  /** The key of an attempt, and the plan in the commit of its answer. */
  idempotent: async ({ pawl, nextValue }, plan, window, note) => {
    await pawl.idempotent(`${window.name}/k${nextValue()}`, undefined, (attempt) =>
      attempt.commit((tx) => {
        onSlots(pawl, plan, note)(tx);
        return 1;
      }),
    );
  },
  sql: ({ pawl }, plan, _, note) =>
    pawl.transact.sql(async (sql, tx) => {
      await sql.query("select 1 as one");
      const touches = slotsOf(pawl, plan.steps.length % 2 === 0 ? foreseen(plan) : []);
      return tx(onSlots(pawl, plan, note), { touches });
    }),
};

const SQL_PATHS = new Set(["sql"]);

/** A caller that gets a result knows what happened; a refusal by the store says nothing about what was read. */
export async function perform(desk: Desk, window: Window, about: string, path: Path, plan: Plan): Promise<Outcome> {
  return desk.record(about, async (decided) => {
    let operations: ListOperation[] = [];
    const note = (run: () => ListOperation[]) => {
      // If it ends in the middle, because a record is not there yet, nothing of it counts.
      operations = [];
      operations = run();
      decided(operations);
      return operations;
    };
    try {
      await path(desk, plan, window, note);
      return { outcome: "committed", operations };
    } catch (error) {
      return outcomeOf(desk, error, operations);
    }
  });
}

function outcomeOf(desk: Desk, error: unknown, operations: readonly ListOperation[]): Outcome {
  if (error instanceof Refusal) return { outcome: "aborted", operations: error.operations };
  const isLost = desk.isConnectionLost?.(error) === true;
  if (!(error instanceof PawlError) && !isLost) throw error;
  if (error instanceof PawlError && error.code === "outcome_unknown") return { outcome: "unknown", operations };
  return { outcome: "aborted", operations: operations.filter(({ op }) => op !== "read") };
}

/** One transaction, by a path and a plan that chance picks. */
export async function actOnce(desk: Desk, window: Window): Promise<void> {
  const { random, hasSql } = desk;
  const kind = random.unit();
  if (kind < 0.09) return readPlainly(desk, window);
  if (kind < 0.18) return workOnClaims(desk, window);
  const plan = drawPlan(random, window.lists, desk.nextValue);
  if (kind < 0.23 && hasSql) {
    const joined = withinOwn(desk, window, plan);
    if (joined !== null) return joined;
  }
  // Transactions with SQL hold their rows for longer, so there are fewer of them.
  const mayShare = hasSql && random.chance(0.4);
  const names = Object.keys(paths).filter((name) => mayShare || !SQL_PATHS.has(name));
  const name = random.pick(names);
  await perform(desk, window, name, paths[name] as Path, plan);
}

/** Inside a transaction of the application's own, which then commits or rolls back. */
function withinOwn(desk: Desk, window: Window, plan: Plan): Promise<void> | null {
  const rollsBack = desk.random.chance(0.2);
  return (
    desk.borrow?.(async (plain) => {
      await perform(
        desk,
        window,
        "within",
        async ({ pawl }, _, __, note) => {
          await plain.query("begin");
          let operations: readonly ListOperation[] = [];
          try {
            await pawl.within(
              plain.executor,
              (tx) => {
                operations = note(() => follow(plan, new SlotTable(pawl, tx)));
                if (plan.throws) throw new Refusal(operations);
              },
              { touches: slotsOf(pawl, foreseen(plan)) },
            );
          } catch (error) {
            await plain.query("rollback");
            throw error;
          }
          await plain.query(rollsBack ? "rollback" : "commit");
          if (rollsBack) throw new Refusal(operations);
        },
        plan,
      );
    }) ?? null
  );
}

/** Reads without a decision: one list, or several at one moment. */
async function readPlainly(desk: Desk, window: Window): Promise<void> {
  const { pawl, random } = desk;
  const all = [...window.lists.mortal, ...window.lists.growing];
  const keys = [...new Set(Array.from({ length: 1 + random.below(4) }, () => random.pick(all)))];
  await desk.record("read", async () => {
    try {
      const rows = await pawl.kernel.read(keys.map(atOf));
      const operations = keys.map((key, i): ListOperation => {
        const row = rows[i] ?? null;
        const list = row === null || row.value === null ? null : (pawl.kernel.decode(row, row.value) as number[]);
        return { op: "read", key, list, version: list === null ? (row?.version ?? 0) : undefined };
      });
      return { outcome: "committed", operations };
    } catch (error) {
      return outcomeOf(desk, error, []);
    }
  });
}

/** Claims a record and commits as its holder, without reading first; then gives it back. */
async function workOnClaims(desk: Desk, window: Window): Promise<void> {
  const { pawl, random, nextValue } = desk;
  const { kernel } = pawl;
  let held: readonly Held[];
  try {
    ({ held } = await claimDue(kernel, {
      kinds: [`lists-${window.name}`],
      by: desk.name,
      leaseMs: LEASE_MS,
      limit: 1,
    }));
  } catch (error) {
    if (error instanceof PawlError) return;
    throw error;
  }
  const [one] = held;
  if (one === undefined) {
    const key = random.pick(window.claimed);
    const plan = drawPlan(random, window.lists, nextValue);
    const make: Plan = { ...plan, steps: [{ act: "append", among: [key], value: nextValue() }, ...plan.steps] };
    await perform(desk, window, "kernel", paths["kernel"] as Path, make);
    return;
  }
  const count = 1 + random.below(4);
  for (let i = 0; i < count; i++) {
    const plan = drawPlan(random, window.lists, nextValue);
    // Most commits of a holder write nothing but its own record, which is what it knows.
    const more = random.chance(0.5) ? [] : plan.steps;
    const act = i + 1 === count && random.chance(0.1) ? "flip" : "append";
    const mine: Plan = { ...plan, steps: [{ act, among: [one.at.key], value: nextValue() }, ...more] };
    const { outcome } = await perform(
      desk,
      window,
      "held",
      (_, __, ___, note) => one.commit((_record, tx) => decideOn(mine, new KernelTable(tx), note)),
      mine,
    );
    if (outcome === "unknown") return;
  }
  try {
    if ((await one.rest((tx) => tx.nowMs)) === "woken") one.abandon();
  } catch (error) {
    one.abandon();
    if (!(error instanceof PawlError)) throw error;
  }
}

// ------------------------------------------------------------------------------------------------- create mine, look at yours

/** Thrown where the work of a key would be done: the key is not there. */
const ABSENT = new Error("nobody has used the key");

export const PAIR_CALLERS = ["taken for absent", "declared new", "idempotent", "slots", "dedupe", "both ways"] as const;

/** Creates one of two keys and looks at the other. Everybody who comes by this pair is on one side or the other. */
export async function actOnPair(desk: Desk, window: Window, pair: number, side: 0 | 1): Promise<void> {
  const { random, pawl, nextValue } = desk;
  const isKeyed = pair % 3 === 0;
  const [mine, yours] = [side, 1 - side].map((one) => `${window.name}/${isKeyed ? "i" : "p"}${pair}${"ab"[one]}`) as [
    string,
    string,
  ];
  const caller = isKeyed ? "idempotent" : random.pick(PAIR_CALLERS.filter((one) => one !== "idempotent"));
  const value = nextValue();
  const plan: Plan = {
    steps: [
      { act: "append", among: [mine], value },
      { act: "read", among: [yours], value: 0 },
    ],
    throws: false,
  };
  const fresh = (key: string) => newAddress(atOf(key));
  const onlyMine = (key: string) => (key === mine ? fresh(key) : atOf(key));
  const path: Path = async (_, __, ___, note) => {
    switch (caller) {
      case "taken for absent":
        return pawl.kernel.transact((tx) => decideOn(plan, new KernelTable(tx, onlyMine), note), []);
      case "declared new":
        return pawl.kernel.transact((tx) => decideOn(plan, new KernelTable(tx, onlyMine), note), [fresh(mine)]);
      case "both ways":
        return pawl.kernel.transact((tx) => decideOn(plan, new KernelTable(tx, fresh), note), [mine, yours].map(fresh));
      case "slots":
        return pawl.transact(onSlots(pawl, plan, note));
      case "dedupe":
        return pawl.dedupe("pairs", `${mine}/${value}`, onSlots(pawl, plan, note));
      case "idempotent":
        return pawl.transact((tx) => void note(() => onKeys(tx, mine, yours, value)));
    }
  };
  await perform(desk, window, `${caller}, pair`, path, plan);
}

/** The same on idempotency keys: the first caller stores its value under its own key. */
function onKeys(tx: Tx, mine: string, yours: string, value: number): ListOperation[] {
  const operations: ListOperation[] = [];
  const { value: stored, replayed } = tx.idempotent(mine, undefined, () => value);
  operations.push({ op: "read", key: mine, list: replayed ? [stored] : null });
  if (!replayed) operations.push({ op: "create", key: mine, value, version: 1 });
  try {
    const { value: theirs } = tx.idempotent<number>(yours, undefined, () => {
      throw ABSENT;
    });
    operations.push({ op: "read", key: yours, list: [theirs] });
  } catch (error) {
    if (error !== ABSENT) throw error;
    operations.push({ op: "read", key: yours, list: null });
  }
  return operations;
}

// ------------------------------------------------------------------------------------------------- the end

/** What each of these lists holds now, by one look at each. */
export async function lastReads(
  pawl: Pawl,
  keys: readonly string[],
): Promise<Map<string, { list: readonly number[] | null; version?: number }>> {
  const { kernel } = pawl;
  const found = new Map<string, { list: readonly number[] | null; version?: number }>();
  for (let i = 0; i < keys.length; i += 500) {
    const some = keys.slice(i, i + 500);
    const rows = await kernel.read(some.map((key) => (isKeyed(key) ? address("idempotent", key) : atOf(key))));
    some.forEach((key, j) => {
      const row = rows[j] ?? null;
      const value = row === null || row.value === null ? null : kernel.decode(row, row.value);
      const list = value === null ? null : isKeyed(key) ? [(value as { ok: number }).ok] : (value as number[]);
      found.set(key, { list });
    });
  }
  return found;
}

const isKeyed = (key: string): boolean => key.split("/")[1]?.startsWith("i") === true;
