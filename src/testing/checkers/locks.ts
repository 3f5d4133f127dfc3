/**
 * Checks over everything a simulated database committed, in order: what must hold of every lock, whoever took it.
 *
 * Of several decisions on one lock in one commit only the sum is seen, so the checks are such that they hold of sums too.
 */

import type { Put, Row } from "../../kernel/contract.ts";
import type { Holder, LockValue, Ticket } from "../../lock/records.ts";
import type { RunValue } from "../../workflow/run.ts";
import { ENDED } from "../../workflow/words.ts";
import { BrokenPromiseError, type World } from "../sim/world.ts";

/** Fails unless every lock had as many holders as fit, in the order of arrival, under fences that rose, and none that a run left behind (G7, G8, G9, G30). */
export function checkLocks(world: World): void {
  const locks = new Map<string, Seen>();
  const tickets = new Map<string, Ticket>();
  const runs = new Map<string, Row>();
  for (const { nowMs, puts } of world.database.commits) {
    const before = new Map(tickets);
    for (const { row } of puts) {
      if (row.space === "run") runs.set(row.key, row);
      if (!row.space.startsWith("ticket/")) continue;
      const name = `${row.space} ${row.key}`;
      if (row.value === null) tickets.delete(name);
      else tickets.set(name, JSON.parse(row.value) as Ticket);
    }
    for (const put of puts) {
      if (!put.row.space.startsWith("lock/")) continue;
      const lock = `${put.row.space.slice("lock/".length)} ${put.row.key}`;
      const seen = locks.get(lock) ?? { topFence: 0, holders: [], line: [] };
      locks.set(lock, new Check(lock, nowMs, put, seen, before, tickets).run());
    }
    for (const [lock, { holders, line }] of locks) checkOwners(lock, holders, line, tickets, runs);
  }
  // What plain code left behind is freed when its lease ends; runs have none.
  for (const [lock, { holders }] of locks)
    for (const { owner, ticket } of holders)
      if (owner !== undefined) broken(lock, `${ticket} of run ${owner.run} was never given back`);
}

function broken(lock: string, law: string): never {
  throw new BrokenPromiseError(`${lock}: ${law}`);
}

interface Seen {
  readonly topFence: number;
  readonly holders: readonly Holder[];
  readonly line: readonly string[];
}

class Check {
  readonly #lock: string;
  readonly #nowMs: number;
  readonly #value: LockValue | null;
  readonly #fence: number;
  readonly #seen: Seen;
  readonly #before: ReadonlyMap<string, Ticket>;
  readonly #now: ReadonlyMap<string, Ticket>;

  constructor(
    lock: string,
    nowMs: number,
    { row }: Put,
    seen: Seen,
    before: ReadonlyMap<string, Ticket>,
    now: ReadonlyMap<string, Ticket>,
  ) {
    this.#lock = lock;
    this.#nowMs = nowMs;
    this.#value = row.value === null ? null : (JSON.parse(row.value) as LockValue);
    this.#fence = row.fence;
    this.#seen = seen;
    this.#before = before;
    this.#now = now;
  }

  run(): Seen {
    const holders = this.#value?.holders ?? [];
    const line = this.#line();
    this.#capacity(holders);
    this.#order(holders, line);
    const topFence = this.#fences(holders);
    return { topFence, holders, line };
  }

  #must(condition: boolean, law: string): void {
    if (!condition) broken(this.#lock, law);
  }

  #key(ticket: string): string {
    const space = this.#lock.indexOf(" ");
    return `ticket/${this.#lock.slice(0, space)}/${this.#lock.slice(space + 1)} ${ticket}`;
  }

  /** The line as it is linked; it must be as long as it says, and end where it says. */
  #line(): readonly string[] {
    const value = this.#value;
    if (value === null) return [];
    const line: string[] = [];
    for (let at = value.first; at !== null; ) {
      const ticket: Ticket | undefined = this.#now.get(this.#key(at));
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
    const alive = holders.filter(({ untilMs }) => untilMs === null || this.#nowMs < untilMs);
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
    for (const { ticket, untilMs } of holders) {
      if (this.#seen.holders.some((one) => one.ticket === ticket)) continue;
      const place = old.indexOf(ticket);
      const passed = (place < 0 ? old : old.slice(0, place)).filter((one) => line.includes(one));
      this.#must(passed.length === 0, `${ticket} had it before ${passed.length} who came first`);
      this.#must(untilMs === null || this.#nowMs < untilMs, `${ticket} was given a lease that was over`);
      const waited = this.#before.get(this.#key(ticket))?.untilMs ?? null;
      this.#must(waited === null || this.#nowMs < waited, `${ticket} had it although its own lease was over`);
    }
  }

  /** Every grant, and every take-over, is above all before. */
  #fences(holders: readonly Holder[]): number {
    let top = this.#seen.topFence;
    const news = holders.filter(
      ({ ticket, fence }) => !this.#seen.holders.some((one) => one.ticket === ticket && one.fence === fence),
    );
    for (const { ticket, fence } of [...news].sort((a, b) => a.fence - b.fence)) {
      this.#must(fence > top, `${ticket} has fence ${fence}, and ${top} was given out before`);
      top = fence;
    }
    this.#must(this.#fence >= top, "the record's fence is below its holders'");
    return Math.max(top, this.#fence);
  }
}

/** A run that holds or waits is alive and says so itself. */
function checkOwners(
  lock: string,
  holders: readonly Holder[],
  line: readonly string[],
  tickets: ReadonlyMap<string, Ticket>,
  runs: ReadonlyMap<string, Row>,
): void {
  const space = lock.indexOf(" ");
  const key = `ticket/${lock.slice(0, space)}/${lock.slice(space + 1)}`;
  const parties = [
    ...holders.map(({ owner, ticket, fence }) => ({ owner, ticket, fence: fence as number | undefined })),
    ...line.map((ticket) => ({ owner: tickets.get(`${key} ${ticket}`)?.owner, ticket, fence: undefined })),
  ];
  for (const { owner, ticket, fence } of parties) {
    if (owner === undefined) continue;
    const run = runs.get(owner.run);
    if (run === undefined || run.value === null)
      throw broken(lock, `${ticket} is of run ${owner.run}, which is not there`);
    if (ENDED.has(run.status ?? "")) broken(lock, `run ${owner.run} is ${run.status} and did not give it back`);
    const hold = (JSON.parse(run.value) as RunValue).holds?.find((one) => one.ticket === ticket);
    if (hold === undefined) broken(lock, `run ${owner.run} does not know of ${ticket}`);
    if (hold.fence !== fence) broken(lock, `run ${owner.run} knows ${ticket} under ${hold.fence}, and it is ${fence}`);
  }
}
