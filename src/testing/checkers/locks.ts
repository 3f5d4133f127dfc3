/**
 * Checks the invariants of every lock, over all commits of a simulated database in order.
 *
 * If one commit has several decisions on one lock, only their combined effect is visible, so the checks hold for combined effects too.
 */

import type { Put } from "../../kernel/contract.ts";
import type { Holder, LockRef, LockValue, Mode, Ticket } from "../../lock/stored.ts";
import { lockOf } from "../../lock/stored.ts";
import { ENDED, type RunValue } from "../../workflow/stored.ts";
import type { Commit } from "../sim/database.ts";
import { BrokenPromiseError, type World } from "../sim/world.ts";

/**
 * Throws unless every lock had at most its permitted holders, in order of arrival, with increasing fences, no run left a lock behind, and no
 * free lock was withheld from a waiter (G7, G8, G9, G30).
 */
export function checkLocks(world: World): void {
  checkLockCommits(world.database.commits);
}

/** The same for a list of commits. */
export function checkLockCommits(commits: readonly Commit[]): void {
  const locks = new Map<string, Seen>();
  const tickets = new Map<string, Ticket>();
  const runs = new Map<string, RunSeen>();
  for (const { nowMs, puts } of commits) {
    const before = { locks: new Map(locks), tickets: new Map(tickets) };
    for (const { row } of puts) {
      const { space, key, value } = row;
      if (space === "run") {
        if (value === null) runs.delete(key);
        else runs.set(key, { status: row.status ?? "", value: JSON.parse(value) as RunValue });
      }
      if (!space.startsWith("ticket/")) continue;
      const ticket = value === null ? undefined : (JSON.parse(value) as Ticket);
      checkPlace(`${space} ${key}`, tickets.get(`${space} ${key}`), ticket, nowMs);
      if (ticket === undefined) tickets.delete(`${space} ${key}`);
      else tickets.set(`${space} ${key}`, ticket);
    }
    const checks = puts
      .filter(({ row }) => row.space.startsWith("lock/"))
      .map((put) => new Check(nowMs, put, before, { locks, tickets }));
    for (const check of checks) check.checkAlone();
    for (const check of checks) check.checkTogether();
    checkOwners(locks, tickets, runs);
    checkRuns(locks, runs);
  }
  // A lock that plain code left behind is freed when its lease ends; runs have no lease.
  for (const [lock, { holders }] of locks)
    for (const { owner, ticket } of holders)
      if (owner !== undefined) broken(lock, `${ticket} of run ${owner.run} was never released`);
}

function broken(lock: string, law: string): never {
  throw new BrokenPromiseError(`${lock}: ${law}`);
}

/** A lock after a commit. */
interface Seen extends Pick<LockValue, "permits" | "holders"> {
  readonly topFence: number;
  readonly line: readonly string[];
}

interface RunSeen {
  readonly status: string;
  readonly value: RunValue;
}

/** All locks and tickets before or after a commit. */
interface Snapshot {
  readonly locks: Map<string, Seen>;
  readonly tickets: Map<string, Ticket>;
}

/** The rules are implemented again here, because the checker must not rely on those of the locks. */
const isAlive = ({ untilMs }: { readonly untilMs: number | null }, nowMs: number): boolean =>
  untilMs === null || nowMs < untilMs;

const isAvailable = ({ permits, holders }: Pick<LockValue, "permits" | "holders">, mode: Mode): boolean =>
  holders.length === 0 ||
  (mode === "shared" &&
    holders.every((one) => one.mode === "shared") &&
    holders.length < (permits ?? Number.POSITIVE_INFINITY));

const UNUSED: Seen = { topFence: 0, permits: null, holders: [], line: [] };

const nameOf = ({ kind, name }: LockRef): string => `${kind} ${name}`;

/** The key of this lock's ticket in `tickets`. */
const ticketOf = (lock: string, ticket: string): string => `ticket/${lock.replace(" ", "/")} ${ticket}`;

/** One lock that a commit wrote. */
class Check {
  readonly #lock: string;
  readonly #nowMs: number;
  readonly #value: LockValue | null;
  readonly #fence: number;
  readonly #seen: Seen;
  readonly #before: Snapshot;
  readonly #now: Snapshot;

  constructor(nowMs: number, { row }: Put, before: Snapshot, now: Snapshot) {
    this.#lock = nameOf({ kind: row.space.slice("lock/".length) as LockRef["kind"], name: row.key });
    this.#nowMs = nowMs;
    this.#value = row.value === null ? null : lockOf(JSON.parse(row.value));
    this.#fence = row.fence;
    this.#seen = before.locks.get(this.#lock) ?? UNUSED;
    this.#before = before;
    this.#now = now;
  }

  /** Checks this lock alone. */
  checkAlone(): void {
    const holders = this.#value?.holders ?? [];
    const line = this.#line();
    this.#capacity(holders);
    this.#order(holders, line);
    this.#leases(holders);
    const topFence = this.#fences(holders);
    this.#now.locks.set(this.#lock, { topFence, permits: this.#value?.permits ?? null, holders, line });
  }

  /** Checks this lock together with those of the same group, once all of them are known. */
  checkTogether(): void {
    const { holders, line } = this.#now.locks.get(this.#lock) ?? UNUSED;
    this.#together(holders, line);
    this.#handOff(holders, line);
  }

  #must(condition: boolean, law: string): void {
    if (!condition) broken(this.#lock, law);
  }

  #ticket(ticket: string): Ticket | undefined {
    return this.#now.tickets.get(ticketOf(this.#lock, ticket));
  }

  /** Follows the links of the line; its length and its end must be as recorded. */
  #line(): readonly string[] {
    const value = this.#value;
    if (value === null) return [];
    const line: string[] = [];
    for (let at = value.first; at !== null; ) {
      const ticket = this.#ticket(at);
      if (ticket === undefined) return broken(this.#lock, `the line leads to ${at}, which is not there`);
      line.push(at);
      this.#must(line.length <= value.waiting, "the line is longer than it says");
      at = ticket.next;
    }
    this.#must(line.length === value.waiting, `${line.length} are in line, and it says ${value.waiting}`);
    this.#must((line.at(-1) ?? null) === value.last, "the line does not end where it says");
    return line;
  }

  #capacity(holders: readonly Holder[]): void {
    const alive = holders.filter((holder) => isAlive(holder, this.#nowMs));
    const exclusive = alive.filter(({ mode }) => mode === "exclusive").length;
    this.#must(exclusive === 0 || alive.length === 1, `${alive.length} hold it, ${exclusive} of them alone`);
    const permits = this.#value?.permits ?? null;
    const isMore = alive.length > this.#seen.holders.length;
    this.#must(permits === null || alive.length <= permits || !isMore, `${alive.length} hold it, of ${permits}`);
  }

  /** Waiters keep their order, and no waiter acquires the lock before an earlier one that still waits. */
  #order(holders: readonly Holder[], line: readonly string[]): void {
    const old = this.#seen.line;
    const left = old.filter((ticket) => line.includes(ticket));
    this.#must(
      left.every((ticket, index) => line[index] === ticket),
      "the order of the line changed",
    );
    for (const holder of holders) {
      const { ticket } = holder;
      if (this.#seen.holders.some((one) => one.ticket === ticket)) continue;
      const place = old.indexOf(ticket);
      const passed = (place < 0 ? old : old.slice(0, place)).filter((one) => line.includes(one));
      this.#must(passed.length === 0, `${ticket} acquired it before ${passed.length} who came first`);
      // A free lock is acquired with the last known time, which may be old: such a lease harms no other holder.
      this.#must(place < 0 || isAlive(holder, this.#nowMs), `${ticket} got a lease that was over`);
      const waited = this.#before.tickets.get(ticketOf(this.#lock, ticket));
      this.#must(
        waited === undefined || isAlive(waited, this.#nowMs),
        `${ticket} acquired it although its own lease was over`,
      );
    }
  }

  /** Whatever the clock does, no lease is shortened; and a lease that has ended while others wait is not renewed. */
  #leases(holders: readonly Holder[]): void {
    for (const { ticket, untilMs } of holders) {
      const was = this.#seen.holders.find((one) => one.ticket === ticket);
      if (was === undefined || was.untilMs === null || untilMs === null) continue;
      this.#must(untilMs >= was.untilMs, `the lease of ${ticket} was cut short`);
      this.#must(
        untilMs === was.untilMs || isAlive(was, this.#nowMs) || this.#seen.line.length === 0,
        `the lease of ${ticket} was over, and came back while ${this.#seen.line.length} waited`,
      );
    }
  }

  /** Every grant and every takeover has a higher fence than all before. */
  #fences(holders: readonly Holder[]): number {
    let top = this.#seen.topFence;
    const news = holders.filter((holder) => !this.#had(holder));
    for (const { ticket, fence } of news.sort((a, b) => a.fence - b.fence)) {
      this.#must(fence > top, `${ticket} has fence ${fence}, and ${top} was used before`);
      top = fence;
    }
    this.#must(this.#fence >= top, "the record's fence is below its holders'");
    return Math.max(top, this.#fence);
  }

  /** A ticket for several locks acquires all of them in one commit, waits for all of them, and loses them together. */
  #together(holders: readonly Holder[], line: readonly string[]): void {
    const { locks } = this.#now;
    for (const { ticket, fence, group = [] } of holders.filter((holder) => !this.#had(holder)))
      for (const other of group.map(nameOf))
        this.#must(
          locks.get(other)?.holders.some((one) => one.ticket === ticket && one.fence === fence) === true,
          `${ticket} got it under ${fence}, and not ${other}`,
        );
    for (const { ticket, untilMs, group = [] } of this.#seen.holders) {
      // A holder whose lease has ended may be removed where there is a waiter, and stay where there is none.
      if (holders.some((one) => one.ticket === ticket) || !isAlive({ untilMs }, this.#nowMs)) continue;
      for (const other of group.map(nameOf))
        this.#must(
          locks.get(other)?.holders.some((one) => one.ticket === ticket) !== true,
          `${ticket} lost it, and not ${other}`,
        );
    }
    for (const ticket of new Set([...line, ...this.#seen.line])) {
      const isWaiting = line.includes(ticket);
      const { group = [] } = this.#ticket(ticket) ?? this.#before.tickets.get(ticketOf(this.#lock, ticket)) ?? {};
      for (const other of group.map(nameOf))
        this.#must(
          (locks.get(other)?.line.includes(ticket) === true) === isWaiting,
          `${ticket} ${isWaiting ? "waits" : "does not wait"} for it, other than for ${other}`,
        );
    }
  }

  /** Whether the holder had the lock before, with the same fence. */
  #had({ ticket, fence }: Holder): boolean {
    return this.#seen.holders.some((one) => one.ticket === ticket && one.fence === fence);
  }

  /** The commit that frees the lock, or finds a lease ended, grants it to the first in line. */
  #handOff(holders: readonly Holder[], line: readonly string[]): void {
    const [first] = line;
    const waiter = first === undefined ? undefined : this.#ticket(first);
    // A new fence for a run that was taken over does not concern the waiters.
    const isTakeOver = holders.some(({ ticket, fence }) =>
      this.#seen.holders.some((one) => one.ticket === ticket && one.fence !== fence),
    );
    if (waiter === undefined || isTakeOver) return;
    for (const holder of holders)
      this.#must(isAlive(holder, this.#nowMs), `${holder.ticket} holds it after its lease, and ${line.length} wait`);
    const isFree = (waiter.group ?? []).every((ref) => {
      const other = this.#now.locks.get(nameOf(ref)) ?? UNUSED;
      return other.line[0] === first && isAvailable(other, waiter.mode);
    });
    const permits = this.#value?.permits ?? null;
    this.#must(
      !(isAlive(waiter, this.#nowMs) && isFree && isAvailable({ permits, holders }, waiter.mode)),
      `${first} waits for what is free`,
    );
  }
}

/** A waiter that renews its lease in time keeps its place; a lease is never shortened, nor renewed after its end. */
function checkPlace(name: string, was: Ticket | undefined, is: Ticket | undefined, nowMs: number): void {
  if (was === undefined || is === undefined || was.untilMs === null || is.untilMs === null) return;
  if (is.untilMs < was.untilMs) broken(name, "its place in line was cut short");
  if (is.untilMs > was.untilMs && !isAlive(was, nowMs)) broken(name, "its place in line was over, and came back");
}

/** A run that holds or waits for a lock has not ended, and its record lists the lock. */
function checkOwners(
  locks: ReadonlyMap<string, Seen>,
  tickets: ReadonlyMap<string, Ticket>,
  runs: ReadonlyMap<string, RunSeen>,
): void {
  for (const [lock, { holders, line }] of locks) {
    const parties = [
      ...holders.map(({ owner, ticket, fence }) => ({ owner, ticket, fence: fence as number | undefined })),
      ...line.map((ticket) => ({ owner: tickets.get(ticketOf(lock, ticket))?.owner, ticket, fence: undefined })),
    ];
    for (const { owner, ticket, fence } of parties) {
      if (owner === undefined) continue;
      const run = runs.get(owner.run) ?? broken(lock, `${ticket} is of run ${owner.run}, which is not there`);
      if (ENDED.has(run.status)) broken(lock, `run ${owner.run} is ${run.status} and did not release it`);
      const hold = run.value.holds?.find((one) => one.ticket === ticket);
      if (hold === undefined) throw broken(lock, `run ${owner.run} does not know of ${ticket}`);
      if (hold.fence !== fence)
        broken(lock, `run ${owner.run} knows ${ticket} under ${hold.fence}, and it is ${fence}`);
    }
  }
}

/** Every lock that a run's record lists as held or waited for has the run as its holder or waiter. */
function checkRuns(locks: ReadonlyMap<string, Seen>, runs: ReadonlyMap<string, RunSeen>): void {
  for (const [run, { value }] of runs)
    for (const { refs, ticket, fence } of value.holds ?? [])
      for (const ref of refs) {
        const { holders, line } = locks.get(nameOf(ref)) ?? UNUSED;
        const isSo =
          fence === undefined
            ? line.includes(ticket)
            : holders.some((holder) => holder.ticket === ticket && holder.fence === fence);
        if (!isSo)
          broken(
            nameOf(ref),
            `run ${run} lists it as ${fence === undefined ? "waited for" : "held"}, and the lock does not`,
          );
      }
}
