/** Mistakes of stores: sweeps. */

import { keyText, type StoredEntry } from "../../../src/kernel/contract.ts";
import { type Broken, page, rewrite, sweepingAt, telling } from "../broken.ts";

export const sweeps: readonly Broken[] = [
  {
    bug: "sweeps live rows as well",
    by: (store, world, namespace) => ({
      async sweep(limit) {
        const other = world.database.connect(namespace);
        const { epoch, sequence } = await other.settle(0);
        for (const space of world.spaces) {
          const rows = (await store.list({ space, prefix: "", after: null, limit: 1e6 })).filter(
            ({ dueMs }) => dueMs !== null && dueMs <= world.nowMs,
          );
          const puts = rows.map((row) => ({ was: row, row: { ...row, value: null, kind: null }, entries: [] }));
          await other.commit({
            lane: 0,
            epoch,
            sequence: sequence + 1,
            lock: [],
            needsClock: false,
            decide: () => ({ puts }),
          });
        }
        return store.sweep(limit);
      },
    }),
    breaks: ["an empty value", "a sweep removes deleted"],
  },
  {
    bug: "sweeps rows a millisecond late",
    by: sweepingAt(-1),
    breaks: ["a deleted row is swept", "a deleted row stays"],
  },
  {
    bug: "sweeps rows a millisecond early",
    by: sweepingAt(1),
    breaks: ["a deleted row is swept"],
  },
  {
    bug: "sweeps rows long before their time",
    by: sweepingAt(1e15),
    breaks: ["a sweep removes deleted", "a deleted row is swept", "a deleted row stays"],
  },
  {
    bug: "never sweeps what was deleted after it was opened",
    by: (store, world) => {
      const openedAtMs = world.nowMs;
      return {
        sweep(limit) {
          const nowMs = world.nowMs;
          world.nowMs = openedAtMs;
          const swept = store.sweep(limit);
          world.nowMs = nowMs;
          return swept;
        },
      };
    },
    breaks: ["a deleted row stays", "a deleted record can"],
    patienceMs: 300,
  },
  {
    bug: "leaves the logs of what it sweeps",
    by: (store) => {
      const logs = new Map<string, StoredEntry[]>();
      return {
        commit: (batch) =>
          store.commit(
            rewrite(batch, (puts) => {
              for (const { row, entries } of puts) {
                const log = logs.get(keyText(row)) ?? [];
                log.push(...entries.map((entry) => ({ ...entry, atMs: 0, position: 0 })));
                logs.set(keyText(row), log);
              }
              return puts;
            }),
          ),
        async entries(key, after, limit, maxBytes) {
          const log = await store.entries(key, after, limit, maxBytes);
          const kept = logs.get(keyText(key)) ?? [];
          return log.length === 0 && kept.length > 0 ? page(kept, after, limit, maxBytes) : log;
        },
      };
    },
    breaks: [
      "a row that moved",
      "a row of the same version",
      "a batch that assumes",
      "a row created",
      "a sweep removes the",
      "a log that was pruned",
      "pruning stays",
    ],
  },
  {
    bug: "never lifts the fence floor",
    by: telling((found) => ({ ...found, fenceFloor: 0 })),
    breaks: ["a sweep raises"],
  },
  {
    bug: "lifts the fence floor to the highest fence, and not above",
    by: telling((found) => ({ ...found, fenceFloor: Math.max(0, found.fenceFloor - 1) })),
    breaks: ["a sweep raises"],
  },
  {
    bug: "keeps a separate fence floor for each writer",
    by: (store, world) => {
      let floor = 0;
      return {
        async sweep(limit) {
          const swept = await store.sweep(limit);
          floor = world.database.fenceFloor;
          return swept;
        },
        commit: (batch) => store.commit({ ...batch, decide: (found) => batch.decide({ ...found, fenceFloor: floor }) }),
      };
    },
    breaks: ["a sweep raises"],
  },
  {
    bug: "lowers the fence floor",
    by: (store, world) => ({
      sweep(limit) {
        world.database.fenceFloor = 0;
        return store.sweep(limit);
      },
    }),
    breaks: ["a sweep raises"],
  },
  {
    bug: "sweeps more than requested",
    by: (store) => ({ sweep: () => store.sweep(1e6) }),
    breaks: ["a sweep removes at"],
  },
  {
    bug: "returns its limit, not how many it swept",
    by: (store) => ({
      async sweep(limit) {
        const swept = await store.sweep(limit);
        return swept === 0 ? 0 : Math.max(swept, Math.min(limit, 7));
      },
    }),
    breaks: [
      "a batch that assumes",
      "a row created",
      "positions keep",
      "a sweep removes deleted",
      "a deleted row stays",
      "a sweep removes the",
      "a sweep raises",
      "a sweep removes at",
      "a sweep stays",
    ],
  },
  {
    bug: "sweeps all namespaces",
    by: (store, world) => ({
      async sweep(limit) {
        let swept = await store.sweep(limit);
        for (const namespace of world.namespaces) swept += await world.connect(namespace).sweep(limit - swept);
        return swept;
      },
    }),
    breaks: ["a sweep stays"],
  },
];
