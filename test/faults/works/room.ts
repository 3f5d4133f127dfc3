/**
 * Limits the number of open runs: clients start none while as many are open as workers can be expected to finish.
 *
 * A list of runs by status reads all records, so it is made at most once a second in each client, and its result is reused until then.
 */

import type { RunStatus } from "../../../src/workflow/stored.ts";
import type { Bench } from "../bench.ts";

export const OPEN: readonly RunStatus[] = ["pending", "running", "waiting", "parked"];

const KEPT_MS = 1_000;

export function hasRoom(
  { pawl }: Bench,
  workflow: string,
  most: number,
  status: readonly RunStatus[] = OPEN,
): () => Promise<boolean> {
  let lookedAtMs = Number.NEGATIVE_INFINITY;
  let answer = false;
  return async () => {
    if (performance.now() - lookedAtMs < KEPT_MS) return answer;
    lookedAtMs = performance.now();
    try {
      const { runs } = await pawl.runs.list({ workflow, status, limit: most });
      answer = runs.length < most;
    } catch {
      answer = false;
    }
    return answer;
  };
}
