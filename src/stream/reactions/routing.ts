/**
 * Routing: one worker at a time follows the events of all streams for a reaction, and gives each to its target.
 *
 * The worker holds the record of the reaction. It reads events in the order that is safe to follow (`Store.follow`), computes their targets, and in
 * one commit adds them to the logs of the targets, makes these due, and moves the cursor on. So no event is routed twice or left out, whatever
 * crashes and in whatever order transactions commit (G12). An append costs nothing for it: it does not know who is interested.
 *
 * During a deploy, code with different lists of events may be at work. The record has the names of all of them, and only workers that know all of these
 * route: otherwise a worker with the older code would pass events by that only the newer code knows.
 *
 * The order of a stream is kept at each target; events of different streams are in the order in which they can be followed.
 */

import { type Held, wake } from "../../kernel/claim/claim.ts";
import type { Address, FollowedEntry, Put } from "../../kernel/contract.ts";
import type { Tx } from "../../kernel/decision.ts";
import type { Draft } from "../../kernel/draft.ts";
import type { Kernel } from "../../kernel/kernel.ts";
import type { Lease } from "../../kernel/lease.ts";
import { messageOf } from "../../kernel/log.ts";
import { type Clock, pause } from "../../kernel/ports.ts";
import type { StreamEvent } from "../event.ts";
import { toEvent } from "../reading.ts";
import { STREAMS } from "../stored.ts";
import { isWokenByNews } from "./decide.ts";
import type { ReactionRules } from "./definition.ts";
import {
  type DeadLetter,
  deadAt,
  REACTIONS,
  ROUTED,
  type Routed,
  type RouterValue,
  reactionAt,
  routerQueueOf,
  type TargetValue,
  targetAt,
  targetQueueOf,
} from "./stored.ts";

/** How many events of the store are looked at together. */
const PAGE = 400;
/** The slow poll for commits that this process was not notified of. */
const POLL_MS = 5_000;
/** After news that brought no event, one more look after this time: a transaction that was open may have held events back. */
const ONCE_MORE_MS = 50;
/** Commits of other processes lead to a look at most once in this time. */
const LOOK_MS = 5;
/** A cursor that has passed only events of others is stored after as many positions. */
const WORTH_STORING = 10_000;

const WOKEN = "woken";

/** Makes the record of a reaction, where there is none yet; and adds the names of its events. */
export async function ensureReaction(kernel: Kernel, { name, types, from }: ReactionRules): Promise<void> {
  const at = reactionAt(name);
  const names = [...types.keys()].toSorted();
  const [row] = await kernel.read([at]);
  const isNew = row == null || row.value === null;
  const cursor = isNew && from === "now" ? await endOf(kernel) : 0;
  if (!isNew) {
    const { on } = kernel.decode(at, row.value ?? "") as RouterValue;
    if (names.every((one) => on.includes(one))) return;
  }
  await kernel.transact(
    (tx) => {
      const record = tx.record(at);
      const value = record.value as RouterValue | undefined;
      if (value === undefined)
        record.write({
          value: { cursor, on: names } satisfies RouterValue,
          kind: routerQueueOf(name),
          dueMs: tx.nowMs,
        });
      else {
        const on = [...new Set([...value.on, ...names])].toSorted();
        // The worker that routes may not know them: it looks again.
        record.write({ value: { ...value, on }, wakes: record.wakes + 1 });
      }
    },
    [at],
  );
}

/** The position after which all events are new. Events that are committed after this was asked for are after it. */
async function endOf(kernel: Kernel): Promise<number> {
  for (let after = 0; ; ) {
    const page = await kernel.follow({ space: STREAMS, names: [], after, limit: 10_000 });
    after = page.upTo;
    if (!page.hasMore) return after;
  }
}

export class Router {
  readonly #kernel: Kernel;
  readonly #rules: ReactionRules;
  readonly #stopping: AbortSignal;

  constructor(kernel: Kernel, rules: ReactionRules, stopping: AbortSignal) {
    this.#kernel = kernel;
    this.#rules = rules;
    this.#stopping = stopping;
  }

  /** Routes events for as long as the lease is held and the worker runs. Returns the names of events that only other code knows, if that is why it ended. */
  async route(held: Held, lease: Lease): Promise<readonly string[]> {
    const news = new News();
    const unlisten = this.#kernel.listen((puts) => news.tell(puts, this.#rules.name));
    const stop = (): void => news.wake();
    this.#stopping.addEventListener("abort", stop);
    try {
      const unknown = await this.#routeUntilOver(held, lease, news);
      if (!lease.isOver) await restWhateverCame(held, (tx) => tx.nowMs);
      return unknown;
    } finally {
      unlisten();
      this.#stopping.removeEventListener("abort", stop);
    }
  }

  async #routeUntilOver(held: Held, lease: Lease, news: News): Promise<readonly string[]> {
    const { clock } = this.#kernel.ports;
    let at = await this.#look(held);
    // A commit that routes checks the record itself; where there is nothing to route, it is read after news.
    let isChecked = true;
    for (let waitMs = POLL_MS; !lease.isOver && !this.#stopping.aborted; ) {
      if (at.unknown.length > 0) return at.unknown;
      news.clear();
      const startedMs = clock.nowMs();
      const page = at.isPaused ? null : await this.#follow(at.cursor);
      if (page !== null) {
        if (page.entries.length > 0 || page.upTo - at.stored >= WORTH_STORING) {
          const isRouted = await this.#commit(held, at.stored, page.upTo, page.entries);
          at = isRouted ? { ...at, cursor: page.upTo, stored: page.upTo } : await this.#look(held);
          waitMs = POLL_MS;
          continue;
        }
        // Below the cursor: the store was put back in time, and the record with it.
        at = page.upTo < at.cursor ? await this.#look(held) : { ...at, cursor: page.upTo };
        if (page.hasMore) continue;
      }
      if (!isChecked) {
        isChecked = true;
        const [row] = await this.#kernel.read([held.at]);
        if (row?.wakes !== at.wakes) {
          at = await this.#look(held);
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
    return [];
  }

  /** What the record says: where routing continues, and whether an operator paused it. Whatever an operator does wakes the record. */
  #look(held: Held): Promise<Place> {
    return held.look(({ value, wakes }) => {
      const { cursor, on, pausedAtMs } = value as RouterValue;
      return { cursor, stored: cursor, isPaused: pausedAtMs !== undefined, unknown: this.#unknownIn(on), wakes };
    });
  }

  /** The names of these events that the code here does not have. */
  #unknownIn(on: readonly string[]): readonly string[] {
    return on.filter((name) => !this.#rules.types.has(name));
  }

  #follow(after: number) {
    return this.#kernel.follow({ space: STREAMS, names: [...this.#rules.types.keys()], after, limit: PAGE });
  }

  /** Gives the events to their targets. Returns false, with nothing written, if the cursor is not where it was. */
  async #commit(held: Held, from: number, upTo: number, entries: readonly FollowedEntry[]): Promise<boolean> {
    const routes = entries.map((entry) => this.#routeOf(entry));
    const records = recordsOf(this.#rules.name, routes);
    return held.commit((record, tx) => {
      const value = record.value as RouterValue;
      if (value.cursor !== from || value.pausedAtMs !== undefined) return false;
      if (this.#unknownIn(value.on).length > 0) return false;
      // Together, because the decision runs again for whatever it asks for one by one.
      tx.load(records);
      for (const route of routes) {
        if ("target" in route) routeTo(tx, this.#rules.name, route.target, route.entry);
        else if ("letter" in route) writeLetter(tx, this.#rules.name, route.letter);
      }
      // A reaction that routes is not what ends its processes.
      record.write({ value: { ...value, cursor: upTo }, tries: 1 });
      return true;
    });
  }

  #routeOf(entry: FollowedEntry): Route {
    try {
      const event = toEvent(this.#kernel, entry, entry, this.#rules.types);
      const target = event === undefined ? undefined : targetOf(this.#rules, event);
      return target === undefined ? {} : { target, entry };
    } catch (error) {
      const { key: stream, version } = entry;
      return { letter: { stream, version, message: `its target could not be computed: ${messageOf(error)}` } };
    }
  }
}

type Route =
  | { readonly target: string; readonly entry: FollowedEntry }
  | { readonly letter: Omit<DeadLetter, "atMs"> }
  | Record<string, never>;

/** The records that routes are written to. */
function recordsOf(reaction: string, routes: readonly Route[]): readonly Address[] {
  const records = new Map<string, Address>();
  for (const route of routes) {
    const at =
      "target" in route
        ? targetAt(reaction, route.target)
        : "letter" in route
          ? deadAt(reaction, route.letter.stream, route.letter.version)
          : undefined;
    if (at !== undefined) records.set(at.text, at);
  }
  return [...records.values()];
}

/** The target of an event; undefined if the reaction leaves it out. */
export function targetOf({ name, target }: ReactionRules, event: StreamEvent): string | undefined {
  const found: unknown = target === "stream" ? event.stream : target === "all" ? "all" : target(event);
  // Checked as every id is, so that a promise or a number is reported.
  return found === undefined ? undefined : targetAt(name, found as string).key;
}

/** Adds an event to the log of a target, and makes the target due unless something keeps it. */
export function routeTo(
  tx: Tx,
  reaction: string,
  target: string,
  { key: stream, version }: Pick<FollowedEntry, "key" | "version">,
): void {
  const at = targetAt(reaction, target);
  const record = tx.record(at);
  const routed: Routed = stream === target ? { version } : { stream, version };
  if (!record.exists)
    record.write({ value: { done: 0 } satisfies TargetValue, kind: targetQueueOf(reaction), dueMs: tx.nowMs });
  else if (
    isWokenByNews({
      value: record.value as TargetValue,
      routed: record.head,
      holder: record.holder,
      status: record.status,
      dueMs: record.dueMs,
    })
  )
    wake(tx, at);
  record.append(ROUTED, routed);
}

export function writeLetter(tx: Tx, reaction: string, letter: Omit<DeadLetter, "atMs">): void {
  const { stream, version } = letter;
  tx.record(deadAt(reaction, stream, version)).write({ value: { ...letter, atMs: tx.nowMs } satisfies DeadLetter });
}

/** Rests, also if a wake-up came meanwhile: the next worker that claims the record looks at everything. */
export async function restWhateverCame(
  held: Held,
  dueMs: (tx: Tx) => number | null,
  decide?: (record: Draft, tx: Tx) => void,
): Promise<void> {
  while ((await held.rest(dueMs, decide)) === "woken") await held.look(() => {});
}

/** Where routing stands. */
interface Place {
  /** Everything up to it was looked at. */
  readonly cursor: number;
  /** The same as the record has it; it may lag behind while only events of others pass. */
  readonly stored: number;
  readonly isPaused: boolean;
  /** Names of its events that only other code knows. */
  readonly unknown: readonly string[];
  /** How many wake-ups the record had. */
  readonly wakes: number;
}

/** What happened since the last look. */
class News {
  #wake: (() => void) | undefined;
  #hasNews = false;
  /** The record of the reaction may have been changed by an operator. */
  mayBeChanged = false;

  clear(): void {
    this.#hasNews = false;
    this.mayBeChanged = false;
  }

  /** `puts` is undefined for commits of other processes, which may be of anything. */
  tell(puts: readonly Put[] | undefined, reaction: string): void {
    const mayBeChanged = puts === undefined || puts.some(({ row }) => row.space === REACTIONS && row.key === reaction);
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
