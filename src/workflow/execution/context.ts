/**
 * `ctx`: what the code of a run works with. Everything here is recorded, so that it is the same again at replay.
 */

import {
  checkDate,
  checkDuration,
  checkFunction,
  checkId,
  checkList,
  checkOptions,
  type Duration,
  optionNames,
} from "../../kernel/check.ts";
import type { Sql, SyncDatabase } from "../../kernel/contract.ts";
import type { Sync, Tx } from "../../kernel/decision.ts";
import { InvalidArgumentError } from "../../kernel/errors.ts";
import { fingerprintOf, hash } from "../../kernel/fingerprint.ts";
import type { Origin } from "../../kernel/origin.ts";
import { checkSchemaNow } from "../../kernel/schema.ts";
import type { SqlExecutor } from "../../kernel/sql/executors.ts";
import { checkPermits, type LockSpec, lockRefs } from "../../lock/options.ts";
import { RateLimitedError } from "../../rate/errors.ts";
import type { RateLimitOptions } from "../../rate/rate.ts";
import { slotSpace, type TxSlot } from "../../slot/slot.ts";
import { type Aggregate, aggregateRules } from "../../stream/aggregate.ts";
import { executeIn, stateIn, tryExecuteIn } from "../../stream/aggregates.ts";
import type { NewEvent } from "../../stream/event.ts";
import { type AppendRequest, append } from "../../stream/records.ts";
import { streamAt } from "../../stream/stored.ts";
import { type AppendOptions, appendRequest, tryAppend } from "../../stream/stream.ts";
import type {
  AtMostOnceOptions,
  ChildOptions,
  Raced,
  Racing,
  Received,
  ReceivedFrom,
  ReceivedOrNot,
  RunAggregate,
  RunRateLimit,
  RunSlot,
  RunStream,
  SlotScope,
  StepFunction,
  StepOptions,
  Value,
  WithInput,
} from "../definitions/context-types.ts";
import {
  type Definition,
  definitionToStart,
  type Signal,
  signalName,
  type Workflow,
} from "../definitions/definition.ts";
import type { RatePlan, StepHandle, StepMode } from "../definitions/plans.ts";
import type { EventBody } from "../events.ts";
import { type LockBody, type RunAcquireOptions, type RunLock, type RunLockHold, runLock } from "../locks/held-locks.ts";
import { startFlow } from "../runs/start-flow.ts";
import { originOfRun, type RunValue } from "../stored.ts";
import { Branch } from "./branch.ts";
import type { Coroutine } from "./coroutine.ts";
import type { Turns } from "./engine.ts";
import { drive, isGenerator, Operation } from "./operation.ts";
import { checkStepName, planPlainly, planStep } from "./step-plan.ts";
import { isThenable } from "./steps.ts";
import { rateVerb } from "./verbs.ts";

const CHILD_OPTIONS = optionNames<ChildOptions>({ id: true, whenParentEnds: true });

const TIMEOUT_OPTIONS = optionNames<{ timeout?: unknown }>({ timeout: true });

const PERMITS_OPTIONS = optionNames<{ permits?: unknown }>({ permits: true });

const SLOT_OPTIONS = optionNames<SlotScope & { initial?: unknown }>({ scope: true, initial: true });

export class Context {
  readonly #coroutine: Coroutine;
  readonly #definition: Definition;
  readonly #value: RunValue;
  readonly #rates: Turns;
  readonly #emit: (event: EventBody) => void;
  readonly #branch: Branch;
  readonly #draws: { count: number };
  #step: StepFunction | undefined;

  /** @internal */
  constructor(
    coroutine: Coroutine,
    definition: Definition,
    value: RunValue,
    rates: Turns,
    emit: (event: EventBody) => void,
    within?: { readonly branch: Branch; readonly draws: { count: number } },
  ) {
    this.#branch = within?.branch ?? coroutine.root;
    this.#draws = within?.draws ?? { count: 0 };
    this.#coroutine = coroutine;
    this.#definition = definition;
    this.#value = value;
    this.#rates = rates;
    this.#emit = emit;
  }

  get runId(): string {
    return this.#coroutine.runId;
  }

  get workflow(): string {
    return this.#definition.name;
  }

  /** 1, and one more each time that the run was started again under its id after it had ended. */
  get incarnation(): number {
    return this.#value.incarnation;
  }

  /** When the run was to begin: the time of the tick, where a schedule started it. */
  get scheduledAt(): Date {
    const { tick, scheduledAtMs, startedAtMs } = this.#value;
    return new Date(tick?.atMs ?? scheduledAtMs ?? startedAtMs);
  }

  /**
   * The tick of the schedule before this one that started a run. Undefined for the first, for a run of a backfill, and for one that no schedule
   * started.
   */
  get lastScheduledAt(): Date | undefined {
    const lastMs = this.#value.tick?.lastMs;
    return lastMs === undefined ? undefined : new Date(lastMs);
  }

  /** Runs a function with side effects, and records its outcome. */
  get step(): StepFunction {
    this.#step ??= this.#makeStep();
    return this.#step;
  }

  #makeStep(): StepFunction {
    const ask = <T>(name: string, mode: StepMode, options: StepOptions | undefined): Operation<T> =>
      this.#askStep<T>(name, mode, options);
    const step = <T>(
      name: string,
      run: (step: StepHandle) => T | PromiseLike<T>,
      options?: StepOptions,
    ): Operation<T> => ask<T>(name, { is: "plain", run }, options);
    const tx = <T>(
      name: string,
      run: (sql: Sql, step: StepHandle) => T | PromiseLike<T>,
      options?: StepOptions,
    ): Operation<T> => ask<T>(name, { is: "sql", run }, options);
    const sync = <T>(
      name: string,
      run: (db: SyncDatabase, step: StepHandle) => Sync<T>,
      options?: StepOptions,
    ): Operation<T> => ask<T>(name, { is: "sync", run }, options);
    const within = <T>(
      name: string,
      run: (record: (executor: SqlExecutor, value: T) => Promise<void>, step: StepHandle) => PromiseLike<unknown>,
      options?: StepOptions,
    ): Operation<T> => {
      checkFunction(run, "what the step does");
      const mode: StepMode = {
        is: "within",
        run: (record, handle) => run((executor, value) => record(executor, value), handle),
      };
      return ask<T>(name, mode, options);
    };
    const atMostOnce = <T>(
      name: string,
      run: (step: StepHandle) => T | PromiseLike<T>,
      options?: AtMostOnceOptions<T>,
    ): Operation<T> => ask<T>(name, { is: "once", run, reconcile: options?.reconcile }, options);
    return Object.assign(step, { tx: Object.assign(tx, { sync, within }), atMostOnce });
  }

  #askStep<T>(name: string, mode: StepMode, options: StepOptions | undefined): Operation<T> {
    const named = checkStepName(name);
    const { retry } = this.#definition;
    if (options === undefined) return this.#coroutine.ask<T>(named, planPlainly(mode, retry), undefined, this.#branch);
    // Everything is checked before anything is started: inside the run's branch, or in an attempt, it would be too late.
    const { plan, id, semaphore } = planStep(mode, options, retry, this.#rates);
    if (semaphore === undefined) return this.#coroutine.ask<T>(named, plan, id, this.#branch);
    return this.#branched(`step "${named}"`, "step", (ctx) =>
      ctx
        .semaphore(semaphore.name, { permits: semaphore.permits })
        .with(() => this.#coroutine.ask<T>(named, plan, id, ctx.#branch)),
    );
  }

  /** At most `max` per `per`, for all runs and processes together. */
  rateLimit(name: string, options: RateLimitOptions): RunRateLimit {
    const limit = this.#rates.limit(name, options);
    return {
      acquire: (request = {}) => {
        limit.checkWish?.(request);
        const branch = new Branch(this.#branch);
        return this.#coroutine.compose(`rate limit "${name}"`, branch, async () => {
          const reserve: RatePlan["reserve"] = (tx) => limit.reserveIn(tx, request);
          const plan = { kind: "rate", verb: rateVerb(request), reserve } as const;
          type Turn = { isGranted: boolean; waitMs: number; atMs: number };
          const { isGranted, waitMs, atMs } = await this.#coroutine.ask<Turn>(name, plan, undefined, branch);
          if (!isGranted) throw new RateLimitedError(name, waitMs);
          if (waitMs > 0) await this.#coroutine.ask("", { kind: "sleep", ms: null, untilMs: atMs }, undefined, branch);
          return { waitedMs: waitMs };
        });
      },
    };
  }

  /** Waits, for milliseconds or for years; no process is needed meanwhile. */
  sleep(duration: Duration): Operation<void> {
    const plan = { kind: "sleep", ms: checkDuration(duration, "the sleep"), untilMs: null } as const;
    return this.#coroutine.ask("", plan, undefined, this.#branch);
  }

  sleepUntil(time: Date | number): Operation<void> {
    const untilMs = checkDate(time, "the time to sleep until");
    return this.#coroutine.ask("", { kind: "sleep", ms: null, untilMs }, undefined, this.#branch);
  }

  /** Waits for a signal; one that came early is received immediately. With a timeout, the result says whether it came. */
  waitForSignal<T, Name extends string>(signal: Signal<T, Name>): Operation<Received<T, Name>>;
  waitForSignal<T, Name extends string>(
    signal: Signal<T, Name>,
    options: { readonly timeout?: Duration | undefined },
  ): Operation<ReceivedOrNot<T, Name>>;
  waitForSignal(
    signal: Signal<unknown>,
    options?: { readonly timeout?: Duration | undefined },
  ): Operation<ReceivedOrNot<unknown>> {
    return this.waitForAny([signal], options ?? {});
  }

  /**
   * Waits for one of several signals. `signal` of the result is the name of the one that came: comparing it narrows `value` where the names
   * are known as types, and `approved.is(received)` narrows it for every signal.
   */
  waitForAny<const S extends readonly Signal<unknown>[]>(signals: readonly [...S]): Operation<ReceivedFrom<S>>;
  waitForAny<const S extends readonly Signal<unknown>[]>(
    signals: readonly [...S],
    options: { readonly timeout?: Duration | undefined },
  ): Operation<ReceivedFrom<S> | { readonly ok: false; readonly reason: "timeout" }>;
  waitForAny(
    signals: readonly Signal<unknown>[],
    options: { readonly timeout?: Duration | undefined } = {},
  ): Operation<ReceivedOrNot<unknown>> {
    checkList(signals, "the signals");
    checkOptions(options, TIMEOUT_OPTIONS);
    const names = signals.map(signalName);
    if (names.length === 0) throw new InvalidArgumentError("the signals", "must be at least one");
    const { timeout } = options;
    const timeoutMs = timeout === undefined ? null : checkDuration(timeout, "the timeout");
    return this.#coroutine.ask(names.join(" | "), { kind: "signal", names, timeoutMs }, undefined, this.#branch);
  }

  /** Runs another workflow as a child, and waits for its result. */
  call<Input, Output>(
    workflow: Workflow<Input, Output>,
    ...[input, options]: WithInput<Input, ChildOptions>
  ): Operation<Output> {
    return this.#child<Output>(workflow, input, options, true);
  }

  /** Starts another workflow as a child, and returns its run id. */
  start<Input, Output>(
    workflow: Workflow<Input, Output>,
    ...[input, options]: WithInput<Input, ChildOptions>
  ): Operation<string> {
    return this.#child<string>(workflow, input, options, false);
  }

  #child<T>(
    workflow: { readonly name: string },
    input: unknown,
    options: ChildOptions | undefined,
    waits: boolean,
  ): Operation<T> {
    const name = checkId(workflow?.name, "the workflow");
    checkOptions(options, CHILD_OPTIONS);
    const whenParentEnds = options?.whenParentEnds ?? (waits ? "cancel" : "leave");
    if (whenParentEnds !== "cancel" && whenParentEnds !== "leave")
      throw new InvalidArgumentError("whenParentEnds", 'must be "cancel" or "leave"');
    const definition = definitionToStart(workflow);
    const childId = options?.id === undefined ? undefined : checkId(options.id, "the child's id");
    const checked = checkSchemaNow(definition?.input, input, `the input of "${name}"`);
    this.#rates.checkValue?.(checked);
    const plan = {
      kind: "child",
      workflow: name,
      childId,
      input: checked,
      fingerprint: childId === undefined ? null : fingerprintOf(checked),
      timeoutMs: definition?.timeoutMs ?? null,
      flow:
        definition?.flow === undefined
          ? undefined
          : startFlow(definition.flow, checked, {}, (name, figures) => this.#rates.limit(name, figures)),
      waits,
      whenParentEnds,
    } as const;
    return this.#coroutine.ask<T>(name, plan, undefined, this.#branch);
  }

  /** A shared value: each verb is one record of the run, and takes effect once. */
  slot<T>(name: string, options: SlotScope & { readonly initial: T }): RunSlot<T, never>;
  slot<T>(name: string, options?: SlotScope): RunSlot<T>;
  slot<T>(name: string, options: SlotScope & { readonly initial?: T } = {}): RunSlot<T, undefined> {
    const key = checkId(name, "the slot's name");
    checkOptions(options, SLOT_OPTIONS);
    const { scope = "run", initial } = options;
    this.#rates.checkValue?.(initial);
    if (scope !== "run" && scope !== "workflow" && scope !== "global")
      throw new InvalidArgumentError("the slot's scope", 'must be "run", "workflow" or "global"');
    const space = slotSpace(scope, scope === "run" ? (this.#value.root ?? this.runId) : this.workflow);
    const ask = <R>(is: string, act: (slot: TxSlot<unknown, unknown>) => unknown): Operation<R> => {
      const verb = scope === "run" ? is : `${is} ${scope}`;
      return this.#coroutine.ask<R>(key, { kind: "slot", space, key, initial, verb, act }, undefined, this.#branch);
    };
    return {
      get: () => ask("get", (slot) => slot.get()),
      set: (value, expecting) => ask("set", (slot) => slot.set(value, expecting)),
      trySet: (value, expecting) => ask("trySet", (slot) => slot.trySet(value, expecting)),
      update: (change) => ask("update", (slot) => slot.update(change as (value: unknown) => unknown)),
      delete: (expecting) => ask("delete", (slot) => slot.delete(expecting)),
    };
  }

  /** A stream: each verb is one record of the run, and takes effect once. The events have the run's origin. */
  stream(id: string): RunStream {
    const { key } = streamAt(id);
    const request = (events: readonly NewEvent[], options: AppendOptions | undefined): AppendRequest => {
      const checked = appendRequest(key, events, options);
      for (const { data } of checked.events) this.#rates.checkValue?.(data);
      return checked;
    };
    return {
      append: (events, options) => {
        const given = request(events, options);
        return this.#onStream(key, "append", (tx) => append(tx, given));
      },
      tryAppend: (events, options) => {
        const given = request(events, options);
        return this.#onStream(key, "tryAppend", (tx) => tryAppend(tx, given));
      },
      head: () => this.#onStream(key, "head", (tx) => tx.record(streamAt(key)).head),
    };
  }

  /** A stream as an aggregate sees it: each verb is one record of the run, and takes effect once. */
  aggregate<State, Commands>(aggregate: Aggregate<State, Commands>, stream: string): RunAggregate<State, Commands> {
    const rules = aggregateRules(aggregate);
    const { key } = streamAt(stream);
    const ask = <R>(is: string, act: (tx: Tx) => unknown): Operation<R> =>
      this.#onStream(key, `${is} ${rules.name}`, act);
    return {
      execute: (command, ...rest) =>
        ask(`execute ${String(command)}`, (tx) => executeIn(tx, rules, key, command, rest)),
      tryExecute: (command, ...rest) =>
        ask(`tryExecute ${String(command)}`, (tx) => tryExecuteIn(tx, rules, key, command, rest)),
      state: () => ask("state", (tx) => stateIn(tx, rules, key)),
    };
  }

  #onStream<R>(stream: string, verb: string, act: (tx: Tx) => unknown): Operation<R> {
    return this.#coroutine.ask<R>(stream, { kind: "stream", stream, verb, act }, undefined, this.#branch);
  }

  /** The origin of what this run does, to be passed on in a step: `pawl.with(ctx.origin)`. */
  get origin(): Origin {
    return originOfRun(this.runId, this.#value);
  }

  /**
   * Runs the code while the lock is held, across steps, sleeps and crashes; several locks are acquired together or not at all. Hand the fence to
   * what the lock protects. Throws `lock_lost` if the lock was taken away meanwhile.
   */
  lock<T>(
    names: string | readonly string[],
    code: (hold: RunLockHold) => LockBody<T>,
    options?: RunAcquireOptions,
  ): Operation<T> {
    return this.mutex(names).with(code, options);
  }

  /** A lock that one at a time holds. */
  mutex(names: string | readonly string[]): RunLock {
    return this.#locks({ refs: lockRefs("mutex", names), mode: "exclusive", permits: null });
  }

  /**
   * A lock that at most `permits` hold at the same time. Default: as many as were declared; throws `permits_undeclared` where none
   * were.
   */
  semaphore(name: string, options: { readonly permits?: number | undefined } = {}): RunLock {
    checkOptions(options, PERMITS_OPTIONS);
    const permits = checkPermits(options.permits);
    const spec = { refs: lockRefs("semaphore", name), mode: "shared", permits } as const;
    // A replay declares nothing new.
    return runLock(
      this.#coroutine,
      this.#branch,
      spec,
      () => permits !== null && !this.#coroutine.isReplaying && this.#rates.declares(name, permits),
    );
  }

  /** A lock that many readers hold at a time, or one writer. */
  rwlock(name: string): { readonly read: RunLock; readonly write: RunLock } {
    const refs = lockRefs("rwlock", name);
    return {
      read: this.#locks({ refs, mode: "shared", permits: null }),
      write: this.#locks({ refs, mode: "exclusive", permits: null }),
    };
  }

  #locks(spec: LockSpec): RunLock {
    return runLock(this.#coroutine, this.#branch, spec, () => false);
  }

  /** The time, the same again at replay. */
  now(): Date {
    this.#coroutine.checkPlace("ctx.now()", "new Date()");
    return new Date(this.#coroutine.nowMs());
  }

  /** At least 0 and below 1, the same again at replay. */
  random(): number {
    this.#coroutine.checkPlace("ctx.random()", "Math.random()");
    return Number.parseInt(this.#draw().slice(0, 12), 16) / 2 ** 48;
  }

  /** An unguessable id, the same again at replay. */
  uuid(): string {
    this.#coroutine.checkPlace("ctx.uuid()", "crypto.randomUUID()");
    const hex = this.#draw();
    const variant = ((Number.parseInt(hex.slice(16, 17), 16) & 3) | 8).toString(16);
    return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-4${hex.slice(13, 16)}-${variant}${hex.slice(17, 20)}-${hex.slice(20, 32)}`;
  }

  #draw(): string {
    this.#draws.count += 1;
    return hash(this.#value.seed, String(this.#draws.count));
  }

  /** Emits an event to the worker's listener, once: not again at replay. */
  log(message: string, data?: unknown): void {
    if (this.#coroutine.driver !== undefined && !this.#coroutine.isReplaying)
      this.#emit({ type: "log", message, ...(data === undefined ? {} : { data }) });
  }

  /**
   * Code that a cancellation does not interrupt: what it starts through its own `ctx` runs normally. The cancellation is thrown where it is
   * awaited, when it has ended; `data.outcome` has its outcome.
   */
  shield<T>(code: (ctx: Context) => LockBody<T>): Operation<T> {
    checkFunction(code, "what to shield");
    return this.#branched("shielded code", "shielded", code);
  }

  /** Runs code with a `ctx` of its own, as one operation. */
  #branched<T>(shown: string, is: "plain" | "shielded" | "step", code: (ctx: Context) => LockBody<T>): Operation<T> {
    const branch = new Branch(this.#branch, is);
    const within = { branch, draws: this.#draws };
    const ctx = new Context(this.#coroutine, this.#definition, this.#value, this.#rates, this.#emit, within);
    const run = async () => {
      const given = code(ctx);
      return isGenerator(given) ? (drive(given) as Promise<T>) : given;
    };
    if (is !== "shielded") return this.#coroutine.compose(shown, branch, run);
    const shielded = () =>
      this.#coroutine.shielded(this.#branch, run).finally(() => {
        branch.isOver = true;
      });
    // Shielded code that lost a race still runs to its end.
    return this.#coroutine.compose(shown, branch, shielded, () => {});
  }

  /** All of them, as `Promise.all`; for `yield*`. A value counts as a promise of it. */
  all<T extends readonly unknown[] | []>(operations: T): Operation<{ -readonly [K in keyof T]: Awaited<T[K]> }> {
    checkOperations(operations);
    return this.#combined(operations, Promise.all(operations));
  }

  /**
   * The first to settle, as `Promise.race`; the others are canceled. Sleeps and signals are no longer waited for, running steps are aborted
   * and not waited for, children are canceled. A function gets a `ctx` of its own: what it waits for through that is canceled when it loses.
   * A value counts as a promise of it.
   */
  race<const O extends readonly (Racing<unknown> | Value)[]>(operations: O): Operation<Raced<O[number]>>;
  race<T>(operations: readonly (Racing<T> | (T & Value))[]): Operation<T>;
  race<T>(operations: readonly (Racing<T> | (T & Value))[]): Operation<T> {
    checkList(operations, "the operations");
    const racing = operations.map((one): PromiseLike<T> => {
      if (typeof one === "function")
        return this.#branched("a branch of a race", "plain", one as (ctx: Context) => LockBody<T>);
      return isThenable(one) ? (one as PromiseLike<T>) : Promise.resolve(one as T);
    });
    let winner: unknown;
    for (const one of racing) {
      const settled = (): void => {
        winner ??= one;
      };
      one.then(settled, settled);
    }
    const coroutine = this.#coroutine;
    const interruptions = coroutine.interruptions(this.#branch);
    let isCanceled = false;
    const first = Promise.race(racing).finally((): unknown => {
      const isInterrupted = isCanceled || coroutine.interruptions(this.#branch) > interruptions;
      // All of them were canceled, with the code around the race: they clean up, and that is waited for.
      if (isInterrupted) return Promise.allSettled(racing.filter((one) => one instanceof Operation));
      cancelAll(racing.filter((one) => one !== winner));
      return undefined;
    });
    return this.#combined(racing, first, () => {
      isCanceled = true;
    });
  }

  /** All of them, however they end, as `Promise.allSettled`; for `yield*`. */
  allSettled<T>(operations: readonly (T | PromiseLike<T>)[]): Operation<PromiseSettledResult<T>[]> {
    checkOperations(operations);
    return this.#combined(operations, Promise.allSettled(operations));
  }

  #combined<T>(operations: readonly unknown[], promise: Promise<T>, canceled?: () => void): Operation<T> {
    promise.catch(() => {});
    const cancel = (): void => {
      canceled?.();
      cancelAll(operations);
    };
    return this.#coroutine.compose("several operations", this.#branch, () => promise, cancel);
  }
}

/** A function would be taken for a value, and never be called; only `ctx.race` takes functions. */
function checkOperations(operations: readonly unknown[]): void {
  checkList(operations, "the operations");
  if (operations.some((one) => typeof one === "function"))
    throw new InvalidArgumentError("the operations", "must be promises, not functions: call them");
}

function cancelAll(operations: readonly unknown[]): void {
  for (const one of operations) if (one instanceof Operation) one.cancel();
}
