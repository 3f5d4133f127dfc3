/**
 * The report as text for a terminal: one line for each result, with the spread of its rounds below.
 */

import type { Machine, Measure, Report, Result, Target, Unit } from "./result.ts";

const HEAD = ["", "case", "beside", "", "ours", "", "ratio", "of best"];

export function drawTable(report: Report): string {
  const { machine } = report;
  const heads = report.results.some(({ target }) => target !== null) ? [...HEAD, "target", ""] : HEAD;
  const lines = report.results.map(cells);
  const widths = heads.map((head, column) =>
    Math.max(...[heads, ...lines].map((line) => (line[column] ?? head).length)),
  );
  const draw = (line: readonly string[]) =>
    line
      .map((cell, column) =>
        isNumeric(column) ? cell.padStart(widths[column] ?? 0) : cell.padEnd(widths[column] ?? 0),
      )
      .join("  ")
      .trimEnd();
  const spread = report.results.map(
    ({ id, unit, base, ours }) => `${id.padEnd(4)}${spreadOf(base, unit)}   ${spreadOf(ours, unit)}`,
  );
  return [
    showMachine(machine),
    "",
    draw(heads),
    ...lines.map(draw),
    "",
    "Medians, and the ratio of the best rounds. The minimum and the maximum of the rounds:",
    ...spread,
    "",
    ...report.notes,
    report.mode === "quick"
      ? "A quick run only shows that everything runs: its figures mean nothing."
      : `${report.results.filter(({ reached }) => reached === false).length} targets were missed, in ${report.seconds} s.`,
  ].join("\n");
}

export function showMachine({ cpu, cores, memoryGiB, platform, node, database, disk }: Machine): string {
  const where = disk === null ? "disk unknown" : `${disk.fileSystem}, sync ${disk.syncMs.toFixed(2)} ms`;
  return `${cpu}, ${cores} cores, ${memoryGiB} GiB, ${platform}, ${where}, Node ${node}, ${database}`;
}

function cells({ id, title, unit, base, ours, ratio, bestRatio, target, reached }: Result): string[] {
  return [
    id,
    title,
    base.name,
    showFigure(base.median, unit),
    ours.name,
    showFigure(ours.median, unit),
    ratio.toFixed(2),
    bestRatio.toFixed(2),
    target === null ? "" : showTarget(target),
    reached === null ? "" : reached ? "reached" : "MISSED",
  ];
}

function isNumeric(column: number): boolean {
  return column === 3 || (column >= 5 && column <= 7);
}

export function showTarget({ is, ratio }: Target): string {
  return `${is === "at least" ? "≥" : "≤"} ${ratio}`;
}

export function showFigure(figure: number, unit: Unit): string {
  const isWhole = unit === "commits/s" || unit === "pairs/s" || unit === "bytes" || unit === "runs";
  return `${isWhole ? Math.round(figure).toLocaleString("en") : figure.toPrecision(3)} ${unit}`;
}

function spreadOf({ name, min, max }: Measure, unit: Unit): string {
  return `${name}: ${showFigure(min, unit)} – ${showFigure(max, unit)}`;
}
