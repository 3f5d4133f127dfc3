/**
 * Drafts: records as decisions see and change them.
 *
 * A cell is one record in a batch, shared by its decisions. A draft is one decision's copy of it: changes are made in the draft, and
 * merged into the cell only when the decision has returned. Values that are read are frozen; a value that is written is encoded
 * immediately, so reading it in the same decision gives the same as reading it later.
 */

import { MAX_TIME_MS } from "./check.ts";
import { type Address, DELETED_KEPT_MS, type Entry, NEW_ROW, type Put, type Row } from "./contract.ts";
import { deepFreeze } from "./encoding.ts";
import { InvalidValueError } from "./errors.ts";
import { withItem } from "./list.ts";

/** What a draft needs of the decision attempt that it belongs to. */
export interface DraftContext {
  readonly nowMs: number;
  /** The stamp of everything that the batch writes. */
  readonly stamp: number;
  /** The most that an encoded value may take. */
  readonly maxValueBytes: number;
  /** Throws once the decision is over. */
  check(): void;
  encode(at: Address, value: unknown): string;
  decode(at: Address, text: string): unknown;
}

const NO_ENTRIES: readonly Entry[] = [];

/** One record in a batch: the stored row, and the row after the decisions so far. */
export class Cell {
  readonly at: Address;
  /** Not read under a lock, but assumed (`assumptions.ts`); only an optimistic decision may use it. */
  readonly isAssumed: boolean;
  readonly stored: Row | null;
  row: Row | null;
  entries: readonly Entry[] = NO_ENTRIES;
  /** The decoded value of `row`, once it was read. */
  decoded: { readonly value: unknown } | undefined;
  /** The draft of the decision that runs now. */
  draft: Draft | undefined;

  constructor(at: Address, stored: Row | null, isAssumed = false) {
    this.at = at;
    this.isAssumed = isAssumed;
    this.stored = stored;
    this.row = stored;
  }

  put(): Put | undefined {
    return this.row === null || this.row === this.stored
      ? undefined
      : { was: this.stored, row: this.row, entries: this.entries };
  }
}

export interface Changes {
  value?: unknown;
  kind?: string | null;
  status?: string | null;
  dueMs?: number | null;
  holder?: string | null;
  fence?: number;
  wakes?: number;
  tries?: number;
}

/** One record as one decision sees and changes it. */
export class Draft {
  readonly at: Address;
  readonly #context: DraftContext;
  readonly cell: Cell;
  row: Row | null;
  entries: Entry[] | undefined;
  #decoded: { readonly value: unknown } | undefined;

  constructor(context: DraftContext, cell: Cell) {
    this.#context = context;
    this.at = cell.at;
    this.cell = cell;
    this.row = cell.row;
    this.#decoded = cell.decoded;
  }

  get exists(): boolean {
    return this.row !== null && this.row.value !== null;
  }
  /** 0 before the first write; keeps rising through deletion. */
  get version(): number {
    return this.row?.version ?? 0;
  }
  get fence(): number {
    return this.row?.fence ?? 0;
  }
  get wakes(): number {
    return this.row?.wakes ?? 0;
  }
  get tries(): number {
    return this.row?.tries ?? 0;
  }
  get holder(): string | null {
    return this.row?.holder ?? null;
  }
  get kind(): string | null {
    return this.row?.kind ?? null;
  }
  get status(): string | null {
    return this.row?.status ?? null;
  }
  get dueMs(): number | null {
    return this.row?.dueMs ?? null;
  }
  get head(): number {
    return this.row?.head ?? 0;
  }

  /** The value, frozen; undefined if there is none. */
  get value(): unknown {
    this.#context.check();
    const text = this.row?.value ?? null;
    if (text === null) return undefined;
    if (this.#decoded === undefined) {
      const value = this.#context.decode(this.at, text);
      this.#decoded = { value };
      // An immutable value is decoded once for the whole batch; one with a Map, a Date or bytes, once for each decision.
      if (deepFreeze(value) && this.row === this.cell.row) this.cell.decoded = this.#decoded;
    }
    return this.#decoded.value;
  }

  /** Changes the named fields and keeps the rest. The first write creates the record, and must have a value. */
  write(changes: Changes): void {
    const value = Object.hasOwn(changes, "value") ? this.#context.encode(this.at, changes.value) : undefined;
    const row = this.#open(value);
    if (value !== undefined) {
      row.value = value;
      this.#decoded = undefined;
    }
    if (changes.kind !== undefined) row.kind = changes.kind;
    if (changes.status !== undefined) row.status = changes.status;
    if (changes.dueMs !== undefined) row.dueMs = changes.dueMs;
    if (changes.holder !== undefined) row.holder = changes.holder;
    if (changes.fence !== undefined) row.fence = changes.fence;
    if (changes.wakes !== undefined) row.wakes = changes.wakes;
    if (changes.tries !== undefined) row.tries = changes.tries;
  }

  /** Adds an entry to the record's log, and returns the entry's version. A followed entry is also read by `Kernel.follow`. */
  append(name: string, data: unknown, options: { readonly isFollowed?: boolean } = {}): number {
    return this.appendText(name, this.encode(data), options.isFollowed);
  }

  /** The most that an encoded value may take. */
  get maxValueBytes(): number {
    return this.#context.maxValueBytes;
  }

  /** Encodes data for this record. */
  encode(data: unknown): string {
    return this.#context.encode(this.at, data);
  }

  /** Decodes text that was encoded for this record. The value is frozen. */
  decode(text: string): unknown {
    const value = this.#context.decode(this.at, text);
    deepFreeze(value);
    return value;
  }

  /** Adds an entry whose data was already encoded for this record. */
  appendText(name: string, text: string, isFollowed = false): number {
    const row = this.#open(undefined);
    row.head += 1;
    const entry = { version: row.head, name, data: text };
    this.entries = withItem(this.entries ?? [], isFollowed ? { ...entry, isFollowed } : entry);
    return row.head;
  }

  /**
   * Deletes the value and ends every claim. The row is kept for `keptMs`, so that versions, fences and the log continue if the record is
   * created again; 0 is for a key that is never used again. Default: 7 days.
   */
  remove(keptMs = DELETED_KEPT_MS): void {
    if (!this.exists) return;
    const dueMs = this.#context.nowMs + keptMs;
    const row = this.#open(undefined);
    row.value = null;
    row.kind = null;
    row.status = null;
    row.holder = null;
    row.tries = 0;
    row.dueMs = dueMs;
    // A number out of range, which something else wrote, must not prevent the removal.
    if (!Number.isSafeInteger(row.fence)) row.fence = 0;
    if (!Number.isSafeInteger(row.wakes)) row.wakes = 0;
    this.#decoded = undefined;
  }

  /** Returns the row to change: on the first change of this decision, a copy with the next version. */
  #open(value: string | undefined): Mutable<Row> {
    const now = this.row;
    this.#context.check();
    if (value === undefined && (now === null || now.value === null))
      throw new Error(`${this.at.space} "${this.at.key}" does not exist: its first write needs a value`);
    if (now !== null && now !== this.cell.row) {
      const row: Mutable<Row> = now;
      // Removed and created again in one decision: the time to remove the row no longer applies.
      if (row.value === null) row.dueMs = null;
      return row;
    }
    const row: Mutable<Row> =
      now === null
        ? { ...NEW_ROW, space: this.at.space, key: this.at.key }
        : now.value === null
          ? { ...now, dueMs: null }
          : { ...now };
    row.version += 1;
    row.stamp = this.#context.stamp;
    this.row = row;
    return row;
  }
}

const isCounter = (number: number): boolean => Number.isSafeInteger(number) && number >= 0;
const isTime = (ms: number): boolean => Number.isInteger(ms) && ms >= 0 && ms <= MAX_TIME_MS;

const COUNTERS = ["version", "fence", "wakes", "tries", "head"] as const;

/** Why a store could not return the numbers of this row unchanged, or null. */
export function unreadableNumber(row: Row): { readonly name: string; readonly reason: string } | null {
  for (const name of COUNTERS) {
    const number = row[name];
    if (!isCounter(number))
      return { name, reason: `${number} is not a whole number from 0 to ${Number.MAX_SAFE_INTEGER}` };
  }
  const { dueMs } = row;
  if (dueMs !== null && !isTime(dueMs))
    return { name: "dueMs", reason: `${dueMs} is not a time in whole milliseconds from 0 to ${MAX_TIME_MS}` };
  return null;
}

/** Throws `invalid_value` for a row that could not be read back: one such row would fail every read that includes it. */
export function checkNumbers(row: Row): void {
  const { version, fence, wakes, tries, head, dueMs } = row;
  const isUsual = isCounter(version) && isCounter(fence) && isCounter(wakes) && isCounter(tries) && isCounter(head);
  if (isUsual && (dueMs === null || isTime(dueMs))) return;
  const unreadable = unreadableNumber(row);
  if (unreadable !== null) throw new InvalidValueError(unreadable.name, unreadable.reason, `${row.space} "${row.key}"`);
}

type Mutable<T> = { -readonly [K in keyof T]: T[K] };
