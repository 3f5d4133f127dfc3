/**
 * Collected starts: of `debounce`, several starts become one run with the last input; of `batch`, one run with the list of their inputs.
 *
 * The run is there from the first start on, so that each caller gets a handle on the run that takes its input. Its first fact is written when a
 * worker claims it; from then on, a start begins the next one. A start with an id counts once: a repeated one finds the run that has its input.
 */

import type { Tx } from "../../kernel/decision.ts";
import type { Draft } from "../../kernel/draft.ts";
import { notBefore } from "../../kernel/not-before.ts";
import { callUser } from "../../kernel/sync.ts";
import type { Collect } from "../definitions/flow.ts";
import { RunConflictError, RunExistsError } from "../errors.ts";
import { readableValue, runOf } from "../history/read-run.ts";
import { type RunValue, runAt } from "../stored.ts";
import { BATCH_BYTES, debouncedUntil, isBatchFull, metAtMs } from "./decide.ts";
import { COLLECTED, type Collecting, collectedAt, collectorAt, type Gate, ITEM, type Started } from "./stored.ts";

/** How long a start with an id is remembered. */
const ID_KEPT_MS = 7 * 24 * 3_600_000;

export interface CollectedStart {
  readonly workflow: string;
  readonly collect: Collect;
  /** Which starts are collected together. */
  readonly key: string;
  readonly input: unknown;
  /** The id that the caller gave. */
  readonly id: string | undefined;
  readonly fingerprint: string | null;
  readonly rejects: boolean;
  /** Called for a start that is not a repeated one. Throws `rate_limited` where a limit refuses it. */
  accept(): Gate;
  /** Creates the run that collects from `atMs` on, without its first fact. Returns its id. */
  create(gate: Gate, collecting: Collecting, dueMs: number, atMs: number): string;
}

interface Remembered {
  readonly run: string;
  readonly fingerprint: string | null;
}

/** Adds the start to the run that collects, or creates one. Returns the id of the run. */
export function collectStart(tx: Tx, start: CollectedStart): { readonly run: string; readonly isNew: boolean } {
  const { workflow, key, id } = start;
  const seen = id === undefined ? undefined : tx.record(collectedAt(workflow, id));
  // A run that was deleted is forgotten, and so is its id.
  if (seen?.exists === true && id !== undefined && tx.record(runAt((seen.value as Remembered).run)).exists)
    return remembered(tx, seen, start, id);
  const gate = start.accept();
  const collector = tx.record(collectorAt(workflow, key));
  const current = collector.exists ? (collector.value as string) : undefined;
  const record = current === undefined ? undefined : tx.record(runAt(current));
  const atMs = timeOf(tx, record);
  const run = (record === undefined ? undefined : join(record, start, atMs)) ?? create(start, gate, atMs);
  const isNew = run !== current;
  if (isNew) collector.write({ value: run });
  if (runOf(tx.record(runAt(run))).collecting?.count === sizeOf(start.collect)) collector.remove(0);
  seen?.write({
    value: { run, fingerprint: start.fingerprint } satisfies Remembered,
    kind: COLLECTED,
    dueMs: atMs + ID_KEPT_MS,
  });
  return { run, isNew };
}

const sizeOf = (collect: Collect): number => (collect.by === "batch" ? collect.size : Number.POSITIVE_INFINITY);

function remembered(
  tx: Tx,
  seen: Draft,
  { rejects, fingerprint }: CollectedStart,
  id: string,
): { run: string; isNew: boolean } {
  const { run, fingerprint: before } = seen.value as Remembered;
  // The id is that of the start: the run that has its input has one of its own.
  if (rejects) throw new RunExistsError(run, tx.record(runAt(run)).status ?? "deleted", id);
  if (before !== fingerprint)
    throw new RunConflictError(
      run,
      `has the input of an earlier start with the id "${id}", and this start has another`,
    );
  return { run, isNew: false };
}

/** The time of a start that meets this run. */
function timeOf(tx: Tx, record: Draft | undefined): number {
  const value = record?.exists === true ? readableValue(record) : undefined;
  if (record === undefined || value?.collecting === undefined) return tx.nowMs;
  return metAtMs(tx.nowMs, value.collecting.firstMs, isWaiting(record) ? undefined : value.scheduledAtMs);
}

const isWaiting = ({ status, holder }: Draft): boolean => status === "pending" && holder === null;

/** Adds the input to a run that still collects. Returns undefined if it does not any more. */
function join(record: Draft, { collect, key, input }: CollectedStart, nowMs: number): string | undefined {
  if (!record.exists || !isWaiting(record)) return undefined;
  const value = readableValue(record);
  const collecting = value?.collecting;
  if (value === undefined || collecting === undefined || collecting.key !== key || collecting.by !== collect.by)
    return undefined;
  if (record.dueMs === null || nowMs >= record.dueMs) return undefined;
  const count = collecting.count + 1;
  if (collect.by === "debounce") {
    const merged = mergedInput(value.workflow, collect.merge, collecting.input, input);
    const untilMs = debouncedUntil(nowMs, collecting.firstMs, collect.periodMs, collect.maxWaitMs);
    const dueMs = notBefore(untilMs, record.dueMs);
    const moved = withDue(value, record.dueMs, dueMs);
    record.write({ value: { ...moved, collecting: { ...collecting, count, input: merged } }, dueMs });
    return record.at.key;
  }
  const text = record.encode({ input });
  // The inputs are one value in the run's history. What is around them in that takes a few bytes, too.
  const maxBytes = Math.min(BATCH_BYTES, record.maxValueBytes - 64);
  const bytes = (collecting.bytes ?? 0) + Buffer.byteLength(text);
  // Too much for one run: it begins with what it has.
  if (bytes > maxBytes) {
    record.write({ value: withDue(value, record.dueMs, nowMs), dueMs: nowMs });
    return undefined;
  }
  record.appendText(ITEM, text);
  const dueMs = isBatchFull(count, bytes, collect.size, maxBytes) ? nowMs : record.dueMs;
  const moved = withDue(value, record.dueMs, dueMs);
  record.write({ value: { ...moved, collecting: { ...collecting, count, bytes } }, dueMs });
  return record.at.key;
}

function mergedInput(
  workflow: string,
  merge: ((earlier: unknown, later: unknown) => unknown) | undefined,
  earlier: unknown,
  later: unknown,
): unknown {
  return merge === undefined ? later : callUser(`the debounce merge of workflow "${workflow}"`, merge, earlier, later);
}

/** The run begins at another time than it would have: what its ttl allows counts from then on. */
function withDue(value: RunValue, beforeMs: number, dueMs: number): RunValue {
  const { gate } = value;
  return {
    ...value,
    scheduledAtMs: dueMs,
    ...(gate?.expiresAtMs === undefined ? {} : { gate: { ...gate, expiresAtMs: gate.expiresAtMs + dueMs - beforeMs } }),
  };
}

function create({ collect, key, input, create }: CollectedStart, gate: Gate, nowMs: number): string {
  const common = { key, firstMs: nowMs, count: 1 };
  if (collect.by === "debounce") {
    const dueMs = debouncedUntil(nowMs, nowMs, collect.periodMs, collect.maxWaitMs);
    return create(gate, { by: "debounce", ...common, input }, dueMs, nowMs);
  }
  return create(gate, { by: "batch", ...common }, collect.size === 1 ? nowMs : nowMs + collect.maxWaitMs, nowMs);
}

/** The first input of a batch, in the log of its run. */
export function appendItem(record: Draft, input: unknown): void {
  // Refused now, if it cannot be stored as a list.
  record.encode({ input: [input], isBatch: true } satisfies Started);
  const text = record.encode({ input });
  record.appendText(ITEM, text);
  const value = runOf(record);
  if (value.collecting !== undefined)
    record.write({ value: { ...value, collecting: { ...value.collecting, bytes: Buffer.byteLength(text) } } });
}

/** The run collects no more: writes its first fact. */
export function beginCollected(tx: Tx, record: Draft, items: readonly unknown[] | undefined): void {
  const { collecting, ...value } = runOf(record);
  if (collecting === undefined) return;
  stopCollecting(tx, value.workflow, record.at.key, collecting);
  const started: Started = collecting.by === "batch" ? { input: items, isBatch: true } : { input: collecting.input };
  const from = record.append("started", started);
  record.write({ value: { ...value, from } satisfies RunValue });
}

/** What the code gets. A run that was started without the definition of its batch, by name or by a schedule, has one input. */
export const givenInput = (collect: Collect | undefined, { input, isBatch }: Started): unknown =>
  collect?.by === "batch" && isBatch !== true ? [input] : input;

/** The next start creates another run. */
export function stopCollecting(tx: Tx, workflow: string, run: string, { key }: Collecting): void {
  const collector = tx.record(collectorAt(workflow, key));
  if (collector.exists && collector.value === run) collector.remove(0);
}

/** A start with an id is forgotten after a time. Returns whether it was. */
export function forgetStart(tx: Tx, record: Draft): boolean {
  if (!record.exists || record.dueMs === null || tx.nowMs < record.dueMs) return false;
  record.remove(0);
  return true;
}
