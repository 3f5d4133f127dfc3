/**
 * Decisions on the records of streams: appending, and running a command. They compose with all others in one commit.
 */

import type { Tx } from "../kernel/decision.ts";
import type { Draft } from "../kernel/draft.ts";
import type { AggregateRules, FoldedEvent } from "./aggregate.ts";
import { type Decided, decideCommand, foldEvent, initialFold, isExpected } from "./decide.ts";
import { ConcurrencyError, FoldBehindError, StreamClosedError } from "./errors.ts";
import type { NewEvent } from "./event.ts";
import { CLOSED, type Fold, foldOf, type StoredEvent, type StreamValue, streamAt, withFold } from "./stored.ts";

/** Who causes an event, and what it belongs to. */
export interface EventOrigin {
  readonly actor?: string | undefined;
  readonly correlationId?: string | undefined;
  readonly causationId?: string | undefined;
}

export interface AppendRequest extends EventOrigin {
  readonly stream: string;
  readonly events: readonly NewEvent[];
  readonly expectedVersion: number | undefined;
}

/** Who causes the events of a decision, where an append does not say it. */
const origins = new WeakMap<Tx, EventOrigin>();

/** From now on, events that this decision appends have this origin, unless an append says another. */
export function setOrigin(tx: Tx, origin: EventOrigin): void {
  origins.set(tx, origin);
}

/** Where the appended events are. */
export interface Appended {
  /** The stream's version after them. */
  readonly version: number;
  /** Their ids, in order. */
  readonly ids: readonly string[];
}

/** Appends events, all or none. Throws `stream_closed`, and `concurrency_conflict` where the stream is at another version. */
export function append(tx: Tx, { stream, events, expectedVersion, ...given }: AppendRequest): Appended {
  const origin = { ...origins.get(tx), ...given };
  const record = openRecord(tx, stream);
  if (!isExpected(record.head, expectedVersion)) throw new ConcurrencyError(stream, expectedVersion ?? 0, record.head);
  if (events.length === 0) return { version: record.head, ids: [] };
  if (!record.exists) record.write({ value: {} satisfies StreamValue });
  return { ids: events.map((event) => appendOne(tx, record, event, origin).id), version: record.head };
}

/** The record of a stream to append to. Under its lock, so that no event comes after a tombstone. */
function openRecord(tx: Tx, stream: string): Draft {
  const record = tx.record(streamAt(stream));
  if (record.status === CLOSED) throw new StreamClosedError(stream, record.head);
  return record;
}

export function appendOne(tx: Tx, record: Draft, { name, data, shape }: NewEvent, origin: EventOrigin): FoldedEvent {
  const id = tx.uuid();
  const { actor, correlationId, causationId } = origin;
  const stored: StoredEvent = {
    id,
    data,
    ...(shape === 1 ? {} : { shape }),
    ...(actor === undefined ? {} : { actor }),
    ...(correlationId === undefined ? {} : { correlation: correlationId }),
    ...(causationId === undefined ? {} : { causation: causationId }),
  };
  const version = record.append(name, stored, { isFollowed: true });
  return {
    stream: record.at.key,
    version,
    id,
    name,
    data,
    shape,
    ...(actor === undefined ? {} : { actor }),
    ...(correlationId === undefined ? {} : { correlationId }),
    ...(causationId === undefined ? {} : { causationId }),
  };
}

export interface CommandRequest extends EventOrigin {
  readonly stream: string;
  readonly command: string;
  readonly input: unknown;
  /** A state that was folded outside the decision, where the stored one lacks events. */
  readonly caughtUp?: Fold | undefined;
}

export type Executed =
  | { readonly is: "decided"; readonly output: unknown; readonly version: number; readonly ids: readonly string[] }
  | Extract<Decided, { readonly is: "refused" }>;

/**
 * Runs a command on the folded state of the stream, appends what it emits, and stores the state after that. Throws `stream_closed`, and `fold_behind`
 * where neither the stored state nor the one that was given is that of the stream's last event.
 */
export function execute(tx: Tx, rules: AggregateRules, request: CommandRequest): Executed {
  const { stream, command, input, caughtUp, ...given } = request;
  const origin = { ...origins.get(tx), ...given };
  const record = openRecord(tx, stream);
  const { fold, isStored } = currentFold(record, rules, caughtUp);
  const decided = decideCommand(rules, fold, command, input, { nowMs: () => tx.nowMs, uuid: () => tx.uuid() });
  if (decided.is === "refused") return decided;
  const ids: string[] = [];
  let after = fold;
  if (decided.events.length > 0 && !record.exists) record.write({ value: {} satisfies StreamValue });
  for (const event of decided.events) {
    const appended = appendOne(tx, record, event, origin);
    ids.push(appended.id);
    after = foldEvent(rules, after, appended);
  }
  if (after !== fold || (!isStored && record.exists))
    record.write({ value: withFold((record.value ?? {}) as StreamValue, rules.name, after) });
  return { is: "decided", output: decided.output, version: record.head, ids };
}

/** The state after the stream's last event. */
export function currentFold(
  record: Draft,
  rules: AggregateRules,
  caughtUp: Fold | undefined,
): { readonly fold: Fold; readonly isStored: boolean } {
  const stored = foldOf(record, rules.name, rules.by);
  if (stored?.version === record.head) return { fold: stored, isStored: true };
  if (record.head === 0) return { fold: initialFold(rules), isStored: true };
  if (caughtUp?.version === record.head) return { fold: caughtUp, isStored: false };
  throw new FoldBehindError(rules.name, record.at.key, stored?.version ?? 0, record.head);
}

/** Stores a state that was folded outside, unless a later one is stored. */
export function storeFold(tx: Tx, rules: AggregateRules, stream: string, fold: Fold): void {
  const record = tx.record(streamAt(stream));
  const stored = foldOf(record, rules.name, rules.by);
  if (!record.exists || record.head < fold.version || (stored !== undefined && stored.version >= fold.version)) return;
  record.write({ value: withFold(record.value as StreamValue, rules.name, fold) });
}
