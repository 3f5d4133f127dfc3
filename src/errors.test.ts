/**
 * Goal: a `catch` can tell Pawl's errors apart by their codes, with the types of what comes with each.
 * Method: the compiler compares the types (`npm run check`); the list of errors is compared with what is exported; errors are stored and
 * read again.
 */

import { describe, expect, expectTypeOf, test } from "vitest";
import { type AnyPawlError, ERROR_CLASSES, isPawlError, type PawlErrorCode } from "./errors.ts";
import * as exported from "./index.ts";
import { jsonCodec, LockBusyError, PawlError, StoreError, VersionConflictError, workflow } from "./index.ts";
import { CommitsLostError, FencedError } from "./kernel/errors.ts";
import { openTest } from "./testing/index.ts";

/** The types of all classes of errors that `pawl` exports, by what it exports. */
type Exported = {
  [Name in keyof typeof exported]: (typeof exported)[Name] extends new (
    ...args: never
  ) => infer E
    ? E extends PawlError
      ? E
      : never
    : never;
}[keyof typeof exported];

const conflict: unknown = new VersionConflictError("slot", 1, 2);

describe("instanceof", () => {
  test("PawlError has a code and data, and neither is any", () => {
    if (!(conflict instanceof PawlError)) throw new Error("it is one");
    expectTypeOf(conflict.code).toEqualTypeOf<string>();
    expectTypeOf(conflict.data).toEqualTypeOf<object>();
    expect(conflict.code).toBe("version_conflict");
  });

  test("a class of errors has its own code and data, here and below another class", () => {
    if (!(conflict instanceof VersionConflictError)) throw new Error("it is one");
    expectTypeOf(conflict.code).toEqualTypeOf<"version_conflict">();
    expectTypeOf(conflict.data).toEqualTypeOf<{ name: string; expected: number; current: number }>();
    expect(conflict instanceof LockBusyError).toBe(false);
    expect(new CommitsLostError("run", 1) instanceof FencedError).toBe(true);
    expect(new FencedError("run", 1, 2) instanceof CommitsLostError).toBe(false);
    expect(new FencedError("run a", 1, 2).message).toBe(
      "run a was taken over by another holder: its fence is 2, and yours was 1",
    );
    expect(new FencedError("run a", 1, 1).message).toMatch(/^run a is no longer held under fence 1: /);
    // A plain restart of the server can give it too, and loses nothing.
    expect(new CommitsLostError("run a", 1).message).toMatch(
      /not what its holder last saw, .* restarted or replaced: /,
    );
  });

  test.each([null, undefined, "text", {}, new Error("plain"), Object.create(null)])("%s is none", (value) => {
    expect(value instanceof PawlError).toBe(false);
    expect(isPawlError(value)).toBe(false);
  });
});

describe("the list of errors", () => {
  test("has every class that is exported", () => {
    const classes = Object.values(exported).filter(
      (value) => typeof value === "function" && value.prototype instanceof PawlError,
    );
    expect(classes.length).toBeGreaterThan(50);
    expect(ERROR_CLASSES).toEqual(expect.arrayContaining(classes));
    expectTypeOf<AnyPawlError["code"]>().toEqualTypeOf<Exported["code"]>();
  });

  test("is told apart by the codes", () => {
    const describe = (error: AnyPawlError): string => {
      switch (error.code) {
        case "version_conflict":
          expectTypeOf(error.data).toEqualTypeOf<{ name: string; expected: number; current: number }>();
          return `at ${error.data.current}`;
        case "store_full":
          expectTypeOf(error).toExtend<StoreError>();
          return error.data.remedy;
        default:
          return error.code;
      }
    };
    const { code } = conflict as AnyPawlError;
    expectTypeOf(code).toEqualTypeOf<PawlErrorCode>();
    expect(describe(new VersionConflictError("slot", 1, 2))).toBe("at 2");
    expect(describe(new StoreError("store_full", "fail", "full"))).toBe("fail");
  });
});

describe("isPawlError", () => {
  test("narrows to the error of a code, of a store too", () => {
    if (!isPawlError(conflict, "version_conflict")) throw new Error("it is one");
    expectTypeOf(conflict.data.current).toEqualTypeOf<number>();
    expect(isPawlError(conflict, "lock_busy")).toBe(false);
    const full: unknown = new StoreError("store_full", "fail", "full");
    if (!isPawlError(full, "store_full")) throw new Error("it is one");
    expectTypeOf(full.code).toEqualTypeOf<"store_full">();
    expectTypeOf(full).toExtend<StoreError>();
    // @ts-expect-error there is no such code
    isPawlError(full, "store_fulll");
  });

  test("without a code, narrows to all of them", () => {
    if (!isPawlError(conflict)) throw new Error("it is one");
    expectTypeOf(conflict).toEqualTypeOf<AnyPawlError>();
  });

  test("recognizes what was stored and read again, and nothing else", () => {
    const again = (error: unknown): unknown => jsonCodec.decode(jsonCodec.encode(error, PLACE), PLACE);
    expect(again(conflict) instanceof PawlError).toBe(false);
    expect(isPawlError(again(conflict), "version_conflict")).toBe(true);
    expect(isPawlError(again(conflict), "fenced")).toBe(false);
    expect(isPawlError(again(Object.assign(new Error("other"), { code: "version_conflict", data: {} })))).toBe(false);
  });

  test("so a workflow can tell why its step failed", async () => {
    await using pawl = openTest();
    const moves = workflow("moves", async (ctx) => {
      try {
        await ctx.step(
          "write",
          () => {
            throw new VersionConflictError("slot", 1, 7);
          },
          { retry: { attempts: 1 } },
        );
        return "written";
      } catch (error) {
        return isPawlError(error, "version_conflict") ? `it is at ${error.data.current}` : "another error";
      }
    });
    pawl.work([moves]);
    expect(await (await pawl.start(moves)).result()).toBe("it is at 7");
  });
});

const PLACE = { namespace: "default", space: "slot", key: "a" };
