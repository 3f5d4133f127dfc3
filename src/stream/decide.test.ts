// The rules of streams and aggregates, as tables.

import { describe, expect, test } from "vitest";
import { type AggregateRules, aggregate, aggregateRules, type CommandContext } from "./aggregate.ts";
import { checkEvents, decideCommand, foldEvent, initialFold, isExpected, MOST_EVENTS, reduce } from "./decide.ts";
import { event, eventRules, upcast } from "./event.ts";
import { type Fold, type StreamValue, withFold } from "./stored.ts";

const Added = event<number>("Added");
const sumOf = (command: (sum: number, input: unknown, context: CommandContext) => unknown): AggregateRules =>
  aggregateRules(
    aggregate("sum", {
      initial: 0,
      on: [[Added, (sum, n) => sum + n]],
      commands: { go: command as (sum: number, input: never, context: CommandContext) => unknown },
    }),
  );
const CLOCK = { stream: "s", nowMs: () => 1000, uuid: () => "id" };
const place = { stream: "s", id: "e", shape: 1 };

test.each([
  { rule: "without an expectation any version is right", version: 7, expected: undefined, is: true },
  { rule: "0 is a stream without events", version: 0, expected: 0, is: true },
  { rule: "0 is not a stream with events", version: 1, expected: 0, is: false },
  { rule: "the same version is right", version: 7, expected: 7, is: true },
  { rule: "one less is not", version: 7, expected: 6, is: false },
  { rule: "one more is not", version: 7, expected: 8, is: false },
])("$rule", ({ version, expected, is }) => {
  expect(isExpected(version, expected)).toBe(is);
});

describe("folding", () => {
  const rules = sumOf(() => {});
  test.each([
    { rule: "an event changes the state", name: "Added", data: 5, state: 6 },
    { rule: "an event that the aggregate does not know leaves it", name: "Else", data: 5, state: 1 },
    { rule: "a name of Object.prototype is no event", name: "constructor", data: 5, state: 1 },
  ])("$rule", ({ name, data, state }) => {
    expect(reduce(rules, 1, { ...place, version: 3, name, data })).toBe(state);
    expect(foldEvent(rules, { by: "r", version: 2, state: 1 }, { ...place, version: 3, name, data })).toEqual({
      by: "r",
      version: 3,
      state,
    });
  });

  test("begins with the initial state", () => {
    expect(initialFold(rules)).toEqual({ by: rules.by, version: 0, state: 0 });
  });

  test("a reducer that is asynchronous is refused", () => {
    const later = aggregateRules(aggregate("later", { initial: 0, on: [[Added, async () => 1]] } as never));
    expect(() => reduce(later, 0, { ...place, version: 1, name: "Added", data: 1 })).toThrow("synchronous");
  });
});

describe("a command", () => {
  const rows: readonly {
    rule: string;
    command: (sum: number, input: unknown, context: CommandContext) => unknown;
    is: object;
  }[] = [
    {
      rule: "returns its output",
      command: (sum, input) => [sum, input],
      is: { is: "decided", output: [4, "in"], events: [] },
    },
    {
      rule: "emits events in order",
      command: (_sum, _input, { emit }) => {
        emit(Added(1), Added(2));
        emit(Added(3));
      },
      is: { is: "decided", output: undefined, events: [Added(1), Added(2), Added(3)] },
    },
    {
      rule: "sees the version, the clock and chance",
      command: (_sum, _input, { version, nowMs, uuid }) => [version, nowMs, uuid()],
      is: { is: "decided", output: [2, 1000, "id"], events: [] },
    },
    {
      rule: "that refuses has no events",
      command: (sum, _input, { emit, refuse }) => {
        emit(Added(1));
        refuse("too much", { sum });
      },
      is: { is: "refused", reason: "too much", details: { sum: 4 } },
    },
    {
      rule: "that catches its refusal is refused all the same, for its first reason",
      command: (_sum, _input, { refuse }) => {
        for (const reason of ["first", "second"])
          try {
            refuse(reason);
          } catch {
            // It goes on.
          }
        return "resumed";
      },
      is: { is: "refused", reason: "first", details: undefined },
    },
  ];
  test.each(rows)("$rule", ({ command, is }) => {
    const fold: Fold = { by: "r", version: 2, state: 4 };
    expect(decideCommand(sumOf(command), fold, "go", "in", CLOCK)).toEqual(is);
  });

  test.each([
    { rule: "that throws, throws", command: () => JSON.parse("{"), message: "JSON" },
    { rule: "that is asynchronous is refused", command: async () => 1, message: "synchronous" },
    {
      rule: "that emits what is no event is refused",
      command: (_s: number, _i: unknown, { emit }: CommandContext) => emit({ name: "Added" } as never),
      message: "must be made by event types",
    },
    {
      rule: "that refuses without a reason is wrong",
      command: (_s: number, _i: unknown, { refuse }: CommandContext) => refuse(""),
      message: "must be a text",
    },
  ])("$rule", ({ command, message }) => {
    expect(() => decideCommand(sumOf(command), { by: "r", version: 0, state: 0 }, "go", undefined, CLOCK)).toThrow(
      message,
    );
  });

  test.each(["stop", "constructor", "__proto__", "toString"])("named %s does not exist", (name) => {
    expect(() =>
      decideCommand(
        sumOf(() => 1),
        { by: "r", version: 0, state: 0 },
        name,
        undefined,
        CLOCK,
      ),
    ).toThrow('("go")');
  });
});

test.each([
  { rule: "a command may emit as many events as one commit takes", count: MOST_EVENTS, isRefused: false },
  { rule: "and not one more", count: MOST_EVENTS + 1, isRefused: true },
])("$rule", ({ count, isRefused }) => {
  const rules = sumOf((_sum, _input, { emit }) => emit(...Array.from({ length: count }, () => Added(1))));
  const decide = () => decideCommand(rules, initialFold(rules), "go", undefined, CLOCK);
  if (isRefused) expect(decide).toThrow("at most");
  else expect(decide()).toMatchObject({ is: "decided", events: { length: MOST_EVENTS } });
});

test.each(["emit", "refuse"] as const)("%s after the command has returned throws, and does nothing", (verb) => {
  let late: () => unknown = () => {};
  const rules = sumOf((_sum, _input, context) => {
    late = verb === "emit" ? () => context.emit(Added(1)) : () => context.refuse("no");
  });
  const decided = decideCommand(rules, initialFold(rules), "go", undefined, CLOCK);
  expect(late).toThrow(`${verb} was used after its command returned`);
  expect(decided).toEqual({ is: "decided", output: undefined, events: [] });
});

describe("shapes", () => {
  const third = event<string>("Said", { shape: 3, upcast: { 1: (n: number) => n + 1, 2: (n: number) => `${n}` } });
  test.each([
    { shape: 1, data: 1, is: "2" },
    { shape: 2, data: 1, is: "1" },
    { shape: 3, data: "1", is: "1" },
  ])("shape $shape becomes the newest one", ({ shape, data, is }) => {
    expect(upcast(eventRules(third), data, shape)).toBe(is);
  });

  test("a newer one than the code knows is refused", () => {
    expect(() => upcast(eventRules(third), "1", 4)).toThrow('event "Said" has shape 4');
  });

  test.each([
    { rule: "an older shape without a function", options: { shape: 3, upcast: { 1: Number } } },
    { rule: "a function for the newest shape", options: { shape: 2, upcast: { 1: Number, 2: Number } } },
    { rule: "a function for no shape", options: { upcast: { one: Number } } },
    { rule: "what is no function", options: { shape: 2, upcast: { 1: 1 } } },
    { rule: "shape 0", options: { shape: 0 } },
    { rule: "shape 1.5", options: { shape: 1.5 } },
  ])("$rule is refused", ({ options }) => {
    expect(() => event("Said", options as never)).toThrow();
  });
});

describe("stored states", () => {
  const fold = (by: string, version: number): Fold => ({ by, version, state: by });
  test.each<{ rule: string; had: readonly Fold[]; given: Fold; has: readonly Fold[] }>([
    { rule: "the first one", had: [], given: fold("a", 1), has: [fold("a", 1)] },
    { rule: "one by the same reducers replaces it", had: [fold("a", 1)], given: fold("a", 2), has: [fold("a", 2)] },
    {
      rule: "one by others is kept beside it",
      had: [fold("a", 1)],
      given: fold("b", 2),
      has: [fold("b", 2), fold("a", 1)],
    },
    {
      rule: "at most three are kept, the newest",
      had: [fold("a", 1), fold("b", 2), fold("c", 3)],
      given: fold("d", 4),
      has: [fold("d", 4), fold("a", 1), fold("b", 2)],
    },
  ])("$rule", ({ had, given, has }) => {
    const value: StreamValue = had.length === 0 ? {} : { folds: { sum: had, other: [fold("o", 9)] } };
    const { folds } = withFold(value, "sum", given);
    expect(folds?.["sum"]).toEqual(has);
    if (had.length > 0) expect(folds?.["other"]).toEqual([fold("o", 9)]);
  });

  test("an aggregate may be named like a property of objects", () => {
    expect(withFold({}, "constructor", fold("a", 1)).folds).toEqual({ constructor: [fold("a", 1)] });
  });
});

test("a list with a hole has no event there", () => {
  // biome-ignore lint/suspicious/noSparseArray: that is what is tested.
  expect(() => checkEvents([Added(1), , Added(2)])).toThrow("must be made by event types");
});
