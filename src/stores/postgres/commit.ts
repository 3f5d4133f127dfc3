/**
 * One batch in one transaction: its rows are locked and read, its decisions run, and what they decided is written, marked and committed.
 *
 * A locked batch takes two round trips: begin, lock and read the rows, read the clock; then write, mark and commit. An optimistic batch,
 * whose rows are assumed, takes one. Rows that other transactions have locked are skipped, so that a process that stopped in the middle of
 * a batch delays no other; the server ends its transaction after `LOCKS_HELD_MS`. A batch that was postponed too often waits for its rows,
 * in sorted order, and gives up after the same time.
 */

import { type Batch, type Found, type Key, keyText, type Put, type Receipt, type Row } from "../../kernel/contract.ts";
import { StoreError } from "../../kernel/errors.ts";
import type { Connection } from "./connections.ts";
import { isAssertion, isServerError } from "./failure.ts";
import { isFollowed } from "./followed.ts";
import { numbersOf, type SpareNumbers } from "./numbers.ts";
import type { Call, Result } from "./pipeline.ts";
import { COLUMNS, isPlaceholder, placeholderOf, type RowStatements, toRow } from "./rows.ts";
import { BEGIN, COMMIT, MOVED, ROLLBACK } from "./statements.ts";
import { markOf, type writing } from "./write.ts";

export interface CommitSetup {
  readonly namespace: string;
  readonly writer: string;
  readonly rows: RowStatements;
  readonly write: ReturnType<typeof writing>;
  /** Announces that the transaction is about to draw positions. */
  readonly announce: Call;
  readonly pinned: Readonly<Record<"writing" | "waiting" | "reading", Call>>;
  readonly spare: SpareNumbers;
  /** Takes the result of a transaction's first statement. */
  readonly observe: (pinned: Result | undefined) => void;
  readonly madePlaceholders: (count: number) => void;
}

/** The progress of a transaction. */
export interface Progress {
  /** `outside`: not begun. `open`: its rows are being locked and decided on. `committing`: COMMIT was sent. */
  stage: "outside" | "open" | "committing";
  nowMs: number | null;
  /** As the decisions know it; null before it was read. */
  fenceFloor: number | null;
  bytesRead: number;
  /** Absent keys: the number that the row would get, and the row's placeholder, if it has one. */
  readonly absent: Map<string, Absent>;
}

interface Absent {
  readonly key: Key;
  readonly id: number;
  readonly placeholder: Row | null;
}

export class Commits {
  readonly #setup: CommitSetup;

  constructor(setup: CommitSetup) {
    this.#setup = setup;
  }

  async commit(connection: Connection, batch: Batch, progress: Progress): Promise<Receipt> {
    const isOptimistic = batch.lock.length === 0 && !batch.needsClock;
    let verdict = batch.decide(
      isOptimistic ? NOTHING_FOUND : await this.#find(connection, batch, batch.lock, progress),
    );
    while ("lock" in verdict) verdict = batch.decide(await this.#find(connection, batch, verdict.lock, progress));
    const { puts } = verdict;
    if (puts.length === 0) return this.#endUnwritten(connection, progress);
    const wasOpen = progress.stage === "open";
    try {
      return await this.#finish(connection, batch, puts, progress);
    } catch (error) {
      if (isMoved(error)) return { committed: false, moved: await this.#moved(connection, puts, progress) };
      if (!isLockTimeout(error)) throw error;
      connection.ended();
      await connection.send([ROLLBACK]);
      // An optimistic batch may have waited for any of its rows; one that has locked its rows only for those it inserts.
      const waited = wasOpen ? puts.filter(({ was }) => was === null) : puts;
      const moved = [...waited.map(({ row }) => row), ...absentKeys(progress)];
      return { committed: false, moved, isHeld: wasOpen };
    }
  }

  /** Locks and reads these rows. Those of earlier rounds stay locked. Only the first round may wait, because it is sorted. */
  async #find(connection: Connection, batch: Batch, keys: readonly Key[], progress: Progress): Promise<Found> {
    const { namespace, rows: statements, pinned, observe } = this.#setup;
    const isFirst = progress.stage === "outside";
    const mayWait = isFirst && batch.mayWait === true;
    const maxBytes = batch.maxBytes === undefined ? undefined : Math.max(0, batch.maxBytes - progress.bytesRead);
    const isPatient = mayWait && keys.length > 1;
    const calls = isFirst ? [BEGIN, isPatient ? pinned.waiting : pinned.writing] : [];
    if (keys.length > 0) calls.push(statements.lock(namespace, keys, { mayWait, maxBytes }));
    calls.push(statements.clock);
    connection.began();
    const results = await connection.send(calls);
    progress.stage = "open";
    if (isFirst) observe(results[1]);
    const [now, floor] = results.at(-1)?.rows[0] ?? [];
    // One time for the whole commit, for any number of rounds.
    progress.nowMs ??= Number(now);
    const rows: (Row | null | undefined)[] = keys.map(() => undefined);
    let isFull = false;
    for (const columns of keys.length > 0 ? (results.at(-2)?.rows ?? []) : []) {
      const index = Number(columns[0]) - 1;
      const key = keys[index];
      // Skipped because another transaction has locked it, or because enough was read.
      isFull ||= columns[LEFT_UNREAD] != null;
      if (key === undefined || columns[1] === null || columns[LEFT_UNREAD] != null) continue;
      const row = columns[2] === null ? null : toRow(key, columns, 1);
      const placeholder = row !== null && isPlaceholder(row) ? row : null;
      const isAbsent = row === null || placeholder !== null;
      rows[index] = isAbsent ? null : row;
      progress.bytesRead += row?.value?.length ?? 0;
      if (isAbsent) progress.absent.set(keyText(key), { key, id: Number(columns[1]), placeholder });
    }
    progress.fenceFloor = Math.max(progress.fenceFloor ?? 0, Number(floor));
    return { nowMs: progress.nowMs, fenceFloor: progress.fenceFloor, rows, isFull };
  }

  /** Ends a transaction that writes nothing. Its decisions hold only if what was absent is still absent, in one snapshot. */
  async #endUnwritten(connection: Connection, progress: Progress): Promise<Receipt> {
    const { namespace, rows } = this.#setup;
    // No statement was sent either.
    if (progress.stage === "outside") return { committed: true, nowMs: 0, ids: [] };
    const absent = absentKeys(progress);
    const calls = absent.length > 0 ? [rows.stillAbsent(namespace, absent), COMMIT] : [COMMIT];
    try {
      await connection.send(calls);
      connection.ended();
      return { committed: true, nowMs: progress.nowMs ?? 0, ids: [] };
    } catch (error) {
      if (!isMoved(error)) throw error;
      return { committed: false, moved: absent };
    }
  }

  async #finish(connection: Connection, batch: Batch, puts: readonly Put[], progress: Progress): Promise<Receipt> {
    const { namespace, writer, rows, pinned, spare, announce, madePlaceholders } = this.#setup;
    const { ids, missing } = await this.#ids(connection, puts, progress);
    const absent = new Map(progress.absent);
    for (const { row } of puts) if (absent.size > 0) absent.delete(keyText(row));
    const onlyRead = [...absent.values()].filter(({ placeholder }) => placeholder === null);
    const placeholders = onlyRead.map(({ key, id }) => placeholderOf(key, id, progress.nowMs ?? 0));
    // A new record reuses the row of its placeholder.
    const written = puts.map((put) => {
      const was = put.was ?? progress.absent.get(keyText(put.row))?.placeholder ?? null;
      return was === put.was ? put : { ...put, was };
    });
    const write = this.#setup.write(
      markOf(writer, batch),
      namespace,
      written.concat(placeholders),
      ids.concat(onlyRead.map(({ id }) => id)),
      progress.nowMs,
    );
    const calls = progress.stage === "open" ? [] : [BEGIN, pinned.writing];
    if (isFollowed(puts)) calls.push(announce);
    const writtenAt = calls.push(write) - 1;
    // While its key was absent, another process may have created, removed and swept the record, with a higher fence than the new one has. After the write,
    // that can happen no more.
    const fence = lowestNewFence(puts);
    if (fence !== null && progress.fenceFloor !== null)
      calls.push(rows.floorIsAtMost(Math.max(progress.fenceFloor, fence)));
    // The next batch will probably need as many numbers again.
    if (missing > 0) calls.push(rows.reserve(missing));
    calls.push(COMMIT);
    connection.began();
    progress.stage = "committing";
    const results = await connection.send(calls);
    connection.ended();
    checkCommitted(connection, results.at(-1));
    if (missing > 0) spare.keep(numbersOf(results.at(-2)));
    madePlaceholders(placeholders.length);
    return { committed: true, nowMs: progress.nowMs ?? Number(results[writtenAt]?.rows[0]?.[2]), ids };
  }

  /** The number of each row: its own, the one reserved when it was found absent, or a new one. */
  async #ids(
    connection: Connection,
    puts: readonly Put[],
    progress: Progress,
  ): Promise<{ readonly ids: number[]; readonly missing: number }> {
    const { rows, spare } = this.#setup;
    const ids = puts.map(({ was, row }) => was?.id ?? progress.absent.get(keyText(row))?.id);
    const missing = ids.filter((id) => id === undefined).length;
    if (missing === 0) return { ids: ids as number[], missing };
    let fresh = spare.take(missing);
    if (fresh.length < missing) {
      const [result] = await connection.send([rows.reserve(missing - fresh.length)]);
      fresh = fresh.concat(numbersOf(result));
    }
    let taken = 0;
    return { ids: ids.map((id) => id ?? (fresh[taken++] as number)), missing };
  }

  /** Returns the rows that differ from what the batch assumed, or all of them if the difference can no longer be seen. */
  async #moved(connection: Connection, puts: readonly Put[], progress: Progress): Promise<readonly Key[]> {
    const { namespace, rows: statements, pinned } = this.#setup;
    const keys = [...puts.map(({ row }) => row), ...absentKeys(progress)];
    connection.ended();
    const results = await connection.send([ROLLBACK, pinned.reading, statements.read(namespace, keys)]);
    const rows = new Map(results[2]?.rows.map((columns) => [Number(columns[0]) - 1, columns]));
    const moved = keys.filter((key, index) => {
      const was = puts[index]?.was ?? progress.absent.get(keyText(key))?.placeholder ?? null;
      const columns = rows.get(index);
      if (was === null || columns === undefined) return (was === null) !== (columns === undefined);
      const now = toRow(key, columns, 1);
      return now.id !== was.id || now.version !== was.version || now.stamp !== was.stamp;
    });
    return moved.length > 0 ? moved : keys;
  }
}

/** Throws unless the transaction was committed, and its commit waited for the standby. */
export function checkCommitted(connection: Connection, result: Result | undefined): void {
  // The server completes the COMMIT of a failed transaction with the tag ROLLBACK.
  if (result?.tag !== "COMMIT")
    throw new StoreError("store_refused", "retry", "the server rolled the transaction back");
  if (connection.isUnreplicated)
    throw new StoreError("outcome_unknown", "settle", "the commit did not wait for the synchronous standby");
}

/** The lowest fence of the records that are created; null if none has one. */
export function lowestNewFence(puts: readonly Put[]): number | null {
  let lowest: number | null = null;
  for (const { was, row } of puts)
    if (was === null && row.fence > 0 && (lowest === null || row.fence < lowest)) lowest = row.fence;
  return lowest;
}

const absentKeys = ({ absent }: Progress): Key[] => Array.from(absent.values(), ({ key }) => key);

const NOTHING_FOUND: Found = { nowMs: null, fenceFloor: 0, rows: [] };

/** The index of the column that says that a locked row was left unread. */
const LEFT_UNREAD = 1 + COLUMNS.split(", ").length;

/** Rows differ from what the batch assumed. */
const isMoved = (error: unknown): boolean =>
  isAssertion(error, MOVED) || (isServerError(error) && error.code === "23505" && error.table === "record");

/** Another transaction held a row, or a key that it is inserting, for longer than a batch waits. */
const isLockTimeout = (error: unknown): boolean => isServerError(error) && error.code === "55P03";
