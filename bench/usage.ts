/** What a process has used so far, and how figures are shown. Processor time is affected little by what else the machine does. */

import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

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
