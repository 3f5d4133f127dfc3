/**
 * Decisions that create a key of their own and look whether another is there: for `skew.test.ts` and `skew.long.test.ts`.
 */

import { type Address, address, newAddress } from "../../src/kernel/contract.ts";
import type { Tx as KernelTx } from "../../src/kernel/decision.ts";
import type { Pawl } from "../../src/pawl.ts";
import type { Tx } from "../../src/tx.ts";

/** Makes `mine` and tells whether `other` was not there. */
export type IsFirst = (pawl: Pawl, mine: string, other: string) => Promise<boolean>;

class Absent extends Error {}

/** Whether nothing is stored under the key; asks in the way of those who would store something. */
export function isUnanswered(tx: Tx, key: string): boolean {
  try {
    tx.idempotent(key, undefined, () => {
      throw new Absent();
    });
    return false;
  } catch (error) {
    if (error instanceof Absent) return true;
    throw error;
  }
}

export const withIdempotent: IsFirst = (pawl, mine, other) =>
  pawl.transact((tx) => {
    tx.idempotent(mine, undefined, () => "done");
    return isUnanswered(tx, other);
  });

/** Decisions of the kernel, which name these of the two keys. */
export const raw =
  (space: string, named: (mine: Address, other: Address) => readonly Address[]): IsFirst =>
  (pawl, mine, other) => {
    const [mineAt, otherAt] = [newAddress(address(space, mine)), address(space, other)];
    const decide = (tx: KernelTx) => {
      tx.record(mineAt).write({ value: mine });
      return !tx.record(otherAt).exists;
    };
    return pawl.kernel.transact(decide, named(mineAt, otherAt));
  };
