/**
 * Slots over HTTP: one shared value each, with compare-and-swap by version.
 */

import type { Sync } from "../../kernel/decision.ts";
import type { Unreadable } from "../../kernel/encoding.ts";
import type { Expecting, SlotListOptions, SlotPage, TryWrite, Versioned } from "../../slot/slot.ts";
import { invalidArgument, isPawlError } from "./errors.ts";
import { ABORTED, PAGE, plain, type Sendings, sent } from "./options.ts";
import { type Paged, paged } from "./pages.ts";
import { follow } from "./sse.ts";
import { path, type Transport } from "./transport.ts";
import { fromWire, toWire } from "./values.ts";

interface WireSlot {
  readonly name: string;
  readonly version: number;
  readonly value?: unknown;
}

const EXPECTING: Sendings<Expecting> = { expectedVersion: plain };
const LIST: Sendings<SlotListOptions> = { ...PAGE, prefix: plain };

/** A handle on one shared value. `Empty` is the type of the value while nothing is stored: undefined, or never if there is an initial value. */
export class ClientSlot<T, Empty = undefined> {
  readonly name: string;
  readonly #transport: Transport;
  readonly #initial: T | Empty;

  /** @internal */
  constructor(transport: Transport, name: string, initial: T | Empty) {
    this.name = name;
    this.#transport = transport;
    this.#initial = initial;
  }

  /** Reads the value and its version; 0 if nothing is stored. */
  async get(): Promise<Versioned<T | Empty>> {
    return this.#show((await this.#transport.get(path("slots", this.name))) as WireSlot);
  }

  /** Stores a value; throws `version_conflict` if the slot is not at `expectedVersion`. */
  async set(value: T, options?: Expecting): Promise<{ version: number }> {
    const body = { value: toWire(value), ...sent(options, EXPECTING) };
    const json = await this.#transport.call({ method: "PUT", path: path("slots", this.name), body });
    return { version: (json as WireSlot).version };
  }

  /** Stores a value, or returns the version at which the slot is instead. */
  async trySet(value: T, options: { readonly expectedVersion: number }): Promise<TryWrite> {
    sent(options ?? null, EXPECTING);
    try {
      return { ok: true, ...(await this.set(value, options)) };
    } catch (error) {
      if (!isPawlError(error, "version_conflict")) throw error;
      return { ok: false, code: "version_conflict", current: error.data.current };
    }
  }

  /**
   * Replaces the value by what the function makes of it: reads, and stores with the version that was read, again while others were faster. The function
   * may be called more than once.
   */
  async update(change: (value: T | Empty) => Sync<T>): Promise<Versioned<T>> {
    if (typeof change !== "function") throw invalidArgument("the change", "must be a function");
    for (;;) {
      const { value, version } = await this.get();
      const next = change(value) as T;
      const written = await this.trySet(next, { expectedVersion: version });
      if (written.ok) return { value: next, version: written.version };
    }
  }

  /** Removes the value; throws `version_conflict` if the slot is not at `expectedVersion`. */
  async delete(options?: Expecting): Promise<{ deleted: boolean }> {
    const { expectedVersion } = sent(options, EXPECTING);
    const headers = expectedVersion === undefined ? {} : { "if-match": `"${expectedVersion}"` };
    const json = await this.#transport.call({ method: "DELETE", path: path("slots", this.name), headers });
    return json as { deleted: boolean };
  }

  /** The value now, then each newer one. One that was soon replaced may be left out. Ends when it is aborted. */
  async *watch(options: { readonly abortSignal?: AbortSignal | undefined } = {}): AsyncGenerator<Versioned<T | Empty>> {
    sent(options, ABORTED);
    let seen = -1;
    for await (const { data } of follow(
      this.#transport,
      { path: path("slots", this.name, "events") },
      options.abortSignal,
    )) {
      const slot = data as WireSlot;
      // The first event after a connection was lost is what the slot holds now.
      if (slot.version === seen) continue;
      seen = slot.version;
      yield this.#show(slot);
    }
  }

  #show({ value, version }: WireSlot): Versioned<T | Empty> {
    return { value: version === 0 ? this.#initial : (fromWire(value) as T), version };
  }
}

/** All slots. */
export class ClientSlots {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Lists slots by name: awaited, a page; iterated, all of them. */
  list(options: SlotListOptions = {}): Paged<SlotPage, SlotPage["slots"][number]> {
    return paged<SlotPage, SlotPage["slots"][number]>(
      async (after = options.after) => {
        const query = { ...sent(options, LIST), after };
        const json = await this.#transport.get(path("slots"), query);
        const { items, unreadable = [], next } = json as WirePage<WireSlot>;
        return { slots: items.map((slot) => ({ ...slot, value: fromWire(slot.value) })), unreadable, next };
      },
      ({ slots }) => slots,
    );
  }
}

/** A page as the server sends it. */
export interface WirePage<Item> {
  readonly items: readonly Item[];
  readonly unreadable?: readonly Unreadable[];
  readonly next: string | null;
}
