/**
 * Grants: the waiters of this process are notified of grants and removals through the lock's record.
 *
 * When a lock changes, it is read once for all waiters of this process, whether ten or ten thousand, and only those that it names are notified.
 */

import type { Address, Row } from "../kernel/contract.ts";
import type { Kernel } from "../kernel/kernel.ts";
import { RecordWatch } from "../kernel/record-watch.ts";
import { type AUDIT, type LockRef, lockAt, lockOf } from "./stored.ts";

/** Short, because waiters should get the lock as soon as it is granted. */
const BURST_MS = 1;

export interface Waiter {
  readonly granted: (fence: number) => void;
  /** An operator removed it from the line. */
  readonly removed: () => void;
  readonly failed: (error: unknown) => void;
  /** The length of the lock's audit trail when it entered the line. */
  readonly head: number;
}

/** The waiters of this process for one lock. */
interface LockWaiters {
  readonly waiting: Map<string, Waiter>;
  readonly stop: () => void;
  /** How much of the lock's audit trail the waiters were notified of. */
  head: number;
}

/** How many entries of an audit trail are read at a time. */
const PAGE = 100;

export class Turns {
  readonly #kernel: Kernel;
  readonly #records: RecordWatch;
  /** The waiters by lock. */
  readonly #lines = new Map<string, LockWaiters>();

  constructor(kernel: Kernel) {
    this.#kernel = kernel;
    this.#records = new RecordWatch(kernel, {
      isOfInterest: ({ space }) => space.startsWith("lock/"),
      burstMs: BURST_MS,
    });
  }

  /** Notifies the waiter when its ticket is granted or removed. Returns a function that stops it. Of several locks, watching one is enough. */
  watch(ref: LockRef, ticket: string, waiter: Waiter): () => void {
    const at = lockAt(ref);
    const line = this.#lines.get(at.text) ?? this.#begin(at, ticket, waiter);
    line.waiting.set(ticket, waiter);
    // It may have been removed before it was watched.
    line.head = Math.min(line.head, waiter.head);
    // The lock may have been granted before it was watched.
    this.#records.look(at).catch(() => {});
    return () => {
      line.waiting.delete(ticket);
      if (line.waiting.size > 0 || this.#lines.get(at.text) !== line) return;
      line.stop();
      this.#lines.delete(at.text);
    };
  }

  #begin(at: Address, ticket: string, waiter: Waiter): LockWaiters {
    const waiting = new Map([[ticket, waiter]]);
    const stop = this.#records.watch(at, {
      seen: (row) => this.#seen(at, row, line),
      failed: (error) => {
        for (const one of [...waiting.values()]) one.failed(error);
      },
    });
    const line: LockWaiters = { waiting, stop, head: waiter.head };
    this.#lines.set(at.text, line);
    return line;
  }

  #seen(at: Address, row: Row | null, line: LockWaiters): boolean {
    if (row === null || row.value === null) return false;
    const { waiting } = line;
    const { holders } = lockOf(this.#kernel.decode(row, row.value));
    for (const { ticket, fence } of holders) waiting.get(ticket)?.granted(fence);
    if (row.head > line.head) {
      const after = line.head;
      line.head = row.head;
      this.#findRemoved(at, after, waiting).catch(() => {
        // The trail is read again at the next change; until then, the waiter's own renewal finds out.
        line.head = Math.min(line.head, after);
      });
    }
    return false;
  }

  /** Reads the audit trail, which grows only when an operator intervenes. */
  async #findRemoved(at: Address, after: number, waiting: ReadonlyMap<string, Waiter>): Promise<void> {
    for (let from = after; ; ) {
      const entries = await this.#kernel.entries(at, from, PAGE);
      for (const { name, data } of entries) {
        if (name !== ("removed" satisfies (typeof AUDIT)[number])) continue;
        const { waiter } = this.#kernel.decodeFresh(at, data) as { readonly waiter: { readonly ticket: string } };
        waiting.get(waiter.ticket)?.removed();
      }
      from = entries.at(-1)?.version ?? from;
      if (entries.length < PAGE) return;
    }
  }
}
