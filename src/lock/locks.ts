/**
 * The locks of one handle: its holds, its waits, and a worker that handles dead holders while it waits.
 */

import type { Queue } from "../kernel/capability.ts";
import { checkLease, checkOptions } from "../kernel/check.ts";
import { startWorker, type Worker } from "../kernel/claim/worker.ts";
import { ClosedError } from "../kernel/errors.ts";
import type { Kernel } from "../kernel/kernel.ts";
import type { RunHooks } from "./drafts.ts";
import { Hold } from "./hold.ts";
import { HoldWatch } from "./hold-watch.ts";
import { type LockRequest, tidy } from "./line.ts";
import { Lock } from "./lock.ts";
import {
  checkPermits,
  LEASE,
  LOCK_OPTIONS,
  type LockOptions,
  type LockSpec,
  lockRefs,
  SEMAPHORE_OPTIONS,
  type SemaphoreOptions,
} from "./options.ts";
import { LockPlace } from "./place.ts";
import { LOCK_QUEUE, type LockKind, type LockRef, type Mode, refOf } from "./stored.ts";
import { Turns } from "./turns.ts";
import { type HoldGrant, Wait } from "./wait.ts";

/** The worker for dead holders is kept for this long after the last wait. */
const LINGER_MS = 1000;
/** How many locks with dead holders are handled concurrently. */
const TOGETHER = 100;
/** How many declarations are remembered. */
const MOST_DECLARED = 10_000;

/** The chore for locks that are due: a holder died, or the lock is unused. */
export function lockQueue(kernel: Kernel, hooks: RunHooks): Queue {
  return {
    kind: LOCK_QUEUE,
    isUrgent: true,
    chore: (at) => kernel.transact((tx) => tidy(tx, hooks, refOf(at)), [at]),
  };
}

/** All locks of one handle. @internal */
export class Locks {
  readonly kernel: Kernel;
  readonly hooks: RunHooks;
  readonly queues: readonly Queue[];
  readonly turns: Turns;
  readonly #holds = new Set<Hold>();
  readonly #watch: HoldWatch;
  readonly #waits = new Set<Wait>();
  /** Places that no code waits in, roughly in the order in which they end. */
  readonly #places = new Set<LockPlace>();
  /** What this process has declared: repeating it must not undo a later declaration of another process. */
  readonly #declared = new Map<string, number | null>();
  #reaper: Worker | undefined;
  #cancelLinger: () => void = () => {};
  #isClosed = false;

  constructor(kernel: Kernel, hooks: RunHooks) {
    this.kernel = kernel;
    this.hooks = hooks;
    this.queues = [lockQueue(kernel, hooks)];
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

  /** Whether these permits must be declared: this process has not declared them yet. */
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

  hold(refs: readonly LockRef[], granted: HoldGrant): Hold {
    const hold = new Hold(this, refs, granted);
    if (this.#isClosed) hold.drop();
    else {
      this.#holds.add(hold);
      this.#watch.add(hold);
    }
    return hold;
  }

  ended(hold: Hold): void {
    this.#holds.delete(hold);
    this.#watch.delete(hold);
  }

  /** The release of these was forced by a commit of this handle. */
  forced(tickets: ReadonlySet<string>): void {
    for (const hold of [...this.#holds]) if (tickets.has(hold.ticket)) hold.forced();
  }

  wait(request: LockRequest & { readonly leaseMs: number }, sentMs: number, head: number): Wait {
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

  place(request: LockRequest & { readonly leaseMs: number }, sentMs: number): LockPlace {
    const place = new LockPlace(this, request, sentMs);
    this.moved(place);
    // Forgets places that have ended.
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

  /** Runs the worker for dead holders while code waits in this process. */
  #reap(): void {
    this.#cancelLinger();
    if (this.#isClosed) return;
    this.#reaper ??= startWorker(this.kernel, {
      kinds: [],
      chores: this.queues,
      by: this.kernel.ports.chance.uuid(),
      concurrency: TOGETHER,
      // A waiter makes the lock due itself when it enters the line.
      wakesOnOtherCommits: false,
      work: async () => {},
      // A waiter whose lock stays held looks again itself.
      failed: () => {},
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

  /** Releases all holds and leaves all lines, with `closed` as the reason. Called before the handle is closed. */
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
