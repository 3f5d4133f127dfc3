/**
 * A worker: a loop that claims due records of some kinds and hands each to a function, so many at a time.
 *
 * It sleeps until it is woken by a commit that makes something due (its own process's at once, another's through the store's
 * watch), until the next timer, or until a slow poll that makes up for lost wake-ups. While the function works, the lease is
 * renewed; when it is lost, or cannot be renewed in time, `abortSignal` tells the function to stop.
 *
 * A record that was claimed several times without coming to rest may be what kills its processes. Such suspects are taken a few at a
 * time, fewer the more often they were tried, and in the end alone, each after those before have lasted a while: so that those who
 * only shared a process with it are not blamed for ever. Where a kind of records has a last try, that one is alone in any case: none that was
 * tried before shares its process until it is cleared.
 *
 * A record that cannot be claimed for a reason of its own (a number out of range, a value that cannot be read) is reported and left alone for a
 * while; it takes no place from others.
 *
 * A function that throws leaves its record due again later, with a growing delay; one that dies with its process leaves it to
 * the end of the lease. Both are counted in `tries`.
 */

import { checkCount, checkDuration, checkId, checkLease } from "../check.ts";
import type { Address, Put, Row } from "../contract.ts";
import type { Draft } from "../draft.ts";
import { ClosedError, FencedError, LeaseUncertainError } from "../errors.ts";
import type { Bell, Kernel } from "../kernel.ts";
import { pause } from "../ports.ts";
import { type Chores, claim, claimDue, Held, isOfRecord, type Suspect } from "./claim.ts";

export interface WorkerOptions {
  readonly kinds: readonly string[];
  /** Names this worker among its peers. */
  readonly by: string;
  readonly leaseMs?: number;
  readonly concurrency?: number;
  /** What a claimed record's status becomes. */
  readonly status?: string | undefined;
  /** The slow poll for wake-ups that were lost. */
  readonly pollMs?: number;
  /** Must end with `held.rest`, or by removing the record; what it leaves held comes due when the lease ends. */
  readonly work: (held: Held, abortSignal: AbortSignal) => Promise<void>;
  /** Told of what `work` threw and what the worker could not do. */
  readonly failed?: (error: unknown) => void;
  /** Told instead of `abortSignal`, which then never aborts: that a lease was lost, or may be. For those who work on many at once. */
  readonly lost?: ((held: Held, reason: unknown) => void) | undefined;
  /** What else is written with a renewal of the lease; called before each. */
  readonly renewing?: ((held: Held) => ((record: Draft) => void) | undefined) | undefined;
  /** Whether what other processes commit may make something due here, which is looked for each time; yes unless said otherwise. */
  readonly hearsOthers?: boolean | undefined;
  /** Records that this worker leaves to others for now. */
  readonly isShunned?: ((at: Address) => boolean) | undefined;
  /** What is done about records that are due and not to be claimed. */
  readonly chores?: Chores | undefined;
  /** How often a record of this kind is tried before whoever works on it gives it up; for ever unless said otherwise. */
  readonly maxTries?: ((kind: string) => number) | undefined;
}

type Optional = "failed" | "renewing" | "status" | "lost" | "chores" | "maxTries" | "isShunned";

const RETRY_MS = { first: 100, longest: 60_000 };

/** How often a record may be claimed without coming to rest before it is a suspect, and how long one must last to be cleared. */
const MOST_TRIES = 1;
const CLEARED_AFTER_MS = 3000;

/** So many due records are looked at, at most, to find some behind the suspects. */
const MOST_LOOKED_AT = 5000;
/** A record that could not be claimed is tried again after this time: it may have been repaired. */
const UNUSABLE_MS = 60_000;
/** So many of them are remembered. */
const MOST_UNUSABLE = 1000;

const NUDGED = "nudged";
const NEVER_ABORTED = new AbortController();

/** One record being worked on. */
interface Hold {
  readonly abort: AbortController;
  isLost: boolean;
  /** Takes back the alarm for the end of the lease. */
  disarm: () => void;
  /** Takes back the next renewal. */
  rest: () => void;
  /** All that is left is to write how it ended. */
  isLeaving: boolean;
}

/** Starts a worker; it works until `stop`. */
export function startWorker(kernel: Kernel, options: WorkerOptions): Worker {
  return new Worker(kernel, options);
}

export class Worker {
  readonly #kernel: Kernel;
  readonly #options: Required<Omit<WorkerOptions, Optional>> & Pick<WorkerOptions, Optional>;
  readonly #working = new Map<Held, Hold>();
  readonly #stopping = new AbortController();
  /** Called when the last of the work is done after `stop`. */
  #whenIdle: () => void = () => {};
  #nudge: AbortController = new AbortController();
  /** Work that began a moment ago, and until when its lease is safe. */
  readonly #young = new Map<Held, { readonly hold: Hold; readonly safeUntilMs: number }>();
  #cancelLook: (() => void) | undefined;
  /** Those that were tried before, how often, and have not lasted long enough yet. */
  readonly #suspects = new Map<Held, number>();
  /** How many due records to pass beyond those there is room for: suspects must not keep others from being found behind them. */
  #passed = 0;
  /** Records that cannot be claimed, by their texts, and until when they are left alone. */
  readonly #unusable = new Map<string, number>();
  /** How many of those that are being worked on only wait for the commit that ends them. */
  #leaving = 0;
  /** More may be due than there was room for. */
  #isHungry = false;
  readonly #ended: Promise<unknown>;

  constructor(kernel: Kernel, options: WorkerOptions) {
    this.#kernel = kernel;
    for (const kind of options.kinds) checkId(kind, "the kind");
    this.#options = {
      ...options,
      by: checkId(options.by, "the holder"),
      leaseMs: checkLease(options.leaseMs ?? 30_000, "the lease"),
      concurrency: checkCount(options.concurrency ?? 10, "the concurrency"),
      pollMs: checkDuration(options.pollMs ?? 5_000, "the poll"),
      hearsOthers: options.hearsOthers ?? true,
    };
    this.#ended = this.#claimLoop();
  }

  /** Takes no more, and waits for what is being worked on. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    this.#wakeUp();
    await this.#ended;
    this.#cancelLook?.();
  }

  /** How many records are being worked on, and not merely being written how they ended. */
  get workingCount(): number {
    return this.#working.size - this.#leaving;
  }

  /** All that is left to do for it is to write how it ended: whoever hears of that finds its place free. */
  leaving(held: Held): void {
    const hold = this.#working.get(held);
    if (hold === undefined || hold.isLeaving) return;
    hold.isLeaving = true;
    this.#leaving += 1;
  }

  /** Works on a record that was claimed otherwise, by a commit that made it; its lease began no earlier than counted here. */
  adopt(held: Held, safeUntilMs: number): void {
    void this.#work(held, safeUntilMs);
  }

  get #stopped(): boolean {
    return this.#stopping.signal.aborted;
  }

  #wakeUp(): void {
    // With a reason, because to make one is costly.
    this.#nudge.abort(NUDGED);
  }

  async #claimLoop(): Promise<void> {
    const { kinds, by, leaseMs, concurrency, pollMs, status } = this.#options;
    const { clock, chance } = this.#kernel.ports;
    const unlisten = this.#listen((puts) => {
      if (puts?.some((put) => isNews(put, kinds)) ?? this.#options.hearsOthers) this.#wakeUp();
    });
    while (!this.#stopped) {
      // Made before looking, so that what comes due while looking is not slept over.
      this.#nudge = new AbortController();
      const free = concurrency - this.workingCount;
      this.#isHungry = free <= 0;
      let waitMs = pollMs;
      if (free > 0) {
        try {
          const startedMs = clock.nowMs();
          for (const [text, untilMs] of this.#unusable) if (untilMs <= startedMs) this.#unusable.delete(text);
          const granted = (held: Held) => this.#begin(held, startedMs + leaseMs, held.tries - 1);
          const look = Math.min(free + this.#passed, MOST_LOOKED_AT);
          const { held, nextInMs, isFull, tried, hadChores, suspects, shunned } = await claimDue(this.#kernel, {
            kinds,
            by,
            leaseMs,
            limit: free,
            look,
            status,
            // The last try is for suspects, but for a record that has only one.
            mostTries: (kind) =>
              this.#isLastTryInHand ? 0 : Math.max(0, Math.min(MOST_TRIES, this.#maxTries(kind) - 2)),
            granted,
            isShunned: (at) => this.#unusable.has(at.text) || this.#options.isShunned?.(at) === true,
            chores: this.#options.chores,
            unusable: (at, error) => this.#leaveAlone(at, error),
          });
          const passed = suspects.length + shunned;
          // If there were only such as far as it looked, it looks much further the next time.
          this.#passed = isFull ? 4 * passed : passed;
          if (await this.#takeSuspects([...suspects], startedMs + leaseMs)) continue;
          this.#isHungry = isFull;
          if (held.length > 0 || hadChores) continue;
          // Others were faster with all of them, and there may be more: look again, a little out of step. Suspects are not looked at again
          // before one of those in hand is cleared.
          if (isFull && (tried > 0 || look < MOST_LOOKED_AT)) waitMs = 1 + 10 * chance.random();
          else if (nextInMs !== null) waitMs = Math.min(waitMs, Math.max(1, nextInMs));
        } catch (error) {
          this.#failed(error);
          // Nothing comes after the end of the handle.
          if (error instanceof ClosedError) break;
        }
      }
      await pause(clock, waitMs, this.#nudge.signal);
    }
    unlisten();
    // A claim that was under way may have brought one more.
    while (this.#working.size > 0)
      await new Promise<void>((resolve) => {
        this.#whenIdle = resolve;
      });
  }

  /** Takes some that may be dangerous, while there are not too many in hand. */
  async #takeSuspects(suspects: Suspect[], safeUntilMs: number): Promise<boolean> {
    const { chance } = this.#kernel.ports;
    let hasTaken = false;
    for (;;) {
      // Any of them: who always came right before the guilty one would always be there when it strikes.
      const [suspect] = suspects.splice(Math.floor(suspects.length * chance.random()), 1);
      if (!(await this.#takeSuspect(suspect, safeUntilMs))) return hasTaken;
      hasTaken = true;
    }
  }

  /** Takes one of them. */
  async #takeSuspect(suspect: Suspect | undefined, safeUntilMs: number): Promise<boolean> {
    const { by, leaseMs, status } = this.#options;
    if (suspect === undefined || this.workingCount >= this.#options.concurrency) return false;
    const { at, kind } = suspect;
    const tries = suspect.tries + 1 >= this.#maxTries(kind) ? Number.POSITIVE_INFINITY : suspect.tries;
    if (this.#suspects.size >= mostTogether(Math.max(tries, this.#mostTried))) return false;
    let row: Row | undefined;
    try {
      row = await this.#kernel.transact((tx) => claim(tx, at, { by, leaseMs, status, kind }), [at]);
    } catch (error) {
      if (!isOfRecord(error)) throw error;
      this.#leaveAlone(at, error);
    }
    if (row === undefined) return true;
    this.#begin(new Held(this.#kernel, row), safeUntilMs, tries);
    return true;
  }

  /** Works on it; one that was tried before is watched until it has lasted a while. */
  #begin(held: Held, safeUntilMs: number, tries: number): void {
    if (this.#kernel.ports.clock.nowMs() >= safeUntilMs) {
      void this.#returnUntried(held);
      return;
    }
    const working = this.#work(held, safeUntilMs);
    if (tries === 0) return;
    this.#suspects.set(held, tries);
    const cancel = this.#kernel.ports.clock.after(CLEARED_AFTER_MS, () => this.#clear(held));
    void working.then(() => {
      cancel();
      this.#clear(held);
    });
  }

  /** The store answered when the lease may be over: nothing was begun, so it counts as no try. */
  async #returnUntried(held: Held): Promise<void> {
    try {
      await held.commit((record, tx) => record.write({ holder: null, dueMs: tx.nowMs, tries: record.tries - 1 }));
    } catch (error) {
      if (!(error instanceof FencedError)) this.#failed(error);
    }
    held.abandon();
  }

  /** How often the one was tried before that was tried the most of those not cleared yet. */
  get #mostTried(): number {
    let most = 0;
    for (const tries of this.#suspects.values()) most = Math.max(most, tries);
    return most;
  }

  get #isLastTryInHand(): boolean {
    return this.#mostTried === Number.POSITIVE_INFINITY;
  }

  /** It cannot be claimed, so it stays due: it is passed over, and tried again later. */
  #leaveAlone({ text }: Address, error: unknown): void {
    this.#failed(error);
    if (this.#unusable.size >= MOST_UNUSABLE) return;
    this.#unusable.set(text, this.#kernel.ports.clock.nowMs() + UNUSABLE_MS);
  }

  #maxTries(kind: string): number {
    return this.#options.maxTries?.(kind) ?? Number.POSITIVE_INFINITY;
  }

  #clear(held: Held): void {
    if (this.#suspects.delete(held)) this.#wakeUp();
  }

  /** A handle that is closed already has no bell; the first look says so. */
  #listen(bell: Bell): () => void {
    try {
      return this.#kernel.listen(bell);
    } catch (error) {
      if (error instanceof ClosedError) return () => {};
      throw error;
    }
  }

  async #work(held: Held, safeUntilMs: number): Promise<void> {
    const abort = this.#options.lost === undefined ? new AbortController() : NEVER_ABORTED;
    const hold: Hold = { abort, isLost: false, disarm: () => {}, rest: () => {}, isLeaving: false };
    held.safeUntilMs = safeUntilMs;
    this.#working.set(held, hold);
    this.#lookAfter(held, hold, safeUntilMs);
    try {
      await this.#options.work(held, hold.abort.signal);
    } catch (error) {
      this.#failed(error);
      if (!(error instanceof FencedError)) await this.#putBack(held);
    }
    this.#working.delete(held);
    if (hold.isLeaving) this.#leaving -= 1;
    this.#young.delete(held);
    hold.disarm();
    hold.rest();
    held.abandon();
    // There is room again for those that were left.
    if (this.#isHungry || this.#stopped) this.#wakeUp();
    if (this.#stopped && this.#working.size === 0) this.#whenIdle();
  }

  /**
   * Most work is done long before its lease must be renewed, so timers of its own are only for what lasts. One timer after a part of
   * that time looks for those.
   */
  #lookAfter(held: Held, hold: Hold, safeUntilMs: number): void {
    this.#young.set(held, { hold, safeUntilMs });
    if (this.#cancelLook !== undefined) return;
    this.#cancelLook = this.#kernel.ports.clock.after(this.#options.leaseMs / 6, () => {
      this.#cancelLook = undefined;
      for (const [held, { hold, safeUntilMs }] of this.#young) {
        this.#arm(held, hold, safeUntilMs);
        this.#renewLater(held, hold, this.#options.leaseMs / 6);
      }
      this.#young.clear();
    });
  }

  /** A lease that is not renewed by its end may be another's, whatever the store would say: the work is told to stop. */
  #arm(held: Held, hold: Hold, safeUntilMs: number): void {
    const { clock } = this.#kernel.ports;
    hold.disarm();
    hold.disarm = clock.after(Math.max(0, safeUntilMs - clock.nowMs()), () =>
      this.#lose(held, hold, new LeaseUncertainError()),
    );
  }

  #lose(held: Held, hold: Hold, reason: unknown): void {
    if (hold.isLost) return;
    hold.isLost = true;
    if (this.#options.lost === undefined) hold.abort.abort(reason);
    else this.#options.lost(held, reason);
  }

  /** Each record on its own, so that one that is locked by somebody keeps no other waiting. */
  #renewLater(held: Held, hold: Hold, ms = this.#options.leaseMs / 3): void {
    hold.rest = this.#kernel.ports.clock.after(ms, () => void this.#renew(held, hold));
  }

  /** After a failure: due again later, unless somebody else has it by now. */
  async #putBack(held: Held): Promise<void> {
    const delayMs = Math.min(RETRY_MS.longest, RETRY_MS.first * 2 ** Math.min(held.tries - 1, 20));
    try {
      await held.commit((record, tx) => record.write({ holder: null, dueMs: tx.nowMs + delayMs }));
    } catch (error) {
      this.#failed(error);
    }
  }

  async #renew(held: Held, hold: Hold): Promise<void> {
    const { leaseMs } = this.#options;
    // Counted from before it was asked for: the store's lease began no earlier.
    const safeUntilMs = this.#kernel.ports.clock.nowMs() + leaseMs;
    try {
      await held.renew(leaseMs, this.#options.renewing?.(held));
      held.safeUntilMs = safeUntilMs;
      if (this.#working.has(held)) this.#arm(held, hold, safeUntilMs);
    } catch (error) {
      if (error instanceof FencedError) this.#lose(held, hold, error);
      else this.#failed(error);
    }
    if (this.#working.has(held) && !hold.isLost) this.#renewLater(held, hold);
  }

  #failed(error: unknown): void {
    try {
      this.#options.failed?.(error);
    } catch {
      // Whoever listens badly must not stop the work.
    }
  }
}

/** How many suspects may share a process, if one of them was tried so often. */
function mostTogether(tries: number): number {
  if (tries <= MOST_TRIES + 1) return 16;
  return tries === MOST_TRIES + 2 ? 4 : 1;
}

/** A record of these kinds that nobody holds is due at another time than it was. */
function isNews({ was, row }: Put, kinds: readonly string[]): boolean {
  const { holder, dueMs, kind } = row;
  if (holder !== null || dueMs === null || kind === null || !kinds.includes(kind)) return false;
  return was === null || was.dueMs !== dueMs || was.holder !== null || was.kind !== kind;
}
