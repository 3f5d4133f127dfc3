/**
 * What is stored of admission: the limits, the lines of runs that wait for them, starts that are collected, and workflows that are paused.
 *
 * A limit is one record for each key: how many runs it has admitted, and the ring of lines that wait for it. Runs with the same workflow and the
 * same keys wait in one *line*, a record with the two ends of a list for each priority; the list itself is in the records of the runs (`Gate`).
 * So a waiting run costs no other row, and a hand-over writes the same few rows whether ten or a hundred thousand wait.
 */

import { type Address, address } from "../../kernel/contract.ts";
import { hash } from "../../kernel/fingerprint.ts";

/** One limit: its name, and the key if it counts by key. */
export type PlaceRef = readonly [name: string, key?: string];

export interface LimitValue {
  /** As the last process that knows the workflow declared it. */
  readonly max: number;
  /** How many runs it has admitted that have not ended. */
  readonly held: number;
  /** The lines that wait for it, as a ring: the first has the next turn. */
  readonly first?: string;
  readonly last?: string;
  /** Where it replaces or drops runs: those that have not ended, the oldest first, in line or admitted. */
  readonly runs?: readonly string[];
}

/** Runs of one priority in a line: the first and the last, how many, and since when the first waits. */
export type Lane = readonly [priority: number, first: string, last: string, count: number, sinceMs: number];

export interface LineValue {
  readonly workflow: string;
  readonly places: readonly PlaceRef[];
  /** The one of `places` in whose ring it is; -1 while its first run cannot be read. */
  readonly in: number;
  readonly prev: string | null;
  readonly next: string | null;
  readonly weight: number;
  /** How many more turns it has before the next line. */
  readonly credit: number;
  /** In no order. */
  readonly lanes: readonly Lane[];
}

/** What a run's record says of its admission. */
export interface Gate {
  /** The limits that it passes. */
  readonly places?: readonly PlaceRef[];
  /** The line in which it waits for them, or waited. */
  readonly line?: string;
  readonly priority?: number;
  /** If it has not begun by then, it ends as expired. */
  readonly expiresAtMs?: number;
  /** Its `timeout` begins when it is admitted. */
  readonly timeoutMs?: number;
  /** The rate limits of the workflow that refuse have accepted its start. */
  readonly isAccepted?: true;
  /** It has its turn in the rate limits of the workflow. */
  readonly isRated?: true;
  /** When that turn is, if it was not at once; and how often it was too late for one. */
  readonly turnMs?: number;
  readonly lateTurns?: number;
  /** It is admitted: it has passed everything, and holds its places. */
  readonly isOpen?: true;
  /** Its place in the line, while it waits there. `prev` is only valid for a run that is not the first. */
  readonly queued?: {
    readonly sinceMs: number;
    readonly prev: string | null;
    readonly next: string | null;
    readonly nextSinceMs?: number;
  };
}

/** A run that collects starts: its input is not complete, and its first fact is not written yet. */
export interface Collecting {
  readonly by: "debounce" | "batch";
  /** Which starts it collects. */
  readonly key: string;
  readonly firstMs: number;
  readonly count: number;
  readonly bytes?: number;
  /** Of `debounce`: the last input, or the merged one. The inputs of a batch are entries of the run's log. */
  readonly input?: unknown;
}

/** The first fact of a run. */
export interface Started {
  readonly input: unknown;
  /** The input is the list that a batch has collected. */
  readonly isBatch?: true;
}

/** An input that a batch has collected, in the log of its run before the first fact. */
export const ITEM = "item";

export const limitAt = ([name, key]: PlaceRef): Address =>
  key === undefined ? address("limit", name) : address(`limit/${name}`, key);

/** The limit whose record this is. */
export const placeOf = ({ space, key }: Address): PlaceRef =>
  space === "limit" ? [key] : [space.slice("limit/".length), key];

export const isSamePlace = ([name, key]: PlaceRef, other: PlaceRef): boolean => name === other[0] && key === other[1];

export const lineAt = (line: string): Address => address("line", line);

/** The line of runs with these keys. */
export const lineOf = (workflow: string, places: readonly PlaceRef[], turnBy: string | undefined): string =>
  hash(workflow, ...places.flatMap(([name, key]) => [name, key ?? ""]), ...(turnBy === undefined ? [] : [turnBy]));

/** Where a start finds the run that collects its input. */
export const collectorAt = (workflow: string, key: string): Address => address(`collector/${workflow}`, hash(key));

/** Starts with an id whose inputs were collected: a repeated start finds the run that has its input. */
export const COLLECTED = "collected-start";
export const collectedAt = (workflow: string, id: string): Address => address(`${COLLECTED}/${workflow}`, id);

/** The queue of limits that may be unused, and of limits that have more waiting lines to admit than one commit does. */
export const LIMIT_QUEUE = "limit";
export const HURRIED_QUEUE = "limit-hurried";

/** The queue of lines whose first run could not be read (`mend-line.ts`). */
export const BROKEN_LINE = "line-broken";

/** A workflow of which no runs are begun. */
export const PAUSED = "paused-workflow";
export const pausedAt = (workflow: string): Address => address(PAUSED, workflow);
