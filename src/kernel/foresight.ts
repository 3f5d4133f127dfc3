/**
 * Foresight: which records a decision asks for first that named none.
 *
 * A store that is a round trip away would have to be asked for the time before it could be asked for the records. So the decision is run
 * before, on nothing, until it asks; what it comes to is thrown away. Only what it asks for first is foreseen: a decision that named
 * all it may ever want would keep those records from others while it waits for one of them.
 */

import { runDecision } from "./decision.ts";
import { type Airspace, type Submission, sceneOf } from "./flight.ts";

export function foresee(submission: Submission, air: Airspace): void {
  const outcome = runDecision(submission.decide, sceneOf(air, new Map(), null, 0, 0), submission.tape, true);
  if (outcome.is === "void" && outcome.wanted !== "lock") submission.keys = outcome.wanted;
  // There is nothing to assume, and no use in looking again.
  else submission.path = "locked";
}
