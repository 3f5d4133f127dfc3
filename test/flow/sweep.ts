/**
 * The crash sweep of admission: a process that starts runs under limits, works on them and ends them stops before and after every single call to its
 * store, and its successor finishes.
 *
 * Goal: wherever a process stops, what is stored about admission is right: no limit has more than its maximum, and no run waits that could be admitted
 * (G30). The successor ends all runs in the same way as without the stop, in the same order; no start is lost, and none counts twice, in limits, in rates
 * or in what is collected (G2).
 * Method: each case is a script of starts and of what ends runs. A process follows it and works on the runs. For a call k to the store it dies before it, or
 * after its effect and before its reply. Then what is stored is checked, the caller does everything again with the same ids, as one does without
 * a reply, and another process works until everything has ended. Leases of the dead process are ended by the test.
 */

import { expect } from "vitest";
import { isPawlError, type Pawl, type RunStatus, signal, type WorkflowOptions, workflow } from "../../src/index.ts";
import { type Collecting, collectedAt } from "../../src/workflow/flow/stored.ts";
import { RUNS, type RunValue, runAt } from "../../src/workflow/stored.ts";
import { PATIENCE, type Place } from "../workflow/kit.ts";
import { wrongPlaces } from "./checker.ts";

const go = signal("go");
/** A listener instead of the log. */
const QUIET = { on: () => {} };

interface Order {
  readonly n: string;
  /** What the code does after its first step. Default: it returns. */
  readonly then?: "wait" | "fail" | undefined;
}

type Options = Omit<WorkflowOptions<Order, string>, "name">;

/** The runs of a case in the end, by the id of their start; what is refused has the code of its error. */
type Ends = Readonly<Record<string, RunStatus | "rate_limited" | "concurrency_limit">>;

interface Script {
  start(id: string, then?: Order["then"], options?: { readonly ttl?: number; readonly delay?: number }): Promise<void>;
  signal(id: string): Promise<void>;
  cancel(id: string, options?: { readonly force?: boolean }): Promise<void>;
  retry(id: string): Promise<void>;
  /** Waits until the run has this status. */
  until(id: string, status: RunStatus): Promise<void>;
}

interface Case {
  readonly options: Options;
  readonly script: (script: Script) => Promise<void>;
  /** What the successor does when the script was repeated. */
  readonly after?: (script: Script) => Promise<void>;
  readonly ends: Ends;
  /** The order in which they begin, where that is certain. */
  readonly order?: readonly string[];
}

const ONE: Options = { concurrency: { max: 1 } };
const HANDED_ON = { b: "completed", c: "completed" } as const;

/** The first run waits, two are in line, and then the first ends. */
const endOf =
  (end: (script: Script) => Promise<void>, then: Order["then"] = "wait"): Case["script"] =>
  async (script) => {
    await script.start("a", then);
    await script.start("b");
    await script.start("c");
    await end(script);
  };

const three = async ({ start }: Script): Promise<void> => {
  for (const id of ["a", "b", "c"]) await start(id);
};

const ALL_COMPLETED = { a: "completed", b: "completed", c: "completed" } as const;

export const RUN_CASES: Readonly<Record<string, Case>> = {
  "a run completes": {
    options: ONE,
    script: endOf(({ signal }) => signal("a")),
    ends: ALL_COMPLETED,
    order: ["a", "b", "c"],
  },
  "a run fails": {
    options: ONE,
    script: endOf(async () => {}, "fail"),
    ends: { a: "failed", ...HANDED_ON },
    order: ["a", "b", "c"],
  },
  "a run is canceled": {
    options: ONE,
    script: endOf(async ({ cancel, until }) => {
      await until("a", "waiting");
      await cancel("a");
    }),
    ends: { a: "canceled", ...HANDED_ON },
    order: ["a", "b", "c"],
  },
  "a run is ended by force": {
    options: ONE,
    script: endOf(async ({ cancel, until }) => {
      await until("a", "waiting");
      await cancel("a", { force: true });
    }),
    ends: { a: "canceled", ...HANDED_ON },
    order: ["a", "b", "c"],
  },
  "runs time out": {
    options: { ...ONE, timeout: 20 },
    script: async ({ start }) => {
      for (const id of ["a", "b", "c"]) await start(id, "wait");
    },
    ends: { a: "timed_out", b: "timed_out", c: "timed_out" },
  },
  "a run in line expires": {
    options: ONE,
    async script({ start, signal, until }) {
      await start("a", "wait");
      await start("b", undefined, { ttl: 20 });
      await start("c");
      await until("b", "expired");
      await signal("a");
    },
    ends: { a: "completed", b: "expired", c: "completed" },
    order: ["a", "c"],
  },
  "a run in line is canceled": {
    options: ONE,
    async script({ start, signal, cancel }) {
      await start("a", "wait");
      for (const id of ["b", "c", "d"]) await start(id);
      await cancel("c");
      await signal("a");
    },
    ends: { a: "completed", b: "completed", c: "canceled", d: "completed" },
    order: ["a", "b", "d"],
  },
  "a run that failed is retried": {
    options: ONE,
    async script({ start, signal, retry, until }) {
      await start("a", "fail");
      await until("a", "failed");
      await start("b", "wait");
      await until("b", "waiting");
      await retry("a");
      await signal("b");
    },
    ends: { a: "completed", b: "completed" },
    order: ["a", "b"],
  },
  "a run is replaced": {
    options: { concurrency: { max: 1, excess: "replace" } },
    async script({ start, signal, until }) {
      await start("a", "wait");
      await until("a", "waiting");
      await start("b", "wait");
      await until("a", "canceled");
      await signal("b");
    },
    ends: { a: "canceled", b: "completed" },
    order: ["a", "b"],
  },
  "a start is rejected": {
    options: { concurrency: { max: 1, excess: "reject" } },
    async script({ start }) {
      await start("a", "wait");
      await start("b");
    },
    after: ({ signal }) => signal("a"),
    ends: { a: "completed", b: "concurrency_limit" },
  },
  "two limits overlap": {
    options: { concurrency: [{ max: 1, key: ({ n }) => (n === "d" ? "two" : "one"), name: "key" }, { max: 2 }] },
    async script({ start, signal }) {
      await start("a", "wait");
      for (const id of ["b", "c"]) await start(id);
      await start("d", "wait");
      await start("e");
      await signal("a");
      await signal("d");
    },
    ends: { ...ALL_COMPLETED, d: "completed", e: "completed" },
  },
  "runs begin later": {
    options: ONE,
    async script({ start }) {
      await start("a", undefined, { delay: 10 });
      await start("b", undefined, { delay: 10 });
    },
    ends: { a: "completed", b: "completed" },
  },
  "a throttle": { options: { throttle: { per: 5 } }, script: three, ends: ALL_COMPLETED },
  // If one of them had two turns, another would have to wait for an hour.
  "a rate limit that lets wait": {
    options: { rateLimit: { max: 3, per: "3 hours" } },
    script: three,
    ends: ALL_COMPLETED,
  },
  "a rate limit that refuses": {
    options: { rateLimit: { max: 2, per: "2 hours", excess: "reject" } },
    script: three,
    ends: { a: "completed", b: "completed", c: "rate_limited" },
  },
  "a rate limit and a limit": {
    options: { ...ONE, rateLimit: { max: 3, per: "3 hours" } },
    script: endOf(({ signal }) => signal("a")),
    ends: ALL_COMPLETED,
    order: ["a", "b", "c"],
  },
};

/** What a case has seen. */
class Sight {
  readonly begun: string[] = [];
  readonly refused = new Map<string, string>();
  readonly #retried = new Set<string>();

  job(options: Options) {
    return workflow<Order, string>(
      { name: "job", retry: { attempts: 1 }, ...options },
      async (ctx, { n, then }): Promise<string> => {
        await ctx.step("begin", () => {
          if (!this.begun.includes(n)) this.begun.push(n);
        });
        if (then === "fail") await ctx.step("fail", () => this.#fail(n));
        if (then === "wait") await ctx.waitForSignal(go);
        return n;
      },
    );
  }

  #fail(n: string): void {
    if (!this.#retried.has(n)) throw new Error("broken");
  }

  /** The script as this process follows it; each verb can be repeated. */
  script(pawl: Pawl, job: ReturnType<Sight["job"]>): Script {
    return {
      start: async (id, then, options = {}) => {
        try {
          await pawl.start(job, { n: id, then }, { id, ...options });
        } catch (error) {
          if (!isPawlError(error, "rate_limited") && !isPawlError(error, "concurrency_limit")) throw error;
          this.refused.set(id, error.code);
        }
      },
      signal: (id) => unlessEnded(() => pawl.run(job, id).signal(go, undefined, { id: "go" })),
      cancel: (id, options = {}) => unlessEnded(() => pawl.run(job, id).cancel(options)),
      retry: async (id) => {
        this.#retried.add(id);
        if ((await pawl.run(job, id).status()).status === "failed") await pawl.run(job, id).retry();
      },
      until: async (id, status) => {
        const isReached = async (): Promise<boolean> => {
          const { status: now } = await pawl.run(job, id).status();
          // It was there before the process died.
          return now === status || ENDS.includes(now) || this.#retried.has(id);
        };
        while (!(await isReached())) await soon();
      },
    };
  }
}

const ENDS: readonly string[] = ["completed", "failed", "canceled", "timed_out", "expired"];

const soon = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 2));

async function unlessEnded(act: () => Promise<unknown>): Promise<void> {
  try {
    await act();
  } catch (error) {
    if (!isPawlError(error, "run_ended")) throw error;
  }
}

/** Which calls of the store are tried: each `every`-th, from `first` on. */
export interface Part {
  readonly first: number;
  readonly every: number;
}

/** Sweeps one case. Returns how often the process died. */
export async function sweepRuns(
  place: Place,
  { options, script, after, ends, order }: Case,
  part: Part,
): Promise<number> {
  return sweep(place, part, async (process, dying) => {
    const sight = new Sight();
    const job = sight.job(options);
    const worker = process.work([job], QUIET);
    const follow = (pawl: Pawl) => script(sight.script(pawl, job));
    const ended = async (pawl: Pawl): Promise<boolean> => {
      const runs = await Promise.all(startedOf(ends).map((id) => statusOf(pawl, id)));
      return runs.every((status) => ENDS.includes(status));
    };
    await dying.race(follow(process));
    if (after === undefined) await dying.race(dying.poll(() => ended(dying.keeper)));
    if (dying.isOver()) await worker.stop();
    await rightPlaces(dying.keeper);
    await dying.endLeases();
    const successor = await place.open();
    successor.work([job], QUIET);
    await follow(successor);
    await after?.(sight.script(successor, job));
    await expect.poll(() => ended(dying.keeper), PATIENCE).toBe(true);
    const found = await Promise.all(
      Object.keys(ends).map(async (id) => [id, sight.refused.get(id) ?? (await statusOf(dying.keeper, id))]),
    );
    expect(Object.fromEntries(found)).toEqual(ends);
    expect((await allRuns(dying.keeper)).toSorted()).toEqual(startedOf(ends));
    if (order !== undefined) expect(sight.begun).toEqual(order);
    await rightPlaces(dying.keeper);
  });
}

const startedOf = (ends: Ends): string[] =>
  Object.entries(ends).flatMap(([id, end]) => (end === "rate_limited" || end === "concurrency_limit" ? [] : [id]));

const statusOf = async (pawl: Pawl, id: string): Promise<string> =>
  (await pawl.kernel.read([runAt(id)]))[0]?.status ?? "missing";

async function allRuns(pawl: Pawl): Promise<string[]> {
  const ids: string[] = [];
  for await (const { key, value } of pawl.kernel.rows(RUNS)) if (value !== null) ids.push(key);
  return ids;
}

/** What the dead process had sent may still be on its way; what is wrong stays so. */
async function rightPlaces(pawl: Pawl): Promise<void> {
  await expect.poll(() => wrongPlaces(pawl.kernel), { timeout: 2_000, interval: 5 }).toEqual([]);
}

// ------------------------------------------------------------------------------------------------- collected starts

type Collected = Pick<WorkflowOptions<readonly string[], void>, "debounce" | "concurrency"> & {
  readonly batch?: { readonly size: number; readonly maxWait: number };
  readonly rateLimit?: { readonly max: number; readonly per: string; readonly excess: "reject" };
};

/** Each start has a list of one item. Those of a batch are a list of lists. */
export const COLLECT_CASES: Readonly<Record<string, Collected>> = {
  "a debounce": { debounce: { period: 10, merge: (a, b) => [...a, ...b] } },
  "a debounce of runs under a limit": {
    debounce: { period: 10, maxWait: 15, merge: (a, b) => [...a, ...b] },
    concurrency: { max: 1 },
  },
  "a batch": { batch: { size: 2, maxWait: 10 } },
  // Each start takes one of the four turns; if one took two, the last would be refused.
  "a batch of starts that can be refused": {
    batch: { size: 3, maxWait: 10 },
    rateLimit: { max: 4, per: "4 hours", excess: "reject" },
  },
};

const ITEMS = ["a", "b", "c", "d"];

/** Sweeps one case: each input is in exactly one run, which is the one that each of its callers is told. */
export async function sweepCollected(place: Place, options: Collected, part: Part): Promise<number> {
  return sweep(place, part, async (process, dying) => {
    const taken = new Map<string, readonly string[]>();
    const job = workflow<readonly string[], void>(
      { name: "job", ...options } as unknown as WorkflowOptions<readonly string[], void>,
      async (ctx, items) => {
        await ctx.step("take", () => void taken.set(ctx.runId, (items as readonly unknown[]).flat() as string[]));
      },
    );
    const told = new Map<string, string>();
    const worker = process.work([job], QUIET);
    const follow = async (pawl: Pawl): Promise<void> => {
      for (const item of ITEMS) {
        const { id } = await pawl.start(job, [item], { id: item });
        expect(told.get(item) ?? id, `${item} is in one run`).toBe(id);
        told.set(item, id);
      }
    };
    const ended = async (pawl: Pawl): Promise<boolean> => {
      const runs = await allRuns(pawl);
      const statuses = await Promise.all(runs.map((id) => statusOf(pawl, id)));
      return told.size === ITEMS.length && statuses.every((status) => status === "completed");
    };
    await dying.race(follow(process));
    await dying.race(dying.poll(() => ended(dying.keeper)));
    if (dying.isOver()) await worker.stop();
    await rightPlaces(dying.keeper);
    await rightCollectors(dying.keeper);
    await dying.endLeases();
    const successor = await place.open();
    successor.work([job], QUIET);
    await follow(successor);
    await expect.poll(() => ended(dying.keeper), PATIENCE).toBe(true);
    expect([...taken.values()].flat().toSorted()).toEqual(ITEMS);
    for (const [run, items] of taken) for (const item of items) expect(told.get(item)).toBe(run);
    expect((await allRuns(dying.keeper)).toSorted()).toEqual([...taken.keys()].toSorted());
    await rightPlaces(dying.keeper);
  });
}

/** A run that still collects has as many inputs as starts remember it. */
async function rightCollectors(pawl: Pawl): Promise<void> {
  const wrong = async (): Promise<string[]> => {
    const { kernel } = pawl;
    const remembered = (await kernel.read(ITEMS.map((item) => collectedAt("job", item)))).flatMap((row) =>
      row?.value == null ? [] : [(kernel.decode(row, row.value) as { run: string }).run],
    );
    const found: string[] = [];
    for await (const row of kernel.rows(RUNS)) {
      if (row.value === null) continue;
      const collecting: Collecting | undefined = (kernel.decode(row, row.value) as RunValue).collecting;
      const count = remembered.filter((run) => run === row.key).length;
      if (collecting !== undefined && collecting.count !== count)
        found.push(`run ${row.key} has ${collecting.count} inputs, and ${count} starts remember it`);
    }
    return found;
  };
  await expect.poll(wrong, { timeout: 2_000, interval: 5 }).toEqual([]);
}

// ------------------------------------------------------------------------------------------------- deaths

/** A process that is going to die. */
interface Dying {
  /** Another handle, of a process that does nothing but look. */
  readonly keeper: Pawl;
  /** Waits for this, or for its death. */
  race(what: Promise<unknown>): Promise<void>;
  /** Looks until it is true, or the process has died. */
  poll(isTrue: () => Promise<boolean>): Promise<void>;
  /** It came to the end and did not die. */
  isOver(): boolean;
  /** The leases of the dead end now. */
  endLeases(): Promise<void>;
}

async function sweep(
  place: Place,
  { first, every }: Part,
  once: (process: Pawl, dying: Dying) => Promise<void>,
): Promise<number> {
  let deaths = 0;
  for (const when of ["before", "after"] as const) {
    let isOver = false;
    for (let call = first; !isOver; call += every) {
      place.begin();
      const keeper = await place.open();
      const handle = await place.openHandle();
      const { died } = handle.dieAt(call, when);
      const dying: Dying = {
        keeper,
        race: async (what) => {
          await Promise.race([died, what]);
        },
        poll: async (isTrue) => {
          while (!handle.isDead() && !(await isTrue())) await soon();
        },
        isOver: () => !handle.isDead(),
        endLeases: () => endLeases(keeper),
      };
      try {
        await once(handle.pawl, dying);
      } catch (error) {
        throw new Error(`the process died ${when} call ${call}: ${String(error)}`, { cause: error });
      }
      isOver = !handle.isDead();
      if (!isOver) deaths += 1;
      await place.end();
    }
  }
  return deaths;
}

async function endLeases(pawl: Pawl): Promise<void> {
  const held: string[] = [];
  for await (const { key, holder } of pawl.kernel.rows(RUNS)) if (holder !== null) held.push(key);
  const at = held.map(runAt);
  if (at.length > 0)
    await pawl.kernel.transact((tx) => {
      for (const one of at) if (tx.record(one).holder !== null) tx.record(one).write({ dueMs: tx.nowMs });
    }, at);
}
