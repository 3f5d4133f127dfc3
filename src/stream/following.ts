/**
 * Following events: one worker at a time reads the events of all streams for a record that has a cursor, in the order that is safe to follow
 * (`Store.follow`), and commits what it makes of each page together with the cursor. Reactions are routed in this way, and projections are made.
 *
 * Guarantees: no event is left out or taken twice, whatever crashes and in whatever order transactions commit (G12), as long as `commit` checks the
 * cursor and moves it in the same commit.
 */

import type { Held } from "../kernel/claim/claim.ts";
import type { FollowPage, Put } from "../kernel/contract.ts";
import type { Tx } from "../kernel/decision.ts";
import type { Draft } from "../kernel/draft.ts";
import type { Kernel } from "../kernel/kernel.ts";
import type { Lease } from "../kernel/lease.ts";
import { type Clock, pause } from "../kernel/ports.ts";
import { STREAMS } from "./stored.ts";

/** How many events of the store are looked at together. */
export const PAGE = 400;
/** The slow poll for commits that this process was not notified of. */
const POLL_MS = 5_000;
/** After news that brought no event, one more look after this time: a transaction that was open may have held events back. */
const ONCE_MORE_MS = 50;
/** Commits of other processes lead to a look at most once in this time. */
const LOOK_MS = 5;
/** A cursor that has passed only events of others is stored after as many positions. */
const WORTH_STORING = 10_000;

const WOKEN = "woken";

/** What the record says. Whatever an operator does to it wakes it. */
export interface Place {
  /** Everything up to it was looked at. */
  readonly cursor: number;
  readonly isPaused: boolean;
  /** How many wake-ups the record had. */
  readonly wakes: number;
}

/** What follows events. */
export interface Follower {
  /** The names of its events. */
  readonly names: readonly string[];
  /** How many events are looked at together, at most `PAGE`. Default: as many. */
  readonly limit?: (() => number) | undefined;
  /** Reads the record. Undefined ends the following. */
  look(): Promise<Place | undefined>;
  /** Commits what it makes of these events, with the cursor at `page.upTo`. Returns false, with nothing written, if the cursor is not at `from`. */
  commit(from: number, page: FollowPage): Promise<boolean>;
  /**
   * Everything up to the cursor was looked at: called after each page, and when there is nothing to follow. `isAtEnd` says that there was nothing after it
   * when it was looked at. Under load more has come since, so waiting for a look that finds nothing could last for ever. Returns true if the record has
   * changed.
   */
  reached?(cursor: number, isAtEnd: boolean): Promise<boolean>;
}

/** Follows events for as long as the lease is held and the worker runs. */
export async function follow(
  kernel: Kernel,
  held: Held,
  lease: Lease,
  stopping: AbortSignal,
  follower: Follower,
): Promise<void> {
  const news = new News();
  const unlisten = kernel.listen((puts) => news.tell(puts, held));
  const stop = (): void => news.wake();
  stopping.addEventListener("abort", stop);
  try {
    await followUntilOver(kernel, held, lease, stopping, follower, news);
  } finally {
    unlisten();
    stopping.removeEventListener("abort", stop);
  }
}

async function followUntilOver(
  kernel: Kernel,
  held: Held,
  lease: Lease,
  stopping: AbortSignal,
  { names, limit = () => PAGE, look, commit, reached }: Follower,
  news: News,
): Promise<void> {
  const { clock } = kernel.ports;
  const looked = async (): Promise<(Place & Stored) | undefined> => {
    const place = await look();
    return place === undefined ? undefined : { ...place, stored: place.cursor };
  };
  let at = await looked();
  // A commit checks the record itself; where there is nothing to commit, the record is read after news.
  let isChecked = true;
  for (let waitMs = POLL_MS; at !== undefined && !lease.isOver && !stopping.aborted; ) {
    news.clear();
    const startedMs = clock.nowMs();
    const page = at.isPaused ? null : await kernel.follow({ space: STREAMS, names, after: at.cursor, limit: limit() });
    if (page !== null) {
      if (page.entries.length > 0 || page.lost !== undefined || page.upTo - at.stored >= WORTH_STORING) {
        const isCommitted = await commit(at.stored, page);
        at = isCommitted ? { ...at, cursor: page.upTo, stored: page.upTo } : await looked();
        if (isCommitted && (await reached?.(page.upTo, !page.hasMore)) === true) at = await looked();
        waitMs = POLL_MS;
        continue;
      }
      // Below the cursor: the store was put back in time, and the record with it.
      at = page.upTo < at.cursor ? await looked() : { ...at, cursor: page.upTo };
      if (at === undefined || page.hasMore) continue;
      if ((await reached?.(at.cursor, true)) === true) {
        at = await looked();
        continue;
      }
    }
    if (!isChecked) {
      isChecked = true;
      const [row] = await kernel.read([held.at]);
      if (row?.wakes !== at.wakes) {
        at = await looked();
        continue;
      }
    }
    const hasNews = await news.wait(clock, waitMs);
    waitMs = hasNews ? ONCE_MORE_MS : POLL_MS;
    if (news.mayBeChanged || !hasNews) isChecked = false;
    // The clock of this process may have been set back meanwhile.
    const soonMs = Math.min(LOOK_MS, LOOK_MS - (clock.nowMs() - startedMs));
    if (soonMs > 0) await pause(clock, soonMs, lease.abortSignal);
  }
}

/** The cursor as the record has it; it may lag behind while only events of others pass. */
interface Stored {
  readonly stored: number;
}

/** Rests, also if a wake-up came meanwhile: the next worker that claims the record looks at everything. */
export async function restWhateverCame(
  held: Held,
  dueMs: (tx: Tx) => number | null,
  decide?: (record: Draft, tx: Tx) => void,
): Promise<void> {
  while ((await held.rest(dueMs, decide)) === "woken") await held.look(() => {});
}

/** What happened since the last look. */
class News {
  #wake: (() => void) | undefined;
  #hasNews = false;
  /** The record may have been changed by an operator. */
  mayBeChanged = false;

  clear(): void {
    this.#hasNews = false;
    this.mayBeChanged = false;
  }

  /** `puts` is undefined for commits of other processes, which may be of anything. */
  tell(puts: readonly Put[] | undefined, { at }: Held): void {
    const mayBeChanged = puts === undefined || puts.some(({ row }) => row.space === at.space && row.key === at.key);
    if (mayBeChanged) this.mayBeChanged = true;
    if (mayBeChanged || puts.some(({ row, entries }) => row.space === STREAMS && entries.length > 0)) this.wake();
  }

  wake(): void {
    this.#hasNews = true;
    this.#wake?.();
  }

  /** Waits for news, for at most `ms`. Returns whether there were some. */
  async wait(clock: Clock, ms: number): Promise<boolean> {
    if (!this.#hasNews) {
      const woken = new AbortController();
      this.#wake = () => woken.abort(WOKEN);
      await pause(clock, ms, woken.signal);
      this.#wake = undefined;
    }
    return this.#hasNews;
  }
}
