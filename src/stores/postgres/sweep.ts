/**
 * Sweeping: removing deleted rows for good, in small steps that lock nothing others need. The fence floor remembers the highest
 * fence that was swept away, so that a record of the same name goes on above it, whatever the clock says.
 *
 * A long log goes before its row does, a few thousand entries with each sweep, so that no sweep is a long transaction. Placeholders
 * (`rows.ts`) are removed likewise, and not counted: to the kernel they were never there.
 *
 * Marks of processes that are long gone are removed too. No one can tell whether a process is gone: one that is idle leaves its marks as they
 * are, and a clock that jumps by a month makes all marks look old. So removing the mark of a live process has to be harmless, and is. Its
 * next batch finds no mark, so it writes nothing and is told that its epoch is over. Settling then makes the mark again, in an epoch that
 * never was (`marks.ts`): a batch from before that arrives late is refused as ever. What is lost is the sequence, so of a reply that
 * was lost in the same moment nothing can be said any more.
 */

import { type Call, statement } from "./train.ts";

const SHORT_LOG = 1000;
const ENTRIES_AT_ONCE = 5000;
/** Marks of processes that are long gone. */
const MARKS_KEPT_MS = 30 * 24 * 60 * 60 * 1000;

/** `chr(10)` is the kind of placeholders, `PLACEHOLDER_KIND`. */
export function sweepStatement(s: string, clock: string): (namespace: string, limit: number) => Call {
  const SWEEP = statement(`
    with over as materialized (
      select r.id, r.fence,
        r.head > ${SHORT_LOG} and (select true from ${s}.log l where l.record = r.id limit 1) is true as is_long
      from ${s}.record r
      where r.namespace = $1 and r.kind is null and r.due <= (select ${clock}) and r.value is null
      order by r.namespace, r.kind, r.due limit $2::text::bigint for update skip locked),
    shortened as (
      delete from ${s}.log where ctid = any (array(
        select l.ctid from over cross join lateral (
          select l.ctid from ${s}.log l where l.record = over.id limit ${ENTRIES_AT_ONCE}) l
        where over.is_long limit ${ENTRIES_AT_ONCE}))),
    emptied as (delete from ${s}.log l using over where l.record = any (array[over.id]) and not over.is_long),
    gone as (delete from ${s}.record r using over where r.id = any (array[over.id]) and not over.is_long returning r.fence),
    placeholders as (
      delete from ${s}.record where id = any (array(
        select r.id from ${s}.record r
        where r.namespace = $1 and r.kind = chr(10) and r.due <= (select ${clock}) and r.version = 0
        order by r.namespace, r.kind, r.due limit $2::text::bigint for update skip locked))),
    lifted as (
      insert into ${s}.meta as m (name, number) select 'fence_floor', max(fence) + 1 from gone where fence < ${Number.MAX_SAFE_INTEGER} having count(*) > 0
      on conflict (name) do update set number = greatest(m.number, excluded.number)),
    forgotten as (delete from ${s}.writer where at < (select ${clock}) - ${MARKS_KEPT_MS})
    select count(*) from gone`);
  return (namespace, limit) => ({ statement: SWEEP, values: [namespace, String(limit)] });
}
