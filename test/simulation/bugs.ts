/**
 * Bugs that a kernel like this could have, each with the scenario that must catch it. They are planted one at a time into the
 * real source; a bug that no schedule catches is a hole in the simulator.
 */

import type { Edit } from "./plant.ts";
import { jobs, timers } from "./scenarios/jobs.ts";
import { mailbox } from "./scenarios/mailbox.ts";
import { registers } from "./scenarios/register.ts";
import { transfers } from "./scenarios/transfers.ts";

export interface Bug {
  readonly name: string;
  readonly caughtBy: string;
  readonly edits: readonly Edit[];
}

const CLAIM = "kernel/claim/decide.ts";
const DECISION = "kernel/decision.ts";
const BATCHER = "kernel/batcher.ts";
const FLIGHT = "kernel/flight.ts";
const MEMORY = "stores/memory/memory.ts";

export const bugs: readonly Bug[] = [
  {
    name: "no fence check",
    caughtBy: jobs.name,
    edits: [{ file: CLAIM, from: "  return record.fence === fence;", to: "  return true;" }],
  },
  {
    name: "version for fence: a live holder is fenced by its own writes",
    caughtBy: jobs.name,
    edits: [
      { file: CLAIM, from: "  return record.fence === fence;", to: "  return record.version === fence;" },
      { file: "kernel/claim/claim.ts", from: "    this.fence = row.fence;", to: "    this.fence = row.version;" },
    ],
  },
  {
    name: "<= for < at expiry: nothing can be claimed at its own millisecond",
    caughtBy: timers.name,
    edits: [{ file: CLAIM, from: "claim.nowMs < record.dueMs", to: "claim.nowMs <= record.dueMs" }],
  },
  {
    name: "a live lease can be claimed",
    caughtBy: jobs.name,
    edits: [
      { file: CLAIM, from: "  if (claim.nowMs < record.dueMs) return { granted: false };\n", to: "" },
      { file: MEMORY, from: "(row.dueMs as number) <= nowMs);", to: "(row.dueMs as number) <= nowMs + 5_000);" },
    ],
  },
  {
    name: "a claim without a lease",
    caughtBy: jobs.name,
    edits: [{ file: CLAIM, from: "dueMs: claim.nowMs + claim.leaseMs,", to: "dueMs: claim.nowMs," }],
  },
  {
    name: "fences start again after a record was swept away",
    caughtBy: jobs.name,
    edits: [{ file: DECISION, from: "return Math.max(this.nowMs, this.#scene.fenceFloor);", to: "return 0;" }],
  },
  {
    name: "a claim does not lift the fence",
    caughtBy: jobs.name,
    edits: [{ file: CLAIM, from: "  return Math.max(own + 1, floor);", to: "  return Math.max(own, 1);" }],
  },
  {
    name: "a renewal shortens the lease when the clock steps back",
    caughtBy: jobs.name,
    edits: [
      {
        file: CLAIM,
        from: "dueMs: Math.max(record.dueMs ?? 0, renewal.nowMs + renewal.leaseMs) };",
        to: "dueMs: renewal.nowMs + renewal.leaseMs };",
      },
    ],
  },
  {
    name: "a wake-up between look and rest is lost",
    caughtBy: mailbox.name,
    edits: [{ file: CLAIM, from: '  if (record.wakes !== rest.wakesSeen) return "woken";\n', to: "" }],
  },
  {
    name: "a wake-up hands a live lease away",
    caughtBy: mailbox.name,
    edits: [{ file: CLAIM, from: "  if (record.holder !== null) return { wakes, dueMs: record.dueMs };\n", to: "" }],
  },
  {
    name: "a worker sleeps over what came while it looked",
    caughtBy: timers.name,
    edits: [
      {
        file: "kernel/claim/worker.ts",
        from: "      await pause(clock, waitMs, this.#nudge.signal);\n    }\n    unlisten();",
        to: "      this.#nudge = new AbortController();\n      await pause(clock, waitMs, this.#nudge.signal);\n    }\n    unlisten();",
      },
    ],
  },
  {
    name: "a lost reply is taken for a no, and repeated",
    caughtBy: registers.name,
    edits: [
      {
        file: BATCHER,
        from: "        return this.#resolve(lane, flight, error);",
        to: "        flight.retry();\n        lane.epoch = null;\n        return this.#backoff(lane);",
      },
    ],
  },
  {
    name: "a lost reply is taken for a yes",
    caughtBy: transfers.name,
    edits: [{ file: BATCHER, from: "if (flight.isDecided && lane.sequence >= sequence)", to: "if (flight.isDecided)" }],
  },
  {
    name: "a commit that was given up arrives after all",
    caughtBy: registers.name,
    edits: [{ file: MEMORY, from: "    mark.epoch += 1;\n", to: "    mark.epoch = 1;\n" }],
  },
  {
    name: "callers hear before the commit",
    caughtBy: registers.name,
    edits: [
      {
        file: FLIGHT,
        from: "    return { puts };",
        to: "    this.answer();\n    return { puts };",
      },
    ],
  },
  {
    name: "a batch that was refused is taken for committed",
    caughtBy: jobs.name,
    edits: [{ file: BATCHER, from: "else flight.moved(receipt.moved);", to: "else this.#landed(flight, undefined);" }],
  },
  {
    name: "a thrown decision leaves a write",
    caughtBy: transfers.name,
    edits: [
      { file: DECISION, from: 'if (outcome.is === "done") merge(run);', to: 'if (outcome.is !== "void") merge(run);' },
    ],
  },
  {
    name: "a late key is not re-run",
    caughtBy: transfers.name,
    edits: [
      {
        file: DECISION,
        from: '  if (run.wanted !== undefined) return { is: "void", wanted: run.wanted };\n',
        to: '  if (run.wanted === "lock") return { is: "void", wanted: run.wanted };\n',
      },
    ],
  },
  {
    name: "a late key is taken for absent",
    caughtBy: transfers.name,
    edits: [
      {
        file: DECISION,
        from: "    const cell = this.#scene.cells.get(at.text);\n",
        to: "    const cell = this.#scene.cells.get(at.text) ?? this.#scene.cells.set(at.text, new Cell(at, null)).get(at.text);\n",
      },
    ],
  },
  {
    name: "an absent key is not protected",
    caughtBy: transfers.name,
    edits: [
      {
        file: "testing/sim/store.ts",
        from: "          this.#database.locks.set(text, transaction);\n          rows.push((await this.#memory.read([key]))[0] ?? null);",
        to: "          const [row] = await this.#memory.read([key]);\n          if (row) this.#database.locks.set(text, transaction);\n          rows.push(row ?? null);",
      },
      {
        file: MEMORY,
        from: "was === null : was !== null && was.id === now.id",
        to: "was === null : was === null || was.id === now.id",
      },
    ],
  },
  {
    name: "a known row is written although it moved",
    caughtBy: jobs.name,
    edits: [{ file: MEMORY, from: "was.id === now.id && was.version === now.version;", to: "was.id === now.id;" }],
  },
  {
    name: "a holder that was taken over still writes to other records",
    caughtBy: jobs.name,
    edits: [
      {
        file: DECISION,
        from: '  if (run.isUnchecked(outcome)) return { is: "void", wanted: "lock" };\n',
        to: "",
      },
    ],
  },
  {
    name: "an unknown outcome is told as a definite no",
    caughtBy: registers.name,
    edits: [
      {
        file: BATCHER,
        from: 'new StoreError("outcome_unknown", "settle", error.message, { cause: error })',
        to: 'new StoreError("store_unreachable", "retry", error.message, { cause: error })',
      },
    ],
  },
  {
    name: "chance is drawn anew in each run of a decision",
    caughtBy: transfers.name,
    edits: [{ file: DECISION, from: "this.#uuids[index] ??= draw();", to: "this.#uuids[index] = draw();" }],
  },
  {
    name: "versions start again after a deletion",
    caughtBy: registers.name,
    edits: [
      {
        file: "kernel/draft.ts",
        from: "          ? { ...now, dueMs: null }",
        to: "          ? { ...now, dueMs: null, version: 0 }",
      },
    ],
  },
];
