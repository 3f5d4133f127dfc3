/**
 * How long it takes from the end of a run to the first step of the next one, under `max: 1`: from the return of the last step of the one to the call of the
 * first step of the other.
 *
 * Method: all runs are started before there is a worker, so all but one are queued. Then one process, or two, work on them. The one step of a run takes up
 * to `STEP_MS`, so that nothing else happens when it returns. Processes read the machine's monotonic clock, and report both ends of each step. If two steps
 * overlap, the benchmark ends with an error. What a lone commit takes at the time is measured beside it: a hand-over is one commit, which ends the one run
 * and takes the next, and every sixteenth is two and a read. On a busy machine the ratio means more than the time. How many commits a hand-over takes is counted by a
 * test (`test/flow/hand-over.test.ts`).
 */

import type { ChildProcess } from "node:child_process";
import { setTimeout as pause } from "node:timers/promises";
import { type Pawl, workflow } from "../src/index.ts";
import { atMost, type Case } from "./comparisons.ts";
import type { Place } from "./ground.ts";
import { openOurs } from "./ours.ts";
import { type Measure, measureOf, median, type Result, resultOf } from "./result.ts";
import type { Setting } from "./rounds.ts";
import { answerParent, endChild, startChild } from "./scale-child.ts";
import { showFigure } from "./table.ts";
import { percentile } from "./usage.ts";

interface Order {
  readonly place: Place;
}

/** A step, by the machine's clock. */
interface Held {
  readonly process: number;
  readonly beganMs: number;
  readonly endedMs: number;
}

interface Round {
  readonly gaps: readonly Gap[];
  /** Of a lone caller, before the workers begin. */
  readonly commitMs: number;
}

interface Gap {
  readonly ms: number;
  /** From one process to the other. */
  readonly isAcross: boolean;
}

const RUNS = 400;
const WARM_UPS = 50;
const COMMITS = 50;
const ROUNDS = 3;
const STEP_MS = 20;
const AIMED_AT_MS = 3;

/** The machine's monotonic clock, which all processes share. */
const sharedMs = (): number => Number(process.hrtime.bigint() / 1000n) / 1000;

const nightly = workflow({ name: "nightly", concurrency: { max: 1 } }, (ctx) =>
  ctx.step("work", async () => {
    const beganMs = sharedMs();
    await pause(Math.random() * STEP_MS);
    process.send?.({ process: process.pid, beganMs, endedMs: sharedMs() } satisfies Held);
  }),
);

/** The median is aimed at where processes notify each other. */
export function handOver({ id, isAimedAt }: { readonly id: string; readonly isAimedAt: boolean }): Case {
  const title = "a place handed on, max: 1";
  const run = async (setting: Setting): Promise<readonly Result[]> => {
    const rounds: { readonly one: Round; readonly two: Round }[] = [];
    for (let round = 0; round < setting.rounds(ROUNDS); round++)
      rounds.push({ one: await playRound(setting, 1), two: await playRound(setting, 2) });
    const aim = measureOf(isAimedAt ? "aimed at" : "for comparison", [AIMED_AT_MS]);
    const measured = (name: string, figure: (round: (typeof rounds)[number]) => number): Measure =>
      measureOf(name, rounds.map(figure));
    const one = measured("in one process", (round) => median(all(round.one.gaps)));
    const two = measured("in two processes", (round) => median(all(round.two.gaps)));
    const last = measured("99 of 100", (round) => percentile(all(round.two.gaps), 0.99));
    const details = {
      "in two processes, 99 of 100, in ms": last.median,
      "from one to the other, in ms": median(rounds.map(({ two }) => median(across(two.gaps)))),
      "share that was handed to the other": median(rounds.map(({ two }) => across(two.gaps).length / two.gaps.length)),
      "a lone commit, in ms": median(rounds.flatMap((round) => [round.one.commitMs, round.two.commitMs])),
      "in two processes, in lone commits": median(
        rounds.map((round) => median(all(round.two.gaps)) / round.two.commitMs),
      ),
    };
    setting.note(
      `q3: from the return of a step to the next one: ${showFigure(one.median, "ms")} in one process, ${showFigure(two.median, "ms")} in two, while a lone ` +
        `commit took ${showFigure(details["a lone commit, in ms"], "ms")}.`,
    );
    const aimed = { unit: "ms", base: aim } as const;
    return [
      resultOf({ ...aimed, id: `${id}a`, title: `${title}: one process`, ours: one, target: null }),
      resultOf({
        ...aimed,
        id: `${id}b`,
        title: `${title}: two processes`,
        ours: two,
        target: isAimedAt ? atMost(1) : null,
        details,
      }),
      resultOf({ id: `${id}c`, title: `${title}: two, p99`, unit: "ms", base: two, ours: last, target: null }),
    ];
  };
  return { id, title, run };
}

const all = (gaps: readonly Gap[]): readonly number[] => gaps.map(({ ms }) => ms);
const across = (gaps: readonly Gap[]): readonly number[] => gaps.flatMap(({ ms, isAcross }) => (isAcross ? [ms] : []));

async function playRound({ ground, quick }: Setting, processes: number): Promise<Round> {
  const place = await ground.fresh();
  const warmUps = quick ? 3 : WARM_UPS;
  const runs = warmUps + (quick ? 15 : RUNS);
  const children: ChildProcess[] = [];
  try {
    const { pawl } = await openOurs(place);
    await Promise.all(Array.from({ length: runs }, () => pawl.start(nightly)));
    const commitMs = await loneCommitMs(pawl, quick ? 5 : COMMITS);
    await pawl.close();
    for (let index = 0; index < processes; index++)
      children.push(startChild(import.meta.url, { place } satisfies Order));
    const held = await heldBy(children, runs);
    return { gaps: gapsOf(held).slice(warmUps), commitMs };
  } finally {
    await Promise.all(children.map((child) => endChild(child)));
    await ground.remove(place);
  }
}

async function loneCommitMs(pawl: Pawl, commits: number): Promise<number> {
  const slot = pawl.slot("beside", { initial: 0 });
  const ms: number[] = [];
  for (let index = 0; index < commits; index++) {
    await pause(Math.random() * STEP_MS);
    const beganMs = sharedMs();
    await slot.update((count) => count + 1);
    ms.push(sharedMs() - beganMs);
  }
  return median(ms);
}

/** What the processes report, until there are as many. */
function heldBy(children: readonly ChildProcess[], runs: number): Promise<readonly Held[]> {
  return new Promise((resolve, reject) => {
    const all: Held[] = [];
    for (const child of children) {
      child.on("message", (held: Held) => {
        all.push(held);
        if (all.length === runs) resolve(all);
      });
      child.once("error", reject);
      child.once("exit", (code) => reject(new Error(`a worker ended with ${code}`)));
    }
  });
}

function gapsOf(held: readonly Held[]): readonly Gap[] {
  const inOrder = held.toSorted((one, other) => one.beganMs - other.beganMs);
  return inOrder.slice(1).map(({ process, beganMs }, index) => {
    const before = inOrder[index];
    if (before === undefined || before.endedMs > beganMs) throw new Error("two runs were admitted under max: 1");
    return { ms: beganMs - before.endedMs, isAcross: before.process !== process };
  });
}

// -------------------------------------------------------------------------------------------- in the other processes

if (import.meta.main) answerParent<Order>(work);

/** Works until the parent ends it. */
async function work({ place }: Order): Promise<never> {
  const { pawl } = await openOurs(place);
  pawl.work([nightly]);
  return new Promise(() => {});
}
