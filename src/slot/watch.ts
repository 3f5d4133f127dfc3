/**
 * Watching a slot: an iterator that reads the slot after commits, and yields each new value.
 *
 * The kernel may notify too often and, for other processes' commits, not reliably: so the slot is read each time, and also
 * by a slow poll.
 */

import { type Address, keyText, type Row } from "../kernel/contract.ts";
import { ClosedError } from "../kernel/errors.ts";
import type { Kernel } from "../kernel/kernel.ts";
import { pause } from "../kernel/ports.ts";

const POLL_MS = 5_000;

export function watchSlot<T>(
  kernel: Kernel,
  at: Address,
  show: (row: Row | null) => T,
  abortSignal?: AbortSignal,
): AsyncIterableIterator<T> {
  const stop = new AbortController();
  const signal = abortSignal === undefined ? stop.signal : AbortSignal.any([stop.signal, abortSignal]);
  const values = look(kernel, at, show, signal);
  return {
    next: () => values.next(),
    // A generator would end only when the next value comes.
    return: () => {
      stop.abort();
      return values.return(undefined);
    },
    [Symbol.asyncIterator]() {
      return this;
    },
  };
}

async function* look<T>(
  kernel: Kernel,
  at: Address,
  show: (row: Row | null) => T,
  signal: AbortSignal,
): AsyncGenerator<T, undefined, undefined> {
  let rung = new AbortController();
  const unlisten = kernel.listen((puts) => {
    if (puts === undefined || puts.some(({ row }) => keyText(row) === at.text)) rung.abort();
  });
  const stop = () => rung.abort();
  signal.addEventListener("abort", stop);
  try {
    let seen: number | undefined;
    while (!signal.aborted) {
      // Made before the read, so that a change during the read is not missed.
      rung = new AbortController();
      let row: Row | null;
      try {
        [row = null] = await kernel.read([at]);
      } catch (error) {
        // Closing the handle ends what it was watching.
        if (error instanceof ClosedError && seen !== undefined) return undefined;
        throw error;
      }
      const version = row?.version ?? 0;
      if (version !== seen) {
        seen = version;
        yield show(row);
      } else await pause(kernel.ports.clock, POLL_MS, rung.signal);
    }
  } finally {
    unlisten();
    signal.removeEventListener("abort", stop);
  }
  return undefined;
}
