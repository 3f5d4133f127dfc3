/**
 * Paused workflows: their runs do not begin until they are resumed. What has begun continues.
 *
 * Each process knows which are paused: it reads them when it is opened, and is notified of changes. So a pause takes effect in a process when that
 * has learned of it, within milliseconds, and at the latest with the next poll of the records.
 */

import { checkId, checkText } from "../../kernel/check.ts";
import type { Row } from "../../kernel/contract.ts";
import type { Kernel } from "../../kernel/kernel.ts";
import { PAUSED, pausedAt } from "./stored.ts";

/** A workflow of which no runs begin. */
export interface PausedWorkflow {
  readonly workflow: string;
  readonly since: Date;
  readonly reason: string | null;
}

interface PausedValue {
  readonly sinceMs: number;
  readonly reason?: string;
}

/** After commits of other processes, the list is read at most this often. */
const READ_MS = 200;
/** A notification may be lost. */
const POLL_MS = 5000;

const show = (kernel: Kernel, row: Row, text: string): PausedWorkflow => {
  const { sinceMs, reason } = kernel.decode(row, text) as PausedValue;
  return { workflow: row.key, since: new Date(sinceMs), reason: reason ?? null };
};

/** Whether this workflow is paused, as the store has it now; null if it is not. */
export async function readPaused(kernel: Kernel, workflow: string): Promise<PausedWorkflow | null> {
  const [row] = await kernel.read([pausedAt(workflow)]);
  return row?.value == null ? null : show(kernel, row, row.value);
}

export class PausedWorkflows {
  readonly #kernel: Kernel;
  #names: ReadonlySet<string> = new Set();
  readonly #listeners = new Set<() => void>();
  #stop: (() => void) | undefined;
  #isReading = false;
  #isStale = false;

  constructor(kernel: Kernel) {
    this.#kernel = kernel;
  }

  has(workflow: string): boolean {
    return this.#names.has(workflow);
  }

  /** Called when the list has changed, while there are listeners. */
  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    if (this.#listeners.size === 1) this.#listen();
    return () => {
      this.#listeners.delete(listener);
      if (this.#listeners.size === 0) this.#stop?.();
    };
  }

  #listen(): void {
    const { clock } = this.#kernel.ports;
    const unlisten = this.#kernel.listen((puts) => {
      if (puts === undefined) return this.#readSoon();
      if (puts.some(({ row }) => row.space === PAUSED)) void this.read().catch(() => {});
    });
    let cancel = (): void => {};
    const poll = (): void => {
      cancel = clock.after(POLL_MS, () => {
        this.#readSoon();
        poll();
      });
    };
    poll();
    this.#stop = () => {
      unlisten();
      cancel();
    };
  }

  #readSoon(): void {
    this.#isStale = true;
    if (this.#isReading) return;
    this.#isReading = true;
    void this.#readWhileStale();
  }

  async #readWhileStale(): Promise<void> {
    while (this.#isStale) {
      this.#isStale = false;
      await this.read().catch(() => {});
      await new Promise<void>((resolve) => void this.#kernel.ports.clock.after(READ_MS, resolve));
    }
    this.#isReading = false;
  }

  /** Reads the list. */
  async read(): Promise<void> {
    const names = new Set<string>();
    for await (const { key, value } of this.#kernel.rows(PAUSED)) if (value !== null) names.add(key);
    const isSame = names.size === this.#names.size && [...names].every((name) => this.#names.has(name));
    this.#names = names;
    if (!isSame) for (const listener of this.#listeners) listener();
  }

  /** Lets no more runs of the workflow begin. Pausing it again changes nothing. */
  async pause(workflow: string, options: { readonly reason?: string | undefined } = {}): Promise<void> {
    const at = pausedAt(checkId(workflow, "the workflow"));
    const reason = options.reason === undefined ? undefined : checkText(options.reason, "the reason");
    await this.#kernel.transact(
      (tx) => {
        const record = tx.record(at);
        if (record.exists) return;
        record.write({
          value: { sinceMs: tx.nowMs, ...(reason === undefined ? {} : { reason }) } satisfies PausedValue,
        });
      },
      [at],
    );
    await this.read();
  }

  /** Lets its runs begin again. Returns whether it was paused. */
  async resume(workflow: string): Promise<boolean> {
    const at = pausedAt(checkId(workflow, "the workflow"));
    const wasPaused = await this.#kernel.transact(
      (tx) => {
        const record = tx.record(at);
        const { exists } = record;
        record.remove();
        return exists;
      },
      [at],
    );
    await this.read();
    return wasPaused;
  }

  /** Reads the list; from then on this process knows it, too. */
  async list(): Promise<readonly PausedWorkflow[]> {
    await this.read();
    const paused: PausedWorkflow[] = [];
    for await (const row of this.#kernel.rows(PAUSED))
      if (row.value !== null) paused.push(show(this.#kernel, row, row.value));
    return paused;
  }
}
