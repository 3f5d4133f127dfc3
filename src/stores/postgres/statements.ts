/**
 * The transaction around Pawl's statements: how it begins and which settings it pins.
 *
 * All settings are made again in each transaction, because a pooler may run each on another server process. Plans are pinned: a plan that
 * was made while a table was empty would otherwise scan the whole table from then on.
 */

import { type Call, type Result, statement } from "./pipeline.ts";

/** How long the server waits in a locked batch for the process that holds the locks, before it ends the transaction. */
export const LOCKS_HELD_MS = 2000;
/** How long an optimistic batch waits for one of its rows, and any batch for a transaction that is creating the same record. */
const LOCK_WAIT_MS = 250;
/**
 * How long a batch that waits for its rows may wait for each: longer than other batches, so that those give up first. It must lock all of
 * its rows within `LOCKS_HELD_MS`, which limits how long it delays others.
 */
const PATIENT_LOCK_WAIT_MS = 1000;

/** The server's clock in milliseconds, as SQL. Read when it is evaluated, not when the transaction began. */
export const CLOCK = "floor(extract(epoch from clock_timestamp()) * 1000)::bigint";

export const BEGIN: Call = { statement: statement("begin isolation level read committed read write"), values: [] };
/** Each of its statements has its own snapshot, whatever the session's default is. */
export const BEGIN_READING: Call = {
  statement: statement("begin isolation level read committed read only"),
  values: [],
};
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

/** Whatever the session's setting, a commit is on disk before the server confirms it. */
const DURABLE = setting(
  "synchronous_commit",
  "case current_setting('synchronous_commit') when 'off' then 'on' else current_setting('synchronous_commit') end",
);

/** A warning reports a commit that did not wait for the standby, so warnings must be sent. */
const SEND_WARNINGS = setting("client_min_messages", "'warning'");

/** Whether the server is a standby, and its start time, which distinguishes it from other servers. */
const SERVER = "pg_is_in_recovery(), extract(epoch from pg_postmaster_start_time())";

/** Pins for a transaction that writes. The first column returns whether the server is a standby. */
export function pinForWriting(replyMs: number, isDurable: boolean): Call {
  return pins(LOCK_WAIT_MS, replyMs, isDurable);
}

/** Pins for a transaction that waits for rows. */
export function pinForWaiting(replyMs: number, isDurable: boolean): Call {
  return pins(PATIENT_LOCK_WAIT_MS, Math.min(replyMs, LOCKS_HELD_MS), isDurable);
}

function pins(lockWaitMs: number, replyMs: number, isDurable: boolean): Call {
  const all = [
    ...PLANS,
    setting("lock_timeout", `'${lockWaitMs}'`),
    setting("statement_timeout", `'${replyMs}'`),
    setting("idle_in_transaction_session_timeout", `'${LOCKS_HELD_MS}'`),
    SEND_WARNINGS,
    ...(isDurable ? [DURABLE] : []),
  ];
  return { statement: statement(`select ${SERVER}, ${all.join(", ")}`), values: [] };
}

/** Pins for a statement that reads. */
export function pinForReading(replyMs: number): Call {
  const all = [...PLANS, setting("statement_timeout", `'${replyMs}'`)];
  return { statement: statement(`select ${SERVER}, ${all.join(", ")}`), values: [] };
}

/** How long a transaction shared with the user's SQL may be open. */
export const SHARED_MS = 30_000;

/** Pins for a transaction shared with the user's SQL: it leaves plans and most settings to the user. */
export function pinForSharing(sharedMs: number, isDurable: boolean): Call {
  const all = [
    setting("statement_timeout", `'${sharedMs}'`),
    setting("idle_in_transaction_session_timeout", `'${sharedMs}'`),
    SEND_WARNINGS,
    ...(isDurable ? [DURABLE] : []),
    setting(SHARED, "'yes'"),
  ];
  return { statement: statement(`select ${SERVER}, ${TRANSACTION}, ${all.join(", ")}`), values: [] };
}

/** The server's process of this transaction, and when it began: together they mean no other transaction. */
const TRANSACTION = "pg_backend_pid(), extract(epoch from now())";

/** Ends a transaction of another connection, also in the middle of a statement, unless it has ended already. */
export const endTransaction = ([pid, begunAt]: ServerTransaction): Call => ({
  statement: statement(
    "select pg_terminate_backend(pid) from pg_stat_activity where pid = $1::text::int and extract(epoch from xact_start) = $2::text::numeric",
  ),
  values: [pid, begunAt],
});

/** The columns of `TRANSACTION`. */
export type ServerTransaction = readonly [pid: string, begunAt: string];

/** Takes the result of `pinForSharing`. */
export function transactionOf(pinned: Result | undefined): ServerTransaction | undefined {
  const [, , pid, begunAt] = pinned?.rows[0] ?? [];
  return pid == null || begunAt == null ? undefined : [pid, begunAt];
}

/** A setting that ends with the transaction, so that a COMMIT among the user's statements is noticed. */
const SHARED = "pawl.shared";
export const ENDED = "pawl: the transaction was ended";
export const stillShared = (): Call => ({
  statement: statement(`select ${assertion(`current_setting('${SHARED}', true) = 'yes'`, ENDED)}`),
  values: [],
});

/** Limits the idle time of a shared transaction, because Pawl's rows are locked from here on. */
export const LIMIT_IDLE = `select ${setting("idle_in_transaction_session_timeout", `'${LOCKS_HELD_MS}'`)}`;

/**
 * A condition that must hold, as an expression. If it does not hold, the statement fails with this text, and with it the transaction. It
 * cannot be evaluated before it is reached.
 */
export const assertion = (condition: string, words: string): string =>
  `(case when ${condition} then '0' else '${words}' end)::int`;

export const MOVED = "pawl: a row moved";
export const STALE = "pawl: the epoch is over";
