/**
 * Properties of the JSON codec over values that are made to look like tags, for json-property.test.ts in the short suite and its long sibling.
 */

import { isDeepStrictEqual } from "node:util";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { InvalidValueError, UnsupportedEncodingError } from "../../src/kernel/errors.ts";
import { again, decode, encode } from "./json.ts";

// Values of every kind that is kept, with keys and texts that try to be mistaken for tags, escapes or prototypes.
const trickyKey = fc.constantFrom(
  ...[
    "$",
    "$$",
    "$date",
    "$$date",
    "$$$date",
    "$map",
    "$set",
    "$bigint",
    "$bytes",
    "$number",
    "$undefined",
    "$error",
    "$x",
  ],
  ...[
    "__proto__",
    "constructor",
    "prototype",
    "toJSON",
    "name",
    "message",
    "stack",
    "cause",
    "errors",
    "data",
    "0",
    "",
  ],
);
const anyText = fc.oneof(
  trickyKey,
  fc.string(),
  fc.array(fc.nat(0xffff)).map((units) => String.fromCharCode(...units)),
);
const objectOf = (entries: readonly (readonly [string, unknown])[]): object => {
  const object = {};
  for (const [key, value] of entries)
    Object.defineProperty(object, key, { value, enumerable: true, writable: true, configurable: true });
  return object;
};
const errorParts = ["name", "message", "stack", "cause", "errors"];
const { anyValue } = fc.letrec<{ anyValue: unknown }>((tie) => {
  const items = fc.array(tie("anyValue"), { maxLength: 5 });
  const entries = fc.array(fc.tuple(anyText, tie("anyValue")), { maxLength: 4 });
  return {
    anyValue: fc.oneof(
      { maxDepth: 6 },
      fc.oneof(
        fc.constantFrom<unknown>(
          undefined,
          null,
          true,
          false,
          0,
          -0,
          Number.NaN,
          Number.POSITIVE_INFINITY,
          Number.NEGATIVE_INFINITY,
          "NaN",
          [],
        ),
        fc.double(),
        fc.integer(),
        anyText,
        fc.bigInt(),
        fc.date({ noInvalidDate: true }),
        fc.uint8Array(),
      ),
      items,
      entries.map(objectOf),
      fc.tuple(trickyKey, tie("anyValue")).map((entry) => objectOf([entry])),
      fc.array(fc.tuple(tie("anyValue"), tie("anyValue")), { maxLength: 4 }).map((pairs) => new Map(pairs)),
      items.map((list) => new Set(list)),
      fc.tuple(anyText, fc.option(tie("anyValue"), { nil: undefined }), entries).map(([message, cause, data]) => {
        const error = cause === undefined ? new Error(message) : new Error(message, { cause });
        const own = data.filter(([key]) => !errorParts.includes(key));
        return Object.defineProperties(error, Object.getOwnPropertyDescriptors(objectOf(own)));
      }),
    ),
  };
});

/** The tests of all properties, with at most so many values for each. */
export function testProperties(runs: number): void {
  describe("for any value that is kept", () => {
    test("it comes back equal, and the text is well-formed Unicode without NUL", () => {
      let tagCount = 0;
      fc.assert(
        fc.property(anyValue, (value) => {
          const text = encode(value);
          if (text.includes('{"$')) tagCount += 1;
          expect(text.isWellFormed()).toBe(true);
          expect(text).not.toContain("\0");
          const copy = decode(text);
          expect(isDeepStrictEqual(copy, value)).toBe(true);
          expect(encode(copy)).toBe(text);
        }),
        { numRuns: runs },
      );
      expect(tagCount).toBeGreaterThan(runs / 6);
    });

    test("JSON that looks like what the codec writes comes back as that JSON", () => {
      fc.assert(
        fc.property(anyValue, (value) => {
          const lookalike: unknown = JSON.parse(encode(value));
          expect(isDeepStrictEqual(again(lookalike), lookalike)).toBe(true);
          const twice: unknown = JSON.parse(encode(lookalike));
          expect(isDeepStrictEqual(again(twice), twice)).toBe(true);
        }),
        { numRuns: runs / 2 },
      );
    });

    test("when it is plain JSON, the text is that of JSON.stringify", () => {
      fc.assert(
        fc.property(fc.jsonValue({ noUnicodeString: false }), (value) => {
          const plain: unknown = JSON.parse(JSON.stringify(value).replaceAll("-0", "0"));
          if (!/\{"\$[^"]*":/.test(JSON.stringify(plain))) expect(encode(plain)).toBe(JSON.stringify(plain));
          expect(isDeepStrictEqual(again(value), value)).toBe(true);
        }),
      );
    });

    test("text that was damaged gives a value or unsupported_encoding, and nothing else", () => {
      let refusalCount = 0;
      const piece = fc.constantFrom("$", '"', "{", "}", "[", "]", ",", ":", "1", "\\", "null", '{"$map":', '"$$');
      fc.assert(
        fc.property(anyValue, fc.nat(), fc.nat(3), piece, (value, where, cut, put) => {
          const text = encode(value);
          const from = where % (text.length + 1);
          const damaged = text.slice(0, from) + put + text.slice(from + cut);
          try {
            decode(damaged);
          } catch (error) {
            expect(error).toBeInstanceOf(UnsupportedEncodingError);
            refusalCount += 1;
          }
        }),
        { numRuns: runs },
      );
      expect(refusalCount).toBeGreaterThan(runs / 6);
    });
  });

  describe("for any value at all", () => {
    test("it is encoded or refused with invalid_value, and what is encoded can be read", () => {
      const anything = fc.anything({
        key: fc.oneof(trickyKey, fc.string()),
        withBigInt: true,
        withBoxedValues: true,
        withDate: true,
        withMap: true,
        withNullPrototype: true,
        withObjectString: true,
        withSet: true,
        withSparseArray: true,
        withTypedArray: true,
        withUnicodeString: true,
      });
      const seen = { kept: 0, refused: 0 };
      fc.assert(
        fc.property(anything, (value) => {
          let text: string;
          try {
            text = encode(value);
          } catch (error) {
            expect(error).toBeInstanceOf(InvalidValueError);
            seen.refused += 1;
            return;
          }
          seen.kept += 1;
          expect(encode(decode(text))).toBe(text);
        }),
        { numRuns: runs },
      );
      expect(seen.kept).toBeGreaterThan(runs / 30);
      expect(seen.refused).toBeGreaterThan(runs / 30);
    });
  });
}
