/**
 * The layout of a machine's drawing: columns from left to right, by the number of transitions from the initial state.
 *
 * An edge that skips columns passes through a point in each of them, which takes space like a state, so that no arrow crosses a box. Within a
 * column, states and points are placed near their neighbours. Edges end at ports, spread over the side of a box. The layout depends only on
 * the definition: the same machine gives the same drawing.
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

export interface Arrow {
  readonly from: string;
  readonly to: string;
  /** From left to right; from source to target if both are in one column; empty for a transition from a state to itself. */
  readonly points: readonly Point[];
  readonly direction: "forward" | "back" | "beside" | "self";
}

export interface Layout {
  readonly width: number;
  readonly height: number;
  readonly boxes: readonly Box[];
  readonly arrows: readonly Arrow[];
}

const MARGIN = 24;
/** Space for the mark of the initial state. */
const ENTRY = 36;
const COLUMN_GAP = 88;
const ROW_GAP = 28;
const BOX_HEIGHT = 40;
const PORT_HEIGHT = 16;
const POINT_HEIGHT = 10;
const SWEEPS = 4;

/** A state, or the point where a long edge passes through a column. */
interface Item {
  readonly state: string | null;
  readonly column: number;
  height: number;
  order: number;
  y: number;
  readonly left: Item[];
  readonly right: Item[];
}

interface Edge {
  readonly from: string;
  readonly to: string;
  /** From left to right. */
  readonly chain: readonly Item[];
}

export function layOut(rules: Rules, widthOf: (state: string) => number): Layout {
  const columns: Item[][] = [];
  const items = new Map<string, Item>();
  for (const [state, column] of columnsOf(rules)) items.set(state, place(columns, state, column));
  const edges = edgesOf(rules, items, columns);
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    for (const column of columns) arrange(column, "left");
    for (const column of columns.toReversed()) arrange(column, "right");
  }
  const ports = portsOf(edges);
  for (const item of items.values())
    item.height = Math.max(
      BOX_HEIGHT,
      PORT_HEIGHT * (1 + Math.max(countOf(ports, item, "left"), countOf(ports, item, "right"))),
    );
  const height = Math.max(...columns.map(heightOf));
  for (const column of columns) stack(column, MARGIN + (height - heightOf(column)) / 2);

  const widths = columns.map((column) => Math.max(...column.map(({ state }) => (state === null ? 0 : widthOf(state)))));
  const lefts = widths.map((_, index) => MARGIN + ENTRY + sum(widths.slice(0, index)) + index * COLUMN_GAP);
  const sideX = ({ column }: Item, side: Side): number =>
    (lefts[column] ?? 0) + (side === "left" ? 0 : (widths[column] ?? 0));
  const boxes = Array.from(items, ([state, { column, y, height: tall }]) => ({
    state,
    x: lefts[column] ?? 0,
    y,
    width: widths[column] ?? 0,
    height: tall,
  }));
  const arrows = edges.map((edge): Arrow => {
    const { from, to, chain } = edge;
    const [first] = chain;
    const last = chain.at(-1);
    if (first === undefined || last === undefined || from === to) return { from, to, direction: "self", points: [] };
    const direction = first.column === last.column ? "beside" : first.state === from ? "forward" : "back";
    const begin = { x: sideX(first, "right"), y: portY(ports, first, "right", edge) };
    const side = direction === "beside" ? "right" : "left";
    const end = { x: sideX(last, side), y: portY(ports, last, side, edge) };
    const between = chain.slice(1, -1).flatMap((item) => {
      const y = item.y + item.height / 2;
      return [
        { x: sideX(item, "left"), y },
        { x: sideX(item, "right"), y },
      ];
    });
    return { from, to, direction, points: [begin, ...(direction === "beside" ? [] : between), end] };
  });
  const right = (lefts.at(-1) ?? 0) + (widths.at(-1) ?? 0);
  // Arrows within the last column extend beyond it.
  const isExtended = arrows.some(({ direction, points }) => direction === "beside" && points[0]?.x === right);
  return { width: right + MARGIN + (isExtended ? ENTRY : 0), height: height + 2 * MARGIN, boxes, arrows };
}

/** The number of transitions from the initial state to each state; unreachable states start at the left too. */
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

function edgesOf({ targets }: Rules, items: ReadonlyMap<string, Item>, columns: Item[][]): readonly Edge[] {
  const edges: Edge[] = [];
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
      edges.push({ from, to, chain });
    }
  return edges;
}

type Side = "left" | "right";

/** Sorts a column by the mean position of each item's neighbours on that side; an item without neighbours there stays. */
function arrange(column: Item[], side: Side): void {
  const target = new Map(
    column.map((item) => {
      const others = item[side];
      return [item, others.length === 0 ? item.order : sum(others.map(({ order }) => order)) / others.length];
    }),
  );
  column.sort((a, b) => (target.get(a) ?? 0) - (target.get(b) ?? 0) || a.order - b.order);
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

/** The edges that end at each side of a box, from top to bottom. */
type Ports = ReadonlyMap<Item, { readonly left: readonly Edge[]; readonly right: readonly Edge[] }>;

function portsOf(edges: readonly Edge[]): Ports {
  const ports = new Map<Item, { left: Edge[]; right: Edge[] }>();
  const towards = new Map<Edge, Map<Item, number>>();
  const add = (item: Item, side: Side, edge: Edge, other: Item): void => {
    const mine = ports.get(item) ?? { left: [], right: [] };
    ports.set(item, mine);
    mine[side].push(edge);
    const of = towards.get(edge) ?? new Map<Item, number>();
    towards.set(edge, of.set(item, other.order));
  };
  for (const edge of edges) {
    const { chain } = edge;
    const [first, second] = chain;
    const last = chain.at(-1);
    const before = chain.at(-2);
    if (first === undefined || second === undefined || last === undefined || before === undefined) continue;
    if (edge.from === edge.to) continue;
    add(first, "right", edge, second);
    add(last, first.column === last.column ? "right" : "left", edge, before);
  }
  for (const [item, { left, right }] of ports)
    for (const side of [left, right])
      side.sort((a, b) => (towards.get(a)?.get(item) ?? 0) - (towards.get(b)?.get(item) ?? 0));
  return ports;
}

const countOf = (ports: Ports, item: Item, side: Side): number => ports.get(item)?.[side].length ?? 0;

function portY(ports: Ports, item: Item, side: Side, edge: Edge): number {
  const edges = ports.get(item)?.[side] ?? [];
  return item.y + (item.height * (1 + edges.indexOf(edge))) / (1 + edges.length);
}

const sum = (numbers: readonly number[]): number => numbers.reduce((total, one) => total + one, 0);
