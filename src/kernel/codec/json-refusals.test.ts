/**
 * Goal: what the JSON codec cannot keep it refuses by path, and no text makes it give a wrong value.
 * Method: a table of values, and one of texts.
 */

import { isDeepStrictEqual } from "node:util";
import { describe, expect, test, vi } from "vitest";
import { again, decode, encode, nested, refusalOf, refusedAt } from "../../../test/kernel/json.ts";
import { UnsupportedEncodingError } from "../errors.ts";

const unreadableAt = (path: string, reason: string): object => ({ code: "unsupported_encoding", path, reason });

function selfContaining(): object {
  const order: { id: number; items: object[] } = { id: 1, items: [] };
  order.items.push({ order });
  return order;
}

describe("what cannot be kept is refused with its path", () => {
  class Money {
    amount = 1;
    toJSON(): number {
      return this.amount;
    }
  }
  class Lru extends Map {}
  class Rows extends Array {}
  const throwing = {
    get x(): never {
      throw new Error("secret");
    },
  };
  const revoked = Proxy.revocable({}, {});
  revoked.revoke();
  const throwingProxy = new Proxy([1], { get: () => throwing.x });
  const nullThrowingProxy = new Proxy(
    {},
    {
      ownKeys() {
        // biome-ignore lint/style/useThrowOnlyError: what a user's trap throws need not be an error.
        throw null;
      },
    },
  );
  const holed = [1, 2, 3];
  delete holed[1];
  const onlyUint8Array = "; of binary data, only Uint8Array and Buffer can be stored";

  test.each<[string, unknown, string, string]>([
    ["a function", { items: [1, 2, 3, { run() {} }] }, "$.items[3].run", "it is a function"],
    ["a function alone", () => 1, "$", "it is a function"],
    ["a toJSON method on a plain object", { a: { toJSON: () => 1 } }, "$.a.toJSON", "it is a function"],
    ["a class", { a: Money }, "$.a", "it is a function"],
    ["a symbol", [Symbol("x")], "$[0]", "it is a symbol"],
    ["a symbol as a key", { a: { [Symbol("x")]: 1 } }, "$.a", "it has a symbol as a key"],
    ["a symbol as a key beside a tag", { a: { b: 1n, [Symbol("x")]: 1 } }, "$.a", "it has a symbol as a key"],
    ["a cycle", selfContaining(), "$.items[0].order", "it is an object that contains it: a cycle"],
    ["an instance of a class, with toJSON or without", { cost: new Money() }, "$.cost", "it is an instance of Money"],
    ["a subclass of Map", new Lru(), "$", "it is an instance of Lru"],
    ["a subclass of Array", [Rows.of(1)], "$[0]", "it is an instance of Rows"],
    ["a subclass of Date", new (class Day extends Date {})(0), "$", "it is an instance of Day"],
    ["an instance of an unnamed class", new (class {})(), "$", "it is an instance of an unnamed class"],
    ["an impostor of a Date", Object.create(Date.prototype), "$", "it is an instance of Date"],
    ["an impostor of an array", Object.create(Array.prototype), "$", "it is an instance of Array"],
    ["an object that inherits from another", Object.create({ a: 1 }), "$", "it inherits from another object"],
    ["a promise", { user: Promise.resolve(1) }, "$.user", "it is a promise: did you forget await?"],
    ["a RegExp", /x/, "$", "it is an instance of RegExp"],
    ["a WeakMap", new WeakMap(), "$", "it is an instance of WeakMap"],
    ["a URL", new URL("https://example.org"), "$", "it is an instance of URL"],
    ["a boxed number", Object(1), "$", "it is an instance of Number"],
    ["a boxed string", Object("x"), "$", "it is an instance of String"],
    ["a generator", (function* () {})(), "$", "it is an instance of an unnamed class"],
    ["an invalid date", { at: new Date(Number.NaN) }, "$.at", "it is an invalid Date"],
    ["a Float64Array", new Float64Array(1), "$", `it is an instance of Float64Array${onlyUint8Array}`],
    ["an ArrayBuffer", new ArrayBuffer(1), "$", `it is an instance of ArrayBuffer${onlyUint8Array}`],
    ["a hole in an array", { list: holed }, "$.list[1]", "it is a hole in an array"],
    ["an endless hole", new Array(4_294_967_295), "$[0]", "it is a hole in an array"],
    [
      "a key of a Map",
      new Map([
        [1, 2],
        [() => 1, 2],
      ] as [unknown, unknown][]),
      "$.keys()[1]",
      "it is a function",
    ],
    ["a value of a Map", { m: new Map([["a", { f() {} }]]) }, "$.m.values()[0].f", "it is a function"],
    ["an item of a Set", new Set([1, Symbol()]), "$.values()[1]", "it is a symbol"],
    [
      "a key that is no identifier",
      { "a b": { "\ud800": { é1: () => 1 } } },
      '$["a b"]["\\ud800"].é1',
      "it is a function",
    ],
    ["a very long key", { ["k".repeat(1000)]: () => 1 }, `$["${"k".repeat(64)}…"]`, "it is a function"],
    ["a getter that throws", { a: [throwing] }, "$.a[0].x", "it threw when it was read"],
    ["a revoked proxy", { a: revoked.proxy }, "$.a", "it threw when it was read"],
    ["a proxy that throws", [throwingProxy], "$[0]", "it threw when it was read"],
    ["a proxy that throws no error", [nullThrowingProxy], "$[0]", "it threw when it was read"],
  ])("%s", (_kind, value, path, reason) => {
    expect(refusalOf(() => encode(value))).toEqual(refusedAt(path, reason));
  });

  const wraps: [string, (inner: unknown) => unknown, string][] = [
    ["arrays", (inner) => [inner], "[0]"],
    ["objects", (inner) => ({ a: inner }), ".a"],
    ["objects like tags", (inner) => ({ $a: inner }), ".$a"],
    ["maps", (inner) => new Map([[1, inner]]), ".values()[0]"],
    ["sets", (inner) => new Set([inner]), ".values()[0]"],
  ];
  test.each(wraps)("64 levels of %s are kept and one more is refused", (_kind, wrap, step) => {
    const deepest = nested(64, wrap, new Date(0));
    expect(isDeepStrictEqual(again(deepest), deepest)).toBe(true);
    expect(isDeepStrictEqual(again(nested(64, wrap)), nested(64, wrap))).toBe(true);
    expect(refusalOf(() => encode(nested(65, wrap)))).toEqual(
      refusedAt(`$${step.repeat(64)}`, "nested deeper than 64 levels"),
    );
    expect(refusalOf(() => encode(nested(100_000, wrap)))).toEqual(
      refusedAt(`$${step.repeat(64)}`, "nested deeper than 64 levels"),
    );
  });

  test("a text longer than a string can be", () => {
    // The engine throws this RangeError after half a gigabyte, which a test had better not build.
    const stringify = vi.spyOn(JSON, "stringify").mockImplementation(() => {
      throw new RangeError("Invalid string length");
    });
    const refusals = [[1], [1n]].map((value) => refusalOf(() => encode(value)));
    stringify.mockRestore();
    expect(refusals).toEqual(new Array(2).fill(refusedAt("$", "its text is longer than a string can be")));
  });

  test("a getter that throws when it is read again", () => {
    let readCount = 0;
    const fickle = {
      get x() {
        readCount += 1;
        return readCount === 1 ? 1 : throwing.x;
      },
    };
    expect(refusalOf(() => encode(fickle))).toEqual(refusedAt("$", "it threw when it was read"));
  });
});

describe("text that cannot be read is unsupported_encoding", () => {
  const malformed = (tag: string): string => `what follows the tag "${tag}" is malformed`;

  test.each<[string, string, string]>([
    ["", "$", "it is not JSON"],
    ["{", "$", "it is not JSON"],
    ["undefined", "$", "it is not JSON"],
    ["~", "$", "it is not JSON"],
    ["~aes:AAAA", "$", 'it was sealed by the transform "aes", which this codec lacks'],
    ['{"$class":"Money"}', "$", 'it has the tag "$class", which this release does not know'],
    ['{"a":[0,{"$regexp":"x"}]}', "$.a[1]", 'it has the tag "$regexp", which this release does not know'],
    ['{ "$later" : 1 }', "$", 'it has the tag "$later", which this release does not know'],
    ['{"$__proto__":1}', "$", 'it has the tag "$__proto__", which this release does not know'],
    ['{"$":1}', "$", 'it has the tag "$", which this release does not know'],
    ['{"$undefined":1}', "$", malformed("$undefined")],
    ['{"$number":"5"}', "$", malformed("$number")],
    ['{"$number":5}', "$", malformed("$number")],
    ['{"$bigint":5}', "$", malformed("$bigint")],
    ['{"$bigint":"-0"}', "$", malformed("$bigint")],
    ['{"$bigint":"0x10"}', "$", malformed("$bigint")],
    ['{"$bigint":""}', "$", malformed("$bigint")],
    ['{"$bigint":"1\\n"}', "$", malformed("$bigint")],
    ['{"$forgotten":1}', "$", malformed("$forgotten")],
    ['{"$date":"yesterday"}', "$", malformed("$date")],
    ['{"$date":"2030-01-01"}', "$", malformed("$date")],
    ['{"$date":"2030-02-30T00:00:00.000Z"}', "$", malformed("$date")],
    ['{"$date":0}', "$", malformed("$date")],
    ['{"$bytes":"A"}', "$", malformed("$bytes")],
    ['{"$bytes":"AP8H!"}', "$", malformed("$bytes")],
    ['{"$bytes":[1]}', "$", malformed("$bytes")],
    ['{"$map":{}}', "$", malformed("$map")],
    ['[{"$map":[[1]]}]', "$[0]", malformed("$map")],
    ['{"$map":[[1,2,3]]}', "$", malformed("$map")],
    ['{"$map":[[1,2],[1,3]]}', "$", malformed("$map")],
    ['{"$map":[[1,{"$x":1}]]}', "$.values()[0]", 'it has the tag "$x", which this release does not know'],
    ['{"$set":1}', "$", malformed("$set")],
    ['{"$set":[1,1]}', "$", malformed("$set")],
    ['{"$error":"x"}', "$", malformed("$error")],
    ['{"$error":[]}', "$", malformed("$error")],
    ['{"$error":{"name":"E"}}', "$", malformed("$error")],
    ['{"$error":{"name":"E","message":1}}', "$", malformed("$error")],
    ['{"$error":{"name":"E","message":"m","stack":[]}}', "$", malformed("$error")],
    ['{"$error":{"name":"E","message":"m","data":[]}}', "$", malformed("$error")],
    ['{"$error":{"name":"E","message":"m","data":null}}', "$", malformed("$error")],
    ['{"$error":{"name":"E","message":"m","data":{"message":1}}}', "$", malformed("$error")],
    ['{"$error":{"name":"E","message":"m","class":"Money"}}', "$", malformed("$error")],
    ['{"$error":{"name":"E","message":"m","__proto__":{}}}', "$", malformed("$error")],
    [
      '{"$error":{"name":"E","message":"m","cause":{"$x":1}}}',
      "$.cause",
      'it has the tag "$x", which this release does not know',
    ],
  ])("%s", (text, path, reason) => {
    expect(refusalOf(() => decode(text))).toEqual(unreadableAt(path, reason));
  });

  test("a hundred thousand levels do not overflow the stack, with a tag or without", () => {
    const deep = (core: string): string => "[".repeat(100_000) + core + "]".repeat(100_000);
    expect(Array.isArray(decode(deep("1")))).toBe(true);
    expect(refusalOf(() => decode(deep('{"$date":1}')))).toEqual(
      unreadableAt(`$${"[0]".repeat(64)}`, "nested deeper than 64 levels"),
    );
    const tags = '{"$set":['.repeat(100_000) + "]}".repeat(100_000);
    expect(refusalOf(() => decode(tags))).toMatchObject({ reason: "nested deeper than 64 levels" });
  });

  test("of a key that is there twice the last counts, in tags too", () => {
    expect(decode('{"a":1,"a":2}')).toEqual({ a: 2 });
    expect(decode('{"$date":1,"$date":"1970-01-01T00:00:00.000Z"}')).toEqual(new Date(0));
  });

  test("the refusal does not quote the text", () => {
    const error = (() => {
      try {
        return decode("hunter2");
      } catch (thrown) {
        return thrown;
      }
    })();
    expect(error).toBeInstanceOf(UnsupportedEncodingError);
    expect(String(error) + String((error as Error).cause)).not.toContain("hunter2");
  });
});
