/**
 * Goal: what the JSON codec takes comes back equal.
 * Method: a table for each kind. Equality is `isDeepStrictEqual`, which tells 0 from -0, a missing key from an undefined one, and compares
 * prototypes. What is refused is in json-refusals.test.ts, any value at all in json-property.test.ts.
 */

import { isDeepStrictEqual } from "node:util";
import { runInNewContext } from "node:vm";
import { describe, expect, test } from "vitest";
import { again, decode, encode, refusalOf, refusedAt } from "../../../test/kernel/json.ts";
import { FORGOTTEN, isForgotten } from "./forgotten.ts";

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
    [FORGOTTEN, '{"$forgotten":true}'],
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

  test("FORGOTTEN comes back as itself, and an object that looks like it does not", () => {
    expect(again([FORGOTTEN])).toSatisfy((all: unknown[]) => all[0] === FORGOTTEN);
    expect(encode({ $forgotten: true })).toBe('{"$$forgotten":true}');
    expect(again({ $forgotten: true })).toStrictEqual({ $forgotten: true });
    expect(JSON.stringify({ email: FORGOTTEN })).toBe('{"email":{"$forgotten":true}}');
    expect([isForgotten(FORGOTTEN), isForgotten({ $forgotten: true })]).toEqual([true, false]);
    expect(Object.isFrozen(FORGOTTEN)).toBe(true);
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
    for (let i = 0; i < 20_000; i++) error = new Error("outer", { cause: error });
    let count = 0;
    for (let copy = again(error); copy instanceof Error; copy = copy.cause) count += 1;
    expect(count).toBe(64);
  });
});
