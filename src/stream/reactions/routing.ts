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
 * The commit that routes events also claims their targets for this process, as far as it has places for them and nothing else is to be done there: the
 * work begins with the events that were just read. Other targets are due, for any process.
 *
 * The order of a stream is kept at each target; events of different streams are in the order in which they can be followed.
 *
 * A reaction that begins with the first event begins with those that were removed from the store: stream by stream, from the archive. From the moment
 * that its record is there, no events that it has not routed are removed (`closing/needs.ts`), so none is left out in between.
 */

import { claim, Held, wake } from "../../kernel/claim/claim.ts";
import type { Address, FollowedEntry, FollowPage, Row } from "../../kernel/contract.ts";
import { refusePromise, runPure, type Tx } from "../../kernel/decision.ts";
import type { Draft } from "../../kernel/draft.ts";
import type { Kernel } from "../../kernel/kernel.ts";
import type { Lease } from "../../kernel/lease.ts";
import { type Log, messageOf } from "../../kernel/log.ts";
import type { Ports } from "../../kernel/ports.ts";
import { KeyUnavailableError } from "../../kernel/seal/errors.ts";
import { withFrames } from "../../kernel/stack.ts";
import { archivedPage, isSameProgress } from "../closing/entries.ts";
import { EventGoneError, EventShapeError } from "../errors.ts";
import type { StreamEvent } from "../event.ts";
import { follow, PAGE, type Place, restWhateverCame } from "../following.ts";
import { lostIn } from "../lost.ts";
import { type OpenEvent, toEvents } from "../reading.ts";
import { STREAMS } from "../stored.ts";
import {
  decideClaimHere,
  decidePage,
  isAside,
  isWokenByNews,
  type TargetState,
  withAside,
  withCursor,
} from "./decide.ts";
import type { ReactionRules } from "./definition.ts";
import {
  type ArchivedProgress,
  type DeadLetter,
  deadAt,
  ROUTED,
  type Routed,
  type RouterValue,
  reactionAt,
  routerQueueOf,
  type TargetValue,
  targetAt,
  targetQueueOf,
  withAnyTarget,
} from "./stored.ts";

/** Makes the record of a reaction, where there is none yet; and adds the names of its events. */
export async function ensureReaction(kernel: Kernel, { name, types, from, target }: ReactionRules): Promise<void> {
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
          value: {
            cursor,
            on: names,
            ...(target === "stream" ? { targets: target } : {}),
            ...(from === "beginning" ? { archived: { after: null } } : {}),
          } satisfies RouterValue,
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
export async function endOf(kernel: Kernel): Promise<number> {
  for (let after = 0; ; ) {
    const page = await kernel.follow({ space: STREAMS, names: [], after, limit: 10_000 });
    after = page.upTo;
    if (!page.hasMore) return after;
  }
}

/** Events of a page with more characters are read again when their turn has come. */
const MOST_PASSED_ON = 256 * 1024;
/** How many events are routed together. Many where many wait, because each page is a read and a commit, one after the other. */
const PAGES = { least: PAGE, most: 4 * PAGE, mostCharacters: MOST_PASSED_ON };

const MAX_MESSAGE = 2000;

const NONE: ReadonlySet<string> = new Set();

/** Thrown where this process cannot read an event; another one may. */
class Unroutable extends Error {}

/** Where this process works on targets. */
export interface TargetPlaces {
  readonly by: string;
  readonly leaseMs: number;
  /** Keeps up to `count` places. Returns how many: `release` as many afterwards. */
  reserve(count: number): number;
  release(count: number): void;
  /** Works on a target that was claimed. `events` is what is to be handled; undefined if its log has to be read. */
  begin(held: Held, safeUntilMs: number, events: readonly FollowedEntry[] | undefined): void;
}

/** A target that was claimed by the commit that routed events to it. */
interface ClaimedTarget {
  readonly at: Address;
  readonly row: Row;
  readonly events: readonly FollowedEntry[] | undefined;
}

export class Router {
  readonly #kernel: Kernel;
  readonly #rules: ReactionRules;
  readonly #stopping: AbortSignal;
  readonly #places: TargetPlaces;
  readonly #log: Log | undefined;
  #limit = PAGE;

  constructor(kernel: Kernel, rules: ReactionRules, stopping: AbortSignal, places: TargetPlaces, log: Log | undefined) {
    this.#kernel = kernel;
    this.#rules = rules;
    this.#stopping = stopping;
    this.#places = places;
    this.#log = log;
  }

  /** Routes events for as long as the lease is held and the worker runs. Returns the names of events that only other code knows, if that is why it ended. */
  async route(held: Held, lease: Lease): Promise<readonly string[]> {
    let unknown: readonly string[] = [];
    await follow(this.#kernel, held, lease, this.#stopping, {
      names: [...this.#rules.types.keys()],
      limit: () => this.#limit,
      look: async () => {
        for (;;) {
          const place = await this.#look(held);
          ({ unknown } = place);
          if (unknown.length > 0) return undefined;
          if (place.archived === undefined || place.isPaused || lease.isOver || this.#stopping.aborted) return place;
          // Events that were removed are routed first.
          await this.#routeArchived(held, place.archived);
        }
      },
      commit: (from, page) => this.#commit(held, from, page),
    });
    if (!lease.isOver) await restWhateverCame(held, (tx) => tx.nowMs);
    return unknown;
  }

  /** What the record says: where routing continues, and whether an operator paused it. Whatever an operator does wakes the record. */
  #look(held: Held): Promise<RouterPlace> {
    return held.look(({ value, wakes }) => {
      const { cursor, on, pausedAtMs, archived } = value as RouterValue;
      return { cursor, isPaused: pausedAtMs !== undefined, unknown: this.#unknownIn(on), wakes, archived };
    });
  }

  /** Routes a page of events that were removed before the reaction began. Throws `events_archived` where they cannot be read here. */
  async #routeArchived(held: Held, from: ArchivedProgress): Promise<void> {
    const page = await archivedPage(this.#kernel, from, new Set(this.#rules.types.keys()));
    await this.#commitArchived(held, from, page?.next, page?.entries ?? []);
  }

  async #commitArchived(
    held: Held,
    from: ArchivedProgress,
    to: ArchivedProgress | undefined,
    entries: readonly FollowedEntry[],
  ): Promise<void> {
    const routed = await this.#routesOf(held, entries);
    const written = await held.commit((record, tx) => {
      const { archived, ...value } = this.#routed(record.value as RouterValue);
      if (!isSameProgress(archived, from) || value.pausedAtMs !== undefined || this.#unknownIn(value.on).length > 0)
        return [];
      const routes = this.#write(tx, value, routed);
      record.write({ value: to === undefined ? value : { ...value, archived: to }, tries: 1 });
      return routes;
    });
    this.#logLetters(written);
  }

  /** No caller receives what becomes of an event that has no target. */
  #logLetters(written: readonly Route[]): void {
    for (const route of written)
      if ("letter" in route)
        this.#log?.error(`an event of reaction "${this.#rules.name}" became a dead letter: ${route.letter.message}`);
  }

  /** What is true of a reaction after this code has routed events. */
  #routed({ failure: _, ...value }: RouterValue): RouterValue {
    return this.#rules.target === "stream" ? value : withAnyTarget(value);
  }

  /** Returns what was written. The same decision claims the targets in `claimed`. */
  #write(tx: Tx, value: RouterValue, all: readonly Route[], claimed: ReadonlySet<string> = NONE): readonly Route[] {
    // Those that were put aside while this worker was about to route them are dead letters, and nothing else.
    const routes = value.aside === undefined ? all : all.filter((route) => !isRouteAside(value, route));
    // Together, because the decision runs again for whatever it asks for one by one.
    tx.load(recordsOf(this.#rules.name, routes));
    for (const route of routes) {
      if ("target" in route)
        routeTo(tx, this.#rules.name, route.target, route.entry, { isClaimed: claimed.has(route.target) });
      else if ("letter" in route) writeLetter(tx, this.#rules.name, route.letter);
    }
    return routes;
  }

  /** The names of these events that the code here does not have. */
  #unknownIn(on: readonly string[]): readonly string[] {
    return on.filter((name) => !this.#rules.types.has(name));
  }

  /** Gives the events to their targets; those that the store has lost become dead letters. Returns false, with nothing written, if the cursor is not where it was. */
  async #commit(held: Held, from: number, page: FollowPage): Promise<boolean> {
    const { entries, upTo } = page;
    const routes = [...(await this.#routesOf(held, entries))];
    for (const { key: stream, version } of await lostIn(this.#kernel, page)) {
      const { message } = new EventGoneError(stream, version);
      routes.push({ letter: { stream, version, message: `${message}: it may have been one of this reaction` } });
    }
    let written: readonly Route[] = [];
    const isCommitted = await this.#claiming(routes, (chosen, claimTargets) => {
      const claimed = new Set(chosen.map(({ key }) => key));
      return held.commit((record, tx) => {
        const value = record.value as RouterValue;
        if (value.cursor !== from || value.pausedAtMs !== undefined) return undefined;
        if (this.#unknownIn(value.on).length > 0) return undefined;
        written = this.#write(tx, value, routes, claimed);
        // A reaction that routes is not what ends its processes.
        record.write({ value: withCursor(this.#routed(value), upTo), tries: 1 });
        return claimTargets(tx, written);
        // Named beforehand, so that those that this process wrote last need not be read.
      }, chosen);
    });
    this.#limit = decidePage(this.#limit, { ...PAGES, hasMore: page.hasMore, characters: sizeOf(routes) });
    if (isCommitted) this.#logLetters(written);
    return isCommitted;
  }

  /** Begins the work on the targets that the commit has claimed. Returns whether something was committed. */
  async #claiming(
    routes: readonly Route[],
    commit: (
      chosen: readonly Address[],
      claimTargets: (tx: Tx, written: readonly Route[]) => readonly ClaimedTarget[],
    ) => Promise<readonly ClaimedTarget[] | undefined>,
  ): Promise<boolean> {
    const places = this.#places;
    // One that is in work here has its own claim.
    const targets = Array.from(eventsByTarget(routes).keys(), (target) => targetAt(this.#rules.name, target)).filter(
      (at) => this.#kernel.held(at) === undefined,
    );
    const reserved = this.#stopping.aborted ? 0 : places.reserve(targets.length);
    const chosen = targets.slice(0, reserved);
    // Before the commit: the lease cannot begin earlier than this.
    const safeUntilMs = this.#kernel.ports.clock.nowMs() + places.leaseMs;
    for (const at of chosen) this.#kernel.expect(at, true);
    try {
      const claimed = await commit(chosen, (tx, written) => {
        const events = eventsByTarget(written);
        return chosen.flatMap((at) => claimTarget(tx, at, events.get(at.key) ?? [], places));
      });
      if (claimed === undefined) return false;
      const isSmall = sizeOf(routes) <= MOST_PASSED_ON;
      await this.#begin(isSmall ? claimed : claimed.map((one) => ({ ...one, events: undefined })), safeUntilMs);
      return true;
    } finally {
      for (const at of chosen) {
        this.#kernel.expect(at, false);
        // Only rows that this process holds are kept.
        if (this.#kernel.held(at)?.holder !== places.by) this.#kernel.letGo(at);
      }
      places.release(reserved);
    }
  }

  async #begin(claimed: readonly ClaimedTarget[], safeUntilMs: number): Promise<void> {
    const rows = claimed.map(({ at }) => this.#kernel.held(at));
    // The reply with the number of a new row may have been lost.
    if (rows.includes(undefined)) rows.splice(0, rows.length, ...(await this.#rows(claimed)));
    for (const [i, { row: claim, events }] of claimed.entries()) {
      const row = rows[i];
      if (row?.fence !== claim.fence || row.holder !== claim.holder) continue;
      const held = new Held(this.#kernel, row);
      if (this.#stopping.aborted) await restWhateverCame(held, (tx) => tx.nowMs);
      else this.#places.begin(held, safeUntilMs, events);
    }
  }

  async #rows(claimed: readonly ClaimedTarget[]): Promise<readonly (Row | undefined)[]> {
    const rows = await this.#kernel.read(claimed.map(({ at }) => at));
    return rows.map((row) => row ?? undefined);
  }

  /** Where these events go. Throws, with the reason in the record of the reaction, where this process cannot read one of them. */
  async #routesOf(held: Held, entries: readonly FollowedEntry[]): Promise<readonly Route[]> {
    const events = await toEvents(this.#kernel, entries, this.#rules.types);
    const routes: Route[] = [];
    for (const [i, entry] of entries.entries())
      try {
        routes.push(this.#routeOf(entry, events[i] ?? (() => undefined)));
      } catch (error) {
        const { key: stream, version } = entry;
        const message = messageOf(error).slice(0, MAX_MESSAGE).toWellFormed();
        await held.commit((record, tx) => {
          const failure = { message, ...withFrames(error), atMs: tx.nowMs, stream, version };
          record.write({ value: { ...(record.value as RouterValue), failure } satisfies RouterValue });
        });
        throw new Unroutable(
          `reaction "${this.#rules.name}" does not get ahead at event ${version} of stream "${stream}": ${message}`,
          { cause: error },
        );
      }
    return routes;
  }

  #routeOf(entry: FollowedEntry, open: OpenEvent): Route {
    try {
      const event = open();
      const target = event === undefined ? undefined : targetOf(this.#kernel.ports, this.#rules, event);
      return target === undefined ? {} : { target, entry };
    } catch (error) {
      // Not of the event, but of this process: it is tried again.
      if (error instanceof KeyUnavailableError || error instanceof EventShapeError) throw error;
      const { key: stream, version, name } = entry;
      // It needs no data to be routed: it fails where it is handled, is tried again there, and those after it wait.
      if (typeof this.#rules.target !== "function") return { target: fixedTarget(this.#rules.target, stream), entry };
      const what = `the target of event ${version} of stream "${stream}" ("${name}")`;
      const message = `${what} could not be computed: ${messageOf(error)}`;
      return { letter: { stream, version, message, ...withFrames(error) } };
    }
  }
}

/** Where routing stands. */
interface RouterPlace extends Place {
  /** Names of its events that only other code knows. */
  readonly unknown: readonly string[];
  /** Events that were removed are routed first, up to here. */
  readonly archived: ArchivedProgress | undefined;
}

type Route =
  | { readonly target: string; readonly entry: FollowedEntry }
  | { readonly letter: Omit<DeadLetter, "atMs"> }
  | Record<string, never>;

const sizeOf = (routes: readonly Route[]): number =>
  routes.reduce((sum, route) => sum + ("target" in route ? route.entry.data.length : 0), 0);

/** The events that are routed to each target, in order. */
function eventsByTarget(routes: readonly Route[]): ReadonlyMap<string, readonly FollowedEntry[]> {
  const found = new Map<string, FollowedEntry[]>();
  for (const route of routes) {
    if (!("target" in route)) continue;
    const events = found.get(route.target);
    if (events === undefined) found.set(route.target, [route.entry]);
    else events.push(route.entry);
  }
  return found;
}

/** Claims a target, if it is due and nothing keeps it. */
function claimTarget(
  tx: Tx,
  at: Address,
  events: readonly FollowedEntry[],
  { by, leaseMs }: TargetPlaces,
): readonly ClaimedTarget[] {
  const record = tx.record(at);
  const outcome = decideClaimHere(stateOf(record), record.tries, events.length);
  const row = outcome === "no" ? undefined : claim(tx, at, { by, leaseMs, isJustDue: true });
  return row === undefined ? [] : [{ at, row, events: outcome === "events" ? events : undefined }];
}

const stateOf = (record: Draft): TargetState => ({
  value: record.value as TargetValue,
  routed: record.head,
  holder: record.holder,
  status: record.status,
  dueMs: record.dueMs,
});

function isRouteAside(value: RouterValue, route: Route): boolean {
  if ("target" in route) return isAside(value, route.entry.key, route.entry.version);
  return "letter" in route && isAside(value, route.letter.stream, route.letter.version);
}

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

/** The target of an event where no function computes it. */
const fixedTarget = (target: "stream" | "all", stream: string): string => (target === "stream" ? stream : "all");

/** The target of an event; undefined if the reaction leaves it out. */
function targetOf(ports: Ports, { name, target }: ReactionRules, event: StreamEvent): string | undefined {
  const found: unknown =
    typeof target === "function" ? runPure(ports, () => target(event)) : fixedTarget(target, event.stream);
  refusePromise(found);
  // Checked as every id is, so that a promise or a number is reported.
  return found === undefined ? undefined : targetAt(name, found as string).key;
}

/** Adds an event to the log of a target, and makes the target due unless something keeps it. */
export function routeTo(
  tx: Tx,
  reaction: string,
  target: string,
  { key: stream, version }: Pick<FollowedEntry, "key" | "version">,
  { isAgain = false, isClaimed = false }: { readonly isAgain?: boolean; readonly isClaimed?: boolean } = {},
): void {
  const at = targetAt(reaction, target);
  const record = tx.record(at);
  const place: Routed = stream === target ? { version } : { stream, version };
  const routed: Routed = isAgain ? { ...place, isAgain } : place;
  if (!record.exists)
    record.write({ value: { done: 0 } satisfies TargetValue, kind: targetQueueOf(reaction), dueMs: tx.nowMs });
  else if (isWokenByNews(stateOf(record))) wake(tx, at, isClaimed);
  record.append(ROUTED, routed);
}

/**
 * Events of a stream become dead letters, unless they were routed or put aside since they were looked at. What says so is in the record of the reaction,
 * which the commit that routes them writes too: so an event is either routed or a dead letter.
 */
export function putAside(
  tx: Tx,
  reaction: string,
  stream: string,
  events: readonly Pick<FollowedEntry, "version" | "position">[],
  why: LetterReason,
): void {
  const router = tx.record(reactionAt(reaction));
  const value = router.value as RouterValue | undefined;
  if (value === undefined) return;
  const letters = events.filter(({ version, position }) => position > value.cursor && !isAside(value, stream, version));
  if (letters.length === 0) return;
  for (const { version } of letters) writeLetter(tx, reaction, { stream, version, ...why });
  const versions = letters.map(({ version }) => version);
  const position = Math.max(...letters.map((one) => one.position));
  router.write({
    value: withAside(value, { stream, from: Math.min(...versions), to: Math.max(...versions), position }),
  });
}

type LetterReason = Pick<DeadLetter, "message" | "actor" | "reason">;

export function writeLetter(tx: Tx, reaction: string, letter: Omit<DeadLetter, "atMs">): void {
  const { stream, version } = letter;
  tx.record(deadAt(reaction, stream, version)).write({ value: { ...letter, atMs: tx.nowMs } satisfies DeadLetter });
}
