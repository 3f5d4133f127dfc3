/**
 * A store whose calls pass a gate: each is noticed, and at any of them the process that makes it may die.
 *
 * Death is silence: what was called is never answered, and nothing that the process does later reaches the store.
 */

import type {
  Batch,
  DuePage,
  DueQuery,
  Key,
  ListQuery,
  Receipt,
  Row,
  Store,
  StoredEntry,
} from "../../kernel/contract.ts";

/** What a process's calls to its store pass through. */
export interface Gate {
  /** False once the process is dead. */
  readonly isOpen: boolean;
  /** Lets the call through, answers it or does not. */
  pass<T>(call: string, effect: () => Promise<T>): Promise<T>;
}

export const never = <T>(): Promise<T> => new Promise<T>(() => {});

export class GatedStore implements Store {
  readonly lanes: number;
  readonly #store: Store;
  readonly #gate: Gate | undefined;
  readonly #noticed: () => void;

  constructor(store: Store, gate: Gate | undefined, noticed: () => void) {
    this.#store = store;
    this.#gate = gate;
    this.#noticed = noticed;
    this.lanes = store.lanes;
  }

  async #call<T>(name: string, effect: () => Promise<T>): Promise<T> {
    this.#noticed();
    return this.#gate === undefined ? effect() : this.#gate.pass(name, effect);
  }

  settle(lane: number): Promise<{ readonly epoch: number; readonly sequence: number }> {
    return this.#call("settle", () => this.#store.settle(lane));
  }

  commit(batch: Batch): Promise<Receipt> {
    return this.#call("commit", () => this.#store.commit(batch));
  }

  read(keys: readonly Key[]): Promise<readonly (Row | null)[]> {
    return this.#call("read", () => this.#store.read(keys));
  }

  list(query: ListQuery): Promise<readonly Row[]> {
    return this.#call("list", () => this.#store.list(query));
  }

  entries(key: Key, after: number, limit: number): Promise<readonly StoredEntry[]> {
    return this.#call("entries", () => this.#store.entries(key, after, limit));
  }

  due(query: DueQuery): Promise<DuePage> {
    return this.#call("due", () => this.#store.due(query));
  }

  sweep(limit: number): Promise<number> {
    return this.#call("sweep", () => this.#store.sweep(limit));
  }

  watch(changed: () => void): () => void {
    return this.#store.watch(() => {
      this.#noticed();
      changed();
    });
  }

  close(): Promise<void> {
    return this.#store.close();
  }
}
