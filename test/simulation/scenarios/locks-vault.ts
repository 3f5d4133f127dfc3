/**
 * What locks protect in the scenarios, and what those who hold them see: it is outside, never crashes, and remembers everything.
 *
 * Whoever has a lock in hand comes with its fence, and says what the lock told: that it is held, that it was renewed, that a decision
 * found it held. In the end all of it is held against what the database committed.
 */

import type { Hold, Lock } from "../../../src/index.ts";
import type { Holder } from "../../../src/lock/stored.ts";
import { lockOf } from "../../../src/lock/stored.ts";
import type { Process, World } from "../../../src/testing/index.ts";
import type { RunValue } from "../../../src/workflow/stored.ts";

/** The locks behind each name, as the database knows them. */
const LOCKS: Readonly<Record<string, readonly string[]>> = {
  m: ["mutex m"],
  n: ["mutex n"],
  "m+n": ["mutex m", "mutex n"],
  s: ["semaphore s"],
  rw: ["rwlock rw"],
};

/** Under such names decisions leave a mark of the hold that they found. */
const CHECKED = "checked/";

/** A waiter is notified of a grant immediately; one that is not polls after a third of its lease. */
const WAKES_WITHIN_MS = 500;

/** The step that a run does once it was canceled. */
export const CLEAN = "clean";

interface Visit {
  readonly lock: string;
  readonly fence: number;
  readonly by: string;
  /** Which claim of its run the visitor works under; 0 for plain code. */
  readonly claim: number;
}

/** A hold from its acquisition to its release, as the numbers of commits before each. */
interface InHand {
  readonly lock: string;
  readonly ticket: string;
  readonly from: number;
  to: number;
}

/** When a waiter began to wait, by the store's clock, and how many faults there were before. */
interface Began {
  readonly nowMs: number;
  readonly strikes: number;
}

/** Who held each lock after a commit. */
type Held = ReadonlyMap<string, readonly Holder[]>;

export class Vault {
  readonly #world: World;
  readonly #visits: Visit[] = [];
  readonly #hands: InHand[] = [];
  readonly #renewals: InHand[] = [];

  constructor(world: World) {
    this.#world = world;
  }

  /** A waiter begins to wait. */
  begin(): Began {
    return { nowMs: this.#world.database.nowMs(), strikes: this.#strikes };
  }

  get #now(): number {
    return this.#world.database.commits.length;
  }

  /** Plain code has the lock in hand. It sees whether that is so, uses it, and says when it is about to give it back. */
  async use(lock: string, hold: Hold, began: Began, act: () => Promise<void>): Promise<void> {
    const { ticket } = hold;
    const hand = { lock, ticket, from: this.#now, to: Number.POSITIVE_INFINITY };
    this.#hands.push(hand);
    this.#wasWoken(lock, ticket, began);
    try {
      await act();
    } finally {
      hand.to = this.#now;
    }
  }

  visit(visit: Visit): void {
    this.#visits.push(visit);
  }

  /** A holder that was not notified of a loss holds the lock, if clocks and timers are right. */
  isTold(lock: string, ticket: string, abortSignal: AbortSignal): void {
    const { pause, clockJump, storeClockJump, overtake } = this.#world.faults.struck;
    if (abortSignal.aborted || pause + clockJump + storeClockJump + overtake > 0) return;
    for (const name of LOCKS[lock] ?? []) {
      const { holders, nowMs, isForced } = this.#lastOf(name);
      const isHeld = holders.some((holder) => holder.ticket === ticket);
      // It may have been lost at this very millisecond.
      const isNews = nowMs === this.#world.database.nowMs();
      this.#world.check(isHeld || isForced || isNews, `${name}: ${ticket} was lost, and was not told`);
    }
  }

  /** Renews, and records the result. */
  async renew(lock: string, hold: Hold): Promise<void> {
    const from = this.#now;
    if (await hold.renew()) this.#renewals.push({ lock, ticket: hold.ticket, from, to: this.#now });
  }

  /** Leaves a mark in a decision that found the lock held. */
  async mark({ pawl }: Process, lock: string, handle: Lock, hold: Hold): Promise<void> {
    const slot = pawl.slot<string>(`${CHECKED}${lock}`);
    await pawl.transact((tx) => {
      tx.lock(handle).check(hold);
      tx.slot(slot).set(hold.ticket);
    });
  }

  check(): void {
    this.#checkVisits();
    const held = this.#timeline();
    this.#checkHands(held);
    this.#checkRenewals(held);
    this.#checkMarks(held);
    this.#checkCanceled();
  }

  /** A waiter is notified of its turn immediately, unless a fault occurred since it began to wait. */
  #wasWoken(lock: string, ticket: string, began: Began): void {
    // A look that is held up holds up the next one.
    if (this.#strikes > began.strikes || this.#world.faults.struck.delay > 0) return;
    for (const name of LOCKS[lock] ?? []) {
      const holder = this.#lastOf(name).holders.find((one) => one.ticket === ticket);
      if (holder === undefined) continue;
      const lateMs = this.#world.database.nowMs() - Math.max(holder.sinceMs, began.nowMs);
      this.#world.check(lateMs <= WAKES_WITHIN_MS, `${name}: ${ticket} heard of its turn ${lateMs} ms late`);
    }
  }

  /** The number of faults that can delay a waiter. */
  get #strikes(): number {
    const { reorder, clockSkew, mixedVersions, ...others } = this.#world.faults.struck;
    return Object.values(others).reduce((sum, count) => sum + count, 0);
  }

  /** The newest claim of the run by this worker. */
  claimOf(run: string, by: string): number {
    for (const { puts } of this.#world.database.commits.toReversed())
      for (const { row } of puts) if (row.space === "run" && row.key === run && row.holder === by) return row.fence;
    return 0;
  }

  /** The holder of a lock, since when, and whether its release was ever forced. */
  #lastOf(name: string): { readonly holders: readonly Holder[]; readonly nowMs: number; readonly isForced: boolean } {
    const { commits } = this.#world.database;
    const isForced = commits.some(isForcing);
    for (const { nowMs, puts } of commits.toReversed())
      for (const { row } of puts) if (nameOf(row) === name) return { holders: holdersOf(row.value), nowMs, isForced };
    return { holders: [], nowMs: 0, isForced };
  }

  #timeline(): readonly Held[] {
    const held = new Map<string, readonly Holder[]>();
    return this.#world.database.commits.map(({ puts }) => {
      for (const { row } of puts) if (row.space.startsWith("lock/")) held.set(nameOf(row), holdersOf(row.value));
      return new Map(held);
    });
  }

  /** No two holders had the same fence; and after a takeover, a run has a higher one than before. */
  #checkVisits(): void {
    const takenOver = this.#takeOvers();
    for (const [index, { lock, fence, by, claim }] of this.#visits.entries())
      for (const earlier of this.#visits.slice(0, index)) {
        if (earlier.lock !== lock) continue;
        const both = `${lock}: ${earlier.by} came with fence ${earlier.fence} and ${by} with ${fence}`;
        this.#world.check(earlier.fence !== fence || earlier.by === by, both);
        if (earlier.by !== by || claim <= earlier.claim) continue;
        const isTakenOver = takenOver.some((one) => one.run === by && one.claim > earlier.claim && one.claim <= claim);
        this.#world.check(!isTakenOver || fence > earlier.fence, `${both}, after a take-over`);
      }
  }

  /** Claims of a run whose worker had not come to rest. Whose release was forced holds nothing, whatever it comes with. */
  #takeOvers(): { readonly run: string; readonly claim: number }[] {
    const { commits } = this.#world.database;
    if (commits.some(isForcing)) return [];
    return commits.flatMap(({ puts }) =>
      puts.flatMap(({ was, row }) =>
        row.space === "run" && row.holder !== null && row.fence > (was?.fence ?? 0) && row.tries > 1
          ? [{ run: row.key, claim: row.fence }]
          : [],
      ),
    );
  }

  /** A hold ends only by its release, by the end of its lease, or by force. */
  #checkHands(held: readonly Held[]): void {
    const { commits } = this.#world.database;
    for (const { lock, ticket, from, to } of this.#hands)
      for (const name of LOCKS[lock] ?? [])
        for (let index = from; index < Math.min(to, commits.length); index++) {
          const commit = commits[index];
          const had = held[index - 1]?.get(name)?.find((one) => one.ticket === ticket);
          const isKept = held[index]?.get(name)?.some((one) => one.ticket === ticket) === true;
          if (commit === undefined || had === undefined || isKept || isForcing(commit)) continue;
          const earlyMs = (had.untilMs ?? Number.POSITIVE_INFINITY) - commit.nowMs;
          this.#world.check(earlyMs <= 0, `${name}: ${ticket} lost it ${earlyMs} ms before its lease was over`);
        }
  }

  /** A holder whose renewal succeeded held the lock at some moment meanwhile. */
  #checkRenewals(held: readonly Held[]): void {
    for (const { lock, ticket, from, to } of this.#renewals) {
      const wasHeld = held.slice(Math.max(0, from - 1), to).some((now) => isHeld(now, lock, ticket));
      this.#world.check(wasHeld, `${lock}: ${ticket} was told that it holds it, and it did not`);
    }
  }

  /** What a decision found held was held before its commit. */
  #checkMarks(held: readonly Held[]): void {
    for (const [index, { puts }] of this.#world.database.commits.entries())
      for (const { row } of puts) {
        if (row.space !== "slot" || !row.key.startsWith(CHECKED) || row.value === null) continue;
        const lock = row.key.slice(CHECKED.length);
        const ticket = JSON.parse(row.value) as string;
        const wasHeld = isHeld(held[index - 1] ?? new Map(), lock, ticket);
        this.#world.check(wasHeld, `${lock}: a decision of ${ticket} found it held, and it was not`);
      }
  }

  /** A canceled run leaves the lines that it waited in before it continues. It keeps its place in the line of n. */
  #checkCanceled(): void {
    for (const { puts } of this.#world.database.commits)
      for (const { row, entries } of puts) {
        if (row.value === null || !entries.some(({ name }) => name === `step ${CLEAN}`)) continue;
        const left = (JSON.parse(row.value) as RunValue).holds?.find(
          ({ fence, refs }) => fence === undefined && !(refs.length === 1 && refs[0]?.name === "n"),
        );
        this.#world.check(left === undefined, `${row.key} was canceled, and still waits for ${left?.refs[0]?.name}`);
      }
  }
}

const nameOf = ({ space, key }: { readonly space: string; readonly key: string }): string =>
  `${space.slice("lock/".length)} ${key}`;

const holdersOf = (value: string | null): readonly Holder[] =>
  value === null ? [] : lockOf(JSON.parse(value)).holders;

const isHeld = (now: Held, lock: string, ticket: string): boolean =>
  (LOCKS[lock] ?? []).every((name) => now.get(name)?.some((holder) => holder.ticket === ticket) === true);

const isForcing = ({ puts }: World["database"]["commits"][number]): boolean =>
  puts.some(({ entries }) => entries.some(({ name }) => name === "forced"));
