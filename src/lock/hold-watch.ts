/**
 * Notices forced releases: a hold is checked after the commit that forced its release, in this process or another.
 *
 * Every intervention is an entry in the audit trail of its lock, so a lock's value is decoded only when the trail has grown. Most holds
 * end within milliseconds; only those that last longer are watched.
 */

import type { Row } from "../kernel/contract.ts";
import type { Kernel } from "../kernel/kernel.ts";
import { RecordWatch } from "../kernel/record-watch.ts";
import type { Hold } from "./hold.ts";
import { lockAt, lockOf } from "./stored.ts";

/** Holds that are older than this are watched. */
const WATCHED_AFTER_MS = 100;
/** Commits of other processes that come within this time cause one read. */
const BURST_MS = 50;

/** The holds of one lock. */
interface Watched {
  readonly holds: Map<string, Hold>;
  readonly stop: () => void;
  /** The length of the audit trail when it was last read. */
  head: number | undefined;
}

export class HoldWatch {
  readonly #kernel: Kernel;
  readonly #records: RecordWatch;
  readonly #young = new Set<Hold>();
  readonly #watched = new Map<string, Watched>();
  #cancel: (() => void) | undefined;

  constructor(kernel: Kernel) {
    this.#kernel = kernel;
    this.#records = new RecordWatch(kernel, {
      isOfInterest: ({ space }) => space.startsWith("lock/"),
      burstMs: BURST_MS,
    });
  }

  /** Several locks are held and lost together, so it is enough to watch one. */
  add(hold: Hold): void {
    this.#young.add(hold);
    this.#cancel ??= this.#kernel.ports.clock.after(WATCHED_AFTER_MS, () => this.#grown());
  }

  delete(hold: Hold): void {
    if (this.#young.delete(hold)) {
      if (this.#young.size > 0) return;
      this.#cancel?.();
      this.#cancel = undefined;
      return;
    }
    const { text } = lockAt(hold.ref);
    const watched = this.#watched.get(text);
    if (watched?.holds.delete(hold.ticket) !== true || watched.holds.size > 0) return;
    watched.stop();
    this.#watched.delete(text);
  }

  #grown(): void {
    this.#cancel = undefined;
    const young = [...this.#young];
    this.#young.clear();
    for (const hold of young) this.#watch(hold);
  }

  #watch(hold: Hold): void {
    const at = lockAt(hold.ref);
    const known = this.#watched.get(at.text);
    if (known !== undefined) {
      known.holds.set(hold.ticket, hold);
      known.head = undefined;
    } else {
      const holds = new Map([[hold.ticket, hold]]);
      const seen = (row: Row | null): boolean => {
        const watched = this.#watched.get(at.text);
        if (watched?.holds === holds) this.#seen(watched, row);
        return false;
      };
      const stop = this.#records.watch(at, { seen, failed: () => {} });
      this.#watched.set(at.text, { holds, stop, head: undefined });
    }
    // Its release may have been forced before it was watched.
    this.#records.look(at).catch(() => {});
  }

  #seen(watched: Watched, row: Row | null): void {
    if (row !== null && row.head === watched.head) return;
    watched.head = row?.head;
    const { holders } = row === null || row.value === null ? NOTHING : lockOf(this.#kernel.decode(row, row.value));
    const tickets = new Set(holders.map(({ ticket }) => ticket));
    for (const [ticket, hold] of [...watched.holds]) if (!tickets.has(ticket)) hold.suspect();
  }
}

const NOTHING = { holders: [] };
