/** Goal: the ledger of the fault runs keeps what was said, and refuses what cannot be true. */

import { describe, expect, it } from "vitest";
import { Ledger, LedgerError, type LedgerLine } from "./ledger.ts";

describe("the ledger", () => {
  const line = (line: LedgerLine): string => JSON.stringify(line);

  it("an attempt without an answer is unknown once its worker is dead", () => {
    const ledger = new Ledger();
    ledger.hear("w0#1", line({ is: "try", op: 1, work: "deposits", input: "a", at: 1 }));
    ledger.hear("w0#1", line({ is: "try", op: 2, work: "deposits", input: "b", at: 2 }));
    ledger.hear("w1#1", line({ is: "try", op: 1, work: "deposits", input: "c", at: 3 }));
    ledger.hear("w0#1", line({ is: "yes", op: 2, output: 7, at: 4 }));
    ledger.died("w0#1");
    expect(ledger.operations("deposits").map(({ input, answer }) => [input, answer])).toEqual([
      ["a", "unknown"],
      ["b", "yes"],
      ["c", "open"],
    ]);
  });

  it("a question that a live process has no reply to is open", () => {
    const ledger = new Ledger();
    ledger.hear("w0#1", line({ is: "try", op: 1, work: "runs", input: "a", at: 1 }));
    expect([ledger.isOpen("runs"), ledger.isOpen("deposits")]).toEqual([true, false]);
    ledger.died("w0#1");
    expect([ledger.isOpen("runs"), ledger.dead.has("w0#1")]).toEqual([false, true]);
  });

  it("a question is forwarded with the process that asked", () => {
    const ledger = new Ledger();
    const heard: unknown[] = [];
    ledger.listen({ asked: (life, { question }) => heard.push([life, question]) });
    ledger.hear("w0#1", line({ is: "ask", ask: 1, work: "runs", question: "well?" }));
    expect(heard).toEqual([["w0#1", "well?"]]);
  });

  it("an answer to what was not tried is no answer", () => {
    const ledger = new Ledger();
    const answer = line({ is: "yes", op: 1, output: null, at: 1 });
    expect(() => ledger.hear("w0#1", answer)).toThrow(LedgerError);
    ledger.hear("w0#1", line({ is: "try", op: 1, work: "deposits", input: "a", at: 1 }));
    ledger.hear("w0#1", answer);
    expect(() => ledger.hear("w0#1", answer)).toThrow(LedgerError);
  });
});
