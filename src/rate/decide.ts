/**
 * The rules of rate limits: when tokens may be taken.
 *
 * Time is a line on which a token is a stretch `perMs / max` long. Taking n tokens reserves the first free stretch of their length that
 * begins now or later, and they are granted when the end of the stretch is no more than a full bucket (`burst` tokens) ahead. So the bucket
 * is one moment, `fullAt`: everything after it is free, and when the clock limites it the bucket is full. Before it there may be gaps, left
 * by waiters that gave up; the next calls take those first, which delays no other.
 *
 * Guarantees: between t1 and t2, no more than `burst + (t2 - t1) * max / perMs` tokens are granted. Their stretches do not overlap; they
 * begin at t1 or later, because no stretch begins before its grant, and end at most a full bucket after t2. A clock that steps back only
 * makes the wait longer; where it is a little behind the last taking, that is its time (`not-before.ts`).
 * Pure: every rule is a row of `decide.test.ts`.
 */

import { notBefore } from "../kernel/not-before.ts";
import { earlier, type Figures, type Gap, joined, later, type Stretch, Timeline } from "./timeline.ts";

/** The stored shape of a bucket. */
export interface Bucket extends Figures {
  /** When the declaration of these figures was first used; a later one replaces them. */
  readonly declaredMs: number;
  readonly fullAtMs: number;
  /** Parts of the next millisecond, of which there are `max`. */
  readonly fullAtPart: number;
  /** When tokens were last taken. Buckets of earlier releases do not have it. */
  readonly takenMs?: number;
  /** Free stretches before that moment. */
  readonly gaps?: readonly Gap[];
}

/** A reserved stretch, so that it can be released. */
export interface Reservation {
  readonly declaredMs: number;
  readonly gap: Gap;
}

export interface TakenTokens {
  /** How long until the tokens are granted; 0 for immediately. */
  readonly waitMs: number;
  readonly turn: Reservation;
  readonly bucket: Bucket;
}

/** How many gaps are kept. Of more, the earliest are dropped, and their tokens pass unused. */
const MAX_GAPS = 100;

/** A new bucket. */
export function fullBucket({ max, perMs, burst }: Figures, declaredMs: number, nowMs: number): Bucket {
  return { max, perMs, burst, declaredMs, fullAtMs: nowMs, fullAtPart: 0 };
}

/** Takes the first free stretch that is long enough. The caller checks whether the wait is short enough. */
export function decideTake(bucket: Bucket, nowMs: number, count: number): TakenTokens {
  const { timeline, fullAt, gaps } = read(bucket);
  const takenMs = timeOf(bucket, nowMs);
  const takenAt = timeline.at(takenMs);
  const length = BigInt(count) * timeline.token;
  const index = gaps.findIndex(([from, to]) => later(from, takenAt) + length <= to);
  const gap = gaps[index];
  const from = later(gap?.[0] ?? fullAt, takenAt);
  const to = from + length;
  const grantedAt = to - timeline.full;
  const left = gap === undefined ? gaps : gaps.toSpliced(index, 1, [to, gap[1]]);
  return {
    waitMs: grantedAt <= takenAt ? 0 : timeline.ms(grantedAt - timeline.at(nowMs)),
    turn: { declaredMs: bucket.declaredMs, gap: timeline.gap([from, to]) },
    bucket: written({ ...bucket, takenMs }, timeline, gap === undefined ? to : fullAt, left, takenAt),
  };
}

/** The time of a decision about the bucket: not before that of the last taking. */
const timeOf = ({ takenMs = 0 }: Bucket, nowMs: number): number => notBefore(nowMs, takenMs);

/** Releases a reserved stretch. Returns null if that has no effect any more. */
export function decideRelease(bucket: Bucket, nowMs: number, { declaredMs, gap }: Reservation): Bucket | null {
  // A reservation under other figures is on another timeline.
  if (bucket.declaredMs !== declaredMs) return null;
  const { timeline, fullAt, gaps } = read(bucket);
  const nowAt = timeline.at(nowMs);
  const given = timeline.stretch(gap);
  if (given[1] <= nowAt) return null;
  const free = joined([...gaps, given]);
  // A gap that ends at `fullAt` is no gap: it moves `fullAt`.
  const tail = free.find(([, to]) => to === fullAt);
  return tail === undefined
    ? written(bucket, timeline, fullAt, free, nowAt)
    : written(bucket, timeline, tail[0], free.slice(0, -1), nowAt);
}

/**
 * The bucket under a declaration: the latest one counts. What was taken stays taken, up to a whole bucket, and a waiter keeps its
 * reservation.
 */
export function decideDeclare(bucket: Bucket, figures: Figures, declaredMs: number, nowMs: number): Bucket {
  if (declaredMs <= bucket.declaredMs) return bucket;
  if (isSame(bucket, figures)) return { ...bucket, declaredMs };
  const { timeline, fullAt } = read(bucket);
  const atMs = timeOf(bucket, nowMs);
  const taken = fullAt - timeline.at(atMs);
  const lastTurnMs = atMs + timeline.ms(taken - timeline.full);
  const debt = Math.min(figures.burst, bucket.burst, timeline.tokens(taken));
  return decideTake(fullBucket(figures, declaredMs, lastTurnMs), atMs, debt).bucket;
}

export const isSame = (a: Figures, b: Figures): boolean =>
  a.max === b.max && a.perMs === b.perMs && a.burst === b.burst;

/** How many could be taken together now. */
export function remainingIn(bucket: Bucket, nowMs: number): number {
  const { timeline, fullAt, gaps } = read(bucket);
  const nowAt = timeline.at(timeOf(bucket, nowMs));
  const limit = nowAt + timeline.full;
  const free: readonly Stretch[] = [...gaps, [fullAt, limit]];
  const tokens = free.map(([from, to]) => Number((earlier(to, limit) - later(from, nowAt)) / timeline.token));
  return Math.max(0, ...tokens);
}

/** How long an empty bucket takes to be full. */
export function fillMs(figures: Figures): number {
  const timeline = new Timeline(figures);
  return timeline.ms(timeline.full);
}

function read(bucket: Bucket): {
  readonly timeline: Timeline;
  readonly fullAt: bigint;
  readonly gaps: readonly Stretch[];
} {
  const timeline = new Timeline(bucket);
  const { fullAtMs, fullAtPart, gaps = [] } = bucket;
  return { timeline, fullAt: timeline.at(fullAtMs, fullAtPart), gaps: gaps.map((gap) => timeline.stretch(gap)) };
}

/** The bucket with the gaps that can still be used, at most `MAX_GAPS`. */
function written(bucket: Bucket, timeline: Timeline, fullAt: bigint, gaps: readonly Stretch[], nowAt: bigint): Bucket {
  const { gaps: _, ...rest } = bucket;
  const [fullAtMs, fullAtPart] = timeline.split(fullAt);
  const kept = gaps.filter(([from, to]) => to > later(from, nowAt)).slice(-MAX_GAPS);
  return {
    ...rest,
    fullAtMs,
    fullAtPart,
    ...(kept.length === 0 ? {} : { gaps: kept.map((gap) => timeline.gap(gap)) }),
  };
}
