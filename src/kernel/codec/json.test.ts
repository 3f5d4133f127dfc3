/**
 * Goal: what the JSON codec takes comes back equal, what it cannot keep it refuses by path, and no text makes it give a wrong value.
 * Method: a table for each kind, then properties over values that are made to look like tags. Equality is `isDeepStrictEqual`, which
 * tells 0 from -0, a missing key from an undefined one, and compares prototypes.
 */

import { isDeepStrictEqual } from "node:util";
import { runInNewContext } from "node:vm";
import fc from "fast-check";
import { describe, expect, test, vi } from "vitest";
import { InvalidValueError, UnsupportedEncodingError } from "../errors.ts";
import type { Place } from "./codec.ts";
import { jsonCodec } from "./json.ts";

const at: Place = { namespace: "n", space: "s", key: "k" };
const encode = (value: unknown): string => jsonCodec.encode(value, at);
const decode = (text: string): unknown => jsonCodec.decode(text, at);
const again = (value: unknown): unknown => decode(encode(value));

function refusalOf(act: () => unknown): unknown {
  try {
    return { notRefused: act() };
  } catch (error) {
    if (error instanceof InvalidValueError || error instanceof UnsupportedEncodingError)
      return { code: error.code, ...error.data };
    throw error;
  }
}

const refusedAt = (path: string, reason: string): object => ({ code: "invalid_value", path, reason });
const unreadableAt = (path: string, reason: string): object => ({ code: "unsupported_encoding", path, reason });

function nested(levels: number, wrap: (inner: unknown) => unknown = (inner) => [inner], core: unknown = 1): unknown {
  let value = core;
  for (let i = 0; i < levels; i++) value = wrap(value);
  return value;
}

function selfContaining(): object {
  const order: { id: number; items: object[] } = { id: 1, items: [] };
  order.items.push({ order });
  return order;
}

describe("values that JSON can say", () => {
  test.each([
    [null],
    [true],
    [0],
    [-1.5e-7],
    [2 ** 60],
    [""],
    ['\u0000 \ud800 \udfff\ud800 \u2028 𝄞 \\ "'],
    [[]],
    [{}],
    [[[], {}, [null]]],
    [{ b: 1, a: [{ c: "x" }], 2: true, 1: false }],
    [{ $gt: 1, $lt: 2 }],
    [{ price: "$5" }],
    [JSON.parse('{"__proto__":{"admin":true},"constructor":{"prototype":1},"toJSON":"x","then":1}')],
  ])("are written as JSON.stringify writes them, and come back: %j", (value) => {
    expect(encode(value)).toBe(JSON.stringify(value));
    expect(isDeepStrictEqual(again(value), value)).toBe(true);
  });

  test("an object without a prototype is written as an ordinary one", () => {
    const bare = Object.assign(Object.create(null), { a: 1, inner: Object.assign(Object.create(null), { b: 2 }) });
    expect(encode(bare)).toBe('{"a":1,"inner":{"b":2}}');
  });

  test("one object in two places is written twice", () => {
    const shared = { a: 1 };
    expect(encode([shared, shared])).toBe('[{"a":1},{"a":1}]');
    expect(encode([shared, shared, undefined])).toBe('[{"a":1},{"a":1},{"$undefined":true}]');
  });

  test("a getter is read and its value kept", () => {
    const value = {
      price: 2,
      count: 3,
      get total() {
        return this.price * this.count;
      },
    };
    expect(encode(value)).toBe('{"price":2,"count":3,"total":6}');
  });

  test("a proxy is kept as what it shows", () => {
    expect(again({ list: new Proxy([1, 2], {}), map: new Proxy({ a: new Date(5) }, {}) })).toStrictEqual({
      list: [1, 2],
      map: { a: new Date(5) },
    });
  });

  test("values of another realm are kept as those of this one", () => {
    const foreign: unknown = runInNewContext(
      "({ list: [1, { a: null }], at: new Date(7), seen: new Set([1n]), by: new Map([[1, 2]]), bytes: new Uint8Array([9]) })",
    );
    const local = {
      list: [1, { a: null }],
      at: new Date(7),
      seen: new Set([1n]),
      by: new Map([[1, 2]]),
      bytes: new Uint8Array([9]),
    };
    expect(isDeepStrictEqual(again(foreign), local)).toBe(true);
    expect(again(runInNewContext("new RangeError('far')"))).toMatchObject({ name: "RangeError", message: "far" });
  });
});

describe("values that need a tag", () => {
  test.each([
    [undefined, '{"$undefined":true}'],
    [Number.NaN, '{"$number":"NaN"}'],
    [Number.POSITIVE_INFINITY, '{"$number":"Infinity"}'],
    [Number.NEGATIVE_INFINITY, '{"$number":"-Infinity"}'],
    [-0, '{"$number":"-0"}'],
    [0n, '{"$bigint":"0"}'],
    [-12345678901234567890n, '{"$bigint":"-12345678901234567890"}'],
    [new Date(0), '{"$date":"1970-01-01T00:00:00.000Z"}'],
    [new Date(8.64e15), '{"$date":"+275760-09-13T00:00:00.000Z"}'],
    [new Date(-8.64e15), '{"$date":"-271821-04-20T00:00:00.000Z"}'],
    [new Uint8Array(), '{"$bytes":""}'],
    [new Uint8Array([0, 255, 7]), '{"$bytes":"AP8H"}'],
    [new Map(), '{"$map":[]}'],
    [
      new Map<unknown, unknown>([
        ["a", 1],
        [Number.NaN, undefined],
        [{ k: 1n }, new Map()],
      ]),
      '{"$map":[["a",1],[{"$number":"NaN"},{"$undefined":true}],[{"k":{"$bigint":"1"}},{"$map":[]}]]}',
    ],
    [new Set<unknown>([1, "1", -0, new Set([null])]), '{"$set":[1,"1",0,{"$set":[null]}]}'],
    [[undefined, 1], '[{"$undefined":true},1]'],
    [{ a: undefined }, '{"a":{"$undefined":true}}'],
  ])("come back equal, alone and nested: %o", (value, text) => {
    expect(encode(value)).toBe(text);
    expect(isDeepStrictEqual(decode(text), value)).toBe(true);
    for (const wrapped of [
      [value],
      { a: { b: value } },
      new Map([[value, value]]),
      new Set([value]),
      { $date: value },
      [1, [value]],
    ]) {
      expect(isDeepStrictEqual(again(wrapped), wrapped)).toBe(true);
    }
  });

  test("bytes come back as a Uint8Array with memory of its own, a Buffer too", () => {
    const bytes = again(Buffer.from("hello"));
    expect(isDeepStrictEqual(bytes, new Uint8Array([104, 101, 108, 108, 111]))).toBe(true);
    expect(bytes instanceof Uint8Array && bytes.buffer.byteLength).toBe(5);
    expect(again(new Uint8Array([1, 2, 3, 4]).subarray(1, 3))).toStrictEqual(new Uint8Array([2, 3]));
  });

  test("the own key __proto__ beside a tag stays an own key, and no prototype changes", () => {
    const value: unknown = JSON.parse(
      '{"__proto__":{"polluted":1,"__proto__":{"x":2}},"constructor":{"prototype":{"polluted":1}},"toJSON":"t"}',
    );
    const all = again({
      value,
      when: new Date(1),
      error: Object.defineProperty(new Error("e"), "__proto__", { value: 1n, enumerable: true }),
    });
    expect(all).toHaveProperty("value", value);
    expect(encode(all)).toContain(
      '"value":{"__proto__":{"polluted":1,"__proto__":{"x":2}},"constructor":{"prototype":{"polluted":1}},"toJSON":"t"}',
    );
    expect(all).toSatisfy(
      (it: { error: Error }) =>
        Object.getPrototypeOf(it.error) === Error.prototype && Object.hasOwn(it.error, "__proto__"),
    );
    expect("polluted" in {}).toBe(false);
  });
});

describe("a user's object that looks like a tag", () => {
  test.each([
    [{ $date: "1970-01-01T00:00:00.000Z" }, '{"$$date":"1970-01-01T00:00:00.000Z"}'],
    [{ $$date: 1 }, '{"$$$date":1}'],
    [{ $: 1 }, '{"$$":1}'],
    [{ $$: { $$$: { $: new Date(0) } } }, '{"$$$":{"$$$$":{"$$":{"$date":"1970-01-01T00:00:00.000Z"}}}}'],
    [{ $error: { name: "x" } }, '{"$$error":{"name":"x"}}'],
    [{ $map: [[1, { $set: [] }]] }, '{"$$map":[[1,{"$$set":[]}]]}'],
    [{ $unknown: undefined }, '{"$$unknown":{"$undefined":true}}'],
  ])("comes back as that object: %j", (value, text) => {
    expect(encode(value)).toBe(text);
    expect(isDeepStrictEqual(decode(text), value)).toBe(true);
  });

  test("is told from a tag even when Object.prototype was extended", () => {
    const texts: string[] = [];
    Object.defineProperty(Object.prototype, "extension", { value: 1, enumerable: true, configurable: true });
    try {
      texts.push(encode({ $date: 1 }), encode({ a: 1 }), encode([{ $date: 1n }]));
    } finally {
      Reflect.deleteProperty(Object.prototype, "extension");
    }
    expect(texts).toEqual(['{"$$date":1}', '{"a":1}', '[{"$$date":{"$bigint":"1"}}]']);
  });
});

describe("errors", () => {
  class PaymentError extends Error {
    override name = "PaymentError";
    code = "card_declined";
    attempts = [1n, undefined];
  }

  test("come back as a plain Error with name, message, stack, cause and data", () => {
    const error = new PaymentError("declined", { cause: new TypeError("no card", { cause: "raw" }) });
    const copy = again(error);
    expect(copy).toBeInstanceOf(Error);
    expect(copy).not.toBeInstanceOf(PaymentError);
    expect(copy).toMatchObject({
      name: "PaymentError",
      message: "declined",
      stack: error.stack,
      code: "card_declined",
      attempts: [1n, undefined],
    });
    expect(copy).toMatchObject({ cause: { name: "TypeError", message: "no card", cause: "raw" } });
    expect(Object.keys(copy as object)).toEqual(["code", "attempts"]);
    expect(Object.getPrototypeOf((copy as Error).cause)).toBe(Error.prototype);
  });

  test("an AggregateError keeps its errors", () => {
    const copy = again(new AggregateError([new RangeError("a"), 7, undefined], "both"));
    expect(copy).toMatchObject({
      name: "AggregateError",
      message: "both",
      errors: [{ name: "RangeError", message: "a" }, 7, undefined],
    });
    expect(copy).not.toBeInstanceOf(AggregateError);
  });

  test("encoding the copy gives the same text", () => {
    const error = Object.assign(new AggregateError([new PaymentError("x")], "all", { cause: undefined }), {
      $date: 1,
      errorsSeen: 2,
    });
    expect(encode(again(error))).toBe(encode(error));
  });

  test("a DOMException, which fetch throws, keeps its name", () => {
    expect(again(new DOMException("stopped", "AbortError"))).toMatchObject({ name: "AbortError", message: "stopped" });
  });

  test("a missing stack stays missing", () => {
    const error = new Error("bare");
    delete error.stack;
    expect(encode(error)).toBe('{"$error":{"name":"Error","message":"bare"}}');
    expect((again(error) as Error).stack).toBeUndefined();
  });

  test("what cannot be stored is left out, so that the report is not lost", () => {
    const error = Object.assign(new Error("socket hang up"), {
      code: "ECONNRESET",
      agent: new WeakMap(),
      retry: () => 1,
      deep: { fn() {} },
    });
    Object.defineProperty(error, "broken", {
      enumerable: true,
      get: () => {
        throw new Error("no");
      },
    });
    error.cause = error;
    const outer = new Error("outer", { cause: error });
    const copy = again([outer, { after: 1n }]);
    expect(copy).toMatchObject([
      { message: "outer", cause: { message: "socket hang up", code: "ECONNRESET" } },
      { after: 1n },
    ]);
    expect(Object.keys((outer.cause ?? {}) as object)).toContain("agent");
    expect(encode(copy)).not.toContain("agent");
    expect(encode(copy)).not.toMatch(/retry|deep|broken/);
  });

  test("a path after an error whose parts were left out is right", () => {
    const error = Object.assign(new Error("e"), { deep: { deeper: [() => 1] } });
    expect(refusalOf(() => encode({ a: [error, { b: () => 1 }] }))).toEqual(refusedAt("$.a[1].b", "it is a function"));
  });

  test("parts left out leave no trace in the depth of what follows", () => {
    const errors = Array.from({ length: 100 }, () => Object.assign(new Error("e"), { deep: { deeper: [() => 1] } }));
    expect(again([...errors, [[1n]]])).toMatchObject({ 100: [[1n]] });
  });

  test("a chain of causes is cut at the depth limit, however long", () => {
    let error = new Error("root");
    for (let i = 0; i < 100_000; i++) error = new Error("outer", { cause: error });
    let count = 0;
    for (let copy = again(error); copy instanceof Error; copy = copy.cause) count += 1;
    expect(count).toBe(64);
  });
});

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
    expect(refusalOf(() => encode(nested(1_000_000, wrap)))).toEqual(
      refusedAt(`$${step.repeat(64)}`, "nested deeper than 64 levels"),
    );
  });

  test.each<[string, (inner: unknown) => unknown]>([
    ["arrays", (inner) => [inner, inner]],
    ["objects", (inner) => ({ a: inner, b: inner })],
  ])(
    "%s that share one another and unfold to 2^60 parts",
    (_kind, wrap) => {
      const reason = "it is beyond the first 4000000 parts of the value";
      expect(refusalOf(() => encode(nested(60, wrap)))).toMatchObject({ code: "invalid_value", reason });
    },
    30_000,
  );

  test("the part after 4 million", () => {
    const many = new Array(4_000_000).fill(0);
    expect(encode(many)).toHaveLength(8_000_001);
    many[7] = 1n;
    expect(encode(many)).toHaveLength(8_000_001 - 1 + '{"$bigint":"1"}'.length);
    many.push(0);
    const reason = "it is beyond the first 4000000 parts of the value";
    expect(refusalOf(() => encode(many))).toEqual(refusedAt("$[4000000]", reason));
  }, 30_000);

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

  test("a million levels do not overflow the stack, with a tag or without", () => {
    const deep = (core: string): string => "[".repeat(1_000_000) + core + "]".repeat(1_000_000);
    expect(Array.isArray(decode(deep("1")))).toBe(true);
    expect(refusalOf(() => decode(deep('{"$date":1}')))).toEqual(
      unreadableAt(`$${"[0]".repeat(64)}`, "nested deeper than 64 levels"),
    );
    const tags = '{"$set":['.repeat(1_000_000) + "]}".repeat(1_000_000);
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
      { numRuns: 3000 },
    );
    expect(tagCount).toBeGreaterThan(500);
  }, 60_000);

  test("JSON that looks like what the codec writes comes back as that JSON", () => {
    fc.assert(
      fc.property(anyValue, (value) => {
        const lookalike: unknown = JSON.parse(encode(value));
        expect(isDeepStrictEqual(again(lookalike), lookalike)).toBe(true);
        const twice: unknown = JSON.parse(encode(lookalike));
        expect(isDeepStrictEqual(again(twice), twice)).toBe(true);
      }),
      { numRuns: 1500 },
    );
  }, 60_000);

  test("when it is plain JSON, the text is that of JSON.stringify", () => {
    fc.assert(
      fc.property(fc.jsonValue({ noUnicodeString: false }), (value) => {
        const plain: unknown = JSON.parse(JSON.stringify(value).replaceAll("-0", "0"));
        if (!/\{"\$[^"]*":/.test(JSON.stringify(plain))) expect(encode(plain)).toBe(JSON.stringify(plain));
        expect(isDeepStrictEqual(again(value), value)).toBe(true);
      }),
    );
  }, 60_000);

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
      { numRuns: 3000 },
    );
    expect(refusalCount).toBeGreaterThan(500);
  }, 60_000);
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
      { numRuns: 3000 },
    );
    expect(seen.kept).toBeGreaterThan(100);
    expect(seen.refused).toBeGreaterThan(100);
  }, 60_000);
});
