/** Mistakes of stores: races. */

import type { Key } from "../../../src/kernel/contract.ts";
import { type Broken, isSame, readingFirst, rewrite, tick } from "../broken.ts";

export const races: readonly Broken[] = [
  {
    bug: "reads without a lock, and overwrites",
    by: readingFirst(() => true, true),
    breaks: [
      "a row of the same version",
      "a batch reads",
      "a row that moved",
      "a refused batch",
      "an absent key is",
      "a deleted row is not",
      "a batch that assumes",
      "a row created",
      "settle does",
      "of many",
      "many writers that",
      "writers that",
      "a row that a",
      "an absent key that",
      "a batch that is refused",
    ],
  },
  {
    bug: "protects the rows that it writes, and not those that it reads",
    by: readingFirst(() => true, false),
    breaks: ["a batch reads", "a row that a", "an absent key that"],
  },
  {
    bug: "protects the rows that are there, and not those that are absent",
    by: readingFirst((seen, now) => seen === null || isSame(seen, now), false),
    breaks: ["a batch reads", "an absent key that"],
  },
  {
    bug: "releases its rows when more are requested",
    by: (store) => ({
      async commit(batch) {
        let late: readonly Key[] | undefined;
        const receipt = await store.commit({
          ...batch,
          decide(found) {
            const verdict = batch.decide(found);
            if ("puts" in verdict) return verdict;
            late = verdict.lock;
            return { puts: [] };
          },
        });
        if (late === undefined) return receipt;
        await tick();
        return store.commit(
          rewrite({ ...batch, lock: late }, (puts, rows) => puts.map((put, i) => ({ ...put, was: rows[i] ?? null }))),
        );
      },
    }),
    breaks: ["a batch reads", "writers that"],
  },
];
