/**
 * What is known of one key: who wrote each of its values, what was read, and its lives from creation to deletion.
 */

import type { ListValue } from "./transactions.ts";

/** The writer of the state before all transactions. */
export const NO_WRITER = -1;

export interface Writing {
  readonly node: number;
  readonly value: ListValue;
  readonly version: number | undefined;
}

export interface Reading {
  readonly node: number;
  readonly list: readonly ListValue[] | null;
  readonly version: number | undefined;
  /** The first value of the life that the reader itself creates next, which shows when the list was absent. */
  readonly creates: ListValue | undefined;
}

export interface Deletion {
  readonly node: number;
  /** The first value of the list that was deleted, if the transaction had seen it. */
  readonly birth: ListValue | undefined;
  readonly version: number | undefined;
}

/** A list from its creation to its deletion, named after its first value. */
export interface Life {
  readonly birth: ListValue;
  /** The longest list seen of it. */
  order: readonly ListValue[];
  readonly deletions: Deletion[];
  /** One of the lists that were read contradicts the others. */
  isBroken: boolean;
  /** A transaction with an unknown outcome deleted it, and it is not known which. */
  isUnclear: boolean;
}

/** A state of a key; length 0 for absent. */
export interface State {
  readonly writer: number;
  readonly life: number;
  readonly length: number;
}

export interface KeyHistory {
  readonly name: string;
  readonly writers: Map<ListValue, Writing>;
  readonly readings: Reading[];
  readonly deletions: Deletion[];
  /** Deletions by transactions that were aborted. */
  readonly undone: Deletion[];
  readonly lives: Map<ListValue, Life>;
  /** Values of transactions that did not see what they appended to. */
  readonly blind: Writing[];
  /** The first values of its lives, in their order. */
  births: readonly ListValue[];
  states: readonly State[];
}

/** The history of each key, by its name. */
export class KeyHistories {
  readonly #keys = new Map<string, KeyHistory>();

  get size(): number {
    return this.#keys.size;
  }

  values(): Iterable<KeyHistory> {
    return this.#keys.values();
  }

  /** Makes one for a name that is new. */
  of(name: string): KeyHistory {
    let key = this.#keys.get(name);
    if (key === undefined) {
      key = {
        name,
        writers: new Map(),
        readings: [],
        deletions: [],
        undone: [],
        lives: new Map(),
        blind: [],
        births: [],
        states: [],
      };
      this.#keys.set(name, key);
    }
    return key;
  }
}

export const quote = ({ name }: KeyHistory): string => `"${name}"`;

/** Only the end of a long list is shown. */
export function show(list: readonly ListValue[] | null | undefined): string {
  if (list == null) return "absent";
  return list.length <= 6 ? `[${list.join(", ")}]` : `[${list.length - 4} more, ${list.slice(-4).join(", ")}]`;
}

export function isSame(one: readonly ListValue[] | null, other: readonly ListValue[] | null): boolean {
  if (one === null || other === null) return one === other;
  return one.length === other.length && one.every((value, i) => value === other[i]);
}
