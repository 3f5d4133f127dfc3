/**
 * What the processes of a simulated world share: a database with a clock that can jump, and a list of everything it committed.
 *
 * Which database it is does not matter to the world. The one in memory (`store.ts`) is the one that `simulate` uses; the tests of
 * a real store put it in the same place, so that the same scenarios and checkers run on it.
 */

import type { Put, Store } from "../../kernel/contract.ts";
import type { Process } from "./process.ts";

/** One commit as checkers see it. */
export interface Commit {
  /** The store's clock when it was decided. */
  readonly nowMs: number;
  readonly puts: readonly Put[];
}

/** One process's store, behind a wire that fails. */
export interface ProcessStore extends Store {
  /** The process is dead: its transactions end after a while, as when a connection breaks. */
  abandon(): void;
}

export abstract class Database {
  readonly #worldMs: () => number;
  #clockOffsetMs = 0;
  #highestOffsetMs = 0;
  /** Every commit in order: what checkers look at. */
  readonly commits: Commit[] = [];
  /** What is stored, without a wire: nothing fails on the way. */
  abstract readonly memory: { connect(namespace: string): Store };

  constructor(worldMs: () => number) {
    this.#worldMs = worldMs;
  }

  /** The store's own clock. Its calendar starts late enough that it may step back and stay positive. */
  nowMs(): number {
    return 1_700_000_000_000 + Math.floor(this.#worldMs()) + this.#clockOffsetMs;
  }

  /** Sets the store's clock forward or back. */
  jumpClock(ms: number): void {
    this.#clockOffsetMs += ms;
    this.#highestOffsetMs = Math.max(this.#highestOffsetMs, this.#clockOffsetMs);
  }

  healClock(): void {
    this.#clockOffsetMs = this.#highestOffsetMs;
  }

  abstract connect(process: Process, namespace: string): ProcessStore;

  /** The world is over, and the scenario has looked at what is left of it. */
  abstract end(): Promise<void>;
}
