/**
 * Slots: one shared value each, with compare-and-swap.
 *
 * A slot is one record. Everything that writes is a decision, so `update` needs no retry loop: it runs under the record's
 * lock, in the order of commits. The same verbs are available inside `transact` as `tx.slot(slot)`, synchronous.
 *
 * Guarantees: linearizable for each slot (G10); versions strictly rise, also through deletion.
 * Out of scope: history.
 */

import {
  checkAbortSignal,
  checkCount,
  checkFunction,
  checkId,
  checkOptions,
  checkPrefix,
  checkVersion,
  optionNames,
} from "../kernel/check.ts";
import type { Row } from "../kernel/contract.ts";
import { type Address, address } from "../kernel/contract.ts";
import { refusePromise, type Sync, type Tx } from "../kernel/decision.ts";
import type { Draft } from "../kernel/draft.ts";
import { showReadable, type Unreadable } from "../kernel/encoding.ts";
import { VersionConflictError } from "../kernel/errors.ts";
import type { Kernel } from "../kernel/kernel.ts";
import { decideWrite, visibleVersion } from "./decide.ts";
import { watchSlot } from "./watch.ts";

const SPACE = "slot";

/** Where the slots are kept that all share, or those of one run's tree or of one workflow. */
export const slotSpace = (scope: "run" | "workflow" | "global", of: string): string =>
  scope === "global" ? SPACE : `${SPACE}/${scope}/${of}`;

/** A value with the version it was read at; version 0 says that nothing is stored. */
export interface Versioned<T> {
  readonly value: T;
  readonly version: number;
}

export interface Expecting {
  /** Refuse the write unless the slot is at this version; 0 expects that nothing is stored. */
  readonly expectedVersion?: number | undefined;
}

const EXPECTING = optionNames<Expecting>({ expectedVersion: true });
const WATCH_OPTIONS = optionNames<{ abortSignal?: AbortSignal }>({ abortSignal: true });

export type TryWrite =
  | { readonly ok: true; readonly version: number }
  | { readonly ok: false; readonly code: "version_conflict"; readonly current: number };

export interface SlotPage {
  /** Their values may be of any type: the names tell. */
  readonly slots: readonly (Versioned<unknown> & { readonly name: string })[];
  /** Slots of this page whose values cannot be read, by name: written with another codec key, or damaged. */
  readonly unreadable: readonly Unreadable[];
  /** The `after` of the next page; null at the end. */
  readonly next: string | null;
}

/** Gives what a slot holds before anything is stored: through the codec, like everything else, and each time anew. */
type Initial<T> = () => T;

/** A handle on one shared value. `Empty` is the type of the value while nothing is stored: undefined, or never if there is an initial value. */
export class Slot<T, Empty = undefined> {
  readonly name: string;
  readonly #kernel: Kernel;
  readonly #at: Address;
  readonly #initial: Initial<T | Empty>;

  /** @internal */
  constructor(kernel: Kernel, name: string, initial: T | Empty, space = SPACE) {
    this.name = checkId(name, "the slot's name");
    this.#kernel = kernel;
    this.#at = address(space, name);
    const text = initial === undefined ? undefined : kernel.encode(this.#at, initial);
    this.#initial = () => (text === undefined ? initial : (kernel.decode(this.#at, text) as T));
  }

  /** Reads the value, frozen, and its version. */
  async get(): Promise<Versioned<T | Empty>> {
    const [row] = await this.#kernel.read([this.#at]);
    return this.#show(row ?? null);
  }

  /** Stores a value; throws `version_conflict` if the slot is not at `expectedVersion`. */
  async set(value: T, options?: Expecting): Promise<{ version: number }> {
    return this.#transact((slot) => slot.set(value, options));
  }

  /** Stores a value, or returns the version at which the slot is instead. */
  async trySet(value: T, options: { readonly expectedVersion: number }): Promise<TryWrite> {
    return this.#transact((slot) => slot.trySet(value, options));
  }

  /**
   * Replaces the value by what the function makes of it; the value it is given is frozen. The function is a decision: pure, synchronous,
   * it may run more than once. Repeating an update whose outcome is unknown may do it twice: put a mark into the same `transact`.
   */
  async update(change: (value: T | Empty) => Sync<T>): Promise<Versioned<T>> {
    return this.#transact((slot) => slot.update(change));
  }

  /** Removes the value; throws `version_conflict` if the slot is not at `expectedVersion`. */
  async delete(options?: Expecting): Promise<{ deleted: boolean }> {
    return this.#transact((slot) => slot.delete(options));
  }

  /**
   * The value now, then each newer one as it is committed, by this process or another. One that was soon
   * replaced may be left out. It ends when it is aborted or the handle is closed, and keeps the process alive until then.
   */
  watch(options?: { readonly abortSignal?: AbortSignal }): AsyncIterableIterator<Versioned<T | Empty>> {
    checkOptions(options, WATCH_OPTIONS);
    checkAbortSignal(options?.abortSignal);
    return watchSlot(this.#kernel, this.#at, (row) => this.#show(row), options?.abortSignal);
  }

  /** The same slot inside a decision. @internal */
  within(tx: Tx): TxSlot<T, Empty> {
    return new TxSlot<T, Empty>(tx.record(this.#at), this.#initial);
  }

  /** Whether it is a slot of the handle that this kernel is behind. @internal */
  isOn(kernel: Kernel): boolean {
    return this.#kernel === kernel;
  }

  /** The record that a decision on this slot touches. @internal */
  get touches(): Address {
    return this.#at;
  }

  #transact<R>(act: (slot: TxSlot<T, Empty>) => R): Promise<R> {
    return this.#kernel.transact((tx) => act(this.within(tx)), [this.#at]);
  }

  #show(row: Row | null): Versioned<T | Empty> {
    if (row === null || row.value === null) return { value: this.#initial(), version: 0 };
    return { value: this.#kernel.decode(row, row.value) as T, version: row.version };
  }
}

/** A slot of any type. */
export type AnySlot = Pick<Slot<unknown>, "name">;

/** A slot inside a decision: the same verbs, synchronous. */
export class TxSlot<T, Empty = undefined> {
  readonly #record: Draft;
  readonly #initial: Initial<T | Empty>;

  /** @internal */
  constructor(record: Draft, initial: Initial<T | Empty>) {
    this.#record = record;
    this.#initial = initial;
  }

  get(): Versioned<T | Empty> {
    const version = visibleVersion(this.#record);
    return version === 0 ? { value: this.#initial(), version } : { value: this.#record.value as T, version };
  }

  set(value: T, options?: Expecting): { version: number } {
    this.#expect(options);
    this.#record.write({ value });
    return { version: this.#record.version };
  }

  trySet(value: T, options: { readonly expectedVersion: number }): TryWrite {
    checkOptions(options, EXPECTING);
    const answer = decideWrite(this.#record, checkVersion(options?.expectedVersion, "expectedVersion"));
    if (!answer.ok) return { ok: false, code: "version_conflict", current: answer.current };
    return { ok: true, ...this.set(value) };
  }

  update(change: (value: T | Empty) => Sync<T>): Versioned<T> {
    checkFunction(change, "the update function");
    const value = change(this.get().value);
    refusePromise(value);
    this.#record.write({ value });
    return { value: this.#record.value as T, version: this.#record.version };
  }

  delete(options?: Expecting): { deleted: boolean } {
    this.#expect(options);
    const deleted = this.#record.exists;
    this.#record.remove();
    return { deleted };
  }

  #expect(options: Expecting | undefined): void {
    // A misspelt name would be a write without the check.
    checkOptions(options, EXPECTING);
    const expected = options?.expectedVersion;
    if (expected === undefined) return;
    const answer = decideWrite(this.#record, checkVersion(expected, "expectedVersion"));
    if (!answer.ok) throw new VersionConflictError(`slot "${this.#record.at.key}"`, expected, answer.current);
  }
}

export interface SlotListOptions {
  /** Only slots whose names begin with this. */
  readonly prefix?: string | undefined;
  /** Only slots after this name: the `next` of the page before. */
  readonly after?: string | null | undefined;
  readonly limit?: number | undefined;
}

const LIST_OPTIONS = optionNames<SlotListOptions>({ prefix: true, after: true, limit: true });

/** A page of slots in the order of their names' UTF-8 bytes. */
export async function listSlots(kernel: Kernel, options?: SlotListOptions): Promise<SlotPage> {
  checkOptions(options, LIST_OPTIONS);
  const limit = checkCount(options?.limit ?? 100, "the limit", 1000);
  const prefix = checkPrefix(options?.prefix ?? "", "the prefix");
  const after = options?.after == null ? null : checkId(options.after, "after");
  // One more than asked for tells whether there is a next page.
  const rows = await kernel.list({ space: SPACE, prefix, after, limit: limit + 1 });
  const page = rows.slice(0, limit);
  const { shown: slots, unreadable } = showReadable(page, (row) => ({
    name: row.key,
    version: row.version,
    value: kernel.decode(row, row.value ?? "null"),
  }));
  return { slots, unreadable, next: rows.length > limit ? (page.at(-1)?.key ?? null) : null };
}
