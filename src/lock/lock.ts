/**
 * Locks in plain code: mutexes, semaphores, reader-writer locks, and several at once.
 *
 * A handle is only a name with options; what is held and who waits is in the store. `acquire` waits in line, `tryAcquire` says at once how it
 * stands, `with` cannot forget to release. All verbs are decisions of `line.ts`.
 *
 * Leaves out: what a holder may not do any more after it lost the lock without noticing. No lock can stop it; the fence can.
 */

import {
  checkCount,
  checkDuration,
  checkFunction,
  checkId,
  checkLease,
  checkVersion,
  type Duration,
} from "../kernel/check.ts";
import { startWorker, type Worker } from "../kernel/claim/worker.ts";
import type { Address } from "../kernel/contract.ts";
import type { Tx } from "../kernel/decision.ts";
import { ClosedError, InvalidArgumentError, StoreError } from "../kernel/errors.ts";
import type { Kernel } from "../kernel/kernel.ts";
import { LockBusyError, LockNestedError, LockTimeoutError } from "./errors.ts";
import { Hold } from "./hold.ts";
import { inspectLock, type LockInfo } from "./inspect.ts";
import { enter, force, leave, type Request, removeWaiter, tidy } from "./line.ts";
import {
  LOCK_QUEUE,
  type LockKind,
  type LockRef,
  lockAt,
  type Mode,
  shownLock,
  shownLocks,
  ticketAt,
} from "./records.ts";
import type { RunHooks } from "./room.ts";
import { lockOf } from "./stored.ts";
import { Turns } from "./turns.ts";
import { type Granted, Wait } from "./wait.ts";

export interface LockOptions {
  /** How long it stays held if nothing is heard of this process; 30 s unless said otherwise. It is renewed by itself. */
  readonly lease?: Duration | undefined;
}

export interface SemaphoreOptions extends LockOptions {
  /** How many may hold it at the same time; one unless said otherwise. The latest declaration counts. */
  readonly permits?: number | undefined;
}

export interface AcquireOptions {
  /** How long to wait; without end unless said otherwise. */
  readonly timeout?: Duration | undefined;
  readonly abortSignal?: AbortSignal | undefined;
  /** Who asks, for `inspect`. */
  readonly by?: string | undefined;
}

export interface TryAcquireOptions {
  /** Whether to keep a place in line; yes unless said otherwise. */
  readonly queue?: boolean | undefined;
  readonly by?: string | undefined;
}

export type TryAcquired =
  | { readonly ok: true; readonly hold: Hold }
  | {
      readonly ok: false;
      readonly code: "lock_busy";
      /** The place in line: the one that is kept, or would be. */
      readonly place: number;
      /** The place that is kept. */
      readonly waiter: Waiter | undefined;
    };

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

const LEASE = "30s";
const INSPECTED = 100;
/** The reaper goes on for so long after the last waiter, for the next. */
const LINGER_MS = 1000;

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
  readonly #waits = new Set<Wait>();
  /** What this process has declared: saying the same again must not undo what another said since. */
  readonly #declared = new Map<string, number | null>();
  #reaper: Worker | undefined;
  #cancelLinger: () => void = () => {};
  #isClosed = false;

  constructor(kernel: Kernel, hooks: RunHooks) {
    this.kernel = kernel;
    this.hooks = hooks;
    this.turns = new Turns(kernel);
  }

  mutex(names: string | readonly string[], options: LockOptions = {}): Lock {
    return this.#lock("mutex", names, "exclusive", null, options);
  }

  semaphore(name: string, options: SemaphoreOptions = {}): Lock {
    return this.#lock("semaphore", name, "shared", checkPermits(options.permits), options);
  }

  rwlock(name: string, options: LockOptions = {}): { readonly read: Lock; readonly write: Lock } {
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
    if (permits !== null && ref !== undefined) this.#declared.set(ref.name, permits);
  }

  hold(refs: readonly LockRef[], granted: Granted): Hold {
    const hold = new Hold(this, refs, granted);
    if (this.#isClosed) hold.drop();
    else this.#holds.add(hold);
    return hold;
  }

  ended(hold: Hold): void {
    this.#holds.delete(hold);
  }

  wait(request: Request & { readonly leaseMs: number }, sentMs: number): Wait {
    const wait = new Wait(this, request, sentMs);
    this.#waits.add(wait);
    this.#reap();
    const ended = (): void => {
      this.#waits.delete(wait);
      if (this.#waits.size === 0) this.#lingerOn();
    };
    wait.held.then(ended, ended);
    return wait;
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
    return this.#holds.size > 0 || this.#waits.size > 0 || this.#reaper !== undefined;
  }

  /** Before the handle is closed: everything is given back, and whoever holds or waits is told. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#cancelLinger();
    const holds = [...this.#holds];
    for (const hold of holds) hold.drop();
    const waits = [...this.#waits];
    const leaving = waits.map(async (wait) => (await wait.leave(new ClosedError()))?.release());
    await Promise.allSettled([...leaving, ...holds.map((hold) => hold.release()), this.#stopReaping()]);
    for (const wait of waits) wait.drop(new ClosedError());
  }
}

/** A place in line. It is kept while this process lives, until it is left or its turn has come. */
export class Waiter {
  readonly #locks: Locks;
  readonly #spec: LockSpec;
  readonly #wait: Wait;

  /** @internal */
  constructor(locks: Locks, spec: LockSpec, wait: Wait) {
    this.#locks = locks;
    this.#spec = spec;
    this.#wait = wait;
  }

  /** Names this place, as `inspect` shows it. */
  get ticket(): string {
    return this.#wait.ticket;
  }

  /** Waits for its turn. */
  acquire(options: Omit<AcquireOptions, "by"> = {}): Promise<Hold> {
    return awaitTurn(this.#locks, this.#spec, this.#wait, options);
  }

  /** How many stand before it, and itself; 0 once its turn has come, or it left. */
  async place(): Promise<number> {
    const [ref] = this.#spec.refs;
    if (ref === undefined) return 0;
    const { kernel } = this.#locks;
    for (let after: string | null = null, before = 0; ; ) {
      const rows = await kernel.list({
        space: ticketAt(ref, "").space,
        prefix: "",
        order: "oldest",
        after,
        limit: 1000,
      });
      const index = rows.findIndex((row) => row.key === this.ticket);
      if (index >= 0) return before + index + 1;
      const last = rows.at(-1);
      if (last === undefined || rows.length < 1000) return 0;
      before += rows.length;
      after = String(last.id);
    }
  }

  /** Gives the place up; gives the lock back if its turn has come meanwhile. */
  async leave(): Promise<void> {
    const hold = await this.#wait.leave();
    await hold?.release();
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
    const { by, abortSignal } = options;
    const timeoutMs = timeoutOf(options);
    abortSignal?.throwIfAborted();
    const entered = await this.#enter(true, by);
    if ("hold" in entered) return entered.hold;
    return awaitTurn(this.#locks, this.#spec, this.#wait(entered), { timeout: timeoutMs, abortSignal });
  }

  /** Has it at once, or says which place in line it has. */
  async tryAcquire(options: TryAcquireOptions = {}): Promise<TryAcquired> {
    const { queue = true, by } = options;
    const entered = await this.#enter(queue, by);
    if ("hold" in entered) return { ok: true, hold: entered.hold };
    const waiter = queue ? new Waiter(this.#locks, this.#spec, this.#wait(entered)) : undefined;
    return { ok: false, code: "lock_busy", place: entered.place, waiter };
  }

  /** Runs the function while it is held, and gives it back whatever happens. Throws `lock_lost` if it was lost meanwhile. */
  async with<T>(work: (hold: Hold) => T | PromiseLike<T>, options?: AcquireOptions): Promise<Awaited<T>> {
    checkFunction(work, "what to do under the lock");
    const { holding } = this.#locks.kernel.ports;
    const texts = this.#spec.refs.map((ref) => lockAt(ref).text);
    const above = holding?.current() ?? [];
    const nested = this.#spec.refs.find((ref) => above.includes(lockAt(ref).text));
    // A permit more may be free; where it would wait for itself for certain, it is told.
    if (nested !== undefined && (this.#spec.mode === "exclusive" || nested.kind === "rwlock"))
      throw new LockNestedError(shownLock(nested));
    const hold = await this.acquire(options);
    const run = (): T | PromiseLike<T> => work(hold);
    let value: Awaited<T>;
    try {
      value = await (holding === undefined ? run() : holding.run([...above, ...texts], run));
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
    const limit = checkCount(options.limit ?? INSPECTED, "the limit", 1000);
    return inspectLock(this.#locks.kernel, this.#ref, limit);
  }

  /** Takes one waiter out of the line. */
  async removeWaiter(ticket: string, intervention: Intervention): Promise<{ readonly removed: boolean }> {
    const act = { ticket: checkId(ticket, "the ticket"), ...checkIntervention(intervention) };
    const { kernel, hooks } = this.#locks;
    const removed = await kernel.transact((tx) => removeWaiter(tx, hooks, this.#ref, act), [lockAt(this.#ref)]);
    return { removed };
  }

  /** Takes it away from one holder, or from all. What they still do is stopped by nothing but the fence. */
  async forceRelease(
    intervention: Intervention & { readonly ticket?: string | undefined },
  ): Promise<{ readonly released: number }> {
    const { ticket } = intervention ?? {};
    const act = {
      ...checkIntervention(intervention),
      ticket: ticket === undefined ? undefined : checkId(ticket, "the ticket"),
    };
    const { kernel, hooks } = this.#locks;
    const forced = await kernel.transact((tx) => force(tx, hooks, this.#ref, act), [lockAt(this.#ref)]);
    return { released: forced.length };
  }

  /** What people did to it: forced releases, waiters removed, permits changed. */
  async history(options: { readonly after?: number; readonly limit?: number } = {}): Promise<readonly LockEvent[]> {
    const { kernel } = this.#locks;
    const at = lockAt(this.#ref);
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
    try {
      entered = await kernel.transact((tx) => enter(tx, hooks, request), keys);
    } catch (error) {
      // It may have been had, and nobody would give it back.
      if (error instanceof StoreError && error.code === "outcome_unknown")
        kernel.transact((tx) => leave(tx, hooks, spec.refs, request.ticket), keys).catch(() => {});
      throw error;
    }
    if (request.declares) locks.declared(spec);
    const { ticket, leaseMs } = request;
    if (entered.granted)
      return { hold: locks.hold(spec.refs, { ticket, leaseMs, fence: entered.fence, safeUntilMs: sentMs + leaseMs }) };
    return { request, sentMs, place: entered.place };
  }

  #wait({ request, sentMs }: Queued): Wait {
    return this.#locks.wait(request, sentMs);
  }
}

/** It is not had; a place in line is, if one was wanted. */
interface Queued {
  readonly request: Request & { readonly leaseMs: number };
  readonly sentMs: number;
  readonly place: number;
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
    if (!entered.granted) throw new LockBusyError(shownLocks(this.#spec.refs), null);
    return { ticket, fence: entered.fence };
  }

  #own(hold: Hold): Hold {
    if (!(hold instanceof Hold) || !hold.isOf(this.#locks.kernel, this.#spec.refs))
      throw new InvalidArgumentError("the hold", "must be one of this handle's, as acquire gives it, and of this lock");
    return hold;
  }
}

/** Waits for its turn, at most so long. */
async function awaitTurn(
  locks: Locks,
  spec: LockSpec,
  wait: Wait,
  options: Pick<AcquireOptions, "timeout" | "abortSignal">,
): Promise<Hold> {
  const { abortSignal } = options;
  const timeoutMs = timeoutOf(options);
  const { clock } = locks.kernel.ports;
  const { promise: interrupted, reject } = Promise.withResolvers<never>();
  interrupted.catch(() => {});
  const name = shownLocks(spec.refs);
  const cancel =
    timeoutMs === undefined ? () => {} : clock.after(timeoutMs, () => reject(new LockTimeoutError(name, timeoutMs)));
  const aborted = (): void => reject(abortSignal?.reason);
  if (abortSignal?.aborted === true) aborted();
  abortSignal?.addEventListener("abort", aborted);
  let interruption: unknown;
  try {
    const hold = await Promise.race([wait.held, interrupted]);
    wait.take();
    return hold;
  } catch (error) {
    interruption = error;
  } finally {
    cancel();
    abortSignal?.removeEventListener("abort", aborted);
  }
  // The place is given up; if its turn has come at this very moment, that counts, unless nobody wants it any more.
  const hold = await wait.leave().catch(() => undefined);
  wait.drop(interruption);
  if (hold === undefined) throw interruption;
  if (interruption instanceof LockTimeoutError) return hold;
  await hold.release().catch(() => {});
  throw interruption;
}

const timeoutOf = ({ timeout }: Pick<AcquireOptions, "timeout">): number | undefined =>
  timeout === undefined ? undefined : checkDuration(timeout, "the timeout");

export function checkPermits(permits: unknown): number {
  return checkCount(permits ?? 1, "the permits");
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

function checkIntervention(given: Intervention): Intervention {
  return { by: checkId(given?.by, "who intervenes (by)"), reason: checkId(given?.reason, "the reason") };
}
