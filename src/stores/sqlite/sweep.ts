/**
 * Sweeping: removing deleted rows for good. The fence floor remembers the highest fence that was swept away, so that a record of
 * the same name goes on above it, whatever the clock says.
 */

import type { Prepared } from "./prepared.ts";

const DELETED = `
  select id, fence from pawl_record where namespace = ? and kind is null and due <= ? and value is null limit ?`;
const REMOVE_LOG = "delete from pawl_log where record = ?";
const REMOVE = "delete from pawl_record where id = ?";
const LIFT_FENCE_FLOOR = `
  insert into pawl_meta (name, number) values ('fence_floor', ?)
  on conflict do update set number = max(number, excluded.number)`;

/** Runs under the write lock. Answers how many rows are gone. */
export function sweepDeleted(on: Prepared, namespace: string, nowMs: number, limit: number): number {
  const rows = on.sql(DELETED).all(namespace, nowMs, limit) as unknown as [id: number, fence: number][];
  for (const [id, fence] of rows) {
    on.sql(LIFT_FENCE_FLOOR).run(fence + 1);
    on.sql(REMOVE_LOG).run(id);
    on.sql(REMOVE).run(id);
  }
  return rows.length;
}

const FENCE_FLOOR = "select number from pawl_meta where name = 'fence_floor'";

export function fenceFloorOf(on: Prepared): number {
  return on.number(FENCE_FLOOR) ?? 0;
}
