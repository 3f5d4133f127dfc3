/**
 * A sweep that a worker makes on its own, for queues that only it can do because it knows the code: the loop looks at what is due once a minute.
 *
 * It does a few records at a time, and then rests for as long as that took, so at most half of the time is spent on it, and claims, which are
 * beside it, are not delayed. A record whose chore throws is reported and left alone for a while.
 */

import type { Queue } from "./capability.ts";
import { type Address, address, type DuePage, type DueQuery } from "./contract.ts";
import { ClosedError } from "./errors.ts";
import { type Chance, type Clock, pause } from "./ports.ts";

/** The time between two looks. A number of its own, by which the clock of the test kit knows that it need not stop for it. */
export const SWEEP_POLL_MS = 60_013;

/** A look reads at most `LOOKED_AT` due records, and does at most `TOGETHER` of them. */
const LOOKED_AT = 200;
const TOGETHER = 20;
/** A record whose chore threw is tried again after this time. */
const LEFT_ALONE_MS = 10 * 60_000;
const MOST_LEFT_ALONE = 1000;

export interface SweepLoopHost {
  readonly ports: { readonly clock: Clock; readonly chance: Chance };
  due(query: DueQuery): Promise<DuePage>;
}

export class SweepLoop {
  readonly #host: SweepLoopHost;
  readonly #queues: ReadonlyMap<string, Queue>;
  readonly #failed: (error: unknown) => void;
  readonly #stopping = new AbortController();
  /** Records whose chore threw, by their texts, and until when they are left alone. */
  readonly #leftAlone = new Map<string, number>();
  readonly #ended: Promise<void>;

  constructor(host: SweepLoopHost, queues: readonly Queue[], failed: (error: unknown) => void) {
    this.#host = host;
    this.#queues = new Map(queues.map((queue) => [queue.kind, queue]));
    this.#failed = failed;
    this.#ended = queues.length === 0 ? Promise.resolve() : this.#loop();
  }

  /** Finishes the chores that are under way. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#ended;
  }

  async #loop(): Promise<void> {
    const { signal } = this.#stopping;
    // The first look is a while after the start, so that processes that live shortly have nothing to do with it.
    for (let waitMs = SWEEP_POLL_MS; ; ) {
      await pause(this.#host.ports.clock, waitMs, signal);
      if (signal.aborted) return;
      try {
        waitMs = await this.look();
      } catch (error) {
        if (error instanceof ClosedError) return;
        this.#failed(error);
        waitMs = SWEEP_POLL_MS;
      }
    }
  }

  /** Does some of what is due. Returns how long to wait before the next look. */
  async look(): Promise<number> {
    const { clock, chance } = this.#host.ports;
    const startedMs = clock.nowMs();
    for (const [text, untilMs] of this.#leftAlone) if (untilMs <= startedMs) this.#leftAlone.delete(text);
    const limit = LOOKED_AT + this.#leftAlone.size;
    const { keys } = await this.#host.due({ kinds: [...this.#queues.keys()], limit });
    const due = keys.flatMap(({ space, key, kind }) => {
      const at = address(space, key);
      const queue = this.#queues.get(kind);
      return queue === undefined || this.#leftAlone.has(at.text) ? [] : [{ at, queue }];
    });
    if (due.length === 0) return SWEEP_POLL_MS;
    // Another worker may look at the same moment: each begins at another place.
    const from = due.length <= TOGETHER ? 0 : Math.floor(chance.random() * (due.length - TOGETHER + 1));
    await Promise.all(due.slice(from, from + TOGETHER).map(({ at, queue }) => this.#do(at, queue)));
    if (due.length <= TOGETHER && keys.length < limit) return SWEEP_POLL_MS;
    return Math.max(1, clock.nowMs() - startedMs);
  }

  async #do(at: Address, { chore }: Queue): Promise<void> {
    try {
      await chore(at);
    } catch (error) {
      if (error instanceof ClosedError) throw error;
      this.#failed(error);
      if (this.#leftAlone.size < MOST_LEFT_ALONE)
        this.#leftAlone.set(at.text, this.#host.ports.clock.nowMs() + LEFT_ALONE_MS);
    }
  }
}
