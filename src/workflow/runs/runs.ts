/**
 * What a handle does with runs: it starts, signals, cancels, retries, resolves, deletes and lists them, and waits for their results.
 *
 * Each method checks its arguments and commits a decision (`start.ts`, `messages.ts`, `end.ts`, `retry.ts`), or reads.
 */

import type { Queue, WorkPart, WorkSettings } from "../../kernel/capability.ts";
import {
  checkAbortSignal,
  checkBoolean,
  checkCount,
  checkDate,
  checkDuration,
  checkId,
  checkList,
  checkOptions,
  checkText,
  checkVersion,
  type Duration,
  optionNames,
} from "../../kernel/check.ts";
import type { Address, Row } from "../../kernel/contract.ts";
import type { Tx } from "../../kernel/decision.ts";
import { isImmutable } from "../../kernel/encoding.ts";
import { InvalidArgumentError } from "../../kernel/errors.ts";
import { fingerprintOf } from "../../kernel/fingerprint.ts";
import type { Kernel } from "../../kernel/kernel.ts";
import type { Log } from "../../kernel/log.ts";
import type { Origin } from "../../kernel/origin.ts";
import { checkSchema, checkSchemaNow } from "../../kernel/schema.ts";
import type { RateLimits } from "../../rate/rate.ts";
import {
  type Definition,
  definitionOf,
  definitionToStart,
  type Signal,
  signalName,
} from "../definitions/definition.ts";
import { checkFlow, checkPriority, type Flow } from "../definitions/flow.ts";
import type { RetentionPolicy } from "../definitions/retention.ts";
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
import type { RunWorkOptions } from "../execution/work-options.ts";
import { RunWorker } from "../execution/worker.ts";
import { forgetStart } from "../flow/collect.ts";
import { continueAdmitting } from "../flow/limits.ts";
import { mendLine } from "../flow/mend-line.ts";
import { PausedWorkflows, readPaused } from "../flow/paused.ts";
import { removeUnused } from "../flow/places.ts";
import { declarePools } from "../flow/pools.ts";
import { BROKEN_LINE, COLLECTED, HURRIED_QUEUE, LIMIT_QUEUE } from "../flow/stored.ts";
import { skipsOf } from "../history/forgotten.ts";
import { isIn, rangesOf } from "../history/ranges.ts";
import { decodeRun, readRun } from "../history/read-run.ts";
import { dropSomeHolds } from "../locks/locks.ts";
import {
  type Doing,
  hasEnded,
  newQueueOf,
  type Outcome,
  parseFact,
  poolOfQueue,
  type RunStatus,
  runAt,
  statusOf,
  type VersionRange,
  WAITERS_QUEUE,
  WORDS,
  type Word,
  workflowOfQueue,
} from "../stored.ts";
import { cancelChildrenOf } from "./cascade.ts";
import { deleteRun } from "./delete.ts";
import { cancelRun } from "./end.ts";
import { checkWorkflow } from "./existing.ts";
import { listRuns, showRun } from "./info.ts";
import { notifyWaiters, signalRun } from "./messages.ts";
import { Results } from "./results.ts";
import { resolveStep, retryRun } from "./retry.ts";
import type {
  CanceledRun,
  CancelOptions,
  HistoryEntry,
  RetryRunOptions,
  RunInfo,
  RunListOptions,
  RunPage,
  SignalOptions,
  StartOptions,
} from "./run.ts";
import { type Started, type StartRequest, startRun, touchedBy } from "./start.ts";
import { startFlow } from "./start-flow.ts";

const START_OPTIONS = optionNames<StartOptions>({
  id: true,
  ifExists: true,
  delay: true,
  at: true,
  tags: true,
  priority: true,
  ttl: true,
});
const SIGNAL_OPTIONS = optionNames<SignalOptions>({ id: true });

const HISTORY_OPTIONS = optionNames<{ after?: unknown; limit?: unknown }>({ after: true, limit: true });
const RESULT_OPTIONS = optionNames<{ timeout?: unknown; abortSignal?: unknown }>({ timeout: true, abortSignal: true });

const ANSWER = optionNames<{ done: boolean; value?: unknown }>({ done: true, value: true });

/** A run that is waited for, and that no worker has taken for this long, is logged. */
const UNTAKEN_MS = 10_000;

/** A run that keeps making progress is canceled by force after this many looks at its children. */
const MOST_ROUNDS = 20;

/** Everything about runs, for one handle. @internal */
export class Runs {
  readonly #kernel: Kernel;
  readonly #results: Results;
  readonly #rates: RateLimits;
  readonly #workers = new Set<RunWorker>();
  readonly #declaredPools = new Set<string>();
  readonly #log: Log | undefined;

  readonly #retention: RetentionPolicy;
  readonly queues: readonly Queue[];
  readonly paused: PausedWorkflows;

  constructor(kernel: Kernel, rates: RateLimits, log?: Log | undefined, retention: RetentionPolicy = {}) {
    this.#log = log;
    this.#retention = retention;
    this.#kernel = kernel;
    this.#rates = rates;
    this.#results = new Results(kernel);
    this.queues = [
      {
        kind: WAITERS_QUEUE,
        isUrgent: true,
        chore: (at) => kernel.transact((tx) => notifyWaiters(tx, at.key), [at]),
      },
      {
        kind: HURRIED_QUEUE,
        isUrgent: true,
        chore: (at) => continueAdmitting(kernel, at),
      },
      { kind: BROKEN_LINE, isUrgent: true, chore: (at) => mendLine(kernel, at) },
      { kind: LIMIT_QUEUE, chore: (at) => kernel.transact((tx) => removeUnused(tx, tx.record(at)), [at]) },
      { kind: COLLECTED, chore: (at) => kernel.transact((tx) => forgetStart(tx, tx.record(at)), [at]) },
    ];
    this.paused = new PausedWorkflows(kernel);
  }

  work(definitions: readonly Definition[], settings: WorkSettings, options: RunWorkOptions): WorkPart {
    const worker = new RunWorker(this.#kernel, this.#rates, definitions, settings, options, {
      log: this.#log,
      retention: this.#retention,
      paused: this.paused,
    });
    this.#workers.add(worker);
    const stop = async (timeoutMs: number | undefined): Promise<void> => {
      await worker.stop(timeoutMs);
      this.#workers.delete(worker);
    };
    return { stop };
  }

  async start(
    workflow: string | { readonly name: string },
    input: unknown,
    options: StartOptions = {},
    origin?: Origin | undefined,
  ): Promise<string> {
    const definition = definitionToStart(workflow);
    const checked =
      definition?.input === undefined ? input : await checkSchema(definition.input, input, "the run's input");
    const request = { ...this.#request(workflow, definition, checked, options, () => this.#newId()), origin };
    const pool = request.flow?.request.pool;
    if (pool !== undefined) await this.#declarePool(request.workflow, pool);
    const worker = this.#roomFor(request.workflow, pool);
    const lease = worker?.lease(request.workflow, pool);
    if (worker === undefined || lease === undefined || request.flow?.collect !== undefined) {
      const { id } = await this.#kernel.transact((tx) => startRun(tx, request), touchedBy(request));
      return id;
    }
    return (await this.#startHere(worker, { ...request, lease })).id;
  }

  /**
   * Starts a run of a built-in workflow with what a capability decides in the same commit. `decide` may also find that there is a run, and not start
   * it.
   */
  async startAlong(request: StartRequest, along: Along): Promise<Started> {
    const worker = this.#roomFor(request.workflow, undefined);
    const lease = worker?.lease(request.workflow);
    if (worker !== undefined && lease !== undefined && request.isMade === true)
      return this.#startHere(worker, { ...request, lease }, along);
    const touches = [...touchedBy(request), ...along.touches];
    return this.#kernel.transact((tx) => along.decide(tx, () => startRun(tx, request)), touches);
  }

  /** The request for a run of a built-in workflow. */
  requestFor(
    workflow: { readonly name: string },
    input: unknown,
    options: StartOptions,
    newId: () => string = () => this.#newId(),
  ): StartRequest {
    return this.#request(workflow, definitionOf(workflow), input, options, newId);
  }

  /** The commit that starts the run also leases it to this process, which begins immediately. */
  async #startHere(worker: RunWorker, request: StartRequest, along: Along = ALONE): Promise<Started> {
    const at = runAt(request.id);
    const kernel = this.#kernel;
    // What the run is begun with has passed through the codec, as at replay.
    const startedText = kernel.encode(at, { input: request.input });
    const input = isImmutable(request.input)
      ? request.input
      : (kernel.decodeFresh(at, startedText) as { input: unknown }).input;
    const safeUntilMs = kernel.ports.clock.nowMs() + worker.leaseMs;
    kernel.expect(at, true);
    worker.keepPlace();
    let started: Started | undefined;
    try {
      const decide = (tx: Tx): Started => along.decide(tx, () => startRun(tx, request, startedText));
      started = await kernel.transact(decide, [...touchedBy(request), ...along.touches]);
    } finally {
      worker.freePlace();
      kernel.expect(at, false);
    }
    if (started.isLeased) worker.adopt(request.id, input, safeUntilMs);
    // A new run that waits is not worked on here: nothing else would release its row from memory.
    else if (started.isNew) kernel.letGo(at);
    return started;
  }

  #newId(): string {
    const { chance } = this.#kernel.ports;
    return chance.orderedId?.() ?? chance.uuid();
  }

  #roomFor(workflow: string, pool: string | undefined): RunWorker | undefined {
    for (const worker of this.#workers) if (worker.lease(workflow, pool) !== undefined) return worker;
    return undefined;
  }

  /** Before the first start of a run of this pool by this handle. */
  async #declarePool(workflow: string, pool: string): Promise<void> {
    const text = `${pool}/${workflow}`;
    if (this.#declaredPools.has(text)) return;
    await declarePools(this.#kernel, workflow, [pool]);
    this.#declaredPools.add(text);
  }

  /** The same in a decision. */
  startIn(tx: Tx, workflow: string | { readonly name: string }, input: unknown, options: StartOptions = {}): string {
    const definition = definitionToStart(workflow);
    const checked = checkSchemaNow(definition?.input, input, "the run's input");
    const request = this.#request(workflow, definition, checked, options, () => tx.uuid());
    return startRun(tx, request).id;
  }

  #request(
    workflow: string | { readonly name: string },
    definition: Definition | undefined,
    input: unknown,
    options: StartOptions,
    newId: () => string,
  ): StartRequest {
    const name = checkId(typeof workflow === "string" ? workflow : workflow?.name, "the workflow");
    checkOptions(options, START_OPTIONS);
    const { id, ifExists = "join", delay, at, tags, priority, ttl } = options;
    if (tags !== undefined) checkList(tags, "the tags");
    if (ifExists !== "join" && ifExists !== "reject" && ifExists !== "restart")
      throw new InvalidArgumentError("ifExists", 'must be "join", "reject" or "restart"');
    const atMs = at === undefined ? undefined : checkDate(at, "the time to start at");
    if (at !== undefined && delay !== undefined)
      throw new InvalidArgumentError("the options", "must not have both delay and at: each says when the run begins");
    const given = {
      priority: priority === undefined ? undefined : checkPriority(priority),
      ttlMs: ttl === undefined ? undefined : checkDuration(ttl, "the ttl"),
    };
    const flow = definition?.flow ?? this.#flowHere(name) ?? (isEmpty(given) ? undefined : checkFlow(name, { ttl }));
    if (flow?.collect !== undefined && (delay !== undefined || atMs !== undefined))
      throw new InvalidArgumentError(
        "the time to start at",
        `cannot be given: "${name}" collects its starts, and begins when they are complete`,
      );
    if (flow?.collect !== undefined && ifExists === "restart")
      throw new InvalidArgumentError("ifExists", `must not be "restart": "${name}" collects its starts`);
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
      flow:
        flow === undefined
          ? undefined
          : startFlow(flow, input, given, (limit, figures) => this.#rates.limit(limit, figures)),
      isPaused: this.paused.has(name),
      ifExists,
    };
  }

  /** The flow of a workflow that is started by its name, if a worker of this handle knows it. */
  #flowHere(workflow: string): Flow | undefined {
    for (const worker of this.#workers) {
      const flow = worker.flowOf(workflow);
      if (flow !== undefined) return flow;
    }
    return undefined;
  }

  async result(
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
    const { row, stop } = this.#results.wait(id);
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
      if (!isHere) await Promise.race([this.#results.look(id), interrupted]);
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
    const row = await this.#row(id);
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
      this.#checkQueue(row, workflow);
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

  async #row(id: string): Promise<Row> {
    const [row] = await this.#kernel.read([runAt(id)]);
    if (row === undefined || row === null || row.value === null) throw new RunNotFoundError(id);
    return row;
  }

  async info(id: string, workflow: string | undefined): Promise<RunInfo> {
    const row = await this.#row(id);
    const info = await showRun(this.#kernel, row, this.#live);
    if (info.workflow !== workflow) this.#checkQueue(row, workflow);
    return info;
  }

  /** A run of a different workflow than the caller expects is refused; where its record cannot be read, its queue says which it is. */
  #checkQueue({ key, kind }: Row, workflow: string | undefined): void {
    const name = workflowOfQueue(kind);
    if (workflow !== undefined && name !== workflow)
      throw new RunConflictError(key, `is a run of "${name}", not of "${workflow}"`);
  }

  readonly #live = (row: Row): Doing | undefined => this.doing(row);

  /** What the run is doing, if a worker of this handle holds it under this claim. */
  doing({ key, fence, holder }: Row): Doing | undefined {
    // One call of `pawl.work` may have several parts that work on runs.
    for (const worker of this.#workers) {
      const doing = worker.id === holder ? worker.doing(key, fence) : undefined;
      if (doing !== undefined) return doing;
    }
    return undefined;
  }

  /** Deletes a run that has ended, or whose record cannot be read. */
  async delete(id: string): Promise<void> {
    await deleteRun(this.#kernel, checkId(id, "the run's id"));
  }

  async history(
    id: string,
    options: { readonly after?: number; readonly limit?: number } = {},
  ): Promise<readonly HistoryEntry[]> {
    checkOptions(options, HISTORY_OPTIONS);
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
    // Without a schema nothing is awaited: a promise that was not awaited is no payload.
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
    for (let round = 1; ; round++) {
      const row = await this.#row(id);
      checkWorkflow(id, decodeRun(this.#kernel, row), workflow);
      const mayStillRun = force ? { worker: row.holder, steps: [...(await this.#openIntents(row))] } : null;
      // A run that is ended without its code cannot end its children itself.
      const isWithoutCode = row.status === "parked" || force;
      if (isWithoutCode) {
        await cancelChildrenOf(this.#kernel, row);
        await this.#dropHolds(id);
      }
      const cancel = (tx: Tx): RunStatus | undefined => {
        const run = tx.record(runAt(id));
        // It may have been parked meanwhile, or have started more children: then those are canceled first.
        const hasMoved = isWithoutCode ? run.head !== row.head : run.status === "parked";
        if (hasMoved && !hasEnded(run) && round < MOST_ROUNDS) return undefined;
        return cancelRun(tx, id, { reason, workflow, force });
      };
      const status = await this.#kernel.transact(cancel, [runAt(id)]);
      if (status !== undefined) return mayStillRun === null ? { status } : { status, mayStillRun };
    }
  }

  /** Releases its locks, as far as they are too many for the commit that ends it. */
  async #dropHolds(id: string): Promise<void> {
    const drop = (tx: Tx): boolean => {
      const run = tx.record(runAt(id));
      return run.exists && !hasEnded(run) && dropSomeHolds(tx, run);
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
    const { from } = decodeRun(this.#kernel, row);
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
    checkOptions(answer ?? null, ANSWER, "the answer");
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

  /** Steps that were about to run, and whose outcome is unknown. */
  async #openIntents(row: Row): Promise<ReadonlySet<string>> {
    const value = decodeRun(this.#kernel, row);
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
    return listRuns(this.#kernel, options, this.#live);
  }
}

/** What else is decided in the commit that starts a run. */
export interface Along {
  readonly touches: readonly Address[];
  decide(tx: Tx, start: () => Started): Started;
}

const ALONE: Along = { touches: [], decide: (_tx, start) => start() };

const isEmpty = (given: object): boolean => Object.values(given).every((one) => one === undefined);

function checkSignalId(options: SignalOptions): string | undefined {
  checkOptions(options, SIGNAL_OPTIONS);
  const { id } = options;
  return id === undefined ? undefined : checkId(id, "the signal's id");
}
