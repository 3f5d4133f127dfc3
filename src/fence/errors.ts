/**
 * Errors of fences.
 */

import { PawlError } from "../kernel/errors.ts";

/**
 * Somebody with a higher fence has written to the resource: the lock, or the run, was taken over. Let it go on, so that the transaction
 * is rolled back, and stop working. `data.current` is null where only the count of changed rows told.
 */
export class StaleFenceError extends PawlError<
  "stale_fence",
  { resource: string; fence: number; current: number | null }
> {
  constructor(resource: string, fence: number, current: number | null = null) {
    const seen = current === null ? "a higher fence" : `fence ${current}`;
    super(
      "stale_fence",
      `"${resource}" was written under ${seen} already, and yours is ${fence}: you were taken over`,
      {
        resource,
        fence,
        current,
      },
    );
  }
}
