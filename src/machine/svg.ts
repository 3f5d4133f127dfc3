/**
 * A machine as an SVG document: a box for each state, a double one if it is final, an arrow for each way, dashed where it is guarded.
 *
 * Names are text and nothing else, whatever is in them. There are no styles, scripts, ids or links in it, so that it can stand in any page,
 * beside others, under any content policy.
 */

import { type Box, type Layout, type Line, layOut, type Point } from "./layout.ts";
import { type Drawn, drawText, shown } from "./text.ts";

const INK = "#1f2937";
const PAPER = "#ffffff";
const TITLE_HEIGHT = 20;
const ARROW = 8;

export function drawSvg(machine: Drawn): string {
  const { initial, targets, guards } = machine;
  const layout = layOut(machine, (state) => Math.max(64, textWidth(shown(state)) + 28));
  const title = shown(machine.name);
  const width = Math.ceil(Math.max(layout.width, textWidth(title) + 48));
  const height = Math.ceil(layout.height + TITLE_HEIGHT);
  const boxOf = new Map(layout.boxes.map((box) => [box.state, box]));
  const parts = [
    `<title>${escaped(title)}</title>`,
    `<desc>${escaped(drawText(machine))}</desc>`,
    `<rect width="${width}" height="${height}" rx="8" fill="${PAPER}"/>`,
    `<text x="24" y="28" font-weight="bold" fill="${INK}">${escaped(title)}</text>`,
    `<g transform="translate(0 ${TITLE_HEIGHT})" fill="none" stroke="${INK}" stroke-width="1.5">`,
    ...layout.lines.flatMap((line) => lineParts(line, boxOf, guards.get(line.from)?.has(line.to) ?? false)),
    ...entryParts(boxOf.get(initial)),
    ...layout.boxes.flatMap((box) => boxParts(box, targets.get(box.state)?.length === 0)),
    "</g>",
  ];
  const size = `width="${width}" height="${height}" viewBox="0 0 ${width} ${height}"`;
  const font = 'font-family="system-ui, sans-serif" font-size="14"';
  return `<svg xmlns="http://www.w3.org/2000/svg" ${size} role="img" ${font}>\n${parts.join("\n")}\n</svg>\n`;
}

function boxParts({ state, x, y, width, height }: Box, isFinal: boolean): string[] {
  const outer = `<rect ${area(x, y, width, height)} rx="8" fill="${PAPER}"/>`;
  const inner = `<rect ${area(x + 3, y + 3, width - 6, height - 6)} rx="6"/>`;
  const place = `x="${round(x + width / 2)}" y="${round(y + height / 2 + 5)}" text-anchor="middle"`;
  const name = `<text ${place} fill="${INK}" stroke="none">${escaped(shown(state))}</text>`;
  return isFinal ? [outer, inner, name] : [outer, name];
}

/** A dot, and the way from it to the first state. */
function entryParts(box: Layout["boxes"][number] | undefined): string[] {
  if (box === undefined) return [];
  const y = box.y + box.height / 2;
  return [
    `<circle cx="${round(box.x - 30)}" cy="${round(y)}" r="5" fill="${INK}"/>`,
    `<path d="M ${at({ x: box.x - 30, y })} L ${at({ x: box.x - ARROW, y })}"/>`,
    head({ x: box.x, y }, "right"),
  ];
}

function lineParts(line: Line, boxOf: ReadonlyMap<string, Box>, isGuarded: boolean): string[] {
  const dashed = isGuarded ? ' stroke-dasharray="4 3"' : "";
  const path = (d: string) => `<path d="${d}"${dashed}/>`;
  const [first] = line.points;
  const last = line.points.at(-1);
  const box = boxOf.get(line.from);
  if (line.is === "self" || first === undefined || last === undefined) {
    if (box === undefined) return [];
    const [left, right, top] = [box.x + box.width * 0.35, box.x + box.width * 0.65, box.y];
    const curve = `${at({ x: left, y: top - 26 })} ${at({ x: right, y: top - 26 })} ${at({ x: right, y: top - ARROW })}`;
    return [path(`M ${at({ x: left, y: top })} C ${curve}`), head({ x: right, y: top }, "down")];
  }
  if (line.is === "beside") {
    const out = first.x + 44;
    const end = { x: last.x + ARROW, y: last.y };
    return [
      path(`M ${at(first)} C ${at({ x: out, y: first.y })} ${at({ x: out, y: last.y })} ${at(end)}`),
      head(last, "left"),
    ];
  }
  const isBack = line.is === "back";
  const begin = isBack ? { x: first.x + ARROW, y: first.y } : first;
  const end = isBack ? last : { x: last.x - ARROW, y: last.y };
  const through = [begin, ...line.points.slice(1, -1), end];
  const strokes = through.slice(1).map((point, index) => {
    const before = through[index] ?? point;
    // Every other stretch passes through a column, in a straight line.
    if (index % 2 === 1) return `L ${at(point)}`;
    const middle = (before.x + point.x) / 2;
    return `C ${at({ x: middle, y: before.y })} ${at({ x: middle, y: point.y })} ${at(point)}`;
  });
  return [path(`M ${at(begin)} ${strokes.join(" ")}`), isBack ? head(first, "left") : head(last, "right")];
}

/** An arrow head with its tip here. A marker would need an id, which two pictures in one page would share. */
function head({ x, y }: Point, towards: "left" | "right" | "down"): string {
  const base: readonly Point[] =
    towards === "down"
      ? [
          { x: x - 4, y: y - ARROW },
          { x: x + 4, y: y - ARROW },
        ]
      : [y - 4, y + 4].map((side) => ({ x: towards === "right" ? x - ARROW : x + ARROW, y: side }));
  return `<path d="M ${[{ x, y }, ...base].map(at).join(" L ")} Z" fill="${INK}" stroke="none"/>`;
}

const round = (number: number): string => String(Math.round(number * 10) / 10);
const at = ({ x, y }: Point): string => `${round(x)} ${round(y)}`;
const area = (x: number, y: number, width: number, height: number): string =>
  `x="${round(x)}" y="${round(y)}" width="${round(width)}" height="${round(height)}"`;

/** About as wide as the text will be, with some room: there is no font to measure here. */
function textWidth(text: string): number {
  return Array.from(text).reduce((width, char) => width + ((char.codePointAt(0) ?? 0) >= 0x1100 ? 15 : 8.5), 0);
}

const ENTITIES: Readonly<Record<string, string>> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&quot;",
  "'": "&#39;",
};

const escaped = (text: string): string => text.replace(/[&<>"']/g, (char) => ENTITIES[char] ?? "");
