/** How long to wait before the next try: twice as long after each failure in a row, up to a limit. */

import type { Chance } from "./ports.ts";

export interface Backoff {
  readonly firstMs: number;
  readonly longestMs: number;
}

/** For a store that is busy, or whose rows others keep locked: they are free again within milliseconds. */
export const STORE_BACKOFF: Backoff = { firstMs: 2, longestMs: 50 };

/** With `chance`, the time is drawn from a quarter of it to a quarter more, so that processes do not try again at the same moment. */
export function backoffMs({ firstMs, longestMs }: Backoff, failures: number, chance?: Chance): number {
  const ms = Math.min(longestMs, firstMs * 2 ** Math.min(failures - 1, 30));
  return chance === undefined ? ms : ms * (0.25 + chance.random());
}
