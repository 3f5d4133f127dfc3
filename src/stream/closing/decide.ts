/**
 * Closing and pruning, as rules: what a call has to do next, given what is stored. Pure: every rule is a row of `decide.test.ts`.
 *
 * A closing is a row of commits, each of which leaves what the next one needs in the stream's value. So a call that finds a closing half done, its own
 * after a crash or that of another process, does the rest.
 */

import { firstVersionOf, type StoredFold, type StreamValue } from "../stored.ts";

/** A stream as rules see it. */
export interface StreamState {
  readonly head: number;
  readonly value: StreamValue;
}

export interface CloseRequest {
  /** The version of the last event that the caller knows. */
  readonly expectedVersion: number | undefined;
  /** The hash of the opening event, if the stream is to be restarted. */
  readonly restart: string | undefined;
  /** The version of the tombstone that this call is about, once it is there. */
  readonly tombstone?: number | undefined;
}

export type CloseStep =
  /** There are no events. */
  | { readonly is: "missing" }
  /** The stream is at another version than the caller expects. */
  | { readonly is: "conflict" }
  /** Write the tombstone. */
  | { readonly is: "close" }
  /** Archive these events, and say so. */
  | { readonly is: "archive"; readonly version: number; readonly from: number; readonly to: number }
  /** Remove what is before the tombstone; then restart, or end. */
  | { readonly is: "remove"; readonly version: number; readonly archived: number }
  /** Everything is done, by this call or an earlier one. */
  | { readonly is: "restarted"; readonly version: number; readonly archived: number; readonly restartedAt: number };

export function decideClose(state: StreamState | undefined, request: CloseRequest): CloseStep {
  if (state === undefined || state.head === 0) return { is: "missing" };
  const { head, value } = state;
  const { closed, restarted } = value;
  const { expectedVersion, restart, tombstone } = request;
  if (restarted !== undefined) {
    const { version, archived, at: restartedAt, hash } = restarted;
    const done: CloseStep = { is: "restarted", version, archived, restartedAt };
    // Another call finished this closing, and restarted the stream with another event.
    if (tombstone === version && restart !== undefined && restart !== hash) return { is: "conflict" };
    if (tombstone !== undefined && tombstone <= version) return done;
    // Without an expectation, a stream in which nothing happened since it was restarted in the same way is what the caller wants.
    const isSame = expectedVersion === undefined ? head === restartedAt : isTombstone(expectedVersion, version);
    if (closed === undefined && isSame && restart === hash) return done;
  }
  if (closed === undefined) {
    if (expectedVersion !== undefined && expectedVersion !== head) return { is: "conflict" };
    return { is: "close" };
  }
  const { version, archived } = closed;
  if (expectedVersion !== undefined && !isTombstone(expectedVersion, version)) return { is: "conflict" };
  if (archived === undefined) return { is: "archive", version, from: firstVersionOf(value), to: version - 1 };
  return { is: "remove", version, archived };
}

/** Whether a caller expects this tombstone: it knows the last event, as when it wrote the tombstone itself, or the tombstone. */
const isTombstone = (expectedVersion: number, version: number): boolean =>
  expectedVersion === version - 1 || expectedVersion === version;

export interface PruneRequest {
  /** The first version to keep. */
  readonly before: number;
  /** Whether states need not be kept: the events are thrown away on purpose. */
  readonly isDiscarded: boolean;
}

export type PruneStep =
  | { readonly is: "missing" }
  | { readonly is: "closed" }
  /** The last event cannot be removed. */
  | { readonly is: "beyond"; readonly most: number }
  /** No aggregate has a state that has the events which would be removed; at most those before `most` can be. */
  | { readonly is: "unfolded"; readonly most: number }
  /** Archive these events, and say so. */
  | { readonly is: "archive"; readonly from: number; readonly to: number }
  /** They are archived, or were before. */
  | { readonly is: "remove" };

export function decidePrune(state: StreamState | undefined, { before, isDiscarded }: PruneRequest): PruneStep {
  if (state === undefined || state.head === 0) return { is: "missing" };
  const { head, value } = state;
  if (value.closed !== undefined) return { is: "closed" };
  if (before > head) return { is: "beyond", most: head };
  const from = firstVersionOf(value);
  if (before <= from) return { is: "remove" };
  const most = 1 + Math.max(0, ...foldsOf(value).map(({ version }) => version));
  if (!isDiscarded && before > most) return { is: "unfolded", most };
  return { is: "archive", from, to: before - 1 };
}

export const foldsOf = ({ folds = {} }: StreamValue): readonly StoredFold[] => Object.values(folds).flat();

/** What is known of events that are to be removed. */
export interface Removal {
  readonly names: Iterable<string>;
  /** The position of the last one. */
  readonly position: number;
}

/** What is stored once events before `firstVersion` may be removed. */
export function withRemoved(value: StreamValue, firstVersion: number, { names, position }: Removal): StreamValue {
  const before = firstVersionOf(value);
  const known = before > 1 && value.removedNames === undefined ? undefined : (value.removedNames ?? []);
  const all = known === undefined ? undefined : [...new Set([...known, ...names])].toSorted();
  const { removedNames: _, ...rest } = value;
  return {
    ...rest,
    firstVersion: Math.max(before, firstVersion),
    removedUpTo: Math.max(value.removedUpTo ?? 0, position),
    ...(all === undefined || all.length > MOST_NAMES ? {} : { removedNames: all }),
  };
}

const MOST_NAMES = 200;

/** Whether events of one of these names may have been removed. */
export function hasRemoved(value: StreamValue, names: ReadonlySet<string>): boolean {
  if (firstVersionOf(value) === 1) return false;
  return value.removedNames === undefined || value.removedNames.some((name) => names.has(name));
}

/** What is stored with the tombstone. It changes no state, so states of the event before it are states of the tombstone. */
export function withTombstone(value: StreamValue, version: number): StreamValue {
  const { folds, ...rest } = value;
  if (folds === undefined) return { ...rest, closed: { version } };
  const moved = Object.entries(folds).map(([name, list]) => [
    name,
    // One that is sealed is bound to its version.
    list.map((fold) => (fold.version === version - 1 && "state" in fold ? { ...fold, version } : fold)),
  ]);
  return { ...rest, folds: Object.fromEntries(moved), closed: { version } };
}

/**
 * The state to fold from, for these reducers: their own, if the events after it are kept or can be read; otherwise, where that is accepted, the newest
 * of other reducers (`by`) after which all events are kept. Undefined is: from the first event.
 */
export function decideStart(
  value: StreamValue,
  rules: { readonly name: string; readonly by: string; readonly startsFromKept: boolean },
  canRead: boolean,
): StoredFold | undefined {
  const { folds = {} } = value;
  const all = Object.hasOwn(folds, rules.name) ? (folds[rules.name] ?? []) : [];
  const own = all.find(({ by }) => by === rules.by);
  const isEnough = ({ version }: StoredFold): boolean => version >= firstVersionOf(value) - 1;
  if (canRead || !rules.startsFromKept || firstVersionOf(value) === 1 || (own !== undefined && isEnough(own)))
    return own;
  const [newest] = all.filter(isEnough).toSorted((a, b) => b.version - a.version);
  return newest ?? own;
}
