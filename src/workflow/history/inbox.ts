/**
 * The inbox of a run in memory: messages that it has not received yet (`Mail`), and the waits for signals that may receive them.
 *
 * Both are found by name, so that a run with ten thousand messages or ten thousand waits looks at those that fit, and not at all of them
 * after each turn of its code.
 */
import { LazyMap } from "../../kernel/lazy.ts";

/** A message that came for the run. */
export interface InboxMessage {
  readonly version: number;
  readonly word: string;
  readonly name: string;
  readonly data: unknown;
}

/** Messages by name, the oldest first. */
export class Mail {
  readonly #queues = new LazyMap<string, Queue>();

  get size(): number {
    return this.#queues.size;
  }

  names(): Iterable<string> {
    return this.#queues.keys();
  }

  /** One that is put back gets its old place. */
  add(message: InboxMessage): void {
    const queue = this.#queues.get(message.name) ?? { messages: [], first: 0 };
    this.#queues.set(message.name, queue);
    const { messages, first } = queue;
    let at = messages.length;
    while (at > first && (messages[at - 1]?.version ?? 0) > message.version) at -= 1;
    messages.splice(at, 0, message);
  }

  /** The oldest messages of this name. */
  peek(name: string, most: number): readonly InboxMessage[] {
    const { messages, first } = this.#queues.get(name) ?? NO_QUEUE;
    return messages.slice(first, first + most);
  }

  /** Takes the oldest message of this name out. */
  take(name: string): void {
    const queue = this.#queues.get(name);
    if (queue === undefined) return;
    queue.first += 1;
    if (queue.first === queue.messages.length) this.#queues.delete(name);
    else if (queue.first > MOST_TAKEN && 2 * queue.first > queue.messages.length) {
      queue.messages = queue.messages.slice(queue.first);
      queue.first = 0;
    }
  }
}

interface Queue {
  messages: InboxMessage[];
  /** Those before it have been taken. */
  first: number;
}

const NO_QUEUE: Queue = { messages: [], first: 0 };
/** At most this many places of messages that were taken stay in a queue. */
const MOST_TAKEN = 100;

/** A wait for signals. */
export interface SignalWait {
  /** The turn of the code in which it was started; never less than that of an earlier one. */
  readonly turn: number;
  readonly plan: { readonly kind: string; readonly names?: readonly string[] };
}

/** Waits for signals by name: those that were started in the latest turn first, and of one turn in the order in which they were started. */
export class SignalWaits<Wait extends SignalWait> {
  readonly #names = new LazyMap<string, Waits<Wait>>();

  get size(): number {
    return this.#names.size;
  }

  names(): Iterable<string> {
    return this.#names.keys();
  }

  add(wait: Wait): void {
    for (const name of new Set(wait.plan.names)) {
      const waits = this.#names.get(name) ?? { count: 0, turns: [] };
      this.#names.set(name, waits);
      const latest = waits.turns.at(-1);
      if (latest?.turn === wait.turn) latest.waits.add(wait);
      else waits.turns.push({ turn: wait.turn, waits: new Set([wait]) });
      waits.count += 1;
    }
  }

  delete(wait: Wait): void {
    for (const name of new Set(wait.plan.names)) {
      const waits = this.#names.get(name);
      const turn = waits === undefined ? undefined : turnOf(waits.turns, wait.turn);
      if (waits === undefined || turn?.waits.delete(wait) !== true) continue;
      waits.count -= 1;
      if (waits.count === 0) this.#names.delete(name);
      else if (turn.waits.size === 0 && waits.turns.length > 2 * waits.count)
        waits.turns = waits.turns.filter((one) => one.waits.size > 0);
    }
  }

  countOf(name: string): number {
    return this.#names.get(name)?.count ?? 0;
  }

  /** Those that wait for this signal, in the order in which they receive it. */
  *of(name: string): Generator<Wait> {
    const { turns } = this.#names.get(name) ?? { turns: [] };
    for (let index = turns.length - 1; index >= 0; index--) yield* turns[index]?.waits ?? [];
  }
}

interface Waits<Wait> {
  count: number;
  /** In order. Some may have no waits any more, never more than there are waits. */
  turns: Turn<Wait>[];
}

interface Turn<Wait> {
  readonly turn: number;
  readonly waits: Set<Wait>;
}

function turnOf<Wait>(turns: readonly Turn<Wait>[], turn: number): Turn<Wait> | undefined {
  let from = 0;
  for (let to = turns.length; from < to; ) {
    const middle = (from + to) >> 1;
    if ((turns[middle]?.turn ?? 0) < turn) from = middle + 1;
    else to = middle;
  }
  const found = turns[from];
  return found?.turn === turn ? found : undefined;
}
