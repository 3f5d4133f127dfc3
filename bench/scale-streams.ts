/**
 * Streams and reactions, when there is more of everything: a command on a stream of a million events, targets of which few are due, and targets that are
 * far behind.
 *
 * s5: a command on a stream with a million events beside one on a stream with ten: its time, in turns in one process; and the heap of two
 *     processes, each of which runs commands on one of them.
 * s6: ten targets become due while 100,000 others wait for tomorrow, beside 1,000 others: how long it takes until the ten are handled.
 * s7: 1,000 targets, each 1,000 events behind, are drained by one worker: the heap, and how many are handled in a second.
 */

import { setTimeout as pause } from "node:timers/promises";
import { event, type Pawl, reaction } from "../src/index.ts";
import type { Case } from "./comparisons.ts";
import type { Place } from "./ground.ts";
import { openOurs } from "./ours.ts";
import { account, Charged } from "./ours-streams.ts";
import { measureOf, median, type Result, resultOf } from "./result.ts";
import type { Setting } from "./rounds.ts";
import { answerParent, askChild } from "./scale-child.ts";
import { count, heapMiB } from "./usage.ts";

type Order =
  | { readonly is: "make"; readonly place: Place; readonly long: number }
  | { readonly is: "time"; readonly place: Place; readonly blocks: number }
  | { readonly is: "memory"; readonly place: Place; readonly stream: string; readonly blocks: number }
  | { readonly is: "claim"; readonly place: Place; readonly waiting: number; readonly rounds: number }
  | { readonly is: "drain"; readonly place: Place; readonly targets: number; readonly events: number };

interface Times {
  /** Medians of blocks of commands. */
  readonly shortMs: readonly number[];
  readonly longMs: readonly number[];
}

interface Memory {
  readonly heapMiB: readonly number[];
  readonly rssMiB: number;
}

interface Drained extends Memory {
  readonly perSecond: number;
}

const FLAT_COST = 1.2;
const FLAT = 1.5;
const FLAT_MEMORY = 1.25;
const SHORT = "short";
const LONG = "long";
const BLOCK = 50;
const DUE = 10;
const MADE_AT_ONCE = 2000;

export const longStream: Case = { id: "s5", title: "a command on a stream of a million events", run: measureCommands };
export const waitingTargets: Case = { id: "s6", title: "100,000 targets, of which ten are due", run: measureClaims };
export const laggingTargets: Case = {
  id: "s7",
  title: "1,000 targets, each 1,000 events behind",
  run: measureDrain,
};

async function measureCommands(setting: Setting): Promise<readonly Result[]> {
  const [long, blocks] = setting.quick ? [20_000, 4] : [1_000_000, 30];
  const place = await setting.ground.fresh();
  try {
    await ask<null>({ is: "make", place, long });
    const { shortMs, longMs } = await ask<Times>({ is: "time", place, blocks });
    const memory = async (stream: string) => ask<Memory>({ is: "memory", place, stream, blocks });
    const [ofShort, ofLong] = [await memory(SHORT), await memory(LONG)];
    const title = `a command on a stream of ${count(long)} events`;
    return [
      resultOf({
        id: "s5a",
        title: `${title}: time`,
        unit: "ms",
        base: measureOf("on ten events", shortMs),
        ours: measureOf("on all of them", longMs),
        target: { is: "at most", ratio: FLAT_COST },
      }),
      resultOf({
        id: "s5b",
        title: `${title}: memory`,
        unit: "MiB",
        base: measureOf("heap, on ten events", ofShort.heapMiB),
        ours: measureOf("heap, on all of them", ofLong.heapMiB),
        target: { is: "at most", ratio: FLAT_COST },
        details: { "resident MiB, on ten events": ofShort.rssMiB, "resident MiB, on all of them": ofLong.rssMiB },
      }),
    ];
  } finally {
    await setting.ground.remove(place);
  }
}

async function measureClaims(setting: Setting): Promise<readonly Result[]> {
  const [few, many, rounds] = setting.quick ? [100, 2000, 5] : [1000, 100_000, 60];
  const untilHandled = async (waiting: number): Promise<readonly number[]> => {
    const place = await setting.ground.fresh();
    try {
      return await ask<readonly number[]>({ is: "claim", place, waiting, rounds });
    } finally {
      await setting.ground.remove(place);
    }
  };
  return [
    resultOf({
      id: "s6",
      title: `ten targets become due, and ${count(many)} wait`,
      unit: "ms",
      base: measureOf(`beside ${count(few)}`, await untilHandled(few)),
      ours: measureOf(`beside ${count(many)}`, await untilHandled(many)),
      target: { is: "at most", ratio: FLAT },
    }),
  ];
}

async function measureDrain(setting: Setting): Promise<readonly Result[]> {
  const [targets, events] = setting.quick ? [50, 60] : [1000, 1000];
  const place = await setting.ground.fresh();
  try {
    const { heapMiB, rssMiB, perSecond } = await ask<Drained>({ is: "drain", place, targets, events });
    const tenth = Math.ceil(heapMiB.length / 10);
    const title = `${count(targets)} targets, each ${count(events)} events behind`;
    setting.note(`s7: ${title}: ${count(perSecond)} events were handled in a second, with ${rssMiB.toFixed(0)} MiB.`);
    return [
      resultOf({
        id: "s7",
        title: `${title}: memory`,
        unit: "MiB",
        base: measureOf("heap, first tenth", heapMiB.slice(0, tenth)),
        ours: measureOf("heap, after it", heapMiB.slice(tenth)),
        target: { is: "at most", ratio: FLAT_MEMORY },
        details: { "handled in a second": perSecond, "resident MiB at the end": rssMiB },
      }),
    ];
  } finally {
    await setting.ground.remove(place);
  }
}

function ask<Answer>(order: Order): Promise<Answer> {
  return askChild<Order, Answer>(import.meta.url, order);
}

// ---------------------------------------------------------------------------------------------- in the other process

if (import.meta.main) answerParent<Order>(work);

async function work(order: Order): Promise<unknown> {
  const { pawl } = await openOurs(order.place);
  try {
    switch (order.is) {
      case "make":
        return await make(pawl, order.long);
      case "time":
        return await time(pawl, order.blocks);
      case "memory":
        return await watchMemory(pawl, order.stream, order.blocks);
      case "claim":
        return await claim(pawl, order.waiting, order.rounds);
      case "drain":
        return await drain(pawl, order.targets, order.events);
    }
  } finally {
    await pawl.close();
  }
}

const charge = { step: 0, charge: "ch_000000", total: 1999, currency: "EUR" };
const charges = (length: number) => Array.from({ length }, () => Charged(charge));

/** The state of the long stream is folded once, so that commands find it stored, as they leave it. */
async function make(pawl: Pawl, long: number): Promise<null> {
  for (let made = 0; made < long; made += MADE_AT_ONCE) await pawl.stream(LONG).append(charges(MADE_AT_ONCE));
  await pawl.stream(SHORT).append(charges(10));
  for (const stream of [LONG, SHORT]) await pawl.aggregate(account, stream).execute("charge", charge);
  return null;
}

/** How long each of some commands takes. */
async function commandsOn(pawl: Pawl, stream: string): Promise<readonly number[]> {
  const handle = pawl.aggregate(account, stream);
  const ms: number[] = [];
  for (let index = 0; index < BLOCK; index++) {
    const startedMs = performance.now();
    await handle.execute("charge", charge);
    ms.push(performance.now() - startedMs);
  }
  return ms;
}

/** The short stream gets some events too, but stays short. */
async function time(pawl: Pawl, blocks: number): Promise<Times> {
  const [shortMs, longMs]: [number[], number[]] = [[], []];
  for (let block = -2; block < blocks; block++) {
    const [ofShort, ofLong] = [await commandsOn(pawl, SHORT), await commandsOn(pawl, LONG)];
    if (block < 0) continue;
    shortMs.push(median(ofShort));
    longMs.push(median(ofLong));
  }
  return { shortMs, longMs };
}

async function watchMemory(pawl: Pawl, stream: string, blocks: number): Promise<Memory> {
  const heaps: number[] = [];
  for (let block = 0; block < blocks; block++) {
    await commandsOn(pawl, stream);
    heaps.push(heapMiB());
  }
  return { heapMiB: heaps, rssMiB: process.memoryUsage().rss / 2 ** 20 };
}

const Placed = event<{ readonly isFor: "tomorrow" | "now" }>("Placed");
const CALLERS = 500;

async function claim(pawl: Pawl, waiting: number, rounds: number): Promise<readonly number[]> {
  let deferred = 0;
  let handled: () => void = () => {};
  const mail = reaction("mail", { on: [Placed] }, async ({ data }, { defer }) => {
    if (data.isFor === "tomorrow") {
      deferred += 1;
      defer("1 day");
    }
    handled();
  });
  let next = 0;
  const call = async (): Promise<void> => {
    while (next < waiting) await pawl.stream(`later-${next++}`).append([Placed({ isFor: "tomorrow" })]);
  };
  await Promise.all(Array.from({ length: CALLERS }, call));
  pawl.work([mail]);
  while (deferred < waiting) await pause(20);
  await pause(200);
  const ms: number[] = [];
  for (let round = -5; round < rounds; round++) {
    const { promise, resolve } = Promise.withResolvers<void>();
    let left = DUE;
    handled = () => {
      left -= 1;
      if (left === 0) resolve();
    };
    const startedMs = performance.now();
    await pawl.transact((tx) => {
      for (let index = 0; index < DUE; index++) tx.stream(`now-${index}`).append([Placed({ isFor: "now" })]);
    });
    await promise;
    if (round >= 0) ms.push(performance.now() - startedMs);
    await pause(20);
  }
  return ms;
}

const SAMPLES = 40;

async function drain(pawl: Pawl, targets: number, events: number): Promise<Drained> {
  for (let index = 0; index < targets; index++) await pawl.stream(`stream-${index}`).append(charges(events));
  const total = targets * events;
  const every = Math.floor(total / SAMPLES);
  const heaps: number[] = [];
  const { promise, resolve } = Promise.withResolvers<void>();
  let handled = 0;
  let lookingMs = 0;
  const mail = reaction("mail", { on: [Charged] }, async () => {
    handled += 1;
    if (handled % every === 0) {
      const lookedMs = performance.now();
      heaps.push(heapMiB());
      lookingMs += performance.now() - lookedMs;
    }
    if (handled === total) resolve();
  });
  const startedMs = performance.now();
  const worker = pawl.work([mail]);
  await promise;
  const perSecond = (total / (performance.now() - startedMs - lookingMs)) * 1000;
  await worker.stop();
  return { heapMiB: heaps, rssMiB: process.memoryUsage().rss / 2 ** 20, perSecond };
}
