/**
 * What is measured of a contender: three ways of asking it for runs.
 *
 * `callers`: a number of callers, each of which waits for the result of a run before it starts the next. `atOnce`: all runs are
 * submitted without waiting, and then all results are waited for. `lone`: one caller alone, for latency.
 *
 * Guarantees: every run returned its number of steps, and ran each of them at least once; otherwise the benchmark ends with an error.
 */

import { median } from "../result.ts";
import { chargeCount, type PeerSession } from "./peer.ts";

/** How many runs a lone caller makes at least, and at most. */
const LONE_RUNS = { least: 3, most: 200 } as const;

/** Runs per second, with this number of callers for this time; a run that was started is waited for. */
export async function callers(session: PeerSession, steps: number, count: number, forMs: number): Promise<number> {
  const check = watch(steps);
  const startedMs = performance.now();
  let runs = 0;
  const call = async () => {
    do {
      check(await session.run(steps));
      runs++;
    } while (performance.now() - startedMs < forMs);
  };
  await Promise.all(Array.from({ length: count }, call));
  return (runs / (performance.now() - startedMs)) * 1000;
}

/** Runs in a second, from the first submission to the last result. */
export async function atOnce(session: PeerSession, steps: number, runs: number): Promise<number> {
  const check = watch(steps);
  const startedMs = performance.now();
  const submitted = await Promise.all(Array.from({ length: runs }, () => session.submit(steps)));
  for (const result of await Promise.all(submitted.map((run) => run.result()))) check(result);
  return (runs / (performance.now() - startedMs)) * 1000;
}

/** The median of how many milliseconds a lone caller waits. */
export async function lone(session: PeerSession, steps: number, forMs: number): Promise<number> {
  const check = watch(steps);
  const startedMs = performance.now();
  const latenciesMs: number[] = [];
  do {
    const calledMs = performance.now();
    check(await session.run(steps));
    latenciesMs.push(performance.now() - calledMs);
  } while (
    latenciesMs.length < LONE_RUNS.least ||
    (latenciesMs.length < LONE_RUNS.most && performance.now() - startedMs < forMs)
  );
  return median(latenciesMs);
}

/** To be called with each result, so that a contender that does less than it should is found out. */
function watch(steps: number): (result: number) => void {
  const before = chargeCount();
  let runs = 0;
  return (result) => {
    runs++;
    if (result !== steps) throw new Error(`a run of ${steps} steps returned ${result}`);
    const done = chargeCount() - before;
    if (done < runs * steps) throw new Error(`${runs} runs of ${steps} steps are done after ${done} steps`);
  };
}
