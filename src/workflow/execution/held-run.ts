/**
 * A run that this process holds: what is known of its record, the facts that the store does not have yet, and every commit on it.
 *
 * Each method that returns a promise is one commit, or several where one would be too large. A commit writes facts after those that the code
 * knows: it fails where the history has grown elsewhere, and where the lease was lost. What the commit made is noted on the coroutine
 * here; what follows from it (which steps begin, whether the code runs) is decided by the execution (`execution.ts`).
 *
 * Guarantees: a holder that lost the run writes nothing any more (G6); the order of the history is the order in which the code saw it.
 */

import type { Held } from "../../kernel/claim/claim.ts";
import { isHolder } from "../../kernel/claim/decide.ts";
import type { Address, Row } from "../../kernel/contract.ts";
import type { Tx } from "../../kernel/decision.ts";
import type { Draft } from "../../kernel/draft.ts";
import { FencedError } from "../../kernel/errors.ts";
import type { Kernel } from "../../kernel/kernel.ts";
import { LazySet } from "../../kernel/lazy.ts";
import { withItem } from "../../kernel/list.ts";
import type { Definition } from "../definitions/definition.ts";
import type { HandOver, Succession } from "../flow/hand-over.ts";
import { limitAt } from "../flow/stored.ts";
import { doingOf, recordDoing } from "../history/doing.ts";
import { childrenToRetry, withSkips } from "../history/forgotten.ts";
import { rangesOf } from "../history/ranges.ts";
import { runOf } from "../history/read-run.ts";
import { MOST_FOLLOWED } from "../locks/deadlock.ts";
import {
  CircleFound,
  dropOrphans,
  dropSomeHolds,
  MOST_MOVED,
  needsFences,
  reenter,
  refenceHolds,
  restBlocked,
  restUnblocked,
  restUntilHeld,
} from "../locks/locks.ts";
import { cancelChildren } from "../runs/cascade.ts";
import { retrySome } from "../runs/retry.ts";
import {
  beginsAtMs,
  type Doing,
  type EndedStatus,
  type Outcome,
  type RunStatus,
  type RunValue,
  type Word,
} from "../stored.ts";
import { type Coroutine, type Driver, NO_FENCES } from "./coroutine.ts";
import { appendFacts, end, leave, park, putBack, release, releaseContradicted, type Unwritten } from "./holder.ts";
import type { PendingOperation, Written } from "./pending.ts";
import { endOf, nothingPrepared, type Prepared, prepare } from "./prepare.ts";

/** One commit writes what at most this many operations need before they begin, and cancels at most this many children. */
export const MOST_BEGUN = 200;

/** A step's fact in a transaction of the user's: the run's row as it will be, the time, and the fact's place in the history. */
export interface Recorded extends Written {
  readonly row: Row | null;
  readonly nowMs: number;
}

/** Locks that the run's record may have and the code does not know of: at most this many. */
interface Orphans {
  readonly most: number;
  readonly isKnown: (id: string) => boolean;
}

const NOTHING: readonly string[] = [];

export class HeldRun implements Driver {
  readonly kernel: Kernel;
  readonly at: Address;
  readonly definition: Definition;
  readonly coroutine: Coroutine;
  readonly #held: Held;
  /** Where the history ended at the claim. */
  readonly claimedHead: number;
  /** The store's clock at the claim, and this process's at the same moment. */
  readonly claimedAtMs: number;
  readonly #claimedHereMs: number;
  /** The run's record as it was last looked at, its version, and how many wake-ups had reached it. */
  value: RunValue;
  valueVersion: number;
  wakes: number;
  #unwritten: Unwritten[] = [];
  /** Children that lost a race, and are not canceled yet. */
  #toCancel: string[] = [];
  /** Locks that a commit of this process got, or has a place in the queue for: `value` may not have them yet. */
  readonly #entered = new LazySet<string>();

  constructor(
    kernel: Kernel,
    definition: Definition,
    held: Held,
    row: Row,
    value: RunValue,
    claimedAtMs: number,
    coroutine: Coroutine,
  ) {
    this.kernel = kernel;
    this.at = held.at;
    this.definition = definition;
    this.coroutine = coroutine;
    this.#held = held;
    this.claimedHead = row.head;
    this.claimedAtMs = claimedAtMs;
    this.#claimedHereMs = kernel.ports.clock.nowMs();
    this.value = value;
    this.valueVersion = row.version;
    this.wakes = row.wakes;
    coroutine.fences = fencesOf(value);
  }

  get id(): string {
    return this.at.key;
  }

  /** The number of the claim under which this process works. */
  get fence(): number {
    return this.#held.fence;
  }

  get clock(): Kernel["ports"]["clock"] {
    return this.kernel.ports.clock;
  }

  /** The store's clock, as well as it is known here. */
  nowMs(): number {
    return Math.round(this.claimedAtMs + this.clock.nowMs() - this.#claimedHereMs);
  }

  /** When the run times out. One that was started by the name of its workflow has the timeout of the code. */
  get timesOutMs(): number | undefined {
    const { deadlineMs, retriedAt } = this.value;
    const { timeoutMs } = this.definition;
    if (deadlineMs !== undefined || timeoutMs === null || retriedAt !== undefined) return deadlineMs;
    return beginsAtMs(this.value) + timeoutMs;
  }

  /** When the run times out; once it is canceled, when its cleanup does. */
  get deadlineMs(): number | undefined {
    const { canceledAtMs } = this.coroutine;
    return canceledAtMs === undefined ? this.timesOutMs : canceledAtMs + this.definition.graceMs;
  }

  // Facts that are not written yet.

  /** A fact that the code has seen: it is written by the next commit. */
  add(name: string, text: string): Written {
    const unwritten = { name, text, version: 0 };
    this.#unwritten = withItem(this.#unwritten, unwritten);
    return unwritten;
  }

  /** A fact that the code made itself. */
  note(word: Word, data: unknown): void {
    this.add(word, this.kernel.encode(this.at, data));
  }

  /** The next commit cancels this child. */
  cancelChild(run: string): void {
    this.#toCancel.push(run);
  }

  get hasUnwritten(): boolean {
    return this.#unwritten.length > 0;
  }

  get hasToCancel(): boolean {
    return this.#toCancel.length > 0;
  }

  /** None of the facts that are not written yet will be. */
  dropUnwritten(): void {
    this.#unwritten = [];
  }

  #takeUnwritten(): readonly Unwritten[] {
    const unwritten = this.#unwritten;
    this.#unwritten = [];
    return unwritten;
  }

  /** Writes facts after those that the code knows. */
  #append(record: Draft, unwritten: readonly Unwritten[]): void {
    this.#checkHead(record);
    appendFacts(record, unwritten);
    // This code follows the history.
    if (this.value.contradicted === undefined && this.value.trouble === undefined) return;
    const { contradicted: _contradicted, trouble: _trouble, ...value } = runOf(record);
    record.write({ value });
  }

  /** The history ends where the code is, so that what the code has seen since can be written after it. */
  #checkHead({ head }: Draft): void {
    if (head !== this.coroutine.head) throw this.#held.commitsLost();
  }

  /** The store may have lost commits: the next one of this run finds out whether the run is what was last seen of it. */
  suspect(): void {
    this.#held.suspect();
  }

  /** Throws if the code that was replayed did not get to where the history ended at the claim. */
  checkReplayed(): void {
    if (this.coroutine.head < this.claimedHead) throw this.#held.commitsLost();
  }

  /** Whether the lease may have ended: then nothing new may begin. */
  get isLeaseUncertain(): boolean {
    return this.clock.nowMs() >= (this.#held.lease?.safeUntilMs ?? Number.POSITIVE_INFINITY);
  }

  // Before the code runs.

  /** How often the run was claimed without progress. */
  get tries(): number {
    return this.#held.tries;
  }

  /** Whether a worker may still be at work under the fences of the locks that the run holds. */
  get needsFences(): boolean {
    return needsFences(this.value, this.#held.tries);
  }

  /** Gives new fences to the locks that the run holds: the worker before may not know that it lost the run. */
  async refence(): Promise<void> {
    let done: readonly string[] = [];
    for (let isAll = false; !isAll; ) {
      const refenced = await this.#held.commit((record, tx) => refenceHolds(tx, record, done));
      ({ value: this.value, done, isAll } = refenced);
    }
    this.coroutine.fences = fencesOf(this.value);
  }

  /** The commit that retried the run left its children to be retried here, because they are many. */
  async retryChildren(isOver: () => boolean): Promise<void> {
    const children = await childrenToRetry(this.kernel, this.at, this.value);
    while (this.value.retrying !== undefined && !isOver())
      this.value = await this.#held.commit((record, tx) => retrySome(tx, record, children));
  }

  /** Reads the run's record; returns the store's clock. */
  async look(): Promise<number> {
    const { value, version, wakes, nowMs } = await this.#held.look((record, tx) => ({
      value: runOf(record),
      version: record.version,
      wakes: record.wakes,
      nowMs: tx.nowMs,
    }));
    this.value = value;
    this.valueVersion = version;
    this.wakes = wakes;
    return nowMs;
  }

  // While the code runs.

  /** Writes what the code has seen, and what these operations need before they begin; then calls `committed`. */
  commit(toBegin: readonly PendingOperation[], committed: (made: Prepared) => void): Promise<void> {
    const unwritten = this.#takeUnwritten();
    const orphans = this.#takeOrphans();
    if (orphans === undefined || orphans.most <= MOST_MOVED)
      return this.#commit(unwritten, orphans, toBegin, committed);
    return this.#dropMany(unwritten, orphans).then(() => this.#commit([], undefined, toBegin, committed));
  }

  #commit(
    unwritten: readonly Unwritten[],
    orphans: Orphans | undefined,
    toBegin: readonly PendingOperation[],
    committed: (made: Prepared) => void,
  ): Promise<void> {
    const toCancel = this.#toCancel.length === 0 ? NOTHING : this.#toCancel.splice(0, MOST_BEGUN);
    const decide = (record: Draft, tx: Tx): Prepared => {
      this.#append(record, unwritten);
      if (orphans !== undefined) dropOrphans(tx, record, orphans.isKnown);
      if (toCancel.length > 0) cancelChildren(tx, toCancel, this.id);
      return prepare(tx, record, this.id, toBegin, this.#awaitedChildren);
    };
    const mayLack = toBegin.some(({ kind }) => kind === "stream");
    const commit = mayLack ? this.kernel.mending(() => this.#held.commit(decide)) : this.#held.commit(decide);
    return commit.then((made) => {
      for (const pending of made.queued) {
        pending.isQueued = true;
        pending.queuedVersion = made.version;
      }
      for (const [{ id }, word] of made.outcomes) if (word === "granted" || word === "placed") this.#entered.add(id);
      for (const pending of toBegin) pending.isSuspected = false;
      this.#advanceHead(unwritten, made);
      committed(made);
    });
  }

  #advanceHead(unwritten: readonly Unwritten[], made: Prepared): void {
    this.coroutine.head += unwritten.length + made.facts;
    for (const [pending, dueMs] of made.timers) pending.dueMs = dueMs;
  }

  /**
   * The locks that the code does not wait for any more, as of now: the commit that writes the facts up to here releases them. Those that it drops
   * later are not among them, because without the facts of that time another worker's code would still wait for them.
   */
  #takeOrphans(): Orphans | undefined {
    const { coroutine } = this;
    const most = coroutine.orphans;
    if (most === 0) return undefined;
    coroutine.orphans = 0;
    const known = new Set(coroutine.kept.keys());
    for (const { kind, id } of coroutine.waiting.values()) if (kind === "lock") known.add(id);
    return { most, isKnown: (id) => known.has(id) };
  }

  /** Writes these facts, and releases what may be too much for one commit. */
  async #dropMany(unwritten: readonly Unwritten[], orphans: Orphans): Promise<void> {
    let facts = unwritten;
    for (let isMore = true; isMore; ) {
      isMore = await this.#held.commit((record, tx) => {
        this.#append(record, facts);
        return dropOrphans(tx, record, orphans.isKnown);
      });
      this.coroutine.head += facts.length;
      facts = [];
    }
  }

  /** What the next commit writes and releases. What is too much for one commit has been written and released then. */
  async #takeFew(): Promise<{ readonly unwritten: readonly Unwritten[]; readonly orphans: Orphans | undefined }> {
    const unwritten = this.#takeUnwritten();
    const orphans = this.#takeOrphans();
    if (orphans === undefined || orphans.most <= MOST_MOVED) return { unwritten, orphans };
    await this.#dropMany(unwritten, orphans);
    return { unwritten: [], orphans: undefined };
  }

  /** The children that it waits for, or more of them than are followed to find a circle. */
  readonly #awaitedChildren = (): readonly string[] => {
    const children = new Set<string>();
    for (const { childId } of this.coroutine.watched.calls) {
      if (childId !== undefined) children.add(childId);
      if (children.size > MOST_FOLLOWED) break;
    }
    return [...children];
  };

  /**
   * Releases the run until something is due or wakes it. It is not released ("woken") if a wake-up arrived since the inbox was last read, and
   * neither if it would wait forever, in a circle of runs that wait for each other.
   */
  async rest(toBegin: readonly PendingOperation[]): Promise<"rested" | "woken" | "circle"> {
    const { unwritten, orphans } = await this.#takeFew();
    let made = nothingPrepared();
    const isBlocked = this.#isBlockedByOthers();
    const nowMs = this.nowMs();
    const answer = await this.#restHeld(
      (tx) => this.#nextDue(tx, toBegin),
      (record, tx) => {
        this.#append(record, unwritten);
        if (orphans !== undefined) dropOrphans(tx, record, orphans.isKnown);
        made = prepare(tx, record, this.id, toBegin);
        record.write({ status: "waiting" satisfies RunStatus });
        if (isBlocked) restBlocked(tx, record, this.#awaitedChildren(), this.#nextDue(tx, toBegin));
        else if (this.value.blocked !== undefined) restUnblocked(record);
        recordDoing(record, doingOf(this.coroutine.waiting, nowMs, undefined, made.timers));
      },
    );
    if (answer === "rested") this.#advanceHead(unwritten, made);
    else {
      this.#unwritten = [...unwritten, ...this.#unwritten];
      this.coroutine.orphans += orphans?.most ?? 0;
    }
    return answer;
  }

  /** When the run is due by itself, if these begin now; null if it is not. */
  #nextDue(tx: Tx, toBegin: readonly PendingOperation[]): number | null {
    let due = this.deadlineMs ?? null;
    const earlier = (ms: number | null): void => {
      if (ms !== null && (due === null || ms < due)) due = ms;
    };
    for (const pending of toBegin) earlier(endOf(pending, tx));
    for (const { dueMs } of this.coroutine.watched.timed) earlier(dueMs);
    return due;
  }

  async #restHeld(
    dueMs: (tx: Tx) => number | null,
    write: (record: Draft, tx: Tx) => void,
  ): Promise<"rested" | "woken" | "circle"> {
    try {
      return await this.#held.rest(dueMs, write);
    } catch (error) {
      if (error instanceof CircleFound) return "circle";
      throw error;
    }
  }

  /** Whether nothing can make its code continue but a lock that is freed, or a child that ends. */
  #isBlockedByOthers(): boolean {
    // The end of a cleanup's grace is far off: a circle is found before.
    if (this.timesOutMs !== undefined && this.coroutine.canceled === undefined) return false;
    const { waiting, watched } = this.coroutine;
    const others = watched.locks + watched.calls.size;
    if (others === 0) return false;
    if (watched.timed.size === 0 && waiting.size === others) return true;
    for (const pending of waiting.values()) {
      const isForOther = pending.kind === "lock" ? pending.dueMs === null : watched.calls.has(pending);
      if (!isForOther && !pending.isUnheard) return false;
    }
    return true;
  }

  /** In a transaction of the user's: the step's fact, and before it the facts that are not written yet. A decision: it may run more than once. */
  recordStep(tx: Tx, pending: PendingOperation, text: string): Recorded {
    const record = tx.record(this.at);
    if (!isHolder(record, this.#held)) throw new FencedError(this.id, this.#held.fence, record.fence);
    this.#held.checkSame(record);
    this.#append(record, this.#unwritten);
    const version = record.appendText(`step ${pending.id}`, text);
    return { row: record.row, nowMs: tx.nowMs, version };
  }

  /** That transaction was committed. */
  stepRecorded({ row }: Recorded): void {
    if (row !== null) this.kernel.hold(this.at, row);
    this.coroutine.head += this.#unwritten.length + 1;
    this.#unwritten = [];
  }

  // Locks after a retry.

  /**
   * A run that had ended has released its locks. Retried, its code may act as if it held one, because it remembers the grant: before
   * anything is done under the lock, the run waits for it again, and its code is replayed with the new fence.
   */
  get hasLostLocks(): boolean {
    const { retriedAt, holds } = this.value;
    if (retriedAt === undefined || this.coroutine.kept.size === 0) return false;
    const known = new Map(holds?.map(({ id, fence }) => [id, fence]));
    for (const [id, { isHeld }] of this.coroutine.kept) {
      if (this.#entered.has(id)) continue;
      // Without a fence it is in the queue: something else may have woken the run.
      if (known.has(id) ? isHeld && known.get(id) === undefined : !this.#isTakenOver(id, known)) return true;
    }
    return false;
  }

  /** Whether the record has this place under an operation that waits in it: the code, after a retry, knows it under its own name. */
  #isTakenOver(place: string, known: { has(id: string): boolean }): boolean {
    for (const { id, plan } of this.coroutine.waiting.values())
      if (plan.kind === "lock" && plan.resumes === place && known.has(id)) return true;
    return false;
  }

  /**
   * Requests those locks again, and releases the run until it holds them. A grant that would never come again, because the run would be in a circle
   * of runs that wait for each other, is forgotten: the code then waits for the lock itself, and gets the deadlock as its error.
   */
  async reenter(isOver: () => boolean): Promise<void> {
    const { kept, rememberedUnlocks } = this.coroutine;
    const { unwritten, orphans } = await this.#takeFew();
    const enter = (record: Draft, tx: Tx): boolean => {
      if (orphans !== undefined) dropOrphans(tx, record, orphans.isKnown);
      const entered = reenter(tx, record, kept, (place, known) => this.#isTakenOver(place, known));
      if (entered === "more") return false;
      this.#append(record, unwritten);
      const refused = entered === "waiting" ? restUntilHeld(tx, record, kept) : undefined;
      const dueMs = entered === "waiting" && refused === undefined ? null : tx.nowMs;
      // A release that is remembered was of the hold before.
      const forgotten = refused === undefined ? rememberedUnlocks : [...rememberedUnlocks, refused.at.version];
      const value = withSkips(record, runOf(record), rangesOf(forgotten));
      record.write({ value, holder: null, dueMs, tries: 0, status: "waiting" satisfies RunStatus });
      return true;
    };
    for (let isDone = false; !isDone && !isOver(); ) isDone = await this.#held.commit(enter);
  }

  // When the work on it ends here.

  /** Releases the run for another worker, immediately. */
  async release(doing: Doing | undefined): Promise<void> {
    const unwritten = this.#takeUnwritten();
    await this.#held.commit((record, tx) => {
      this.#append(record, unwritten);
      cancelChildren(tx, this.#toCancel.slice(0, MOST_BEGUN), this.id);
      release(record, tx);
      if (doing !== undefined) recordDoing(record, doing);
    });
  }

  /** Parks the run until an operator resolves it. */
  async park(reason: string, doing: Doing | undefined): Promise<void> {
    const unwritten = this.#takeUnwritten();
    await this.#held.commit((record) => {
      if (unwritten.length > 0) this.#append(record, unwritten);
      park(record, reason);
      if (doing !== undefined) recordDoing(record, doing);
    });
  }

  /** Makes the run due again after a while. A failure of the store counts as no try. */
  async putBack(isStore: boolean, reason: string): Promise<void> {
    const delayMs = Math.min(60_000, 100 * 2 ** Math.min(this.#held.tries - 1, 20));
    await this.#held.commit((record, tx) => putBack(record, tx, delayMs, isStore, reason));
  }

  /** Releases the run to workers with different code. Parks it, and returns true, if workers have done that for `contradictionMs`. */
  contradicted(reason: string, contradictionMs: number): Promise<boolean> {
    return this.#held.commit((record, tx) => {
      const { contradicted } = runOf(record);
      const isLong = contradicted !== undefined && tx.nowMs - contradicted.sinceMs >= contradictionMs;
      if (isLong) park(record, reason);
      else releaseContradicted(record, tx, reason);
      return isLong;
    });
  }

  /** Releases the run to workers that have what is missing here. */
  async leave(reason: string): Promise<void> {
    await this.#held.commit((record, tx) => leave(record, tx, reason));
  }

  /**
   * Before the end: cancels children and releases locks, as far as they are too many for the commit that ends the run. What the code has seen is
   * written before: a process may be lost in between, and without it another worker's code could still need them.
   */
  async prepareEnd(isOver: () => boolean): Promise<readonly string[]> {
    const children = this.coroutine.livingChildren;
    const mostHolds = this.coroutine.kept.size + this.coroutine.orphans;
    if (children.length === 0 && mostHolds === 0) return NOTHING;
    const canceled = children.flatMap(({ run, whenParentEnds }) => (whenParentEnds === "cancel" ? [run] : []));
    const hasManyHolds = mostHolds > MOST_BEGUN / 4;
    if (this.hasUnwritten && (hasManyHolds || canceled.length > MOST_BEGUN)) {
      const unwritten = this.#takeUnwritten();
      await this.#held.commit((record) => this.#append(record, unwritten));
      this.coroutine.head += unwritten.length;
    }
    let first = 0;
    for (; canceled.length - first > MOST_BEGUN && !isOver(); first += MOST_BEGUN) {
      const some = canceled.slice(first, first + MOST_BEGUN);
      await this.#held.commit((_record, tx) => cancelChildren(tx, some, this.id));
    }
    for (let isMore = hasManyHolds; isMore && !isOver(); )
      isMore = await this.#held.commit((record, tx) => dropSomeHolds(tx, record));
    return canceled.slice(first);
  }

  /** Writes the last facts and the end of the run, and cancels these children. */
  async end(
    status: EndedStatus,
    outcome: Outcome,
    children: readonly string[],
    keptMs: number | null,
    handOver: HandOver | undefined,
  ): Promise<void> {
    const unwritten = this.#unwritten;
    const { forgettable } = this.coroutine;
    const nowMs = this.nowMs();
    const decide = (record: Draft, tx: Tx): Succession | undefined => {
      this.#append(record, unwritten);
      cancelChildren(tx, children, this.id);
      const next = handOver?.decide();
      end(tx, record, this.id, { status, outcome, forgettable, nowMs, keptMs, next });
      return next;
    };
    const limits = this.value.gate?.places?.map(limitAt) ?? [];
    const expected = handOver?.expected ?? [];
    // Where runs wait, the decision needs the store's clock.
    const next = await (expected.length === 0
      ? this.#held.commit(decide, limits)
      : this.#held.commitLocked(decide, [...limits, ...expected]));
    if (next !== undefined) handOver?.committed(next);
  }
}

function fencesOf({ holds }: RunValue): ReadonlyMap<string, number> {
  if (holds === undefined) return NO_FENCES;
  return new Map(holds.flatMap(({ id, fence }) => (fence === undefined ? [] : [[id, fence] as const])));
}
