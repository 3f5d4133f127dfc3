import { expect, test } from "vitest";
import { Problem } from "./problem.ts";
import { fromWire, toWire } from "./values.ts";

test("a bigint of 4,000 digits survives the way to the server and back; one of more is refused before it is read", () => {
  const longest = { list: [{ $bigint: `-${"9".repeat(4000)}` }] };
  expect(toWire(fromWire(longest))).toEqual(longest);
  const tooLong = { list: [{ $bigint: "9".repeat(4001) }] };
  expect(() => fromWire(tooLong)).toThrow(Problem);
});
