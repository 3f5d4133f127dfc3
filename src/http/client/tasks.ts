/**
 * Tasks over HTTP: `pawl.tasks`.
 */

import type { TaskAttempt, TaskDelivery, TaskInfo } from "../../task/info.ts";
import type { TaskConcurrency, TaskOptions, TaskRateLimit, TaskRetry } from "../../task/options.ts";
import type {
  CanceledTask,
  CreatedTask,
  GetTaskOptions,
  RedriveFilter,
  RedrivenTasks,
  SignaledTask,
  TaskListOptions,
  TaskPage,
  TaskSignal,
  TrySignal,
} from "../../task/tasks.ts";
import { msOf } from "./duration.ts";
import { invalidArgument, isPawlError } from "./errors.ts";
import { abortSignal, moment, nested, own, PAGE, plain, type Sendings, sent, value } from "./options.ts";
import { type Paged, paged } from "./pages.ts";
import { longPoll } from "./runs.ts";
import { shown } from "./shapes.ts";
import type { WirePage } from "./slots.ts";
import { path, type Transport } from "./transport.ts";

const RETRY: Sendings<TaskRetry> = { attempts: plain, delay: plain, factor: plain, maxDelay: plain, jitter: plain };
const CONCURRENCY: Sendings<TaskConcurrency> = { key: plain, max: plain };
const RATE_LIMIT: Sendings<TaskRateLimit> = { ...CONCURRENCY, per: plain };
/** Headers as JSON has them. What JSON would make an empty object of is refused, as the library does. */
function headersOf(given: TaskOptions["headers"], name: string): unknown {
  if (given instanceof Headers) return Object.fromEntries(given);
  const isLost =
    typeof given === "object" && Object.keys(given).length === 0 && !KEPT.includes(Object.getPrototypeOf(given));
  if (isLost) throw invalidArgument("the headers", "must be a plain object, or Headers");
  return plain(given, name);
}

/** Prototypes of what JSON has as it is, also without members. */
const KEPT: readonly unknown[] = [Object.prototype, Array.prototype, null];

const CREATE: Sendings<TaskOptions> = {
  targetUrl: plain,
  method: plain,
  headers: headersOf,
  body: value,
  timeout: plain,
  retry: nested(RETRY),
  retryStatuses: plain,
  concurrency: nested(CONCURRENCY),
  rateLimit: nested(RATE_LIMIT),
  id: plain,
  idempotencyKey: plain,
  delay: plain,
  at: moment,
  priority: plain,
  tags: plain,
  onCompleteUrl: plain,
  waitForSignal: plain,
  maxWaitTime: plain,
};
const GET: Sendings<GetTaskOptions> = { wait: own, abortSignal };
const FILTER: Sendings<RedriveFilter> = { status: plain, tag: plain, prefix: plain };
const LIST: Sendings<TaskListOptions> = { ...PAGE, ...FILTER, order: plain };
const CANCEL = { reason: plain };
const SIGNAL: Sendings<TaskSignal> = { status: plain, value };

/** The value of an outcome is a value of the user. */
const show = (json: unknown): TaskInfo => shown<TaskInfo>(json, ["value"]);

export class ClientTasks {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Creates a task. The same id or `idempotencyKey` with the same request is the same task, and has the same signal token. */
  async create(options: TaskOptions): Promise<CreatedTask> {
    const body = sent(options, CREATE);
    // Without a key of its own, the task has that of the request.
    const json = await this.#transport.post(path("tasks"), body, true);
    return shown<CreatedTask>(json, ["value"]);
  }

  /** Returns a task as it is now, or with `wait`, when it has its outcome. Throws `task_not_found`. */
  async get(id: string, options: GetTaskOptions = {}): Promise<TaskInfo> {
    sent(options, GET);
    const { wait, abortSignal } = options;
    let task: TaskInfo | undefined;
    const get = async (waitMs: number): Promise<TaskInfo | undefined> => {
      const query = wait === undefined ? {} : { wait: `${waitMs}ms` };
      const request = { method: "GET", path: path("tasks", id), query, waitMs, abortSignal } as const;
      task = show(await this.#transport.call(request));
      return task.outcome === null ? undefined : task;
    };
    const found = await longPoll(this.#transport, wait === undefined ? 0 : msOf(wait, "wait"), abortSignal, get);
    return (found ?? task) as TaskInfo;
  }

  /** Lists tasks: awaited, a page; iterated, all of them that can be read. Those that cannot are in `unreadable` of the pages. */
  list(options: TaskListOptions = {}): Paged<TaskPage, TaskInfo> {
    return paged<TaskPage, TaskInfo>(
      async (after = options.after) => {
        const query = { ...sent(options, LIST), after };
        const json = await this.#transport.get(path("tasks"), query);
        const { items, unreadable = [], next } = json as WirePage<unknown>;
        return { tasks: items.map(show), unreadable, next };
      },
      ({ tasks }) => tasks,
    );
  }

  /** Cancels a task that has no outcome yet. Returns the outcome of the first. Throws `task_not_found`. */
  async cancel(id: string, options: { readonly reason?: string | undefined } = {}): Promise<CanceledTask> {
    const body = sent(options, CANCEL);
    return shown<CanceledTask>(await this.#transport.post(path("tasks", id, "cancel"), body, true), ["value"]);
  }

  /** Completes or fails the task of a token. Needs no key. Throws `token_not_found`, `task_settled` and `task_timed_out`. */
  async signal(token: string, signal: TaskSignal): Promise<SignaledTask> {
    const body = sent(signal, SIGNAL, "the signal");
    // The same signal again has the same outcome.
    const request = { method: "POST", path: path("signals", token), body, isRepeatable: true } as const;
    return shown<SignaledTask>(await this.#transport.call(request), ["value"]);
  }

  /** The same, with a result instead of an error where the task had its outcome before, or no task has the token. */
  async trySignal(token: string, signal: TaskSignal): Promise<TrySignal> {
    try {
      return { ok: true, ...(await this.signal(token, signal)) };
    } catch (error) {
      if (isPawlError(error, "token_not_found")) return { ok: false, code: error.code };
      for (const code of ["task_settled", "task_timed_out"] as const)
        if (isPawlError(error, code)) return { ok: false, code, ...error.data };
      throw error;
    }
  }

  /** Sends a dead task again, under the same id and with the same key and token. Throws `task_not_dead` and `task_not_found`. */
  async redrive(id: string): Promise<TaskInfo> {
    return show(await this.#transport.post(path("tasks", id, "redrive")));
  }

  /** Sends all dead tasks again that the filter lets through. Those that cannot be read stay as they are, and are listed. */
  async redriveAll(filter: RedriveFilter = {}): Promise<RedrivenTasks> {
    const body = { ...sent(filter, FILTER, "the filter"), all: true };
    const request = { method: "POST", path: path("tasks", "redrive"), body } as const;
    // Those that were sent again are not dead.
    return (await this.#transport.call({ ...request, isRepeatable: true })) as RedrivenTasks;
  }

  /** The attempts that were made, the first one first. */
  async attempts(id: string): Promise<readonly TaskAttempt[]> {
    const json = await this.#transport.get(path("tasks", id, "attempts"));
    return shown<{ items: TaskAttempt[] }>(json).items;
  }

  /** The notifications of `onCompleteUrl`, the first one first. */
  async deliveries(id: string): Promise<readonly TaskDelivery[]> {
    const json = await this.#transport.get(path("tasks", id, "deliveries"));
    return shown<{ items: TaskDelivery[] }>(json).items;
  }
}
