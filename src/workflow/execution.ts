/**
 * An execution: this process works on a run that it holds, from the claim until the run rests, ends, or is lost.
 *
 * What happens outside arrives here: a step's outcome, a timer, a message. One at a time it becomes a fact, is given to the code, and the
 * code runs as far as it can. Then all facts that are not written yet are committed at once, together with whatever the code's next
 * wishes need beforehand: intents, ends of timers, children. Only when that is durable do the next effects begin. When the code has
 * returned, its last facts and the run's end are one commit; when nothing is left but to wait, the run is given back in the same way.
 * How things arrive is in `news.ts` and `effects.ts`, and what is written at the end in `holder.ts`.
 *
 * Promises: a step's record is durable before any later operation begins (G14); the order of the history is the order in which the code
 * saw it; whoever lost the run writes nothing any more (G6).
 */

import type { Held } from "../kernel/claim/claim.ts";
import { isHolder } from "../kernel/claim/decide.ts";
import type { Address, Row } from "../kernel/contract.ts";
import type { Tx } from "../kernel/decision.ts";
import type { Draft } from "../kernel/draft.ts";
import {
  ClosedError,
  CommitsLostError,
  FencedError,
  InvalidValueError,
  LeaseUncertainError,
  StoreError,
  ValueTooLargeError,
} from "../kernel/errors.ts";
import type { Kernel } from "../kernel/kernel.ts";
import { cancelChildren } from "./cascade.ts";
import { Context, type Turns } from "./context.ts";
import { type Asked, Coroutine, type Driver, type Fact, isCancellation, type Settled } from "./coroutine.ts";
import { MOST_FOLLOWED } from "./deadlock.ts";
import type { Definition } from "./definition.ts";
import { type Doing, doingOf, recordDoing } from "./doing.ts";
import { Effects, type EffectsHost } from "./effects.ts";
import { HistoryContradictionError, RaceLostError, RunStuckError, RunTimedOutError, SchemaError } from "./errors.ts";
import type { RunEvent, RunListener, Told } from "./events.ts";
import { childrenToRetry, withSkips } from "./forgotten.ts";
import { appendFacts, end, giveBack, park, putBack, release, type Unwritten } from "./holder.ts";
import type { Recorded } from "./joint-step.ts";
import {
  CircleFound,
  dropOrphans,
  dropSomeHolds,
  needsFences,
  reenter,
  refenceHolds,
  restBlocked,
  restUnblocked,
} from "./locks.ts";
import { News, type NewsHost } from "./news.ts";
import { storedAs } from "./outcome.ts";
import type { StepPlan } from "./plans.ts";
import { retrySome } from "./records.ts";
import { replay } from "./replay.ts";
import { type RunValue, rangesOf } from "./run.ts";
import { checkSchema } from "./schema.ts";
import {
  begins,
  endOf,
  type Granted,
  grant,
  isDecided,
  isEffect,
  needsIntent,
  needsRecord,
  noneGranted,
} from "./wishes.ts";
import type { RunStatus, Word } from "./words.ts";

/** What executions of one process share. */
export interface Engine extends Turns {
  readonly kernel: Kernel;
  readonly leaseMs: number;
  /** For how long workers may contradict a run's history before it is parked. */
  readonly contradictionMs: number;
  /** The code here contradicts the run's history. */
  shun(run: string): void;
  /** True once the worker takes no more and gives back what it has. */
  readonly isStopping: boolean;
  /** Says whose code runs from now on. */
  running(run: string): void;
  /** How long a run of this workflow is kept after it has ended so; null is forever. */
  keptMs(workflow: string, status: string): number | null;
  /** The code of this run has ended, and only that is left to be written. */
  ending(held: Held): void;
  /** Whether events of this type are wanted. */
  hears(type: RunEvent["type"]): boolean;
  told(event: RunEvent): void;
  readonly around: RunListener["around"];
}

/** How the work on a run ended here. */
export type Ending = "rested" | "ended" | "given back" | "lost";

/** How long code may wait for what is no operation of ours. */
const STUCK_MS = 10_000;
/** One commit writes what at most this many operations need before they begin, and cancels at most this many children. */
const MOST_BEGUN = 200;

export class Execution implements EffectsHost, NewsHost, Driver {
  readonly #engine: Engine;
  readonly kernel: Kernel;
  readonly #held: Held;
  readonly #definition: Definition;
  readonly at: Address;
  readonly coroutine: Coroutine;
  #value: RunValue;
  readonly #isCold: boolean;
  /** Where the history ended at the claim. */
  readonly #claimedHead: number;
  /** The store's clock at the claim, and this process's at the same moment. */
  readonly claimedAtMs: number;
  readonly #claimedHereMs: number;
  #unwritten: Unwritten[] = [];
  readonly #news: News;
  /** Asked for, and not begun: what is unwritten must be durable first. In the order in which the code asked. */
  readonly #toBegin = new Set<Asked>();
  readonly #effects: Effects;
  #isDraining = false;
  #isCommitting = false;
  /** While a commit is under way whose facts the code has not seen yet, nothing else may become a fact. */
  #isBlocked = false;
  #isOver = false;
  #cancelTimer: () => void = () => {};
  #cancelStuck: (() => void) | undefined;
  readonly #ending = Promise.withResolvers<Ending>();

  constructor(
    engine: Engine,
    definition: Definition,
    held: Held,
    row: Row,
    value: RunValue,
    claimedAtMs: number,
    warm: Coroutine | undefined,
  ) {
    this.#engine = engine;
    this.kernel = engine.kernel;
    this.#definition = definition;
    this.#held = held;
    this.at = held.at;
    this.#value = value;
    this.claimedAtMs = claimedAtMs;
    this.#claimedHereMs = engine.kernel.ports.clock.nowMs();
    this.#isCold = warm === undefined;
    this.coroutine =
      warm ?? new Coroutine(held.at.key, value.scheduledAtMs ?? value.startedAtMs, engine.kernel.ports.bodies);
    this.coroutine.driver = this;
    this.coroutine.strayed = undefined;
    this.#wakes = row.wakes;
    this.#claimedHead = row.head;
    this.valueVersion = row.version;
    this.coroutine.fences = fencesOf(value);
    this.#effects = new Effects(this);
    this.#news = new News(this);
  }

  /** So many wake-ups have reached the run, as far as is known here. */
  #wakes: number;

  get wakes(): number {
    return this.#wakes;
  }

  get runId(): string {
    return this.#held.at.key;
  }

  /** Under which claim it works. */
  get fence(): number {
    return this.#held.fence;
  }

  get value(): RunValue {
    return this.#value;
  }

  get clock(): Kernel["ports"]["clock"] {
    return this.kernel.ports.clock;
  }

  nowMs(): number {
    return Math.round(this.claimedAtMs + this.clock.nowMs() - this.#claimedHereMs);
  }

  get workflow(): string {
    return this.#definition.name;
  }

  get incarnation(): number {
    return this.#value.incarnation;
  }

  get around(): RunListener["around"] {
    return this.#engine.around;
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  /** What the run is doing; undefined while its code is being replayed. */
  doing(): Doing | undefined {
    if (!this.#isReady || this.#isOver) return undefined;
    return doingOf(this.coroutine.waiting, this.nowMs(), (asked) => this.#effects.has(asked));
  }

  isUnderWay(asked: Asked): boolean {
    return this.#effects.has(asked);
  }

  reconsider(asked: Asked): void {
    this.#toBegin.add(asked);
  }

  /** Works on the run. A new one has its input at hand; others are replayed unless their code is warm. */
  async work(isNew: { readonly input: unknown } | undefined): Promise<Ending> {
    try {
      if (this.#held.tries > this.#definition.maxTries) {
        await this.#park(`it was claimed ${this.#held.tries} times without getting anywhere`);
        return "lost";
      }
      if (needsFences(this.#value, this.#held.tries)) await this.#refence();
      if (this.#value.retrying !== undefined) await this.#retryChildren();
      if (isNew !== undefined) {
        this.coroutine.head = this.#value.from;
        this.#begin(isNew.input);
        this.#drain();
        this.tell({ type: "run.started" });
        if (this.#wakes > 0) this.#looks += 1;
        if (this.#value.cancel !== undefined || this.deadlineMs !== undefined) {
          this.#news.notice();
          this.#news.wakeDue(this.claimedAtMs);
        }
        this.#ready();
        return await this.#ending.promise;
      }
      if (this.#isCold) {
        await this.#replay();
        // Given up meanwhile, the code has seen only a part of its history.
        if (this.#isOver) return await this.#ending.promise;
        if (this.coroutine.head < this.#claimedHead) throw this.#held.commitsLost();
        // What the code left waiting when it returned is dropped before there is news of it.
        if (this.coroutine.outcome !== undefined) this.coroutine.conclude();
      }
      // Code that rested has begun all that it asked for.
      if (this.#isCold)
        for (const asked of this.coroutine.waiting.values()) if (begins(asked)) this.#toBegin.add(asked);
      const isFirst = this.#isCold && this.coroutine.head === this.#value.from;
      this.tell({ type: isFirst ? "run.started" : "run.resumed" });
      if (this.#wakes > this.coroutine.wakesSeen) await this.#news.readInbox();
      this.#news.notice();
      this.#news.wakeDue(this.claimedAtMs);
      this.#noticeGrace(this.claimedAtMs);
      this.#ready();
      return await this.#ending.promise;
    } catch (error) {
      return this.#trouble(error);
    }
  }

  /** Another worker held the run before, and may not know that it is over: its fences must be worth less. */
  async #refence(): Promise<void> {
    let done: readonly string[] = [];
    for (let isAll = false; !isAll; ) {
      const refenced = await this.#held.commit((record, tx) => refenceHolds(tx, record, done));
      ({ value: this.#value, done, isAll } = refenced);
    }
    this.coroutine.fences = fencesOf(this.#value);
  }

  /** The commit that retried the run left its children to be retried, because they are many. */
  async #retryChildren(): Promise<void> {
    const children = await childrenToRetry(this.kernel, this.at, this.#value);
    while (this.#value.retrying !== undefined && !this.#isOver)
      this.#value = await this.#held.commit((record, tx) => retrySome(tx, record, children));
  }

  /**
   * A run that had ended gave everything back. Retried, its code may believe that it holds a lock, because it remembers the grant: before
   * anything is done under it, the lock is waited for again, and the code begins anew with what it got.
   */
  get #hasLostLocks(): boolean {
    if (this.#value.retriedAt === undefined || this.coroutine.kept.size === 0) return false;
    const held = new Set(this.#value.holds?.map(({ id }) => id));
    for (const id of this.coroutine.kept.keys()) if (!held.has(id) && !this.#entered.has(id)) return true;
    return false;
  }

  /** Locks that a commit of this execution got, or has a place in line for: the run's record as it was last looked at may not have them. */
  readonly #entered = new Set<string>();

  async #reenter(): Promise<void> {
    const { kept, rememberedUnlocks } = this.coroutine;
    const unwritten = this.#takeUnwritten();
    this.#isCommitting = true;
    this.#isBlocked = true;
    const enter = (record: Draft, tx: Tx): boolean => {
      const entered = reenter(tx, record, kept);
      if (entered === "more") return false;
      this.#append(record, unwritten);
      const dueMs = entered === "waiting" ? null : tx.nowMs;
      // A release that is remembered was of the hold before.
      const value = withSkips(record, record.value as RunValue, rangesOf(rememberedUnlocks));
      record.write({
        value,
        holder: null,
        dueMs,
        tries: 0,
        status: "waiting" satisfies RunStatus,
      });
      return true;
    };
    for (let isDone = false; !isDone && !this.#isOver; ) isDone = await this.#held.commit(enter);
    this.#over("given back", undefined);
  }

  /** News from outside: somebody woke the run, or something may be due. What comes during a look is looked for afterwards. */
  look(): void {
    this.#looks += 1;
    if (this.#isReady && this.#looks === 1) this.#run(this.#lookAround());
  }

  #looks = 0;
  /** The version of the record that `value` is of. */
  valueVersion: number;
  /** The code is where the history ends; before that, it can be told nothing new. */
  #isReady = false;

  #ready(): void {
    this.#isReady = true;
    if (this.#looks > 0) this.#run(this.#lookAround());
    if (!this.#isDraining) this.#pump();
  }

  async #lookAround(): Promise<void> {
    for (let looked = 0; looked < this.#looks && !this.#isOver; ) {
      looked = this.#looks;
      const { value, version, wakes, nowMs } = await this.#held.look((record, tx) => ({
        value: record.value as RunValue,
        version: record.version,
        wakes: record.wakes,
        nowMs: tx.nowMs,
      }));
      this.#value = value;
      this.valueVersion = version;
      this.#wakes = wakes;
      if (wakes > this.coroutine.wakesSeen) await this.#news.readInbox();
      if (this.#isOver) return;
      this.#news.notice();
      this.#news.wakeDue(nowMs);
      this.#noticeGrace(nowMs);
    }
    this.#looks = 0;
    this.#armTimer();
    if (!this.#isDraining) this.#pump();
  }

  /** The lease is lost, or the worker is in a hurry: the code is given up, and another worker goes on from the history. */
  abandon(reason: unknown): void {
    if (!this.#isOver) this.tell({ type: "run.lost", error: reason });
    this.#over("lost", reason);
  }

  /** The code is not used again. What it still asks for, from a callback that it left behind, is refused and reported. */
  discard(): void {
    discard(this.coroutine, (message) => this.tell({ type: "run.warning", message }));
  }

  /** The worker stops: what runs is finished, and then the run is given back. */
  stopSoon(): void {
    if (!this.#isDraining) this.#pump();
  }

  /** The worker waits no longer: what runs is told to stop, and whatever becomes of it is another's to do again. */
  shutDown(reason: unknown): void {
    this.#effects.shutDown(reason);
  }

  #begin(input: unknown): void {
    const ctx = new Context(this.coroutine, this.#definition, this.#value, this.#engine, (event) => this.tell(event));
    this.#engine.running(this.runId);
    const begin = (): void => this.coroutine.begin(this.#definition, ctx, input);
    const { bodies } = this.kernel.ports;
    if (bodies === undefined) begin();
    else bodies.run({ run: this.runId }, begin);
  }

  #replay(): Promise<void> {
    return replay({
      kernel: this.kernel,
      at: this.at,
      value: this.#value,
      coroutine: this.coroutine,
      begin: (input) => this.#begin(input),
      claim: { fence: this.#held.fence, head: this.#claimedHead },
      isOver: () => this.#isOver,
    });
  }

  // Arrivals become facts.

  note(word: Word, data: unknown): void {
    this.#unwritten.push({ name: word, text: this.kernel.encode(this.at, data), version: 0 });
  }

  arrive(asked: Asked, word: Word, data: unknown, text: string): void {
    if (this.#isOver) return;
    this.#news.add({ asked, word, data, text });
    if (!this.#isDraining) this.#pump();
  }

  /** A turn in the step's rate limit: resolves with how long it is until then. */
  async reserveTurn({ turn }: StepPlan): Promise<number> {
    if (turn === undefined) return 0;
    const { waitMs } = await this.kernel.transact((tx) => turn(tx), []);
    return waitMs;
  }

  undone(asked: Asked): void {
    this.#toBegin.add(asked);
    if (!this.#isDraining) this.#pump();
  }

  #pump(): void {
    while (this.#isReady && !this.#isDraining && !this.#isBlocked && !this.#isOver) {
      this.#dropLosers();
      // What is remembered comes before anything new.
      if (this.coroutine.recall()) {
        this.#drain();
        continue;
      }
      const arrival = this.#news.next();
      if (arrival === undefined) {
        this.#turnEnded();
        return;
      }
      const { asked, word, data, text, nowMs } = arrival;
      // What was interrupted meanwhile is no fact any more; a message is then there for another.
      if (asked !== null && this.coroutine.waiting.get(asked.text) !== asked) {
        if (arrival.message !== undefined) this.#news.putBack(arrival.message);
        continue;
      }
      let at = arrival.at;
      if (text !== null) {
        const unwritten = { name: asked === null ? word : `${word} ${asked.id}`, text, version: 0 };
        this.#unwritten.push(unwritten);
        at = unwritten;
      }
      const fact: Fact = { word, id: asked?.id ?? "", data };
      this.#engine.running(this.runId);
      if (this.coroutine.apply(fact, nowMs, at)) this.#drain();
      if (word === "canceled") this.#abortCanceled();
    }
  }

  /** What is under way when a cancellation arrives is told to stop; its end is waited for. */
  #abortCanceled(): void {
    for (const asked of this.coroutine.waiting.values())
      if (asked.isCanceled) this.#effects.abort(asked, this.coroutine.canceled);
  }

  /** What lost a race is not waited for: a step is told to stop, a child is canceled by the next commit. */
  #dropLosers(): void {
    for (const asked of this.coroutine.takeLosers()) {
      if (asked.kind === "step") this.#effects.cancel(asked, new RaceLostError(this.runId, asked.shown));
      const child = this.coroutine.children.get(asked.id);
      if (asked.kind === "child" && child?.whenParentEnds === "cancel") this.#toCancel.push(child.run);
    }
  }

  /** Children that lost a race, and are not canceled yet. */
  #toCancel: string[] = [];

  /** Lets the code run as far as it can. */
  #drain(): void {
    this.#isDraining = true;
    this.clock.soon(() => {
      this.#isDraining = false;
      this.#pump();
    });
  }

  /** The code has seen everything there is, and waits. */
  #turnEnded(): void {
    if (this.#isCommitting || this.#isOver) return;
    const { coroutine } = this;
    for (const asked of coroutine.takeNew()) if (begins(asked)) this.#toBegin.add(asked);
    // A look at the run is no progress of its code.
    if (coroutine.waiting.size > 0 || coroutine.outcome !== undefined) {
      this.#cancelStuck?.();
      this.#cancelStuck = undefined;
    }
    if (this.#hasLostLocks && !this.#isGraceOver) {
      this.#whenIdle(() => this.#reenter());
      return;
    }
    if (coroutine.outcome !== undefined && this.#isConcluded(coroutine.outcome)) return;
    if (this.#isGraceOver && coroutine.canceled !== undefined) {
      this.#endGrace(coroutine.canceled);
      return;
    }
    if (this.#toPark !== undefined) {
      this.#whenIdle(() => this.#park(this.#toPark ?? ""));
      return;
    }
    if (this.#news.deliver()) {
      this.#pump();
      return;
    }
    const toBegin = this.#takeToBegin();
    const { isIdle } = this.#effects;
    if (isIdle && coroutine.waiting.size > 0 && !toBegin.some(isEffect) && this.#toCancel.length === 0) {
      // News that is being looked at must not be slept over.
      if (this.#looks > 0 && this.#toBegin.size === 0) this.#putFirst(toBegin);
      else this.#run(this.#rest(toBegin));
    } else if (this.#engine.isStopping) this.#stop(toBegin);
    else if (this.#unwritten.length > 0 || this.#toCancel.length > 0 || toBegin.some(needsRecord))
      this.#run(this.#commit(toBegin));
    // It waits for something that is no operation: perhaps it comes, perhaps never.
    else if (isIdle && coroutine.waiting.size === 0) this.#watchStuck();
    else {
      this.#start(toBegin);
      if (this.#toBegin.size > 0) this.#drain();
    }
  }

  /** What runs is waited for and recorded first, so that it is not done again; nothing new is begun meanwhile. */
  #whenIdle(work: () => Promise<void>): void {
    if (this.#effects.isIdle) this.#run(work());
    else if (this.#unwritten.length > 0) this.#run(this.#commit([]));
  }

  /** The code has returned: the run ends when everything that it asked to be done is done. Answers whether it ends now. */
  #isConcluded(outcome: Settled): boolean {
    const { open, forgotten } = this.coroutine.conclude();
    if (forgotten.length > 0 && !this.#hasWarned) {
      this.#hasWarned = true;
      const names = `${forgotten.slice(0, 10).join(", ")}${forgotten.length > 10 ? `, and ${forgotten.length - 10} more` : ""}`;
      const message = `the workflow's function returned without awaiting ${names}`;
      this.tell({ type: "run.warning", message });
    }
    if (open > 0) return false;
    const { unobserved } = this.coroutine;
    if (unobserved !== undefined) {
      const message = `${unobserved.tracked.shown} failed, and the workflow's function never awaited it: the run fails with it`;
      this.tell({ type: "run.warning", message, error: unobserved.error });
    }
    this.#run(this.#finish("ok" in outcome && unobserved !== undefined ? { error: unobserved.error } : outcome));
    return true;
  }

  #hasWarned = false;

  /** What was asked for and not begun, and not interrupted meanwhile, as much of it as one commit begins. */
  #takeToBegin(): readonly Asked[] {
    const toBegin: Asked[] = [];
    const { waiting } = this.coroutine;
    let written = 0;
    for (const asked of this.#toBegin) {
      if (waiting.get(asked.text) === asked) {
        if (needsRecord(asked)) written += 1;
        if (written > MOST_BEGUN) break;
        toBegin.push(asked);
      }
      this.#toBegin.delete(asked);
    }
    return toBegin;
  }

  /** These were not begun after all, and come before all others. */
  #putFirst(asked: readonly Asked[]): void {
    const others = [...this.#toBegin];
    this.#toBegin.clear();
    for (const one of asked) this.#toBegin.add(one);
    for (const one of others) this.#toBegin.add(one);
  }

  /** Nothing new is begun. What runs is waited for, and then the run is another's. */
  #stop(toBegin: readonly Asked[]): void {
    if (this.#effects.isIdle) this.#run(this.#giveBack());
    else {
      this.#putFirst(toBegin);
      if (this.#unwritten.length > 0) this.#run(this.#commit([]));
    }
  }

  #watchStuck(): void {
    if (this.#cancelStuck !== undefined) return;
    this.#cancelStuck = this.clock.after(STUCK_MS, () => {
      if (!this.#isOver && this.coroutine.waiting.size === 0) this.#run(Promise.reject(new RunStuckError(this.runId)));
    });
    // Code that went on by itself is noticed when it asks for something.
    this.#pollForeign(1);
  }

  /** Code that awaits something foreign goes on without our knowing: it is looked after for a while. */
  #pollForeign(ms: number): void {
    this.clock.after(ms, () => {
      if (this.#isOver || this.#isCommitting || this.#cancelStuck === undefined) return;
      if (this.coroutine.hasNew || this.coroutine.outcome !== undefined) this.#pump();
      else this.#pollForeign(Math.min(500, ms * 2));
    });
  }

  #run(work: Promise<void>): void {
    work.catch((error: unknown) => void this.#trouble(error));
  }

  // Commits.

  /** The store may have lost commits: the next one of this run finds out whether the run is what was last seen of it. */
  suspect(): void {
    this.#held.suspect();
  }

  /** The history ends where the code is, so that what the code has seen since can be written behind it. */
  #checkHead({ head }: Draft): void {
    if (head !== this.coroutine.head) throw this.#held.commitsLost();
  }

  /** Writes facts behind those that the code knows of. */
  #append(record: Draft, unwritten: readonly Unwritten[]): void {
    this.#checkHead(record);
    appendFacts(record, unwritten);
    // This code follows the history.
    if (this.#value.contradicted === undefined && this.#value.trouble === undefined) return;
    const { contradicted: _contradicted, trouble: _trouble, ...value } = record.value as RunValue;
    record.write({ value });
  }

  /** Writes what the code has seen, and what its next wishes need beforehand; then they begin. Many take several commits. */
  async #commit(toBegin: readonly Asked[]): Promise<void> {
    const unwritten = this.#takeUnwritten();
    const toCancel = this.#toCancel.slice(0, MOST_BEGUN);
    this.#toCancel = this.#toCancel.slice(MOST_BEGUN);
    this.#isCommitting = true;
    this.#isBlocked = toBegin.some(isDecided);
    const made = await this.#held.commit((record, tx) => {
      this.#append(record, unwritten);
      this.#dropOrphans(tx, record);
      cancelChildren(tx, toCancel, this.runId);
      return grant(tx, record, this.runId, toBegin, () => this.#awaitedChildren());
    });
    if (this.#isOver) return;
    this.coroutine.mayHaveOrphans = false;
    this.#queued(made);
    for (const [{ id }, word] of made.answers) if (word === "granted" || word === "placed") this.#entered.add(id);
    for (const asked of toBegin) asked.isSuspected = false;
    this.#unblock();
    this.coroutine.head += unwritten.length + made.facts;
    for (const [asked, dueMs] of made.timers) asked.dueMs = dueMs;
    for (const asked of made.intents) this.#effects.intended(asked);
    if (made.answers.length > 0)
      this.#news.addFirst(
        made.answers.map(([asked, word, data, at]) => ({ asked, word, data, text: null, nowMs: made.nowMs, at })),
      );
    this.#start(toBegin);
    if (!this.#isDraining) this.#pump();
  }

  /** What the code stopped waiting for is not waited for any more. */
  #dropOrphans(tx: Tx, record: Draft): void {
    const { coroutine } = this;
    if (coroutine.mayHaveOrphans)
      dropOrphans(tx, record, (id) => coroutine.kept.has(id) || coroutine.waiting.has(`lock ${id}`));
  }

  #queued({ queued, version }: Granted): void {
    for (const asked of queued) {
      asked.isQueued = true;
      asked.queuedVersion = version;
    }
  }

  /** The children that it waits for, or more of them than are followed to find a circle. */
  #awaitedChildren(): readonly string[] {
    const children = new Set<string>();
    for (const { childId } of this.coroutine.watched.calls) {
      if (childId !== undefined) children.add(childId);
      if (children.size > MOST_FOLLOWED) break;
    }
    return [...children];
  }

  /** Whether nothing can make it go on but a lock that is freed, or a child that ends. */
  #isBlockedByOthers(): boolean {
    // The end of a cleanup's grace is far off: a circle is found before.
    if (this.deadlineMs !== undefined && this.coroutine.canceled === undefined) return false;
    const { waiting, watched } = this.coroutine;
    return watched.timed.size === 0 && waiting.size === watched.locks + watched.calls.size;
  }

  #takeUnwritten(): readonly Unwritten[] {
    const unwritten = this.#unwritten;
    this.#unwritten = [];
    return unwritten;
  }

  /** Gives the run back until something is due, and keeps its code warm. */
  async #rest(toBegin: readonly Asked[]): Promise<void> {
    if (toBegin.some(isDecided) || this.#toBegin.size > 0) return this.#commit(toBegin);
    const unwritten = this.#takeUnwritten();
    this.#isCommitting = true;
    // What the code would see now would not be written with it.
    this.#isBlocked = true;
    let made = noneGranted();
    const isBlocked = this.#isBlockedByOthers();
    const nowMs = this.nowMs();
    const answer = await this.#restHeld(
      (tx) => {
        let due = this.#deadlineMs ?? null;
        const earlier = (ms: number | null): void => {
          if (ms !== null && (due === null || ms < due)) due = ms;
        };
        for (const asked of toBegin) earlier(endOf(asked, tx));
        for (const { dueMs } of this.coroutine.watched.timed) earlier(dueMs);
        return due;
      },
      (record, tx) => {
        this.#append(record, unwritten);
        this.#dropOrphans(tx, record);
        made = grant(tx, record, this.runId, toBegin);
        record.write({ status: "waiting" satisfies RunStatus });
        if (isBlocked) restBlocked(tx, record, this.#awaitedChildren(), this.#deadlineMs);
        else if (this.#value.blocked !== undefined) restUnblocked(record);
        recordDoing(record, doingOf(this.coroutine.waiting, nowMs, undefined, made.timers));
      },
    );
    if (this.#isOver) return;
    this.coroutine.mayHaveOrphans = false;
    if (answer !== "rested") {
      this.#unwritten = [...unwritten, ...this.#unwritten];
      this.#putFirst(toBegin);
      this.#unblock();
      if (answer === "circle") {
        this.#news.suspectAll();
        this.#pump();
      } else this.look();
      return;
    }
    this.coroutine.head += unwritten.length + made.facts;
    for (const [asked, dueMs] of made.timers) asked.dueMs = dueMs;
    this.#watchForeign();
    this.tell({ type: "run.rested" });
    this.#over("rested", undefined);
  }

  /** Code that awaits something foreign while the run rests would continue when nobody looks, and not at all after a restart. */
  #watchForeign(): void {
    const { coroutine, runId: run } = this;
    const engine = this.#engine;
    const { name: workflow } = this.#definition;
    if (!engine.hears("run.warning")) return;
    const warn = (what: string): void => {
      const message = `${what} awaits something that is not an operation of ctx, such as fetch or a timer: do it in ctx.step`;
      engine.told({ type: "run.warning", workflow, run, message });
    };
    if (coroutine.awaitsForeign) warn("the workflow's function");
    else coroutine.strayed = (did) => warn(`${did} while the run was waiting: its code`);
  }

  /** A run that would wait for ever is not rested: its wishes for locks are looked at first. */
  async #restHeld(
    ...[dueMs, write]: [(tx: Tx) => number | null, (record: Draft, tx: Tx) => void]
  ): Promise<"rested" | "woken" | "circle"> {
    try {
      return await this.#held.rest(dueMs, write);
    } catch (error) {
      if (error instanceof CircleFound) return "circle";
      throw error;
    }
  }

  /** The worker stops: the run goes to another at once. */
  async #giveBack(): Promise<void> {
    const unwritten = this.#takeUnwritten();
    this.#isCommitting = true;
    const doing = this.doing();
    await this.#held.commit((record, tx) => {
      this.#append(record, unwritten);
      cancelChildren(tx, this.#toCancel.slice(0, MOST_BEGUN), this.runId);
      giveBack(record, tx);
      if (doing !== undefined) recordDoing(record, doing);
    });
    if (!this.#isOver) this.tell({ type: "run.rested" });
    this.#over("given back", undefined);
  }

  /** The last facts and the end of the run. What it gave but cannot be stored, or does not fit the schema, is a failure. */
  async #finish(outcome: Settled): Promise<void> {
    this.#isCommitting = true;
    const { output } = this.#definition;
    if ("error" in outcome) return this.#end(storedAs(this.kernel, this.at, outcome), statusOf(outcome, this.runId));
    try {
      const ok = output === undefined ? outcome.ok : await checkSchema(output, outcome.ok, "the run's output");
      await this.#end({ ok }, "completed");
    } catch (error) {
      if (!(error instanceof InvalidValueError || error instanceof ValueTooLargeError || error instanceof SchemaError))
        throw error;
      await this.#end(storedAs(this.kernel, this.at, { error }), "failed");
    }
  }

  async #end(settled: Settled, status: RunStatus): Promise<void> {
    const children = await this.#cancelChildren();
    // Its code has ended, so what it holds can be released a little earlier, if it is too much for one commit.
    for (let isMore = this.#hasManyHolds; isMore && !this.#isOver; )
      isMore = await this.#held.commit((record, tx) => dropSomeHolds(tx, record));
    if (this.#isOver) return;
    this.#engine.ending(this.#held);
    const unwritten = this.#unwritten;
    const { forgettable } = this.coroutine;
    const nowMs = this.nowMs();
    const keptMs = this.#engine.keptMs(this.#definition.name, status);
    await this.#held.commit((record, tx) => {
      this.#append(record, unwritten);
      cancelChildren(tx, children, this.runId);
      end(tx, record, this.runId, { status, settled, forgettable, nowMs, keptMs });
    });
    if (this.#isOver) return;
    this.tell({ type: "run.ended", status, ...("error" in settled ? { error: settled.error } : {}) });
    this.#over("ended", undefined);
  }

  get #hasManyHolds(): boolean {
    return this.coroutine.kept.size > MOST_BEGUN / 4;
  }

  /** Cancels children that end with the run, as far as they are too many for the commit that ends it. Returns those that are left for that. */
  async #cancelChildren(): Promise<readonly string[]> {
    const doomed = [...this.coroutine.children.values()].flatMap(({ run, whenParentEnds }) =>
      whenParentEnds === "cancel" ? [run] : [],
    );
    let first = 0;
    for (; doomed.length - first > MOST_BEGUN && !this.#isOver; first += MOST_BEGUN) {
      const some = doomed.slice(first, first + MOST_BEGUN);
      await this.#held.commit((_record, tx) => cancelChildren(tx, some, this.runId));
    }
    return doomed.slice(first);
  }

  /** Why an operator is needed, once nothing runs any more. */
  #toPark: string | undefined;

  park(reason: string): void {
    this.#toPark ??= reason;
    // After others that begin in the same turn.
    if (!this.#isDraining) this.#drain();
  }

  async #park(reason: string): Promise<void> {
    this.#isCommitting = true;
    const unwritten = this.#takeUnwritten();
    const doing = this.doing();
    await this.#held.commit((record) => {
      if (unwritten.length > 0) this.#append(record, unwritten);
      park(record, reason);
      if (doing !== undefined) recordDoing(record, doing);
    });
    this.tell({ type: "run.parked", message: reason });
    this.#over("lost", new Error(reason));
  }

  // What happens outside.

  #start(toBegin: readonly Asked[]): void {
    if (!this.#isReady) return;
    // A process that stood still for longer than its lease begins nothing.
    if (toBegin.length > 0 && this.clock.nowMs() >= this.#held.safeUntilMs) {
      this.#over("lost", new LeaseUncertainError());
      return;
    }
    this.#engine.running(this.runId);
    for (const asked of toBegin)
      if (asked.plan.kind === "step" && this.coroutine.waiting.has(asked.text) && !this.#effects.has(asked)) {
        // Its time may have come during the commit.
        if (needsIntent(asked)) this.reconsider(asked);
        else if (asked.dueMs === null) this.#effects.begin(asked, asked.plan);
      }
    this.#armTimer();
  }

  /** From here on nothing else becomes a fact, until the transaction that is being joined has ended. */
  async enterTransaction(isCurrent: () => boolean): Promise<void> {
    while (this.#isCommitting && !this.#isOver) await new Promise<void>((resolve) => this.#entering.push(resolve));
    // The attempt may have been given up meanwhile.
    if (this.#isOver || !isCurrent()) throw new FencedError(this.runId, this.#held.fence, this.#held.fence);
    this.#isCommitting = true;
    this.#isBlocked = true;
  }

  /** In the transaction: the step's record, and what is unwritten before it. Answers the row as it will be. */
  recordIn(tx: Tx, asked: Asked, text: string): Recorded {
    const record = tx.record(this.at);
    if (!isHolder(record, this.#held)) throw new FencedError(this.runId, this.#held.fence, record.fence);
    this.#held.checkSame(record);
    this.#append(record, this.#unwritten);
    const version = record.appendText(`step ${asked.id}`, text);
    return { row: record.row, nowMs: tx.nowMs, version };
  }

  /** The transaction is committed: the code hears of it. */
  leaveTransaction(asked: Asked, text: string, written: Recorded): void {
    const { kernel } = this;
    if (this.#isOver) return;
    if (written.row !== null) kernel.hold(this.at, written.row);
    this.coroutine.head += this.#unwritten.length + 1;
    this.#unwritten = [];
    this.#unblock();
    this.tell({ type: "step.completed", step: asked.id });
    const data = kernel.decodeFresh(this.at, text);
    this.#news.addWritten({ asked, word: "step", data, text: null, nowMs: written.nowMs, at: written });
    if (!this.#isDraining) this.#pump();
  }

  /** The transaction came to nothing, or nobody knows what it came to. */
  dropTransaction(error: unknown, isDoubtful: boolean): void {
    if (isDoubtful) this.#run(Promise.reject(error));
    else {
      this.#unblock();
      if (!this.#isDraining) this.#pump();
    }
  }

  /** Transactions that wait for the commit under way to end. */
  #entering: (() => void)[] = [];

  #unblock(): void {
    this.#isCommitting = false;
    this.#isBlocked = false;
    this.#letEnter();
  }

  #letEnter(): void {
    const entering = this.#entering;
    this.#entering = [];
    for (const enter of entering) enter();
  }

  // Timers, messages and cancellation.

  /** When the run times out; once it is canceled, when its cleanup does. */
  get #deadlineMs(): number | undefined {
    const { canceledAtMs } = this.coroutine;
    return canceledAtMs === undefined ? this.deadlineMs : canceledAtMs + this.#definition.graceMs;
  }

  /** When the run times out. One that was started by the name of its workflow has the time limit that the code says. */
  get deadlineMs(): number | undefined {
    const { deadlineMs, retriedAt, scheduledAtMs, startedAtMs } = this.#value;
    const { timeoutMs } = this.#definition;
    if (deadlineMs !== undefined || timeoutMs === null || retriedAt !== undefined) return deadlineMs;
    return (scheduledAtMs ?? startedAtMs) + timeoutMs;
  }

  /** Notices that the time for cleanup is over: then the run ends with its cancellation, whatever its code still does. */
  #noticeGrace(nowMs: number): void {
    const { canceledAtMs } = this.coroutine;
    if (canceledAtMs !== undefined && nowMs >= canceledAtMs + this.#definition.graceMs) this.#isGraceOver = true;
  }

  #isGraceOver = false;

  #endGrace(canceled: Error): void {
    const open = [...this.coroutine.waiting.values()].map(({ shown }) => shown);
    const what = open.length === 0 ? "" : `: ${open.slice(0, 10).join(", ")} may still be under way`;
    this.tell({ type: "run.warning", message: `the cleanup took longer than the workflow's grace${what}` });
    this.#run(this.#finish({ error: canceled }));
  }

  /** The store is asked whether something is due, when it should be, and now and then: this process's clock may be wrong. */
  #armTimer(): void {
    this.#cancelTimer();
    let dueMs = this.#deadlineMs ?? Number.POSITIVE_INFINITY;
    for (const asked of this.coroutine.watched.timed) if (asked.dueMs !== null) dueMs = Math.min(dueMs, asked.dueMs);
    if (dueMs === Number.POSITIVE_INFINITY || this.#isOver) return;
    const delayMs = Math.min(Math.max(1, dueMs - this.nowMs()), this.#engine.leaseMs / 3);
    this.#cancelTimer = this.clock.after(delayMs, () => this.look());
  }

  // The end.

  tell(event: Told): void {
    if (this.#engine.hears(event.type))
      this.#engine.told({ ...event, workflow: this.#definition.name, run: this.runId });
  }

  async #trouble(error: unknown): Promise<Ending> {
    if (this.#isOver) return this.#ending.promise;
    const isStore = error instanceof StoreError || error instanceof CommitsLostError;
    if ((error instanceof FencedError && !isStore) || error instanceof ClosedError) {
      this.tell({ type: "run.lost", error });
      this.#over("lost", error);
      return "lost";
    }
    this.tell({ type: "run.trouble", error });
    // Whatever comes now is for whoever goes on.
    this.#isReady = false;
    try {
      if (error instanceof HistoryContradictionError) await this.#contradicted(error);
      else if (!isStore && this.#held.tries >= this.#definition.maxTries) {
        this.#unwritten = [];
        await this.#park(reasonOf(error));
      } else await this.#putBack(isStore, reasonOf(error));
    } catch (again) {
      this.tell({ type: "run.lost", error: again });
    }
    this.#over("lost", error);
    return "lost";
  }

  /** Another worker may have the code that wrote the history. If none has for a long time, an operator must look. */
  async #contradicted(error: HistoryContradictionError): Promise<void> {
    const { contradictionMs } = this.#engine;
    this.#engine.shun(this.runId);
    const reason = reasonOf(error);
    const isParked = await this.#held.commit((record, tx) => {
      const { contradicted } = record.value as RunValue;
      const isLong = contradicted !== undefined && tx.nowMs - contradicted.sinceMs >= contradictionMs;
      if (isLong) park(record, reason);
      else release(record, tx, reason);
      return isLong;
    });
    if (isParked) this.tell({ type: "run.parked", message: reason });
  }

  /** Due again after a while. What only the store is to blame for counts as no try. */
  async #putBack(isStore: boolean, reason: string): Promise<void> {
    const delayMs = Math.min(60_000, 100 * 2 ** Math.min(this.#held.tries - 1, 20));
    await this.#held.commit((record, tx) => putBack(record, tx, delayMs, isStore, reason));
  }

  #over(ending: Ending, reason: unknown): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#cancelTimer();
    this.#cancelStuck?.();
    this.#effects.drop(reason);
    this.#letEnter();
    this.coroutine.driver = undefined;
    if (ending !== "rested") this.discard();
    this.#ending.resolve(ending);
  }
}

function fencesOf({ holds }: RunValue): ReadonlyMap<string, number> {
  if (holds === undefined) return NO_FENCES;
  return new Map(holds.flatMap(({ id, fence }) => (fence === undefined ? [] : [[id, fence] as const])));
}

const NO_FENCES: ReadonlyMap<string, number> = new Map();

function statusOf(settled: Settled, run: string): RunStatus {
  if ("ok" in settled) return "completed";
  if (isCancellation(settled.error, run)) return settled.error instanceof RunTimedOutError ? "timed_out" : "canceled";
  return "failed";
}

function reasonOf(error: unknown): string {
  if (error instanceof HistoryContradictionError)
    return `the history says ${error.data.history}, but the code ${error.data.code}`;
  return error instanceof Error ? error.message : String(error);
}

/** Makes a coroutine refuse what its code still asks for. */
export function discard(coroutine: Coroutine, warn: (message: string) => void): void {
  coroutine.isEnded = true;
  coroutine.usedLate = (shown) =>
    warn(`${shown} was started after the run had ended, or was resumed elsewhere: it has no effect`);
}
