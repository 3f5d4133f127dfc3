/**
 * Goal: every law of the conformance suite can fail, and fails for the mistake it is there to find.
 * Method: stores that are the memory store with one mistake each, of the kind that authors of stores make. Each is held to
 * all laws, and must break those named beside it and no others. Every law is broken by at least one of them.
 */

import { expect, test } from "vitest";
import { compareUtf8 } from "../../kernel/check.ts";
import {
  type Batch,
  type DueKey,
  type DuePage,
  type DueQuery,
  type Found,
  type Key,
  keyText,
  type ListQuery,
  type Put,
  type Receipt,
  type Row,
  type Store,
  type StoredEntry,
} from "../../kernel/contract.ts";
import { PawlError, StoreError } from "../../kernel/errors.ts";
import { MemoryDatabase } from "../../stores/memory/memory.ts";
import { type Harness, storeConformance } from "./conformance.ts";

// ------------------------------------------------------------------------------------------------- a store to break

/** What the writers of one database share. */
class World {
  nowMs = 1_800_000_000_000;
  database = new MemoryDatabase(() => this.nowMs);
  /** Every space and kind that was ever written. */
  readonly spaces = new Set<string>();
  readonly kinds = new Set<string>();
  readonly namespaces = new Set<string>();
  /** For a mistake to keep what it likes. */
  readonly names = new Map<string, Key>();
  readonly notes = new Map<string, number>();

  /** The memory store as an object, so that single methods can be replaced. */
  connect(namespace: string): Store {
    this.namespaces.add(namespace);
    const { database } = this;
    const store = database.connect(namespace, { lanes: 2 });
    const watches = new Set<() => void>();
    return {
      lanes: store.lanes,
      settle: (lane) => store.settle(lane),
      commit: (batch) =>
        store.commit({
          ...batch,
          decide: (found) => {
            const verdict = batch.decide(found);
            for (const { row } of "puts" in verdict ? verdict.puts : []) {
              this.spaces.add(row.space);
              if (row.kind !== null) this.kinds.add(row.kind);
            }
            return verdict;
          },
        }),
      read: (keys) => store.read(keys),
      list: (query) => store.list(query),
      entries: (key, after, limit) => store.entries(key, after, limit),
      due: (query) => store.due(query),
      sweep: (limit) => store.sweep(limit),
      // One connection for each watch, so that each stands for itself.
      watch: (changed) => {
        const stop = database.connect(namespace).watch(changed);
        watches.add(stop);
        return stop;
      },
      close: async () => {
        for (const stop of watches) stop();
        await store.close();
      },
    };
  }
}

interface Broken {
  readonly bug: string;
  /** How the names of the laws begin that this mistake breaks. */
  readonly breaks: readonly string[];
  /** The methods that are wrong. */
  readonly by: (store: Store, world: World, namespace: string) => Partial<Store>;
  readonly namespaceOf?: (name: string) => string;
  /** Short where the laws would wait for something that never comes. */
  readonly patienceMs?: number;
}

const sound: Broken = { bug: "none", breaks: [], by: () => ({}) };

function opening({ by, namespaceOf = (name) => name }: Broken): () => Promise<Harness> {
  return async () => {
    const world = new World();
    return {
      async connect(name = "default") {
        const namespace = namespaceOf(name);
        const store = world.connect(namespace);
        const broken = { ...store, ...by(store, world, namespace) };
        return broken;
      },
      clock: {
        advance(ms) {
          world.nowMs += ms;
        },
        set(ms) {
          world.nowMs = ms;
        },
      },
      close: async () => {},
    };
  };
}

const lawsOf = (broken: Broken) => storeConformance({ open: opening(broken), patienceMs: broken.patienceMs ?? 10_000 });

async function lawsBrokenBy(broken: Broken): Promise<readonly string[]> {
  const verdicts = await Promise.all(
    lawsOf(broken).map((law) =>
      law.check().then(
        () => [],
        () => [law.name],
      ),
    ),
  );
  return verdicts.flat();
}

// ------------------------------------------------------------------------------------------------ ways to go wrong

const tick = () => new Promise<void>((resolve) => setImmediate(resolve));

/** Writes something else than decide said; sees the rows as they are in the store. */
function rewrite(batch: Batch, change: (puts: readonly Put[], rows: Found["rows"]) => readonly Put[]): Batch {
  let puts: readonly Put[] | undefined;
  return {
    ...batch,
    decide(found) {
      if (puts !== undefined) return { puts: change(puts, found.rows) };
      const verdict = batch.decide(found);
      if ("lock" in verdict) return verdict;
      puts = verdict.puts;
      return { lock: puts.map(({ row }) => row) };
    },
  };
}

const rewriting =
  (change: (puts: readonly Put[], rows: Found["rows"]) => readonly Put[]) =>
  (store: Store): Partial<Store> => ({ commit: (batch) => store.commit(rewrite(batch, change)) });

/** Writes other rows than decide said. */
const writingRows = (change: (row: Row, was: Row | null) => Row) =>
  rewriting((puts) => puts.map((put) => ({ ...put, row: change(put.row, put.was) })));

/** Believes something else about what a row replaces. */
const believing = (change: (was: Row | null, now: Row | null) => Row | null) =>
  rewriting((puts, rows) => puts.map((put, index) => ({ ...put, was: change(put.was, rows[index] ?? null) })));

/** Tells decide something else than what was found. */
const telling =
  (change: (found: Found, round: number, batch: Batch) => Found) =>
  (store: Store): Partial<Store> => ({
    commit(batch) {
      let round = 0;
      return store.commit({ ...batch, decide: (found) => batch.decide(change(found, round++, batch)) });
    },
  });

const answering =
  (change: (receipt: Receipt, puts: readonly Put[]) => Receipt) =>
  (store: Store): Partial<Store> => ({
    async commit(batch) {
      let puts: readonly Put[] = [];
      const receipt = await store.commit({
        ...batch,
        decide(found) {
          const verdict = batch.decide(found);
          if ("puts" in verdict) puts = verdict.puts;
          return verdict;
        },
      });
      return change(receipt, puts);
    },
  });

/** Takes names that fold to the same text for one name: the one that came first. */
const taking =
  (fold: (key: Key) => string) =>
  (store: Store, world: World): Partial<Store> => {
    const named = <K extends Key>(key: K): K => {
      const text = fold(key);
      const { space, key: name } = world.names.get(text) ?? key;
      world.names.set(text, { space, key: name });
      return { ...key, space, key: name };
    };
    return {
      commit: (batch) =>
        store.commit({
          ...batch,
          lock: batch.lock.map(named),
          decide(found) {
            const verdict = batch.decide(found);
            if ("lock" in verdict) return { lock: verdict.lock.map(named) };
            return { puts: verdict.puts.map((put) => ({ ...put, row: named(put.row) })) };
          },
        }),
      read: (keys) => store.read(keys.map(named)),
      entries: (key, after, limit) => store.entries(named(key), after, limit),
    };
  };

/** Settles and commits by its own account of epochs and sequences. */
const settling =
  (account: (mark: { epoch: number; sequence: number }, lane: number) => { epoch: number; sequence: number }) =>
  (store: Store): Partial<Store> => ({ settle: async (lane) => account(await store.settle(lane), lane) });

/** Reads first and writes later; `holds` says whether a row that was seen must still be as it was. */
const readingFirst =
  (holds: (seen: Row | null, now: Row | null) => boolean, blind: boolean) =>
  (store: Store, world: World): Partial<Store> => ({
    async commit(batch) {
      const seen = new Map<string, { key: Key; row: Row | null }>();
      let { lock } = batch;
      for (;;) {
        const rows = await store.read(lock);
        await tick();
        for (const [index, key] of lock.entries()) seen.set(keyText(key), { key, row: rows[index] ?? null });
        const { fenceFloor } = world.database;
        const verdict = batch.decide({ nowMs: world.nowMs, fenceFloor, rows });
        if ("lock" in verdict) {
          lock = verdict.lock;
          continue;
        }
        const all = [...seen.values()];
        let moved: Key[] = [];
        const last: Batch = {
          ...batch,
          lock: all.map(({ key }) => key),
          decide(found) {
            moved = all.filter(({ row }, index) => !holds(row, found.rows[index] ?? null)).map(({ key }) => key);
            return { puts: moved.length > 0 ? [] : verdict.puts };
          },
        };
        const blindly = rewrite(last, (puts, now) => puts.map((put, i) => ({ ...put, was: now[i] ?? null })));
        const receipt = await store.commit(blind ? blindly : last);
        return moved.length > 0 ? { committed: false, moved } : receipt;
      }
    },
  });

const isSame = (a: Row | null, b: Row | null): boolean => a?.id === b?.id && a?.version === b?.version;

/** Finds due records in a way of its own. */
interface Finding {
  readonly isDue?: (row: Row, nowMs: number) => boolean;
  readonly timeOf?: (row: Row) => number | null;
  readonly before?: (rows: Row[], query: DueQuery) => Row[];
  readonly order?: (a: Row, b: Row) => number;
  readonly next?: (nextDueMs: number | null, page: DuePage) => number | null;
  readonly shown?: (row: Row) => DueKey;
}

const shownDue = ({ space, key, kind, tries }: Row): DueKey => ({ space, key, kind: kind ?? "", tries });

const finding =
  (way: Finding) =>
  (store: Store, world: World): Partial<Store> => ({
    async due(query) {
      const { nowMs } = await store.due(query);
      const rows: Row[] = [];
      for (const space of world.spaces)
        rows.push(...(await store.list({ space, prefix: "", after: null, limit: 1e6 })));
      const timeOf = way.timeOf ?? ((row) => row.dueMs);
      const isDue = way.isDue ?? ((row) => (timeOf(row) ?? 0) <= nowMs);
      const order = way.order ?? ((a, b) => (timeOf(a) ?? 0) - (timeOf(b) ?? 0) || a.id - b.id);
      const chosen = (way.before?.(rows, query) ?? rows)
        .filter((row) => row.kind !== null && query.kinds.includes(row.kind) && timeOf(row) !== null)
        .sort(order);
      const due = chosen.filter((row) => isDue(row, nowMs)).slice(0, query.limit);
      const later = chosen.filter((row) => !isDue(row, nowMs)).map((row) => timeOf(row) ?? 0);
      const page = { nowMs, keys: due.map(way.shown ?? shownDue), nextDueMs: null };
      const nextDueMs = later.length === 0 ? null : Math.min(...later);
      return { ...page, nextDueMs: way.next === undefined ? nextDueMs : way.next(nextDueMs, page) };
    },
  });

type Order = NonNullable<ListQuery["order"]>;
type Place = Pick<Row, "id" | "key">;

const COMPARE: Readonly<Record<Order, (a: Place, b: Place) => number>> = {
  key: (a, b) => compareUtf8(a.key, b.key),
  newest: (a, b) => b.id - a.id,
  oldest: (a, b) => a.id - b.id,
};

const isOneOf = (text: string | null, texts: readonly string[] | undefined): boolean =>
  texts === undefined || (text !== null && texts.includes(text));

const isChosen = ({ kind, status }: Row, { kinds, statuses }: ListQuery): boolean =>
  isOneOf(kind, kinds) && isOneOf(status, statuses);

/** Lists in a way of its own. */
interface Listing {
  readonly compare?: Partial<typeof COMPARE>;
  /** The rows after this place, of rows in order. */
  readonly goOn?: (rows: readonly Row[], last: Place, order: Order) => readonly Row[];
  readonly isIn?: (key: string, prefix: string) => boolean;
  readonly isChosen?: (row: Row, query: ListQuery) => boolean;
  readonly cut?: (rows: readonly Row[], query: ListQuery) => readonly Row[];
}

function pageOf(rows: readonly Row[], query: ListQuery, way: Listing = {}): readonly Row[] {
  const { prefix, after, order = "key", limit } = query;
  const compare = way.compare?.[order] ?? COMPARE[order];
  const goOn = way.goOn ?? ((all, last) => all.filter((row) => compare(row, last) > 0));
  const isIn = way.isIn ?? ((key) => key.startsWith(prefix));
  const sorted = rows.toSorted(compare);
  const chosen = (after === null ? sorted : goOn(sorted, { key: after, id: Number(after) }, order))
    .filter(({ key }) => isIn(key, prefix))
    .filter((row) => (way.isChosen ?? isChosen)(row, query));
  return (way.cut?.(chosen, query) ?? chosen).slice(0, limit);
}

const allOf = (store: Store, space: string) => store.list({ space, prefix: "", after: null, limit: 1e6 });

const listing =
  (way: Listing) =>
  (store: Store): Partial<Store> => ({
    list: async (query) => pageOf(await allOf(store, query.space), query, way),
  });

/** Chooses by kinds and statuses in a way of its own. */
const choosing = (isIt: (text: string | null, texts: readonly string[]) => boolean) =>
  listing({
    isChosen: ({ kind, status }, { kinds, statuses }) =>
      (kinds === undefined || isIt(kind, kinds)) && (statuses === undefined || isIt(status, statuses)),
  });

/** Lists deleted rows among the others, where it is asked like this. */
const listingDeleted =
  (isAsked: (query: ListQuery) => boolean) =>
  (store: Store, world: World): Partial<Store> => ({
    commit: (batch) =>
      store.commit(
        rewrite(batch, (puts) => {
          for (const { row } of puts) world.names.set(keyText(row), { space: row.space, key: row.key });
          return puts;
        }),
      ),
    async list(query) {
      if (!isAsked(query)) return store.list(query);
      const rows = await store.read([...world.names.values()].filter(({ space }) => space === query.space));
      return pageOf(
        rows.filter((row) => row !== null),
        query,
      );
    },
  });

const isByNumber = ({ order = "key" }: ListQuery): boolean => order !== "key";

const readingLog =
  (change: (log: readonly StoredEntry[], after: number, limit: number) => readonly StoredEntry[]) =>
  (store: Store): Partial<Store> => ({
    entries: async (key, after, limit) => change(await store.entries(key, 0, 1e6), after, limit),
  });

const page = (log: readonly StoredEntry[], after: number, limit: number) =>
  log.filter(({ version }) => version > after).slice(0, limit);

/** Sweeps as if the clock were elsewhere. */
const sweepingAt =
  (offsetMs: number) =>
  (store: Store, world: World): Partial<Store> => ({
    sweep(limit) {
      world.nowMs += offsetMs;
      const swept = store.sweep(limit);
      world.nowMs -= offsetMs;
      return swept;
    },
  });

// --------------------------------------------------------------------------------------------------- the mistakes

const BROKEN: readonly Broken[] = [
  // Commits.
  {
    bug: "loses the last put of a large batch",
    by: rewriting((puts) => (puts.length > 200 ? puts.slice(0, -1) : puts)),
    breaks: ["a commit writes"],
  },
  {
    bug: "gives out ids in rising order, whatever the order of the puts",
    by: answering((receipt) =>
      receipt.committed ? { ...receipt, ids: receipt.ids.toSorted((a, b) => a - b) } : receipt,
    ),
    breaks: ["the ids of"],
  },
  {
    bug: "numbers a row anew when it is made again",
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
      "a row that is gone",
      "a row made",
      "a batch that was",
    ],
  },
  {
    bug: "overwrites where it should make",
    by: believing((was, now) => was ?? now),
    breaks: ["a refused batch", "an absent key is", "a deleted row is not", "a batch that was"],
  },
  {
    bug: "takes a deleted row for an absent one",
    by: believing((was, now) => (was === null && now?.value === null ? now : was)),
    breaks: ["a deleted row is not"],
  },
  {
    bug: "makes a row where it should change one",
    by: believing((was, now) => (now === null ? null : was)),
    breaks: ["a row that is gone"],
  },
  {
    bug: "knows a row by its version alone",
    by: believing((was, now) => (was !== null && was.version === now?.version ? now : was)),
    breaks: ["a row made", "a row of the same version"],
  },
  {
    bug: "does not compare stamps",
    by: believing((was, now) => (was?.id === now?.id && was?.version === now?.version ? now : was)),
    breaks: ["a row of the same version"],
  },
  {
    bug: "reads as much as there is",
    by: (store) => ({ commit: ({ maxBytes: _, ...batch }) => store.commit(batch) }),
    breaks: ["a batch reads no more bytes"],
  },
  {
    bug: "does not say that it left rows unread",
    by: (store) => ({
      commit: (batch) => store.commit({ ...batch, decide: ({ isFull: _, ...found }) => batch.decide(found) }),
    }),
    breaks: ["a batch reads no more bytes"],
  },
  {
    bug: "locks absent keys by making them, and leaves them when decide throws",
    by: (store) => ({
      async commit(batch) {
        try {
          return await store.commit(batch);
        } catch (error) {
          const numbers = { id: 0, version: 1, stamp: 0, fence: 0, wakes: 0, tries: 0, head: 0, dueMs: null };
          const blank = { ...numbers, holder: null, kind: null, status: null, value: null };
          const holders = batch.lock.map((key) => ({ ...blank, ...key }));
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
    breaks: ["a decide that"],
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
    breaks: ["a decide that"],
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
    bug: "gives decide its rows in the order of their keys",
    by: (store) => ({
      commit: (batch) =>
        store.commit({ ...batch, lock: batch.lock.toSorted((a, b) => compareUtf8(keyText(a), keyText(b))) }),
    }),
    breaks: ["a batch reads no more bytes", "decide gets one", "a sweep removes what", "an absent key that"],
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
    breaks: ["a batch reads no more bytes", "a key asked", "writers that ask", "an absent key that"],
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
    breaks: [
      "a batch reads no more bytes",
      "a key asked",
      "decide is called",
      "writers that ask",
      "an absent key that",
    ],
  },
  {
    bug: "does not tell decide the clock",
    by: telling((found) => ({ ...found, nowMs: null })),
    breaks: [
      "decide is told",
      "a batch that needs",
      "a record is",
      "nextDueMs is the",
      "a record comes",
      "a deleted row is swept",
    ],
  },
  {
    bug: "tells decide the clock of the process",
    by: telling((found) => ({ ...found, nowMs: Date.now() })),
    breaks: ["decide is told", "a batch that needs", "a record is", "nextDueMs is the", "a deleted row is swept"],
  },
  {
    bug: "tells the clock only to who locks",
    by: telling((found, round, batch) => (round === 0 && batch.lock.length === 0 ? { ...found, nowMs: null } : found)),
    breaks: ["a batch that needs"],
  },
  {
    bug: "says of the last of many rows that it is locked",
    by: telling((found) =>
      found.rows.length < 10 ? found : { ...found, rows: [...found.rows.slice(0, -1), undefined] },
    ),
    breaks: ["a batch reads no more bytes", "a row that nobody"],
  },
  {
    bug: "tells of a row where none was asked for",
    by: telling((found) => (found.rows.length > 0 ? found : { ...found, rows: [null] })),
    breaks: ["a key asked", "a batch that knows"],
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
      "a batch reads no more bytes",
      "a row that moved",
      "a refused batch",
      "a row that is gone",
      "a row made",
      "a sweep removes what",
    ],
  },

  // Lanes.
  { bug: "has no lane", by: () => ({ lanes: 0 }), breaks: ["a store has"] },
  {
    bug: "goes on in the same epoch after a settle",
    by: (store) => {
      const first = new Map<number, number>();
      const now = new Map<number, number>();
      return {
        async settle(lane) {
          const { epoch, sequence } = await store.settle(lane);
          now.set(lane, epoch);
          first.set(lane, first.get(lane) ?? epoch);
          return { epoch: first.get(lane) ?? epoch, sequence };
        },
        commit: (batch) => store.commit({ ...batch, epoch: now.get(batch.lane) ?? 0 }),
      };
    },
    breaks: ["each settle starts", "a batch of"],
  },
  {
    bug: "ignores the epoch",
    by: (store) => {
      const now = new Map<number, number>();
      return {
        async settle(lane) {
          const mark = await store.settle(lane);
          now.set(lane, mark.epoch);
          return mark;
        },
        commit: (batch) => store.commit({ ...batch, epoch: now.get(batch.lane) ?? 0 }),
      };
    },
    breaks: ["a batch of"],
  },
  {
    bug: "calls a batch of an older epoch busy, to be tried again",
    by: (store) => ({
      commit: (batch) =>
        store.commit(batch).catch((error: unknown) => {
          throw error instanceof StoreError ? new StoreError("store_busy", "retry", "it is busy") : error;
        }),
    }),
    breaks: ["a batch of"],
  },
  {
    bug: "checks the epoch when a batch arrives, and writes it later",
    by: (store) => {
      const now = new Map<number, number>();
      return {
        async settle(lane) {
          const mark = await store.settle(lane);
          now.set(lane, mark.epoch);
          return mark;
        },
        async commit(batch) {
          if (batch.epoch === now.get(batch.lane)) {
            await tick();
            return store.commit({ ...batch, epoch: now.get(batch.lane) ?? 0 });
          }
          return store.commit(batch);
        },
      };
    },
    breaks: ["settle is the"],
  },
  {
    bug: "forgets the sequence",
    by: settling(({ epoch }) => ({ epoch, sequence: 0 })),
    breaks: ["settle says the", "after a batch", "writers settle apart", "lanes settle apart", "settle is the"],
  },
  {
    bug: "counts batches instead of keeping their sequence",
    by: (store) => {
      const counts = new Map<number, number>();
      return {
        settle: async (lane) => ({ ...(await store.settle(lane)), sequence: counts.get(lane) ?? 0 }),
        async commit(batch) {
          const receipt = await store.commit(batch);
          if (receipt.committed) counts.set(batch.lane, (counts.get(batch.lane) ?? 0) + 1);
          return receipt;
        },
      };
    },
    breaks: ["settle says the"],
  },
  {
    bug: "notes the sequence before it knows the outcome",
    by: (store) => {
      const last = new Map<number, number>();
      return {
        async settle(lane) {
          const { epoch, sequence } = await store.settle(lane);
          return { epoch, sequence: Math.max(sequence, last.get(lane) ?? 0) };
        },
        commit(batch) {
          const sequence = batch.sequence;
          return store.commit({
            ...batch,
            decide(found) {
              last.set(batch.lane, sequence);
              return batch.decide(found);
            },
          });
        },
      };
    },
    breaks: ["a batch that was"],
  },
  {
    bug: "forgets the sequence with a batch that wrote nothing",
    by: (store) => {
      let wrote = false;
      return {
        settle: async (lane) => {
          const { epoch, sequence } = await store.settle(lane);
          return { epoch, sequence: wrote ? sequence : 0 };
        },
        async commit(batch) {
          const receipt = await store.commit(batch);
          if (receipt.committed) wrote = receipt.ids.length > 0;
          return receipt;
        },
      };
    },
    breaks: ["after a batch"],
  },
  {
    bug: "keeps one sequence for all writers",
    by: (store, world) => ({
      settle: async (lane) => ({ ...(await store.settle(lane)), sequence: world.notes.get(`lane ${lane}`) ?? 0 }),
      async commit(batch) {
        const receipt = await store.commit(batch);
        if (receipt.committed && receipt.ids.length > 0) world.notes.set(`lane ${batch.lane}`, batch.sequence);
        return receipt;
      },
    }),
    breaks: ["writers settle apart"],
  },
  {
    bug: "keeps one mark for all lanes",
    by: (store) => ({ settle: () => store.settle(0), commit: (batch) => store.commit({ ...batch, lane: 0 }) }),
    breaks: ["lanes settle apart"],
  },
  {
    bug: "mixes up batches that are under way at once",
    by: (store) => {
      let latest: Batch | undefined;
      return {
        async commit(batch) {
          latest = batch;
          await tick();
          return store.commit({ ...batch, decide: (found) => (latest ?? batch).decide(found) });
        },
      };
    },
    breaks: ["batches of different"],
  },

  // Columns.
  {
    bug: "does not write the tries of a new row",
    by: writingRows((row, was) => (was ? row : { ...row, tries: 0 })),
    breaks: ["every column comes", "whole numbers come", "a list has the", "due tells the kind"],
  },
  {
    bug: "does not write changed wakes",
    by: writingRows((row, was) => (was ? { ...row, wakes: was.wakes } : row)),
    breaks: ["a change of", "whole numbers come"],
  },
  {
    bug: "writes a changed kind only with a changed time",
    by: writingRows((row, was) => (was && was.dueMs === row.dueMs ? { ...row, kind: was.kind } : row)),
    breaks: ["a change of", "what was committed before", "a record without a", "a changed time", "chosen rows are"],
  },
  {
    bug: "keeps what becomes null",
    by: writingRows((row, was) =>
      was ? { ...row, holder: row.holder ?? was.holder, status: row.status ?? was.status } : row,
    ),
    breaks: ["a change of", "a deleted row is read", "chosen rows are"],
  },
  {
    bug: "keeps numbers in 32 bits",
    by: writingRows((row) => ({ ...row, wakes: row.wakes | 0 })),
    breaks: ["whole numbers come"],
  },
  {
    bug: "keeps numbers in 15 digits",
    by: writingRows((row) => ({ ...row, fence: Number(row.fence.toPrecision(15)) })),
    breaks: ["whole numbers come"],
  },
  {
    bug: "trims values",
    by: writingRows((row) => ({ ...row, value: row.value?.trim() ?? null })),
    breaks: ["texts come back"],
  },
  {
    bug: "takes an empty value for none",
    by: writingRows((row) => ({ ...row, value: row.value || null })),
    breaks: ["texts come back", "an empty value", "a sweep removes what"],
  },
  {
    bug: "brings values into a normal form",
    by: writingRows((row) => ({ ...row, value: row.value?.normalize("NFC") ?? null })),
    breaks: ["texts come back"],
  },
  {
    bug: "cuts long values",
    by: writingRows((row) => ({ ...row, value: row.value?.slice(0, 65_536) ?? null })),
    breaks: ["a value and"],
  },
  {
    bug: "cuts long entries",
    by: rewriting((puts) =>
      puts.map((put) => ({
        ...put,
        entries: put.entries.map((entry) => ({ ...entry, data: entry.data.slice(0, 65_536) })),
      })),
    ),
    breaks: ["a value and"],
  },
  {
    bug: "folds the case of names",
    by: taking((key) => keyText(key).toLowerCase()),
    breaks: ["names that look", "each record has", "a list is", "a prefix is"],
  },
  {
    bug: "brings names into a normal form",
    by: taking((key) => keyText(key).normalize("NFC")),
    breaks: ["names that look", "a prefix is"],
  },
  {
    bug: "pads names with blanks",
    by: taking((key) => keyText(key).trimEnd()),
    breaks: ["names that look"],
  },
  {
    bug: "cuts names at 255 characters",
    by: taking(({ space, key }) => `${space.slice(0, 255)}\n${key.slice(0, 255)}`),
    breaks: ["names of 256"],
  },
  {
    bug: "runs space and key together",
    by: taking(({ space, key }) => space + key),
    breaks: ["names that look"],
  },
  {
    bug: "does not read deleted rows",
    by: (store) => ({
      read: async (keys) => (await store.read(keys)).map((row) => (row?.value === null ? null : row)),
    }),
    breaks: [
      "a deleted row is read",
      "a sweep removes what",
      "a deleted row is swept",
      "a sweep removes at",
      "a sweep stays",
    ],
  },
  {
    bug: "starts the log anew when a row is made again",
    by: (store, world) => ({
      commit: (batch) =>
        store.commit(
          rewrite(batch, (puts) => {
            for (const { was, row } of puts)
              if (was?.value === null && row.value !== null) world.notes.set(keyText(row), was.head);
            return puts;
          }),
        ),
      entries: async (key, after, limit) =>
        page(await store.entries(key, 0, 1e6), Math.max(after, world.notes.get(keyText(key)) ?? 0), limit),
    }),
    breaks: ["a row that is made", "a sweep removes what"],
  },

  // Logs.
  {
    bug: "loses an entry now and then",
    by: rewriting((puts) =>
      puts.map((put) => ({ ...put, entries: put.entries.filter(({ version }) => version % 11 !== 0) })),
    ),
    breaks: ["a log comes", "a log is", "many writers that"],
  },
  {
    bug: "gives a log newest first",
    by: readingLog((log, after, limit) => page(log, after, limit).toReversed()),
    breaks: [
      "a row that is made",
      "a log comes",
      "entries are stamped",
      "positions rise with",
      "a log is",
      "a deleted row keeps",
      "a clock that",
      "what was committed is",
      "many writers that",
    ],
  },
  {
    bug: "stamps entries with a clock of its own",
    by: readingLog((log, after, limit) => page(log, after, limit).map((entry) => ({ ...entry, atMs: entry.atMs + 1 }))),
    breaks: ["entries are stamped"],
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
    by: readingLog((log, after, limit) =>
      page(log, after, limit).map((entry) => ({ ...entry, position: entry.version })),
    ),
    breaks: ["positions rise with", "positions go on"],
  },
  {
    bug: "gives positions of swept entries again",
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
    breaks: ["positions go on"],
  },
  {
    bug: "pages a log from the version named",
    by: readingLog((log, after, limit) => page(log, after - 1, limit)),
    breaks: ["positions rise with", "a log is", "what was committed before"],
  },
  {
    bug: "gives more entries than asked for",
    by: readingLog((log, after) => page(log, after, 1e6)),
    breaks: ["a log is"],
  },
  {
    bug: "keeps one log for a key in all spaces",
    by: (store, world) => ({
      async entries(key, after, limit) {
        const logs = [...(await store.entries(key, 0, 1e6))];
        for (const space of world.spaces)
          if (space !== key.space) logs.push(...(await store.entries({ ...key, space }, 0, 1e6)));
        return page(logs, after, limit);
      },
    }),
    breaks: ["each record has"],
  },
  {
    bug: "has no answer for the log of a name that nobody has",
    by: (store) => ({
      async entries(key, after, limit) {
        const [row] = await store.read([key]);
        if (!row) throw new Error("no such row");
        return store.entries(key, after, limit);
      },
    }),
    breaks: [
      "a row that moved",
      "a refused batch",
      "a row that is gone",
      "a decide that",
      "a record without entries",
      "a sweep takes",
    ],
  },
  {
    bug: "has no log for a deleted row",
    by: (store) => ({
      async entries(key, after, limit) {
        const [row] = await store.read([key]);
        return row?.value === null ? [] : store.entries(key, after, limit);
      },
    }),
    breaks: ["a deleted row keeps", "a sweep removes what"],
  },
  {
    bug: "sorts a log by time",
    by: readingLog((log, after, limit) =>
      page(
        log.toSorted((a, b) => a.atMs - b.atMs),
        after,
        limit,
      ),
    ),
    breaks: ["a clock that"],
  },

  // Reads.
  {
    bug: "answers for each row once",
    by: (store) => ({
      read: (keys) => store.read([...new Map(keys.map((key) => [keyText(key), key])).values()]),
    }),
    breaks: ["a read answers"],
  },
  {
    bug: "leaves out the rows that are not there",
    by: (store) => ({ read: async (keys) => (await store.read(keys)).filter((row) => row !== null) }),
    breaks: [
      "a row that is gone",
      "a batch that writes",
      "decide gets one",
      "a batch of",
      "a read answers",
      "namespaces do not",
      "a sweep removes what",
      "a deleted row is swept",
      "a deleted row stays",
      "a closed store",
    ],
  },
  {
    bug: "cannot be asked for nothing",
    by: (store) => ({
      async read(keys) {
        if (keys.length === 0) throw new Error("syntax error near )");
        return store.read(keys);
      },
    }),
    breaks: ["nothing asked for"],
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
    breaks: ["a row that moved", "a refused batch", "a read or", "writers that ask"],
  },
  {
    bug: "takes all namespaces for one",
    by: () => ({}),
    namespaceOf: () => "one",
    breaks: ["namespaces do not", "a sweep stays", "in every order, a list"],
  },
  {
    bug: "folds the case of namespaces",
    by: () => ({}),
    namespaceOf: (name) => name.toLowerCase(),
    breaks: ["namespaces do not"],
  },

  // Lists.
  {
    bug: "sorts a list as JavaScript does",
    by: listing({ compare: { key: (a, b) => (a.key < b.key ? -1 : a.key > b.key ? 1 : 0) } }),
    breaks: ["a list is"],
  },
  {
    bug: "takes a prefix for a pattern",
    by: listing({
      isIn: (key, prefix) =>
        new RegExp(
          `^${prefix
            .replace(/[\\[\]*']/g, "\\$&")
            .replaceAll("%", ".*")
            .replaceAll("_", ".")}`,
          "su",
        ).test(key),
    }),
    breaks: ["a prefix is"],
  },
  {
    bug: "finds a prefix in any case",
    by: listing({ isIn: (key, prefix) => key.toLowerCase().startsWith(prefix.toLowerCase()) }),
    breaks: ["a prefix is"],
  },
  {
    bug: "finds a prefix in any normal form",
    by: listing({ isIn: (key, prefix) => key.normalize("NFD").startsWith(prefix.normalize("NFD")) }),
    breaks: ["a prefix is"],
  },
  {
    bug: "ends a prefix at the last character there is",
    by: listing({
      isIn: (key, prefix) => compareUtf8(key, prefix) >= 0 && compareUtf8(key, `${prefix}\u{10ffff}`) <= 0,
    }),
    breaks: ["a prefix is"],
  },
  {
    bug: "ends a prefix at its last unit and one",
    by: listing({
      isIn: (key, prefix) => {
        const end = prefix.slice(0, -1) + String.fromCharCode(prefix.charCodeAt(prefix.length - 1) + 1);
        return prefix === "" || (key >= prefix && key < end);
      },
    }),
    breaks: ["a prefix is"],
  },
  {
    bug: "lists from the key named on",
    by: listing({
      goOn: (rows, last, order) =>
        rows.filter((row) => COMPARE[order](row, last) > 0 || (order === "key" && row.key === last.key)),
    }),
    breaks: [
      "a list is",
      "a list goes",
      "a list has at",
      "deleted rows are",
      "in every order, the pages",
      "in no order",
    ],
  },
  {
    bug: "goes on after a key only if it is there",
    by: listing({
      goOn: (rows, last, order) =>
        order === "key"
          ? rows.slice(rows.findIndex(({ key }) => key === last.key) + 1)
          : rows.filter((row) => COMPARE[order](row, last) > 0),
    }),
    breaks: ["a list goes"],
  },
  {
    bug: "gives one row more than asked for",
    by: (store) => ({ list: (query) => store.list({ ...query, limit: query.limit + 1 }) }),
    breaks: [
      "a list is",
      "a list has at",
      "deleted rows are",
      "by number, a list begins",
      "by number, a list goes",
      "in every order, the pages",
      "in no order",
    ],
  },
  {
    bug: "lists deleted rows",
    by: listingDeleted((query) => !isByNumber(query)),
    breaks: ["deleted rows are", "in no order"],
  },
  {
    bug: "lists the rows of spaces that begin alike",
    by: (store, world) => ({
      async list(query) {
        const rows: Row[] = [...(await store.list(query))];
        for (const space of world.spaces)
          if (space !== query.space && space.startsWith(query.space))
            rows.push(...(await store.list({ ...query, space })));
        return rows.sort(COMPARE[query.order ?? "key"]).slice(0, query.limit);
      },
    }),
    breaks: ["names that look", "a list has the", "in every order, a list"],
  },
  {
    bug: "lists rows without their holders",
    by: (store) => ({ list: async (query) => (await store.list(query)).map((row) => ({ ...row, holder: null })) }),
    breaks: ["names of 256", "a list has the"],
  },
  {
    bug: "lists by key, whatever the order",
    by: (store) => ({ list: (query) => store.list({ ...query, order: "key" }) }),
    breaks: [
      "by number, a list begins",
      "by number, a list goes",
      "kinds and statuses",
      "in every order, the pages",
      "in no order",
      "in every order, a list",
    ],
  },
  {
    bug: "takes the newest for the oldest",
    by: listing({ compare: { newest: COMPARE.oldest, oldest: COMPARE.newest } }),
    breaks: [
      "by number, a list begins",
      "by number, a list goes",
      "kinds and statuses",
      "in every order, the pages",
      "in no order",
      "in every order, a list",
    ],
  },
  {
    bug: "turns round the page of the oldest",
    by: listing({
      cut: (rows, { order, limit }) => (order === "newest" ? rows.slice(-limit) : rows),
    }),
    breaks: ["by number, a list begins", "by number, a list goes", "in every order, the pages", "in no order"],
  },
  {
    bug: "goes on after the text of a number",
    by: listing({
      goOn: (rows, last, order) =>
        rows.filter((row) =>
          order === "key"
            ? COMPARE.key(row, last) > 0
            : order === "oldest"
              ? String(row.id) > last.key
              : String(row.id) < last.key,
        ),
    }),
    breaks: ["by number, a list goes", "in every order, the pages", "in no order"],
  },
  {
    bug: "lists from the number named on",
    by: listing({
      goOn: (rows, last, order) =>
        rows.filter((row) => COMPARE[order](row, last) > 0 || (order !== "key" && row.id === last.id)),
    }),
    breaks: ["by number, a list goes", "in every order, the pages", "in no order"],
  },
  {
    bug: "goes on after a number only if it is there",
    by: listing({
      goOn: (rows, last, order) =>
        order === "key"
          ? rows.filter((row) => COMPARE.key(row, last) > 0)
          : rows.slice(rows.findIndex(({ id }) => id === last.id) + 1),
    }),
    breaks: ["by number, a list goes"],
  },
  {
    bug: "takes no kinds for all kinds",
    by: choosing((text, texts) => texts.length === 0 || isOneOf(text, texts)),
    breaks: ["kinds and statuses"],
  },
  {
    bug: "folds the case of kinds and statuses in a list",
    by: choosing((text, texts) => texts.some((one) => one.toLowerCase() === text?.toLowerCase())),
    breaks: ["kinds and statuses"],
  },
  {
    bug: "trims kinds and statuses",
    by: choosing((text, texts) => texts.some((one) => one.trim() === text?.trim())),
    breaks: ["kinds and statuses"],
  },
  {
    bug: "sends the kinds as one text, with commas between",
    by: choosing((text, texts) => text !== null && texts.join().split(",").includes(text)),
    breaks: ["kinds and statuses"],
  },
  {
    bug: "looks at the first of the kinds only",
    by: choosing((text, [first]) => first !== undefined && text === first),
    breaks: ["kinds and statuses", "in every order, the pages"],
  },
  {
    bug: "lists rows without a kind with those of any",
    by: choosing((text, texts) => texts.length > 0 && (text === null || texts.includes(text))),
    breaks: ["kinds and statuses", "chosen rows are", "in every order, the pages"],
  },
  {
    bug: "chooses by kind or by status, where both are named",
    by: listing({
      isChosen: (row, query) =>
        isChosen(row, query) ||
        (query.kinds !== undefined &&
          query.statuses !== undefined &&
          (isOneOf(row.kind, query.kinds) || isOneOf(row.status, query.statuses))),
    }),
    breaks: ["kinds and statuses", "chosen rows are", "in every order, the pages"],
  },
  {
    bug: "does not choose where it goes by number",
    by: (store) => ({
      list: (query) => store.list(isByNumber(query) ? { ...query, kinds: undefined, statuses: undefined } : query),
    }),
    breaks: ["kinds and statuses", "chosen rows are", "in every order, the pages"],
  },
  {
    bug: "chooses by what a row was when it was made",
    by: (store) => {
      const made = new Map<string, Row>();
      const asMade = listing({ isChosen: (row, query) => isChosen(made.get(keyText(row)) ?? row, query) });
      return {
        ...asMade(store),
        commit: (batch) =>
          store.commit(
            rewrite(batch, (puts) => {
              for (const { was, row } of puts) if (was === null) made.set(keyText(row), row);
              return puts;
            }),
          ),
      };
    },
    breaks: ["chosen rows are"],
  },
  {
    bug: "cuts the page, and then chooses",
    by: (store) => ({
      list: async (query) =>
        (await store.list({ ...query, kinds: undefined, statuses: undefined })).filter((row) => isChosen(row, query)),
    }),
    breaks: ["in every order, the pages"],
  },
  {
    bug: "gives one row more than asked for where it chooses",
    by: (store) => ({
      list: ({ limit, ...query }) => store.list({ ...query, limit: query.kinds === undefined ? limit : limit + 1 }),
    }),
    breaks: ["in every order, the pages", "in no order"],
  },
  {
    bug: "lists deleted rows by number",
    by: listingDeleted(isByNumber),
    breaks: ["in no order"],
  },
  {
    bug: "lists deleted rows that still have a kind",
    by: listingDeleted(({ kinds }) => kinds !== undefined),
    breaks: ["in no order"],
  },
  {
    bug: "lists all spaces by number",
    by: (store, world) => ({
      async list(query) {
        if (!isByNumber(query)) return store.list(query);
        const spaces = await Promise.all([...world.spaces].map((space) => allOf(store, space)));
        return pageOf(spaces.flat(), query);
      },
    }),
    breaks: ["in every order, a list"],
  },
  {
    bug: "lists all namespaces by number",
    by: (store, world) => ({
      async list(query) {
        if (!isByNumber(query)) return store.list(query);
        const all = [...world.namespaces].map((namespace) => allOf(world.database.connect(namespace), query.space));
        return pageOf((await Promise.all(all)).flat(), query);
      },
    }),
    breaks: ["in every order, a list"],
  },

  // Due.
  {
    bug: "folds the case of kinds",
    by: (store, world) => ({
      due({ kinds, limit }) {
        const folded = new Set(kinds.map((kind) => kind.toLowerCase()));
        return store.due({ kinds: [...world.kinds].filter((kind) => folded.has(kind.toLowerCase())), limit });
      },
    }),
    breaks: ["due gives the"],
  },
  {
    bug: "finds a record a millisecond late",
    by: finding({ isDue: (row, nowMs) => (row.dueMs ?? 0) < nowMs }),
    breaks: ["a record is", "a record comes"],
  },
  {
    bug: "finds a record a millisecond early",
    by: finding({ isDue: (row, nowMs) => (row.dueMs ?? 0) <= nowMs + 1 }),
    breaks: ["a record is"],
  },
  {
    bug: "says that the next is due a second later than it is",
    by: finding({ next: (nextDueMs) => (nextDueMs === null ? null : nextDueMs + 1000) }),
    breaks: [
      "namespaces do not",
      "a record is",
      "nextDueMs is the",
      "a record comes",
      "a changed time",
      "a lease that",
    ],
  },
  {
    bug: "says of a due record that it was never tried",
    by: finding({ shown: (row) => ({ ...shownDue(row), tries: 0 }) }),
    breaks: ["due tells the kind"],
  },
  {
    bug: "gives the latest due first",
    by: finding({ order: (a, b) => (b.dueMs ?? 0) - (a.dueMs ?? 0) }),
    breaks: ["a record is", "the longest due", "a lease that"],
  },
  {
    bug: "takes the first that it finds, and then sorts them",
    by: finding({
      before: (rows, { kinds, limit }) =>
        rows.filter(({ kind, dueMs }) => kind !== null && kinds.includes(kind) && dueMs !== null).slice(-limit),
    }),
    breaks: ["the longest due", "nextDueMs is the"],
  },
  {
    bug: "says what comes next only when nothing is due",
    by: finding({ next: (ms, { keys }) => (keys.length > 0 ? null : ms) }),
    breaks: ["namespaces do not", "a record is", "nextDueMs is the", "a lease that"],
  },
  {
    bug: "says what comes next of all kinds",
    by: (store, world) => ({
      async due(query) {
        const { nextDueMs } = await store.due({ kinds: [...world.kinds], limit: 1 });
        return { ...(await store.due(query)), nextDueMs };
      },
    }),
    breaks: ["nextDueMs is the"],
  },
  {
    bug: "looks at the thousand longest due, and then at their kinds",
    by: finding({ before: (rows) => rows.sort((a, b) => (a.dueMs ?? 0) - (b.dueMs ?? 0)).slice(0, 1000) }),
    breaks: ["many due records"],
  },
  {
    bug: "takes a record without a time for one that is due",
    by: finding({ timeOf: (row) => row.dueMs ?? 0 }),
    breaks: ["texts come back", "a record without a", "a changed time"],
  },
  {
    bug: "finds what was due when it was first asked",
    by: (store, world) => {
      const openedAtMs = world.nowMs;
      return finding({ isDue: (row) => (row.dueMs ?? 0) <= openedAtMs })(store, world);
    },
    breaks: ["a record comes"],
  },
  {
    bug: "does not notice a changed time",
    by: (store, world) => ({
      ...finding({ timeOf: (row) => (row.dueMs === null ? null : (world.notes.get(keyText(row)) ?? row.dueMs)) })(
        store,
        world,
      ),
      commit: (batch) =>
        store.commit(
          rewrite(batch, (puts) => {
            for (const { was, row } of puts)
              if (was === null && row.dueMs !== null) world.notes.set(keyText(row), row.dueMs);
            return puts;
          }),
        ),
    }),
    breaks: ["a changed time"],
  },
  {
    bug: "passes over records that have a holder",
    by: finding({ before: (rows) => rows.filter(({ holder }) => holder === null) }),
    breaks: ["a changed time", "a lease that"],
  },

  // Sweeps.
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
    breaks: ["an empty value", "a sweep removes what"],
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
    breaks: ["a sweep removes what", "a deleted row is swept", "a deleted row stays"],
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
    breaks: ["a deleted row stays"],
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
        async entries(key, after, limit) {
          const log = await store.entries(key, after, limit);
          const kept = logs.get(keyText(key)) ?? [];
          return log.length === 0 && kept.length > 0 ? page(kept, after, limit) : log;
        },
      };
    },
    breaks: ["a row that moved", "a row of the same version", "a row that is gone", "a row made", "a sweep takes"],
  },
  {
    bug: "never lifts the fence floor",
    by: telling((found) => ({ ...found, fenceFloor: 0 })),
    breaks: ["a sweep lifts"],
  },
  {
    bug: "lifts the fence floor to the highest fence, and not above",
    by: telling((found) => ({ ...found, fenceFloor: Math.max(0, found.fenceFloor - 1) })),
    breaks: ["a sweep lifts"],
  },
  {
    bug: "keeps the fence floor to the writer who swept",
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
    breaks: ["a sweep lifts"],
  },
  {
    bug: "lets the fence floor sink",
    by: (store, world) => ({
      sweep(limit) {
        world.database.fenceFloor = 0;
        return store.sweep(limit);
      },
    }),
    breaks: ["a sweep lifts"],
  },
  {
    bug: "sweeps more than asked for",
    by: (store) => ({ sweep: () => store.sweep(1e6) }),
    breaks: ["a sweep removes at"],
  },
  {
    bug: "says how many it was asked for, not how many it swept",
    by: (store) => ({
      async sweep(limit) {
        const swept = await store.sweep(limit);
        return swept === 0 ? 0 : Math.max(swept, Math.min(limit, 7));
      },
    }),
    breaks: [
      "a row that is gone",
      "a row made",
      "positions go on",
      "a sweep removes what",
      "a deleted row stays",
      "a sweep takes",
      "a sweep lifts",
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

  // Watching.
  {
    bug: "never calls back",
    patienceMs: 200,
    by: () => ({ watch: () => () => {} }),
    breaks: ["a watch hears", "a watch that", "each watch of", "closing a store"],
  },
  {
    bug: "calls back once",
    patienceMs: 200,
    by: (store) => ({
      watch(changed) {
        const stop = store.watch(() => {
          stop();
          changed();
        });
        return stop;
      },
    }),
    breaks: ["a watch hears", "each watch of"],
  },
  {
    bug: "goes on calling back when stopped",
    by: (store) => ({
      watch(changed) {
        store.watch(changed);
        return () => {};
      },
    }),
    breaks: ["a watch that", "each watch of"],
  },
  {
    bug: "cannot stop a watch twice",
    by: (store) => ({
      watch(changed) {
        const stop = store.watch(changed);
        let stopped = false;
        return () => {
          if (stopped) throw new Error("it is not watching");
          stopped = true;
          stop();
        };
      },
    }),
    breaks: ["a watch that"],
  },
  {
    bug: "has one watch at a time",
    patienceMs: 200,
    by: (store) => {
      let stop = () => {};
      return {
        watch(changed) {
          stop();
          stop = store.watch(changed);
          return () => stop();
        },
      };
    },
    breaks: ["each watch of"],
  },
  {
    bug: "goes on calling back when closed",
    by: (_, world, namespace) => ({ watch: (changed) => world.database.connect(namespace).watch(changed) }),
    breaks: ["closing a store"],
  },

  // Closing.
  {
    bug: "goes on when closed",
    by: () => ({ close: async () => {} }),
    breaks: ["closing a store", "a closed store"],
  },
  {
    bug: "says in its own words that it is closed",
    by: (store) => ({
      read: (keys) =>
        store.read(keys).catch(() => {
          throw new Error("the database is not open");
        }),
    }),
    breaks: ["a closed store"],
  },
  {
    bug: "cannot be closed twice",
    by: (store) => {
      let closed = false;
      return {
        async close() {
          if (closed) throw new Error("the database is not open");
          closed = true;
          await store.close();
        },
      };
    },
    breaks: ["a closed store"],
  },
  {
    bug: "closes all writers with the first",
    by: (store, world) => {
      const close = () => store.close();
      return {
        close: async () => {
          world.notes.set("closed", 1);
          await close();
        },
        settle: async (lane) => {
          if (world.notes.has("closed")) await close();
          return store.settle(lane);
        },
        commit: async (batch) => {
          if (world.notes.has("closed")) await close();
          return store.commit(batch);
        },
      };
    },
    breaks: ["closing a store", "closing one writer", "what was committed is"],
  },
  {
    bug: "forgets everything when the last writer closes",
    by: (store, world) => {
      world.notes.set("open", (world.notes.get("open") ?? 0) + 1);
      return {
        async close() {
          const open = (world.notes.get("open") ?? 0) - 1;
          world.notes.set("open", open);
          if (open === 0) world.database = new MemoryDatabase(() => world.nowMs);
          await store.close();
        },
      };
    },
    breaks: ["what was committed is"],
  },

  // Races.
  {
    bug: "reads without a lock, and overwrites",
    by: readingFirst(() => true, true),
    breaks: [
      "a row of the same version",
      "a batch reads no more bytes",
      "a row that moved",
      "a refused batch",
      "an absent key is",
      "a deleted row is not",
      "a row that is gone",
      "a row made",
      "a batch that was",
      "of many who",
      "many writers that",
      "writers that ask",
      "a row that a",
      "an absent key that",
    ],
  },
  {
    bug: "protects the rows that it writes, and not those that it reads",
    by: readingFirst(() => true, false),
    breaks: ["a batch reads no more bytes", "a row that a", "an absent key that"],
  },
  {
    bug: "protects the rows that are there, and not those that are absent",
    by: readingFirst((seen, now) => seen === null || isSame(seen, now), false),
    breaks: ["a batch reads no more bytes", "an absent key that"],
  },
  {
    bug: "lets go of its rows when more are asked for",
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
    breaks: ["a batch reads no more bytes", "writers that ask"],
  },
];

const laws = lawsOf(sound).map(({ name }) => name);

/** The law whose name begins so: exactly one does. */
function lawThatBegins(start: string): string {
  const [name, ...more] = laws.filter((law) => law.startsWith(start));
  if (name === undefined || more.length > 0)
    throw new Error(`${more.length ? "several laws begin" : "no law begins"} "${start}"`);
  return name;
}

const inOrder = (names: Iterable<string>): readonly string[] => {
  const set = new Set(names);
  return laws.filter((law) => set.has(law));
};

test("a store without a mistake keeps every law", async () => {
  expect(await lawsBrokenBy(sound)).toEqual([]);
});

for (const broken of BROKEN)
  test.concurrent(`a store that ${broken.bug} is found out`, async () => {
    expect(broken.breaks).not.toEqual([]);
    expect(await lawsBrokenBy(broken)).toEqual(inOrder(broken.breaks.map(lawThatBegins)));
  });

test("every law is broken by one of the mistakes, and no two laws have one name", () => {
  expect(inOrder(BROKEN.flatMap(({ breaks }) => breaks.map(lawThatBegins)))).toEqual(laws);
  expect(new Set(laws).size).toBe(laws.length);
});
