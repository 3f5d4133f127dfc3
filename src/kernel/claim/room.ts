/**
 * The waiting room of a worker: records that are claimed for it, and for which it has no free place yet. Other commits of this process have claimed
 * them, as a start claims its run, or the worker itself, ahead of its free places.
 *
 * Without it, what exceeds the free places in a burst is written without a holder, found again when it is due, and claimed, each by a commit of its
 * own. With it, the commit that makes a record also claims it, and the work begins when a place is free, oldest first.
 *
 * Ahead of free places, because a claim takes time, during which work ends: places would be empty until the next claim brings something. So a worker
 * that is behind claims what it does while three claims are made, and claims again when half of that is left.
 *
 * What waits here is out of reach of other processes, which may be idle. So the room has space only for what this worker does in a moment at its recent
 * rate, none before there is one; and what has waited for longer is released. The worker decides when the room may be entered at all: not while other
 * records are due.
 */

/** How long a record may wait. */
const MOMENT_MS = 2000;
const WINDOW_MS = 1000;
/** For how long claims ahead of free places may last: where claims take longer, because the store is slow, more of them would not make them faster. */
const MOST_AHEAD_MS = 100;
/** The rate of a window counts less with each one that follows. */
const FADING = 0.98;

interface Waiting<T> {
  readonly item: T;
  readonly sinceMs: number;
}

export class WaitingRoom<T> {
  readonly #momentMs: number;
  /** In the order in which they came; those before `#first` have left. */
  #waiting: Waiting<T>[] = [];
  #first = 0;
  #doneInWindow = 0;
  #windowEndMs = 0;
  #ratePerMs = 0;
  #doneSinceClaim = 0;
  #lastClaimMs: number | undefined;
  #ahead = 0;

  constructor(leaseMs: number) {
    this.#momentMs = Math.min(MOMENT_MS, leaseMs / 3);
  }

  get size(): number {
    return this.#waiting.length - this.#first;
  }

  /** How many may wait. */
  get capacity(): number {
    return Math.floor(this.#ratePerMs * this.#momentMs);
  }

  /** How many may be claimed ahead of free places. */
  get ahead(): number {
    return this.#ahead;
  }

  /** A claim that took this long has brought something. The rate is that since the one before: a backlog may be gone within a second. */
  claimed(tookMs: number, nowMs: number): void {
    const sinceMs = Math.max(1, tookMs, nowMs - (this.#lastClaimMs ?? nowMs));
    const next = Math.floor((this.#doneSinceClaim / sinceMs) * Math.min(3 * tookMs, MOST_AHEAD_MS));
    this.#ahead = this.#lastClaimMs === undefined ? 0 : Math.max(next, this.#ahead >> 1);
    this.#lastClaimMs = nowMs;
    this.#doneSinceClaim = 0;
  }

  enter(item: T, nowMs: number): void {
    this.#waiting.push({ item, sinceMs: nowMs });
  }

  /** The one that has waited longest. */
  next(): T | undefined {
    const waiting = this.#waiting[this.#first];
    if (waiting === undefined) return undefined;
    this.#first += 1;
    if (this.#first * 2 > this.#waiting.length) {
      this.#waiting = this.#waiting.slice(this.#first);
      this.#first = 0;
    }
    return waiting.item;
  }

  /** When the first of them will have waited too long; undefined if none waits. */
  get nextTooLongMs(): number | undefined {
    const waiting = this.#waiting[this.#first];
    return waiting === undefined ? undefined : waiting.sinceMs + this.#momentMs;
  }

  /** Takes out those that have waited too long: the rate is not what it was. */
  takeLate(nowMs: number): readonly T[] {
    const late = this.#takeOut(({ sinceMs }) => nowMs - sinceMs >= this.#momentMs);
    if (late.length > 0) this.#ratePerMs = this.#ahead = 0;
    return late;
  }

  /** Takes out those that are chosen. */
  take(isChosen: (item: T) => boolean): readonly T[] {
    return this.#takeOut(({ item }) => isChosen(item));
  }

  #takeOut(isTaken: (waiting: Waiting<T>) => boolean): readonly T[] {
    const waiting = this.#waiting.slice(this.#first);
    this.#waiting = waiting.filter((one) => !isTaken(one));
    this.#first = 0;
    return waiting.filter(isTaken).map(({ item }) => item);
  }

  /** The work on one record is done: from how often that is, the rate follows. */
  done(nowMs: number): void {
    // A clock that was moved back begins a new window; a pause counts as some.
    if (nowMs >= this.#windowEndMs || nowMs < this.#windowEndMs - WINDOW_MS) {
      const windows = Math.min(100, 1 + Math.max(0, Math.floor((nowMs - this.#windowEndMs) / WINDOW_MS)));
      this.#ratePerMs = Math.max(this.#doneInWindow / WINDOW_MS, this.#ratePerMs * FADING ** windows);
      this.#doneInWindow = 0;
      this.#windowEndMs = nowMs + WINDOW_MS;
    }
    this.#doneInWindow += 1;
    this.#doneSinceClaim += 1;
  }
}
