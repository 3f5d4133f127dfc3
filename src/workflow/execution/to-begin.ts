/**
 * Operations that the code has started and that have not begun: what the code has seen must be durable first. In the order in which the code
 * started them.
 */

import { withItem } from "../../kernel/list.ts";
import { MOST_BEGUN } from "./held-run.ts";
import type { PendingOperation } from "./pending.ts";
import { needsRecord } from "./prepare.ts";

export class ToBegin {
  #queue: PendingOperation[] = [];
  /** Those before it have been taken. */
  #first = 0;

  get size(): number {
    return this.#queue.length - this.#first;
  }

  add(pending: PendingOperation): void {
    if (pending.isToBegin) return;
    pending.isToBegin = true;
    this.#queue = withItem(this.#queue, pending);
  }

  /** Takes as many as one commit begins; those that were interrupted meanwhile are dropped. */
  take(waiting: ReadonlyMap<string, PendingOperation>): readonly PendingOperation[] {
    if (this.size === 0) return NONE;
    let taken: PendingOperation[] = [];
    let written = 0;
    for (; this.#first < this.#queue.length; this.#first++) {
      const pending = this.#queue[this.#first] as PendingOperation;
      if (waiting.get(pending.text) === pending) {
        if (needsRecord(pending)) written += 1;
        if (written > MOST_BEGUN) return taken;
        taken = withItem(taken, pending);
      }
      pending.isToBegin = false;
    }
    this.#queue.length = 0;
    this.#first = 0;
    return taken;
  }

  /** These were not begun after all, and come before all others. */
  putFirst(first: readonly PendingOperation[]): void {
    if (first.length === 0) return;
    const others = this.#queue.slice(this.#first);
    for (const one of others) one.isToBegin = false;
    this.#queue = [];
    this.#first = 0;
    for (const one of first) this.add(one);
    for (const one of others) this.add(one);
  }
}

const NONE: readonly PendingOperation[] = [];
