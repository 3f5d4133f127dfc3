/**
 * What a retry remembers and forgets of a run's history.
 *
 * After a `retry`, the facts before it are not a path to follow but a memory (`Memory`). They are kept by operation; when the code starts an
 * operation, in whatever order, it gets what is remembered of it, the oldest fact first, before anything new happens.
 *
 * What a retry forgets is known when the run fails (`Failures`): the failures after which the code has started nothing more. Whenever the code
 * starts something else, it has handled the failures before it.
 */

import { Heap } from "../../kernel/heap.ts";
import { LazyMap } from "../../kernel/lazy.ts";
import { type ChildStart, type Outcome, parseFact, WORDS, type Word } from "../stored.ts";
import type { PendingOperation, Written } from "./pending.ts";

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
    return fact;
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

  /** Where the history has releases of locks that the code has not started yet. */
  get unlocks(): readonly number[] {
    return [...this.#facts.values()].flatMap((facts) =>
      facts.filter(({ word }) => word === "unlock").map(({ version }) => version),
    );
  }
}

/** The message that a fact of the history came with, by its place in the inbox: it is not there for anything else. */
export function messageOf(name: string, data: unknown): number | undefined {
  const { word } = parseFact(name);
  return word === "received" || word === "ended" ? (data as { at: number }).at : undefined;
}

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

/** What a retry of a run that fails now would forget. */
export interface Forgettable {
  readonly facts: readonly Written[];
  /** Children that failed, that end with the run, or that were waited for and are left alone. */
  readonly children: readonly ForgettableChild[];
  /** The run was canceled, and its code has started nothing more since then. */
  readonly hasCancellation: boolean;
}

/** Failures after which the code has started nothing more. */
export class Failures {
  #facts: Written[] = [];
  #children: ForgettableChild[] = [];

  get facts(): readonly Written[] {
    return this.#facts;
  }

  get children(): readonly ForgettableChild[] {
    return this.#children;
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
