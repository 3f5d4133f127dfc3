/**
 * The transaction around Pawl's statements: how it begins, what it pins, and the marks that tell afterwards whether it happened.
 *
 * Everything is said anew for each transaction, because a pooler may give each to another server process. Plans are pinned:
 * a plan that was made while a table was empty would read the whole of it for ever after.
 */

import { type Call, statement } from "./train.ts";

/** Within a locked batch, the server waits this long for the process that holds the locks, and then gives them up. */
export const LOCKS_HELD_MS = 2000;
/** How long an optimistic batch waits for one of its rows, and any batch for a transaction that is making the same record. */
const LOCK_WAIT_MS = 250;
/**
 * How long a batch that waits for its rows may wait for each. Longer than others, so that they give way. All of its rows it must have
 * after `LOCKS_HELD_MS`: this bounds how long it delays others.
 */
const PATIENT_LOCK_WAIT_MS = 1000;

/** The server's clock in milliseconds, as SQL. Read when it is evaluated, not when the transaction began. */
export const CLOCK = "floor(extract(epoch from clock_timestamp()) * 1000)::bigint";

export const BEGIN: Call = { statement: statement("begin isolation level read committed read write"), values: [] };
export const COMMIT: Call = { statement: statement("commit"), values: [] };
export const ROLLBACK: Call = { statement: statement("rollback"), values: [] };

const setting = (name: string, value: string): string => `set_config('${name}', ${value}, true)`;

const PLANS = [
  setting("plan_cache_mode", "'force_generic_plan'"),
  setting("enable_seqscan", "'off'"),
  setting("enable_hashjoin", "'off'"),
  setting("enable_mergejoin", "'off'"),
  setting("enable_bitmapscan", "'off'"),
  setting("enable_material", "'off'"),
  setting("jit", "'off'"),
];

/** Whatever the session had, a commit of ours is on disk before it is answered. */
const DURABLE = setting(
  "synchronous_commit",
  "case current_setting('synchronous_commit') when 'off' then 'on' else current_setting('synchronous_commit') end",
);

/** A commit that did not wait for the standby is told by a warning, which must not be kept back. */
const TOLD = setting("client_min_messages", "'warning'");

/** Whether the server is a standby, and since when it has been running, which tells it from any other. */
const SERVER = "pg_is_in_recovery(), extract(epoch from pg_postmaster_start_time())";

/** Pins for a transaction that writes. The first column tells whether the server is a standby. */
export function pinForWriting(answerMs: number, isDurable: boolean): Call {
  return pins(LOCK_WAIT_MS, answerMs, isDurable);
}

/** The same for one that waits for rows. */
export function pinForWaiting(answerMs: number, isDurable: boolean): Call {
  return pins(PATIENT_LOCK_WAIT_MS, Math.min(answerMs, LOCKS_HELD_MS), isDurable);
}

function pins(lockWaitMs: number, answerMs: number, isDurable: boolean): Call {
  const all = [
    ...PLANS,
    setting("lock_timeout", `'${lockWaitMs}'`),
    setting("statement_timeout", `'${answerMs}'`),
    setting("idle_in_transaction_session_timeout", `'${LOCKS_HELD_MS}'`),
    TOLD,
    ...(isDurable ? [DURABLE] : []),
  ];
  return { statement: statement(`select ${SERVER}, ${all.join(", ")}`), values: [] };
}

/** Pins for a statement that reads. */
export function pinForReading(answerMs: number): Call {
  const all = [...PLANS, setting("statement_timeout", `'${answerMs}'`)];
  return { statement: statement(`select ${SERVER}, ${all.join(", ")}`), values: [] };
}

/** How long a transaction that is the user's as well may be open. */
export const SHARED_MS = 30_000;

/** For a transaction that is the user's as well: plans are theirs, and so are most settings. */
export function pinForSharing(sharedMs: number, isDurable: boolean): Call {
  const all = [
    setting("statement_timeout", `'${sharedMs}'`),
    setting("idle_in_transaction_session_timeout", `'${sharedMs}'`),
    TOLD,
    ...(isDurable ? [DURABLE] : []),
    setting(SHARED, "'yes'"),
  ];
  return { statement: statement(`select ${SERVER}, ${all.join(", ")}`), values: [] };
}

/** A setting of our own that is gone when the transaction is: a COMMIT among the user's statements does not go unnoticed. */
const SHARED = "pawl.shared";
export const ENDED = "pawl: the transaction was ended";
export const stillShared = (): Call => ({
  statement: statement(`select ${assertion(`current_setting('${SHARED}', true) = 'yes'`, ENDED)}`),
  values: [],
});

/** From here on rows of Pawl's are locked. */
export const TIGHTEN = `select ${setting("idle_in_transaction_session_timeout", `'${LOCKS_HELD_MS}'`)}`;

/**
 * A condition that must hold, as an expression: where it does not, the statement fails with these words, and with it the
 * transaction. Written so that it cannot be worked out before it is reached.
 */
export const assertion = (condition: string, words: string): string =>
  `(case when ${condition} then '0' else '${words}' end)::int`;

export const MOVED = "pawl: a row moved";
export const STALE = "pawl: the epoch is over";
