/**
 * Watching a slot: an iterator that looks again whenever something was committed, and gives out what is new.
 *
 * The kernel's bell may ring too often and, for other processes' commits, not surely: so a look decides, and a slow poll looks
 * also without a bell.
 */

import { type Address, keyText, type Row } from "../kernel/contract.ts";
import type { Kernel } from "../kernel/kernel.ts";
import { pause } from "../kernel/ports.ts";

const POLL_MS = 5_000;

export async function* watchSlot<T>(
  kernel: Kernel,
  at: Address,
  show: (row: Row | null) => T,
  abortSignal?: AbortSignal,
): AsyncGenerator<T, undefined, undefined> {
  let rung = new AbortController();
  const unlisten = kernel.listen((puts) => {
    if (puts === undefined || puts.some(({ row }) => keyText(row) === at.text)) rung.abort();
  });
  const stop = () => rung.abort();
  abortSignal?.addEventListener("abort", stop);
  try {
    let seen = -1;
    while (abortSignal?.aborted !== true) {
      // Made before looking, so that a change while looking is not slept over.
      rung = new AbortController();
      const [row = null] = await kernel.read([at]);
      const version = row?.version ?? 0;
      if (version !== seen) {
        seen = version;
        yield show(row);
      } else await pause(kernel.ports.clock, POLL_MS, rung.signal);
    }
  } finally {
    unlisten();
    abortSignal?.removeEventListener("abort", stop);
  }
  return undefined;
}
