/**
 * An execution: this process works on a run that it holds, from the claim until the run rests, ends, or is lost.
 *
 * Everything from outside, a step's outcome, a timer, a message, is put into one queue (`arrivals.ts`), and one loop takes from it
 * (`#advance`): an arrival becomes a fact, the code receives it and runs as far as it can, and then the next one is taken. When none is left,
 * all facts that the store does not have yet are committed together, with what the operations that the code started need beforehand: intents,
 * ends of timers, children (`held-run.ts`). Only when that is durable do the next steps begin (`effects.ts`). When the code has returned,
 * its last facts and the run's end are one commit; when only waiting is left, the run is released in the same way.
 *
 * What may happen at a moment depends on the phase (`phase.ts`):
 *
 *     replaying ──► running ◄──► committing      a commit writes what the code has seen
 *                    │    ◄────► deciding        a commit makes facts that the code has not seen, or the run rests
 *                    ▼
 *                  ending ──► over               (from every phase: failing ──► over, or over)
 *
 * Guarantees: a step's record is durable before any later operation begins (G14); the order of the history is the order in which the code
 * saw it; a process that lost the run writes nothing any more (G6).
 */

import type { Held } from "../../kernel/claim/claim.ts";
import type { Row } from "../../kernel/contract.ts";
import {
  ClosedError,
  CommitsLostError,
  FencedError,
  InvalidValueError,
  LeaseUncertainError,
  SchemaError,
  StoreError,
  ValueTooLargeError,
} from "../../kernel/errors.ts";
import type { StandardSchema } from "../../kernel/schema.ts";
import type { Definition } from "../definitions/definition.ts";
import { HistoryContradictionError, RaceLostError, RunStuckError, RunTimedOutError } from "../errors.ts";
import type { EventBody } from "../events.ts";
import { givenInput } from "../flow/collect.ts";
import type { Started } from "../flow/stored.ts";
import { doingOf } from "../history/doing.ts";
import { storedAs, unstorableResult } from "../history/outcome.ts";
import { beginsAtMs, type Doing, type EndedStatus, type Outcome, type RunValue } from "../stored.ts";
import { Arrivals, type FactArrival } from "./arrivals.ts";
import { Context } from "./context.ts";
import { Coroutine } from "./coroutine.ts";
import { Effects } from "./effects.ts";
import { checkOutput, conclude, discard, endedStatusOf, reasonOf } from "./ending.ts";
import type { Engine } from "./engine.ts";
import { ForeignWatch, warnOfForeign } from "./foreign.ts";
import { HeldRun, type Recorded } from "./held-run.ts";
import type { StepTransactions } from "./joint-step.ts";
import type { Fact } from "./memory.ts";
import { News } from "./news.ts";
import type { PendingOperation } from "./pending.ts";
import { PHASES, type Phase } from "./phase.ts";
import { begins, isDecided, isEffect, needsIntent, needsRecord, type Prepared } from "./prepare.ts";
import { replay } from "./replay.ts";
import { isCancellation } from "./rules.ts";
import { NotHere } from "./steps.ts";
import { ToBegin } from "./to-begin.ts";

/** How the work on a run ended here. */
export type Ending = "rested" | "ended" | "released" | "lost";

export class Execution implements StepTransactions {
  readonly #engine: Engine;
  readonly #definition: Definition;
  readonly #held: Held;
  readonly run: HeldRun;
  readonly coroutine: Coroutine;
  readonly #isCold: boolean;
  readonly #arrivals = new Arrivals(() => this.#advance());
  readonly #toBegin = new ToBegin();
  readonly #effects: Effects;
  readonly #news: News;
  readonly #foreign: ForeignWatch;
  #phase: Phase = "replaying";
  /** The loop is not at work, is at work, or waits until the code has run as far as it can. */
  #loop: "idle" | "taking" | "code" = "idle";
  /** Something has changed since the loop last began to take arrivals. */
  #hasChanged = false;
  /** How many looks at the run's record were requested since the last one ended. */
  #looks = 0;
  /** Why an operator is needed: the run is parked once nothing runs any more. */
  #toPark: string | undefined;
  /** The time for cleanup after a cancellation is over. */
  #isGraceOver = false;
  /** Transactions of steps that wait for the commit under way. */
  #entering: (() => void)[] = [];
  #cancelTimer: () => void = () => {};
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
    const { kernel } = engine;
    this.#engine = engine;
    this.#definition = definition;
    this.#held = held;
    this.#isCold = warm === undefined;
    this.coroutine = warm ?? new Coroutine(held.at.key, beginsAtMs(value), kernel.ports.bodies);
    this.run = new HeldRun(kernel, definition, held, row, value, claimedAtMs, this.coroutine);
    this.coroutine.driver = this.run;
    this.coroutine.strayed = undefined;
    this.#effects = new Effects(this.run, this.#arrivals, this, engine, (event) => this.#emit(event));
    this.#news = new News(this.run, this.#arrivals, this.#toBegin, this.#effects);
    this.#foreign = new ForeignWatch(
      this.run.clock,
      this.coroutine,
      () => this.#advance(),
      () => void this.#fail(new RunStuckError(this.run.id)),
    );
  }

  /** What the run is doing; undefined while its code is being replayed. */
  doing(): Doing | undefined {
    if (!PHASES[this.#phase].isLive) return undefined;
    return doingOf(this.coroutine.waiting, this.run.nowMs(), (pending) => this.#effects.has(pending));
  }

  /** Works on the run. A new run comes with its input; others are replayed unless their code is warm. */
  work(isNew: { readonly input: unknown } | undefined): Promise<Ending> {
    const { bodies } = this.run.kernel.ports;
    return bodies === undefined ? this.#work(isNew) : bodies.run(this.#effects.place, () => this.#work(isNew));
  }

  async #work(isNew: { readonly input: unknown } | undefined): Promise<Ending> {
    const { run, coroutine } = this;
    try {
      if (run.tries > this.#definition.maxTries) {
        await this.#park(`it was claimed ${run.tries} times without getting anywhere`);
        return "lost";
      }
      if (run.needsFences) await run.refence();
      if (run.value.retrying !== undefined) await run.retryChildren(this.#isOver);
      if (isNew !== undefined) {
        coroutine.head = run.value.from;
        this.#begin(isNew);
        this.#letCodeRun();
        this.#emit({ type: "run.started" });
        if (run.wakes > 0) this.#looks += 1;
        if (run.value.cancel !== undefined || run.timesOutMs !== undefined) {
          this.#news.notice();
          this.#news.wakeDue(run.claimedAtMs);
        }
        this.#ready();
        return await this.#ending.promise;
      }
      if (this.#isCold) {
        await this.#replay();
        // Abandoned meanwhile, the code has seen only a part of its history.
        if (this.#isOver()) return await this.#ending.promise;
        run.checkReplayed();
        // What the code left waiting when it returned is dropped before anything arrives for it.
        if (coroutine.outcome !== undefined) this.#conclude();
        // Warm code has begun everything that it started.
        for (const pending of coroutine.waiting.values()) if (begins(pending)) this.#toBegin.add(pending);
      }
      const isFirst = this.#isCold && coroutine.head === run.value.from;
      this.#emit({ type: isFirst ? "run.started" : "run.resumed" });
      if (run.wakes > coroutine.wakesSeen) await this.#news.readInbox();
      this.#news.notice();
      this.#news.wakeDue(run.claimedAtMs);
      this.#noticeGrace(run.claimedAtMs);
      this.#ready();
      return await this.#ending.promise;
    } catch (error) {
      return this.#fail(error);
    }
  }

  #begin(started: Started): void {
    const { run } = this;
    const input = givenInput(this.#definition.flow?.collect, started);
    const ctx = new Context(this.coroutine, this.#definition, run.value, this.#engine, (event) => this.#emit(event));
    this.#engine.running(run.id);
    const begin = (): void => this.coroutine.begin(this.#definition, ctx, input);
    const { bodies } = run.kernel.ports;
    if (bodies === undefined) begin();
    else bodies.run({ run: run.id }, begin);
  }

  #replay(): Promise<void> {
    const { kernel, at, value, coroutine, fence, claimedHead } = this.run;
    return replay({
      kernel,
      at,
      value,
      coroutine,
      begin: (started) => this.#begin(started),
      claim: { fence, head: claimedHead },
      isOver: this.#isOver,
    });
  }

  // Phases.

  #enter(phase: Phase): void {
    if (!PHASES[this.#phase].next.includes(phase))
      throw new Error(`the execution of run "${this.run.id}" cannot go from ${this.#phase} to ${phase}`);
    this.#phase = phase;
  }

  readonly #isOver = (): boolean => this.#phase === "over";

  /** The code is where the history ends. */
  #ready(): void {
    // Abandoned meanwhile.
    if (this.#phase !== "replaying") return;
    this.#enter("running");
    if (this.#looks > 0) this.#do(this.#lookAround());
    this.#advance();
  }

  /** The commit under way has ended. */
  #resume(): void {
    if (PHASES[this.#phase].isCommitting) this.#enter("running");
    this.#letEnter();
  }

  /** Work that is not awaited; its failure ends the execution. */
  #do(work: Promise<void>): void {
    work.catch(this.#failed);
  }

  readonly #failed = (error: unknown): void => void this.#fail(error);

  // The loop.

  /** Takes arrivals as far as the phase allows: now, or as soon as the loop is free, or the code has run as far as it can. */
  #advance(): void {
    this.#hasChanged = true;
    if (this.#loop !== "idle") return;
    this.#loop = "taking";
    try {
      while (this.#hasChanged && this.#loop === "taking") {
        this.#hasChanged = false;
        this.#takeArrivals();
      }
    } catch (error) {
      void this.#fail(error);
    }
    if (this.#loop === "taking") this.#loop = "idle";
  }

  #takeArrivals(): void {
    while (PHASES[this.#phase].takesFacts) {
      this.#dropLosers();
      // What is remembered comes before anything new.
      if (this.coroutine.recall()) {
        this.#letCodeRun();
        return;
      }
      const arrival = this.#news.next();
      if (arrival === undefined) {
        this.#turnEnded();
        return;
      }
      if (arrival.is === "undone") this.#toBegin.add(arrival.pending);
      else if (arrival.is === "park") this.#toPark ??= arrival.reason;
      else if (arrival.is === "leave") throw arrival.error;
      else if (this.#apply(arrival)) {
        this.#letCodeRun();
        return;
      }
    }
  }

  /** Makes an arrival a fact, and gives it to the code. Returns whether the code continues because of it. */
  #apply({ pending, word, data, text, nowMs, message, at }: FactArrival): boolean {
    const { coroutine } = this;
    // What was interrupted meanwhile does not become a fact, but for that of a step that never began; a message is then there for another operation.
    const isInterrupted = pending !== null && coroutine.waiting.get(pending.text) !== pending;
    if (isInterrupted && word !== "undone") {
      if (message !== undefined) this.#news.putBack(message);
      // What is written is applied, as at replay: a child may have been started.
      else if (text === null && coroutine.hasLost(pending)) coroutine.apply({ word, id: pending.id, data }, nowMs, at);
      return false;
    }
    const written = text === null ? at : this.run.add(pending === null ? word : `${word} ${pending.id}`, text);
    const fact: Fact = { word, id: pending?.id ?? "", data };
    this.#engine.running(this.run.id);
    const continues = coroutine.apply(fact, nowMs, written);
    if (word === "canceled") this.#abortCanceled();
    return continues;
  }

  /** Lets the code run as far as it can; then the loop continues. */
  #letCodeRun(): void {
    this.#loop = "code";
    this.run.clock.soon(this.#codeRan);
  }

  readonly #codeRan = (): void => {
    this.#loop = "idle";
    this.#advance();
  };

  /** Steps that are under way when a cancellation arrives are aborted; their end is waited for. */
  #abortCanceled(): void {
    for (const pending of this.coroutine.waiting.values())
      if (pending.isCanceled) this.#effects.abort(pending, this.coroutine.canceled);
  }

  /** What lost a race is not waited for: a step is aborted, a child is canceled by the next commit. */
  #dropLosers(): void {
    for (const pending of this.coroutine.takeLosers()) {
      if (pending.kind === "step") this.#effects.cancel(pending, new RaceLostError(this.run.id, pending.shown));
      const { plan, childId, isSharedChild } = pending;
      if (plan.kind === "child" && plan.whenParentEnds === "cancel" && childId !== undefined && !isSharedChild)
        this.run.cancelChild(childId);
    }
  }

  /** The code has seen everything there is, and waits: decides what is written, begun or released now. */
  #turnEnded(): void {
    if (PHASES[this.#phase].isCommitting) return;
    const { coroutine, run } = this;
    for (const pending of coroutine.takeNew()) if (begins(pending)) this.#toBegin.add(pending);
    // A look at the run is no progress of its code.
    if (coroutine.waiting.size > 0 || coroutine.outcome !== undefined) this.#foreign.stop();
    if (run.hasLostLocks && !this.#isGraceOver) {
      this.#whenIdle(() => this.#reenter());
      return;
    }
    if (coroutine.outcome !== undefined && this.#isConcluded(coroutine.outcome)) return;
    if (this.#isGraceOver && coroutine.canceled !== undefined) {
      this.#endGrace(coroutine.canceled);
      return;
    }
    const { isIdle } = this.#effects;
    if (this.#toPark !== undefined) {
      this.#whenIdle(() => this.#parkNow());
      return;
    }
    if (this.#news.deliver()) {
      this.#advance();
      return;
    }
    const toBegin = this.#toBegin.take(coroutine.waiting);
    if (isIdle && coroutine.waiting.size > 0 && !toBegin.some(isEffect) && !run.hasToCancel) {
      // A look at the record is under way, and may bring something: the run does not rest meanwhile.
      if (this.#looks > 0 && this.#toBegin.size === 0) this.#toBegin.putFirst(toBegin);
      else if (toBegin.some(isDecided) || this.#toBegin.size > 0) this.#commit(toBegin);
      else this.#do(this.#rest(toBegin));
    } else if (this.#engine.isStopping) this.#stop(toBegin);
    else if (run.hasUnwritten || run.hasToCancel || toBegin.some(needsRecord)) this.#commit(toBegin);
    // It waits for something that is no operation: that may come, or never.
    else if (isIdle && coroutine.waiting.size === 0) this.#foreign.start();
    else {
      this.#start(toBegin);
      if (this.#toBegin.size > 0) this.#letCodeRun();
    }
  }

  /** Running steps are waited for and recorded first, so that they are not done again; nothing new is begun meanwhile. */
  #whenIdle(work: () => Promise<void>): void {
    if (this.#effects.isIdle) this.#do(work());
    else if (this.run.hasUnwritten) this.#commit([]);
  }

  /** The worker stops: nothing new is begun. Running steps are waited for, and then the run is released. */
  #stop(toBegin: readonly PendingOperation[]): void {
    if (this.#effects.isIdle) this.#do(this.#release());
    else {
      this.#toBegin.putFirst(toBegin);
      if (this.run.hasUnwritten) this.#commit([]);
    }
  }

  // Commits.

  /** Writes what the code has seen, and what the next operations need beforehand; then they begin. Many take several commits. */
  #commit(toBegin: readonly PendingOperation[]): void {
    this.#enter(toBegin.some(isDecided) ? "deciding" : "committing");
    this.#do(this.run.commit(toBegin, (made) => this.#committed(toBegin, made)));
  }

  #committed(toBegin: readonly PendingOperation[], made: Prepared): void {
    if (this.#isOver()) return;
    this.#resume();
    for (const pending of made.intents) this.#intended(pending);
    const { nowMs } = made;
    if (made.outcomes.length > 0)
      this.#arrivals.addFirst(
        made.outcomes.map(([pending, word, data, at]) => ({ is: "fact", pending, word, data, text: null, nowMs, at })),
      );
    this.#start(toBegin);
    this.#advance();
  }

  /** The step may begin now. If it lost a race during the commit it never will, and the history says so: no operator has to find out whether it happened. */
  #intended(pending: PendingOperation): void {
    this.#effects.intended(pending);
    if (!this.coroutine.hasLost(pending)) return;
    const text = this.run.kernel.encode(this.run.at, {});
    this.#arrivals.add({ is: "fact", pending, word: "undone", data: {}, text });
  }

  /** Begins these steps. What they bring is queued until all of them have begun. */
  #start(toBegin: readonly PendingOperation[]): void {
    if (!PHASES[this.#phase].isLive) return;
    // A process that stood still for longer than its lease begins nothing.
    if (toBegin.length > 0 && this.run.isLeaseUncertain) {
      this.#over("lost", new LeaseUncertainError());
      return;
    }
    this.#engine.running(this.run.id);
    const before = this.#loop;
    if (before === "idle") this.#loop = "taking";
    try {
      for (const pending of toBegin) this.#startOne(pending);
    } finally {
      this.#loop = before;
    }
    this.#armTimer();
  }

  #startOne(pending: PendingOperation): void {
    const { plan, text, dueMs } = pending;
    if (plan.kind !== "step" || !this.coroutine.waiting.has(text) || this.#effects.has(pending)) return;
    // Its time may have come during the commit.
    if (needsIntent(pending)) this.#toBegin.add(pending);
    else if (dueMs === null) this.#effects.begin(pending, plan);
  }

  /** Releases the run until something is due, and keeps its code warm. */
  async #rest(toBegin: readonly PendingOperation[]): Promise<void> {
    // What the code would receive now would not be written with it.
    this.#enter("deciding");
    const answer = await this.run.rest(toBegin);
    if (this.#isOver()) return;
    if (answer === "rested") {
      if (this.#engine.isWanted("run.warning"))
        warnOfForeign(this.coroutine, (message) => this.#emit({ type: "run.warning", message }));
      this.#emit({ type: "run.rested" });
      this.#over("rested", undefined);
      return;
    }
    this.#toBegin.putFirst(toBegin);
    this.#resume();
    if (answer === "woken") {
      this.look();
      return;
    }
    this.#news.suspectAll();
    this.#advance();
  }

  /** The code acts under locks that the run does not hold any more: they are requested again, and the code begins anew. */
  async #reenter(): Promise<void> {
    this.#enter("deciding");
    await this.run.reenter(this.#isOver);
    this.#over("released", undefined);
  }

  /** The worker stops: another one takes the run immediately. */
  async #release(): Promise<void> {
    this.#enter("ending");
    await this.run.release(this.doing());
    if (!this.#isOver()) this.#emit({ type: "run.rested" });
    this.#over("released", undefined);
  }

  async #parkNow(): Promise<void> {
    this.#enter("ending");
    await this.#park(this.#toPark ?? "");
  }

  async #park(reason: string): Promise<void> {
    await this.run.park(reason, this.doing());
    this.#emit({ type: "run.parked", message: reason });
    this.#over("lost", new Error(reason));
  }

  // The end of the run.

  /** The code has returned: the run ends when everything that it started is done. Returns whether it ends now. */
  #isConcluded(outcome: Outcome): boolean {
    if (this.#conclude() > 0) return false;
    const { unobserved } = this.coroutine;
    if (unobserved !== undefined) {
      const message = `${unobserved.tracked.shown} failed, and the workflow's function never awaited it: the run fails with it`;
      this.#emit({ type: "run.warning", message, error: unobserved.error });
    }
    this.#do(this.#finish("ok" in outcome && unobserved !== undefined ? { error: unobserved.error } : outcome));
    return true;
  }

  /** Drops what only waits. Returns how much is still to be done. */
  #conclude(): number {
    return conclude(this.coroutine, (message) => this.#emit({ type: "run.warning", message }));
  }

  /** Writes the last facts and the end of the run. A result that cannot be stored, or does not fit the schema, is a failure. */
  async #finish(outcome: Outcome): Promise<void> {
    this.#enter("ending");
    const { output } = this.#definition;
    const { kernel, at, id } = this.run;
    if ("error" in outcome) return this.#end(storedAs(kernel, at, outcome), endedStatusOf(outcome, id));
    try {
      const ok = output === undefined ? outcome.ok : await this.#checked(output, outcome.ok);
      if (this.#isOver()) return;
      await this.#end({ ok }, "completed");
    } catch (error) {
      if (isCancellation(error, id)) return this.#end(storedAs(kernel, at, { error }), endedStatusOf({ error }, id));
      if (!(error instanceof InvalidValueError || error instanceof ValueTooLargeError || error instanceof SchemaError))
        throw error;
      const named = unstorableResult(error, `run "${id}"`);
      await this.#end(storedAs(kernel, at, { error: named }), "failed");
    }
  }

  /** The result as the schema of the output makes it. The run's timeout, and its grace once it is canceled, count for the schema too. */
  #checked(output: StandardSchema, value: unknown): Promise<unknown> {
    const { run, coroutine } = this;
    const { deadlineMs } = run;
    if (deadlineMs === undefined) return checkOutput(run.clock, output, value);
    const late = coroutine.canceled ?? new RunTimedOutError(run.id);
    return checkOutput(run.clock, output, value, deadlineMs - run.nowMs(), late);
  }

  async #end(outcome: Outcome, status: EndedStatus): Promise<void> {
    const children = await this.run.prepareEnd(this.#isOver);
    if (this.#isOver()) return;
    const handOver = this.#engine.ending(this.#held, this.run.value);
    try {
      await this.run.end(status, outcome, children, this.#engine.keptMs(this.#definition.name, status), handOver);
    } finally {
      handOver?.end();
    }
    if (this.#isOver()) return;
    this.#emit({ type: "run.ended", status, ...("error" in outcome ? { error: outcome.error } : {}) });
    this.#over("ended", undefined);
  }

  /** Notices that the time for cleanup is over: then the run ends with its cancellation, whatever its code still does. */
  #noticeGrace(nowMs: number): void {
    const { canceledAtMs } = this.coroutine;
    if (canceledAtMs !== undefined && nowMs >= canceledAtMs + this.#definition.graceMs) this.#isGraceOver = true;
  }

  #endGrace(canceled: Error): void {
    const open = [...this.coroutine.waiting.values()].map(({ shown }) => shown);
    const what = open.length === 0 ? "" : `: ${open.slice(0, 10).join(", ")} may still be under way`;
    this.#emit({ type: "run.warning", message: `the cleanup took longer than the workflow's grace${what}` });
    this.#do(this.#finish({ error: canceled }));
  }

  // Steps that are recorded in a transaction of the user's.

  /** From here on nothing else becomes a fact, until the transaction has ended. */
  async enterTransaction(isCurrent: () => boolean): Promise<void> {
    while (PHASES[this.#phase].isCommitting) await new Promise<void>((resolve) => this.#entering.push(resolve));
    // The attempt, or the run, may have been abandoned meanwhile.
    if (this.#phase !== "running" || !isCurrent()) throw new FencedError(this.run.id, this.run.fence, this.run.fence);
    this.#enter("deciding");
  }

  /** The transaction is committed: the code receives the step's outcome. */
  leaveTransaction(pending: PendingOperation, text: string, written: Recorded): void {
    if (this.#isOver()) return;
    this.run.stepRecorded(written);
    this.#resume();
    this.#emit({ type: "step.completed", step: pending.id });
    const data = this.run.kernel.decodeFresh(this.run.at, text);
    const { nowMs } = written;
    this.#arrivals.addWritten({ is: "fact", pending, word: "step", data, text: null, nowMs, at: written });
    this.#advance();
  }

  /** The transaction was rolled back, or its outcome is unknown: then the history has to be read again. */
  dropTransaction(error: unknown, isDoubtful: boolean): void {
    if (isDoubtful) {
      void this.#fail(error);
      return;
    }
    this.#resume();
    this.#advance();
  }

  #letEnter(): void {
    if (this.#entering.length === 0) return;
    const entering = this.#entering;
    this.#entering = [];
    for (const enter of entering) enter();
  }

  // Looks at the run's record.

  /** The run was woken, or something may be due: its record is read. A request during a look leads to another one after it. */
  look(): void {
    this.#looks += 1;
    if (PHASES[this.#phase].isLive && this.#looks === 1) this.#do(this.#lookAround());
  }

  async #lookAround(): Promise<void> {
    for (let looked = 0; looked < this.#looks && !this.#isOver(); ) {
      looked = this.#looks;
      const nowMs = await this.run.look();
      if (this.run.wakes > this.coroutine.wakesSeen) await this.#news.readInbox();
      if (this.#isOver()) return;
      this.#news.notice();
      this.#news.wakeDue(nowMs);
      this.#noticeGrace(nowMs);
    }
    this.#looks = 0;
    this.#armTimer();
    this.#advance();
  }

  /**
   * The store is asked whether something is due, when it should be, and now and then: this process's clock may be wrong. What was found to
   * be due, and waits for a commit or a transaction to end, is not asked about again.
   */
  #armTimer(): void {
    this.#cancelTimer();
    const isNoticed = this.coroutine.canceled === undefined ? this.#news.isCancelSent : this.#isGraceOver;
    let dueMs = (isNoticed ? undefined : this.run.deadlineMs) ?? Number.POSITIVE_INFINITY;
    for (const pending of this.coroutine.watched.timed)
      if (pending.dueMs !== null && !pending.isAnswered) dueMs = Math.min(dueMs, pending.dueMs);
    if (dueMs === Number.POSITIVE_INFINITY || this.#isOver()) return;
    const delayMs = Math.min(Math.max(1, dueMs - this.run.nowMs()), this.#engine.leaseMs / 3);
    this.#cancelTimer = this.run.clock.after(delayMs, () => this.look());
  }

  // When the work on it ends here.

  /** The lease is lost, or the worker is in a hurry: the code is dropped, and another worker continues from the history. */
  abandon(reason: unknown): void {
    if (!this.#isOver()) this.#emit({ type: "run.lost", error: reason });
    this.#over("lost", reason);
  }

  /** The code is not used again. What it still starts, from a callback that it left behind, is refused and reported. */
  discard(): void {
    discard(this.coroutine, (message) => this.#emit({ type: "run.warning", message }));
  }

  /** The worker stops: running steps are finished, and then the run is released. */
  stopSoon(): void {
    this.#advance();
  }

  /** The worker waits no longer: running steps are aborted, and those that have no outcome then are done again by another worker. */
  shutDown(reason: unknown): void {
    this.#effects.shutDown(reason);
  }

  #emit(event: EventBody): void {
    if (this.#engine.isWanted(event.type))
      this.#engine.emit({ ...event, workflow: this.#definition.name, run: this.run.id });
  }

  /** Something went wrong: the run is put back, released or parked, and this process does not work on it any more. */
  async #fail(error: unknown): Promise<Ending> {
    if (this.#phase === "over" || this.#phase === "failing") return this.#ending.promise;
    const isStore = error instanceof StoreError || error instanceof CommitsLostError;
    if ((error instanceof FencedError && !isStore) || error instanceof ClosedError) {
      this.#emit({ type: "run.lost", error });
      this.#over("lost", error);
      return "lost";
    }
    this.#emit({ type: "run.trouble", error });
    this.#enter("failing");
    try {
      if (error instanceof HistoryContradictionError) await this.#contradicted(error);
      else if (error instanceof NotHere) await this.#leave(error);
      else if (!isStore && this.run.tries >= this.#definition.maxTries) {
        this.run.dropUnwritten();
        await this.#park(reasonOf(error));
      } else await this.run.putBack(isStore, reasonOf(error));
    } catch (again) {
      this.#emit({ type: "run.lost", error: again });
    }
    this.#over("lost", error);
    return "lost";
  }

  /** Another worker may have what is missing here. This one tries again after a while, longer each time. */
  async #leave({ message }: NotHere): Promise<void> {
    this.#engine.shun(this.run.id);
    await this.run.leave(message);
  }

  /** Another worker may have the code that wrote the history. If none has for a long time, an operator must look. */
  async #contradicted(error: HistoryContradictionError): Promise<void> {
    this.#engine.shun(this.run.id);
    const reason = reasonOf(error);
    const isParked = await this.run.contradicted(reason, this.#engine.contradictionMs);
    if (isParked) this.#emit({ type: "run.parked", message: reason });
  }

  #over(ending: Ending, reason: unknown): void {
    if (this.#isOver()) return;
    this.#enter("over");
    this.#arrivals.close();
    this.#cancelTimer();
    this.#foreign.stop();
    this.#effects.drop(reason);
    this.#letEnter();
    this.coroutine.driver = undefined;
    if (ending !== "rested") this.discard();
    this.#ending.resolve(ending);
  }
}
