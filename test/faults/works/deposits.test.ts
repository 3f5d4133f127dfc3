/**
 * The checks of the fault runs on deposits, on made-up ledgers.
 *
 * Goal: a run that finds nothing wrong means something. Each kind of wrong that a check is for is planted once, and must be
 * found; the same ledger without it must pass.
 */

import { describe, expect, it } from "vitest";
import { checkDeposits, type Deposit, type DepositState } from "./deposits.ts";
import { evidence, operation } from "./evidence.ts";

describe("deposits", () => {
  const a: Deposit = { id: "a", account: "1", amount: 10 };
  const b: Deposit = { id: "b", account: "1", amount: 5 };
  const counted = { counted: true };

  /** What the database has when these were counted, with whatever is to be different. */
  function state(there: readonly Deposit[], changes: Partial<DepositState> = {}): DepositState {
    const sum = there.reduce((total, { amount }) => total + amount, 0);
    return {
      marks: new Map(there.map((deposit) => [deposit.id, deposit])),
      accounts: new Map([["1", sum]]),
      mirrors: new Map([["1", sum]]),
      logs: new Map([["1", there.map(({ id, amount }) => ({ id, amount }))]]),
      ...changes,
    };
  }
  const both = [operation(a, "yes", counted), operation(b, "unknown")];

  it("an acknowledged deposit that is there, and an unknown one that is there or not, are fine", () => {
    expect(checkDeposits(evidence(both), state([a]))).toEqual([]);
    expect(checkDeposits(evidence(both), state([a, b]))).toEqual([]);
  });

  it("a lost acknowledgement is found", () => {
    expect(checkDeposits(evidence(both), state([b]))).toEqual(["deposit a was acknowledged and is lost"]);
  });

  it("one that was acknowledged because it was there already is lost just the same", () => {
    const twice = [operation(a, "unknown"), operation(a, "yes", { counted: false }, { from: 100, to: 110 })];
    expect(checkDeposits(evidence(twice), state([]))).toEqual(["deposit a was acknowledged and is lost"]);
    // Unless it was read while the primary showed what its standby never got.
    expect(checkDeposits(evidence(twice, [], [{ from: 105, to: 200 }]), state([]))).toEqual([]);
    const wrote = [operation(a, "yes", counted, { from: 100, to: 110 })];
    expect(checkDeposits(evidence(wrote, [], [{ from: 105, to: 200 }]), state([]))).toHaveLength(1);
  });

  it("a double count is found, in the log and in the sum", () => {
    const logs = new Map([["1", [a, a]]]);
    const twice = { logs, accounts: new Map([["1", 20]]), mirrors: new Map([["1", 20]]) };
    expect(checkDeposits(evidence(both), state([a], twice))).toEqual([
      "deposit a was counted 2 times: in 1, 1",
      'account 1 does not add up: {"account":20,"mirror":20,"log":20,"marks":10}',
    ]);
    const lost = { accounts: new Map([["1", 20]]) };
    expect(checkDeposits(evidence(both), state([a], lost))).toHaveLength(1);
  });

  it("half of a commit is found: a mark without its entry, an entry without its mark, one side without the other", () => {
    expect(checkDeposits(evidence(both), state([a], { logs: new Map() }))).toHaveLength(2);
    expect(checkDeposits(evidence(both), state([a], { marks: new Map() })).length).toBeGreaterThan(1);
    expect(checkDeposits(evidence(both), state([a], { mirrors: new Map() }))).toHaveLength(1);
    const seen = operation({ audit: "1" }, "yes", { account: 10, mirror: 5 });
    expect(checkDeposits(evidence([...both, seen]), state([a]))).toEqual([
      "w0#1 saw account 1 in the middle of a commit: 10 and 5",
    ]);
  });

  it("a deposit that was not requested is found, and one that was requested differently", () => {
    expect(checkDeposits(evidence([operation(b, "unknown")]), state([a]))).toEqual([
      "deposit a is there and was never asked for",
    ]);
    const other = [operation({ ...a, amount: 11 }, "yes", counted)];
    expect(checkDeposits(evidence(other), state([a]))).toHaveLength(1);
  });
});
