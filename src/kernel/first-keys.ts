/**
 * Finds the first records that a decision reads, if its caller named none.
 *
 * Without this, a store that is a round trip away would be asked for its clock first, and for the records in a second round trip. So the
 * decision runs beforehand, without records, until it asks for some; its result is discarded. Only the records of its first request are found:
 * a decision that named all records that it may need would keep them from other decisions while it waits for one of them.
 */

import { runDecision } from "./decision.ts";
import { batchViewOf, type FlightContext, type Submission } from "./flight.ts";

export function findFirstKeys(submission: Submission, context: FlightContext): void {
  const outcome = runDecision(submission.decide, batchViewOf(context, new Map(), null, 0, 0), submission.tape, true);
  if (outcome.is === "void" && typeof outcome.wanted !== "string") submission.keys = outcome.wanted;
  // It asks for no record first, so nothing can be assumed, and the next attempt would find the same.
  else submission.path = "locked";
}
