/**
 * Rate limits, as rules: who may take tokens now, and who when.
 *
 * Time is a line on which a token is a stretch `perMs / max` long. Whoever takes n tokens gets a free stretch of their length that begins
 * now or later, the first there is, and its turn comes when the end of the stretch is no more than a full bucket (`burst` tokens)
 * ahead. So the bucket is one moment, `fullAt`: everything behind it is free, and when the clock gets there the bucket is full.
 * In between there may be gaps, which waiters left who gave up; who comes next takes those first, and delays nobody by it.
 *
 * Promises: of all whose turn is between t1 and t2, no more than `burst + (t2 - t1) * max / perMs` tokens. Their stretches do not
 * overlap; they begin at t1 or later, as no stretch begins before its turn, and end at most a full bucket after t2. A clock that
 * steps back only makes the way longer to what is free.
 * Pure: every rule is a row of `decide.test.ts`.
 */

import { earlier, type Figures, type Gap, joined, Line, later, type Stretch } from "./line.ts";

/** The stored words of a bucket. */
export interface Bucket extends Figures {
  /** When the declaration of these figures was first used; a later one replaces them. */
  readonly declaredMs: number;
  readonly fullAtMs: number;
  /** So many parts of the next millisecond, of which there are `max`. */
  readonly fullAtPart: number;
  /** Free stretches before that moment. */
  readonly gaps?: readonly Gap[];
}

/** A stretch that was taken, so that it can be given back. */
export interface Turn {
  readonly declaredMs: number;
  readonly gap: Gap;
}

export interface Taken {
  /** How long until its turn comes; 0 for at once. */
  readonly waitMs: number;
  readonly turn: Turn;
  readonly bucket: Bucket;
}

/** More gaps than this are not remembered: the first, whose time is nearest, is let pass unused. */
const MOST_GAPS = 100;

/** A bucket that nobody has taken from. */
export function fullBucket({ max, perMs, burst }: Figures, declaredMs: number, nowMs: number): Bucket {
  return { max, perMs, burst, declaredMs, fullAtMs: nowMs, fullAtPart: 0 };
}

/** Takes the first free stretch that is long enough. Whether its turn comes soon enough is the caller's to judge. */
export function decideTake(bucket: Bucket, nowMs: number, count: number): Taken {
  const { line, fullAt, gaps } = read(bucket);
  const nowAt = line.at(nowMs);
  const length = BigInt(count) * line.token;
  const index = gaps.findIndex(([from, to]) => later(from, nowAt) + length <= to);
  const gap = gaps[index];
  const from = later(gap?.[0] ?? fullAt, nowAt);
  const to = from + length;
  const left = gap === undefined ? gaps : gaps.toSpliced(index, 1, [to, gap[1]]);
  return {
    waitMs: line.ms(to - nowAt - line.full),
    turn: { declaredMs: bucket.declaredMs, gap: line.gap([from, to]) },
    bucket: written(bucket, line, gap === undefined ? to : fullAt, left, nowAt),
  };
}

/** Makes a stretch free again that was not used. Answers null where that has no effect any more. */
export function decideGiveBack(bucket: Bucket, nowMs: number, { declaredMs, gap }: Turn): Bucket | null {
  // Under other figures the line is another one.
  if (bucket.declaredMs !== declaredMs) return null;
  const { line, fullAt, gaps } = read(bucket);
  const nowAt = line.at(nowMs);
  const given = line.stretch(gap);
  if (given[1] <= nowAt) return null;
  const free = joined([...gaps, given]);
  // What ends where nothing is taken any more is no gap.
  const tail = free.find(([, to]) => to === fullAt);
  return tail === undefined
    ? written(bucket, line, fullAt, free, nowAt)
    : written(bucket, line, tail[0], free.slice(0, -1), nowAt);
}

/**
 * The bucket under a declaration: the one that was first used later has the say. What was taken stays taken, up to a whole bucket, and
 * whoever waits keeps its turn.
 */
export function decideDeclare(bucket: Bucket, figures: Figures, declaredMs: number, nowMs: number): Bucket {
  if (declaredMs <= bucket.declaredMs) return bucket;
  if (isSame(bucket, figures)) return { ...bucket, declaredMs };
  const { line, fullAt } = read(bucket);
  const taken = fullAt - line.at(nowMs);
  const lastTurnMs = nowMs + line.ms(taken - line.full);
  const debt = Math.min(figures.burst, bucket.burst, line.tokens(taken));
  return decideTake(fullBucket(figures, declaredMs, lastTurnMs), nowMs, debt).bucket;
}

export const isSame = (a: Figures, b: Figures): boolean =>
  a.max === b.max && a.perMs === b.perMs && a.burst === b.burst;

/** How many could be taken together at once. */
export function remainingIn(bucket: Bucket, nowMs: number): number {
  const { line, fullAt, gaps } = read(bucket);
  const nowAt = line.at(nowMs);
  const reach = nowAt + line.full;
  const free: readonly Stretch[] = [...gaps, [fullAt, reach]];
  const tokens = free.map(([from, to]) => Number((earlier(to, reach) - later(from, nowAt)) / line.token));
  return Math.max(0, ...tokens);
}

/** How long an empty bucket takes to be full. */
export function fillMs(figures: Figures): number {
  const line = new Line(figures);
  return line.ms(line.full);
}

function read(bucket: Bucket): { readonly line: Line; readonly fullAt: bigint; readonly gaps: readonly Stretch[] } {
  const line = new Line(bucket);
  const { fullAtMs, fullAtPart, gaps = [] } = bucket;
  return { line, fullAt: line.at(fullAtMs, fullAtPart), gaps: gaps.map((gap) => line.stretch(gap)) };
}

/** With the gaps that can still be used, not too many of them. */
function written(bucket: Bucket, line: Line, fullAt: bigint, gaps: readonly Stretch[], nowAt: bigint): Bucket {
  const { gaps: _, ...rest } = bucket;
  const [fullAtMs, fullAtPart] = line.split(fullAt);
  const kept = gaps.filter(([from, to]) => to > later(from, nowAt)).slice(-MOST_GAPS);
  return { ...rest, fullAtMs, fullAtPart, ...(kept.length === 0 ? {} : { gaps: kept.map((gap) => line.gap(gap)) }) };
}
