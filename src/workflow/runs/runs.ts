/**
 * What a handle does with runs: it signals, cancels, retries, resolves, deletes and lists them. It starts them with `starter.ts`, and waits for
 * their results with `results.ts`.
 *
 * Each method checks its arguments and commits a decision (`messages.ts`, `end.ts`, `retry.ts`), or reads.
 */

import type { Queue, WorkPart, WorkSettings } from "../../kernel/capability.ts";
import {
  checkBoolean,
  checkCount,
  checkId,
  checkList,
  checkOptions,
  checkText,
  checkVersion,
  optionNames,
} from "../../kernel/check.ts";
import type { Row } from "../../kernel/contract.ts";
import type { Tx } from "../../kernel/decision.ts";
import type { Kernel } from "../../kernel/kernel.ts";
import type { Log } from "../../kernel/log.ts";
import { checkSchema, checkSchemaNow } from "../../kernel/schema.ts";
import type { RateLimits } from "../../rate/rate.ts";
import { type Definition, type Signal, signalName } from "../definitions/definition.ts";
import type { RetentionPolicy } from "../definitions/retention.ts";
import { RunConflictError } from "../errors.ts";
import type { RunWorkOptions } from "../execution/work-options.ts";
import { RunWorker } from "../execution/worker.ts";
import { forgetStart } from "../flow/collect.ts";
import { continueAdmitting } from "../flow/limits.ts";
import { mendLine } from "../flow/mend-line.ts";
import { PausedWorkflows } from "../flow/paused.ts";
import { removeUnused } from "../flow/places.ts";
import { BROKEN_LINE, COLLECTED, HURRIED_QUEUE, LIMIT_QUEUE } from "../flow/stored.ts";
import { skipsOf } from "../history/forgotten.ts";
import { isIn, rangesOf } from "../history/ranges.ts";
import { decodeRun, readRun } from "../history/read-run.ts";
import { dropSomeHolds } from "../locks/locks.ts";
import {
  type Doing,
  hasEnded,
  parseFact,
  type RunStatus,
  runAt,
  type VersionRange,
  WAITERS_QUEUE,
  WORDS,
  type Word,
} from "../stored.ts";
import { cancelChildrenOf } from "./cascade.ts";
import { deleteRun } from "./delete.ts";
import { cancelRun } from "./end.ts";
import { checkQueue, checkWorkflow, readRow } from "./existing.ts";
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
} from "./run.ts";
import { Starter } from "./starter.ts";

const SIGNAL_OPTIONS = optionNames<SignalOptions>({ id: true });

const HISTORY_OPTIONS = optionNames<{ after?: unknown; limit?: unknown }>({ after: true, limit: true });

const ANSWER = optionNames<{ done: boolean; value?: unknown }>({ done: true, value: true });

/** A run that keeps making progress is canceled by force after this many looks at its children. */
const MOST_ROUNDS = 20;

/** Everything about runs, for one handle. @internal */
export class Runs {
  readonly #kernel: Kernel;
  readonly #rates: RateLimits;
  readonly #workers = new Set<RunWorker>();
  readonly #log: Log | undefined;
  readonly #retention: RetentionPolicy;
  readonly queues: readonly Queue[];
  readonly paused: PausedWorkflows;
  readonly starter: Starter;
  readonly results: Results;

  constructor(kernel: Kernel, rates: RateLimits, log?: Log | undefined, retention: RetentionPolicy = {}) {
    this.#log = log;
    this.#retention = retention;
    this.#kernel = kernel;
    this.#rates = rates;
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
    this.starter = new Starter(kernel, rates, this.#workers, this.paused);
    this.results = new Results(kernel, log);
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

  async info(id: string, workflow: string | undefined): Promise<RunInfo> {
    const row = await readRow(this.#kernel, id);
    const info = await showRun(this.#kernel, row, this.#live);
    if (info.workflow !== workflow) checkQueue(row, workflow);
    return info;
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
    const row = await readRow(this.#kernel, id);
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
    const checked =
      schema === undefined ? payload : await checkSchema(schema, payload, `the signal "${name}"`, this.#kernel);
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
      const row = await readRow(this.#kernel, id);
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
    const row = await readRow(this.#kernel, id);
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
    const row = await readRow(this.#kernel, id);
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

function checkSignalId(options: SignalOptions): string | undefined {
  checkOptions(options, SIGNAL_OPTIONS);
  const { id } = options;
  return id === undefined ? undefined : checkId(id, "the signal's id");
}
