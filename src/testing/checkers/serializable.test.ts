/**
 * The serializability checker, on made-up histories.
 *
 * Goal: the checker detects every anomaly. Each is made by hand once, as small as possible, and must be named
 * with the transactions in it; every history of a serial execution passes; and any of them stops passing when it is tampered with.
 */

import { describe, expect, test } from "vitest";
import { append, committed, create, during, last, read, remove } from "../../../test/serializable/histories.ts";
import type { ListOperation, ListTransaction } from "./lists/transactions.ts";
import { checkSerializable, describeSerializable, type SerializableOptions } from "./serializable.ts";

const aborted = (id: string, ...operations: ListOperation[]): ListTransaction => ({
  id,
  outcome: "aborted",
  operations,
});
const unknown = (id: string, ...operations: ListOperation[]): ListTransaction => ({
  id,
  outcome: "unknown",
  operations,
});

const made = committed("T0", create("x", 1), create("y", 2));

describe("passes", () => {
  const histories: readonly (readonly [string, readonly ListTransaction[], SerializableOptions?])[] = [
    ["nothing", []],
    [
      "appends that were seen in order",
      [made, committed("A", read("x", [1]), append("x", 3)), committed("B", read("x", [1, 3]))],
    ],
    [
      "appends without a read before",
      [made, committed("A", append("x", 3)), committed("B", append("x", 4)), committed("C", read("x", [1, 4, 3]))],
    ],
    [
      "a list that was seen absent, and created afterwards",
      [
        committed("A", read("x", null), create("y", 1)),
        committed("B", read("y", [1]), read("x", null), create("x", 2)),
      ],
    ],
    [
      "a list that lives twice",
      [
        committed("A", create("x", 1, 1)),
        committed("B", read("x", [1]), remove("x", 2)),
        committed("C", read("x", null, 2)),
        committed("D", read("x", null, 2), create("x", 2, 3)),
        committed("E", read("x", [2])),
      ],
      { last: last({ x: [2] }) },
    ],
    [
      "an unknown outcome that was never seen",
      [made, unknown("A", read("x", [1]), append("x", 3))],
      { last: last({ x: [1] }) },
    ],
    [
      "an unknown outcome that was seen",
      [made, unknown("A", read("x", [1]), append("x", 3)), committed("B", read("x", [1, 3]))],
    ],
    [
      "an abort whose writes were not read",
      [made, aborted("A", read("x", [1]), append("x", 3), remove("y")), committed("B", read("x", [1]), read("y", [2]))],
    ],
    [
      "a transaction that sees its own writes",
      [
        committed(
          "A",
          read("x", null),
          create("x", 1),
          read("x", [1]),
          append("x", 2),
          read("x", [1, 2]),
          remove("x"),
          read("x", null),
        ),
      ],
    ],
    [
      "transactions that overlapped, in either order",
      [
        during(1, 9, made),
        during(2, 8, committed("A", read("x", null))),
        during(10, 20, committed("B", read("x", [1]))),
      ],
      { realTime: true },
    ],
    [
      "an unknown outcome that takes effect long after it was given up",
      [
        during(1, 2, made),
        during(3, 4, unknown("A", append("x", 3))),
        during(5, 6, committed("B", read("x", [1]))),
        during(7, 8, committed("C", read("x", [1, 3]))),
      ],
      { realTime: true },
    ],
  ];
  for (const [name, history, options] of histories)
    test(name, () => {
      expect(checkSerializable(history, options).violations).toEqual([]);
    });
});

describe("finds", () => {
  const histories: readonly (readonly [
    name: string,
    anomaly: string,
    history: readonly ListTransaction[],
    transactions: readonly string[],
    message: string | RegExp,
    options?: SerializableOptions,
  ])[] = [
    [
      "dirty writes",
      "G0",
      [
        made,
        committed("A", append("x", 3), append("y", 4)),
        committed("B", append("x", 5), append("y", 6)),
        committed("C", read("x", [1, 3, 5]), read("y", [2, 6, 4])),
      ],
      ["A", "B"],
      "dirty write (G0), a cycle of 2 transactions:\n" +
        '  B appended 6 to "y", before A appended 4 to "y" [ww]\n' +
        '  A appended 3 to "x", before B appended 5 to "x" [ww]',
    ],
    [
      "an aborted read",
      "G1a",
      [made, aborted("A", read("x", [1]), append("x", 3)), committed("B", read("x", [1, 3]))],
      ["A", "B"],
      'aborted read (G1a): B found 3 in "x", which A wrote, and that was aborted',
    ],
    [
      "a deletion that was aborted and seen",
      "G1a",
      [
        committed("A", create("x", 1, 1)),
        aborted("B", read("x", [1]), remove("x", 2)),
        committed("C", read("x", null, 2)),
      ],
      ["B", "C"],
      'aborted read (G1a): C found "x" absent, which was [1]; only B deleted it, and that was aborted',
    ],
    [
      "an intermediate read",
      "G1b",
      [
        made,
        committed("A", append("x", 3), append("x", 4)),
        committed("B", read("x", [1, 3])),
        committed("C", read("x", [1, 3, 4])),
      ],
      ["A", "B"],
      'intermediate read (G1b): B read "x" as [1, 3], which A had only on the way to something else',
    ],
    [
      "an intermediate read of absence",
      "G1b",
      [
        committed("A", create("x", 1, 1)),
        committed("B", read("x", [1]), remove("x", 2), create("x", 2, 2)),
        committed("C", read("x", null, 1.5)),
      ],
      ["B", "C"],
      /intermediate read \(G1b\): C read "x" as absent/,
    ],
    [
      "information that flows in a circle",
      "G1c",
      [made, committed("A", append("x", 3), read("y", [2, 4])), committed("B", append("y", 4), read("x", [1, 3]))],
      ["A", "B"],
      "circular information flow (G1c), a cycle of 2 transactions:\n" +
        '  B appended 4 to "y", which A read [wr]\n' +
        '  A appended 3 to "x", which B read [wr]',
    ],
    [
      "read skew",
      "G-single",
      [
        made,
        committed("A", read("x", [1]), append("x", 3), read("y", [2]), append("y", 4)),
        committed("B", read("x", [1]), read("y", [2, 4])),
      ],
      ["A", "B"],
      "a read that is neither before nor after (G-single), a cycle of 2 transactions:\n" +
        '  B read "x" as [1], before A appended 3 to "x" [rw]\n' +
        '  A appended 4 to "y", which B read [wr]',
    ],
    [
      "read skew by absence",
      "G-single",
      [committed("A", create("x", 1), create("y", 2)), committed("B", read("x", null), read("y", [2]))],
      ["A", "B"],
      /B read "x" as absent, before A created "x" with 1 \[rw\]\n {2}A created "y" with 2, which B read \[wr\]/,
    ],
    [
      "write skew",
      "G2",
      [
        made,
        committed("A", read("x", [1]), read("y", [2]), append("x", 3)),
        committed("B", read("x", [1]), read("y", [2]), append("y", 4)),
      ],
      ["A", "B"],
      "write skew (G2), a cycle of 2 transactions:\n" +
        '  B read "x" as [1], before A appended 3 to "x" [rw]\n' +
        '  A read "y" as [2], before B appended 4 to "y" [rw]',
    ],
    [
      "write skew by absence",
      "G2",
      [
        committed("A", read("x", null), create("x", 1), read("y", null)),
        committed("B", read("y", null), create("y", 2), read("x", null)),
      ],
      ["A", "B"],
      "write skew (G2), a cycle of 2 transactions:\n" +
        '  B read "x" as absent, before A created "x" with 1 [rw]\n' +
        '  A read "y" as absent, before B created "y" with 2 [rw]',
    ],
    [
      "write skew by absence in a later life of the keys",
      "G2",
      [
        committed("T0", create("x", 1, 1), create("y", 2, 1)),
        committed("T1", read("x", [1]), remove("x", 2), read("y", [2]), remove("y", 2)),
        committed("A", read("x", null, 2), create("x", 3, 3), read("y", null, 2)),
        committed("B", read("y", null, 2), create("y", 4, 3), read("x", null, 2)),
      ],
      ["A", "B"],
      /write skew \(G2\), a cycle of 2 transactions/,
    ],
    [
      "three in a circle",
      "G2",
      [
        committed("A", create("x", 1), read("y", null)),
        committed("B", create("y", 2), read("z", null)),
        committed("C", create("z", 3), read("x", null)),
      ],
      ["A", "B", "C"],
      /a cycle of 3 transactions/,
    ],
    [
      "a phantom by absence: a reader that saw what came later, and not what came before",
      "G-single",
      [
        committed("A", read("x", null), create("x", 1)),
        committed("B", read("x", [1]), read("y", null), create("y", 2)),
        committed("C", read("y", [2]), read("x", null)),
      ],
      ["A", "B", "C"],
      /C read "x" as absent, before A created "x" with 1/,
    ],
    [
      "a lost update",
      "lost update",
      [
        made,
        committed("A", read("x", [1]), append("x", 3)),
        committed("B", read("x", [1]), append("x", 4)),
        committed("C", read("x", [1, 4])),
      ],
      ["A", "B"],
      'lost update of "x": A made [1, 3], and B made [1, 4]; both wrote on [1], and neither has what the other wrote',
    ],
    [
      "a list that was created twice",
      "vanished",
      [committed("A", read("x", null, 0), create("x", 1, 1)), committed("B", read("x", null, 0), create("x", 2, 1))],
      ["A", "B"],
      /no committed transaction deleted/,
    ],
    [
      "a list that was deleted twice",
      "lost update",
      [
        committed("A", create("x", 1, 1)),
        committed("B", read("x", [1]), remove("x", 2)),
        committed("C", read("x", [1]), remove("x", 2)),
      ],
      ["B", "C"],
      'lost update of "x": B and C both deleted [1]',
    ],
    [
      "a deletion that did not see the last append",
      "G-single",
      [
        committed("A", create("x", 1, 1)),
        committed("B", read("x", [1]), append("x", 2, 2)),
        committed("C", read("x", [1]), remove("x", 2)),
      ],
      ["B", "C"],
      /C read "x" as \[1\], before B appended 2 to "x" \[rw\]\n {2}B appended 2 to "x", before C deleted "x" \[ww\]/,
    ],
    [
      "orders that contradict each other",
      "lost update",
      [
        made,
        committed("A", append("x", 3)),
        committed("B", append("x", 4)),
        committed("C", read("x", [1, 3, 4])),
        committed("D", read("x", [1, 4, 3])),
      ],
      ["A", "B"],
      /lost update of "x"/,
    ],
    [
      "a list with a value that no transaction wrote, beside one without",
      "incompatible orders",
      [made, committed("C", read("x", [1, 8])), committed("D", read("x", [1, 9]))],
      [],
      '"x" was [1, 8] and also [1, 9] (seen by D): neither begins with the other',
    ],
    [
      "a value that is there twice",
      "duplicate",
      [made, committed("A", append("x", 3)), committed("B", read("x", [1, 3, 3]))],
      ["A"],
      '3, which A wrote once, is in "x" twice: [1, 3, 3]',
    ],
    [
      "a value that no transaction wrote",
      "never written",
      [made, committed("B", read("x", [1, 9]))],
      [],
      '9 is in "x", and no transaction wrote it',
    ],
    [
      "an acknowledged append that is gone in the end",
      "vanished",
      [made, committed("A", read("x", [1]), append("x", 3))],
      ["A"],
      '"x" was [1, 3], as A left it, and is [1] in the end',
      { last: last({ x: [1] }) },
    ],
    [
      "an acknowledged append that no read found",
      "vanished",
      [made, committed("A", append("x", 3))],
      ["A"],
      'A appended 3 to "x", and no read ever found it there',
      { last: last({ x: [1] }) },
    ],
    [
      "a deletion that is undone in the end",
      "vanished",
      [committed("A", create("x", 1)), committed("B", read("x", [1]), remove("x"))],
      ["B"],
      '"x" was absent, as B left it, and is [1] in the end',
      { last: last({ x: [1] }) },
    ],
    [
      "an unknown outcome of which only a part was seen",
      "vanished",
      [
        made,
        unknown("A", read("x", [1]), append("x", 3), read("y", [2]), append("y", 4)),
        committed("B", read("x", [1, 3])),
      ],
      ["A"],
      '"y" was [2, 4], as A left it, and is [2] in the end',
      { last: last({ x: [1, 3], y: [2] }) },
    ],
    [
      "a transaction that does not see its own write",
      "own writes not seen",
      [made, committed("A", read("x", [1]), append("x", 3), read("x", [1]))],
      ["A"],
      'A read "x" as [1], where it knew [1, 3] from itself',
    ],
    [
      "a stale read, by the time",
      "G-single",
      [
        during(1, 2, made),
        during(3, 4, committed("A", read("x", [1]), append("x", 3))),
        during(5, 6, committed("B", read("x", [1]))),
      ],
      ["A", "B"],
      "a read that is neither before nor after (G-single), a cycle of 2 transactions, given what had ended before something else began:\n" +
        '  B read "x" as [1], before A appended 3 to "x" [rw]\n' +
        "  A had ended before B began [rt]",
      { realTime: true },
    ],
    [
      "a stale refusal: an aborted transaction rests on what it read",
      "G-single",
      [
        during(1, 2, made),
        during(3, 4, committed("A", append("x", 3))),
        during(5, 6, aborted("B", read("x", [1]))),
        during(7, 8, committed("C", read("x", [1, 3]))),
      ],
      ["A", "B"],
      /A had ended before B began/,
      { realTime: true },
    ],
  ];
  for (const [name, anomaly, history, transactions, message, options] of histories)
    test(`${name} (${anomaly})`, () => {
      const report = checkSerializable(history, options);
      const [violation] = report.violations;
      expect(violation, describeSerializable(report)).toBeDefined();
      expect(violation?.anomaly).toBe(anomaly);
      if (typeof message === "string") expect(violation?.message).toBe(message);
      else expect(violation?.message).toMatch(message);
      expect([...(violation?.transactions ?? [])].sort()).toEqual([...transactions].sort());
    });

  test("the smallest of several cycles", () => {
    const ring = Array.from({ length: 20 }, (_, i) =>
      committed(`R${i}`, create(`k${i}`, i), read(`k${(i + 1) % 20}`, null)),
    );
    const knot = [
      committed("A", create("x", 100), read("y", null), create("k0-a", 1)),
      committed("B", create("y", 101), read("x", null), read("k0", null)),
      committed("C", read("k0-a", null), read("x", [100])),
    ];
    const { violations } = checkSerializable([...ring, ...knot]);
    expect(violations.map(({ transactions }) => transactions.length).sort((a, b) => a - b)).toEqual([2, 20]);
  });

  test("a value that two transactions write is a mistake of the history", () => {
    expect(() => checkSerializable([committed("A", create("x", 1)), committed("B", append("x", 1))])).toThrow("unique");
  });
});
