/** Locks as a capability of the handle. */

import type { Capability, View } from "../kernel/capability.ts";
import { checkOptions, optionNames } from "../kernel/check.ts";
import { InvalidArgumentError } from "../kernel/errors.ts";
import type { Kernel } from "../kernel/kernel.ts";
import type { RunHooks } from "./drafts.ts";
import type { Hold } from "./hold.ts";
import { Lock } from "./lock.ts";
import { Locks } from "./locks.ts";
import type { AcquireOptions, LockOptions, SemaphoreOptions } from "./options.ts";
import type { TxLock } from "./tx-lock.ts";

const LOCK_OPTIONS = optionNames<AcquireOptions & LockOptions>({
  timeout: true,
  abortSignal: true,
  by: true,
  lease: true,
});

export interface LockVerbs {
  /**
   * Runs the function while the lock is held, and releases it however the function ends. Several locks are acquired together or not at all.
   * Pass the fence on to what the lock protects: it refuses a holder that was paused for too long.
   */
  lock<T>(
    names: string | readonly string[],
    work: (hold: Hold) => T | PromiseLike<T>,
    options?: AcquireOptions & LockOptions,
  ): Promise<Awaited<T>>;
  /** A lock with one holder at a time; or several locks that are acquired together. */
  mutex(names: string | readonly string[], options?: LockOptions): Lock;
  /**
   * A lock that at most `permits` hold at the same time. Default: as many as were declared; asking for it throws `permits_undeclared`
   * where none were.
   */
  semaphore(name: string, options?: SemaphoreOptions): Lock;
  /** A lock with many readers at a time, or one writer. */
  rwlock(name: string, options?: LockOptions): { readonly read: Lock; readonly write: Lock };
}

export interface LockTxVerbs {
  /** A lock, to take, check or release in this commit. */
  lock(lock: Lock): TxLock;
}

export function lockCapability(kernel: Kernel, hooks: RunHooks): Capability {
  const locks = new Locks(kernel, hooks);
  const verbs: LockVerbs = {
    lock: async <T>(
      names: string | readonly string[],
      work: (hold: Hold) => T | PromiseLike<T>,
      options?: AcquireOptions & LockOptions,
    ): Promise<Awaited<T>> => {
      checkOptions(options, LOCK_OPTIONS);
      const { lease, ...acquiring } = options ?? {};
      return locks.mutex(names, { lease }).with(work, acquiring);
    },
    mutex: (names, options) => locks.mutex(names, options),
    semaphore: (name, options) => locks.semaphore(name, options),
    rwlock: (name, options) => locks.rwlock(name, options),
  };
  const view: View<LockTxVerbs> = {
    lock: (tx, lock) => {
      if (!(lock instanceof Lock) || !lock.isOn(kernel))
        throw new InvalidArgumentError(
          "the lock",
          "must be of the handle whose transact this is, as pawl.mutex gives it",
        );
      return lock.within(tx);
    },
  };
  return {
    verbs,
    view,
    queues: locks.queues,
    get isBusy() {
      return locks.isBusy;
    },
    close: () => locks.close(),
  };
}
