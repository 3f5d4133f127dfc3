/**
 * Sweeping: removing deleted rows permanently, in small steps that lock nothing other processes need. The fence floor keeps the highest
 * fence that was removed, so that a new record of the same name continues above it, whatever the clock says.
 *
 * A long log is removed before its row, a few thousand entries with each sweep, so that no sweep is a long transaction. Placeholders
 * (`rows.ts`) are removed as well, and not counted: to the kernel they never existed.
 *
 * Rows in `followed` are removed with their entries. Most spaces have none, which one lookup for each record finds out.
 *
 * Marks of processes that ended long ago are removed too. It cannot be known whether a process has ended: an idle process leaves its marks
 * unchanged, and a clock that jumps by a month makes all marks look old. So removing the mark of a live process must be harmless, and is.
 * Its next batch finds no mark, writes nothing and gets the error that its epoch is over. Settling then inserts the mark again, with an
 * epoch that was never used (`marks.ts`): an older batch that arrives late is still refused. Only the sequence is lost, so the outcome of a
 * commit whose reply was lost at the same moment cannot be determined any more.
 */

import type { Key } from "../../kernel/contract.ts";
import { type Call, statement } from "./pipeline.ts";

const SHORT_LOG = 1000;
const MAX_ENTRIES = 5000;
/** How long the marks of processes are kept. */
const MARKS_KEPT_MS = 30 * 24 * 60 * 60 * 1000;

/** `chr(10)` is the kind of placeholders, `PLACEHOLDER_KIND`. */
export function sweepStatement(s: string, clock: string): (namespace: string, limit: number) => Call {
  const SWEEP = statement(`
    with over as materialized (
      select r.id, r.fence, r.space,
        r.head > 0 and (select true from ${s}.followed f where f.namespace = r.namespace and f.space = r.space limit 1) is true
          as is_followed,
        r.head > ${SHORT_LOG} and (select true from ${s}.log l where l.record = r.id limit 1) is true as is_long
      from ${s}.record r
      where r.namespace = $1 and r.kind is null and r.due <= (select ${clock}) and r.value is null
      order by r.namespace, r.kind, r.due limit $2::text::bigint for update skip locked),
    shortened as (
      delete from ${s}.log where ctid = any (array(
        select l.ctid from over cross join lateral (
          select l.ctid from ${s}.log l where l.record = over.id limit ${MAX_ENTRIES}) l
        where over.is_long limit ${MAX_ENTRIES}))
      returning record, position),
    emptied as (
      delete from ${s}.log l using over where l.record = any (array[over.id]) and not over.is_long
      returning case when over.is_followed then over.space end as space, l.position),
    unfollowed as (
      delete from ${s}.followed where ctid = any (array(
        select f.ctid from (
          select space, position from emptied where space is not null
          union all
          select over.space, l.position from over join shortened l on l.record = over.id where over.is_long and over.is_followed
        ) e cross join lateral (
          select f.ctid from ${s}.followed f
          where f.namespace = $1 and f.space = e.space and f.position = e.position limit 1) f))),
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

/**
 * Removes the oldest entries of a log, with their rows in `followed`. Entries are never changed, so two that do the same wait for each other, and the
 * later one finds nothing.
 */
export function pruneStatement(s: string): (namespace: string, key: Key, upTo: number, limit: number) => Call {
  const PRUNE = statement(`
    with removed as (
      delete from ${s}.log where ctid = any (array(
        select l.ctid from ${s}.log l
        where l.record = (select r.id from ${s}.record r where r.namespace = $1 and r.space = $2 and r.key = $3)
          and l.version <= $4::text::bigint
        order by l.record, l.version limit least($5::text::bigint, ${MAX_ENTRIES})))
      returning position),
    unfollowed as (
      delete from ${s}.followed where ctid = any (array(
        select f.ctid from removed cross join lateral (
          select f.ctid from ${s}.followed f
          where f.namespace = $1 and f.space = $2 and f.position = removed.position limit 1) f)))
    select count(*) from removed`);
  return (namespace, { space, key }, upTo, limit) => ({
    statement: PRUNE,
    values: [namespace, space, key, String(upTo), String(limit)],
  });
}
