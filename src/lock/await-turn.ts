/**
 * Waits for a lock in plain code, until it is granted, the timeout has passed or the caller aborts.
 *
 * Guarantee: a caller that gives up has left the line. A grant that comes at that moment is returned after a timeout, and released after an abort.
 */

import { checkDuration, type Duration, optionNames } from "../kernel/check.ts";
import type { Clock } from "../kernel/ports.ts";
import { LockTimeoutError } from "./errors.ts";
import type { Hold } from "./hold.ts";
import type { Wait } from "./wait.ts";

export interface WaitOptions {
  /** How long to wait. Default: no limit. */
  readonly timeout?: Duration | undefined;
  readonly abortSignal?: AbortSignal | undefined;
}

export const WAIT_OPTIONS = optionNames<WaitOptions>({ timeout: true, abortSignal: true });

/** Waits for the grant and returns the hold. Default: no timeout. Throws `lock_timeout`, or the reason of the signal. */
export async function awaitTurn(clock: Clock, name: string, wait: Wait, options: WaitOptions): Promise<Hold> {
  const { abortSignal } = options;
  const timeoutMs = timeoutOf(options);
  const { promise: interrupted, reject } = Promise.withResolvers<never>();
  interrupted.catch(() => {});
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
  // Leaves the line. If the lock was granted at this moment, it is returned after a timeout, and released after an abort.
  const hold = await wait.leave().catch(() => undefined);
  wait.drop(interruption);
  if (hold === undefined) throw interruption;
  if (interruption instanceof LockTimeoutError) return hold;
  await hold.release().catch(() => {});
  throw interruption;
}

export const timeoutOf = ({ timeout }: Pick<WaitOptions, "timeout">): number | undefined =>
  timeout === undefined ? undefined : checkDuration(timeout, "the timeout");
