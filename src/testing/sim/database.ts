/**
 * The database that the processes of a simulated world share, with a clock that can jump and a list of all commits.
 *
 * `simulate` uses the one in memory (`store.ts`); the tests of a real store implement the same class, so that the same scenarios and checkers
 * run on it.
 */

import type { Put, Store } from "../../kernel/contract.ts";
import type { Process } from "./process.ts";

/** A commit, for the checkers. */
export interface Commit {
  /** The store's clock when it was decided. */
  readonly nowMs: number;
  readonly puts: readonly Put[];
}

/** The store lost its last commits. */
export interface Rewind {
  /** The number of commits that remained. */
  readonly to: number;
  readonly lost: readonly Commit[];
}

/** A moment in a history of commits: the number of rewinds and commits before it. */
export interface Moment {
  readonly rewinds: number;
  readonly commits: number;
}

/** The store of one process, over an unreliable connection. */
export interface ProcessStore extends Store {
  /** Ends the transactions of a dead process after a while, as when a connection breaks. */
  abandon(): void;
}

export abstract class Database {
  readonly #worldMs: () => number;
  #clockOffsetMs = 0;
  #highestOffsetMs = 0;
  /** All commits that no rewind has lost, in order, for the checkers. */
  readonly commits: Commit[] = [];
  readonly rewinds: Rewind[] = [];
  /** The stored data, over a connection that does not fail. */
  abstract readonly memory: { connect(namespace: string): Store };

  constructor(worldMs: () => number) {
    this.#worldMs = worldMs;
  }

  /** The store's clock. It starts late enough that it stays positive when it is set back. */
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

  get moment(): Moment {
    return { rewinds: this.rewinds.length, commits: this.commits.length };
  }

  /** Returns the commits that the store had at that moment, including those that were lost later. */
  commitsAt({ rewinds, commits }: Moment): readonly Commit[] {
    const then = this.rewinds
      .slice(rewinds)
      .reduceRight<readonly Commit[]>((later, { to, lost }) => later.slice(0, to).concat(lost), this.commits);
    return then.slice(0, commits);
  }

  /** Loses the last commits, while all connections stay open. Not every database supports it. */
  rewind(): void {
    throw new Error("this database does not support rewinds");
  }

  abstract connect(process: Process, namespace: string): ProcessStore;

  /** Called after the scenario has ended. */
  abstract end(): Promise<void>;
}
