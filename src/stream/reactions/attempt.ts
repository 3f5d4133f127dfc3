/**
 * One attempt at one event: the user's handler runs, and what it emits or commits is written together with the progress of the target (G13), and before the next
 * handler begins: what it writes may be refused, and then no later event may have been handled.
 *
 * The attempt must still hold the target when it commits: one that was taken over is refused as `fenced`, and nothing of it is written.
 */

import { checkDate, checkDuration, checkFunction, checkList, type Duration } from "../../kernel/check.ts";
import type { Held } from "../../kernel/claim/claim.ts";
import { refusePromise, type Sync, type Tx } from "../../kernel/decision.ts";
import type { Draft } from "../../kernel/draft.ts";
import { ClosedError, FencedError, InvalidArgumentError, StoreError } from "../../kernel/errors.ts";
import { hash } from "../../kernel/fingerprint.ts";
import type { Kernel } from "../../kernel/kernel.ts";
import type { Lease } from "../../kernel/lease.ts";
import { type Origin, setOrigin } from "../../kernel/origin.ts";
import type { Prepare } from "../../kernel/sql/in-sql.ts";
import { checkEvents, MOST_EVENTS } from "../decide.ts";
import { ReactionOverError, ReactionTimeoutError } from "../errors.ts";
import type { NewEvent, StreamEvent } from "../event.ts";
import { append } from "../records.ts";
import { streamAt } from "../stored.ts";
import type { ReactionContext, ReactionRules } from "./definition.ts";
import type { Progress } from "./progress.ts";

export type AttemptOutcome =
  /** The next event may be handled. */
  | { readonly is: "handled" }
  /** Handled, and the target was released by the same commit. */
  | { readonly is: "rested" }
  /** Handled, and not released, because news came. */
  | { readonly is: "woken" }
  | { readonly is: "failed"; readonly error: unknown }
  | { readonly is: "deferred"; dueMs(nowMs: number): number };

/** Thrown by `defer`; the handler must not catch it. */
class Deferred extends Error {
  readonly dueMs: (nowMs: number) => number;

  constructor(dueMs: (nowMs: number) => number) {
    super("the event is deferred: let this error pass");
    this.dueMs = dueMs;
  }
}

interface Emitted {
  readonly stream: string;
  readonly events: readonly NewEvent[];
}

export class ReactionAttempt<Face, Touch> {
  readonly #kernel: Kernel;
  readonly #prepare: Prepare<Face, Touch>;
  readonly #rules: ReactionRules;
  readonly #held: Held;
  readonly #lease: Lease;
  readonly #event: StreamEvent;
  readonly #attempt: number;
  readonly #progress: Progress;
  /** How many events of the target are handled with this one. */
  readonly #done: number;
  /** No other event of the target is to be handled, as far as is known. */
  readonly #isLast: boolean;
  readonly #usedLate: (verb: string, isOver: boolean) => void;
  readonly #threwLate: (error: unknown) => void;
  readonly #emitted: Emitted[] = [];
  /** Made only where something can abort the attempt before its lease is lost. */
  readonly #timeout: AbortController | undefined;
  #committing: Promise<unknown> | undefined;
  /** Why the store did not take a commit of this attempt. */
  #trouble: unknown;
  #isCommitted = false;
  /** The handler deferred the event, also if it caught what `defer` threw. */
  #deferred: Deferred | undefined;
  #isOver = false;

  constructor(
    kernel: Kernel,
    prepare: Prepare<Face, Touch>,
    rules: ReactionRules,
    held: Held,
    lease: Lease,
    given: {
      readonly event: StreamEvent;
      readonly progress: Progress;
      readonly done: number;
      readonly attempt: number;
      readonly isLast: boolean;
      /** Called with what the handler used after its commit, or what it left behind used after its attempt was over: it has no effect. */
      readonly usedLate: (verb: string, isOver: boolean) => void;
      /** Called with what the handler threw after its commit: the event is handled. */
      readonly threwLate: (error: unknown) => void;
    },
  ) {
    this.#kernel = kernel;
    this.#prepare = prepare;
    this.#rules = rules;
    this.#timeout = rules.timeoutMs === undefined ? undefined : new AbortController();
    this.#held = held;
    this.#lease = lease;
    this.#event = given.event;
    this.#attempt = given.attempt;
    this.#progress = given.progress;
    this.#done = given.done;
    this.#isLast = given.isLast;
    this.#usedLate = given.usedLate;
    this.#threwLate = given.threwLate;
  }

  /** Runs the handler, and commits. Rejects only where the commit did: the store did not serve, or the target was taken over. */
  async run(): Promise<AttemptOutcome> {
    const { clock } = this.#kernel.ports;
    const { timeoutMs, handler } = this.#rules;
    const { promise: timedOut, reject } = Promise.withResolvers<never>();
    const expire = (): void => {
      const error = new ReactionTimeoutError(this.#rules.name, timeoutMs ?? 0);
      this.#timeout?.abort(error);
      reject(error);
    };
    const cancel = timeoutMs === undefined ? () => {} : clock.after(timeoutMs, expire);
    try {
      // In an async function, so that what a handler throws synchronously is a rejection too.
      const handling = (async () =>
        (handler as (event: StreamEvent, context: unknown) => unknown)(this.#event, this.#context()))();
      await (timeoutMs === undefined ? handling : Promise.race([handling, timedOut]));
      // A commit that the handler did not await is part of the work.
      await this.#committing;
      if (this.#deferred !== undefined && !this.#isCommitted) return this.#failed(this.#deferred);
    } catch (error) {
      // A commit that is under way decides the outcome of the attempt, whatever the handler threw beside it.
      await this.#committing?.catch(() => {});
      if (!this.#isCommitted) return this.#failed(error);
      // That a call had no effect was reported when it was made.
      if (!(error instanceof ReactionOverError)) this.#threwLate(error);
    } finally {
      cancel();
      this.#isOver = true;
    }
    if (this.#isCommitted) return { is: "handled" };
    try {
      return { is: await this.#end() };
    } catch (error) {
      return this.#failed(error);
    }
  }

  #failed(error: unknown): AttemptOutcome {
    // Of the store, or of another worker, and not of the handler.
    if (this.#trouble !== undefined) throw this.#trouble;
    return this.#deferred === undefined ? { is: "failed", error } : { is: "deferred", dueMs: this.#deferred.dueMs };
  }

  #context(): ReactionContext<Face, Touch> {
    const { name } = this.#rules;
    const { namespace } = this.#kernel;
    const event = this.#event;
    const lease = this.#lease;
    const timeout = this.#timeout;
    let signal: AbortSignal | undefined;
    return {
      target: this.#held.at.key,
      get key() {
        return hash(namespace, "reaction", name, event.id);
      },
      attempt: this.#attempt,
      fence: this.#held.fence,
      get abortSignal() {
        if (timeout === undefined) return lease.abortSignal;
        signal ??= AbortSignal.any([lease.abortSignal, timeout.signal]);
        return signal;
      },
      emit: (stream, events) => this.#emit(stream, events),
      commit: (decide, options) => this.#commit(decide, options),
      defer: (until) => {
        this.#checkOpen("defer");
        this.#deferred = new Deferred(timeOf(until));
        throw this.#deferred;
      },
    };
  }

  #emit(stream: string, events: readonly NewEvent[]): void {
    this.#checkOpen("emit");
    const { key } = streamAt(stream);
    checkList(events, "the events");
    if (events.length > MOST_EVENTS) throw new InvalidArgumentError("the events", `must be at most ${MOST_EVENTS}`);
    this.#emitted.push({ stream: key, events: [...checkEvents(events)] });
  }

  #commit<T>(decide: (tx: Face) => Sync<T>, options: Touch | undefined): Promise<T> {
    try {
      this.#checkOpen("commit");
    } catch (error) {
      // A late call that is not awaited, as of a forgotten timer, must not end the process.
      const refused = Promise.reject<T>(error);
      refused.catch(() => {});
      return refused;
    }
    checkFunction(decide, "the decision");
    const [effect] = this.#prepare(decide, options);
    const committing = this.#write((tx) => {
      const value = effect(tx);
      refusePromise(value);
      return value;
    });
    this.#committing = committing;
    // If the handler does not await it, its failure is that of the attempt.
    committing.catch(() => {
      if (this.#committing === committing) this.#committing = undefined;
    });
    return committing;
  }

  #checkOpen(verb: string): void {
    const isCommitted = this.#isCommitted || this.#committing !== undefined;
    // Also where the handler catches what is thrown: the event is handled, and this is never done. After `defer` it is done by the next attempt.
    if (this.#isOver || isCommitted) this.#usedLate(verb, this.#isOver);
    if (this.#isOver || isCommitted || this.#deferred !== undefined || this.#timeout?.signal.aborted === true)
      throw new ReactionOverError(this.#rules.name, verb);
  }

  /**
   * An attempt whose handler is over. The commit of the last event releases the target, unless news came. Where the handler emitted nothing, the next event may be
   * handled before the commit.
   */
  async #end(): Promise<"handled" | "rested" | "woken"> {
    const nothing = (): undefined => undefined;
    let isWoken = false;
    if (this.#isLast) {
      const rest = () => this.#progress.rest(this.#done, this.#writes(nothing));
      if ((await this.#committed(rest)) === "rested") return "rested";
      isWoken = true;
    }
    if (this.#emitted.length > 0) await this.#write(nothing);
    else await this.#committed(() => this.#progress.handled(this.#done));
    return isWoken ? "woken" : "handled";
  }

  /** Writes what was emitted, the effect and the progress, all in one commit. */
  async #write<T>(effect: (tx: Tx) => T): Promise<T> {
    const value = await this.#committed(() => this.#held.commit(this.#writes(effect)));
    this.#progress.wrote(this.#done);
    this.#isCommitted = true;
    this.#trouble = undefined;
    return value;
  }

  #writes<T>(effect: (tx: Tx) => T): (record: Draft, tx: Tx) => T {
    const { id, actor, correlationId } = this.#event;
    const origin: Origin = {
      causationId: id,
      correlationId: correlationId ?? id,
      ...(actor === undefined ? {} : { actor }),
    };
    return (record, tx) => {
      if (!this.#progress.write(record, this.#done)) return undefined as T;
      setOrigin(tx, origin);
      for (const { stream, events } of this.#emitted) append(tx, { stream, events, expectedVersion: undefined });
      return effect(tx);
    };
  }

  async #committed<T>(commit: () => Promise<T>): Promise<T> {
    try {
      return await this.#kernel.mending(commit);
    } catch (error) {
      if (error instanceof StoreError || error instanceof FencedError || error instanceof ClosedError)
        this.#trouble = error;
      throw error;
    }
  }
}

function timeOf(until: Date | Duration): (nowMs: number) => number {
  if (until instanceof Date) {
    const ms = checkDate(until, "the time to defer to");
    return () => ms;
  }
  const ms = checkDuration(until, "how long to defer");
  return (nowMs) => nowMs + ms;
}
