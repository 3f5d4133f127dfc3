/** Bugs that schedules could have, each caught by the simulated year. */

import type { Bug } from "./bugs.ts";
import { schedules } from "./scenarios/schedules.ts";

const CRON = "schedule/cron.ts";
const DECIDE = "schedule/decide.ts";
const TICKS = "schedule/ticks.ts";

const caughtBy = schedules.name;

export const scheduleBugs: readonly Bug[] = [
  {
    name: "ticks that are delayed by their jitter are passed over",
    caughtBy,
    edits: [
      {
        file: TICKS,
        from: "        this.change({ cursorMs: tickMs });",
        to: "        this.change({ cursorMs: this.#tx.nowMs });",
      },
    ],
  },
  {
    name: "a run that waits does not count for an overlap",
    caughtBy,
    edits: [
      { file: TICKS, from: "return record.exists && !hasEnded(record);", to: 'return record.status === "running";' },
    ],
  },
  {
    name: "a tick that has waited stays in line",
    caughtBy,
    edits: [{ file: TICKS, from: "    this.change({ queued: rest });\n", to: "" }],
  },
  {
    name: "the run of a tick is named after the time of the decision",
    caughtBy,
    edits: [
      { file: TICKS, from: "tickRunId(this.name, tickMs), by }", to: "tickRunId(this.name, this.#tx.nowMs), by }" },
    ],
  },
  {
    name: "a time that is there twice fires the second time",
    caughtBy,
    edits: [{ file: CRON, from: '=== "twice" ? moments.firstMs', to: '=== "twice" ? moments.secondMs' }],
  },
  {
    name: "a time in a gap does not fire",
    caughtBy,
    edits: [
      {
        file: CRON,
        from: "    if (ms > fromMs) return ms;",
        to: '    if (ms > fromMs && moments.is !== "gap") return ms;',
      },
    ],
  },
  {
    name: "missed ticks are left out of the history",
    caughtBy,
    edits: [{ file: DECIDE, from: "missed: ticks.slice(0, split),", to: "missed: ticks.slice(0, split).slice(-1)," }],
  },
];
