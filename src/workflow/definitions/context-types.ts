/**
 * The types of `ctx`: the options of its operations, and what they return. `execution/context.ts` implements them.
 */

import type { Duration } from "../../kernel/check.ts";
import type { Sql, SyncDatabase } from "../../kernel/contract.ts";
import type { Sync } from "../../kernel/decision.ts";
import type { RetryOptions } from "../../kernel/retry.ts";
import type { SqlExecutor } from "../../kernel/sql/executors.ts";
import type { AcquireTokensOptions, RateLimitOptions } from "../../rate/rate.ts";
import type { Expecting, TryWrite, Versioned } from "../../slot/slot.ts";
import type { CommandArguments, CommandResult, OutputOf, TryExecute } from "../../stream/aggregates.ts";
import type { NewEvent } from "../../stream/event.ts";
import type { Appended } from "../../stream/records.ts";
import type { AppendOptions, TryAppend } from "../../stream/stream.ts";
import type { Context } from "../execution/context.ts";
import type { Operation } from "../execution/operation.ts";
import type { LockBody } from "../locks/held-locks.ts";
import type { Signal } from "./definition.ts";
import type { Reconciled, StepHandle } from "./plans.ts";

export interface StepOptions {
  /** Distinguishes steps of one name that run concurrently. */
  readonly id?: string | undefined;
  readonly retry?: RetryOptions | undefined;
  /** How long an attempt may take. */
  readonly timeout?: Duration | undefined;
  /** How long all attempts may take, with the waits between them. */
  readonly totalTimeout?: Duration | undefined;
  /** The longest time between two heartbeats; an attempt that is silent for longer has failed. */
  readonly heartbeat?: Duration | undefined;
  /** Begins only when it is its turn in this limit, which all processes share. */
  readonly rateLimit?: StepRateLimit | undefined;
  /** Begins only under a permit of this semaphore, and holds it until the step has its outcome. */
  readonly semaphore?: StepSemaphore | undefined;
}

export interface StepRateLimit extends RateLimitOptions {
  readonly name: string;
  /** A limit of its own for each key. */
  readonly key?: string | undefined;
}

export interface StepSemaphore {
  readonly name: string;
  /** How many may be under way at the same time. Default: as many as were declared; throws `permits_undeclared` where none were. */
  readonly permits?: number | undefined;
}

/** A rate limit in the code of a run: a turn is reserved in a commit, and waited for like a sleep. */
export interface RunRateLimit {
  /** Waits for its turn; throws `rate_limited` immediately if that is later than `timeout`. */
  acquire(options?: Pick<AcquireTokensOptions, "count" | "key" | "timeout">): Operation<{ readonly waitedMs: number }>;
}

export interface AtMostOnceOptions<T> extends Omit<StepOptions, "retry"> {
  /** Called after a crash that left open whether the step happened. Without it, or if it does not know, the run is parked. */
  readonly reconcile?: ((step: { readonly key: string }) => Reconciled<T> | Promise<Reconciled<T>>) | undefined;
}

export interface StepFunction {
  /** At least once: it runs again if a crash loses its record. Pass `key` on, so that the other side can recognize a repeat. */
  <T>(name: string, run: (step: StepHandle) => T | PromiseLike<T>, options?: StepOptions): Operation<T>;
  /** Exactly once: your SQL and the step's record are one transaction, in Pawl's own database. */
  tx: {
    <T>(name: string, run: (sql: Sql, step: StepHandle) => T | PromiseLike<T>, options?: StepOptions): Operation<T>;
    /** The same on SQLite with a synchronous function: other commits wait for nothing but your statements. */
    sync<T>(name: string, run: (db: SyncDatabase, step: StepHandle) => Sync<T>, options?: StepOptions): Operation<T>;
    /**
     * The same in a transaction that your own library opens: `run` opens it, does its work, calls `record` with the transaction
     * and the step's value before it commits, and resolves when it has committed.
     */
    within<T>(
      name: string,
      run: (record: (executor: SqlExecutor, value: T) => Promise<void>, step: StepHandle) => PromiseLike<unknown>,
      options?: StepOptions,
    ): Operation<T>;
  };
  /** At most once: the intent is durable first, and after a crash it is not run again on a guess. */
  atMostOnce<T>(
    name: string,
    run: (step: StepHandle) => T | PromiseLike<T>,
    options?: AtMostOnceOptions<T>,
  ): Operation<T>;
}

export type Received<T, Name extends string = string> = {
  readonly ok: true;
  readonly value: T;
  readonly signal: Name;
};

export type ReceivedOrNot<T, Name extends string = string> =
  | Received<T, Name>
  | { readonly ok: false; readonly reason: "timeout" };

/** What one of several signals brings: a union, to be distinguished by `signal`, or by `is` of each signal. */
export type ReceivedFrom<S extends readonly Signal<unknown>[]> = {
  [K in keyof S]: S[K] extends Signal<infer T, infer Name> ? Received<T, Name> : never;
}[number];

export interface ChildOptions {
  /** The child's run id. Default: derived from the parent's. */
  readonly id?: string | undefined;
  /** What happens to the child when this run ends first. Default: "cancel" for `ctx.call`, "leave" for `ctx.start`. */
  readonly whenParentEnds?: "cancel" | "leave" | undefined;
}

/** What is sent with a signal: what its schema takes, or the payload where no schema says. */
export type SentWith<Payload, Given> = unknown extends Given ? Payload : Given;

/** The input, where the workflow takes one, and the options last. */
export type WithInput<Input, Options> = undefined extends Input
  ? [input?: Input, options?: Options]
  : [input: Input, options?: Options];

export interface SlotScope {
  /** Shared by this run and its children, by all runs of the workflow, or by all code, as `pawl.slot`. Default: "run". */
  readonly scope?: "run" | "workflow" | "global" | undefined;
}

/** A slot in the code of a run: each method is recorded, and takes effect once. */
export interface RunSlot<T, Empty = undefined> {
  get(): Operation<Versioned<T | Empty>>;
  set(value: T, options?: Expecting): Operation<{ version: number }>;
  trySet(value: T, options: { readonly expectedVersion: number }): Operation<TryWrite>;
  update(change: (value: T | Empty) => Sync<T>): Operation<Versioned<T>>;
  delete(options?: Expecting): Operation<{ deleted: boolean }>;
}

/** A stream in the code of a run: each method is recorded, and takes effect once. Reading is a step: `pawl.stream(id).read()`. */
export interface RunStream {
  append(events: readonly NewEvent[], options?: AppendOptions): Operation<Appended>;
  tryAppend(events: readonly NewEvent[], options?: AppendOptions): Operation<TryAppend>;
  /** The version of the last event; 0 if there is none. */
  head(): Operation<number>;
}

/** A stream as an aggregate sees it, in the code of a run: each method is recorded, and takes effect once. */
export interface RunAggregate<State, Commands> {
  execute<Name extends keyof Commands & string>(
    command: Name,
    ...rest: CommandArguments<Commands, Name>
  ): Operation<CommandResult<OutputOf<Commands, Name>>>;
  tryExecute<Name extends keyof Commands & string>(
    command: Name,
    ...rest: CommandArguments<Commands, Name>
  ): Operation<TryExecute<OutputOf<Commands, Name>>>;
  /** The state after the last event, and the version of the stream that it is of. */
  state(): Operation<{ readonly state: State; readonly version: number }>;
}

/** What can be raced: an operation, another promise, or a function that gets a `ctx` of its own. */
export type Racing<T> = PromiseLike<T> | ((ctx: Context) => LockBody<T>);

/** Anything that is not a function; not `unknown`, which would take the type of `ctx` away from functions beside it. */
export type Value = string | number | bigint | boolean | symbol | object | null | undefined;

/** The result of a race of these. */
export type Raced<O> = O extends (ctx: Context) => infer G
  ? G extends Generator<Operation<unknown>, infer T, unknown>
    ? T
    : Awaited<G>
  : Awaited<O>;
