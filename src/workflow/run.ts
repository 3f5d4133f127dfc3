/**
 * A run's record: what is in it, where it is, and how the run hears that there is news.
 */

import { wake } from "../kernel/claim/claim.ts";
import { type Address, address } from "../kernel/contract.ts";
import type { Tx } from "../kernel/decision.ts";
import type { LockRef, Mode } from "../lock/records.ts";
import type { Settled } from "./coroutine.ts";
import type { Doing } from "./doing.ts";

/** What a run's record holds. Its input and all that happened are in its log; a short input is here too, until the run has begun and ended. */
export interface RunValue {
  readonly workflow: string;
  /** 1, and one more each time that a run which had ended is started again under its id. */
  readonly incarnation: number;
  /** Where chance in the run comes from. */
  readonly seed: string;
  /** The store's clock at the start. */
  readonly startedAtMs: number;
  /** When it was to begin, if that was not at once. */
  readonly scheduledAtMs?: number;
  /** The version of its first fact. */
  readonly from: number;
  /** Facts up to this one are of a run that was deleted. */
  readonly deletedUpTo?: number;
  /** Tells whether another start under this id has the same input. */
  readonly fingerprint?: string;
  readonly tags?: readonly string[];
  readonly parent?: Parent;
  /** The run that is the parent of all, for what is shared in the tree. */
  readonly root?: string;
  readonly deadlineMs?: number;
  readonly cancel?: { readonly reason?: string };
  /** Facts that a retry has forgotten, and where the history lists more of them (`forgotten.ts`). */
  readonly skips?: readonly VersionRange[];
  readonly skipLists?: readonly VersionRange[];
  /** Where the history has the last retry: what is before it is remembered, not followed. */
  readonly retriedAt?: number;
  /** Ends of children that its inbox has up to there were not received before it failed: since the retry, each is asked for again. */
  readonly endingsAfter?: number;
  /** It has failed: what a retry forgets, and the children that it retries; where they are many, the history lists them. */
  readonly forgets?: {
    readonly facts: readonly VersionRange[];
    readonly children: readonly { readonly id: string; readonly run: string }[];
    readonly lists?: VersionRange;
  };
  /** It was retried, and these children, or those that the history lists, are to be: so many of them are. */
  readonly retrying?: {
    readonly children: readonly { readonly id: string; readonly run: string }[];
    readonly lists?: VersionRange;
    readonly done: number;
  };
  readonly parked?: { readonly reason: string };
  /** Workers whose code contradicts the history have released it since then. */
  readonly contradicted?: { readonly sinceMs: number; readonly reason: string };
  /** What went wrong when it was last worked on, until it gets further. */
  readonly trouble?: { readonly atMs: number; readonly reason: string };
  /** What it was doing when its worker released it, or last renewed its lease. */
  readonly doing?: Doing;
  /** The store's clock at the end, approximately. */
  readonly endedAtMs?: number;
  /** Other runs wait for its outcome; who they are is in a record of its own. */
  readonly hasWaiters?: true;
  /** The locks that it holds, or waits for. */
  readonly holds?: readonly RunHold[];
  /** Its worker gave it up in the middle: what it began may still go on, under the fences of what it holds. */
  readonly isUnsettled?: true;
  /** It rests, and waits for nothing but locks and children. Only true while it rests and no timer is set. */
  readonly blocked?: {
    /** The children, or some of them where they are more than are followed (`deadlock.ts`). */
    readonly children: readonly string[];
    /** The end of its cleanup's grace. */
    readonly untilMs?: number;
  };
  readonly outcome?: Settled;
  /** For whoever begins the run, if its start did not: saves reading the log. */
  readonly input?: unknown;
}

/** Versions of the history, both included. */
export type VersionRange = readonly [from: number, to: number];

/** Versions as ranges, in order. */
export function rangesOf(versions: readonly number[]): readonly VersionRange[] {
  const ranges: [number, number][] = [];
  for (const version of [...new Set(versions)].sort((a, b) => a - b)) {
    const last = ranges.at(-1);
    if (last !== undefined && last[1] === version - 1) last[1] = version;
    else ranges.push([version, version]);
  }
  return ranges;
}

/** A lock, or several at once, that the run holds or waits for. */
export interface RunHold {
  /** The operation that asked for it. */
  readonly id: string;
  readonly refs: readonly LockRef[];
  readonly mode: Mode;
  readonly ticket: string;
  /** Missing while it waits. */
  readonly fence?: number;
  /** Somebody found it in a circle of runs that wait for each other. */
  readonly isSuspected?: true;
}

/** Whose child it is, under which operation there, and what becomes of it when the parent ends first. */
export interface Parent {
  readonly run: string;
  readonly id: string;
  readonly incarnation: number;
  /** Whether the parent waits for its outcome. */
  readonly waits: boolean;
}

export const RUNS = "run";
const INBOXES = "inbox";

export const runAt = (id: string): Address => address(RUNS, id);

/** Where the runs are listed that wait for the outcome of a run which another started. */
export const WAITERS = "run-waiters";
export const waitersAt = (run: string): Address => address(WAITERS, run);
/** The queue of lists that were too long for the commit that ended the run. */
export const WAITERS_QUEUE = "run-waiters";

/** The runs that wait for a run's outcome; the outcome is there once the run has ended. */
export interface Waiters {
  readonly parents: readonly Parent[];
  readonly outcome?: Settled;
}
/** Each time that a run is started under its id, it begins with an empty inbox. */
export const inboxAt = (id: string, incarnation: number): Address =>
  address(incarnation === 1 ? INBOXES : `${INBOXES}/${incarnation}`, id);

/** The queue that workers of a workflow claim its runs from. */
export const queueOf = (workflow: string): string => `run/${workflow}`;

/** Where its runs are that have ended and are kept for a time only, and those that are being deleted (`retire.ts`, `delete.ts`). */
export const endedQueueOf = (workflow: string): string => `run-ended/${workflow}`;
export const deletingQueueOf = (workflow: string): string => `run-deleting/${workflow}`;

/** All queues in which runs of a workflow can be. */
export const queuesOf = (workflow: string): readonly string[] => [
  queueOf(workflow),
  endedQueueOf(workflow),
  deletingQueueOf(workflow),
];

/** The workflow that a run is of, as its queue says. */
export const workflowOfQueue = (kind: string | null): string => kind?.slice(kind.indexOf("/") + 1) ?? "";

/** News for a run. One that has not begun, or is parked, is not begun by it: the news is kept. */
export function wakeRun(tx: Tx, id: string): void {
  const run = tx.record(runAt(id));
  const isAtRest = run.holder === null && (run.status === "pending" || run.status === "parked");
  if (isAtRest) run.write({ wakes: run.wakes + 1 });
  else wake(tx, runAt(id));
}
