/** Bugs that admission like this could have, each caught by the simulated runs. */

import type { Bug } from "./bugs.ts";
import { admissions, collections } from "./scenarios/flow.ts";

const PLACES = "workflow/flow/places.ts";
const GATE = "workflow/flow/gate.ts";
const COLLECT = "workflow/flow/collect.ts";
const DECIDE = "workflow/flow/decide.ts";
const END = "workflow/runs/end.ts";

export const flowBugs: readonly Bug[] = [
  {
    name: "a run that ends keeps its place",
    caughtBy: admissions.name,
    edits: [{ file: END, from: "  const left = leave(tx, run, next);", to: "  const left = runOf(run);" }],
  },
  {
    name: "a run that leaves the line is still counted in it",
    caughtBy: admissions.name,
    edits: [
      {
        file: PLACES,
        from: "  } else if (queued !== undefined && gate.line !== undefined && ",
        to: "  } else if (queued === null && gate.line !== undefined && ",
      },
    ],
  },
  {
    name: "a place that is freed is not given to the next in line",
    caughtBy: admissions.name,
    edits: [
      {
        file: PLACES,
        from: "    advanceAll(tx, gate.places, next);\n",
        to: "    advanceAll(tx, gate.places.slice(1), next);\n",
      },
    ],
  },
  {
    name: "a limit admits one more than its maximum",
    caughtBy: admissions.name,
    edits: [
      { file: DECIDE, from: "=> held < max && first === undefined;", to: "=> held <= max && first === undefined;" },
    ],
  },
  {
    name: "a run is admitted from a line without a look at its other limits",
    caughtBy: admissions.name,
    edits: [
      {
        file: PLACES,
        from: "    if (blocking >= 0) move(tx, first, blocking);\n    else admitNext",
        to: "    if (blocking < -1) move(tx, first, blocking);\n    else admitNext",
      },
    ],
  },
  {
    name: "a run in the middle of a line is removed, and the one before it still leads to it",
    caughtBy: admissions.name,
    edits: [
      {
        file: PLACES,
        from: "  if (!isFirst && prev !== null)\n    relink(",
        to: "  if (isFirst && prev !== null)\n    relink(",
      },
    ],
  },
  {
    name: "a run that begins goes on collecting",
    caughtBy: collections.name,
    edits: [
      {
        file: COLLECT,
        from: "  if (!record.exists || !isWaiting(record)) return undefined;",
        to: "  if (!record.exists) return undefined;",
      },
      { file: COLLECT, from: "  if (record.dueMs === null || nowMs >= record.dueMs) return undefined;\n", to: "" },
    ],
  },
  {
    name: "a repeated start adds its input again",
    caughtBy: collections.name,
    edits: [
      {
        file: COLLECT,
        from: "  if (seen?.exists === true && id !== undefined && tx.record(runAt((seen.value as Remembered).run)).exists)\n    return remembered(tx, seen, start, id);\n",
        to: "",
      },
    ],
  },
  {
    name: "a run that expired begins all the same",
    caughtBy: admissions.name,
    edits: [
      {
        file: GATE,
        from: 'endRun(tx, record, run, "expired", { error: withoutStack(new RunExpiredError(run)) });\n  return true;',
        to: "return false;",
      },
    ],
  },
];
