/**
 * Wrappers of a store: one that changes what is written, and one whose sweeps can be waited for.
 */

import type { Batch, Put } from "../../src/kernel/contract.ts";
import { WrappedStore } from "../../src/testing/wrapped-store.ts";

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
export class Tracked extends WrappedStore {
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
