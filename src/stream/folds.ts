/**
 * Folded states as they are stored with their stream. Those of a stream with personal events are sealed: they may have personal data in them. When a
 * person with events in the stream is forgotten, all of them are dropped and `erased` rises; a state that was folded outside a decision says at
 * which number that was, and is not used after it.
 */

import type { Row } from "../kernel/contract.ts";
import type { Tx } from "../kernel/decision.ts";
import type { Draft } from "../kernel/draft.ts";
import type { Kernel } from "../kernel/kernel.ts";
import type { AggregateRules } from "./aggregate.ts";
import { decideStart } from "./closing/decide.ts";
import { initialFold } from "./decide.ts";
import { subjectsOf } from "./personal/subjects.ts";
import { type Fold, foldOf, type StoredFold, type StreamValue, withFold } from "./stored.ts";

/** A state that was folded outside a decision. */
export interface FoldOutside extends Fold {
  /** How often folds of the stream had been dropped before its events were read. */
  readonly erased: number;
}

const placeOf = (aggregate: string, { by, version }: Omit<Fold, "state">): readonly string[] => [
  aggregate,
  by,
  String(version),
];

export const erasedIn = (value: unknown): number => ((value ?? {}) as StreamValue).personal?.erased ?? 0;

/** The stored state of these reducers in a decision. */
export function readFold(tx: Tx, stream: Draft, { name, by }: AggregateRules): Fold | undefined {
  const value = (stream.value ?? {}) as StreamValue;
  const stored = foldOf(value, name, by);
  if (stored === undefined || "state" in stored) return stored;
  const { version, sealed } = stored;
  const text = subjectsOf(tx).openState(stream.at.key, value.personal?.key, placeOf(name, stored), sealed);
  return text === undefined ? undefined : { by, version, state: stream.decode(text) };
}

/** Stores a state in place of an older one by the same reducers. A stream with personal events has none where the handle has no keys. */
export function writeFold(tx: Tx, stream: Draft, { name }: AggregateRules, { by, version, state }: Fold): void {
  const value = (stream.value ?? {}) as StreamValue;
  const { personal } = value;
  if (personal === undefined) {
    stream.write({ value: withFold(value, name, { by, version, state }) });
    return;
  }
  const place = placeOf(name, { by, version });
  const seal = subjectsOf(tx).sealState(tx, stream, place, stream.encode(state));
  if (seal === null) return;
  const { sealed, key } = seal;
  // What was sealed with a key that cannot be opened any more is of no use.
  const kept = key === undefined ? value : { ...value, folds: {}, personal: { ...personal, key } };
  stream.write({ value: withFold(kept, name, { by, version, sealed }) });
}

/** The state that is stored for these reducers, or the one before the first event. */
export function foldInRow(
  kernel: Kernel,
  rules: AggregateRules,
  row: Row | null | undefined,
  canReadArchive: boolean,
): FoldOutside {
  if (row == null || row.value === null) return { ...initialFold(rules), erased: 0 };
  const value = kernel.decode(row, row.value) as StreamValue;
  const erased = erasedIn(value);
  const stored = decideStart(value, rules, canReadArchive);
  const state = stored === undefined ? undefined : openFold(kernel, rules, row, value, stored);
  if (stored === undefined || state === undefined) return { ...initialFold(rules), erased };
  // It may be of other reducers, where that is accepted: from here on it is of these.
  return { by: rules.by, version: stored.version, state: state.state, erased };
}

/** The state of a stored fold; undefined where it cannot be opened. */
function openFold(
  kernel: Kernel,
  { name }: AggregateRules,
  row: Row,
  value: StreamValue,
  stored: StoredFold,
): { readonly state: unknown } | undefined {
  if ("state" in stored) return { state: stored.state };
  const text = subjectsOf(kernel).openState(row.key, value.personal?.key, placeOf(name, stored), stored.sealed);
  return text === undefined ? undefined : { state: kernel.decode(row, text) };
}
