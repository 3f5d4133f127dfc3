/**
 * How long it takes from the call of `append` in one process until a reaction handles the event in another one, when nothing else happens.
 *
 * Method: a worker in a process of its own; this process appends an event, waits until the worker says that its handler was called, pauses for a
 * random time, and appends the next one. Both read the machine's monotonic clock, and the event carries when its append was called.
 */

import type { ChildProcess } from "node:child_process";
import { on } from "node:events";
import { setTimeout as pause } from "node:timers/promises";
import { event, reaction } from "../src/index.ts";
import { atMost, type Case } from "./comparisons.ts";
import type { Place } from "./ground.ts";
import { openOurs } from "./ours.ts";
import { measureOf, median, type Result, resultOf } from "./result.ts";
import type { Setting } from "./rounds.ts";
import { answerOf, answerParent, endChild, startChild } from "./scale-child.ts";
import { percentile } from "./usage.ts";

interface Order {
  readonly place: Place;
}

/** What the worker tells: that it is ready, or how long an event took. */
type Told = "ready" | { readonly ms: number };

const EVENTS = 400;
const WARM_UPS = 50;
const ROUNDS = 3;
const STREAMS = 20;
/** From one event to the next, at most. */
const PAUSE_MS = 40;
const AIMED_AT_MS = 5;

const Placed = event<{ readonly calledNs: string }>("Placed");

/** The median is aimed at where processes notify each other. */
export function latency(id: string, isAimedAt: boolean): Case {
  const title = "append to reaction, across two processes";
  const run = async (setting: Setting): Promise<readonly Result[]> => {
    const rounds: Round[] = [];
    for (let round = 0; round < setting.rounds(ROUNDS); round++) rounds.push(await playRound(setting));
    const medians = measureOf(
      "until it is handled",
      rounds.map(({ handledMs }) => median(handledMs)),
    );
    const last = measureOf(
      "99 of 100",
      rounds.map(({ handledMs }) => percentile(handledMs, 0.99)),
    );
    const appended = measureOf(
      "the append itself",
      rounds.map(({ appendedMs }) => median(appendedMs)),
    );
    const aim = measureOf(isAimedAt ? "aimed at" : "for comparison", [AIMED_AT_MS]);
    return [
      resultOf({
        id: `${id}a`,
        title: `${title}: median`,
        unit: "ms",
        base: aim,
        ours: medians,
        target: isAimedAt ? atMost(1) : null,
        details: { "the append itself, in ms": appended.median, "99 of 100, in ms": last.median },
      }),
      resultOf({ id: `${id}b`, title: `${title}: p99`, unit: "ms", base: medians, ours: last, target: null }),
    ];
  };
  return { id, title, run };
}

interface Round {
  readonly handledMs: readonly number[];
  readonly appendedMs: readonly number[];
}

async function playRound({ ground, quick }: Setting): Promise<Round> {
  const place = await ground.fresh();
  const child = startChild(import.meta.url, { place } satisfies Order);
  const handledMs: number[] = [];
  const appendedMs: number[] = [];
  try {
    if ((await answerOf<Told>(child)) !== "ready") throw new Error("the worker is not ready");
    const times = toldBy(child);
    const { pawl } = await openOurs(place);
    const warmUps = quick ? 5 : WARM_UPS;
    for (let index = 0; index < warmUps + (quick ? 20 : EVENTS); index++) {
      // Asked before the append, so that nothing is missed.
      const handled = times.next();
      const calledNs = process.hrtime.bigint();
      await pawl.stream(`order-${index % STREAMS}`).append([Placed({ calledNs: String(calledNs) })]);
      const ms = msSince(calledNs);
      const took = (await handled).value ?? Number.NaN;
      if (index >= warmUps) {
        appendedMs.push(ms);
        handledMs.push(took);
      }
      await pause(Math.random() * PAUSE_MS);
    }
    await pawl.close();
  } finally {
    await endChild(child);
    await ground.remove(place);
  }
  return { handledMs, appendedMs };
}

/** How long each of the events took, one after another. */
async function* toldBy(child: ChildProcess): AsyncGenerator<number> {
  const gone = new AbortController();
  child.once("exit", () => gone.abort(new Error("the worker has ended")));
  for await (const [told] of on(child, "message", { signal: gone.signal })) yield told.ms;
}

const msSince = (ns: bigint): number => Number(process.hrtime.bigint() - ns) / 1e6;

// ---------------------------------------------------------------------------------------------- in the other process

if (import.meta.main) answerParent<Order>(work);

async function work({ place }: Order): Promise<Told> {
  const { pawl } = await openOurs(place);
  const mail = reaction("mail", { on: [Placed] }, async ({ data }) => {
    process.send?.({ ms: msSince(BigInt(data.calledNs)) } satisfies Told);
  });
  pawl.work([mail]);
  // The reaction routes as soon as a worker holds it.
  for (;;) {
    const [found] = await pawl.reactions.list();
    if (found?.worker != null) return "ready";
    await pause(20);
  }
}
