/**
 * Committed decisions are serializable together, over any number of keys, present or absent, through every path (G32).
 *
 * Goal: no cycle in the dependencies of random transactions.
 * Method: list-append, as in Elle: processes follow random plans over lists by every caller of the kernel, and a checker looks for an
 * order that explains what all of them saw. These are short runs in memory; those of the long suite are longer, and on every store, and
 * `npm run serializable` takes as long as one likes.
 */

import { test } from "vitest";
import { checkLists, PATHS } from "./check-lists.ts";

/** Only ends a test that hangs: a busy machine takes longer. */
const TIMEOUT = { timeout: 600_000 };

for (const lanes of [1, 3])
  test(`in memory, with ${lanes} ${lanes === 1 ? "lane" : "lanes"}`, TIMEOUT, async () => {
    await checkLists({ store: "memory:", transactions: 1_000, processes: 3, lanes }, PATHS);
  });
