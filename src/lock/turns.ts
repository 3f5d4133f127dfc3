/**
 * Whose turn it is: those who wait in this process hear of it from the lock's record.
 *
 * A lock that changes is looked at once for all who wait for it here, whether ten or ten thousand, and only those it names are told.
 */

import type { Row } from "../kernel/contract.ts";
import type { Kernel } from "../kernel/kernel.ts";
import { Lookout } from "../kernel/lookout.ts";
import { type LockRef, lockAt } from "./records.ts";
import { lockOf } from "./stored.ts";

/** Whoever waits for a lock is in a hurry. */
const BURST_MS = 1;

export interface Hopeful {
  readonly granted: (fence: number) => void;
  readonly failed: (error: unknown) => void;
}

export class Turns {
  readonly #kernel: Kernel;
  readonly #lookout: Lookout;
  /** Who waits, by lock and ticket. */
  readonly #waiting = new Map<string, Map<string, Hopeful>>();
  readonly #stops = new Map<string, () => void>();

  constructor(kernel: Kernel) {
    this.#kernel = kernel;
    this.#lookout = new Lookout(kernel, {
      isOfInterest: ({ space }) => space.startsWith("lock/"),
      burstMs: BURST_MS,
    });
  }

  /** Tells when the ticket's turn has come; answers how to stop. Several locks are had together, so it is enough to look at one. */
  watch(ref: LockRef, ticket: string, hopeful: Hopeful): () => void {
    const at = lockAt(ref);
    const waiting = this.#waiting.get(at.text) ?? new Map<string, Hopeful>();
    waiting.set(ticket, hopeful);
    if (waiting.size === 1) {
      this.#waiting.set(at.text, waiting);
      this.#stops.set(
        at.text,
        this.#lookout.watch(at, {
          seen: (row) => this.#seen(row, waiting),
          failed: (error) => {
            for (const one of [...waiting.values()]) one.failed(error);
          },
        }),
      );
    }
    // Its turn may have come before anybody here listened for it.
    this.#lookout.look(at).catch(() => {});
    return () => {
      waiting.delete(ticket);
      if (waiting.size > 0 || this.#waiting.get(at.text) !== waiting) return;
      this.#stops.get(at.text)?.();
      this.#stops.delete(at.text);
      this.#waiting.delete(at.text);
    };
  }

  #seen(row: Row | null, waiting: ReadonlyMap<string, Hopeful>): boolean {
    if (row === null || row.value === null) return false;
    const { holders } = lockOf(this.#kernel.decode(row, row.value));
    for (const { ticket, fence } of holders) waiting.get(ticket)?.granted(fence);
    return false;
  }
}
