/**
 * A run's report as text: which faults occurred and how long workers took to recover, what was acknowledged, what was unknown and
 * its outcome, and everything that was wrong.
 */

import type { RunReport, WorkReport } from "./run.ts";

export function describeRun(report: RunReport): string {
  const lines: string[] = [];
  const list = (counts: ReadonlyMap<string, number>) =>
    [...counts].map(([name, count]) => `${name} ${count}`).join(", ") || "none";
  lines.push(`${report.seconds.toFixed(1)} s of faults, ${report.lives} processes, ${report.clocks}`, "");
  if (report.recoveryMs.size === 0) lines.push(`struck: ${list(report.struck)}`);
  else {
    lines.push(row("fault", "struck", "workers", "median ms", "longest ms"));
    for (const [name, count] of report.struck) {
      const times = (report.recoveryMs.get(name) ?? []).toSorted((a, b) => a - b);
      const shown = (ms: number | undefined) => (ms === undefined ? "-" : ms.toFixed(0));
      lines.push(row(name, count, times.length, shown(times[Math.floor(times.length / 2)]), shown(times.at(-1))));
    }
  }
  lines.push("", row("work", "attempts", "commits", "unknown", "happened", "did not"));
  for (const [name, work] of report.works)
    lines.push(row(name, work.attempts, work.commits, work.unknown, ...resolved(work)));
  lines.push("", `asked again: ${report.repeats}`, `not yes: ${list(report.refusals)}`, `noted: ${list(report.notes)}`);
  if (report.proxy !== null) lines.push(`proxies: ${list(new Map(Object.entries(report.proxy)))}`);
  if (report.bouncer !== null) lines.push(`PgBouncer: ${list(new Map(Object.entries(report.bouncer)))}`);
  for (const { isWarned, medianMs } of report.wakeUps)
    lines.push(
      `woken by others (${isWarned ? "polling, with the warning" : "by notifications"}), median ms: ${list(medianMs)}`,
    );
  for (const [name, ms] of report.healedMs) lines.push(`all ${name} ended after ${ms.toFixed(0)} ms`);
  lines.push("", report.violations.length === 0 ? "no violation" : `${report.violations.length} VIOLATIONS`);
  for (const violation of report.violations.slice(0, 200)) lines.push(`- ${violation}`);
  if (report.ledger !== null) lines.push(`everything that the workers said is in ${report.ledger}`);
  return lines.join("\n");
}

function resolved({ unknown, happened }: WorkReport): (string | number)[] {
  return happened === null ? ["-", "-"] : [happened, unknown - happened];
}

/** The first cell is for words, the others for numbers. */
function row(name: string, ...cells: readonly (string | number)[]): string {
  return name.padEnd(58) + cells.map((cell) => String(cell).padStart(12)).join("");
}
