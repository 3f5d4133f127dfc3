/**
 * Waiting for results: whoever waits for a run hears of its end from the commit itself, where this process made it, and otherwise
 * looks when another process has committed something, and now and then without a reason.
 */

import { keyText, type Put, type Row } from "../kernel/contract.ts";
import { ClosedError } from "../kernel/errors.ts";
import type { Kernel } from "../kernel/kernel.ts";
import { runAt } from "./records.ts";
import { ENDED } from "./words.ts";

const POLL_MS = 5000;
/** Commits of others come in bursts: one look for all of them. */
const BURST_MS = 5;

interface Waiter {
  readonly seen: (row: Row | null) => boolean;
  readonly failed: (error: unknown) => void;
}

export class Results {
  readonly #kernel: Kernel;
  readonly #waiters = new Map<string, { readonly id: string; readonly all: Set<Waiter> }>();
  #unlisten: (() => void) | undefined;
  #cancelPoll: () => void = () => {};
  #isLookDue = false;

  constructor(kernel: Kernel) {
    this.#kernel = kernel;
  }

  /** The run's row as soon as it has ended or is parked; answers also how to stop waiting. */
  wait(id: string): { readonly row: Promise<Row | null>; readonly stop: () => void } {
    const { promise, resolve, reject } = Promise.withResolvers<Row | null>();
    const { text } = runAt(id);
    const waiter: Waiter = {
      seen: (row) => {
        if (row !== null && !isSettled(row)) return false;
        stop();
        resolve(row);
        return true;
      },
      failed: (error) => {
        stop();
        reject(error);
      },
    };
    const stop = (): void => {
      const entry = this.#waiters.get(text);
      entry?.all.delete(waiter);
      if (entry?.all.size === 0) this.#waiters.delete(text);
      if (this.#waiters.size === 0) this.#sleep();
    };
    const entry = this.#waiters.get(text) ?? { id, all: new Set() };
    entry.all.add(waiter);
    this.#waiters.set(text, entry);
    try {
      this.#unlisten ??= this.#kernel.listen((puts) => this.#heard(puts));
    } catch (error) {
      waiter.failed(error);
    }
    if (this.#waiters.size === 1) this.#pollLater();
    return { row: promise, stop };
  }

  /** Looks once for a run that somebody begins to wait for. */
  async look(id: string): Promise<void> {
    const [row = null] = await this.#kernel.read([runAt(id)]);
    this.#tell(runAt(id).text, row);
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
        if (this.#waiters.size > 0) this.#pollLater();
      });
    });
  }

  #heard(puts: readonly Put[] | undefined): void {
    if (puts === undefined) {
      if (this.#isLookDue) return;
      this.#isLookDue = true;
      this.#kernel.ports.clock.after(BURST_MS, () => {
        this.#isLookDue = false;
        void this.#lookAtAll();
      });
      return;
    }
    for (const { row } of puts) if (row.space === "run" && isSettled(row)) this.#tell(keyText(row), row);
  }

  #tell(text: string, row: Row | null): void {
    for (const waiter of this.#waiters.get(text)?.all ?? []) waiter.seen(row);
  }

  async #lookAtAll(): Promise<void> {
    const entries = [...this.#waiters];
    if (entries.length === 0) return;
    try {
      const rows = await this.#kernel.read(entries.map(([, { id }]) => runAt(id)));
      entries.forEach(([text], index) => {
        const row = rows[index];
        if (row !== undefined && row !== null) this.#tell(text, row);
      });
    } catch (error) {
      if (error instanceof ClosedError)
        for (const [, { all }] of entries) for (const waiter of [...all]) waiter.failed(error);
    }
  }
}

const isSettled = (row: Row): boolean => ENDED.has(row.status ?? "") || row.status === "parked";
