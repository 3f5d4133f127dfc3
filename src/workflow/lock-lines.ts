/**
 * Which wishes of a run for a lock are asked of the store, and which wait for that in the run itself.
 *
 * A run that asks for one semaphore ten thousand times in parallel does not put ten thousand tickets into its line: the run's record lists
 * all that it waits for, so each of them would cost as much as all. At most `MOST_IN_LINE` of one run stand in the line of a lock; the
 * others follow in the order in which the code asked, each when one of those before it has had its turn. What is decided here depends
 * on the code and on the facts alone, so replay decides the same.
 *
 * A wish with a timeout, a place that is taken without waiting, and one that only tries, are asked of the store immediately.
 */

import { lockAt } from "../lock/records.ts";
import type { Asked } from "./coroutine.ts";

/** At most this many wishes of one run stand in the line of one lock. */
export const MOST_IN_LINE = 16;

interface Line {
  /** How many were asked of the store, and have no answer yet. */
  inLine: number;
  /** Those that follow, in order. */
  readonly back: Set<Asked>;
}

export class LockLines {
  readonly #lines = new Map<string, Line>();

  /** Whether the store is asked now; if not, it is held back. */
  enters(asked: Asked): boolean {
    const key = lineOf(asked);
    if (key === undefined) return true;
    const line = this.#lines.get(key) ?? { inLine: 0, back: new Set() };
    this.#lines.set(key, line);
    if (line.inLine >= MOST_IN_LINE || line.back.size > 0) {
      line.back.add(asked);
      asked.isHeldBack = true;
      return false;
    }
    line.inLine += 1;
    return true;
  }

  /** The history has it in line, as one of a version that held nothing back does. */
  wasAsked(asked: Asked): void {
    const line = this.#lines.get(lineOf(asked) ?? "");
    if (line === undefined || !line.back.delete(asked)) return;
    asked.isHeldBack = false;
    line.inLine += 1;
  }

  /** It has its answer, or was interrupted. Returns the next one to ask the store for, if there is one. */
  leaves(asked: Asked): Asked | undefined {
    const key = lineOf(asked);
    const line = this.#lines.get(key ?? "");
    if (key === undefined || line === undefined || line.back.delete(asked)) return undefined;
    line.inLine -= 1;
    if (line.inLine >= MOST_IN_LINE) return undefined;
    const [next] = line.back;
    if (next === undefined) {
      if (line.inLine === 0) this.#lines.delete(key);
      return undefined;
    }
    this.wasAsked(next);
    return next;
  }
}

/** The line that it stands in with others of its run; undefined if it is not held back. */
function lineOf({ plan }: Asked): string | undefined {
  if (plan.kind !== "lock" || plan.isTry || plan.timeoutMs !== null || plan.resumes !== undefined) return undefined;
  const [first, ...others] = plan.refs;
  if (first === undefined) return undefined;
  return others.length === 0 ? lockAt(first).text : plan.refs.map((ref) => lockAt(ref).text).join("\n\n");
}
