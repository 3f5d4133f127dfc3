/**
 * Waiting for results: a caller that waits for a run is notified soon after the commit that ended it.
 */

import {
  checkAbortSignal,
  checkDuration,
  checkId,
  checkOptions,
  type Duration,
  optionNames,
} from "../../kernel/check.ts";
import type { Row } from "../../kernel/contract.ts";
import type { Kernel } from "../../kernel/kernel.ts";
import type { Log } from "../../kernel/log.ts";
import { RecordWatch } from "../../kernel/record-watch.ts";
import {
  ResultTimeoutError,
  RunCanceledError,
  RunConflictError,
  RunExpiredError,
  RunFailedError,
  RunNotFoundError,
  RunParkedError,
  RunTimedOutError,
  RunUnreadableError,
} from "../errors.ts";
import { readPaused } from "../flow/paused.ts";
import { readRun } from "../history/read-run.ts";
import {
  isRunStatus,
  newQueueOf,
  type Outcome,
  poolOfQueue,
  RUNS,
  type RunStatus,
  runAt,
  statusOf,
  workflowOfQueue,
} from "../stored.ts";
import { checkQueue, checkWorkflow, readRow } from "./existing.ts";

const RESULT_OPTIONS = optionNames<{ timeout?: unknown; abortSignal?: unknown }>({ timeout: true, abortSignal: true });

/** Commits of others come in bursts: one look for all of them. */
const BURST_MS = 5;

/** A run that is waited for, and that no worker has taken for this long, is logged. */
const UNTAKEN_MS = 10_000;

export class Results {
  readonly #kernel: Kernel;
  readonly #records: RecordWatch;
  readonly #log: Log | undefined;

  constructor(kernel: Kernel, log: Log | undefined) {
    this.#kernel = kernel;
    this.#log = log;
    this.#records = new RecordWatch(kernel, {
      isOfInterest: (row) => row.space === RUNS && (isSettled(row) || isDeleted(row)),
      burstMs: BURST_MS,
    });
  }

  /** Waits for the run to end, and returns its result or throws why there is none. */
  async of(
    workflow: string | undefined,
    id: string,
    options: { readonly timeout?: Duration | undefined; readonly abortSignal?: AbortSignal } = {},
  ): Promise<unknown> {
    checkId(id, "the run's id");
    const { clock } = this.#kernel.ports;
    checkOptions(options, RESULT_OPTIONS);
    const { timeout, abortSignal } = options;
    const timeoutMs = timeout === undefined ? undefined : checkDuration(timeout, "the timeout");
    checkAbortSignal(abortSignal);
    if (abortSignal?.aborted === true) throw abortSignal.reason;
    const { row, stop } = this.#wait(id);
    // One that is worked on here need not be looked for.
    const isHere = this.#kernel.held(runAt(id)) !== undefined;
    if (isHere && timeoutMs === undefined && abortSignal === undefined) return this.#outcome(workflow, id, await row);
    const { promise: interrupted, reject } = Promise.withResolvers<never>();
    interrupted.catch(() => {});
    row.catch(() => {});
    const cancel =
      timeoutMs === undefined ? undefined : clock.after(timeoutMs, () => reject(new ResultTimeoutError(id, timeoutMs)));
    const cancelLook =
      this.#log === undefined ? undefined : clock.after(UNTAKEN_MS, () => void this.#sayUntaken(id).catch(() => {}));
    const aborted = (): void => reject(abortSignal?.reason);
    abortSignal?.addEventListener("abort", aborted);
    try {
      if (!isHere) await Promise.race([this.#look(id), interrupted]);
      return this.#outcome(workflow, id, await Promise.race([row, interrupted]));
    } finally {
      stop();
      cancel?.();
      cancelLook?.();
      abortSignal?.removeEventListener("abort", aborted);
    }
  }

  /** A run that no worker takes, because its workflow's name is misspelt or no worker is there, would be waited for without a message. */
  async #sayUntaken(id: string): Promise<void> {
    const row = await readRow(this.#kernel, id);
    if (row.status !== "pending" || row.holder !== null || row.dueMs === null) return;
    const nowMs = await this.#kernel.transact((tx) => tx.nowMs, []);
    if (row.dueMs > nowMs - UNTAKEN_MS / 2) return;
    const workflow = workflowOfQueue(row.kind);
    const pool = poolOfQueue(row.kind ?? "");
    const paused = row.kind === newQueueOf(workflow, pool) ? await readPaused(this.#kernel, workflow) : null;
    if (paused !== null) {
      const because = paused.reason === null ? "" : ` (${paused.reason})`;
      const since = `since ${paused.since.toISOString()}${because}`;
      this.#log?.warn(
        `run "${id}" is waited for, and workflow "${workflow}" is paused ${since}: it begins after pawl.workflows.resume`,
      );
      return;
    }
    const what = `"${workflow}"${pool === undefined ? "" : `, pool "${pool}"`}`;
    this.#log?.warn(`run "${id}" is waited for, and no worker has taken it: does one work on ${what}?`);
  }

  #outcome(workflow: string | undefined, id: string, row: Row | null): unknown {
    if (row === null || row.value === null) throw new RunNotFoundError(id);
    const { value, unreadable } = readRun(this.#kernel, row);
    if (value === undefined) {
      checkQueue(row, workflow);
      if (row.status === "parked") throw new RunParkedError(id, unreadable);
      throw new RunUnreadableError(id, unreadable);
    }
    checkWorkflow(id, value, workflow);
    const outcome: Outcome = value.outcome ?? { ok: undefined };
    const status = statusOf(row);
    switch (status) {
      case "completed":
        return "ok" in outcome ? outcome.ok : undefined;
      case "failed":
        throw new RunFailedError(id, "error" in outcome ? outcome.error : undefined);
      case "canceled":
        throw new RunCanceledError(id, value.cancel?.reason);
      case "timed_out":
        throw new RunTimedOutError(id);
      case "expired":
        throw new RunExpiredError(id);
      case "parked":
        throw new RunParkedError(id, value.parked?.reason ?? "");
      case "pending":
      case "queued":
      case "running":
      case "waiting":
        throw new RunConflictError(id, `is ${status}: it has no result yet`);
    }
  }

  /** The run's row as soon as it has ended, is parked or was deleted; returns also how to stop waiting. */
  #wait(id: string): { readonly row: Promise<Row | null>; readonly stop: () => void } {
    // Its end may have been announced a moment ago, and is not announced again.
    const held = this.#kernel.held(runAt(id));
    if (held !== undefined && isSettled(held)) return { row: Promise.resolve(held), stop: () => {} };
    const { promise, resolve, reject } = Promise.withResolvers<Row | null>();
    const stop = this.#records.watch(runAt(id), {
      seen: (row) => {
        if (row !== null && !isSettled(row) && !isDeleted(row)) return false;
        resolve(row);
        return true;
      },
      failed: reject,
    });
    return { row: promise, stop };
  }

  /** Reads the run once, when a caller begins to wait for it. */
  #look(id: string): Promise<void> {
    return this.#records.look(runAt(id));
  }
}

const isDeleted = ({ value }: Row): boolean => value === null;

/** Whether a caller that waits for the result of a run gets one, or an error, when the run has this status. */
const HAS_RESULT: Readonly<Record<RunStatus, boolean>> = {
  completed: true,
  failed: true,
  canceled: true,
  timed_out: true,
  expired: true,
  parked: true,
  pending: false,
  queued: false,
  running: false,
  waiting: false,
};

const isSettled = ({ status }: Row): boolean => isRunStatus(status) && HAS_RESULT[status];
