/** Bugs that tasks like these could have, each caught by the simulated runs. */

import type { Bug } from "./bugs.ts";
import { servedTasks } from "./scenarios/served-tasks.ts";
import { tasks } from "./scenarios/tasks.ts";

const DECIDE = "task/decide.ts";
const RECORDS = "task/records.ts";
const TASKS = "task/tasks.ts";
const ROUTES = "http/server/routes/tasks.ts";

export const taskBugs: readonly Bug[] = [
  {
    name: "a signal settles a task whatever settled it before",
    caughtBy: tasks.name,
    edits: [
      {
        file: DECIDE,
        from: "  if (outcome === null) return",
        to: '  if (outcome === null || settling.by === "signal") return',
      },
      // So that its end is written again.
      { file: RECORDS, from: "  const outcome = before ?? outcomeOf(", to: "  const outcome = outcomeOf(" },
    ],
  },
  {
    name: "a cancellation does not look whether the task has an outcome",
    caughtBy: tasks.name,
    edits: [
      {
        file: DECIDE,
        from: "  if (outcome === null) return",
        to: '  if (outcome === null || settling.by === "cancel") return',
      },
      {
        file: RECORDS,
        from: "() => void cancelRun(tx, id, { reason, force: true })",
        to: '(run) => void endRun(tx, run, id, "canceled", { ok: null })',
      },
      { file: RECORDS, from: "  const outcome = before ?? outcomeOf(", to: "  const outcome = outcomeOf(" },
    ],
  },
  {
    name: "a run that is settled stays with its worker, whose late attempt or timeout ends it again",
    caughtBy: tasks.name,
    edits: [
      {
        file: RECORDS,
        from: 'const version = run.append(status === "completed" ? "completed" : "failed", fact);',
        to: "const { head: version, holder } = run; void fact;",
      },
      {
        file: RECORDS,
        from: "  endRun(tx, run, run.at.key, status, outcome);",
        to: "  endRun(tx, run, run.at.key, status, outcome);\n  if (holder !== null) run.write({ holder, dueMs: tx.nowMs + 10_000 });",
      },
    ],
  },
  {
    name: "the token of a task that is settled is unknown",
    caughtBy: tasks.name,
    edits: [
      {
        file: RECORDS,
        from: "  return isOurs ? mark.task : undefined;",
        to: "  return isOurs && outcomeOf(statusOf(run), value) === null ? mark.task : undefined;",
      },
    ],
  },
  {
    name: "an attempt has the same fence as the one of the worker before",
    caughtBy: tasks.name,
    edits: [{ file: DECIDE, from: "  claim * MOST_ATTEMPTS +", to: "  0 * claim +" }],
  },
  {
    name: "a creation that is repeated gets a new token",
    caughtBy: tasks.name,
    edits: [
      {
        file: TASKS,
        from: "    if (started.isNew || token === null) return",
        to: "    if (started !== undefined) return",
      },
    ],
  },
  {
    name: "an idempotency key is not looked up",
    caughtBy: tasks.name,
    edits: [{ file: RECORDS, from: "  if (key?.exists === true) {", to: "  if (key === null) {" }],
  },
  {
    name: "a notification says what the first one of all tasks said",
    caughtBy: tasks.name,
    edits: [
      {
        file: RECORDS,
        from: "  const isNew = outcome !== null && outbox.notified < value.incarnation;\n  if (isNew) notify(outbox, value, outcome);",
        to: '  const isNew = outcome !== null && outbox.notified < value.incarnation;\n  if (isNew) notify(outbox, value, { ...outcome, by: "timeout" });',
      },
    ],
  },
  {
    name: "a signal at the deadline is refused for a timeout that is written later",
    caughtBy: servedTasks.name,
    edits: [
      {
        file: RECORDS,
        from: '  else if (settlement.is === "overdue")\n    end(tx, run,',
        to: '  else if (settlement.is === "overdue")\n    return { settlement, outcome: { status: "timed_out", by: "timeout", at: new Date(nowMs) } };\n  else if (nowMs < 0)\n    end(tx, run,',
      },
    ],
  },
  {
    name: "over HTTP a late signal gets the response of the first",
    caughtBy: servedTasks.name,
    edits: [
      {
        file: ROUTES,
        from: "await pawl.tasks.signal(params.token,",
        to: "await pawl.tasks.trySignal(params.token,",
      },
    ],
  },
  {
    name: "over HTTP a cancellation returns what it wanted, whatever was first",
    caughtBy: servedTasks.name,
    edits: [
      {
        file: ROUTES,
        from: "json: { canceled, outcome: showOutcome(outcome) } };",
        to: 'json: { canceled: true || canceled, outcome: { status: "canceled", by: "cancel", at: outcome.at } } };',
      },
    ],
  },
];
