/**
 * Admission, as rules: who is next in a line, who has the next turn, and when collected starts begin.
 *
 * Pure: every rule is a row of `decide.test.ts`.
 */

import { notBefore } from "../../kernel/not-before.ts";
import type { Lane, LimitValue, LineValue } from "./stored.ts";

/** What one step of priority is worth: a run goes before those of a priority lower by one that began to wait up to this much earlier. */
export const PRIORITY_MS = 60_000;
export const HIGHEST_PRIORITY = 100;

/** Whether the limit admits one more run that no other waits before. */
export const fits = ({ held, max, first }: LimitValue): boolean => held < max && first === undefined;

/** Whether a line that has its turn at another limit is stopped by this one. */
export const isFull = ({ held, max }: LimitValue): boolean => held >= max;

/** The same, where the commit that decides frees a place of this limit, too: those that wait for it have their turns first. */
export const isAwaited = ({ first }: LimitValue): boolean => first !== undefined;

/** The lane whose first run is next: the longest wait, where each step of priority counts as a minute. So no run is overtaken forever. */
export function nextLane(lanes: readonly Lane[]): Lane | undefined {
  let best: Lane | undefined;
  for (const lane of lanes) if (best === undefined || isBefore(lane, best)) best = lane;
  return best;
}

function isBefore(lane: Lane, other: Lane): boolean {
  const [at, otherAt] = [orderMs(lane), orderMs(other)];
  return at === otherAt ? lane[0] > other[0] : at < otherAt;
}

const orderMs = ([priority, , , , sinceMs]: Lane): number => sinceMs - priority * PRIORITY_MS;

/** How many wait. */
export const waitingIn = (lanes: readonly Lane[]): number => lanes.reduce((sum, [, , , count]) => sum + count, 0);

/** The lanes after a run was added at the end of the lane of its priority. */
export function withRun(lanes: readonly Lane[], run: string, priority: number, sinceMs: number): readonly Lane[] {
  const index = lanes.findIndex(([of]) => of === priority);
  const lane = lanes[index];
  if (lane === undefined) return [...lanes, [priority, run, run, 1, sinceMs]];
  const [, first, , count, firstMs] = lane;
  return lanes.with(index, [priority, first, run, count + 1, firstMs]);
}

/** The lanes after a run was removed, which is at any position of its lane. */
export function withoutRun(
  lanes: readonly Lane[],
  run: string,
  priority: number,
  {
    prev,
    next,
    nextSinceMs,
  }: { readonly prev: string | null; readonly next: string | null; readonly nextSinceMs?: number },
): readonly Lane[] {
  const index = lanes.findIndex(([of]) => of === priority);
  const lane = lanes[index];
  if (lane === undefined) return lanes;
  const [, first, last, count, sinceMs] = lane;
  if (count <= 1) return lanes.toSpliced(index, 1);
  if (first === run) return lanes.with(index, [priority, next ?? last, last, count - 1, nextSinceMs ?? sinceMs]);
  return lanes.with(index, [priority, first, last === run ? (prev ?? first) : last, count - 1, sinceMs]);
}

/** The lanes without the first run of a priority, which cannot be read: `next` is the one after it, as far as one can be read. */
export function withoutFirst(
  lanes: readonly Lane[],
  priority: number,
  next: { readonly run: string; readonly sinceMs: number } | undefined,
): readonly Lane[] {
  const index = lanes.findIndex(([of]) => of === priority);
  const lane = lanes[index];
  if (lane === undefined) return lanes;
  if (next === undefined) return lanes.toSpliced(index, 1);
  const [, first, last, count] = lane;
  // Others that cannot be read may be counted: then the end of the line is met as a run that is not there, and is left out in the same way.
  return lanes.with(index, [
    priority,
    next.run,
    last === first ? next.run : last,
    Math.max(1, count - 1),
    next.sinceMs,
  ]);
}

/** After a run of the line was admitted: whether the line keeps its turn, or the next one has it. */
export function afterTurn({ credit, weight }: Pick<LineValue, "credit" | "weight">): {
  readonly credit: number;
  readonly isNext: boolean;
} {
  return credit > 1 ? { credit: credit - 1, isNext: false } : { credit: weight, isNext: true };
}

/** After as many hand-overs within a process, the next run is left to whichever process claims it first. */
const MOST_IN_A_ROW = 15;

/**
 * Whether the process that ends a run may take the next one in the same commit. `inARow` is how many it took since it last left one to others: every sixteenth
 * is left, so that processes that were added get their share. Where more may be due than there are places, every second is: others wait for the place.
 */
export const mayTakeNext = (inARow: number, mayHaveMore: boolean): boolean =>
  inARow < (mayHaveMore ? 1 : MOST_IN_A_ROW);

/** A run that begins this much after its turn, because no worker was there in time, needs another one. */
const LATE_TURN_MS = 500;

/**
 * Whether a run is too late for its turn: others have theirs now, and all that waited would begin together. It may be later each time, so that a run whose
 * workers are always late begins nevertheless.
 */
export const isTurnOver = (turnMs: number | undefined, lateTurns: number, nowMs: number): boolean =>
  turnMs !== undefined && nowMs - turnMs > LATE_TURN_MS * 4 ** lateTurns;

/** When starts that are collected begin: after a time without one, but not later than `maxWaitMs` after the first. */
export function debouncedUntil(nowMs: number, firstMs: number, periodMs: number, maxWaitMs: number | null): number {
  const quietMs = nowMs + periodMs;
  return maxWaitMs === null ? quietMs : Math.min(quietMs, firstMs + maxWaitMs);
}

/**
 * The time of a start that meets a run which collects since `firstMs`, or which is taken and was complete at `dueMs`: the start came after that, also
 * where its commit began before.
 */
export const metAtMs = (nowMs: number, firstMs: number, dueMs: number | undefined): number =>
  notBefore(nowMs, dueMs ?? firstMs);

/** A batch begins when it is full, by number or by size. */
export const isBatchFull = (count: number, bytes: number, size: number, maxBytes: number): boolean =>
  count >= size || bytes >= maxBytes;

/** How much a batch collects at most. */
export const BATCH_BYTES = 512 * 1024;
