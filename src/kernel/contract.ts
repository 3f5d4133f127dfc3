/**
 * The store contract: what Pawl asks of a database. A store knows rows, locks, a clock and a wake-up, and nothing else.
 *
 * A record is one row with a version; its past is a log of entries. `commit` is the only way to write: the store locks and
 * reads the rows named, hands them to `decide`, and writes what comes back, all in one transaction. All rules live above,
 * in decisions, so they are the same on every store.
 *
 * Each rule below is a law of the conformance suite (`storeConformance` in `pawl/testing`), which every store passes.
 */

/** Names a record within the store's namespace. */
export interface Key {
  readonly space: string;
  readonly key: string;
}

/** What is true of one record now. */
export interface Row extends Key {
  /** The store's own number for the row; 0 in a row that is not stored yet. */
  readonly id: number;
  /** Increases with every write, through deletion and re-creation; at least 1 in a row that is stored. */
  readonly version: number;
  /**
   * A random number, drawn anew for each write. Together with the version it identifies the row's content: after a promotion or a
   * restore that loses commits, versions are given out again, and stamps are not.
   */
  readonly stamp: number;
  /** Rises with every claim or grant, and with nothing else. */
  readonly fence: number;
  /** Counts the wake-ups that reached the record, so that one between a look and a rest is noticed. */
  readonly wakes: number;
  /** How often it was claimed since it last rested; counted at the claim, so a process that dies is counted too. */
  readonly tries: number;
  /** Who holds the lease, or null. */
  readonly holder: string | null;
  /** The queue that workers claim it from, or null for a record that is not claimed. */
  readonly kind: string | null;
  readonly status: string | null;
  /** When it next needs attention: a timer, or the end of the holder's lease. */
  readonly dueMs: number | null;
  /** The version of its newest log entry; 0 before the first. */
  readonly head: number;
  /** The encoded value; null once deleted. A deleted row stays until `dueMs`, so that its numbers go on rising. */
  readonly value: string | null;
}

/** A row that is not stored yet, before it gets a name and a value. */
export const NEW_ROW: Row = {
  id: 0,
  space: "",
  key: "",
  version: 0,
  stamp: 0,
  fence: 0,
  wakes: 0,
  tries: 0,
  holder: null,
  kind: null,
  status: null,
  dueMs: null,
  head: 0,
  value: null,
};

/** What happened: one entry of a record's log. Versions are gapless and start at 1; only the oldest can be removed (`Store.prune`). */
export interface Entry {
  readonly version: number;
  readonly name: string;
  readonly data: string;
  /** It takes a place in the order that `Store.follow` reads. Default: it does not, and costs nothing there. */
  readonly isFollowed?: boolean;
}

export interface StoredEntry extends Entry {
  /** The store's clock when it was committed. */
  readonly atMs: number;
  /** Rises with every entry of the store, in no promised step. */
  readonly position: number;
}

/** An entry of one of the logs that are read together, with the record that it belongs to. */
export interface FollowedEntry extends StoredEntry, Key {}

/** One row to write, with what it replaces: the store refuses the batch unless the row there has the version and the stamp of `was`. */
export interface Put {
  readonly was: Row | null;
  readonly row: Row;
  /** New log entries, `was.head + 1` up to `row.head`. */
  readonly entries: readonly Entry[];
}

/** What the store read for a batch. */
export interface Found {
  /**
   * The store's clock, read after the first locks were acquired; the same in later rounds. Null if the batch locks nothing and does not need the
   * clock, and reading it would cost the store a round trip.
   */
  readonly nowMs: number | null;
  /** No fence below this may be given out: it is above the fence of every row that was ever removed. */
  readonly fenceFloor: number;
  /** One for each key asked for, in that order: the row, null if there is none, undefined if it was not read. */
  readonly rows: readonly (Row | null | undefined)[];
  /** Why rows were not read: true if the batch had read `maxBytes`; otherwise another transaction has locked them. */
  readonly isFull?: boolean;
}

/** What a batch says once it has seen its rows: lock these as well and ask again, or write this. */
export type Verdict = { readonly lock: readonly Key[] } | { readonly puts: readonly Put[] };

export interface Batch {
  /** One of the store's lanes; at most one batch of each is under way. */
  readonly lane: number;
  /** From the lane's last `settle`; a batch of an older epoch is refused, however late it arrives. */
  readonly epoch: number;
  /** Rises with each batch of the lane, and is stored with what it writes. */
  readonly sequence: number;
  /** Rows to lock and read first, each once. Empty for a batch whose rows are all known: one round trip, no read. */
  readonly lock: readonly Key[];
  /** Waits for rows that another has locked, one after the other in the order given, for a bounded time. Default: no wait. */
  readonly mayWait?: boolean;
  /** How many bytes of values may be read, in all rounds together; one row is read in any case. Default: no limit. */
  readonly maxBytes?: number | undefined;
  /** Whether `decide` needs the clock although nothing is locked. */
  readonly needsClock: boolean;
  /** Synchronous. Keys that are absent are protected like those that are there. Throwing drops the batch. */
  decide(found: Found): Verdict;
}

/**
 * A batch was written whole, or not at all because rows are not what it assumed. A record that was assumed to be absent, and not locked, may be
 * listed in `moved` although it really is absent; the next batch locks it and sees that.
 */
export type Receipt =
  | {
      readonly committed: true;
      /** The store's clock; 0 if nothing was locked nor written, and the store would have had to ask for it. */
      readonly nowMs: number;
      /** One for each put. */
      readonly ids: readonly number[];
    }
  | {
      readonly committed: false;
      readonly moved: readonly Key[];
      /** One of them is being made by a transaction that has not ended, which may take long: the decisions that need them go alone. */
      readonly isHeld?: boolean;
    };

export interface DueQuery {
  readonly kinds: readonly string[];
  readonly limit: number;
}

/** A record that is due, with what tells whether to claim it. */
export interface DueKey extends Key {
  readonly kind: string;
  readonly tries: number;
}

export interface DuePage {
  readonly nowMs: number;
  /** Records that are due now, the longest due first within a kind. A hint: only a claim under the lock decides. */
  readonly keys: readonly DueKey[];
  /** When the next of these kinds comes due, if any does after `nowMs`. */
  readonly nextDueMs: number | null;
}

export interface ListQuery {
  readonly space: string;
  readonly prefix: string;
  /** By key, in the order of their UTF-8 bytes; or by the rows' numbers, which is about the order in which they were made. Default: by key. */
  readonly order?: "key" | "newest" | "oldest" | undefined;
  /** Only what comes after this in the order: a key, or for newest and oldest the number of a row as text. */
  readonly after: string | null;
  /** Only rows of one of these kinds; none of them gives nothing. */
  readonly kinds?: readonly string[] | undefined;
  /** Only rows with one of these statuses; none of them gives nothing. */
  readonly statuses?: readonly string[] | undefined;
  readonly limit: number;
}

export interface FollowQuery {
  /** Only entries of records in this space. */
  readonly space: string;
  /** Only entries of records whose keys begin with this. Default: all. */
  readonly prefix?: string | undefined;
  /** Only entries with one of these names; none of them gives nothing. Default: all. */
  readonly names?: readonly string[] | undefined;
  /** Only what comes after this position: 0 at the start, then `upTo` of the page before. */
  readonly after: number;
  /** How many entries of the space are looked at, chosen or not, so that a page is bounded whatever is chosen. At least 1. */
  readonly limit: number;
  /** The page ends with the entry with which the data of those that are chosen has as many bytes in UTF-8. Default: no limit. */
  readonly maxBytes?: number | undefined;
}

/** What is left of an entry whose place is known. */
export interface LostEntry extends Key {
  readonly version: number;
  readonly position: number;
}

export interface FollowPage {
  /** The store's clock, read after `follow` was called. */
  readonly nowMs: number;
  /** In the order of their positions. Entries of one record are in the order of their versions, without gaps unless some are not chosen or were pruned. */
  readonly entries: readonly FollowedEntry[];
  /**
   * Entries that have a place on this page, and are not in their log although their record is there and not deleted: the store has lost them. Of
   * the keys asked for; whether their names are is not known. None: absent. In the order of their positions.
   */
  readonly lost?: readonly LostEntry[];
  /**
   * Where to continue. Every followed entry of the space at or before it was looked at, on this page or before: none appears there later,
   * in whatever order transactions commit. It may be ahead of the last entry. It is below `after` only if the store has not given
   * out that position yet: it was put back in time, and what was followed may be gone.
   */
  readonly upTo: number;
  /** Whether the page ended because of one of its limits. Otherwise all that may be followed now has been looked at. */
  readonly hasMore: boolean;
}

/** One writer's connection to a database, in one namespace. */
export interface Store {
  /** How many batches of this writer may be under way concurrently. */
  readonly lanes: number;
  /** Whether reading a row costs a round trip. Then a row that this process knows is worth assuming instead of reading. */
  readonly isRemote: boolean;
  /** Whether an open transaction, of any process, makes all other commits wait, as in a file with one write lock. */
  readonly hasOneWriter: boolean;
  /**
   * Makes sure that no batch of the lane is still in flight, starts a new epoch, and returns the last sequence that was committed.
   * It may leave out batches that wrote nothing. A sequence below one that was acknowledged before says that the store was put back in time, or
   * has lost the lane's mark (-1): what the lane committed last is then unknown.
   */
  settle(lane: number): Promise<{ readonly epoch: number; readonly sequence: number }>;
  commit(batch: Batch): Promise<Receipt>;
  /** Committed rows, without locks; deleted ones too. Each commit is seen whole or not at all. */
  read(keys: readonly Key[]): Promise<readonly (Row | null)[]>;
  /** Rows that are not deleted, a page of them, in the order asked for. */
  list(query: ListQuery): Promise<readonly Row[]>;
  /**
   * A record's log after the given version, in order: at most `limit` entries, and none after the one with which their data has at least `maxBytes`
   * bytes in UTF-8; one entry is read in any case. So a page with fewer entries and fewer bytes is the last one. Default: no limit of bytes.
   */
  entries(key: Key, after: number, limit: number, maxBytes?: number): Promise<readonly StoredEntry[]>;
  /**
   * The followed entries of many records' logs, a page of them, in one order that is safe to continue from. An entry waits for
   * transactions that were open when it was written and append followed entries too, so that the order never changes behind a reader.
   */
  follow(query: FollowQuery): Promise<FollowPage>;
  due(query: DueQuery): Promise<DuePage>;
  /** Removes deleted rows whose time has come, with their logs, and lifts the fence floor above theirs. Answers how many. */
  sweep(limit: number): Promise<number>;
  /**
   * Removes entries of a record's log up to and including version `upTo`, oldest first: at most `limit`, and at least one if there is one.
   * Answers how many; 0 when none is left. The row, its head and later entries stay as they are, and what is appended next continues after the
   * head. What was removed is in no answer of `entries` or `follow` again.
   */
  prune(key: Key, upTo: number, limit: number): Promise<number>;
  /**
   * Where commits can be lost: calls back when an answer comes from another server than the last one, or from one that has been started
   * again, before a batch is decided on that answer. What this process remembers may then be of commits that are no longer there.
   */
  watchRestarts?(restarted: () => void): void;
  /** Calls back after other writers' commits, soon but not surely. Answers how to stop it. */
  watch(changed: () => void): () => void;
  close(): Promise<void>;
}

/** Runs one statement in a transaction of the application, and returns its rows. The text has `$1` (or `?`) at most once, and one text for it. */
export type Executor = (text: string, value?: string) => Promise<readonly unknown[]>;

/** What a decision needs inside a transaction of the application: as in a batch, but the application opens and ends the transaction. */
export type Joining = Pick<Batch, "lock" | "decide">;

/**
 * It is written, and takes effect when the transaction is committed. `committed` resolves with whether it was, as far as the store can see that,
 * and never rejects. Or nothing was written, because rows have changed or more of them are needed: ask again.
 */
export type Joined = { readonly written: true; readonly committed: Promise<boolean> } | { readonly written: false };

/** A statement of the user's own. */
export interface Sql {
  query<Row = Record<string, unknown>>(
    text: string,
    values?: readonly unknown[],
  ): Promise<{ readonly rows: Row[]; readonly rowCount: number }>;
}

/** The same where the answer is there at once: on SQLite, and spelt as in `node:sqlite`. It is for the transaction at hand, and not to be kept. */
export interface SyncDatabase {
  prepare(text: string): SyncStatement;
}

export interface SyncStatement {
  all<Row = Record<string, unknown>>(...values: readonly SyncValue[]): Row[];
  get<Row = Record<string, unknown>>(...values: readonly SyncValue[]): Row | undefined;
  run(...values: readonly SyncValue[]): {
    readonly changes: number | bigint;
    readonly lastInsertRowid: number | bigint;
  };
}

/** A value, or an object of values by their names in the statement. */
export type SyncValue = SyncScalar | Readonly<Record<string, SyncScalar>>;
type SyncScalar = null | number | bigint | string | Uint8Array;

/** Has the transaction to itself until it resolves; `db` is there where the store answers at once. */
export type SharedWork<T> = (sql: Sql, executor: Executor, db?: SyncDatabase) => Promise<T>;

/** A store whose transactions can hold other SQL as well. */
export interface SqlStore extends Store {
  /** How many shared transactions may be open at a time, so that enough connections are left for everything else. */
  readonly maxShared: number;
  /** Runs a batch inside a transaction that the application opened and will end. Waits for rows that others have locked. */
  join(executor: Executor, batch: Joining): Promise<Joined>;
  /**
   * Opens a transaction, runs the work in it, and commits it under a mark, as a batch of a lane beyond `lanes`. When `dropped` aborts before the commit
   * has begun, rolls it back, does not wait for the work, and rejects with the signal's reason; afterwards it has no effect.
   */
  share<T>(mark: Pick<Batch, "lane" | "epoch" | "sequence">, work: SharedWork<T>, dropped?: AbortSignal): Promise<T>;
}

/** A deleted row is kept this long, so that its versions and fences go on where they were. */
export const DELETED_KEPT_MS = 7 * 24 * 60 * 60 * 1000;

/** Keys have no control characters, so two different keys never give the same text. */
export const keyText = (key: Key): string => `${key.space}\n${key.key}`;

/** A key with its text, made once for each handle and used for every look-up. */
export interface Address extends Key {
  readonly text: string;
  /** Most records of this sort are absent when they are first asked for: it may be assumed to be absent until the commit. */
  readonly isNew?: boolean;
}

export function address(space: string, key: string): Address {
  return { space, key, text: keyText({ space, key }) };
}

/** The same for a record that is most probably not there yet. */
export const newAddress = (at: Address): Address => ({ ...at, isNew: true });
