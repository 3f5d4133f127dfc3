/**
 * Operating reactions: `pawl.reactions`. Inspection reads without a lease. Changes are decisions on one target each: what they change is taken from
 * the worker that holds it, whose commit is then refused.
 */

import {
  checkBoolean,
  checkCount,
  checkId,
  checkObject,
  checkOptions,
  checkPrefix,
  checkText,
  optionNames,
} from "../../kernel/check.ts";
import { nextFence } from "../../kernel/claim/decide.ts";
import type { Address, Row } from "../../kernel/contract.ts";
import type { Tx } from "../../kernel/decision.ts";
import { InvalidArgumentError } from "../../kernel/errors.ts";
import type { Kernel } from "../../kernel/kernel.ts";
import { canReadArchive } from "../closing/archive.ts";
import { removedStreams } from "../closing/entries.ts";
import { DeadLetterNotFoundError, EventsArchivedError, ReactionNotFoundError, TargetNotFoundError } from "../errors.ts";
import { firstVersionOf, STREAMS, streamAt } from "../stored.ts";
import { decideOperation, isRepeated, type Operation } from "./decide.ts";
import { routeTo, writeLetter } from "./routing.ts";
import {
  BLOCKED,
  type DeadLetter,
  deadAt,
  deadSpaceOf,
  type Failure,
  PAUSED,
  REACTIONS,
  type Routed,
  type RouterFailure,
  type RouterValue,
  reactionAt,
  type TargetValue,
  targetAt,
  targetSpaceOf,
  withAnyTarget,
} from "./stored.ts";

/** A reaction as a whole. */
export interface ReactionInfo {
  readonly name: string;
  /** The names of its events, in all versions of its code. */
  readonly on: readonly string[];
  readonly pausedAt: Date | null;
  /** The worker that routes its events; null if no worker knows it now. */
  readonly worker: string | null;
  /** How many events wait to be routed; at most 1,000 are counted. */
  readonly unrouted: number;
  /** When the oldest of them was committed. */
  readonly unroutedSince: Date | null;
  /** Why they are not routed: the worker that last tried could not read this event, as one of a shape that its code does not know. */
  readonly failure: {
    readonly message: string;
    /** Where it was thrown: the frames, at most 2,000 characters. A server does not send it. */
    readonly stack?: string | undefined;
    readonly stream: string;
    readonly version: number;
    readonly at: Date;
  } | null;
}

/** What a target is doing. */
export type TargetStatus = "idle" | "due" | "running" | "retrying" | "blocked" | "paused";

export interface TargetInfo {
  readonly target: string;
  readonly status: TargetStatus;
  /** How many of its events are handled, and how many are not. */
  readonly handled: number;
  readonly pending: number;
  /** The failures in a row of the next event, and the last of them. */
  readonly failures: number;
  readonly lastError: {
    readonly name: string;
    readonly message: string;
    /** Where it was thrown: the frames, at most 2,000 characters. A server does not send it. */
    readonly stack?: string | undefined;
    readonly at: Date;
  } | null;
  readonly blockedSince: Date | null;
  /** When the next attempt is due. */
  readonly nextAttemptAt: Date | null;
  /** How often a worker lost its lease, or its process, while it worked on this target. */
  readonly lostLeases: number;
  /** The worker that holds it now. */
  readonly worker: string | null;
}

export interface TargetListOptions {
  readonly status?: "blocked" | "paused" | undefined;
  readonly prefix?: string | undefined;
  /** `next` of the page before. */
  readonly after?: string | undefined;
  /** Default: 100. */
  readonly limit?: number | undefined;
}

export interface TargetPage {
  readonly targets: readonly TargetInfo[];
  readonly next: string | null;
}

/** One target, or all that match. */
export interface TargetFilter {
  readonly target?: string | undefined;
  readonly status?: "blocked" | "paused" | undefined;
  readonly prefix?: string | undefined;
  /** Counts them, and changes nothing. Default: false. */
  readonly dryRun?: boolean | undefined;
}

export interface SkipOptions {
  /** Who skips the event, and why: both are kept with the dead letter. */
  readonly actor: string;
  readonly reason: string;
}

export interface DeadLetterInfo {
  readonly stream: string;
  readonly version: number;
  readonly target: string | null;
  readonly message: string;
  /** Where it was thrown: the frames, at most 2,000 characters. A server does not send it. */
  readonly stack?: string | undefined;
  readonly actor: string | null;
  readonly reason: string | null;
  readonly at: Date;
}

const LIST_OPTIONS = optionNames<TargetListOptions>({ status: true, prefix: true, after: true, limit: true });
const FILTER = optionNames<TargetFilter>({ target: true, status: true, prefix: true, dryRun: true });
const SKIP_OPTIONS = optionNames<SkipOptions>({ actor: true, reason: true });
const PAGE_OPTIONS = optionNames<{ after?: unknown; limit?: unknown }>({ after: true, limit: true });

const MOST_COUNTED = 1000;
const PAGE = 200;

export class Reactions {
  readonly #kernel: Kernel;

  constructor(kernel: Kernel) {
    this.#kernel = kernel;
  }

  /** All reactions that a worker has ever known. */
  async list(): Promise<readonly ReactionInfo[]> {
    const infos: ReactionInfo[] = [];
    for (let after: string | null = null; ; ) {
      const rows: readonly Row[] = await this.#kernel.list({ space: REACTIONS, prefix: "", after, limit: PAGE });
      const nowMs = await this.#clock();
      infos.push(...(await Promise.all(rows.map((row) => this.#info(row, nowMs)))));
      if (rows.length < PAGE) return infos;
      after = rows.at(-1)?.key ?? null;
    }
  }

  /** One reaction. Throws `reaction_not_found`. */
  async get(reaction: string): Promise<ReactionInfo> {
    const [row, nowMs] = await Promise.all([this.#rowOf(reaction), this.#clock()]);
    return this.#info(row, nowMs);
  }

  /** Its targets, in the order of their names. */
  async targets(reaction: string, options: TargetListOptions = {}): Promise<TargetPage> {
    const name = checkId(reaction, "the reaction's name");
    checkOptions(options, LIST_OPTIONS);
    const limit = checkCount(options.limit ?? 100, "the limit");
    const [rows, nowMs] = await Promise.all([
      this.#page(name, options, options.after ?? null, limit + 1),
      this.#clock(),
    ]);
    const page = rows.slice(0, limit);
    return {
      targets: page.map((row) => this.#target(row, nowMs)),
      next: rows.length > limit ? (page.at(-1)?.key ?? null) : null,
    };
  }

  /** One target. Throws `target_not_found`. */
  async target(reaction: string, target: string): Promise<TargetInfo> {
    const at = targetAt(checkId(reaction, "the reaction's name"), target);
    const [[row], nowMs] = await Promise.all([this.#kernel.read([at]), this.#clock()]);
    if (row == null || row.value === null) throw new TargetNotFoundError(reaction, target);
    return this.#target(row, nowMs);
  }

  /** Blocked targets continue with the event that failed, with all of its attempts. Returns how many targets were changed. */
  unblock(reaction: string, filter: TargetFilter): Promise<number> {
    return this.#change("unblock", reaction, filter);
  }

  /** Their events are not handled until `resume`. What a handler is doing at the moment is not committed. Returns how many were changed. */
  pauseTargets(reaction: string, filter: TargetFilter): Promise<number> {
    return this.#change("pause", reaction, filter);
  }

  resumeTargets(reaction: string, filter: TargetFilter): Promise<number> {
    return this.#change("resume", reaction, filter);
  }

  /**
   * All of their events are handled again, from the first, each of them once, also one that was a dead letter and was sent again. Keys of external
   * effects stay the same. Returns how many were changed. Throws
   * `events_archived`, and changes nothing, if some of the events were removed and this handle cannot read them.
   */
  reset(reaction: string, filter: TargetFilter): Promise<number> {
    return this.#change("reset", reaction, filter);
  }

  /** They are claimed before all others that are due. Returns how many were changed. */
  prioritize(reaction: string, filter: TargetFilter): Promise<number> {
    return this.#change("prioritize", reaction, filter);
  }

  /** No more events are routed, for any target, until `resume`. Targets finish what they have. */
  pause(reaction: string): Promise<void> {
    return this.#changeRouter(reaction, (value, nowMs) => ({ ...value, pausedAtMs: value.pausedAtMs ?? nowMs }));
  }

  resume(reaction: string): Promise<void> {
    return this.#changeRouter(reaction, ({ pausedAtMs: _, ...value }) => value);
  }

  /**
   * From now on the reaction is not about events of this name: for those that were removed from its code. Until then, events that a version of the code
   * had are routed only by workers that know them, so that none is passed by during a deploy.
   */
  removeEvent(reaction: string, name: string): Promise<void> {
    checkId(name, "the event's name");
    return this.#changeRouter(reaction, (value) => ({ ...value, on: value.on.filter((one) => one !== name) }));
  }

  /**
   * Puts the next event of a blocked or paused target aside as a dead letter, so that the target continues after it. Throws `target_not_found`, and
   * `invalid_argument` where the target is neither.
   */
  async skip(reaction: string, target: string, options: SkipOptions): Promise<DeadLetterInfo> {
    const at = targetAt(checkId(reaction, "the reaction's name"), target);
    checkObject(options, "the options");
    checkOptions(options, SKIP_OPTIONS);
    const actor = checkId(options?.actor, "the actor");
    const reason = checkText(options?.reason, "the reason");
    const [row] = await this.#kernel.read([at]);
    if (row == null || row.value === null) {
      await this.#rowOf(reaction);
      throw new TargetNotFoundError(reaction, target);
    }
    const skipped = await this.#skip(reaction, at, this.#kernel.decode(at, row.value) as TargetValue, {
      actor,
      reason,
    });
    if (skipped === undefined)
      throw new InvalidArgumentError("the target", "must be blocked or paused, with an event to skip");
    const [letter] = await this.#kernel.read([skipped]);
    return this.#letter(letter as Row);
  }

  /** Returns where the letter is; undefined if there is nothing to skip, or the target has moved on since it was read. */
  async #skip(
    reaction: string,
    at: Address,
    found: TargetValue,
    { actor, reason }: SkipOptions,
  ): Promise<Address | undefined> {
    let left = 0;
    for await (const { version: index, data } of this.#kernel.entriesAfter(at, found.done)) {
      left += 1;
      const routed = this.#kernel.decode(at, data) as Routed;
      // It is not handled anyway: the next one is meant.
      if (isRepeated(found, index, routed)) continue;
      const { stream = at.key, version } = routed;
      const isSkipped = await this.#kernel.transact(
        (tx) => {
          const value = tx.record(at).value as TargetValue | undefined;
          // It has moved on, or was reset, since it was read.
          if (value?.done !== found.done || value.resetAt !== found.resetAt) return false;
          for (let n = 0; n < left; n++) if (!operate(tx, at, "skip")) return false;
          const message = value.failure?.message ?? "it was skipped";
          const stack = value.failure?.stack;
          const thrown = stack === undefined ? { message } : { message, stack };
          writeLetter(tx, reaction, { stream, version, target: at.key, ...thrown, actor, reason });
          return true;
        },
        [at],
      );
      return isSkipped ? deadAt(reaction, stream, version) : undefined;
    }
    return undefined;
  }

  /** Events that were put aside. */
  async deadLetters(
    reaction: string,
    options: { readonly after?: string | undefined; readonly limit?: number | undefined } = {},
  ): Promise<{ readonly letters: readonly DeadLetterInfo[]; readonly next: string | null }> {
    const space = deadSpaceOf(checkId(reaction, "the reaction's name"));
    checkOptions(options, PAGE_OPTIONS);
    const limit = checkCount(options.limit ?? 100, "the limit");
    const after = options.after === undefined ? null : checkText(options.after, "after");
    const rows = await this.#kernel.list({ space, prefix: "", after, limit: limit + 1 });
    const page = rows.slice(0, limit);
    return {
      letters: page.map((row) => this.#letter(row)),
      next: rows.length > limit ? (page.at(-1)?.key ?? null) : null,
    };
  }

  /**
   * Sends a dead letter again: to its target, after the events that are there by now, or to `target` where none could be computed. Throws
   * `dead_letter_not_found` if there is no such letter.
   */
  async redrive(
    reaction: string,
    letter: { readonly stream: string; readonly version: number; readonly target?: string | null | undefined },
  ): Promise<void> {
    checkId(reaction, "the reaction's name");
    checkObject(letter, "the letter");
    const { stream, version } = letter;
    if (letter.target != null) checkId(letter.target, "the target");
    checkCount(version, "the version", Number.MAX_SAFE_INTEGER);
    const at = deadAt(reaction, streamAt(stream).key, version);
    const isAgain = await this.#isIn(reaction, at, letter);
    await this.#kernel.transact(
      (tx) => {
        const record = tx.record(at);
        const stored = record.value as DeadLetter | undefined;
        if (stored === undefined) throw new DeadLetterNotFoundError(reaction, stream, version);
        const target = letter.target ?? stored.target;
        if (target == null)
          throw new InvalidArgumentError("the target", "must be given, because none could be computed");
        if (target !== stream) {
          const router = tx.record(reactionAt(reaction));
          const value = router.value as RouterValue | undefined;
          if (value?.targets !== undefined) router.write({ value: withAnyTarget(value) });
        }
        routeTo(tx, reaction, target, { key: stream, version }, { isAgain });
        record.remove();
      },
      [at],
    );
  }

  /** Whether the event of a letter is in the log of the target that it is sent to: it was skipped there, now or before it was sent elsewhere. */
  async #isIn(
    reaction: string,
    at: Address,
    {
      stream,
      version,
      target,
    }: Pick<DeadLetterInfo, "stream" | "version"> & { readonly target?: string | null | undefined },
  ): Promise<boolean> {
    const [row] = await this.#kernel.read([at]);
    const stored = row == null || row.value === null ? undefined : (this.#kernel.decode(at, row.value) as DeadLetter);
    if (stored?.target === undefined) return false;
    if ((target ?? stored.target) === stored.target) return true;
    const to = targetAt(reaction, target ?? stored.target);
    for await (const { data } of this.#kernel.entriesAfter(to, 0)) {
      const routed = this.#kernel.decode(to, data) as Routed;
      if ((routed.stream ?? to.key) === stream && routed.version === version) return true;
    }
    return false;
  }

  async #rowOf(reaction: string): Promise<Row> {
    const [row] = await this.#kernel.read([reactionAt(reaction)]);
    if (row == null || row.value === null) throw new ReactionNotFoundError(reaction);
    return row;
  }

  /** The store's clock: a holder whose lease has ended is no worker any more, though no other has taken over. */
  async #clock(): Promise<number> {
    return (await this.#kernel.due({ kinds: [REACTIONS], limit: 1 })).nowMs;
  }

  async #info(row: Row, nowMs: number): Promise<ReactionInfo> {
    const { cursor, on, pausedAtMs, failure } = this.#kernel.decode(row, row.value ?? "") as RouterValue;
    let unrouted = 0;
    let sinceMs: number | null = null;
    for (let after = cursor, hasMore = true; hasMore && unrouted < MOST_COUNTED; ) {
      const page = await this.#kernel.follow({ space: STREAMS, names: on, after, limit: MOST_COUNTED });
      sinceMs ??= page.entries[0]?.atMs ?? null;
      unrouted += page.entries.length;
      hasMore = page.hasMore && page.upTo > after;
      after = page.upTo;
    }
    return {
      name: row.key,
      on,
      pausedAt: dateOf(pausedAtMs),
      worker: workerOf(row, nowMs),
      unrouted: Math.min(unrouted, MOST_COUNTED),
      unroutedSince: dateOf(sinceMs),
      failure: failure === undefined ? null : failureOf(failure),
    };
  }

  #target(row: Row, nowMs: number): TargetInfo {
    const value = this.#kernel.decode(row, row.value ?? "") as TargetValue;
    const { done, failure, blockedAtMs, losses = 0 } = value;
    const worker = workerOf(row, nowMs);
    return {
      target: row.key,
      status: statusOf({ ...row, holder: worker }, value),
      handled: done,
      pending: row.head - done,
      failures: failure?.count ?? 0,
      lastError: failure === undefined ? null : lastErrorOf(failure),
      blockedSince: dateOf(blockedAtMs),
      nextAttemptAt: worker === null ? dateOf(row.dueMs) : null,
      lostLeases: losses,
      worker,
    };
  }

  #letter(row: Row): DeadLetterInfo {
    const {
      target = null,
      actor = null,
      reason = null,
      atMs,
      ...rest
    } = this.#kernel.decode(row, row.value ?? "") as DeadLetter;
    return { ...rest, target, actor, reason, at: new Date(atMs) };
  }

  #page(reaction: string, filter: TargetFilter, after: string | null, limit: number): Promise<readonly Row[]> {
    const { status, prefix = "" } = checkFilter(filter);
    if (after !== null) checkText(after, "after");
    const statuses = status === undefined ? undefined : [status];
    return this.#kernel.list({ space: targetSpaceOf(reaction), prefix, statuses, after, limit });
  }

  /** Does it to each target that matches, in a commit of its own. Returns how many were changed, or would be. */
  async #change(operation: Operation, reaction: string, filter: TargetFilter): Promise<number> {
    const name = checkId(reaction, "the reaction's name");
    checkObject(filter, "the filter");
    checkOptions(filter, FILTER, "the filter");
    const isDry = filter.dryRun === undefined ? false : checkBoolean(filter.dryRun, "dryRun");
    if (filter.target !== undefined) checkId(filter.target, "the target");
    checkFilter(filter);
    await this.#rowOf(name);
    if (operation === "reset") await this.#checkReadable(name, filter);
    if (filter.target !== undefined) {
      const { target } = await this.target(name, filter.target);
      return (await this.#changeOne(operation, targetAt(name, target), isDry)) ? 1 : 0;
    }
    let changed = 0;
    for (let after: string | null = null; ; ) {
      const rows: readonly Row[] = await this.#page(name, filter, after, PAGE);
      const done = await Promise.all(rows.map((row) => this.#changeOne(operation, targetAt(name, row.key), isDry)));
      changed += done.filter(Boolean).length;
      if (rows.length < PAGE) return changed;
      after = rows.at(-1)?.key ?? null;
    }
  }

  /** Throws `events_archived` if a target that matches has events that were removed and cannot be read. */
  async #checkReadable(reaction: string, filter: TargetFilter): Promise<void> {
    if (canReadArchive(this.#kernel)) return;
    const first = new Map<string, number>();
    for await (const { at, value } of removedStreams(this.#kernel)) first.set(at.key, firstVersionOf(value));
    if (first.size === 0) return;
    for (let after: string | null = null; ; ) {
      const rows: readonly Row[] = await this.#page(reaction, filter, after, PAGE);
      for (const { key } of rows) {
        const at = targetAt(reaction, key);
        if (filter.target !== undefined && key !== filter.target) continue;
        for await (const { data } of this.#kernel.entriesAfter(at, 0)) {
          const { stream = key, version } = this.#kernel.decode(at, data) as Routed;
          const kept = first.get(stream) ?? 1;
          if (version < kept) throw new EventsArchivedError(stream, kept, version);
        }
      }
      if (rows.length < PAGE) return;
      after = rows.at(-1)?.key ?? null;
    }
  }

  #changeOne(operation: Operation, at: Address, isDry: boolean): Promise<boolean> {
    return this.#kernel.transact((tx) => operate(tx, at, operation, isDry), [at]);
  }

  async #changeRouter(reaction: string, change: (value: RouterValue, nowMs: number) => RouterValue): Promise<void> {
    const at = reactionAt(reaction);
    await this.#kernel.transact(
      (tx) => {
        const record = tx.record(at);
        if (!record.exists) throw new ReactionNotFoundError(reaction);
        // The worker that holds it looks at it again.
        record.write({ value: change(record.value as RouterValue, tx.nowMs), wakes: record.wakes + 1 });
      },
      [at],
    );
  }
}

/** Changes a target as an operator asks; returns false where that does not apply. A worker that holds it is refused from now on. */
function operate(tx: Tx, at: Address, operation: Operation, isDry = false): boolean {
  const record = tx.record(at);
  if (!record.exists) return false;
  const { holder, status, dueMs } = record;
  const state = { value: record.value as TargetValue, routed: record.head, holder, status, dueMs };
  const change = decideOperation(operation, state, tx.nowMs);
  if (change === null) return false;
  if (isDry) return true;
  record.write({
    ...change,
    ...(holder === null ? {} : { holder: null, tries: 0, fence: nextFence(record.fence, tx.fenceFloor) }),
  });
  return true;
}

const lastErrorOf = ({ count: _, atMs, ...error }: Failure) => ({ ...error, at: new Date(atMs) });

const failureOf = ({ atMs, ...failure }: RouterFailure) => ({ ...failure, at: new Date(atMs) });

/** Who holds it; null where the lease has ended. */
const workerOf = ({ holder, dueMs }: Row, nowMs: number): string | null =>
  dueMs !== null && dueMs > nowMs ? holder : null;

function statusOf({ holder, status, dueMs, head }: Row, { done, failure }: TargetValue): TargetStatus {
  if (status === BLOCKED || status === PAUSED) return status;
  if (holder !== null) return "running";
  if (failure !== undefined) return "retrying";
  return dueMs !== null || done < head ? "due" : "idle";
}

function checkFilter<Filter extends Pick<TargetFilter, "status" | "prefix">>(filter: Filter): Filter {
  const { status, prefix } = filter;
  if (status !== undefined && status !== BLOCKED && status !== PAUSED)
    throw new InvalidArgumentError("the status", 'must be "blocked" or "paused"');
  if (prefix !== undefined) checkPrefix(prefix, "the prefix");
  return filter;
}

const dateOf = (ms: number | null | undefined): Date | null => (ms == null ? null : new Date(ms));
