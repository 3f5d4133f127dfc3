/**
 * What this process knows of records without asking: rows whose lease it holds, and rows that it wrote last.
 *
 * A decision may run on what is known, because the store checks at the commit that the row has not moved; at worst a round trip is
 * lost. So a record that keeps moving, because other processes write it too, or whose decisions ask for the store's clock, is
 * left alone for a while: longer each time.
 */

import { keyText, type Put, type Row } from "./contract.ts";

const MAX_ROWS = 8192;
/** Together with the number of rows this bounds the memory; what is longer is worth reading anew. */
const MAX_CHARS = 2048;
/** So many writes of a record that disappointed are not remembered, and at most so many. */
const FIRST_PENANCE = 8;
const LONGEST_PENANCE = 1024;

/** After a wrong guess so many are not made, and at most so many. */
const FIRST_GUESS_PENANCE = 128;
const LONGEST_GUESS_PENANCE = 16_384;

/** A record that this process wrote lately. */
interface Recent {
  row: Row | undefined;
  /** So many of its next writes are not remembered. */
  penance: number;
  nextPenance: number;
}

export class Known {
  readonly #held = new Map<string, Row>();
  /** Records that are about to be made, or made again, and held. */
  readonly #expected = new Set<string>();
  /** The oldest first; null where rows are not worth remembering, because the store reads them as quickly. */
  readonly #recent: Map<string, Recent> | null;
  #guessPenance = 0;
  #nextGuessPenance = FIRST_GUESS_PENANCE;

  constructor(remembers: boolean) {
    this.#recent = remembers ? new Map() : null;
  }

  get(text: string): Row | undefined {
    return this.#held.get(text) ?? this.#recent?.get(text)?.row;
  }

  hold(text: string, row: Row): void {
    this.#held.set(text, row);
    this.#recent?.delete(text);
  }

  /** Once a commit of this process writes the record, its row is known; until it is no longer expected. */
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

  /** What was written by a batch that is now committed; `id` is undefined where the row is new and its number was not heard. */
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
    const recent = this.#recent.get(text) ?? { row: undefined, penance: 0, nextPenance: FIRST_PENANCE };
    const isWorthIt = recent.penance === 0 && row !== undefined && row.value !== null && row.value.length <= MAX_CHARS;
    if (recent.penance > 0) recent.penance -= 1;
    recent.row = isWorthIt ? row : undefined;
    this.#recent.delete(text);
    if (!isWorthIt && recent.nextPenance === FIRST_PENANCE) return;
    this.#recent.set(text, recent);
    if (this.#recent.size > MAX_ROWS) this.#recent.delete(this.#recent.keys().next().value as string);
  }

  /** Whether a record that is most probably new may be taken for absent. */
  mayGuess(): boolean {
    if (this.#guessPenance === 0) return true;
    this.#guessPenance -= 1;
    return false;
  }

  /** Whether records that were taken for absent were. One that was not makes a whole batch go again. */
  guessed(isRight: boolean): void {
    if (isRight) this.#nextGuessPenance = Math.max(FIRST_GUESS_PENANCE, this.#nextGuessPenance / 2);
    else {
      this.#guessPenance = this.#nextGuessPenance;
      this.#nextGuessPenance = Math.min(LONGEST_GUESS_PENANCE, 2 * this.#nextGuessPenance);
    }
  }

  /** It was of no use to know this one. */
  disappointed(text: string): void {
    const recent = this.#recent?.get(text);
    if (recent === undefined) return;
    recent.row = undefined;
    recent.penance = recent.nextPenance;
    recent.nextPenance = Math.min(LONGEST_PENANCE, 2 * recent.nextPenance);
  }
}
