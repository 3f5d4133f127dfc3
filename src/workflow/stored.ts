/**
 * What is stored of runs: the statuses, the facts of a history, the run's record, and where the records are.
 *
 * A run is one record. Its value is `RunValue`; its log is the run's history, a list of facts. Messages from outside are in the log of a
 * second record, the inbox. A fact is one log entry: its name is a word and, for most words, the operation that the fact is about:
 * "step charge", "step charge#2" for the second use of that name, "step charge#=eu" where the code gave an id.
 *
 * What is stored is read by every later version, so words and fields are only added, never renamed.
 */

import { type Address, address } from "../kernel/contract.ts";
import { UnsupportedEncodingError } from "../kernel/errors.ts";
import type { Origin } from "../kernel/origin.ts";
import type { LockRef, Mode } from "../lock/stored.ts";
import type { Collecting, Gate } from "./flow/stored.ts";

// Statuses.

/** The statuses of a run, and whether the run has ended with it. A new status has to be handled wherever the compiler says so. */
const IS_ENDED = {
  /** It has not begun: it waits for its time, or for a worker. A run that was retried is pending too. */
  pending: false,
  /** It waits in line, because a concurrency limit of its workflow has no room. */
  queued: false,
  running: false,
  /** No worker holds it, and it resumes when something is due or arrives. */
  waiting: false,
  completed: true,
  failed: true,
  canceled: true,
  timed_out: true,
  /** It did not begin in time (`ttl`). */
  expired: true,
  /** It waits for an operator. */
  parked: false,
} as const;

export type RunStatus = keyof typeof IS_ENDED;

/** A status with which a run has ended. */
export type EndedStatus = { [S in RunStatus]: (typeof IS_ENDED)[S] extends true ? S : never }[RunStatus];

export const STATUSES = Object.keys(IS_ENDED) as readonly RunStatus[];

const isEndedStatus = (status: RunStatus): status is EndedStatus => IS_ENDED[status];

export const ENDED_STATUSES: readonly EndedStatus[] = STATUSES.filter(isEndedStatus);

export const ENDED: ReadonlySet<string> = new Set(ENDED_STATUSES);

/** Whether the code of a run has begun, as far as its history says. */
export const hasBegun = ({ head }: { readonly head: number }, { from, collecting }: RunValue): boolean =>
  collecting === undefined && head > from;

/** The time at which its code begins, as the code sees it. */
export const beginsAtMs = ({ admittedAtMs, scheduledAtMs, startedAtMs }: RunTimes): number =>
  admittedAtMs ?? scheduledAtMs ?? startedAtMs;

type RunTimes = Pick<RunValue, "admittedAtMs" | "scheduledAtMs" | "startedAtMs">;

/** Whether the run of this record has ended. */
export const hasEnded = ({ status }: { readonly status: string | null }): boolean =>
  status !== null && ENDED.has(status);

export const isRunStatus = (status: string | null): status is RunStatus =>
  status !== null && Object.hasOwn(IS_ENDED, status);

/** The status of a run's record. Throws for one that this version does not know. */
export function statusOf({ status }: { readonly status: string | null }): RunStatus {
  if (isRunStatus(status)) return status;
  throw new UnsupportedEncodingError("its status", `this version does not know "${status}"`);
}

// Facts.

/** The kinds of operation that code starts. */
export type Kind = "step" | "sleep" | "signal" | "child" | "slot" | "stream" | "lock" | "unlock" | "rate";

/** Each word of the history, with the kind of operation that it is about; null for a word that is about the run. */
export const WORDS = {
  started: null,
  /** A step's outcome: `{ ok }` or `{ error }`. */
  step: "step",
  /** A step that runs at most once is about to run. */
  intent: "step",
  /** It did not happen: an operator said so, or it lost a race before it began. */
  undone: "step",
  /** An attempt failed, and the next one is due later. */
  attempt: "step",
  progress: "step",
  /** A sleep began, with the time of its end. */
  sleep: "sleep",
  woke: "sleep",
  /** A wait for a signal began that has a timeout. */
  wait: "signal",
  received: "signal",
  expired: "signal",
  /** A child was started. */
  child: "child",
  ended: "child",
  /** The child could not be started: its id belongs to a different run. */
  refused: "child",
  slot: "slot",
  /** An append or a command on a stream, with its outcome. */
  stream: "stream",
  /** It waits in the queue of a lock, with or without a timeout. */
  queued: "lock",
  granted: "lock",
  denied: "lock",
  /** It received its place in the queue, and keeps it. */
  placed: "lock",
  unlock: "unlock",
  /** A turn was reserved in a rate limit. */
  rate: "rate",
  /** The code read the clock after the fact before this one. */
  now: null,
  /** A request to cancel, or the run's own timeout, reached the code. */
  canceled: null,
  /** The run ended, in one of these ways; or it was parked, or an operator retried it. */
  completed: null,
  failed: null,
  parked: null,
  retried: null,
  /** What a retry forgets, where that is too much for the run's record (`history/forgotten.ts`). */
  forgettable: null,
  /** The run was deleted. What follows is a new run under the same id. */
  deleted: null,
} as const satisfies Record<string, Kind | null>;

export type Word = keyof typeof WORDS;

/** The words that are about an operation. */
export type OperationWord = { [W in Word]: (typeof WORDS)[W] extends null ? never : W }[Word];

export const isOperationWord = (word: Word): word is OperationWord => WORDS[word] !== null;

export const isWord = (word: string): word is Word => Object.hasOwn(WORDS, word);

/** A fact's name as word and operation. */
export function parseFact(name: string): { readonly word: string; readonly id: string } {
  const space = name.indexOf(" ");
  return space < 0 ? { word: name, id: "" } : { word: name.slice(0, space), id: name.slice(space + 1) };
}

/**
 * Names an operation: the name alone for its first use, numbered after that, or with the id that the code gave. Without a name, the number.
 * A "#" in the name or the id is doubled, so that no two operations have the same name.
 */
export const operationId = (name: string, count: number, id: string | undefined): string =>
  name === ""
    ? String(count)
    : `${doubled(name)}${id === undefined ? "" : `#=${doubled(id)}`}${count === 1 ? "" : `#${count}`}`;

/** A name as it is part of the names of operations. */
export const doubled = (text: string): string => (text.includes("#") ? text.replaceAll("#", "##") : text);

/** The name of an operation that has one, without its number, and the number. */
export function parseOperation(id: string): { readonly name: string; readonly number: number } {
  const [, marks = "", digits = ""] = /(#+)(\d+)$/.exec(id) ?? [];
  // Those of the name come in pairs.
  if (marks.length % 2 === 0) return { name: id, number: 1 };
  return { name: id.slice(0, -digits.length - 1), number: Number(digits) };
}

/** What the fact of a child's start says. */
export interface ChildStart {
  readonly run: string;
  readonly endsWithParent?: true;
  /** The operation does not wait for its outcome. */
  readonly isLeft?: true;
  /** The run has inputs of others, too, or was started by another: it does not end with the parent. */
  readonly isShared?: true;
}

/** What many facts also say: what the operation does (`execution/verbs.ts`). Those of earlier releases do not. */
export interface OfVerb {
  readonly verb?: string;
}

/** The outcome of an operation, or of a run. */
export type Outcome = { readonly ok: unknown } | { readonly error: unknown };

// The record of a run.

/** The value of a run's record. Its input and its facts are in its log; a short input is here too, until the run has begun and ended. */
export interface RunValue {
  readonly workflow: string;
  /** 1 for the first run under its id; one more each time that a run which has ended is started again under it. */
  readonly incarnation: number;
  /** The seed of `ctx.random` and `ctx.uuid`. */
  readonly seed: string;
  /** The store's clock at the start. */
  readonly startedAtMs: number;
  /** When it begins, if that is not immediately. */
  readonly scheduledAtMs?: number;
  /** The tick of a schedule that started it, and the one before that did. */
  readonly tick?: { readonly schedule: string; readonly atMs: number; readonly lastMs?: number };
  /** A record that the commit which ends the run wakes. */
  readonly wakesAtEnd?: readonly [space: string, key: string];
  /** Of a task that waits for a signal: the hash of the token that settles this run, and no other one under its id. */
  readonly tokenHash?: string;
  /** The version of its first fact. */
  readonly from: number;
  /** Facts up to this one belong to a run that was deleted. */
  readonly deletedUpTo?: number;
  /** Tells whether a second start under this id has the same input. */
  readonly fingerprint?: string;
  readonly tags?: readonly string[];
  readonly parent?: Parent;
  /** The run at the top of its tree of parents, for what the tree shares. */
  readonly root?: string;
  /** Who caused it, what it belongs to, and what it follows from, if that was given. */
  readonly origin?: { readonly actor?: string; readonly correlation?: string; readonly causation?: string };
  readonly deadlineMs?: number;
  /** When it was admitted, if it had to wait for that: its code begins then. */
  readonly admittedAtMs?: number;
  /**
   * It is asked to stop. With `resumes`, its parent was retried meanwhile: it resumes after it has stopped, if it had nothing to clean up. With
   * `isWithoutCode`, a worker ends it without running its code.
   */
  readonly cancel?: { readonly reason?: string; readonly resumes?: boolean; readonly isWithoutCode?: true };
  /** Facts that a retry has forgotten, and where the history lists more of them (`history/forgotten.ts`). */
  readonly skips?: readonly VersionRange[];
  readonly skipLists?: readonly VersionRange[];
  /** Where the history has the last retry: facts before it are remembered, not followed. */
  readonly retriedAt?: number;
  /** Ends of children up to this entry of its inbox were not received before it failed: since the retry, each is requested again. */
  readonly endingsAfter?: number;
  /**
   * It has failed, or was canceled and did nothing after that: what a retry forgets, and the children that it retries. Where there are many, the
   * history lists them.
   */
  readonly forgets?: {
    readonly facts: readonly VersionRange[];
    readonly children: readonly ToRetry[];
    readonly lists?: VersionRange;
  };
  /** It was retried, and these children, or those that the history lists, are to be retried too: `done` of them have been. */
  readonly retrying?: {
    readonly children: readonly ToRetry[];
    readonly lists?: VersionRange;
    readonly done: number;
  };
  readonly parked?: { readonly reason: string };
  /** Workers whose code contradicts the history have released it since then. */
  readonly contradicted?: { readonly sinceMs: number; readonly reason: string };
  /** The problem at the last attempt to work on it, until it gets further. */
  readonly trouble?: { readonly atMs: number; readonly reason: string };
  /** What it was doing when its worker released it, or last renewed its lease. */
  readonly doing?: Doing;
  /** The store's clock at the end, approximately. */
  readonly endedAtMs?: number;
  /** More runs than its parent wait for its outcome; they are listed in a record of their own (`Waiters`). */
  readonly hasWaiters?: true;
  /** The locks that it holds, or waits for. */
  readonly holds?: readonly RunHold[];
  /** Its worker abandoned it in the middle: what that worker began may still run, under the fences of these locks. */
  readonly isUnsettled?: true;
  /** It rests, and waits for nothing but locks and children. Only valid while it rests and no other timer is set. */
  readonly blocked?: {
    /** The children, or some of them where there are more than are followed (`locks/deadlock.ts`). */
    readonly children: readonly string[];
    /** The end of its cleanup's grace, or of a timer that no code observes. */
    readonly untilMs?: number;
  };
  /** The pool of workers that take it, where its workflow has pools. */
  readonly pool?: string;
  /** Which limits it passes before it begins, and what it holds of them. */
  readonly gate?: Gate;
  /** It collects starts: its first fact is not written yet. */
  readonly collecting?: Collecting;
  readonly outcome?: Outcome;
  /** For the worker that begins the run, where its start did not: saves reading the log. */
  readonly input?: unknown;
}

/** Versions of the history, both included. */
export type VersionRange = readonly [from: number, to: number];

/** A child that is retried with its parent, by the operation that started it. */
export interface ToRetry {
  readonly id: string;
  readonly run: string;
  /** The operation does not wait for its outcome. */
  readonly isLeft?: true;
}

/** A lock, or several together, that the run holds or waits for. */
export interface RunHold {
  /** The operation that requested it. */
  readonly id: string;
  readonly refs: readonly LockRef[];
  readonly mode: Mode;
  readonly ticket: string;
  /** Missing while it waits. */
  readonly fence?: number;
  /** A run that went to rest found it in a circle of runs that wait for each other. */
  readonly isSuspected?: true;
}

/** The origin of what a run does: that of the run, and the run as its cause. */
export function originOfRun(run: string, { origin = {}, root }: Pick<RunValue, "origin" | "root">): Origin {
  const { actor, correlation = root ?? run } = origin;
  return { ...(actor === undefined ? {} : { actor }), correlationId: correlation, causationId: run };
}

/** The parent of a run, the operation there that started it, and whether the parent waits for its outcome. */
export interface Parent {
  readonly run: string;
  readonly id: string;
  readonly incarnation: number;
  readonly waits: boolean;
}

/** What a run was doing at a moment of the store's clock (`history/doing.ts`). */
export interface Doing {
  readonly atMs: number;
  /** Where the history ended, once it is stored. */
  readonly head?: number;
  /** How many operations there were. */
  readonly total: number;
  /** The first of them, in the order in which the code started them. */
  readonly first: readonly StoredActivity[];
}

/** One operation that a run is doing or waits for, in short. */
export interface StoredActivity {
  readonly kind: Kind;
  readonly name: string;
  readonly sinceMs: number;
  readonly isRunning?: true;
  readonly attempt?: number;
  readonly error?: string;
  readonly nextMs?: number;
  readonly untilMs?: number;
  readonly waitsFor?: readonly string[];
}

/** The runs that wait for a run's outcome; the outcome is there once the run has ended. */
export interface Waiters {
  readonly parents: readonly Parent[];
  readonly outcome?: Outcome;
}

// Where the records are.

export const RUNS = "run";
const INBOXES = "inbox";

export const runAt = (id: string): Address => address(RUNS, id);

/** The list of runs that wait for the outcome of a run which they did not start. */
export const WAITERS = "run-waiters";
export const waitersAt = (run: string): Address => address(WAITERS, run);
/** The queue of lists that were too long for the commit that ended the run. */
export const WAITERS_QUEUE = "run-waiters";

/** Each time that a run is started under its id, it begins with an empty inbox. */
export const inboxAt = (id: string, incarnation: number): Address =>
  address(incarnation === 1 ? INBOXES : `${INBOXES}/${incarnation}`, id);

// Queues: the kind of a run's record, by which workers find it.

/** The queue that workers of a workflow claim its runs from; those of a pool have one of their own. */
export const queueOf = (workflow: string, pool?: string): string => `run${poolMark(pool)}/${workflow}`;

/** Runs that have not begun: a workflow that is paused keeps them here. When a worker claims one, its queue becomes that of the workflow. */
export const newQueueOf = (workflow: string, pool?: string): string => `${NEW}${poolMark(pool)}/${workflow}`;

const NEW = "run-new";
const poolMark = (pool: string | undefined): string => (pool === undefined ? "" : `@${pool}`);

export const isNewQueue = (kind: string): boolean => kind.startsWith(NEW);

/** The pool of a queue, if it is one of a pool. */
export const poolOfQueue = (kind: string): string | undefined => /^[^/@]*@([^/]*)\//.exec(kind)?.[1];

/** Runs that wait in line, due when they expire. */
export const queuedQueueOf = (workflow: string): string => `run-queued/${workflow}`;

/** Runs that have ended and are kept for a limited time, and runs that are being deleted (`runs/retire.ts`, `runs/delete.ts`). */
export const endedQueueOf = (workflow: string): string => `run-ended/${workflow}`;
export const deletingQueueOf = (workflow: string): string => `run-deleting/${workflow}`;

/** The pools that a workflow has or had, for those who list its runs by its name. */
export const poolsAt = (workflow: string): Address => address("run-pools", workflow);

/** All queues in which runs of a workflow can be. */
export const queuesOf = (workflow: string, pools: Iterable<string>): readonly string[] => [
  ...[undefined, ...pools].flatMap((pool) => [queueOf(workflow, pool), newQueueOf(workflow, pool)]),
  queuedQueueOf(workflow),
  endedQueueOf(workflow),
  deletingQueueOf(workflow),
];

/** The workflow of a run, as its queue says. */
export const workflowOfQueue = (kind: string | null): string => kind?.slice(kind.indexOf("/") + 1) ?? "";
