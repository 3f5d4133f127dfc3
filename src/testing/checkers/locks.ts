/**
 * Checks over everything a simulated database committed, in order: what must hold of every lock, whoever took it.
 *
 * Of several decisions on one lock in one commit only the sum is seen, so the checks are such that they hold of sums too.
 */

import type { Put } from "../../kernel/contract.ts";
import type { Holder, LockRef, LockValue, Mode, Ticket } from "../../lock/records.ts";
import { lockOf } from "../../lock/stored.ts";
import type { RunValue } from "../../workflow/run.ts";
import { ENDED } from "../../workflow/words.ts";
import type { Commit } from "../sim/database.ts";
import { BrokenPromiseError, type World } from "../sim/world.ts";

/**
 * Fails unless every lock had as many holders as fit, in the order of arrival, under fences that rose, none that a run left behind, and none
 * that was kept from those who waited (G7, G8, G9, G30).
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
    for (const check of checks) check.look();
    for (const check of checks) check.judge();
    checkOwners(locks, tickets, runs);
    checkRuns(locks, runs);
  }
  // What plain code left behind is freed when its lease ends; runs have none.
  for (const [lock, { holders }] of locks)
    for (const { owner, ticket } of holders)
      if (owner !== undefined) broken(lock, `${ticket} of run ${owner.run} was never given back`);
}

function broken(lock: string, law: string): never {
  throw new BrokenPromiseError(`${lock}: ${law}`);
}

/** What is known of a lock after a commit. */
interface Seen extends Pick<LockValue, "permits" | "holders"> {
  readonly topFence: number;
  readonly line: readonly string[];
}

interface RunSeen {
  readonly status: string;
  readonly value: RunValue;
}

/** All locks and tickets, as they are before or after a commit. */
interface Scene {
  readonly locks: Map<string, Seen>;
  readonly tickets: Map<string, Ticket>;
}

/** The rules once more, because those of the locks are what is in question. */
const isAlive = ({ untilMs }: { readonly untilMs: number | null }, nowMs: number): boolean =>
  untilMs === null || nowMs < untilMs;

const hasRoom = ({ permits, holders }: Pick<LockValue, "permits" | "holders">, mode: Mode): boolean =>
  holders.length === 0 ||
  (mode === "shared" &&
    holders.every((one) => one.mode === "shared") &&
    holders.length < (permits ?? Number.POSITIVE_INFINITY));

const UNUSED: Seen = { topFence: 0, permits: null, holders: [], line: [] };

const nameOf = ({ kind, name }: LockRef): string => `${kind} ${name}`;

/** Where the ticket of this lock is among all. */
const ticketOf = (lock: string, ticket: string): string => `ticket/${lock.replace(" ", "/")} ${ticket}`;

/** One lock that a commit wrote. */
class Check {
  readonly #lock: string;
  readonly #nowMs: number;
  readonly #value: LockValue | null;
  readonly #fence: number;
  readonly #seen: Seen;
  readonly #before: Scene;
  readonly #now: Scene;

  constructor(nowMs: number, { row }: Put, before: Scene, now: Scene) {
    this.#lock = nameOf({ kind: row.space.slice("lock/".length) as LockRef["kind"], name: row.key });
    this.#nowMs = nowMs;
    this.#value = row.value === null ? null : lockOf(JSON.parse(row.value));
    this.#fence = row.fence;
    this.#seen = before.locks.get(this.#lock) ?? UNUSED;
    this.#before = before;
    this.#now = now;
  }

  /** What concerns this lock alone. */
  look(): void {
    const holders = this.#value?.holders ?? [];
    const line = this.#line();
    this.#capacity(holders);
    this.#order(holders, line);
    this.#leases(holders);
    const topFence = this.#fences(holders);
    this.#now.locks.set(this.#lock, { topFence, permits: this.#value?.permits ?? null, holders, line });
  }

  /** What concerns others that it is had together with, once all of them are known. */
  judge(): void {
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

  /** The line as it is linked; it must be as long as it says, and end where it says. */
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

  /** Who waits keeps the order, and nobody has it before those who came before and still wait. */
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
      this.#must(passed.length === 0, `${ticket} had it before ${passed.length} who came first`);
      // A free lock is taken without asking for the clock, and what was heard of it may be old by then: such a lease harms nobody.
      this.#must(place < 0 || isAlive(holder, this.#nowMs), `${ticket} was given a lease that was over`);
      const waited = this.#before.tickets.get(ticketOf(this.#lock, ticket));
      this.#must(
        waited === undefined || isAlive(waited, this.#nowMs),
        `${ticket} had it although its own lease was over`,
      );
    }
  }

  /** Whatever the clock does, nobody's lease ends sooner than was said; and one that is over, while others wait, stays so. */
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

  /** Every grant, and every take-over, is above all before. */
  #fences(holders: readonly Holder[]): number {
    let top = this.#seen.topFence;
    const news = holders.filter((holder) => !this.#had(holder));
    for (const { ticket, fence } of news.sort((a, b) => a.fence - b.fence)) {
      this.#must(fence > top, `${ticket} has fence ${fence}, and ${top} was given out before`);
      top = fence;
    }
    this.#must(this.#fence >= top, "the record's fence is below its holders'");
    return Math.max(top, this.#fence);
  }

  /** Whoever wants several gets all of them at once, waits for all of them, and loses them together. */
  #together(holders: readonly Holder[], line: readonly string[]): void {
    const { locks } = this.#now;
    for (const { ticket, fence, group = [] } of holders.filter((holder) => !this.#had(holder)))
      for (const other of group.map(nameOf))
        this.#must(
          locks.get(other)?.holders.some((one) => one.ticket === ticket && one.fence === fence) === true,
          `${ticket} got it under ${fence}, and not ${other}`,
        );
    for (const { ticket, untilMs, group = [] } of this.#seen.holders) {
      // One whose lease is over may be gone from where somebody waits, and be there where nobody does.
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

  /** Whether it was the same holder's before, under the same fence. */
  #had({ ticket, fence }: Holder): boolean {
    return this.#seen.holders.some((one) => one.ticket === ticket && one.fence === fence);
  }

  /** The commit that makes room, or finds somebody dead, gives the room to the first in line. */
  #handOff(holders: readonly Holder[], line: readonly string[]): void {
    const [first] = line;
    const waiter = first === undefined ? undefined : this.#ticket(first);
    // A new fence for one who is taken over is about nobody else.
    const isTakeOver = holders.some(({ ticket, fence }) =>
      this.#seen.holders.some((one) => one.ticket === ticket && one.fence !== fence),
    );
    if (waiter === undefined || isTakeOver) return;
    for (const holder of holders)
      this.#must(isAlive(holder, this.#nowMs), `${holder.ticket} holds on after its lease, and ${line.length} wait`);
    const isFree = (waiter.group ?? []).every((ref) => {
      const other = this.#now.locks.get(nameOf(ref)) ?? UNUSED;
      return other.line[0] === first && hasRoom(other, waiter.mode);
    });
    const permits = this.#value?.permits ?? null;
    this.#must(
      !(isAlive(waiter, this.#nowMs) && isFree && hasRoom({ permits, holders }, waiter.mode)),
      `${first} waits for what is free`,
    );
  }
}

/** Whoever says in time that it is alive keeps its place for longer, and never for less; whoever is late does not. */
function checkPlace(name: string, was: Ticket | undefined, is: Ticket | undefined, nowMs: number): void {
  if (was === undefined || is === undefined || was.untilMs === null || is.untilMs === null) return;
  if (is.untilMs < was.untilMs) broken(name, "its place in line was cut short");
  if (is.untilMs > was.untilMs && !isAlive(was, nowMs)) broken(name, "its place in line was over, and came back");
}

/** A run that holds or waits is alive and says so itself. */
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
      if (ENDED.has(run.status)) broken(lock, `run ${owner.run} is ${run.status} and did not give it back`);
      const hold = run.value.holds?.find((one) => one.ticket === ticket);
      if (hold === undefined) throw broken(lock, `run ${owner.run} does not know of ${ticket}`);
      if (hold.fence !== fence)
        broken(lock, `run ${owner.run} knows ${ticket} under ${hold.fence}, and it is ${fence}`);
    }
  }
}

/** What a run says that it holds or waits for is its, in every one of the locks. */
function checkRuns(locks: ReadonlyMap<string, Seen>, runs: ReadonlyMap<string, RunSeen>): void {
  for (const [run, { value }] of runs)
    for (const { refs, ticket, fence } of value.holds ?? [])
      for (const ref of refs) {
        const { holders, line } = locks.get(nameOf(ref)) ?? UNUSED;
        const isSo =
          fence === undefined
            ? line.includes(ticket)
            : holders.some((holder) => holder.ticket === ticket && holder.fence === fence);
        if (!isSo) broken(nameOf(ref), `run ${run} believes to ${fence === undefined ? "wait for" : "hold"} it`);
      }
}
