/**
 * Effects: the steps of one run that are under way in this process, of all three kinds.
 *
 * A step is begun when everything before it is durable. Its outcome, a failed attempt that is tried again much later, and its progress
 * are handed back as arrivals for the history. A step that runs at most once, and that may have happened before, is not done again.
 */

import type { Address, Sql, SyncDatabase } from "../../kernel/contract.ts";
import type { Decision, Tx } from "../../kernel/decision.ts";
import { isImmutable } from "../../kernel/encoding.ts";
import { LeaseUncertainError, NonRetryableError, StoreError } from "../../kernel/errors.ts";
import { hash } from "../../kernel/fingerprint.ts";
import type { Kernel } from "../../kernel/kernel.ts";
import { LazyMap, LazySet } from "../../kernel/lazy.ts";
import { messageOf } from "../../kernel/log.ts";
import type { HeldLock } from "../../kernel/ports.ts";
import { executorOf } from "../../kernel/sql/executors.ts";
import { type Prepare, runInSql } from "../../kernel/sql/in-sql.ts";
import type { StepHandle, StepMode, StepPlan, WithinFunction } from "../definitions/plans.ts";
import type { EventBody } from "../events.ts";
import { storable, storedAs, unstorableResult } from "../history/outcome.ts";
import type { Word } from "../stored.ts";
import type { Arrivals } from "./arrivals.ts";
import type { Engine } from "./engine.ts";
import type { HeldRun } from "./held-run.ts";
import { JointStep, type StepTransactions } from "./joint-step.ts";
import type { PendingOperation } from "./pending.ts";
import { isThenable, NotBegun, type NotHere, RunningStep, type StepHost } from "./steps.ts";

type ModeOf<Is extends StepMode["is"]> = Extract<StepMode, { readonly is: Is }>;

type Listener = Pick<Engine, "around" | "isWanted">;

/** A step's progress is written at most once in this time. */
const PROGRESS_MS = 1000;

export class Effects implements StepHost {
  readonly #run: HeldRun;
  readonly #arrivals: Arrivals;
  readonly #transactions: StepTransactions;
  readonly #listener: Listener;
  readonly #emit: (event: EventBody) => void;
  readonly #running = new Map<PendingOperation, RunningStep>();
  /** Steps whose intent this process wrote: they begin without `reconcile`. */
  readonly #intents = new LazySet<PendingOperation>();
  /** Steps whose progress was written a moment ago, with the progress since. */
  readonly #progress = new LazyMap<PendingOperation, string | null>();
  #isShuttingDown = false;
  /** Where the execution works (`Ports.bodies`): not in the body. With the name of the step that was begun there last. */
  readonly place: { readonly run: string; step: string };

  constructor(
    run: HeldRun,
    arrivals: Arrivals,
    transactions: StepTransactions,
    listener: Listener,
    emit: (event: EventBody) => void,
  ) {
    this.#run = run;
    this.place = { run: run.id, step: "" };
    this.#arrivals = arrivals;
    this.#transactions = transactions;
    this.#listener = listener;
    this.#emit = emit;
  }

  get isIdle(): boolean {
    return this.#running.size === 0;
  }

  has(pending: PendingOperation): boolean {
    return this.#running.has(pending);
  }

  get clock(): Kernel["ports"]["clock"] {
    return this.#run.kernel.ports.clock;
  }

  nowMs(): number {
    return this.#run.nowMs();
  }

  get fence(): number {
    return this.#run.fence;
  }

  random(): number {
    return this.#run.kernel.ports.chance.random();
  }

  /** The intent of this step has just been written. */
  intended(pending: PendingOperation): void {
    pending.hasIntent = true;
    this.#intents.add(pending);
  }

  begin(pending: PendingOperation, plan: StepPlan): void {
    const step = new RunningStep(this, pending, plan);
    this.#running.set(pending, step);
    if (pending.isCanceled) step.abort(this.#run.coroutine.canceled);
    const { mode } = plan;
    // Another process may have begun it when the code started it; time before a retry does not count.
    const sinceMs = Math.max(pending.sinceMs, this.#run.coroutine.retriedAtMs);
    if (plan.totalTimeoutMs !== null && !pending.isPostponed && sinceMs < this.#run.claimedAtMs)
      pending.firstAttemptMs ??= sinceMs;
    if (mode.is === "plain") step.start(mode.run);
    // The step of an intent that this process wrote has not run yet; that of an earlier one may have.
    else if (mode.is === "once" && (!pending.hasIntent || this.#intents.has(pending))) step.start(mode.run);
    else if (mode.is === "once") void this.#reconcile(pending, step, mode, plan.timeoutMs);
    else step.start(this.#inTransaction(pending, step, mode));
  }

  /** Aborts a step, if it runs; its end is waited for. */
  abort(pending: PendingOperation, reason: unknown): void {
    this.#running.get(pending)?.abort(reason);
  }

  /** The run does not need it any more: it is aborted, and its outcome is ignored. */
  cancel(pending: PendingOperation, reason: unknown): void {
    this.#running.get(pending)?.drop(reason);
    this.#running.delete(pending);
  }

  /** The worker waits no longer: running steps are aborted, and those that have no outcome then are done again by another worker. */
  shutDown(reason: unknown): void {
    this.#isShuttingDown = true;
    for (const step of [...this.#running.values()]) step.abort(reason);
  }

  /** The run is abandoned here: the outcomes of running steps are ignored. */
  drop(reason: unknown): void {
    for (const step of this.#running.values()) step.drop(reason);
    this.#running.clear();
  }

  async #reconcile(
    pending: PendingOperation,
    step: RunningStep,
    { reconcile, run }: ModeOf<"once">,
    timeoutMs: number | null,
  ): Promise<void> {
    let said: Partial<{ readonly done: unknown; readonly value: unknown; readonly unknown: unknown }> = {
      unknown: true,
    };
    let trouble = "";
    if (reconcile !== undefined)
      try {
        // Anything but a clear answer is refused.
        said = Object(await this.#answerOf(pending, timeoutMs ?? RECONCILE_MS, reconcile));
        if (typeof said.done !== "boolean" && said.unknown !== true)
          trouble = " (reconcile must return { done: true, value }, { done: false } or { unknown: true })";
      } catch (error) {
        said = { unknown: true };
        trouble = ` (reconcile threw: ${error instanceof Error ? error.message : String(error)})`;
      }
    if (this.#arrivals.isClosed) return;
    if (said.done === true) return this.succeeded(pending, said.value);
    if (said.done === false) return step.start(run);
    this.#running.delete(pending);
    const how = `find out, then call run.resolveStep("${pending.id}", { done: true, value }) or { done: false }`;
    this.#park(`step "${pending.id}" may or may not have happened${trouble}: ${how}`);
  }

  /** The answer of `reconcile`, within the step's timeout, or a minute. */
  async #answerOf(
    pending: PendingOperation,
    limitMs: number,
    reconcile: (step: { readonly key: string }) => unknown,
  ): Promise<unknown> {
    const late = Promise.withResolvers<never>();
    const cancel = this.clock.after(limitMs, () => late.reject(new Error(`no answer within ${limitMs} ms`)));
    try {
      return await Promise.race([reconcile({ key: this.keyOf(pending) }), late.promise]);
    } finally {
      cancel();
    }
  }

  // What a step brings.

  #arrive(pending: PendingOperation, word: Word, data: unknown, text: string): void {
    this.#arrivals.push({ is: "fact", pending, word, data, text });
  }

  /** It was not done, and nothing is recorded about it. */
  #again(pending: PendingOperation): void {
    this.#arrivals.push({ is: "undone", pending });
  }

  #park(reason: string): void {
    this.#arrivals.push({ is: "park", reason });
  }

  keyOf(pending: PendingOperation): string {
    const { kernel, at, value } = this.#run;
    return hash(kernel.namespace, at.key, String(value.incarnation), pending.id);
  }

  attempted(pending: PendingOperation, attempt: number): void {
    if (this.#listener.isWanted("step.started")) this.#emit({ type: "step.started", step: pending.id, attempt });
  }

  call(pending: PendingOperation, run: (step: StepHandle) => unknown, step: StepHandle): unknown {
    const { holding } = this.#run.kernel.ports;
    // Code that starts or signals a run under a lock does not hold the lock for its steps.
    if (holding?.current() === undefined) return this.#call(pending, run, step);
    return holding.run(NO_LOCKS, () => this.#call(pending, run, step));
  }

  #call(pending: PendingOperation, run: (step: StepHandle) => unknown, step: StepHandle): unknown {
    const { around } = this.#listener;
    if (around === undefined) return this.#callInPlace(pending, run, step);
    const { definition, id } = this.#run;
    return around(
      { type: "step.started", workflow: definition.name, run: id, step: pending.id, attempt: step.attempt },
      () => this.#callInPlace(pending, run, step),
    );
  }

  #callInPlace(pending: PendingOperation, run: (step: StepHandle) => unknown, step: StepHandle): unknown {
    const { bodies } = this.#run.kernel.ports;
    if (bodies === undefined) return run(step);
    // Entering a place costs as much as the rest of a small step: one that runs alone uses the place of the execution.
    if (this.#running.size > 1 || bodies.current() !== this.place)
      return bodies.run({ run: this.#run.id, step: pending.id }, () => run(step));
    this.place.step = pending.id;
    return run(step);
  }

  async reserveTurn({ turn }: StepPlan): Promise<number> {
    if (turn === undefined) return 0;
    const { waitMs } = await this.#run.kernel.transact((tx) => turn(tx), []);
    return waitMs;
  }

  usedLate(pending: PendingOperation, attempt: number, what: string): void {
    const message = `${what} was called after attempt ${attempt} of step "${pending.id}" was over: it has no effect`;
    this.#emit({ type: "run.warning", step: pending.id, attempt, message });
  }

  policyThrew(pending: PendingOperation, mistake: unknown): void {
    if (this.#arrivals.isClosed) return;
    const message = `retry.when of step "${pending.id}" failed, so there is no further attempt: ${messageOf(mistake)}`;
    this.#emit({ type: "run.warning", step: pending.id, attempt: pending.attempts, message });
  }

  retried(pending: PendingOperation, error: unknown): void {
    if (!this.#arrivals.isClosed)
      this.#emit({ type: "step.retried", step: pending.id, error, attempt: pending.attempts });
  }

  succeeded(pending: PendingOperation, value: unknown): void {
    this.#running.delete(pending);
    const { kernel, at } = this.#run;
    if (this.#arrivals.isClosed) return;
    let text: string;
    try {
      text = kernel.encode(at, { ok: value });
    } catch (error) {
      this.failed(pending, unstorableResult(error, `step "${pending.id}"`));
      return;
    }
    if (this.#listener.isWanted("step.completed")) this.#emit({ type: "step.completed", step: pending.id });
    const data = isImmutable(value) ? { ok: value } : kernel.decodeFresh(at, text);
    this.#arrive(pending, "step", data, text);
  }

  failed(pending: PendingOperation, error: unknown): void {
    this.#running.delete(pending);
    const { kernel, at } = this.#run;
    if (this.#arrivals.isClosed) return;
    if (this.#isShuttingDown && !pending.isCanceled) {
      this.#again(pending);
      return;
    }
    const text = storable(kernel, at, { error });
    this.#emit({ type: "step.failed", step: pending.id, error });
    this.#arrive(pending, "step", kernel.decodeFresh(at, text), text);
  }

  notHere(pending: PendingOperation, error: NotHere): void {
    this.#running.delete(pending);
    this.#arrivals.push({ is: "leave", error });
  }

  postponed(pending: PendingOperation, error: unknown, delayMs: number): void {
    this.#running.delete(pending);
    const { kernel, at } = this.#run;
    if (this.#arrivals.isClosed) return;
    this.#emit({ type: "step.retried", step: pending.id, error, attempt: pending.attempts });
    const dueMs = this.#run.nowMs() + delayMs;
    const data = { ...this.#attemptsOf(pending), ...storedAs(kernel, at, { error }), dueMs };
    this.#arrive(pending, "attempt", data, kernel.encode(at, data));
  }

  deferred(pending: PendingOperation, delayMs: number): void {
    this.#running.delete(pending);
    const { kernel, at } = this.#run;
    if (this.#arrivals.isClosed) return;
    const data = { ...this.#attemptsOf(pending), dueMs: this.#run.nowMs() + delayMs, hasTurn: true };
    this.#arrive(pending, "attempt", data, kernel.encode(at, data));
  }

  hasTurn(pending: PendingOperation): void {
    this.#running.delete(pending);
    pending.hasTurn = true;
    pending.nextAttemptMs = null;
    this.#again(pending);
  }

  get isLeaseUncertain(): boolean {
    return this.#run.isLeaseUncertain;
  }

  putOff(pending: PendingOperation): void {
    this.#running.delete(pending);
    this.#again(pending);
  }

  #attemptsOf({ attempts, firstAttemptMs }: PendingOperation): {
    readonly attempts: number;
    readonly firstMs?: number;
  } {
    return { attempts, ...(firstAttemptMs === undefined ? {} : { firstMs: firstAttemptMs }) };
  }

  /** Written immediately, and then at most once per `PROGRESS_MS`: the last one counts. */
  progressed(pending: PendingOperation, progress: unknown): void {
    const { kernel, at, coroutine } = this.#run;
    if (this.#arrivals.isClosed) return;
    const text = kernel.encode(at, progress);
    // The next attempt in this process gets it immediately.
    pending.progress = kernel.decodeFresh(at, text);
    pending.isProgressLive = true;
    const isWaiting = this.#progress.has(pending);
    this.#progress.set(pending, isWaiting ? text : null);
    if (isWaiting) return;
    this.#arrive(pending, "progress", kernel.decodeFresh(at, text), text);
    this.clock.after(PROGRESS_MS, () => {
      const latest = this.#progress.get(pending);
      this.#progress.delete(pending);
      if (typeof latest === "string" && !pending.isAnswered && coroutine.waiting.get(pending.text) === pending)
        this.progressed(pending, kernel.decodeFresh(at, latest));
    });
  }

  // Steps in a transaction.

  /** The function of each attempt: what the user's function does is recorded in the transaction that it is done in. */
  #inTransaction(
    pending: PendingOperation,
    step: RunningStep,
    mode: ModeOf<"sql" | "sync" | "within">,
  ): (handle: StepHandle) => Promise<unknown> {
    return (handle) => {
      const joint = new JointStep(this.#run, this.#transactions, pending, step);
      if (mode.is === "sql") return this.#inSql(joint, (sql) => mode.run(sql, handle));
      if (mode.is === "sync") return this.#inSql(joint, (_, db) => runSync(mode.run, db, handle));
      return this.#inTheirs(joint, mode.run, handle);
    };
  }

  /** The user's SQL and the step's record in one transaction. */
  async #inSql(joint: JointStep, work: (sql: Sql, db: SyncDatabase | undefined) => unknown): Promise<unknown> {
    const { kernel, at } = this.#run;
    let hasBegun = false;
    try {
      // In a store with one writer, a transaction must not wait for commits of this process.
      if (kernel.isSingleWriter) await joint.enter();
      await kernel.share((sql, join, db) =>
        runInSql(sql, join, decidesOn(at), async (sql, decide) => {
          // The wait for the connection may have been long.
          if (this.#arrivals.isClosed) throw new LeaseUncertainError();
          hasBegun = true;
          joint.encode(await joint.orExpired(async () => work(sql, db)));
          await joint.enter();
          joint.disarm();
          await decide((tx) => joint.record(tx));
        }),
      );
    } catch (error) {
      if (!(error instanceof StoreError) || isOwnFault(error)) return joint.failed(error, false);
      return hasBegun ? joint.failed(error, true) : joint.failed(new NotBegun(error), false);
    }
    this.#running.delete(joint.pending);
    return joint.committed();
  }

  /** The same in a transaction that the user's own library opens. */
  async #inTheirs(joint: JointStep, run: WithinFunction, handle: StepHandle): Promise<unknown> {
    const { kernel, at } = this.#run;
    try {
      if (kernel.isSingleWriter) await joint.enter();
      const record: Parameters<WithinFunction>[0] = async (executor, value) => {
        const theirs = executorOf(executor);
        joint.encode(value);
        await joint.enter();
        joint.disarm();
        await kernel.within(theirs, (tx) => joint.record(tx), [at]);
      };
      await joint.orExpired(async () => run(record, handle));
    } catch (error) {
      // Once the record was in their transaction, only the history can tell whether it was committed.
      return joint.failed(error, joint.isRecorded);
    }
    if (!joint.isRecorded) {
      const forgotten = `step "${joint.pending.id}" did not call record in its transaction, so nothing is recorded`;
      return joint.failed(new NonRetryableError(forgotten), false);
    }
    this.#running.delete(joint.pending);
    return joint.committed();
  }
}

const NO_LOCKS: readonly HeldLock[] = [];
/** How long `reconcile` may take, unless the step has a timeout. */
const RECONCILE_MS = 60_000;

const decidesOn =
  (at: Address): Prepare<Tx, object> =>
  (decide) => [decide as Decision<never>, [at]];

/** The attempt ended its transaction itself, or kept it for too long: nothing was written, and the store is not to blame. */
const isOwnFault = ({ code, data }: StoreError): boolean =>
  data.remedy === "fail" && (code === "store_refused" || code === "store_busy");

/** A function that continues after it has returned would do so outside of the transaction. */
function runSync(
  run: (db: SyncDatabase, step: StepHandle) => unknown,
  db: SyncDatabase | undefined,
  handle: StepHandle,
): unknown {
  if (db === undefined) throw new NonRetryableError("ctx.step.tx.sync needs SQLite: elsewhere, use ctx.step.tx");
  const given = run(db, handle);
  if (!isThenable(given)) return given;
  given.then(undefined, () => {});
  throw new NonRetryableError(
    "the function of ctx.step.tx.sync must be synchronous: for one that awaits, use ctx.step.tx",
  );
}
