/**
 * The gate: what a run passes before it begins. First its turn in the rate limits of its workflow, then a place under each concurrency limit.
 *
 * A start by a process that knows the workflow passes the gate in the commit that starts the run. Every other run that has not begun passes it when a
 * worker claims it: one that was started by name, whose time came, whose starts were collected, or that was retried and so needs a place again. What
 * waits is one record with a time, or a place in line; no process remembers it.
 */

import type { Tx } from "../../kernel/decision.ts";
import type { Draft } from "../../kernel/draft.ts";
import { RateLimitedError } from "../../rate/errors.ts";
import type { GateRequest } from "../definitions/flow.ts";
import { ConcurrencyLimitError, RunExpiredError } from "../errors.ts";
import { runOf } from "../history/read-run.ts";
import { cancelRun, endCanceled, endRun, withoutStack } from "../runs/end.ts";
import { hasBegun, newQueueOf, queuedQueueOf, queueOf, type RunStatus, type RunValue } from "../stored.ts";
import { beginCollected } from "./collect.ts";
import { isTurnOver } from "./decide.ts";
import { type Admission, admit } from "./places.ts";
import type { Gate } from "./stored.ts";

export type Passed = Admission | { readonly is: "later"; readonly gate: Gate; readonly dueMs: number };

/** Passes the gate as far as that is possible now. Throws `rate_limited` or `concurrency_limit` where a limit refuses. */
export function pass(tx: Tx, run: string, gate: Gate, request: GateRequest): Passed {
  const rated = takeTurns(tx, gate, request);
  if (rated.dueMs !== undefined)
    return { is: "later", gate: { ...rated.gate, turnMs: rated.dueMs }, dueMs: rated.dueMs };
  return admit(tx, run, rated.gate, request, () => tx.approxNowMs, replaced);
}

const replaced = (tx: Tx, run: string, reason: string): void => void cancelRun(tx, run, { reason });

/** Reserves the turns of the run, unless it has them; `dueMs` is when it has all of them, if that is later. */
function takeTurns(
  tx: Tx,
  { turnMs, lateTurns = 0, ...gate }: Gate,
  { rates }: GateRequest,
): { readonly gate: Gate; readonly dueMs?: number } {
  const isLate = turnMs !== undefined && isTurnOver(turnMs, lateTurns, tx.nowMs);
  if (rates.length === 0 || (gate.isRated === true && !isLate)) return { gate };
  let waitMs = 0;
  for (const { name, isRefused, reserve } of rates) {
    if (isRefused && (gate.isAccepted === true || isLate)) continue;
    const turn = reserve(tx);
    if (!turn.isGranted) throw new RateLimitedError(name, turn.waitMs);
    waitMs = Math.max(waitMs, turn.waitMs);
  }
  const rated: Gate = { ...gate, isRated: true, ...(isLate ? { lateTurns: lateTurns + 1 } : {}) };
  return waitMs === 0 ? { gate: rated } : { gate: rated, dueMs: tx.nowMs + waitMs };
}

/** A start that is collected, or has its time later, is refused now, and not when it begins. */
export function accept(tx: Tx, gate: Gate, { rates }: GateRequest): Gate {
  const refusing = rates.filter(({ isRefused }) => isRefused);
  for (const { name, reserve } of refusing) {
    const turn = reserve(tx);
    if (!turn.isGranted) throw new RateLimitedError(name, turn.waitMs);
  }
  return refusing.length === 0 ? gate : { ...gate, isAccepted: true };
}

/** How the record of a run that waits at the gate is written. */
export function waitingAt(passed: Exclude<Passed, { is: "open" | "dropped" }>, workflow: string, newQueue: string) {
  return passed.is === "queued"
    ? { status: "queued" satisfies RunStatus, kind: queuedQueueOf(workflow), dueMs: passed.gate.expiresAtMs ?? null }
    : { status: "pending" satisfies RunStatus, kind: newQueue, dueMs: passed.dueMs };
}

export interface Arrival {
  readonly request: GateRequest;
  readonly timeoutMs: number | null;
  /** Of the workflow: for a run that was started without its definition, by name or by a schedule. */
  readonly ttlMs: number | null;
  /** The inputs of a batch. */
  readonly items?: readonly unknown[] | undefined;
  /** Whether the worker that claimed it takes runs of this pool. */
  readonly takes?: ((pool: string) => boolean) | undefined;
}

/** A claimed run passes the gate. Returns whether its code may begin; if not, it is released, or has ended. */
export function passClaimed(tx: Tx, record: Draft, arrival: Arrival): "open" | "waits" | "ended" {
  const { request, timeoutMs, ttlMs, items, takes } = arrival;
  const run = record.at.key;
  if (ttlMs !== null) limitTime(record, ttlMs);
  if (expireIfDue(tx, record)) return "ended";
  beginCollected(tx, record, items);
  const isNew = !hasBegun(record, runOf(record));
  if (isNew && !joinPool(tx, record, request.pool, takes)) return "waits";
  const value = runOf(record);
  if (value.gate?.isOpen === true) return "open";
  let passed: Passed;
  try {
    passed = pass(tx, run, value.gate ?? {}, request);
  } catch (error) {
    if (!(error instanceof ConcurrencyLimitError || error instanceof RateLimitedError)) throw error;
    record.append("failed", { status: "failed", error: withoutStack(error) });
    endRun(tx, record, run, "failed", { error: withoutStack(error) });
    return "ended";
  }
  if (passed.is === "dropped") {
    const reason = `its workflow drops starts beyond its limit: run "${passed.run}" has not ended`;
    endCanceled(tx, record, run, { reason }, { hasBegun: !isNew });
    return "ended";
  }
  if (passed.is === "open") {
    // What waited to begin has its whole timeout from now on.
    const deadline = isNew && timeoutMs !== null ? { deadlineMs: tx.nowMs + timeoutMs } : {};
    const admitted = isNew ? { admittedAtMs: tx.nowMs } : {};
    record.write({ value: { ...value, ...deadline, ...admitted, gate: passed.gate } satisfies RunValue });
    return "open";
  }
  // The claim has moved it to the queue of runs that have begun.
  const newQueue = isNew ? newQueueOf(value.workflow, value.pool) : (record.kind ?? "");
  record.write({
    value: { ...value, gate: withTimeout(passed.gate, isNew ? timeoutMs : null) },
    ...waitingAt(passed, value.workflow, newQueue),
    holder: null,
    tries: 0,
  });
  return "waits";
}

/** A run that was started without its definition has no gate yet: its time counts as if it had. */
function limitTime(record: Draft, ttlMs: number): void {
  const value = runOf(record);
  if (value.gate !== undefined || hasBegun(record, value)) return;
  const expiresAtMs = (value.scheduledAtMs ?? value.startedAtMs) + ttlMs;
  record.write({ value: { ...value, gate: { expiresAtMs } } });
}

/** A run whose start did not know the pools of its workflow is put into its pool. Returns false if this worker does not take that one. */
function joinPool(tx: Tx, record: Draft, pool: string | undefined, takes: Arrival["takes"]): boolean {
  const value = runOf(record);
  if (pool === undefined || value.pool !== undefined) return true;
  const { workflow } = value;
  const isTaken = takes?.(pool) !== false;
  record.write({ value: { ...value, pool }, kind: (isTaken ? queueOf : newQueueOf)(workflow, pool) });
  if (!isTaken) record.write({ status: "pending" satisfies RunStatus, holder: null, tries: 0, dueMs: tx.approxNowMs });
  return isTaken;
}

/** The commit that admits it from a line does not know its workflow. */
export const withTimeout = (gate: Gate, timeoutMs: number | null): Gate =>
  timeoutMs === null ? gate : { ...gate, timeoutMs };

/** Ends a run that has not begun in time. Returns whether it did. */
export function expireIfDue(tx: Tx, record: Draft): boolean {
  if (!record.exists || (record.status !== "queued" && record.status !== "pending" && record.status !== "running"))
    return false;
  const value = runOf(record);
  const { expiresAtMs } = value.gate ?? {};
  if (expiresAtMs === undefined || hasBegun(record, value) || tx.nowMs < expiresAtMs) return false;
  const run = record.at.key;
  const version = record.append("failed", { status: "expired" });
  // A retry lets it begin after all, without a limit of time.
  record.write({ value: { ...value, forgets: { facts: [[version, version]], children: [] } } });
  endRun(tx, record, run, "expired", { error: withoutStack(new RunExpiredError(run)) });
  return true;
}
