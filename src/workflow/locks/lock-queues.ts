/**
 * Which of a run's requests for a lock are in the lock's queue, and which are held back in the run itself.
 *
 * A run that asks for one semaphore ten thousand times in parallel does not put ten thousand tickets into its queue: the run's record lists
 * all that it waits for, so each of them would cost as much as all. At most `MOST_IN_QUEUE` of one run are in the queue of a lock; the
 * others follow in the order in which the code started them, each when one of those before it has settled. What is decided here depends
 * on the code and on the facts alone, so replay decides the same.
 *
 * A request with a timeout, a place that is taken without waiting, and one that only tries, are never held back.
 */

import { LazyMap } from "../../kernel/lazy.ts";
import { lockAt } from "../../lock/stored.ts";
import type { PendingOperation } from "../execution/pending.ts";

/** At most this many requests of one run are in the queue of one lock. */
export const MOST_IN_QUEUE = 16;

interface LockQueue {
  /** How many are in the queue, or about to be. */
  queued: number;
  /** Those that follow, in order. */
  readonly heldBack: Set<PendingOperation>;
}

export class LockQueues {
  readonly #queues = new LazyMap<string, LockQueue>();

  /** Whether it may enter the queue now; if not, it is held back. */
  enters(pending: PendingOperation): boolean {
    const key = queueKeyOf(pending);
    if (key === undefined) return true;
    const queue = this.#queues.get(key) ?? { queued: 0, heldBack: new Set() };
    this.#queues.set(key, queue);
    if (queue.queued >= MOST_IN_QUEUE || queue.heldBack.size > 0) {
      queue.heldBack.add(pending);
      pending.isHeldBack = true;
      return false;
    }
    queue.queued += 1;
    return true;
  }

  /** The history has it in the queue: an earlier version held nothing back. */
  wasAsked(pending: PendingOperation): void {
    const queue = this.#queues.get(queueKeyOf(pending) ?? "");
    if (queue === undefined || !queue.heldBack.delete(pending)) return;
    pending.isHeldBack = false;
    queue.queued += 1;
  }

  /** It has its outcome, or was interrupted. Returns the next one that may enter the queue, if there is one. */
  leaves(pending: PendingOperation): PendingOperation | undefined {
    const key = queueKeyOf(pending);
    const queue = this.#queues.get(key ?? "");
    if (key === undefined || queue === undefined || queue.heldBack.delete(pending)) return undefined;
    queue.queued -= 1;
    if (queue.queued >= MOST_IN_QUEUE) return undefined;
    const [next] = queue.heldBack;
    if (next === undefined) {
      if (queue.queued === 0) this.#queues.delete(key);
      return undefined;
    }
    this.wasAsked(next);
    return next;
  }
}

/** The queue that it shares with others of its run; undefined if it is never held back. */
function queueKeyOf({ plan }: PendingOperation): string | undefined {
  if (plan.kind !== "lock" || plan.isTry || plan.timeoutMs !== null || plan.resumes !== undefined) return undefined;
  const [first, ...others] = plan.refs;
  if (first === undefined) return undefined;
  return others.length === 0 ? lockAt(first).text : plan.refs.map((ref) => lockAt(ref).text).join("\n\n");
}
