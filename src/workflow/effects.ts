/**
 * Effects: the steps of one run that are under way in this process, of all three kinds.
 *
 * A step is begun when everything before it is durable. Its outcome, a failed attempt that is tried again much later, and its progress
 * are handed back as arrivals for the history. What may have happened in an earlier life is never done again on a guess.
 */

import type { Address, Sql, SyncDatabase } from "../kernel/contract.ts";
import type { Decision, Tx } from "../kernel/decision.ts";
import { LeaseUncertainError, StoreError } from "../kernel/errors.ts";
import { hash } from "../kernel/fingerprint.ts";
import { type Prepare, runInSql } from "../kernel/in-sql.ts";
import type { Kernel } from "../kernel/kernel.ts";
import type { HeldLock } from "../kernel/ports.ts";
import { executorOf } from "../kernel/sql.ts";
import type { Asked, Coroutine } from "./coroutine.ts";
import { NonRetryableError } from "./errors.ts";
import type { RunListener, Told } from "./events.ts";
import { type JointHost, JointStep } from "./joint-step.ts";
import { storable, storedAs, unstorableResult } from "./outcome.ts";
import type { StepHandle, StepPlan, WithinRun } from "./plans.ts";
import { isThenable, NotBegun, type StepHost, StepRun } from "./steps.ts";
import type { Word } from "./words.ts";

/** What effects need of the run they are in. */
export interface EffectsHost extends JointHost {
  readonly kernel: Kernel;
  readonly at: Address;
  readonly incarnation: number;
  readonly workflow: string;
  readonly coroutine: Coroutine;
  readonly isOver: boolean;
  readonly around: RunListener["around"];
  /** The store's clock, as well as it is known here. */
  nowMs(): number;
  /** The same when this process took the run. */
  readonly claimedAtMs: number;
  /** Something for the history, and for the code. */
  arrive(asked: Asked, word: Word, data: unknown, text: string): void;
  /** Reserves a turn in a rate limit. */
  reserveTurn(plan: StepPlan): Promise<number>;
  /** It was not done, and nothing is said about it: to be begun again, here or elsewhere. */
  undone(asked: Asked): void;
  park(reason: string): void;
  tell(event: Told): void;
}

/** A step's progress is written no more often than this. */
const PROGRESS_MS = 1000;

export class Effects implements StepHost {
  readonly #host: EffectsHost;
  readonly #running = new Map<Asked, StepRun>();
  /** Intents that were written in this life: to be acted on without asking. */
  readonly #intents = new Set<Asked>();
  /** Steps whose progress was written a moment ago, with what they said since. */
  readonly #progress = new Map<Asked, string | null>();
  #isShuttingDown = false;

  constructor(host: EffectsHost) {
    this.#host = host;
  }

  get isIdle(): boolean {
    return this.#running.size === 0;
  }

  has(asked: Asked): boolean {
    return this.#running.has(asked);
  }

  get clock(): Kernel["ports"]["clock"] {
    return this.#host.kernel.ports.clock;
  }

  nowMs(): number {
    return this.#host.nowMs();
  }

  random(): number {
    return this.#host.kernel.ports.chance.random();
  }

  /** The intent of this step has just been written. */
  intended(asked: Asked): void {
    asked.hasIntent = true;
    this.#intents.add(asked);
  }

  begin(asked: Asked, plan: StepPlan): void {
    const step = new StepRun(this, asked, plan);
    this.#running.set(asked, step);
    if (asked.isCanceled) step.abort(this.#host.coroutine.canceled);
    const { mode } = plan;
    // Another process may have begun it, when it was asked for; of what was begun before a retry, nothing counts.
    const sinceMs = Math.max(asked.sinceMs, this.#host.coroutine.retriedAtMs);
    if (plan.totalTimeoutMs !== null && !asked.isPostponed && sinceMs < this.#host.claimedAtMs)
      asked.firstAttemptMs ??= sinceMs;
    switch (mode.is) {
      case "plain":
        step.try(mode.run);
        return;
      case "once":
        // An intent of this very life is the one to act on; one from before may have been acted on.
        if (!asked.hasIntent || this.#intents.has(asked)) step.try(mode.run);
        else void this.#reconcile(asked, step, plan);
        return;
      case "sql":
        step.try((handle) => this.#inSql(new JointStep(this.#host, asked, step), (sql) => mode.run(sql, handle)));
        return;
      case "sync":
        step.try((handle) =>
          this.#inSql(new JointStep(this.#host, asked, step), (_, db) => runSync(mode.run, db, handle)),
        );
        return;
      case "within":
        step.try((handle) => this.#inTheirs(new JointStep(this.#host, asked, step), mode.run, handle));
        return;
    }
  }

  /** Tells a step to stop, if it runs; its end is waited for. */
  abort(asked: Asked, reason: unknown): void {
    this.#running.get(asked)?.abort(reason);
  }

  /** The run does not want it any more: it is told to stop, and its outcome is ignored. */
  cancel(asked: Asked, reason: unknown): void {
    this.#running.get(asked)?.drop(reason);
    this.#running.delete(asked);
  }

  /** The worker waits no longer: what runs is told to stop, and whatever becomes of it is another's to do again. */
  shutDown(reason: unknown): void {
    this.#isShuttingDown = true;
    for (const step of [...this.#running.values()]) step.abort(reason);
  }

  /** The run is given up here: nothing more is heard of what runs. */
  drop(reason: unknown): void {
    for (const step of this.#running.values()) step.drop(reason);
    this.#running.clear();
  }

  async #reconcile(asked: Asked, step: StepRun, plan: StepPlan): Promise<void> {
    if (plan.mode.is !== "once") return;
    const { reconcile, run } = plan.mode;
    let said: Partial<{ readonly done: unknown; readonly value: unknown; readonly unknown: unknown }> = {
      unknown: true,
    };
    let trouble = "";
    if (reconcile !== undefined)
      try {
        // Whatever it gives: only a clear answer is one.
        said = Object(await this.#answerOf(asked, plan, reconcile));
        if (typeof said.done !== "boolean" && said.unknown !== true)
          trouble = " (reconcile must return { done: true, value }, { done: false } or { unknown: true })";
      } catch (error) {
        said = { unknown: true };
        trouble = ` (reconcile threw: ${error instanceof Error ? error.message : String(error)})`;
      }
    if (this.#host.isOver) return;
    if (said.done === true) return this.succeeded(asked, said.value);
    if (said.done === false) return step.try(run);
    this.#running.delete(asked);
    const how = `find out, then call run.resolveStep("${asked.id}", { done: true, value }) or { done: false }`;
    this.#host.park(`step "${asked.id}" may or may not have happened${trouble}: ${how}`);
  }

  /** What `reconcile` says within the step's timeout, or a minute. */
  async #answerOf(
    asked: Asked,
    plan: StepPlan,
    reconcile: (step: { readonly key: string }) => unknown,
  ): Promise<unknown> {
    const limitMs = plan.timeoutMs ?? RECONCILE_MS;
    const late = Promise.withResolvers<never>();
    const cancel = this.clock.after(limitMs, () => late.reject(new Error(`no answer within ${limitMs} ms`)));
    try {
      return await Promise.race([reconcile({ key: this.keyOf(asked) }), late.promise]);
    } finally {
      cancel();
    }
  }

  // What a step tells.

  keyOf(asked: Asked): string {
    const { kernel, at, incarnation } = this.#host;
    return hash(kernel.namespace, at.key, String(incarnation), asked.id);
  }

  attempted(asked: Asked, attempt: number): void {
    this.#host.tell({ type: "step.started", step: asked.id, attempt });
  }

  call(asked: Asked, run: (step: StepHandle) => unknown, step: StepHandle): unknown {
    const { holding } = this.#host.kernel.ports;
    // Code that starts or signals a run under a lock does not hold the lock for its steps.
    if (holding?.current() === undefined) return this.#call(asked, run, step);
    return holding.run(NO_LOCKS, () => this.#call(asked, run, step));
  }

  #call(asked: Asked, run: (step: StepHandle) => unknown, step: StepHandle): unknown {
    const { around, workflow, at, kernel } = this.#host;
    const { bodies } = kernel.ports;
    const inPlace = (): unknown =>
      bodies === undefined ? run(step) : bodies.run({ run: at.key, step: asked.id }, () => run(step));
    if (around === undefined) return inPlace();
    const { attempt } = step;
    return around({ type: "step.started", workflow, run: at.key, step: asked.id, attempt }, inPlace);
  }

  reserveTurn(plan: StepPlan): Promise<number> {
    return this.#host.reserveTurn(plan);
  }

  usedLate(asked: Asked, attempt: number, what: string): void {
    const message = `${what} was called after attempt ${attempt} of step "${asked.id}" was over: it has no effect`;
    this.#host.tell({ type: "run.warning", step: asked.id, attempt, message });
  }

  retried(asked: Asked, error: unknown): void {
    if (!this.#host.isOver) this.#host.tell({ type: "step.retried", step: asked.id, error, attempt: asked.attempts });
  }

  succeeded(asked: Asked, value: unknown): void {
    this.#running.delete(asked);
    const { kernel, at, isOver } = this.#host;
    if (isOver) return;
    let text: string;
    try {
      text = kernel.encode(at, { ok: value });
    } catch (error) {
      this.failed(asked, unstorableResult(error, `step "${asked.id}"`));
      return;
    }
    this.#host.tell({ type: "step.completed", step: asked.id });
    this.#host.arrive(asked, "step", kernel.decodeFresh(at, text), text);
  }

  failed(asked: Asked, error: unknown): void {
    this.#running.delete(asked);
    const { kernel, at, isOver } = this.#host;
    if (isOver) return;
    if (this.#isShuttingDown && !asked.isCanceled) {
      this.#host.undone(asked);
      return;
    }
    const text = storable(kernel, at, { error });
    this.#host.tell({ type: "step.failed", step: asked.id, error });
    this.#host.arrive(asked, "step", kernel.decodeFresh(at, text), text);
  }

  postponed(asked: Asked, error: unknown, delayMs: number): void {
    this.#running.delete(asked);
    const { kernel, at, isOver } = this.#host;
    if (isOver) return;
    this.#host.tell({ type: "step.retried", step: asked.id, error, attempt: asked.attempts });
    const dueMs = this.#host.nowMs() + delayMs;
    const data = { ...this.#attemptsOf(asked), ...storedAs(kernel, at, { error }), dueMs };
    this.#host.arrive(asked, "attempt", data, kernel.encode(at, data));
  }

  deferred(asked: Asked, delayMs: number): void {
    this.#running.delete(asked);
    const { kernel, at, isOver } = this.#host;
    if (isOver) return;
    const data = { ...this.#attemptsOf(asked), dueMs: this.#host.nowMs() + delayMs, hasTurn: true };
    this.#host.arrive(asked, "attempt", data, kernel.encode(at, data));
  }

  hasTurn(asked: Asked): void {
    this.#running.delete(asked);
    asked.hasTurn = true;
    asked.nextAttemptMs = null;
    if (!this.#host.isOver) this.#host.undone(asked);
  }

  #attemptsOf({ attempts, firstAttemptMs }: Asked): { readonly attempts: number; readonly firstMs?: number } {
    return { attempts, ...(firstAttemptMs === undefined ? {} : { firstMs: firstAttemptMs }) };
  }

  /** Written at once, and then no more often than once in a while: the last one counts. */
  progressed(asked: Asked, progress: unknown): void {
    const { kernel, at, coroutine, isOver } = this.#host;
    if (isOver) return;
    const text = kernel.encode(at, progress);
    // The next attempt in this process has it at once.
    asked.progress = kernel.decodeFresh(at, text);
    const isWaiting = this.#progress.has(asked);
    this.#progress.set(asked, isWaiting ? text : null);
    if (isWaiting) return;
    this.#host.arrive(asked, "progress", kernel.decodeFresh(at, text), text);
    this.clock.after(PROGRESS_MS, () => {
      const latest = this.#progress.get(asked);
      this.#progress.delete(asked);
      if (typeof latest === "string" && !asked.isAnswered && coroutine.waiting.get(asked.text) === asked)
        this.progressed(asked, kernel.decodeFresh(at, latest));
    });
  }

  // Steps in a transaction.

  /** The user's SQL and the step's record in one transaction. */
  async #inSql(joint: JointStep, work: (sql: Sql, db: SyncDatabase | undefined) => unknown): Promise<unknown> {
    const { kernel, at } = this.#host;
    let hasBegun = false;
    try {
      // Where there is one writer at a time, whoever has the transaction must not wait for our own commits.
      if (kernel.isSingleWriter) await joint.enter();
      await kernel.share((sql, join, db) =>
        runInSql(sql, join, decidesOn(at), async (sql, decide) => {
          // The connection may have been long in coming.
          if (this.#host.isOver) throw new LeaseUncertainError();
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
    this.#running.delete(joint.asked);
    return joint.committed();
  }

  /** The same in a transaction that the user's own library opens. */
  async #inTheirs(joint: JointStep, run: WithinRun, handle: StepHandle): Promise<unknown> {
    const { kernel, at } = this.#host;
    try {
      if (kernel.isSingleWriter) await joint.enter();
      const record: Parameters<WithinRun>[0] = async (executor, value) => {
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
      const forgotten = `step "${joint.asked.id}" did not call record in its transaction, so nothing is recorded`;
      return joint.failed(new NonRetryableError(forgotten), false);
    }
    this.#running.delete(joint.asked);
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

/** A function that goes on after it has answered would go on outside of the transaction. */
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
    "the function of ctx.step.tx.sync must answer at once: for one that waits, use ctx.step.tx",
  );
}
