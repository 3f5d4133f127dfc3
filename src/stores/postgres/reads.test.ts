/**
 * Goal: reads of one moment share a round trip, and what becomes of one is not the others' affair.
 * Method: lines that note what is sent over them, and answer when and as the test says.
 */

import { expect, test } from "vitest";
import { drained, gate } from "../../../test/kernel.fixture.ts";
import { LostLineError } from "./failure.ts";
import type { Line, LinePool } from "./lines.ts";
import { Reads } from "./reads.ts";
import { type Answer, type Call, statement } from "./train.ts";

const PINNED: Call = { statement: statement("pinned"), values: [] };
const call = (text: string): Call => ({ statement: statement(text), values: [] });
const answer = (text: string): Answer => ({ rows: [[text]], tag: "SELECT 1" });

/** Answers each statement with its own text, unless `act` has something else to say. */
function reading(act: (texts: readonly string[]) => unknown = () => undefined, isStandby = "f") {
  const trains: (readonly string[])[] = [];
  const line = {
    async send([pinned, ...calls]: readonly Call[]) {
      expect(pinned).toBe(PINNED);
      const texts = calls.map(({ statement: { text } }) => text);
      trains.push(texts);
      await act(texts);
      return [answer(isStandby), ...texts.map(answer)];
    },
  };
  const lines = { use: (work: (line: Line) => Promise<unknown>) => work(line as unknown as Line) };
  const reads = new Reads(lines as unknown as LinePool, PINNED, () => {});
  const ask = async (text: string) => (await reads.ask(call(text))).rows[0]?.[0];
  return { trains, ask };
}

const names = (count: number): string[] => Array.from({ length: count }, (_, n) => `r${n}`);

test("reads of one moment go together, and each has its own answer", async () => {
  const { trains, ask } = reading();
  expect(await Promise.all(names(5).map(ask))).toEqual(names(5));
  expect(trains).toEqual([names(5)]);
});

test("those that come while three trains are under way wait, and share the next", async () => {
  const { opened, open } = gate();
  const { trains, ask } = reading(() => opened);
  const asked: Promise<unknown>[] = [];
  for (const name of names(8)) {
    asked.push(ask(name));
    await drained();
  }
  expect(trains).toEqual([["r0"], ["r1"], ["r2"]]);
  open();
  expect(await Promise.all(asked)).toEqual(names(8));
  expect(trains.slice(3)).toEqual([["r3", "r4", "r5", "r6", "r7"]]);
});

test("a train has an end, however many there are", async () => {
  const { trains, ask } = reading();
  expect(await Promise.all(names(100).map(ask))).toEqual(names(100));
  expect(trains.map(({ length }) => length)).toEqual([32, 32, 32, 4]);
});

test("one that the server refuses takes nobody along", async () => {
  const refused = Object.assign(new Error("no such table"), { code: "42P01", severity: "ERROR" });
  const { trains, ask } = reading((texts) => (texts.includes("bad") ? Promise.reject(refused) : undefined));
  const [good, bad, other] = await Promise.allSettled(["good", "bad", "other"].map(ask));
  expect([good, other]).toEqual([
    { status: "fulfilled", value: "good" },
    { status: "fulfilled", value: "other" },
  ]);
  expect(bad).toMatchObject({ status: "rejected", reason: { code: "store_unfit" } });
  expect(trains).toEqual([["good", "bad", "other"], ["good"], ["bad"], ["other"]]);
});

test("when the way is lost all of them are told, and the next ones go", async () => {
  let times = 0;
  const { trains, ask } = reading(() => (times++ === 0 ? Promise.reject(new LostLineError("gone")) : undefined));
  const both = await Promise.allSettled(["a", "b"].map(ask));
  expect(both).toMatchObject([{ reason: { code: "store_unreachable" } }, { reason: { code: "store_unreachable" } }]);
  expect(await ask("c")).toBe("c");
  expect(trains).toEqual([["a", "b"], ["c"]]);
});

test("a standby is not asked", async () => {
  await expect(reading(undefined, "t").ask("a")).rejects.toMatchObject({ code: "store_readonly" });
});
