/**
 * Runs as the outside sees them: starting, handles, lists.
 */

import {
  checkAbortSignal,
  checkBoolean,
  checkCount,
  checkDate,
  checkDuration,
  checkId,
  checkList,
  checkOptions,
  checkPrefix,
  checkText,
  checkVersion,
  type Duration,
} from "../kernel/check.ts";
import type { Row } from "../kernel/contract.ts";
import type { Tx } from "../kernel/decision.ts";
import { InvalidArgumentError } from "../kernel/errors.ts";
import { fingerprintOf } from "../kernel/fingerprint.ts";
import type { Kernel } from "../kernel/kernel.ts";
import type { Log } from "../kernel/log.ts";
import type { RateLimits } from "../rate/rate.ts";
import { cancelChildrenOf } from "./cascade.ts";
import type { WithInput } from "./context.ts";
import type { Settled } from "./coroutine.ts";
import { type AnyWorkflow, type Definition, definitionOf, type Signal, signalName } from "./definition.ts";
import { deleteRun } from "./delete.ts";
import { type Doing, type ShownDoing, showDoing } from "./doing.ts";
import {
  ResultTimeoutError,
  RunCanceledError,
  RunConflictError,
  RunFailedError,
  RunNotFoundError,
  RunParkedError,
  RunTimedOutError,
  RunUnreadableError,
} from "./errors.ts";
import { isIn, skipsOf } from "./forgotten.ts";
import { dropSomeHolds } from "./locks.ts";
import {
  cancelRun,
  checkWorkflow,
  resolveStep,
  retryRun,
  type Started,
  type StartRequest,
  signalRun,
  startedAt,
  startRun,
} from "./records.ts";
import { Results } from "./results.ts";
import type { RetentionPolicy } from "./retention.ts";
import { queuesOf, RUNS, type RunValue, rangesOf, runAt, type VersionRange, workflowOfQueue } from "./run.ts";
import { checkSchema, checkSchemaNow } from "./schema.ts";
import { readRun } from "./unreadable.ts";
import { ENDED, parseFact, type RunStatus, STATUSES, WORDS, type Word } from "./words.ts";
import { RunWorker, type WorkOptions } from "./worker.ts";

export interface StartOptions {
  /** The run's id. The same id again is the same run; with another input it is refused. A new one unless said otherwise. */
  readonly id?: string | undefined;
  /** What happens if the id is taken: "join" finds that run, "reject" throws, "restart" starts it again if it has ended. */
  readonly ifExists?: "join" | "reject" | "restart" | undefined;
  /** Begins this much later. */
  readonly delay?: Duration | undefined;
  /** Begins at this time. */
  readonly at?: Date | number | undefined;
  /** Words to find it by. */
  readonly tags?: readonly string[] | undefined;
}

export interface SignalOptions {
  /** The same id again has no effect. */
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
  /** The worker that holds it (its `id`), and until when, unless it renews its lease. */
  readonly worker: string | null;
  readonly leaseUntil: Date | null;
  /** When it goes on by itself, if it waits for that. */
  readonly dueAt: Date | null;
  readonly parent: string | null;
  readonly isCancelRequested: boolean;
  /** Why it is parked. */
  readonly parkedReason: string | null;
  /** Workers whose code contradicts its history have released it since then, and none has got further. */
  readonly contradicted: { readonly since: Date; readonly reason: string } | null;
  /** What went wrong when it was last worked on, if it has not got further since. */
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
  /** By when they were made, the newest first, unless said otherwise; or by id. */
  readonly order?: "newest" | "oldest" | "id" | undefined;
  /** The `next` of the page before. */
  readonly after?: string | null | undefined;
  readonly limit?: number | undefined;
}

export interface RunPage {
  readonly runs: readonly RunInfo[];
  readonly next: string | null;
}

export interface CancelOptions {
  readonly reason?: string | undefined;
  /** Ends the run now: for one whose code is gone, or does not react. What it was doing may still be under way; the answer says what. */
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

/** A handle on one run, here or anywhere. */
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

  /** Waits for the result. Throws what became of the run instead, or `result_timeout`. */
  result(options?: { readonly timeout?: Duration | undefined; readonly abortSignal?: AbortSignal }): Promise<Output> {
    return this.#runs.result(this.#workflow, this.id, options) as Promise<Output>;
  }

  status(): Promise<RunInfo> {
    return this.#runs.info(this.id, this.#workflow);
  }

  /** What happened so far. */
  history(options?: { readonly after?: number; readonly limit?: number }): Promise<readonly HistoryEntry[]> {
    return this.#runs.history(this.id, options);
  }

  /** Sends a signal. It is kept until the run receives it; a run that has ended refuses it. */
  signal<Payload>(
    signal: Signal<Payload>,
    ...[payload, options]: WithInput<Payload, SignalOptions>
  ): Promise<{ readonly isNew: boolean }> {
    return this.#runs.signal(this.#workflow, this.id, signal, payload, options);
  }

  /**
   * Asks the run to stop; `result` tells when it has ended. Its code gets `run_canceled` from what it awaits, and may clean up, within the
   * workflow's `grace`. With `force`, the run ends immediately, whether its code reacts or not.
   */
  async cancel(options?: CancelOptions): Promise<CanceledRun> {
    checkOptions(options);
    return this.#runs.cancel(this.#workflow, this.id, options);
  }

  /**
   * Lets a run that failed or is parked continue. The failures that ended it are forgotten and done again, children that failed are retried
   * too; what succeeded is kept. `steps` names others to do again.
   */
  async retry(options?: RetryRunOptions): Promise<void> {
    checkOptions(options);
    return this.#runs.retry(this.id, options);
  }

  /** Says what became of a step that runs at most once, for a run that is parked because nobody knew; then the run goes on. */
  resolveStep(
    step: string,
    answer: { readonly done: true; readonly value: unknown } | { readonly done: false },
  ): Promise<void> {
    return this.#runs.resolveStep(this.id, step, answer);
  }
}

/** A run that is waited for is looked after when nobody has taken it for this long. */
const UNTAKEN_MS = 10_000;

/** Runs that are looked at one by one are read in pages of this size. */
const MOST_READ = 500;

/** Everything about runs, for one handle. @internal */
export class Runs {
  readonly #kernel: Kernel;
  readonly #results: Results;
  readonly #rates: RateLimits;
  readonly #workers = new Set<RunWorker>();
  readonly #log: Log | undefined;

  readonly #retention: RetentionPolicy;

  constructor(kernel: Kernel, rates: RateLimits, log?: Log | undefined, retention: RetentionPolicy = {}) {
    this.#log = log;
    this.#retention = retention;
    this.#kernel = kernel;
    this.#rates = rates;
    this.#results = new Results(kernel);
  }

  work(workflows: readonly AnyWorkflow[], options?: WorkOptions): RunWorker {
    const worker = new RunWorker(this.#kernel, this.#rates, workflows, options, this.#log, this.#retention);
    this.#workers.add(worker);
    return worker;
  }

  get isWorking(): boolean {
    return this.#workers.size > 0;
  }

  /** Before the handle is closed: the workers give back what they have. */
  async close(): Promise<void> {
    await Promise.allSettled([...this.#workers].map((worker) => worker.stop({ timeout: 5000 })));
  }

  async start(
    workflow: string | { readonly name: string },
    input: unknown,
    options: StartOptions = {},
  ): Promise<string> {
    const definition = definitionOf(workflow);
    const checked =
      definition?.input === undefined ? input : await checkSchema(definition.input, input, "the run's input");
    const request = this.#request(workflow, definition, checked, options, () => this.#newId());
    const worker = this.#roomFor(request.workflow);
    const lease = worker?.lease(request.workflow);
    if (worker === undefined || lease === undefined) {
      await this.#kernel.transact((tx) => startRun(tx, request), [startedAt(request)]);
      return request.id;
    }
    return this.#startHere(worker, { ...request, lease });
  }

  /** The commit that starts the run also leases it to this process, which begins at once. */
  async #startHere(worker: RunWorker, request: StartRequest): Promise<string> {
    const at = runAt(request.id);
    const kernel = this.#kernel;
    // What the run is begun with has passed through the codec, as at replay.
    const startedText = kernel.encode(at, { input: request.input });
    const { input } = kernel.decodeFresh(at, startedText) as { input: unknown };
    const safeUntilMs = kernel.ports.clock.nowMs() + worker.leaseMs;
    kernel.expect(at, true);
    worker.keepPlace();
    let started: Started | undefined;
    try {
      started = await kernel.transact((tx) => startRun(tx, { ...request, startedText }), [startedAt(request)]);
    } finally {
      worker.freePlace();
      kernel.expect(at, false);
    }
    if (started.isLeased) worker.adopt(request.id, input, safeUntilMs);
    return request.id;
  }

  #newId(): string {
    const { chance } = this.#kernel.ports;
    return chance.orderedId?.() ?? chance.uuid();
  }

  #roomFor(workflow: string): RunWorker | undefined {
    for (const worker of this.#workers) if (worker.lease(workflow) !== undefined) return worker;
    return undefined;
  }

  /** The same in a decision. */
  startIn(tx: Tx, workflow: string | { readonly name: string }, input: unknown, options: StartOptions = {}): string {
    const definition = definitionOf(workflow);
    const checked = checkSchemaNow(definition?.input, input, "the run's input");
    const request = this.#request(workflow, definition, checked, options, () => tx.uuid());
    startRun(tx, request);
    return request.id;
  }

  #request(
    workflow: string | { readonly name: string },
    definition: Definition | undefined,
    input: unknown,
    options: StartOptions,
    newId: () => string,
  ): StartRequest {
    const name = checkId(typeof workflow === "string" ? workflow : workflow?.name, "the workflow");
    checkOptions(options);
    const { id, ifExists = "join", delay, at, tags } = options;
    if (tags !== undefined) checkList(tags, "the tags");
    if (ifExists !== "join" && ifExists !== "reject" && ifExists !== "restart")
      throw new InvalidArgumentError("ifExists", 'must be "join", "reject" or "restart"');
    const atMs = at === undefined ? undefined : checkDate(at, "the time to start at");
    return {
      id: id === undefined ? newId() : checkId(id, "the run's id"),
      workflow: name,
      input,
      fingerprint: id === undefined ? null : fingerprintOf(input),
      isMade: id === undefined,
      tags: tags?.map((tag) => checkId(tag, "the tag")),
      delayMs: delay === undefined ? undefined : checkDuration(delay, "the delay"),
      atMs,
      timeoutMs: definition?.timeoutMs ?? null,
      ifExists,
    };
  }

  async result(
    workflow: string | undefined,
    id: string,
    options: { readonly timeout?: Duration | undefined; readonly abortSignal?: AbortSignal } = {},
  ): Promise<unknown> {
    checkId(id, "the run's id");
    const { clock } = this.#kernel.ports;
    checkOptions(options);
    const { timeout, abortSignal } = options;
    const timeoutMs = timeout === undefined ? undefined : checkDuration(timeout, "the timeout");
    checkAbortSignal(abortSignal);
    if (abortSignal?.aborted === true) throw abortSignal.reason;
    const { row, stop } = this.#results.wait(id);
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
      // One that is worked on here need not be looked for.
      if (this.#kernel.held(runAt(id)) === undefined) await Promise.race([this.#results.look(id), interrupted]);
      const ended = await (cancel === undefined && abortSignal === undefined ? row : Promise.race([row, interrupted]));
      return this.#outcome(workflow, id, ended);
    } finally {
      stop();
      cancel?.();
      cancelLook?.();
      abortSignal?.removeEventListener("abort", aborted);
    }
  }

  /** A run that nobody takes, because its workflow's name is misspelt or no worker is there, would be waited for in silence. */
  async #sayUntaken(id: string): Promise<void> {
    const row = await this.#row(id);
    if (row.status !== "pending" || row.holder !== null || row.dueMs === null) return;
    const nowMs = await this.#kernel.transact((tx) => tx.nowMs, []);
    if (row.dueMs > nowMs - UNTAKEN_MS / 2) return;
    const workflow = workflowOfQueue(row.kind);
    this.#log?.warn(`run "${id}" is waited for, and no worker has taken it: does one work on "${workflow}"?`);
  }

  #outcome(workflow: string | undefined, id: string, row: Row | null): unknown {
    if (row === null || row.value === null) throw new RunNotFoundError(id);
    const { value, unreadable } = readRun(this.#kernel, row);
    if (value === undefined) {
      this.#checkQueue(row, workflow);
      if (row.status === "parked") throw new RunParkedError(id, unreadable);
      throw new RunUnreadableError(id, unreadable);
    }
    checkWorkflow(id, value, workflow);
    const outcome: Settled = value.outcome ?? { ok: undefined };
    switch (row.status as RunStatus) {
      case "completed":
        return "ok" in outcome ? outcome.ok : undefined;
      case "canceled":
        throw new RunCanceledError(id, value.cancel?.reason);
      case "timed_out":
        throw new RunTimedOutError(id);
      case "parked":
        throw new RunParkedError(id, value.parked?.reason ?? "");
      default:
        throw new RunFailedError(id, "error" in outcome ? outcome.error : undefined);
    }
  }

  async #row(id: string): Promise<Row> {
    const [row] = await this.#kernel.read([runAt(id)]);
    if (row === undefined || row === null || row.value === null) throw new RunNotFoundError(id);
    return row;
  }

  async info(id: string, workflow: string | undefined): Promise<RunInfo> {
    const row = await this.#row(id);
    const info = await this.#show(row);
    if (info.workflow !== workflow) this.#checkQueue(row, workflow);
    return info;
  }

  /** A run of another workflow than was meant is refused; where its record cannot be read, its queue tells. */
  #checkQueue({ key, kind }: Row, workflow: string | undefined): void {
    const name = workflowOfQueue(kind);
    if (workflow !== undefined && name !== workflow)
      throw new RunConflictError(key, `is a run of "${name}", not of "${workflow}"`);
  }

  /** What the run is doing, if a worker of this handle holds it under this claim. */
  doing({ key, fence, holder }: Row): Doing | undefined {
    for (const worker of this.#workers) if (worker.id === holder) return worker.doing(key, fence);
    return undefined;
  }

  async #show(row: Row): Promise<RunInfo> {
    const { value, unreadable } = readRun(this.#kernel, row);
    if (value === undefined) return this.#showUnreadable(row, unreadable);
    const { contradicted, trouble } = value;
    const status = row.status as RunStatus;
    const isResting = row.holder === null && row.dueMs !== null && !ENDED.has(status);
    return {
      id: row.key,
      workflow: value.workflow,
      status,
      incarnation: value.incarnation,
      tags: value.tags ?? [],
      startedAt: new Date(value.startedAtMs),
      scheduledAt: value.scheduledAtMs === undefined ? null : validDate(value.scheduledAtMs),
      ...showDoing(row, value, this.doing(row)),
      endedAt: value.endedAtMs === undefined ? null : new Date(value.endedAtMs),
      ...leaseOf(row),
      dueAt: isResting && row.dueMs !== null ? validDate(row.dueMs) : null,
      parent: value.parent?.run ?? null,
      isCancelRequested: value.cancel !== undefined,
      parkedReason: status === "parked" ? (value.parked?.reason ?? "a worker could not read its record") : null,
      contradicted:
        contradicted === undefined ? null : { since: new Date(contradicted.sinceMs), reason: contradicted.reason },
      trouble: trouble === undefined ? null : { at: new Date(trouble.atMs), reason: trouble.reason },
      unreadable,
      error: value.outcome !== undefined && "error" in value.outcome ? value.outcome.error : undefined,
    };
  }

  /** What its columns and its log tell. */
  async #showUnreadable(row: Row, unreadable: string): Promise<RunInfo> {
    const status = row.status as RunStatus;
    const [first] = await this.#kernel.entries(runAt(row.key), 0, 1);
    const isEnded = ENDED.has(status);
    const [last] = isEnded ? await this.#kernel.entries(runAt(row.key), row.head - 1, 1) : [];
    return {
      id: row.key,
      workflow: workflowOfQueue(row.kind),
      status,
      incarnation: 0,
      tags: [],
      startedAt: new Date(first?.atMs ?? 0),
      scheduledAt: null,
      doing: [],
      doingCount: 0,
      doingAsOf: null,
      endedAt: last === undefined ? null : new Date(last.atMs),
      ...leaseOf(row),
      dueAt: row.holder === null && row.dueMs !== null && !ENDED.has(status) ? validDate(row.dueMs) : null,
      parent: null,
      isCancelRequested: false,
      parkedReason: status === "parked" ? unreadable : null,
      contradicted: null,
      trouble: null,
      unreadable,
      error: undefined,
    };
  }

  /** Deletes a run that has ended, or whose record cannot be read. */
  async delete(id: string): Promise<void> {
    await deleteRun(this.#kernel, checkId(id, "the run's id"));
  }

  async history(
    id: string,
    options: { readonly after?: number; readonly limit?: number } = {},
  ): Promise<readonly HistoryEntry[]> {
    checkOptions(options);
    const limit = checkCount(options.limit ?? 1000, "the limit");
    const after = options.after === undefined ? 0 : checkVersion(options.after, "after");
    const row = await this.#row(id);
    const { value } = readRun(this.#kernel, row);
    const entries = await this.#kernel.entries(runAt(id), Math.max(after, value?.deletedUpTo ?? 0), limit);
    return entries.map(({ version, name, data, atMs }) => ({
      version,
      name,
      data: this.#kernel.decodeFresh(row, data),
      at: new Date(atMs),
    }));
  }

  async signal(
    workflow: string | undefined,
    id: string,
    signal: Signal<unknown>,
    payload: unknown,
    options: SignalOptions = {},
  ): Promise<{ readonly isNew: boolean }> {
    const name = signalName(signal);
    const signalId = checkSignalId(options);
    const { schema } = signal;
    // Without a schema nothing is awaited: a promise that somebody forgot to await is no payload.
    const checked = schema === undefined ? payload : await checkSchema(schema, payload, `the signal "${name}"`);
    const sent = { name, payload: checked, id: signalId, workflow };
    return this.#kernel.transact((tx) => signalRun(tx, id, sent), [runAt(id)]);
  }

  signalIn(tx: Tx, id: string, signal: Signal<unknown>, payload: unknown, options: SignalOptions = {}): boolean {
    const name = signalName(signal);
    const checked = checkSchemaNow(signal.schema, payload, `the signal "${name}"`);
    const sent = { name, payload: checked, id: checkSignalId(options) };
    return signalRun(tx, checkId(id, "the run's id"), sent).isNew;
  }

  async cancel(workflow: string | undefined, id: string, options: CancelOptions = {}): Promise<CanceledRun> {
    const { reason, force = false } = options;
    checkId(id, "the run's id");
    if (reason !== undefined) checkText(reason, "the reason");
    checkBoolean(force, "force");
    const row = await this.#row(id);
    checkWorkflow(id, this.#kernel.decodeFresh(row, row.value ?? "null") as RunValue, workflow);
    const mayStillRun = force ? { worker: row.holder, steps: [...(await this.#openIntents(row))] } : null;
    // A run that is ended without its code cannot end its children itself.
    if (row.status === "parked" || force) {
      await cancelChildrenOf(this.#kernel, row);
      await this.#dropHolds(id);
    }
    const status = await this.#kernel.transact((tx) => cancelRun(tx, id, { reason, workflow, force }), [runAt(id)]);
    return mayStillRun === null ? { status } : { status, mayStillRun };
  }

  /** What it holds, as far as that is too much for the commit that ends it. */
  async #dropHolds(id: string): Promise<void> {
    const drop = (tx: Tx): boolean => {
      const run = tx.record(runAt(id));
      return run.exists && !ENDED.has(run.status ?? "") && dropSomeHolds(tx, run);
    };
    while (await this.#kernel.transact(drop, [runAt(id)]));
  }

  async retry(id: string, options: RetryRunOptions = {}): Promise<void> {
    checkId(id, "the run's id");
    const { steps = [] } = options;
    checkList(steps, "the steps");
    const names = new Set(steps.map((step) => checkId(step, "the step's name")));
    const forget = names.size === 0 ? [] : await this.#factsOf(id, names);
    await this.#kernel.transact((tx) => retryRun(tx, id, forget), [runAt(id)]);
  }

  /** Where the history has the facts about these steps. */
  async #factsOf(id: string, steps: ReadonlySet<string>): Promise<readonly VersionRange[]> {
    const row = await this.#row(id);
    const { from } = this.#kernel.decodeFresh(row, row.value ?? "null") as RunValue;
    const versions: number[] = [];
    const found = new Set<string>();
    for await (const { version, name } of this.#kernel.entriesAfter(runAt(id), from - 1)) {
      const fact = parseFact(name);
      if (!Object.hasOwn(WORDS, fact.word) || WORDS[fact.word as Word] !== "step" || !steps.has(fact.id)) continue;
      versions.push(version);
      found.add(fact.id);
    }
    const missing = [...steps].filter((step) => !found.has(step));
    if (missing.length > 0) throw new RunConflictError(id, `has no step "${missing[0]}" in its history`);
    return rangesOf(versions);
  }

  async resolveStep(
    id: string,
    step: string,
    answer: { readonly done: true; readonly value: unknown } | { readonly done: false },
  ): Promise<void> {
    checkId(step, "the step");
    checkOptions(answer ?? null, "the answer");
    checkBoolean(answer.done, "done");
    if (answer.done) this.#kernel.encode(runAt(id), answer.value);
    const row = await this.#row(id);
    const open = await this.#openIntents(row);
    if (!open.has(step)) {
      const names = [...open].map((name) => `"${name}"`).join(", ");
      throw new RunConflictError(id, `has no open step "${step}"${names === "" ? "" : `; it has ${names}`}`);
    }
    await this.#kernel.transact((tx) => resolveStep(tx, id, row.head, step, answer), [runAt(id)]);
  }

  /** Steps that were about to run, and of which nothing more is known. */
  async #openIntents(row: Row): Promise<ReadonlySet<string>> {
    const value = this.#kernel.decodeFresh(row, row.value ?? "null") as RunValue;
    const skips = await skipsOf(this.#kernel, runAt(row.key), value);
    const open = new Set<string>();
    for await (const { name, version } of this.#kernel.entriesAfter(runAt(row.key), value.from - 1)) {
      if (isIn(skips, version)) continue;
      const { word, id } = parseFact(name);
      if (word === "intent") open.add(id);
      else if (word === "step" || word === "undone") open.delete(id);
    }
    return open;
  }

  async list(options: RunListOptions = {}): Promise<RunPage> {
    checkOptions(options);
    const { workflow, status, tag, order = "newest", after = null } = options;
    if (tag !== undefined) checkId(tag, "the tag");
    const limit = checkCount(options.limit ?? 100, "the limit", 1000);
    const prefix = checkPrefix(options.prefix ?? "", "the prefix");
    const statuses = status === undefined ? undefined : typeof status === "string" ? [status] : status;
    if (statuses !== undefined) checkList(statuses, "the status");
    for (const one of statuses ?? [])
      if (!STATUSES.includes(one))
        throw new InvalidArgumentError("the status", `must be one of ${STATUSES.join(", ")}`);
    if (order !== "newest" && order !== "oldest" && order !== "id")
      throw new InvalidArgumentError("the order", 'must be "newest", "oldest" or "id"');
    if (after !== null && order === "id") checkId(after, "after");
    else if (after !== null && !(typeof after === "string" && /^\d{1,15}$/.test(after)))
      throw new InvalidArgumentError("after", "must be the `next` of a page");
    const name =
      workflow === undefined
        ? undefined
        : checkId(typeof workflow === "string" ? workflow : workflow?.name, "the workflow");
    const inTime = checkTimes(options);
    const isWanted = (row: Row): boolean => {
      if (tag === undefined && inTime === undefined) return true;
      const { value } = readRun(this.#kernel, row);
      if (value === undefined || (tag !== undefined && value.tags?.includes(tag) !== true)) return false;
      return inTime === undefined || inTime(value);
    };
    const found: Row[] = [];
    let from = after;
    // Tags and times are in the value, so pages are read until enough have them.
    const pageSize = tag === undefined && inTime === undefined ? limit + 1 : Math.max(limit + 1, MOST_READ);
    for (;;) {
      const rows = await this.#kernel.list({
        space: RUNS,
        prefix,
        after: from,
        limit: pageSize,
        order: order === "id" ? "key" : order,
        kinds: name === undefined ? undefined : queuesOf(name),
        statuses,
      });
      for (const row of rows) {
        from = order === "id" ? row.key : String(row.id);
        if (isWanted(row)) found.push(row);
        if (found.length > limit) break;
      }
      if (rows.length < pageSize || found.length > limit) break;
    }
    const page = found.slice(0, limit);
    const last = page.at(-1);
    const next = found.length > limit && last !== undefined ? (order === "id" ? last.key : String(last.id)) : null;
    return { runs: await Promise.all(page.map((row) => this.#show(row))), next };
  }
}

const leaseOf = ({ holder, dueMs }: Row): Pick<RunInfo, "worker" | "leaseUntil"> => ({
  worker: holder,
  leaseUntil: holder === null || dueMs === null ? null : validDate(dueMs),
});

/** Whether a run is within the times that a list is limited to; undefined if it is not limited. */
function checkTimes(options: RunListOptions): ((value: RunValue) => boolean) | undefined {
  const { startedAfter, startedBefore, endedAfter, endedBefore } = options;
  const ms = (moment: Date | number | undefined, what: string): number | undefined =>
    moment === undefined ? undefined : checkDate(moment, what);
  const started = rangeOf(ms(startedAfter, "startedAfter"), ms(startedBefore, "startedBefore"));
  const ended = rangeOf(ms(endedAfter, "endedAfter"), ms(endedBefore, "endedBefore"));
  if (started === undefined && ended === undefined) return undefined;
  return ({ startedAtMs, endedAtMs }) => started?.(startedAtMs) !== false && ended?.(endedAtMs) !== false;
}

function rangeOf(after: number | undefined, before: number | undefined): ((ms?: number) => boolean) | undefined {
  if (after === undefined && before === undefined) return undefined;
  return (ms) => ms !== undefined && (after === undefined || ms > after) && (before === undefined || ms < before);
}

const validDate = (ms: number): Date | null => (Number.isNaN(new Date(ms).getTime()) ? null : new Date(ms));

function checkSignalId(options: SignalOptions): string | undefined {
  checkOptions(options);
  const { id } = options;
  return id === undefined ? undefined : checkId(id, "the signal's id");
}
