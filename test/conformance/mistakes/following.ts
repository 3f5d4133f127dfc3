/** Mistakes of stores: following. */

import type { FollowedEntry } from "../../../src/kernel/contract.ts";
import {
  allFollowed,
  type Broken,
  drawing,
  following as followingBy,
  followPageOf,
  markingFollowed,
} from "../broken.ts";

export const following: readonly Broken[] = [
  { bug: "follows every entry", by: markingFollowed(true), breaks: ["followed entries of", "without entries"] },
  {
    bug: "follows no entry",
    by: markingFollowed(false),
    breaks: [
      "followed entries of",
      "a page has as",
      "a page has only",
      "a page reads",
      "a page ends",
      "without entries",
      "a batch that is refused",
      "each namespace is followed",
      "a deleted record can",
      "a reader that",
      "what was pruned",
    ],
    patienceMs: 300,
  },
  {
    bug: "says a time from before it was asked, with a page of followed entries",
    by: followingBy((page) => ({ ...page, nowMs: page.nowMs - 60_000 })),
    breaks: ["a page says"],
  },
  {
    bug: "says a time that has not come, with a page of followed entries",
    by: followingBy((page) => ({ ...page, nowMs: page.nowMs + 60_000 })),
    breaks: ["a page says"],
  },
  {
    bug: "returns a page newest first",
    by: followingBy((page) => ({ ...page, entries: page.entries.toReversed() })),
    breaks: [
      "followed entries of",
      "a page has as",
      "a page has only",
      "a page ends",
      "without entries",
      "a cursor that is",
      "a batch that is refused",
      "each namespace is followed",
      "a deleted record can",
      "a reader that",
    ],
  },
  {
    bug: "returns more than requested",
    by: followingBy(
      (page) => page,
      (query) => ({ ...query, limit: query.limit + 5 }),
    ),
    breaks: ["a page has as", "a page reads", "a page ends", "a deleted record can", "a reader that"],
  },
  {
    bug: "reads until it has as many as requested, however far",
    by: (store) => ({
      async follow(query) {
        const page = await store.follow({ ...query, limit: 1e6 });
        const entries = page.entries.slice(0, query.limit);
        const hasMore = page.hasMore || entries.length === query.limit;
        return { ...page, entries, upTo: hasMore ? (entries.at(-1)?.position ?? page.upTo) : page.upTo, hasMore };
      },
    }),
    breaks: ["a page reads"],
  },
  {
    bug: "does not get past what is not chosen",
    by: followingBy((page, { after }) => ({ ...page, upTo: page.entries.at(-1)?.position ?? after })),
    breaks: ["a page reads", "a cursor that is"],
  },
  {
    bug: "takes each page for the last",
    by: followingBy((page) => ({ ...page, hasMore: false })),
    breaks: ["a page has as", "a page reads", "a page ends", "a reader that"],
    patienceMs: 300,
  },
  {
    bug: "returns more bytes than requested",
    by: followingBy(
      (page) => page,
      ({ maxBytes: _, ...query }) => query,
    ),
    breaks: ["a page ends"],
  },
  {
    bug: "takes a page that has enough bytes for the last",
    by: followingBy((page, { limit }) => ({ ...page, hasMore: page.entries.length === limit })),
    breaks: ["a page ends", "a page reads"],
  },
  {
    bug: "counts the bytes of entries that are not chosen",
    by: (store) => ({
      async follow(query) {
        const page = await store.follow({ ...query, prefix: query.maxBytes === undefined ? query.prefix : "" });
        return { ...page, entries: page.entries.filter(({ key }) => key.startsWith(query.prefix ?? "")) };
      },
    }),
    breaks: ["a page ends"],
  },
  {
    bug: "begins a page with the last entry of the page before",
    by: followingBy(
      (page) => page,
      (query) => ({ ...query, after: Math.max(0, query.after - 1) }),
    ),
    breaks: [
      "a page has as",
      "a page ends",
      "without entries",
      "a deleted record can",
      "a reader that",
      "what was pruned",
    ],
  },
  {
    bug: "follows the records of all spaces",
    by: (store, world) => ({
      async follow(query) {
        const all: FollowedEntry[] = [];
        for (const space of world.spaces) all.push(...(await allFollowed(store, space)));
        const none = await store.follow({ ...query, prefix: "none has this" });
        const entries = all.map((entry) => ({ ...entry, space: query.space }));
        return query.after > none.upTo
          ? none
          : followPageOf(
              entries.toSorted((a, b) => a.position - b.position),
              query,
              none,
            );
      },
    }),
    breaks: ["a page has only"],
  },
  {
    bug: "follows keys of any beginning",
    by: followingBy(
      (page) => page,
      (query) => ({ ...query, prefix: "" }),
    ),
    breaks: ["a page has only", "a page reads", "a page ends"],
  },
  {
    bug: "follows entries of any name",
    by: followingBy(
      (page) => page,
      (query) => ({ ...query, names: undefined }),
    ),
    breaks: ["a page has only"],
  },
  {
    bug: "takes no name for any name",
    by: followingBy(
      (page) => page,
      (query) => ({ ...query, names: query.names?.length === 0 ? undefined : query.names }),
    ),
    breaks: ["a page has only"],
  },
  {
    bug: "accepts a cursor that is ahead",
    by: followingBy((page, { after }) => ({ ...page, upTo: Math.max(after, page.upTo) })),
    breaks: ["a cursor that is"],
  },
  {
    bug: "stops following deleted records immediately",
    by: (store) => ({
      async follow(query) {
        const page = await store.follow(query);
        const rows = await store.read(page.entries);
        return { ...page, entries: page.entries.filter((_, index) => rows[index]?.value !== null) };
      },
    }),
    breaks: ["a deleted record can"],
  },
  {
    bug: "follows what is swept",
    by: (store, world) => {
      const gone: FollowedEntry[] = [];
      return {
        async sweep(limit) {
          for (const space of world.spaces) gone.push(...(await allFollowed(store, space)));
          return store.sweep(limit);
        },
        async follow(query) {
          const page = await store.follow(query);
          if (gone.length === 0) return page;
          const all = [...gone, ...(await allFollowed(store, query.space))];
          const byPosition = new Map(all.map((entry) => [entry.position, entry]));
          return followPageOf(
            [...byPosition.values()].toSorted((a, b) => a.position - b.position),
            query,
            page,
          );
        },
      };
    },
    breaks: ["a deleted record can"],
  },
  {
    bug: "continues after the highest position that it saw",
    by: drawing({
      horizon: (last) => last,
      page: (page, { after }) => ({
        ...page,
        upTo: page.hasMore ? page.upTo : (page.entries.at(-1)?.position ?? after),
      }),
    }),
    breaks: ["a reader that", "shared transactions that"],
    patienceMs: 300,
  },
  {
    bug: "follows past open transactions",
    by: drawing({ horizon: (last) => last }),
    breaks: ["a reader that", "shared transactions that", "entries that"],
    patienceMs: 300,
  },
  {
    bug: "draws positions before it announces that it will",
    by: drawing({ announcesLate: true }),
    breaks: ["a reader that", "shared transactions that", "entries that"],
    patienceMs: 300,
  },
  {
    bug: "reads entries before it knows how far it may",
    by: drawing({ readsFirst: true }),
    breaks: ["a reader that"],
    patienceMs: 300,
  },
  {
    bug: "waits for positions that were rolled back",
    by: drawing({ keepsLost: true }),
    breaks: ["a shared transaction that"],
    patienceMs: 300,
  },
  {
    bug: "lets a cursor go back while a transaction is open",
    by: drawing({ page: (page) => (page.hasMore ? page : { ...page, upTo: page.entries.at(-1)?.position ?? 0 }) }),
    breaks: ["a page has as", "without entries", "a reader that"],
  },
];
