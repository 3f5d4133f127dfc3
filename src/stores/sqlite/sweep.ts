/**
 * Sweeping: removing deleted rows permanently. The fence floor keeps the highest fence that was removed, so that a new record of the same
 * name continues above it, whatever the clock says.
 *
 * It is done in pieces, because a transaction blocks the event loop and every other writer of the file: each piece removes a bounded number
 * of entries and bytes, and is followed by a pause as long as the piece took. A long log is removed before its row, oldest entries first,
 * and the row is removed in the commit that raises the fence floor. So a process that stops in the middle leaves a deleted row with a
 * shorter log, which the next sweep finishes; and a row that is created again in the meantime is left alone.
 *
 * Pruning removes the oldest entries of a record that stays. Each call is one piece.
 */

import type { Key } from "../../kernel/contract.ts";
import { StoreError } from "../../kernel/errors.ts";
import { type Ports, pause } from "../../kernel/ports.ts";
import type { Prepared } from "./prepared.ts";

/** How much one transaction removes at most: log entries and rows together. About 10 ms of work. */
const MAX_REMOVED = 1000;
/** A piece ends with the entry that exceeds this: freeing the pages of large data takes time. */
const MAX_BYTES = 4 * 1024 * 1024;
/** The longest pause between two pieces, however long the last one took by the clock. */
const MAX_PAUSE_MS = 50;

const IS_OVER = "kind is null and due <= ? and value is null";
const DELETED = `select id from pawl_record where namespace = ? and ${IS_OVER} limit ?`;
const STILL_DELETED = `select fence, head, namespace, space from pawl_record where ${IS_OVER} and id = ?`;
const SIZES = "select version, octet_length(data) from pawl_log where record = ? order by version limit ?";
const REMOVE_LOG = "delete from pawl_log where record = ? and version <= ?";
/** Most spaces have no followed entry, and one lookup finds that out. */
const IS_FOLLOWED = "select 1 from pawl_followed where namespace = ? and space = ? limit 1";
const REMOVE_FOLLOWED = `
  delete from pawl_followed where namespace = ? and space = ?
    and position in (select position from pawl_log where record = ? and version <= ?)`;
const REMOVE = "delete from pawl_record where id = ?";
const RAISE_FENCE_FLOOR = `
  insert into pawl_meta (name, number) values ('fence_floor', ?)
  on conflict do update set number = max(number, excluded.number)`;

/** The numbers of deleted rows that are due for removal. Needs no lock: each is checked again under it. */
export function deletedRows(on: Prepared, namespace: string, nowMs: number, limit: number): readonly number[] {
  return on
    .sql(DELETED)
    .all(namespace, nowMs, limit)
    .map((columns) => (columns as unknown as [number])[0]);
}

export interface Piece {
  /** How many of the rows need no further piece. */
  readonly done: number;
  /** How many of these were removed. */
  readonly gone: number;
}

/** Removes as much of these rows and their logs as one transaction may. Runs under the write lock. */
export function sweepPiece(on: Prepared, ids: readonly number[], nowMs: number): Piece {
  let entriesLeft = MAX_REMOVED;
  let bytesLeft = MAX_BYTES;
  let [done, gone, floor] = [0, 0, 0];
  for (const id of ids) {
    if (entriesLeft <= 0 || bytesLeft <= 0) break;
    const still = on.row(STILL_DELETED, nowMs, id) as
      | [fence: number, head: number, namespace: string, space: string]
      | undefined;
    if (still !== undefined) {
      const [fence, head, namespace, space] = still;
      if (head > 0) {
        const entries = on.sql(SIZES).all(id, entriesLeft) as unknown as [version: number, bytes: number][];
        let upTo = 0;
        for (const [version, bytes] of entries) {
          if (bytesLeft <= 0) break;
          upTo = version;
          bytesLeft -= bytes;
          entriesLeft -= 1;
        }
        if (upTo > 0 && on.row(IS_FOLLOWED, namespace, space) !== undefined)
          on.sql(REMOVE_FOLLOWED).run(namespace, space, id, upTo);
        if (upTo > 0) on.sql(REMOVE_LOG).run(id, upTo);
        // Some of its log may be left; then the row stays too.
        if (entriesLeft <= 0 || upTo < (entries.at(-1)?.[0] ?? 0)) break;
      }
      // Pawl never assigns a fence that nothing could be above.
      if (Number.isSafeInteger(fence + 1)) floor = Math.max(floor, fence + 1);
      on.sql(REMOVE).run(id);
      gone += 1;
    }
    done += 1;
    entriesLeft -= 1;
  }
  if (gone > 0) on.sql(RAISE_FENCE_FLOOR).run(floor);
  return { done, gone };
}

const FIND = "select id from pawl_record where namespace = ? and space = ? and key = ?";
const FIRST_SIZES =
  "select version, octet_length(data) from pawl_log where record = ? and version <= ? order by version limit ?";

/** Removes the oldest entries of a log, as many as one transaction may. Runs under the write lock. Returns how many. */
export function prunePiece(on: Prepared, namespace: string, { space, key }: Key, upTo: number, limit: number): number {
  const [id] = (on.row(FIND, namespace, space, key) as [number] | undefined) ?? [];
  if (id === undefined) return 0;
  const entries = on.sql(FIRST_SIZES).all(id, upTo, Math.min(limit, MAX_REMOVED)) as unknown as [
    version: number,
    bytes: number,
  ][];
  let bytesLeft = MAX_BYTES;
  let [last, removed] = [0, 0];
  for (const [version, bytes] of entries) {
    if (bytesLeft <= 0) break;
    last = version;
    bytesLeft -= bytes;
    removed += 1;
  }
  if (removed === 0) return 0;
  if (on.row(IS_FOLLOWED, namespace, space) !== undefined) on.sql(REMOVE_FOLLOWED).run(namespace, space, id, last);
  on.sql(REMOVE_LOG).run(id, last);
  return removed;
}

export interface Sweeping {
  readonly ports: Ports;
  readonly patienceMs: number;
  readonly isClosed: () => boolean;
  /** Commits one piece. */
  readonly remove: (ids: readonly number[]) => Piece;
}

/** Removes these rows, piece by piece, and returns how many are gone. Other writers come first: a busy file is retried later. */
export async function sweepRows(ids: readonly number[], sweeping: Sweeping): Promise<number> {
  const { ports, patienceMs, isClosed, remove } = sweeping;
  const { clock, chance } = ports;
  let gone = 0;
  let giveUpAtMs = clock.nowMs() + patienceMs;
  for (let left = ids; left.length > 0 && !isClosed(); ) {
    const startedMs = clock.nowMs();
    let pauseMs: number;
    try {
      const piece = remove(left);
      gone += piece.gone;
      left = left.slice(piece.done);
      pauseMs = Math.min(MAX_PAUSE_MS, Math.max(1, clock.nowMs() - startedMs));
      giveUpAtMs = clock.nowMs() + patienceMs;
    } catch (error) {
      if (!(error instanceof StoreError) || error.data.remedy !== "retry") throw error;
      if (clock.nowMs() >= giveUpAtMs) {
        if (gone > 0) break;
        throw error;
      }
      pauseMs = 1 + 20 * chance.random();
    }
    if (left.length > 0) await pause(clock, pauseMs);
  }
  return gone;
}

const FENCE_FLOOR = "select number from pawl_meta where name = 'fence_floor'";

export function fenceFloorOf(on: Prepared): number {
  return on.number(FENCE_FLOOR) ?? 0;
}
