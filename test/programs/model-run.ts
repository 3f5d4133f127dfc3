/**
 * A run of the model: what is pending, how a cancellation reaches it, and when it ends. These are the promises of workflows in their simplest form.
 */

import { PawlError } from "../../src/index.ts";
import type { ModelWorld } from "./model-world.ts";
import { CLOSE_MS } from "./model-world.ts";

export class ModelError extends PawlError<string, object> {
  constructor(code: string) {
    super(code, code, {});
  }
}

/** What is asked for through one `ctx`: the run's own, or that of a part which is shielded or can be canceled by itself. */
export interface Scope {
  readonly isShielded: boolean;
  /** It is shielded, and has ended. */
  isOver: boolean;
  isDropped: boolean;
}

/** When code asked for something. Each outcome begins a turn: what is asked for before the next one is of the same turn. */
export interface Turn {
  /** The world's. */
  readonly world: number;
  /** How many outcomes the run had before. */
  readonly outcomes: number;
  /** Whether one of them came at the same moment, after the code had asked for something. */
  readonly isLater: boolean;
  /** What is asked for without a pause has the same. */
  readonly stretch: object;
}

type Kind = "step" | "slot" | "rate" | "start" | "wait";

/** An operation of the model. It knows whether anybody looked at it. */
export class ModelOperation implements PromiseLike<unknown> {
  readonly kind: Kind;
  readonly scope: Scope;
  readonly turn: Turn;
  readonly #promise: Promise<unknown>;
  readonly #resolve: (value: unknown) => void;
  readonly #reject: (error: unknown) => void;
  readonly #settled: (operation: ModelOperation) => void;
  isObserved = false;
  /** Only a race observed it, and that is over: a message is for others. */
  isAbandoned = false;
  /** When the function returned and did not wait for it any more, and whether that was the turn in which it was asked for. */
  left: { readonly ms: number; readonly isOfTurn: boolean } | undefined;
  /** It was rejected as soon as it was asked for: nothing happened. */
  isRefused = false;
  /** It is a step under a semaphore. */
  needsPermit = false;
  settledMs: number | undefined;
  /** When another step of its name was asked for although nobody had awaited this one. */
  repeatedMs: number | undefined;
  /** It lost a `ctx.race`. */
  isDropped = false;
  askedMs = 0;
  /** When it ends by itself, if that is known. */
  dueMs: number | undefined;
  error: { readonly error: unknown } | undefined;
  /** Stops what runs for it; a step comes to its end first. */
  interrupt: ((error: unknown) => void) | undefined;
  /** Gives up what it stands for: a place in line, a child. */
  dropped: (() => void) | undefined;

  constructor(kind: Kind, scope: Scope, turn: Turn, settled: (operation: ModelOperation) => void) {
    const { promise, resolve, reject } = Promise.withResolvers<unknown>();
    promise.catch(() => {});
    this.kind = kind;
    this.scope = scope;
    this.turn = turn;
    this.#promise = promise;
    this.#resolve = resolve;
    this.#reject = reject;
    this.#settled = settled;
  }

  // biome-ignore lint/suspicious/noThenProperty: it is made to be awaited.
  then<A, B>(
    fulfilled?: ((value: unknown) => A | PromiseLike<A>) | null,
    rejected?: ((error: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    this.isObserved = true;
    return this.#promise.then(fulfilled, rejected) as Promise<A | B>;
  }

  resolve(value: unknown): void {
    if (this.settledMs !== undefined) return;
    this.#settled(this);
    // Code that awaits what the function did not wait for does not go on.
    if (this.left === undefined) this.#resolve(value);
  }

  reject(error: unknown): void {
    if (this.settledMs !== undefined) return;
    this.error = { error };
    this.#settled(this);
    if (this.left === undefined) this.#reject(error);
  }

  refuse(error: unknown): void {
    this.isRefused = true;
    this.reject(error);
  }
}

/** It is not waited for when the function has returned: a wait, or that for a turn, which is taken immediately. What is shielded is waited for. */
const isWait = ({ kind, scope }: ModelOperation): boolean =>
  (kind === "wait" || kind === "rate") && (!scope.isShielded || scope.isOver);

export type Outcome = { readonly ok: unknown } | { readonly error: unknown };

export class ModelRun {
  readonly id: string;
  readonly workflow: number;
  readonly input: unknown;
  readonly world: ModelWorld;
  readonly pending = new Set<ModelOperation>();
  readonly failed: ModelOperation[] = [];
  readonly counts = new Map<string, number>();
  /** Steps that have not come to their end, as they are counted. */
  readonly underWay = new Map<string, ModelOperation>();
  /** The last step of each name and id. */
  readonly lastSteps = new Map<string, ModelOperation>();
  readonly messages: string[] = [];
  readonly waits: { operation: ModelOperation; names: readonly string[]; receive: (name: string) => void }[] = [];
  /** Children that end with it, and locks to give back. */
  readonly atEnd: (() => void)[] = [];
  readonly whenEnded: ((outcome: Outcome, status: string) => void)[] = [];
  status: "running" | "completed" | "failed" | "canceled" | "timed_out" = "running";
  outcome: Outcome | undefined;
  #bodyOutcome: Outcome | undefined;
  #cancellation: { readonly error: ModelError; isDelivered: boolean } | undefined;
  #canceledMs: number | undefined;
  readonly #startedMs: number;
  #endedMs = 0;
  /** The turn in which a wait last found its signal there. */
  lastEarlyTurn = -1;
  /** The locks that it has asked for. */
  readonly wanted = new Set<string>();
  /** When it was given each lock that its code holds, by the operation. */
  readonly held = new Map<ModelOperation, number>();
  /** How many outcomes the code has received, and how many of them when it first asked for something at this moment. */
  #outcomes = 0;
  #moment = { world: -1, outcomes: 0 };
  #stretch: object | undefined;
  #lastSettledMs = Number.NEGATIVE_INFINITY;
  /** A step's function is being called. */
  isInStep = false;
  /** How much that is no operation of `ctx` its code awaits. */
  #foreign = 0;
  /** Shielded code that has not ended, and whether a cancellation waits for its end. */
  readonly #shields = new Set<{ isCanceled: boolean }>();

  constructor(world: ModelWorld, id: string, workflow: number, input: unknown) {
    this.world = world;
    this.#startedMs = world.nowMs;
    this.id = id;
    this.workflow = workflow;
    this.input = input;
  }

  /** The code asks for something. */
  ask(kind: Kind, scope: Scope): ModelOperation {
    if (this.isInStep) throw new ModelError("nested_operation");
    if (this.#bodyOutcome !== undefined) this.world.doubt("a branch that nobody awaits asked for more");
    if (this.outcome !== undefined) throw new ModelError("used_after_end");
    const operation = new ModelOperation(kind, scope, this.#turn(), (settled) => this.#settle(settled));
    operation.askedMs = this.world.nowMs;
    this.pending.add(operation);
    if (this.#foreign > 0 && isWait(operation)) this.#doubtForeign();
    const cancellation = this.#cancellation;
    if (cancellation !== undefined && !cancellation.isDelivered && !scope.isShielded) {
      cancellation.isDelivered = true;
      operation.refuse(cancellation.error);
    }
    return operation;
  }

  #turn(): Turn {
    const { turn: world } = this.world;
    if (this.#moment.world !== world) this.#moment = { world, outcomes: this.#outcomes };
    if (this.#stretch === undefined) {
      this.#stretch = {};
      queueMicrotask(() => {
        this.#stretch = undefined;
      });
    }
    const isLater = this.#outcomes > this.#moment.outcomes;
    return { world, outcomes: this.#outcomes, isLater, stretch: this.#stretch };
  }

  #settle(operation: ModelOperation): void {
    operation.settledMs = this.world.nowMs;
    if (this.world.nowMs - (operation.repeatedMs ?? Number.NEGATIVE_INFINITY) < CLOSE_MS)
      this.world.doubt("a step that nobody awaited ended close to another of its name");
    if (operation.left !== undefined) {
      const { ms, isOfTurn } = operation.left;
      if (operation.error !== undefined && !isOfTurn && !operation.isObserved && this.world.nowMs - ms < CLOSE_MS)
        this.world.doubt("a failure that nobody observed came close to the return");
      // Code that awaits it may have gone on before.
      if (operation.isObserved && this.world.nowMs - ms < CLOSE_MS)
        this.world.doubt("what the function did not wait for ended close to the return");
      return;
    }
    this.#lastSettledMs = this.world.nowMs;
    this.pending.delete(operation);
    // Before the code goes on because of it, and after what it is doing now.
    if (!operation.isRefused)
      queueMicrotask(() => {
        this.#outcomes += 1;
      });
    if (operation.error !== undefined) this.failed.push(operation);
    // What the cancellation interrupts settles with it. A step that was running may have ended before its run is told of the cancellation.
    const isInterrupted =
      operation.error?.error === this.#cancellation?.error && operation.settledMs === this.#canceledMs;
    if (this.#canceledMs !== undefined && !isInterrupted) this.#near(operation.settledMs);
    // The code may ask for more because of it.
    queueMicrotask(() => queueMicrotask(() => this.#endIfDone()));
  }

  #near(ms: number): void {
    if (this.#canceledMs !== undefined && ms - this.#canceledMs < CLOSE_MS)
      this.world.doubt("something ended close to the cancellation");
  }

  cancel(code: "run_canceled" | "run_timed_out"): void {
    if (this.outcome !== undefined && this.world.nowMs - this.#endedMs < CLOSE_MS)
      this.world.doubt("something ended close to the cancellation");
    if (this.outcome !== undefined || this.#cancellation !== undefined) return;
    if (this.world.nowMs - this.#startedMs < CLOSE_MS) this.world.doubt("a run was canceled as soon as it was started");
    const error = new ModelError(code);
    this.#cancellation = { error, isDelivered: false };
    this.#canceledMs = this.world.nowMs;
    if (this.world.nowMs - this.#lastSettledMs < CLOSE_MS)
      this.world.doubt("something ended close to the cancellation");
    for (const shield of this.#shields) {
      shield.isCanceled = true;
      this.#cancellation.isDelivered = true;
    }
    for (const operation of [...this.pending]) {
      if (operation.scope.isShielded) continue;
      this.#cancellation.isDelivered = true;
      if (operation.interrupt === undefined) operation.reject(error);
      else operation.interrupt(error);
    }
  }

  /** Its code awaits what is no operation of `ctx`. */
  awaitForeign(foreign: PromiseLike<unknown>): void {
    this.world.isLate = true;
    this.#foreign += 1;
    const settled = (): void => {
      this.#foreign -= 1;
    };
    foreign.then(settled, settled);
    for (const operation of this.pending) if (isWait(operation) && operation.isObserved) this.#doubtForeign();
  }

  /** Such a run rests although its code would continue by itself. Where the code is not kept, it does so only when what it waits for is over. */
  #doubtForeign(): void {
    this.world.doubt("something foreign beside what waits");
  }

  /** Runs shielded code. A cancellation that arrives meanwhile is thrown when it has ended. */
  async shielded(work: () => PromiseLike<unknown>): Promise<unknown> {
    const shield = { isCanceled: this.#cancellation?.isDelivered === false };
    if (this.#cancellation !== undefined) this.#cancellation.isDelivered = true;
    this.#shields.add(shield);
    let outcome: Outcome;
    try {
      outcome = { ok: await work() };
    } catch (error) {
      outcome = { error };
    }
    this.#shields.delete(shield);
    if (shield.isCanceled) throw this.#cancellation?.error;
    if ("error" in outcome) throw outcome.error;
    return outcome.ok;
  }

  /**
   * It was canceled, and its code never asked for anything again: it awaits something foreign that never comes. Such a run is parked, and one that is
   * parked ends with its cancellation, without its code.
   */
  get isStuck(): boolean {
    const { isDelivered, error } = this.#cancellation ?? {};
    return this.outcome === undefined && isDelivered === false && error?.code === "run_canceled";
  }

  returned(outcome: Outcome): void {
    this.#bodyOutcome = outcome;
    // A lock takes a commit, and the function may return with the one before: then what is done under the lock is never asked for.
    const isBranch = [...this.pending].some((operation) => !isWait(operation));
    if (isBranch && [...this.held.values()].some((ms) => this.world.nowMs - ms < CLOSE_MS))
      this.world.doubt("a branch that nobody awaits was given a lock close to the return");
    this.#leaveWaits();
    // What was asked for in the same turn is known by then.
    queueMicrotask(() => this.#endIfDone());
  }

  /** What only waits is not waited for when the function has returned, whatever else is to be done first. */
  #leaveWaits(): void {
    const returnedMs = this.world.nowMs;
    for (const { kind, isObserved, settledMs = Number.NEGATIVE_INFINITY } of this.failed)
      if (kind === "wait" && !isObserved && returnedMs - settledMs < CLOSE_MS)
        this.world.doubt("a failure that nobody observed came close to the return");
    for (const operation of [...this.pending]) {
      if (!isWait(operation)) continue;
      this.pending.delete(operation);
      operation.left = { ms: returnedMs, isOfTurn: operation.turn.outcomes === this.#outcomes };
    }
  }

  /** Ends when the steps, slot writes and turns that it asked for have settled and its children have been started. */
  #endIfDone(): void {
    if (this.#bodyOutcome === undefined || this.outcome !== undefined) return;
    for (const operation of this.pending) if (!isWait(operation) && !operation.scope.isDropped) return;
    let outcome = this.#bodyOutcome;
    const unobserved = this.failed.find(({ isObserved, scope }) => !isObserved && !scope.isDropped);
    if ("ok" in outcome && unobserved?.error !== undefined) outcome = unobserved.error;
    if (unobserved?.error !== undefined && unobserved.error.error === this.#cancellation?.error)
      this.world.doubt("a cancellation that nobody observed");
    const close = this.failed.filter(
      ({ isObserved, scope, settledMs = 0 }) =>
        !isObserved && !scope.isDropped && settledMs - (unobserved?.settledMs ?? 0) < CLOSE_MS,
    );
    if (close.length > 1) this.world.doubt("two failures that nobody observed came close together");
    this.outcome = outcome;
    this.#endedMs = this.world.nowMs;
    const { error: canceled } = this.#cancellation ?? {};
    if ("ok" in outcome) this.status = "completed";
    else if (outcome.error === canceled && canceled !== undefined)
      this.status = canceled.code === "run_timed_out" ? "timed_out" : "canceled";
    else this.status = "failed";
    for (const end of this.atEnd) end();
    for (const told of this.whenEnded) told(outcome, this.status);
  }

  /** The loser of a `ctx.race`: nobody waits for it any more. */
  drop(operation: ModelOperation): void {
    if (operation.settledMs !== undefined) return;
    operation.settledMs = this.world.nowMs;
    operation.isDropped = true;
    this.pending.delete(operation);
    operation.dropped?.();
    queueMicrotask(() => this.#endIfDone());
  }

  /** A message goes to the waits of the latest turn first, and to none that lost a race. */
  signal(name: string): void {
    // It may have been there before the other branch of the race was done.
    const isCloseLoser = this.waits.some(
      ({ operation: { isDropped, settledMs = 0 }, names }) =>
        isDropped && names.includes(name) && this.world.nowMs - settledMs < CLOSE_MS,
    );
    if (isCloseLoser) this.world.doubt("two branches of a race settled close together");
    const isClose = (ms = Number.POSITIVE_INFINITY): boolean => Math.abs(this.world.nowMs - ms) < CLOSE_MS;
    const isCloseToTimeout = this.waits.some(
      ({ operation: { dueMs, settledMs = this.world.nowMs }, names }) =>
        names.includes(name) && isClose(dueMs) && isClose(settledMs),
    );
    if (this.world.isLate && isCloseToTimeout)
      this.world.doubt("a signal came close to a timeout, after something foreign");
    if (this.outcome !== undefined) return;
    const waits = this.waits.filter(
      ({ operation, names }) => operation.settledMs === undefined && !operation.isAbandoned && names.includes(name),
    );
    const world = Math.max(...waits.map(({ operation }) => operation.turn.world));
    const latest = waits.filter(({ operation }) => operation.turn.world === world);
    const later = latest.filter(({ operation }) => operation.turn.isLater);
    if (new Set(later.map(({ operation }) => operation.turn.stretch)).size > 1)
      this.world.doubt("two waits for one signal were asked for close together");
    const [wait] = later.length > 0 ? later : latest;
    if (wait === undefined) this.messages.push(name);
    else wait.receive(name);
  }

  take(names: readonly string[]): string | undefined {
    const at = this.messages.findIndex((name) => names.includes(name));
    return at < 0 ? undefined : this.messages.splice(at, 1)[0];
  }
}
