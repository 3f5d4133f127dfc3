/**
 * A coroutine: the code of one run in memory, with the operations that it has asked for and not heard of yet.
 *
 * Facts are applied one at a time, and the code runs as far as it can before the next one comes. The first time and at replay it is the
 * same facts in the same order, so it is the same code path: `Promise.all`, `race` and branches come out the same. A coroutine does
 * nothing in the world and writes nothing; whoever drives it does (`execution.ts`).
 *
 * After a `retry`, what the history had before it is not a path to follow but a memory: an operation that the code asks for again, in
 * whatever order, gets the facts that are remembered of it before anything new happens. What was forgotten is done again.
 *
 * Promises: a fact that the code did not ask for is refused with both sides (G23); a cancellation is delivered once, to what the code
 * awaits when it arrives (G15).
 */

import { Heap } from "../kernel/heap.ts";
import type { RunPlace } from "../kernel/ports.ts";
import { DeadlockError, LockRemovedError, LockTimeoutError, PermitsUndeclaredError } from "../lock/errors.ts";
import { shownLocks } from "../lock/records.ts";
import type { Context } from "./context.ts";
import type { Definition } from "./definition.ts";
import {
  HistoryContradictionError,
  type InterruptedOutcome,
  NestedOperationError,
  RaceLostError,
  RunCanceledError,
  RunTimedOutError,
  StepInFlightError,
  UsedAfterEndError,
} from "./errors.ts";
import { LockLines } from "./lock-lines.ts";
import type { Denial } from "./locks.ts";
import { Mail, SignalWaits } from "./mail.ts";
import { drive, isGenerator, Operation, type Reaction, type Tracked } from "./operation.ts";
import type { LockPlan, Plan } from "./plans.ts";
import { type Kind, operationId, parseFact, WORDS, type Word } from "./words.ts";

/** A part of the code that can be canceled, or kept from being canceled, by itself. The root is the code as a whole. */
export class Branch {
  readonly parent: Branch | undefined;
  readonly isShielded: boolean;
  /** All of it is one step: what it waits for is waited for even if the code has returned. */
  readonly isStep: boolean;

  constructor(parent: Branch | undefined, is: "plain" | "shielded" | "step" = "plain") {
    this.parent = parent;
    this.isShielded = is === "shielded";
    this.isStep = is === "step" || parent?.isStep === true;
  }

  /** Whether a cancellation of `other` reaches this branch. */
  isWithin(other: Branch): boolean {
    for (let branch: Branch | undefined = this; branch !== undefined; branch = branch.parent) {
      if (branch === other) return true;
      if (branch.isShielded) return false;
    }
    return false;
  }
}

/** Something that the code has asked for and not heard of yet. */
export class Asked implements Tracked {
  readonly plan: Plan;
  readonly #coroutine: Coroutine;
  readonly branch: Branch;
  /** In which turn of the code it was asked for. */
  readonly turn: number;
  isObserved = false;
  isAwaited = false;
  /** How those observe it that observe several promises at once. */
  reactions: readonly Reaction[] = NO_REACTIONS;
  /** An answer for it is on its way to the code. */
  isAnswered = false;
  readonly id: string;
  /** Its kind and id. */
  readonly text: string;
  /** What it is counted under: its kind and name, and the id that the code gave. */
  readonly counted: string;
  readonly #resolve: (value: unknown) => void;
  readonly #reject: (error: unknown) => void;
  /** What the history says of it so far. */
  hasIntent = false;
  /** It failed once, and its next attempt was put off for long. */
  isPostponed = false;
  /** The run was canceled while it was pending: it begins nothing more, and its outcome is told with the cancellation. */
  isCanceled = false;
  attempts = 0;
  /** When its first attempt began, by the store's clock; for a step whose attempts have a time limit together. */
  firstAttemptMs: number | undefined;
  /** The next attempt has its turn in the rate limit. */
  hasTurn = false;
  /** Where the history has its place in line: forgotten with its failure. */
  queuedFact: Written | undefined;
  /** The same of its failed attempts. */
  attemptFacts: Written[] | undefined;
  lastError: unknown;
  /** When its next attempt begins, by the store's clock, if that is waited for in memory. */
  nextAttemptMs: number | null = null;
  /** When the code asked for it, by the store's clock. */
  readonly sinceMs: number;
  progress: unknown;
  childId: string | undefined;
  /** The store is not asked for it yet: too many wishes for the same lock are before it (`lock-lines.ts`). */
  isHeldBack = false;
  queuedVersion = 0;
  /** Rises in the order in which the code asked. */
  readonly order: number;
  readonly #watched: Watched;
  #dueMs: number | null = null;
  #isQueued = false;
  #isOver = false;
  /** Its time in line is over, or it may be part of a circle: the next commit decides. */
  isOverdue = false;
  isSuspected = false;

  constructor(
    coroutine: Coroutine,
    branch: Branch,
    plan: Plan,
    id: string,
    counted: string,
    resolve: (value: unknown) => void,
    reject: (error: unknown) => void,
    watched: Watched,
  ) {
    this.#coroutine = coroutine;
    this.branch = branch;
    this.turn = coroutine.turn;
    this.sinceMs = coroutine.turnMs;
    this.order = watched.asked++;
    this.#watched = watched;
    this.plan = plan;
    this.id = id;
    this.text = `${plan.kind} ${id}`;
    this.counted = counted;
    this.#resolve = resolve;
    this.#reject = reject;
  }

  get kind(): Kind {
    return this.plan.kind;
  }

  get shown(): string {
    return `${this.kind} "${this.id}"`;
  }

  /** When its timer ends, by the store's clock. */
  get dueMs(): number | null {
    return this.#dueMs;
  }

  set dueMs(dueMs: number | null) {
    this.#dueMs = dueMs;
    if (dueMs === null) this.#watched.timed.delete(this);
    else if (!this.#isOver) this.#watched.timed.add(this);
  }

  /** It stands in line for a lock, since the run's record had the version `queuedVersion`. */
  get isQueued(): boolean {
    return this.#isQueued;
  }

  set isQueued(isQueued: boolean) {
    this.#isQueued = isQueued;
    if (!isQueued) this.#watched.queued.delete(this);
    else if (!this.#isOver) this.#watched.queued.add(this);
  }

  /** It is not waited for any more. */
  end(): void {
    this.#isOver = true;
    this.#watched.timed.delete(this);
    this.#watched.queued.delete(this);
    this.#watched.calls.delete(this);
    if (this.plan.kind === "signal") this.#watched.signals.delete(this);
  }

  settle(outcome: Settled): void {
    if ("error" in outcome) this.#reject(outcome.error);
    else this.#resolve(outcome.ok);
  }

  cancel(): void {
    this.#coroutine.cancelLoser(this);
  }

  joined(reaction: Reaction): void {
    this.#coroutine.joined(this, reaction);
  }

  /** All that observed it were races of `Promise.race`, and they are over: nobody would hear of its outcome. */
  get isAbandoned(): boolean {
    return this.isObserved && !this.isAwaited && this.reactions.length === 0;
  }
}

/** Of all operations that wait, those that are looked at again and again: with ten thousand others beside them, too. */
export interface Watched {
  /** Those with a timer. */
  readonly timed: Set<Asked>;
  /** Those that stand in line for a lock. */
  readonly queued: Set<Asked>;
  /** The waits for signals. */
  readonly signals: SignalWaits<Asked>;
  /** The children whose outcomes are waited for. */
  readonly calls: Set<Asked>;
  /** How many wait for a lock, or are held back from its line. */
  locks: number;
  /** How many were ever asked for. */
  asked: number;
}

/** How an operation, or the code as a whole, came out. */
export type Settled = { readonly ok: unknown } | { readonly error: unknown };

/** A fact of the history, decoded. */
export interface Fact {
  readonly word: Word;
  readonly id: string;
  readonly data: unknown;
}

/** A lock that the code was given, or a place in line that it keeps. */
export interface Kept {
  readonly plan: LockPlan;
  readonly isHeld: boolean;
}

/** What a coroutine needs of the execution that drives it. */
export interface Driver {
  /** The store's clock, as well as it is known here. */
  nowMs(): number;
  /** Keeps a fact that the code made by itself. */
  note(word: Word, data: unknown): void;
}

/** A fact from before a retry. */
interface Remembered extends Fact {
  readonly version: number;
  /** The time that the code saw with it. */
  nowMs: number;
}

/** Where the history has a fact; 0 until it is written. */
export interface Written {
  readonly version: number;
}

/** What a retry of a run that fails now would forget. */
export interface Forgettable {
  readonly facts: readonly Written[];
  /** Children that failed, and those that were waited for and are left alone, by operation, and where the history has their starts. */
  readonly children: readonly { readonly id: string; readonly run: string; readonly at: Written }[];
}

export class Coroutine {
  readonly runId: string;
  /** The operations not heard of yet, in the order they were asked for. */
  readonly waiting = new Map<string, Asked>();
  readonly watched: Watched = {
    timed: new Set(),
    queued: new Set(),
    signals: new SignalWaits(),
    calls: new Set(),
    locks: 0,
    asked: 0,
  };
  readonly #lockLines = new LockLines();
  /** What was received of the inbox, the signals and ends of children that came and are not wanted yet, and how far the inbox was read. */
  readonly received = new Set<number>();
  readonly signals = new Mail();
  readonly endings = new Mail();
  inboxSeen = 0;
  /** So many wake-ups had reached the run when its inbox was last looked at. */
  wakesSeen = 0;
  /** Children that may be alive, by operation. */
  readonly children = new Map<
    string,
    {
      readonly run: string;
      readonly waits: boolean;
      readonly whenParentEnds: "cancel" | "leave";
      readonly at: Written;
    }
  >();
  /** The locks that the code was given, or keeps a place in line for, and has not given back, by operation. */
  readonly kept = new Map<string, Kept>();
  /** What those are worth now; another process may have held them when the history was written. */
  fences: ReadonlyMap<string, number> = new Map();
  /** The code was interrupted while it waited for a lock. */
  mayHaveOrphans = false;
  /** The version of the last fact that was applied, or will be when what is noted is written. */
  head = 0;
  outcome: Settled | undefined;
  /** The run has ended, or is worked on elsewhere: this code can ask for nothing more. */
  isEnded = false;
  /** The code is doing again what it did before. */
  isReplaying = false;
  /** When the run was retried last, by the store's clock. */
  retriedAtMs = 0;
  driver: Driver | undefined;
  readonly root = new Branch(undefined);
  /** Rises with each fact that the code is told. */
  turn = 0;
  /** When that was, by the store's clock. */
  turnMs: number;
  /** Called once if the code continues although the run rests: then it awaited something that is not an operation. */
  strayed: ((what: string) => void) | undefined;
  readonly #places: { current(): RunPlace | undefined } | undefined;
  #new: Asked[] = [];
  /** What lost a race since this was last taken, and may still be under way. */
  #losers: Asked[] = [];
  /** Operations that lost a race: facts about them have no effect. */
  readonly #lost = new Set<string>();
  /** Failures that no code has observed so far, in order. */
  readonly #unobserved: { readonly tracked: Tracked; readonly error: unknown }[] = [];
  /** The waits for signals that are observed with others, by the function that is called when one of them is fulfilled. */
  readonly #raced = new Map<unknown, Set<Asked>>();
  /** Shielded code that has not ended, and whether a cancellation waits for its end. */
  readonly #shields = new Set<{ isCanceled: boolean }>();
  /** Operations that are made of several, and have not settled. */
  readonly #composed = new Set<Tracked>();
  /** Facts from before a retry that were not asked for yet, by operation, and those that are about the run. */
  readonly #remembered = new Map<string, Remembered[]>();
  /** The oldest that is remembered of each operation that was asked for, and of the run. */
  readonly #recallable = new Heap<Remembered>((one, other) => one.version < other.version);
  #lastRemembered: Remembered | undefined;
  /** Failures after which the code has asked for nothing more. */
  #failures: Written[] = [];
  #failedChildren: Forgettable["children"][number][] = [];
  readonly #counts = new Map<string, number>();
  /** Steps under way, as they are counted. */
  readonly #underWay = new Set<string>();
  #nowMs: number | undefined;
  /** A cancellation that has arrived. One that found nothing pending is thrown by what the code asks for next. */
  #canceled: { readonly data: CancelData; readonly error: Error; readonly atMs: number; isThrown: boolean } | undefined;

  constructor(runId: string, startedAtMs: number, places?: { current(): RunPlace | undefined } | undefined) {
    this.runId = runId;
    this.#nowMs = startedAtMs;
    this.turnMs = startedAtMs;
    this.#places = places;
  }

  begin(definition: Definition, ctx: Context, input: unknown): void {
    const finish = (outcome: Settled): void => {
      this.outcome = outcome;
      this.#stray("the workflow's function returned");
      this.roused?.();
    };
    if (!this.isReplaying && this.driver !== undefined) this.turnMs = this.driver.nowMs();
    let code: unknown;
    try {
      code = definition.body(ctx, input);
    } catch (error) {
      finish({ error });
      return;
    }
    const running = isGenerator(code) ? drive(code) : Promise.resolve(code);
    running.then(
      (ok) => finish({ ok }),
      (error: unknown) => finish({ error }),
    );
  }

  /** The code asks for something. */
  ask<T>(name: string, plan: Plan, explicitId?: string | undefined, branch: Branch = this.root): Operation<T> {
    return this.askNamed<T>(name, plan, explicitId, branch).operation;
  }

  /** Code that is made of several operations, as one. Canceling it cancels the operations of its branch, unless said otherwise. */
  compose<T>(shown: string, branch: Branch, work: () => Promise<T>, cancel?: () => void): Operation<T> {
    this.checkPlace(shown);
    if (this.isEnded) return this.#refused<T>(shown);
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
        this.#endRaces(reactions);
      },
      (error: unknown) => {
        this.#composed.delete(tracked);
        this.#endRaces(reactions);
        this.#failedUnobserved(tracked, error);
      },
    );
    return Operation.of(promise, tracked);
  }

  /** Runs shielded code. A cancellation that arrives meanwhile comes out here, when the code has ended. */
  async shielded<T>(outside: Branch, work: () => Promise<T>): Promise<T> {
    // In other shielded code, it is that which the cancellation waits for.
    if (!outside.isWithin(this.root)) return work();
    const shield = { isCanceled: false };
    this.#shields.add(shield);
    let outcome: { readonly ok: T } | { readonly error: unknown };
    try {
      outcome = { ok: await work() };
    } catch (error) {
      outcome = { error };
    }
    this.#shields.delete(shield);
    if (shield.isCanceled) throw this.#cancellation({ operation: "shield", ...outcome });
    if ("error" in outcome) throw outcome.error;
    return outcome.ok;
  }

  /** The operation is observed together with others. */
  joined(asked: Asked, reaction: Reaction): void {
    asked.reactions = [...asked.reactions, reaction];
    if (asked.kind !== "signal") return;
    const waits = this.#raced.get(reaction.fulfilled);
    if (waits === undefined) this.#raced.set(reaction.fulfilled, new Set([asked]));
    else waits.add(asked);
  }

  /** An operation has settled, and with it every race that it was in: those do not observe other operations any more. */
  #endRaces(reactions: readonly Reaction[]): void {
    for (const { fulfilled, rejected } of reactions) {
      const waits = this.#raced.get(fulfilled);
      if (waits === undefined) continue;
      for (const wait of waits)
        wait.reactions = wait.reactions.filter((one) => one.fulfilled !== fulfilled || one.rejected !== rejected);
      this.#raced.delete(fulfilled);
    }
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

  /** Throws in the function of a step, where nothing can be recorded. */
  checkPlace(shown: string, instead?: string): void {
    const step = this.#places?.current();
    if (step?.step !== undefined && step.run === this.runId)
      throw new NestedOperationError(this.runId, shown, step.step, instead);
  }

  /** What is asked for after the end rejects. It throws only where it is awaited: a forgotten timer must not end the process. */
  #refused<T>(shown: string): Operation<T> {
    const refused = Promise.reject<T>(new UsedAfterEndError(this.runId, shown));
    this.usedLate?.(shown);
    return Operation.of(refused);
  }

  /** While the run rests: called when its code goes on by itself, because something came that is no operation. */
  roused: (() => void) | undefined;

  /** Told of what the code asks for after the run has ended. */
  usedLate: ((shown: string) => void) | undefined;

  #failedUnobserved(tracked: Tracked, error: unknown): void {
    if (!tracked.isObserved && !(error instanceof RaceLostError)) this.#unobserved.push({ tracked, error });
  }

  /** The first failure that the code never observed. */
  get unobserved(): { readonly tracked: Tracked; readonly error: unknown } | undefined {
    return this.#unobserved.find(({ tracked }) => !tracked.isObserved);
  }

  /** The same, with the name under which the operation is known. */
  askNamed<T>(
    name: string,
    plan: Plan,
    explicitId?: string | undefined,
    branch: Branch = this.root,
  ): { readonly id: string; readonly operation: Operation<T> } {
    this.checkPlace(`${plan.kind} "${name}"`);
    if (this.isEnded) return { id: "", operation: this.#refused<T>(`${plan.kind} "${name}"`) };
    if (this.strayed !== undefined) this.#stray(`it started ${plan.kind}${name === "" ? "" : ` "${name}"`}`);
    let resolve: (value: unknown) => void = ignore;
    let refuse: (error: unknown) => void = ignore;
    const operation = new Operation<T>((resolved, refused) => {
      resolve = resolved as (value: unknown) => void;
      refuse = refused;
    });
    const reject = (error: unknown): void => {
      // Code may look at it later, or never: then the run fails, and not the process.
      operation.hush();
      this.#failedUnobserved(asked, error);
      refuse(error);
    };
    const counted = explicitId === undefined ? `${plan.kind} ${name}` : `${plan.kind} ${name}#=${explicitId}`;
    const count = (this.#counts.get(counted) ?? 0) + 1;
    const asked: Asked = new Asked(
      this,
      branch,
      plan,
      operationId(name, count, explicitId),
      counted,
      resolve,
      reject,
      this.watched,
    );
    operation.track(asked);
    // The same name twice at once would be told apart by chance alone.
    if (plan.kind === "step" && this.#underWay.has(counted)) {
      reject(new StepInFlightError(name));
      return { id: asked.id, operation };
    }
    this.#counts.set(counted, count);
    // What gives something back is part of stopping.
    if (plan.kind !== "unlock") {
      if (this.#canceled !== undefined && !this.#canceled.isThrown && branch.isWithin(this.root)) {
        this.#canceled.isThrown = true;
        reject(this.#cancellation(undefined));
        return { id: asked.id, operation };
      }
      this.#handled();
    }
    this.waiting.set(asked.text, asked);
    if (plan.kind === "lock") this.watched.locks += 1;
    else if (plan.kind === "signal") this.watched.signals.add(asked);
    else if (plan.kind === "child" && plan.waits) this.watched.calls.add(asked);
    this.roused?.();
    if (this.#remembered.size > 0) this.#mayRecall(asked.text);
    if (plan.kind === "step") this.#underWay.add(counted);
    if (this.#lockLines.enters(asked)) this.#new.push(asked);
    return { id: asked.id, operation };
  }

  /** What the code has asked for since this was last taken. */
  takeNew(): readonly Asked[] {
    if (this.#new.length === 0) return NONE;
    const taken = this.#new;
    this.#new = [];
    return taken;
  }

  /** The run has ended elsewhere: what the code has asked for since then is refused. */
  refuseNew(): void {
    for (const asked of this.takeNew()) {
      this.usedLate?.(asked.shown);
      asked.settle({ error: new UsedAfterEndError(this.runId, asked.shown) });
    }
  }

  /** What lost a race since this was last taken. */
  takeLosers(): readonly Asked[] {
    if (this.#losers.length === 0) return NONE;
    const taken = this.#losers;
    this.#losers = [];
    return taken;
  }

  /** The code goes on, so what failed before did not end it. */
  #handled(): void {
    if (this.#failures.length > 0) this.#failures = [];
    if (this.#failedChildren.length > 0) this.#failedChildren = [];
  }

  /** What ended the code, as it stands: a retry forgets that. */
  get forgettable(): Forgettable {
    // Children that end with the run are started again with it.
    const ended = [...this.children.values()].filter(({ whenParentEnds }) => whenParentEnds === "cancel");
    // Those that are left alone may end while nobody waits for them: a retry asks for their outcome.
    const left = [...this.children].flatMap(([id, { run, waits, whenParentEnds, at }]) =>
      waits && whenParentEnds === "leave" && !this.#lost.has(`child ${id}`) ? [{ id, run, at }] : [],
    );
    return { facts: [...this.#failures, ...ended.map(({ at }) => at)], children: [...this.#failedChildren, ...left] };
  }

  /** Another operation of its race was first: it is not waited for any more. */
  cancelLoser(asked: Asked): void {
    if (this.waiting.get(asked.text) !== asked) return;
    this.#forget(asked);
    this.#lost.add(asked.text);
    this.#losers.push(asked);
    if (asked.kind === "lock") this.mayHaveOrphans = true;
    asked.isObserved = true;
    asked.settle({ error: new RaceLostError(this.runId, asked.shown) });
  }

  /** Cancels what this part of the code waits for. */
  cancelBranch(branch: Branch): void {
    for (const asked of [...this.waiting.values()])
      if (asked.kind !== "unlock" && asked.branch.isWithin(branch)) this.cancelLoser(asked);
  }

  /** The code has returned: what merely waits is dropped. Answers what is still to be done, and what the code forgot to await. */
  conclude(): { readonly open: number; readonly forgotten: readonly string[] } {
    const forgotten: string[] = [];
    for (const { isObserved, shown } of this.#composed) if (!isObserved) forgotten.push(shown);
    let open = 0;
    for (const asked of [...this.waiting.values()]) {
      if (!asked.isObserved) forgotten.push(asked.shown);
      if (isWork(asked)) open += 1;
      else {
        this.#forget(asked);
        if (asked.kind === "lock") this.mayHaveOrphans = true;
      }
    }
    return { open, forgotten };
  }

  /** Keeps a fact from before a retry until the code asks for what it is about. */
  remember(version: number, name: string, data: unknown, atMs: number): void {
    const { word, id } = parseFact(name);
    if (!Object.hasOwn(WORDS, word)) throw this.#contradiction(name, "knows nothing of the kind");
    const kind = WORDS[word as Word];
    if (word === "now") {
      if (this.#lastRemembered !== undefined) this.#lastRemembered.nowMs = Number(data);
      return;
    }
    if (kind === null && word !== "canceled") return;
    const fact: Remembered = { version, word: word as Word, id, data, nowMs: atMs };
    this.#lastRemembered = fact;
    this.#receive(fact);
    const text = textOf(fact);
    const facts = this.#remembered.get(text);
    if (facts === undefined) this.#remembered.set(text, [fact]);
    else facts.push(fact);
    if (facts === undefined && kind === null) this.#mayRecall(text);
  }

  /** The oldest fact that is remembered of this can be told from now on. */
  #mayRecall(text: string): void {
    const oldest = this.#remembered.get(text)?.[0];
    if (oldest !== undefined) this.#recallable.push(oldest);
  }

  /** A message that the history says was received is not there for anything else. */
  #receive({ word, data }: Fact): void {
    if (word === "received" || word === "ended") this.received.add((data as { at: number }).at);
  }

  /** A fact that was forgotten still used up the message it came with. */
  forgot(name: string, data: unknown): void {
    const { word, id } = parseFact(name);
    this.#receive({ word: word as Word, id, data });
  }

  /** Tells the code the oldest fact that is remembered of something it has asked for; answers false if there is none. */
  recall(): boolean {
    const oldest = this.#takeRecallable();
    if (oldest === undefined) return false;
    const text = textOf(oldest);
    const asked = this.waiting.get(text);
    const facts = this.#remembered.get(text) ?? [];
    if (facts.length === 1) this.#remembered.delete(text);
    else facts.shift();
    this.#mayRecall(text);
    // Its place in line was left when the run ended: it is asked for again, unless more is remembered of it.
    if (oldest.word === "queued" && asked !== undefined) asked.queuedFact = oldest;
    else this.apply(oldest, oldest.nowMs, oldest);
    // What the code asks for after it is asked for now.
    if (!this.isReplaying && this.driver !== undefined) this.turnMs = this.driver.nowMs();
    return true;
  }

  /** The oldest that can be told; not of what was interrupted meanwhile. */
  #takeRecallable(): Remembered | undefined {
    for (;;) {
      const oldest = this.#recallable.pop();
      if (oldest === undefined || WORDS[oldest.word] === null || this.waiting.has(textOf(oldest))) return oldest;
    }
  }

  /** Where the history has the releases of locks that are remembered and were not asked for. */
  get rememberedUnlocks(): readonly number[] {
    return [...this.#remembered.values()].flatMap((facts) =>
      facts.filter(({ word }) => word === "unlock").map(({ version }) => version),
    );
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

  /** Applies a fact of the history; answers whether the code goes on because of it. `nowMs` is the time that the code saw then. */
  replay(name: string, data: unknown, nowMs: number, at: Written = UNWRITTEN): boolean {
    const { word, id } = parseFact(name);
    if (!Object.hasOwn(WORDS, word)) throw this.#contradiction(name, "knows nothing of the kind");
    return this.apply({ word: word as Word, id, data }, nowMs, at);
  }

  /** Applies a fact, which the history has there; answers whether the code goes on because of it. */
  apply({ word, id, data }: Fact, nowMs: number | undefined, at: Written = UNWRITTEN): boolean {
    const kind = WORDS[word];
    this.turn += 1;
    this.turnMs = nowMs ?? this.driver?.nowMs() ?? this.turnMs;
    if (kind === null) return this.#applyToRun(word, data, nowMs);
    const text = `${kind} ${id}`;
    const asked = this.waiting.get(text);
    if (asked === undefined) {
      if (this.#lost.has(text)) return false;
      throw this.#contradiction(`${word} ${id}`, this.#whereItIs());
    }
    if (asked.isHeldBack) this.#lockLines.wasAsked(asked);
    switch (word) {
      case "intent":
        asked.hasIntent = true;
        return false;
      case "undone":
        asked.hasIntent = false;
        return false;
      case "attempt": {
        const { attempts, error, dueMs, firstMs, hasTurn } = data as AttemptData;
        asked.attempts = attempts;
        asked.lastError = error;
        asked.dueMs = dueMs;
        asked.firstAttemptMs = firstMs ?? asked.firstAttemptMs;
        asked.hasTurn = hasTurn === true;
        // It waited for its turn and has not begun: it will say so again before it does.
        if (hasTurn === true) asked.hasIntent = false;
        asked.isPostponed = true;
        asked.attemptFacts ??= [];
        asked.attemptFacts.push(at);
        return false;
      }
      case "progress":
        asked.progress = data;
        return false;
      case "sleep":
      case "wait":
        asked.dueMs = (data as { dueMs: number }).dueMs;
        return false;
      case "child":
        asked.childId = (data as { run: string }).run;
        if (asked.plan.kind !== "child") return false;
        this.children.set(asked.id, {
          run: asked.childId,
          waits: asked.plan.waits,
          whenParentEnds: asked.plan.whenParentEnds,
          at,
        });
        if (asked.plan.waits) return false;
        return this.#settle(asked, { ok: asked.childId }, nowMs, at);
      case "refused":
        return this.#settle(asked, data as Settled, nowMs, at);
      case "woke":
        return this.#settle(asked, { ok: undefined }, nowMs, at);
      case "expired":
        return this.#settle(asked, { ok: { ok: false, reason: "timeout" } }, nowMs, at);
      case "received": {
        const { at: message, signal, value } = data as { at: number; signal: string; value: unknown };
        this.received.add(message);
        return this.#settle(asked, { ok: { ok: true, signal, value } }, nowMs, at);
      }
      case "queued":
        asked.queuedFact = at;
        asked.isQueued = true;
        asked.dueMs = (data as { dueMs?: number }).dueMs ?? null;
        this.#resume(asked);
        return false;
      case "granted":
        this.#keep(asked, true);
        return this.#settle(asked, { ok: this.fences.get(asked.id) ?? (data as { fence: number }).fence }, nowMs, at);
      case "placed":
        // A history from before `enqueue`: what was only tried keeps no place.
        if (asked.plan.kind === "lock" && !asked.plan.queue) this.mayHaveOrphans = true;
        else this.#keep(asked, false);
        return this.#settle(asked, { ok: { place: (data as { place: number }).place } }, nowMs, at);
      case "denied":
        this.#resume(asked);
        return this.#settle(asked, deniedAs(asked.plan, data as Denial), nowMs, at);
      case "unlock":
        if (asked.plan.kind === "unlock") this.kept.delete(asked.plan.of);
        // It belongs to the failure that it follows, and is done again with what failed.
        if (this.#failures.length > 0) this.#failures.push(at);
        return this.#settle(asked, { ok: data }, nowMs, at);
      case "ended": {
        const { at: message, outcome } = data as { at: number; outcome: Settled };
        this.received.add(message);
        const child = this.children.get(asked.id);
        this.children.delete(asked.id);
        if ("error" in outcome && child !== undefined) {
          // One that was canceled cannot be retried: a retry starts it again.
          if (isNamed(outcome.error, "RunCanceledError")) this.#failures.push(child.at);
          else this.#failedChildren.push({ id: asked.id, run: child.run, at: child.at });
        }
        return this.#settle(asked, outcome, nowMs, at);
      }
      default:
        return this.#settle(asked, data as Settled, nowMs, at);
    }
  }

  #keep(asked: Asked, isHeld: boolean): void {
    this.#resume(asked);
    if (asked.plan.kind === "lock") this.kept.set(asked.id, { plan: asked.plan, isHeld });
  }

  /** The place that it goes on with is this operation's from now on. */
  #resume({ plan }: Asked): void {
    if (plan.kind === "lock" && plan.resumes !== undefined) this.kept.delete(plan.resumes);
  }

  #settle(asked: Asked, outcome: Settled, nowMs: number | undefined, at: Written): boolean {
    this.#forget(asked);
    this.#nowMs = nowMs;
    if ("error" in outcome) this.#failures.push(...factsOf(asked), at);
    // It was under way when the cancellation arrived: that is where it comes out, with what became of the operation.
    if (asked.isCanceled) asked.settle({ error: this.#cancellation({ operation: asked.id, ...outcome }) });
    else asked.settle(outcome);
    return true;
  }

  #forget(asked: Asked): void {
    this.waiting.delete(asked.text);
    if (asked.kind === "lock") this.watched.locks -= 1;
    asked.end();
    if (asked.reactions.length > 0) this.#endRaces(asked.reactions);
    const next = this.#lockLines.leaves(asked);
    if (next !== undefined) this.#new.push(next);
    if (asked.kind === "step") this.#underWay.delete(asked.counted);
  }

  #applyToRun(word: Word, data: unknown, nowMs: number | undefined): boolean {
    if (word !== "canceled") return false;
    const cancel = data as CancelData;
    // Code that is retried has all the time for its cleanup again.
    const atMs = Math.max(nowMs ?? this.driver?.nowMs() ?? 0, this.retriedAtMs);
    this.#canceled = { data: cancel, error: this.#errorOf(cancel, undefined), atMs, isThrown: false };
    this.#nowMs = nowMs;
    // What merely waits is interrupted. What is being done is told to stop, and its end is waited for.
    let isInterrupted = false;
    for (const shield of this.#shields) {
      shield.isCanceled = true;
      this.#canceled.isThrown = true;
    }
    for (const asked of [...this.waiting.values()]) {
      if (!asked.branch.isWithin(this.root)) continue;
      this.#canceled.isThrown = true;
      if (!isInterruptible(asked, cancel.running)) {
        asked.isCanceled = true;
        continue;
      }
      this.#forget(asked);
      if (asked.kind === "lock") this.mayHaveOrphans = true;
      asked.settle({ error: this.#cancellation(undefined) });
      isInterrupted = true;
    }
    return isInterrupted;
  }

  #errorOf({ timedOut, reason }: CancelData, outcome: InterruptedOutcome | undefined): Error {
    return timedOut === true
      ? new RunTimedOutError(this.runId, outcome)
      : new RunCanceledError(this.runId, reason, outcome);
  }

  /** The cancellation as one operation throws it. */
  #cancellation(outcome: InterruptedOutcome | undefined): Error {
    return this.#errorOf(this.#canceled?.data ?? {}, outcome);
  }

  /** What the cancellation is, once it has arrived. */
  get canceled(): Error | undefined {
    return this.#canceled?.error;
  }

  /** When it arrived, by the store's clock. */
  get canceledAtMs(): number | undefined {
    return this.#canceled?.atMs;
  }

  #whereItIs(): string {
    if (this.outcome !== undefined) return "has ended by then";
    const waiting = [...this.waiting.keys()].map((text) => `"${text}"`);
    return waiting.length === 0 ? "asks for nothing" : `waits for ${waiting.slice(0, 5).join(", ")}`;
  }

  #contradiction(fact: string, code: string): HistoryContradictionError {
    return new HistoryContradictionError(this.runId, `"${fact}"`, code);
  }
}

/** What the history says of a cancellation. */
interface CancelData {
  readonly timedOut?: boolean;
  readonly reason?: string;
  /** Steps that were put off before, and were being done when it arrived. */
  readonly running?: readonly string[];
}

/** What the history says of an attempt that failed, or of one that waits for its turn. */
interface AttemptData {
  readonly attempts: number;
  readonly error?: unknown;
  readonly dueMs: number;
  readonly firstMs?: number;
  readonly hasTurn?: boolean;
}

const NONE: readonly Asked[] = [];
const NO_REACTIONS: readonly Reaction[] = [];

const UNWRITTEN: Written = { version: 0 };

const isNamed = (error: unknown, name: string): boolean => error instanceof Error && error.name === name;

/** The operation that a fact is about, as it is known while it waits; empty for the run. */
function textOf({ word, id }: Fact): string {
  const kind = WORDS[word];
  return kind === null ? "" : `${kind} ${id}`;
}

/** What is forgotten together with the failure of an operation. */
const factsOf = ({ attemptFacts = [], queuedFact }: Asked): readonly Written[] =>
  queuedFact === undefined ? attemptFacts : [...attemptFacts, queuedFact];

/** What is done even if the code has returned meanwhile; everything else only waits. */
function isWork({ plan, childId, branch }: Asked): boolean {
  if (branch.isStep) return true;
  switch (plan.kind) {
    case "step":
    case "slot":
    case "rate":
    case "unlock":
      return true;
    case "child":
      return childId === undefined;
    default:
      return false;
  }
}

const ignore = (): void => {};

/** Whether it merely waits. A step does while its next attempt is put off. */
const isInterruptible = ({ kind, id, isPostponed }: Asked, running: readonly string[] = []): boolean =>
  kind === "step"
    ? isPostponed && !running.includes(id)
    : kind === "sleep" || kind === "signal" || kind === "child" || kind === "lock";

/** Whether the run ended with its own cancellation. */
export const isCancellation = (error: unknown, run: string): error is RunCanceledError | RunTimedOutError =>
  (error instanceof RunCanceledError || error instanceof RunTimedOutError) && error.data.run === run;

/** How a wish for a lock that was not granted comes out: as an answer to one who only tried, and otherwise as an error. */
function deniedAs(plan: Plan, denial: Denial): Settled {
  const name = plan.kind === "lock" ? shownLocks(plan.refs) : "";
  switch (denial.reason) {
    case "busy":
      return { ok: { place: denial.place } };
    case "timeout":
      return { error: new LockTimeoutError(name, plan.kind === "lock" ? (plan.timeoutMs ?? 0) : 0) };
    case "removed":
      return { error: new LockRemovedError(name) };
    case "undeclared":
      return { error: new PermitsUndeclaredError(denial.name) };
    case "deadlock":
      return { error: new DeadlockError(name, denial.circle) };
  }
}
