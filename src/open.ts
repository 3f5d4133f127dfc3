/**
 * `open`: chooses the store, puts the kernel on it, and gives out the handle that users work with.
 */

import { checkDuration, checkFunction, checkId, type Duration, utf8Length } from "./kernel/check.ts";
import type { Codec } from "./kernel/codec/codec.ts";
import type { Address, Sql, Store } from "./kernel/contract.ts";
import type { Decision, Tx as KernelTx } from "./kernel/decision.ts";
import { InvalidArgumentError } from "./kernel/errors.ts";
import { Kernel } from "./kernel/kernel.ts";
import type { Ports } from "./kernel/ports.ts";
import { executorOf, SqlAfterTxError, type SqlExecutor, SqlOverError } from "./kernel/sql.ts";
import type { Hold } from "./lock/hold.ts";
import { type AcquireOptions, Lock, type LockOptions, Locks, type SemaphoreOptions, type TxLock } from "./lock/lock.ts";
import { nodePorts, wallMs } from "./node/ports.ts";
import { trapAmbient } from "./node/trap.ts";
import {
  type AnySlot,
  listSlots,
  Slot,
  type SlotListOptions,
  type SlotPage,
  type Sync,
  type TxSlot,
} from "./slot/slot.ts";
import { MemoryDatabase } from "./stores/memory/memory.ts";
import type { Finding } from "./stores/postgres/fitness.ts";
import type { PgPool } from "./stores/postgres/lines.ts";
import { isPostgres, poolFor } from "./stores/postgres/pool.ts";
import { openPostgres } from "./stores/postgres/postgres.ts";
import { openSqlite } from "./stores/sqlite/sqlite.ts";
import { slotSpace, type WithInput } from "./workflow/context.ts";
import type { AnyWorkflow, Signal, Workflow } from "./workflow/definition.ts";
import { runHooks } from "./workflow/locks.ts";
import {
  Run,
  type RunListOptions,
  type RunPage,
  Runs,
  type SignalOptions,
  type StartOptions,
} from "./workflow/runs.ts";
import { type WaitReason, type WaitSubject, whyWaiting } from "./workflow/why.ts";
import type { RunWorker, WorkOptions } from "./workflow/worker.ts";

export interface OpenOptions {
  /**
   * The path of an SQLite file, made if it is not there; `pawl.db` unless said otherwise. "postgres://…" for a PostgreSQL database.
   * "memory:" is for tests. Or a store of your own, in a namespace of its choosing, that passes `storeConformance` of
   * `pawl/testing`.
   */
  readonly store?: string | Store;
  /** The Pool of `pg` that the application already has, instead of a connection string. */
  readonly pool?: PgPool;
  /** The PostgreSQL schema of Pawl's tables, made if it is not there; "pawl" unless said otherwise. */
  readonly schema?: string;
  /** Keeps applications or tenants that share a database apart. */
  readonly namespace?: string;
  /** How values become text. Wrap `jsonCodec` to encrypt or compress. */
  readonly codec?: Codec;
  /** The longest encoded value; 1 MiB unless said otherwise. */
  readonly maxValueBytes?: number;
  /** How long a call waits for a store that is busy or away; 30 s unless said otherwise. */
  readonly patience?: Duration;
  /** "full" survives power loss. "process" survives only the death of the process, and is faster. */
  readonly durability?: "full" | "process";
  /** Runs each decision twice, and traps the ambient clock, chance, timers and fetch in it. On by default for "memory:". */
  readonly checkPurity?: boolean;
}

/** Opens a store: `open()` is SQLite in ./pawl.db, `open("postgres://…")` is a server, `open("memory:")` is for tests. */
export async function open(store?: string | OpenOptions, more?: Omit<OpenOptions, "store">): Promise<Pawl> {
  const options = checkOptions(store, more);
  const where = options.store ?? "pawl.db";
  const namespace = checkId(options.namespace ?? "default", "the namespace");
  const patienceMs = checkDuration(options.patience ?? "30s", "patience");
  const durability = options.durability ?? "full";
  if (durability !== "full" && durability !== "process")
    throw new InvalidArgumentError("durability", 'must be "full" or "process"');
  const { codec, maxValueBytes } = options;
  if (codec !== undefined && (typeof codec?.encode !== "function" || typeof codec.decode !== "function"))
    throw new InvalidArgumentError("the codec", "must have encode and decode");
  if (maxValueBytes !== undefined && !(Number.isSafeInteger(maxValueBytes) && maxValueBytes > 0))
    throw new InvalidArgumentError("maxValueBytes", "must be a whole number above 0");
  const isMemory = where === "memory:";
  const ports: Ports = (options.checkPurity ?? isMemory) ? { ...nodePorts, trap: trapAmbient } : nodePorts;
  let opened: Store;
  const postgres = {
    namespace,
    ports,
    durability,
    patienceMs,
    schema: checkSchema(options.schema ?? "pawl"),
    warned,
  };
  if (options.pool !== undefined) opened = await openPostgres({ ...postgres, pool: checkPool(options) });
  else if (typeof where !== "string") opened = checkStore(where);
  else if (isPostgres(where)) opened = await openPostgres({ ...postgres, ...(await poolFor(where)) });
  else if (isMemory) opened = new MemoryDatabase(wallMs).connect(namespace);
  else opened = await openSqlite({ path: checkPath(where), namespace, ports, wallMs, durability, patienceMs });
  return pawlOn(opened, ports, { namespace, patienceMs, codec, maxValueBytes });
}

/** What can be lived with is said once, where Node shows its own warnings. */
function warned({ code, sentence }: Finding): void {
  process.emitWarning(sentence, { type: "PawlWarning", code });
}

const OPTIONS: Readonly<Record<keyof OpenOptions, true>> = {
  store: true,
  pool: true,
  schema: true,
  namespace: true,
  codec: true,
  maxValueBytes: true,
  patience: true,
  durability: true,
  checkPurity: true,
};

/** Whatever is not understood is refused: opening another file than was meant would go unnoticed for long. */
function checkOptions(store: unknown, more: unknown): OpenOptions {
  const options: object = { ...(typeof store === "string" ? { store } : plain(store)), ...plain(more) };
  const unknown = Object.keys(options).filter((name) => !Object.hasOwn(OPTIONS, name));
  if (unknown.length > 0)
    throw new InvalidArgumentError("the options", `must not have ${unknown.join(", ")}: there is no such option`);
  return options;
}

function plain(options: unknown): object {
  if (options === undefined) return {};
  if (options instanceof URL) throw new InvalidArgumentError("the store", "must be a path: use fileURLToPath(url)");
  if (typeof options !== "object" || options === null || Array.isArray(options))
    throw new InvalidArgumentError("what to open", "must be a path, or an object of options");
  return options;
}

const STORE_METHODS = ["settle", "commit", "read", "list", "entries", "due", "sweep", "watch", "close"] as const;

/** A store is one writer: two kernels on it would take each other's commits for their own. */
const taken = new WeakSet<Store>();

function checkStore(store: Store): Store {
  const isStore =
    typeof store === "object" && store !== null && STORE_METHODS.every((name) => typeof store[name] === "function");
  if (!isStore || !Number.isInteger(store.lanes) || store.lanes < 1)
    throw new InvalidArgumentError("the store", "must be a path, or a store with its methods and at least one lane");
  if (taken.has(store)) throw new InvalidArgumentError("the store", "must not be opened twice: connect another");
  taken.add(store);
  return store;
}

/** PostgreSQL cuts longer names off without a word, so two of them could be one. */
function checkSchema(schema: unknown): string {
  const name = checkId(schema, "the schema");
  if (utf8Length(name) > 63) throw new InvalidArgumentError("the schema", "must not be longer than 63 bytes");
  if (name.startsWith("pg_"))
    throw new InvalidArgumentError("the schema", 'must not begin with "pg_", which is PostgreSQL\'s');
  return name;
}

function checkPool({ pool, store }: OpenOptions): PgPool {
  if (store !== undefined) throw new InvalidArgumentError("the pool", "must not be given together with a store");
  if (typeof pool?.connect !== "function") throw new InvalidArgumentError("the pool", "must be a Pool of pg");
  // A connection that pipelines by itself takes only queries of its own kind.
  if ((pool as { options?: { pipeline?: unknown } }).options?.pipeline === true)
    throw new InvalidArgumentError(
      "the pool",
      "must be one without `pipeline`: Pawl sends its statements together anyway",
    );
  return pool;
}

/** Names that look like something other than a file are refused, so that a typing error does not make a file of that name. */
function checkPath(path: string): string {
  if (path === "" || path === ":memory:")
    throw new InvalidArgumentError("the store", 'must be the path of a file, or "memory:" for tests');
  if (/^[a-z][a-z0-9+.-]+:\/\/|^file:/i.test(path))
    throw new InvalidArgumentError(
      "the store",
      `must be the plain path of a file: this release opens no "${path.split(":")[0]}:"`,
    );
  if (path.includes("\0")) throw new InvalidArgumentError("the store", "must not have a NUL character");
  return path;
}

/** The handle on any store; the simulator makes its own. @internal */
export function pawlOn(
  store: Store,
  ports: Ports,
  options: { namespace: string; patienceMs?: number; codec?: Codec | undefined; maxValueBytes?: number | undefined },
): Pawl {
  return new Pawl(new Kernel(store, ports, options));
}

export interface SlotOptions {
  /** The slot that `ctx.slot` gives to this run and its children, instead of everybody's. */
  readonly run?: string | undefined;
  /** The slot that `ctx.slot` gives to all runs of this workflow. */
  readonly workflow?: string | AnyWorkflow | undefined;
}

export interface TransactOptions {
  /** Slots that the decision is known to touch. */
  readonly touches?: readonly AnySlot[];
}

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
  /** All runs at once. */
  readonly runs: { list(options?: RunListOptions): Promise<RunPage> };
  /** All slots at once. */
  readonly slots: { list(options?: SlotListOptions): Promise<SlotPage> };

  /**
   * Runs the decision and commits everything it writes at once, or nothing if it throws.
   *
   * The decision must be pure: no `await`, no I/O, no ambient time or chance. It may run more than once; `tx.nowMs`, `tx.uuid()`
   * and `tx.random()` are safe. Naming the slots it `touches` saves a run.
   */
  readonly transact: Transact;

  /** @internal */
  constructor(kernel: Kernel) {
    this.kernel = kernel;
    this.transact = Object.assign(
      <T>(decide: (tx: Tx) => Sync<T>, options?: TransactOptions) => this.#transact(decide, options),
      { sql: <T>(work: (sql: Sql, tx: TxInSql) => Promise<T>) => this.#sql(work) },
    );
    this.slots = { list: (options) => listSlots(kernel, options) };
    this.#runs = new Runs(kernel);
    this.#locks = new Locks(kernel, runHooks);
    this.runs = { list: (options) => this.#runs.list(options) };
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

  /** A handle on a run, whoever started it. */
  run<Output>(workflow: Workflow<never, Output>, id: string): Run<Output>;
  run(workflow: string, id: string): Run;
  run(workflow: string | { readonly name: string }, id: string): Run {
    return new Run(this.#runs, checkId(nameOf(workflow), "the workflow"), checkId(id, "the run's id"));
  }

  /** A handle on one shared value. With `initial`, that is what it holds until something is stored. */
  slot<T>(name: string, options: SlotOptions & { readonly initial: T }): Slot<T, never>;
  slot<T>(name: string, options?: SlotOptions): Slot<T>;
  slot<T>(name: string, options: SlotOptions & { readonly initial?: T } = {}): Slot<T, undefined> {
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
    return this.mutex(names, options).with(work, options);
  }

  /** A lock that one at a time holds; or several, that are had together. */
  mutex(names: string | readonly string[], options?: LockOptions): Lock {
    return this.#locks.mutex(names, options);
  }

  /** A lock that so many at a time hold. */
  semaphore(name: string, options?: SemaphoreOptions): Lock {
    return this.#locks.semaphore(name, options);
  }

  /** A lock that many readers hold at a time, or one writer. */
  rwlock(name: string, options?: LockOptions): { readonly read: Lock; readonly write: Lock } {
    return this.#locks.rwlock(name, options);
  }

  /** Why a run, or whoever waits for a lock, does not go on: link by link, down to what would have to happen. */
  whyWaiting(subject: WaitSubject): Promise<WaitReason> {
    return whyWaiting(this.kernel, subject);
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
    const keys = Array.from(options?.touches ?? [], (slot) => slotOf(this.kernel, slot).touches);
    return [(tx) => decide(new Tx(tx, this.kernel, this.#runs)) as T, keys];
  }

  async #transact<T>(decide: (tx: Tx) => Sync<T>, options?: TransactOptions): Promise<T> {
    checkFunction(decide, "the decision");
    return this.kernel.transact(...this.#decision(decide, options));
  }

  async #sql<T>(work: (sql: Sql, tx: TxInSql) => Promise<T>): Promise<T> {
    checkFunction(work, "the work");
    return this.kernel.share(async (sql, join) => {
      let isDeciding = false;
      let isOver = false;
      const pending = new Set<Promise<unknown>>();
      /** What was not waited for is waited for before the commit; what comes later is refused. */
      const during = async <U>(act: () => Promise<U>): Promise<U> => {
        if (isOver) throw new SqlOverError();
        const acting = act();
        pending.add(acting);
        try {
          return await acting;
        } finally {
          pending.delete(acting);
        }
      };
      const first: Sql = {
        query: (text, values) =>
          during(async () => {
            if (isDeciding) throw new SqlAfterTxError();
            return sql.query(text, values);
          }),
      };
      const then: TxInSql = (decide, options) =>
        during(async () => {
          checkFunction(decide, "the decision");
          isDeciding = true;
          return join(...this.#decision(decide, options));
        });
      try {
        const value = await work(first, then);
        isOver = true;
        await Promise.all(pending);
        return value;
      } finally {
        isOver = true;
        await Promise.allSettled(pending);
      }
    });
  }

  /** Lets what is under way finish, and gives everything back. */
  close(): Promise<void> {
    // Without workers and locks there is nothing to give back first.
    if (!this.#runs.isWorking && !this.#locks.isBusy) return this.kernel.close();
    return Promise.all([this.#runs.close(), this.#locks.close()]).then(() => this.kernel.close());
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

const nameOf = (workflow: string | { readonly name: string }): string =>
  typeof workflow === "string" ? workflow : workflow.name;

/** A slot of another handle would be written to this one's database, under its name. */
function slotOf(kernel: Kernel, slot: AnySlot): Slot<unknown, unknown> {
  if (!(slot instanceof Slot)) throw new InvalidArgumentError("the slot", "must be a handle, as pawl.slot gives it");
  if (!slot.isOn(kernel))
    throw new InvalidArgumentError("the slot", `"${slot.name}" must be of the handle whose transact this is`);
  return slot;
}

/** What a decision works with. */
export class Tx {
  readonly #tx: KernelTx;
  readonly #kernel: Kernel;
  readonly #runs: Runs;

  /** @internal */
  constructor(tx: KernelTx, kernel: Kernel, runs: Runs) {
    this.#tx = tx;
    this.#kernel = kernel;
    this.#runs = runs;
  }

  /** Starts a run, if this commit happens; answers its id. */
  start<Input>(workflow: Workflow<Input, unknown>, ...rest: WithInput<Input, StartOptions>): string;
  start(workflow: string, input?: unknown, options?: StartOptions): string;
  start(workflow: string | { readonly name: string }, input?: unknown, options?: StartOptions): string {
    return this.#runs.startIn(this.#tx, workflow, input, options);
  }

  /** Sends a signal to a run, if this commit happens; answers whether it is new. */
  signal<Payload>(run: string, signal: Signal<Payload>, ...rest: WithInput<Payload, SignalOptions>): boolean;
  signal(run: string, signal: Signal<unknown>, payload?: unknown, options?: SignalOptions): boolean {
    return this.#runs.signalIn(this.#tx, run, signal, payload, options);
  }

  /** The store's clock, in milliseconds since 1970; the same throughout the commit. */
  get nowMs(): number {
    return this.#tx.nowMs;
  }

  /** At least 0 and below 1; the same again when the decision runs again. */
  random(): number {
    return this.#tx.random();
  }

  /** A new unguessable id; the same again when the decision runs again. */
  uuid(): string {
    return this.#tx.uuid();
  }

  /** A lock, to be taken, checked or given back in this commit. */
  lock(lock: Lock): TxLock {
    if (!(lock instanceof Lock) || !lock.isOn(this.#kernel))
      throw new InvalidArgumentError(
        "the lock",
        "must be of the handle whose transact this is, as pawl.mutex gives it",
      );
    return lock.within(this.#tx);
  }

  /** A slot, to be read and written at once. */
  slot<T, Empty>(slot: Slot<T, Empty>): TxSlot<T, Empty> {
    slotOf(this.#kernel, slot);
    return slot.within(this.#tx);
  }
}
