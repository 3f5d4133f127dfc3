/**
 * What can become of a wish for a lock, other than having it.
 */

import { PawlError } from "../kernel/errors.ts";

/** It is held by others, and the caller did not want to wait. Wait for it with `acquire`, or take a place in line with `enqueue`. */
export class LockBusyError extends PawlError<"lock_busy", { name: string }> {
  constructor(name: string) {
    super("lock_busy", `${name} is held by others`, { name });
  }
}

/** The place in line does not exist any more. Take another one with `enqueue`, or wait with `acquire`. */
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

/** It did not become free in time. The place in line was given up. */
export class LockTimeoutError extends PawlError<"lock_timeout", { name: string; timeoutMs: number }> {
  constructor(name: string, timeoutMs: number) {
    super("lock_timeout", `${name} did not become free within ${timeoutMs} ms`, { name, timeoutMs });
  }
}

/** It was held, and is not any more: its lease ended, or somebody forced its release. Another may hold it by now; stop. */
export class LockLostError extends PawlError<"lock_lost", { name: string; fence: number }> {
  constructor(name: string, fence: number) {
    super(
      "lock_lost",
      `${name} is no longer held under fence ${fence}: its lease ended, or its release was forced; another may hold it by now`,
      { name, fence },
    );
  }
}

/** Somebody took the waiter out of the line. */
export class LockRemovedError extends PawlError<"lock_removed", { name: string }> {
  constructor(name: string) {
    super("lock_removed", `the wait for ${name} was ended by somebody: its place in line was removed`, { name });
  }
}

/** The same code holds it already, and would wait for itself. */
export class LockNestedError extends PawlError<"lock_nested", { name: string }> {
  constructor(name: string) {
    super("lock_nested", `${name} is already held by the code that asks for it, which would wait for itself`, { name });
  }
}

/** One link of a circle: the run, the lock it waits for, and the run that holds it; or, without a lock, the child it waits for. */
export interface DeadlockLink {
  readonly run: string;
  readonly waitsFor: string | null;
  readonly heldBy: string;
}

/** Waiting would never end: whoever holds it waits, in the end, for this one. `data.circle` says how. */
export class DeadlockError extends PawlError<"deadlock", { name: string; circle: readonly DeadlockLink[] }> {
  constructor(name: string, circle: readonly DeadlockLink[]) {
    const links = circle.map(
      ({ run, waitsFor, heldBy }) =>
        `run "${run}" waits for ${waitsFor === null ? `its child "${heldBy}"` : `${waitsFor}, held by run "${heldBy}"`}`,
    );
    super("deadlock", `waiting for ${name} would never end: ${links.join("; ")}`, { name, circle });
  }
}
