/**
 * Work on one target: its events are handled in order, one at a time, by the worker that holds it.
 *
 * What a handler writes is one commit with the progress of the target; events whose handlers write nothing share commits (`progress.ts`). The commit of the last event also releases
 * the target. A failure is recorded with the time of the next attempt, or blocks the target; nothing but the clock or an operator is needed to continue. A target with many events is put back after some of them, so that others have their turn.
 *
 * The events that are read but not handled yet share one room in memory: the more targets are in work, and the more they keep, the less each reads at a time.
 */

import type { Held } from "../../kernel/claim/claim.ts";
import type { FollowedEntry, Key, StoredEntry } from "../../kernel/contract.ts";
import { ClosedError, FencedError, StoreError } from "../../kernel/errors.ts";
import { type Kernel, PAGE_BYTES } from "../../kernel/kernel.ts";
import type { Lease } from "../../kernel/lease.ts";
import { type Log, messageOf } from "../../kernel/log.ts";
import { decideRetry } from "../../kernel/retry.ts";
import { KeyUnavailableError } from "../../kernel/seal/errors.ts";
import type { Prepare } from "../../kernel/sql/in-sql.ts";
import { withFrames } from "../../kernel/stack.ts";
import { streamEntries } from "../closing/entries.ts";
import { EventGoneError, EventShapeError } from "../errors.ts";
import type { StreamEvent } from "../event.ts";
import { restWhateverCame } from "../following.ts";
import { toEvents } from "../reading.ts";
import { streamAt } from "../stored.ts";
import { type AttemptOutcome, ReactionAttempt } from "./attempt.ts";
import { decideFailed, decideHandled, isRepeated } from "./decide.ts";
import type { ReactionRules } from "./definition.ts";
import { Progress } from "./progress.ts";
import { type Routed, type RouterValue, reactionAt, type TargetValue } from "./stored.ts";

/** How many events are read together, and after how many a target is put back. */
const PAGE = 100;
/** How many places of streams are read at a time. */
const RUNS = 32;
const MOST_IN_A_ROW = 500;
/** A target may read events with as many characters in any case. */
const LEAST_ROOM = 16 * 1024;
/** A target whose process has ended as often without getting anywhere is blocked. */
export const MOST_TRIES = 5;
/** A target whose next event only other code knows is due again after this time. */
const LEFT_TO_OTHERS_MS = 2000;
const MAX_MESSAGE = 2000;

export class TargetWork<Face, Touch> {
  readonly #kernel: Kernel;
  readonly #prepare: Prepare<Face, Touch>;
  readonly #stopping: AbortSignal;
  readonly #log: Log | undefined;
  /** What is to be handled of a target, where the worker that routed it knows it. */
  readonly #routed = new WeakMap<Held, readonly FollowedEntry[]>();
  /** How many targets are in work, and how many characters of events they keep in memory. */
  #working = 0;
  #kept = 0;

  constructor(kernel: Kernel, prepare: Prepare<Face, Touch>, stopping: AbortSignal, log: Log | undefined) {
    this.#kernel = kernel;
    this.#prepare = prepare;
    this.#stopping = stopping;
    this.#log = log;
  }

  /** The work on this target begins with these events, which are all that is to be handled; they need not be read again, if there is room for them. */
  beginsWith(held: Held, events: readonly FollowedEntry[]): void {
    const characters = events.reduce((sum, { data }) => sum + data.length, 0);
    if (this.#kept + characters <= PAGE_BYTES) this.#routed.set(held, events);
  }

  /** Handles the events of a claimed target. */
  async work(rules: ReactionRules, held: Held, lease: Lease): Promise<void> {
    this.#working += 1;
    let kept = 0;
    const keeps = (characters: number): void => {
      this.#kept += characters - kept;
      kept = characters;
    };
    try {
      await this.#work(rules, held, lease, keeps);
    } finally {
      keeps(0);
      this.#working -= 1;
    }
  }

  /** How many characters of events a target may read now; those that read at the same moment share what is left. */
  get #room(): number {
    return Math.max(LEAST_ROOM, Math.ceil((PAGE_BYTES - this.#kept) / this.#working));
  }

  /** `keeps` is called with how many characters of events it keeps. */
  async #work(rules: ReactionRules, held: Held, lease: Lease, keeps: (characters: number) => void): Promise<void> {
    // The commit that routes its next event claims it.
    held.isClaimedAgain = true;
    let target = this.#claimed(held) ?? (await this.#look(held));
    // The claims before this one ended without a word: their leases, or their processes, were lost.
    const losses = (target.losses ?? 0) + held.tries - 1;
    if (held.tries > MOST_TRIES)
      return this.#fail(
        rules,
        held,
        losses,
        new Error(`its process ended ${MOST_TRIES} times while it worked on this target`),
        null,
      );
    const progress = new Progress(this.#kernel.ports.clock, held, lease, target.done, losses);
    /** Releases it until then. */
    const rest = async (dueMs: (nowMs: number) => number): Promise<void> => {
      await progress.flush();
      await restWhateverCame(held, (tx) => dueMs(tx.nowMs));
    };
    for (let handled = 0, page = this.#begun(held); ; page = undefined) {
      keeps(0);
      page ??= await this.#read(rules, held, target.done);
      keeps(page.events.reduce((sum, { stored }) => sum + (stored?.data.length ?? 0), 0));
      let isWoken = false;
      for (const [index, { routed = NOT_AGAIN, stored, missing, unknown }] of page.events.entries()) {
        if (lease.isOver) return progress.flush();
        const done = target.done + 1;
        if (isRepeated(target, done, routed)) {
          await progress.handled(done);
          target = decideHandled(target, done, losses);
          continue;
        }
        if (unknown !== undefined) {
          // Workers with other code know it; or it was removed from the reaction since it was routed.
          if (await this.#isOn(rules.name, unknown)) return rest((nowMs) => nowMs + LEFT_TO_OTHERS_MS);
          await progress.handled(done);
          target = decideHandled(target, done, losses);
          continue;
        }
        if (this.#stopping.aborted || handled === MOST_IN_A_ROW) return rest((nowMs) => nowMs);
        const attempt = (target.failure?.count ?? 0) + 1;
        const { event, error, isOfProcess } =
          stored === undefined ? { error: missing } : await this.#open(rules, stored);
        if (stored !== undefined && isOfProcess === true) {
          await progress.flush();
          return this.#leaveToOthers(rules, held, stored, error);
        }
        const outcome: AttemptOutcome =
          event === undefined
            ? { is: "failed", error }
            : await new ReactionAttempt(this.#kernel, this.#prepare, rules, held, lease, {
                event,
                progress,
                done,
                attempt,
                isLast: page.isLast && index === page.events.length - 1,
                usedLate: (verb, isOver) =>
                  this.#log?.warn(
                    `${verb} was called in reaction "${rules.name}" after ${isOver ? "" : "the commit of "}its attempt at event ${event.version} of stream "${event.stream}"${isOver ? " was over" : ""}: it has no effect`,
                  ),
                threwLate: (error) =>
                  this.#log?.warn(
                    `the handler of reaction "${rules.name}" threw after its commit at event ${event.version} of stream "${event.stream}", which is handled: ${messageOf(error)}`,
                  ),
              }).run();
        if (outcome.is === "rested") return;
        if (outcome.is === "deferred") return rest((nowMs) => Math.max(nowMs, outcome.dueMs(nowMs)));
        if (outcome.is === "failed") {
          await progress.flush();
          // An event that cannot be converted is tried again like one whose handler fails; one that is not there is not.
          const delayMs = stored === undefined ? null : this.#delay(rules, attempt, outcome.error);
          return this.#fail(rules, held, losses, outcome.error, delayMs);
        }
        isWoken = outcome.is === "woken";
        handled += 1;
        target = decideHandled(target, done, losses);
      }
      // It was the last page, unless a wake-up says that more came since the claim or the last look.
      if (page.isLast) {
        await progress.flush();
        if (!isWoken && (await held.rest(() => null)) === "rested") return;
        target = await this.#look(held);
      }
    }
  }

  #begun(held: Held): EventPage | undefined {
    const events = this.#routed.get(held)?.map((stored): FoundEvent => ({ stored }));
    return events === undefined ? undefined : { events, isLast: true };
  }

  async #read(rules: ReactionRules, held: Held, done: number): Promise<EventPage> {
    const page = await this.#kernel.entries(held.at, done, PAGE);
    const events = await this.#events(rules, held, page);
    return { events, isLast: page.length < PAGE && events.length === page.length };
  }

  #look(held: Held): Promise<TargetValue> {
    return held.look((record) => record.value as TargetValue);
  }

  /** What the claim has found. Every commit checks that it is still so, and wake-ups since then are noticed at the end. */
  #claimed(held: Held): TargetValue | undefined {
    const row = this.#kernel.held(held.at);
    if (row === undefined || row.fence !== held.fence || row.value === null) return undefined;
    return this.#kernel.decode(held.at, row.value) as TargetValue;
  }

  /** Whether the reaction, in some version of its code, is about this event. */
  async #isOn(reaction: string, name: string): Promise<boolean> {
    const at = reactionAt(reaction);
    const [row] = await this.#kernel.read([at]);
    return row != null && row.value !== null && (this.#kernel.decode(at, row.value) as RouterValue).on.includes(name);
  }

  #delay({ name, retry }: ReactionRules, attempt: number, error: unknown): number | null {
    try {
      return decideRetry(retry, attempt, error, this.#kernel.ports.chance.random());
    } catch (mistake) {
      // A policy of the user's that throws, or is async, ends the attempts.
      this.#log?.error(
        `retry.when of reaction "${name}" failed, so there is no further attempt: ${messageOf(mistake)}`,
      );
      return null;
    }
  }

  async #fail(rules: ReactionRules, held: Held, losses: number, error: unknown, delayMs: number | null): Promise<void> {
    const name = (error instanceof Error ? error.name : typeof error).slice(0, 100);
    const message = messageOf(error).slice(0, MAX_MESSAGE).toWellFormed();
    await restWhateverCame(
      held,
      (tx) => (delayMs === null ? null : tx.nowMs + delayMs),
      (record, tx) => {
        const failed = { error: { name, message, ...withFrames(error) }, delayMs, nowMs: tx.nowMs, losses };
        const { value, status } = decideFailed(record.value as TargetValue, failed);
        record.write({ value, status });
      },
    );
    if (delayMs === null)
      this.#log?.error(
        `target "${held.at.key}" of reaction "${rules.name}" is blocked until an operator unblocks it: ${message}`,
      );
  }

  /** The events that these entries of the target's log name, in order: all of them, or the first ones where all would be too many bytes. */
  async #events(rules: ReactionRules, held: Held, page: readonly StoredEntry[]): Promise<readonly FoundEvent[]> {
    const routed = page.map((entry) => this.#kernel.decode(held.at, entry.data) as Routed);
    const runs = runsOf(routed, held.at.key);
    const size = { characters: 0, most: this.#room };
    const found: FoundEvent[] = [];
    for (let next = 0; next < runs.length; next += RUNS) {
      const some = runs.slice(next, next + RUNS);
      for (const [index, events] of (await Promise.all(some.map((run) => this.#run(rules, run, size)))).entries()) {
        for (const event of events) found.push({ ...event, routed: routed[found.length] });
        if (events.length < (some[index]?.count ?? 0)) return found;
      }
      if (size.characters >= size.most) return found;
    }
    return found;
  }

  /** The events of a run: at least one, and no more when there are enough characters. */
  async #run(
    rules: ReactionRules,
    { stream, first, count }: RunOfEvents,
    size: { characters: number; readonly most: number },
  ): Promise<readonly FoundEvent[]> {
    const at = streamAt(stream);
    const events: FoundEvent[] = [];
    try {
      for await (const entry of streamEntries(this.#kernel, at, first, first + count - 1, size.most)) {
        events.push(rules.types.has(entry.name) ? { stored: { ...entry, ...at } } : { unknown: entry.name });
        size.characters += entry.data.length;
        if (size.characters >= size.most) return events;
      }
      if (events.length < count) events.push({ missing: new EventGoneError(stream, first + events.length) });
    } catch (error) {
      // Also what an archive throws: the events before it are handled first.
      if (error instanceof StoreError || error instanceof ClosedError) throw error;
      events.push({ missing: error });
    }
    return events;
  }

  /** An event, when its turn has come: a person may have been forgotten since it was read. */
  async #open(
    rules: ReactionRules,
    stored: StoredEntry & Key,
  ): Promise<{
    readonly event?: StreamEvent | undefined;
    readonly error?: unknown;
    readonly isOfProcess?: boolean | undefined;
  }> {
    const [open] = await toEvents(this.#kernel, [stored], rules.types);
    try {
      return { event: open?.() };
    } catch (error) {
      return { error, isOfProcess: error instanceof KeyUnavailableError || error instanceof EventShapeError };
    }
  }

  /** Not the event is the cause, but this process, which lacks a key or knows only older shapes: it is tried again, here or elsewhere, and no failure is counted. */
  async #leaveToOthers(
    rules: ReactionRules,
    held: Held,
    { key: stream, version }: StoredEntry & Key,
    error: unknown,
  ): Promise<void> {
    const message = messageOf(error).slice(0, MAX_MESSAGE).toWellFormed();
    const name = error instanceof Error ? error.name : "Error";
    await restWhateverCame(
      held,
      (tx) => tx.nowMs + LEFT_TO_OTHERS_MS,
      (record, tx) => {
        const value = record.value as TargetValue;
        const failure = { count: value.failure?.count ?? 0, name, message, ...withFrames(error), atMs: tx.nowMs };
        record.write({ value: { ...value, failure } satisfies TargetValue });
      },
    );
    this.#log?.warn(
      `reaction "${rules.name}" does not get ahead at event ${version} of stream "${stream}", which is tried again and left to other workers: ${message}`,
    );
  }
}

const NOT_AGAIN: Routed = { version: 0 };

interface FoundEvent {
  /** Its entry in the log of the target; none where it is known to be new. */
  readonly routed?: Routed | undefined;
  /** The name of an event that the code here does not have. */
  readonly unknown?: string;
  readonly stored?: StoredEntry & Key;
  /** Why it is not there. */
  readonly missing?: unknown;
}

interface EventPage {
  readonly events: readonly FoundEvent[];
  /** There is no more of the target, as far as is known. */
  readonly isLast: boolean;
}

interface RunOfEvents {
  readonly stream: string;
  readonly first: number;
  count: number;
}

/** Neighbours of one stream, which are read together. */
function runsOf(routed: readonly Routed[], target: string): RunOfEvents[] {
  const runs: RunOfEvents[] = [];
  for (const { stream = target, version } of routed) {
    const last = runs.at(-1);
    if (last !== undefined && last.stream === stream && last.first + last.count === version) last.count += 1;
    else runs.push({ stream, first: version, count: 1 });
  }
  return runs;
}

/** A lease that was lost is counted, and is not trouble. */
export const isTrouble = (error: unknown): boolean => !(error instanceof FencedError);
