/**
 * Locks as the code of a run sees them: each verb is recorded, and what is held is held for as long as the run lives.
 */

import { checkDuration, checkFunction, checkOptions, type Duration, optionNames } from "../kernel/check.ts";
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

const ACQUIRE_OPTIONS = optionNames<RunAcquireOptions>({ timeout: true });
const NO_OPTIONS = optionNames<object>({});

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

/** A place in line. It lasts as long as the run, until it is left or its turn has come and what it got is released. */
export interface RunPlace {
  /** Its place in line when it was taken; 1 is the first. */
  readonly position: number;
  /** Waits for its turn. Throws `lock_timeout` when the time is over: the place is then given up. */
  acquire(options?: RunAcquireOptions): Operation<RunLockHold>;
  /** Gives the place up, or the lock if its turn has come. */
  leave(): Operation<{ readonly released: boolean }>;
}

export type RunTryAcquired =
  | { readonly ok: true; readonly hold: RunLockHold }
  | {
      readonly ok: false;
      readonly code: "lock_busy";
      /** The place in line that `acquire` or `enqueue` would have had. */
      readonly place: number;
    };

export type RunEnqueued =
  | { readonly granted: true; readonly hold: RunLockHold }
  | { readonly granted: false; readonly place: RunPlace };

export interface RunLock {
  /** Waits in line until it is had. */
  acquire(options?: RunAcquireOptions): Operation<RunLockHold>;
  /** Acquires it if it is free and no other waits for it. Never waits, and leaves nothing behind when it fails. */
  tryAcquire(): Operation<RunTryAcquired>;
  /** Acquires it if it is free, or takes a place in line without waiting. */
  enqueue(): Operation<RunEnqueued>;
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
    checkOptions(options, ACQUIRE_OPTIONS);
    const timeoutMs = options?.timeout === undefined ? null : checkDuration(options.timeout, "the timeout");
    const wish = { ...plan, declares: declares(), timeoutMs, resumes };
    const { id, operation } = coroutine.askNamed<number>(name, wish, undefined, branch);
    return coroutine.compose(`lock "${name}"`, branch, () => operation.then((fence) => holdOf(id, fence)));
  };

  /** Is told immediately how it stands. */
  const attempt = <T>(
    queue: boolean,
    answered: (id: string, answer: number | { readonly place: number }) => T,
  ): Operation<T> => {
    const branch = new Branch(outer);
    const wish = { ...plan, declares: declares(), queue, isTry: true };
    const { id, operation } = coroutine.askNamed<number | { readonly place: number }>(name, wish, undefined, branch);
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
