/**
 * The rows that are due at some time, by kind and in order: the index that a database would have for them.
 *
 * A kind's rows are kept in pieces of bounded length, each in order, so that with a hundred thousand of them a row is added or removed
 * by moving few others, and due rows are found without scanning all of them.
 */

import type { Row } from "../../kernel/contract.ts";

/** A longer piece is split in two. */
const MAX_PIECE = 1024;

type Timed = Row & { readonly dueMs: number; readonly kind: string };

const isTimed = (row: Row): row is Timed => row.dueMs !== null && row.kind !== null;

/** Whether the row comes before another with this time and number, or is that one. */
const isUpTo = (row: Timed, dueMs: number, id: number): boolean =>
  row.dueMs === dueMs ? row.id <= id : row.dueMs < dueMs;

export class TimedRows {
  /** No piece is empty. */
  readonly #kinds = new Map<string, Timed[][]>();

  add(row: Row): void {
    if (!isTimed(row)) return;
    const pieces = this.#kinds.get(row.kind) ?? [];
    this.#kinds.set(row.kind, pieces);
    const index = Math.max(0, piecesUpTo(pieces, row) - 1);
    const piece = pieces[index];
    if (piece === undefined) {
      pieces.push([row]);
      return;
    }
    piece.splice(rowsUpTo(piece, row.dueMs, row.id), 0, row);
    if (piece.length > MAX_PIECE) pieces.splice(index + 1, 0, piece.splice(MAX_PIECE / 2));
  }

  remove(row: Row): void {
    const pieces = row.kind === null ? undefined : this.#kinds.get(row.kind);
    if (pieces === undefined || !isTimed(row)) return;
    const index = piecesUpTo(pieces, row) - 1;
    const piece = pieces[index];
    const at = piece === undefined ? -1 : rowsUpTo(piece, row.dueMs, row.id) - 1;
    if (piece?.[at]?.id !== row.id) return;
    piece.splice(at, 1);
    if (piece.length === 0) pieces.splice(index, 1);
    if (pieces.length === 0) this.#kinds.delete(row.kind);
  }

  clear(): void {
    this.#kinds.clear();
  }

  /** Rows of the kind that are due at this time, the longest due first, and when the next one after it is due. */
  due(
    kind: string,
    nowMs: number,
    limit: number,
  ): { readonly rows: readonly Timed[]; readonly nextDueMs: number | null } {
    const pieces = this.#kinds.get(kind) ?? [];
    return { rows: firstOf(pieces, nowMs, limit), nextDueMs: nextAfter(pieces, nowMs) };
  }
}

function firstOf(pieces: readonly Timed[][], nowMs: number, limit: number): readonly Timed[] {
  const rows: Timed[] = [];
  for (const piece of pieces)
    for (const row of piece) {
      if (row.dueMs > nowMs || rows.length >= limit) return rows;
      rows.push(row);
    }
  return rows;
}

function nextAfter(pieces: readonly Timed[][], nowMs: number): number | null {
  const last = { dueMs: nowMs, id: Number.POSITIVE_INFINITY };
  const index = piecesUpTo(pieces, last);
  // The last piece that begins in time may end later.
  const piece = pieces[index - 1] ?? [];
  return (piece[rowsUpTo(piece, last.dueMs, last.id)] ?? pieces[index]?.[0])?.dueMs ?? null;
}

/** How many pieces begin at or before this place. */
function piecesUpTo(
  pieces: readonly Timed[][],
  { dueMs, id }: { readonly dueMs: number; readonly id: number },
): number {
  return countWhile(pieces.length, (index) => {
    const first = pieces[index]?.[0];
    return first !== undefined && isUpTo(first, dueMs, id);
  });
}

/** How many rows are at or before this place. */
function rowsUpTo(rows: readonly Timed[], dueMs: number, id: number): number {
  return countWhile(rows.length, (index) => {
    const row = rows[index];
    return row !== undefined && isUpTo(row, dueMs, id);
  });
}

/** The number of leading indexes for which `holds` is true. It must be false for all indexes after the first for which it is false. */
function countWhile(length: number, holds: (index: number) => boolean): number {
  let from = 0;
  for (let to = length; from < to; ) {
    const middle = (from + to) >> 1;
    if (holds(middle)) from = middle + 1;
    else to = middle;
  }
  return from;
}
