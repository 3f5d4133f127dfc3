/**
 * Errors of locks.
 */

import { PawlError } from "../kernel/errors.ts";

/** Another holder has the lock, or waits for it, and the call does not wait. Wait with `acquire`, or take a place in line with `enqueue`. */
export class LockBusyError extends PawlError<"lock_busy", { name: string }> {
  constructor(name: string) {
    super("lock_busy", `${name} is held by another, or another waits for it: wait with acquire, or try again later`, {
      name,
    });
  }
}

/** The place in line no longer exists. Take another one with `enqueue`, or wait with `acquire`. */
export class PlaceLostError extends PawlError<"place_lost", { name: string }> {
  constructor(name: string) {
    super(
      "place_lost",
      `the place in line for ${name} is gone: it was left, or its lease ended before it was renewed; call enqueue again`,
      { name },
    );
  }
}

/**
 * A semaphore was used without permits, and no process has declared how many it has; a declaration is kept for 30 days after the last use.
 * Give `permits` where it is used.
 */
export class PermitsUndeclaredError extends PawlError<"permits_undeclared", { name: string }> {
  constructor(name: string) {
    super(
      "permits_undeclared",
      `the permits of semaphore ${JSON.stringify(name)} are not declared: give them, as in semaphore(name, { permits: 3 })`,
      { name },
    );
  }
}

/** The lock was not granted within `timeout`. The caller has left the line. */
export class LockTimeoutError extends PawlError<"lock_timeout", { name: string; timeoutMs: number }> {
  constructor(name: string, timeoutMs: number) {
    super("lock_timeout", `${name} was not granted within ${timeoutMs} ms: try again, or wait longer`, {
      name,
      timeoutMs,
    });
  }
}

/** The lock is no longer held: its lease ended, or its release was forced. Another may hold it now; stop working. */
export class LockLostError extends PawlError<"lock_lost", { name: string; fence: number }> {
  constructor(name: string, fence: number) {
    super(
      "lock_lost",
      `${name} is no longer held under fence ${fence}: its lease ended, or its release was forced; stop, because another may hold it now`,
      { name, fence },
    );
  }
}

/** An operator removed the waiter from the line. */
export class LockRemovedError extends PawlError<"lock_removed", { name: string }> {
  constructor(name: string) {
    super("lock_removed", `the place in line for ${name} was removed with removeWaiter: acquire again to wait for it`, {
      name,
    });
  }
}

/** The calling code already holds the lock, and would wait for itself. */
export class LockNestedError extends PawlError<"lock_nested", { name: string }> {
  constructor(name: string) {
    super(
      "lock_nested",
      `${name} is already held by the calling code, which would wait for itself: use the outer hold`,
      { name },
    );
  }
}

/** One link of a deadlock: the run, the lock it waits for, and the run that holds it; or, without a lock, the child it waits for. */
export interface DeadlockLink {
  readonly run: string;
  readonly waitsFor: string | null;
  readonly heldBy: string;
}

/** Waiting would never end: the holder waits, directly or through others, for this run. `data.circle` has the links. */
export class DeadlockError extends PawlError<"deadlock", { name: string; circle: readonly DeadlockLink[] }> {
  constructor(name: string, circle: readonly DeadlockLink[]) {
    const links = circle.map(
      ({ run, waitsFor, heldBy }) =>
        `run "${run}" waits for ${waitsFor === null ? `its child "${heldBy}"` : `${waitsFor}, held by run "${heldBy}"`}`,
    );
    super("deadlock", `waiting for ${name} would never end: ${links.join("; ")}`, { name, circle });
  }
}
