/**
 * What a planted defect is, the files of the source that the defects are in, and the rules of the oracle that they break.
 */

import type { Edit } from "../../simulation/plant.ts";

export interface Planted {
  readonly name: string;
  /** The rule of the oracle that must be broken; a defect that breaks others as well is hunted until it breaks this one. */
  readonly rule: string;
  /** The program that finds it: a seed, or the name of one that was kept (`regressions.ts`). */
  readonly program: number | string;
  readonly edits: readonly Edit[];
}

export const ARRIVALS = "workflow/execution/arrivals.ts";
export const BRANCH = "workflow/execution/branch.ts";
export const CANCELLATION = "workflow/execution/cancellation.ts";
export const CASCADE = "workflow/runs/cascade.ts";
export const CONTEXT = "workflow/execution/context.ts";
export const COROUTINE = "workflow/execution/coroutine.ts";
export const DEADLOCK = "workflow/locks/deadlock.ts";
export const EFFECTS = "workflow/execution/effects.ts";
export const END = "workflow/runs/end.ts";
export const EXECUTION = "workflow/execution/execution.ts";
export const HELD_RUN = "workflow/execution/held-run.ts";
export const HOLDER = "workflow/execution/holder.ts";
export const INBOX = "workflow/history/inbox.ts";
export const JOINT = "workflow/execution/joint-step.ts";
export const LOCKS = "workflow/locks/locks.ts";
export const MEMORY = "workflow/execution/memory.ts";
export const MESSAGES = "workflow/runs/messages.ts";
export const OPERATION = "workflow/execution/operation.ts";
export const OPERATION_RULES = "workflow/execution/rules.ts";
export const PENDING = "workflow/execution/pending.ts";
export const PREPARE = "workflow/execution/prepare.ts";
export const REPLAY = "workflow/execution/replay.ts";
export const RETRY = "workflow/runs/retry.ts";
export const RUNS = "workflow/runs/runs.ts";
export const STEPS = "workflow/execution/steps.ts";
export const STORED = "workflow/stored.ts";
export const TO_BEGIN = "workflow/execution/to-begin.ts";
export const VERBS = "workflow/execution/verbs.ts";
export const WARM = "workflow/execution/warm.ts";

export const MODEL = "without faults the outcome is that of the model";
export const ALLOWED = "the outcome is one that the program allows";
export const RECORDED = "a recorded step never runs again";
export const REPEATED = "no attempt is repeated where nothing fails";
export const CLEANUP = "cleanup runs";
export const DISAPPEARS = "nothing that was asked for disappears";
export const REPORTED = "misuse is reported";
export const CHILDREN = "children end with their parent";
export const SURPLUS = "a run holds and waits for what its code asked for";
export const INTERRUPTED = "code that is canceled goes on when what it interrupted is over";
export const SHIELDED = "shielded code comes to its end";
export const ENDS = "ends";
export const TROUBLE = "trouble";
export const PARKED = "parked";
export const REJECTION = "unhandled rejection";
