/**
 * Locks in the code of a run: each method is recorded, and a lock is held until it is released, at the latest until the run ends.
 */

import { checkDuration, checkFunction, checkOptions, type Duration, optionNames } from "../../kernel/check.ts";
import { LockLostError } from "../../lock/errors.ts";
import type { LockSpec } from "../../lock/options.ts";
import { shownLocks } from "../../lock/stored.ts";
import type { LockPlan } from "../definitions/plans.ts";
import { Branch } from "../execution/branch.ts";
import type { Coroutine } from "../execution/coroutine.ts";
import { drive, isGenerator, type Operation } from "../execution/operation.ts";

export interface RunAcquireOptions {
  /** How long to wait. Default: without a limit. */
  readonly timeout?: Duration | undefined;
}

const ACQUIRE_OPTIONS = optionNames<RunAcquireOptions>({ timeout: true });
const NO_OPTIONS = optionNames<object>({});

/** What is done under a lock: async code, or a generator of operations. */
export type LockBody<T> = T | PromiseLike<T> | Generator<Operation<unknown>, T, unknown>;

/** A lock that a run holds. */
export interface RunLockHold {
  /**
   * Strictly above that of every earlier holder, and a new one when another worker has taken the run over: pass it to what the
   * lock protects, and decide nothing by it.
   */
  readonly fence: number;
  /** Releases it; the first in the queue holds it from the same commit on. Has no effect when it is not held any more. */
  release(): Operation<{ readonly released: boolean }>;
}

/** A place in the queue of a lock. It lasts as long as the run, until it is left, or the lock is acquired and released. */
export interface RunPlace {
  /** Its position in the queue when it was taken; 1 is the first. */
  readonly position: number;
  /** Waits for its turn. Throws `lock_timeout` when the time is over: the place is lost then. */
  acquire(options?: RunAcquireOptions): Operation<RunLockHold>;
  /** Leaves the place, or releases the lock if its turn has come. */
  leave(): Operation<{ readonly released: boolean }>;
}

export type RunTryAcquired =
  | { readonly ok: true; readonly hold: RunLockHold }
  | {
      readonly ok: false;
      readonly code: "lock_busy";
      /** The position in the queue that `acquire` or `enqueue` would have had. */
      readonly place: number;
    };

export type RunEnqueued =
  | { readonly granted: true; readonly hold: RunLockHold }
  | { readonly granted: false; readonly place: RunPlace };

export interface RunLock {
  /** Waits in the queue until it is acquired. */
  acquire(options?: RunAcquireOptions): Operation<RunLockHold>;
  /** Acquires it if it is free and no other waits for it. Never waits, and leaves nothing behind when it fails. */
  tryAcquire(): Operation<RunTryAcquired>;
  /** Acquires it if it is free, or takes a place in the queue without waiting. */
  enqueue(): Operation<RunEnqueued>;
  /** Runs the code while it is held, and releases it whatever happens. */
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
    checkOptions(options, ACQUIRE_OPTIONS);
    const timeoutMs = options?.timeout === undefined ? null : checkDuration(options.timeout, "the timeout");
    const request = { ...plan, declares: declares(), timeoutMs, resumes };
    const { id, operation } = coroutine.askNamed<number>(name, request, branch);
    return coroutine.compose(`lock "${name}"`, branch, () => operation.then((fence) => holdOf(id, fence)));
  };

  /** Settles immediately, granted or not. */
  const attempt = <T>(
    queue: boolean,
    answered: (id: string, answer: number | { readonly place: number }) => T,
  ): Operation<T> => {
    const branch = new Branch(outer);
    const request = { ...plan, declares: declares(), queue, isTry: true };
    const { id, operation } = coroutine.askNamed<number | { readonly place: number }>(name, request, branch);
    return coroutine.compose(`lock "${name}"`, branch, () => operation.then((answer) => answered(id, answer)));
  };

  return {
    acquire: (options) => acquire(options),
    tryAcquire: (...options: readonly unknown[]) => {
      checkOptions(options[0], NO_OPTIONS, "the options of tryAcquire");
      return attempt(false, (id, answer): RunTryAcquired => {
        if (typeof answer === "number") return { ok: true, hold: holdOf(id, answer) };
        return { ok: false, code: "lock_busy", place: answer.place };
      });
    },
    enqueue: (...options: readonly unknown[]) => {
      checkOptions(options[0], NO_OPTIONS, "the options of enqueue");
      return attempt(true, (id, answer): RunEnqueued => {
        if (typeof answer === "number") return { granted: true, hold: holdOf(id, answer) };
        const place: RunPlace = {
          position: answer.place,
          acquire: (options) => acquire(options, id),
          leave: () => unlock(id),
        };
        return { granted: false, place };
      });
    },
    with: (code, options) => {
      checkFunction(code, "what to do under the lock");
      checkOptions(options, ACQUIRE_OPTIONS);
      // It is canceled while it waits; code that has begun continues.
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
