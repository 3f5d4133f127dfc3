/**
 * The children of a run that may be alive, by the operation that started each: the end of the run cancels some of them, and a retry retries those that
 * ended with it.
 */

import { LazyMap } from "../../kernel/lazy.ts";
import type { ChildStart } from "../stored.ts";
import type { PendingOperation, Written } from "./pending.ts";

/** A child that a retry of the run retries too, by operation, and where the history has its start. */
export interface ForgettableChild {
  readonly id: string;
  readonly run: string;
  readonly waits: boolean;
  readonly at: Written;
}

/** A child that may be alive. */
export interface LivingChild extends ForgettableChild {
  readonly whenParentEnds: "cancel" | "leave";
}

export class Children {
  readonly #living = new LazyMap<string, LivingChild>();

  get size(): number {
    return this.#living.size;
  }

  get living(): Iterable<LivingChild> {
    return this.#living.values();
  }

  /** The history has the start of a child at `at`. */
  started(pending: PendingOperation, start: ChildStart, at: Written): void {
    const { id, plan } = pending;
    const { run, isShared = false } = start;
    pending.childId = run;
    pending.isSharedChild = isShared;
    if (plan.kind !== "child") return;
    const { waits } = plan;
    this.#living.set(id, { id, run, waits, whenParentEnds: isShared ? "leave" : plan.whenParentEnds, at });
  }

  /** Returns the child that has ended, if it is known. */
  ended(id: string): LivingChild | undefined {
    const child = this.#living.get(id);
    this.#living.delete(id);
    return child;
  }
}
