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

/** The store lost its last commits. */
export interface Rewind {
  /** So many commits were left. */
  readonly to: number;
  readonly lost: readonly Commit[];
}

/** A moment in a history of commits: after so many rewinds, with so many commits. */
export interface Moment {
  readonly rewinds: number;
  readonly commits: number;
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
  /** Every commit in order that no rewind has lost: what checkers look at. */
  readonly commits: Commit[] = [];
  /** Every time that commits were lost, in order. */
  readonly rewinds: Rewind[] = [];
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

  get moment(): Moment {
    return { rewinds: this.rewinds.length, commits: this.commits.length };
  }

  /** The commits that the store had at that moment, with those that were lost later. */
  commitsAt({ rewinds, commits }: Moment): readonly Commit[] {
    const then = this.rewinds
      .slice(rewinds)
      .reduceRight<readonly Commit[]>((later, { to, lost }) => later.slice(0, to).concat(lost), this.commits);
    return then.slice(0, commits);
  }

  /** Goes back by some commits, while everybody who is connected stays so. Only a database that can be put back does. */
  rewind(): void {
    throw new Error("this database cannot be put back to what it was");
  }

  abstract connect(process: Process, namespace: string): ProcessStore;

  /** The world is over, and the scenario has looked at what is left of it. */
  abstract end(): Promise<void>;
}
