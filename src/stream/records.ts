/**
 * Decisions on the records of streams: appending, and running a command. They compose with all others in one commit.
 */

import type { Tx } from "../kernel/decision.ts";
import type { Draft } from "../kernel/draft.ts";
import type { AggregateRules, FoldedEvent } from "./aggregate.ts";
import { type Decided, decideCommand, foldEvent, initialFold, isExpected } from "./decide.ts";
import { ConcurrencyError, FoldBehindError } from "./errors.ts";
import type { NewEvent } from "./event.ts";
import { erasedIn, type FoldOutside, readFold, writeFold } from "./folds.ts";
import { type Seal, subjectsOf } from "./personal/subjects.ts";
import { type Fold, type StoredEvent, type StreamValue, streamAt } from "./stored.ts";

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

/** Appends events, all or none. Throws `concurrency_conflict` where the stream is at another version. */
export function append(tx: Tx, { stream, events, expectedVersion, ...given }: AppendRequest): Appended {
  const origin = { ...origins.get(tx), ...given };
  const record = tx.record(streamAt(stream));
  if (!isExpected(record.head, expectedVersion)) throw new ConcurrencyError(stream, expectedVersion ?? 0, record.head);
  if (events.length === 0) return { version: record.head, ids: [] };
  const seal = beginAppend(tx, record, events);
  return { ids: events.map((event) => appendOne(tx, record, event, origin, seal).id), version: record.head };
}

/** Makes the stream, where there is none, and what the personal fields of the events need. */
function beginAppend(tx: Tx, record: Draft, events: readonly NewEvent[]): Seal {
  if (!record.exists) record.write({ value: {} satisfies StreamValue });
  return subjectsOf(tx).sealing(tx, record, events);
}

function appendOne(tx: Tx, record: Draft, event: NewEvent, origin: EventOrigin, seal: Seal): FoldedEvent {
  const { name, data, shape } = event;
  const id = tx.uuid();
  const { actor, correlationId, causationId } = origin;
  const stored: StoredEvent = {
    id,
    ...seal(event, id),
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
  readonly caughtUp?: FoldOutside | undefined;
}

export type Executed =
  | { readonly is: "decided"; readonly output: unknown; readonly version: number; readonly ids: readonly string[] }
  | Extract<Decided, { readonly is: "refused" }>;

/**
 * Runs a command on the folded state of the stream, appends what it emits, and stores the state after that. Throws `fold_behind` where neither
 * the stored state nor the one that was given is that of the stream's last event.
 */
export function execute(tx: Tx, rules: AggregateRules, request: CommandRequest): Executed {
  const { stream, command, input, caughtUp, ...given } = request;
  const origin = { ...origins.get(tx), ...given };
  const record = tx.record(streamAt(stream));
  const { fold, isStored } = currentFold(tx, record, rules, caughtUp);
  const decided = decideCommand(rules, fold, command, input, { nowMs: () => tx.nowMs, uuid: () => tx.uuid() });
  if (decided.is === "refused") return decided;
  const ids: string[] = [];
  let after = fold;
  if (decided.events.length > 0) {
    const seal = beginAppend(tx, record, decided.events);
    for (const event of decided.events) {
      const appended = appendOne(tx, record, event, origin, seal);
      ids.push(appended.id);
      after = foldEvent(rules, after, appended);
    }
  }
  if (after !== fold || (!isStored && record.exists)) writeFold(tx, record, rules, after);
  return { is: "decided", output: decided.output, version: record.head, ids };
}

/** The state after the stream's last event. */
export function currentFold(
  tx: Tx,
  record: Draft,
  rules: AggregateRules,
  caughtUp: FoldOutside | undefined,
): { readonly fold: Fold; readonly isStored: boolean } {
  const stored = readFold(tx, record, rules);
  if (stored?.version === record.head) return { fold: stored, isStored: true };
  if (record.head === 0) return { fold: initialFold(rules), isStored: true };
  if (caughtUp?.version === record.head && caughtUp.erased === erasedIn(record.value))
    return { fold: caughtUp, isStored: false };
  throw new FoldBehindError(rules.name, record.at.key, stored?.version ?? 0, record.head);
}

/** Stores a state that was folded outside, unless a later one is stored, or a person was forgotten since. */
export function storeFold(tx: Tx, rules: AggregateRules, stream: string, fold: FoldOutside): void {
  const record = tx.record(streamAt(stream));
  const stored = readFold(tx, record, rules);
  if (!record.exists || record.head < fold.version || (stored !== undefined && stored.version >= fold.version)) return;
  if (fold.erased === erasedIn(record.value)) writeFold(tx, record, rules, fold);
}
