/**
 * Sweeps: the one way in which records go whose time is over.
 *
 * A capability says what is to be done about its records when they are due (`Queue`). A process that makes such records also sweeps: the first
 * one that a process makes leads to a small sweep, and so does each 256th, by whatever path it was made. A sweep looks at more records than
 * were made since the last one, so they do not grow in number without end; and a process that lives no longer than its one record has its share.
 * Rows of deleted records are removed from the store in the same way.
 *
 * Sweeps follow commits and are not part of them. What one misses, because the store is busy or a record cannot be read, the next one finds.
 */

import type { Queue } from "./capability.ts";
import { CLOSING_MS, settledWithin } from "./closing.ts";
import { address, type DuePage, type DueQuery, type Put } from "./contract.ts";
import type { Clock } from "./ports.ts";

/** One sweep for this many records that were made, or deleted. */
export const SWEEP_EVERY = 256;
const SWEPT_AT_ONCE = 2 * SWEEP_EVERY;
/** The time between two sweeps, unless the last one found as much as it could do. */
const SWEEP_PAUSE_MS = 1000;

export interface SweeperHost {
  readonly clock: Clock;
  due(query: DueQuery): Promise<DuePage>;
  /** Removes rows of deleted records from the store. */
  removeDeleted(limit: number): Promise<number>;
}

export class Sweeper {
  readonly #host: SweeperHost;
  readonly #queues = new Map<string, Queue>();
  /** How many records were made since the last sweep, as if almost enough for one had been made before the first. */
  #made = SWEEP_EVERY - 1;
  /** The same of records that were deleted; the first commit sweeps, for processes that delete few. */
  #deleted = SWEEP_EVERY;
  #notBeforeMs = 0;
  #sweeping: Promise<void> | undefined;

  constructor(host: SweeperHost) {
    this.#host = host;
  }

  /** From now on, what is due in these queues is done by sweeps. */
  add(queues: readonly Queue[]): void {
    for (const queue of queues) {
      if (this.#queues.has(queue.kind)) throw new Error(`two queues have the kind "${queue.kind}"`);
      this.#queues.set(queue.kind, queue);
    }
  }

  /** What others wait for: workers do it as soon as it is due. */
  get urgent(): readonly Queue[] {
    return [...this.#queues.values()].filter(({ isUrgent }) => isUrgent);
  }

  /** Called after each commit with what it wrote. */
  committed(puts: readonly Put[]): void {
    for (const { was, row } of puts)
      if (row.value === null) this.#deleted += 1;
      else if (row.kind !== null && (was === null || was.value === null) && this.#queues.has(row.kind)) this.#made += 1;
    if (this.#deleted >= SWEEP_EVERY) {
      this.#deleted = 0;
      this.#host.removeDeleted(SWEPT_AT_ONCE).catch(() => {});
    }
    if (this.#made >= SWEEP_EVERY && this.#sweeping === undefined && this.#host.clock.nowMs() >= this.#notBeforeMs)
      this.#begin();
  }

  /** Does what is due in these queues, for at most `limit` records. Returns how many records were due, and how many were removed. */
  async sweep(kinds: readonly string[], limit: number): Promise<{ readonly due: number; readonly removed: number }> {
    const { keys } = await this.#host.due({ kinds, limit });
    const outcomes = await Promise.allSettled(
      keys.map(({ space, key, kind }) => this.#queues.get(kind)?.chore(address(space, key))),
    );
    const removed = outcomes.filter((one) => one.status === "fulfilled" && one.value === true).length;
    return { due: keys.length, removed };
  }

  get isSweeping(): boolean {
    return this.#sweeping !== undefined;
  }

  /** Waits for the sweep that is under way, for a bounded time. */
  async close(): Promise<void> {
    await settledWithin(this.#host.clock, CLOSING_MS, Promise.resolve(this.#sweeping));
  }

  #begin(): void {
    this.#made = 0;
    this.#notBeforeMs = this.#host.clock.nowMs() + SWEEP_PAUSE_MS;
    // Each queue for itself: a full one keeps no other waiting.
    const sweeps = Array.from(this.#queues.keys(), async (kind) => {
      const { due } = await this.sweep([kind], SWEPT_AT_ONCE);
      if (due === SWEPT_AT_ONCE) this.#notBeforeMs = 0;
    });
    this.#sweeping = Promise.allSettled(sweeps).then(() => {
      this.#sweeping = undefined;
    });
  }
}
