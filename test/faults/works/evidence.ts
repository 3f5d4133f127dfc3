/** Made-up evidence for the tests of the checks: operations with their answers, and what workers noted. */

import type { Note, Operation } from "../ledger.ts";
import type { Evidence, Span } from "./work.ts";

let clock = 0;

export function operation(input: unknown, answer: "yes" | "no" | "unknown", output?: unknown, at?: Span): Operation {
  clock += 10;
  return {
    work: "made up",
    life: "w0#1",
    input,
    startedAt: at?.from ?? clock,
    endedAt: answer === "unknown" ? null : (at?.to ?? clock + 5),
    answer,
    output,
    code: answer === "yes" ? null : answer === "no" ? "store_busy" : "died",
  };
}

export const evidence = (
  operations: readonly Operation[],
  notes: readonly Note[] = [],
  doubts: readonly Span[] = [],
): Evidence => ({
  operations,
  notes,
  doubts,
});
