/**
 * A coroutine: the code of one run in memory, with the operations that it has started and that have no outcome yet.
 *
 * Facts are applied one at a time, and the code runs as far as it can before the next one comes. The first time and at replay it is the
 * same facts in the same order, so it is the same code path: `Promise.all`, `race` and branches settle the same. A coroutine has no
 * effects and writes nothing; the execution that drives it does (`execution.ts`).
 *
 * After a `retry`, what the history had before it is not a path to follow but a memory: an operation that the code starts again, in
 * whatever order, gets the facts that are remembered of it before anything new happens (`memory.ts`). What was forgotten is done again.
 *
 * Guarantees: a fact about an operation that the code did not start is refused, with both sides (G23); a cancellation is delivered once, to
 * what the code awaits when it arrives (G15).
 */

import { LazyMap, LazySet } from "../../kernel/lazy.ts";
import { withItem } from "../../kernel/list.ts";
import type { RunLocation } from "../../kernel/ports.ts";
import type { Definition } from "../definitions/definition.ts";
import type { LockPlan, Plan } from "../definitions/plans.ts";
import {
  ForeignContextError,
  HistoryContradictionError,
  NestedOperationError,
  RaceLostError,
  StepInFlightError,
  UsedAfterEndError,
} from "../errors.ts";
import { Mail, SignalWaits } from "../history/inbox.ts";
import { usable } from "../history/outcome.ts";
import { LockQueues } from "../locks/lock-queues.ts";
import type { Denial } from "../locks/locks.ts";
import {
  type ChildStart,
  isOperationWord,
  isWord,
  type Outcome,
  operationId,
  parseFact,
  WORDS,
  type Word,
} from "../stored.ts";
import { Branch } from "./branch.ts";
import { type CancelData, Cancellation } from "./cancellation.ts";
import { Children, type LivingChild } from "./children.ts";
import type { Context } from "./context.ts";
import { type Fact, Failures, type Forgettable, Memory, messageOf, textOf } from "./memory.ts";
import { drive, isGenerator, Operation, type Reaction, type Tracked } from "./operation.ts";
import { type Counted, PendingOperation, type Watched, type Written } from "./pending.ts";
import { Races } from "./races.ts";
import { deniedAs, isInterruptible, isWork } from "./rules.ts";
import { isAbout, numberedVerb, verbIn, withoutVerb } from "./verbs.ts";

/** A lock that the code holds, or a place in a queue that it keeps. */
export interface Kept {
  readonly plan: LockPlan;
  readonly isHeld: boolean;
  /** Where the history has the grant, or the place. */
  readonly at: Written;
}

/** What a coroutine needs of the execution that drives it. */
export interface Driver {
  /** The store's clock, as well as it is known here. */
  nowMs(): number;
  /** Keeps a fact that the code made by itself. */
  note(word: Word, data: unknown): void;
}

export class Coroutine {
  readonly runId: string;
  /** The pending operations, in the order in which they were started. */
  readonly waiting = new Map<string, PendingOperation>();
  readonly watched: Watched = {
    timed: new LazySet(),
    queued: new LazySet(),
    signals: new SignalWaits(),
    calls: new LazySet(),
    locks: 0,
    count: 0,
  };
  readonly #lockQueues = new LockQueues();
  /** What was received of the inbox, the signals and ends of children that no operation waits for yet, and how far the inbox was read. */
  readonly received = new LazySet<number>();
  readonly signals = new Mail();
  readonly endings = new Mail();
  inboxSeen = 0;
  /** How many wake-ups had reached the run when its inbox was last read. */
  wakesSeen = 0;
  readonly #children = new Children();
  /** The locks that the code holds, or keeps a place in the queue for, by operation. */
  readonly kept = new LazyMap<string, Kept>();
  /** Their fences now; another process may have held them when the history was written. */
  fences: ReadonlyMap<string, number> = NO_FENCES;
  /** At most how many locks the run's record may have that the code does not know of: it was interrupted while it waited, or remembers another release. */
  orphans = 0;
  /** The version of the last fact that was applied, or will be when what is noted is written. */
  head = 0;
  outcome: Outcome | undefined;
  /** The run has ended, or is worked on elsewhere: this code can start nothing more. */
  isEnded = false;
  /** The code is doing again what it did before. */
  isReplaying = false;
  /** When the run was retried last, by the store's clock. */
  retriedAtMs = 0;
  driver: Driver | undefined;
  readonly root = new Branch(undefined);
  /** Rises with each fact that the code receives. */
  turn = 0;
  /** When that was, by the store's clock. */
  turnMs: number;
  /** Called once if the code continues while the run rests: then it awaited something that is not an operation. */
  strayed: ((what: string) => void) | undefined;
  readonly #places: { current(): RunLocation | undefined } | undefined;
  #new: PendingOperation[] = [];
  /** What lost a race since this was last taken, and may still be under way. */
  #losers: PendingOperation[] = [];
  /** Operations that lost a race: facts about them have no effect. Children are kept until they are known to have been started. */
  readonly #lost = new LazyMap<string, PendingOperation | undefined>();
  /** Failures that no code has observed so far, in order. */
  readonly #unobserved: { readonly tracked: Tracked; readonly error: unknown }[] = [];
  readonly #races = new Races();
  /** Operations that are made of several, and have not settled. */
  readonly #composed = new LazySet<Tracked>();
  readonly #memory = new Memory();
  readonly #failures = new Failures();
  readonly #counts = new Map<string, Counted>();
  #nowMs: number | undefined;
  readonly #cancellation: Cancellation;

  constructor(runId: string, startedAtMs: number, places?: { current(): RunLocation | undefined } | undefined) {
    this.runId = runId;
    this.#cancellation = new Cancellation(runId);
    this.#nowMs = startedAtMs;
    this.turnMs = startedAtMs;
    this.#places = places;
  }

  begin(definition: Definition, ctx: Context, input: unknown): void {
    const finish = (outcome: Outcome): void => {
      this.outcome = "error" in outcome ? { error: usable(outcome.error) } : outcome;
      if ("error" in outcome) this.#failures.threw();
      this.#stray("the workflow's function returned");
      this.roused?.();
    };
    if (!this.isReplaying && this.driver !== undefined) this.turnMs = this.driver.nowMs();
    let running: Promise<unknown>;
    try {
      const code = definition.body(ctx, input);
      running = isGenerator(code) ? drive(code) : Promise.resolve(code);
    } catch (error) {
      finish({ error });
      return;
    }
    running.then(
      (ok) => finish({ ok }),
      (error: unknown) => finish({ error }),
    );
  }

  /** The code starts an operation. */
  ask<T>(name: string, plan: Plan, explicitId?: string | undefined, branch: Branch = this.root): Operation<T> {
    const operation = Operation.pending<T>();
    this.#ask(operation, name, plan, explicitId, branch);
    return operation;
  }

  /** The same, with the name under which the operation is known. */
  askNamed<T>(name: string, plan: Plan, branch: Branch): { readonly id: string; readonly operation: Operation<T> } {
    const operation = Operation.pending<T>();
    return { id: this.#ask(operation, name, plan, undefined, branch), operation };
  }

  /** Code that is made of several operations, as one. Canceling it cancels the operations of its branch, or calls `cancel`. */
  compose<T>(shown: string, branch: Branch, work: () => Promise<T>, cancel?: () => void): Operation<T> {
    this.checkPlace(shown);
    if (this.isEnded) {
      const operation = Operation.pending<T>();
      this.#refuse(operation, shown);
      return operation;
    }
    const reactions: Reaction[] = [];
    const tracked: Tracked = {
      shown,
      isObserved: false,
      isAwaited: false,
      joined: (reaction) => reactions.push(reaction),
      cancel: cancel ?? (() => this.cancelBranch(branch)),
    };
    const promise = work();
    this.#composed.add(tracked);
    promise.then(
      () => {
        this.#composed.delete(tracked);
        this.#races.end(reactions);
      },
      (error: unknown) => {
        this.#composed.delete(tracked);
        this.#races.end(reactions);
        this.failed(tracked, error);
      },
    );
    return Operation.of(promise, tracked);
  }

  /** Runs shielded code. What interrupts the code outside meanwhile is thrown here, when the shielded code has ended. */
  shielded<T>(outside: Branch, work: () => Promise<T>): Promise<T> {
    const { interruptions } = outside;
    const hasLost = (): boolean => outside.interruptions > interruptions;
    return this.#cancellation.shield(work, outside.isWithin(this.root), hasLost);
  }

  joined(pending: PendingOperation, reaction: Reaction): void {
    this.#races.join(pending, reaction);
  }

  #stray(what: string): void {
    const { strayed } = this;
    this.strayed = undefined;
    strayed?.(what);
  }

  /** Whether the code waits for something although it awaits none of its operations: then that is foreign. */
  get awaitsForeign(): boolean {
    if (this.outcome !== undefined) return false;
    for (const { isObserved } of this.waiting.values()) if (isObserved) return false;
    return true;
  }

  /** Where the calling code is, if it may not use this run: in the function of a step, or in another run. */
  get #elsewhere(): RunLocation | undefined {
    const place = this.#places?.current();
    return place !== undefined && (place.step !== undefined || place.run !== this.runId) ? place : undefined;
  }

  /** Throws in the function of a step, where nothing can be recorded, and in the code of another run, which would not get it again at its replay. */
  checkPlace(shown: string, instead?: string): void {
    const place = this.#elsewhere;
    if (place === undefined) return;
    if (place.run !== this.runId) throw new ForeignContextError(this.runId, shown, place.run);
    throw new NestedOperationError(this.runId, shown, place.step ?? "", instead);
  }

  /** An operation that is started after the end rejects, and does not throw: a forgotten timer must not end the process. */
  #refuse(operation: Operation<unknown>, shown: string): void {
    operation.fail(new UsedAfterEndError(this.runId, shown));
    this.usedLate?.(shown);
  }

  /** While the run rests: called when its code continues by itself, because of something that is no operation. */
  roused: (() => void) | undefined;

  /** The warning about operations that the code did not await has been given. */
  hasWarned = false;

  /** Called with what the code starts after the run has ended. */
  usedLate: ((shown: string) => void) | undefined;

  failed(tracked: Tracked, error: unknown): void {
    if (!tracked.isObserved && !(error instanceof RaceLostError)) this.#unobserved.push({ tracked, error });
  }

  /** The first failure that the code never observed. */
  get unobserved(): { readonly tracked: Tracked; readonly error: unknown } | undefined {
    return this.#unobserved.find(({ tracked }) => !tracked.isObserved);
  }

  #ask(
    operation: Operation<unknown>,
    name: string,
    plan: Plan,
    explicitId: string | undefined,
    branch: Branch,
  ): string {
    if (this.#elsewhere !== undefined) this.checkPlace(`${plan.kind} "${name}"`);
    if (this.isEnded) {
      this.#refuse(operation, `${plan.kind} "${name}"`);
      return "";
    }
    if (this.strayed !== undefined) this.#stray(`it started ${plan.kind}${name === "" ? "" : ` "${name}"`}`);
    const counted = this.#countedAs(
      explicitId === undefined ? `${plan.kind} ${name}` : `${plan.kind} ${name}#=${explicitId}`,
    );
    const verb = numberedVerb(plan, counted);
    const id = operationId(name, this.#numberOf(name, plan, verb, counted.count + 1), explicitId);
    const pending = new PendingOperation(this, branch, plan, id, verb, counted, operation, this.watched);
    operation.track(pending);
    // Two of the same name at the same time could not be distinguished at replay.
    if (counted.isUnderWay) {
      pending.settle({ error: new StepInFlightError(name) });
      return id;
    }
    counted.count += 1;
    // Releasing a lock is part of stopping.
    if (plan.kind !== "unlock") {
      if (this.#cancellation.isDue && branch.isWithin(this.root)) {
        this.#cancellation.thrown();
        pending.settle({ error: this.#cancellation.errorWith(undefined) });
        return id;
      }
      this.#failures.handled();
    }
    this.waiting.set(pending.text, pending);
    if (plan.kind === "lock") this.watched.locks += 1;
    else if (plan.kind === "signal") this.watched.signals.add(pending);
    else if (plan.kind === "child" && plan.waits) this.watched.calls.add(pending);
    this.roused?.();
    if (!this.#memory.isEmpty) this.#memory.mayRecall(pending.text);
    counted.isUnderWay = plan.kind === "step";
    if (this.#lockQueues.enters(pending)) this.#new = withItem(this.#new, pending);
    return id;
  }

  /** The number of an operation that the code starts: that in the order of the code, unless more is remembered. */
  #numberOf(name: string, plan: Plan, verb: string | undefined, number: number): number {
    if (!this.#memory.hasNames) return number;
    const found = this.#memory.numberOf(name, plan, verb, number);
    if (found === undefined) return number;
    // A run that was parked may still hold a lock that its code asks for in another way now.
    if (plan.kind === "lock" && !this.#memory.has(`lock ${operationId(name, found, undefined)}`)) this.orphans += 1;
    return found;
  }

  #countedAs(text: string): Counted {
    let counted = this.#counts.get(text);
    if (counted === undefined) {
      counted = { count: 0, isUnderWay: false };
      this.#counts.set(text, counted);
    }
    return counted;
  }

  /** What the code has started since this was last taken. */
  takeNew(): readonly PendingOperation[] {
    if (this.#new.length === 0) return NONE;
    const taken = this.#new;
    this.#new = [];
    return taken;
  }

  /** The run has ended elsewhere: what the code has started since then is refused. */
  refuseNew(): void {
    for (const pending of this.takeNew()) {
      this.usedLate?.(pending.shown);
      pending.settle({ error: new UsedAfterEndError(this.runId, pending.shown) });
    }
  }

  /** What lost a race since this was last taken. */
  takeLosers(): readonly PendingOperation[] {
    if (this.#losers.length === 0) return NONE;
    const taken = this.#losers;
    this.#losers = [];
    return taken;
  }

  /** What ended the code, as far as is known now: a retry forgets that. */
  get forgettable(): Forgettable {
    // Those that end with the run continue with it. Those that are left alone may end while no run waits for them: a retry requests their outcome.
    const { facts, children } = this.#failures;
    const living = [...children];
    for (const { id, run, waits, whenParentEnds, at } of this.livingChildren)
      if ((waits || whenParentEnds === "cancel") && !this.#lost.has(`child ${id}`)) living.push({ id, run, waits, at });
    const { at } = this.#cancellation;
    return { facts, children: living, hasCancellation: at !== undefined && facts.includes(at) };
  }

  /** Children that may be alive. After a retry, they include those that the code has not started again. */
  get livingChildren(): readonly LivingChild[] {
    if (this.#children.size === 0 && this.#memory.isEmpty) return NO_CHILDREN;
    return [...this.#children.living, ...this.#memory.children];
  }

  /** Another operation of its race was first: it is not waited for any more. */
  cancelLoser(pending: PendingOperation): void {
    if (this.waiting.get(pending.text) !== pending) return;
    this.#forget(pending);
    this.#lost.set(pending.text, pending.kind === "child" && pending.childId === undefined ? pending : undefined);
    this.#losers.push(pending);
    if (pending.kind === "lock") this.orphans += 1;
    pending.isObserved = true;
    pending.settle({ error: new RaceLostError(this.runId, pending.shown) });
  }

  /** How often this part of the code was canceled so far, the cancellation of the run included. */
  interruptions(branch: Branch): number {
    const isOfRun = this.canceled !== undefined && branch.isWithin(this.root);
    return branch.interruptions + (isOfRun ? 1 : 0);
  }

  /** Whether it lost a race: the history may still say something of it. */
  hasLost(pending: PendingOperation): boolean {
    return this.#lost.has(pending.text);
  }

  /** Cancels what this part of the code waits for. */
  cancelBranch(branch: Branch): void {
    branch.cancelCount += 1;
    for (const pending of [...this.waiting.values()])
      if (pending.kind !== "unlock" && pending.branch.isWithin(branch)) this.cancelLoser(pending);
  }

  /**
   * The code has returned: what only waits is dropped. Returns what is still to be done, what the code forgot to await, and where the cleanup of
   * branches that lost a race was cut off.
   */
  conclude(): { readonly open: number; readonly forgotten: readonly string[]; readonly cut: readonly string[] } {
    if (this.waiting.size === 0 && this.#composed.size === 0) return CONCLUDED;
    const forgotten: string[] = [];
    const cut: string[] = [];
    for (const { isObserved, shown } of this.#composed) if (!isObserved) forgotten.push(shown);
    let open = 0;
    for (const pending of [...this.waiting.values()]) {
      if (!pending.isObserved) forgotten.push(pending.shown);
      if (isWork(pending)) open += 1;
      else {
        if (pending.branch.interruptions > 0) cut.push(pending.shown);
        this.#forget(pending);
        if (pending.kind === "lock") this.orphans += 1;
      }
    }
    return { open, forgotten, cut };
  }

  /** Keeps a fact from before a retry until the code starts the operation that it is about. */
  remember(version: number, name: string, data: unknown, atMs: number): void {
    const { word, id } = parseFact(name);
    if (!isWord(word)) throw this.#contradiction(name, UNKNOWN_WORD);
    if (this.#memory.add(version, word, id, data, atMs) !== undefined) this.#usedUp(name, data);
  }

  /** A fact that was forgotten. */
  forgot(name: string, data: unknown): void {
    const { word, id } = parseFact(name);
    if (isWord(word)) this.#memory.forget({ word, id, data });
    this.#usedUp(name, data);
  }

  /** What came with a message has used it up, also where it is remembered or was forgotten. */
  #usedUp(name: string, data: unknown): void {
    const message = messageOf(name, data);
    if (message !== undefined) this.received.add(message);
  }

  /** Gives the code the oldest fact that is remembered of something it has started. Returns false if there is none. */
  recall(): boolean {
    const oldest = this.#memory.take(this.waiting);
    if (oldest === undefined) return false;
    const pending = this.waiting.get(textOf(oldest));
    if (pending !== undefined && !isAbout(pending, oldest))
      throw this.#contradiction(`${oldest.word} ${oldest.id}`, `asks for "${pending.verb}" in its place`);
    // One of an earlier release may have been the release of another hold.
    if (oldest.word === "unlock" && verbIn(oldest.data) !== pending?.verb) this.orphans += 1;
    // Its place in the queue was left when the run ended: the lock is requested again, unless more is remembered of it.
    if (oldest.word === "queued" && pending !== undefined) pending.queuedFact = oldest;
    else this.apply(oldest, oldest.nowMs, oldest);
    // Its turn was one of the time before the retry, and may be long past: it takes another one.
    if (pending?.hasTurn === true) {
      pending.hasTurn = false;
      pending.dueMs = null;
    }
    // What the code starts after it is started now.
    if (!this.isReplaying && this.driver !== undefined) this.turnMs = this.driver.nowMs();
    return true;
  }

  /** Where the history has releases of what the code keeps that are remembered, and that the code has not started. */
  get rememberedUnlocks(): readonly number[] {
    return this.#memory.unlocksOf(this.kept.keys());
  }

  get hasNew(): boolean {
    return this.#new.length > 0;
  }

  /** The time as the code sees it: one for each turn, the same again at replay. */
  nowMs(): number {
    if (this.#nowMs === undefined) {
      this.#nowMs = this.driver?.nowMs() ?? 0;
      this.driver?.note("now", this.#nowMs);
    }
    return this.#nowMs;
  }

  /** Applies a fact of the history. Returns whether the code continues because of it. `nowMs` is the time that the code saw then. */
  replay(name: string, data: unknown, nowMs: number, at: Written = UNWRITTEN): boolean {
    const { word, id } = parseFact(name);
    if (!isWord(word)) throw this.#contradiction(name, UNKNOWN_WORD);
    return this.apply({ word, id, data }, nowMs, at);
  }

  /** Applies a fact, which the history has at `at`. Returns whether the code continues because of it. */
  apply({ word, id, data }: Fact, nowMs: number | undefined, at: Written = UNWRITTEN): boolean {
    this.turn += 1;
    this.turnMs = nowMs ?? this.driver?.nowMs() ?? this.turnMs;
    if (!isOperationWord(word)) return this.#applyToRun(word, data, nowMs, at);
    const text = `${WORDS[word]} ${id}`;
    const pending = this.waiting.get(text);
    if (pending === undefined) {
      if (!this.#lost.has(text)) throw this.#contradiction(`${word} ${id}`, this.#whereItIs());
      const lost = this.#lost.get(text);
      // The commit that decided the race had started it: it is canceled like any other that lost.
      if (word === "child" && lost !== undefined) {
        this.#lost.set(text, undefined);
        this.#children.started(lost, data as ChildStart, at);
        this.#losers.push(lost);
      }
      return false;
    }
    if (pending.isHeldBack) this.#lockQueues.wasAsked(pending);
    switch (word) {
      case "intent":
        pending.hasIntent = true;
        return false;
      case "undone":
        pending.hasIntent = false;
        return false;
      case "attempt": {
        const { attempts, error, dueMs, firstMs, hasTurn } = data as AttemptData;
        pending.attempts = attempts;
        pending.lastError = error;
        pending.dueMs = dueMs;
        pending.firstAttemptMs = firstMs ?? pending.firstAttemptMs;
        pending.hasTurn = hasTurn === true;
        // It waited for its turn and has not begun: its intent is written again before it does.
        if (hasTurn === true) pending.hasIntent = false;
        pending.isPostponed = true;
        pending.attemptFacts ??= [];
        pending.attemptFacts.push(at);
        return false;
      }
      case "progress":
        if (!pending.isProgressLive) pending.progress = data;
        return false;
      case "sleep":
      case "wait":
        pending.dueMs = (data as { dueMs: number }).dueMs;
        return false;
      case "child":
        this.#children.started(pending, data as ChildStart, at);
        if (pending.plan.kind !== "child" || pending.plan.waits) return false;
        return this.#settle(pending, { ok: pending.childId }, nowMs, at);
      case "refused":
        return this.#settle(pending, withoutVerb(data as Outcome), nowMs, at);
      case "woke":
        return this.#settle(pending, { ok: undefined }, nowMs, at);
      case "expired":
        return this.#settle(pending, { ok: { ok: false, reason: "timeout" } }, nowMs, at);
      case "received": {
        const { at: message, signal, value } = data as { at: number; signal: string; value: unknown };
        this.received.add(message);
        return this.#settle(pending, { ok: { ok: true, signal, value } }, nowMs, at);
      }
      case "queued":
        pending.queuedFact = at;
        pending.isQueued = true;
        pending.dueMs = (data as { dueMs?: number }).dueMs ?? null;
        this.#resume(pending);
        return false;
      case "granted":
        this.#keep(pending, true, at);
        return this.#settle(
          pending,
          { ok: this.fences.get(pending.id) ?? (data as { fence: number }).fence },
          nowMs,
          at,
        );
      case "placed":
        // A history from before `enqueue`: what was only tried keeps no place.
        if (pending.plan.kind === "lock" && !pending.plan.queue) this.orphans += 1;
        else this.#keep(pending, false, at);
        return this.#settle(pending, { ok: { place: (data as { place: number }).place } }, nowMs, at);
      case "denied":
        this.#resume(pending);
        return this.#settle(pending, deniedAs(pending.plan, data as Denial), nowMs, at);
      case "unlock":
        if (pending.plan.kind === "unlock") this.kept.delete(pending.plan.of);
        // It belongs to the failure that it follows, and is done again with what failed.
        if (this.#failures.areOpen) this.#failures.add(at);
        return this.#settle(pending, { ok: { released: (data as Released).released } }, nowMs, at);
      case "ended": {
        const { at: message, outcome } = data as { at: number; outcome: Outcome };
        this.received.add(message);
        const child = this.#children.ended(pending.id);
        if ("error" in outcome && child !== undefined) this.#failures.addChild({ ...child, waits: true });
        return this.#settle(pending, outcome, nowMs, at);
      }
      case "step":
        return this.#settle(pending, data as Outcome, nowMs, at);
      case "slot":
      case "stream":
      case "rate":
        return this.#settle(pending, withoutVerb(data as Outcome), nowMs, at);
    }
  }

  #keep(pending: PendingOperation, isHeld: boolean, at: Written): void {
    this.#resume(pending);
    if (pending.plan.kind === "lock") this.kept.set(pending.id, { plan: pending.plan, isHeld, at });
  }

  /** The place in the queue that it takes over belongs to this operation from now on. */
  #resume({ plan }: PendingOperation): void {
    if (plan.kind === "lock" && plan.resumes !== undefined) this.kept.delete(plan.resumes);
  }

  #settle(pending: PendingOperation, outcome: Outcome, nowMs: number | undefined, at: Written): boolean {
    this.#forget(pending);
    this.#nowMs = nowMs;
    this.#failures.settled(pending, outcome, at);
    // It was under way when the cancellation arrived: it throws the cancellation, with the outcome of the operation.
    if (pending.isCanceled)
      pending.settle({ error: this.#cancellation.errorWith({ operation: pending.id, ...outcome }) });
    else pending.settle(outcome);
    return true;
  }

  #forget(pending: PendingOperation): void {
    this.waiting.delete(pending.text);
    if (pending.kind === "lock") this.watched.locks -= 1;
    pending.end();
    if (pending.reactions.length > 0) this.#races.end(pending.reactions);
    const next = this.#lockQueues.leaves(pending);
    if (next !== undefined) this.#new = withItem(this.#new, next);
    pending.counted.isUnderWay = false;
  }

  #applyToRun(word: Word, data: unknown, nowMs: number | undefined, at: Written): boolean {
    if (word !== "canceled") return false;
    const cancel = data as CancelData;
    // Code that is retried has all the time for its cleanup again.
    const atMs = Math.max(nowMs ?? this.driver?.nowMs() ?? 0, this.retriedAtMs);
    this.#cancellation.arrive(cancel, atMs, at);
    this.#failures.add(at);
    this.#nowMs = nowMs;
    // What only waits is interrupted. Running steps are aborted, and their end is waited for.
    let isInterrupted = false;
    for (const pending of [...this.waiting.values()]) {
      if (!pending.branch.isWithin(this.root)) continue;
      this.#cancellation.thrown();
      if (!isInterruptible(pending, cancel.running)) {
        pending.isCanceled = true;
        continue;
      }
      this.#forget(pending);
      if (pending.kind === "lock") this.orphans += 1;
      pending.settle({ error: this.#cancellation.errorWith(undefined) });
      isInterrupted = true;
    }
    return isInterrupted;
  }

  /** The cancellation of the run, once it has arrived. */
  get canceled(): Error | undefined {
    return this.#cancellation.error;
  }

  /** When it arrived, by the store's clock. */
  get canceledAtMs(): number | undefined {
    return this.#cancellation.atMs;
  }

  #whereItIs(): string {
    if (this.outcome !== undefined) return "has ended by then";
    const waiting = [...this.waiting.keys()].map((text) => `"${text}"`);
    return waiting.length === 0 ? "waits for nothing" : `waits for ${waiting.slice(0, 5).join(", ")}`;
  }

  #contradiction(fact: string, code: string): HistoryContradictionError {
    return new HistoryContradictionError(this.runId, `"${fact}"`, code);
  }
}

/** What the history says of an attempt that failed, or of one that waits for its turn. */
interface AttemptData {
  readonly attempts: number;
  readonly error?: unknown;
  readonly dueMs: number;
  readonly firstMs?: number;
  readonly hasTurn?: boolean;
}

/** What the history says of a release. */
interface Released {
  readonly released: boolean;
}

const NONE: readonly PendingOperation[] = [];

const NO_CHILDREN: readonly LivingChild[] = [];

export const NO_FENCES: ReadonlyMap<string, number> = new Map();

const CONCLUDED = { open: 0, forgotten: [], cut: [] } as const;

const UNWRITTEN: Written = { version: 0 };

const UNKNOWN_WORD = "knows nothing of the kind";
