/**
 * Errors of fences.
 */

import { PawlError } from "../errors.ts";

/**
 * Another holder with a higher fence has written to the resource: the lock, or the run, was taken over. Do not catch it inside the transaction,
 * so that it is rolled back, and stop working. `data.current` is null if only the number of changed rows is known.
 */
export class StaleFenceError extends PawlError<
  "stale_fence",
  { resource: string; fence: number; current: number | null }
> {
  constructor(resource: string, fence: number, current: number | null = null) {
    const higher = current === null ? "a higher fence" : `fence ${current}`;
    super(
      "stale_fence",
      `"${resource}" was written under ${higher}, and this write has fence ${fence}: the lock was taken over; stop working`,
      { resource, fence, current },
    );
  }
}
