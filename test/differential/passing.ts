/**
 * A store that passes everything on to another: what wrappers of a store start from.
 */

import type {
  Batch,
  DuePage,
  DueQuery,
  FollowPage,
  FollowQuery,
  Key,
  ListQuery,
  Put,
  Receipt,
  Row,
  Store,
  StoredEntry,
} from "../../src/kernel/contract.ts";

export class Passing implements Store {
  readonly inner: Store;
  readonly lanes: number;
  readonly isRemote: boolean;
  readonly hasOneWriter: boolean;

  constructor(inner: Store) {
    this.inner = inner;
    this.lanes = inner.lanes;
    this.isRemote = inner.isRemote;
    this.hasOneWriter = inner.hasOneWriter;
  }

  settle(lane: number): Promise<{ readonly epoch: number; readonly sequence: number }> {
    return this.inner.settle(lane);
  }

  commit(batch: Batch): Promise<Receipt> {
    return this.inner.commit(batch);
  }

  read(keys: readonly Key[]): Promise<readonly (Row | null)[]> {
    return this.inner.read(keys);
  }

  list(query: ListQuery): Promise<readonly Row[]> {
    return this.inner.list(query);
  }

  entries(key: Key, after: number, limit: number): Promise<readonly StoredEntry[]> {
    return this.inner.entries(key, after, limit);
  }

  follow(query: FollowQuery): Promise<FollowPage> {
    return this.inner.follow(query);
  }

  due(query: DueQuery): Promise<DuePage> {
    return this.inner.due(query);
  }

  prune(key: Key, upTo: number, limit: number): Promise<number> {
    return this.inner.prune(key, upTo, limit);
  }

  sweep(limit: number): Promise<number> {
    return this.inner.sweep(limit);
  }

  watch(changed: () => void): () => void {
    return this.inner.watch(changed);
  }

  close(): Promise<void> {
    return this.inner.close();
  }
}

/** The batch, with what it writes changed on the way. */
export function rewriting(batch: Batch, change: (puts: readonly Put[]) => readonly Put[]): Batch {
  return {
    ...batch,
    decide(found) {
      const verdict = batch.decide(found);
      return "puts" in verdict ? { puts: change(verdict.puts) } : verdict;
    },
  };
}

/** A store whose sweeps can be waited for: the kernel starts them and does not wait. */
export class Tracked extends Passing {
  readonly #sweeps = new Set<Promise<unknown>>();

  override sweep(limit: number): Promise<number> {
    const sweeping = super.sweep(limit);
    const ended = sweeping.then(
      () => {},
      () => {},
    );
    this.#sweeps.add(ended);
    void ended.then(() => this.#sweeps.delete(ended));
    return sweeping;
  }

  async swept(): Promise<void> {
    await Promise.all(this.#sweeps);
  }
}
