/**
 * Decisions on the records of streams: appending, and running a command. They compose with all others in one commit.
 */

import type { Tx } from "../kernel/decision.ts";
import type { Draft } from "../kernel/draft.ts";
import { type Origin, originOf } from "../kernel/origin.ts";
import type { AggregateRules, FoldedEvent } from "./aggregate.ts";
import { type Decided, decideCommand, foldEvent, initialFold, isExpected } from "./decide.ts";
import { ConcurrencyError, FoldBehindError, StreamClosedError } from "./errors.ts";
import type { NewEvent } from "./event.ts";
import { erasedIn, type FoldOutside, readFold, writeFold } from "./folds.ts";
import { subjectsOf } from "./personal/subjects.ts";
import { CLOSED, type Fold, type StoredEvent, type StreamValue, streamAt } from "./stored.ts";

export interface AppendRequest extends Origin {
  readonly stream: string;
  readonly events: readonly NewEvent[];
  readonly expectedVersion: number | undefined;
}

/** Where the appended events are. */
export interface Appended {
  readonly stream: string;
  /** The stream's version after them. */
  readonly version: number;
  /** Their ids, in order. */
  readonly ids: readonly string[];
}

/** Appends events, all or none. Throws `stream_closed`, and `concurrency_conflict` where the stream is at another version. */
export function append(tx: Tx, { stream, events, expectedVersion, ...given }: AppendRequest): Appended {
  const record = openRecord(tx, stream);
  if (!isExpected(record.head, expectedVersion)) throw new ConcurrencyError(stream, expectedVersion ?? 0, record.head);
  const entries = toEntries(tx, record, events, { ...originOf(tx), ...given });
  return { stream, ids: writeEntries(record, entries), version: record.head };
}

/** The record of a stream to append to. Under its lock, so that no event comes after a tombstone. */
function openRecord(tx: Tx, stream: string): Draft {
  const record = tx.record(streamAt(stream));
  if (record.status === CLOSED) throw new StreamClosedError(stream, record.head);
  return record;
}

/** An event, and its text in the log. */
interface EventEntry {
  readonly event: FoldedEvent;
  readonly text: string;
}

/**
 * The events as they will be in the log. All of them are encoded before the first is written: where one cannot be stored, none is, also if the
 * decision catches that.
 */
export function toEntries(tx: Tx, record: Draft, events: readonly NewEvent[], origin: Origin): readonly EventEntry[] {
  if (events.length === 0) return [];
  const { actor, correlationId, causationId } = origin;
  if (!record.exists) record.write({ value: {} satisfies StreamValue });
  const seal = subjectsOf(tx).sealing(tx, record, events);
  return events.map((given, index) => {
    const { name, shape } = given;
    const id = tx.uuid();
    const stored: StoredEvent = {
      id,
      ...seal(given, id),
      ...(shape === 1 ? {} : { shape }),
      ...(actor === undefined ? {} : { actor }),
      ...(correlationId === undefined ? {} : { correlation: correlationId }),
      ...(causationId === undefined ? {} : { causation: causationId }),
    };
    const event: FoldedEvent = {
      stream: record.at.key,
      version: record.head + index + 1,
      id,
      name,
      // Each reducer has its own, where it cannot be frozen.
      get data() {
        return given.data;
      },
      shape,
      ...(actor === undefined ? {} : { actor }),
      ...(correlationId === undefined ? {} : { correlationId }),
      ...(causationId === undefined ? {} : { causationId }),
    };
    return { event, text: record.encode(stored) };
  });
}

/** The events that a decision has appended so far: those of one stream that are in no log yet. */
const pending = new WeakMap<Draft, FoldedEvent[]>();

/** Appends them, and returns their ids. */
export function writeEntries(record: Draft, entries: readonly EventEntry[]): readonly string[] {
  for (const { event, text } of entries) record.appendText(event.name, text, true);
  const earlier = pending.get(record);
  if (earlier === undefined)
    pending.set(
      record,
      Array.from(entries, ({ event }) => event),
    );
  else for (const { event } of entries) earlier.push(event);
  return entries.map(({ event }) => event.id);
}

export interface CommandRequest extends Origin {
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
 * Runs a command on the folded state of the stream, appends what it emits, and stores the state after that. Throws `stream_closed`, and `fold_behind`
 * where neither the stored state nor the one that was given is that of the stream's last event.
 */
export function execute(tx: Tx, rules: AggregateRules, request: CommandRequest): Executed {
  const { stream, command, input, caughtUp, ...given } = request;
  const record = openRecord(tx, stream);
  const { fold, isStored } = currentFold(tx, record, rules, caughtUp);
  const decided = decideCommand(rules, fold, command, input, {
    stream,
    nowMs: () => tx.nowMs,
    uuid: () => tx.uuid(),
  });
  if (decided.is === "refused") return decided;
  const entries = toEntries(tx, record, decided.events, { ...originOf(tx), ...given });
  const after = entries.reduce((state, { event }) => foldEvent(rules, state, event), fold);
  if (after !== fold || (!isStored && record.exists)) writeFold(tx, record, rules, after);
  const ids = writeEntries(record, entries);
  return { is: "decided", output: decided.output, version: record.head, ids };
}

/** The state after the stream's last event. */
export function currentFold(
  tx: Tx,
  record: Draft,
  rules: AggregateRules,
  caughtUp?: FoldOutside | undefined,
): { readonly fold: Fold; readonly isStored: boolean } {
  const stored = readFold(tx, record, rules);
  if (stored?.version === record.head) return { fold: stored, isStored: true };
  if (record.head === 0) return { fold: initialFold(rules), isStored: true };
  // What this decision appended without the aggregate is folded here; what others did was to be folded before.
  const appended = pending.get(record) ?? [];
  const before = record.head - appended.length;
  const isUsable = caughtUp !== undefined && caughtUp.erased === erasedIn(record.value);
  const from = [stored, isUsable ? caughtUp : undefined, before === 0 ? initialFold(rules) : undefined].find(
    (fold) => fold !== undefined && fold.version >= before && fold.version <= record.head,
  );
  if (from === undefined) throw new FoldBehindError(rules.name, record.at.key, stored?.version ?? 0, before);
  const { by, version, state } = from;
  const fold = appended
    .slice(version - before)
    .reduce<Fold>((folded, event) => foldEvent(rules, folded, event), { by, version, state });
  return { fold, isStored: false };
}

/** Stores a state that was folded outside, unless a later one is stored, or a person was forgotten since. */
export function storeFold(tx: Tx, rules: AggregateRules, stream: string, fold: FoldOutside): void {
  const record = tx.record(streamAt(stream));
  const stored = readFold(tx, record, rules);
  if (!record.exists || record.head < fold.version || (stored !== undefined && stored.version >= fold.version)) return;
  if (fold.erased === erasedIn(record.value)) writeFold(tx, record, rules, fold);
}
