/**
 * Marks: they say after a lost reply whether a batch was committed, and let processes know about each other.
 *
 * There is one row for each lane of a writer, with an epoch and the sequence of its last batch. A batch writes its mark under `where epoch
 * = mine`; settling raises the epoch, which waits for a batch that is just writing it and refuses one that arrives later. A migration that
 * excludes older releases raises all epochs (`schema.ts`), so settling first checks, under a lock, whether this release may still write.
 * Two lane numbers below zero are not lanes: one says that the process listens, one counts joined transactions of the application.
 */

import { type Statement, statement } from "./pipeline.ts";
import { assertion, STALE } from "./statements.ts";

export interface MarkStatements {
  /** The oldest schema whose releases may write. */
  readonly oldest: Statement;
  /** The same, locked until the transaction ends. */
  readonly lockOldest: Statement;
  readonly settle: Statement;
  readonly mark: Statement;
  readonly forget: Statement;
  readonly all: Statement;
  readonly announce: Statement;
  readonly hasListeners: Statement;
  readonly joined: Statement;
}

/** The lane number that means listening, and how long an announcement counts. */
const LISTENING = -1;
/** The lane number that counts joined transactions of the application. */
const JOINED = -2;
const LISTENS_FOR_MS = 60_000;

/**
 * The first epoch of a lane: the number of the transaction. A mark that was swept while its process lived returns with an epoch that it
 * never had, however often it was settled, because each settling took a transaction of its own.
 */
const NEW_EPOCH = "pg_current_xact_id()::text::bigint";

/** Writes the mark of a batch: `$1` is the writer, `$2` the lane, `$3` the epoch, `$4` the sequence. */
export const MARK = (s: string, clock: string): string => `
      update ${s}.writer set sequence = $4::text::bigint, at = ${clock}
      where writer = $1 and lane = $2::text::int and epoch = $3::text::bigint returning at`;

export function markStatements(s: string, clock: string): MarkStatements {
  const OLDEST = `select number from ${s}.meta where name = 'oldest'`;
  return {
    oldest: statement(OLDEST),
    lockOldest: statement(`${OLDEST} for share`),
    settle: statement(`
      insert into ${s}.writer as w (writer, lane, namespace, epoch, sequence, at)
      values ($1, $2::text::int, $3, ${NEW_EPOCH}, 0, ${clock})
      on conflict (writer, lane) do update set epoch = w.epoch + 1, at = excluded.at returning epoch, sequence, xmax = 0`),
    mark: statement(`
      with mark as (${MARK(s, clock)}) select ${assertion("count(*) = 1", STALE)} from mark`),
    announce: statement(`
      insert into ${s}.writer as w (writer, lane, namespace, epoch, sequence, at) values ($1, ${LISTENING}, $2, 0, 0, ${clock})
      on conflict (writer, lane) do update set at = excluded.at`),
    joined: statement(`
      insert into ${s}.writer as w (writer, lane, namespace, epoch, sequence, at) values ($1, ${JOINED}, $2, 0, 1, ${clock})
      on conflict (writer, lane) do update set sequence = w.sequence + 1, at = excluded.at`),
    hasListeners: statement(`
      select exists (select from ${s}.writer
        where namespace = $1 and lane = ${LISTENING} and writer <> $2 and at > ${clock} - ${LISTENS_FOR_MS})`),
    forget: statement(`delete from ${s}.writer where writer = $1`),
    all: statement(
      `select coalesce(sum(sequence), 0) || '/' || count(*) from ${s}.writer where namespace = $1 and writer <> $2`,
    ),
  };
}
