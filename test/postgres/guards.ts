// biome-ignore-all lint/suspicious/noTemplateCurlyInString: the edits quote templates of the source.
/**
 * The guards against the traps: for each, the smallest edit of the source that removes it, and the trap that must then fail.
 *
 * A guard that is missing from the source, or is there twice, is noticed, because each edit must find its text exactly once.
 */

import type { Edit } from "../simulation/plant.ts";

export interface Guard {
  /** The rule that the edited source breaks. */
  readonly name: string;
  readonly trap: string;
  readonly edits: readonly Edit[];
}

const BATCHER = "kernel/batcher.ts";
const LANE = "kernel/lane.ts";
const CLAIM = "kernel/claim/decide.ts";
const COMMIT = "stores/postgres/commit.ts";
const DECISION = "kernel/decision.ts";
const ENCODING = "kernel/encoding.ts";
const FLIGHT = "kernel/flight.ts";
const NOTIFICATIONS = "stores/postgres/notifications.ts";
const JOINT = "stores/postgres/joint.ts";
const FAILURE = "stores/postgres/failure.ts";
const CONNECTIONS = "stores/postgres/connections.ts";
const LISTENING = "stores/postgres/listening.ts";
const MARKS = "stores/postgres/marks.ts";
const POSTGRES = "stores/postgres/postgres.ts";
const ROWS = "stores/postgres/rows.ts";
const STATEMENTS = "stores/postgres/statements.ts";
const SWEEP = "stores/postgres/sweep.ts";
const WRITE = "stores/postgres/write.ts";

const guard = (name: string, trap: string, ...edits: readonly Edit[]): Guard => ({ name, trap, edits });
const edit = (file: string, from: string, to: string): Edit => ({ file, from, to });

const NO_PLACEHOLDERS = edit(COMMIT, "({ placeholder }) => placeholder === null);", "() => false);");
const SKIP_LOCKED = edit(ROWS, `null from ${"$"}{locked("skip locked")}`, `null from ${"$"}{locked("")}`);

export const guards: readonly Guard[] = [
  // Absent records.
  guard(
    "a row that exists after all is not overwritten",
    "a key that appears between read and write: its second creator is retried",
    edit(
      WRITE,
      "${HEAD} text[] ${REST}`)}) v)`",
      "${HEAD} text[] ${REST}`)}) v on conflict (namespace, space, key) do update set value = excluded.value)`",
    ),
  ),
  guard(
    "of two transactions that create a key, the second is refused",
    "two creators of one absent key: the one that writes later finds what the other created",
    edit(COMMIT, 'error.code === "23505" &&', 'error.code === "never" &&'),
  ),
  guard(
    "a row that exists after all counts as moved",
    "a key that appears between read and write: its second creator is retried",
    edit(COMMIT, 'error.code === "23505" &&', 'error.code === "never" &&'),
  ),
  guard(
    "an absent key that was only read gets a placeholder (1)",
    "a key that appears between read and write: a batch that only read its absence writes nothing",
    NO_PLACEHOLDERS,
  ),
  guard(
    "an absent key that was only read gets a placeholder (2)",
    "an absence that was only read holds until the commit, even if that takes long",
    NO_PLACEHOLDERS,
  ),
  guard(
    "an absence is checked again before it is reported",
    "a key that appears between read and write: a batch that writes nothing does not report it as absent",
    edit(COMMIT, "absent.length > 0 ? [rows.stillAbsent(namespace, absent), COMMIT] : [COMMIT];", "[COMMIT];"),
  ),

  // Rows that others change.
  guard(
    "fence and version are two numbers",
    "a wake-up raises the version and not the fence: a live holder continues, and does not sleep through it",
    edit(
      CLAIM,
      "  return record.fence === claim.fence;",
      "  return 'version' in record && record.version === 2 && claim.fence > 0;",
    ),
  ),
  guard(
    "a wake-up leaves a live lease alone",
    "a wake-up raises the version and not the fence: a live holder continues, and does not sleep through it",
    edit(CLAIM, "  if (record.holder !== null) return { wakes, dueMs: record.dueMs };\n", ""),
  ),
  guard(
    "a holder that rests checks for wake-ups",
    "a wake-up raises the version and not the fence: a live holder continues, and does not sleep through it",
    edit(CLAIM, '  if (record.wakes !== rest.wakesSeen) return "woken";\n', ""),
  ),
  ...["head", "head, value", "holder, kind, status"].map((columns) =>
    guard(
      `a row is written on the version that was known (${columns})`,
      "a holder that was taken over appends and changes nothing, although it knows its row",
      edit(
        WRITE,
        `${columns})\n      where ${"$"}{IS_STILL} returning`,
        `${columns})\n      where r.id = any (array[v.id]) and r.version >= v.was returning`,
      ),
    ),
  ),
  guard(
    "the count of rows written is checked",
    "a batch that knows its rows is refused when one of them moved, and names it",
    edit(WRITE, "${counted} = $5::text::bigint", "${counted} <= $5::text::bigint"),
  ),
  guard(
    "the head of the log is kept in the record",
    "a row that moves while it is being locked comes with its own head",
    edit(
      ROWS,
      "select ${COLUMNS} from ${record} r where ${at} for no key update",
      'select ${COLUMNS.replace("head", `(select coalesce(max(l.version), 0) from ${s}.log l where l.record = r.id) as head`)} from ${record} r where ${at} for no key update',
    ),
  ),
  guard(
    "the clock is the current time, not the transaction's start",
    "the clock is read after the last lock was acquired",
    edit(STATEMENTS, "extract(epoch from clock_timestamp())", "extract(epoch from transaction_timestamp())"),
  ),

  // Locks.
  guard(
    "a row that another transaction has locked is skipped (1)",
    "late keys in opposite order: neither waits, each finds the other's row locked",
    SKIP_LOCKED,
  ),
  guard(
    "a row that another transaction has locked is skipped (2)",
    "one locked row does not delay the other decisions of a batch",
    SKIP_LOCKED,
  ),
  guard(
    "a locked row is waited for",
    "a locked row is waited for if that delays no other decision, instead of being retried",
    edit(FLIGHT, "(isWaiting || asked.size === 1)", "(isWaiting || asked.size < 0)"),
  ),
  guard(
    "a decision whose row is locked is postponed, and no other",
    "one locked row does not delay the other decisions of a batch",
    edit(
      FLIGHT,
      "      if (this.#isAnyIn(this.#lockedElsewhere, submission)) {",
      "      if (this.#lockedElsewhere.size > 0) {",
    ),
  ),
  guard(
    "a record is in one flight at a time",
    "a record is in one flight of a process at a time, so that flights of one process do not block each other",
    edit(BATCHER, "if (fits && !isAnyOf(submission, flying) &&", "if (fits &&"),
  ),
  guard(
    "waiting for a lock has a limit",
    "an optimistic batch waits briefly for a locked row, and no longer",
    edit(STATEMENTS, "    setting(\"lock_timeout\", `'${lockWaitMs}'`),\n", ""),
  ),
  guard(
    "unused locks are released",
    "the locks of a process that stopped between read and write are released after a while, and its batch is rolled back",
    edit(STATEMENTS, "    setting(\"idle_in_transaction_session_timeout\", `'${LOCKS_HELD_MS}'`),\n", ""),
  ),

  // Poison.
  guard(
    "NUL is refused before it is sent",
    "a value with a NUL or a lone surrogate is refused before it is sent, and the others of the batch are not",
    edit(ENCODING, ' && !text.includes("\\0")', ""),
  ),
  guard(
    "a lone surrogate is refused before it is sent",
    "a value with a NUL or a lone surrogate is refused before it is sent, and the others of the batch are not",
    edit(ENCODING, " && text.isWellFormed()", ""),
  ),
  ...["22", "23", "54"].map((cls) =>
    guard(
      `a batch is split on errors of class ${cls}`,
      `a row that the server refuses with ${{ 22: "22001", 23: "23514", 54: "54000" }[cls]} does not fail the whole batch`,
      edit(FAILURE, `["${cls}", ["store_refused", "split",`, `["${cls}", ["store_refused", "fail",`),
    ),
  ),
  guard(
    "a batch that is split runs one by one",
    "a row that the server refuses with 23514 does not fail the whole batch",
    edit(BATCHER, "flight.fail(error) : flight.retryAlone()", "flight.fail(error) : flight.fail(error)"),
  ),
  ...["40001", "40P01"].map((state) =>
    guard(
      `a batch that conflicted with another is sent again (${state})`,
      `a batch that the server refuses with ${state} temporarily is sent again`,
      edit(FAILURE, '["40", ["store_busy", "retry",', '["40", ["store_busy", "fail",'),
    ),
  ),
  guard(
    "a batch that did not get a lock is sent again",
    "a batch that the server refuses with 55P03 temporarily is sent again",
    edit(COMMIT, 'error.code === "55P03";', 'error.code === "never";'),
    edit(FAILURE, '["55P03", ["store_busy", "retry",', '["55P03", ["store_busy", "fail",'),
  ),
  guard(
    "a decision that throws is not merged",
    "a decision that throws leaves nothing, and the others of its batch are committed",
    edit(DECISION, 'if (outcome.is === "done") merge(run);', 'if (outcome.is !== "void") merge(run);'),
  ),

  // Outcomes.
  guard(
    "a sent COMMIT makes the outcome unknown",
    "a commit whose reply is lost is found by its mark, and not repeated",
    edit(COMMIT, '    progress.stage = "committing";\n', ""),
  ),
  guard(
    "a commit that happened counts as made",
    "a commit whose reply is lost is found by its mark, and not repeated",
    edit(LANE, "if (this.#sequence >= sequence) {", "if (this.#sequence > sequence) {"),
  ),
  guard(
    "a commit that did not happen does not count as made",
    "a commit whose request is lost, completely or in part, does not count as made",
    edit(LANE, "if (this.#sequence >= sequence) {", "if (sequence > 0) {"),
  ),
  guard(
    "the tag of COMMIT is read",
    "a COMMIT with the tag ROLLBACK does not count as a commit",
    edit(COMMIT, 'if (result?.tag !== "COMMIT")', "if (result === undefined)"),
  ),
  guard(
    "settling waits for the row that a batch marks",
    "settling waits for a commit in progress, and then knows its outcome",
    edit(
      MARKS,
      "on conflict (writer, lane) do update set epoch = w.epoch + 1, at = excluded.at returning epoch, sequence, xmax = 0`",
      "on conflict (writer, lane) do nothing returning epoch, sequence, xmax = 0`",
    ),
  ),
  guard(
    "the mark is written in its own epoch only",
    "a batch of an epoch that was settled is refused, however late it arrives",
    edit(MARKS, "and epoch = $3::text::bigint returning at`", "and epoch >= $3::text::bigint returning at`"),
  ),
  guard(
    "settling begins a new epoch",
    "a batch of an epoch that was settled is refused, however late it arrives",
    edit(MARKS, "do update set epoch = w.epoch + 1,", "do update set epoch = w.epoch,"),
  ),
  guard(
    "a connection that the server ended makes the outcome unknown",
    "a connection that the server ends in the middle of a commit makes its outcome unknown",
    edit(FAILURE, "  if (isDoubtful && isFatal(error)) return unknownOutcome(error);\n", ""),
  ),
  guard(
    "a plain error of a pooler can be the end of the connection",
    "an error that may have ended the connection is not a definite failure once COMMIT was sent",
    edit(FAILURE, "  return !/^(0A|", "  return severity !== undefined && !/^(08|57|0A|"),
  ),
  guard(
    "a commit that the standby does not have is unknown",
    "a commit that did not wait for the standby is unknown, and confirmed only when the standby has it",
    edit(CONNECTIONS, "this.isUnreplicated = true;", "this.isUnreplicated = false;"),
  ),
  guard(
    "warnings are requested",
    "a commit that did not wait for the standby is unknown, and confirmed only when the standby has it, also if warnings are not sent",
    edit(STATEMENTS, 'setting("client_min_messages", "\'warning\'")', 'setting("client_min_messages", "\'error\'")'),
  ),
  guard(
    "a mark that the standby does not have settles nothing",
    "a commit that did not wait for the standby is unknown, and confirmed only when the standby has it",
    edit(
      POSTGRES,
      '        if (connection.isUnreplicated)\n          throw new StoreError("store_unreachable", "retry", "the standby has not confirmed the mark yet");\n',
      "",
    ),
  ),
  guard(
    "a connection that is lost while it commits makes the outcome unknown",
    "a commit that happened although its connection was ended while it waited for the standby is found",
    edit(FAILURE, "    if (isDoubtful) return unknownOutcome(error);\n    if", "    if"),
  ),

  // Fences and tries.
  guard(
    "a sweep raises the fence floor",
    "fences continue above a deleted record, and above one that was swept, although the clock stepped back",
    edit(SWEEP, "select 'fence_floor', max(fence) + 1 from gone", "select 'fence_floor', min(0) from gone"),
  ),
  guard(
    "the fence floor is read",
    "fences continue above a deleted record, and above one that was swept, although the clock stepped back",
    edit(ROWS, "coalesce((select number from ${s}.meta where name = 'fence_floor'), 0)", "0"),
  ),
  guard(
    "the fence floor is looked at again after a record was created",
    "fences continue above a record that came, was removed and was swept while its key was absent",
    edit(COMMIT, "if (fence !== null && progress.fenceFloor !== null)", "if (fence === 0)"),
  ),
  guard(
    "so it is in a transaction of the application",
    "so they do in a transaction of the application",
    edit(JOINT, "if (floor > Math.max(fenceFloor, fence)) {", "if (floor < 0) {"),
  ),
  guard(
    "a fence is above the record's own",
    "fences continue above a deleted record, and above one that was swept, although the clock stepped back",
    edit(CLAIM, "  return Math.max(own + 1, floor);", "  return floor;"),
  ),
  guard(
    "a fence is above the clock",
    "fences continue above those of a database that was restored",
    edit(
      DECISION,
      "return Math.max(this.nowMs, this.#view.fenceFloor);",
      "return this.nowMs * 0 + this.#view.fenceFloor;",
    ),
  ),
  guard(
    "tries are counted at the claim",
    "a claim is counted when it is made, so a process that crashes on it is counted too",
    edit(CLAIM, "tries: record.tries + 1,", "tries: record.tries,"),
  ),

  // Sessions.
  guard(
    "settings are for one transaction",
    "no setting is left behind on a connection: not by opening, a commit, a read, a sweep or a failure",
    edit(STATEMENTS, "`set_config('${name}', ${value}, true)`", "`set_config('${name}', ${value}, false)`"),
  ),
  guard(
    "a notification's settings are its own",
    "no setting is left behind on a connection: not by opening, a commit, a read, a sweep or a failure",
    edit(
      NOTIFICATIONS,
      "set_config('synchronous_commit', 'off', true)",
      "set_config('synchronous_commit', 'off', false)",
    ),
  ),
  guard(
    "a migration's settings are its own",
    "no setting is left behind on a connection: not by opening, a commit, a read, a sweep or a failure",
    edit("stores/postgres/schema.ts", "`set local lock_timeout = ${LOCK_MS}`", "`set lock_timeout = ${LOCK_MS}`"),
  ),
  guard(
    "statements that do not stay prepared are sent as text",
    "a prepared statement that is missing is sent as text from then on",
    edit(CONNECTIONS, "this.#isShared = true;", "this.#isShared = false;"),
  ),
  guard(
    "a statement's name is made of its text, the schema in it included",
    "the name of a statement means one text, whichever client prepared it on the connection",
    edit("stores/postgres/pipeline.ts", ".update(text)", '.update(text.replaceAll(/"trap [^"]*"/g, ""))'),
  ),
  guard(
    "a transaction that was left open is rolled back",
    "no setting is left behind on a connection: not by opening, a commit, a read, a sweep or a failure",
    edit(CONNECTIONS, '    if (this.#state === "open")\n', '    if (this.#state === "idle")\n'),
  ),

  // Notifications.
  guard(
    "notifications have a transaction of their own",
    "no transaction that writes notifies, and one notification covers all commits made meanwhile",
    edit(
      COMMIT,
      'import type { Call, Result } from "./pipeline.ts";',
      'import { type Call, type Result, statement } from "./pipeline.ts";',
    ),
    edit(
      COMMIT,
      "    calls.push(COMMIT);\n    connection.began();",
      "    calls.push({ statement: statement(\"select pg_notify('x', 'y')\"), values: [] }, COMMIT);\n    connection.began();",
    ),
  ),
  guard(
    "one notification covers many commits",
    "no transaction that writes notifies, and one notification covers all commits made meanwhile",
    edit(NOTIFICATIONS, "this.#notifying ??=", "this.#notifying ="),
  ),
  guard(
    "a new listener reads first",
    "a listener reads first, because a commit may have happened before it listened",
    edit(NOTIFICATIONS, "        this.#callWatchers();\n        void this.#poll();\n", "        void this.#poll();\n"),
  ),
  guard(
    "a process checks whether any other listens before it notifies",
    "without listeners, nothing is sent",
    edit(NOTIFICATIONS, "        if (!this.#listeners.exist) continue;\n", ""),
  ),
  guard(
    "listeners are notified",
    "a commit is noticed by notification, not by the next poll",
    edit(
      NOTIFICATIONS,
      "        if (!this.#listeners.exist) continue;\n",
      "        if (this.#listeners.exist) continue;\n",
    ),
  ),
  guard(
    "a process that did not notify notifies after its next commit",
    "a commit is noticed by notification, not by the next poll",
    edit(NOTIFICATIONS, "Promise.resolve().then(() => this.#notify());", "this.#notify();"),
  ),
  guard(
    "a new listener polls often",
    "a commit that was made before all others knew a new listener is found soon",
    edit(LISTENING, "nowMs >= state.announced.firstMs + NEW_MS;", "nowMs >= state.announced.firstMs;"),
  ),
  guard(
    "a lost connection is replaced",
    "a listening connection that is lost is replaced",
    edit(
      NOTIFICATIONS,
      '          if (this.#isCurrent(connection)) this.#move({ is: "failed" });',
      "          if (this.#isCurrent(connection)) this.#seen = undefined;",
    ),
  ),
  guard(
    "the marks are always polled",
    "a commit whose notification is lost is found by polling",
    edit(NOTIFICATIONS, "      if (isNew && this.#isWatching) this.#callWatchers();\n", ""),
  ),

  // Plans.
  ...["it had no statistics", "it had 0 rows", "it had 1 rows"].map((when) =>
    guard(
      `no table is scanned (${when})`,
      `no statement reads a whole table, although ${when} when it was prepared`,
      edit(
        ROWS,
        "select ${COLUMNS} from ${record} r where ${at} limit 1\n",
        "select ${COLUMNS} from ${record} r where ${at}\n",
      ),
      edit(STATEMENTS, '  setting("enable_seqscan", "\'off\'"),\n', ""),
    ),
  ),
  guard(
    "plans are made once",
    "no statement reads a whole table, although it had 1 rows when it was prepared",
    edit(STATEMENTS, '  setting("plan_cache_mode", "\'force_generic_plan\'"),\n', ""),
  ),
];
