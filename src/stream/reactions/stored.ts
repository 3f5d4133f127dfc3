/**
 * What is stored of reactions. Names here are permanent.
 *
 * A reaction is one record: how far its events are routed. A *target* is one record of the reaction's own space; its log lists the events that were
 * routed to it, in order, and its value says how many of them are handled. So progress is one number, what is left is the rest of the log, and an
 * event can be routed again at any time.
 */

import { checkId, MAX_ID_BYTES, utf8Length } from "../../kernel/check.ts";
import { type Address, address } from "../../kernel/contract.ts";
import { hash } from "../../kernel/fingerprint.ts";

export const REACTIONS = "reaction";

export const reactionAt = (name: unknown): Address => address(REACTIONS, checkId(name, "the reaction's name"));

/** The queue in which reactions wait for a worker that knows them, to route their events. */
export const routerQueueOf = (reaction: string): string => `reaction-router/${reaction}`;

export interface RouterValue {
  /** The position up to which events are routed, in the order of all streams. */
  readonly cursor: number;
  /** The names of its events, of all versions of its code that were ever at work. Only an operator removes one. */
  readonly on: readonly string[];
  /** Why its events are not routed. */
  readonly failure?: RouterFailure;
  /** An operator paused the whole reaction. */
  readonly pausedAtMs?: number;
  /** All of its events went to the target with the name of their stream. Absent where some may have gone elsewhere. */
  readonly targets?: "stream";
  /** Before anything else, events are routed that were removed from the store before the reaction began. */
  readonly archived?: ArchivedProgress;
  /** Events after the cursor that became dead letters when their streams were closed by force: they are not routed. */
  readonly aside?: readonly Aside[];
}

/** The worker that routes cannot read an event, as one of a newer shape. Another one may. */
export interface RouterFailure {
  readonly message: string;
  /** Where it was thrown (`kernel/stack.ts`). */
  readonly stack?: string;
  readonly atMs: number;
  readonly stream: string;
  readonly version: number;
}

/** Events of a stream that are not routed, both versions included. */
export interface Aside {
  readonly stream: string;
  readonly from: number;
  readonly to: number;
  /** That of the last one: once the cursor is there, nothing need be known of them. */
  readonly position: number;
}

/** The value of a reaction whose events may go to any target from now on. */
export function withAnyTarget({ targets: _, ...value }: RouterValue): RouterValue {
  return value;
}

export interface ArchivedProgress {
  /** Streams up to this one, in the order of their ids, are done. */
  readonly after: string | null;
  /** How many events of the next one are. */
  readonly stream?: string;
  readonly version?: number;
}

export const targetSpaceOf = (reaction: string): string => `reaction-target/${reaction}`;
export const targetAt = (reaction: string, target: string): Address =>
  address(targetSpaceOf(reaction), checkId(target, "the target"));

/** The queue in which targets with events to handle wait for a worker. */
export const targetQueueOf = (reaction: string): string => `reaction/${reaction}`;
export const reactionOfQueue = (kind: string): string => kind.slice("reaction/".length);

/** The name of the entries in a target's log. */
export const ROUTED = "event";

/** An event that was routed to a target. The stream is left out where it has the name of the target. */
export interface Routed {
  readonly stream?: string;
  readonly version: number;
  /** A dead letter that was sent again: the event is in the log before. */
  readonly isAgain?: true;
}

/** Why the next event of a target is not handled yet. */
export interface Failure {
  readonly count: number;
  readonly name: string;
  readonly message: string;
  readonly stack?: string;
  readonly atMs: number;
}

export interface TargetValue {
  /** How many events of its log are handled. */
  readonly done: number;
  /** How many its log had when it was last reset: up to there, each event is handled where it was routed first. */
  readonly resetAt?: number;
  readonly failure?: Failure;
  readonly blockedAtMs?: number;
  readonly pausedAtMs?: number;
  /** How often a worker lost its lease, or its process, while it worked on this target. */
  readonly losses?: number;
}

/** The statuses of targets that are not worked on. */
export const BLOCKED = "blocked";
export const PAUSED = "paused";

/** Events that an operator skipped, or whose target could not be computed. The key is that of the event: its stream and version. */
export const deadSpaceOf = (reaction: string): string => `reaction-dead/${reaction}`;

export interface DeadLetter {
  readonly stream: string;
  readonly version: number;
  /** None where it could not be computed. */
  readonly target?: string;
  readonly message: string;
  readonly stack?: string;
  readonly actor?: string;
  readonly reason?: string;
  readonly atMs: number;
}

/**
 * Versions have a fixed length here, so that the letters of a stream are listed in order. A stream whose id is too long for the key of a record is named by
 * its hash; the sign after the version says which of the two it is.
 */
export function deadAt(reaction: string, stream: string, version: number): Address {
  const digits = String(version).padStart(16, "0");
  const key = `${digits} ${stream}`;
  return address(deadSpaceOf(reaction), utf8Length(key) <= MAX_ID_BYTES ? key : `${digits}#${hash(stream)}`);
}
