/**
 * The report as a picture: for each result two bars, what ours is held against and ours, the first always of the same length.
 *
 * The picture is one SVG file without scripts or fonts of its own. It brings its own ground, and so can be read wherever it
 * is put; its colours follow the reader's choice of light or dark.
 */

import { isLowerBetter, type Report, type Result } from "./result.ts";
import { showFigure, showMachine, showTarget } from "./table.ts";

const WIDTH = 1040;
const LEFT = 380;
/** The length of the first bar of each pair. */
const FULL = 220;
/** Longer bars are cut here, so that one surprising figure does not leave the picture. */
const LONGEST = FULL * 1.6;
const TOP = 74;
const PAIR = 52;
const BAR = 15;

const STYLE = `
  svg { color-scheme: light dark; }
  .ground { fill: #ffffff; }
  text { fill: #1f2328; font: 13px system-ui, sans-serif; }
  .title { font-size: 17px; font-weight: 600; }
  .quiet { fill: #59636e; font-size: 12px; }
  .base { fill: #afb8c1; }
  .ours { fill: #0969da; }
  .missed { fill: #cf222e; }
  .target { stroke: #1f2328; stroke-width: 2; }
  @media (prefers-color-scheme: dark) {
    .ground { fill: #0d1117; }
    text { fill: #e6edf3; }
    .quiet { fill: #9198a1; }
    .base { fill: #57606a; }
    .ours { fill: #4493f8; }
    .missed { fill: #f85149; }
    .target { stroke: #e6edf3; }
  }`;

/** One picture of all stores, each with its own heading: what was measured apart must not be compared. */
export function drawChart(reports: readonly Report[]): string {
  const heights = reports.map(({ results }) => TOP + results.length * PAIR);
  const height = heights.reduce((sum, one) => sum + one, 0) + 46;
  const tops = heights.map((_, index) => heights.slice(0, index).reduce((sum, one) => sum + one, 0));
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" width="${WIDTH}" height="${height}" role="img" aria-label="Pawl beside the raw limit">
<style>${STYLE}
</style>
<rect class="ground" width="${WIDTH}" height="${height}"/>
${reports.map((report, index) => drawReport(report, tops[index] ?? 0)).join("\n")}
<text class="quiet" x="24" y="${height - 18}">Medians of alternating rounds. Gray: what ours is held against. The upright line is the target; red missed it.</text>
</svg>
`;
}

function drawReport({ date, machine, results }: Report, top: number): string {
  const name = machine.database.split(" ")[0] ?? "";
  return [
    `<text class="title" x="24" y="${top + 32}">${escapeXml(`Pawl beside the raw limit of ${name}`)}</text>`,
    `<text class="quiet" x="24" y="${top + 52}">${escapeXml(`${date} · ${showMachine(machine)}`)}</text>`,
    ...results.map((result, index) => drawPair(result, top + TOP + index * PAIR)),
  ].join("\n");
}

function drawPair(result: Result, top: number): string {
  const { id, title, unit, base, ours, ratio, target, reached } = result;
  const length = Math.min(LONGEST, FULL * ratio);
  const aim = target === null ? "" : `, target ${showTarget(target)}`;
  const direction = isLowerBetter(unit) ? " (less is better)" : "";
  const targetLength = target === null ? 0 : Math.min(LONGEST, FULL * target.ratio);
  const oursTop = top + BAR + 4;
  const parts = [
    `<text x="24" y="${top + 13}">${escapeXml(`${id}  ${title}`)}</text>`,
    `<text class="quiet" x="24" y="${top + 31}">${escapeXml(`ratio ${ratio.toFixed(2)}${aim}${direction}`)}</text>`,
    bar("base", FULL, top),
    label(FULL, top, `${base.name}: ${showFigure(base.median, unit)}`),
    bar(reached === false ? "missed" : "ours", length, oursTop),
    label(Math.max(length, targetLength), oursTop, `${ours.name}: ${showFigure(ours.median, unit)}`),
  ];
  if (target !== null) {
    const x = LEFT + targetLength;
    parts.push(`<line class="target" x1="${x}" x2="${x}" y1="${oursTop - 3}" y2="${oursTop + BAR + 3}"/>`);
  }
  return parts.join("\n");
}

function bar(kind: string, length: number, top: number): string {
  const width = Math.max(1, length).toFixed(1);
  return `<rect class="${kind}" x="${LEFT}" y="${top}" width="${width}" height="${BAR}" rx="2"/>`;
}

function label(length: number, top: number, text: string): string {
  return `<text class="quiet" x="${(LEFT + length + 8).toFixed(1)}" y="${top + 12}">${escapeXml(text)}</text>`;
}

function escapeXml(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}
