/**
 * Bugs that locks could have, in plain code and in runs, each with the scenario that must catch it.
 */

import type { SimulateOptions } from "../../src/testing/index.ts";
import type { Bug } from "./bugs.ts";
import { circles, handoffs, locks } from "./scenarios/locks.ts";

const DECIDE = "lock/decide.ts";
const LINE = "lock/line.ts";
const ROOM = "lock/drafts.ts";
const LOCK = "lock/lock.ts";
const HOLD = "lock/hold.ts";
const LEASE = "kernel/lease.ts";
const TURNS = "lock/turns.ts";
const RUN_LOCKS = "workflow/locks/locks.ts";
const DEADLOCK = "workflow/locks/deadlock.ts";
const EXECUTION = "workflow/execution/execution.ts";
const HELD_RUN = "workflow/execution/held-run.ts";
const RUN_END = "workflow/runs/end.ts";

/** Without faults, so that every delay is caused by the code. */
const CALM: SimulateOptions = { calm: true, reorder: 0.5 };
/** Processes die, and their work is taken over. */
const CRASHES: SimulateOptions = { calm: true, crash: 0.02, reorder: 0.5 };
/** Processes are paused for longer than their leases. */
const PAUSES: SimulateOptions = { calm: true, pause: 0.02, reorder: 0.5 };

export const lockBugs: Bug[] = [
  {
    name: "a renewal does not ask whether the lock is still held",
    caughtBy: locks.name,
    options: CALM,
    edits: [
      {
        file: LINE,
        from: "  const isHeld = locks.every((lock) => lock.holder(ticket) !== undefined);\n  if (isHeld)",
        to: "  const isHeld = locks.length > 0;\n  if (isHeld)",
      },
    ],
  },
  {
    name: "a holder that lost the lock releases its successor's",
    caughtBy: locks.name,
    options: PAUSES,
    edits: [
      {
        file: ROOM,
        from: "    const left = this.holders.filter((one) => one.ticket !== ticket);",
        to: "    const left = this.holder(ticket) === undefined ? [] : this.holders.filter((one) => one.ticket !== ticket);",
      },
    ],
  },
  {
    name: "a lost lock passes the check in a decision",
    caughtBy: locks.name,
    options: PAUSES,
    edits: [
      {
        file: HOLD,
        from: "    if (heldFence(tx, this.#refs, this.ticket) !== this.fence) throw this.lostError();\n",
        to: "    if (heldFence(tx, this.#refs, this.ticket) === 0) throw this.lostError();\n",
      },
    ],
  },
  {
    name: "a waiter is granted the lock after its own lease ended",
    caughtBy: locks.name,
    options: CRASHES,
    edits: [{ file: ROOM, from: "      if (isAlive(waiter, nowMs)) {", to: "      if (waiter.sinceMs > 0) {" }],
  },
  {
    name: "a waiter that comes late has its place back",
    caughtBy: locks.name,
    options: PAUSES,
    edits: [
      {
        file: LINE,
        from: "    if (isAlive(value, nowMs)) record.write",
        to: "    if (value.untilMs > 0) record.write",
      },
    ],
  },
  {
    name: "barging: a newcomer takes a free permit past the line",
    caughtBy: locks.name,
    edits: [
      {
        file: LINE,
        from: "  if (locks.every((lock) => lock.first === null && fits(lock, mode))) {",
        to: "  if (locks.every((lock) => fits(lock, mode))) {",
      },
    ],
  },
  {
    name: "a lock that a run waited for when it was interrupted stays with it forever",
    caughtBy: locks.name,
    edits: [
      {
        file: RUN_LOCKS,
        from: "  if (orphans.length === 0) return false;\n",
        to: "  if (orphans.length >= 0) return false;\n",
      },
    ],
  },
  {
    name: "a run that ends keeps its locks",
    caughtBy: locks.name,
    edits: [{ file: RUN_END, from: "  dropHolds(tx, run);\n", to: "" }],
  },
  {
    name: "the fence does not rise when a run is taken over",
    caughtBy: locks.name,
    options: CRASHES,
    edits: [
      {
        file: EXECUTION,
        from: "      if (run.needsFences) await run.refence();\n",
        to: "",
      },
    ],
  },
  {
    name: "the fence does not rise at a hand-off",
    caughtBy: locks.name,
    edits: [
      {
        file: ROOM,
        from: "    const fence = this.fenceFor(locks);\n    const { owner, mode",
        to: "    const fence = Math.max(...locks.map((lock) => lock.fence));\n    const { owner, mode",
      },
    ],
  },
  {
    name: "the fence does not rise when a free lock is taken",
    caughtBy: locks.name,
    edits: [
      {
        file: LINE,
        from: "    const fence = drafts.fenceFor(locks, isFree ? tx.approxNowMs : tx.fenceFloor);\n",
        to: "    const fence = Math.max(1, ...locks.map((lock) => lock.fence));\n",
      },
    ],
  },
  {
    name: "the fence of a pair rises above that of one lock only",
    caughtBy: locks.name,
    edits: [
      {
        file: ROOM,
        from: "    return Math.max(...locks.map((lock) => nextFence(lock.fence, floor)));",
        to: "    return nextFence(locks[0]?.fence ?? 0, floor);",
      },
    ],
  },
  {
    name: "a grant does not wake the run",
    caughtBy: locks.name,
    edits: [
      {
        file: RUN_LOCKS,
        from: "    wakeRun(tx, run);\n    return true;",
        to: "    return true;",
      },
    ],
  },
  {
    name: "a waiter in plain code is not woken by its turn",
    caughtBy: locks.name,
    options: CALM,
    edits: [
      {
        file: TURNS,
        from: "    for (const { ticket, fence } of holders) waiting.get(ticket)?.granted(fence);\n",
        to: "    for (const { ticket, fence } of holders) if (fence === 0) waiting.get(ticket)?.granted(fence);\n",
      },
    ],
  },
  {
    name: "a wake-up is lost between the release and the wait",
    caughtBy: handoffs.name,
    edits: [{ file: TURNS, from: "    this.#records.look(at).catch(() => {});\n", to: "" }],
  },
  {
    name: "a holder that died is never let go",
    caughtBy: locks.name,
    options: CRASHES,
    edits: [
      {
        file: DECIDE,
        from: "    : holders.filter((holder) => isAlive(holder, nowMs));",
        to: "    : holders;",
      },
    ],
  },
  {
    name: "<= for <: a lease holds at the millisecond of its end",
    caughtBy: locks.name,
    edits: [
      { file: DECIDE, from: "untilMs === null || nowMs < untilMs;", to: "untilMs === null || nowMs <= untilMs;" },
    ],
  },
  {
    name: "a renewal shortens the lease when the clock steps back",
    caughtBy: locks.name,
    options: { calm: true, storeClockJump: 0.05, reorder: 0.5 },
    edits: [{ file: DECIDE, from: "  return Math.max(untilMs, nowMs + leaseMs);", to: "  return nowMs + leaseMs;" }],
  },
  {
    name: "one permit too many",
    caughtBy: locks.name,
    edits: [{ file: DECIDE, from: "holders.length < permits;", to: "holders.length <= permits;" }],
  },
  {
    name: "a writer comes in beside readers",
    caughtBy: locks.name,
    edits: [
      {
        file: DECIDE,
        from: '  if (mode === "exclusive") return holders.length === 0;\n',
        to: '  if (mode === "exclusive") return !holders.some((holder) => holder.mode === "exclusive");\n',
      },
    ],
  },
  {
    name: "a hand-off skips one",
    caughtBy: locks.name,
    edits: [
      {
        file: ROOM,
        from: "      const ticket: string = lock.first;\n",
        to: "      const first = this.tx.record(ticketAt(lock.ref, lock.first)).value as Ticket;\n      const ticket: string = first.next ?? lock.first;\n",
      },
      {
        file: ROOM,
        from: "locks.every((other) => other.first === ticket && fits(other, waiter.mode))",
        to: "locks.every((other) => (other === lock || other.first === ticket) && fits(other, waiter.mode))",
      },
    ],
  },
  {
    name: "a release is one commit, and the hand-off another",
    caughtBy: locks.name,
    edits: [
      {
        file: LINE,
        from: "    else if (lock.first !== null) lock.unlink(ticket);\n  }\n  drafts.settleAll();\n",
        to: "    else if (lock.first !== null) lock.unlink(ticket);\n  }\n",
      },
    ],
  },
  {
    name: "of two permits that are free, one is handed on",
    caughtBy: locks.name,
    options: CALM,
    edits: [
      {
        file: ROOM,
        from: "        if (this.#grant(ticket, waiter, locks)) continue;",
        to: "        if (this.#grant(ticket, waiter, locks)) {\n          for (const other of locks) this.#toSettle.delete(other);\n          return;\n        }",
      },
    ],
  },
  {
    name: "one of a pair is granted alone",
    caughtBy: locks.name,
    edits: [
      {
        file: ROOM,
        from: "      const locks = (waiter.group ?? [lock.ref]).map((ref) => this.open(ref, null));",
        to: "      const locks = [lock];",
      },
    ],
  },
  {
    name: "a pair is acquired when one of it is free",
    caughtBy: locks.name,
    edits: [
      {
        file: LINE,
        from: "  if (locks.every((lock) => lock.first === null && fits(lock, mode))) {",
        to: "  if (locks.some((lock) => lock.first === null && fits(lock, mode))) {",
      },
    ],
  },
  {
    name: "a forced release takes one of a pair",
    caughtBy: locks.name,
    edits: [
      {
        file: LINE,
        from: "(holder.group ?? [ref]).filter((other) => drafts.open(other, null).drop(holder.ticket));",
        to: "[ref].filter(() => lock.drop(holder.ticket));",
      },
    ],
  },
  {
    name: "a run whose lock was taken away is not notified",
    caughtBy: locks.name,
    edits: [
      {
        file: LINE,
        from: "    if (holder.owner !== undefined) hooks.taken(tx, holder.owner, holder.ticket);\n",
        to: "",
      },
    ],
  },
  {
    name: "a run that was removed from the line is not notified",
    caughtBy: locks.name,
    edits: [
      {
        file: LINE,
        from: "  if (value.owner !== undefined) hooks.taken(tx, value.owner, act.ticket);\n",
        to: "",
      },
    ],
  },
  {
    name: "a hold is not notified that it may be lost",
    caughtBy: locks.name,
    options: { calm: true, delay: 0.1 },
    edits: [{ file: LEASE, from: "() => this.lose(new LeaseUncertainError()));", to: "() => undefined);" }],
  },
  {
    name: "a lease is counted from its answer",
    caughtBy: locks.name,
    options: { calm: true, delay: 0.1 },
    edits: [
      {
        file: LOCK,
        from: "safeUntilMs: sentMs + leaseMs })",
        to: "safeUntilMs: kernel.ports.clock.nowMs() + leaseMs })",
      },
    ],
  },
  {
    name: "deadlocks are not searched for",
    caughtBy: circles.name,
    edits: [
      {
        file: DEADLOCK,
        from: "  return stuck.has(run) ? circleFrom(run, stuck) : undefined;",
        to: "  return stuck.size === 0 ? circleFrom(run, stuck) : undefined;",
      },
    ],
  },
  {
    name: "a deadlock through a child is not reported",
    caughtBy: circles.name,
    edits: [{ file: RUN_LOCKS, from: "    suspect(tx, circle);\n", to: "" }],
  },
  {
    name: "a false alarm: a run with a timer counts as stuck",
    caughtBy: circles.name,
    edits: [
      {
        file: DEADLOCK,
        from: "  if (record.dueMs !== null && (record.dueMs !== blocked?.untilMs || record.dueMs <= tx.nowMs)) return undefined;\n",
        to: "",
      },
      { file: HELD_RUN, from: "watched.timed.size === 0 && ", to: "" },
    ],
  },
  {
    name: "a false alarm: a run that is worked on counts as stuck",
    caughtBy: circles.name,
    edits: [
      {
        file: DEADLOCK,
        from: '  if (!record.exists || record.status !== "waiting" || record.holder !== null) return undefined;\n',
        to: "  if (!record.exists || record.dueMs === null) return undefined;\n",
      },
      {
        file: DEADLOCK,
        from: "  if (record.dueMs !== null && (record.dueMs !== blocked?.untilMs || record.dueMs <= tx.nowMs)) return undefined;\n",
        to: "",
      },
      {
        file: DEADLOCK,
        from: "  return blocked === undefined ? undefined : waitsOf(tx, id, holds ?? [], blocked.children);",
        to: "  return waitsOf(tx, id, holds ?? [], blocked?.children ?? []);",
      },
    ],
  },
];
