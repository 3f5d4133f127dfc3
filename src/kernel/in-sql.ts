/**
 * What decisions and SQL look like to the user of a handle: `Prepare` turns a decision on the handle's own `tx` into one on the kernel's,
 * and `runInSql` runs the user's work in a transaction that is Pawl's as well, with statements first and decisions last.
 */

import { checkFunction } from "./check.ts";
import type { Address, Sql } from "./contract.ts";
import type { Decision, Sync, Tx } from "./decision.ts";
import type { Join } from "./joint.ts";
import { SqlAfterTxError, SqlOverError } from "./sql.ts";

/** A decision as the kernel wants it, and the records it is known to touch. `Face` is the `tx` that users see. */
export type Prepare<Face, Touch> = <T>(
  decide: (tx: Face) => Sync<T>,
  options: Touch | undefined,
) => readonly [Decision<T>, readonly Address[]];

/** Decisions on the kernel's own `tx`. */
export const plainly: Prepare<Tx, object> = <T>(decide: (tx: Tx) => Sync<T>) => [decide as Decision<T>, []];

/** Runs a decision in a transaction that the user's SQL is in, after it, and answers what it returned. */
export type DecideInSql<Face, Touch> = <T>(decide: (tx: Face) => Sync<T>, options?: Touch) => Promise<T>;

export type SqlWork<T, Face, Touch> = (sql: Sql, tx: DecideInSql<Face, Touch>) => Promise<T>;

/** What was not waited for is waited for before it returns; what comes later is refused. */
export async function runInSql<T, Face, Touch>(
  sql: Sql,
  join: Join,
  prepare: Prepare<Face, Touch>,
  work: SqlWork<T, Face, Touch>,
): Promise<T> {
  let isDeciding = false;
  let isOver = false;
  const pending = new Set<Promise<unknown>>();
  const during = async <U>(act: () => Promise<U>): Promise<U> => {
    if (isOver) throw new SqlOverError();
    const acting = act();
    pending.add(acting);
    try {
      return await acting;
    } finally {
      pending.delete(acting);
    }
  };
  const first: Sql = {
    query: (text, values) =>
      during(async () => {
        if (isDeciding) throw new SqlAfterTxError();
        return sql.query(text, values);
      }),
  };
  const then: DecideInSql<Face, Touch> = (decide, options) =>
    during(async () => {
      checkFunction(decide, "the decision");
      isDeciding = true;
      return join(...prepare(decide, options));
    });
  try {
    const value = await work(first, then);
    isOver = true;
    await Promise.all(pending);
    return value;
  } finally {
    isOver = true;
    await Promise.allSettled(pending);
  }
}
