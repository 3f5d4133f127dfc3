/**
 * News of a run that is held here: timers that ended, messages, turns in line, cancellation. Each is made into an arrival, which becomes a
 * fact when the code can hear of it.
 *
 * Promises: an operation gets one arrival; messages come in the order they were sent, the oldest first; a cancellation comes once (G15).
 */

import type { Address } from "../kernel/contract.ts";
import type { Kernel } from "../kernel/kernel.ts";
import type { Asked, Coroutine, Settled, Written } from "./coroutine.ts";
import type { Denial } from "./locks.ts";
import type { InboxMessage, Mail } from "./mail.ts";
import { inboxAt, type RunHold, type RunValue } from "./run.ts";
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
  /** Where the history has it, if it is written already. */
  readonly at?: Written | undefined;
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
  /** When the run times out. */
  readonly deadlineMs: number | undefined;
  readonly wakes: number;
  /** Whether the step is being done. */
  isUnderWay(asked: Asked): boolean;
  /** It is to be begun, or looked at again, by the next commit. */
  reconsider(asked: Asked): void;
}

export class News {
  readonly #host: NewsHost;
  #arrivals: Arrival[] = [];
  /** Those before it have been taken. */
  #first = 0;
  #isCancelSent = false;

  constructor(host: NewsHost) {
    this.#host = host;
  }

  add(arrival: Arrival): void {
    if (arrival.asked !== null) arrival.asked.isAnswered = true;
    this.#arrivals.push(arrival);
  }

  /** These come before all others. */
  addFirst(arrivals: readonly Arrival[]): void {
    for (const { asked } of arrivals) if (asked !== null) asked.isAnswered = true;
    this.#arrivals = arrivals.concat(this.#arrivals.slice(this.#first));
    this.#first = 0;
  }

  /** It is the last that the history has: it comes after those that are written and not heard of yet, and before all others. */
  addWritten(arrival: Arrival): void {
    const arrivals = this.#arrivals.slice(this.#first);
    const at = arrivals.findIndex(({ text }) => text !== null);
    if (arrival.asked !== null) arrival.asked.isAnswered = true;
    arrivals.splice(at < 0 ? arrivals.length : at, 0, arrival);
    this.#arrivals = arrivals;
    this.#first = 0;
  }

  next(): Arrival | undefined {
    const arrival = this.#arrivals[this.#first];
    if (arrival === undefined) {
      if (this.#first > 0) this.#arrivals = [];
      this.#first = 0;
      return undefined;
    }
    this.#first += 1;
    if (arrival.asked !== null) arrival.asked.isAnswered = false;
    return arrival.word === "canceled" ? this.#withRunning(arrival) : arrival;
  }

  /** A step that was put off either waits for its next attempt or is being done: a replay could not tell. */
  #withRunning(arrival: Arrival): Arrival {
    const { kernel, at, coroutine } = this.#host;
    const running: string[] = [];
    for (const asked of coroutine.waiting.values())
      if (asked.isPostponed && this.#host.isUnderWay(asked)) running.push(asked.id);
    if (running.length === 0) return arrival;
    const data = { ...(arrival.data as object), running };
    return { ...arrival, data, text: kernel.encode(at, data) };
  }

  /** One of its wishes for a lock closes a circle: the next commit finds out which. */
  suspectAll(): void {
    for (const asked of this.#host.coroutine.watched.queued) this.#reconsider(asked, "isSuspected");
  }

  #reconsider(asked: Asked, why: "isOverdue" | "isSuspected"): void {
    asked[why] = true;
    this.#host.reconsider(asked);
  }

  /** Everything whose time has come by this moment of the store's clock. */
  wakeDue(nowMs: number): void {
    const due = [...this.#host.coroutine.watched.timed].filter(({ dueMs }) => dueMs !== null && dueMs <= nowMs);
    due.sort((a, b) => (a.dueMs ?? 0) - (b.dueMs ?? 0) || a.order - b.order);
    const nothing = this.#host.kernel.encode(this.#host.at, null);
    for (const asked of due) {
      if (asked.isAnswered) continue;
      if (asked.plan.kind === "sleep") this.add({ asked, word: "woke", data: null, text: nothing });
      else if (asked.plan.kind === "signal") {
        if (asked.isAbandoned || !this.#deliverTo(asked))
          this.add({ asked, word: "expired", data: null, text: nothing });
      } else if (asked.plan.kind === "lock") {
        asked.dueMs = null;
        this.#reconsider(asked, "isOverdue");
      } else if (asked.plan.kind === "step") {
        asked.dueMs = null;
        if (!this.#host.isUnderWay(asked)) this.#host.reconsider(asked);
      }
    }
    const { deadlineMs } = this.#host;
    if (deadlineMs !== undefined && deadlineMs <= nowMs) this.#cancel({ timedOut: true });
  }

  /** What the record says that the code has not heard. */
  notice(): void {
    if (this.#host.value.cancel !== undefined) this.#cancel(this.#host.value.cancel);
    const { queued } = this.#host.coroutine.watched;
    if (queued.size === 0) return;
    const holds = new Map(this.#host.value.holds?.map((hold) => [hold.id, hold]));
    for (const asked of queued) this.#noticeLock(asked, holds.get(asked.id));
  }

  /** Its turn has come, or somebody took it out of the line, or says that it is part of a circle. */
  #noticeLock(asked: Asked, hold: RunHold | undefined): void {
    // What is known may be older than the place in line.
    if (this.#host.valueVersion < asked.queuedVersion) return;
    if (hold !== undefined && hold.fence === undefined) {
      if (hold.isSuspected === true) this.#reconsider(asked, "isSuspected");
      return;
    }
    if (asked.isAnswered) return;
    const word = hold === undefined ? "denied" : "granted";
    const data = hold === undefined ? ({ reason: "removed" } satisfies Denial) : { fence: hold.fence };
    this.add({ asked, word, data, text: this.#host.kernel.encode(this.#host.at, data) });
  }

  #cancel(data: { readonly timedOut?: boolean; readonly reason?: string }): void {
    if (this.#host.coroutine.canceled !== undefined || this.#isCancelSent) return;
    this.#isCancelSent = true;
    this.add({ asked: null, word: "canceled", data, text: this.#host.kernel.encode(this.#host.at, data) });
  }

  async readInbox(): Promise<void> {
    const { kernel, coroutine } = this.#host;
    const at = inboxAt(this.#host.at.key, this.#host.value.incarnation);
    const { wakes } = this.#host;
    const { endingsAfter = 0 } = this.#host.value;
    for await (const { version, name, data } of kernel.entriesAfter(at, coroutine.inboxSeen)) {
      if (this.#host.isOver) return;
      coroutine.inboxSeen = version;
      if (coroutine.received.has(version)) continue;
      const { word, id } = parseFact(name);
      if (word === "child" && version <= endingsAfter) continue;
      this.putBack({ version, word, name: id, data: kernel.decodeFresh(at, data) });
    }
    coroutine.wakesSeen = wakes;
  }

  /** A message that was not received after all. */
  putBack(message: InboxMessage): void {
    this.#mailOf(message)?.add(message);
  }

  /** Where the messages of this word are kept. */
  #mailOf({ word }: InboxMessage): Mail | undefined {
    const { signals, endings } = this.#host.coroutine;
    return word === "signal" ? signals : word === "child" ? endings : undefined;
  }

  /**
   * Gives messages to the operations that wait for them, the oldest message first. Of several waits for one signal, those that the code
   * asked for last come first: an earlier one may have lost a race. One that is known to have lost a `Promise.race` gets none. Answers
   * whether there was one.
   */
  deliver(): boolean {
    const { signals, endings } = this.#host.coroutine;
    if (signals.size === 0 && endings.size === 0) return false;
    const wanted = [...this.#wantedEndings(), ...this.#wantedSignals()];
    if (wanted.length > 1) wanted.sort((a, b) => a.message.version - b.message.version);
    let isAny = false;
    for (const { message, receivers, mail } of wanted) {
      const asked = firstReady(receivers);
      if (asked === undefined) continue;
      mail.take(message.name);
      this.#send(message, asked);
      isAny = true;
    }
    return isAny;
  }

  /** The ends of children that are waited for. */
  *#wantedEndings(): Generator<Wanted> {
    const { endings: mail, waiting, watched } = this.#host.coroutine;
    const names = mail.size <= watched.calls.size ? mail.names() : idsOf(watched.calls);
    for (const name of names) {
      const [message] = mail.peek(name, 1);
      const asked = waiting.get(`child ${name}`);
      if (message !== undefined && asked?.plan.kind === "child" && asked.plan.waits)
        yield { message, receivers: [asked].values(), mail };
    }
  }

  /** The signals that are waited for, of each as many as wait for it. */
  *#wantedSignals(): Generator<Wanted> {
    const { signals: mail, watched } = this.#host.coroutine;
    const names = mail.size <= watched.signals.size ? mail.names() : watched.signals.names();
    for (const name of names) {
      const messages = mail.peek(name, watched.signals.countOf(name));
      const receivers = watched.signals.of(name);
      for (const message of messages) yield { message, receivers, mail };
    }
  }

  /** The same for one operation, whose time is over. */
  #deliverTo(asked: Asked): boolean {
    const { signals } = this.#host.coroutine;
    if (asked.plan.kind !== "signal") return false;
    const messages = asked.plan.names.flatMap((name) => signals.peek(name, 1));
    const [oldest] = messages.sort((a, b) => a.version - b.version);
    if (oldest === undefined) return false;
    signals.take(oldest.name);
    this.#send(oldest, asked);
    return true;
  }

  #send(message: InboxMessage, asked: Asked): void {
    const isSignal = message.word === "signal";
    const data = isSignal
      ? { at: message.version, signal: message.name, value: message.data }
      : { at: message.version, outcome: (message.data as { outcome: Settled }).outcome };
    const text = this.#host.kernel.encode(this.#host.at, data);
    this.add({ asked, word: isSignal ? "received" : "ended", data, text, message });
  }
}

/** A message, and those who may receive it, in order. Messages of one name share them. */
interface Wanted {
  readonly message: InboxMessage;
  readonly receivers: Iterator<Asked>;
  readonly mail: Mail;
}

/** The next that has no answer yet. A wait for a signal that lost a race gets none. */
function firstReady(receivers: Iterator<Asked>): Asked | undefined {
  for (let next = receivers.next(); next.done !== true; next = receivers.next()) {
    const asked = next.value;
    if (!asked.isAnswered && !(asked.kind === "signal" && asked.isAbandoned)) return asked;
  }
  return undefined;
}

function* idsOf(asked: Iterable<Asked>): Generator<string> {
  for (const { id } of asked) yield id;
}
