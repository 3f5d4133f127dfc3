/** Bugs that code like this could have when the store loses commits, each with the scenario that must catch it. */

import type { Bug } from "./bugs.ts";
import { rewoundClaims, rewoundLists, rewoundRuns } from "./scenarios/rewinds.ts";

const MEMORY = "stores/memory/memory.ts";
const CLAIM = "kernel/claim/decide.ts";
const HELD_RUN = "workflow/execution/held-run.ts";
const WORKER = "workflow/execution/worker.ts";

const NO_STAMP = { file: MEMORY, from: " && was.stamp === now.stamp;", to: ";" };

export const rewindBugs: readonly Bug[] = [
  {
    name: "versions are compared without stamps: a remembered row overwrites what others wrote since",
    caughtBy: rewoundLists.name,
    edits: [NO_STAMP],
  },
  {
    name: "versions are compared without stamps: a holder overwrites its record",
    caughtBy: rewoundClaims.name,
    edits: [NO_STAMP],
  },
  {
    name: "a holder is known by its fence alone, which another was granted as well",
    caughtBy: rewoundClaims.name,
    edits: [
      {
        file: CLAIM,
        from: "  if (record.holder !== claim.holder) return false;\n",
        to: "  if (record.holder === null) return false;\n",
      },
    ],
  },
  {
    name: "facts are written behind a history that has lost those before them",
    caughtBy: rewoundRuns.name,
    edits: [
      { file: HELD_RUN, from: "    if (head !== this.coroutine.head) throw this.#held.commitsLost();\n", to: "" },
      {
        file: WORKER,
        from: "    for (const execution of this.#executions.values()) execution.run.suspect();\n",
        to: "",
      },
    ],
  },
  {
    name: "a run at rest is taken up by code that has seen lost facts",
    caughtBy: rewoundRuns.name,
    edits: [
      {
        file: WORKER,
        from: "    this.#warm.evictAll();\n    for (const execution",
        to: "    for (const execution",
      },
    ],
  },
];
