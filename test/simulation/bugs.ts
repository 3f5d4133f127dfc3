/**
 * Bugs that a kernel and workflows like these could have, each with the scenario that must catch it. They are planted one at a time into the
 * real source; a bug that no schedule catches is a hole in the simulator.
 */

import type { SimulateOptions } from "../../src/testing/index.ts";
import { actionBugs } from "./action-bugs.ts";
import { idempotencyBugs } from "./idempotency-bugs.ts";
import { listBugs } from "./list-bugs.ts";
import { lockBugs } from "./lock-bugs.ts";
import { machineBugs } from "./machine-bugs.ts";
import type { Edit } from "./plant.ts";
import { rewindBugs } from "./rewind-bugs.ts";
import { jobs, timers } from "./scenarios/jobs.ts";
import { mailbox } from "./scenarios/mailbox.ts";
import { registers } from "./scenarios/register.ts";
import { transfers } from "./scenarios/transfers.ts";
import { families, letters, meetings, orders, poison } from "./scenarios/workflows.ts";

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
const FLIGHT = "kernel/flight.ts";
const MEMORY = "stores/memory/memory.ts";
const HELD = "kernel/claim/claim.ts";
const EFFECTS = "workflow/effects.ts";
const COROUTINE = "workflow/coroutine.ts";
const EXECUTION = "workflow/execution.ts";
const HOLDER = "workflow/holder.ts";
const NEWS = "workflow/news.ts";
const RECORDS = "workflow/records.ts";
const WISHES = "workflow/wishes.ts";

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
    edits: [
      {
        file: BATCHER,
        from: "if (flight.isDecided && lane.sequence >= sequence && !isRefused)",
        to: "if (flight.isDecided)",
      },
    ],
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
    edits: [
      {
        file: BATCHER,
        from: "else flight.moved(receipt.moved, receipt.isHeld);",
        to: "else this.#landed(flight, undefined);",
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
  {
    name: "effects begin before what came before them is durable",
    caughtBy: orders.name,
    options: CRASHES,
    edits: [
      {
        file: EXECUTION,
        from: "    this.#isBlocked = toBegin.some(isDecided);\n    const made",
        to: "    this.#isBlocked = toBegin.some(isDecided);\n    this.#start(toBegin);\n    const made",
      },
    ],
  },
  {
    name: "the intent of a step that runs at most once is not written",
    caughtBy: orders.name,
    options: CRASHES,
    edits: [
      {
        file: WISHES,
        from: "if (!needsIntent(one)) continue;",
        to: "if (needsIntent(one)) granted.intents.push(one);\n      continue;",
      },
    ],
  },
  {
    name: "nobody is asked whether a step happened",
    caughtBy: orders.name,
    options: CRASHES,
    edits: [{ file: EFFECTS, from: "else void this.#reconcile(asked, step, plan);", to: "else step.try(mode.run);" }],
  },
  {
    name: "a signal's id is not remembered",
    caughtBy: letters.name,
    options: { calm: true, lostReply: 0.1, crash: 0.01 },
    edits: [{ file: RECORDS, from: "  seen?.write({ value: true });\n", to: "" }],
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
    name: "whoever lost a run still writes its history",
    caughtBy: orders.name,
    options: { calm: true, pause: 0.02, reorder: 0.5, clockJump: 0.02 },
    edits: [
      {
        file: HELD,
        from: "transactHeld((tx) => decide(this.#mine(tx), tx), this.at);",
        to: "transactHeld((tx) => decide(tx.record(this.at), tx), this.at);",
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
    name: "a child's end is not told to its parent",
    caughtBy: families.name,
    options: { calm: true },
    edits: [
      {
        file: RECORDS,
        from: "  if (value.parent?.waits === true) tellParent(tx, value.parent, id, outcome);\n",
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
        from: "      if (this.#looks > 0 && this.#toBegin.size === 0) this.#putFirst(toBegin);\n      else ",
        to: "      ",
      },
      {
        file: EXECUTION,
        from: "    // What the code would see now would not be written with it.\n    this.#isBlocked = true;\n",
        to: "",
      },
    ],
  },
  {
    name: "news reaches code that is still being replayed",
    caughtBy: letters.name,
    options: { calm: true, reorder: 0.9, overtake: 0.1 },
    edits: [{ file: EXECUTION, from: "    if (this.#isReady && this.#looks === 1)", to: "    if (this.#looks === 1)" }],
  },
  {
    name: "a message is lost when the wait for it is interrupted",
    caughtBy: meetings.name,
    options: MEETINGS,
    edits: [
      {
        file: EXECUTION,
        from: "        if (arrival.message !== undefined) this.#news.putBack(arrival.message);\n",
        to: "        if (arrival.message !== undefined) continue;\n",
      },
    ],
  },
  {
    name: "a step that is recorded is begun again after replay",
    caughtBy: orders.name,
    options: CRASHES,
    edits: [
      { file: "workflow/replay.ts", from: "  coroutine.takeNew();\n", to: "" },
      {
        file: EXECUTION,
        from: "for (const asked of this.coroutine.waiting.values()) if (begins(asked)) this.#toBegin.add(asked);",
        to: "this.#toBegin.clear();",
      },
      {
        file: EXECUTION,
        from: "      if (waiting.get(asked.text) === asked) {\n        if (needsRecord(asked)) written += 1;",
        to: "      if (waiting.size >= 0) {\n        if (needsRecord(asked)) written += 1;",
      },
      {
        file: EXECUTION,
        from: 'asked.plan.kind === "step" && this.coroutine.waiting.has(asked.text) && ',
        to: 'asked.plan.kind === "step" && ',
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
    name: "what a slot came to is not recorded",
    caughtBy: orders.name,
    options: CRASHES,
    edits: [
      {
        file: WISHES,
        from: "      const data = actOnSlot(tx, plan);\n",
        to: '      const data = actOnSlot(tx, plan);\n      granted.answers.push([one, "slot", data]);\n      if (data !== null) continue;\n',
      },
    ],
  },
  {
    name: "a slot's change is made twice",
    caughtBy: orders.name,
    options: { calm: true },
    edits: [
      {
        file: WISHES,
        from: "    return { ok: act(new TxSlot<unknown, unknown>(slot, () => initial)) };",
        to: "    act(new TxSlot<unknown, unknown>(slot, () => initial));\n    return { ok: act(new TxSlot<unknown, unknown>(slot, () => initial)) };",
      },
    ],
  },
  {
    name: "a slot's change is told and not made",
    caughtBy: families.name,
    options: { calm: true },
    edits: [
      {
        file: WISHES,
        from: "    return { ok: act(new TxSlot<unknown, unknown>(slot, () => initial)) };",
        to: "    return { ok: initial };",
      },
    ],
  },
  {
    name: "a wait that is over says that it received",
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
        from: "        return this.#settle(asked, outcome, nowMs, at);",
        to: '        return this.#settle(asked, "ok" in outcome ? outcome : { error: new Error("a child failed") }, nowMs, at);',
      },
    ],
  },
  {
    name: "claims are not counted, so that poison is tried for ever",
    caughtBy: poison.name,
    options: { calm: true },
    edits: [
      {
        file: EXECUTION,
        from: "    if (this.#held.tries > this.#definition.maxTries)",
        to: "    if (this.#held.tries < 0)",
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
        from: "      this.failed(asked, unstorableResult(error, ",
        to: '      if (asked.plan.kind === "step" && asked.attempts++ < 2) this.begin(asked, asked.plan);\n      else this.failed(asked, unstorableResult(error, ',
      },
    ],
  },
  {
    name: "code that waits for something foreign is waited for",
    caughtBy: poison.name,
    options: { calm: true },
    edits: [
      {
        file: EXECUTION,
        from: "      if (!this.#isOver && this.coroutine.waiting.size === 0) this.#run(",
        to: "      if (!this.#isOver && this.coroutine.waiting.size < 0) this.#run(",
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
  ...machineBugs,
  ...listBugs,
  ...rewindBugs,
];
