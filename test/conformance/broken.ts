/**
 * Memory stores with one mistake each, of the kind that authors of stores make: how they are made, and which laws of the conformance suite
 * they break. The mistakes are in `mistakes`, by the subject of the law that must find them.
 */

import { compareUtf8 } from "../../src/kernel/check.ts";
import {
  type Batch,
  type DueKey,
  type DuePage,
  type DueQuery,
  type Executor,
  type FollowedEntry,
  type FollowPage,
  type FollowQuery,
  type Found,
  type Key,
  keyText,
  type ListQuery,
  type Put,
  type Receipt,
  type Row,
  type SqlStore,
  type Store,
  type StoredEntry,
} from "../../src/kernel/contract.ts";
import { StoreError } from "../../src/kernel/errors.ts";
import { takeUpTo } from "../../src/kernel/read-budget.ts";
import { MemoryDatabase } from "../../src/stores/memory/memory.ts";
import { type Harness, storeConformance } from "../../src/testing/conformance/conformance.ts";

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
  /** For stores that draw positions before they commit. */
  readonly positions = new Positions();

  /** The memory store as an object, so that single methods can be replaced. */
  connect(namespace: string): Store {
    this.namespaces.add(namespace);
    const { database } = this;
    const store = database.connect(namespace, { lanes: 2 });
    const watches = new Set<() => void>();
    return {
      lanes: store.lanes,
      isRemote: store.isRemote,
      hasOneWriter: store.hasOneWriter,
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
      entries: (key, after, limit, maxBytes) => store.entries(key, after, limit, maxBytes),
      follow: (query) => store.follow(query),
      due: (query) => store.due(query),
      sweep: (limit) => store.sweep(limit),
      prune: (key, upTo, limit) => store.prune(key, upTo, limit),
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

/** A sequence, and who is drawing from it, as a server has them. */
class Positions {
  last = 0;
  /** By namespace, for each transaction that may draw: what was drawn before it announced itself. */
  readonly open = new Map<string, Set<{ bound: number }>>();
  /** The position of each entry that is committed, by its place in the memory store. */
  readonly drawn = new Map<number, number>();

  of(namespace: string): Set<{ bound: number }> {
    const open = this.open.get(namespace) ?? new Set();
    this.open.set(namespace, open);
    return open;
  }
}

export interface Broken {
  readonly bug: string;
  /** How the names of the laws begin that this mistake breaks. */
  readonly breaks: readonly string[];
  /** The methods that are wrong. */
  readonly by: (store: Store, world: World, namespace: string) => Partial<SqlStore>;
  readonly namespaceOf?: (name: string) => string;
  /** Short where the laws would wait for something that never comes. */
  readonly patienceMs?: number;
}

export const sound: Broken = { bug: "none", breaks: [], by: () => ({}) };

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

export const lawsOf = (broken: Broken) =>
  storeConformance({ open: opening(broken), patienceMs: broken.patienceMs ?? 10_000 });

export async function lawsBrokenBy(broken: Broken): Promise<readonly string[]> {
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

export const tick = () => new Promise<void>((resolve) => setImmediate(resolve));

/** Writes something else than decide said; sees the rows as they are in the store. */
export function rewrite(batch: Batch, change: (puts: readonly Put[], rows: Found["rows"]) => readonly Put[]): Batch {
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

export const rewriting =
  (change: (puts: readonly Put[], rows: Found["rows"]) => readonly Put[]) =>
  (store: Store): Partial<Store> => ({ commit: (batch) => store.commit(rewrite(batch, change)) });

/** Writes other rows than decide said. */
export const writingRows = (change: (row: Row, was: Row | null) => Row) =>
  rewriting((puts) => puts.map((put) => ({ ...put, row: change(put.row, put.was) })));

/** Believes something else about what a row replaces. */
export const believing = (change: (was: Row | null, now: Row | null) => Row | null) =>
  rewriting((puts, rows) => puts.map((put, index) => ({ ...put, was: change(put.was, rows[index] ?? null) })));

/** Tells decide something else than what was found. */
export const telling =
  (change: (found: Found, round: number, batch: Batch) => Found) =>
  (store: Store): Partial<Store> => ({
    commit(batch) {
      let round = 0;
      return store.commit({ ...batch, decide: (found) => batch.decide(change(found, round++, batch)) });
    },
  });

export const answering =
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
export const taking =
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
      entries: (key, after, limit, maxBytes) => store.entries(named(key), after, limit, maxBytes),
    };
  };

/** Lacks a property of the contract, as a store written in JavaScript can. */
export const without = (name: keyof Store) => (): Partial<Store> => ({ [name]: undefined });

/** Settles and commits by its own account of epochs and sequences. */
export const settling =
  (account: (mark: { epoch: number; sequence: number }, lane: number) => { epoch: number; sequence: number }) =>
  (store: Store): Partial<Store> => ({ settle: async (lane) => account(await store.settle(lane), lane) });

/** Reads first and writes later; `holds` says whether a row that was seen must still be as it was. */
export const readingFirst =
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

export const isSame = (a: Row | null, b: Row | null): boolean => a?.id === b?.id && a?.version === b?.version;

/** Finds due records in a way of its own. */
interface Finding {
  readonly isDue?: (row: Row, nowMs: number) => boolean;
  readonly timeOf?: (row: Row) => number | null;
  readonly before?: (rows: Row[], query: DueQuery) => Row[];
  readonly order?: (a: Row, b: Row) => number;
  readonly next?: (nextDueMs: number | null, page: DuePage) => number | null;
  readonly shown?: (row: Row) => DueKey;
}

export const shownDue = ({ space, key, kind, tries }: Row): DueKey => ({ space, key, kind: kind ?? "", tries });

export const finding =
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

export const COMPARE: Readonly<Record<Order, (a: Place, b: Place) => number>> = {
  key: (a, b) => compareUtf8(a.key, b.key),
  newest: (a, b) => b.id - a.id,
  oldest: (a, b) => a.id - b.id,
};

export const isOneOf = (text: string | null, texts: readonly string[] | undefined): boolean =>
  texts === undefined || (text !== null && texts.includes(text));

export const isChosen = ({ kind, status }: Row, { kinds, statuses }: ListQuery): boolean =>
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

export function pageOf(rows: readonly Row[], query: ListQuery, way: Listing = {}): readonly Row[] {
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

export const allOf = (store: Store, space: string) => store.list({ space, prefix: "", after: null, limit: 1e6 });

export const listing =
  (way: Listing) =>
  (store: Store): Partial<Store> => ({
    list: async (query) => pageOf(await allOf(store, query.space), query, way),
  });

/** Chooses by kinds and statuses in a way of its own. */
export const choosing = (isIt: (text: string | null, texts: readonly string[]) => boolean) =>
  listing({
    isChosen: ({ kind, status }, { kinds, statuses }) =>
      (kinds === undefined || isIt(kind, kinds)) && (statuses === undefined || isIt(status, statuses)),
  });

/** Lists deleted rows among the others, where it is asked like this. */
export const listingDeleted =
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

export const isByNumber = ({ order = "key" }: ListQuery): boolean => order !== "key";

export const readingLog =
  (change: (log: readonly StoredEntry[], after: number, limit: number, maxBytes?: number) => readonly StoredEntry[]) =>
  (store: Store): Partial<Store> => ({
    entries: async (key, after, limit, maxBytes) => change(await store.entries(key, 0, 1e6), after, limit, maxBytes),
  });

export const page = (log: readonly StoredEntry[], after: number, limit: number, maxBytes?: number) =>
  takeUpTo(log.filter(({ version }) => version > after).slice(0, limit), ({ data }) => data, maxBytes).taken;

/** Follows in a way of its own. */
export const following =
  (
    change: (page: FollowPage, query: FollowQuery) => FollowPage,
    asked: (query: FollowQuery) => FollowQuery = (q) => q,
  ) =>
  (store: Store): Partial<Store> => ({ follow: async (query) => change(await store.follow(asked(query)), query) });

/** A page of these entries, which are in order; the last position is the highest that may be read. */
export function followPageOf(
  entries: readonly FollowedEntry[],
  query: FollowQuery,
  { nowMs, upTo: last }: Pick<FollowPage, "nowMs" | "upTo">,
): FollowPage {
  const { space, prefix = "", names, after, limit, maxBytes } = query;
  const looked = entries.filter((entry) => entry.space === space && entry.position > after).slice(0, limit);
  const isChosen = ({ key, name }: FollowedEntry): boolean => key.startsWith(prefix) && isOneOf(name, names);
  const { taken, isFull } = takeUpTo(looked, (entry) => (isChosen(entry) ? entry.data : null), maxBytes);
  const hasMore = isFull || taken.length === limit;
  return {
    nowMs,
    entries: taken.filter(isChosen),
    upTo: hasMore ? (taken.at(-1)?.position ?? after) : Math.max(after, last),
    hasMore,
  };
}

export const allFollowed = async (store: Store, space: string): Promise<readonly FollowedEntry[]> =>
  (await store.follow({ space, after: 0, limit: 1e6 })).entries;

/** What can be wrong about a store that draws positions before it commits. */
interface Drawing {
  /** Announces a transaction when it has drawn, and not before. */
  readonly announcesLate?: boolean;
  /** A transaction that is rolled back is never taken for ended. */
  readonly keepsLost?: boolean;
  /** Reads the entries first, and looks afterwards how far it may read. */
  readonly readsFirst?: boolean;
  /** How far may be read, by the last position that was drawn and what open transactions announced. */
  readonly horizon?: (last: number, bounds: readonly number[]) => number;
  /** What a page says in the end. */
  readonly page?: (page: FollowPage, query: FollowQuery) => FollowPage;
}

/**
 * A store as a server is one: positions are drawn when something is written, and others see it when it is committed, perhaps in another
 * order. Its transactions can be shared.
 */
export const drawing =
  (way: Drawing) =>
  (store: Store, world: World, namespace: string): Partial<SqlStore> => {
    const { positions } = world;
    const open = positions.of(namespace);
    const joint = world.database.connect(namespace, { lanes: 8 });
    const transactions = new Map<
      Executor,
      { readonly puts: Put[]; readonly drawn: number[]; mine?: { bound: number } }
    >();
    const horizonOf = way.horizon ?? ((last, bounds) => Math.min(last, ...bounds));
    const announce = () => {
      const mine = { bound: positions.last };
      open.add(mine);
      return mine;
    };
    /** Announces, unless that was done, and draws a position for each entry. */
    const draw = (puts: readonly Put[], announced?: { bound: number }) => {
      const early = way.announcesLate === true ? undefined : (announced ?? announce());
      const drawn = puts.flatMap(({ entries }) => entries.map(() => ++positions.last));
      return { drawn, mine: early ?? announced ?? announce() };
    };
    const place = async (puts: readonly Put[], drawn: readonly number[]) => {
      const left = [...drawn];
      for (const { row, entries } of puts) {
        const own = left.splice(0, entries.length);
        const stored = await store.entries(row, row.head - entries.length, entries.length);
        stored.forEach(({ position }, index) => {
          positions.drawn.set(position, own[index] ?? 0);
        });
      }
    };
    const read = async (space: string) =>
      (await allFollowed(store, space))
        .flatMap((entry) => {
          const position = positions.drawn.get(entry.position);
          return position === undefined ? [] : [{ ...entry, position }];
        })
        .toSorted((a, b) => a.position - b.position);
    let rounds = 0;
    return {
      settle: (lane) => (lane < store.lanes ? store.settle(lane) : joint.settle(lane - store.lanes)),
      async commit(batch) {
        let puts: readonly Put[] = [];
        let drawn: { drawn: readonly number[]; mine: { bound: number } } | undefined;
        const keep = (verdict: ReturnType<Batch["decide"]>) => {
          if ("puts" in verdict && verdict.puts.some(({ entries }) => entries.length > 0)) {
            puts = verdict.puts;
            drawn = draw(puts);
          }
          return verdict;
        };
        try {
          // Others come between what is drawn and its commit, wherever nothing has to be locked first.
          if (batch.lock.length > 0 || batch.needsClock) {
            const receipt = await store.commit({ ...batch, decide: (found) => keep(batch.decide(found)) });
            if (receipt.committed) await place(puts, drawn?.drawn ?? []);
            return receipt;
          }
          const { fenceFloor } = world.database;
          const verdict = keep(batch.decide({ nowMs: null, fenceFloor, rows: [] }));
          for (let turns = drawn === undefined ? 0 : (rounds++ * 7) % 5; turns > 0; turns--) await tick();
          let isFirst = true;
          const decide: Batch["decide"] = (found) => {
            const first = isFirst;
            isFirst = false;
            return first ? verdict : keep(batch.decide(found));
          };
          const receipt = await store.commit({ ...batch, decide });
          if (receipt.committed) await place(puts, drawn?.drawn ?? []);
          return receipt;
        } finally {
          if (drawn !== undefined) open.delete(drawn.mine);
        }
      },
      async entries(key, after, limit, maxBytes) {
        const stored = await store.entries(key, after, limit, maxBytes);
        return stored.map((entry) => ({ ...entry, position: positions.drawn.get(entry.position) ?? entry.position }));
      },
      async follow(query) {
        const early = way.readsFirst === true ? await read(query.space) : undefined;
        if (early !== undefined) for (let turns = 0; turns < 3; turns++) await tick();
        const { last } = positions;
        const horizon = horizonOf(
          last,
          [...open].map(({ bound }) => bound),
        );
        const entries = (early ?? (await read(query.space))).filter(({ position }) => position <= horizon);
        const { nowMs } = await store.due({ kinds: [], limit: 1 });
        if (query.after > last) return { nowMs, entries: [], upTo: last, hasMore: false };
        const page = followPageOf(entries, query, { nowMs, upTo: horizon });
        return way.page?.(page, query) ?? page;
      },
      maxShared: 8,
      async share({ lane, epoch, sequence }, work) {
        const transaction = { puts: [], drawn: [] };
        const executor: Executor = async () => [];
        transactions.set(executor, transaction);
        let isCommitted = false;
        try {
          const value = await work({ query: async () => ({ rows: [], rowCount: 0 }) }, executor);
          const { puts, drawn } = transaction;
          const mark = { lane: lane - store.lanes, epoch, sequence, lock: [], needsClock: false };
          const receipt = await joint.commit({ ...mark, decide: () => ({ puts }) });
          if (!receipt.committed) throw new StoreError("store_busy", "retry", "rows moved");
          isCommitted = true;
          await place(puts, drawn);
          return value;
        } finally {
          const { mine } = transactions.get(executor) ?? {};
          if (mine !== undefined && (isCommitted || way.keepsLost !== true)) open.delete(mine);
        }
      },
      async join(executor, { lock, decide }) {
        const transaction = transactions.get(executor);
        if (transaction === undefined) throw new Error("there is no such transaction");
        const { nowMs, database } = world;
        const verdict = decide({ nowMs, fenceFloor: database.fenceFloor, rows: await store.read(lock) });
        if ("lock" in verdict) return { written: false };
        const { drawn, mine } = draw(verdict.puts, transaction.mine);
        transaction.mine = mine;
        transaction.puts.push(...verdict.puts);
        transaction.drawn.push(...drawn);
        return { written: true, committed: Promise.resolve(true) };
      },
    };
  };

/** Marks other entries as followed than decide said. */
export const markingFollowed = (isFollowed: boolean) =>
  rewriting((puts) => puts.map((put) => ({ ...put, entries: put.entries.map((entry) => ({ ...entry, isFollowed })) })));

/** Sweeps as if the clock were elsewhere. */
export const sweepingAt =
  (offsetMs: number) =>
  (store: Store, world: World): Partial<Store> => ({
    sweep(limit) {
      world.nowMs += offsetMs;
      const swept = store.sweep(limit);
      world.nowMs -= offsetMs;
      return swept;
    },
  });
