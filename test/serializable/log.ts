/**
 * Transactions as lines of text: how a process that works tells the one that checks, window by window.
 */

import type { ListOperation, ListTransaction } from "../../src/testing/checkers/lists/transactions.ts";

type LogLine = readonly [
  id: string,
  about: string,
  outcome: "c" | "a" | "u",
  startedAt: number,
  endedAt: number | null,
  ...operations: (readonly (string | number | null | readonly number[])[])[],
];

const OUTCOMES = { c: "committed", a: "aborted", u: "unknown" } as const;

export function lineOf(transaction: ListTransaction): string {
  const { id, about = "", outcome, startedAt = 0, endedAt, operations } = transaction;
  const line: LogLine = [
    id,
    about,
    outcome.charAt(0) as LogLine[2],
    startedAt,
    endedAt ?? null,
    ...operations.map((operation) => {
      const { op, key, version = null } = operation;
      if (op === "read") return ["r", key, version, operation.list as readonly number[] | null];
      return op === "delete" ? ["d", key, version] : [op === "create" ? "c" : "w", key, version, operation.value];
    }),
  ];
  return JSON.stringify(line);
}

export function transactionOf(text: string): ListTransaction {
  const [id, about, outcome, startedAt, endedAt, ...operations] = JSON.parse(text) as LogLine;
  return {
    id,
    about,
    outcome: OUTCOMES[outcome],
    startedAt,
    endedAt: endedAt ?? undefined,
    operations: operations.map(operationOf),
  };
}

function operationOf([op, key, at, what]: readonly (string | number | null | readonly number[])[]): ListOperation {
  const common = { key: key as string, version: (at as number | null) ?? undefined };
  if (op === "r") return { op: "read", ...common, list: what as readonly number[] | null };
  if (op === "d") return { op: "delete", ...common };
  return { op: op === "c" ? "create" : "append", ...common, value: what as number };
}
