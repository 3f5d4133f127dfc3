/**
 * Pending operations: what the code of a run has started, and what has no outcome yet.
 *
 * One has the plan of the operation, the state that the history has of it so far, and how code observes it. Those that are looked at often
 * are indexed by what they wait for (`Watched`), so that ten thousand others cost nothing.
 */

import type { LazySet } from "../../kernel/lazy.ts";
import type { Plan } from "../definitions/plans.ts";
import type { SignalWaits } from "../history/inbox.ts";
import type { Kind, Outcome } from "../stored.ts";
import type { Branch } from "./branch.ts";
import type { Operation, Reaction, Tracked } from "./operation.ts";

const NO_REACTIONS: readonly Reaction[] = [];

/** What a pending operation needs of its coroutine. */
export interface PendingHost {
  readonly turn: number;
  readonly turnMs: number;
  cancelLoser(pending: PendingOperation): void;
  failed(pending: PendingOperation, error: unknown): void;
  joined(pending: PendingOperation, reaction: Reaction): void;
}

/** The operations of one kind and name. */
export interface Counted {
  /** How many were started. */
  count: number;
  /** One of them has no outcome yet; only for steps. */
  isUnderWay: boolean;
  /** How many were started of each verb; only where there are verbs. */
  verbs?: Map<string, number>;
}

/** Where the history has a fact; 0 until it is written. */
export interface Written {
  readonly version: number;
}

/** An operation that the code has started, and that has no outcome yet. */
export class PendingOperation implements Tracked {
  readonly plan: Plan;
  readonly #coroutine: PendingHost;
  readonly branch: Branch;
  /** The turn of the code in which it was started. */
  readonly turn: number;
  isObserved = false;
  isAwaited = false;
  /** The races, and the like, that observe it together with others. */
  reactions: readonly Reaction[] = NO_REACTIONS;
  /** It is among those that have not begun (`to-begin.ts`). */
  isToBegin = false;
  /** An outcome for it is in the queue of arrivals. */
  isAnswered = false;
  readonly id: string;
  /** Its kind and id. */
  readonly text: string;
  /** What it does, with its number among those of its name that do the same; undefined where the name tells (`verbs.ts`). */
  readonly verb: string | undefined;
  /** The operations of its kind and name, and of the id that the code gave. */
  readonly counted: Counted;
  /** What the code has. */
  readonly #operation: Operation<unknown>;
  /** What the history says of it so far. */
  hasIntent = false;
  /** It failed once, and its next attempt is postponed. */
  isPostponed = false;
  /** The run was canceled while it was pending: it begins nothing more, and its outcome is part of the cancellation. */
  isCanceled = false;
  attempts = 0;
  /** When its first attempt began, by the store's clock; for a step whose attempts have a time limit together. */
  firstAttemptMs: number | undefined;
  /** The next attempt has its turn in the rate limit. */
  hasTurn = false;
  /** Where the history has its place in the queue of a lock: forgotten with its failure. */
  queuedFact: Written | undefined;
  /** The same of its failed attempts. */
  attemptFacts: Written[] | undefined;
  lastError: unknown;
  /** When its next attempt begins, by the store's clock, if that is waited for in memory. */
  nextAttemptMs: number | null = null;
  /** When the code started it, by the store's clock. */
  readonly sinceMs: number;
  progress: unknown;
  /** An attempt in this process set `progress`: a fact about it in the queue of arrivals may be older. */
  isProgressLive = false;
  childId: string | undefined;
  /** The child belongs to others, too. */
  isSharedChild = false;
  /** It is not in the queue of the lock yet: too many requests of this run for the same lock are before it (`locks/lock-queues.ts`). */
  isHeldBack = false;
  queuedVersion = 0;
  /** Rises in the order in which the code started them. */
  readonly order: number;
  readonly #watched: Watched;
  #dueMs: number | null = null;
  #isQueued = false;
  #isOver = false;
  /** Its timeout in the queue is over, or it may be part of a circle: the next commit decides. */
  isOverdue = false;
  isSuspected = false;

  constructor(
    coroutine: PendingHost,
    branch: Branch,
    plan: Plan,
    id: string,
    verb: string | undefined,
    counted: Counted,
    operation: Operation<unknown>,
    watched: Watched,
  ) {
    this.#coroutine = coroutine;
    this.branch = branch;
    this.turn = coroutine.turn;
    this.sinceMs = coroutine.turnMs;
    this.order = watched.count++;
    this.#watched = watched;
    this.plan = plan;
    this.id = id;
    this.text = `${plan.kind} ${id}`;
    this.verb = verb;
    this.counted = counted;
    this.#operation = operation;
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

  /** It waits in the queue of a lock, since the run's record had the version `queuedVersion`. */
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
    if (this.#dueMs !== null) this.#watched.timed.delete(this);
    if (this.#isQueued) this.#watched.queued.delete(this);
    if (this.plan.kind === "child") this.#watched.calls.delete(this);
    else if (this.plan.kind === "signal") this.#watched.signals.delete(this);
  }

  settle(outcome: Outcome): void {
    if ("error" in outcome) {
      this.#coroutine.failed(this, outcome.error);
      this.#operation.fail(outcome.error);
    } else this.#operation.fulfill(outcome.ok);
  }

  cancel(): void {
    this.#coroutine.cancelLoser(this);
  }

  joined(reaction: Reaction): void {
    this.#coroutine.joined(this, reaction);
  }

  /** Only races of `Promise.race` observed it, and they are over: no code would receive its outcome. */
  get isAbandoned(): boolean {
    return this.isObserved && !this.isAwaited && this.reactions.length === 0;
  }

  /** It merely waits for a time or a signal, and no code would continue because of it: none observes it, or none does any more. */
  get isUnheard(): boolean {
    return (this.kind === "sleep" || this.kind === "signal") && (!this.isObserved || this.isAbandoned);
  }
}

/** Of all operations that wait, those that are looked at again and again: with ten thousand others beside them, too. */
export interface Watched {
  /** Those with a timer. */
  readonly timed: LazySet<PendingOperation>;
  /** Those that wait in the queue of a lock. */
  readonly queued: LazySet<PendingOperation>;
  /** The waits for signals. */
  readonly signals: SignalWaits<PendingOperation>;
  /** The children whose outcomes are waited for. */
  readonly calls: LazySet<PendingOperation>;
  /** How many wait for a lock, or are held back from its queue. */
  locks: number;
  /** How many were started in total. */
  count: number;
}
