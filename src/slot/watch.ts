/**
 * Watching a slot: an iterator that looks again whenever something was committed, and gives out what is new.
 *
 * The kernel's bell may ring too often and, for other processes' commits, not surely: so a look decides, and a slow poll looks
 * also without a bell.
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
    // A generator would only hear of it when the next value comes.
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
      // Made before looking, so that a change while looking is not slept over.
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
