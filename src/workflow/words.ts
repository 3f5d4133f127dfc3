/**
 * The words that are stored: statuses of runs, and the facts that make up a run's history. Once stored, a word is for ever.
 *
 * A fact is one log entry. Its name is a word and, for most, the operation it is about: "step charge", "step charge#2" for the second
 * time that this name is used, "step charge#=eu" where the code gave an id.
 */

export const STATUSES = [
  "pending",
  "running",
  "waiting",
  "completed",
  "failed",
  "canceled",
  "timed_out",
  "parked",
] as const;

export type RunStatus = (typeof STATUSES)[number];

export const ENDED: ReadonlySet<string> = new Set<RunStatus>(["completed", "failed", "canceled", "timed_out"]);

/** The kinds of operation that code asks for. */
export type Kind = "step" | "sleep" | "signal" | "child" | "slot" | "lock" | "unlock" | "rate";

/** Each word of the history, with the kind of operation it is about; null for those that are about the run. */
export const WORDS = {
  started: null,
  /** A step's outcome: `{ ok }` or `{ error }`. */
  step: "step",
  /** A step that runs at most once is about to. */
  intent: "step",
  /** It did not happen, somebody said. */
  undone: "step",
  /** An attempt failed, and the next one is due later. */
  attempt: "step",
  progress: "step",
  /** A sleep began, and its end is known. */
  sleep: "sleep",
  woke: "sleep",
  /** A wait for a signal began that ends by itself. */
  wait: "signal",
  received: "signal",
  expired: "signal",
  /** A child was started. */
  child: "child",
  ended: "child",
  /** The child could not be started: its id is another run's. */
  refused: "child",
  slot: "slot",
  /** It stands in line for a lock, for a time or without end. */
  queued: "lock",
  granted: "lock",
  denied: "lock",
  /** It was told its place in line, and keeps it. */
  placed: "lock",
  unlock: "unlock",
  /** A turn was reserved in a rate limit. */
  rate: "rate",
  /** The code looked at the clock after the fact before this one. */
  now: null,
  /** A request to cancel, or the run's own timeout, reached the code. */
  canceled: null,
  /** The run ended, in one of these ways; or a person let it go on. */
  completed: null,
  failed: null,
  parked: null,
  retried: null,
  /** What a retry forgets, where that is too much for the run's record (`forgotten.ts`). */
  forgettable: null,
  /** The run was deleted. What follows is another run under the same id. */
  deleted: null,
} as const satisfies Record<string, Kind | null>;

export type Word = keyof typeof WORDS;

/** A fact's name as word and operation. */
export function parseFact(name: string): { readonly word: string; readonly id: string } {
  const space = name.indexOf(" ");
  return space < 0 ? { word: name, id: "" } : { word: name.slice(0, space), id: name.slice(space + 1) };
}

/**
 * Names an operation: the name alone for the first time, numbered after that, or with the id that the code gave. Without a name, the number.
 * A "#" of the name's or the id's own is doubled, so that no two operations have one name.
 */
export const operationId = (name: string, count: number, id: string | undefined): string =>
  name === ""
    ? String(count)
    : `${doubled(name)}${id === undefined ? "" : `#=${doubled(id)}`}${count === 1 ? "" : `#${count}`}`;

const doubled = (text: string): string => (text.includes("#") ? text.replaceAll("#", "##") : text);
