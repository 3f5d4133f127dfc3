/**
 * Goal: whatever is done to them, all stores answer the same and end in the same state, so that what is tested on one holds on
 * the others.
 * Method: chapters of random operations, each drawn from a seed, are played on every store; their answers are held side by
 * side, and every so often their whole states. What must come up is counted, and stores with one planted difference
 * each must be caught.
 *
 * `scripts/differential.ts` does the same for as long as one likes.
 */

import { afterAll, describe, expect, test } from "vitest";
import { CHAPTER, commandFor, describeDifference, partingOf, play, run, type Transcript } from "./compare.ts";
import { chapter, kinds } from "./operations/index.ts";
import { planted } from "./planted.ts";
import { memory, type Subject, subjects } from "./subjects.ts";

const SEED = 1;
const OPERATIONS = 8 * CHAPTER;
const OPERATIONS_ON_SERVERS = 2 * CHAPTER;
/** Names that stores mix up are in some chapters only, so there are many short ones to catch it with. */
const CHAPTERS_TO_CATCH = 60;
const SHORT_CHAPTER = 200;

const OUTCOMES = [
  "claim: as many as requested",
  "claim: nothing due",
  "claim: some",
  "claim: tried before",
  "delete: deleted",
  "delete: nothing there",
  "due: a full page",
  "due: something later",
  "entries: a full page",
  "list: a full page",
  "list: several pages",
  "raw batch: committed",
  "raw batch: moved",
  "refused: by the decision",
  "refused: nothing to change",
  "rest: rested",
  "rest: woken",
  "sweep: in several goes",
  "sweep: some are gone",
  "trySet: refused",
  "trySet: written",
  "wake: absent",
  "wake: woken",
];

const CODES = [
  "closed",
  "decision_async",
  "decision_impure",
  "decision_over",
  "fenced",
  "invalid_argument",
  "invalid_duration",
  "invalid_id",
  "invalid_value",
  "store_refused",
  "too_many_keys",
  "unsupported_encoding",
  "value_too_large",
  "version_conflict",
];

afterAll(async () => {
  for (const subject of subjects) await subject.close?.();
});

const reference = memory("memory");
const local = subjects.filter(({ isServer = false }) => !isServer);

test("all stores answer the same, and end in the same state", async () => {
  const { difference, seen, operations } = await run({ seed: SEED, operations: OPERATIONS, subjects: local });
  expect(difference === undefined ? "" : describeDifference(difference)).toBe("");
  expect(operations).toBe(OPERATIONS);
  const wanted = [...kinds.map(({ name }) => name), ...OUTCOMES, ...CODES.map((code) => `refused: ${code}`)];
  expect(wanted.filter((what) => !seen.has(what))).toEqual([]);
});

test("so do those on a server", async () => {
  const remote = subjects.filter(({ isServer }) => isServer);
  expect(remote.length).toBeGreaterThan(0);
  const options = { seed: SEED + 100, operations: OPERATIONS_ON_SERVERS, subjects: [reference, ...remote] };
  const { difference, operations } = await run(options);
  expect(difference === undefined ? "" : describeDifference(difference)).toBe("");
  expect(operations).toBe(OPERATIONS_ON_SERVERS);
});

/** What the reference says, by seed: it is the same for all that are held against it. */
const expected = new Map<number, Promise<Transcript>>();

async function isCaught(subject: Subject, chapters = CHAPTERS_TO_CATCH): Promise<boolean> {
  for (let seed = SEED; seed < SEED + chapters; seed++) {
    const played = chapter(seed, SHORT_CHAPTER);
    const right = expected.get(seed) ?? play(reference, played);
    expected.set(seed, right);
    if (partingOf(await right, await play(subject, played, { patienceMs: 5_000 })) !== undefined) return true;
  }
  return false;
}

describe("a store is caught in which", () => {
  test.each(planted)("$name", async (subject) => {
    expect(await isCaught(subject)).toBe(true);
  });

  test("nothing is wrong: it is not", async () => {
    const same = memory("the same", { wrap: (store) => store });
    expect(await isCaught(same, 10)).toBe(false);
  });
});

describe("what is found", () => {
  const wrong = planted.find(({ name }) => name === "a log entry loses its last character");
  if (wrong === undefined) throw new Error("it is no longer planted");

  test("is shown with few operations, and the command that plays them again", async () => {
    const { difference } = await run({ seed: SEED, operations: CHAPTER, subjects: [reference, wrong] });
    if (difference === undefined) throw new Error("it was not found");
    const numbers = difference.operations.map(({ number }) => number);
    expect(numbers.length).toBeLessThanOrEqual(3);
    const [, seed, operations, only] =
      /--seed (\d+) --operations (\d+) --only ([\d,]+) /.exec(commandFor(difference)) ?? [];
    const again = await run({
      seed: Number(seed),
      operations: Number(operations),
      only: new Set(only?.split(",").map(Number)),
      subjects: [reference, wrong],
      shrinkForMs: 0,
    });
    expect(again.difference).toEqual({ ...difference, operations: expect.anything() });
    expect(again.difference?.operations.map(({ number }) => number)).toEqual(numbers);
    const text = describeDifference(difference);
    expect(text).toContain(`seed ${seed}, operation ${numbers.at(-1)}: memory and ${wrong.name} part in the`);
    expect(text).toContain(`again: ${commandFor(difference)}`);
  });

  test("follows from the seed: the same chapter is played the same", async () => {
    const once = await play(reference, chapter(7, 200));
    expect((await play(reference, chapter(7, 200))).lines).toEqual(once.lines);
    expect((await play(reference, chapter(8, 200))).lines).not.toEqual(once.lines);
  });

  test("is found in a shorter chapter of the seed as well: more operations begin with the same ones", () => {
    const short = chapter(7, 50).operations.map(({ number, kind }) => [number, kind]);
    expect(
      chapter(7, 80)
        .operations.slice(0, 50)
        .map(({ number, kind }) => [number, kind]),
    ).toEqual(short);
  });
});
