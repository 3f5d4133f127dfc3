/**
 * A store that passes every call on to another. Stores that fail, stop or report on purpose are made of it: they override `call`, which all calls go
 * through, or the calls that they change.
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
} from "../kernel/contract.ts";

export class WrappedStore<Inner extends Store = Store> implements Store {
  readonly inner: Inner;
  readonly lanes: number;
  readonly isRemote: boolean;
  readonly hasOneWriter: boolean;

  constructor(inner: Inner) {
    this.inner = inner;
    this.lanes = inner.lanes;
    this.isRemote = inner.isRemote;
    this.hasOneWriter = inner.hasOneWriter;
  }

  /** Performs a call of this name. `watch` and `close` do not go through it. */
  protected call<T>(_name: string, effect: () => Promise<T>): Promise<T> {
    return effect();
  }

  settle(lane: number): Promise<{ readonly epoch: number; readonly sequence: number }> {
    return this.call("settle", () => this.inner.settle(lane));
  }

  commit(batch: Batch): Promise<Receipt> {
    return this.call("commit", () => this.inner.commit(batch));
  }

  read(keys: readonly Key[]): Promise<readonly (Row | null)[]> {
    return this.call("read", () => this.inner.read(keys));
  }

  list(query: ListQuery): Promise<readonly Row[]> {
    return this.call("list", () => this.inner.list(query));
  }

  entries(key: Key, after: number, limit: number, maxBytes?: number): Promise<readonly StoredEntry[]> {
    return this.call("entries", () => this.inner.entries(key, after, limit, maxBytes));
  }

  follow(query: FollowQuery): Promise<FollowPage> {
    return this.call("follow", () => this.inner.follow(query));
  }

  due(query: DueQuery): Promise<DuePage> {
    return this.call("due", () => this.inner.due(query));
  }

  prune(key: Key, upTo: number, limit: number): Promise<number> {
    return this.call("prune", () => this.inner.prune(key, upTo, limit));
  }

  sweep(limit: number): Promise<number> {
    return this.call("sweep", () => this.inner.sweep(limit));
  }

  watch(changed: () => void): () => void {
    return this.inner.watch(changed);
  }

  close(): Promise<void> {
    return this.inner.close();
  }
}
