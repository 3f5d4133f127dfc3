/**
 * The serializability checker, on drawn histories.
 *
 * Goal: every history of a serial execution passes, and any of them stops passing when it is tampered with.
 */

import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { append, committed, create, during, read, remove } from "../../../test/serializable/histories.ts";
import type { LastRead, ListOperation, ListTransaction, ListValue } from "./lists/transactions.ts";
import { checkSerializable } from "./serializable.ts";

// ------------------------------------------------------------------------------------------- serial executions

interface Drawn {
  readonly outcome: ListTransaction["outcome"];
  readonly steps: readonly { readonly key: number; readonly act: "read" | "write" | "delete" | "blind" }[];
  readonly overlap: number;
}

const drawn = fc.array(
  fc.record({
    outcome: fc.constantFrom("committed", "committed", "committed", "committed", "aborted", "unknown") as fc.Arbitrary<
      ListTransaction["outcome"]
    >,
    steps: fc.array(
      fc.record({ key: fc.nat(3), act: fc.constantFrom("read", "write", "write", "delete", "blind") }) as fc.Arbitrary<
        Drawn["steps"][number]
      >,
      { minLength: 1, maxLength: 4 },
    ),
    overlap: fc.nat(15),
  }),
  { minLength: 2, maxLength: 40 },
);

/** Runs the transactions one after another; those whose outcome is unknown happen or not. */
function execute(all: readonly Drawn[], gap = 0): { history: ListTransaction[]; last: Map<string, LastRead> } {
  const lists = new Map<string, { list: readonly number[] | null; version: number }>();
  let values = 0;
  const history = all.map(({ outcome, steps, overlap }, i): ListTransaction => {
    const mine = new Map(lists);
    const operations: ListOperation[] = [];
    for (const { key: number, act } of steps) {
      const key = `k${number}`;
      const { list, version } = mine.get(key) ?? { list: null, version: 0 };
      if (act !== "blind" || list === null) operations.push(read(key, list, list === null ? version : undefined));
      if (act === "read") continue;
      if (act === "delete") {
        if (list === null) continue;
        operations.push(remove(key, version + 1));
        mine.set(key, { list: null, version: version + 1 });
      } else {
        values += 1;
        operations.push(list === null ? create(key, values, version + 1) : append(key, values, version + 1));
        mine.set(key, { list: [...(list ?? []), values], version: version + 1 });
      }
    }
    if (outcome === "committed" || (outcome === "unknown" && overlap % 2 === 0))
      for (const [key, state] of mine) lists.set(key, state);
    const at = i * 20 + 20;
    return during(at - (gap === 0 ? overlap * 10 : 1), at + (gap === 0 ? overlap : 1), {
      id: `T${i}`,
      outcome,
      operations,
    });
  });
  return { history, last: new Map([...lists].map(([key, { list }]) => [key, { list }])) };
}

describe("histories of a serial execution", () => {
  test("pass, whatever overlapped", () => {
    fc.assert(
      fc.property(drawn, (all) => {
        const { history, last } = execute(all);
        expect(checkSerializable(history, { realTime: true, last }).violations).toEqual([]);
      }),
      { numRuns: 500 },
    );
  });

  /** Changes one read of a list, picked by chance, if there is one. */
  const changingRead =
    (
      change: (list: readonly ListValue[]) => readonly ListValue[] | null,
      isFit: (list: readonly ListValue[]) => boolean,
    ) =>
    (history: readonly ListTransaction[], pick: number): ListTransaction[] | null => {
      const places = history.flatMap((transaction, t) =>
        transaction.outcome === "unknown"
          ? []
          : transaction.operations.flatMap((operation, o) =>
              operation.op === "read" && operation.list !== null && isFit(operation.list) && isFirst(transaction, o)
                ? [{ t, o }]
                : [],
            ),
      );
      const place = places[pick % Math.max(1, places.length)];
      if (place === undefined) return null;
      return history.map((transaction, t) =>
        t !== place.t
          ? transaction
          : {
              ...transaction,
              operations: transaction.operations.slice(0, place.o + 1).map((operation, o) => {
                if (o !== place.o || operation.op !== "read" || operation.list === null) return operation;
                return { ...operation, list: change(operation.list) };
              }),
            },
      );
    };
  const isFirst = ({ operations }: ListTransaction, at: number) =>
    operations.findIndex(({ key }) => key === operations[at]?.key) === at;

  const tampered: readonly (readonly [
    string,
    (history: readonly ListTransaction[], pick: number) => ListTransaction[] | null,
  ])[] = [
    [
      "two values of a list change places",
      changingRead(
        (list) => [...list.slice(0, -2), list.at(-1) ?? 0, list.at(-2) ?? 0],
        ({ length }) => length >= 2,
      ),
    ],
    [
      "a value is taken out of the middle of a list",
      changingRead(
        (list) => list.filter((_, i) => i !== list.length - 2),
        ({ length }) => length >= 3,
      ),
    ],
    [
      "a value is there twice",
      changingRead(
        (list) => [...list, list.at(-1) ?? 0],
        ({ length }) => length >= 1,
      ),
    ],
    [
      "a list has a value that no transaction wrote",
      changingRead(
        (list) => [...list, "strange"],
        ({ length }) => length >= 1,
      ),
    ],
    [
      "the last value of a list was not seen",
      changingRead(
        (list) => list.slice(0, -1),
        ({ length }) => length >= 2,
      ),
    ],
    [
      "a transaction whose writes were read is reported as aborted",
      (history, pick) => {
        const seen = new Set(
          history.flatMap(({ outcome, operations }) =>
            outcome === "unknown" ? [] : operations.flatMap((one) => (one.op === "read" ? (one.list ?? []) : [])),
          ),
        );
        const wrote = ({ operations }: ListTransaction) =>
          operations.some((one) => "value" in one && seen.has(one.value));
        const writers = history.filter(
          (one) => one.outcome === "committed" && wrote(one) && isSeenByOthers(one, history),
        );
        const writer = writers[pick % Math.max(1, writers.length)];
        if (writer === undefined) return null;
        return history.map((one) => (one === writer ? { ...one, outcome: "aborted" } : one));
      },
    ],
  ];
  const isSeenByOthers = (writer: ListTransaction, history: readonly ListTransaction[]) => {
    const values = new Set(writer.operations.flatMap((one) => ("value" in one ? [one.value] : [])));
    return history.some(
      (one) =>
        one !== writer &&
        one.outcome !== "unknown" &&
        one.operations.some((read) => read.op === "read" && read.list?.some((value) => values.has(value)) === true),
    );
  };

  test.each(tampered)("do not pass when %s", (_, tamper) => {
    let count = 0;
    fc.assert(
      fc.property(drawn, fc.nat(), (all, pick) => {
        // One after the other, so that whatever is out of order is so in time as well.
        const { history, last } = execute(
          all.map((one) => (one.outcome === "unknown" ? { ...one, outcome: "committed" } : one)),
          1,
        );
        const changed = tamper(history, pick);
        if (changed === null) return;
        count += 1;
        expect(checkSerializable(changed, { realTime: true, last }).violations).not.toEqual([]);
      }),
      { numRuns: 300 },
    );
    expect(count).toBeGreaterThan(50);
  });

  test("do not pass with two transactions in their middle that do not see each other", () => {
    fc.assert(
      fc.property(drawn, fc.nat(), fc.boolean(), (all, at, areAbsent) => {
        const { history, last } = execute(all);
        const pair = areAbsent
          ? [committed("A", create("a", "a"), read("b", null)), committed("B", create("b", "b"), read("a", null))]
          : [
              committed("O", create("a", "a0"), create("b", "b0")),
              committed("A", read("a", ["a0"]), append("a", "a"), read("b", ["b0"])),
              committed("B", read("b", ["b0"]), append("b", "b"), read("a", ["a0"])),
            ];
        const place = at % history.length;
        const { violations } = checkSerializable([...history.slice(0, place), ...pair, ...history.slice(place)], {
          last,
        });
        expect(violations.map(({ anomaly }) => anomaly)).toEqual(["G2"]);
      }),
      { numRuns: 200 },
    );
  });
});
