/**
 * Locks in plain code: mutexes, semaphores, reader-writer locks, and several at once.
 *
 * A handle is only a name with options; what is held and who waits is in the store. `acquire` waits in line, `tryAcquire` has it at once or
 * leaves nothing behind, `enqueue` takes a place in line without waiting, `with` cannot forget to release. All verbs are decisions of
 * `line.ts`.
 *
 * Leaves out: what a holder may not do any more after it lost the lock without noticing. No lock can stop it; the fence can.
 */

import {
  checkAbortSignal,
  checkCount,
  checkFunction,
  checkId,
  checkLease,
  checkOptions,
  checkVersion,
  type Duration,
  type OptionNames,
  optionNames,
} from "../kernel/check.ts";
import { startWorker, type Worker } from "../kernel/claim/worker.ts";
import { type Address, address } from "../kernel/contract.ts";
import type { Tx } from "../kernel/decision.ts";
import { ClosedError, InvalidArgumentError, StoreError } from "../kernel/errors.ts";
import type { Kernel } from "../kernel/kernel.ts";
import { awaitTurn, timeoutOf, type WaitOptions } from "./await-turn.ts";
import { LockBusyError, LockNestedError } from "./errors.ts";
import { Hold } from "./hold.ts";
import { HoldWatch } from "./hold-watch.ts";
import { inspectLock, type LockInfo } from "./inspect.ts";
import { enter, force, leave, type Request, removeWaiter, tidy } from "./line.ts";
import { LockPlace } from "./place.ts";
import { LOCK_QUEUE, type LockKind, type LockRef, lockAt, type Mode, shownLock, shownLocks } from "./records.ts";
import type { RunHooks } from "./room.ts";
import { lockOf } from "./stored.ts";
import { Turns } from "./turns.ts";
import { type Granted, Wait } from "./wait.ts";

export interface LockOptions {
  /** How long it stays held if nothing is heard of this process; 30 s unless said otherwise. It is renewed by itself. */
  readonly lease?: Duration | undefined;
}

export interface SemaphoreOptions extends LockOptions {
  /**
   * How many may hold it at the same time. The latest declaration counts, in all processes. Default: as many as were declared; where
   * none were, or nobody has used it for 30 days, asking for it throws `permits_undeclared`.
   */
  readonly permits?: number | undefined;
}

export interface AcquireOptions extends WaitOptions {
  /** Who asks, for `inspect`. */
  readonly by?: string | undefined;
}

export interface TryAcquireOptions {
  /** Who asks, for `inspect`. */
  readonly by?: string | undefined;
}

export type TryAcquired =
  | { readonly ok: true; readonly hold: Hold }
  | {
      readonly ok: false;
      readonly code: "lock_busy";
      /** The place in line that `acquire` or `enqueue` would have had. */
      readonly place: number;
    };

/** What `enqueue` returns: the lock, or a place in its line. */
export type Enqueued =
  | { readonly granted: true; readonly hold: Hold }
  | { readonly granted: false; readonly place: LockPlace };

/** One entry of a lock's audit trail. */
export interface LockEvent {
  readonly name: string;
  readonly at: Date;
  readonly data: unknown;
}

/** Who intervenes, and why: it is kept in the audit trail. */
export interface Intervention {
  readonly by: string;
  readonly reason: string;
}

/** What is asked for each time. @internal */
export interface LockSpec {
  readonly refs: readonly LockRef[];
  readonly mode: Mode;
  readonly permits: number | null;
}

const LOCK_OPTIONS = optionNames<LockOptions>({ lease: true });
const SEMAPHORE_OPTIONS = optionNames<SemaphoreOptions>({ lease: true, permits: true });
const ACQUIRE_OPTIONS = optionNames<AcquireOptions>({ timeout: true, abortSignal: true, by: true });
const TRY_OPTIONS = optionNames<TryAcquireOptions>({ by: true });
const INSPECT_OPTIONS = optionNames<{ limit?: unknown }>({ limit: true });
const HISTORY_OPTIONS = optionNames<{ after?: unknown; limit?: unknown }>({ after: true, limit: true });
const REMOVAL = optionNames<Intervention>({ by: true, reason: true });
const FORCED_RELEASE = optionNames<Intervention & { ticket?: unknown }>({ by: true, reason: true, ticket: true });

const LEASE = "30s";
const INSPECTED = 100;
/** The reaper goes on for so long after the last waiter, for the next. */
const LINGER_MS = 1000;
/** Tickets that end with this are followed by a sweep: one in 256. It removes more locks than were made since the last one. */
const SWEEPING = "00";
const MOST_SWEPT = 500;
/** So many declarations are remembered. */
const MOST_DECLARED = 10_000;

/** What is done about locks that are due, by every worker: a holder died, or nobody uses it any more. */
export function lockChores(kernel: Kernel, hooks: RunHooks): ReadonlyMap<string, (at: Address) => Promise<unknown>> {
  const kinds: readonly LockKind[] = ["mutex", "semaphore", "rwlock"];
  return new Map(
    kinds.map((kind) => [
      lockAt({ kind, name: "" }).space,
      (at: Address) => kernel.transact((tx) => tidy(tx, hooks, { kind, name: at.key }), [at]),
    ]),
  );
}

/** All locks of one handle. @internal */
export class Locks {
  readonly kernel: Kernel;
  readonly hooks: RunHooks;
  readonly turns: Turns;
  readonly #holds = new Set<Hold>();
  readonly #watch: HoldWatch;
  readonly #waits = new Set<Wait>();
  /** Places that no code waits in, about in the order in which they end. */
  readonly #places = new Set<LockPlace>();
  /** What this process has declared: saying the same again must not undo what another said since. */
  readonly #declared = new Map<string, number | null>();
  #reaper: Worker | undefined;
  #cancelLinger: () => void = () => {};
  #isClosed = false;

  constructor(kernel: Kernel, hooks: RunHooks) {
    this.kernel = kernel;
    this.hooks = hooks;
    this.turns = new Turns(kernel);
    this.#watch = new HoldWatch(kernel);
  }

  mutex(names: string | readonly string[], options: LockOptions = {}): Lock {
    checkOptions(options, LOCK_OPTIONS);
    return this.#lock("mutex", names, "exclusive", null, options);
  }

  semaphore(name: string, options: SemaphoreOptions = {}): Lock {
    checkOptions(options, SEMAPHORE_OPTIONS);
    return this.#lock("semaphore", name, "shared", checkPermits(options.permits), options);
  }

  rwlock(name: string, options: LockOptions = {}): { readonly read: Lock; readonly write: Lock } {
    checkOptions(options, LOCK_OPTIONS);
    return {
      read: this.#lock("rwlock", name, "shared", null, options),
      write: this.#lock("rwlock", name, "exclusive", null, options),
    };
  }

  #lock(
    kind: LockKind,
    names: string | readonly string[],
    mode: Mode,
    permits: number | null,
    options: LockOptions,
  ): Lock {
    const refs = lockRefs(kind, names);
    return new Lock(this, { refs, mode, permits }, checkLease(options.lease ?? LEASE, "the lease"));
  }

  /** Whether these permits are news to say. */
  declares({ refs, permits }: LockSpec): boolean {
    const [ref] = refs;
    return permits !== null && ref !== undefined && this.#declared.get(ref.name) !== permits;
  }

  declared({ refs, permits }: LockSpec): void {
    const [ref] = refs;
    if (permits === null || ref === undefined) return;
    this.#declared.delete(ref.name);
    this.#declared.set(ref.name, permits);
    const [oldest] = this.#declared.keys();
    if (oldest !== undefined && this.#declared.size > MOST_DECLARED) this.#declared.delete(oldest);
  }

  /**
   * A lock was made. Workers remove locks that nobody uses; for applications without workers, one lock in so many is followed by a small sweep.
   * Its ticket chooses it, so that processes that use few locks have their share of it.
   */
  made(ticket: string): void {
    if (ticket.endsWith(SWEEPING)) this.#sweep().catch(() => {});
  }

  /** What is missed now is found by the next one. */
  async #sweep(): Promise<void> {
    const chores = lockChores(this.kernel, this.hooks);
    const { keys } = await this.kernel.due({ kinds: [LOCK_QUEUE], limit: MOST_SWEPT });
    await Promise.allSettled(keys.map(({ space, key }) => chores.get(space)?.(address(space, key))));
  }

  hold(refs: readonly LockRef[], granted: Granted): Hold {
    const hold = new Hold(this, refs, granted);
    if (this.#isClosed) hold.drop();
    else {
      this.#holds.add(hold);
      this.#watch.add(hold, hold.ref);
    }
    return hold;
  }

  ended(hold: Hold): void {
    this.#holds.delete(hold);
    this.#watch.delete(hold, hold.ref);
  }

  /** The release of these was forced by a commit of this handle. */
  forced(tickets: ReadonlySet<string>): void {
    for (const hold of [...this.#holds]) if (tickets.has(hold.ticket)) hold.forced();
  }

  wait(request: Request & { readonly leaseMs: number }, sentMs: number, head: number): Wait {
    const wait = new Wait(this, request, sentMs, head);
    this.#waits.add(wait);
    this.#reap();
    const ended = (): void => {
      this.#waits.delete(wait);
      if (this.#waits.size === 0) this.#lingerOn();
    };
    wait.held.then(ended, ended);
    return wait;
  }

  place(request: Request & { readonly leaseMs: number }, sentMs: number): LockPlace {
    const place = new LockPlace(this, request, sentMs);
    this.moved(place);
    // Those that were left to end are forgotten on the way.
    for (const one of this.#places) {
      if (!one.isOver) break;
      this.#places.delete(one);
    }
    return place;
  }

  moved(place: LockPlace): void {
    this.#places.delete(place);
    if (!place.isOver) this.#places.add(place);
  }

  /** While somebody waits here, somebody here looks after holders that died. */
  #reap(): void {
    this.#cancelLinger();
    if (this.#isClosed) return;
    this.#reaper ??= startWorker(this.kernel, {
      kinds: [LOCK_QUEUE],
      by: this.kernel.ports.chance.uuid(),
      concurrency: INSPECTED,
      chores: lockChores(this.kernel, this.hooks),
      // Whoever waits makes the lock due itself, by getting in line.
      hearsOthers: false,
      work: async () => {},
    });
  }

  #lingerOn(): void {
    this.#cancelLinger();
    this.#cancelLinger = this.kernel.ports.clock.after(LINGER_MS, () => void this.#stopReaping());
  }

  async #stopReaping(): Promise<void> {
    const reaper = this.#reaper;
    this.#reaper = undefined;
    await reaper?.stop();
  }

  get isBusy(): boolean {
    return this.#holds.size + this.#waits.size + this.#places.size > 0 || this.#reaper !== undefined;
  }

  /** Before the handle is closed: everything is given back, and whoever holds or waits is told. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#cancelLinger();
    const holds = [...this.#holds];
    for (const hold of holds) hold.drop();
    const waits = [...this.#waits];
    const leaving = waits.map(async (wait) => (await wait.leave(new ClosedError()))?.release());
    const places = [...this.#places].filter((place) => !place.isOver).map((place) => place.leave());
    await Promise.allSettled([...leaving, ...places, ...holds.map((hold) => hold.release()), this.#stopReaping()]);
    for (const wait of waits) wait.drop(new ClosedError());
  }
}

/** A handle on a lock, or on several that are had together. */
export class Lock {
  readonly #locks: Locks;
  readonly #spec: LockSpec;
  readonly #leaseMs: number;

  /** @internal */
  constructor(locks: Locks, spec: LockSpec, leaseMs: number) {
    this.#locks = locks;
    this.#spec = spec;
    this.#leaseMs = leaseMs;
  }

  /** Waits in line until it is had. */
  async acquire(options: AcquireOptions = {}): Promise<Hold> {
    checkOptions(options, ACQUIRE_OPTIONS);
    const { by, abortSignal } = options;
    const timeoutMs = timeoutOf(options);
    checkAbortSignal(abortSignal);
    if (abortSignal?.aborted === true) throw abortSignal.reason;
    const entered = await this.#enter(true, by);
    if ("hold" in entered) return entered.hold;
    const wait = this.#locks.wait(entered.request, entered.sentMs, entered.head);
    const { clock } = this.#locks.kernel.ports;
    return awaitTurn(clock, shownLocks(this.#spec.refs), wait, { timeout: timeoutMs, abortSignal });
  }

  /** Acquires it if it is free and no other waits for it. Never waits, and leaves nothing behind when it fails. */
  async tryAcquire(options: TryAcquireOptions = {}): Promise<TryAcquired> {
    checkOptions(options, TRY_OPTIONS, "the options of tryAcquire");
    const entered = await this.#enter(false, options.by);
    if ("hold" in entered) return { ok: true, hold: entered.hold };
    return { ok: false, code: "lock_busy", place: entered.place };
  }

  /**
   * Acquires it if it is free, or takes a place in line without waiting. The place ends with the lock's lease unless it is renewed
   * (`place.renew()`) or waited in (`place.acquire()`).
   */
  async enqueue(options: TryAcquireOptions = {}): Promise<Enqueued> {
    checkOptions(options, TRY_OPTIONS, "the options of enqueue");
    const entered = await this.#enter(true, options.by);
    if ("hold" in entered) return { granted: true, hold: entered.hold };
    return { granted: false, place: this.#locks.place(entered.request, entered.sentMs) };
  }

  /** Runs the function while it is held, and gives it back whatever happens. Throws `lock_lost` if it was lost meanwhile. */
  async with<T>(work: (hold: Hold) => T | PromiseLike<T>, options?: AcquireOptions): Promise<Awaited<T>> {
    checkFunction(work, "what to do under the lock");
    const { holding } = this.#locks.kernel.ports;
    const texts = this.#spec.refs.map((ref) => lockAt(ref).text);
    // Code outlives the function that set it going: a timer that fires when the lock was released holds nothing.
    const above = (holding?.current() ?? []).filter(({ isHeld }) => isHeld);
    const nested = this.#spec.refs.find((ref) => above.some(({ text }) => text === lockAt(ref).text));
    // A permit more may be free; where it would wait for itself for certain, it is told.
    if (nested !== undefined && (this.#spec.mode === "exclusive" || nested.kind === "rwlock"))
      throw new LockNestedError(shownLock(nested));
    const hold = await this.acquire(options);
    const run = (): T | PromiseLike<T> => work(hold);
    let value: Awaited<T>;
    try {
      value = await (holding === undefined
        ? run()
        : holding.run([...above, ...texts.map((text) => hold.as(text))], run));
    } catch (error) {
      await hold.release().catch(() => {});
      throw error;
    }
    const { released } = await hold.release();
    if (!released) throw hold.lostError();
    return value;
  }

  /** Who holds it, and who waits. Of several, the first. */
  async inspect(options: { readonly limit?: number | undefined } = {}): Promise<LockInfo> {
    checkOptions(options, INSPECT_OPTIONS);
    const limit = checkCount(options.limit ?? INSPECTED, "the limit", 1000);
    return inspectLock(this.#locks.kernel, this.#ref, limit);
  }

  /** Takes one waiter out of the line; it gets `lock_removed`. */
  async removeWaiter(ticket: string, intervention: Intervention): Promise<{ readonly removed: boolean }> {
    const act = { ticket: checkId(ticket, "the ticket"), ...checkIntervention(intervention, REMOVAL) };
    const { kernel, hooks } = this.#locks;
    const removed = await kernel.transact((tx) => removeWaiter(tx, hooks, this.#ref, act), [lockAt(this.#ref)]);
    return { removed };
  }

  /**
   * Takes it away from one holder, or from all; their `abortSignal` aborts. What they still do is stopped by nothing but the fence.
   */
  async forceRelease(
    intervention: Intervention & { readonly ticket?: string | undefined },
  ): Promise<{ readonly released: number }> {
    const { ticket } = intervention ?? {};
    const act = {
      ...checkIntervention(intervention, FORCED_RELEASE),
      ticket: ticket === undefined ? undefined : checkId(ticket, "the ticket"),
    };
    const { kernel, hooks } = this.#locks;
    const forced = await kernel.transact((tx) => force(tx, hooks, this.#ref, act), [lockAt(this.#ref)]);
    this.#locks.forced(new Set(forced.map((holder) => holder.ticket)));
    return { released: forced.length };
  }

  /** What people did to it: forced releases, waiters removed, permits changed. */
  async history(options: { readonly after?: number; readonly limit?: number } = {}): Promise<readonly LockEvent[]> {
    const { kernel } = this.#locks;
    const at = lockAt(this.#ref);
    checkOptions(options, HISTORY_OPTIONS);
    const after = checkVersion(options.after ?? 0, "the entry to go on after");
    const entries = await kernel.entries(at, after, checkCount(options.limit ?? 1000, "the limit"));
    return entries.map(({ name, data, atMs }) => ({ name, at: new Date(atMs), data: kernel.decodeFresh(at, data) }));
  }

  /** The same lock inside a decision. @internal */
  within(tx: Tx): TxLock {
    return new TxLock(tx, this.#locks, this.#spec, this.#leaseMs);
  }

  /** Whether it is of the handle that this kernel is behind. @internal */
  isOn(kernel: Kernel): boolean {
    return this.#locks.kernel === kernel;
  }

  /** The first of them, in the order of their names. */
  get #ref(): LockRef {
    return this.#spec.refs[0] as LockRef;
  }

  async #enter(queue: boolean, by: string | undefined): Promise<{ readonly hold: Hold } | Queued> {
    const locks = this.#locks;
    const { kernel, hooks } = locks;
    const spec = this.#spec;
    const request = {
      ...spec,
      ticket: kernel.ports.chance.uuid(),
      leaseMs: this.#leaseMs,
      by: by === undefined ? undefined : checkId(by, "who asks"),
      declares: locks.declares(spec),
      queue,
    };
    const sentMs = kernel.ports.clock.nowMs();
    const keys = spec.refs.map(lockAt);
    let entered: ReturnType<typeof enter>;
    let isNew: boolean;
    try {
      [isNew, entered] = await kernel.transact((tx) => {
        const isMade = keys.some((at) => !tx.record(at).exists);
        return [isMade, enter(tx, hooks, request)] as const;
      }, keys);
    } catch (error) {
      // It may have been had, and nobody would give it back.
      if (error instanceof StoreError && error.code === "outcome_unknown")
        kernel.transact((tx) => leave(tx, hooks, spec.refs, request.ticket), keys).catch(() => {});
      throw error;
    }
    if (request.declares) locks.declared(spec);
    if (isNew) locks.made(request.ticket);
    const { ticket, leaseMs } = request;
    if (entered.granted)
      return { hold: locks.hold(spec.refs, { ticket, leaseMs, fence: entered.fence, safeUntilMs: sentMs + leaseMs }) };
    return { request, sentMs, place: entered.place, head: entered.head };
  }
}

/** It is not had; a place in line is, if one was wanted. */
interface Queued {
  readonly request: Request & { readonly leaseMs: number };
  readonly sentMs: number;
  readonly place: number;
  readonly head: number;
}

/** A lock inside a decision: taken, given back or checked in the commit. */
export class TxLock {
  readonly #tx: Tx;
  readonly #locks: Locks;
  readonly #spec: LockSpec;
  readonly #leaseMs: number;

  /** @internal */
  constructor(tx: Tx, locks: Locks, spec: LockSpec, leaseMs: number) {
    this.#tx = tx;
    this.#locks = locks;
    this.#spec = spec;
    this.#leaseMs = leaseMs;
  }

  /** Throws `lock_lost`, and so drops the decision, unless it is held under this hold at this commit. */
  check(hold: Hold): void {
    this.#own(hold).checkIn(this.#tx);
  }

  /** Gives it back with this commit. */
  release(hold: Hold): { readonly released: boolean } {
    return this.#own(hold).releaseIn(this.#tx);
  }

  /** Whether it is free at this commit, and how many wait. */
  get(): { readonly isFree: boolean; readonly waiting: number } {
    const [ref] = this.#spec.refs;
    const stored = ref === undefined ? undefined : this.#tx.record(lockAt(ref)).value;
    const value = stored === undefined ? undefined : lockOf(stored);
    const held = value?.holders.filter(({ untilMs }) => untilMs === null || this.#tx.nowMs < untilMs) ?? [];
    return { isFree: held.length === 0 && (value?.waiting ?? 0) === 0, waiting: value?.waiting ?? 0 };
  }

  /** Takes it with this commit, or throws `lock_busy`. It is not renewed: its lease is all the time there is. Answers ticket and fence. */
  take(): { readonly ticket: string; readonly fence: number } {
    const ticket = this.#tx.uuid();
    const request = { ...this.#spec, ticket, leaseMs: this.#leaseMs, declares: false, queue: false };
    const entered = enter(this.#tx, this.#locks.hooks, request);
    if (!entered.granted) throw new LockBusyError(shownLocks(this.#spec.refs));
    return { ticket, fence: entered.fence };
  }

  #own(hold: Hold): Hold {
    if (!(hold instanceof Hold) || !hold.isOf(this.#locks.kernel, this.#spec.refs))
      throw new InvalidArgumentError("the hold", "must be one of this handle's, as acquire gives it, and of this lock");
    return hold;
  }
}

/** Null for as many as were declared. */
export function checkPermits(permits: unknown): number | null {
  return permits === undefined ? null : checkCount(permits, "the permits");
}

/** Each once, and in one order, so that the same locks are the same. */
export function lockRefs(kind: LockKind, names: string | readonly string[]): readonly LockRef[] {
  // Only mutexes are had together.
  const list: readonly unknown[] = kind === "mutex" && Array.isArray(names) ? [...new Set(names)].sort() : [names];
  if (list.length === 0 || list.length > MOST_TOGETHER)
    throw new InvalidArgumentError("the locks", `must be from 1 to ${MOST_TOGETHER}`);
  return list.map((name) => ({ kind, name: checkId(name, "the lock's name") }));
}

const MOST_TOGETHER = 50;

function checkIntervention(given: Intervention, known: OptionNames): Intervention {
  checkOptions(given ?? undefined, known, "the intervention");
  return { by: checkId(given?.by, "who intervenes (by)"), reason: checkId(given?.reason, "the reason") };
}
