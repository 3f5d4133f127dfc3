/**
 * One run with a history of a million facts: does replaying it take bounded memory, and as long for each fact at the end as at the beginning?
 *
 * Method: in a process of its own, a run takes the steps a thousand at a time, under a thousand names, and rests. Another handle, opened when the
 * first is closed, resumes it and replays everything. After each thousand the body reports the time, and now and
 * then the heap is looked at after a collection of garbage, whose time is taken off again.
 */

import { setTimeout as pause } from "node:timers/promises";
import { signal, workflow } from "../src/index.ts";
import type { Case } from "./comparisons.ts";
import type { Place } from "./ground.ts";
import { openOurs } from "./ours.ts";
import { measureOf, median, type Result, resultOf } from "./result.ts";
import type { Setting } from "./rounds.ts";
import { answerParent, askChild } from "./scale-child.ts";
import { heapMiB } from "./usage.ts";

interface Order {
  readonly place: Place;
  readonly thousands: number;
}

/** What was seen while the code went through the history once. */
interface Passage {
  /** For each thousand facts. */
  readonly ms: readonly number[];
  readonly heapMiB: readonly number[];
}

interface Answer {
  readonly making: Passage;
  readonly replaying: Passage;
  readonly rssMiB: number;
}

/** The heap is looked at so often. */
const SAMPLES = 20;
const FLAT = 1.5;
const FLAT_MEMORY = 1.25;

export const longHistory: Case = { id: "s4", title: "a history of a million facts", run: measure };

async function measure(setting: Setting): Promise<readonly Result[]> {
  const thousands = setting.quick ? 20 : 1000;
  const place = await setting.ground.fresh();
  const { making, replaying, rssMiB } = await askChild<Order, Answer>(import.meta.url, { place, thousands }).finally(
    () => setting.ground.remove(place),
  );
  const title = `${(thousands * 1000).toLocaleString("en")} facts replayed`;
  const tenth = (figures: readonly number[]) => Math.ceil(figures.length / 10);
  const firstOf = (figures: readonly number[]) => figures.slice(0, tenth(figures));
  const lastOf = (figures: readonly number[]) => figures.slice(-tenth(figures));
  return [
    resultOf({
      id: "s4a",
      title: `${title}: time of a thousand`,
      unit: "ms",
      base: measureOf("first tenth", firstOf(replaying.ms)),
      ours: measureOf("last tenth", lastOf(replaying.ms)),
      target: { is: "at most", ratio: FLAT },
      details: {
        "replaying all, in seconds": sum(replaying.ms) / 1000,
        "making all, in seconds": sum(making.ms) / 1000,
        "making a thousand, first tenth, in ms": median(firstOf(making.ms)),
        "making a thousand, last tenth, in ms": median(lastOf(making.ms)),
      },
    }),
    resultOf({
      id: "s4b",
      title: `${title}: memory`,
      unit: "MiB",
      base: measureOf("heap, first tenth", firstOf(replaying.heapMiB)),
      ours: measureOf("heap, after it", replaying.heapMiB.slice(tenth(replaying.heapMiB))),
      target: { is: "at most", ratio: FLAT_MEMORY },
      details: {
        "heap at the end of the making, in MiB": making.heapMiB.at(-1) ?? Number.NaN,
        "resident MiB at the end": rssMiB,
      },
    }),
  ];
}

function sum(figures: readonly number[]): number {
  return figures.reduce((total, one) => total + one, 0);
}

// ---------------------------------------------------------------------------------------------- in the other process

if (import.meta.main) answerParent<Order>(work);

const goOn = signal("go on");
const NAMES = Array.from({ length: 1000 }, (_, index) => `step-${index}`);

const long = workflow("long", async (ctx, thousands: number) => {
  passed(0);
  for (let thousand = 1; thousand <= thousands; thousand++) {
    await Promise.all(NAMES.map((name) => ctx.step(name, () => thousand)));
    passed(thousand);
  }
  await ctx.waitForSignal(goOn);
  return thousands;
});

/** The body reports its progress, which only a benchmark may do. */
let passed: (thousand: number) => void = () => {};

async function work({ place, thousands }: Order): Promise<Answer> {
  const making = watch(thousands);
  const first = await openOurs(place);
  first.pawl.work([long]);
  const made = await first.pawl.start(long, thousands, { id: "long" });
  while ((await made.status()).status !== "waiting") await pause(20);
  const { length } = await made.history({ after: thousands * 1000, limit: 2 });
  if (length !== 1) throw new Error(`the history has not ${thousands * 1000} facts of steps`);
  await first.pawl.close();
  const replaying = watch(thousands);
  const second = await openOurs(place);
  second.pawl.work([long]);
  const run = second.pawl.run(long, "long");
  await run.signal(goOn);
  if ((await run.result()) !== thousands) throw new Error("the run has a wrong result");
  await second.pawl.close();
  return { making: making(), replaying: replaying(), rssMiB: process.memoryUsage().rss / 2 ** 20 };
}

/** Collects the reports of the body from here on, and returns them. */
function watch(thousands: number): () => Passage {
  const ms: number[] = [];
  const heaps: number[] = [];
  let sinceMs = Number.NaN;
  passed = (thousand) => {
    if (thousand > 0) ms.push(performance.now() - sinceMs);
    if (thousand > 0 && thousand % (thousands / SAMPLES) === 0) {
      heaps.push(heapMiB());
    }
    sinceMs = performance.now();
  };
  return () => {
    if (ms.length !== thousands) throw new Error(`the body passed ${ms.length} thousands, and not ${thousands}`);
    return { ms, heapMiB: heaps };
  };
}
