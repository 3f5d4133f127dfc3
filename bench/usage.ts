/** What a process has used so far, and how figures are shown. Processor time is affected little by what else the machine does. */

import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { median } from "./result.ts";

/** Processor time of this process. */
export function cpuMs(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}

setFlagsFromString("--expose-gc");
const gc: unknown = runInNewContext("gc");

/** So that no side pays for the garbage of the one before. */
export function collectGarbage(): void {
  if (typeof gc === "function") gc();
}

/** What is left after a collection of garbage. */
export function heapMiB(): number {
  collectGarbage();
  return process.memoryUsage().heapUsed / 2 ** 20;
}

export function percentile(figures: readonly number[], share: number): number {
  const sorted = figures.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN;
}

export function count(total: number): string {
  return Math.round(total).toLocaleString("en");
}

const SAMPLES = 40;

/** The heap while many of something are made, of which the first quarter fills what is cached. */
export interface Heap {
  readonly firstMiB: readonly number[];
  readonly thenMiB: readonly number[];
  /** From the first quarter to the last, by medians. */
  readonly bytesEach: number;
}

/** Makes them in shares, and looks at the heap after each. */
export async function heapWhile(total: number, make: (share: number) => Promise<void>): Promise<Heap> {
  const samples: number[] = [];
  const share = Math.ceil(total / Math.min(SAMPLES, Math.ceil(total / 250)));
  for (let made = 0; made < total; made += share) {
    await make(Math.min(share, total - made));
    samples.push(heapMiB());
  }
  const quarter = Math.ceil(samples.length / 4);
  const [firstMiB, lastMiB] = [samples.slice(0, quarter), samples.slice(-quarter)];
  const grownMiB = median(lastMiB) - median(firstMiB);
  return { firstMiB, thenMiB: samples.slice(quarter), bytesEach: (grownMiB * 2 ** 20) / (0.75 * total) };
}
