/**
 * Goal: the JSON codec refuses values of more parts than it keeps, and counts a part as often as it would be written.
 */

import { describe, expect, test } from "vitest";
import { encode, nested, refusalOf, refusedAt } from "../../../test/kernel/json.ts";

describe("what cannot be kept is refused with its path", () => {
  test.each<[string, (inner: unknown) => unknown]>([
    ["arrays", (inner) => [inner, inner]],
    ["objects", (inner) => ({ a: inner, b: inner })],
  ])("%s that share one another and unfold to 2^60 parts", (_kind, wrap) => {
    const reason = "it is beyond the first 4000000 parts of the value";
    expect(refusalOf(() => encode(nested(60, wrap)))).toMatchObject({ code: "invalid_value", reason });
  });

  test("the part after 4 million", () => {
    const many = new Array(4_000_000).fill(0);
    expect(encode(many)).toHaveLength(8_000_001);
    many[7] = 1n;
    expect(encode(many)).toHaveLength(8_000_001 - 1 + '{"$bigint":"1"}'.length);
    many.push(0);
    const reason = "it is beyond the first 4000000 parts of the value";
    expect(refusalOf(() => encode(many))).toEqual(refusedAt("$[4000000]", reason));
  });
});
