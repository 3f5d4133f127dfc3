/**
 * Locks as the code of a run sees them: each verb is recorded, and what is held is held for as long as the run lives.
 */

import { checkDuration, checkFunction, type Duration } from "../kernel/check.ts";
import { LockLostError } from "../lock/errors.ts";
import type { LockSpec } from "../lock/lock.ts";
import { shownLocks } from "../lock/records.ts";
import { Branch, type Coroutine } from "./coroutine.ts";
import { drive, isGenerator, type Operation } from "./operation.ts";
import type { LockPlan } from "./plans.ts";

export interface RunAcquireOptions {
  /** How long to wait; without end unless said otherwise. */
  readonly timeout?: Duration | undefined;
}

/** What is done under a lock: async code, or a generator of operations. */
export type LockBody<T> = T | PromiseLike<T> | Generator<Operation<unknown>, T, unknown>;

/** A lock in the hands of a run. */
export interface RunLockHold {
  /**
   * Strictly above that of everybody who held it before, and a new one when another worker has taken the run over: hand it to what the
   * lock protects, and decide nothing by it.
   */
  readonly fence: number;
  /** Gives it back; whoever is first in line has it from the same commit on. Harmless when it is not held any more. */
  release(): Operation<{ readonly released: boolean }>;
}

/** A place in line. */
export interface RunWaiter {
  /** Waits for its turn. */
  acquire(options?: RunAcquireOptions): Operation<RunLockHold>;
  /** Gives the place up. */
  leave(): Operation<{ readonly released: boolean }>;
}

export type RunTryAcquired =
  | { readonly ok: true; readonly hold: RunLockHold }
  | {
      readonly ok: false;
      readonly code: "lock_busy";
      readonly place: number;
      readonly waiter: RunWaiter | undefined;
    };

export interface RunLock {
  /** Waits in line until it is had. */
  acquire(options?: RunAcquireOptions): Operation<RunLockHold>;
  /** Has it at once, or says which place in line it has. */
  tryAcquire(options?: { readonly queue?: boolean | undefined }): Operation<RunTryAcquired>;
  /** Runs the code while it is held, and gives it back whatever happens. */
  with<T>(code: (hold: RunLockHold) => LockBody<T>, options?: RunAcquireOptions): Operation<T>;
}

/** @internal */
export function runLock(coroutine: Coroutine, outer: Branch, spec: LockSpec, declares: () => boolean): RunLock {
  const name = shownLocks(spec.refs);
  const plan: LockPlan = {
    kind: "lock",
    ...spec,
    declares: false,
    queue: true,
    isTry: false,
    timeoutMs: null,
  };

  const unlock = (of: string): Operation<{ readonly released: boolean }> =>
    coroutine.ask(name, { kind: "unlock", of }, undefined, outer);

  const holdOf = (id: string, fence: number): RunLockHold => ({ fence, release: () => unlock(id) });

  const acquire = (
    options: RunAcquireOptions | undefined,
    resumes?: string,
    branch = new Branch(outer),
  ): Operation<RunLockHold> => {
    const timeoutMs = options?.timeout === undefined ? null : checkDuration(options.timeout, "the timeout");
    const wish = { ...plan, declares: declares(), timeoutMs, resumes };
    const { id, operation } = coroutine.askNamed<number>(name, wish, undefined, branch);
    return coroutine.compose(`lock "${name}"`, branch, () => operation.then((fence) => holdOf(id, fence)));
  };

  return {
    acquire: (options) => acquire(options),
    tryAcquire: ({ queue = true } = {}) => {
      const branch = new Branch(outer);
      const wish = { ...plan, declares: declares(), queue, isTry: true };
      const { id, operation } = coroutine.askNamed<number | { readonly place: number }>(name, wish, undefined, branch);
      const answered = (answer: number | { readonly place: number }): RunTryAcquired => {
        if (typeof answer === "number") return { ok: true, hold: holdOf(id, answer) };
        const waiter: RunWaiter = { acquire: (options) => acquire(options, id), leave: () => unlock(id) };
        return { ok: false, code: "lock_busy", place: answer.place, waiter: queue ? waiter : undefined };
      };
      return coroutine.compose(`lock "${name}"`, branch, () => operation.then(answered));
    },
    with: (code, options) => {
      checkFunction(code, "what to do under the lock");
      // Canceled while it waits; code that has begun goes on.
      const branch = new Branch(outer);
      const run = async <T>(body: (hold: RunLockHold) => LockBody<T>): Promise<T> => {
        const hold = await acquire(options, undefined, branch);
        let value: T;
        try {
          const given = body(hold);
          value = await (isGenerator(given) ? (drive(given) as Promise<T>) : given);
        } catch (error) {
          await hold.release();
          throw error;
        }
        const { released } = await hold.release();
        if (!released) throw new LockLostError(name, hold.fence);
        return value;
      };
      return coroutine.compose(`lock "${name}"`, branch, () => run(code));
    },
  };
}
