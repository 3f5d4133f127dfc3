/** Mistakes of stores: reads. */

import { keyText, type Put, type Row } from "../../../src/kernel/contract.ts";
import { type Broken, tick } from "../broken.ts";

export const reads: readonly Broken[] = [
  {
    bug: "answers for each row once",
    by: (store) => ({
      read: (keys) => store.read([...new Map(keys.map((key) => [keyText(key), key])).values()]),
    }),
    breaks: ["a read returns"],
  },
  {
    bug: "leaves out the rows that are not there",
    by: (store) => ({ read: async (keys) => (await store.read(keys)).filter((row) => row !== null) }),
    breaks: [
      "a batch that assumes",
      "a batch that writes",
      "decide gets one",
      "a batch of",
      "a read returns",
      "namespaces do not",
      "a sweep removes deleted",
      "a deleted row is swept",
      "a deleted row stays",
      "a closed store",
    ],
  },
  {
    bug: "fails for a read of no keys",
    by: (store) => ({
      async read(keys) {
        if (keys.length === 0) throw new Error("syntax error near )");
        return store.read(keys);
      },
    }),
    breaks: ["a read of"],
  },
  {
    bug: "remembers what it has read until it writes itself",
    by: (store) => {
      const seen = new Map<string, Row | null>();
      return {
        async commit(batch) {
          const receipt = await store.commit(batch);
          if (receipt.committed && receipt.ids.length > 0) seen.clear();
          return receipt;
        },
        async read(keys) {
          const rows = await store.read(keys);
          return keys.map((key, index) => {
            const known = seen.get(keyText(key));
            if (known) return known;
            seen.set(keyText(key), rows[index] ?? null);
            return rows[index] ?? null;
          });
        },
      };
    },
    breaks: ["what was committed before", "a sweep removes at"],
  },
  {
    bug: "reads rows one after another",
    by: (store) => ({
      async read(keys) {
        const rows: (Row | null)[] = [];
        for (const key of keys) {
          rows.push(...(await store.read([key])));
          if (keys.length > 1) await tick();
        }
        return rows;
      },
    }),
    breaks: ["a read or"],
  },
  {
    bug: "writes rows one after another",
    by: (store) => ({
      async commit(batch) {
        let puts: readonly Put[] = [];
        const receipt = await store.commit({
          ...batch,
          decide(found) {
            const verdict = batch.decide(found);
            if ("lock" in verdict) return verdict;
            puts = verdict.puts;
            return { puts: puts.slice(0, 1) };
          },
        });
        if (!receipt.committed) return receipt;
        const ids = [...receipt.ids];
        for (const put of puts.slice(1)) {
          await tick();
          const next = await store.commit({ ...batch, lock: [], decide: () => ({ puts: [put] }) });
          if (!next.committed) return next;
          ids.push(...next.ids);
        }
        return { ...receipt, ids };
      },
    }),
    breaks: ["a row that moved", "a refused batch", "a read or", "writers that"],
  },
  {
    bug: "takes all namespaces for one",
    by: () => ({}),
    namespaceOf: () => "one",
    breaks: [
      "namespaces do not",
      "a sweep stays",
      "in every order, a list",
      "each namespace is followed",
      "pruning stays",
    ],
  },
  {
    bug: "folds the case of namespaces",
    by: () => ({}),
    namespaceOf: (name) => name.toLowerCase(),
    breaks: ["namespaces do not"],
  },
];
