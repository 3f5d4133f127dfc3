/**
 * `pawl.tasks`: HTTP calls that are made until they succeed, and may then wait for a signal.
 *
 * A task is a run of a built-in workflow, so whatever can be done with runs can be done with tasks. What is here is what only tasks have: a request
 * and its checks, the signal token, idempotency keys, notifications, and outcomes.
 *
 * Guarantees: the same id or idempotency key is one task (G2, G3); a response, a signal, the timeout and a cancellation have one outcome, which every
 * caller gets (G15); every attempt carries the same key and a higher fence; a token is stored as a hash, and sealed (G27).
 * Out of scope: what the target does. A call may reach it more than once, so it has to recognize the key.
 */

import {
  checkAbortSignal,
  checkDuration,
  checkId,
  checkList,
  checkObject,
  checkOptions,
  type Duration,
  optionNames,
} from "../kernel/check.ts";
import type { Row } from "../kernel/contract.ts";
import type { Tx } from "../kernel/decision.ts";
import type { Unreadable } from "../kernel/encoding.ts";
import { InvalidArgumentError, PawlError } from "../kernel/errors.ts";
import type { Kernel } from "../kernel/kernel.ts";
import type { Origin } from "../kernel/origin.ts";
import { decodeRun } from "../workflow/history/read-run.ts";
import { findRuns } from "../workflow/runs/info.ts";
import type { Started } from "../workflow/runs/start.ts";
import { hasEnded, type RunStatus, runAt, statusOf } from "../workflow/stored.ts";
import type { Core, Made } from "./core.ts";
import { httpTask } from "./definition.ts";
import {
  TaskNotDeadError,
  TaskNotFoundError,
  TaskSettledError,
  TaskTimedOutError,
  TokenNotFoundError,
} from "./errors.ts";
import {
  readAttempts,
  readTaskInput,
  showAttempt,
  showDelivery,
  showTask,
  type TaskAttempt,
  type TaskDelivery,
  type TaskInfo,
} from "./info.ts";
import { checkReason, checkTask, type TaskOptions } from "./options.ts";
import type { TaskOutcome } from "./outcome.ts";
import {
  cancelTask,
  type Settlings,
  type SignalBody,
  signalTask,
  taskOfToken,
  taskRun,
  touchedByNew,
} from "./records.ts";
import { DELIVERIES, deliveriesUpTo, deliveryPrefix, outboxAt, TASKS, type TaskInput, tokenAt } from "./stored.ts";
import { checkToken } from "./token.ts";

/** A task that was created, or found. */
export interface CreatedTask {
  readonly task: TaskInfo;
  /** Allows its holder to complete the task; null for one that does not wait for a signal. */
  readonly signalToken: string | null;
  /** False if the task was there already, with the same request. */
  readonly isNew: boolean;
}

/** What a signal says. */
export interface TaskSignal {
  readonly status: "completed" | "failed";
  /** Becomes the `value` of the task's outcome. */
  readonly value?: unknown;
}

export interface SignaledTask {
  readonly task: string;
  readonly outcome: TaskOutcome;
  /** Whether this signal settled the task; false if the same signal did so before. */
  readonly isNew: boolean;
}

/** A signal that may have come too late. */
export type TrySignal =
  | ({ readonly ok: true } & SignaledTask)
  | { readonly ok: false; readonly code: "token_not_found" }
  | {
      readonly ok: false;
      readonly code: "task_settled" | "task_timed_out";
      readonly task: string;
      readonly outcome: TaskOutcome;
    };

export interface CanceledTask {
  /** Whether the task is canceled; false if it had another outcome before. */
  readonly canceled: boolean;
  /** The outcome of the first. */
  readonly outcome: TaskOutcome;
}

export interface GetTaskOptions {
  /** Waits for the outcome, at most this long. Default: returns the task as it is now. */
  readonly wait?: Duration | undefined;
  readonly abortSignal?: AbortSignal | undefined;
}

export interface TaskFilter {
  readonly tag?: string | undefined;
  /** Only tasks whose ids begin with this. */
  readonly prefix?: string | undefined;
}

export interface TaskListOptions extends TaskFilter {
  readonly status?: RunStatus | readonly RunStatus[] | undefined;
  /** By the time when they were created, also where they were sent again since; or by id. Default: "newest". */
  readonly order?: "newest" | "oldest" | "id" | undefined;
  /** The `next` of the page before. */
  readonly after?: string | null | undefined;
  /** Default: 100; at most 1,000. */
  readonly limit?: number | undefined;
}

export interface TaskPage {
  readonly tasks: readonly TaskInfo[];
  /** Those that cannot be read, by id: written with another codec key, or damaged. */
  readonly unreadable: readonly Unreadable[];
  readonly next: string | null;
}

/** Which dead tasks are sent again. Default: all. */
export interface RedriveFilter extends TaskFilter {
  readonly status?: DeadTaskStatus | readonly DeadTaskStatus[] | undefined;
}

export interface RedrivenTasks {
  /** How many begin again. */
  readonly redriven: number;
  /** Those that cannot be read, by id. They stay dead; what their runs are can be seen with `pawl.run(id)`. */
  readonly unreadable: readonly Unreadable[];
}

export type DeadTaskStatus = "failed" | "timed_out" | "expired";
const DEAD: readonly DeadTaskStatus[] = ["failed", "timed_out", "expired"];
const isDead = (status: RunStatus): status is DeadTaskStatus => (DEAD as readonly string[]).includes(status);

const GET_OPTIONS = optionNames<GetTaskOptions>({ wait: true, abortSignal: true });
const LIST_OPTIONS = optionNames<TaskListOptions>({
  status: true,
  tag: true,
  prefix: true,
  order: true,
  after: true,
  limit: true,
});
const REDRIVE_OPTIONS = optionNames<RedriveFilter>({ status: true, tag: true, prefix: true });
const CANCEL_OPTIONS = optionNames<{ reason?: unknown }>({ reason: true });
const SIGNAL_OPTIONS = optionNames<TaskSignal>({ status: true, value: true });
/** How many dead tasks are sent again together. */
const PAGE = 100;
/** The most notifications that are listed. */
const MOST_DELIVERIES = 100;

/** Tasks of one handle. */
export class Tasks {
  readonly #core: Core;
  readonly #kernel: Kernel;
  readonly #origin: Origin | undefined;

  /** @internal */
  constructor(core: Core, origin?: Origin | undefined) {
    this.#core = core;
    this.#kernel = core.kernel;
    this.#origin = origin;
  }

  /**
   * Creates a task; a process that works on `httpTasks()` makes the call. The same id or `idempotencyKey` with the same request is the same task. Throws
   * `invalid_target`, `target_forbidden`, `idempotency_mismatch` and `run_conflict` for another request under the key or the id, and `keys_missing`.
   */
  async create(options: TaskOptions): Promise<CreatedTask> {
    const checked = checkTask(options);
    this.#core.checkAllowed(checked.input);
    const prepared = this.#core.prepare(checked, this.#kernel.ports.chance.uuid, undefined, this.#origin);
    let made: Made | undefined;
    await this.#core.runs.starter.startAlong(prepared.start, {
      touches: touchedByNew(prepared),
      decide: (tx: Tx, start: () => Started): Started => {
        made = this.#core.create(tx, prepared, start);
        return made.started;
      },
    });
    if (made === undefined) throw new Error("the task was not created");
    const { started, task } = made as Made;
    const token = prepared.token?.token ?? null;
    if (started.isNew || token === null) return { task, signalToken: token, isNew: started.isNew };
    return { task, signalToken: await this.#core.tokenOf(started.id), isNew: false };
  }

  /** Returns a task as it is now, or when it has its outcome. Throws `task_not_found`. */
  async get(id: string, options: GetTaskOptions = {}): Promise<TaskInfo> {
    checkId(id, "the task's id");
    checkOptions(options, GET_OPTIONS);
    const { wait, abortSignal } = options;
    checkAbortSignal(abortSignal);
    if (wait !== undefined) checkDuration(wait, "the time to wait");
    const row = await this.#row(id);
    if (wait === undefined || hasEnded(row)) return showTask(this.#kernel, row);
    try {
      await this.#core.runs.results.of(TASKS, id, {
        timeout: wait,
        ...(abortSignal === undefined ? {} : { abortSignal }),
      });
    } catch (error) {
      // The task says how it ended, or how far it is.
      if (!(error instanceof PawlError && WAITED.has(error.code))) throw error;
    }
    return showTask(this.#kernel, await this.#row(id));
  }

  /** Lists tasks, in pages. */
  async list(options: TaskListOptions = {}): Promise<TaskPage> {
    checkOptions(options, LIST_OPTIONS);
    const { rows, next } = await findRuns(this.#kernel, { ...options, workflow: TASKS });
    const tasks: TaskInfo[] = [];
    const unreadable: Unreadable[] = [];
    const show = (row: Row) => showTask(this.#kernel, row).catch((error: unknown) => unreadableOf(row, error));
    for (const one of await Promise.all(rows.map(show)))
      if ("reason" in one) unreadable.push(one);
      else tasks.push(one);
    return { tasks, unreadable, next };
  }

  /**
   * Cancels a task that has no outcome yet: it has none but this from now on, and a call that is under way is given up. Returns the outcome of the first;
   * throws `task_not_found`.
   */
  async cancel(id: string, options: { readonly reason?: string | undefined } = {}): Promise<CanceledTask> {
    checkId(id, "the task's id");
    const reason = checkCancel(options);
    return canceledAs(await this.#kernel.transact((tx) => cancelTask(tx, id, reason), [runAt(id)]));
  }

  /**
   * Completes or fails the task of a token. The same signal again returns the same outcome. Throws `token_not_found`, `task_settled` and `task_timed_out`;
   * the last two have the outcome.
   */
  async signal(token: string, signal: TaskSignal): Promise<SignaledTask> {
    return orThrow(await this.trySignal(token, signal));
  }

  /** The same, with a result instead of an error where the task had its outcome before, or no task has the token. */
  async trySignal(token: string, signal: TaskSignal): Promise<TrySignal> {
    const body = checkSignal(signal);
    const at = tokenAt(checkToken(token));
    // What cannot be stored is refused before anything is written.
    this.#kernel.encode(at, body);
    return this.#kernel.transact((tx) => signalIn(tx, at.key, body), [at]);
  }

  /** Sends a dead task again, under the same id and with the same key and token. Throws `task_not_dead` and `task_not_found`. */
  async redrive(id: string): Promise<TaskInfo> {
    checkId(id, "the task's id");
    return this.#redrive(await this.#row(id));
  }

  /**
   * Sends all dead tasks again that the filter lets through. Those that die again meanwhile are not sent twice, and those that cannot be read stay as they
   * are.
   */
  async redriveAll(filter: RedriveFilter = {}): Promise<RedrivenTasks> {
    checkOptions(filter, REDRIVE_OPTIONS, "the filter");
    const { status = DEAD, ...rest } = filter;
    const statuses = typeof status === "string" ? [status] : status;
    checkList(statuses, "the status");
    for (const one of statuses)
      if (!isDead(one)) throw new InvalidArgumentError("the status", `must be one of ${DEAD.join(", ")}`);
    let redriven = 0;
    const unreadable: Unreadable[] = [];
    let after: string | null = null;
    do {
      const page: Awaited<ReturnType<typeof findRuns>> = await findRuns(this.#kernel, {
        ...rest,
        workflow: TASKS,
        status: statuses,
        order: "oldest",
        limit: PAGE,
        after,
      });
      for (const sent of await Promise.all(page.rows.map((row) => this.#tryRedrive(row))))
        if (typeof sent === "object") unreadable.push(sent);
        else if (sent) redriven += 1;
      after = page.next;
    } while (after !== null);
    return { redriven, unreadable };
  }

  async #tryRedrive(row: Row): Promise<boolean | Unreadable> {
    try {
      await this.#redrive(row);
      return true;
    } catch (error) {
      // Another caller was faster.
      if (error instanceof TaskNotDeadError || error instanceof TaskNotFoundError) return false;
      return unreadableOf(row, error);
    }
  }

  async #redrive(row: Row): Promise<TaskInfo> {
    const id = row.key;
    const value = decodeRun(this.#kernel, row);
    const status = statusOf(row);
    if (!isDead(status)) throw new TaskNotDeadError(id, status);
    const old = await readTaskInput(this.#kernel, row, value);
    const made = (await readAttempts(this.#kernel, row, value.from - 1)).length;
    const input: TaskInput = {
      ...old,
      createdAtMs: old.createdAtMs ?? value.startedAtMs,
      before: (old.before ?? 0) + made,
    };
    const { tags, gate, fingerprint = null } = value;
    const request = {
      ...this.#core.runs.starter.requestFor(httpTask, input, {
        id,
        ifExists: "restart",
        tags,
        priority: gate?.priority,
      }),
      fingerprint,
      ...(old.onCompleteUrl === undefined ? {} : { wakesAtEnd: [outboxAt(id).space, id] as const }),
      origin: this.#origin,
      tokenHash: old.signal?.hash,
    };
    let task: TaskInfo | undefined;
    await this.#core.runs.starter.startAlong(request, {
      touches: [],
      decide: (tx, start) => {
        const { run, value: now } = taskRun(tx, id);
        // What was read must be what is sent again.
        if (!isDead(statusOf(run)) || now.incarnation !== value.incarnation)
          throw new TaskNotDeadError(id, statusOf(run));
        const made = this.#core.restarted(tx, id, input, start);
        task = made.task;
        return made.started;
      },
    });
    return task ?? this.get(id);
  }

  /** The attempts that were made, the first one first; also those before the task was sent again. */
  async attempts(id: string): Promise<readonly TaskAttempt[]> {
    const row = await this.#row(checkId(id, "the task's id"));
    const { deletedUpTo = 0 } = decodeRun(this.#kernel, row);
    return (await readAttempts(this.#kernel, row, deletedUpTo)).map(showAttempt);
  }

  /** The notifications of `onCompleteUrl`: one for each time that the task ended, the first one first; of more than a hundred, the last. */
  async deliveries(id: string): Promise<readonly TaskDelivery[]> {
    const { incarnation } = decodeRun(this.#kernel, await this.#row(checkId(id, "the task's id")));
    const prefix = deliveryPrefix(id);
    const after = deliveriesUpTo(id, Math.max(0, incarnation - MOST_DELIVERIES));
    const options = { workflow: DELIVERIES, prefix, order: "id", after, limit: MOST_DELIVERIES } as const;
    const { rows } = await findRuns(this.#kernel, options);
    return Promise.all(rows.map((row) => showDelivery(this.#kernel, row)));
  }

  /** The record of a task's run. */
  async #row(id: string): Promise<Row> {
    const [row] = await this.#kernel.read([runAt(id)]);
    if (row === undefined || row === null || row.value === null) throw new TaskNotFoundError(id);
    if (decodeRun(this.#kernel, row).workflow !== TASKS) throw new TaskNotFoundError(id);
    return row;
  }
}

/** One task cannot be read: its input, its record, or with the keys of this process. */
const UNREADABLE: ReadonlySet<string> = new Set([
  "run_unreadable",
  "unsupported_encoding",
  "decrypt_failed",
  "key_unavailable",
  "store_corrupt",
]);

/** A task that cannot be read does not keep others from being listed or sent. What is not this task's, as a store that is unreachable, is thrown again. */
function unreadableOf({ key }: Row, error: unknown): Unreadable {
  if (error instanceof PawlError && UNREADABLE.has(error.code)) return { id: key, reason: error.message };
  throw error;
}

/** With these, waiting for a task is over. */
const WAITED: ReadonlySet<string> = new Set([
  "result_timeout",
  "run_failed",
  "run_canceled",
  "run_timed_out",
  "run_expired",
  "run_parked",
  "run_not_found",
]);

export function checkSignal(signal: TaskSignal): SignalBody {
  checkObject(signal, "the signal");
  checkOptions(signal, SIGNAL_OPTIONS, "the signal");
  const { status, value } = signal;
  if (status !== "completed" && status !== "failed")
    throw new InvalidArgumentError("the signal's status", 'must be "completed" or "failed"');
  return { status, value };
}

export const checkCancel = (options: { readonly reason?: string | undefined }): string | undefined => {
  checkOptions(options, CANCEL_OPTIONS);
  return checkReason(options.reason);
};

export const canceledAs = ({ outcome }: Settlings): CanceledTask => ({
  canceled: outcome.status === "canceled",
  outcome,
});

/** A signal in a decision. */
export function signalIn(tx: Tx, tokenHash: string, body: SignalBody): TrySignal {
  const task = taskOfToken(tx, tokenHash);
  if (task === undefined) return { ok: false, code: "token_not_found" };
  const { settlement, outcome } = signalTask(tx, task, body);
  if (settlement.is === "late") return { ok: false, code: settlement.code, task, outcome };
  if (settlement.is === "overdue") return { ok: false, code: "task_timed_out", task, outcome };
  return { ok: true, task, outcome, isNew: settlement.is === "first" };
}

export function orThrow(tried: TrySignal): SignaledTask {
  if (tried.ok) {
    const { ok: _ok, ...signaled } = tried;
    return signaled;
  }
  if (tried.code === "token_not_found") throw new TokenNotFoundError();
  const { task, outcome } = tried;
  throw tried.code === "task_settled" ? new TaskSettledError(task, outcome) : new TaskTimedOutError(task, outcome);
}
