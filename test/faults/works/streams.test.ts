/**
 * The checks of the fault runs on streams, on made-up ledgers.
 *
 * Goal: a run that finds nothing wrong means something. Each kind of wrong that a check is for is planted once, and must be
 * found; the same ledger without it must pass.
 */

import { describe, expect, it } from "vitest";
import type { Operation } from "../ledger.ts";
import { evidence, operation } from "./evidence.ts";
import { checkStreams, type StoredUnits, type StreamsState, targetOf, type Wish } from "./streams.ts";

describe("streams", () => {
  const append = (marks: readonly string[], expected: number): Wish => ({
    verb: "append",
    stream: "log",
    expected,
    marks,
  });
  const units = (verb: "put" | "take", mark: string, count: number): Wish => ({
    verb,
    stream: "stock-0",
    mark,
    units: count,
  });
  const yes = (wish: Wish, version: number): Operation => operation(wish, "yes", { ok: true, version });
  const no = (wish: Wish): Operation => operation(wish, "yes", { ok: false, version: 1 });

  const sent = (version: number, mark: string): StoredUnits => ({
    version,
    id: `id-${mark}`,
    name: "Sent",
    mark,
    units: 0,
  });
  const stocked = (version: number, name: "Put" | "Took", mark: string, count: number): StoredUnits => ({
    version,
    id: `id-${mark}`,
    name,
    mark,
    units: count,
  });
  const [one, two, three] = [append(["a"], 0), append(["b", "c"], 1), append(["d"], 3)];
  const asked = [
    yes(one, 1),
    yes(two, 3),
    operation(three, "unknown"),
    no(append(["x"], 0)),
    yes(units("put", "p", 2), 1),
    yes(units("take", "t", 1), 2),
    no(units("take", "u", 9)),
  ];
  const log = [sent(1, "a"), sent(2, "b"), sent(3, "c")];
  // The reaction took a unit for "b".
  const shelf = [stocked(1, "Put", "p", 2), stocked(2, "Took", "t", 1), stocked(3, "Took", "id-b", 1)];
  const TARGETS = Array.from({ length: 6 }, (_, i) => `t${i}`);

  /** What was forwarded when all was, in this order. */
  function forwardedAs(marks: readonly string[], took: readonly string[] = ["b"]): StreamsState["forwarded"] {
    return new Map(
      TARGETS.map((target) => [
        target,
        marks
          .filter((mark) => targetOf(mark) === target)
          .map((mark, i) => ({ version: i + 1, of: `id-${mark}`, took: took.includes(mark) })),
      ]),
    );
  }

  function state(changes: Partial<StreamsState> & { readonly log?: readonly StoredUnits[] } = {}): StreamsState {
    const { log: events = log, ...rest } = changes;
    const sentMarks = events.map(({ mark }) => mark);
    return {
      streams: new Map([
        ["log", events],
        ["stock-0", shelf],
      ]),
      left: new Map([["stock-0", 0]]),
      order: events.map(({ id }) => id),
      forwarded: forwardedAs(sentMarks),
      ...rest,
    };
  }
  const withShelf = (events: readonly StoredUnits[]): StreamsState["streams"] =>
    new Map([
      ["log", log],
      ["stock-0", events],
    ]);
  const check = (changes?: Parameters<typeof state>[0], operations: readonly Operation[] = asked) =>
    checkStreams(evidence(operations), state(changes));

  it("what was acknowledged and is there, and what is unknown and is there or not, are fine", () => {
    expect(check()).toEqual([]);
    expect(check({ log: [...log, sent(4, "d")] })).toEqual([]);
    // Asked again, it finds that it was done.
    expect(check({ log: [...log, sent(4, "d")] }, [...asked, no(three)])).toEqual([]);
  });

  // Two marks of one target, whose order can be wrong.
  const [early, late] = ((): [string, string] => {
    for (let i = 0; ; i++) if (targetOf(`e${i}`) === targetOf("a")) return ["a", `e${i}`];
  })();
  const pair = [sent(1, early), sent(2, late)];
  const pairAsked = [yes(append([early], 0), 1), yes(append([late], 1), 2)];
  const pairState = {
    streams: new Map([["log", pair]]),
    left: new Map<string, number>(),
    order: pair.map(({ id }) => id),
  };

  const plants: { wrong: string; says: string; found: readonly string[] }[] = [
    {
      wrong: "a lost append",
      says: "b was acknowledged to w0#1 as log 2, log 3 and is lost",
      found: check({ log: log.slice(0, 1) }),
    },
    {
      wrong: "half of an append",
      says: "of b and c only a part is there: log 2",
      found: check({ log: log.slice(0, 2) }),
    },
    {
      wrong: "an append that is there twice",
      says: "a is there 2 times: log 1, log 4",
      found: check({ log: [...log, { ...sent(4, "a"), id: "id-again" }] }),
    },
    {
      wrong: "a gap",
      says: "log has version 4 where 3 belongs",
      found: check({ log: [...log.slice(0, 2), sent(4, "c")] }),
    },
    {
      wrong: "an append elsewhere than reported",
      says: "a was acknowledged to w0#1 as log 1 and is log 3",
      found: check({ log: [sent(1, "b"), sent(2, "c"), sent(3, "a")] }),
    },
    {
      wrong: "an append at a version that it did not expect",
      says: "a was appended after 0, and 7 was expected",
      found: check({}, [yes(append(["a"], 7), 1), ...asked.slice(1)]),
    },
    {
      wrong: "an append that was refused and is there",
      says: "x was refused, and is there: log 4",
      found: check({ log: [...log, sent(4, "x")] }),
    },
    {
      wrong: "an append that was acknowledged twice",
      says: "a was acknowledged 2 times",
      found: check({}, [...asked, yes(one, 1)]),
    },
    {
      wrong: "an event that no client asked for",
      says: "log 4 is q, which no client asked for",
      found: check({ log: [...log, sent(4, "q")] }),
    },
    {
      wrong: "a stock below zero",
      says: "stock-0 has -1 units after version 1",
      found: check({
        streams: withShelf([stocked(1, "Took", "t", 1), stocked(2, "Put", "p", 2), stocked(3, "Took", "id-b", 1)]),
      }),
    },
    {
      wrong: "a command that was refused and is there",
      says: "u was refused, and is there: stock-0 4",
      found: check({ streams: withShelf([...shelf, stocked(4, "Took", "u", 0)]) }),
    },
    {
      wrong: "a stored state that is not that of the events",
      says: "the state of stock-0 is 5, and its events add up to 0",
      found: check({ left: new Map([["stock-0", 5]]) }),
    },
    {
      wrong: "an event that was not forwarded",
      says: "event id-c was forwarded 0 times",
      found: check({ forwarded: forwardedAs(["a", "b"]) }),
    },
    {
      wrong: "an event that was forwarded twice",
      says: "event id-a was forwarded 2 times",
      found: check({ forwarded: forwardedAs(["a", "a", "b", "c"]) }),
    },
    {
      wrong: "something that was forwarded and is no event",
      says: "id-z was forwarded at",
      found: check({ forwarded: forwardedAs(["a", "b", "c", "z"]) }),
    },
    {
      wrong: "a unit that was taken without being forwarded",
      says: "id-b was forwarded without a unit that was taken",
      found: check({ forwarded: forwardedAs(["a", "b", "c"], []) }),
    },
    {
      wrong: "a unit that was forwarded without being taken",
      says: "id-c was forwarded with a unit that was not taken",
      found: check({ forwarded: forwardedAs(["a", "b", "c"], ["b", "c"]) }),
    },
    {
      wrong: "two events of a target in the wrong order",
      says: `handled id-${late} where id-${early} was next`,
      found: check({ ...pairState, forwarded: forwardedAs([late, early], []) }, pairAsked),
    },
  ];

  it.each(plants)("$wrong is found", ({ says, found }) => {
    expect(found.join("\n")).toContain(says);
  });

  it("two events of a target in their order are fine", () => {
    expect(check({ ...pairState, forwarded: forwardedAs([early, late], []) }, pairAsked)).toEqual([]);
  });
});
