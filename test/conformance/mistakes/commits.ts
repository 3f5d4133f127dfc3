/** Mistakes of stores: commits. */

import { compareUtf8 } from "../../../src/kernel/check.ts";
import { type Key, keyText, NEW_ROW, type Put, type Row } from "../../../src/kernel/contract.ts";
import { PawlError, StoreError } from "../../../src/kernel/errors.ts";
import { answering, type Broken, believing, isSame, rewrite, rewriting, telling } from "../broken.ts";

export const commits: readonly Broken[] = [
  {
    bug: "loses the last put of a large batch",
    by: rewriting((puts) => (puts.length > 200 ? puts.slice(0, -1) : puts)),
    breaks: ["a commit writes"],
  },
  {
    bug: "assigns ids in increasing order, whatever the order of the puts",
    by: answering((receipt) =>
      receipt.committed ? { ...receipt, ids: receipt.ids.toSorted((a, b) => a - b) } : receipt,
    ),
    breaks: ["the ids of"],
  },
  {
    bug: "renumbers a row when it is created again",
    by: (store, world) => {
      const shift = (row: Row) => (world.notes.get(keyText(row)) ?? 0) * 1_000_000;
      const out = <R extends Row | null | undefined>(row: R): R => (row ? { ...row, id: row.id + shift(row) } : row);
      return {
        async commit(batch) {
          let puts: readonly Put[] = [];
          const receipt = await store.commit({
            ...batch,
            decide(found) {
              const verdict = batch.decide({ ...found, rows: found.rows.map(out) });
              if ("lock" in verdict) return verdict;
              puts = verdict.puts;
              return {
                puts: puts.map((put) => ({ ...put, was: put.was && { ...put.was, id: put.was.id % 1_000_000 } })),
              };
            },
          });
          if (!receipt.committed) return receipt;
          for (const { was, row } of puts)
            if (was !== null && was.value === null && row.value !== null)
              world.notes.set(keyText(row), (world.notes.get(keyText(row)) ?? 0) + 1);
          return { ...receipt, ids: receipt.ids.map((id, i) => id + (puts[i] ? shift(puts[i].row) : 0)) };
        },
        read: async (keys) => (await store.read(keys)).map(out),
        list: async (query) => (await store.list(query)).map(out),
      };
    },
    breaks: ["a stored row"],
  },
  {
    bug: "writes what it can of a refused batch",
    by: (store) => ({
      async commit(batch) {
        const moved: Key[] = [];
        const receipt = await store.commit(
          rewrite(batch, (puts, rows) =>
            puts.filter(({ was, row }, index) => {
              const still = isSame(was, rows[index] ?? null);
              if (!still) moved.push(row);
              return still;
            }),
          ),
        );
        return moved.length > 0 ? { committed: false, moved } : receipt;
      },
    }),
    breaks: ["a row that moved", "a refused batch"],
  },
  {
    bug: "names only the first row that moved",
    by: answering((receipt) => (receipt.committed ? receipt : { ...receipt, moved: receipt.moved.slice(0, 1) })),
    breaks: ["a refused batch"],
  },
  {
    bug: "names every row of a refused batch",
    by: answering((receipt, puts) => (receipt.committed ? receipt : { ...receipt, moved: puts.map(({ row }) => row) })),
    breaks: ["a row that moved", "a refused batch"],
  },
  {
    bug: "ignores what a row replaces",
    by: believing((_, now) => now),
    breaks: [
      "a row of the same version",
      "a row that moved",
      "a refused batch",
      "an absent key is",
      "a deleted row is not",
      "a batch that assumes",
      "a row created",
      "settle does",
      "a batch that is refused",
    ],
  },
  {
    bug: "overwrites where it should make",
    by: believing((was, now) => was ?? now),
    breaks: ["a refused batch", "an absent key is", "a deleted row is not", "settle does"],
  },
  {
    bug: "takes a deleted row for an absent one",
    by: believing((was, now) => (was === null && now?.value === null ? now : was)),
    breaks: ["a deleted row is not"],
  },
  {
    bug: "makes a row where it should change one",
    by: believing((was, now) => (now === null ? null : was)),
    breaks: ["a batch that assumes"],
  },
  {
    bug: "knows a row by its version alone",
    by: believing((was, now) => (was !== null && was.version === now?.version ? now : was)),
    breaks: ["a row created", "a row of the same version"],
  },
  {
    bug: "does not compare stamps",
    by: believing((was, now) => (was?.id === now?.id && was?.version === now?.version ? now : was)),
    breaks: ["a row of the same version"],
  },
  {
    bug: "reads as much as there is",
    by: (store) => ({ commit: ({ maxBytes: _, ...batch }) => store.commit(batch) }),
    breaks: ["a batch reads"],
  },
  {
    bug: "does not report that it left rows unread",
    by: (store) => ({
      commit: (batch) => store.commit({ ...batch, decide: ({ isFull: _, ...found }) => batch.decide(found) }),
    }),
    breaks: ["a batch reads"],
  },
  {
    bug: "locks absent keys by making them, and leaves them when decide throws",
    by: (store) => ({
      async commit(batch) {
        try {
          return await store.commit(batch);
        } catch (error) {
          const holders = batch.lock.map((key) => ({ ...NEW_ROW, version: 1, ...key }));
          await store.commit({
            ...batch,
            lock: batch.lock,
            decide: ({ rows }) => ({
              puts: holders.filter((_, i) => rows[i] === null).map((row) => ({ was: null, row, entries: [] })),
            }),
          });
          throw error;
        }
      },
    }),
    breaks: ["a decide that"],
  },
  {
    bug: "wraps what decide throws",
    by: (store) => ({
      commit: (batch) =>
        store.commit(batch).catch((cause: unknown) => {
          throw cause instanceof PawlError ? cause : new Error("the batch failed", { cause });
        }),
    }),
    breaks: ["a decide that", "a batch that is refused"],
  },
  {
    bug: "leaves the transaction open when decide throws",
    by: (store, world) => ({
      async commit(batch) {
        if (world.notes.has("open")) throw new StoreError("store_io", "fail", "there is a transaction already");
        return store.commit({
          ...batch,
          decide(found) {
            world.notes.set("open", 1);
            const verdict = batch.decide(found);
            world.notes.delete("open");
            return verdict;
          },
        });
      },
    }),
    breaks: ["a decide that", "a batch that is refused"],
  },
  {
    bug: "has no answer to a batch that does nothing at all",
    by: (store) => ({
      commit: (batch) =>
        store.commit({
          ...batch,
          decide(found) {
            const verdict = batch.decide(found);
            if (batch.lock.length === 0 && "puts" in verdict && verdict.puts.length === 0)
              throw new Error("nothing to do");
            return verdict;
          },
        }),
    }),
    breaks: ["a batch that writes"],
  },
  {
    bug: "passes decide its rows in the order of their keys",
    by: (store) => ({
      commit: (batch) =>
        store.commit({ ...batch, lock: batch.lock.toSorted((a, b) => compareUtf8(keyText(a), keyText(b))) }),
    }),
    breaks: ["a batch reads", "decide gets one", "a sweep removes deleted", "an absent key that"],
  },
  {
    bug: "answers a late round with the rows of all rounds",
    by: (store) => {
      return {
        commit(batch) {
          const rows: (Row | null | undefined)[] = [];
          return store.commit({
            ...batch,
            decide(found) {
              rows.push(...found.rows);
              return batch.decide({ ...found, rows: [...rows] });
            },
          });
        },
      };
    },
    breaks: ["a batch reads", "a key", "writers that", "an absent key that"],
  },
  {
    bug: "rehearses decide",
    by: (store) => ({
      commit: (batch) =>
        store.commit({
          ...batch,
          decide(found) {
            batch.decide(found);
            return batch.decide(found);
          },
        }),
    }),
    breaks: ["a batch reads", "a key", "decide is called", "writers that", "an absent key that"],
  },
  {
    bug: "does not pass the clock to decide",
    by: telling((found) => ({ ...found, nowMs: null })),
    breaks: [
      "decide gets the",
      "a batch that needs",
      "a record is",
      "nextDueMs is the",
      "a record becomes",
      "a deleted row is swept",
    ],
  },
  {
    bug: "passes the clock of the process to decide",
    by: telling((found) => ({ ...found, nowMs: Date.now() })),
    breaks: ["decide gets the", "a batch that needs", "a record is", "nextDueMs is the", "a deleted row is swept"],
  },
  {
    bug: "returns the clock only to batches that lock",
    by: telling((found, round, batch) => (round === 0 && batch.lock.length === 0 ? { ...found, nowMs: null } : found)),
    breaks: ["a batch that needs"],
  },
  {
    bug: "reports the last of many rows as locked",
    by: telling((found) =>
      found.rows.length < 10 ? found : { ...found, rows: [...found.rows.slice(0, -1), undefined] },
    ),
    breaks: ["a batch reads", "a row that is not"],
  },
  {
    bug: "returns a row that was not requested",
    by: telling((found) => (found.rows.length > 0 ? found : { ...found, rows: [null] })),
    breaks: ["a key", "a batch that knows"],
  },
  {
    bug: "decides on rows that it remembers, though they were refused or swept",
    by: (store) => {
      const remembered = new Map<string, Row>();
      return {
        commit(batch) {
          let asked = batch.lock;
          return store.commit({
            ...batch,
            decide(found) {
              const rows = found.rows.map((row, index) => {
                const key = asked[index];
                const mine = key && remembered.get(keyText(key));
                return mine && mine.version > (row?.version ?? 0) ? mine : row;
              });
              const verdict = batch.decide({ ...found, rows });
              if ("lock" in verdict) asked = verdict.lock;
              else for (const { row } of verdict.puts) remembered.set(keyText(row), row);
              return verdict;
            },
          });
        },
      };
    },
    breaks: [
      "a row of the same version",
      "a batch reads",
      "a row that moved",
      "a refused batch",
      "a batch that assumes",
      "a row created",
      "a sweep removes deleted",
    ],
  },
];
