/**
 * A coroutine: the code of one run in memory, with the operations that it has asked for and not heard of yet.
 *
 * Facts are applied one at a time, and the code runs as far as it can before the next one comes. The first time and at replay it is the
 * same facts in the same order, so it is the same code path: `Promise.all`, `race` and branches come out the same. A coroutine does
 * nothing in the world and writes nothing; whoever drives it does (`execution.ts`).
 *
 * Promises: a fact that the code did not ask for is refused with both sides (G23).
 */

import { DeadlockError, LockRemovedError, LockTimeoutError } from "../lock/errors.ts";
import { shownLocks } from "../lock/records.ts";
import type { Context } from "./context.ts";
import type { Definition } from "./definition.ts";
import { HistoryContradictionError, RunCanceledError, RunTimedOutError, StepInFlightError } from "./errors.ts";
import type { Denial } from "./locks.ts";
import { drive, isGenerator, Operation } from "./operation.ts";
import type { LockPlan, Plan } from "./plans.ts";
import { type Kind, operationId, parseFact, WORDS, type Word } from "./words.ts";

/** Something that the code has asked for and not heard of yet. */
export class Asked {
  readonly plan: Plan;
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
  /** The run was canceled before it began; then it does not. */
  isCanceled = false;
  attempts = 0;
  lastError: unknown;
  progress: unknown;
  childId: string | undefined;
  /** When its timer ends, by the store's clock. */
  dueMs: number | null = null;
  /** It stands in line for a lock, since the run's record had this version. */
  isQueued = false;
  queuedVersion = 0;
  /** Its time in line is over, or it may be part of a circle: the next commit decides. */
  isOverdue = false;
  isSuspected = false;

  constructor(
    plan: Plan,
    id: string,
    counted: string,
    resolve: (value: unknown) => void,
    reject: (error: unknown) => void,
  ) {
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

  settle(outcome: Settled): void {
    if ("error" in outcome) this.#reject(outcome.error);
    else this.#resolve(outcome.ok);
  }
}

/** How an operation, or the code as a whole, came out. */
export type Settled = { readonly ok: unknown } | { readonly error: unknown };

/** A fact of the history, decoded. */
export interface Fact {
  readonly word: Word;
  readonly id: string;
  readonly data: unknown;
}

/** A message that came for the run. */
export interface InboxMessage {
  readonly version: number;
  readonly word: string;
  readonly name: string;
  readonly data: unknown;
}

/** A lock that the code was given, or a place in line that it keeps. */
export interface Kept {
  readonly plan: LockPlan;
  readonly isHeld: boolean;
}

/** What a coroutine needs of whoever drives it. */
export interface Driver {
  /** The store's clock, as well as it is known here. */
  nowMs(): number;
  /** Keeps a fact that the code made by itself. */
  note(word: Word, data: unknown): void;
}

export class Coroutine {
  readonly runId: string;
  /** The operations not heard of yet, in the order they were asked for. */
  readonly waiting = new Map<string, Asked>();
  /** What was received of the inbox, what came and is not wanted yet, and how far the inbox was read. */
  readonly received = new Set<number>();
  messages: InboxMessage[] = [];
  inboxSeen = 0;
  /** So many wake-ups had reached the run when its inbox was last looked at. */
  wakesSeen = 0;
  /** Children that may be alive, by operation. */
  readonly children = new Map<string, { readonly run: string; readonly whenParentEnds: "cancel" | "leave" }>();
  /** The locks that the code was given, or keeps a place in line for, and has not given back, by operation. */
  readonly kept = new Map<string, Kept>();
  /** What those are worth now; another process may have held them when the history was written. */
  fences: ReadonlyMap<string, number> = new Map();
  /** The code was interrupted while it waited for a lock. */
  mayHaveOrphans = false;
  /** The version of the last fact that was applied, or will be when what is noted is written. */
  head = 0;
  outcome: Settled | undefined;
  /** The code is doing again what it did before. */
  isReplaying = false;
  driver: Driver | undefined;
  #new: Asked[] = [];
  readonly #counts = new Map<string, number>();
  /** Steps under way, as they are counted. */
  readonly #underWay = new Set<string>();
  #nowMs: number | undefined;
  /** A cancellation that has reached the code: as an error in its hands, or to be thrown by what it asks for next. */
  #canceled: { readonly error: Error; isThrown: boolean } | undefined;

  constructor(runId: string, startedAtMs: number) {
    this.runId = runId;
    this.#nowMs = startedAtMs;
  }

  begin(definition: Definition, ctx: Context, input: unknown): void {
    const finish = (outcome: Settled): void => {
      this.outcome = outcome;
    };
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
  ask<T>(name: string, plan: Plan, explicitId?: string | undefined): Operation<T> {
    return this.askNamed<T>(name, plan, explicitId).operation;
  }

  /** The same, with the name under which the operation is known. */
  askNamed<T>(
    name: string,
    plan: Plan,
    explicitId?: string | undefined,
  ): { readonly id: string; readonly operation: Operation<T> } {
    const { promise, resolve, reject: refuse } = Promise.withResolvers<unknown>();
    const operation = new Operation(promise as Promise<T>);
    const reject = (error: unknown): void => {
      // Code may look at it later, or never: that is not the process's affair.
      promise.catch(ignore);
      refuse(error);
    };
    const counted = explicitId === undefined ? `${plan.kind} ${name}` : `${plan.kind} ${name}#=${explicitId}`;
    const count = (this.#counts.get(counted) ?? 0) + 1;
    const asked = new Asked(plan, operationId(name, count, explicitId), counted, resolve, reject);
    // The same name twice at once would be told apart by chance alone.
    if (plan.kind === "step" && this.#underWay.has(counted)) {
      reject(new StepInFlightError(name));
      return { id: asked.id, operation };
    }
    this.#counts.set(counted, count);
    // What gives something back is part of stopping.
    if (this.#canceled !== undefined && !this.#canceled.isThrown && plan.kind !== "unlock") {
      this.#canceled.isThrown = true;
      reject(this.#canceled.error);
      return { id: asked.id, operation };
    }
    this.waiting.set(asked.text, asked);
    if (plan.kind === "step") this.#underWay.add(counted);
    this.#new.push(asked);
    return { id: asked.id, operation };
  }

  /** What the code has asked for since this was last taken. */
  takeNew(): readonly Asked[] {
    if (this.#new.length === 0) return NONE;
    const taken = this.#new;
    this.#new = [];
    return taken;
  }

  /** A message that was not received after all. */
  putBack(message: InboxMessage): void {
    this.messages.push(message);
    this.messages.sort((a, b) => a.version - b.version);
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
  replay(name: string, data: unknown, nowMs: number): boolean {
    const { word, id } = parseFact(name);
    if (!Object.hasOwn(WORDS, word)) throw this.#contradiction(name, "knows nothing of the kind");
    return this.apply({ word: word as Word, id, data }, nowMs);
  }

  /** Applies a fact; answers whether the code goes on because of it. */
  apply({ word, id, data }: Fact, nowMs?: number | undefined): boolean {
    const kind = WORDS[word];
    if (kind === null) return this.#applyToRun(word, data, nowMs);
    const asked = this.waiting.get(`${kind} ${id}`);
    if (asked === undefined) throw this.#contradiction(`${word} ${id}`, this.#whereItIs());
    switch (word) {
      case "intent":
        asked.hasIntent = true;
        return false;
      case "undone":
        asked.hasIntent = false;
        return false;
      case "attempt": {
        const { attempts, error, dueMs } = data as { attempts: number; error: unknown; dueMs: number };
        asked.attempts = attempts;
        asked.lastError = error;
        asked.dueMs = dueMs;
        asked.isPostponed = true;
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
        this.children.set(asked.id, { run: asked.childId, whenParentEnds: asked.plan.whenParentEnds });
        if (asked.plan.waits) return false;
        return this.#settle(asked, { ok: asked.childId }, nowMs);
      case "woke":
        return this.#settle(asked, { ok: undefined }, nowMs);
      case "expired":
        return this.#settle(asked, { ok: { ok: false, reason: "timeout" } }, nowMs);
      case "received": {
        const { at, signal, value } = data as { at: number; signal: string; value: unknown };
        this.received.add(at);
        return this.#settle(asked, { ok: { ok: true, signal, value } }, nowMs);
      }
      case "queued":
        asked.isQueued = true;
        asked.dueMs = (data as { dueMs?: number }).dueMs ?? null;
        this.#resume(asked);
        return false;
      case "granted":
        this.#keep(asked, true);
        return this.#settle(asked, { ok: this.fences.get(asked.id) ?? (data as { fence: number }).fence }, nowMs);
      case "placed":
        this.#keep(asked, false);
        return this.#settle(asked, { ok: { place: (data as { place: number }).place } }, nowMs);
      case "denied":
        this.#resume(asked);
        return this.#settle(asked, deniedAs(asked.plan, data as Denial), nowMs);
      case "unlock":
        if (asked.plan.kind === "unlock") this.kept.delete(asked.plan.of);
        return this.#settle(asked, { ok: data }, nowMs);
      case "ended": {
        const { at, outcome } = data as { at: number; outcome: Settled };
        this.received.add(at);
        this.children.delete(asked.id);
        return this.#settle(asked, outcome, nowMs);
      }
      default:
        return this.#settle(asked, data as Settled, nowMs);
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

  #settle(asked: Asked, outcome: Settled, nowMs: number | undefined): boolean {
    this.#forget(asked);
    this.#nowMs = nowMs;
    // A step that was told to stop and did is where the cancellation comes out.
    if ("error" in outcome && this.#canceled !== undefined && !this.#canceled.isThrown) {
      this.#canceled.isThrown = true;
      asked.settle({ error: this.#canceled.error });
    } else asked.settle(outcome);
    return true;
  }

  #forget(asked: Asked): void {
    this.waiting.delete(asked.text);
    if (asked.kind === "step") this.#underWay.delete(asked.counted);
  }

  #applyToRun(word: Word, data: unknown, nowMs: number | undefined): boolean {
    if (word !== "canceled") return false;
    const { timedOut, reason } = data as { timedOut?: boolean; reason?: string };
    const error = timedOut === true ? new RunTimedOutError(this.runId) : new RunCanceledError(this.runId, reason);
    this.#canceled = { error, isThrown: false };
    this.#nowMs = nowMs;
    // What merely waits is interrupted. What is being done is told to stop, and its end is waited for.
    const waiting = [...this.waiting.values()];
    const interrupted = waiting.filter((asked) => isInterruptible(asked));
    for (const asked of waiting) asked.isCanceled = true;
    for (const asked of interrupted) {
      this.#forget(asked);
      this.#canceled.isThrown = true;
      if (asked.kind === "lock") this.mayHaveOrphans = true;
      asked.settle({ error });
    }
    return interrupted.length > 0;
  }

  /** What the cancellation is, once it has reached the code. */
  get canceled(): Error | undefined {
    return this.#canceled?.error;
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

const NONE: readonly Asked[] = [];

const ignore = (): void => {};

/** A step whose next attempt was put off counts as waiting, also when that has begun: replay cannot tell. */
const isInterruptible = ({ kind, isPostponed }: Asked): boolean =>
  kind === "sleep" || kind === "signal" || kind === "child" || kind === "lock" || (kind === "step" && isPostponed);

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
    case "deadlock":
      return { error: new DeadlockError(name, denial.circle) };
  }
}
