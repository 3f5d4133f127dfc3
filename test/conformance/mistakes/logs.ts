/** Mistakes of stores: logs. */

import type { Store } from "../../../src/kernel/contract.ts";
import { type Broken, page, readingLog, rewriting } from "../broken.ts";

export const logs: readonly Broken[] = [
  {
    bug: "loses an entry now and then",
    by: rewriting((puts) =>
      puts.map((put) => ({ ...put, entries: put.entries.filter(({ version }) => version % 11 !== 0) })),
    ),
    breaks: ["a log comes", "a log is", "many writers that", "a page reads", "a reader that"],
    patienceMs: 300,
  },
  {
    bug: "returns a log newest first",
    by: readingLog((log, after, limit, maxBytes) => page(log, after, limit, maxBytes).toReversed()),
    breaks: [
      "a row that is created",
      "a log comes",
      "entries are stamped",
      "positions increase",
      "a log is",
      "a page of a log",
      "a deleted row keeps",
      "a clock that",
      "committed data",
      "many writers that",
      "a page reads",
      "pruning removes the entries",
      "pruning removes the oldest",
      "pruning stays",
    ],
  },
  {
    bug: "stamps entries with a clock of its own",
    by: readingLog((log, after, limit, maxBytes) =>
      page(log, after, limit, maxBytes).map((entry) => ({ ...entry, atMs: entry.atMs + 1 })),
    ),
    breaks: ["entries are stamped", "followed entries of"],
  },
  {
    bug: "stamps entries when they are read",
    by: (store, world) => ({
      entries: async (...query) => (await store.entries(...query)).map((entry) => ({ ...entry, atMs: world.nowMs })),
    }),
    breaks: ["entries are stamped", "a clock that"],
  },
  {
    bug: "numbers the entries of each record on their own",
    by: readingLog((log, after, limit, maxBytes) =>
      page(log, after, limit, maxBytes).map((entry) => ({ ...entry, position: entry.version })),
    ),
    breaks: ["positions increase", "positions keep", "followed entries of"],
  },
  {
    bug: "assigns positions of swept entries again",
    by: (store, world) => {
      const shifted = async (...query: Parameters<Store["entries"]>) => {
        const lost = world.notes.get("lost") ?? 0;
        return (await store.entries(...query)).map((entry) => ({ ...entry, position: entry.position - lost }));
      };
      return {
        entries: shifted,
        async sweep(limit) {
          const swept = await store.sweep(limit);
          world.notes.set("lost", (world.notes.get("lost") ?? 0) + 3 * swept);
          return swept;
        },
      };
    },
    breaks: ["positions keep"],
  },
  {
    bug: "pages a log from the version named",
    by: readingLog((log, after, limit, maxBytes) => page(log, after - 1, limit, maxBytes)),
    breaks: ["positions increase", "a log is", "a page of a log", "what was committed before"],
  },
  {
    bug: "returns more entries than requested",
    by: readingLog((log, after, _limit, maxBytes) => page(log, after, 1e6, maxBytes)),
    breaks: ["a log is", "a page of a log", "pruning removes the entries"],
  },
  {
    bug: "keeps one log for a key in all spaces",
    by: (store, world) => ({
      async entries(key, after, limit, maxBytes) {
        const logs = [...(await store.entries(key, 0, 1e6))];
        for (const space of world.spaces)
          if (space !== key.space) logs.push(...(await store.entries({ ...key, space }, 0, 1e6)));
        return page(logs, after, limit, maxBytes);
      },
    }),
    breaks: ["each record has", "pruning stays"],
  },
  {
    bug: "fails for the log of an absent record",
    by: (store) => ({
      async entries(key, after, limit, maxBytes) {
        const [row] = await store.read([key]);
        if (!row) throw new Error("no such row");
        return store.entries(key, after, limit, maxBytes);
      },
    }),
    breaks: [
      "a row that moved",
      "a refused batch",
      "a batch that assumes",
      "a decide that",
      "a record without entries",
      "a sweep removes the",
    ],
  },
  {
    bug: "has no log for a deleted row",
    by: (store) => ({
      async entries(key, after, limit, maxBytes) {
        const [row] = await store.read([key]);
        return row?.value === null ? [] : store.entries(key, after, limit, maxBytes);
      },
    }),
    breaks: ["a deleted row keeps", "a sweep removes deleted"],
  },
  {
    bug: "sorts a log by time",
    by: readingLog((log, after, limit, maxBytes) =>
      page(
        log.toSorted((a, b) => a.atMs - b.atMs),
        after,
        limit,
        maxBytes,
      ),
    ),
    breaks: ["a clock that"],
  },
  {
    bug: "returns more bytes of a log than requested",
    by: readingLog((log, after, limit) => page(log, after, limit)),
    breaks: ["a page of a log"],
  },
  {
    bug: "counts the characters of a log instead of its bytes",
    by: readingLog((log, after, limit, maxBytes) => page(log, after, limit, maxBytes && 2 * maxBytes)),
    breaks: ["a page of a log"],
  },
  {
    bug: "ends a page before the entry with which it has enough bytes",
    by: readingLog((log, after, limit, maxBytes) => {
      const read = page(log, after, limit, maxBytes);
      return read.length < page(log, after, limit).length ? read.slice(0, -1) : read;
    }),
    breaks: ["a page of a log"],
  },
];
