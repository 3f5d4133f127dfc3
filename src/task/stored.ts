/**
 * What is stored of tasks. Names here are permanent.
 *
 * A task is a run of a built-in workflow, and its record is the run's: nothing else says what became of it. Beside it there are
 * - `task-token`: the task of a signal token, under the token's hash;
 * - `task-key`: the task that was created under an idempotency key, under the key's hash;
 * - `task-outbox`: for a task with `onCompleteUrl`, up to which of its ends the notifications were started. The commit that ends the run wakes it;
 * - a run of a second workflow for each notification.
 *
 * These records are looked at once in a while, and removed after the task's run was (`KEPT_MS`).
 */

import { type Address, address } from "../kernel/contract.ts";
import { hash } from "../kernel/fingerprint.ts";
import type { Sealed } from "../kernel/seal/ring.ts";

/** The workflow whose runs are tasks, and the one whose runs are notifications. */
export const TASKS = "pawl.task";
export const DELIVERIES = "pawl.task.delivery";

export const TOKENS = "task-token";
const KEYS = "task-key";
const OUTBOXES = "task-outbox";

export const tokenAt = (tokenHash: string): Address => address(TOKENS, tokenHash);
export const keyAt = (idempotencyKey: string): Address => address(KEYS, hash(idempotencyKey));
export const outboxAt = (task: string): Address => address(OUTBOXES, task);

/** The queues of these records. */
export const MARKS_QUEUE = "task-mark";
export const OUTBOX_QUEUE = "task-outbox";

/** Records beside a task are looked at this often, to be removed when the task is gone. */
export const KEPT_MS = 30 * 24 * 3_600_000;

/** The value of `task-token` and `task-key`. */
export interface Mark {
  readonly task: string;
  /** Of `task-key`: tells whether a second creation asks for the same. */
  readonly fingerprint?: string;
  /** Of `task-token`: the task's run has the token's hash, too. Tokens of earlier versions do not say so, and neither do their runs. */
  readonly isInRun?: true;
}

export interface Outbox {
  readonly url: string;
  /** The beginning of the notifications' `webhook-id`. */
  readonly key: string;
  /** The incarnation of the run whose end was notified last. */
  readonly notified: number;
}

export const deliveryPrefix = (task: string): string => `delivery/${hash(task)}/`;

const numbered = (task: string, incarnation: number): string =>
  `${deliveryPrefix(task)}${String(incarnation).padStart(10, "0")}`;

/**
 * The run that notifies of the end of this incarnation; in the order of the incarnations. Whose id could be guessed, another run could have it before.
 * Those of earlier versions end with the number.
 */
export const deliveryId = (task: string, incarnation: number, unique: string): string =>
  `${numbered(task, incarnation)}/${unique}`;

/** Sorts after the notifications of all ends up to this one, and before those of the next. A digit comes after "/". */
export const deliveriesUpTo = (task: string, incarnation: number): string => `${numbered(task, incarnation)}0`;

/** A retry policy without functions. */
export interface StoredRetry {
  readonly attempts: number;
  readonly delayMs: number;
  readonly factor: number;
  readonly maxDelayMs: number;
  readonly jitter: number;
}

/** The input of a task's run. What is absent has its default. */
export interface TaskInput {
  readonly url: string;
  readonly method?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string | Uint8Array;
  readonly timeoutMs?: number;
  readonly retry?: StoredRetry;
  /** The statuses after which a call is repeated: numbers, and -5 for all from 500 to 599. */
  readonly retryStatuses?: readonly number[];
  readonly concurrency?: { readonly key: string; readonly max: number };
  readonly rateLimit?: { readonly key: string; readonly max: number; readonly perMs: number };
  readonly onCompleteUrl?: string;
  /** It waits for a signal after the call: the token's hash, and the token sealed. */
  readonly signal?: { readonly hash: string; readonly sealed: Sealed };
  readonly maxWaitMs?: number;
  /** The stable key of all attempts. Absent where a schedule started the run: then it follows from the run's id. */
  readonly key?: string;
  /** When the task was created, if it was sent again since. */
  readonly createdAtMs?: number;
  /** How many attempts there were before the task was sent again. */
  readonly before?: number;
}

/** The input of a notification's run. */
export interface DeliveryInput {
  readonly task: string;
  readonly url: string;
  /** Its `webhook-id`. */
  readonly key: string;
  readonly body: string;
}

/** The result of an attempt, as it is in the run's history. */
export interface StoredAttempt {
  readonly number: number;
  readonly fence: number;
  readonly atMs: number;
  readonly durationMs: number;
  readonly status?: number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
  readonly isCut?: true;
  readonly error?: { readonly code: string; readonly message: string };
  /** What the target said in `Retry-After`, at most a day. */
  readonly retryAfterMs?: number;
}

/** The name of the step that makes an attempt. */
export const ATTEMPT = "call";
