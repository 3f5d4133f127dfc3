/**
 * What arrives for a run that is held here: timers that ended, messages, locks that were granted, a cancellation. Each is made into an arrival,
 * which becomes a fact when the code can receive it (`arrivals.ts`).
 *
 * Guarantees: an operation gets one arrival; messages come in the order they were sent, the oldest first; a cancellation comes once (G15).
 */

import type { InboxMessage, Mail } from "../history/inbox.ts";
import type { Denial } from "../locks/locks.ts";
import { inboxAt, type Outcome, parseFact, type RunHold } from "../stored.ts";
import type { Arrival, Arrivals, FactArrival } from "./arrivals.ts";
import type { Coroutine } from "./coroutine.ts";
import type { Effects } from "./effects.ts";
import type { HeldRun } from "./held-run.ts";
import type { PendingOperation } from "./pending.ts";
import type { ToBegin } from "./to-begin.ts";

export class News {
  readonly #run: HeldRun;
  readonly #coroutine: Coroutine;
  readonly #arrivals: Arrivals;
  readonly #toBegin: ToBegin;
  readonly #effects: Effects;
  #isCancelSent = false;

  constructor(run: HeldRun, arrivals: Arrivals, toBegin: ToBegin, effects: Effects) {
    this.#run = run;
    this.#coroutine = run.coroutine;
    this.#arrivals = arrivals;
    this.#toBegin = toBegin;
    this.#effects = effects;
  }

  /** A cancellation has arrived, or the timeout is over. The code may not have received it yet. */
  get isCancelSent(): boolean {
    return this.#isCancelSent;
  }

  /** The next arrival. A cancellation says which steps it finds running. */
  next(): Arrival | undefined {
    const arrival = this.#arrivals.next();
    return arrival?.is === "fact" && arrival.word === "canceled" ? this.#withRunning(arrival) : arrival;
  }

  /** A step that was postponed either waits for its next attempt or is running: a replay could not know which. */
  #withRunning(arrival: FactArrival): Arrival {
    const { kernel, at, coroutine } = this.#run;
    const running: string[] = [];
    for (const pending of coroutine.waiting.values())
      if (pending.isPostponed && this.#effects.has(pending)) running.push(pending.id);
    if (running.length === 0) return arrival;
    const data = { ...(arrival.data as object), running };
    return { ...arrival, data, text: kernel.encode(at, data) };
  }

  /** One of its requests for locks closes a circle: the next commit finds out which. */
  suspectAll(): void {
    for (const pending of this.#coroutine.watched.queued) this.#reconsider(pending, "isSuspected");
  }

  #reconsider(pending: PendingOperation, why: "isOverdue" | "isSuspected"): void {
    pending[why] = true;
    this.#toBegin.add(pending);
  }

  /** Everything whose time has come by this moment of the store's clock. */
  wakeDue(nowMs: number): void {
    const due = [...this.#coroutine.watched.timed].filter(({ dueMs }) => dueMs !== null && dueMs <= nowMs);
    due.sort((a, b) => (a.dueMs ?? 0) - (b.dueMs ?? 0) || a.order - b.order);
    const nothing = this.#run.kernel.encode(this.#run.at, null);
    for (const pending of due) {
      if (pending.isAnswered) continue;
      if (pending.plan.kind === "sleep")
        this.#arrivals.add({ is: "fact", pending, word: "woke", data: null, text: nothing });
      else if (pending.plan.kind === "signal") {
        if (pending.isAbandoned || !this.#deliverTo(pending))
          this.#arrivals.add({ is: "fact", pending, word: "expired", data: null, text: nothing });
      } else if (pending.plan.kind === "lock") {
        pending.dueMs = null;
        this.#reconsider(pending, "isOverdue");
      } else if (pending.plan.kind === "step") {
        pending.dueMs = null;
        if (!this.#effects.has(pending)) this.#toBegin.add(pending);
      }
    }
    const { timesOutMs } = this.#run;
    if (timesOutMs !== undefined && timesOutMs <= nowMs) this.#cancel({ timedOut: true });
  }

  /** What the record says and the code has not received yet. */
  notice(): void {
    if (this.#run.value.cancel !== undefined) this.#cancel(this.#run.value.cancel);
    const { queued } = this.#coroutine.watched;
    if (queued.size === 0) return;
    const holds = new Map(this.#run.value.holds?.map((hold) => [hold.id, hold]));
    for (const pending of queued) this.#noticeLock(pending, holds.get(pending.id));
  }

  /** Its turn has come, or it was removed from the queue, or it may be part of a circle. */
  #noticeLock(pending: PendingOperation, hold: RunHold | undefined): void {
    // The record as it is known here may be older than the place in the queue.
    if (this.#run.valueVersion < pending.queuedVersion) return;
    if (hold !== undefined && hold.fence === undefined) {
      if (hold.isSuspected === true) this.#reconsider(pending, "isSuspected");
      return;
    }
    if (pending.isAnswered) return;
    const word = hold === undefined ? "denied" : "granted";
    const data = hold === undefined ? ({ reason: "removed" } satisfies Denial) : { fence: hold.fence };
    this.#arrivals.add({ is: "fact", pending, word, data, text: this.#run.kernel.encode(this.#run.at, data) });
  }

  #cancel(data: { readonly timedOut?: boolean; readonly reason?: string }): void {
    if (this.#coroutine.canceled !== undefined || this.#isCancelSent) return;
    this.#isCancelSent = true;
    this.#arrivals.add({
      is: "fact",
      pending: null,
      word: "canceled",
      data,
      text: this.#run.kernel.encode(this.#run.at, data),
    });
  }

  async readInbox(): Promise<void> {
    const { kernel, coroutine } = this.#run;
    const at = inboxAt(this.#run.at.key, this.#run.value.incarnation);
    const { wakes } = this.#run;
    const { endingsAfter = 0 } = this.#run.value;
    for await (const { version, name, data } of kernel.entriesAfter(at, coroutine.inboxSeen)) {
      if (this.#arrivals.isClosed) return;
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
    const { signals, endings } = this.#coroutine;
    return word === "signal" ? signals : word === "child" ? endings : undefined;
  }

  /**
   * Gives messages to the operations that wait for them, the oldest message first. Of several waits for one signal, those that the code
   * started last come first: an earlier one may have lost a race. One that is known to have lost a `Promise.race` gets none. Returns
   * whether there was one.
   */
  deliver(): boolean {
    const { signals, endings } = this.#coroutine;
    if (signals.size === 0 && endings.size === 0) return false;
    const wanted = [...this.#wantedEndings(), ...this.#wantedSignals()];
    if (wanted.length > 1) wanted.sort((a, b) => a.message.version - b.message.version);
    let isAny = false;
    for (const { message, receivers, mail } of wanted) {
      const pending = firstReady(receivers);
      if (pending === undefined) continue;
      mail.take(message.name);
      this.#send(message, pending);
      isAny = true;
    }
    return isAny;
  }

  /** The ends of children that are waited for. */
  *#wantedEndings(): Generator<Wanted> {
    const { endings: mail, waiting, watched } = this.#coroutine;
    const names = mail.size <= watched.calls.size ? mail.names() : idsOf(watched.calls);
    for (const name of names) {
      const [message] = mail.peek(name, 1);
      const pending = waiting.get(`child ${name}`);
      if (message !== undefined && pending?.plan.kind === "child" && pending.plan.waits)
        yield { message, receivers: [pending].values(), mail };
    }
  }

  /** The signals that are waited for, of each as many as wait for it. */
  *#wantedSignals(): Generator<Wanted> {
    const { signals: mail, watched } = this.#coroutine;
    const names = mail.size <= watched.signals.size ? mail.names() : watched.signals.names();
    for (const name of names) {
      const messages = mail.peek(name, watched.signals.countOf(name));
      const receivers = watched.signals.of(name);
      for (const message of messages) yield { message, receivers, mail };
    }
  }

  /** The same for one operation, whose time is over. */
  #deliverTo(pending: PendingOperation): boolean {
    const { signals } = this.#coroutine;
    if (pending.plan.kind !== "signal") return false;
    const messages = pending.plan.names.flatMap((name) => signals.peek(name, 1));
    const [oldest] = messages.sort((a, b) => a.version - b.version);
    if (oldest === undefined) return false;
    signals.take(oldest.name);
    this.#send(oldest, pending);
    return true;
  }

  #send(message: InboxMessage, pending: PendingOperation): void {
    const isSignal = message.word === "signal";
    const data = isSignal
      ? { at: message.version, signal: message.name, value: message.data }
      : { at: message.version, outcome: (message.data as { outcome: Outcome }).outcome };
    const text = this.#run.kernel.encode(this.#run.at, data);
    this.#arrivals.add({ is: "fact", pending, word: isSignal ? "received" : "ended", data, text, message });
  }
}

/** A message, and the operations that may receive it, in order. Messages of one name share them. */
interface Wanted {
  readonly message: InboxMessage;
  readonly receivers: Iterator<PendingOperation>;
  readonly mail: Mail;
}

/** The next that has no answer yet. A wait for a signal that lost a race gets none. */
function firstReady(receivers: Iterator<PendingOperation>): PendingOperation | undefined {
  for (let next = receivers.next(); next.done !== true; next = receivers.next()) {
    const pending = next.value;
    if (!pending.isAnswered && !(pending.kind === "signal" && pending.isAbandoned)) return pending;
  }
  return undefined;
}

function* idsOf(pending: Iterable<PendingOperation>): Generator<string> {
  for (const { id } of pending) yield id;
}
