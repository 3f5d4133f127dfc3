/**
 * Goal: debounce, batch, throttle and rate limits keep to their definitions when two processes start runs and work on them together, on one database.
 * Method: two handles on one SQLite file, and on one PostgreSQL database. Both start runs at random times, without waiting for each other, and both work.
 * When a start happened is read from what it committed, by the store's clock: the models (`models.ts`) of these moments must say the same as what the
 * commits wrote. How long a process takes is no part of any definition here.
 */

import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  type AnyWorkflow,
  isPawlError,
  type Pawl,
  type Worker,
  type WorkflowOptions,
  workflow,
} from "../../src/index.ts";
import type { Row } from "../../src/kernel/contract.ts";
import { collectedAt } from "../../src/workflow/flow/stored.ts";
import { RUNS, type RunValue, runAt } from "../../src/workflow/stored.ts";
import { onStores, PATIENCE, type Place } from "../workflow/kit.ts";
import { batched, debounced, type Group, Rate, type Start, turnsOf } from "./models.ts";

const WEEK_MS = 7 * 24 * 3_600_000;
const RUNS_OF_EACH = { numRuns: 5 };

interface Item {
  readonly key: string;
  readonly n: number;
}

/** When a run was started, and when it has its turn. */
interface Turn {
  readonly atMs: number;
  readonly turnMs: number;
}

interface Planned {
  readonly gap: number;
  readonly by: number;
  readonly key: string;
}

const between = (min: number, max: number) => fc.integer({ min, max });

/** Most starts follow each other quickly; at times there is a pause about as long as what is waited for. */
const plans = fc.array(
  fc.record({
    gap: fc.oneof({ weight: 3, arbitrary: between(0, 5) }, { weight: 1, arbitrary: between(10, 20) }),
    by: between(0, 1),
    key: fc.constantFrom("a", "a", "b"),
  }),
  { minLength: 10, maxLength: 24 },
);

const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

let made = 0;

/** Two processes with workers of one workflow, and all that they commit about its runs. */
class Pair {
  readonly name = `job-${made++}`;
  readonly pawls: readonly Pawl[];
  readonly #unlisten: readonly (() => void)[];
  readonly #rows = new Map<string, Row[]>();
  readonly #workers: Worker[] = [];

  constructor(pawls: readonly Pawl[]) {
    this.pawls = pawls;
    this.#unlisten = pawls.map(({ kernel }) =>
      kernel.listen((puts) => {
        for (const { row } of puts ?? [])
          if (row.space === RUNS && row.value !== null)
            this.#rows.set(row.key, [...(this.#rows.get(row.key) ?? []), row]);
      }),
    );
  }

  get kernel() {
    return (this.pawls[0] as Pawl).kernel;
  }

  /** The first row of each run. */
  firsts(): readonly { readonly row: Row; readonly value: RunValue }[] {
    return [...this.#rows.values()].flatMap((rows) => {
      const [row] = rows.toSorted((a, b) => a.version - b.version);
      if (row?.value == null) return [];
      const value = this.kernel.decode(row, row.value) as RunValue;
      return value.workflow === this.name ? [{ row, value }] : [];
    });
  }

  /** When a run that collects was complete, as it was last written before a worker took it. */
  dueOf(run: string): number {
    const rows = (this.#rows.get(run) ?? []).filter(({ holder, status }) => holder === null && status === "pending");
    return rows.toSorted((a, b) => a.version - b.version).at(-1)?.dueMs ?? 0;
  }

  /** The turns that runs took again, because their workers were late for those before; undefined for one that was taken at once. */
  again(key: string, keyOf: (run: string) => string): readonly (number | undefined)[] {
    return [...this.#rows].flatMap(([run, rows]) => {
      if (keyOf(run) !== key) return [];
      const turns = new Map<number, number | undefined>();
      for (const { value: text } of rows) {
        if (text === null) continue;
        const { workflow, gate } = this.kernel.decode(runAt(run), text) as RunValue;
        if (workflow === this.name && gate?.lateTurns !== undefined)
          turns.set(gate.lateTurns, gate.turnMs ?? turns.get(gate.lateTurns));
      }
      return [...turns.values()];
    });
  }

  /** When the first step of the run was committed. */
  async beganMs(run: string): Promise<number> {
    const entries = await this.kernel.entries(runAt(run), 0, 100);
    return entries.find(({ name }) => name.startsWith("step "))?.atMs ?? 0;
  }

  /** Starts all at their times, each by its process, and does not wait for one before the next. */
  async start(all: readonly Planned[], start: (pawl: Pawl, item: Item, id: string) => Promise<unknown>): Promise<void> {
    const starts: Promise<unknown>[] = [];
    for (const [n, { gap, by, key }] of all.entries()) {
      if (gap > 0) await sleep(gap);
      starts.push(start(this.pawls[by] as Pawl, { key, n }, `${this.name}/${n}`));
    }
    await Promise.all(starts);
  }

  async ended(): Promise<void> {
    const isEnded = async (): Promise<boolean> => {
      const { runs } = await (this.pawls[0] as Pawl).runs.list({ workflow: this.name });
      return runs.length > 0 && runs.every(({ status }) => status === "completed");
    };
    await expect.poll(isEnded, PATIENCE).toBe(true);
  }

  work(job: AnyWorkflow): void {
    for (const pawl of this.pawls) this.#workers.push(pawl.work([job]));
  }

  async leave(): Promise<void> {
    for (const unlisten of this.#unlisten) unlisten();
    await Promise.all(this.#workers.map((worker) => worker.stop()));
  }
}

async function withPair(pawls: readonly Pawl[], act: (pair: Pair) => Promise<void>): Promise<void> {
  const pair = new Pair(pawls);
  try {
    await act(pair);
  } finally {
    await pair.leave();
  }
}

interface Collected extends Start {
  readonly run: string;
  /** Its place in the run. */
  readonly index: number;
}

/**
 * The order in which starts were collected. Those of the same millisecond have no order of time: what an earlier run took comes first, then runs that were
 * completed in it, and then the one that takes what follows.
 */
function inOrderOfCollecting(starts: readonly Collected[]): readonly Collected[] {
  const runs = new Map([...Map.groupBy(starts, ({ run }) => run)].map(([run, all]) => [run, rankOf(all)]));
  const isBefore = (a: Collected, b: Collected): number => {
    if (a.atMs !== b.atMs) return a.atMs - b.atMs;
    if (a.run === b.run) return a.index - b.index;
    const [one, other] = [runs.get(a.run) ?? [], runs.get(b.run) ?? []];
    const differs = one.findIndex((rank, i) => rank !== other[i]);
    return differs < 0 ? a.run.localeCompare(b.run) : (one[differs] ?? 0) - (other[differs] ?? 0);
  };
  return starts.toSorted(isBefore);
}

/** Its first and its last start; and of those that are alike in this, the one that was not completed comes last. */
function rankOf(all: readonly Start[]): readonly number[] {
  const times = all.map(({ atMs }) => atMs);
  return [Math.min(...times), Math.max(...times), -all.length];
}

const openTwo = async (place: Place): Promise<readonly Pawl[]> => [await place.open(), await place.open()];

type Options = Omit<WorkflowOptions<Item, unknown>, "name">;

onStores(["SQLite", "PostgreSQL"], (place) => {
  /** Collects starts, and compares the runs with the model of the moments at which they were committed. */
  async function collects(
    pawls: readonly Pawl[],
    all: readonly Planned[],
    options: object,
    model: (starts: readonly Start[]) => readonly Group[],
  ): Promise<void> {
    await withPair(pawls, async (pair) => {
      const taken = new Map<string, readonly number[]>();
      const job = workflow(
        { name: pair.name, ...options } as unknown as WorkflowOptions<readonly Item[], unknown>,
        async (ctx, given) => {
          const items = (given as readonly unknown[]).flat() as Item[];
          await ctx.step(
            "take",
            () =>
              void taken.set(
                ctx.runId,
                items.map(({ n }) => n),
              ),
          );
        },
      );
      pair.work(job);
      await pair.start(all, (pawl, item, id) => pawl.start(job, [item], { id }));
      await pair.ended();
      const marks = await pair.kernel.read(all.map((_, n) => collectedAt(pair.name, `${pair.name}/${n}`)));
      const starts = marks.flatMap((row, n) => {
        if (row?.value == null || row.dueMs === null) return [];
        const { run } = pair.kernel.decode(row, row.value) as { run: string };
        const key = all[n]?.key ?? "";
        return [{ atMs: row.dueMs - WEEK_MS, key, n, run, index: taken.get(run)?.indexOf(n) ?? -1 }];
      });
      expect(starts).toHaveLength(all.length);
      const ordered = inOrderOfCollecting(starts);
      const found = [...taken].map(([run, items]) => ({ dueMs: pair.dueOf(run), items: items.toSorted() }));
      const expected = model(ordered).map(({ dueMs, items }) => ({ dueMs, items: items.toSorted() }));
      const inOrder = (groups: readonly Group[]) => groups.toSorted((a, b) => (a.items[0] ?? 0) - (b.items[0] ?? 0));
      expect(inOrder(found)).toEqual(inOrder(expected));
      for (const run of taken.keys()) expect(await pair.beganMs(run)).toBeGreaterThanOrEqual(pair.dueOf(run));
    });
  }

  test("debounce", async () => {
    const pawls = await openTwo(place);
    const maxWaits = fc.option(between(15, 40));
    await fc.assert(
      fc.asyncProperty(plans, maxWaits, async (all, maxWait) => {
        const debounce = {
          period: 15,
          ...(maxWait === null ? {} : { maxWait }),
          key: ([item]: readonly Item[]) => item?.key,
          merge: (a: readonly Item[], b: readonly Item[]) => [...a, ...b],
        };
        await collects(pawls, all, { debounce }, (starts) => debounced(starts, 15, maxWait));
      }),
      RUNS_OF_EACH,
    );
  });

  test("batch", async () => {
    const pawls = await openTwo(place);
    await fc.assert(
      fc.asyncProperty(plans, between(1, 4), async (all, size) => {
        const batch = { size, maxWait: 20, key: ([item]: readonly Item[]) => item?.key };
        await collects(pawls, all, { batch }, (starts) => batched(starts, size, 20));
      }),
      RUNS_OF_EACH,
    );
  });

  /** Starts runs whose turn is computed by their starts. Returns for each key when they were started and when they have their turn, in this order. */
  async function turns(
    pawls: readonly Pawl[],
    all: readonly Planned[],
    options: Options,
    check: (found: readonly Turn[]) => void,
    /** The earliest turns for starts at these moments. */
    rated: (atMs: readonly number[]) => readonly number[],
  ) {
    await withPair(pawls, async (pair) => {
      const job = workflow<Item>({ name: pair.name, ...options }, async (ctx) => {
        await ctx.step("begin", () => {});
      });
      pair.work(job);
      await pair.start(all, (pawl, item, id) => pawl.start(job, item, { id }));
      await pair.ended();
      const firsts = pair.firsts();
      expect(firsts).toHaveLength(all.length);
      for (const key of ["a", "b"]) {
        const found: Turn[] = [];
        for (const { row, value } of firsts) {
          if (all[Number(row.key.split("/").at(-1))]?.key !== key) continue;
          // One that has its turn immediately may be leased by its start.
          const turnMs = row.status === "pending" ? (row.dueMs ?? 0) : value.startedAtMs;
          expect(await pair.beganMs(row.key)).toBeGreaterThanOrEqual(turnMs);
          found.push({ atMs: value.startedAtMs, turnMs });
        }
        const again = pair.again(key, (run) => all[Number(run.split("/").at(-1))]?.key ?? "");
        if (again.length === 0) check(found.toSorted((a, b) => a.turnMs - b.turnMs || a.atMs - b.atMs));
        else {
          // On a busy machine. When these were taken is not known: only that all turns together keep to the rate.
          const known = again.filter((turnMs) => turnMs !== undefined);
          const taken = [...found.map(({ turnMs }) => turnMs), ...known].toSorted((a, b) => a - b);
          expect(rated(taken)).toEqual(taken);
        }
      }
    });
  }

  test("throttle", async () => {
    const pawls = await openTwo(place);
    await fc.assert(
      fc.asyncProperty(plans, async (all) => {
        const rated = (atMs: readonly number[]) => turnsOf(atMs, 10, 1);
        const check = (found: readonly Turn[]) =>
          expect(found.map(({ turnMs }) => turnMs)).toEqual(rated(found.map(({ atMs }) => atMs)));
        await turns(pawls, all, { throttle: { per: 10, key: ({ key }) => key } }, check, rated);
      }),
      RUNS_OF_EACH,
    );
  });

  describe("a rate limit", () => {
    test("that lets starts wait", async () => {
      const pawls = await openTwo(place);
      await fc.assert(
        fc.asyncProperty(plans, between(1, 4), async (all, max) => {
          const rateLimit = { max, per: 12 * max, key: ({ key }: Item) => key };
          const rated = (atMs: readonly number[]) => turnsOf(atMs, 12, max);
          const check = (found: readonly Turn[]) =>
            expect(found.map(({ turnMs }) => turnMs)).toEqual(rated(found.map(({ atMs }) => atMs)));
          await turns(pawls, all, { rateLimit }, check, rated);
        }),
        RUNS_OF_EACH,
      );
    });

    test("that refuses", async () => {
      const pawls = await openTwo(place);
      let refusals = 0;
      await fc.assert(
        fc.asyncProperty(plans, between(1, 2), async (all, max) => {
          await withPair(pawls, async (pair) => {
            const job = workflow<Item>(
              { name: pair.name, rateLimit: { max, per: 12 * max, key: ({ key }) => key, excess: "reject" } },
              async () => {},
            );
            pair.work(job);
            const now = ({ kernel }: Pawl) => kernel.transact((tx) => tx.nowMs, []);
            const refused: { readonly key: string; readonly fromMs: number; readonly toMs: number }[] = [];
            await pair.start(all, async (pawl, item, id) => {
              const fromMs = await now(pawl);
              try {
                await pawl.start(job, item, { id });
              } catch (error) {
                if (!isPawlError(error, "rate_limited")) throw error;
                refused.push({ key: item.key, fromMs, toMs: await now(pawl) });
              }
            });
            await pair.ended();
            refusals += refused.length;
            const firsts = pair.firsts();
            expect(firsts.length + refused.length).toBe(all.length);
            for (const key of ["a", "b"]) {
              const accepted = firsts
                .filter(({ row }) => all[Number(row.key.split("/").at(-1))]?.key === key)
                .map(({ value }) => value.startedAtMs)
                .toSorted((a, b) => a - b);
              expect(turnsOf(accepted, 12, max)).toEqual(accepted);
              // One is refused only if there was no turn for it at some moment of its call.
              for (const { fromMs, toMs } of refused.filter((one) => one.key === key)) {
                const moments = [fromMs, ...accepted.filter((ms) => ms >= fromMs && ms <= toMs)];
                expect(moments.some((ms) => isFull(accepted, ms, max))).toBe(true);
              }
            }
          });
        }),
        { ...RUNS_OF_EACH, examples: [[Array.from({ length: 6 }, (_, n) => ({ gap: 1, by: n % 2, key: "a" })), 1]] },
      );
      expect(refusals).toBeGreaterThan(0);
    });
  });
});

/** Whether a start at this moment would have to wait, after those that were accepted. */
function isFull(accepted: readonly number[], atMs: number, max: number): boolean {
  const rate = new Rate(12, max);
  for (const ms of accepted) if (ms <= atMs) rate.take(ms);
  return rate.turn(atMs) > atMs;
}
