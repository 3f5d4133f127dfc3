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

export class Lookout {
  readonly #kernel: Kernel;
  readonly #options: LookoutOptions;
  readonly #watched = new Map<string, { readonly at: Address; readonly all: Set<Watcher> }>();
  #unlisten: (() => void) | undefined;
  #cancelPoll: () => void = () => {};
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
  async look(at: Address): Promise<void> {
    const [row = null] = await this.#kernel.read([at]);
    this.#tell(at.text, row);
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
    for (const { row } of puts) if (this.#options.isOfInterest(row)) this.#tell(keyText(row), row);
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

  #tell(text: string, row: Row | null): void {
    for (const watcher of this.#watched.get(text)?.all ?? []) watcher.seen(row);
  }

  async #lookAtAll(): Promise<void> {
    const entries = [...this.#watched];
    if (entries.length === 0) return;
    try {
      const rows = await this.#kernel.read(entries.map(([, { at }]) => at));
      entries.forEach(([text], index) => {
        const row = rows[index];
        if (row !== undefined) this.#tell(text, row);
      });
    } catch (error) {
      if (error instanceof ClosedError)
        for (const [, { all }] of entries) for (const watcher of [...all]) watcher.failed(error);
    }
  }
}
