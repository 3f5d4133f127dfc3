/**
 * `Run`: a handle on one run, in whatever process it is, with the options and results of its methods.
 */

import { checkOptions, type Duration, optionNames } from "../../kernel/check.ts";
import type { Origin } from "../../kernel/origin.ts";
import type { SentWith, WithInput } from "../definitions/context-types.ts";
import type { AnyWorkflow, Signal } from "../definitions/definition.ts";
import type { ShownDoing } from "../history/doing.ts";
import type { RunStatus } from "../stored.ts";
import type { Runs } from "./runs.ts";

export interface StartOptions {
  /**
   * The run's id. The same id again is the same run; with a different input it is refused. Where starts are collected (`debounce`, `batch`), it is the id of
   * this start, which counts once; the run has another. Default: a new id.
   */
  readonly id?: string | undefined;
  /** What happens if the id is taken: "join" finds that run, "reject" throws, "restart" starts it again if it has ended. Default: "join". */
  readonly ifExists?: "join" | "reject" | "restart" | undefined;
  /** Begins this much later. Not together with `at`. */
  readonly delay?: Duration | undefined;
  /** Begins at this time. Not together with `delay`. */
  readonly at?: Date | number | undefined;
  /**
   * Where runs wait in line for a concurrency limit: a run goes before those of a lower priority, but each step is worth only a minute of waiting. A
   * whole number from -100 to 100. Default: as the workflow says, otherwise 0.
   */
  readonly priority?: number | undefined;
  /** If it has not begun this long after its time, it ends as `expired`. Default: as the workflow says, otherwise no limit. */
  readonly ttl?: Duration | undefined;
  /** Words to find it by. */
  readonly tags?: readonly string[] | undefined;
}

export interface SignalOptions {
  /** A signal with an id that the run has already received is ignored. */
  readonly id?: string | undefined;
}

/** A run as it is now. */
export interface RunInfo extends ShownDoing {
  readonly id: string;
  readonly workflow: string;
  readonly status: RunStatus;
  readonly incarnation: number;
  readonly tags: readonly string[];
  readonly startedAt: Date;
  readonly scheduledAt: Date | null;
  /** When it ended; null before that, and for a run that ended before this was recorded. */
  readonly endedAt: Date | null;
  /** The `id` of the worker that holds it, and until when, unless it renews its lease. */
  readonly worker: string | null;
  readonly leaseUntil: Date | null;
  /** When it resumes by itself, if it waits for a time. */
  readonly dueAt: Date | null;
  readonly parent: string | null;
  /** Who caused it, what it belongs to, and what it follows from, as far as that was given. */
  readonly origin: Origin;
  readonly isCancelRequested: boolean;
  /** Why it is parked. */
  readonly parkedReason: string | null;
  /** Workers whose code contradicts its history have released it since then, and none has got further. */
  readonly contradicted: { readonly since: Date; readonly reason: string } | null;
  /** The problem at the last attempt to work on it, if it has not got further since. */
  readonly trouble: { readonly at: Date; readonly reason: string } | null;
  /**
   * Why its record cannot be read; null for a run that can be. Then only the id, the workflow, the status and the times are known, and
   * `incarnation` is 0. With the right codec key it can be read again; `pawl.runs.delete` removes it.
   */
  readonly unreadable: string | null;
  readonly error: unknown;
}

/** One fact of a run's history. */
export interface HistoryEntry {
  readonly version: number;
  readonly name: string;
  readonly data: unknown;
  readonly at: Date;
}

export interface RunListOptions {
  readonly workflow?: string | AnyWorkflow | undefined;
  readonly status?: RunStatus | readonly RunStatus[] | undefined;
  /** Only runs with this tag. */
  readonly tag?: string | undefined;
  /** Only runs whose ids begin with this. */
  readonly prefix?: string | undefined;
  /** Only runs that were started, or have ended, after or before this moment: a Date, or milliseconds since 1970. */
  readonly startedAfter?: Date | number | undefined;
  readonly startedBefore?: Date | number | undefined;
  readonly endedAfter?: Date | number | undefined;
  readonly endedBefore?: Date | number | undefined;
  /** By the time of their creation, or by id. Default: "newest". */
  readonly order?: "newest" | "oldest" | "id" | undefined;
  /** The `next` of the page before. */
  readonly after?: string | null | undefined;
  /** Default: 100; at most 1,000. */
  readonly limit?: number | undefined;
}

export interface RunPage {
  readonly runs: readonly RunInfo[];
  readonly next: string | null;
}

export interface CancelOptions {
  readonly reason?: string | undefined;
  /** Ends the run now: for one whose code is gone, or does not react. What it was doing may still run; the result says what. */
  readonly force?: boolean | undefined;
}

export interface CanceledRun {
  /** The run's status after the call; "running" and "waiting" mean that its code has still to react. */
  readonly status: RunStatus;
  /** With `force`: the worker that may still be at work on it, and the at-most-once steps that were begun and have no outcome. */
  readonly mayStillRun?: { readonly worker: string | null; readonly steps: readonly string[] };
}

export interface RetryRunOptions {
  /** Steps to do again besides those that failed, by the names that `history` shows: "charge", or "charge#2" for the second one. */
  readonly steps?: readonly string[] | undefined;
}

const CANCEL_OPTIONS = optionNames<CancelOptions>({ reason: true, force: true });
const RETRY_OPTIONS = optionNames<RetryRunOptions>({ steps: true });

/** A handle on one run, in whatever process it is. */
export class Run<Output = unknown> {
  readonly id: string;
  readonly #runs: Runs;
  readonly #workflow: string | undefined;

  /** @internal */
  constructor(runs: Runs, workflow: string | undefined, id: string) {
    this.#runs = runs;
    this.#workflow = workflow;
    this.id = id;
  }

  /**
   * Waits for the run to end and returns its result. Default: no timeout. Throws `run_failed`, `run_canceled`, `run_timed_out`, `run_expired`,
   * `run_parked`, `run_not_found`, or `result_timeout`.
   */
  result(options?: { readonly timeout?: Duration | undefined; readonly abortSignal?: AbortSignal }): Promise<Output> {
    return this.#runs.results.of(this.#workflow, this.id, options) as Promise<Output>;
  }

  status(): Promise<RunInfo> {
    return this.#runs.info(this.id, this.#workflow);
  }

  /** Returns the facts of its history so far. */
  history(options?: { readonly after?: number; readonly limit?: number }): Promise<readonly HistoryEntry[]> {
    return this.#runs.history(this.id, options);
  }

  /** Sends a signal. It is kept until the run receives it. Throws `run_ended` for a run that has ended. */
  signal<Payload, Given = unknown>(
    signal: Signal<Payload, string, Given>,
    ...[payload, options]: WithInput<SentWith<Payload, Given>, SignalOptions>
  ): Promise<{ readonly isNew: boolean }> {
    return this.#runs.signal(this.#workflow, this.id, signal, payload, options);
  }

  /**
   * Asks the run to stop; `result` settles when it has ended. Its code gets `run_canceled` from what it awaits, and may clean up, within the
   * workflow's `grace`. With `force`, the run ends immediately, whether its code reacts or not.
   */
  async cancel(options?: CancelOptions): Promise<CanceledRun> {
    checkOptions(options, CANCEL_OPTIONS);
    return this.#runs.cancel(this.#workflow, this.id, options);
  }

  /**
   * Lets a run that failed or is parked continue. The failures that ended it are forgotten and done again, children that failed are retried
   * too; what succeeded is kept. `steps` names others to do again. One that expired begins, without a `ttl`.
   */
  async retry(options?: RetryRunOptions): Promise<void> {
    checkOptions(options, RETRY_OPTIONS);
    return this.#runs.retry(this.id, options);
  }

  /** Resolves a step that runs at most once, for a run that is parked because its outcome is unknown; then the run resumes. */
  resolveStep(
    step: string,
    answer: { readonly done: true; readonly value: unknown } | { readonly done: false },
  ): Promise<void> {
    return this.#runs.resolveStep(this.id, step, answer);
  }
}
