/**
 * Waiting for the next commit that may have changed something: what live views do between two looks.
 *
 * The commits of this process are announced with what they wrote, those of others without, and not reliably: so there is a look every second in any
 * case, and at most one in 50 ms, however many commits there are.
 */

import { type Address, keyText } from "../../kernel/contract.ts";
import type { Kernel } from "../../kernel/kernel.ts";
import { pause } from "../../kernel/ports.ts";

const LOOK_MS = 1000;
const APART_MS = 50;

/** Yields once now, and then each time that there may be something new; ends when it is aborted. */
export async function* looks(
  kernel: Kernel,
  isOfInterest: (at: Pick<Address, "space" | "key">) => boolean,
  abortSignal: AbortSignal,
  lookMs = LOOK_MS,
): AsyncGenerator<void, undefined, undefined> {
  let rung = new AbortController();
  const unlisten = kernel.listen((puts) => {
    if (puts === undefined || puts.some(({ row }) => isOfInterest(row))) rung.abort();
  });
  const stop = (): void => rung.abort();
  abortSignal.addEventListener("abort", stop);
  try {
    while (!abortSignal.aborted) {
      // Made before the look, so that a change during it is not missed.
      rung = new AbortController();
      yield;
      await pause(kernel.ports.clock, lookMs, rung.signal);
      if (rung.signal.aborted) await pause(kernel.ports.clock, APART_MS, abortSignal);
    }
  } finally {
    unlisten();
    abortSignal.removeEventListener("abort", stop);
  }
  return undefined;
}

/** Whether a record is this one. */
export const isAt =
  (at: Address) =>
  (row: Pick<Address, "space" | "key">): boolean =>
    keyText(row) === at.text;
