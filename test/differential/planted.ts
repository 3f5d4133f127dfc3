/**
 * Planted differences: memory stores that are wrong in one way, as a store on some database could be. Each must be caught.
 */

import { compareUtf8 } from "../../src/kernel/check.ts";
import type {
  Batch,
  DuePage,
  DueQuery,
  Entry,
  Found,
  Key,
  ListQuery,
  Put,
  Receipt,
  Row,
  Store,
  StoredEntry,
  Verdict,
} from "../../src/kernel/contract.ts";
import { keyText } from "../../src/kernel/contract.ts";
import { WrappedStore } from "../../src/testing/wrapped-store.ts";
import { rewriting } from "./passing.ts";
import { memory, type Subject } from "./subjects.ts";

const ALL = 100_000;

/** A store that writes something else. */
function writing(change: (put: Put) => Put): (store: Store) => Store {
  return writingAll((puts) => puts.map(change));
}

function writingAll(change: (puts: readonly Put[]) => readonly Put[]): (store: Store) => Store {
  return (store) =>
    new (class extends WrappedStore {
      override commit(batch: Batch): Promise<Receipt> {
        return super.commit(rewriting(batch, change));
      }
    })(store);
}

const column =
  (change: (row: Row, was: Row | null) => Partial<Row>) =>
  ({ was, row, entries }: Put): Put => ({ was, row: { ...row, ...change(row, was) }, entries });

const line =
  (change: (entry: Entry) => Partial<Entry>) =>
  ({ was, row, entries }: Put): Put => ({ was, row, entries: entries.map((one) => ({ ...one, ...change(one) })) });

/** A store that takes different names for one. */
function folding(fold: (name: Key) => Key): (store: Store) => Store {
  const folded = <K extends Key>(key: K): K => ({ ...key, ...fold(key), text: keyText(fold(key)) });
  const put = (given: Put): Put => ({
    ...given,
    was: given.was === null ? null : folded(given.was),
    row: folded(given.row),
  });
  return (store) =>
    new (class extends WrappedStore {
      override async commit(batch: Batch): Promise<Receipt> {
        let puts: readonly Put[] = [];
        const decide = (found: Found): Verdict => {
          const verdict = batch.decide(found);
          if ("lock" in verdict) return { lock: verdict.lock.map(folded) };
          puts = verdict.puts;
          return { puts: puts.map(put) };
        };
        const receipt = await super.commit({ ...batch, lock: batch.lock.map(folded), decide });
        if (receipt.committed) return receipt;
        // In the names that the batch knows, or it would be sent again for ever.
        const moved = new Set(receipt.moved.map(keyText));
        return { ...receipt, moved: puts.map(({ row }) => row).filter((row) => moved.has(keyText(folded(row)))) };
      }
      override read(keys: readonly Key[]): Promise<readonly (Row | null)[]> {
        return super.read(keys.map(folded));
      }
      override list(query: ListQuery): Promise<readonly Row[]> {
        return super.list({ ...query, space: folded({ space: query.space, key: "" }).space });
      }
      override entries(key: Key, after: number, limit: number): Promise<readonly StoredEntry[]> {
        return super.entries(folded(key), after, limit);
      }
    })(store);
}

function listing(list: (query: ListQuery, pass: Store["list"]) => Promise<readonly Row[]>): (store: Store) => Store {
  return (store) =>
    new (class extends WrappedStore {
      override list(query: ListQuery): Promise<readonly Row[]> {
        return list(query, (asked) => super.list(asked));
      }
    })(store);
}

/** Lists in an order of its own. */
const listingBy = (compare: (a: string, b: string) => number) =>
  listing(async ({ space, prefix, after, limit }, pass) =>
    (await pass({ space, prefix, after: null, limit: ALL }))
      .filter(({ key }) => after === null || compare(key, after) > 0)
      .sort((a, b) => compare(a.key, b.key))
      .slice(0, limit),
  );

const byUtf16 = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);

/** A prefix with the wildcards that SQL knows. */
function pattern(prefix: string): RegExp {
  const wild = (char: string) =>
    char === "%" ? ".*" : char === "_" ? "." : `\\u{${char.codePointAt(0)?.toString(16)}}`;
  return new RegExp(`^${Array.from(prefix, wild).join("")}`, "su");
}

function looking(due: (query: DueQuery, pass: Store["due"]) => Promise<DuePage>): (store: Store) => Store {
  return (store) =>
    new (class extends WrappedStore {
      override due(query: DueQuery): Promise<DuePage> {
        return due(query, (asked) => super.due(asked));
      }
    })(store);
}

type Entries = (
  after: number,
  limit: number,
  pass: (after: number, limit: number) => Promise<readonly StoredEntry[]>,
) => Promise<readonly StoredEntry[]>;

function reading(entries: Entries): (store: Store) => Store {
  return (store) =>
    new (class extends WrappedStore {
      override entries(key: Key, after: number, limit: number): Promise<readonly StoredEntry[]> {
        return entries(after, limit, (from, most) => super.entries(key, from, most));
      }
    })(store);
}

/** Does not check whether the rows are still what the batch assumes. */
class Credulous extends WrappedStore {
  override async commit(batch: Batch): Promise<Receipt> {
    let believed: readonly Put[] = [];
    const receipt = await super.commit(rewriting(batch, (puts) => (believed = puts)));
    if (receipt.committed) return receipt;
    const rows = await this.read(believed.map(({ row }) => row));
    const puts = believed.map((put, index) => ({ ...put, was: rows[index] ?? null }));
    return super.commit({ ...batch, lock: [], decide: () => ({ puts }) });
  }
}

class Timeless extends WrappedStore {
  #epoch = 0;

  override async settle(lane: number): Promise<{ readonly epoch: number; readonly sequence: number }> {
    const settled = await super.settle(lane);
    this.#epoch = settled.epoch;
    return settled;
  }

  override commit(batch: Batch): Promise<Receipt> {
    return super.commit({ ...batch, epoch: this.#epoch });
  }
}

/** Remembers that a record is absent, also when another has made it. */
class Forgetless extends WrappedStore {
  readonly #absent = new Set<string>();

  override commit(batch: Batch): Promise<Receipt> {
    return super.commit(
      rewriting(batch, (puts) => {
        for (const { row } of puts) this.#absent.delete(keyText(row));
        return puts;
      }),
    );
  }

  override async read(keys: readonly Key[]): Promise<readonly (Row | null)[]> {
    const rows = await super.read(keys);
    return rows.map((row, index) => {
      const text = keyText(keys[index] ?? { space: "", key: "" });
      if (row === null) this.#absent.add(text);
      return this.#absent.has(text) ? null : row;
    });
  }
}

class Floorless extends WrappedStore {
  override commit(batch: Batch): Promise<Receipt> {
    return super.commit({ ...batch, decide: (found) => batch.decide({ ...found, fenceFloor: 0 }) });
  }
}

class Sweeper extends WrappedStore {
  override sweep(): Promise<number> {
    return super.sweep(ALL);
  }
}

class Renumbering extends WrappedStore {
  #reads = 0;

  override async read(keys: readonly Key[]): Promise<readonly (Row | null)[]> {
    this.#reads += 1;
    return (await super.read(keys)).map((row) => (row === null ? null : { ...row, id: row.id + 1000 * this.#reads }));
  }
}

const wraps: Readonly<Record<string, (store: Store) => Store>> = {
  "a list does not continue where it was": listing((query, pass) => pass({ ...query, after: null })),
  "a list begins with the name it should continue after": listing(async ({ after, ...query }, pass) => {
    const rows = await pass({ ...query, after: null, limit: ALL });
    return rows.filter(({ key }) => after === null || compareUtf8(key, after) >= 0).slice(0, query.limit);
  }),
  "a list is one short": listing((query, pass) => pass({ ...query, limit: Math.max(1, query.limit - 1) })),
  "a prefix is taken for a pattern": listing(async ({ prefix, limit, ...query }, pass) =>
    (await pass({ ...query, prefix: "", limit: ALL })).filter(({ key }) => pattern(prefix).test(key)).slice(0, limit),
  ),
  "a prefix is not case sensitive": listing(async ({ prefix, limit, ...query }, pass) =>
    (await pass({ ...query, prefix: "", limit: ALL }))
      .filter(({ key }) => key.toLowerCase().startsWith(prefix.toLowerCase()))
      .slice(0, limit),
  ),
  "names are in the order of JavaScript": listingBy(byUtf16),
  "names are in the order of a dictionary": listingBy((a, b) => a.localeCompare(b, "en") || byUtf16(a, b)),
  "names are not case sensitive": folding(({ space, key }) => ({ space, key: key.toLowerCase() })),
  "spaces are not case sensitive": folding(({ space, key }) => ({ space: space.toLowerCase(), key })),
  "names are normalized": folding(({ space, key }) => ({ space, key: key.normalize("NFC") })),
  "names lose the blanks at their end": folding(({ space, key }) => ({ space, key: key.replace(/(?<=.) +$/, "") })),
  "names are cut after 255 bytes": folding(({ space, key }) => ({ space, key: key.slice(0, 255) })),
  "a log entry loses its last character": writing(line(({ data }) => ({ data: data.slice(0, -1) }))),
  "a log entry without a name gets one": writing(line(({ name }) => ({ name: name === "" ? "unnamed" : name }))),
  "a log entry loses its line ends": writing(line(({ name }) => ({ name: name.replace("\r\n", "\n") }))),
  "the version is one too high when a record is made again": writing(
    column((row, was) => (was?.value === null && row.value !== null ? { version: row.version + 1 } : {})),
  ),
  "an empty status is none": writing(column(({ status }) => ({ status: status === "" ? null : status }))),
  'the status "NULL" is none': writing(column(({ status }) => ({ status: status === "NULL" ? null : status }))),
  "an empty value is none": writing(column(({ value }) => ({ value: value === "" ? null : value }))),
  "times are kept in seconds": writing(
    column(({ dueMs }) => ({ dueMs: dueMs === null ? null : Math.floor(dueMs / 1000) * 1000 })),
  ),
  "wake-ups are not counted": writing(column((_, was) => ({ wakes: was?.wakes ?? 0 }))),
  "tries are not counted": writing(column(() => ({ tries: 0 }))),
  "a holder stays when it rests": writing(column(({ holder }, was) => ({ holder: holder ?? was?.holder ?? null }))),
  "a value is cut at 64 KiB": writing(
    column(({ value }) => ({ value: value === null ? null : value.slice(0, 65_535) })),
  ),
  "a value loses what is above U+FFFF": writing(
    column(({ value }) => ({ value: value?.replace(/[\u{10000}-\u{10ffff}]/gu, "?") ?? null })),
  ),
  "the 65th row of a batch is lost": writingAll((puts) => puts.filter((_, index) => index !== 64)),
  "due ignores its limit": looking((query, pass) => pass({ ...query, limit: ALL })),
  "due begins with the latest": looking(async (query, pass) => {
    const page = await pass({ ...query, limit: ALL });
    return { ...page, keys: page.keys.toReversed().slice(0, query.limit) };
  }),
  "due is not case sensitive": looking((query, pass) =>
    pass({ ...query, kinds: query.kinds.flatMap((kind) => [kind, kind.toLowerCase()]) }),
  ),
  "due does not return the next time": looking(async (query, pass) => ({ ...(await pass(query)), nextDueMs: null })),
  "a log is read from its beginning": reading((_, limit, pass) => pass(0, limit)),
  "a log is read without a limit": reading((after, _, pass) => pass(after, ALL)),
  "positions of a log do not rise": reading(async (after, limit, pass) =>
    (await pass(after, limit)).map((entry) => ({ ...entry, position: 1 })),
  ),
  "a log is stamped in seconds": reading(async (after, limit, pass) =>
    (await pass(after, limit)).map((entry) => ({ ...entry, atMs: Math.floor(entry.atMs / 1000) })),
  ),
  "a batch is believed": (store) => new Credulous(store),
  "a late batch is taken": (store) => new Timeless(store),
  "absence is remembered too long": (store) => new Forgetless(store),
  "the fence floor is forgotten": (store) => new Floorless(store),
  "a sweep takes more than it was asked to": (store) => new Sweeper(store),
  "a row changes its number": (store) => new Renumbering(store),
};

/** Namespaces that are one. */
const shared: Subject = {
  name: "a neighbour sees our records",
  async open(clock) {
    const ground = await memory("").open(clock);
    return { ...ground, connect: () => ground.connect("ours") };
  },
};

export const planted: readonly Subject[] = [
  ...Object.entries(wraps).map(([name, wrap]) => memory(name, { wrap })),
  shared,
];
