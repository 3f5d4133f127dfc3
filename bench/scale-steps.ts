/**
 * What step k of one run costs, as a curve over k: in a warm run, after its code was evicted, and after its process was killed.
 *
 * Method: for each k there is a run that has taken its first k - 1 steps, one by one, and waits. Then the runs take turns, alone on
 * the machine as far as possible: each takes some more steps, and what a step costs is the time from where its function begins
 * to where the next one's does, which is when its record is durable. The runs of the first round are discarded. Between the two the worker has
 * kept the code (warm), has kept none (evicted), or was another process that is gone (killed); the body's beginnings are counted, so
 * that a run which was replayed, or was not, where it should be otherwise ends the benchmark. The replay is timed separately: from the beginning of the
 * body to where the code has come to the first step that is timed.
 */

import { setTimeout as pause } from "node:timers/promises";
import { type Run, signal, workflow } from "../src/index.ts";
import type { Case } from "./comparisons.ts";
import type { Ground, Place } from "./ground.ts";
import { openOurs } from "./ours.ts";
import { type Measure, measureOf, median, type Result, resultOf } from "./result.ts";
import type { Setting } from "./rounds.ts";
import { answerOf, answerParent, endChild, startChild } from "./scale-child.ts";
import { showFigure } from "./table.ts";
import { collectGarbage, cpuMs } from "./usage.ts";

interface Climb {
  /** The first step that is timed. */
  readonly k: number;
  readonly round: number;
  /** Rests before that step, until it gets a signal. */
  readonly rests: boolean;
}

/** What was seen of one run in this process. */
interface Watch {
  readonly begunMs: number[];
  /** When the code came to the first step that is timed, or to the rest before it. */
  readonly thereMs: number[];
  readonly stepMs: number[];
  /** The processor's time at each step, which other processes change little. */
  readonly cpuMs: number[];
}

interface Order {
  readonly place: Place;
  readonly climbs: readonly Climb[];
}

const MODES = ["warm", "after eviction", "after a kill"] as const;
type Mode = (typeof MODES)[number];

const KS = { quick: [10, 200], full: [10, 100, 1000, 10_000] } as const;
const ROUNDS = 9;
/** How many steps are timed in each run. */
const TIMED = 30;
/** What counts as flat. */
const FLAT = 1.2;
/** Of the process that is killed: short, so that its runs come free soon. */
const LEASE_MS = 3000;

const goOn = signal("go on");

const climb = workflow("climb", async (ctx, { k, round, rests }: Climb) => {
  const watch = watchOf(k, round);
  watch.begunMs.push(performance.now());
  for (let step = 1; step < k; step++) await ctx.step("climb", () => step);
  watch.thereMs.push(performance.now());
  if (rests) await ctx.waitForSignal(goOn);
  for (let step = 0; step <= TIMED; step++) await ctx.step("climb", () => reached(watch));
});

const watches = new Map<string, Watch>();

function watchOf(k: number, round: number): Watch {
  const key = idOf({ k, round });
  const watch = watches.get(key) ?? { begunMs: [], thereMs: [], stepMs: [], cpuMs: [] };
  watches.set(key, watch);
  return watch;
}

/** Called by each step that is timed. */
let reached = (watch: Watch): unknown => {
  watch.cpuMs.push(cpuMs());
  watch.stepMs.push(performance.now());
  return watch.stepMs.length;
};

const idOf = ({ k, round }: Pick<Climb, "k" | "round">): string => `climb-${k}-${round}`;

export const stepCurve: Case = { id: "s1", title: "step k of one run: warm, evicted, killed", run: measure };

async function measure(setting: Setting): Promise<readonly Result[]> {
  const ks = setting.quick ? KS.quick : KS.full;
  const results: Result[] = [];
  const replays: [Mode, Curve][] = [];
  for (const [index, mode] of MODES.entries()) {
    const { costs, firsts, cpu, replayed } = await curvesOf(setting, mode, ks);
    const id = `s1${"abc"[index]}`;
    const [base, ours] = endsOf(costs);
    const title = `step ${count(ks.at(-1) ?? 0)} of a run, ${mode}`;
    const details = {
      ...detailsOf(costs, mode),
      ...detailsOf(firsts, `${mode}, the first one alone`),
      ...detailsOf(cpu, `${mode}, of the processor`),
    };
    results.push(resultOf({ id, title, unit: "ms", base, ours, target: { is: "at most", ratio: FLAT }, details }));
    setting.note(
      `${id}: ${mode}, ${sentenceOf(costs)}; the first one alone: ${sentenceOf(firsts)}; of the processor: ${sentenceOf(cpu)}.`,
    );
    if (mode === "warm") continue;
    replays.push([mode, replayed]);
    setting.note(`${id}: replaying a thousand facts ${mode}, up to ${sentenceOf(replayed)}.`);
  }
  // A run of ten steps ends before its replay can be distinguished from the rest.
  const [evicted, killed] = replays.map(([, curve]) => curve.slice(1));
  if (evicted === undefined || killed === undefined) throw new Error("no replay was timed");
  const [, afterEviction] = endsOf(evicted);
  const [, afterKill] = endsOf(killed);
  const target = null;
  const title = `replaying up to step ${count(ks.at(-1) ?? 0)}, a thousand facts`;
  const details = Object.assign({}, ...replays.map(([mode, curve]) => detailsOf(curve, `replay ${mode}`)));
  results.push(
    resultOf({
      id: "s1d",
      title,
      unit: "ms",
      base: { ...afterEviction, name: "after eviction" },
      ours: { ...afterKill, name: "after a kill" },
      target,
      details,
    }),
  );
  return results;
}

type Curve = readonly Measure[];

async function curvesOf(
  setting: Setting,
  mode: Mode,
  ks: readonly number[],
): Promise<{ costs: Curve; firsts: Curve; cpu: Curve; replayed: Curve }> {
  const { ground, quick } = setting;
  const rounds = setting.rounds(ROUNDS) + (quick ? 0 : 1);
  const climbs = Array.from({ length: rounds }, (_, round) =>
    ks.map((k): Climb => ({ k, round, rests: mode !== "after a kill" })),
  ).flat();
  watches.clear();
  const place = await ground.fresh();
  try {
    if (mode === "after a kill") await climbAfterKill(ground, place, climbs);
    else await climbInTurns(ground, place, climbs, mode);
  } finally {
    await ground.remove(place);
  }
  const begins = mode === "after eviction" ? 2 : 1;
  const counted = climbs.filter(({ round }) => quick || round > 0);
  const curve = (figure: (watch: Watch, k: number) => number): Curve =>
    ks.map((k) => {
      const figures = counted.filter((one) => one.k === k).map(({ round }) => figure(watchOf(k, round), k));
      return measureOf(`step ${count(k)}`, figures);
    });
  for (const { k, round } of climbs) {
    const { begunMs, stepMs } = watchOf(k, round);
    if (begunMs.length !== begins || stepMs.length !== TIMED + 1)
      throw new Error(`${mode}, a body began ${begunMs.length} times and ${stepMs.length} steps were timed`);
  }
  return {
    costs: curve(({ stepMs }) => median(costsOf(stepMs))),
    firsts: curve(({ stepMs }) => costsOf(stepMs)[0] ?? Number.NaN),
    cpu: curve(({ cpuMs }) => ((cpuMs.at(-1) ?? 0) - (cpuMs[0] ?? 0)) / TIMED),
    replayed: curve(({ begunMs, thereMs }, k) => (((thereMs.at(-1) ?? 0) - (begunMs.at(-1) ?? 0)) / k) * 1000),
  };
}

function costsOf(stepMs: readonly number[]): readonly number[] {
  return stepMs.slice(1).map((ms, index) => ms - (stepMs[index] ?? 0));
}

/** All take their first steps together, and then continue one after another. */
async function climbInTurns(ground: Ground, place: Place, climbs: readonly Climb[], mode: Mode): Promise<void> {
  const { pawl } = await openOurs(place);
  try {
    pawl.work([climb], { concurrency: climbs.length, warm: mode === "warm" ? climbs.length : 0 });
    const runs = await Promise.all(climbs.map((one) => pawl.start(climb, one, { id: idOf(one) })));
    for (const run of runs) await restOf(run);
    await ground.settle();
    collectGarbage();
    for (const run of runs) {
      await run.signal(goOn);
      await run.result();
    }
  } finally {
    await pawl.close();
  }
}

async function restOf(run: Run): Promise<void> {
  while ((await run.status()).status !== "waiting") await pause(20);
}

/** The process that took the first steps is killed in the next one, and this one continues, one run at a time. */
async function climbAfterKill(ground: Ground, place: Place, climbs: readonly Climb[]): Promise<void> {
  const child = startChild(import.meta.url, { place, climbs } satisfies Order);
  try {
    await answerOf(child);
  } finally {
    await endChild(child, true);
  }
  const { pawl } = await openOurs(place);
  try {
    await ground.settle();
    collectGarbage();
    pawl.work([climb], { concurrency: 1, warm: 0 });
    await Promise.all(climbs.map((one) => pawl.run(climb, idOf(one)).result()));
  } finally {
    await pawl.close();
  }
}

// --------------------------------------------------------------------------------------------------------- the reports

function endsOf(curve: Curve): [Measure, Measure] {
  const [first, last] = [curve[0], curve.at(-1)];
  if (first === undefined || last === undefined) throw new Error("nothing was measured");
  return [first, last];
}

function detailsOf(curve: Curve, mode: string): Record<string, number> {
  return Object.fromEntries(curve.map(({ name, median }) => [`${name}, ${mode}`, median]));
}

function sentenceOf(curve: Curve): string {
  return curve.map(({ name, median }) => `${name} ${showFigure(median, "ms")}`).join(", ");
}

function count(total: number): string {
  return total.toLocaleString("en");
}

// ------------------------------------------------------------------------------- in the other process, until it is killed

if (import.meta.main) answerParent<Order>(climbUntilKilled);

/** Returns when every run is in the step in which it will be killed. */
async function climbUntilKilled({ place, climbs }: Order): Promise<number> {
  const { pawl } = await openOurs(place);
  const there = new Set<Watch>();
  await new Promise<void>((resolve, reject) => {
    reached = (watch) => {
      there.add(watch);
      if (there.size === climbs.length) resolve();
      return new Promise(() => {});
    };
    pawl.work([climb], { concurrency: climbs.length, lease: LEASE_MS });
    Promise.all(climbs.map((one) => pawl.start(climb, one, { id: idOf(one) }))).catch(reject);
  });
  return there.size;
}
