/**
 * Deadlocks between runs: found by the commit that closes the circle.
 *
 * A run that rests, and waits for nothing but locks and children, says so in its record. The commit in which it goes to rest follows who holds what
 * it waits for, so two runs cannot miss each other. A run that could still continue because of anything else, a step, a
 * timer or a signal that its code observes, a lock whose holder can continue, is not stuck, and neither is plain code, whose leases end. So there is no false
 * alarm; and what changes later, a grant or an end, makes some run rest again, which looks again.
 */

import type { Address } from "../../kernel/contract.ts";
import type { Tx } from "../../kernel/decision.ts";
import type { Draft } from "../../kernel/draft.ts";
import { fits } from "../../lock/decide.ts";
import type { DeadlockLink } from "../../lock/errors.ts";
import {
  type Holder,
  type LockRef,
  type LockValue,
  lockAt,
  lockOf,
  type Mode,
  shownLocks,
  type Ticket,
  ticketAt,
} from "../../lock/stored.ts";
import { readableValue, runOf } from "../history/read-run.ts";
import { wakeRun } from "../runs/wake.ts";
import { type RunHold, runAt } from "../stored.ts";

/** At most this many runs are followed; a longer circle is not found. */
export const MOST_FOLLOWED = 100;
/** A search reads at most this many records, because a commit has a limit; beyond them nothing is found. */
const MOST_READ = 800;
/** A queue is followed back by at most this many places, where something in it waits for other locks as well. */
const MOST_TICKETS = 100;

/** One thing that a run waits for: it comes if every need of it is met. */
interface Wait {
  readonly shown: string;
  readonly isChild: boolean;
  readonly needs: readonly Need[];
}

/** One lock, or one child: all of these runs must be able to continue, or one of them. */
interface Need {
  readonly of: "all" | "any";
  readonly runs: readonly string[];
}

/** The runs that wait for each other, from this one on; undefined if it can still continue. */
export function findCircle(tx: Tx, run: string, children: readonly string[]): readonly DeadlockLink[] | undefined {
  // Too many to follow: as far as is known here, one of them continues.
  if (children.length > MOST_FOLLOWED) return undefined;
  const reads = new Reads(tx);
  try {
    return search(reads, run, children);
  } catch (error) {
    if (error instanceof TooManyReads) return undefined;
    throw error;
  }
}

class TooManyReads extends Error {}

/** The records that a search reads. */
class Reads {
  readonly #tx: Tx;
  readonly #texts = new Set<string>();

  constructor(tx: Tx) {
    this.#tx = tx;
  }

  get nowMs(): number {
    return this.#tx.nowMs;
  }

  record(at: Address): Draft {
    this.#count(at);
    return this.#tx.record(at);
  }

  load(all: readonly Address[]): void {
    for (const at of all) this.#count(at);
    this.#tx.load(all);
  }

  #count({ text }: Address): void {
    this.#texts.add(text);
    if (this.#texts.size > MOST_READ) throw new TooManyReads();
  }
}

function search(tx: Reads, run: string, children: readonly string[]): readonly DeadlockLink[] | undefined {
  const stuck = new Map<string, readonly Wait[]>();
  const own = runOf(tx.record(runAt(run)));
  stuck.set(run, waitsOf(tx, run, own.holds ?? [], children));
  const toFollow = [run];
  const seen = new Set(toFollow);
  for (let next = toFollow.pop(); next !== undefined; next = toFollow.pop()) {
    const waits = stuck.get(next) ?? [];
    // In one read: each that is missing would begin the whole search anew.
    const others = new Set(waits.flatMap(({ needs }) => needs.flatMap(({ runs }) => runs)));
    tx.load([...others].slice(0, MOST_FOLLOWED).map(runAt));
    for (const { needs } of waits)
      for (const { runs } of needs)
        for (const other of runs) {
          if (seen.has(other)) continue;
          seen.add(other);
          // Too many to follow: as far as is known here, they continue.
          if (seen.size > MOST_FOLLOWED) return undefined;
          const waits = stuckWaits(tx, other);
          if (waits === undefined) continue;
          stuck.set(other, waits);
          toFollow.push(other);
        }
  }
  dropLiving(stuck);
  return stuck.has(run) ? circleFrom(run, stuck) : undefined;
}

/** What a run waits for, if nothing else can make it continue. */
function stuckWaits(tx: Reads, id: string): readonly Wait[] | undefined {
  const record = tx.record(runAt(id));
  if (!record.exists || record.status !== "waiting" || record.holder !== null) return undefined;
  const { blocked, holds } = readableValue(record) ?? {};
  // At the end of a cleanup's grace, or of a timer that no code observes, its code does not continue. One that is due looks again when it rests.
  if (record.dueMs !== null && (record.dueMs !== blocked?.untilMs || record.dueMs <= tx.nowMs)) return undefined;
  return blocked === undefined ? undefined : waitsOf(tx, id, holds ?? [], blocked.children);
}

function waitsOf(tx: Reads, run: string, holds: readonly RunHold[], children: readonly string[]): readonly Wait[] {
  const waiting = holds.filter(({ fence }) => fence === undefined);
  // What it holds itself is known without its record, and may be more than a search reads.
  const own = ownLocks(holds);
  const isOwn = ({ refs, mode }: RunHold): boolean =>
    refs.some((ref) => {
      const held = own.get(lockAt(ref).text);
      return held !== undefined && (mode === "exclusive" || held === "exclusive");
    });
  const others = waiting.filter((hold) => !isOwn(hold));
  tx.load([...new Map(others.flatMap(({ refs }) => refs.map((ref) => [lockAt(ref).text, lockAt(ref)]))).values()]);
  const locks = waiting.map((hold) => ({
    shown: shownLocks(hold.refs),
    isChild: false,
    needs: isOwn(hold) ? [{ of: "all", runs: [run] } as const] : hold.refs.flatMap((ref) => needOf(tx, ref, hold)),
  }));
  const waits = children.map((child) => ({ shown: "", isChild: true, needs: [{ of: "all", runs: [child] } as const] }));
  return [...locks, ...waits];
}

/** The modes of the locks that these are, by lock. A semaphore is left out: another permit may be free. */
function ownLocks(holds: readonly RunHold[]): ReadonlyMap<string, Mode> {
  const own = new Map<string, Mode>();
  for (const { refs, mode, fence } of holds)
    if (fence !== undefined)
      for (const ref of refs)
        if (ref.kind !== "semaphore" && own.get(lockAt(ref).text) !== "exclusive") own.set(lockAt(ref).text, mode);
  return own;
}

/** Which runs must release it, or continue, before a waiter can acquire it. Plain code always does, in the end. */
function needOf(tx: Reads, ref: LockRef, { mode, ticket }: RunHold): readonly Need[] {
  const { value: stored } = tx.record(lockAt(ref));
  if (stored === undefined) return [];
  const value = lockOf(stored);
  const groups = (value.groups ?? 0) === 0 ? [] : groupsBefore(tx, ref, value, ticket);
  return [...(fits(value, mode) ? firstOf(tx, ref, value, ticket) : holdersOf(value, ref, mode)), ...groups];
}

function holdersOf(value: LockValue, ref: LockRef, mode: Mode): readonly Need[] {
  const holders = mode === "exclusive" ? value.holders : value.holders.filter((one) => isInTheWay(one, ref));
  const runs = holders.flatMap(({ owner }) => (owner === undefined ? [] : [owner.run]));
  if (ref.kind !== "semaphore") return [{ of: "all", runs }];
  // One permit is enough.
  return runs.length < holders.length ? [] : [{ of: "any", runs }];
}

/** It could be granted, and is in the queue behind an exclusive request. */
function firstOf(tx: Reads, ref: LockRef, { first }: LockValue, ticket: string): readonly Need[] {
  if (first === null || first === ticket) return [];
  const { owner } = (tx.record(ticketAt(ref, first)).value ?? {}) as Partial<Ticket>;
  return owner === undefined ? [] : [{ of: "all", runs: [owner.run] }];
}

/**
 * Those before it in the queue that wait for other locks as well, and so may not continue when this one is free. All others before it do
 * whenever the holders can.
 */
function groupsBefore(tx: Reads, ref: LockRef, { first }: LockValue, ticket: string): readonly Need[] {
  const runs: string[] = [];
  let at = ticket;
  for (let steps = 0; at !== first; steps++) {
    // Too long a queue to follow: as far as is known here, it moves.
    if (steps === MOST_TICKETS) return [];
    const prev = (tx.record(ticketAt(ref, at)).value as Ticket | undefined)?.prev ?? null;
    if (prev === null) break;
    const { group, owner } = (tx.record(ticketAt(ref, prev)).value ?? {}) as Partial<Ticket>;
    if (group !== undefined && owner !== undefined) runs.push(owner.run);
    at = prev;
  }
  return runs.length === 0 ? [] : [{ of: "all", runs }];
}

const isInTheWay = ({ mode }: Holder, { kind }: LockRef): boolean => kind === "semaphore" || mode === "exclusive";

/** What can continue by itself releases what it holds, and so others can continue. */
function dropLiving(stuck: Map<string, readonly Wait[]>): void {
  const isMet = ({ of, runs }: Need): boolean =>
    of === "all" ? runs.every((run) => !stuck.has(run)) : runs.some((run) => !stuck.has(run));
  for (let isChanged = true; isChanged; ) {
    isChanged = false;
    for (const [run, waits] of stuck)
      if (waits.length === 0 || waits.some(({ needs }) => needs.every(isMet))) {
        stuck.delete(run);
        isChanged = true;
      }
  }
}

/** A way from the run back to itself, through runs that are stuck. */
function circleFrom(run: string, stuck: ReadonlyMap<string, readonly Wait[]>): readonly DeadlockLink[] | undefined {
  const tried = new Set<string>();
  const follow = (from: string): readonly DeadlockLink[] | undefined => {
    for (const { shown, isChild, needs } of stuck.get(from) ?? [])
      for (const { runs } of needs)
        for (const to of runs) {
          if (!stuck.has(to)) continue;
          const link: DeadlockLink = { run: from, waitsFor: isChild ? null : shown, heldBy: to };
          if (to === run) return [link];
          if (tried.has(to)) continue;
          tried.add(to);
          const rest = follow(to);
          if (rest !== undefined) return [link, ...rest];
        }
    return undefined;
  };
  return follow(run);
}

/** Wakes one run of the circle that waits for a lock: it checks again, and its request fails. */
export function suspect(tx: Tx, circle: readonly DeadlockLink[]): void {
  const link = circle.find(({ waitsFor }) => waitsFor !== null);
  if (link === undefined) return;
  const record = tx.record(runAt(link.run));
  const value = runOf(record);
  const holds = (value.holds ?? []).map((hold) =>
    hold.fence === undefined && shownLocks(hold.refs) === link.waitsFor
      ? { ...hold, isSuspected: true as const }
      : hold,
  );
  record.write({ value: { ...value, holds } });
  wakeRun(tx, link.run);
}
