/**
 * The checks of the fault runs on registers, on made-up ledgers.
 *
 * Goal: a run that finds nothing wrong means something. Each kind of wrong that a check is for is planted once, and must be
 * found; the same ledger without it must pass.
 */

import { describe, expect, it } from "vitest";
import { evidence, operation } from "./evidence.ts";
import { checkRegisters, type Wish } from "./registers.ts";

describe("registers", () => {
  const set = (value: number): Wish => ({ key: "k", verb: { op: "set", value } });
  const get: Wish = { key: "k", verb: { op: "get" } };
  const last = (value: number, version: number) => new Map([["k", { value, version }]]);

  it("answers in an order that explains them are fine, with and without the unknown ones", () => {
    const history = [operation(set(1), "yes", { version: 1 }), operation(set(2), "unknown")];
    expect(checkRegisters(evidence(history), last(1, 1))).toEqual([]);
    expect(checkRegisters(evidence(history), last(2, 2))).toEqual([]);
  });

  it("an acknowledged write that is gone in the end is found", () => {
    expect(checkRegisters(evidence([operation(set(1), "yes", { version: 1 })]), last(0, 0))).toHaveLength(1);
  });

  it("a read of what is no longer true is found, unless it was read from a primary that was given up", () => {
    const writes = [
      operation(set(1), "yes", { version: 1 }, { from: 1, to: 2 }),
      operation(set(2), "yes", { version: 2 }, { from: 3, to: 4 }),
    ];
    const stale = operation(get, "yes", { value: 1, version: 1 }, { from: 5, to: 6 });
    expect(checkRegisters(evidence([...writes, stale]), last(2, 2))).toHaveLength(1);
    expect(checkRegisters(evidence([...writes, stale], [], [{ from: 6, to: 9 }]), last(2, 2))).toEqual([]);
  });

  it("a definite no that took effect is found", () => {
    expect(checkRegisters(evidence([operation(set(1), "no")]), last(0, 0))).toEqual([]);
    expect(checkRegisters(evidence([operation(set(1), "no")]), last(1, 1))).toHaveLength(1);
  });
});
