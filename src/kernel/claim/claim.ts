/**
 * Claims in action: `claimDue` takes due records for this process, and a `Held` is the right to work on one.
 *
 * Finding due records is a look without locks; whether one is had is decided under its lock, by the rules of `decide.ts`. A
 * `Held` commits on the single-flight path: the kernel keeps the row it last wrote, so nothing is read first.
 */

import { checkCount, checkId, checkLease, checkTime } from "../check.ts";
import { type Address, address, type DueKey, type Row } from "../contract.ts";
import type { Tx } from "../decision.ts";
import type { Draft } from "../draft.ts";
import { ClosedError, CommitsLostError, FencedError, StoreError } from "../errors.ts";
import type { Kernel } from "../kernel.ts";
import { decideClaim, decideRenew, decideRest, decideWake, type Grant, isHolder } from "./decide.ts";

export interface ClaimOptions {
  readonly kinds: readonly string[];
  readonly by: string;
  readonly leaseMs: number;
  readonly limit: number;
  /** How many due records to look at, at least `limit`: suspects among them leave room for those behind. Default: `limit`. */
  readonly look?: number | undefined;
  /** What a claimed record's status becomes. */
  readonly status?: string | undefined;
  /** Records that were claimed more often than this without coming to rest are not taken, but told. */
  readonly mostTries?: ((kind: string) => number) | undefined;
  /** Records that this process leaves to others for now. */
  readonly isShunned?: ((at: Address) => boolean) | undefined;
  /** Told of each as soon as it is had, while others may still be waited for. */
  readonly granted?: (held: Held) => void;
  /** Records of these spaces are not claimed: what is to be done about them is done at once, by a commit of its own. */
  readonly chores?: Chores | undefined;
  /** Called with each record that is due and cannot be claimed for a reason of its own: a number out of range, an unreadable value. */
  readonly unusable?: ((at: Address, error: unknown) => void) | undefined;
}

export type Chores = ReadonlyMap<string, (at: Address) => Promise<unknown>>;

/** A record that was claimed so often without coming to rest. */
export interface Suspect {
  readonly at: Address;
  readonly tries: number;
  readonly kind: string;
}

export interface ClaimResult {
  readonly held: readonly Held[];
  /** How long until the next record of these kinds comes due, if one is waiting. */
  readonly nextInMs: number | null;
  /** As many were due as were asked for, so there may be more. */
  readonly isFull: boolean;
  /** How many it tried to claim, or did something about. */
  readonly tried: number;
  /** Whether something was done about records that are not claimed, which may be due again. */
  readonly hadChores: boolean;
  /** Those that were not taken because they were tried too often, the longest due first. */
  readonly suspects: readonly Suspect[];
  /** How many were left to others. */
  readonly shunned: number;
}

/** Claims up to `limit` due records. Two processes may look at the same ones; each record goes to one of them. */
export async function claimDue(kernel: Kernel, options: ClaimOptions): Promise<ClaimResult> {
  const { kinds, by, limit, status, mostTries } = options;
  for (const kind of kinds) checkId(kind, "the kind");
  checkId(by, "the holder");
  checkCount(limit, "the limit");
  const leaseMs = checkLease(options.leaseMs, "the lease");
  const look = Math.max(limit, checkCount(options.look ?? limit, "how many to look at"));
  const page = await kernel.due({ kinds, limit: look });
  const suspects: Suspect[] = [];
  let hadChores = false;
  const isSuspect = (kind: string | null, tries: number): boolean =>
    mostTries !== undefined && kind !== null && tries > mostTries(kind);
  const claimOne = async ({ space, key, kind: found }: DueKey): Promise<Held | undefined> => {
    const at = address(space, key);
    const chore = options.chores?.get(space);
    if (chore !== undefined) {
      hadChores = true;
      await chore(at);
      return undefined;
    }
    const row = await kernel.transact(
      (tx) => {
        const { tries, kind } = tx.record(at);
        if (kind !== null && isSuspect(kind, tries)) return { at, tries, kind };
        return claim(tx, at, { by, leaseMs, status, kind: found });
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
  const { isShunned } = options;
  const left =
    isShunned === undefined ? page.keys : page.keys.filter(({ space, key }) => !isShunned(address(space, key)));
  // A page of suspects must not cost a decision for each.
  const due: DueKey[] = [];
  for (const key of left)
    if (options.chores?.has(key.space) !== true && isSuspect(key.kind, key.tries))
      suspects.push({ at: address(key.space, key.key), tries: key.tries, kind: key.kind });
    else due.push(key);
  // Those that others were faster with are not worth a second look here.
  const tried = due.slice(0, limit);
  const answers = await Promise.allSettled(tried.map(claimOne));
  answers.forEach((answer, index) => {
    const key = tried[index];
    if (answer.status === "fulfilled") {
      if (answer.value !== undefined) held.push(answer.value);
    } else if (options.unusable !== undefined && key !== undefined && isOfRecord(answer.reason))
      options.unusable(address(key.space, key.key), answer.reason);
    else refusals.push(answer.reason);
  });
  // A store that refused every single claim has something to say.
  if (held.length === 0 && refusals.length > 0) throw refusals[0];
  const nextInMs = page.nextDueMs === null ? null : page.nextDueMs - page.nowMs;
  const shunned = page.keys.length - left.length;
  return { held, nextInMs, isFull: page.keys.length === look, tried: tried.length, hadChores, suspects, shunned };
}

/** Whether a claim failed because of the record, and not of the store: it would fail again. */
export const isOfRecord = (error: unknown): boolean => !(error instanceof StoreError || error instanceof ClosedError);

export interface Claimant {
  readonly by: string;
  readonly leaseMs: number;
  readonly status?: string | undefined;
  /** The kind under which it was found; one that is of another kind by now is due for something else. */
  readonly kind?: string | undefined;
}

/** The same in a decision: the row as claimed, or undefined if it is not to be had. */
export function claim(tx: Tx, at: Address, by: Claimant): Row | undefined {
  const record = tx.record(at);
  if (by.kind !== undefined && record.kind !== by.kind) return undefined;
  const answer = decideClaim(record, { ...by, nowMs: tx.nowMs, fenceFloor: tx.fenceFloor });
  if (!answer.granted) return undefined;
  record.write(by.status === undefined ? answer.changes : { ...answer.changes, status: by.status });
  return record.row ?? undefined;
}

/** Tells a record that there is news for it: due at once if it rests, marked if it is held. */
export function wake(tx: Tx, at: Address): boolean {
  const record = tx.record(at);
  if (!record.exists) return false;
  record.write(decideWake(record, tx.nowMs));
  return true;
}

/** The right to work on a claimed record, until its lease ends or another takes over. */
export class Held {
  readonly #kernel: Kernel;
  readonly at: Address;
  readonly fence: number;
  readonly tries: number;
  /** Until then, by this process's clock, the lease is surely not another's. */
  safeUntilMs = Number.POSITIVE_INFINITY;
  /** The name it was claimed by. */
  readonly holder: string;
  #wakesSeen: number;
  /** The record as it was when the store was restarted, until it has been seen that it still is. */
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

  /** Commits what the decision makes of the record; refused once another has taken over. */
  async commit<T>(decide: (record: Draft, tx: Tx) => T): Promise<T> {
    const value = await this.#kernel.transactHeld((tx) => decide(this.#mine(tx), tx), this.at);
    this.#lastSeen = undefined;
    return value;
  }

  /** The store may have lost commits: the next decision on the record checks that it is what was last seen of it. */
  suspect(): void {
    this.#lastSeen = this.#kernel.held(this.at);
  }

  /** Throws `CommitsLostError` if the record is not what was last seen of it. For decisions that do not come from here. */
  checkSame({ row }: Draft): void {
    const last = this.#lastSeen;
    if (last !== undefined && (row?.version !== last.version || row.stamp !== last.stamp)) throw this.commitsLost();
  }

  commitsLost(): CommitsLostError {
    return new CommitsLostError(`${this.at.space} ${this.at.key}`, this.fence);
  }

  /** Looks at the record, and takes note of the wake-ups so far. */
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

  /** Keeps the lease for another while, and writes what `decide` says in the same commit. */
  async renew(duration: number, decide?: ((record: Draft) => void) | undefined): Promise<void> {
    const leaseMs = checkLease(duration, "the lease");
    await this.#kernel.transactUrgently(
      (tx) => {
        const record = tx.record(this.at);
        const answer = decideRenew(record, { ...this.#grant, leaseMs, nowMs: tx.nowMs });
        if (!answer.renewed) throw this.#fenced(record);
        this.checkSame(record);
        record.write({ dueMs: answer.dueMs });
        decide?.(record);
      },
      [this.at],
    );
    this.#lastSeen = undefined;
  }

  /**
   * Gives the record back until `dueMs`, or until somebody wakes it, and writes what `decide` says in the same commit.
   * Answers "woken", with nothing written, if news came since the last look: look again first.
   */
  async rest(dueMs: (tx: Tx) => number | null, decide?: (record: Draft, tx: Tx) => void): Promise<"rested" | "woken"> {
    // As of now: a look that is under way has not told what it sees.
    const wakesSeen = this.#wakesSeen;
    const answer = await this.#kernel.transactHeld((tx) => {
      const record = tx.record(this.at);
      const answer = decideRest(record, { ...this.#grant, wakesSeen });
      if (answer === "fenced") throw this.#fenced(record);
      this.checkSame(record);
      if (answer === "woken") return answer;
      const due = dueMs(tx);
      if (due !== null) checkTime(due, "the time to rest until");
      const { wakes } = record;
      decide?.(record, tx);
      // What the decision itself is news for, by what it writes elsewhere, must not be slept over.
      const dueOrWoken = record.wakes > wakes ? tx.nowMs : due;
      // What the decision removed has no claim left to give back.
      if (record.exists) record.write({ holder: null, dueMs: dueOrWoken, tries: 0 });
      return answer;
    }, this.at);
    if (answer === "rested") this.abandon();
    return answer;
  }

  /** Forgets the record without writing: its lease runs out, and a peer goes on. */
  abandon(): void {
    const row = this.#kernel.held(this.at);
    if (row === undefined) return;
    // This process may hold it anew by now; or another does, and this process has seen it.
    if (row.fence === this.fence || row.holder !== this.holder) this.#kernel.letGo(this.at);
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
    // Ended or released by another's commit, which needs no fence of its own.
    const reason = !record.exists ? "was deleted" : `is no longer held: it is ${record.status ?? "released"}`;
    return new FencedError(name, this.fence, record.fence, reason);
  }
}
