/** The checks of limits and ticks notice what they must, on made-up ledgers. */

import { describe, expect, test } from "vitest";
import { checkTicks, type StoredTicks } from "../../schedule/check-ticks.ts";
import type { Note } from "../ledger.ts";
import { evidence, operation } from "./evidence.ts";
import { checkLimits, type LimitsState, type NarrowRun } from "./limits.ts";

const note = (what: string, at: number, data: unknown): Note => ({ work: "limits", life: "w0#1", at, what, data });
const passage = (run: string, from: number, to: number): Note[] => [
  note("entered", from, { run, value: `${run} in` }),
  note("left", to, { run, value: `${run} out` }),
];
const run = (id: string, tenant: string, more: Partial<NarrowRun> = {}): readonly [string, NarrowRun] => [
  id,
  { status: "completed", tenant, entered: `${id} in`, left: `${id} out`, ...more },
];
const state = (runs: readonly (readonly [string, NarrowRun])[], batches: [string, string[]][] = []): LimitsState => ({
  runs: new Map(runs),
  batches: new Map(batches),
});

describe("limits", () => {
  const three = [...passage("a", 1, 10), ...passage("b", 2, 11), ...passage("c", 5, 8)];

  test("two of a tenant together, and a third one after the first has left, are fine", () => {
    const notes = [...passage("a", 1, 10), ...passage("b", 2, 11), ...passage("c", 10, 12)];
    expect(checkLimits(evidence([], notes), state([run("a", "t"), run("b", "t"), run("c", "t")]))).toEqual([]);
  });

  test("three of a tenant together are too many", () => {
    const wrong = checkLimits(evidence([], three), state([run("a", "t"), run("b", "t"), run("c", "t")]));
    expect(wrong).toEqual(["when c entered at 5, 3 of 2 were under limit t"]);
  });

  test("five in all are too many", () => {
    const ids = ["a", "b", "c", "d", "e"];
    const notes = ids.flatMap((id, n) => passage(id, n, 10 + n));
    const runs = ids.map((id, n) => run(id, `t${n % 3}`));
    expect(checkLimits(evidence([], notes), state(runs))).toEqual(["when e entered at 4, 5 of 4 were under limit all"]);
  });

  test("a line that was not recorded does not count", () => {
    const runs = [run("a", "t"), run("b", "t"), run("c", "t", { entered: null })];
    expect(checkLimits(evidence([], three), state(runs))).toEqual([]);
  });

  test("a limit that was seen with too many", () => {
    const notes = [note("limit", 1, { limit: "t", held: 3, of: 2 })];
    expect(checkLimits(evidence([], notes), state([]))).toEqual(["limit t had 3 of 2"]);
  });

  test("a run that is missing, or has not ended", () => {
    const started = operation({ verb: "start", run: "gone" }, "yes", { run: "gone" });
    const open = run("a", "t", { status: "queued", entered: null, left: null });
    expect(checkLimits(evidence([started]), state([open]))).toEqual([
      "gone was acknowledged and is not there",
      "a is queued in the end",
    ]);
  });

  test("an input that is in no batch, or in two", () => {
    const told = operation({ verb: "collect", item: "x" }, "yes", { run: "one" });
    expect(checkLimits(evidence([told]), state([], [["one", ["x"]]]))).toEqual([]);
    expect(checkLimits(evidence([told]), state([], [["one", []]]))).toHaveLength(1);
    const twice = state(
      [],
      [
        ["one", ["x"]],
        ["two", ["x"]],
      ],
    );
    expect(checkLimits(evidence([told]), twice)).toEqual(["an input is in two batches"]);
  });
});

describe("ticks", () => {
  const id = (second: number): string => `s/1970-01-01T00:00:0${second}.000Z`;
  const fired = (second: number) => ({ word: "fired", atMs: second * 1000, run: id(second) });
  const stored = (more: Partial<StoredTicks> = {}): StoredTicks => ({
    name: "s",
    value: {
      plan: { timing: { everyMs: 1000, anchorMs: 0 }, overlap: "allow", catchUp: 1 },
      createdAtMs: 500,
      cursorMs: 3500,
      fired: 2,
    },
    entries: [fired(1), { word: "skipped", atMs: 2000 }, fired(3)],
    isWhole: true,
    runs: new Set([id(1), id(3)]),
    ...more,
  });

  test("each decided once", () => {
    const { decided, wrong } = checkTicks(stored());
    expect(wrong).toEqual([]);
    expect([...decided]).toEqual([
      [1000, "fired"],
      [2000, "skipped"],
      [3000, "fired"],
    ]);
  });

  test.each([
    { what: "one that was not decided", more: { entries: [fired(1), fired(3)] } },
    { what: "one that was decided twice", more: { entries: [...stored().entries, { word: "missed", atMs: 2000 }] } },
    { what: "a run that is missing", more: { runs: new Set([id(1)]) } },
    { what: "a run too many", more: { runs: new Set([id(1), id(2), id(3)]) } },
  ])("$what", ({ more }) => {
    expect(checkTicks(stored(more)).wrong).not.toEqual([]);
  });
});
