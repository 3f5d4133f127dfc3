/**
 * Bugs that a kernel and workflows like these could have, each with the scenario that must catch it. They are planted one at a time into the
 * real source; a bug that no schedule catches is a hole in the simulator.
 */

import type { SimulateOptions } from "../../src/testing/index.ts";
import { actionBugs } from "./action-bugs.ts";
import { closingBugs } from "./closing-bugs.ts";
import { flowBugs } from "./flow-bugs.ts";
import { forgettingBugs } from "./forgetting-bugs.ts";
import { idempotencyBugs } from "./idempotency-bugs.ts";
import { listBugs } from "./list-bugs.ts";
import { lockBugs } from "./lock-bugs.ts";
import { machineBugs } from "./machine-bugs.ts";
import type { Edit } from "./plant.ts";
import { projectionBugs } from "./projection-bugs.ts";
import { reactionBugs } from "./reaction-bugs.ts";
import { rewindBugs } from "./rewind-bugs.ts";
import { jobs, timers } from "./scenarios/jobs.ts";
import { mailbox } from "./scenarios/mailbox.ts";
import { registers } from "./scenarios/register.ts";
import { transfers } from "./scenarios/transfers.ts";
import { families, letters, meetings, orders, poison } from "./scenarios/workflows.ts";
import { scheduleBugs } from "./schedule-bugs.ts";
import { streamBugs } from "./stream-bugs.ts";
import { taskBugs } from "./task-bugs.ts";

export interface Bug {
  readonly name: string;
  readonly caughtBy: string;
  /** Faults that the bug needs, where few schedules have them by chance. */
  readonly options?: SimulateOptions;
  readonly edits: readonly Edit[];
}

const CLAIM = "kernel/claim/decide.ts";
const DECISION = "kernel/decision.ts";
const BATCHER = "kernel/batcher.ts";
const LANE = "kernel/lane.ts";
const FLIGHT = "kernel/flight.ts";
const MEMORY = "stores/memory/memory.ts";
const HELD = "kernel/claim/claim.ts";
const EFFECTS = "workflow/execution/effects.ts";
const COROUTINE = "workflow/execution/coroutine.ts";
const EXECUTION = "workflow/execution/execution.ts";
const TO_BEGIN = "workflow/execution/to-begin.ts";
const FOREIGN = "workflow/execution/foreign.ts";
const HOLDER = "workflow/execution/holder.ts";
const NEWS = "workflow/execution/news.ts";
const MESSAGES = "workflow/runs/messages.ts";
const RUN_END = "workflow/runs/end.ts";
const PREPARE = "workflow/execution/prepare.ts";

/** Processes die, calls take their time, and nothing else goes wrong. */
const CRASHES: SimulateOptions = { calm: true, crash: 0.02, reorder: 0.5, overtake: 0.1 };
/** Everything meets at one moment. */
const MEETINGS: SimulateOptions = { calm: true, reorder: 0.8, overtake: 0.2 };

const ownBugs: readonly Bug[] = [
  {
    name: "no fence check",
    caughtBy: jobs.name,
    edits: [{ file: CLAIM, from: "  return record.fence === claim.fence;", to: "  return true;" }],
  },
  {
    name: "version for fence: a live holder is fenced by its own writes",
    caughtBy: jobs.name,
    edits: [
      { file: CLAIM, from: "  return record.fence === claim.fence;", to: "  return record.version === claim.fence;" },
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
      { file: MEMORY, from: "this.#timed.due(kind, nowMs, limit)", to: "this.#timed.due(kind, nowMs + 5_000, limit)" },
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
    edits: [{ file: DECISION, from: "return Math.max(this.nowMs, this.#view.fenceFloor);", to: "return 0;" }],
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
    name: "a wake-up between read and rest is lost",
    caughtBy: mailbox.name,
    edits: [{ file: CLAIM, from: '  if (record.wakes !== rest.wakesSeen) return "woken";\n', to: "" }],
  },
  {
    name: "a wake-up hands a live lease away",
    caughtBy: mailbox.name,
    edits: [{ file: CLAIM, from: "  if (record.holder !== null) return { wakes, dueMs: record.dueMs };\n", to: "" }],
  },
  {
    name: "a worker misses what became due while it polled",
    caughtBy: timers.name,
    edits: [
      {
        file: "kernel/claim/worker.ts",
        from: "      await pause(clock, waitMs, this.#wakeSignal.signal);\n    }\n    unlisten();",
        to: "      this.#wakeSignal = new AbortController();\n      await pause(clock, waitMs, this.#wakeSignal.signal);\n    }\n    unlisten();",
      },
    ],
  },
  {
    name: "a lost reply is taken for a no, and repeated",
    caughtBy: registers.name,
    edits: [
      {
        file: BATCHER,
        from: "        return sent(await this.#resolve(lane, flight, error));",
        to: "        lane.unsettle();\n        return sent(flight.retry(error), lane.backoffMs());",
      },
    ],
  },
  {
    name: "a lost reply is taken for a yes",
    caughtBy: transfers.name,
    edits: [
      {
        file: LANE,
        from: "if (this.#sequence >= sequence) {",
        to: "if (sequence > 0) {",
      },
    ],
  },
  {
    name: "a commit that was given up arrives after all",
    caughtBy: registers.name,
    edits: [{ file: MEMORY, from: "    mark.epoch += 1;\n", to: "    mark.epoch = 1;\n" }],
  },
  {
    name: "callers get their result before the commit",
    caughtBy: registers.name,
    edits: [
      {
        file: FLIGHT,
        from: "    return { puts };",
        to: "    this.committed();\n    return { puts };",
      },
    ],
  },
  {
    name: "a batch that was refused is taken for committed",
    caughtBy: jobs.name,
    edits: [
      {
        file: BATCHER,
        from: ": flight.moved(receipt.moved, receipt.isHeld);",
        to: ": this.#committed(flight, undefined, 0);",
      },
    ],
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
        from: "    const cell = this.#view.cells.get(at.text);\n",
        to: "    const cell = this.#view.cells.get(at.text) ?? this.#view.cells.set(at.text, new Cell(at, null)).get(at.text);\n",
      },
    ],
  },
  {
    name: "an absent key is not protected",
    caughtBy: transfers.name,
    edits: [
      {
        file: "testing/sim/store.ts",
        from: "          this.#database.locks.set(text, transaction);\n          rows.push((await this.inner.read([key]))[0] ?? null);",
        to: "          const [row] = await this.inner.read([key]);\n          if (row) this.#database.locks.set(text, transaction);\n          rows.push(row ?? null);",
      },
      {
        file: MEMORY,
        from: "      : was !== null && was.id === now.id",
        to: "      : was === null || was.id === now.id",
      },
    ],
  },
  {
    name: "a known row is written although it moved",
    caughtBy: jobs.name,
    edits: [
      {
        file: MEMORY,
        from: "was.id === now.id && was.version === now.version && was.stamp === now.stamp;",
        to: "was.id === now.id;",
      },
    ],
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
    name: "an unknown outcome is reported as a definite failure",
    caughtBy: registers.name,
    edits: [
      {
        file: LANE,
        from: 'new StoreError("outcome_unknown", "settle", lost.message, { cause: lost })',
        to: 'new StoreError("store_unreachable", "retry", lost.message, { cause: lost })',
      },
    ],
  },
  {
    name: "random numbers are drawn again in each run of a decision",
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
  {
    name: "effects begin before what came before them is durable",
    caughtBy: orders.name,
    options: CRASHES,
    edits: [
      {
        file: EXECUTION,
        from: "    this.#do(this.run.commit(toBegin,",
        to: "    this.#start(toBegin);\n    this.#do(this.run.commit(toBegin,",
      },
    ],
  },
  {
    name: "the intent of a step that runs at most once is not written",
    caughtBy: orders.name,
    options: CRASHES,
    edits: [
      {
        file: PREPARE,
        from: "if (!needsIntent(one)) continue;",
        to: "if (needsIntent(one)) made.intents.push(one);\n      continue;",
      },
    ],
  },
  {
    name: "reconcile is not called for a step with an unknown outcome",
    caughtBy: orders.name,
    options: CRASHES,
    edits: [
      {
        file: EFFECTS,
        from: "void this.#reconcile(pending, step, mode, plan.timeoutMs);",
        to: "step.start(mode.run);",
      },
    ],
  },
  {
    name: "a signal's id is not remembered",
    caughtBy: letters.name,
    options: { calm: true, lostReply: 0.1, crash: 0.01 },
    edits: [{ file: MESSAGES, from: "  seen?.write({ value: true });\n", to: "" }],
  },
  {
    name: "facts are written in another order than the code saw them",
    caughtBy: orders.name,
    options: MEETINGS,
    edits: [
      {
        file: HOLDER,
        from: "  for (const fact of unwritten) fact.version",
        to: "  for (const fact of [...unwritten].reverse()) fact.version",
      },
    ],
  },
  {
    name: "a worker that lost a run still writes its history",
    caughtBy: orders.name,
    options: { calm: true, pause: 0.02, reorder: 0.5, clockJump: 0.02 },
    edits: [
      {
        file: HELD,
        from: "transactHeld((tx) => decide(this.#mine(tx), tx), this.at, also)",
        to: "transactHeld((tx) => decide(tx.record(this.at), tx), this.at, also)",
      },
    ],
  },
  {
    name: "a run is put to rest although there is news for it",
    caughtBy: letters.name,
    edits: [
      {
        file: HELD,
        from: "decideRest(record, { ...this.#grant, wakesSeen });",
        to: "decideRest(record, { ...this.#grant, wakesSeen: wakesSeen < 0 ? wakesSeen : record.wakes });",
      },
    ],
  },
  {
    name: "a parent is not notified when its child ends",
    caughtBy: families.name,
    options: { calm: true },
    edits: [
      {
        file: RUN_END,
        from: "  if (value.parent?.waits === true) notifyParent(tx, value.parent, id, outcome);\n",
        to: "",
      },
    ],
  },
  {
    name: "what comes while a run is put to rest is seen and not written",
    caughtBy: orders.name,
    options: MEETINGS,
    edits: [
      {
        file: EXECUTION,
        from: "      if (this.#looks > 0 && this.#toBegin.size === 0) this.#toBegin.putFirst(toBegin);\n      else ",
        to: "      ",
      },
      {
        file: EXECUTION,
        from: '    // What the code would receive now would not be written with it.\n    this.#enter("deciding");\n',
        to: '    this.#enter("committing");\n',
      },
    ],
  },
  {
    name: "news reaches code that is still being replayed",
    caughtBy: letters.name,
    options: { calm: true, reorder: 0.9, overtake: 0.1 },
    edits: [
      {
        file: EXECUTION,
        from: "    if (PHASES[this.#phase].isLive && this.#looks === 1)",
        to: "    if (this.#looks === 1)",
      },
    ],
  },
  {
    name: "a message is lost when the wait for it is interrupted",
    caughtBy: meetings.name,
    options: MEETINGS,
    edits: [
      {
        file: EXECUTION,
        from: "      if (message !== undefined) this.#news.putBack(message);\n",
        to: "      if (message !== undefined) return false;\n",
      },
    ],
  },
  {
    name: "a step that is recorded is begun again after replay",
    caughtBy: orders.name,
    options: CRASHES,
    edits: [
      { file: "workflow/execution/replay.ts", from: "  coroutine.takeNew();\n", to: "" },
      {
        file: EXECUTION,
        from: "        for (const pending of coroutine.waiting.values()) if (begins(pending)) this.#toBegin.add(pending);\n",
        to: "",
      },
      {
        file: TO_BEGIN,
        from: "      if (waiting.get(pending.text) === pending) {\n        if (needsRecord(pending)) written += 1;",
        to: "      if (waiting.size >= 0) {\n        if (needsRecord(pending)) written += 1;",
      },
      {
        file: EXECUTION,
        from: " || !this.coroutine.waiting.has(text) || ",
        to: " || ",
      },
    ],
  },
  {
    name: "a timer fires early",
    caughtBy: letters.name,
    options: { storeClockJump: 0 },
    edits: [
      {
        file: NEWS,
        from: ".filter(({ dueMs }) => dueMs !== null && dueMs <= nowMs);",
        to: ".filter(({ dueMs }) => dueMs !== null && dueMs <= nowMs + 1_000);",
      },
    ],
  },
  {
    name: "the result of a slot operation is not recorded",
    caughtBy: orders.name,
    options: CRASHES,
    edits: [
      {
        file: PREPARE,
        from: "      const data = actOnSlot(tx, plan);\n",
        to: '      const data = actOnSlot(tx, plan);\n      made.outcomes.push([one, "slot", data]);\n      if (data !== null) continue;\n',
      },
    ],
  },
  {
    name: "a slot's change is made twice",
    caughtBy: orders.name,
    options: { calm: true },
    edits: [
      {
        file: PREPARE,
        from: "    return { ok: act(new TxSlot<unknown, unknown>(slot, () => initial)) };",
        to: "    act(new TxSlot<unknown, unknown>(slot, () => initial));\n    return { ok: act(new TxSlot<unknown, unknown>(slot, () => initial)) };",
      },
    ],
  },
  {
    name: "a slot's change is reported and not made",
    caughtBy: families.name,
    options: { calm: true },
    edits: [
      {
        file: PREPARE,
        from: "    return { ok: act(new TxSlot<unknown, unknown>(slot, () => initial)) };",
        to: "    return { ok: initial };",
      },
    ],
  },
  {
    name: "a wait that timed out reports that it received",
    caughtBy: meetings.name,
    options: { calm: true },
    edits: [
      {
        file: COROUTINE,
        from: '{ ok: { ok: false, reason: "timeout" } }',
        to: '{ ok: { ok: true, reason: "timeout" } }',
      },
    ],
  },
  {
    name: "a child's failure loses its reason",
    caughtBy: families.name,
    options: { calm: true },
    edits: [
      {
        file: COROUTINE,
        from: "        return this.#settle(pending, outcome, nowMs, at);",
        to: '        return this.#settle(pending, "ok" in outcome ? outcome : { error: new Error("a child failed") }, nowMs, at);',
      },
    ],
  },
  {
    name: "claims are not counted, so that poison is retried forever",
    caughtBy: poison.name,
    options: { calm: true },
    edits: [
      {
        file: EXECUTION,
        from: "    if (run.tries > this.#definition.maxTries)",
        to: "    if (run.tries < 0)",
      },
    ],
  },
  {
    name: "a step whose result cannot be stored is tried again",
    caughtBy: poison.name,
    options: { calm: true },
    edits: [
      {
        file: EFFECTS,
        from: "      this.failed(pending, unstorableResult(error, ",
        to: '      if (pending.plan.kind === "step" && pending.attempts++ < 2) this.begin(pending, pending.plan);\n      else this.failed(pending, unstorableResult(error, ',
      },
    ],
  },
  {
    name: "code that waits for something foreign is waited for",
    caughtBy: poison.name,
    options: { calm: true },
    edits: [
      {
        file: FOREIGN,
        from: "this.#coroutine.waiting.size === 0) this.#stuck();",
        to: "this.#coroutine.waiting.size < 0) this.#stuck();",
      },
    ],
  },
];

/** All of them: the kernel's and the workflows', and those of each capability. */
export const bugs: readonly Bug[] = [
  ...ownBugs,
  ...actionBugs,
  ...idempotencyBugs,
  ...lockBugs,
  ...flowBugs,
  ...machineBugs,
  ...reactionBugs,
  ...streamBugs,
  ...closingBugs,
  ...projectionBugs,
  ...forgettingBugs,
  ...scheduleBugs,
  ...taskBugs,
  ...listBugs,
  ...rewindBugs,
];
