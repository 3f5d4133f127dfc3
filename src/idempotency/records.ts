/**
 * Records of keys and marks, and the decisions on them.
 *
 * Beginning, answering, freeing, marking and sweeping each are one decision on one record, so that they compose with any other in one
 * commit.
 */

import { nextFence } from "../kernel/claim/decide.ts";
import { type Address, newAddress, type Row } from "../kernel/contract.ts";
import type { Tx } from "../kernel/decision.ts";
import type { Draft } from "../kernel/draft.ts";
import { InvalidValueError, UnsupportedEncodingError, ValueTooLargeError } from "../kernel/errors.ts";
import { decideBegin, decideSweep, isMarked, type KeyState } from "./decide.ts";
import { IdempotencyInProgressError, IdempotencyMismatchError } from "./errors.ts";
import { KEY_STATUSES, KEYS, type KeyStatus, type KeyValue, MARKS } from "./stored.ts";

/** A call under a key, checked. */
export interface Call {
  readonly at: Address;
  readonly fingerprint: string | null;
  readonly ttlMs: number;
}

export type StoredOutcome = { readonly ok: unknown } | { readonly error: unknown };

export type Begun = { readonly is: "begun"; readonly row: Row } | { readonly is: "answered"; readonly text: string };

/** Begins an attempt under the key, or returns its answer. Throws `idempotency_in_progress`, `idempotency_mismatch`. */
export function begin(tx: Tx, call: Call, lease: { readonly by: string; readonly leaseMs: number }): Begun {
  const record = tx.record(call.at);
  const text = answerOf(tx, record, call);
  if (text !== null) return { is: "answered", text };
  const isTakeOver = record.exists && stateOf(record).expiresAtMs > tx.nowMs;
  record.write({
    value: newValue(call, tx),
    kind: KEYS,
    status: "in_progress" satisfies KeyStatus,
    holder: lease.by,
    fence: nextFence(record.fence, tx.fenceFloor),
    tries: isTakeOver ? record.tries + 1 : 1,
    dueMs: tx.nowMs + lease.leaseMs,
  });
  return { is: "begun", row: record.row as Row };
}

/** Returns the stored answer, or stores what `decide` returns, in the same decision and without an attempt. */
export function answerAtOnce(tx: Tx, call: Call, decide: () => unknown): { text: string; isReplay: boolean } {
  const record = tx.record(newAddress(call.at));
  const found = answerOf(tx, record, call);
  if (found !== null) return { text: found, isReplay: true };
  const ok = decide();
  record.write({ value: newValue(call, tx), kind: KEYS });
  return { text: answer(record, { ok }), isReplay: false };
}

/** The stored answer, as text; null if the work is this caller's to do. */
function answerOf(tx: Tx, record: Draft, { at, fingerprint }: Call): string | null {
  // Where there is none, the time makes no difference.
  if (!record.exists) return null;
  const answer = decideBegin(stateOf(record), { fingerprint, nowMs: tx.nowMs });
  switch (answer.is) {
    case "mismatch":
      throw new IdempotencyMismatchError(at.key);
    case "in_progress":
      throw new IdempotencyInProgressError(at.key, answer.retryAfterMs);
    case "replay":
      return record.row?.value ?? null;
    case "begin":
    case "take_over":
      return null;
  }
}

function newValue({ fingerprint, ttlMs }: Call, { approxNowMs, nowUpperBoundMs }: Tx): KeyValue {
  return {
    ...(fingerprint === null ? {} : { fingerprint }),
    startedAtMs: approxNowMs,
    expiresAtMs: nowUpperBoundMs + ttlMs,
  };
}

/** Stores the answer, ends the attempt, and returns the record's text. Default of `expiresAtMs`: as when the attempt began. */
export function answer(record: Draft, outcome: StoredOutcome, expiresAtMs?: number): string {
  const { fingerprint, startedAtMs, expiresAtMs: asBegun } = record.value as KeyValue;
  const value: KeyValue = {
    ...(fingerprint === undefined ? {} : { fingerprint }),
    startedAtMs,
    expiresAtMs: expiresAtMs ?? asBegun,
    ...outcome,
  };
  record.write({
    value,
    status: ("ok" in outcome ? "completed" : "failed") satisfies KeyStatus,
    holder: null,
    tries: 0,
    dueMs: value.expiresAtMs,
  });
  return record.row?.value ?? "";
}

/** Whether what is stored is the answer of the attempt with this fence. */
export function isAnsweredBy(record: Draft, fence: number): boolean {
  return record.exists && record.fence === fence && record.holder === null && record.status !== "in_progress";
}

/** Forgets the key. A later fence is above all that were ever swept away, so the row need not stay for the sake of its numbers. */
export function free(record: Draft): void {
  record.remove(0);
}

/** Marks a message as handled. Returns whether it is new. */
export function mark(tx: Tx, at: Address, ttlMs: number): boolean {
  const record = tx.record(at);
  if (record.exists && isMarked(record, tx.nowMs)) return false;
  record.write({ value: true, kind: MARKS, dueMs: tx.nowUpperBoundMs + ttlMs });
  return true;
}

/** Removes a key or a mark that has expired. Returns whether it did. */
export function sweepOne(tx: Tx, at: Address): boolean {
  const record = tx.record(at);
  if (!record.exists) return false;
  if (record.kind === MARKS) {
    if (isMarked(record, tx.nowMs)) return false;
    free(record);
    return true;
  }
  const answer = decideSweep(stateOf(record), tx.nowMs);
  if (answer.is === "rest") record.write({ holder: null, dueMs: answer.dueMs });
  if (answer.is === "remove") free(record);
  return answer.is === "remove";
}

function stateOf(record: Draft): KeyState {
  const { fingerprint = null, startedAtMs, expiresAtMs } = record.value as KeyValue;
  const { status, holder, dueMs } = record;
  if (!isKnown(status))
    throw new UnsupportedEncodingError("$", `its status is ${status}, which this release does not know`, {
      name: `${record.at.space} "${record.at.key}"`,
    });
  return { status, holder, dueMs, fingerprint, startedAtMs, expiresAtMs };
}

const isKnown = (status: string | null): status is KeyStatus => KEY_STATUSES.some((known) => known === status);

/** The part of an error that is stored: name, message, code and data. */
export function report(error: unknown): unknown {
  if (!(error instanceof Error)) return error;
  const { name, message } = error;
  const { code, data } = error as { code?: unknown; data?: unknown };
  const kept = Object.assign(new Error(message), {
    ...(code === undefined ? {} : { code }),
    ...(data === undefined ? {} : { data }),
  });
  kept.name = name;
  // The stack of this process is of no use to later callers.
  kept.stack = `${name}: ${message}`;
  return kept;
}

/** Whether the value itself is the reason that it was not stored. */
export const isUnstorable = (error: unknown): boolean =>
  error instanceof InvalidValueError || error instanceof ValueTooLargeError;
