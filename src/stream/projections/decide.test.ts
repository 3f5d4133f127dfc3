import { describe, expect, test } from "vitest";
import {
  type Builder,
  type Codes,
  decideBuild,
  decideCode,
  decideRebuild,
  decideRefresh,
  decideSwap,
  isHeldBack,
} from "./decide.ts";
import type { ProjectionValue } from "./stored.ts";

const none: Codes = { live: undefined, building: undefined };

describe("what a worker with some code does", () => {
  const rules: readonly [string, ProjectionValue | undefined, Codes, string, ReturnType<typeof decideCode>][] = [
    ["builds the first generation", undefined, none, "a", "build"],
    ["works on what readers see", { live: 1, last: 1 }, { ...none, live: "a" }, "a", "work"],
    ["works on what is built", { building: 1, last: 1 }, { ...none, building: "a" }, "a", "work"],
    ["builds beside other code", { live: 1, last: 1 }, { ...none, live: "a" }, "b", "build"],
    [
      "goes on with what readers see while other code builds",
      { live: 1, building: 2, last: 2 },
      { live: "a", building: "b" },
      "a",
      "work",
    ],
    [
      "leaves it to the code that replaced it",
      { live: 2, last: 2, retired: ["a"] },
      { ...none, live: "b" },
      "a",
      "leave",
    ],
    ["builds with a third code", { live: 2, last: 2, retired: ["a"] }, { ...none, live: "b" }, "c", "build"],
    [
      "works again on code that was replaced, once that is built",
      { live: 3, last: 3, retired: ["a"] },
      { ...none, live: "a" },
      "a",
      "work",
    ],
  ];
  test.each(rules)("%s", (_, value, codes, by, outcome) => expect(decideCode(value, codes, by)).toBe(outcome));
});

describe("what readers see is held back for the generation that is about to take its place", () => {
  const builder: Builder = { fence: 7, isHeld: true, dueMs: 100, hasFailed: false };
  const rules: readonly [string, Builder | undefined, number, boolean][] = [
    ["while its worker holds it", builder, 99, true],
    ["not once the lease has ended", builder, 100, false],
    ["not once another worker holds it", { ...builder, fence: 8 }, 99, false],
    ["not while no worker holds it", { ...builder, isHeld: false }, 99, false],
    ["not where it rests without a time", { ...builder, dueMs: null }, 99, false],
    ["not while it cannot apply an event", { ...builder, hasFailed: true }, 99, false],
    ["not when it is gone", undefined, 99, false],
  ];
  test.each(rules)("%s", (_, found, nowMs, outcome) =>
    expect(isHeldBack({ generation: 2, fence: 7 }, found, nowMs)).toBe(outcome),
  );
});

describe("a rebuild", () => {
  const building = { by: "a", hasFailed: false, isKept: false };
  const rules: readonly [string, Parameters<typeof decideRebuild>[0], ReturnType<typeof decideRebuild>][] = [
    ["begins where nothing is built", undefined, "build"],
    ["is the one that is under way", building, "keep"],
    ["replaces one that does not get ahead", { ...building, hasFailed: true }, "build"],
    ["replaces one of other code", { ...building, by: "b" }, "build"],
    ["of other code, whether it gets ahead or not", { ...building, by: "b", hasFailed: true }, "build"],
    ["replaces one that leaves out events that were removed", { ...building, isKept: true }, "build"],
  ];
  test.each(rules)("%s", (_, found, outcome) => expect(decideRebuild(found, { by: "a", isKept: false })).toBe(outcome));
  test("that leaves out events that were removed replaces one that does not", () =>
    expect(decideRebuild(building, { by: "a", isKept: true })).toBe("build"));
  test("that leaves out events that were removed is the one that is under way and does, too", () =>
    expect(decideRebuild({ ...building, isKept: true }, { by: "a", isKept: true })).toBe("keep"));
});

describe("a new generation", () => {
  const rules: readonly [string, ProjectionValue | undefined, Codes, string, number, ReturnType<typeof decideBuild>][] =
    [
      ["is the first", undefined, none, "a", 0, { value: { building: 1, last: 1 }, retired: [] }],
      [
        "comes after those of a projection that was deleted",
        undefined,
        none,
        "a",
        6,
        { value: { building: 7, last: 7 }, retired: [] },
      ],
      [
        "is beside what readers see",
        { live: 1, last: 1 },
        { ...none, live: "a" },
        "b",
        9,
        { value: { live: 1, building: 2, last: 2 }, retired: [] },
      ],
      [
        "replaces what other code was building",
        { live: 1, building: 2, last: 2 },
        { live: "a", building: "b" },
        "c",
        9,
        { value: { live: 1, building: 3, last: 3, retired: ["b"] }, retired: [2] },
      ],
      [
        "of code that was replaced takes it back",
        { live: 2, building: 3, last: 3, retired: ["a"] },
        { live: "b", building: "c" },
        "a",
        9,
        { value: { live: 2, building: 4, last: 4, retired: ["c"] }, retired: [3] },
      ],
      [
        "has nothing of people who were forgotten while the one before it was built",
        { live: 1, building: 2, last: 2, isStale: true },
        { live: "a", building: "a" },
        "a",
        9,
        { value: { live: 1, building: 3, last: 3 }, retired: [2] },
      ],
    ];
  test.each(rules)("%s", (_, value, codes, by, used, change) =>
    expect(decideBuild(value, codes, by, used)).toEqual(change),
  );
});

describe("a generation that has caught up", () => {
  const mine = { generation: 2, by: "b", cursor: 10 };
  const both: Codes = { live: "a", building: "b" };
  const rules: readonly [
    string,
    ProjectionValue | undefined,
    Codes,
    number | undefined,
    ReturnType<typeof decideSwap>,
  ][] = [
    [
      "is seen by readers",
      { live: 1, building: 2, last: 2 },
      both,
      10,
      { value: { live: 2, last: 2, retired: ["a"] }, retired: [1] },
    ],
    [
      "is seen as the first",
      { building: 2, last: 2 },
      { ...none, building: "b" },
      undefined,
      { value: { live: 2, last: 2 }, retired: [] },
    ],
    [
      "of the same code replaces no code",
      { live: 1, building: 2, last: 2 },
      { live: "b", building: "b" },
      9,
      { value: { live: 2, last: 2 }, retired: [1] },
    ],
    ["waits while it is behind what readers see", { live: 1, building: 2, last: 2 }, both, 11, null],
    ["is not seen if another is built", { live: 1, building: 3, last: 3 }, both, 1, null],
    ["is not seen if it is seen already", { live: 2, last: 2 }, { ...none, live: "b" }, 1, null],
    ["is not seen if the projection was deleted", undefined, none, undefined, null],
  ];
  test.each(rules)("%s", (_, value, codes, liveCursor, change) =>
    expect(decideSwap(value, codes, mine, liveCursor)).toEqual(change),
  );
});

describe("when a person was forgotten", () => {
  const rules: readonly [string, ProjectionValue, boolean, ReturnType<typeof decideRefresh>][] = [
    ["a projection with personal data is built again", { live: 1, last: 1 }, true, "build"],
    ["one without is not", { live: 1, last: 1 }, false, "nothing"],
    ["one that is being built is built once more after that", { live: 1, building: 2, last: 2 }, true, "mark"],
    ["and once only", { live: 1, building: 2, last: 2, isStale: true }, true, "nothing"],
  ];
  test.each(rules)("%s", (_, value, isPersonal, outcome) => expect(decideRefresh(value, isPersonal)).toBe(outcome));
});

test("a swap ends what was marked", () => {
  const value = { live: 1, building: 2, last: 2, isStale: true } as const;
  expect(decideSwap(value, { live: "b", building: "b" }, { generation: 2, by: "b", cursor: 1 }, 1)?.value).toEqual({
    live: 2,
    last: 2,
  });
});

test("of the codes that were replaced, twenty are remembered", () => {
  let value: ProjectionValue = { live: 1, last: 1 };
  for (let n = 0; n < 30; n++) {
    const built = decideBuild(value, { live: `c${n}`, building: undefined }, `c${n + 1}`, 0).value;
    const mine = { generation: built.building ?? 0, by: `c${n + 1}`, cursor: 0 };
    value = decideSwap(built, { live: `c${n}`, building: `c${n + 1}` }, mine, 0)?.value ?? value;
  }
  expect(value.retired).toEqual(Array.from({ length: 20 }, (_, n) => `c${n + 10}`));
});
