/**
 * Many runs that wait in line: what a start and a hand-over cost beside them, what they leave in memory, and who is next.
 *
 * s8: 100,000 runs queued under one key, and ten under each of 10,000 keys that share a limit, beside 100 queued runs. A process of its own has one worker and
 *     measures blocks of starts and of hand-overs with 100 queued runs, makes the others, and measures again: processor time, which on PostgreSQL is that of
 *     the client alone, so the time is reported as well. A hand-over is a whole run: its end, and that of the next one up to its step. The heap is looked at
 *     after collections of garbage, while the runs are made.
 * s8g: a limit of ten, one key with 100,000 queued runs and after them ninety-nine keys with one each: how many runs were admitted until the last of the
 *     ninety-nine was.
 */

import { type Pawl, workflow } from "../src/index.ts";
import { atMost, type Case } from "./comparisons.ts";
import type { Place } from "./ground.ts";
import { openOurs } from "./ours.ts";
import { measureOf, median, type Result, resultOf } from "./result.ts";
import type { Setting } from "./rounds.ts";
import { answerParent, askChild } from "./scale-child.ts";
import { count, cpuMs, type Heap, heapWhile } from "./usage.ts";

type Shape = "one key" | "many keys";

type Order = { readonly place: Place } & (
  | { readonly is: "queue"; readonly shape: Shape; readonly many: number; readonly blocks: number }
  | { readonly is: "share"; readonly many: number }
);

/** One for each block. */
interface Costs {
  readonly startCpuMs: readonly number[];
  readonly startMs: readonly number[];
  readonly handOverCpuMs: readonly number[];
  readonly handOverMs: readonly number[];
}

interface Queued {
  readonly few: Costs;
  readonly all: Costs;
  readonly heap: Heap;
}

const FEW = 100;
const PER_KEY = 10;
const FLAT = 1.3;
const FLAT_MEMORY = 1.25;
const OTHERS = 99;
const LIMIT = 10;

export const queuedRuns: Case = { id: "s8", title: "100,000 runs in line", run: measureQueues };
export const fairTurns: Case = {
  id: "s8g",
  title: "one key with 100,000 runs in line, 99 with one",
  run: measureTurns,
};

async function measureQueues(setting: Setting): Promise<readonly Result[]> {
  const [many, blocks] = setting.quick ? [2000, 2] : [100_000, 15];
  const results: Result[] = [];
  for (const [shape, letters] of [
    ["one key", "abc"],
    ["many keys", "def"],
  ] as const) {
    const queued = await ask<Queued>(setting, { is: "queue", shape, many, blocks });
    results.push(...shown(setting, queued, many, shape, [...letters]));
  }
  return results;
}

function shown(
  setting: Setting,
  { few, all, heap }: Queued,
  many: number,
  shape: Shape,
  letters: readonly string[],
): readonly Result[] {
  const title = shape === "one key" ? `${count(many)} in line` : `${count(many)} in line, ten of each key`;
  const details = {
    "heap bytes for each queued run": heap.bytesEach,
    "a start with few, in ms": median(few.startMs),
    "a start with all, in ms": median(all.startMs),
    "a hand-over with few, in ms": median(few.handOverMs),
    "a hand-over with all, in ms": median(all.handOverMs),
  };
  setting.note(
    `s8, ${title}: ${heap.bytesEach.toFixed(1)} bytes of heap for each. Time of a start: ${show(few.startMs)} with ${FEW}, ${show(all.startMs)} with all; of a ` +
      `hand-over: ${show(few.handOverMs)} and ${show(all.handOverMs)}.`,
  );
  const cost = (id: string, of: string, part: "startCpuMs" | "handOverCpuMs"): Result =>
    resultOf({
      id,
      title: `${title}: processor's time of ${of}`,
      unit: "ms",
      base: measureOf(`beside ${FEW}`, few[part]),
      ours: measureOf("beside all", all[part]),
      target: atMost(FLAT),
      details,
    });
  return [
    cost(`s8${letters[0]}`, "a start", "startCpuMs"),
    cost(`s8${letters[1]}`, "a hand-over", "handOverCpuMs"),
    resultOf({
      id: `s8${letters[2]}`,
      title: `${title}: memory`,
      unit: "MiB",
      base: measureOf("heap, first quarter", heap.firstMiB),
      ours: measureOf("heap, after it", heap.thenMiB),
      target: atMost(FLAT_MEMORY),
      details,
    }),
  ];
}

const show = (ms: readonly number[]): string => `${median(ms).toPrecision(3)} ms`;

async function measureTurns(setting: Setting): Promise<readonly Result[]> {
  const many = setting.quick ? 2000 : 100_000;
  const admitted = await ask<number>(setting, { is: "share", many });
  setting.note(
    `s8g: with ${count(many)} runs of one key in line, ${OTHERS} others had begun after ${admitted} admissions.`,
  );
  return [
    resultOf({
      id: "s8g",
      title: `${OTHERS} keys with one run, behind ${count(many)} of one key`,
      unit: "runs",
      base: measureOf("if they were first", [OTHERS]),
      ours: measureOf("admitted until all had begun", [admitted]),
      // The key with many runs has its turn among the others, and as many as the limit has places may begin before them.
      target: atMost(Math.round((100 * (OTHERS + 1 + LIMIT)) / OTHERS) / 100),
    }),
  ];
}

type Asked = Order extends infer O ? (O extends unknown ? Omit<O, "place"> : never) : never;

async function ask<Answer>({ ground }: Setting, order: Asked): Promise<Answer> {
  const place = await ground.fresh();
  try {
    return await askChild<Order, Answer>(import.meta.url, { ...order, place });
  } finally {
    await ground.remove(place);
  }
}

// ---------------------------------------------------------------------------------------------- in the other process

if (import.meta.main) answerParent<Order>(work);

/** Nothing is closed: a step that was not let through waits until the process ends. */
async function work(order: Order): Promise<unknown> {
  const { pawl } = await openOurs(order.place);
  return order.is === "queue" ? queue(pawl, order) : share(pawl, order.many);
}

interface Job {
  readonly customer: string;
}

/** A step begins, and ends when it is let through. */
class Turnstile {
  /** The customers whose steps have begun, in order. */
  readonly begun: string[] = [];
  #allowed = 0;
  readonly #waiting: (() => void)[] = [];
  #reached: { readonly begun: number; readonly resolve: () => void } | undefined;

  /** The step of a run. */
  enter(customer: string): Promise<void> {
    this.begun.push(customer);
    if (this.#reached !== undefined && this.begun.length >= this.#reached.begun) this.#reached.resolve();
    return new Promise((resolve) => {
      this.#waiting.push(resolve);
      this.#open();
    });
  }

  /** Lets this many steps end. */
  allow(steps: number): void {
    this.#allowed += steps;
    this.#open();
  }

  /** Resolves when this many steps have begun. */
  async reaches(begun: number): Promise<void> {
    if (this.begun.length >= begun) return;
    await new Promise<void>((resolve) => {
      this.#reached = { begun, resolve };
    });
  }

  #open(): void {
    while (this.#allowed > 0) {
      const next = this.#waiting.shift();
      if (next === undefined) return;
      this.#allowed -= 1;
      next();
    }
  }
}

const CALLERS = 100;
const MAKERS = 500;

async function inParallel(callers: number, total: number, call: (index: number) => Promise<unknown>): Promise<void> {
  let next = 0;
  const calling = async (): Promise<void> => {
    while (next < total) await call(next++);
  };
  await Promise.all(Array.from({ length: callers }, calling));
}

const BLOCK = 100;
const WARM_UPS = 30;

async function queue(pawl: Pawl, { shape, many, blocks }: Extract<Order, { is: "queue" }>): Promise<Queued> {
  const turnstile = new Turnstile();
  const key = ({ customer }: Job): string => customer;
  const exporting = workflow(
    {
      name: "export",
      concurrency:
        shape === "one key"
          ? { max: 1, key }
          : [
              { max: 1, key, name: "customer" },
              { max: 1, name: "exports" },
            ],
    },
    async (ctx, { customer }: Job) => {
      await ctx.step("export", () => turnstile.enter(customer));
    },
  );
  pawl.work([exporting]);
  let started = 0;
  /** The keys are those that are in line, ten times each. */
  const start = (keys: number) => {
    const number = started++;
    return pawl.start(exporting, { customer: shape === "one key" ? "ann" : `customer-${number % keys}` });
  };
  const fewKeys = FEW / PER_KEY;
  const manyKeys = many / PER_KEY;
  const isQuick = many < BLOCK * 100;
  const size = isQuick ? BLOCK / 10 : BLOCK;
  /** As many are started as are handed over, so the line is as long afterwards. */
  const block = async (keys: number) => {
    const [startedCpuMs, startedMs] = [cpuMs(), performance.now()];
    await inParallel(CALLERS, size, () => start(keys));
    const [betweenCpuMs, betweenMs] = [cpuMs(), performance.now()];
    const begun = turnstile.begun.length + size;
    turnstile.allow(size);
    await turnstile.reaches(begun);
    return {
      startCpuMs: (betweenCpuMs - startedCpuMs) / size,
      startMs: (betweenMs - startedMs) / size,
      handOverCpuMs: (cpuMs() - betweenCpuMs) / size,
      handOverMs: (performance.now() - betweenMs) / size,
    };
  };
  const measure = async (keys: number, of: number): Promise<Costs> => {
    const found: Awaited<ReturnType<typeof block>>[] = [];
    for (let index = 0; index < of; index++) found.push(await block(keys));
    const figures = (part: keyof Costs) => found.map((one) => one[part]);
    return {
      startCpuMs: figures("startCpuMs"),
      startMs: figures("startMs"),
      handOverCpuMs: figures("handOverCpuMs"),
      handOverMs: figures("handOverMs"),
    };
  };
  await inParallel(CALLERS, FEW + 1, () => start(fewKeys));
  await turnstile.reaches(1);
  await measure(fewKeys, isQuick ? 1 : WARM_UPS);
  const few = await measure(fewKeys, blocks);
  const heap = await heapWhile(many - FEW, (more) => inParallel(MAKERS, more, () => start(manyKeys)));
  const all = await measure(manyKeys, blocks);
  return { few, all, heap };
}

/** How many runs began, of those that waited in line, until the last of the others had begun. */
async function share(pawl: Pawl, many: number): Promise<number> {
  const turnstile = new Turnstile();
  const exporting = workflow(
    { name: "export", concurrency: { max: LIMIT }, fairness: { key: ({ customer }: Job) => customer } },
    async (ctx, { customer }: Job) => {
      await ctx.step("export", () => turnstile.enter(customer));
    },
  );
  pawl.work([exporting]);
  const start = (customer: string) => pawl.start(exporting, { customer });
  await inParallel(MAKERS, LIMIT, () => start("large"));
  await turnstile.reaches(LIMIT);
  await inParallel(MAKERS, many, () => start("large"));
  for (let index = 0; index < OTHERS; index++) await start(`small-${index}`);
  for (;;) {
    const { begun } = turnstile;
    const isSmall = (customer: string) => customer !== "large";
    if (begun.filter(isSmall).length === OTHERS) return begun.findLastIndex(isSmall) + 1 - LIMIT;
    if (begun.length > LIMIT + many) throw new Error("a run of the others has not begun");
    turnstile.allow(1);
    await turnstile.reaches(begun.length + 1);
  }
}
