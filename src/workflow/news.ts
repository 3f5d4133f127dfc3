/**
 * News of a run that is held here: timers that ended, messages, turns in line, cancellation. Each is made into an arrival, which becomes a
 * fact when the code can hear of it.
 *
 * Promises: an operation gets one arrival; messages come in the order they were sent, the oldest first; a cancellation comes once (G15).
 */

import type { Address } from "../kernel/contract.ts";
import type { Kernel } from "../kernel/kernel.ts";
import type { Asked, Coroutine, InboxMessage, Settled } from "./coroutine.ts";
import type { Denial } from "./locks.ts";
import { inboxAt, type RunValue } from "./run.ts";
import { parseFact, type Word } from "./words.ts";

/** Something that came from outside and is not yet a fact of the code's. */
export interface Arrival {
  /** The operation it is for; null for the run as a whole. */
  readonly asked: Asked | null;
  readonly word: Word;
  readonly data: unknown;
  /** The data as text for the history; null where it is in the history already. */
  readonly text: string | null;
  /** The time that the code sees with it, where that is settled. */
  readonly nowMs?: number | undefined;
  /** What it was made of. */
  readonly message?: InboxMessage | undefined;
}

/** What news need of the run they are for. */
export interface NewsHost {
  readonly kernel: Kernel;
  readonly at: Address;
  readonly coroutine: Coroutine;
  readonly isOver: boolean;
  /** The run's record as it was last looked at, its version, and how many wake-ups had reached it. */
  readonly value: RunValue;
  readonly valueVersion: number;
  readonly wakes: number;
  /** Whether the step is being done. */
  isUnderWay(asked: Asked): boolean;
  /** It is to be begun, or looked at again, by the next commit. */
  reconsider(asked: Asked): void;
}

export class News {
  readonly #host: NewsHost;
  #arrivals: Arrival[] = [];
  #isCancelSent = false;

  constructor(host: NewsHost) {
    this.#host = host;
  }

  add(arrival: Arrival): void {
    this.#arrivals.push(arrival);
  }

  /** These come before all others. */
  addFirst(arrivals: readonly Arrival[]): void {
    this.#arrivals = [...arrivals, ...this.#arrivals];
  }

  next(): Arrival | undefined {
    return this.#arrivals.shift();
  }

  /** One of its wishes for a lock closes a circle: the next commit finds out which. */
  suspectAll(): void {
    for (const asked of this.#host.coroutine.waiting.values())
      if (asked.plan.kind === "lock") this.#reconsider(asked, "isSuspected");
  }

  #reconsider(asked: Asked, why: "isOverdue" | "isSuspected"): void {
    asked[why] = true;
    this.#host.reconsider(asked);
  }

  /** Everything whose time has come by this moment of the store's clock. */
  wakeDue(nowMs: number): void {
    const due = [...this.#host.coroutine.waiting.values()].filter(({ dueMs }) => dueMs !== null && dueMs <= nowMs);
    due.sort((a, b) => (a.dueMs ?? 0) - (b.dueMs ?? 0));
    const nothing = this.#host.kernel.encode(this.#host.at, null);
    for (const asked of due) {
      if (asked.plan.kind === "sleep") this.#arrivals.push({ asked, word: "woke", data: null, text: nothing });
      else if (asked.plan.kind === "signal") {
        if (!this.deliver(asked)) this.#arrivals.push({ asked, word: "expired", data: null, text: nothing });
      } else if (asked.plan.kind === "lock") {
        asked.dueMs = null;
        this.#reconsider(asked, "isOverdue");
      } else if (asked.plan.kind === "step") {
        asked.dueMs = null;
        if (!this.#host.isUnderWay(asked)) this.#host.reconsider(asked);
      }
    }
    const { deadlineMs } = this.#host.value;
    if (deadlineMs !== undefined && deadlineMs <= nowMs) this.#cancel({ timedOut: true });
  }

  /** What the record says that the code has not heard. */
  notice(): void {
    if (this.#host.value.cancel !== undefined) this.#cancel(this.#host.value.cancel);
    for (const asked of this.#host.coroutine.waiting.values()) if (asked.isQueued) this.#noticeLock(asked);
  }

  /** Its turn has come, or somebody took it out of the line, or says that it is part of a circle. */
  #noticeLock(asked: Asked): void {
    // What is known may be older than the place in line.
    if (this.#host.valueVersion < asked.queuedVersion) return;
    const hold = this.#host.value.holds?.find(({ id }) => id === asked.id);
    if (hold !== undefined && hold.fence === undefined) {
      if (hold.isSuspected === true) this.#reconsider(asked, "isSuspected");
      return;
    }
    if (this.#arrivals.some((arrival) => arrival.asked === asked)) return;
    const word = hold === undefined ? "denied" : "granted";
    const data = hold === undefined ? ({ reason: "removed" } satisfies Denial) : { fence: hold.fence };
    this.#arrivals.push({ asked, word, data, text: this.#host.kernel.encode(this.#host.at, data) });
  }

  #cancel(data: { readonly timedOut?: boolean; readonly reason?: string }): void {
    if (this.#host.coroutine.canceled !== undefined || this.#isCancelSent) return;
    this.#isCancelSent = true;
    this.#arrivals.push({ asked: null, word: "canceled", data, text: this.#host.kernel.encode(this.#host.at, data) });
  }

  async readInbox(): Promise<void> {
    const { kernel, coroutine } = this.#host;
    const at = inboxAt(this.#host.at.key, this.#host.value.incarnation);
    const wakes = this.#host.wakes;
    for await (const { version, name, data } of kernel.entriesAfter(at, coroutine.inboxSeen)) {
      if (this.#host.isOver) return;
      coroutine.inboxSeen = version;
      if (coroutine.received.has(version)) continue;
      const { word, id } = parseFact(name);
      coroutine.messages.push({ version, word, name: id, data: kernel.decodeFresh(at, data) });
    }
    coroutine.wakesSeen = wakes;
  }

  /** Gives messages to the operations that wait for them, the oldest first. Answers whether there was one. */
  deliver(only?: Asked): boolean {
    const { messages } = this.#host.coroutine;
    let isAny = false;
    for (const asked of only === undefined ? this.#host.coroutine.waiting.values() : [only]) {
      const index = messages.findIndex((message) => isFor(message, asked));
      const message = messages[index];
      if (message === undefined) continue;
      if (this.#arrivals.some((arrival) => arrival.asked === asked)) continue;
      messages.splice(index, 1);
      const isSignal = message.word === "signal";
      const data = isSignal
        ? { at: message.version, signal: message.name, value: message.data }
        : { at: message.version, outcome: (message.data as { outcome: Settled }).outcome };
      const text = this.#host.kernel.encode(this.#host.at, data);
      this.#arrivals.push({ asked, word: isSignal ? "received" : "ended", data, text, message });
      isAny = true;
    }
    return isAny;
  }
}

function isFor(message: { readonly word: string; readonly name: string }, { plan, id }: Asked): boolean {
  if (plan.kind === "signal") return message.word === "signal" && plan.names.includes(message.name);
  return plan.kind === "child" && plan.waits && message.word === "child" && message.name === id;
}
