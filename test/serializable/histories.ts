/** Transactions on lists, as a history of them has them: for the tests of the checker. */

import type {
  LastRead,
  ListOperation,
  ListTransaction,
  ListValue,
} from "../../src/testing/checkers/lists/transactions.ts";

export const read = (key: string, list: readonly ListValue[] | null, version?: number): ListOperation => ({
  op: "read",
  key,
  list,
  version,
});
export const append = (key: string, value: ListValue, version?: number): ListOperation => ({
  op: "append",
  key,
  value,
  version,
});
export const create = (key: string, value: ListValue, version?: number): ListOperation => ({
  op: "create",
  key,
  value,
  version,
});
export const remove = (key: string, version?: number): ListOperation => ({ op: "delete", key, version });

export const committed = (id: string, ...operations: ListOperation[]): ListTransaction => ({
  id,
  outcome: "committed",
  operations,
});
export const during = (
  startedAt: number,
  endedAt: number | undefined,
  transaction: ListTransaction,
): ListTransaction => ({
  ...transaction,
  startedAt,
  endedAt,
});

export const last = (lists: Record<string, readonly ListValue[] | null>): ReadonlyMap<string, LastRead> =>
  new Map(Object.entries(lists).map(([key, list]) => [key, { list }]));
