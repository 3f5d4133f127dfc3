/**
 * Arrivals: everything that comes from outside for a run that is held here, in one queue. The execution's loop takes from it
 * (`execution.ts`), so that whatever brings an arrival, a step, a timer, a message, never runs the code of the run itself.
 */

import { withItem } from "../../kernel/list.ts";
import type { InboxMessage } from "../history/inbox.ts";
import type { Word } from "../stored.ts";
import type { PendingOperation, Written } from "./pending.ts";

/** Something for the history, and for the code. */
export interface FactArrival {
  readonly is: "fact";
  /** The operation that it is for; null for the run as a whole. */
  readonly pending: PendingOperation | null;
  readonly word: Word;
  readonly data: unknown;
  /** The data as text for the history; null where the history has it already. */
  readonly text: string | null;
  /** The time that the code sees with it, where that is decided already. */
  readonly nowMs?: number | undefined;
  /** The message that it was made of. */
  readonly message?: InboxMessage | undefined;
  /** Where the history has it, if it is written already. */
  readonly at?: Written | undefined;
}

export type Arrival =
  | FactArrival
  /** A step that was not done, and about which nothing is recorded: it is begun again, here or elsewhere. */
  | { readonly is: "undone"; readonly pending: PendingOperation }
  /** An operator is needed. The run is parked when nothing of it runs any more. */
  | { readonly is: "park"; readonly reason: string }
  /** This process cannot do a step, and others may: the run is left to them. */
  | { readonly is: "leave"; readonly error: Error };

export class Arrivals {
  readonly #arrived: () => void;
  #queue: Arrival[] = [];
  /** Those before it have been taken. */
  #first = 0;
  #isClosed = false;

  /** `arrived` is called after each `push`. */
  constructor(arrived: () => void) {
    this.#arrived = arrived;
  }

  /** The execution is over: nothing is taken any more. */
  get isClosed(): boolean {
    return this.#isClosed;
  }

  close(): void {
    this.#isClosed = true;
  }

  /** Adds an arrival, and has the loop run. */
  push(arrival: Arrival): void {
    if (this.#isClosed) return;
    this.add(arrival);
    this.#arrived();
  }

  /** Adds an arrival; the caller has the loop run when it has added all. */
  add(arrival: Arrival): void {
    mark(arrival, true);
    this.#queue = withItem(this.#queue, arrival);
  }

  /** These come before all others. */
  addFirst(arrivals: readonly Arrival[]): void {
    for (const arrival of arrivals) mark(arrival, true);
    this.#queue = arrivals.concat(this.#queue.slice(this.#first));
    this.#first = 0;
  }

  /** It is the last fact of the history: it comes after those that are written and not applied yet, and before all others. */
  addWritten(arrival: FactArrival): void {
    const queue = this.#queue.slice(this.#first);
    const at = queue.findIndex((one) => one.is !== "fact" || one.text !== null);
    mark(arrival, true);
    queue.splice(at < 0 ? queue.length : at, 0, arrival);
    this.#queue = queue;
    this.#first = 0;
  }

  next(): Arrival | undefined {
    const arrival = this.#queue[this.#first];
    if (arrival === undefined) {
      if (this.#first > 0) this.#queue.length = 0;
      this.#first = 0;
      return undefined;
    }
    this.#first += 1;
    mark(arrival, false);
    return arrival;
  }
}

/** An operation gets one outcome: while one is in the queue, no other is made. */
function mark(arrival: Arrival, isAnswered: boolean): void {
  if (arrival.is === "fact" && arrival.pending !== null) arrival.pending.isAnswered = isAnswered;
}
