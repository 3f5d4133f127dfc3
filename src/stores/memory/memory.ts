/**
 * The memory store: the store contract as plain code, and the reference for the other stores.
 *
 * A `MemoryDatabase` is what several writers share, as processes share a file or a server; `connect` returns a store for each. A commit
 * happens in one turn of the event loop, so it holds every lock. It is for tests and the simulator: nothing survives the process.
 */

import { compareUtf8 } from "../../kernel/check.ts";
import {
  type Batch,
  type DuePage,
  type DueQuery,
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
  type Store,
  type StoredEntry,
} from "../../kernel/contract.ts";
import { ClosedError, staleEpoch } from "../../kernel/errors.ts";
import { ReadBudget, takeUpTo } from "../../kernel/read-budget.ts";
import { TimedRows } from "./timed.ts";

/** The rows of one namespace. */
interface Namespace {
  readonly rows: Map<string, Row>;
  readonly logs: Map<number, StoredEntry[]>;
  /** In the order of their positions. */
  readonly followed: FollowedEntry[];
  readonly timed: TimedRows;
}

/** Who may write in a lane, and the last sequence that was written in it. */
interface Mark {
  epoch: number;
  sequence: number;
}

/** The complete content of a database at one moment, as in a backup. Logs are kept by their lengths, because a list only grows. */
export interface MemoryBackup {
  readonly namespaces: ReadonlyMap<
    string,
    {
      readonly rows: ReadonlyMap<string, Row>;
      readonly logs: ReadonlyMap<number, { readonly entries: readonly StoredEntry[]; readonly length: number }>;
      readonly followed: readonly FollowedEntry[];
    }
  >;
  readonly marks: ReadonlyMap<readonly Mark[], readonly Mark[]>;
  readonly ids: number;
  readonly positions: number;
  readonly fenceFloor: number;
}

/** What a list is ordered by: a row has it, and so has the position that a list continues after. */
type Place = Pick<Row, "id" | "key">;

const ORDERS: Readonly<Record<NonNullable<ListQuery["order"]>, (a: Place, b: Place) => number>> = {
  key: (a, b) => compareUtf8(a.key, b.key),
  newest: (a, b) => b.id - a.id,
  oldest: (a, b) => a.id - b.id,
};

const isOneOf = (text: string | null, texts: readonly string[] | undefined): boolean =>
  texts === undefined || (text !== null && texts.includes(text));

export class MemoryDatabase {
  readonly nowMs: () => number;
  readonly #namespaces = new Map<string, Namespace>();
  readonly watchers = new Set<{ readonly store: MemoryStore; readonly changed: () => void }>();
  /** By lane, of every writer that is connected. */
  readonly #marks = new Set<Mark[]>();
  #ids = 0;
  #positions = 0;
  fenceFloor = 0;

  constructor(nowMs: () => number) {
    this.nowMs = nowMs;
  }

  /** A store with several lanes models a server, so it is remote by default. */
  connect(namespace: string, options: { readonly lanes?: number; readonly isRemote?: boolean } = {}): MemoryStore {
    const { lanes = 1, isRemote = lanes > 1 } = options;
    const marks: Mark[] = Array.from({ length: lanes }, () => ({ epoch: 0, sequence: 0 }));
    this.#marks.add(marks);
    return new MemoryStore(this, this.#namespace(namespace), marks, isRemote);
  }

  /** Removes the marks of a writer that has closed. */
  disconnect(marks: Mark[]): void {
    this.#marks.delete(marks);
  }

  /** Returns everything as it is now: rows, logs, marks of writers, and the next numbers to assign. */
  backup(): MemoryBackup {
    const namespaces = [...this.#namespaces].map(([name, { rows, logs, followed }]) => {
      const lengths = [...logs].map(([id, entries]) => [id, { entries, length: entries.length }] as const);
      return [name, { rows: new Map(rows), logs: new Map(lengths), followed: [...followed] }] as const;
    });
    const marks = [...this.#marks].map((lanes) => [lanes, lanes.map((mark) => ({ ...mark }))] as const);
    const { fenceFloor } = this;
    return {
      namespaces: new Map(namespaces),
      marks: new Map(marks),
      ids: this.#ids,
      positions: this.#positions,
      fenceFloor,
    };
  }

  /**
   * Restores the backup for the writers that are connected now; only the clock does not go back. A writer that connected after the backup
   * has no mark.
   */
  restore(backup: MemoryBackup): void {
    for (const [name, { rows, logs, followed, timed }] of this.#namespaces) {
      const saved = backup.namespaces.get(name);
      rows.clear();
      logs.clear();
      timed.clear();
      for (const [text, row] of saved?.rows ?? []) {
        rows.set(text, row);
        timed.add(row);
      }
      for (const [id, { entries, length }] of saved?.logs ?? []) logs.set(id, entries.slice(0, length));
      followed.length = 0;
      for (const entry of saved?.followed ?? []) followed.push(entry);
    }
    for (const lanes of this.#marks) {
      const saved = backup.marks.get(lanes);
      for (const [lane, mark] of lanes.entries()) Object.assign(mark, saved?.[lane] ?? { epoch: 0, sequence: 0 });
    }
    this.#ids = backup.ids;
    this.#positions = backup.positions;
    this.fenceFloor = backup.fenceFloor;
  }

  newId(): number {
    this.#ids += 1;
    return this.#ids;
  }

  /** The last position that was assigned. */
  get lastPosition(): number {
    return this.#positions;
  }

  newPosition(): number {
    this.#positions += 1;
    return this.#positions;
  }

  #namespace(name: string): Namespace {
    let namespace = this.#namespaces.get(name);
    if (namespace === undefined) {
      namespace = { rows: new Map(), logs: new Map(), followed: [], timed: new TimedRows() };
      this.#namespaces.set(name, namespace);
    }
    return namespace;
  }
}

export class MemoryStore implements Store {
  readonly lanes: number;
  readonly isRemote: boolean;
  /** No transaction stays open: each commit is one turn of the event loop. */
  readonly hasOneWriter = false;
  readonly #database: MemoryDatabase;
  readonly #rows: Map<string, Row>;
  readonly #logs: Map<number, StoredEntry[]>;
  readonly #followed: FollowedEntry[];
  readonly #timed: TimedRows;
  /** By lane: the epoch that may write, and the last sequence that did. */
  readonly #marks: Mark[];
  #closed = false;

  constructor(database: MemoryDatabase, namespace: Namespace, marks: Mark[], isRemote: boolean) {
    this.#database = database;
    this.#rows = namespace.rows;
    this.#logs = namespace.logs;
    this.#followed = namespace.followed;
    this.#timed = namespace.timed;
    this.lanes = marks.length;
    this.isRemote = isRemote;
    this.#marks = marks;
  }

  async settle(lane: number): Promise<{ epoch: number; sequence: number }> {
    const mark = this.#mark(lane);
    mark.epoch += 1;
    return { ...mark };
  }

  async commit(batch: Batch): Promise<Receipt> {
    const mark = this.#mark(batch.lane);
    if (batch.epoch !== mark.epoch) throw staleEpoch();
    const nowMs = this.#database.nowMs();
    const budget = new ReadBudget(batch.maxBytes);
    const found = (keys: readonly Key[]): Found => ({
      nowMs,
      fenceFloor: this.#database.fenceFloor,
      ...budget.read(keys, (key) => this.#rows.get(keyText(key)) ?? null),
    });
    let verdict = batch.decide(found(batch.lock));
    while ("lock" in verdict) verdict = batch.decide(found(verdict.lock));
    const moved = verdict.puts.filter((put) => !this.#isStill(put)).map((put) => put.row);
    if (moved.length > 0) return { committed: false, moved };
    const ids = verdict.puts.map((put) => this.#put(put, nowMs));
    if (ids.length > 0) {
      mark.sequence = batch.sequence;
      for (const { store, changed } of this.#database.watchers) if (store !== this) changed();
    }
    return { committed: true, nowMs, ids };
  }

  #isStill({ was, row }: Put): boolean {
    const now = this.#rows.get(keyText(row));
    return now === undefined
      ? was === null
      : was !== null && was.id === now.id && was.version === now.version && was.stamp === now.stamp;
  }

  #put({ was, row, entries }: Put, nowMs: number): number {
    const id = was?.id ?? this.#database.newId();
    const before = this.#rows.get(keyText(row));
    const stored = { ...row, id };
    if (before !== undefined) this.#timed.remove(before);
    this.#rows.set(keyText(row), stored);
    this.#timed.add(stored);
    if (entries.length > 0) {
      const log = this.#logs.get(id) ?? [];
      for (const { version, name, data, isFollowed } of entries) {
        const entry = { version, name, data, atMs: nowMs, position: this.#database.newPosition() };
        log.push(entry);
        if (isFollowed === true) this.#followed.push({ ...entry, space: row.space, key: row.key });
      }
      this.#logs.set(id, log);
    }
    return id;
  }

  async read(keys: readonly Key[]): Promise<readonly (Row | null)[]> {
    this.#check();
    return keys.map((key) => this.#rows.get(keyText(key)) ?? null);
  }

  async list({ space, prefix, order, after, kinds, statuses, limit }: ListQuery): Promise<readonly Row[]> {
    this.#check();
    const compare = ORDERS[order ?? "key"];
    const last: Place | null = after === null ? null : { key: after, id: Number(after) };
    return [...this.#rows.values()]
      .filter((row) => row.space === space && row.value !== null && row.key.startsWith(prefix))
      .filter((row) => isOneOf(row.kind, kinds) && isOneOf(row.status, statuses))
      .filter((row) => last === null || compare(row, last) > 0)
      .sort(compare)
      .slice(0, limit);
  }

  async entries(key: Key, after: number, limit: number, maxBytes?: number): Promise<readonly StoredEntry[]> {
    this.#check();
    const row = this.#rows.get(keyText(key));
    const log = row === undefined ? undefined : this.#logs.get(row.id);
    if (log === undefined) return [];
    // Versions increase by one from entry to entry.
    const from = Math.max(0, after + 1 - (log[0]?.version ?? 0));
    return takeUpTo(log.slice(from, from + limit), ({ data }) => data, maxBytes).taken;
  }

  /** A commit draws its positions and becomes visible in one turn, so all assigned positions may be followed. */
  async follow({ space, prefix = "", names, after, limit, maxBytes }: FollowQuery): Promise<FollowPage> {
    this.#check();
    const { lastPosition } = this.#database;
    const nowMs = this.#database.nowMs();
    if (after > lastPosition) return { nowMs, entries: [], upTo: lastPosition, hasMore: false };
    const looked: FollowedEntry[] = [];
    for (const entry of this.#followed)
      if (entry.space === space && entry.position > after && looked.push(entry) === limit) break;
    const isChosen = ({ key, name }: FollowedEntry): boolean => key.startsWith(prefix) && isOneOf(name, names);
    const page = takeUpTo(looked, (entry) => (isChosen(entry) ? entry.data : null), maxBytes);
    const hasMore = page.isFull || page.taken.length === limit;
    return {
      nowMs,
      entries: page.taken.filter(isChosen),
      upTo: hasMore ? (page.taken.at(-1)?.position ?? after) : lastPosition,
      hasMore,
    };
  }

  async due({ kinds, limit }: DueQuery): Promise<DuePage> {
    this.#check();
    const nowMs = this.#database.nowMs();
    const found = [...new Set(kinds)].map((kind) => this.#timed.due(kind, nowMs, limit));
    const later = found.flatMap(({ nextDueMs }) => nextDueMs ?? []);
    return {
      nowMs,
      keys: found
        .flatMap(({ rows }) => rows)
        .sort((a, b) => a.dueMs - b.dueMs || a.id - b.id)
        .slice(0, limit)
        .map(({ space, key, kind, tries }) => ({ space, key, kind, tries })),
      nextDueMs: later.length === 0 ? null : Math.min(...later),
    };
  }

  async sweep(limit: number): Promise<number> {
    this.#check();
    const nowMs = this.#database.nowMs();
    const gone = [...this.#rows.values()]
      .filter((row) => row.value === null && (row.dueMs ?? 0) <= nowMs)
      .slice(0, limit);
    const swept = new Set(gone.map(keyText));
    const left = this.#followed.filter((entry) => !swept.has(keyText(entry)));
    this.#followed.length = 0;
    for (const entry of left) this.#followed.push(entry);
    for (const row of gone) {
      if (Number.isSafeInteger(row.fence + 1))
        this.#database.fenceFloor = Math.max(this.#database.fenceFloor, row.fence + 1);
      this.#rows.delete(keyText(row));
      this.#logs.delete(row.id);
    }
    return gone.length;
  }

  async prune(key: Key, upTo: number, limit: number): Promise<number> {
    this.#check();
    const row = this.#rows.get(keyText(key));
    const log = row === undefined ? undefined : this.#logs.get(row.id);
    if (row === undefined || log === undefined) return 0;
    const gone = log.slice(0, limit).filter(({ version }) => version <= upTo);
    // A new list: backups refer to the one before.
    this.#logs.set(row.id, log.slice(gone.length));
    const positions = new Set(gone.map(({ position }) => position));
    const left = this.#followed.filter(({ position }) => !positions.has(position));
    this.#followed.length = 0;
    for (const entry of left) this.#followed.push(entry);
    return gone.length;
  }

  watch(changed: () => void): () => void {
    this.#check();
    const watcher = { store: this, changed };
    this.#database.watchers.add(watcher);
    return () => void this.#database.watchers.delete(watcher);
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.#database.disconnect(this.#marks);
    for (const watcher of this.#database.watchers) if (watcher.store === this) this.#database.watchers.delete(watcher);
  }

  #mark(lane: number): Mark {
    this.#check();
    const mark = this.#marks[lane];
    if (mark === undefined) throw new RangeError(`lane ${lane} does not exist: this store has ${this.lanes} lanes`);
    return mark;
  }

  #check(): void {
    if (this.#closed) throw new ClosedError();
  }
}
