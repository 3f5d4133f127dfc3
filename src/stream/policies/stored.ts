/**
 * What is stored of policies. Names here are permanent.
 *
 * A policy is one record: which rules count, how far it has looked for streams, and what it has done. Each stream that it may have to do something
 * about is a record of the policy's own space, due when the stream has to be looked at.
 */

import { checkId } from "../../kernel/check.ts";
import { type Address, address } from "../../kernel/contract.ts";

export const POLICIES = "stream-policy";

export const policyAt = (name: unknown): Address => address(POLICIES, checkId(name, "the policy's name"));

/** The queue in which a policy waits for workers that know it, to find streams. It is due all the time. */
export const policyQueueOf = (policy: string): string => `stream-policy/${policy}`;

export interface PolicyValue {
  /** Names the rules that count (`PolicyRules.by`): those of the worker that began last. None while it is removed. */
  readonly by: string;
  /** Up to this position, in the order of all streams, events were looked at. */
  readonly cursor: number;
  /** Streams that were there before the rules are listed first: those up to this id are done. Absent when all are. */
  readonly listed?: { readonly after: string | null };
  /** How many streams it has closed, how often it has pruned one, and how many events these had. */
  readonly closed: number;
  readonly pruned: number;
  readonly removed: number;
  /** How often it had to leave a stream as it is. */
  readonly inUse: number;
  readonly noState: number;
  readonly failed: number;
  readonly lastSkip?: Note;
  readonly lastError?: Note;
}

/** What was noticed about a stream. */
export interface Note {
  readonly stream: string;
  readonly message: string;
  readonly atMs: number;
}

export const policySpaceOf = (policy: string): string => `stream-policy/${policy}`;
export const policyStreamAt = (policy: string, stream: string): Address => address(policySpaceOf(policy), stream);

/** The queue in which streams wait to be looked at. */
export const policyStreamQueueOf = (policy: string): string => `policy-stream/${policy}`;

/** A stream, as a policy knows it. */
export interface PolicyStreamValue {
  /** It is looked at when its version is this, also before it is due. */
  readonly prunesAt?: number;
  /** What a worker has begun. It is due when others may take over. */
  readonly taken?: Taken;
  /** How often in a row it had to be left as it is. */
  readonly failures?: number;
}

export interface Taken {
  readonly is: "close" | "prune";
  /** The first version that the store kept, and the last version of the stream, when it began. */
  readonly from: number;
  readonly head: number;
}
