// Goal: the checker's cost grows with the number of transactions, not with its square.

import { expect, test } from "vitest";
import { append, committed, create, during, read } from "../../../test/serializable/histories.ts";
import type { LastRead, ListOperation, ListTransaction } from "./lists/transactions.ts";
import { checkSerializable } from "./serializable.ts";

test("a hundred thousand transactions take seconds, not minutes", () => {
  const history: ListTransaction[] = [];
  const lists = new Map<string, number[]>();
  for (let i = 0; i < 100_000; i++) {
    const key = (n: number) => `k${Math.floor(i / 400)}-${n}`;
    const [one, other] = [key(i % 7), key((i * 5 + 3) % 7)];
    const list = lists.get(one);
    const operations: ListOperation[] = [read(one, list === undefined ? null : [...list])];
    if (one !== other) operations.push(read(other, lists.has(other) ? [...(lists.get(other) ?? [])] : null));
    operations.push(list === undefined ? create(one, i) : append(one, i));
    lists.set(one, [...(list ?? []), i]);
    history.push(during(i, i + 1.5, committed(`T${i}`, ...operations)));
  }
  const last = new Map([...lists].map(([key, list]): [string, LastRead] => [key, { list }]));
  const report = checkSerializable(history, { realTime: true, last });
  expect(report.violations).toEqual([]);
  expect(report.edges.rw).toBeGreaterThan(50_000);
});
