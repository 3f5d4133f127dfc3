/**
 * Assumptions: rows that a decision may run on before the store has been asked.
 *
 * The locked path reads rows under their locks, which on a server costs a round trip. It can be saved for a row whose lease this
 * process holds, for a row that it wrote last, and for a record that is most probably absent, as the record of a new message is. A decision
 * all of whose records can be assumed is *optimistic*: it runs immediately, and the commit finds out whether the assumptions were right.
 *
 * Why this is sound: every row that a committed decision used is locked by its batch when the batch commits, so the commits of all
 * processes can be put in an order (G32). A row that was read under a lock stays locked. A row that was assumed must have been written,
 * under a check of its version and stamp, which takes its lock; a record that was assumed to be absent must have been inserted, and the
 * unique index refuses a second one. So a decision that used an assumed row without writing it is discarded and takes the locked
 * path (`isUnchecked` in `decision.ts`); a record that is absent and was only read is protected by the store (`Batch.decide`).
 *
 * The path of a decision, and what changes it. It never moves back:
 *
 *   optimistic ──► locked     a row was not as assumed; it asked for the store's clock; it used an assumed row without writing it
 *   any        ──► waiting    it was postponed `MOST_ROUNDS` times, because its flight met rows that other processes had locked or changed
 *
 * A waiting decision is in a batch of its own, and its batch waits for its rows in sorted order instead of skipping those that are locked.
 *
 * A wrong assumption costs a round trip, so it is not repeated: a record whose row was not as assumed, or whose decisions ask for the
 * clock, uses the locked path for its next writes, twice as many each time, however many decisions of a flight used it. That no recent reading of the
 * clock was there is no reason. After a record that was assumed to be absent existed, the next records are read, in the same way.
 */

import type { Address, Row } from "./contract.ts";

export type Path = "optimistic" | "locked" | "waiting";

/** Why a decision did not end in its flight. */
export type Setback = "not-as-assumed" | "wants-lock" | "put-off";

/** How often a decision is postponed before its batch waits for its rows. */
export const MOST_ROUNDS = 4;

/** The path of a decision after a setback; `rounds` counts how often it has been postponed, this time included. */
export function nextPath(path: Path, setback: Setback, rounds: number): Path {
  if (setback === "put-off") return rounds >= MOST_ROUNDS ? "waiting" : path;
  return path === "optimistic" ? "locked" : path;
}

const MAX_ROWS = 8192;
/** Together with the number of rows this bounds the memory; a longer value is read again. */
const MAX_CHARS = 2048;
/** How many writes of a record, or how many new records, use the locked path after a wrong assumption. */
const ROW_COOLDOWN = { first: 8, longest: 1024 };
const ABSENCE_COOLDOWN = { first: 128, longest: 16_384 };

/** A record that this process wrote recently. */
interface Recent {
  row: Row | undefined;
  /** How many of its next writes are not remembered. */
  cooldown: number;
  nextCooldown: number;
}

export class Assumptions {
  readonly #held = new Map<string, Row>();
  /** Records that a commit of this process is about to create, and to hold. */
  readonly #expected = new Set<string>();
  /** The oldest first; null if the store reads rows as fast as this map does. */
  readonly #recent: Map<string, Recent> | null;
  #absenceCooldown = 0;
  #nextAbsenceCooldown = ABSENCE_COOLDOWN.first;

  constructor(isRemote: boolean) {
    this.#recent = isRemote ? new Map() : null;
  }

  /** What may be assumed of a record: its row; null if it is assumed to be absent; undefined if nothing may be assumed. */
  of(at: Address): Row | null | undefined {
    const row = this.#held.get(at.text) ?? this.#recent?.get(at.text)?.row;
    if (row !== undefined) return row;
    return at.isNew === true && this.#recent !== null && this.#absenceCooldown === 0 ? null : undefined;
  }

  /** Whether a decision on these records can be optimistic. */
  coversAll(keys: readonly Address[]): boolean {
    if (keys.length === 0) return false;
    let isCovered = true;
    let isNew = false;
    for (const at of keys) {
      isNew ||= at.isNew === true;
      isCovered &&= this.of(at) !== undefined;
    }
    if (isNew && this.#absenceCooldown > 0) this.#absenceCooldown -= 1;
    return isCovered;
  }

  /** Keeps this row, which is held by this process; its commits keep it up to date. */
  hold(text: string, row: Row): void {
    this.#held.set(text, row);
    const recent = this.#recent?.get(text);
    if (recent === undefined) return;
    recent.row = undefined;
    // What is known of wrong assumptions counts again when the row is released.
    if (recent.nextCooldown === ROW_COOLDOWN.first) this.#recent?.delete(text);
  }

  /** While a record is expected, its row is held as soon as a commit of this process writes it. */
  expect(text: string, isExpected: boolean): void {
    if (isExpected) this.#expected.add(text);
    else this.#expected.delete(text);
  }

  held(text: string): Row | undefined {
    return this.#held.get(text);
  }

  letGo(text: string): void {
    this.#held.delete(text);
  }

  /** The record is not held any more, and its row is what this process wrote last. */
  released(text: string): void {
    const row = this.#held.get(text);
    this.#held.delete(text);
    if (row !== undefined) this.#remember(text, row);
  }

  /** Takes a row that was read under a lock, in a batch that is now committed. */
  saw(text: string, row: Row): void {
    if (this.#held.has(text)) this.#held.set(text, row);
  }

  /** Takes what a batch that is now committed wrote; `id` is undefined if the row is new and the reply with its number was lost. */
  wrote(text: string, row: Row, id: number | undefined): void {
    if (this.#held.size === 0 && this.#expected.size === 0 && this.#recent === null) return;
    const stored = row.id !== 0 ? row : id === undefined ? undefined : { ...row, id };
    if (this.#held.has(text) || this.#expected.has(text)) {
      if (stored === undefined) this.#held.delete(text);
      else this.#held.set(text, stored);
    } else this.#remember(text, stored);
  }

  #remember(text: string, row: Row | undefined): void {
    if (this.#recent === null) return;
    const recent = this.#recent.get(text) ?? { row: undefined, cooldown: 0, nextCooldown: ROW_COOLDOWN.first };
    const isKept = recent.cooldown === 0 && row !== undefined && row.value !== null && row.value.length <= MAX_CHARS;
    if (recent.cooldown > 0) recent.cooldown -= 1;
    recent.row = isKept ? row : undefined;
    this.#recent.delete(text);
    if (!isKept && recent.nextCooldown === ROW_COOLDOWN.first) return;
    this.#recent.set(text, recent);
    if (this.#recent.size > MAX_ROWS) this.#recent.delete(this.#recent.keys().next().value as string);
  }

  /** The commit found the records absent, as assumed. */
  absenceConfirmed(): void {
    this.#nextAbsenceCooldown = Math.max(ABSENCE_COOLDOWN.first, this.#nextAbsenceCooldown / 2);
  }

  /** A record that was assumed to be absent existed: the whole batch has to be decided again. */
  absenceRefuted(): void {
    this.#absenceCooldown = this.#nextAbsenceCooldown;
    this.#nextAbsenceCooldown = Math.min(ABSENCE_COOLDOWN.longest, 2 * this.#nextAbsenceCooldown);
  }

  /** Assuming this row was wrong, or saved nothing. */
  refuted(text: string): void {
    const recent = this.#recent?.get(text);
    if (recent === undefined) return;
    recent.row = undefined;
    recent.cooldown = recent.nextCooldown;
    recent.nextCooldown = Math.min(ROW_COOLDOWN.longest, 2 * recent.nextCooldown);
  }

  /** Forgets all rows: the database may have been restored to an earlier state. */
  clear(): void {
    this.#held.clear();
    this.#recent?.clear();
  }
}
