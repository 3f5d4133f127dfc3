/**
 * Goal: reads of one moment share a round trip, and the outcome of one does not affect the others.
 * Method: connections that record what is sent over them, and reply when and as the test says.
 */

import { expect, test } from "vitest";
import { drained, gate } from "../../../test/kernel/kit.ts";
import type { Connection, ConnectionPool } from "./connections.ts";
import { LostConnectionError } from "./failure.ts";
import { type Call, type Result, statement } from "./pipeline.ts";
import { Reads } from "./reads.ts";

const PINNED: Call = { statement: statement("pinned"), values: [] };
const call = (text: string): Call => ({ statement: statement(text), values: [] });
const result = (text: string): Result => ({ rows: [[text]], tag: "SELECT 1" });

/** Returns the text of each statement as its result, unless `act` does something else. */
function reading(act: (texts: readonly string[]) => unknown = () => undefined, isStandby = "f") {
  const pipelines: (readonly string[])[] = [];
  const connection = {
    async send([pinned, ...calls]: readonly Call[]) {
      expect(pinned).toBe(PINNED);
      const texts = calls.map(({ statement: { text } }) => text);
      pipelines.push(texts);
      await act(texts);
      return [result(isStandby), ...texts.map(result)];
    },
  };
  const connections = {
    use: (work: (connection: Connection) => Promise<unknown>) => work(connection as unknown as Connection),
  };
  const reads = new Reads(connections as unknown as ConnectionPool, PINNED, () => {});
  const ask = async (text: string) => (await reads.read(call(text))).rows[0]?.[0];
  return { pipelines, ask };
}

const names = (count: number): string[] => Array.from({ length: count }, (_, n) => `r${n}`);

test("reads of one moment go together, and each gets its own result", async () => {
  const { pipelines, ask } = reading();
  expect(await Promise.all(names(5).map(ask))).toEqual(names(5));
  expect(pipelines).toEqual([names(5)]);
});

test("reads that arrive while three pipelines are running wait, and share the next", async () => {
  const { opened, open } = gate();
  const { pipelines, ask } = reading(() => opened);
  const asked: Promise<unknown>[] = [];
  for (const name of names(8)) {
    asked.push(ask(name));
    await drained();
  }
  expect(pipelines).toEqual([["r0"], ["r1"], ["r2"]]);
  open();
  expect(await Promise.all(asked)).toEqual(names(8));
  expect(pipelines.slice(3)).toEqual([["r3", "r4", "r5", "r6", "r7"]]);
});

test("a pipeline has a limited number of reads", async () => {
  const { pipelines, ask } = reading();
  expect(await Promise.all(names(100).map(ask))).toEqual(names(100));
  expect(pipelines.map(({ length }) => length)).toEqual([32, 32, 32, 4]);
});

test("a read that the server refuses does not fail the others", async () => {
  const refused = Object.assign(new Error("no such table"), { code: "42P01", severity: "ERROR" });
  const { pipelines, ask } = reading((texts) => (texts.includes("bad") ? Promise.reject(refused) : undefined));
  const [good, bad, other] = await Promise.allSettled(["good", "bad", "other"].map(ask));
  expect([good, other]).toEqual([
    { status: "fulfilled", value: "good" },
    { status: "fulfilled", value: "other" },
  ]);
  expect(bad).toMatchObject({ status: "rejected", reason: { code: "store_unfit" } });
  expect(pipelines).toEqual([["good", "bad", "other"], ["good"], ["bad"], ["other"]]);
});

test("when the connection is lost, all of its reads fail, and later ones succeed", async () => {
  let times = 0;
  const { pipelines, ask } = reading(() =>
    times++ === 0 ? Promise.reject(new LostConnectionError("gone")) : undefined,
  );
  const both = await Promise.allSettled(["a", "b"].map(ask));
  expect(both).toMatchObject([{ reason: { code: "store_unreachable" } }, { reason: { code: "store_unreachable" } }]);
  expect(await ask("c")).toBe("c");
  expect(pipelines).toEqual([["a", "b"], ["c"]]);
});

test("a standby is not read", async () => {
  await expect(reading(undefined, "t").ask("a")).rejects.toMatchObject({ code: "store_readonly" });
});
