/**
 * A worker: a loop that claims due records of some kinds and calls a function with each, at most `concurrency` at a time.
 *
 * It sleeps until a commit makes something due (it is notified of its own process's commits immediately, and of others through the
 * store's watch), until the next timer, or until a slow poll that makes up for lost wake-ups. While the function works, the lease is
 * renewed; when it is lost, or cannot be renewed in time, `abortSignal` aborts.
 *
 * A record that was claimed several times without coming to rest may be the one that crashes its processes. Such suspects are claimed a few
 * at a time (`suspects.ts`).
 *
 * A record that cannot be claimed for a reason of its own (a number out of range, a value that cannot be read) is reported and skipped for a
 * while; it does not count towards `concurrency`.
 *
 * If the function throws, its record is due again later, with a growing delay; if its process dies, the record is due at
 * the end of the lease. Both are counted in `tries`.
 */

import { type Backoff, backoffMs } from "../backoff.ts";
import type { Queue } from "../capability.ts";
import { checkCount, checkDuration, checkId } from "../check.ts";
import type { Address, Put, Row } from "../contract.ts";
import type { Draft } from "../draft.ts";
import { ClosedError, FencedError } from "../errors.ts";
import type { CommitListener, Kernel } from "../kernel.ts";
import { fencedOrRenewed, type Lease } from "../lease.ts";
import { pause } from "../ports.ts";
import { type Chores, checkLeaseOf, claim, claimDue, Held, isOfRecord, type Suspect } from "./claim.ts";
import { WaitingRoom } from "./room.ts";
import { LAST_TRY, MOST_TRIES, Suspects } from "./suspects.ts";

export interface WorkerOptions {
  /** The kinds of records that are claimed and worked on. */
  readonly kinds: readonly string[];
  /** Names this worker among its peers. */
  readonly by: string;
  readonly leaseMs?: number;
  readonly concurrency?: number;
  /** What a claimed record's status becomes. */
  readonly status?: string | undefined;
  /** The slow poll for wake-ups that were lost. */
  readonly pollMs?: number;
  /** Must end with `held.rest`, or by removing the record; a record that it leaves held comes due when the lease ends. */
  readonly work: (held: Held, lease: Lease) => Promise<void>;
  /** Receives what `work` threw, and errors of the worker itself. Log them: no caller receives them. */
  readonly failed: (error: unknown) => void;
  /** Called when a lease is lost, or may be. */
  readonly lost?: ((held: Held, reason: unknown) => void) | undefined;
  /** Called before each renewal of the lease. Returns what to write in the same commit. */
  readonly renewing?: ((held: Held) => ((record: Draft) => void) | undefined) | undefined;
  /** Whether commits of other processes wake the worker, because they may make something due. Default: true. */
  readonly wakesOnOtherCommits?: boolean | undefined;
  /** Records that this worker leaves to other workers for now. */
  readonly isSkipped?: ((at: Address) => boolean) | undefined;
  /** Queues whose records are not claimed: their chore runs instead, in a commit of its own. Default: those that are urgent. */
  readonly chores?: readonly Queue[] | undefined;
  /** How many more records of this kind may be claimed now. Default: no limit. */
  readonly roomFor?: ((kind: string) => number) | undefined;
  /** Kinds of one group share their room. Default: each has its own. */
  readonly groupOf?: ((kind: string) => string) | undefined;
  /** The kind of a record after it was claimed. Default: the same. */
  readonly kindAfter?: ((kind: string) => string) | undefined;
  /** Its records are held all the time, whether there is something to do or not. Default: false. */
  readonly isStanding?: boolean | undefined;
  /** How often a record of this kind is tried before `work` gives it up. Default: no limit. */
  readonly maxTries?: ((kind: string) => number) | undefined;
  /** What to write besides when a record is released whose work was not begun. */
  readonly unbegun?: ((record: Draft) => void) | undefined;
  /**
   * Called with a record that was claimed ahead of a free place, and waits for one: it may have changed when its work begins. Default: no record is
   * claimed before there is a place for it.
   */
  readonly waits?: ((held: Held) => void) | undefined;
}

type Optional =
  | "unbegun"
  | "waits"
  | "isStanding"
  | "roomFor"
  | "groupOf"
  | "kindAfter"
  | "renewing"
  | "status"
  | "lost"
  | "chores"
  | "maxTries"
  | "isSkipped";

/** The delay after which a record whose work threw is due again. */
const PUT_BACK: Backoff = { firstMs: 100, longestMs: 60_000 };

/** How many due records are read at most, to find some behind the suspects. */
const MOST_LOOKED_AT = 5000;
/** A record that could not be claimed is tried again after this time: it may have been repaired. */
const UNUSABLE_MS = 60_000;
/** How many of them are remembered. */
const MOST_UNUSABLE = 1000;

/** How long work that was aborted has to end. */
const ABORTED_MS = 100;

const WOKEN = "woken";

/** Beyond the time that a look at the store may take. */
const STALLED_MS = 10_000;

/** Starts a worker, which runs until `stop`. */
export function startWorker(kernel: Kernel, options: WorkerOptions): Worker {
  return new Worker(kernel, options);
}

export class Worker {
  readonly #kernel: Kernel;
  readonly #options: Required<Omit<WorkerOptions, Optional>> & Pick<WorkerOptions, Optional>;
  /** The records that are being worked on. */
  readonly #working = new Set<Held>();
  /** Those of them that only wait for the commit that ends them. */
  readonly #leaving = new Set<Held>();
  readonly #stopping = new AbortController();
  /** Called when the last of the work is done after `stop`. */
  #whenIdle: () => void = () => {};
  #wakeSignal: AbortController = new AbortController();
  readonly #suspects: Suspects;
  /** How many more due records to read than can be claimed, so that suspects do not hide the others. */
  #passed = 0;
  /** Records that cannot be claimed, by their texts, and until when they are skipped. */
  readonly #unusable = new Map<string, number>();
  /** More records may be due than could be claimed. */
  #mayHaveMore = false;
  /** How many records the claim that is in progress may bring; while it reads which are due, only those that were owed a place before. */
  #claiming = 0;
  /** Places for records that a commit in progress claims (`reserve`). */
  #reserved = 0;
  /** Records that were claimed or adopted while there was no free place. */
  readonly #room: WaitingRoom<Waiting>;
  /** Commits in progress that release records whose work was not begun. */
  readonly #returning = new Set<Promise<void>>();
  /** Cancels the timer that releases what waits there for too long. */
  #cancelRelease: (() => void) | undefined;
  /** Other records are due, as far as is known: they are claimed before more are adopted than there are places. */
  #isBehind = false;
  /** When the loop last turned, by this process's clock. */
  #turnedMs: number;
  readonly #ended: Promise<unknown>;

  constructor(kernel: Kernel, options: WorkerOptions) {
    this.#kernel = kernel;
    for (const kind of options.kinds) checkId(kind, "the kind");
    this.#options = {
      ...options,
      by: checkId(options.by, "the holder"),
      leaseMs: checkLeaseOf(
        kernel,
        (options.isStanding === true ? kernel.ports.standingLeaseMs : undefined) ?? options.leaseMs ?? 30_000,
      ),
      concurrency: checkCount(options.concurrency ?? 10, "the concurrency"),
      pollMs: checkDuration(options.pollMs ?? 5_000, "the poll"),
      wakesOnOtherCommits: options.wakesOnOtherCommits ?? true,
    };
    this.#room = new WaitingRoom(this.#options.leaseMs);
    this.#suspects = new Suspects(kernel.ports.clock, () => this.#wakeUp());
    this.#turnedMs = kernel.ports.clock.nowMs();
    kernel.loops.add(this);
    this.#ended = this.#claimLoop();
  }

  /** Whether the loop has not turned for much longer than a look at the store can take. */
  get isStalled(): boolean {
    const { ports, patienceMs } = this.#kernel;
    return ports.clock.nowMs() - this.#turnedMs > this.#options.pollMs + 2 * patienceMs + STALLED_MS;
  }

  /**
   * Claims no more records, and waits for the work in progress. After `timeoutMs`, that is aborted as if its leases were lost, and whatever
   * does not end soon is left to its lease. Default: no limit.
   */
  async stop(timeoutMs?: number | undefined): Promise<void> {
    this.#stopping.abort();
    this.#wakeUp();
    if (timeoutMs === undefined) return void (await this.#ended);
    const { clock } = this.#kernel.ports;
    const ended = new AbortController();
    const isEnded = this.#ended.then(() => ended.abort(WOKEN));
    await Promise.race([isEnded, pause(clock, timeoutMs, ended.signal)]);
    if (ended.signal.aborted) return;
    for (const { lease } of this.#working) lease?.lose(new Error("the worker shuts down"));
    await Promise.race([isEnded, pause(clock, ABORTED_MS, ended.signal)]);
  }

  /** How many records are being worked on, without those for which only the last commit is left. */
  get workingCount(): number {
    return this.#working.size - this.#leaving.size;
  }

  /** More records may be due, or wait here, than there were places for. */
  get mayHaveMore(): boolean {
    return this.#mayHaveMore || this.#room.size > 0;
  }

  /**
   * Only the last commit of this record is left, so another one can be claimed already. `reserve` may keep the place for a record that this commit
   * claims, before one that waits takes it.
   */
  leaving<T>(held: Held, reserve: () => T): T {
    if (this.#working.has(held)) this.#leaving.add(held);
    const reserved = reserve();
    this.#letIn();
    return reserved;
  }

  /** Keeps up to `count` places free for records that another commit is about to claim for this worker. Returns how many: `release` as many afterwards. */
  reserve(count: number): number {
    if (this.#stopped) return 0;
    const reserved = Math.max(0, Math.min(count, this.#emptyPlaces - this.#claiming));
    this.#reserved += reserved;
    return reserved;
  }

  release(count: number): void {
    this.#reserved -= count;
    this.#letIn();
    if (count > 0 && this.#mayHaveMore) this.#wakeUp();
  }

  /**
   * Whether a commit in progress may claim one more record for this worker, besides `count` that others may claim: for a free place, or for the
   * waiting room if it may wait.
   */
  canAdopt(count: number, mayWait: boolean): boolean {
    if (this.#stopped) return false;
    const free = this.#freePlaces - count;
    if (free > 0) return true;
    if (!mayWait || this.#isBehind) return false;
    if (free + this.#room.capacity > 0) return true;
    // What is made now waits for a claim, and what is made later must not get ahead of it.
    this.#isBehind = true;
    return false;
  }

  /**
   * Works on a record that was claimed by another commit of this process, as by the one that created it; its lease began no earlier than `safeUntilMs`
   * assumes. If it may wait, it begins when there is a free place.
   */
  adopt(held: Held, safeUntilMs: number, mayWait = false): void {
    if (!mayWait || this.#freePlaces > this.#claiming) {
      this.#begin({ held, safeUntilMs, tries: 0 });
      return;
    }
    this.#enter({ held, safeUntilMs, tries: 0 });
  }

  #enter(waiting: Waiting): void {
    this.#room.enter(waiting, this.#kernel.ports.clock.nowMs());
    this.#releaseInTime();
  }

  /** A record that the loop has claimed begins, or waits for a place if it was claimed ahead of one. */
  #granted(waiting: Waiting): void {
    if (this.#freePlaces > 0 || this.#options.waits === undefined) {
      this.#claiming = Math.max(0, this.#claiming - 1);
      this.#begin(waiting);
      return;
    }
    this.#options.waits(waiting.held);
    this.#enter(waiting);
  }

  /** How many records may be claimed that have to wait for a place. Not while suspects are due, which are claimed for free places only. */
  get #ahead(): number {
    if (this.#options.waits === undefined || !this.#isBehind || this.#passed > 0) return 0;
    return this.#room.ahead;
  }

  /** So few wait for a place that it is time to claim more. */
  get #isLow(): boolean {
    return this.#room.size <= this.#ahead / 2;
  }

  /** Releases records that wait for a place. */
  releaseWaiting(isChosen: (held: Held) => boolean): void {
    this.#release(this.#room.take(({ held }) => isChosen(held)));
  }

  /** Workers that have a place will claim them, this one too. */
  #release(released: readonly Waiting[]): void {
    if (released.length > 0) this.#isBehind = true;
    for (const { held } of released) this.#returnUntried(held);
    this.#releaseInTime();
  }

  #releaseInTime(): void {
    const { nextTooLongMs } = this.#room;
    if (nextTooLongMs === undefined) {
      this.#cancelRelease?.();
      this.#cancelRelease = undefined;
    } else if (this.#cancelRelease === undefined) {
      const { clock } = this.#kernel.ports;
      this.#cancelRelease = clock.after(Math.max(1, nextTooLongMs - clock.nowMs()), () => {
        this.#cancelRelease = undefined;
        this.#release(this.#room.takeLate(clock.nowMs()));
      });
    }
  }

  /** Begins what waits, as far as there are places. */
  #letIn(): void {
    while (this.#room.size > 0 && this.#emptyPlaces > this.#claiming) {
      const next = this.#room.next();
      if (next !== undefined) this.#begin(next);
    }
    if (this.#room.size === 0) this.#releaseInTime();
  }

  /** Looks for due records soon: more of them may be claimed than before. */
  wake(): void {
    this.#wakeUp();
  }

  get #stopped(): boolean {
    return this.#stopping.signal.aborted;
  }

  /** Places in which nothing is worked on. */
  get #emptyPlaces(): number {
    return this.#options.concurrency - this.workingCount - this.#reserved;
  }

  /** Those that no record waits for; without those that a claim in progress may take. Below 0 while records wait for a place. */
  get #freePlaces(): number {
    return this.#emptyPlaces - this.#room.size;
  }

  #wakeUp(): void {
    // With a constant reason, because the default one, an error, is costly to make.
    this.#wakeSignal.abort(WOKEN);
  }

  async #claimLoop(): Promise<void> {
    const { by, leaseMs, pollMs, status } = this.#options;
    const { chores: queues = this.#kernel.sweeper.urgent } = this.#options;
    const chores: Chores = new Map(queues.map(({ kind, chore }) => [kind, chore]));
    const all = [...this.#options.kinds, ...chores.keys()];
    const { roomFor } = this.#options;
    const { clock, chance } = this.#kernel.ports;
    const unlisten = this.#listen((puts) => {
      if (!(puts?.some((put) => isNews(put, all)) ?? this.#options.wakesOnOtherCommits)) return;
      if (this.#freePlaces <= this.#claiming) this.#isBehind = true;
      this.#wakeUp();
    });
    let choresAtMs = clock.nowMs();
    while (!this.#stopped) {
      this.#turnedMs = clock.nowMs();
      // Made before claiming, so that a wake-up during the claim is not lost.
      this.#wakeSignal = new AbortController();
      const free = this.#freePlaces;
      const most = free > 0 || this.#isLow ? free + this.#ahead : 0;
      // What was due and got no place comes before what other commits claim.
      const isOwed = this.#mayHaveMore;
      this.#mayHaveMore = most <= 0;
      let waitMs = pollMs;
      if (most > 0) choresAtMs = clock.nowMs();
      // Others wait for urgent chores: they are done without a free place, too, but not at each wake-up.
      else if (chores.size > 0 && Math.abs(clock.nowMs() - choresAtMs) >= pollMs) {
        choresAtMs = clock.nowMs();
        await this.#doChores(chores);
      }
      if (most > 0) {
        try {
          const startedMs = clock.nowMs();
          const kinds = roomFor === undefined ? all : all.filter((kind) => chores.has(kind) || roomFor(kind) > 0);
          for (const [text, untilMs] of this.#unusable) if (untilMs <= startedMs) this.#unusable.delete(text);
          const granted = (held: Held) =>
            this.#granted({ held, safeUntilMs: startedMs + leaseMs, tries: held.tries - 1 });
          const look = Math.min(most + this.#passed, MOST_LOOKED_AT);
          if (isOwed) this.#claiming = Math.max(0, free);
          const { held, nextInMs, isFull, isShort, tried, hadChores, suspects, skipped } = await claimDue(
            this.#kernel,
            {
              kinds,
              by,
              leaseMs,
              limit: most,
              // While the due records were read, other commits may have taken places.
              places: (count) => {
                const places = this.#freePlaces;
                this.#claiming = Math.max(0, Math.min(count, places));
                return Math.max(0, Math.min(count, places + this.#ahead));
              },
              look,
              status,
              roomFor: this.#options.roomFor,
              groupOf: this.#options.groupOf,
              kindAfter: this.#options.kindAfter,
              // The last try is always one of a suspect, unless the record has only one try.
              mostTries: (kind) =>
                this.#suspects.hasLastTry ? 0 : Math.max(0, Math.min(MOST_TRIES, this.#maxTries(kind) - 2)),
              granted,
              isSkipped: (at) => this.#unusable.has(at.text) || this.#options.isSkipped?.(at) === true,
              chores,
              unusable: (at, error) => this.#leaveAlone(at, error),
            },
          );
          if (held.length > 0) this.#room.claimed(clock.nowMs() - startedMs, clock.nowMs());
          const passed = suspects.length + skipped;
          // If the whole page had only those, it reads a much longer one the next time.
          this.#passed = isFull ? 4 * passed : passed;
          if (await this.#claimSuspects([...suspects], startedMs + leaseMs)) continue;
          this.#mayHaveMore = isFull || isShort;
          this.#isBehind = isFull || isShort;
          if (held.length > 0 || hadChores) continue;
          // The places that other commits took may be free again.
          if (isShort && this.#freePlaces > 0) continue;
          // Other workers claimed all of them first, and there may be more: try again after a short random delay. Suspects are tried again
          // only when one of those in work is cleared.
          if (isFull && (tried > 0 || look < MOST_LOOKED_AT)) waitMs = 1 + 10 * chance.random();
          else if (nextInMs !== null) waitMs = Math.min(waitMs, Math.max(1, nextInMs));
        } catch (error) {
          this.#failed(error);
          // The handle is closed, so there is nothing more to claim.
          if (error instanceof ClosedError) break;
        } finally {
          this.#claiming = 0;
          this.#letIn();
        }
      }
      await pause(clock, waitMs, this.#wakeSignal.signal);
    }
    unlisten();
    this.#kernel.loops.delete(this);
    // What was not begun is left to other workers.
    this.#release(this.#room.take(() => true));
    // A claim that was in progress at `stop` may have added one more.
    while (this.#working.size > 0)
      await new Promise<void>((resolve) => {
        this.#whenIdle = resolve;
      });
    await Promise.all(this.#returning);
  }

  /** Does chores that are due, and claims nothing. */
  async #doChores(chores: Chores): Promise<void> {
    const { by, leaseMs, concurrency: limit } = this.#options;
    try {
      await claimDue(this.#kernel, {
        kinds: [...chores.keys()],
        by,
        leaseMs,
        limit,
        isSkipped: ({ text }) => this.#unusable.has(text),
        chores,
        unusable: (at, error) => this.#leaveAlone(at, error),
      });
    } catch (error) {
      this.#failed(error);
    }
  }

  /** Claims suspects as long as not too many of them are in work. */
  async #claimSuspects(suspects: Suspect[], safeUntilMs: number): Promise<boolean> {
    const { chance } = this.#kernel.ports;
    let hasClaimed = false;
    for (;;) {
      // In random order: in a fixed order, the same innocent record would always be in work when the cause crashes the process.
      const [suspect] = suspects.splice(Math.floor(suspects.length * chance.random()), 1);
      if (!(await this.#claimSuspect(suspect, safeUntilMs))) return hasClaimed;
      hasClaimed = true;
    }
  }

  /** Claims one suspect. Returns false if none may be claimed now. */
  async #claimSuspect(suspect: Suspect | undefined, safeUntilMs: number): Promise<boolean> {
    const { by, leaseMs, status } = this.#options;
    if (suspect === undefined || this.#freePlaces <= 0) return false;
    const { at, kind } = suspect;
    if (this.#options.roomFor !== undefined && this.#options.roomFor(kind) <= 0) return false;
    const tries = suspect.tries + 1 >= this.#maxTries(kind) ? LAST_TRY : suspect.tries;
    if (!this.#suspects.mayAdd(tries)) return false;
    let row: Row | undefined;
    this.#reserved += 1;
    try {
      row = await this.#kernel.transact(
        (tx) => claim(tx, at, { by, leaseMs, status, kind, kindAfter: this.#options.kindAfter }),
        [at],
      );
    } catch (error) {
      if (!isOfRecord(error)) throw error;
      this.#leaveAlone(at, error);
    } finally {
      this.#reserved -= 1;
    }
    if (row === undefined) return true;
    this.#begin({ held: new Held(this.#kernel, row), safeUntilMs, tries });
    return true;
  }

  /** Works on a claimed record; one that was tried before is a suspect until it has run for a while. */
  #begin({ held, safeUntilMs, tries }: Waiting): void {
    if (this.#kernel.ports.clock.nowMs() >= safeUntilMs) {
      this.#returnUntried(held);
      return;
    }
    const working = this.#work(held, safeUntilMs);
    if (tries !== 0) this.#suspects.add(held, tries, working);
  }

  /** No work was begun: the reply to the claim came when the lease may have ended, or it waited for a place for too long. The try is not counted. */
  #returnUntried(held: Held): void {
    const returning = this.#return(held);
    this.#returning.add(returning);
    void returning.then(() => this.#returning.delete(returning));
  }

  async #return(held: Held): Promise<void> {
    const { unbegun } = this.#options;
    try {
      await held.commit((record, tx) => {
        record.write({ holder: null, dueMs: tx.nowMs, tries: record.tries - 1 });
        unbegun?.(record);
      });
    } catch (error) {
      if (!(error instanceof FencedError)) this.#failed(error);
    }
    held.abandon();
  }

  /** A record that cannot be claimed stays due: it is skipped, and tried again later. */
  #leaveAlone({ text }: Address, error: unknown): void {
    this.#failed(error);
    if (this.#unusable.size >= MOST_UNUSABLE) return;
    this.#unusable.set(text, this.#kernel.ports.clock.nowMs() + UNUSABLE_MS);
  }

  #maxTries(kind: string): number {
    return this.#options.maxTries?.(kind) ?? Number.POSITIVE_INFINITY;
  }

  /** On a handle that is already closed there is nothing to listen to; the first claim throws `closed`. */
  #listen(listener: CommitListener): () => void {
    try {
      return this.#kernel.listen(listener);
    } catch (error) {
      if (error instanceof ClosedError) return () => {};
      throw error;
    }
  }

  async #work(held: Held, safeUntilMs: number): Promise<void> {
    const { leaseMs, renewing, lost } = this.#options;
    this.#working.add(held);
    const lease = this.#kernel.leases.keep({
      leaseMs,
      safeUntilMs,
      renew: () => fencedOrRenewed(held.renew(leaseMs, renewing?.(held))),
      lost: lost === undefined ? undefined : (reason) => lost(held, reason),
      failed: (error) => this.#failed(error),
    });
    held.lease = lease;
    try {
      await this.#options.work(held, lease);
    } catch (error) {
      this.#failed(error);
      if (!(error instanceof FencedError)) await this.#putBack(held);
    }
    this.#working.delete(held);
    this.#leaving.delete(held);
    lease.stop();
    held.abandon();
    this.#room.done(this.#kernel.ports.clock.nowMs());
    this.#letIn();
    // Another record can be claimed now.
    if ((this.#mayHaveMore && this.#isLow) || this.#stopped) this.#wakeUp();
    if (this.#stopped && this.#working.size === 0) this.#whenIdle();
  }

  /** After a failure, makes the record due again later, unless another worker has claimed it since. */
  async #putBack(held: Held): Promise<void> {
    const delayMs = backoffMs(PUT_BACK, held.tries);
    try {
      await held.commit((record, tx) => record.write({ holder: null, dueMs: tx.nowMs + delayMs }));
    } catch (error) {
      if (!(error instanceof FencedError)) this.#failed(error);
    }
  }

  #failed(error: unknown): void {
    try {
      this.#options.failed(error);
    } catch {
      // A listener that throws must not stop the work.
    }
  }
}

/** A record that was claimed, and whose work has not begun. */
interface Waiting {
  readonly held: Held;
  readonly safeUntilMs: number;
  /** How often it was tried before. */
  readonly tries: number;
}

/** Whether a record of these kinds that has no holder is due at another time than before. */
function isNews({ was, row }: Put, kinds: readonly string[]): boolean {
  const { holder, dueMs, kind } = row;
  if (holder !== null || dueMs === null || kind === null || !kinds.includes(kind)) return false;
  return was === null || was.dueMs !== dueMs || was.holder !== null || was.kind !== kind;
}
