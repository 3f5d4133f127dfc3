/**
 * Goal: while a decision runs, using ambient time, randomness or I/O throws and names the alternative; before and after, nothing is
 * changed.
 * Method: a table of what is trapped; every global is compared, down to its property descriptor, before and after.
 */

import { describe, expect, test } from "vitest";
import { DecisionImpureError } from "../kernel/errors.ts";
import { nodePorts } from "./ports.ts";
import { trapAmbient } from "./trap.ts";

const trapped: [string, () => unknown, RegExp][] = [
  ["Date.now()", () => Date.now(), /nowMs of tx/],
  ["new Date()", () => new Date(), /nowMs of tx/],
  ["Date()", () => Date(), /nowMs of tx/],
  ["performance.now()", () => performance.now(), /nowMs of tx/],
  ["Math.random()", () => Math.random(), /tx\.random\(\)/],
  ["crypto.randomUUID()", () => crypto.randomUUID(), /tx\.uuid\(\)/],
  ["crypto.getRandomValues()", () => crypto.getRandomValues(new Uint8Array(1)), /tx\.random\(\)/],
  ["setTimeout()", () => setTimeout(() => {}, 0), /before or after/],
  ["setInterval()", () => setInterval(() => {}, 1_000), /before or after/],
  ["setImmediate()", () => setImmediate(() => {}), /before or after/],
  ["fetch()", () => fetch("http://127.0.0.1:1/"), /before or after/],
];

/** Everything that the trap replaces, with its property descriptor. */
function world(): unknown[] {
  const owners: [object, string[]][] = [
    [globalThis, ["Date", "setTimeout", "setInterval", "setImmediate", "fetch"]],
    [Date, ["now"]],
    [performance, ["now"]],
    [Math, ["random"]],
    [crypto, ["randomUUID", "getRandomValues"]],
  ];
  return owners.flatMap(([owner, names]) =>
    names.flatMap((name) => [Object.getOwnPropertyDescriptor(owner, name), Reflect.get(owner, name)]),
  );
}

describe("the trap", () => {
  test.each(trapped)("%s throws, and the error names the alternative", (name, act, instead) => {
    let caught: unknown;
    try {
      trapAmbient(act);
    } catch (error) {
      caught = error;
    }
    expect(caught).toBeInstanceOf(DecisionImpureError);
    expect((caught as Error).message).toContain(name);
    expect((caught as Error).message).toMatch(instead);
  });

  test("afterwards everything is restored, however the decision ended", () => {
    const before = world();
    trapAmbient(() => 1);
    expect(world()).toEqual(before);
    for (const [, act] of trapped) expect(() => trapAmbient(act)).toThrow();
    expect(() =>
      trapAmbient(() => {
        throw new RangeError("a mistake");
      }),
    ).toThrow(RangeError);
    expect(world()).toEqual(before);
    for (const [i, part] of world().entries()) if (typeof part === "function") expect(part).toBe(before[i]);
    expect(new Date()).toBeInstanceOf(Date);
  });

  test("nested traps stay set until the outer one ends", () => {
    const before = world();
    const nested = () =>
      trapAmbient(() => {
        expect(() => trapAmbient(() => Date.now())).toThrow(DecisionImpureError);
        expect(() => Date.now()).toThrow(DecisionImpureError);
      });
    expect(nested).toThrow(DecisionImpureError);
    expect(world()).toEqual(before);
  });

  test("a decision that catches the refusal is still refused", () => {
    const sly = () =>
      trapAmbient(() => {
        try {
          return Date.now();
        } catch {
          return 0;
        }
      });
    expect(sly).toThrow("Date.now() is not allowed");
  });

  test("pure calls still work: dates made from a time, and their methods", () => {
    const [date, parsed, utc, isDate, text] = trapAmbient(() => {
      const made = new Date(5);
      return [made, Date.parse("2030-01-01"), Date.UTC(2030, 0, 1), made instanceof Date, made.toISOString()] as const;
    });
    expect(date).toEqual(new Date(5));
    expect(date).toBeInstanceOf(Date);
    expect(Object.getPrototypeOf(date)).toBe(Date.prototype);
    expect([parsed, utc]).toEqual([Date.parse("2030-01-01"), Date.UTC(2030, 0, 1)]);
    expect(isDate).toBe(true);
    expect(text).toBe("1970-01-01T00:00:00.005Z");
    class Later extends Date {}
    expect(trapAmbient(() => new Later(7)).getTime()).toBe(7);
    expect(trapAmbient(() => Math.max(1, Math.floor(2.5)))).toBe(2);
  });

  test("the ports themselves work under it, so that a tape can be drawn", () => {
    const { chance } = nodePorts;
    const [random, uuid] = trapAmbient(() => [chance.random(), chance.uuid()]);
    expect(typeof random).toBe("number");
    expect(uuid).toHaveLength(36);
  });
});
