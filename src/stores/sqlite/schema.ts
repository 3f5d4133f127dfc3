/**
 * The tables and their migrations: numbered, and applied under the write lock by the first process that opens the file.
 *
 * - `pawl_record`: what is true now. Rows are found by name through one index and then known by number, so that random names
 *   cost one random page when a record is made, and none when it is changed.
 * - `pawl_log`: what happened. Rows are in commit order, so that appending to many logs in one commit fills a few pages.
 * - `pawl_followed`: which entries of the log are followed, by space, in the same order. Most are not, and have no row here.
 * - `pawl_now`, `pawl_past`: the same, to be read by people.
 *
 * Rows of both tables get a number that is never used twice, even after the last row was swept.
 *
 * A released migration is never changed; the next one changes what it made.
 */

import type { DatabaseSync } from "node:sqlite";
import { StoreError } from "../../kernel/errors.ts";

export const MIGRATIONS: readonly string[] = [
  `
  create table pawl_record (
    id integer primary key autoincrement,
    namespace text not null,
    space text not null,
    key text not null,
    version integer not null,
    fence integer not null,
    wakes integer not null,
    tries integer not null,
    holder text,
    kind text,
    status text,
    due integer,
    head integer not null,
    value text,
    unique (namespace, space, key)
  ) strict;

  create index pawl_record_due on pawl_record (namespace, kind, due) where due is not null;

  create table pawl_log (
    position integer primary key autoincrement,
    record integer not null,
    version integer not null,
    name text not null,
    data text not null,
    at integer not null
  ) strict;

  create unique index pawl_log_version on pawl_log (record, version);

  create view pawl_now as
    select namespace, space, key, version, status, value, kind, holder, fence, tries,
      strftime('%Y-%m-%d %H:%M:%f', due / 1000.0, 'unixepoch') as due_utc
    from pawl_record where value is not null;

  create view pawl_past as
    select r.namespace, r.space, r.key, l.version, l.name, l.data,
      strftime('%Y-%m-%d %H:%M:%f', l.at / 1000.0, 'unixepoch') as at_utc, l.position
    from pawl_log l join pawl_record r on r.id = l.record;
  `,
  // Releases that know only the first schema leave the stamp unchanged and raise the version: both are compared.
  `
  alter table pawl_record add column stamp integer not null default 0;
  insert into pawl_meta (name, number) values ('oldest', 1) on conflict do update set number = 1;
  `,
  // Releases that know only earlier schemas write no followed entries. When one of them sweeps, rows without their entry are left here, and
  // skipped by readers.
  `
  create table pawl_followed (
    namespace text not null,
    space text not null,
    position integer not null,
    record integer not null,
    version integer not null,
    primary key (namespace, space, position)
  ) strict, without rowid;
  `,
];

/** Brings the file up to this release's schema. The caller retries while another process has the write lock. */
export function migrate(db: DatabaseSync, migrations: readonly string[] = MIGRATIONS): void {
  db.exec("begin immediate");
  try {
    db.exec(
      "create table if not exists pawl_meta (name text primary key, number integer not null) strict, without rowid",
    );
    const has = refuseNewer((name) => {
      const row = db.prepare("select number from pawl_meta where name = ?").get(name);
      return row === undefined ? undefined : Number(row["number"]);
    }, migrations.length);
    for (const migration of migrations.slice(has)) db.exec(migration);
    if (has < migrations.length)
      db.prepare("insert or replace into pawl_meta (name, number) values ('schema', ?)").run(migrations.length);
    db.exec("commit");
  } catch (error) {
    if (db.isTransaction) db.exec("rollback");
    throw error;
  }
}

/**
 * Throws if this release is too old for the schema; returns the schema's number. Called at the start, and again whenever another connection
 * has committed, because another process may have installed a newer schema.
 */
export function refuseNewer(number: (name: string) => number | undefined, known = MIGRATIONS.length): number {
  const has = number("schema") ?? 0;
  // A later schema says which releases can still work on it.
  if (Math.min(has, number("oldest") ?? has) > known)
    throw new StoreError(
      "store_unfit",
      "fail",
      `the database has schema ${has}, and this release of Pawl knows up to ${known}: upgrade Pawl in this process`,
    );
  return has;
}
