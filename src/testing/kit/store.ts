/**
 * A store whose calls can be intercepted: each is reported, and the process can crash at any of them.
 *
 * After a crash, no call returns, and no later call of the process reaches the store.
 */

import type {
  Batch,
  DuePage,
  DueQuery,
  FollowPage,
  FollowQuery,
  Key,
  ListQuery,
  Receipt,
  Row,
  Store,
  StoredEntry,
} from "../../kernel/contract.ts";

/** Intercepts the store calls of one process. */
export interface CallInterceptor {
  /** False after the crash. */
  readonly isAlive: boolean;
  /** Performs the call, or never settles. */
  pass<T>(call: string, effect: () => Promise<T>): Promise<T>;
}

export const never = <T>(): Promise<T> => new Promise<T>(() => {});

export class InterceptedStore implements Store {
  readonly lanes: number;
  readonly isRemote: boolean;
  readonly hasOneWriter: boolean;
  readonly #store: Store;
  readonly #interceptor: CallInterceptor | undefined;
  readonly #noticed: () => void;

  constructor(store: Store, interceptor: CallInterceptor | undefined, noticed: () => void) {
    this.#store = store;
    this.#interceptor = interceptor;
    this.#noticed = noticed;
    this.lanes = store.lanes;
    this.isRemote = store.isRemote;
    this.hasOneWriter = store.hasOneWriter;
  }

  async #call<T>(name: string, effect: () => Promise<T>): Promise<T> {
    this.#noticed();
    return this.#interceptor === undefined ? effect() : this.#interceptor.pass(name, effect);
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

  entries(key: Key, after: number, limit: number, maxBytes?: number): Promise<readonly StoredEntry[]> {
    return this.#call("entries", () => this.#store.entries(key, after, limit, maxBytes));
  }

  follow(query: FollowQuery): Promise<FollowPage> {
    return this.#call("follow", () => this.#store.follow(query));
  }

  due(query: DueQuery): Promise<DuePage> {
    return this.#call("due", () => this.#store.due(query));
  }

  prune(key: Key, upTo: number, limit: number): Promise<number> {
    return this.#call("prune", () => this.#store.prune(key, upTo, limit));
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
