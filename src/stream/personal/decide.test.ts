/** The rules of personal data: which fields are sealed, where a key is, and what forgetting leaves. */

import { describe, expect, test } from "vitest";
import { FORGOTTEN } from "../../kernel/codec/forgotten.ts";
import { checkPersonal, decideForget, forgottenData, joinData, keyPlace, splitData, withoutFolds } from "./decide.ts";

const sealed = { keyId: "k1", data: "…" };

describe("the fields of an event", () => {
  const ann = { id: "c-1", email: "ann@example.com", name: "Ann", plan: "pro" };

  test.each([
    { rule: "the named ones are personal", data: ann, personal: { email: ann.email, name: ann.name } },
    { rule: "one that is not there is not", data: { id: "c-1", email: "a" }, personal: { email: "a" } },
    { rule: "one that is undefined is", data: { email: undefined }, personal: { email: undefined } },
    { rule: "there may be none", data: { id: "c-1" }, personal: {} },
    {
      rule: "a field below the top level is not one",
      data: { inner: { email: "a" } },
      personal: {},
    },
  ])("$rule", ({ data, personal }) => {
    const split = splitData(data, ["email", "name"]);
    expect(split.personal).toStrictEqual(personal);
    expect(joinData(split.open, split.personal)).toEqual(data);
    expect(Object.keys(split.open).some((name) => Object.hasOwn(personal, name))).toBe(false);
  });

  test("forgotten ones are marked, and the others stay", () => {
    expect(forgottenData({ id: "c-1", plan: "pro" }, ["email"])).toStrictEqual({
      id: "c-1",
      plan: "pro",
      email: FORGOTTEN,
    });
  });

  test("a field named __proto__ is a field like any other", () => {
    const data: unknown = JSON.parse('{"__proto__":{"admin":true},"id":"c-1"}');
    const { open, personal } = splitData(data, ["__proto__"]);
    expect([Object.keys(open), Object.keys(personal)]).toEqual([["id"], ["__proto__"]]);
    expect(Object.keys(joinData(open, personal) as object)).toEqual(["id", "__proto__"]);
    const forgotten = forgottenData(open, ["__proto__"]) as object;
    expect(Object.getOwnPropertyDescriptor(forgotten, "__proto__")?.value).toBe(FORGOTTEN);
  });

  test("what is read is frozen", () => {
    expect(Object.isFrozen(joinData({}, {}))).toBe(true);
    expect(Object.isFrozen(forgottenData({}, ["a"]))).toBe(true);
  });

  test.each([undefined, null, "ann", 5, ["ann"], new Map([["email", "a"]]), new Date(0)])(
    "%o has no fields, and is refused",
    (data) => {
      expect(() => splitData(data, ["email"])).toThrow("must be an object, because it has personal fields");
    },
  );
});

describe("what an event type says of its personal fields", () => {
  const subject = () => "c-1";
  test.each([
    { rule: "a subject and fields", given: { subject, fields: ["email"] }, is: "taken" },
    { rule: "nothing", given: undefined, is: "taken" },
    { rule: "no subject", given: { fields: ["email"] }, is: "refused" },
    { rule: "no fields", given: { subject }, is: "refused" },
    { rule: "an empty list", given: { subject, fields: [] }, is: "refused" },
    { rule: "a field twice", given: { subject, fields: ["email", "email"] }, is: "refused" },
    { rule: "a field without a name", given: { subject, fields: [""] }, is: "refused" },
    { rule: "a field that is a number", given: { subject, fields: [1] }, is: "refused" },
    { rule: "100 fields", given: { subject, fields: Array.from({ length: 100 }, (_, i) => `f${i}`) }, is: "taken" },
    { rule: "101 fields", given: { subject, fields: Array.from({ length: 101 }, (_, i) => `f${i}`) }, is: "refused" },
    { rule: "an option too many", given: { subject, fields: ["email"], salt: "x" }, is: "refused" },
    { rule: "null", given: null, is: "refused" },
  ])("$rule: $is", ({ given, is }) => {
    if (is === "taken") expect(checkPersonal(given)).toEqual(given);
    else expect(() => checkPersonal(given)).toThrow(expect.objectContaining({ code: "invalid_argument" }));
  });
});

describe("the key of a subject", () => {
  const forgotten = { forgotten: { atMs: 5 } };
  test.each([
    { rule: "a subject without a record has none", value: undefined, hasOthers: false, is: "none" },
    { rule: "its record has it", value: { key: sealed }, hasOthers: false, is: "here" },
    { rule: "a record without it was made with subjectKeys", value: {}, hasOthers: false, is: "unknown" },
    { rule: "subjectKeys has that of a new subject", value: undefined, hasOthers: true, is: "elsewhere" },
    { rule: "subjectKeys has it if the record does not", value: {}, hasOthers: true, is: "elsewhere" },
    { rule: "that of the record counts also with subjectKeys", value: { key: sealed }, hasOthers: true, is: "here" },
    { rule: "one that was forgotten has none", value: forgotten, hasOthers: false, is: "forgotten" },
    { rule: "also with subjectKeys", value: forgotten, hasOthers: true, is: "forgotten" },
    { rule: "also if there is a key", value: { ...forgotten, key: sealed }, hasOthers: false, is: "forgotten" },
  ])("$rule", ({ value, hasOthers, is }) => {
    expect(keyPlace(value, hasOthers).is).toBe(is);
  });
});

describe("forgetting", () => {
  const first = { forgotten: { atMs: 5, actor: "ann", reason: "asked" } };
  test.each([
    { rule: "leaves the time", value: { key: sealed }, request: {}, after: { forgotten: { atMs: 9 } } },
    {
      rule: "leaves who and why",
      value: {},
      request: { actor: "bob", reason: "law" },
      after: { forgotten: { atMs: 9, actor: "bob", reason: "law" } },
    },
    {
      rule: "also of a subject that is not known, and says so",
      value: undefined,
      request: {},
      after: { forgotten: { atMs: 9, isUnknown: true as const } },
    },
    { rule: "the first one counts", value: first, request: { actor: "bob", reason: "again" }, after: first },
    {
      rule: "the time from before a restore counts",
      value: {},
      request: { atMs: 5 },
      after: { forgotten: { atMs: 5 } },
    },
    { rule: "a key that came back with a restore goes", value: { ...first, key: sealed }, request: {}, after: first },
  ])("$rule", ({ value, request, after }) => {
    expect(decideForget(value, request, 9)).toStrictEqual(after);
  });
});

describe("a stream with events of a person who was forgotten", () => {
  const folds = { customer: [{ by: "r", version: 1, sealed: "…" }] };
  test.each([
    { rule: "loses its folds and their key", value: { folds, personal: { erased: 0, key: sealed } }, erased: 1 },
    { rule: "counts each time", value: { folds, personal: { erased: 4 } }, erased: 5 },
    { rule: "counts also without folds", value: { personal: { erased: 0 } }, erased: 1 },
    { rule: "counts also where it was not marked", value: {}, erased: 1 },
  ])("$rule", ({ value, erased }) => {
    expect(withoutFolds(value)).toStrictEqual({ personal: { erased } });
  });
});
