/**
 * The handle that users work with: one namespace of one store, and everything that can be done there.
 */

import { Actions } from "./action/actions.ts";
import type { ActionPorts, ActionsOptions } from "./action/core.ts";
import type { Answered, Attempt } from "./idempotency/attempt.ts";
import type { Dedupe } from "./idempotency/dedupe.ts";
import { Idempotency, type IdempotentOptions } from "./idempotency/idempotency.ts";
import { checkFunction, checkId, checkList, checkOptions, optionNames } from "./kernel/check.ts";
import type { Codec } from "./kernel/codec/codec.ts";
import type { Address, Sql, Store } from "./kernel/contract.ts";
import type { Decision, Sync } from "./kernel/decision.ts";
import { runInSql } from "./kernel/in-sql.ts";
import { Kernel } from "./kernel/kernel.ts";
import type { Log } from "./kernel/log.ts";
import type { Ports } from "./kernel/ports.ts";
import { executorOf, type SqlExecutor } from "./kernel/sql.ts";
import type { Hold } from "./lock/hold.ts";
import { type AcquireOptions, type Lock, type LockOptions, Locks, type SemaphoreOptions } from "./lock/lock.ts";
import type { Machine } from "./machine/definition.ts";
import { type MachineHandle, Machines } from "./machine/machine.ts";
import { type RateLimit, type RateLimitOptions, RateLimits } from "./rate/rate.ts";
import { type AnySlot, listSlots, Slot, type SlotListOptions, type SlotPage } from "./slot/slot.ts";
import { type Capabilities, slotOf, Tx } from "./tx.ts";
import { slotSpace, type WithInput } from "./workflow/context.ts";
import type { AnyWorkflow, Workflow } from "./workflow/definition.ts";
import { runHooks } from "./workflow/locks.ts";
import type { RetentionPolicy } from "./workflow/retention.ts";
import { Run, type RunListOptions, type RunPage, Runs, type StartOptions } from "./workflow/runs.ts";
import { type WaitReason, type WaitSubject, whyWaiting } from "./workflow/why.ts";
import type { RunWorker, WorkOptions } from "./workflow/worker.ts";

export interface HandleOptions {
  readonly namespace: string;
  readonly patienceMs?: number;
  readonly codec?: Codec | undefined;
  readonly maxValueBytes?: number | undefined;
  readonly log?: Log | undefined;
  readonly retention?: RetentionPolicy | undefined;
  readonly actions?: { readonly options?: ActionsOptions | undefined; readonly ports?: ActionPorts | undefined };
}

/** The handle on any store; the simulator makes its own. @internal */
export function pawlOn(store: Store, ports: Ports, options: HandleOptions): Pawl {
  const kernel = new Kernel(store, ports, options);
  return new Pawl(
    kernel,
    new Actions(kernel, options.actions?.options, options.actions?.ports),
    options.log,
    options.retention,
  );
}

export interface SlotOptions {
  /** The slot that `ctx.slot` gives to this run and its children, instead of everybody's. */
  readonly run?: string | undefined;
  /** The slot that `ctx.slot` gives to all runs of this workflow. */
  readonly workflow?: string | AnyWorkflow | undefined;
}

const SLOT_OPTIONS = optionNames<SlotOptions & { initial?: unknown }>({ run: true, workflow: true, initial: true });

export interface TransactOptions {
  /** Slots that the decision is known to touch. */
  readonly touches?: readonly AnySlot[];
}

const TRANSACT_OPTIONS = optionNames<TransactOptions>({ touches: true });
const LOCK_OPTIONS = optionNames<AcquireOptions & LockOptions>({
  timeout: true,
  abortSignal: true,
  by: true,
  lease: true,
});

/** Runs a decision in the transaction of `transact.sql`, after its SQL, and answers what it returned. */
export type TxInSql = <T>(decide: (tx: Tx) => Sync<T>, options?: TransactOptions) => Promise<T>;

export interface Transact {
  <T>(decide: (tx: Tx) => Sync<T>, options?: TransactOptions): Promise<T>;
  /**
   * The same together with SQL of your own, on PostgreSQL and SQLite: one transaction, all or nothing. Your statements run first, then
   * `tx`. What the work throws rolls all of it back. On SQLite it holds the file's one write lock: keep it short.
   */
  sql<T>(work: (sql: Sql, tx: TxInSql) => Promise<T>): Promise<T>;
}

/** A handle on one namespace of one store. */
export class Pawl {
  /** @internal */
  readonly kernel: Kernel;
  readonly #runs: Runs;
  readonly #locks: Locks;
  readonly #rates: RateLimits;
  readonly #machines: Machines;
  readonly #idempotency: Idempotency<Tx, TransactOptions>;
  readonly #has: Capabilities;
  #closing: Promise<void> | undefined;
  /** All runs at once. */
  readonly runs: {
    list(options?: RunListOptions): Promise<RunPage>;
    /**
     * Deletes a run that has ended, or whose record cannot be read: its record, its history, its inbox, the ids of its signals and, for the
     * root of a tree, the slots of the tree. Throws `run_alive` for any other run, and `run_not_found`.
     */
    delete(id: string): Promise<void>;
  };
  /** All slots at once. */
  readonly slots: { list(options?: SlotListOptions): Promise<SlotPage> };
  /** One-time actions: coupons, login links, tickets. One winner for each, ever. */
  readonly actions: Actions;
  /** Runs a decision once for each message of a consumer: the mark and the effect are one commit. `dedupe.sql` is for SQL of your own. */
  readonly dedupe: Dedupe<Tx, TransactOptions>;

  /**
   * Runs the decision and commits everything it writes at once, or nothing if it throws.
   *
   * The decision must be pure: no `await`, no I/O, no ambient time or chance. It may run more than once; `tx.nowMs`, `tx.uuid()`
   * and `tx.random()` are safe. Naming the slots it `touches` saves a run.
   */
  readonly transact: Transact;

  /** @internal */
  constructor(kernel: Kernel, actions = new Actions(kernel), log?: Log | undefined, retention?: RetentionPolicy) {
    this.kernel = kernel;
    this.actions = actions;
    this.transact = Object.assign(
      <T>(decide: (tx: Tx) => Sync<T>, options?: TransactOptions) => this.#transact(decide, options),
      { sql: <T>(work: (sql: Sql, tx: TxInSql) => Promise<T>) => this.#sql(work) },
    );
    this.slots = { list: (options) => listSlots(kernel, options) };
    this.#rates = new RateLimits(kernel);
    this.#runs = new Runs(kernel, this.#rates, log, retention);
    this.#locks = new Locks(kernel, runHooks);
    this.runs = { list: (options) => this.#runs.list(options), delete: (id) => this.#runs.delete(id) };
    this.#machines = new Machines(kernel);
    this.#idempotency = new Idempotency(kernel, (decide, options) => this.#decision(decide, options));
    this.dedupe = this.#idempotency.dedupe;
    this.#has = {
      kernel,
      actions,
      runs: this.#runs,
      machines: this.#machines,
      idempotency: this.#idempotency,
    };
  }

  /** Puts this process to work on these workflows, until `stop` or `close`. */
  work(workflows: readonly AnyWorkflow[], options?: WorkOptions): RunWorker {
    return this.#runs.work(workflows, options);
  }

  /** Starts a run. The same id again is the same run. A workflow whose code is not here can be started by its name. */
  start<Input, Output>(
    workflow: Workflow<Input, Output>,
    ...rest: WithInput<Input, StartOptions>
  ): Promise<Run<Output>>;
  start(workflow: string, input?: unknown, options?: StartOptions): Promise<Run>;
  async start(workflow: string | { readonly name: string }, input?: unknown, options?: StartOptions): Promise<Run> {
    const id = await this.#runs.start(workflow, input, options);
    return new Run(this.#runs, nameOf(workflow), id);
  }

  /**
   * A handle on a run that was started here or elsewhere. With the workflow, its result has a type, and a run of another workflow is refused
   * as `run_conflict`; by its id alone, the run may be of any workflow.
   */
  run<Output>(workflow: Workflow<never, Output>, id: string): Run<Output>;
  run(workflow: string, id: string): Run;
  run(id: string): Run;
  run(...given: [id: string] | [workflow: string | { readonly name: string }, id: string]): Run {
    if (given.length === 1) return new Run(this.#runs, undefined, checkId(given[0], "the run's id"));
    // A workflow that is undefined by mistake must not stand for any workflow.
    const [workflow, id] = given;
    return new Run(this.#runs, checkId(nameOf(workflow), "the workflow"), checkId(id, "the run's id"));
  }

  /** A handle on one shared value. With `initial`, that is what it holds until something is stored. */
  slot<T>(name: string, options: SlotOptions & { readonly initial: T }): Slot<T, never>;
  slot<T>(name: string, options?: SlotOptions): Slot<T>;
  slot<T>(name: string, options: SlotOptions & { readonly initial?: T } = {}): Slot<T, undefined> {
    checkOptions(options, SLOT_OPTIONS);
    const { run, workflow, initial } = options;
    const space =
      run !== undefined
        ? slotSpace("run", checkId(run, "the run's id"))
        : workflow !== undefined
          ? slotSpace("workflow", checkId(nameOf(workflow), "the workflow"))
          : undefined;
    return new Slot<T, undefined>(this.kernel, name, initial, space);
  }

  /**
   * Runs the function while the lock is held, and gives it back whatever happens; several names are had together or not at all. Hand the
   * fence to what the lock protects: it is what stops a holder that was paused for too long.
   */
  async lock<T>(
    names: string | readonly string[],
    work: (hold: Hold) => T | PromiseLike<T>,
    options?: AcquireOptions & LockOptions,
  ): Promise<Awaited<T>> {
    checkOptions(options, LOCK_OPTIONS);
    const { lease, ...acquiring } = options ?? {};
    return this.mutex(names, { lease }).with(work, acquiring);
  }

  /** A lock that one at a time holds; or several, that are had together. */
  mutex(names: string | readonly string[], options?: LockOptions): Lock {
    return this.#locks.mutex(names, options);
  }

  /**
   * A lock that at most `permits` hold at the same time. Default: as many as were declared; asking for it throws `permits_undeclared`
   * where none were.
   */
  semaphore(name: string, options?: SemaphoreOptions): Lock {
    return this.#locks.semaphore(name, options);
  }

  /** A lock that many readers hold at a time, or one writer. */
  rwlock(name: string, options?: LockOptions): { readonly read: Lock; readonly write: Lock } {
    return this.#locks.rwlock(name, options);
  }

  /** So many in so much time, for all processes together. */
  rateLimit(name: string, options: RateLimitOptions): RateLimit {
    return this.#rates.limit(name, options);
  }

  /** A handle on the instances of a machine. */
  machine<State extends string, Data, Given>(machine: Machine<State, Data, Given>): MachineHandle<State, Data, Given> {
    return this.#machines.of(machine);
  }

  /**
   * Does the work of a key once. Whoever asks again gets what it came to; whoever asks meanwhile is told so; the same key for another
   * request is refused. `commit` in what the function is given makes its effect and its answer one commit.
   */
  idempotent<T>(
    key: string,
    options: IdempotentOptions | undefined,
    fn: (attempt: Attempt<Tx, TransactOptions>) => T | Promise<T>,
  ): Promise<Answered<T>> {
    return this.#idempotency.idempotent(key, options, fn);
  }

  /** Why a run, or whoever waits for a lock, does not go on: link by link, down to what would have to happen. */
  whyWaiting(subject: WaitSubject): Promise<WaitReason> {
    return whyWaiting(this.kernel, subject, (row) => this.#runs.doing(row));
  }

  /**
   * Runs the decision inside a transaction that somebody else opened, on the database of this handle: what it writes holds if they
   * commit, and is gone if they roll back. See `SqlExecutor` for what can be handed in.
   */
  async within<T>(executor: SqlExecutor, decide: (tx: Tx) => Sync<T>, options?: TransactOptions): Promise<T> {
    checkFunction(decide, "the decision");
    const run = executorOf(executor);
    return this.kernel.within(run, ...this.#decision(decide, options));
  }

  #decision<T>(decide: (tx: Tx) => Sync<T>, options: TransactOptions | undefined): [Decision<T>, Address[]] {
    checkOptions(options, TRANSACT_OPTIONS);
    if (options?.touches !== undefined) checkList(options.touches, "touches");
    const keys = Array.from(options?.touches ?? [], (slot) => slotOf(this.kernel, slot).touches);
    return [(tx) => decide(new Tx(tx, this.#has)) as T, keys];
  }

  async #transact<T>(decide: (tx: Tx) => Sync<T>, options?: TransactOptions): Promise<T> {
    checkFunction(decide, "the decision");
    const value = await this.kernel.transact(...this.#decision(decide, options));
    this.#idempotency.tidy();
    return value;
  }

  async #sql<T>(work: (sql: Sql, tx: TxInSql) => Promise<T>): Promise<T> {
    checkFunction(work, "the work");
    return this.kernel.share((sql, join) =>
      runInSql(sql, join, (decide, options) => this.#decision(decide, options), work),
    );
  }

  /** Lets what is under way finish, and gives everything back. A second call returns the promise of the first. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  #close(): Promise<void> {
    const isBusy = this.#runs.isWorking || this.#locks.isBusy || this.#rates.isWaiting || this.#idempotency.isBusy;
    // Where nothing is held there is nothing to give back first.
    if (!isBusy) return this.kernel.close();
    return Promise.all([this.#runs.close(), this.#locks.close(), this.#rates.close(), this.#idempotency.close()]).then(
      () => this.kernel.close(),
    );
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

const nameOf = (workflow: string | { readonly name: string }): string =>
  typeof workflow === "string" ? workflow : workflow?.name;
