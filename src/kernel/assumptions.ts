/**
 * Assumptions: rows that a decision may run on before the store has been asked.
 *
 * The locked path reads rows under their locks, which on a server costs a round trip. It can be saved for a row whose lease this
 * process holds, for a row that it wrote last, and for a record that is most probably absent, as the mark of a new message is. A decision
 * all of whose records can be assumed is *optimistic*: it runs at once, and the commit finds out whether it was right.
 *
 * Why this is sound: every row that a committed decision used is locked by its batch when the batch commits, so the commits of all
 * processes can be put in an order (G32). A row that was read under a lock stays locked. A row that was assumed must have been written,
 * under a check of its version and stamp, which takes its lock; a record that was assumed to be absent must have been inserted, and the
 * unique index refuses a second one. So a decision that used an assumed row without writing it counts for nothing and takes the locked
 * path (`isUnchecked` in `decision.ts`); what is absent and was only read is the store's to protect (`Batch.decide`).
 *
 * The path of a decision, and what moves it along. It never goes back:
 *
 *   optimistic ──► locked     a row was not as assumed; it asked for the store's clock; it used an assumed row without writing it
 *   any        ──► patient    it was put off `MOST_ROUNDS` times, because others had its rows locked or changed them
 *
 * A patient decision goes alone, and its batch waits for its rows in sorted order instead of skipping those that are locked.
 *
 * Assuming in vain costs a round trip, so it is not repeated: a record whose row was not as assumed, or whose decisions ask for the
 * clock, is left to the locked path for its next writes, twice as many each time; after an absence that was none, the next records are
 * looked for, in the same way.
 */

import { type Address, keyText, type Put, type Row } from "./contract.ts";

export type Path = "optimistic" | "locked" | "patient";

/** What happened to a decision in a flight that did not end it. */
export type Setback = "not-as-assumed" | "wants-lock" | "put-off";

/** So often a decision is put off before its batch waits for its rows. */
export const MOST_ROUNDS = 4;

/** The path of a decision after a setback; `rounds` counts how often it has been put off, this time included. */
export function nextPath(path: Path, setback: Setback, rounds: number): Path {
  if (setback === "put-off") return rounds >= MOST_ROUNDS ? "patient" : path;
  return path === "optimistic" ? "locked" : path;
}

const MAX_ROWS = 8192;
/** Together with the number of rows this bounds the memory; a longer value is worth reading anew. */
const MAX_CHARS = 2048;
/** How many writes of a record, or how many new records, are left to the locked path after an assumption that was wrong. */
const ROW_COOLDOWN = { first: 8, longest: 1024 };
const ABSENCE_COOLDOWN = { first: 128, longest: 16_384 };

/** A record that this process wrote lately. */
interface Recent {
  row: Row | undefined;
  /** How many of its next writes are not remembered. */
  cooldown: number;
  nextCooldown: number;
}

export class Assumptions {
  readonly #held = new Map<string, Row>();
  /** Records that a commit of this process is about to make, and to hold. */
  readonly #expected = new Set<string>();
  /** The oldest first; null where rows are not worth remembering, because the store reads them as quickly. */
  readonly #recent: Map<string, Recent> | null;
  #absenceCooldown = 0;
  #nextAbsenceCooldown = ABSENCE_COOLDOWN.first;

  constructor(isRemote: boolean) {
    this.#recent = isRemote ? new Map() : null;
  }

  /** What may be assumed of a record: its row, null if it is to be taken for absent, undefined if nothing may be. */
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

  /** From now on, commits of this process keep this row up to date: it is held here. */
  hold(text: string, row: Row): void {
    this.#held.set(text, row);
    this.#recent?.delete(text);
  }

  /** Once a commit of this process writes the record, its row is held; until it is no longer expected. */
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

  /** A row that was read under a lock, in a batch that is now committed. */
  saw(text: string, row: Row): void {
    if (this.#held.has(text)) this.#held.set(text, row);
  }

  /** What was written by a batch that is now committed; `id` is undefined where the row is new and its number did not arrive. */
  wrote({ row }: Put, id: number | undefined): void {
    if (this.#held.size === 0 && this.#expected.size === 0 && this.#recent === null) return;
    const text = keyText(row);
    const stored = row.id !== 0 ? row : id === undefined ? undefined : { ...row, id };
    if (this.#held.has(text) || this.#expected.has(text)) {
      if (stored === undefined) this.#held.delete(text);
      else this.#held.set(text, stored);
    } else this.#remember(text, stored);
  }

  #remember(text: string, row: Row | undefined): void {
    if (this.#recent === null) return;
    const recent = this.#recent.get(text) ?? { row: undefined, cooldown: 0, nextCooldown: ROW_COOLDOWN.first };
    const isWorthIt = recent.cooldown === 0 && row !== undefined && row.value !== null && row.value.length <= MAX_CHARS;
    if (recent.cooldown > 0) recent.cooldown -= 1;
    recent.row = isWorthIt ? row : undefined;
    this.#recent.delete(text);
    if (!isWorthIt && recent.nextCooldown === ROW_COOLDOWN.first) return;
    this.#recent.set(text, recent);
    if (this.#recent.size > MAX_ROWS) this.#recent.delete(this.#recent.keys().next().value as string);
  }

  /** The commit found these records absent, as assumed. */
  absenceConfirmed(): void {
    this.#nextAbsenceCooldown = Math.max(ABSENCE_COOLDOWN.first, this.#nextAbsenceCooldown / 2);
  }

  /** One that was assumed to be absent was there: a whole batch has to be decided again. */
  absenceRefuted(): void {
    this.#absenceCooldown = this.#nextAbsenceCooldown;
    this.#nextAbsenceCooldown = Math.min(ABSENCE_COOLDOWN.longest, 2 * this.#nextAbsenceCooldown);
  }

  /** It was of no use to assume this row. */
  refuted(text: string): void {
    const recent = this.#recent?.get(text);
    if (recent === undefined) return;
    recent.row = undefined;
    recent.cooldown = recent.nextCooldown;
    recent.nextCooldown = Math.min(ROW_COOLDOWN.longest, 2 * recent.nextCooldown);
  }

  /** Nothing that is remembered may be used: the database may have been put back in time. */
  clear(): void {
    this.#held.clear();
    this.#recent?.clear();
  }
}
