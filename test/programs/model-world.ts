/**
 * The model's world: a clock that jumps from timer to timer, and what runs share. Nothing is stored, nothing fails, and commits take no time.
 */

/** Taken when the module loads, because a simulation replaces the global one. */
const realSetImmediate = setImmediate;

const drain = (): Promise<void> => new Promise((resolve) => void realSetImmediate(resolve));

/** What happens within this time of each other may happen in either order. */
export const CLOSE_MS = 1_200;

interface Timer {
  readonly atMs: number;
  readonly go: () => void;
}

export class ModelWorld {
  nowMs = 0;
  /** Counts the times that code ran: what is asked for in one of them is of the same turn. */
  turn = 0;
  /** Code awaited something foreign. Its engine polls for the end of that, and all that comes after it may be late by some hundred milliseconds. */
  isLate = false;
  /** Why the model cannot tell the outcome, if it cannot. */
  unsure: string | undefined;
  readonly #timers: Timer[] = [];
  readonly #turns = new Map<string, Turn>();
  readonly #lines = new Map<string, Line>();
  /** How many transactions a process may have open, and those that are. */
  readonly #maxTransactions: number;
  readonly #transactions = new Set<{ isWaitedFor: boolean }>();

  constructor(maxTransactions: number) {
    this.#maxTransactions = maxTransactions;
  }

  after(ms: number, go: () => void): () => void {
    const timer = { atMs: this.nowMs + ms, go };
    const at = this.#timers.findIndex((other) => other.atMs > timer.atMs);
    this.#timers.splice(at < 0 ? this.#timers.length : at, 0, timer);
    return () => {
      const index = this.#timers.indexOf(timer);
      if (index >= 0) this.#timers.splice(index, 1);
    };
  }

  sleep(ms: number): Promise<void> {
    return new Promise((resolve) => void this.after(ms, resolve));
  }

  doubt(reason: string): void {
    this.unsure ??= reason;
  }

  /** Runs until nothing is left to happen. */
  async run(untilMs: number): Promise<void> {
    for (;;) {
      await drain();
      this.turn += 1;
      const timer = this.#timers.shift();
      if (timer === undefined || timer.atMs > untilMs) return;
      this.nowMs = Math.max(this.nowMs, timer.atMs);
      timer.go();
    }
  }

  /** When its turn comes under a limit of one in so many milliseconds. */
  reserve(by: object, name: string, perMs: number): number {
    const last = this.#turns.get(name);
    if (last !== undefined && last.by !== by && perMs > CLOSE_MS && this.nowMs - last.askedMs < CLOSE_MS)
      this.doubt("two runs asked for a turn close together");
    const atMs = Math.max(this.nowMs, (last?.atMs ?? Number.NEGATIVE_INFINITY) + perMs);
    this.#turns.set(name, { by, askedMs: this.nowMs, atMs });
    return atMs - this.nowMs;
  }

  /**
   * An attempt begins that has a transaction. Returns what to call when it is over. The model does not know how long those wait that a process
   * has no room for, nor which process has which run.
   */
  openTransaction(): () => void {
    const openedMs = this.nowMs;
    if (this.#transactions.size >= this.#maxTransactions)
      for (const other of this.#transactions) other.isWaitedFor = true;
    const transaction = { isWaitedFor: false };
    this.#transactions.add(transaction);
    return () => {
      this.#transactions.delete(transaction);
      if (transaction.isWaitedFor && this.nowMs > openedMs) this.doubt("a transaction may have waited for another");
    };
  }

  line(name: string): Line {
    const line = this.#lines.get(name) ?? new Line(this);
    this.#lines.set(name, line);
    return line;
  }
}

/** The last turn under a limit: who has it, when it was asked for, and when it comes. */
interface Turn {
  readonly by: object;
  readonly askedMs: number;
  readonly atMs: number;
}

interface Place {
  readonly mode: "shared" | "exclusive";
  readonly permits: number;
  readonly granted: () => void;
  isHeld: boolean;
}

/** A lock: places in order of arrival. */
class Line {
  readonly #world: ModelWorld;
  #places: Place[] = [];
  /** Who entered last, and when. */
  #last: { readonly by: object; readonly ms: number } | undefined;

  constructor(world: ModelWorld) {
    this.#world = world;
  }

  /** Takes a place; `granted` is called when its turn has come. Returns how to leave. */
  enter(
    by: object,
    mode: Place["mode"],
    permits: number,
    granted: () => void,
  ): { leave: () => void; isHeld: () => boolean } {
    const ms = this.#world.nowMs;
    if (permits === 1 && this.#last !== undefined && this.#last.by !== by && ms - this.#last.ms < CLOSE_MS)
      this.#world.doubt("two runs asked for a lock close together");
    this.#last = { by, ms };
    const place: Place = { mode, permits, granted, isHeld: false };
    this.#places.push(place);
    this.#grant();
    const leave = (): void => {
      this.#places = this.#places.filter((other) => other !== place);
      this.#grant();
    };
    return { leave, isHeld: () => place.isHeld };
  }

  #grant(): void {
    for (const [at, place] of this.#places.entries()) {
      if (place.isHeld) continue;
      const before = this.#places.slice(0, at);
      const isFree =
        place.mode === "exclusive"
          ? before.length === 0
          : before.every(({ mode }) => mode === "shared") && before.length < place.permits;
      if (!isFree) return;
      place.isHeld = true;
      place.granted();
    }
  }
}
