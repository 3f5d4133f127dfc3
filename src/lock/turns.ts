/**
 * Whose turn it is: those who wait in this process hear of it from the lock's record.
 *
 * A lock that changes is looked at once for all who wait for it here, whether ten or ten thousand, and only those it names are told.
 */

import type { Address, Row } from "../kernel/contract.ts";
import type { Kernel } from "../kernel/kernel.ts";
import { Lookout } from "../kernel/lookout.ts";
import { type AUDIT, type LockRef, lockAt } from "./records.ts";
import { lockOf } from "./stored.ts";

/** Whoever waits for a lock is in a hurry. */
const BURST_MS = 1;

export interface Hopeful {
  readonly granted: (fence: number) => void;
  /** Somebody took it out of the line. */
  readonly removed: () => void;
  readonly failed: (error: unknown) => void;
  /** How long the lock's audit trail was when it got in line. */
  readonly head: number;
}

/** Those who wait for one lock here. */
interface Line {
  readonly waiting: Map<string, Hopeful>;
  readonly stop: () => void;
  /** How much of the lock's audit trail is known here: what is in it was told. */
  head: number;
}

/** So many entries of an audit trail are read at a time. */
const PAGE = 100;

export class Turns {
  readonly #kernel: Kernel;
  readonly #lookout: Lookout;
  /** Who waits, by lock. */
  readonly #lines = new Map<string, Line>();

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
    const line = this.#lines.get(at.text) ?? this.#begin(at, ticket, hopeful);
    line.waiting.set(ticket, hopeful);
    // It may have been removed before anybody here listened for it.
    line.head = Math.min(line.head, hopeful.head);
    // Its turn may have come before anybody here listened for it.
    this.#lookout.look(at).catch(() => {});
    return () => {
      line.waiting.delete(ticket);
      if (line.waiting.size > 0 || this.#lines.get(at.text) !== line) return;
      line.stop();
      this.#lines.delete(at.text);
    };
  }

  #begin(at: Address, ticket: string, hopeful: Hopeful): Line {
    const waiting = new Map([[ticket, hopeful]]);
    const stop = this.#lookout.watch(at, {
      seen: (row) => this.#seen(at, row, line),
      failed: (error) => {
        for (const one of [...waiting.values()]) one.failed(error);
      },
    });
    const line: Line = { waiting, stop, head: hopeful.head };
    this.#lines.set(at.text, line);
    return line;
  }

  #seen(at: Address, row: Row | null, line: Line): boolean {
    if (row === null || row.value === null) return false;
    const { waiting } = line;
    const { holders } = lockOf(this.#kernel.decode(row, row.value));
    for (const { ticket, fence } of holders) waiting.get(ticket)?.granted(fence);
    if (row.head > line.head) {
      const after = line.head;
      line.head = row.head;
      this.#findRemoved(at, after, waiting).catch(() => {
        // It is read with the next change; until then, whoever waits asks by itself.
        line.head = Math.min(line.head, after);
      });
    }
    return false;
  }

  /** People intervene rarely: only then the audit trail is read. */
  async #findRemoved(at: Address, after: number, waiting: ReadonlyMap<string, Hopeful>): Promise<void> {
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
