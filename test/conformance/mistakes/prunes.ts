/** Mistakes of stores: prunes. */

import { type FollowedEntry, type Key, keyText, type Store, type StoredEntry } from "../../../src/kernel/contract.ts";
import { allFollowed, type Broken, followPageOf, page } from "../broken.ts";

/** What the writers of a world keep together. */
function shared<T>(make: () => T): (world: object) => T {
  const kept = new WeakMap<object, T>();
  return (world) => {
    const found = kept.get(world) ?? make();
    kept.set(world, found);
    return found;
  };
}

const hiddenIn = shared(() => new Map<string, Set<number>>());
const goneIn = shared((): FollowedEntry[] => []);

/** Leaves the log as it is, and hides the entries that this chooses. */
const hiding =
  (choose: (log: readonly StoredEntry[], upTo: number, limit: number) => readonly StoredEntry[]) =>
  (store: Store, world: object, namespace: string): Partial<Store> => {
    const hidden = hiddenIn(world);
    const nameOf = (key: Key) => `${namespace}\n${keyText(key)}`;
    const shown = async (key: Key) =>
      (await store.entries(key, 0, 1e6)).filter(({ version }) => hidden.get(nameOf(key))?.has(version) !== true);
    return {
      entries: async (key, after, limit, maxBytes) => page(await shown(key), after, limit, maxBytes),
      async prune(key, upTo, limit) {
        const gone = choose(await shown(key), upTo, limit);
        const before = hidden.get(nameOf(key)) ?? [];
        hidden.set(nameOf(key), new Set([...before, ...gone.map(({ version }) => version)]));
        return gone.length;
      },
    };
  };

export const prunes: readonly Broken[] = [
  {
    bug: "prunes an entry too many",
    by: (store) => ({ prune: (key, upTo, limit) => store.prune(key, upTo + 1, limit) }),
    breaks: ["pruning removes the entries", "pruning removes the oldest", "pruning again", "what was pruned"],
  },
  {
    bug: "prunes an entry too few",
    by: (store) => ({ prune: (key, upTo, limit) => store.prune(key, upTo - 1, limit) }),
    breaks: [
      "pruning removes the entries",
      "pruning removes the oldest",
      "pruning again",
      "what was pruned",
      "pruning stays",
    ],
  },
  {
    bug: "lowers the head when it prunes",
    by: (store, world, namespace) => ({
      async prune(key, upTo, limit) {
        const removed = await store.prune(key, upTo, limit);
        const [row] = await store.read([key]);
        if (removed === 0 || !row) return removed;
        const other = world.database.connect(namespace);
        const { epoch, sequence } = await other.settle(0);
        const puts = [{ was: row, row: { ...row, head: row.head - removed }, entries: [] }];
        const mark = { lane: 0, epoch, sequence: sequence + 1, lock: [], needsClock: false };
        await other.commit({ ...mark, decide: () => ({ puts }) });
        return removed;
      },
    }),
    breaks: ["pruning removes the entries"],
  },
  {
    bug: "prunes the newest entries first",
    by: hiding((log, upTo, limit) =>
      log
        .filter(({ version }) => version <= upTo)
        .toReversed()
        .slice(0, limit),
    ),
    breaks: ["pruning removes the oldest", "what was pruned"],
  },
  {
    bug: "prunes more than requested",
    by: (store) => ({ prune: (key, upTo) => store.prune(key, upTo, 1e6) }),
    breaks: ["pruning removes the oldest"],
  },
  {
    bug: "returns its limit, not how many it pruned",
    by: (store) => ({
      async prune(key, upTo, limit) {
        const removed = await store.prune(key, upTo, limit);
        return removed === 0 ? 0 : Math.max(removed, Math.min(limit, 7));
      },
    }),
    breaks: [
      "pruning removes the entries",
      "pruning removes the oldest",
      "pruning again",
      "what was pruned",
      "a log that was pruned",
      "pruning stays",
    ],
  },
  {
    bug: "fails to prune an absent record",
    by: (store) => ({
      async prune(key, upTo, limit) {
        const [row] = await store.read([key]);
        if (row === null && (await store.list({ ...key, prefix: "", after: null, limit: 1 })).length > 0)
          throw new Error("no such row");
        return store.prune(key, upTo, limit);
      },
    }),
    breaks: ["pruning again"],
  },
  {
    bug: "follows what is pruned",
    by: (store, world) => {
      const gone = goneIn(world);
      return {
        async prune(key, upTo, limit) {
          const before = await allFollowed(store, key.space);
          gone.push(...before.filter((entry) => entry.key === key.key && entry.version <= upTo));
          return store.prune(key, upTo, limit);
        },
        async follow(query) {
          const page = await store.follow(query);
          if (gone.length === 0) return page;
          const all = new Map([...gone, ...(await allFollowed(store, query.space))].map((one) => [one.position, one]));
          return followPageOf(
            [...all.values()].toSorted((a, b) => a.position - b.position),
            query,
            page,
          );
        },
      };
    },
    breaks: ["what was pruned"],
  },
  {
    bug: "numbers the entries of a pruned log from 1",
    by: (store) => ({
      async entries(key, after, limit, maxBytes) {
        const log = await store.entries(key, 0, 1e6);
        const [row] = await store.read([key]);
        const isWhole = (row?.head ?? 0) === log.length;
        const numbered = isWhole ? log : log.map((entry, index) => ({ ...entry, version: index + 1 }));
        return page(numbered, after, limit, maxBytes);
      },
    }),
    breaks: ["pruning removes the entries", "pruning removes the oldest", "pruning again", "a log that was pruned"],
  },
  {
    bug: "prunes the same key in all spaces",
    by: (store, world) => ({
      async prune(key, upTo, limit) {
        for (const space of world.spaces) if (space !== key.space) await store.prune({ ...key, space }, upTo, limit);
        return store.prune(key, upTo, limit);
      },
    }),
    breaks: ["pruning stays"],
  },
  {
    bug: "prunes the same key in all namespaces",
    by: (store, world, namespace) => ({
      async prune(key, upTo, limit) {
        for (const other of world.namespaces)
          if (other !== namespace) await world.connect(other).prune(key, upTo, limit);
        return store.prune(key, upTo, limit);
      },
    }),
    breaks: ["pruning stays"],
  },
  {
    bug: "leaves the last entry of a log, to know where to continue",
    by: (store) => ({
      async prune(key, upTo, limit) {
        const [row] = await store.read([key]);
        return store.prune(key, Math.min(upTo, (row?.head ?? 0) - 1), limit);
      },
    }),
    breaks: ["a log that was pruned", "pruning stays"],
  },
];
