/**
 * Claims: `claimDue` claims due records for this process, and a `Held` is the right to work on one.
 *
 * Due records are found without locks; whether one is claimed is decided under its lock, by the rules of `decide.ts`. A
 * `Held` commits on the optimistic path: the kernel keeps the row it last wrote, so nothing is read first.
 */

import type { Queue } from "../capability.ts";
import { checkCount, checkId, checkLease, checkTime } from "../check.ts";
import { type Address, address, type DueKey, type Row } from "../contract.ts";
import type { Tx } from "../decision.ts";
import type { Draft } from "../draft.ts";
import { ClosedError, CommitsLostError, FencedError, StoreError } from "../errors.ts";
import type { Kernel } from "../kernel.ts";
import type { Lease } from "../lease.ts";
import { decideClaim, decideRenew, decideRest, decideWake, type Grant, isHolder } from "./decide.ts";

export interface ClaimOptions {
  readonly kinds: readonly string[];
  readonly by: string;
  readonly leaseMs: number;
  readonly limit: number;
  /** Called once the due records are known, with how many are to be claimed. Returns how many may be claimed by now. Default: all of these. */
  readonly places?: ((count: number) => number) | undefined;
  /** How many due records to read, at least `limit`, so that suspects among them do not hide the others. Default: `limit`. */
  readonly look?: number | undefined;
  /** What a claimed record's status becomes. */
  readonly status?: string | undefined;
  /** Records that were claimed more often than this without coming to rest are not claimed, but returned as suspects. */
  readonly mostTries?: ((kind: string) => number) | undefined;
  /** How many records of a kind may be claimed. Default: no limit. */
  readonly roomFor?: ((kind: string) => number) | undefined;
  /** Kinds of one group share their room. Default: each has its own. */
  readonly groupOf?: ((kind: string) => string) | undefined;
  /** The kind of a record after it was claimed. Default: the same. */
  readonly kindAfter?: ((kind: string) => string) | undefined;
  /** Records that this process leaves to other processes for now. */
  readonly isSkipped?: ((at: Address) => boolean) | undefined;
  /** Called with each record as soon as it is claimed, while other claims may still be in progress. */
  readonly granted?: (held: Held) => void;
  /** Records of these kinds are not claimed: the chore runs instead, in a commit of its own. */
  readonly chores?: Chores | undefined;
  /** Called with each record that is due and cannot be claimed for a reason of its own: a number out of range, an unreadable value. */
  readonly unusable?: ((at: Address, error: unknown) => void) | undefined;
}

/** Chores by the kind of their records. */
export type Chores = ReadonlyMap<string, Queue["chore"]>;

/** A record that was claimed `tries` times without coming to rest. */
export interface Suspect {
  readonly at: Address;
  readonly tries: number;
  readonly kind: string;
}

export interface ClaimResult {
  readonly held: readonly Held[];
  /** How long until the next record of these kinds comes due; null if there is none. */
  readonly nextInMs: number | null;
  /** The whole page was due, so there may be more. */
  readonly isFull: boolean;
  /** There were more than `places` allowed. */
  readonly isShort: boolean;
  /** How many records it tried to claim, or ran a chore for. */
  readonly tried: number;
  /** Whether chores ran, whose records may be due again. */
  readonly hadChores: boolean;
  /** Records that were not claimed because they were tried too often, the longest due first. */
  readonly suspects: readonly Suspect[];
  /** How many were left to other processes. */
  readonly skipped: number;
}

/** The lease of a record that is held all the time has no limit (`Ports.standingLeaseMs`). */
export const checkLeaseOf = ({ ports }: Kernel, leaseMs: number): number =>
  leaseMs === ports.standingLeaseMs ? leaseMs : checkLease(leaseMs, "the lease");

/** Claims up to `limit` due records. Two processes may find the same records; each record is claimed by one of them. */
export async function claimDue(kernel: Kernel, options: ClaimOptions): Promise<ClaimResult> {
  const { kinds, by, limit, status, mostTries } = options;
  for (const kind of kinds) checkId(kind, "the kind");
  checkId(by, "the holder");
  checkCount(limit, "the limit");
  const leaseMs = checkLeaseOf(kernel, options.leaseMs);
  const look = Math.max(limit, checkCount(options.look ?? limit, "the number of records to read"));
  const page = await kernel.due({ kinds, limit: look });
  const suspects: Suspect[] = [];
  let hadChores = false;
  const isSuspect = (kind: string | null, tries: number): boolean =>
    mostTries !== undefined && kind !== null && tries > mostTries(kind);
  const claimOne = async ({ space, key, kind: found }: DueKey): Promise<Held | undefined> => {
    const at = address(space, key);
    const chore = options.chores?.get(found);
    if (chore !== undefined) {
      hadChores = true;
      await chore(at);
      return undefined;
    }
    const row = await kernel.transact(
      (tx) => {
        const { tries, kind } = tx.record(at);
        if (kind !== null && isSuspect(kind, tries)) return { at, tries, kind };
        return claim(tx, at, { by, leaseMs, status, kind: found, kindAfter: options.kindAfter });
      },
      [at],
    );
    if (row === undefined) return undefined;
    if ("at" in row) {
      suspects.push(row);
      return undefined;
    }
    const held = new Held(kernel, row);
    options.granted?.(held);
    return held;
  };
  const held: Held[] = [];
  const refusals: unknown[] = [];
  const { isSkipped } = options;
  const left =
    isSkipped === undefined ? page.keys : page.keys.filter(({ space, key }) => !isSkipped(address(space, key)));
  // Suspects are recognized without a decision for each.
  const due: DueKey[] = [];
  for (const key of left)
    if (options.chores?.has(key.kind) !== true && isSuspect(key.kind, key.tries))
      suspects.push({ at: address(key.space, key.key), tries: key.tries, kind: key.kind });
    else due.push(key);
  // Records that other processes claimed first are not tried again here.
  const asked = Math.min(limit, due.length);
  const most = options.places?.(asked) ?? asked;
  const tried = withRoom(due, most, options);
  const results = await Promise.allSettled(tried.map(claimOne));
  results.forEach((result, index) => {
    const key = tried[index];
    if (result.status === "fulfilled") {
      if (result.value !== undefined) held.push(result.value);
    } else if (options.unusable !== undefined && key !== undefined && isOfRecord(result.reason))
      options.unusable(address(key.space, key.key), result.reason);
    else refusals.push(result.reason);
  });
  // If the store refused every claim, the caller gets the reason.
  if (held.length === 0 && refusals.length > 0) throw refusals[0];
  const nextInMs = page.nextDueMs === null ? null : page.nextDueMs - page.nowMs;
  const skipped = page.keys.length - left.length;
  const isFull = page.keys.length === look;
  const isShort = most < asked;
  return { held, nextInMs, isFull, isShort, tried: tried.length, hadChores, suspects, skipped };
}

/** The first of these, as many as may be claimed of each kind. */
function withRoom(due: readonly DueKey[], limit: number, { roomFor, groupOf }: ClaimOptions): readonly DueKey[] {
  if (roomFor === undefined) return due.slice(0, limit);
  const taken = new Map<string, number>();
  return due
    .filter(({ kind }) => {
      const group = groupOf?.(kind) ?? kind;
      const count = taken.get(group) ?? 0;
      if (count >= roomFor(kind)) return false;
      taken.set(group, count + 1);
      return true;
    })
    .slice(0, limit);
}

/** Whether a claim failed because of the record and not because of the store: it would fail again. */
export const isOfRecord = (error: unknown): boolean => !(error instanceof StoreError || error instanceof ClosedError);

export interface Claimant {
  readonly by: string;
  readonly leaseMs: number;
  readonly status?: string | undefined;
  /** The kind under which it was found; a record whose kind has changed since is not claimed. */
  readonly kind?: string | undefined;
  readonly kindAfter?: ((kind: string) => string) | undefined;
  /**
   * The decision has just made it due, so the store's clock need not be read, which on a server would cost a round trip. Then the lease may end up
   * to a second later.
   */
  readonly isJustDue?: boolean | undefined;
}

/** Claims a record in a decision. Returns the row as claimed, or undefined if it cannot be claimed. */
export function claim(tx: Tx, at: Address, by: Claimant): Row | undefined {
  const record = tx.record(at);
  if (by.kind !== undefined && record.kind !== by.kind) return undefined;
  // A first fence must be above those of removed records of this name, which only the store knows. No fence may be ahead of the clock: after a
  // promotion that lost this claim, the next one would be below it.
  const isTimeless = by.isJustDue === true && record.fence > 0;
  const nowMs = isTimeless ? tx.nowUpperBoundMs : tx.nowMs;
  const outcome = decideClaim(record, { ...by, nowMs, fenceFloor: isTimeless ? tx.approxNowMs : tx.fenceFloor });
  if (!outcome.granted) return undefined;
  const kind = record.kind === null ? undefined : by.kindAfter?.(record.kind);
  record.write({
    ...outcome.changes,
    ...(by.status === undefined ? {} : { status: by.status }),
    ...(kind === undefined || kind === record.kind ? {} : { kind }),
  });
  return record.row ?? undefined;
}

/**
 * Wakes a record: it becomes due immediately if it rests; if it is held, the wake-up is counted. Returns whether the record exists. If the same decision
 * claims it, `isClaimed`, the store's clock need not be read.
 */
export function wake(tx: Tx, at: Address, isClaimed = false): boolean {
  const record = tx.record(at);
  if (!record.exists) return false;
  record.write(decideWake(record, isClaimed ? tx.approxNowMs : tx.nowMs));
  return true;
}

/** The right to work on a claimed record, until its lease ends or another process takes over. */
export class Held {
  readonly #kernel: Kernel;
  readonly at: Address;
  readonly fence: number;
  readonly tries: number;
  /** Set while the record is worked on. */
  lease: Lease | undefined;
  /** A commit of this process will probably claim it again: its row is remembered after it was released. */
  isClaimedAgain = false;
  /** The name it was claimed by. */
  readonly holder: string;
  #wakesSeen: number;
  /** The record as it was when the store was restarted, until a commit has confirmed it. */
  #lastSeen: Row | undefined;

  constructor(kernel: Kernel, row: Row) {
    this.#kernel = kernel;
    this.holder = row.holder ?? "";
    this.at = address(row.space, row.key);
    this.fence = row.fence;
    this.tries = row.tries;
    this.#wakesSeen = row.wakes;
    kernel.hold(this.at, row);
  }

  get #grant(): Grant {
    return { fence: this.fence, holder: this.holder };
  }

  /** Runs a decision on the record and commits it; `also` are other records that it touches. Throws `fenced` after another process has taken over. */
  commit<T>(decide: (record: Draft, tx: Tx) => T, also: readonly Address[] = []): Promise<T> {
    return this.#kernel
      .transactHeld((tx) => decide(this.#mine(tx), tx), this.at, also)
      .then((value) => {
        this.#lastSeen = undefined;
        return value;
      });
  }

  /** The same for a decision that reads the store's clock where others are likely to have written the records: it is not tried on assumed rows first. */
  commitLocked<T>(decide: (record: Draft, tx: Tx) => T, also: readonly Address[]): Promise<T> {
    return this.#kernel
      .transactLocked((tx) => decide(this.#mine(tx), tx), [this.at, ...also])
      .then((value) => {
        this.#lastSeen = undefined;
        return value;
      });
  }

  /** The store may have lost commits: the next decision checks that the record is what this process last saw. */
  suspect(): void {
    this.#lastSeen = this.#kernel.held(this.at);
  }

  /** Throws `CommitsLostError` if the record is not what this process last saw. For decisions that are not made by this class. */
  checkSame({ row }: Draft): void {
    const last = this.#lastSeen;
    if (last !== undefined && (row?.version !== last.version || row.stamp !== last.stamp)) throw this.commitsLost();
  }

  commitsLost(): CommitsLostError {
    return new CommitsLostError(`${this.at.space} ${this.at.key}`, this.fence);
  }

  /** Reads the record in a decision, and remembers how many wake-ups it has had. */
  async look<T>(decide: (record: Draft, tx: Tx) => T): Promise<T> {
    const { seen, value } = await this.#kernel.transact(
      (tx) => {
        const record = this.#mine(tx);
        return { seen: record.wakes, value: decide(record, tx) };
      },
      [this.at],
    );
    this.#wakesSeen = seen;
    this.#lastSeen = undefined;
    return value;
  }

  /** Renews the lease, and runs `decide` in the same commit. Throws `fenced` if the lease is lost. */
  async renew(duration: number, decide?: ((record: Draft) => void) | undefined): Promise<void> {
    const leaseMs = checkLeaseOf(this.#kernel, duration);
    await this.#kernel.transactUrgently(
      (tx) => {
        const record = tx.record(this.at);
        const renewal = decideRenew(record, { ...this.#grant, leaseMs, nowMs: tx.nowMs });
        if (!renewal.renewed) throw this.#fenced(record);
        this.checkSame(record);
        record.write({ dueMs: renewal.dueMs });
        decide?.(record);
      },
      [this.at],
    );
    this.#lastSeen = undefined;
  }

  /**
   * Releases the record until `dueMs`, or until a wake-up, and runs `decide` in the same commit.
   * Returns "woken", with nothing written, if a wake-up came since the last look: call `look` again first.
   */
  async rest(dueMs: (tx: Tx) => number | null, decide?: (record: Draft, tx: Tx) => void): Promise<"rested" | "woken"> {
    // Read now: a look that is still in progress must not count.
    const wakesSeen = this.#wakesSeen;
    const outcome = await this.#kernel.transactHeld((tx) => {
      const record = tx.record(this.at);
      const outcome = decideRest(record, { ...this.#grant, wakesSeen });
      if (outcome === "fenced") throw this.#fenced(record);
      this.checkSame(record);
      if (outcome === "woken") return outcome;
      const due = dueMs(tx);
      if (due !== null) checkTime(due, "the time to rest until");
      const { wakes } = record;
      decide?.(record, tx);
      // If the decision itself woke the record, by what it wrote elsewhere, it is due immediately.
      const dueOrWoken = record.wakes > wakes ? tx.nowMs : due;
      // A record that the decision removed has no claim left to release.
      if (record.exists) record.write({ holder: null, dueMs: dueOrWoken, tries: 0 });
      return outcome;
    }, this.at);
    if (outcome === "rested") this.#released();
    return outcome;
  }

  /** Forgets the record without writing: when its lease ends, another worker continues. */
  abandon(): void {
    if (this.#isOver) this.#kernel.letGo(this.at);
  }

  #released(): void {
    if (!this.#isOver) return;
    if (this.isClaimedAgain) this.#kernel.released(this.at);
    else this.#kernel.letGo(this.at);
  }

  /** This process keeps the row, and may forget it: it has not claimed it again since, or has seen that another process did. */
  get #isOver(): boolean {
    const row = this.#kernel.held(this.at);
    return row !== undefined && (row.fence === this.fence || row.holder !== this.holder);
  }

  /** The record, in a decision that is not made by this class. Throws `fenced` after another process has taken over. */
  record(tx: Tx): Draft {
    return this.#mine(tx);
  }

  #mine(tx: Tx): Draft {
    const record = tx.record(this.at);
    if (!isHolder(record, this.#grant)) throw this.#fenced(record);
    this.checkSame(record);
    return record;
  }

  #fenced(record: Draft): FencedError {
    const name = `${this.at.space} ${this.at.key}`;
    if (record.fence !== this.fence) return new FencedError(name, this.fence, record.fence);
    // Ended or released by a commit of another process, which does not change the fence.
    const reason = !record.exists ? "was deleted" : `is no longer held: it is ${record.status ?? "released"}`;
    return new FencedError(name, this.fence, record.fence, reason);
  }
}
