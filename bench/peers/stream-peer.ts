/**
 * What a contender of the comparison of event streams is: something that appends events, runs commands with an invariant, and
 * calls a handler for each event.
 *
 * All of them store the same event, `charge` (peer.ts), and check the same invariant: an account is charged up to a limit. Where a library refuses
 * a caller because another one was faster, its caller tries again, as its users must; a call counts when it has succeeded.
 *
 * Leaves out: what is measured (stream-protocols.ts), and how each is used (a file for each).
 */

import type { Charge, Ground, Peer } from "./peer.ts";

export interface StreamPeer extends Omit<Peer, "open"> {
  /** It takes part with its reactions only. */
  readonly isForReactions?: boolean;
  open(ground: Ground): Promise<StreamSession>;
}

/** A contender at work: worker and caller are both in this process. */
export interface StreamSession {
  /** Appends one event at the end of the stream. */
  append(stream: string, charge: Charge): Promise<unknown>;
  /** Charges an account, if that stays within the limit: decides on the folded state, and appends one event. */
  command(stream: string, charge: Charge): Promise<unknown>;
  /** Appends these events to the stream in one go. It is not measured. */
  fill(stream: string, charges: readonly Charge[]): Promise<unknown>;
  /** Handles the events of all streams, each stream in order. A handler that `emits` appends one event to another stream, `outOf(stream)`. */
  react(handle: (stream: string, version: number) => void, emits: boolean): Promise<Reacting>;
  /** How many events the stream has. */
  count(stream: string): Promise<number>;
  close(): Promise<void>;
}

export interface Reacting {
  stop(): Promise<void>;
}

/** The stream that a reaction to an event of this one appends to. */
export const outOf = (stream: string): string => `out-${stream}`;

export const LIMIT = 1e12;

/** Refuses by throwing, as commands do. */
export function checkLimit(total: number, charge: Charge): void {
  if (total + charge.total > LIMIT) throw new Error("the limit is exceeded");
}

const MOST_ATTEMPTS = 10_000;

/** Calls again while `isConflict` says that another caller was faster, after a short random pause. */
export async function again<T>(call: () => Promise<T>, isConflict: (error: unknown) => boolean): Promise<T> {
  for (let attempt = 1; ; attempt++)
    try {
      return await call();
    } catch (error) {
      if (attempt === MOST_ATTEMPTS || !isConflict(error)) throw error;
      await new Promise((resolve) => setTimeout(resolve, Math.random() * Math.min(50, 2 * attempt)));
    }
}

/** At most `most` calls at a time; the others wait for their turn. */
export function atMost(most: number): <T>(call: () => Promise<T>) => Promise<T> {
  let free = most;
  const waiting: (() => void)[] = [];
  return async (call) => {
    if (free > 0) free -= 1;
    else await new Promise<void>((resolve) => waiting.push(resolve));
    try {
      return await call();
    } finally {
      const next = waiting.shift();
      if (next === undefined) free += 1;
      else next();
    }
  };
}
