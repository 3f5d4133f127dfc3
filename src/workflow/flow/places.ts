/**
 * Places: the decisions by which runs are admitted under the concurrency limits of their workflow, wait in line, and hand their places on.
 *
 * A run is admitted if every limit that applies to it has room; otherwise it waits in the line of its keys, which is in the ring of one limit that has
 * no room. The commit that ends a run frees its places, and admits from the rings of those limits: the first line has its turn, and its next run is
 * admitted if the other limits of the line have room, too. If one has not, or others wait there for the place that this commit frees, the line moves into
 * the ring of that one.
 *
 * So these are always true: a line with waiting runs is in the ring of exactly one limit; a limit with a ring has no room, unless more lines are to be
 * handled than one commit does; then the limit is due, and a worker continues.
 *
 * Guarantees: a limit never has more than `max` runs, by the decisions of processes that declare this `max`; a run that ended holds no place, whatever
 * ended it (G30); first come, first served within a line and a priority; lines take turns.
 */

import type { Tx } from "../../kernel/decision.ts";
import type { Draft } from "../../kernel/draft.ts";
import { unreadableNumber } from "../../kernel/draft.ts";
import type { GateRequest, Place } from "../definitions/flow.ts";
import { ConcurrencyLimitError } from "../errors.ts";
import { readableValue, runOf } from "../history/read-run.ts";
import { hasBegun, hasEnded, newQueueOf, queueOf, type RunStatus, type RunValue, runAt } from "../stored.ts";
import {
  afterTurn,
  fits,
  isAwaited,
  isFull,
  nextLane,
  waitingIn,
  withoutFirst,
  withoutRun,
  withRun,
} from "./decide.ts";
import type { Succession } from "./hand-over.ts";
import {
  BROKEN_LINE,
  type Gate,
  HURRIED_QUEUE,
  isSamePlace,
  LIMIT_QUEUE,
  type LimitValue,
  type LineValue,
  limitAt,
  lineAt,
  type PlaceRef,
  placeOf,
} from "./stored.ts";

/** One commit admits, or moves, at most this many lines or runs that were not read beforehand; the next one continues (`limits.ts`). */
const MOST_MOVED = 10;
/** A limit that is unused for this long is removed. */
const IDLE_MS = 3_600_000;
/** A line that is removed may be needed again soon. */
const LINE_KEPT_MS = 60_000;

export type Admission =
  | { readonly is: "open"; readonly gate: Gate }
  | { readonly is: "queued"; readonly gate: Gate }
  /** The start does not happen: this run takes its place. */
  | { readonly is: "dropped"; readonly run: string };

/** What a process does to the run that a new one replaces. */
export type CancelRun = (tx: Tx, run: string, reason: string) => void;

/** Admits a run, or puts it in line. The caller writes the run's record, with the gate that this returns. */
export function admit(
  tx: Tx,
  run: string,
  gate: Gate,
  request: GateRequest,
  nowMs: () => number,
  cancel: CancelRun,
): Admission {
  const { places } = request;
  if (places.length > 1) tx.load(places.map(({ ref }) => limitAt(ref)));
  // A run that could not be read has left its line, and is put into it anew.
  const { queued: _queued, ...others } = gate;
  const passing: Gate = {
    ...others,
    ...(places.length === 0 ? {} : { places: places.map(({ ref }) => ref) }),
    ...(request.priority === 0 ? {} : { priority: request.priority }),
  };
  if (takeFree(tx, places)) return { is: "open", gate: { ...passing, isOpen: true } };
  for (const { ref, max } of places) declare(tx, ref, max);
  for (const { ref, excess } of places) {
    const limit = limitOf(tx, ref);
    if (fits(limit)) continue;
    if (excess === "reject") throw new ConcurrencyLimitError(request.workflow, ref[1], limit.max);
    const newest = limit.runs?.findLast((one) => one !== run);
    if (excess === "drop" && newest !== undefined) return { is: "dropped", run: newest };
  }
  // A run that is replaced may end in this decision, and free its place.
  for (const place of places) if (place.excess === "replace") replace(tx, run, place, cancel);
  const isAdmitted = places.every(({ ref }) => fits(limitOf(tx, ref)));
  for (const { ref, excess } of places) {
    const { runs = [], held, ...limit } = limitOf(tx, ref);
    const isListed = excess === "replace" || excess === "drop";
    if (isAdmitted || isListed)
      setLimit(tx, ref, {
        ...limit,
        held: isAdmitted ? held + 1 : held,
        ...(isListed ? { runs: [...runs.filter((one) => one !== run), run] } : runs.length === 0 ? {} : { runs }),
      });
  }
  if (isAdmitted) return { is: "open", gate: { ...passing, isOpen: true } };
  const line = request.line();
  return { is: "queued", gate: { ...passing, line, queued: enqueue(tx, run, line, request, nowMs()) } };
}

/** The usual case: all limits have room, and nothing else of them changes. Their records are looked up once. Returns whether it was so. */
function takeFree(tx: Tx, places: readonly Place[]): boolean {
  const records = places.map(({ ref }) => tx.record(limitAt(ref)));
  const isFree = ({ max, excess }: Place, index: number): boolean => {
    const limit = records[index]?.value as LimitValue | undefined;
    return limit?.max === max && fits(limit) && (excess === "queue" || excess === "reject");
  };
  if (!places.every(isFree)) return false;
  for (const record of records) {
    const limit = record.value as LimitValue;
    record.write({ value: { ...limit, held: limit.held + 1 } });
  }
  return true;
}

/** The oldest runs are canceled, as many as are in the way of one more. Those that were asked to stop before do not count. */
function replace(tx: Tx, by: string, { ref, max }: Place, cancel: CancelRun): void {
  const { runs = [] } = limitOf(tx, ref);
  const living = runs.filter((run) => {
    const record = tx.record(runAt(run));
    return run !== by && record.exists && !hasEnded(record) && readableValue(record)?.cancel === undefined;
  });
  for (const run of living.slice(0, Math.max(0, living.length + 1 - max)))
    cancel(tx, run, "a newer run has replaced it");
}

/**
 * Releases the places of a run, or its place in line. What was released is granted to the next in line. Returns what the run's record has from now on; the
 * caller writes it. Where this process wants to take the next run itself, that is `next`.
 */
export function leave(tx: Tx, record: Draft, next?: Succession | undefined): RunValue {
  const value = runOf(record);
  const { gate } = value;
  if (gate?.places === undefined) return value;
  const run = record.at.key;
  const { isOpen = false, queued, ...rest } = gate;
  if (!isOpen && queued === undefined) return value;
  if (gate.places.length > 1) tx.load(gate.places.map(limitAt));
  let hasLines = false;
  for (const ref of gate.places) {
    const { runs, ...limit } = limitOf(tx, ref);
    const left = runs?.filter((one) => one !== run) ?? [];
    hasLines ||= limit.first !== undefined;
    if (!isOpen && runs === undefined) continue;
    setLimit(tx, ref, {
      ...limit,
      held: Math.max(0, limit.held - (isOpen ? 1 : 0)),
      ...(left.length === 0 ? {} : { runs: left }),
    });
  }
  if (isOpen && hasLines) {
    next?.begin(tx);
    advanceAll(tx, gate.places, next);
  } else if (queued !== undefined && gate.line !== undefined && record.status === ("queued" satisfies RunStatus))
    // One that could not be read for a while is pending, and in no line.
    unlink(tx, gate.line, run, gate.priority ?? 0, queued);
  return { ...value, gate: rest };
}

/** Admits runs where a run has freed its places: lines that wait for one of these limits do not pass those that wait for another one of them. */
function advanceAll(tx: Tx, refs: readonly PlaceRef[], next: Succession | undefined): void {
  for (const [index, ref] of refs.entries()) advance(tx, ref, { later: refs.slice(index + 1), next });
}

interface Advance {
  /** Limits that are advanced after this one. */
  readonly later?: readonly PlaceRef[];
  readonly next?: Succession | undefined;
  readonly most?: number;
}

/** Admits runs as long as the limit has room. */
export function advance(tx: Tx, ref: PlaceRef, { later = [], next, most = MOST_MOVED }: Advance = {}): void {
  // These are loaded.
  const lines: (string | null)[] = [];
  for (let moved = 0; ; moved++) {
    const limit = limitOf(tx, ref);
    const { first } = limit;
    if (first === undefined || isFull(limit)) {
      if (first !== undefined && lines.includes(first))
        next?.expect(ref, first, nextLane(lineValue(tx, first).lanes)?.[1]);
      return;
    }
    if (moved >= most) {
      tx.record(limitAt(ref)).write({ kind: HURRIED_QUEUE, dueMs: tx.nowMs });
      return;
    }
    const line = lineValue(tx, first);
    lines.push(first, line.next);
    const { places } = line;
    if (places.length > 1) tx.load(places.map(limitAt));
    const isLater = (other: PlaceRef): boolean => later.some((one) => isSamePlace(one, other));
    const blocking = places.findIndex((other) => {
      if (isSamePlace(other, ref)) return false;
      const limit = limitOf(tx, other);
      return isFull(limit) || (isLater(other) && isAwaited(limit));
    });
    if (blocking >= 0) move(tx, first, blocking);
    else admitNext(tx, first, line, next);
  }
}

function admitNext(tx: Tx, id: string, line: LineValue, next: Succession | undefined): void {
  const lane = nextLane(line.lanes);
  if (lane === undefined) {
    removeLine(tx, id);
    return;
  }
  const [priority, run] = lane;
  const record = tx.record(runAt(run));
  const value = inLine(record);
  const queued = value?.gate?.queued;
  // The list is broken: the run cannot be read, and so those after it cannot be found from here.
  if (value === undefined || queued === undefined) {
    setAside(tx, id);
    return;
  }
  unlink(tx, id, run, priority, queued);
  for (const ref of line.places) {
    const limit = limitOf(tx, ref);
    setLimit(tx, ref, { ...limit, held: limit.held + 1 });
  }
  const { queued: _queued, timeoutMs, ...gate } = value.gate ?? {};
  const isBegun = hasBegun(record, value);
  record.write({
    value: {
      ...value,
      ...(timeoutMs === undefined ? {} : { deadlineMs: tx.approxNowMs + timeoutMs }),
      ...(isBegun ? {} : { admittedAtMs: tx.approxNowMs }),
      gate: { ...gate, isOpen: true },
    },
    status: "pending" satisfies RunStatus,
    kind: (isBegun ? queueOf : newQueueOf)(value.workflow, value.pool),
    // It is due already; the exact time would have to be asked for.
    dueMs: Math.min(queued.sinceMs, tx.approxNowMs),
    tries: 0,
  });
  if (tx.record(lineAt(id)).exists) takeTurn(tx, id);
  next?.admitted(tx, record, value);
}

/** The line has had a run admitted: after as many as its weight, the next line has its turn. */
function takeTurn(tx: Tx, id: string): void {
  const line = lineValue(tx, id);
  const { credit, isNext } = afterTurn(line);
  setLine(tx, id, { ...line, credit });
  if (isNext && line.next !== null) move(tx, id, line.in);
}

/** Puts a run at the end of its line; a line that was empty goes to the end of the ring of the first limit without room. */
function enqueue(
  tx: Tx,
  run: string,
  id: string,
  { workflow, weight, priority, ...request }: GateRequest,
  sinceMs: number,
): NonNullable<Gate["queued"]> {
  const places = request.places.map(({ ref }) => ref);
  const record = tx.record(lineAt(id));
  const before = record.exists ? (record.value as LineValue) : undefined;
  const lanes = before?.lanes ?? [];
  const prev = lanes.find(([of]) => of === priority)?.[2] ?? null;
  if (prev !== null) {
    const ahead = tx.record(runAt(prev));
    const value = inLine(ahead);
    const before = value?.gate?.queued;
    // One that cannot be read stays as it is: this one knows that it comes after it.
    if (before !== undefined)
      ahead.write({
        value: { ...value, gate: { ...value?.gate, queued: { ...before, next: run, nextSinceMs: sinceMs } } },
      });
  }
  const line: LineValue = {
    ...(before ?? { workflow, places, in: 0, prev: null, next: null, credit: weight }),
    weight,
    lanes: withRun(lanes, run, priority, sinceMs),
  };
  setLine(tx, id, line);
  // Of an earlier release, which did not mend it.
  if (before?.in === -1) record.write({ kind: BROKEN_LINE, dueMs: sinceMs });
  if (before === undefined)
    link(
      tx,
      id,
      Math.max(
        0,
        places.findIndex((ref) => !fits(limitOf(tx, ref))),
      ),
    );
  return { sinceMs, prev, next: null };
}

/** Takes a run out of its line, at any position. */
function unlink(tx: Tx, id: string, run: string, priority: number, queued: NonNullable<Gate["queued"]>): void {
  const line = lineValue(tx, id);
  const { prev, next } = queued;
  const isFirst = line.lanes.some(([of, first]) => of === priority && first === run);
  const neighbours = [isFirst ? null : prev, next].flatMap((one) => (one === null ? [] : [runAt(one)]));
  if (neighbours.length > 1) tx.load(neighbours);
  if (!isFirst && prev !== null)
    relink(tx, prev, { next, ...(queued.nextSinceMs === undefined ? {} : { nextSinceMs: queued.nextSinceMs }) });
  // The first of a lane does not know the one before it, so nothing is written when it leaves.
  if (!isFirst && next !== null) relink(tx, next, { prev });
  const lanes = withoutRun(line.lanes, run, priority, { ...queued, prev: isFirst ? null : prev });
  setLine(tx, id, { ...line, lanes });
  if (lanes.length === 0) removeLine(tx, id);
}

function relink(tx: Tx, run: string, change: Partial<NonNullable<Gate["queued"]>>): void {
  const record = tx.record(runAt(run));
  const value = record.exists ? readableValue(record) : undefined;
  if (value?.gate?.queued === undefined) return;
  record.write({ value: { ...value, gate: { ...value.gate, queued: { ...value.gate.queued, ...change } } } });
}

// Rings.

/** Puts the line at the end of a limit's ring. */
function link(tx: Tx, id: string, place: number): void {
  const line = lineValue(tx, id);
  const ref = line.places[place];
  if (ref === undefined) return;
  const limit = limitOf(tx, ref);
  const { last } = limit;
  if (last !== undefined) setLine(tx, last, { ...lineValue(tx, last), next: id });
  setLine(tx, id, { ...line, in: place, prev: last ?? null, next: null });
  setLimit(tx, ref, { ...limit, first: limit.first ?? id, last: id });
}

function takeOut(tx: Tx, id: string): void {
  const { places, in: place, prev, next } = lineValue(tx, id);
  const ref = places[place];
  if (ref === undefined) return;
  if (prev !== null) setLine(tx, prev, { ...lineValue(tx, prev), next });
  if (next !== null) setLine(tx, next, { ...lineValue(tx, next), prev });
  const { first, last, ...limit } = limitOf(tx, ref);
  const newFirst = first === id ? next : first;
  const newLast = last === id ? prev : last;
  setLimit(tx, ref, {
    ...limit,
    ...(newFirst == null ? {} : { first: newFirst }),
    ...(newLast == null ? {} : { last: newLast }),
  });
}

function move(tx: Tx, id: string, place: number): void {
  takeOut(tx, id);
  link(tx, id, place);
}

function removeLine(tx: Tx, id: string): void {
  takeOut(tx, id);
  tx.record(lineAt(id)).remove(LINE_KEPT_MS);
}

/** Not in any ring: it does not keep others from being admitted, and a worker mends it. */
function setAside(tx: Tx, id: string): void {
  takeOut(tx, id);
  const line = lineValue(tx, id);
  setLine(tx, id, { ...line, in: -1, prev: null, next: null });
  tx.record(lineAt(id)).write({ kind: BROKEN_LINE, dueMs: tx.approxNowMs });
}

/** The value of a run that waits in a line; undefined if it cannot be read, or is not there. */
function inLine(record: Draft): RunValue | undefined {
  return record.exists && record.status === ("queued" satisfies RunStatus) ? readableValue(record) : undefined;
}

/** What a worker found out about a line whose first run cannot be read. */
export interface After {
  readonly first: string | undefined;
  /** Of the line's record, when it was read. */
  readonly version: number;
  /** The run after it, and the one before that by its own record. */
  readonly next: { readonly run: string; readonly prev: string | null; readonly sinceMs: number } | undefined;
  /** Runs that cannot be read, and are in no line from now on. */
  readonly released: readonly string[];
}

/** Puts a line back into a ring, without its first run if that cannot be read. Does nothing if something else is so by now: the line stays due. */
export function skipUnreadable(tx: Tx, id: string, { first, version, next, released }: After): void {
  const record = tx.record(lineAt(id));
  if (!record.exists || record.kind !== BROKEN_LINE) return;
  let line = lineValue(tx, id);
  const lane = nextLane(line.lanes);
  if (lane !== undefined && inLine(tx.record(runAt(lane[1])))?.gate?.queued === undefined) {
    if (lane[1] !== first) return;
    const gate = next === undefined ? undefined : inLine(tx.record(runAt(next.run)))?.gate;
    if (next === undefined ? record.version !== version : gate?.line !== id || gate.queued?.prev !== next.prev) return;
    for (const run of released) release(tx, run, line.workflow);
    line = { ...line, lanes: withoutFirst(line.lanes, lane[0], next) };
  }
  setLine(tx, id, line);
  record.write({ kind: null, dueMs: null });
  if (line.lanes.length === 0) {
    removeLine(tx, id);
    return;
  }
  const { places } = line;
  if (places.length > 1) tx.load(places.map(limitAt));
  const place = Math.max(
    0,
    places.findIndex((ref) => !fits(limitOf(tx, ref))),
  );
  link(tx, id, place);
  const ref = places[place];
  if (ref !== undefined) advance(tx, ref);
}

/** A run that cannot be read is in no line: a worker that can read it puts it into one. Its numbers may be what cannot be read. */
function release(tx: Tx, run: string, workflow: string): void {
  const record = tx.record(runAt(run));
  const { row } = record;
  if (row === null || inLine(record) !== undefined || !record.exists || record.status !== "queued") return;
  if (unreadableNumber({ ...row, dueMs: null, tries: 0 }) !== null) return;
  const status = "pending" satisfies RunStatus;
  record.write({ status, kind: newQueueOf(workflow), dueMs: tx.nowMs, holder: null, tries: 0 });
}

// Records.

const UNUSED: LimitValue = { max: 0, held: 0 };

const limitOf = (tx: Tx, ref: PlaceRef): LimitValue =>
  (tx.record(limitAt(ref)).value as LimitValue | undefined) ?? UNUSED;

function setLimit(tx: Tx, ref: PlaceRef, value: LimitValue): void {
  const record = tx.record(limitAt(ref));
  record.write(record.exists ? { value } : { value, kind: LIMIT_QUEUE, dueMs: tx.approxNowMs + IDLE_MS });
}

/** The process that decides knows the workflow: its `max` counts from now on. */
function declare(tx: Tx, ref: PlaceRef, max: number): void {
  const limit = limitOf(tx, ref);
  if (limit.max === max) return;
  setLimit(tx, ref, { ...limit, max });
  if (max > limit.max) advance(tx, ref);
}

const lineValue = (tx: Tx, id: string): LineValue => {
  const { value } = tx.record(lineAt(id));
  if (value === undefined) throw new Error(`the line ${id} of waiting runs is missing`);
  return value as LineValue;
};

const setLine = (tx: Tx, id: string, value: LineValue): void => tx.record(lineAt(id)).write({ value });

/** A limit has more to admit than one commit did. `known` is how many were read beforehand. */
export function admitMore(tx: Tx, record: Draft, known: number): void {
  if (!record.exists || record.kind !== HURRIED_QUEUE) return;
  record.write({ kind: LIMIT_QUEUE, dueMs: tx.nowMs + IDLE_MS });
  advance(tx, placeOf(record.at), { most: Math.max(known, MOST_MOVED) });
}

/** Removes a limit that no run uses. Returns whether it did. */
export function removeUnused(tx: Tx, record: Draft): boolean {
  if (!record.exists || record.kind !== LIMIT_QUEUE || record.dueMs === null || tx.nowMs < record.dueMs) return false;
  const { held, first, runs = [] } = record.value as LimitValue;
  if (held === 0 && first === undefined && runs.length === 0) {
    record.remove(LINE_KEPT_MS);
    return true;
  }
  record.write({ dueMs: tx.nowMs + IDLE_MS });
  return false;
}

/** Declares another `max` for a limit that runs wait for. */
export function declareLimit(tx: Tx, ref: PlaceRef, max: number): void {
  if (tx.record(limitAt(ref)).exists) declare(tx, ref, max);
}

/** How many runs are before this one in its line, at most: those of its own priority that came before it are not counted one by one. */
export const waitingInLine = ({ lanes }: LineValue): number => waitingIn(lanes);
