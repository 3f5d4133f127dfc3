/**
 * Tasks as decisions on their records: creating one, settling it from outside, sending a dead one again, and what follows from its end.
 *
 * The record of a task's run is the only place that says how the task ended. The run's own end (its response, or its timeout) is written there by its worker; a
 * signal and a cancellation end the run in their own commit. So whichever commit is first has settled the task, and the others see it under the
 * record's lock. The worker of a run that was ended in this way has lost it: whatever its attempt still brings is written nowhere.
 *
 * Guarantees: one outcome, the same for every caller (G15); the same idempotency key with another request is refused (G3).
 */

import { IdempotencyMismatchError } from "../idempotency/errors.ts";
import { type Address, newAddress } from "../kernel/contract.ts";
import type { Tx } from "../kernel/decision.ts";
import type { Draft } from "../kernel/draft.ts";
import { fingerprintOf } from "../kernel/fingerprint.ts";
import { RunConflictError, RunTimedOutError } from "../workflow/errors.ts";
import { runOf } from "../workflow/history/read-run.ts";
import { cancelRun, endRun, withoutStack } from "../workflow/runs/end.ts";
import type { Started, StartRequest } from "../workflow/runs/start.ts";
import { type EndedStatus, type Outcome, type RunValue, runAt, statusOf } from "../workflow/stored.ts";
import { decideSettle, type Settlement, type Settling } from "./decide.ts";
import { TaskFailedError, TaskNotFoundError } from "./errors.ts";
import { outcomeOf, type Settled, type TaskOutcome } from "./outcome.ts";
import {
  KEPT_MS,
  keyAt,
  MARKS_QUEUE,
  type Mark,
  OUTBOX_QUEUE,
  type Outbox,
  outboxAt,
  TASKS,
  tokenAt,
} from "./stored.ts";

/** A task that is to be created, with the start of its run. */
export interface NewTask {
  readonly start: StartRequest;
  readonly fingerprint: string;
  readonly idempotencyKey: string | undefined;
  /** Its notifications, if it has some. */
  readonly outbox: Pick<Outbox, "url" | "key"> | undefined;
}

/** The records beside the run that its creation touches. */
export const touchedByNew = ({ start, idempotencyKey, outbox }: NewTask): readonly Address[] => [
  ...(idempotencyKey === undefined ? [] : [keyAt(idempotencyKey)]),
  ...(start.tokenHash === undefined ? [] : [newAddress(tokenAt(start.tokenHash))]),
  ...(outbox === undefined ? [] : [outboxFor(start)]),
];

/** Beside a run that is new, so is this. */
const outboxFor = ({ id, isMade }: StartRequest): Address =>
  isMade === true ? newAddress(outboxAt(id)) : outboxAt(id);

/** Creates a task, or finds the one that was created under the same key or id. */
export function createTask(tx: Tx, task: NewTask, start: () => Started): Started {
  const { fingerprint, idempotencyKey, outbox } = task;
  const { tokenHash } = task.start;
  const key = idempotencyKey === undefined ? undefined : tx.record(keyAt(idempotencyKey));
  if (key?.exists === true) {
    const mark = key.value as Mark;
    // The key of a task that was deleted is free again, also where another has its id by now.
    if (isTaskOf(tx, mark)) {
      if (mark.fingerprint !== fingerprint) throw new IdempotencyMismatchError(idempotencyKey ?? "");
      return { id: mark.task, isNew: false, isLeased: false, nowMs: tx.approxNowMs };
    }
  }
  const started = startNamed(start);
  const dueMs = started.nowMs + KEPT_MS;
  key?.write({ value: { task: started.id, fingerprint } satisfies Mark, kind: MARKS_QUEUE, dueMs });
  if (!started.isNew) return started;
  if (tokenHash !== undefined)
    tx.record(newAddress(tokenAt(tokenHash))).write({
      value: { task: started.id, isInRun: true } satisfies Mark,
      kind: MARKS_QUEUE,
      dueMs,
    });
  if (outbox !== undefined)
    tx.record(outboxFor(task.start)).write({
      value: { ...outbox, notified: 0 } satisfies Outbox,
      kind: OUTBOX_QUEUE,
      dueMs,
    });
  return started;
}

/** Whether the task of a key is there. Another one may have its id by now, or a run that is no task: that was started with another request. */
function isTaskOf(tx: Tx, { task, fingerprint }: Mark): boolean {
  const run = tx.record(runAt(task));
  if (!run.exists) return false;
  const value = runOf(run);
  return value.workflow === TASKS && value.fingerprint === fingerprint;
}

/** Who creates a task knows of no run. */
function startNamed(start: () => Started): Started {
  try {
    return start();
  } catch (error) {
    if (!(error instanceof RunConflictError)) throw error;
    throw new RunConflictError(error.data.run, error.data.reason, "task");
  }
}

/** The run of a task in a decision. Throws `task_not_found`. */
export function taskRun(tx: Tx, id: string): { readonly run: Draft; readonly value: RunValue } {
  const run = tx.record(runAt(id));
  if (!run.exists) throw new TaskNotFoundError(id);
  const value = runOf(run);
  if (value.workflow !== TASKS) throw new TaskNotFoundError(id);
  return { run, value };
}

/** What a signal says. */
export interface SignalBody {
  readonly status: "completed" | "failed";
  readonly value: unknown;
}

export interface Settlings {
  readonly settlement: Settlement;
  readonly outcome: TaskOutcome;
}

/** Distinguishes what signals say. */
const fingerprintOfSignal = ({ status, value }: SignalBody): string => fingerprintOf({ status, value });

export function signalTask(tx: Tx, id: string, body: SignalBody): Settlings {
  const settling: Settling = { by: "signal", status: body.status, fingerprint: fingerprintOfSignal(body) };
  return settleTask(tx, id, settling, (run) => {
    const settled: Settled = { by: "signal", ...(body.value === undefined ? {} : { value: body.value }) };
    const outcome: Outcome =
      body.status === "completed" ? { ok: settled } : { error: withoutStack(new TaskFailedError(id, settled)) };
    end(tx, run, body.status, outcome, { status: body.status, by: "signal" });
  });
}

export function cancelTask(tx: Tx, id: string, reason: string | undefined): Settlings {
  return settleTask(tx, id, { by: "cancel" }, () => void cancelRun(tx, id, { reason, force: true }));
}

function settleTask(tx: Tx, id: string, settling: Settling, settle: (run: Draft) => void): Settlings {
  const { run, value } = taskRun(tx, id);
  const before = outcomeOf(statusOf(run), value);
  const waitsUntilMs = before === null ? waitEndOf(value) : null;
  const fingerprint =
    before?.by === "signal"
      ? fingerprintOfSignal({ status: before.status as SignalBody["status"], value: before.value })
      : null;
  const nowMs = waitsUntilMs === null ? 0 : tx.nowMs;
  const settlement = decideSettle({ outcome: before, fingerprint, waitsUntilMs }, settling, nowMs);
  if (settlement.is === "first") settle(run);
  else if (settlement.is === "overdue")
    end(tx, run, "timed_out", { error: withoutStack(new RunTimedOutError(id)) }, { status: "timed_out" });
  const outcome = before ?? outcomeOf(statusOf(run), runOf(run));
  if (outcome === null) throw new Error(`task "${id}" was settled, and has no outcome`);
  return { settlement, outcome };
}

/** Ends the run without its code. The worker that holds it, if there is one, notices that it has lost the run. */
function end(tx: Tx, run: Draft, status: EndedStatus, outcome: Outcome, fact: object): void {
  const version = run.append(status === "completed" ? "completed" : "failed", fact);
  run.write({
    value: { ...runOf(run), forgets: { facts: [[version, version]], children: [] } },
    wakes: run.wakes + 1,
  });
  endRun(tx, run, run.at.key, status, outcome);
}

/** Until when the code waits for the signal, if it does: what the commit says in which it went to rest. */
const waitEndOf = ({ doing }: RunValue): number | null =>
  doing?.first.find(({ kind }) => kind === "signal")?.untilMs ?? null;

/** The task of a token; undefined if no task has it, as when it was deleted. Another one may have its id by now. */
export function taskOfToken(tx: Tx, tokenHash: string): string | undefined {
  const record = tx.record(tokenAt(tokenHash));
  if (!record.exists) return undefined;
  const mark = record.value as Mark;
  const run = tx.record(runAt(mark.task));
  if (!run.exists) return undefined;
  const value = runOf(run);
  if (value.workflow !== TASKS) return undefined;
  const isOurs = value.tokenHash === tokenHash || (value.tokenHash === undefined && mark.isInRun !== true);
  return isOurs ? mark.task : undefined;
}

/** Removes a record beside a task that is gone. Returns whether it did. */
export function sweepMark(tx: Tx, at: Address): boolean {
  const mark = tx.record(at);
  if (!mark.exists || mark.dueMs === null || mark.dueMs > tx.nowMs) return false;
  if (tx.record(runAt((mark.value as Mark).task)).exists) {
    mark.write({ dueMs: tx.nowMs + KEPT_MS });
    return false;
  }
  mark.remove();
  return true;
}

/**
 * Looks at the notifications of a task: when it is woken by the end of the run, and once in a while (`isDue`), and before the run is started again. `notify`
 * starts the run of a notification. The outcome that
 * it carries is read under the lock of the run's record, so each end is notified once, as what it was.
 */
export function lookAtOutbox(
  tx: Tx,
  at: Address,
  isDue: boolean,
  notify: (outbox: Outbox, value: RunValue, outcome: TaskOutcome) => void,
): void {
  const record = tx.record(at);
  if (!record.exists || (isDue && (record.dueMs === null || record.dueMs > tx.nowMs))) return;
  const run = tx.record(runAt(at.key));
  if (!run.exists) {
    record.remove();
    return;
  }
  const outbox = record.value as Outbox;
  const value = runOf(run);
  const outcome = outcomeOf(statusOf(run), value);
  const isNew = outcome !== null && outbox.notified < value.incarnation;
  if (isNew) notify(outbox, value, outcome);
  record.write({
    value: isNew ? { ...outbox, notified: value.incarnation } : outbox,
    dueMs: tx.nowMs + KEPT_MS,
  });
}
