/**
 * Waits for records to change. A commit of this process notifies the watchers of its records directly. After a commit of another process,
 * and every few seconds in case a wake-up was lost, the watched records are read.
 *
 * All watched records are read together.
 */

import { type Address, keyText, type Put, type Row } from "./contract.ts";
import { ClosedError } from "./errors.ts";
import type { Kernel } from "./kernel.ts";

const POLL_MS = 5000;

export interface Watcher {
  /** Receives the record as it is, possibly several times. Returns whether that was what it waited for. */
  readonly seen: (row: Row | null) => boolean;
  readonly failed: (error: unknown) => void;
}

export interface RecordWatchOptions {
  /** Whether a row like this can be watched. */
  readonly isOfInterest: (row: Row) => boolean;
  /** Commits of other processes come in bursts: after the first one the records are read immediately, after the others once every `burstMs`. */
  readonly burstMs: number;
}

/** A record to read, and the watchers that receive it. */
interface Lookup {
  readonly at: Address;
  readonly watchers: readonly Watcher[];
}

/** How many records one read has at most. */
const PAGE = 1000;

export class RecordWatch {
  readonly #kernel: Kernel;
  readonly #options: RecordWatchOptions;
  readonly #watched = new Map<string, { readonly at: Address; readonly all: Set<Watcher> }>();
  #unlisten: (() => void) | undefined;
  #cancelPoll: () => void = () => {};
  /** What the next read has. */
  #lookups: Lookup[] = [];
  #reading: Promise<void> | undefined;
  /** The records were read less than `burstMs` ago; commits since then are followed by another read. */
  #isResting = false;
  #hasNewCommits = false;

  constructor(kernel: Kernel, options: RecordWatchOptions) {
    this.#kernel = kernel;
    this.#options = options;
  }

  /** Notifies the watcher until `seen` returns true, or until it is stopped. Returns a function that stops it. */
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
      if (this.#watched.size === 0) this.#stopListening();
    };
    const entry = this.#watched.get(at.text) ?? { at, all: new Set() };
    entry.all.add(once);
    this.#watched.set(at.text, entry);
    try {
      this.#unlisten ??= this.#kernel.listen((puts) => this.#onCommit(puts));
    } catch (error) {
      once.failed(error);
    }
    if (this.#watched.size === 1) this.#pollLater();
    return stop;
  }

  /** Reads a record once and notifies its watchers, for a wait that begins: the record may have changed before it was watched. */
  look(at: Address): Promise<void> {
    this.#lookups.push({ at, watchers: [...(this.#watched.get(at.text)?.all ?? [])] });
    // Together with all others of this turn of the event loop.
    this.#reading ??= Promise.resolve().then(() => {
      const lookups = this.#lookups;
      this.#lookups = [];
      this.#reading = undefined;
      return this.#read(lookups);
    });
    return this.#reading;
  }

  async #read(lookups: readonly Lookup[]): Promise<void> {
    for (let from = 0; from < lookups.length; from += PAGE) {
      const page = lookups.slice(from, from + PAGE);
      const rows = await this.#kernel.read(page.map(({ at }) => at));
      page.forEach(({ at, watchers }, index) => {
        this.#notify(at.text, rows[index] ?? null, watchers);
      });
    }
  }

  #stopListening(): void {
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

  #onCommit(puts: readonly Put[] | undefined): void {
    if (puts === undefined) {
      if (this.#isResting) this.#hasNewCommits = true;
      else this.#lookAndRest();
      return;
    }
    for (const { row } of puts)
      if (this.#options.isOfInterest(row))
        for (const watcher of this.#watched.get(keyText(row))?.all ?? []) watcher.seen(row);
  }

  #lookAndRest(): void {
    this.#isResting = true;
    this.#hasNewCommits = false;
    void this.#lookAtAll().then(() =>
      this.#kernel.ports.clock.after(this.#options.burstMs, () => {
        this.#isResting = false;
        if (this.#hasNewCommits) this.#lookAndRest();
      }),
    );
  }

  /** Notifies the watchers that were there when the read began: for later ones the row may be out of date. */
  #notify(text: string, row: Row | null, watchers: readonly Watcher[]): void {
    const all = this.#watched.get(text)?.all;
    for (const watcher of watchers) if (all?.has(watcher) === true) watcher.seen(row);
  }

  async #lookAtAll(): Promise<void> {
    const lookups = Array.from(this.#watched.values(), ({ at, all }) => ({ at, watchers: [...all] }));
    try {
      await this.#read(lookups);
    } catch (error) {
      if (error instanceof ClosedError)
        for (const { watchers } of lookups) for (const watcher of watchers) watcher.failed(error);
    }
  }
}
