/**
 * Goal: the index of timed rows returns the same as a scan of all rows, for any number of rows.
 * Method: random rows of two kinds are added, moved and removed; after each round the index is compared with a plain list.
 */

import { expect, test } from "vitest";
import { NEW_ROW, type Row } from "../../kernel/contract.ts";
import { Random } from "../../testing/sim/random.ts";
import { TimedRows } from "./timed.ts";

const KINDS = ["a", "b"];

const rowOf = (id: number, kind: string | null, dueMs: number | null): Row => ({
  ...NEW_ROW,
  id,
  space: "s",
  key: String(id),
  version: 1,
  stamp: 1,
  kind,
  dueMs,
  value: "1",
});

test("it returns the same as a scan of all rows", () => {
  const random = new Random(7);
  const timed = new TimedRows();
  const rows = new Map<number, Row>();
  const put = (id: number, row: Row | null): void => {
    const before = rows.get(id);
    if (before !== undefined) timed.remove(before);
    rows.delete(id);
    if (row === null) return;
    rows.set(id, row);
    timed.add(row);
  };
  for (let round = 0; round < 40; round++) {
    // It grows at first, and is empty in the end.
    for (let change = 0; change < 300; change++) {
      const id = random.below(6000);
      const dueMs = random.below(10) === 0 ? null : random.below(500);
      const kind = random.below(20) === 0 ? null : (KINDS[random.below(2)] ?? null);
      put(id, round < 25 || random.below(4) === 0 ? rowOf(id, kind, dueMs) : null);
    }
    if (round === 39) for (const id of [...rows.keys()]) put(id, null);
    for (const kind of KINDS)
      for (const [nowMs, limit] of [
        [random.below(500), 1 + random.below(50)],
        [500, 10_000],
        [0, 3],
        [-1, 3],
      ] as const) {
        const all = [...rows.values()]
          .filter((row) => row.kind === kind && row.dueMs !== null)
          .sort((one, other) => Number(one.dueMs) - Number(other.dueMs) || one.id - other.id);
        const due = all.filter((row) => Number(row.dueMs) <= nowMs);
        const page = timed.due(kind, nowMs, limit);
        expect(page.rows.map(({ id }) => id)).toEqual(due.slice(0, limit).map(({ id }) => id));
        expect(page.nextDueMs).toBe(all[due.length]?.dueMs ?? null);
      }
  }
});
