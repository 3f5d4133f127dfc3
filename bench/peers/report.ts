/**
 * The results of a run of the comparison, and how they are drawn: as a table in Markdown, for the terminal and for a file.
 */

import type { Machine, Measure } from "../result.ts";
import { showMachine } from "../table.ts";
import type { Costs } from "./costs.ts";

export interface Report {
  readonly format: 1;
  readonly date: string;
  readonly mode: "full" | "quick";
  readonly seconds: number;
  readonly rounds: number;
  readonly machine: Machine;
  readonly contenders: readonly Contender[];
  readonly notes: readonly string[];
}

export interface Contender {
  readonly id: string;
  readonly name: string;
  readonly version: string;
  readonly settings: string;
  /** In the order of `CASES`. */
  readonly measures: readonly Measure[];
  /** Of those that are on PostgreSQL. */
  readonly costs: Costs | null;
}

export interface Case {
  readonly id: string;
  readonly title: string;
  readonly unit: "runs/s" | "ms";
  readonly steps: number;
}

/** What is measured, in the order in which it is. */
export const CASES: readonly Case[] = [
  { id: "a1", title: "100 callers, 1 step", unit: "runs/s", steps: 1 },
  { id: "a10", title: "100 callers, 10 steps", unit: "runs/s", steps: 10 },
  { id: "b1", title: "all at once, 1 step", unit: "runs/s", steps: 1 },
  { id: "b10", title: "all at once, 10 steps", unit: "runs/s", steps: 10 },
  { id: "c", title: "alone, 1 step", unit: "ms", steps: 1 },
];

export function drawReport(report: Report): string {
  const { contenders, rounds, mode, seconds } = report;
  const heads = ["", ...CASES.flatMap(headsOf)];
  const rows = contenders.map(({ name, measures }) => [
    name,
    ...CASES.flatMap((one, index) => cellsOf(one, measures[index])),
  ]);
  const counted = contenders.flatMap(({ name, costs }) => (costs === null ? [] : [costRow(name, costs)]));
  const stepCounts = contenders.find(({ costs }) => costs !== null)?.costs?.perRun.map(({ steps }) => steps) ?? [];
  const costHeads = [
    "",
    ...stepCounts.flatMap((steps) => [`transactions, ${stepsText(steps)}`, `log, ${stepsText(steps)}`]),
    "idle, in a second",
  ];
  return [
    showMachine(report.machine),
    "",
    drawTable(heads, rows),
    "",
    rounds === 1 ? "One round." : `Medians of ${rounds} rounds in turns, with the least and the most.`,
    ...(counted.length === 0
      ? []
      : [
          "",
          "What one run costs PostgreSQL, without what polling costs when idle:",
          "",
          drawTable(costHeads, counted),
        ]),
    "",
    ...contenders.map(({ name, version, settings }) => `- ${name}, version ${version}: ${settings}`),
    ...report.notes.map((note) => `- ${note}`),
    "",
    mode === "quick" ? "A quick run shows that everything runs: its figures mean little." : `It took ${seconds} s.`,
  ].join("\n");
}

function headsOf({ title, unit, steps }: Case): string[] {
  return steps > 1 ? [`${title}: ${unit}`, "steps/s"] : [`${title}: ${unit}`];
}

function cellsOf({ unit, steps }: Case, measure: Measure | undefined): string[] {
  if (measure === undefined) return steps > 1 ? ["", ""] : [""];
  const digits = unit === "ms" ? 1 : 0;
  const spread = measure.rounds.length > 1 ? ` (${show(measure.min, digits)}–${show(measure.max, digits)})` : "";
  const cell = `${show(measure.median, digits)}${spread}`;
  return steps > 1 ? [cell, show(measure.median * steps, 0)] : [cell];
}

function costRow(name: string, { idle, perRun }: Costs): string[] {
  const cells = perRun.flatMap(({ transactions, bytes }) => [show(transactions, 1), kib(bytes)]);
  return [name, ...cells, `${show(idle.transactions, 0)} transactions, ${kib(idle.bytes)}`];
}

const stepsText = (steps: number): string => (steps === 1 ? "1 step" : `${steps} steps`);
const kib = (bytes: number): string => `${show(bytes / 1024, 1)} KiB`;

export function show(value: number, digits: number): string {
  return value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

export function drawTable(heads: readonly string[], rows: readonly (readonly string[])[]): string {
  const widths = heads.map((_, column) => Math.max(3, ...[heads, ...rows].map((row) => row[column]?.length ?? 0)));
  const draw = (row: readonly string[]) =>
    `| ${widths.map((width, column) => (column === 0 ? (row[column] ?? "").padEnd(width) : (row[column] ?? "").padStart(width))).join(" | ")} |`;
  const rule = `|${widths.map((width, column) => (column === 0 ? "-".repeat(width + 2) : `${"-".repeat(width + 1)}:`)).join("|")}|`;
  return [draw(heads), rule, ...rows.map(draw)].join("\n");
}
