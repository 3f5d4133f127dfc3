/**
 * What a retry remembers and forgets of a run's history.
 *
 * After a `retry`, the facts before it are not a path to follow but a memory (`Memory`). They are kept by operation; when the code starts an
 * operation, in whatever order, it gets what is remembered of it, the oldest fact first, before anything new happens.
 *
 * An operation is found by its name and its verb (`verbs.ts`): it takes the number that it had before the retry, with everything that goes by
 * it, such as its child or its lock. One that is not found takes a number that no remembered one has. Steps are found by name and number,
 * and waits for signals by number, as long as they can be what was there.
 *
 * What a retry forgets is known when the run fails (`Failures`): the failures after which the code has started nothing more. Whenever the code
 * starts something else, it has handled the failures before it.
 */

import { Heap } from "../../kernel/heap.ts";
import { LazyMap } from "../../kernel/lazy.ts";
import type { Plan } from "../definitions/plans.ts";
import {
  type ChildStart,
  doubled,
  type Kind,
  type Outcome,
  operationId,
  parseFact,
  parseOperation,
  WORDS,
  type Word,
} from "../stored.ts";
import type { ForgettableChild, LivingChild } from "./children.ts";
import type { PendingOperation, Written } from "./pending.ts";
import { isCounted, unlockVerb, verbIn } from "./verbs.ts";

/** A fact of the history, decoded. */
export interface Fact {
  readonly word: Word;
  readonly id: string;
  readonly data: unknown;
}

/** A fact from before a retry. */
export interface RememberedFact extends Fact {
  readonly version: number;
  /** The time that the code saw with it. */
  nowMs: number;
}

/** The operation that a fact is about, as it is known while it is pending; empty for the run. */
export function textOf({ word, id }: Fact): string {
  const kind = WORDS[word];
  return kind === null ? "" : `${kind} ${id}`;
}

export class Memory {
  /** Facts that the code has not received yet, by operation, and those that are about the run. */
  readonly #facts = new LazyMap<string, RememberedFact[]>();
  /** The oldest fact of each operation that was started, and of the run. */
  readonly #recallable = new Heap<RememberedFact>((one, other) => one.version < other.version);
  /** The operations by kind and name, but for steps. */
  readonly #names = new LazyMap<string, Namesakes>();
  #last: RememberedFact | undefined;

  get isEmpty(): boolean {
    return this.#facts.size === 0;
  }

  /** Keeps a fact until the code starts the operation that it is about. Returns the fact if it is kept. */
  add(version: number, word: Word, id: string, data: unknown, atMs: number): RememberedFact | undefined {
    if (word === "now") {
      if (this.#last !== undefined) this.#last.nowMs = Number(data);
      return undefined;
    }
    const kind = WORDS[word];
    if (kind === null && word !== "canceled") return undefined;
    const fact: RememberedFact = { version, word, id, data, nowMs: atMs };
    this.#last = fact;
    const text = textOf(fact);
    const facts = this.#facts.get(text);
    if (facts === undefined) this.#facts.set(text, [fact]);
    else facts.push(fact);
    if (facts === undefined && kind === null) this.mayRecall(text);
    if (kind !== null && kind !== "step") this.#addName(kind, fact);
    return fact;
  }

  /**
   * A fact that was forgotten. A lock that is requested again after the retry, and its release, keep their numbers: what the code has started
   * since then was numbered beside them.
   */
  forget(fact: Fact): void {
    if (fact.word === "granted") this.#addName("lock", fact);
    else if (fact.word === "unlock") this.#addName("unlock", fact);
  }

  #addName(kind: Kind, { id, data }: Fact): void {
    const { name, number } = kind === "sleep" ? { name: "", number: Number(id) } : parseOperation(id);
    const namesakes = this.#names.get(`${kind} ${name}`) ?? new Namesakes();
    this.#names.set(`${kind} ${name}`, namesakes);
    namesakes.add(number, verbIn(data));
  }

  /** Whether an operation may have to take another number than that in the order of the code. */
  get hasNames(): boolean {
    return this.#names.size > 0;
  }

  /** The number of an operation that the code starts as the `number`th of its kind and name; undefined if none of them is remembered. */
  numberOf(name: string, plan: Plan, verb: string | undefined, number: number): number | undefined {
    const namesakes = this.#names.get(`${plan.kind} ${doubled(name)}`);
    if (namesakes === undefined) return undefined;
    if (verb !== undefined) return namesakes.numberOf(number, verb, isCounted(plan));
    if (plan.kind !== "signal" || plan.timeoutMs !== null) return namesakes.numberOfWait(number, () => true);
    // A wait without a timeout cannot have been one that expired, or that will.
    return namesakes.numberOfWait(number, (one) => {
      const facts = this.#facts.get(`signal ${operationId(name, one, undefined)}`) ?? [];
      return facts.some(({ word }) => word === "received");
    });
  }

  /** Whether there are facts of this operation that the code has not received yet. */
  has(text: string): boolean {
    return this.#facts.has(text);
  }

  /** The oldest fact of this operation can be recalled from now on. */
  mayRecall(text: string): void {
    const oldest = this.#facts.get(text)?.[0];
    if (oldest !== undefined) this.#recallable.push(oldest);
  }

  /** Takes the oldest fact that can be recalled; facts of operations that were interrupted meanwhile are passed over. */
  take(waiting: ReadonlyMap<string, PendingOperation>): RememberedFact | undefined {
    for (;;) {
      const oldest = this.#recallable.pop();
      if (oldest === undefined) return undefined;
      const text = textOf(oldest);
      if (text !== "" && !waiting.has(text)) continue;
      const facts = this.#facts.get(text) ?? [];
      if (facts.length === 1) this.#facts.delete(text);
      else facts.shift();
      this.mayRecall(text);
      return oldest;
    }
  }

  /** Children that may be alive, and that the code has not started again. */
  get children(): readonly LivingChild[] {
    const children: LivingChild[] = [];
    for (const facts of this.#facts.values()) {
      const start = facts.find(({ word }) => word === "child");
      if (start === undefined || facts.some(({ word }) => word === "ended")) continue;
      const { run, endsWithParent, isLeft } = start.data as ChildStart;
      const whenParentEnds = endsWithParent === true ? "cancel" : "leave";
      children.push({ id: start.id, run, waits: isLeft !== true, whenParentEnds, at: start });
    }
    return children;
  }

  /** Where the history has releases of these locks that the code has not started yet. One of an earlier release may be of any lock. */
  unlocksOf(locks: Iterable<string>): readonly number[] {
    const verbs = new Set<string | undefined>([undefined, ...[...locks].map(unlockVerb)]);
    return [...this.#facts.values()].flatMap((facts) =>
      facts.filter(({ word, data }) => word === "unlock" && verbs.has(verbIn(data))).map(({ version }) => version),
    );
  }
}

/** The operations of one kind and name that are remembered, by number. */
class Namesakes {
  /** The verb of each; undefined where no fact has one. */
  readonly #verbs = new Map<number, string | undefined>();
  /** Those that no operation has taken over. */
  readonly #left = new Set<number>();
  /** The same of each verb, the oldest last; null where the verb of one is not known. */
  #leftOf: ReadonlyMap<string, number[]> | null | undefined;
  /** New numbers that were given, and that the order of the code has not come to. */
  readonly #ahead = new Set<number>();
  #last = 0;
  /** The code does not start them in the order of before. */
  #isReordered = false;

  add(number: number, verb: string | undefined): void {
    this.#verbs.set(number, this.#verbs.get(number) ?? verb);
    this.#left.add(number);
    this.#last = Math.max(this.#last, number);
  }

  /** The number that an operation of this verb had, or a new one. A verb that is counted is that of one operation. */
  numberOf(number: number, verb: string, isCounted: boolean): number {
    if (this.#leftOf === undefined) this.#leftOf = this.#byVerb();
    // Facts of an earlier release do not tell: what is found by number is compared with what the code asks for (`isAbout`).
    if (this.#leftOf === null) return number;
    const same = this.#leftOf.get(verb) ?? [];
    return this.#take(number, this.#verbs.get(number) === verb, isCounted, () => {
      while (same.length > 0 && !this.#left.has(same.at(-1) ?? 0)) same.pop();
      return same.at(-1);
    });
  }

  /** The same for operations without a verb: `canBe` tells whether it can be the one that had a number. */
  numberOfWait(number: number, canBe: (number: number) => boolean): number {
    return this.#take(number, this.#verbs.has(number) && canBe(number), false, () => {
      for (const one of this.#left) if (canBe(one)) return one;
      return undefined;
    });
  }

  /** As long as the order is that of before, a number that is missing is that of an operation which left no fact. */
  #take(number: number, isSame: boolean, isCounted: boolean, oldest: () => number | undefined): number {
    if (this.#verbs.has(number) && !(isSame && this.#left.has(number))) this.#isReordered = true;
    const isInOrder = !this.#isReordered && !isCounted;
    const found = isInOrder ? (isSame ? number : undefined) : oldest();
    if (found === undefined) return this.#new(number);
    this.#left.delete(found);
    return found;
  }

  /** The number in the order of the code, unless that is the number of another operation. */
  #new(number: number): number {
    const isFree = !this.#verbs.has(number) && !this.#ahead.delete(number);
    this.#last = isFree ? Math.max(this.#last, number) : this.#last + 1;
    if (!isFree) this.#ahead.add(this.#last);
    return isFree ? number : this.#last;
  }

  #byVerb(): ReadonlyMap<string, number[]> | null {
    const numbers = new Map<string, number[]>();
    for (const number of [...this.#verbs.keys()].sort((a, b) => b - a)) {
      const verb = this.#verbs.get(number);
      if (verb === undefined) return null;
      const same = numbers.get(verb);
      if (same === undefined) numbers.set(verb, [number]);
      else same.push(number);
    }
    return numbers;
  }
}

/** The message that a fact of the history came with, by its place in the inbox: it is not there for anything else. */
export function messageOf(name: string, data: unknown): number | undefined {
  const { word } = parseFact(name);
  return word === "received" || word === "ended" ? (data as { at: number }).at : undefined;
}

/** What a retry of a run that fails now would forget. */
export interface Forgettable {
  readonly facts: readonly Written[];
  /** Children that failed, that end with the run, or that were waited for and are left alone. */
  readonly children: readonly ForgettableChild[];
  /** The run was canceled, and its code has started nothing more since then. */
  readonly hasCancellation: boolean;
}

/** Failures after which the code has started nothing more, and those that the workflow's function has thrown. */
export class Failures {
  #facts: Written[] = [];
  #children: ForgettableChild[] = [];
  /** They ended the run, whatever branches that nobody awaits start after them. */
  #thrown: { readonly facts: readonly Written[]; readonly children: readonly ForgettableChild[] } | undefined;

  get facts(): readonly Written[] {
    return this.#thrown === undefined ? this.#facts : [...this.#thrown.facts, ...this.#facts];
  }

  get children(): readonly ForgettableChild[] {
    return this.#thrown === undefined ? this.#children : [...this.#thrown.children, ...this.#children];
  }

  /** Whether the code has started nothing since the last failure. */
  get areOpen(): boolean {
    return this.#facts.length > 0;
  }

  /** The workflow's function has thrown. */
  threw(): void {
    this.#thrown = { facts: this.#facts, children: this.#children };
    this.#facts = [];
    this.#children = [];
  }

  /** An operation has its outcome. What is recorded of a failure is forgotten together: its failed attempts, and its place in a queue. */
  settled({ attemptFacts = [], queuedFact }: PendingOperation, outcome: Outcome, at: Written): void {
    if (!("error" in outcome)) return;
    this.#facts.push(...attemptFacts);
    if (queuedFact !== undefined) this.#facts.push(queuedFact);
    this.#facts.push(at);
  }

  add(at: Written): void {
    this.#facts.push(at);
  }

  addChild(child: ForgettableChild): void {
    this.#children.push(child);
  }

  /** The code started something else, so the failures before it did not end it. */
  handled(): void {
    if (this.#facts.length > 0) this.#facts = [];
    if (this.#children.length > 0) this.#children = [];
  }
}
