/**
 * The handle that users work with: one namespace of one store. Its verbs come from the list of capabilities; what is here is what all of them
 * share: `transact` in its three forms, and closing.
 */

import {
  type CapabilityOptions,
  capabilitiesOf,
  type Verbs,
  type WorkDefinition,
  type WorkOptions,
} from "./capabilities.ts";
import type { Capability } from "./kernel/capability.ts";
import { checkFunction, checkList, checkOptions, optionNames } from "./kernel/check.ts";
import { CLOSING_MS } from "./kernel/closing.ts";
import type { Codec } from "./kernel/codec/codec.ts";
import type { Address, Sql, Store } from "./kernel/contract.ts";
import type { Decision, Tx as KernelTx, Sync } from "./kernel/decision.ts";
import { ClosedError } from "./kernel/errors.ts";
import { Kernel } from "./kernel/kernel.ts";
import { checkScope, type Origin } from "./kernel/origin.ts";
import type { Ports } from "./kernel/ports.ts";
import { executorOf, type SqlExecutor } from "./kernel/sql/executors.ts";
import { type Prepare, preparedWith, runInSql } from "./kernel/sql/in-sql.ts";
import { touchedSlots } from "./slot/capability.ts";
import type { AnySlot } from "./slot/slot.ts";
import { Tx } from "./tx.ts";
import { type Worker, Workers } from "./worker.ts";

export interface HandleOptions extends CapabilityOptions {
  readonly namespace: string;
  readonly patienceMs?: number;
  readonly codec?: Codec | undefined;
  readonly maxValueBytes?: number | undefined;
}

/** The handle on any store; the simulator makes its own. @internal */
export function pawlOn(store: Store, ports: Ports, options: HandleOptions): Pawl {
  return new Pawl(new Kernel(store, ports, options), options);
}

export interface TransactOptions {
  /** Slots that the decision is known to touch. */
  readonly touches?: readonly AnySlot[];
}

const TRANSACT_OPTIONS = optionNames<TransactOptions>({ touches: true });

/** Runs a decision in the transaction of `transact.sql`, after its SQL, and returns what the decision returned. */
export type TxInSql = <T>(decide: (tx: Tx) => Sync<T>, options?: TransactOptions) => Promise<T>;

export interface Transact {
  <T>(decide: (tx: Tx) => Sync<T>, options?: TransactOptions): Promise<T>;
  /**
   * The same together with SQL of your own, on PostgreSQL and SQLite: one transaction, all or nothing. Your statements run first, then
   * `tx`. What the work throws rolls all of it back. On SQLite it holds the file's one write lock: keep it short.
   */
  sql<T>(work: (sql: Sql, tx: TxInSql) => Promise<T>): Promise<T>;
}

export type Within = <T>(executor: SqlExecutor, decide: (tx: Tx) => Sync<T>, options?: TransactOptions) => Promise<T>;

/** The handle of one request: what it does has an origin (`pawl.with`). */
export interface ScopedPawl extends Verbs<Tx, TransactOptions> {
  readonly transact: Transact;
  readonly within: Within;
  /** Returns a handle with these values in place of its own. */
  with(origin: Origin): ScopedPawl;
}

/** Its verbs are those of the capabilities. */
export interface Pawl extends Verbs<Tx, TransactOptions> {}

/** A handle on one namespace of one store. */
// biome-ignore lint/suspicious/noUnsafeDeclarationMerging: the constructor assigns the verbs, from the list of capabilities.
export class Pawl {
  /** @internal */
  readonly kernel: Kernel;
  readonly #capabilities: readonly Capability[];
  readonly #workers: Workers;
  readonly #Tx: new (
    tx: KernelTx,
  ) => Tx;
  #closing: Promise<void> | undefined;

  /**
   * Runs the decision and commits everything it writes together, or nothing if it throws.
   *
   * The decision must be pure: no `await`, no I/O, no ambient time or randomness. It may run more than once; `tx.nowMs`, `tx.uuid()`
   * and `tx.random()` are safe. Naming the slots it `touches` saves a run.
   */
  readonly transact: Transact;

  /**
   * Runs the decision inside a transaction that other code opened, on the database of this handle: what it writes holds if that transaction
   * commits, and is gone if it is rolled back. See `SqlExecutor` for what can be passed.
   */
  readonly within: Within;

  /** Puts this process to work on these definitions, until `stop` or `close`. */
  readonly work: (definitions: readonly WorkDefinition[], options?: WorkOptions) => Worker;

  /** @internal */
  constructor(kernel: Kernel, options: CapabilityOptions = {}) {
    this.kernel = kernel;
    const prepare: Prepare<Tx, TransactOptions> = (...given) => this.#decision(...given);
    const { transact, within } = this.#deciding(prepare);
    this.transact = transact;
    this.within = within;
    this.#capabilities = capabilitiesOf<Tx, TransactOptions>(kernel, prepare, options);
    this.#Tx = Tx.with(this.#capabilities);
    this.#workers = new Workers(this.#capabilities, options.log);
    this.work = (definitions, options) => {
      if (this.#closing !== undefined) throw new ClosedError();
      return this.#workers.start(kernel.ports.chance.uuid(), definitions, options);
    };
    for (const { verbs, queues = [], mend } of this.#capabilities) {
      Object.assign(this, verbs);
      kernel.sweeper.add(queues);
      if (mend !== undefined) kernel.addMend(mend);
    }
  }

  /**
   * Returns a handle for one request: the events that it causes have this actor, correlation id and causation id, and so have the runs that it
   * starts, and what follows from both. It shares everything with this handle, and needs no closing.
   */
  with(origin: Origin): ScopedPawl {
    const scope = checkScope(origin);
    const prepare = preparedWith<Tx, TransactOptions>((...given) => this.#decision(...given), scope);
    const verbs = Object.assign({}, ...this.#capabilities.map((one) => ({ ...one.verbs, ...one.scoped?.(scope) })));
    return {
      ...verbs,
      ...this.#deciding(prepare),
      with: (more: Origin) => this.with({ ...scope, ...checkScope(more) }),
    };
  }

  /** Throws where a capability cannot work with what is stored. @internal */
  async check(): Promise<void> {
    for (const one of this.#capabilities) await one.check?.();
  }

  #decision<T>(decide: (tx: Tx) => Sync<T>, options: TransactOptions | undefined): [Decision<T>, Address[]] {
    checkOptions(options, TRANSACT_OPTIONS);
    if (options?.touches !== undefined) checkList(options.touches, "touches");
    return [(tx) => decide(new this.#Tx(tx)) as T, touchedSlots(this.kernel, options?.touches ?? [])];
  }

  /** `transact` and `within`, for decisions that are prepared in this way. */
  #deciding(prepare: Prepare<Tx, TransactOptions>): Pick<ScopedPawl, "transact" | "within"> {
    return {
      transact: Object.assign(
        <T>(decide: (tx: Tx) => Sync<T>, options?: TransactOptions) => this.#transact(decide, options, prepare),
        { sql: <T>(work: (sql: Sql, tx: TxInSql) => Promise<T>) => this.#sql(work, prepare) },
      ),
      within: async (executor, decide, options) => {
        checkFunction(decide, "the decision");
        const run = executorOf(executor);
        return this.kernel.within(run, ...prepare(decide, options));
      },
    };
  }

  async #transact<T>(
    decide: (tx: Tx) => Sync<T>,
    options: TransactOptions | undefined,
    prepare: Prepare<Tx, TransactOptions>,
  ): Promise<T> {
    checkFunction(decide, "the decision");
    const [decision, touched] = prepare(decide, options);
    return this.kernel.mending(() => this.kernel.transact(decision, touched));
  }

  async #sql<T>(work: (sql: Sql, tx: TxInSql) => Promise<T>, prepare: Prepare<Tx, TransactOptions>): Promise<T> {
    checkFunction(work, "the work");
    return this.kernel.share((sql, join) => runInSql(sql, join, prepare, work));
  }

  /** Lets what is under way finish, and releases everything. A second call returns the promise of the first. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  #close(): Promise<void> {
    const isBusy =
      this.#workers.isBusy || this.#capabilities.some((one) => one.close !== undefined && one.isBusy !== false);
    // Where nothing is held there is nothing to release first.
    if (!isBusy) return this.kernel.close();
    // What uses the handle's SQL has the same time, and not that of the workers before it.
    const { clock } = this.kernel.ports;
    const untilMs = clock.nowMs() + CLOSING_MS;
    const closing = [this.#workers.close(), ...this.#capabilities.map((one) => one.close?.())];
    return Promise.all(closing).then(() => this.kernel.close(Math.max(0, untilMs - clock.nowMs())));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}
