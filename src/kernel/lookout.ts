/**
 * A lookout: whoever waits for a record to change hears of it from the commit itself, where this process made it, and otherwise looks
 * when another process has committed something, and now and then without a reason.
 *
 * All who wait are looked for in one read.
 */

import { type Address, keyText, type Put, type Row } from "./contract.ts";
import { ClosedError } from "./errors.ts";
import type { Kernel } from "./kernel.ts";

const POLL_MS = 5000;

export interface Watcher {
  /** Told of the record as it is, perhaps often. Answers whether that was what it waited for. */
  readonly seen: (row: Row | null) => boolean;
  readonly failed: (error: unknown) => void;
}

export interface LookoutOptions {
  /** Whether anybody could wait for a row like this. */
  readonly isOfInterest: (row: Row) => boolean;
  /** Commits of others come in bursts: the first is looked for at once, and those that come within so many milliseconds together. */
  readonly burstMs: number;
}

/** A record, and those who are told of it. */
interface Sought {
  readonly at: Address;
  readonly watchers: readonly Watcher[];
}

/** So many records are read at once. */
const MOST_AT_ONCE = 1000;

export class Lookout {
  readonly #kernel: Kernel;
  readonly #options: LookoutOptions;
  readonly #watched = new Map<string, { readonly at: Address; readonly all: Set<Watcher> }>();
  #unlisten: (() => void) | undefined;
  #cancelPoll: () => void = () => {};
  /** What is to be looked for in the next read. */
  #sought: Sought[] = [];
  #seeking: Promise<void> | undefined;
  /** Somebody has just looked; what is new meanwhile is looked for afterwards. */
  #isResting = false;
  #isNews = false;

  constructor(kernel: Kernel, options: LookoutOptions) {
    this.#kernel = kernel;
    this.#options = options;
  }

  /** Tells the watcher until it says that it has seen enough, or is stopped: answers how. */
  watch(at: Address, watcher: Watcher): () => void {
    const once: Watcher = {
      seen: (row) => {
        if (!watcher.seen(row)) return false;
        stop();
        return true;
      },
      failed: (error) => {
        stop();
        watcher.failed(error);
      },
    };
    const stop = (): void => {
      const entry = this.#watched.get(at.text);
      entry?.all.delete(once);
      if (entry?.all.size === 0) this.#watched.delete(at.text);
      if (this.#watched.size === 0) this.#sleep();
    };
    const entry = this.#watched.get(at.text) ?? { at, all: new Set() };
    entry.all.add(once);
    this.#watched.set(at.text, entry);
    try {
      this.#unlisten ??= this.#kernel.listen((puts) => this.#heard(puts));
    } catch (error) {
      once.failed(error);
    }
    if (this.#watched.size === 1) this.#pollLater();
    return stop;
  }

  /** Looks once for a record that somebody begins to wait for. */
  look(at: Address): Promise<void> {
    this.#sought.push({ at, watchers: [...(this.#watched.get(at.text)?.all ?? [])] });
    // Together with the others of this moment.
    this.#seeking ??= Promise.resolve().then(() => {
      const sought = this.#sought;
      this.#sought = [];
      this.#seeking = undefined;
      return this.#read(sought);
    });
    return this.#seeking;
  }

  async #read(sought: readonly Sought[]): Promise<void> {
    for (let from = 0; from < sought.length; from += MOST_AT_ONCE) {
      const some = sought.slice(from, from + MOST_AT_ONCE);
      const rows = await this.#kernel.read(some.map(({ at }) => at));
      some.forEach(({ at, watchers }, index) => {
        this.#tell(at.text, rows[index] ?? null, watchers);
      });
    }
  }

  #sleep(): void {
    this.#cancelPoll();
    this.#unlisten?.();
    this.#unlisten = undefined;
  }

  #pollLater(): void {
    this.#cancelPoll();
    this.#cancelPoll = this.#kernel.ports.clock.after(POLL_MS, () => {
      void this.#lookAtAll().then(() => {
        if (this.#watched.size > 0) this.#pollLater();
      });
    });
  }

  #heard(puts: readonly Put[] | undefined): void {
    if (puts === undefined) {
      if (this.#isResting) this.#isNews = true;
      else this.#lookAndRest();
      return;
    }
    for (const { row } of puts)
      if (this.#options.isOfInterest(row))
        for (const watcher of this.#watched.get(keyText(row))?.all ?? []) watcher.seen(row);
  }

  #lookAndRest(): void {
    this.#isResting = true;
    this.#isNews = false;
    void this.#lookAtAll().then(() =>
      this.#kernel.ports.clock.after(this.#options.burstMs, () => {
        this.#isResting = false;
        if (this.#isNews) this.#lookAndRest();
      }),
    );
  }

  /** Tells those who were there when it was looked for: for whoever came later it may be old. */
  #tell(text: string, row: Row | null, watchers: readonly Watcher[]): void {
    const all = this.#watched.get(text)?.all;
    for (const watcher of watchers) if (all?.has(watcher) === true) watcher.seen(row);
  }

  async #lookAtAll(): Promise<void> {
    const sought = Array.from(this.#watched.values(), ({ at, all }) => ({ at, watchers: [...all] }));
    try {
      await this.#read(sought);
    } catch (error) {
      if (error instanceof ClosedError)
        for (const { watchers } of sought) for (const watcher of watchers) watcher.failed(error);
    }
  }
}
