/**
 * Decisions and SQL as the user of a handle writes them: `Prepare` turns a decision on the handle's `tx` into one on the kernel's `tx`,
 * and `runInSql` runs the user's work in a transaction that Pawl writes to as well: first statements, then decisions.
 */

import { checkFunction } from "../check.ts";
import type { Address, Sql } from "../contract.ts";
import type { Decision, Sync, Tx } from "../decision.ts";
import { type Origin, withOrigin } from "../origin.ts";
import { SqlAfterTxError, SqlOverError } from "./executors.ts";
import type { Join } from "./joint.ts";
import { Observed } from "./observed.ts";

/** Returns the decision for the kernel, and the records that it is known to touch. `Face` is the type of the user's `tx`. */
export type Prepare<Face, Touch> = <T>(
  decide: (tx: Face) => Sync<T>,
  options: Touch | undefined,
) => readonly [Decision<T>, readonly Address[]];

/** The same, with an origin for all that the decisions do. */
export function preparedWith<Face, Touch>(prepare: Prepare<Face, Touch>, origin: Origin): Prepare<Face, Touch> {
  return (decide, options) => {
    const [decision, touched] = prepare(decide, options);
    return [withOrigin(decision, origin), touched];
  };
}

/** For decisions on the kernel's own `tx`. */
export const plainly: Prepare<Tx, object> = <T>(decide: (tx: Tx) => Sync<T>) => [decide as Decision<T>, []];

/** Runs a decision in the same transaction as the user's SQL, after it, and returns its result. */
export type DecideInSql<Face, Touch> = <T>(decide: (tx: Face) => Sync<T>, options?: Touch) => Promise<T>;

export type SqlWork<T, Face, Touch> = (sql: Sql, tx: DecideInSql<Face, Touch>) => Promise<T>;

/**
 * Waits for statements and decisions that the work did not await; those that come later throw `sql_over`. A failure that the work has not
 * looked at fails the next decision, and the transaction: SQLite, unlike PostgreSQL, would commit without what the statement was to do.
 */
export async function runInSql<T, Face, Touch>(
  sql: Sql,
  join: Join,
  prepare: Prepare<Face, Touch>,
  work: SqlWork<T, Face, Touch>,
): Promise<T> {
  let isDeciding = false;
  let isOver = false;
  const pending = new Set<Promise<unknown>>();
  const failed: { readonly by: Observed<unknown>; readonly error: unknown }[] = [];
  const during = <U>(act: () => Promise<U>): Promise<U> => {
    if (isOver) return Promise.reject(new SqlOverError());
    const acting = act();
    const by = Observed.of(acting);
    pending.add(acting);
    acting.then(
      () => pending.delete(acting),
      (error: unknown) => {
        pending.delete(acting);
        failed.push({ by, error });
      },
    );
    return by;
  };
  const first: Sql = {
    query: (text, values) =>
      during(async () => {
        if (isDeciding) throw new SqlAfterTxError();
        return sql.query(text, values);
      }),
  };
  const throwForgotten = (): void => {
    const forgotten = failed.find(({ by }) => !by.isObserved);
    if (forgotten !== undefined) throw forgotten.error;
  };
  const then: DecideInSql<Face, Touch> = (decide, options) => {
    const before = [...pending];
    return during(async () => {
      checkFunction(decide, "the decision");
      isDeciding = true;
      await Promise.allSettled(before);
      throwForgotten();
      return join(...prepare(decide, options));
    });
  };
  try {
    const value = await work(first, then);
    isOver = true;
    await Promise.all(pending);
    throwForgotten();
    return value;
  } finally {
    isOver = true;
    await Promise.allSettled(pending);
  }
}
