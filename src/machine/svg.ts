/**
 * A machine as an SVG document: a box for each state, double if it is final, and an arrow for each transition, dashed if it has a guard.
 *
 * Names are escaped. The document has no styles, scripts, ids or links, so that it can be embedded in any page, next to others, under any
 * content security policy.
 */

import { type Arrow, type Box, layOut, type Point } from "./layout.ts";
import { drawText, escapeInvisible, type NamedRules } from "./text.ts";

const INK = "#1f2937";
const PAPER = "#ffffff";
const TITLE_HEIGHT = 20;
const ARROW_HEAD = 8;

export function drawSvg(machine: NamedRules): string {
  const { initial, targets, guards } = machine;
  const layout = layOut(machine, (state) => Math.max(64, textWidth(escapeInvisible(state)) + 28));
  const title = escapeInvisible(machine.name);
  const width = Math.ceil(Math.max(layout.width, textWidth(title) + 48));
  const height = Math.ceil(layout.height + TITLE_HEIGHT);
  const boxOf = new Map(layout.boxes.map((box) => [box.state, box]));
  const parts = [
    `<title>${escaped(title)}</title>`,
    `<desc>${escaped(drawText(machine))}</desc>`,
    `<rect width="${width}" height="${height}" rx="8" fill="${PAPER}"/>`,
    `<text x="24" y="28" font-weight="bold" fill="${INK}">${escaped(title)}</text>`,
    `<g transform="translate(0 ${TITLE_HEIGHT})" fill="none" stroke="${INK}" stroke-width="1.5">`,
    ...layout.arrows.flatMap((arrow) => arrowParts(arrow, boxOf, guards.get(arrow.from)?.has(arrow.to) ?? false)),
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
  const name = `<text ${place} fill="${INK}" stroke="none">${escaped(escapeInvisible(state))}</text>`;
  return isFinal ? [outer, inner, name] : [outer, name];
}

/** A dot, and the arrow from it to the initial state. */
function entryParts(box: Box | undefined): string[] {
  if (box === undefined) return [];
  const y = box.y + box.height / 2;
  return [
    `<circle cx="${round(box.x - 30)}" cy="${round(y)}" r="5" fill="${INK}"/>`,
    `<path d="M ${at({ x: box.x - 30, y })} L ${at({ x: box.x - ARROW_HEAD, y })}"/>`,
    head({ x: box.x, y }, "right"),
  ];
}

function arrowParts(arrow: Arrow, boxOf: ReadonlyMap<string, Box>, isGuarded: boolean): string[] {
  const dashed = isGuarded ? ' stroke-dasharray="4 3"' : "";
  const path = (d: string) => `<path d="${d}"${dashed}/>`;
  const [first] = arrow.points;
  const last = arrow.points.at(-1);
  const box = boxOf.get(arrow.from);
  if (arrow.direction === "self" || first === undefined || last === undefined) {
    if (box === undefined) return [];
    const [left, right, top] = [box.x + box.width * 0.35, box.x + box.width * 0.65, box.y];
    const curve = `${at({ x: left, y: top - 26 })} ${at({ x: right, y: top - 26 })} ${at({ x: right, y: top - ARROW_HEAD })}`;
    return [path(`M ${at({ x: left, y: top })} C ${curve}`), head({ x: right, y: top }, "down")];
  }
  if (arrow.direction === "beside") {
    const out = first.x + 44;
    const end = { x: last.x + ARROW_HEAD, y: last.y };
    return [
      path(`M ${at(first)} C ${at({ x: out, y: first.y })} ${at({ x: out, y: last.y })} ${at(end)}`),
      head(last, "left"),
    ];
  }
  const isBack = arrow.direction === "back";
  const begin = isBack ? { x: first.x + ARROW_HEAD, y: first.y } : first;
  const end = isBack ? last : { x: last.x - ARROW_HEAD, y: last.y };
  const through = [begin, ...arrow.points.slice(1, -1), end];
  const strokes = through.slice(1).map((point, index) => {
    const before = through[index] ?? point;
    // Every other segment crosses a column, in a straight line.
    if (index % 2 === 1) return `L ${at(point)}`;
    const middle = (before.x + point.x) / 2;
    return `C ${at({ x: middle, y: before.y })} ${at({ x: middle, y: point.y })} ${at(point)}`;
  });
  return [path(`M ${at(begin)} ${strokes.join(" ")}`), isBack ? head(first, "left") : head(last, "right")];
}

/** An arrow head with its tip at the point. An SVG marker would need an id, which two documents in one page would share. */
function head({ x, y }: Point, towards: "left" | "right" | "down"): string {
  const base: readonly Point[] =
    towards === "down"
      ? [
          { x: x - 4, y: y - ARROW_HEAD },
          { x: x + 4, y: y - ARROW_HEAD },
        ]
      : [y - 4, y + 4].map((side) => ({ x: towards === "right" ? x - ARROW_HEAD : x + ARROW_HEAD, y: side }));
  return `<path d="M ${[{ x, y }, ...base].map(at).join(" L ")} Z" fill="${INK}" stroke="none"/>`;
}

const round = (number: number): string => String(Math.round(number * 10) / 10);
const at = ({ x, y }: Point): string => `${round(x)} ${round(y)}`;
const area = (x: number, y: number, width: number, height: number): string =>
  `x="${round(x)}" y="${round(y)}" width="${round(width)}" height="${round(height)}"`;

/** An estimate of the text's width, on the large side: there is no font to measure with. */
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
