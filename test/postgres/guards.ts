// biome-ignore-all lint/suspicious/noTemplateCurlyInString: the edits quote templates of the source.
/**
 * The guards against the traps: for each, the smallest edit of the source that takes it out, and the trap that must then close.
 *
 * A guard that is gone from the source, or is there twice, is noticed, because each edit must find its text exactly once.
 */

import type { Edit } from "../simulation/plant.ts";

export interface Guard {
  /** What the source does no more. */
  readonly name: string;
  readonly trap: string;
  readonly edits: readonly Edit[];
}

const BATCHER = "kernel/batcher.ts";
const CLAIM = "kernel/claim/decide.ts";
const DECISION = "kernel/decision.ts";
const ENCODING = "kernel/encoding.ts";
const FLIGHT = "kernel/flight.ts";
const BELL = "stores/postgres/bell.ts";
const FAILURE = "stores/postgres/failure.ts";
const LINES = "stores/postgres/lines.ts";
const LISTENING = "stores/postgres/listening.ts";
const MARKS = "stores/postgres/marks.ts";
const POSTGRES = "stores/postgres/postgres.ts";
const ROWS = "stores/postgres/rows.ts";
const STATEMENTS = "stores/postgres/statements.ts";
const SWEEP = "stores/postgres/sweep.ts";
const WRITE = "stores/postgres/write.ts";

const guard = (name: string, trap: string, ...edits: readonly Edit[]): Guard => ({ name, trap, edits });
const edit = (file: string, from: string, to: string): Edit => ({ file, from, to });

const NO_PLACEHOLDERS = edit(POSTGRES, "({ placeholder }) => placeholder === null);", "() => false);");
const SKIP_LOCKED = edit(ROWS, `null from ${"$"}{locked("skip locked")}`, `null from ${"$"}{locked("")}`);

export const guards: readonly Guard[] = [
  // Records that are not there.
  guard(
    "a row that is there after all is not written over",
    "a key that appears between look and write: its second creator goes again",
    edit(
      WRITE,
      "${HEAD} text[] ${REST}`)}) v)`",
      "${HEAD} text[] ${REST}`)}) v on conflict (namespace, space, key) do update set value = excluded.value)`",
    ),
  ),
  guard(
    "of two that make a key, the second one is told",
    "two creators of one absent key: the one that writes later finds what the other made",
    edit(POSTGRES, 'error.code === "23505" &&', 'error.code === "never" &&'),
  ),
  guard(
    "a row that is there after all is one that moved",
    "a key that appears between look and write: its second creator goes again",
    edit(POSTGRES, 'error.code === "23505" &&', 'error.code === "never" &&'),
  ),
  guard(
    "what was absent and only read has a placeholder (1)",
    "a key that appears between look and write: who only read that it was absent writes nothing on it",
    NO_PLACEHOLDERS,
  ),
  guard(
    "what was absent and only read has a placeholder (2)",
    "absence that was only read holds until the commit, also when that takes long",
    NO_PLACEHOLDERS,
  ),
  guard(
    "what was absent is looked for once more before it is said to be so",
    "a key that appears between look and write: who writes nothing is not told that it is absent",
    edit(
      POSTGRES,
      "absent.length > 0 ? [this.#rows.stillAbsent(this.#namespace, absent), COMMIT] : [COMMIT];",
      "[COMMIT];",
    ),
  ),

  // Rows that others change.
  guard(
    "fence and version are two numbers",
    "a wake-up raises the version and not the fence: a live holder goes on, and does not rest over it",
    edit(
      CLAIM,
      "  return record.fence === claim.fence;",
      "  return 'version' in record && record.version === 2 && claim.fence > 0;",
    ),
  ),
  guard(
    "a wake-up leaves a live lease alone",
    "a wake-up raises the version and not the fence: a live holder goes on, and does not rest over it",
    edit(CLAIM, "  if (record.holder !== null) return { wakes, dueMs: record.dueMs };\n", ""),
  ),
  guard(
    "who rests looks for wake-ups",
    "a wake-up raises the version and not the fence: a live holder goes on, and does not rest over it",
    edit(CLAIM, '  if (record.wakes !== rest.wakesSeen) return "woken";\n', ""),
  ),
  ...["head", "head, value", "holder, kind, status"].map((columns) =>
    guard(
      `a row is written on the version that was known (${columns})`,
      "who was taken over appends nothing to the history, and changes nothing, although it knows its row",
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
    "the clock is the moment's, not the transaction's",
    "the clock is read after the last lock was had",
    edit(STATEMENTS, "extract(epoch from clock_timestamp())", "extract(epoch from transaction_timestamp())"),
  ),

  // Locks.
  guard(
    "a row that another has is passed over (1)",
    "late keys in opposite order: nobody waits, each is told that the other has the row",
    SKIP_LOCKED,
  ),
  guard(
    "a row that another has is passed over (2)",
    "one locked row does not stall the others of a batch",
    SKIP_LOCKED,
  ),
  guard(
    "a row that another has is waited for",
    "a row that another has is waited for where nobody else is kept waiting, and not asked for again and again",
    edit(FLIGHT, "(isPatient || asked.size === 1)", "(isPatient || asked.size < 0)"),
  ),
  guard(
    "a decision whose row another has is put off, and no other",
    "one locked row does not stall the others of a batch",
    edit(FLIGHT, "      if (this.#isAnyIn(this.#busy, submission)) {", "      if (this.#busy.size > 0) {"),
  ),
  guard(
    "a record is in one flight at a time",
    "a record is in one flight of a process at a time, so that no flight finds another of its own in the way",
    edit(BATCHER, "if (fits && !isAnyOf(submission, flying) &&", "if (fits &&"),
  ),
  guard(
    "waiting for a lock has an end",
    "a batch that knows its rows waits a moment for one that another has locked, and no longer",
    edit(STATEMENTS, "    setting(\"lock_timeout\", `'${lockWaitMs}'`),\n", ""),
  ),
  guard(
    "locks that nobody uses have an end",
    "the locks of a process that stopped between look and write are gone after a while, and so is its batch",
    edit(STATEMENTS, "    setting(\"idle_in_transaction_session_timeout\", `'${LOCKS_HELD_MS}'`),\n", ""),
  ),

  // Poison.
  guard(
    "NUL is refused here",
    "a value with a NUL or half a character is refused before it is sent, and the others of the batch are not",
    edit(ENCODING, ' && !text.includes("\\0")', ""),
  ),
  guard(
    "half a character is refused here",
    "a value with a NUL or half a character is refused before it is sent, and the others of the batch are not",
    edit(ENCODING, " && text.isWellFormed()", ""),
  ),
  ...["22", "23", "54"].map((cls) =>
    guard(
      `a batch is split on errors of class ${cls}`,
      `a row that the server refuses with ${{ 22: "22001", 23: "23514", 54: "54000" }[cls]} does not sink the batch`,
      edit(FAILURE, `["${cls}", ["store_refused", "split",`, `["${cls}", ["store_refused", "fail",`),
    ),
  ),
  guard(
    "a batch that is split runs one by one",
    "a row that the server refuses with 23514 does not sink the batch",
    edit(BATCHER, "        else flight.retryAlone();", "        else flight.fail(error);"),
  ),
  ...["40001", "40P01"].map((state) =>
    guard(
      `a batch that was in the way of another is sent again (${state})`,
      `a batch that the server refuses with ${state} for the moment is sent again`,
      edit(FAILURE, '["40", ["store_busy", "retry",', '["40", ["store_busy", "fail",'),
    ),
  ),
  guard(
    "a batch that did not get a lock is sent again",
    "a batch that the server refuses with 55P03 for the moment is sent again",
    edit(POSTGRES, 'error.code === "55P03";', 'error.code === "never";'),
    edit(FAILURE, '["55P03", ["store_busy", "retry",', '["55P03", ["store_busy", "fail",'),
  ),
  guard(
    "a decision that throws is not merged",
    "a decision that throws leaves nothing, and the others of its batch are committed",
    edit(DECISION, 'if (outcome.is === "done") merge(run);', 'if (outcome.is !== "void") merge(run);'),
  ),

  // Outcomes.
  guard(
    "COMMIT on its way leaves a doubt",
    "a commit whose reply is lost is found by its mark, and not made twice",
    edit(POSTGRES, '    under.stage = "committing";\n', ""),
  ),
  guard(
    "what is there is taken for made",
    "a commit whose reply is lost is found by its mark, and not made twice",
    edit(
      BATCHER,
      "if (flight.isDecided && lane.sequence >= sequence && !isRefused)",
      "if (flight.isDecided && lane.sequence > sequence && !isRefused)",
    ),
  ),
  guard(
    "what is not there is not taken for made",
    "a commit whose request is lost, whole or in part, is not taken for made",
    edit(BATCHER, "if (flight.isDecided && lane.sequence >= sequence && !isRefused)", "if (flight.isDecided)"),
  ),
  guard(
    "the tag of COMMIT is read",
    "COMMIT that answers ROLLBACK is not taken for a commit",
    edit(POSTGRES, 'if (answer?.tag !== "COMMIT")', "if (answer === undefined)"),
  ),
  guard(
    "settling waits for the row that a batch marks",
    "settling waits for a commit that is still under way, and then knows of it",
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
    "a connection that the server ended leaves a doubt",
    "a connection that the server ends in the middle of a commit leaves it open whether it happened",
    edit(FAILURE, "  if (isDoubtful && isFatal(error)) return unknownOutcome(error);\n", ""),
  ),
  guard(
    "what a pooler calls a mere error can be the end of the connection",
    "an error that may have ended the connection is no definite no once COMMIT is on its way",
    edit(FAILURE, "  return !/^(0A|", "  return severity !== undefined && !/^(08|57|0A|"),
  ),
  guard(
    "a commit that the standby does not have is in doubt",
    "a commit that did not wait for the standby is unknown, and answered only when the standby has it",
    edit(LINES, "this.isUnreplicated = true;", "this.isUnreplicated = false;"),
  ),
  guard(
    "warnings are asked for",
    "a commit that did not wait for the standby is unknown, and answered only when the standby has it, also where warnings are not sent",
    edit(STATEMENTS, 'setting("client_min_messages", "\'warning\'")', 'setting("client_min_messages", "\'error\'")'),
  ),
  guard(
    "a mark that the standby does not have settles nothing",
    "a commit that did not wait for the standby is unknown, and answered only when the standby has it",
    edit(
      POSTGRES,
      '        if (line.isUnreplicated)\n          throw new StoreError("store_unreachable", "retry", "the standby has not confirmed the mark yet");\n',
      "",
    ),
  ),
  guard(
    "a line that is lost while it commits leaves a doubt",
    "a commit that is there although its connection was ended while it waited for the standby is found",
    edit(FAILURE, "    if (isDoubtful) return unknownOutcome(error);\n    if", "    if"),
  ),

  // Fences and tries.
  guard(
    "a sweep lifts the floor of fences",
    "fences go on above a deleted record, and above one that was swept, although the clock stepped back",
    edit(SWEEP, "select 'fence_floor', max(fence) + 1 from gone", "select 'fence_floor', min(0) from gone"),
  ),
  guard(
    "the floor of fences is read",
    "fences go on above a deleted record, and above one that was swept, although the clock stepped back",
    edit(ROWS, "coalesce((select number from ${s}.meta where name = 'fence_floor'), 0)", "0"),
  ),
  guard(
    "a fence is above the record's own",
    "fences go on above a deleted record, and above one that was swept, although the clock stepped back",
    edit(CLAIM, "  return Math.max(own + 1, floor);", "  return floor;"),
  ),
  guard(
    "a fence is above the clock",
    "fences go on above those of a database that was set back",
    edit(
      DECISION,
      "return Math.max(this.nowMs, this.#scene.fenceFloor);",
      "return this.nowMs * 0 + this.#scene.fenceFloor;",
    ),
  ),
  guard(
    "tries are counted at the claim",
    "a claim is counted when it is made, so a process that dies of it is counted too",
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
    edit(BELL, "set_config('synchronous_commit', 'off', true)", "set_config('synchronous_commit', 'off', false)"),
  ),
  guard(
    "a migration's settings are its own",
    "no setting is left behind on a connection: not by opening, a commit, a read, a sweep or a failure",
    edit("stores/postgres/schema.ts", "`set local lock_timeout = ${LOCK_MS}`", "`set lock_timeout = ${LOCK_MS}`"),
  ),
  guard(
    "statements that do not last are sent whole",
    "a statement that is not there any more is sent whole from then on",
    edit(LINES, "this.#isShared = true;", "this.#isShared = false;"),
  ),
  guard(
    "a statement's name is made of its text, the schema in it included",
    "a name of a statement means one text, whoever prepared it on the connection",
    edit("stores/postgres/train.ts", ".update(text)", '.update(text.replaceAll(/"trap [^"]*"/g, ""))'),
  ),
  guard(
    "a transaction that was left open is rolled back",
    "no setting is left behind on a connection: not by opening, a commit, a read, a sweep or a failure",
    edit(LINES, '    if (this.#state === "open")\n', '    if (this.#state === "idle")\n'),
  ),

  // Notifications.
  guard(
    "notifications have a transaction of their own",
    "no transaction that writes notifies, and one notification stands for all commits made meanwhile",
    edit(
      POSTGRES,
      "    calls.push(COMMIT);\n    line.began();",
      "    calls.push({ statement: statement(\"select pg_notify('x', 'y')\"), values: [] }, COMMIT);\n    line.began();",
    ),
  ),
  guard(
    "one notification stands for many commits",
    "no transaction that writes notifies, and one notification stands for all commits made meanwhile",
    edit(BELL, "this.#telling ??=", "this.#telling ="),
  ),
  guard(
    "who begins to listen looks",
    "who listens begins with a look, since a commit may have come before it listened",
    edit(BELL, "        this.#ring();\n        void this.#poll();\n", "        void this.#poll();\n"),
  ),
  guard(
    "who notifies asks first whether anybody listens",
    "where nobody listens, nobody is told",
    edit(BELL, "        if (!this.#listeners.areThere) continue;\n", ""),
  ),
  guard(
    "who listens is told",
    "a commit is heard of at once, and not when somebody looks",
    edit(
      BELL,
      "        if (!this.#listeners.areThere) continue;\n",
      "        if (this.#listeners.areThere) continue;\n",
    ),
  ),
  guard(
    "who told nobody tells again",
    "a commit is heard of at once, and not when somebody looks",
    edit(BELL, "Promise.resolve().then(() => this.#tell());", "this.#tell();"),
  ),
  guard(
    "a new listener looks often",
    "a commit that was made before everybody knew of a new listener is found soon",
    edit(LISTENING, "nowMs >= state.announced.firstMs + NEW_MS;", "nowMs >= state.announced.firstMs;"),
  ),
  guard(
    "a lost connection is made anew",
    "a listening connection that is lost is made anew",
    edit(
      BELL,
      '          if (this.#isCurrent(connection)) this.#move({ is: "failed" });',
      "          if (this.#isCurrent(connection)) this.#seen = undefined;",
    ),
  ),
  guard(
    "there is always a look now and then",
    "a commit whose notification is lost is found by looking",
    edit(BELL, "      if (isNew && this.#isWatching) this.#ring();\n", ""),
  ),

  // Plans.
  ...["nothing was known of it", "it had 0 rows", "it had 1 rows"].map((when) =>
    guard(
      `no table is read from end to end (${when})`,
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
