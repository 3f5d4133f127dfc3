/**
 * Where the states and ways of a machine are drawn: columns from left to right, by how many moves a state is away from the first one.
 *
 * A way that skips columns passes through a point in each of them, which takes up room there like a state does, so that no line runs through
 * a box. Within a column, states and points are put near what they are connected with. Ways end at ports, spread over the side of a box. The
 * layout depends on nothing but the definition: the same machine is the same picture.
 */

import type { Rules } from "./decide.ts";

export interface Box {
  readonly state: string;
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
}

export interface Point {
  readonly x: number;
  readonly y: number;
}

export interface Line {
  readonly from: string;
  readonly to: string;
  /** Where it passes, from left to right; from source to target if both are in one column; none for a way from a state to itself. */
  readonly points: readonly Point[];
  readonly is: "forward" | "back" | "beside" | "self";
}

export interface Layout {
  readonly width: number;
  readonly height: number;
  readonly boxes: readonly Box[];
  readonly lines: readonly Line[];
}

const MARGIN = 24;
/** Room for the mark of the first state. */
const ENTRY = 36;
const COLUMN_GAP = 88;
const ROW_GAP = 28;
const BOX_HEIGHT = 40;
const PORT_HEIGHT = 16;
const POINT_HEIGHT = 10;
const SWEEPS = 4;

/** A state, or the place where a long way passes through a column. */
interface Item {
  readonly state: string | null;
  readonly column: number;
  height: number;
  order: number;
  y: number;
  readonly left: Item[];
  readonly right: Item[];
}

interface Way {
  readonly from: string;
  readonly to: string;
  /** From left to right. */
  readonly chain: readonly Item[];
}

export function layOut(rules: Rules, widthOf: (state: string) => number): Layout {
  const columns: Item[][] = [];
  const items = new Map<string, Item>();
  for (const [state, column] of columnsOf(rules)) items.set(state, place(columns, state, column));
  const ways = waysOf(rules, items, columns);
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    for (const column of columns) arrange(column, "left");
    for (const column of columns.toReversed()) arrange(column, "right");
  }
  const ports = portsOf(ways);
  for (const item of items.values())
    item.height = Math.max(
      BOX_HEIGHT,
      PORT_HEIGHT * (1 + Math.max(countOf(ports, item, "left"), countOf(ports, item, "right"))),
    );
  const height = Math.max(...columns.map(heightOf));
  for (const column of columns) stack(column, MARGIN + (height - heightOf(column)) / 2);

  const widths = columns.map((column) => Math.max(...column.map(({ state }) => (state === null ? 0 : widthOf(state)))));
  const lefts = widths.map((_, index) => MARGIN + ENTRY + sum(widths.slice(0, index)) + index * COLUMN_GAP);
  const edgeOf = ({ column }: Item, side: Side): number =>
    (lefts[column] ?? 0) + (side === "left" ? 0 : (widths[column] ?? 0));
  const boxes = Array.from(items, ([state, { column, y, height: tall }]) => ({
    state,
    x: lefts[column] ?? 0,
    y,
    width: widths[column] ?? 0,
    height: tall,
  }));
  const lines = ways.map((way): Line => {
    const { from, to, chain } = way;
    const [first] = chain;
    const last = chain.at(-1);
    if (first === undefined || last === undefined || from === to) return { from, to, is: "self", points: [] };
    const is = first.column === last.column ? "beside" : first.state === from ? "forward" : "back";
    const begin = { x: edgeOf(first, "right"), y: portY(ports, first, "right", way) };
    const side = is === "beside" ? "right" : "left";
    const end = { x: edgeOf(last, side), y: portY(ports, last, side, way) };
    const between = chain.slice(1, -1).flatMap((item) => {
      const y = item.y + item.height / 2;
      return [
        { x: edgeOf(item, "left"), y },
        { x: edgeOf(item, "right"), y },
      ];
    });
    return { from, to, is, points: [begin, ...(is === "beside" ? [] : between), end] };
  });
  const right = (lefts.at(-1) ?? 0) + (widths.at(-1) ?? 0);
  // Ways within the last column bulge out beyond it.
  const isBulging = lines.some(({ is, points }) => is === "beside" && points[0]?.x === right);
  return { width: right + MARGIN + (isBulging ? ENTRY : 0), height: height + 2 * MARGIN, boxes, lines };
}

/** How many moves each state is away from the first; those that no way leads to begin at the left too. */
function columnsOf({ initial, targets }: Rules): ReadonlyMap<string, number> {
  const columns = new Map<string, number>();
  for (const start of [initial, ...targets.keys()]) {
    if (columns.has(start)) continue;
    columns.set(start, 0);
    const queue = [start];
    for (let from = queue.shift(); from !== undefined; from = queue.shift())
      for (const to of targets.get(from) ?? [])
        if (!columns.has(to)) {
          columns.set(to, (columns.get(from) ?? 0) + 1);
          queue.push(to);
        }
  }
  return columns;
}

function place(columns: Item[][], state: string | null, column: number): Item {
  while (columns.length <= column) columns.push([]);
  const order = columns[column]?.length ?? 0;
  const item: Item = { state, column, height: POINT_HEIGHT, order, y: 0, left: [], right: [] };
  columns[column]?.push(item);
  return item;
}

function waysOf({ targets }: Rules, items: ReadonlyMap<string, Item>, columns: Item[][]): readonly Way[] {
  const ways: Way[] = [];
  for (const [from, list] of targets)
    for (const to of list) {
      const source = items.get(from);
      const target = items.get(to);
      if (source === undefined || target === undefined) continue;
      const [first, last] = source.column <= target.column ? [source, target] : [target, source];
      const chain = [first];
      for (let column = first.column + 1; column < last.column; column += 1) chain.push(place(columns, null, column));
      chain.push(last);
      for (const [index, item] of chain.entries()) {
        const next = chain[index + 1];
        if (next === undefined || next.column === item.column) continue;
        item.right.push(next);
        next.left.push(item);
      }
      ways.push({ from, to, chain });
    }
  return ways;
}

type Side = "left" | "right";

/** Sorts a column by the middle of what each item is connected with on that side; what has nothing there stays. */
function arrange(column: Item[], side: Side): void {
  const wish = new Map(
    column.map((item) => {
      const others = item[side];
      return [item, others.length === 0 ? item.order : sum(others.map(({ order }) => order)) / others.length];
    }),
  );
  column.sort((a, b) => (wish.get(a) ?? 0) - (wish.get(b) ?? 0) || a.order - b.order);
  for (const [order, item] of column.entries()) item.order = order;
}

const heightOf = (column: readonly Item[]): number =>
  sum(column.map(({ height }) => height)) + ROW_GAP * Math.max(0, column.length - 1);

function stack(column: readonly Item[], top: number): void {
  let y = top;
  for (const item of column) {
    item.y = y;
    y += item.height + ROW_GAP;
  }
}

/** The ways that end at each side of a box, in the order in which they leave it, from top to bottom. */
type Ports = ReadonlyMap<Item, { readonly left: readonly Way[]; readonly right: readonly Way[] }>;

function portsOf(ways: readonly Way[]): Ports {
  const ports = new Map<Item, { left: Way[]; right: Way[] }>();
  const towards = new Map<Way, Map<Item, number>>();
  const add = (item: Item, side: Side, way: Way, other: Item): void => {
    const mine = ports.get(item) ?? { left: [], right: [] };
    ports.set(item, mine);
    mine[side].push(way);
    const of = towards.get(way) ?? new Map<Item, number>();
    towards.set(way, of.set(item, other.order));
  };
  for (const way of ways) {
    const { chain } = way;
    const [first, second] = chain;
    const last = chain.at(-1);
    const before = chain.at(-2);
    if (first === undefined || second === undefined || last === undefined || before === undefined) continue;
    if (way.from === way.to) continue;
    add(first, "right", way, second);
    add(last, first.column === last.column ? "right" : "left", way, before);
  }
  for (const [item, { left, right }] of ports)
    for (const side of [left, right])
      side.sort((a, b) => (towards.get(a)?.get(item) ?? 0) - (towards.get(b)?.get(item) ?? 0));
  return ports;
}

const countOf = (ports: Ports, item: Item, side: Side): number => ports.get(item)?.[side].length ?? 0;

function portY(ports: Ports, item: Item, side: Side, way: Way): number {
  const ways = ports.get(item)?.[side] ?? [];
  return item.y + (item.height * (1 + ways.indexOf(way))) / (1 + ways.length);
}

const sum = (numbers: readonly number[]): number => numbers.reduce((total, one) => total + one, 0);
