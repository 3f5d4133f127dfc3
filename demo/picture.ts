/**
 * The live picture: the current state, as lines. Pure: a snapshot and a size in, styled lines out.
 *
 * The numbers, also those of each process, are read from the database and the ledgers each time, so that they add up; only
 * the current work of the processes, and the list of the last events, come from their messages.
 *
 * Guarantees: however small the terminal is, the line with the losses is in it.
 */

import type { PlaceState } from "./crew.ts";
import type { Line, Style } from "./terminal.ts";
import { count, money, type Tally } from "./verdict.ts";

export interface ProcessView {
  readonly name: string;
  readonly pid: number | undefined;
  readonly state: PlaceState;
  readonly killCount: number;
  /** The orders that it works on; null for a web process. */
  readonly inHand: readonly string[] | null;
  /** What it does with orders; how many it has done so far is in the tally. */
  readonly does: "placed" | "charged";
}

export type Happening = "killed" | "frozen" | "took over" | "refused" | "awake";

export interface News {
  readonly atMs: number;
  readonly what: Happening;
  readonly sentence: string;
}

export interface Snapshot {
  readonly elapsedMs: number;
  readonly lengthMs: number;
  readonly orderCount: number;
  readonly tally: Tally;
  readonly processes: readonly ProcessView[];
  /** Newest last. */
  readonly news: readonly News[];
  /** The kills are over, and the remaining orders are being charged. */
  readonly calm: boolean;
}

const WIDEST = 100;
const MOST_NEWS = 10;

const NEWS_STYLE: Record<Happening, Style> = {
  killed: "red",
  frozen: "cyan",
  "took over": "yellow",
  refused: "green",
  awake: "cyan",
};

export function drawPicture(
  snapshot: Snapshot,
  size: { readonly width: number; readonly height: number },
): readonly Line[] {
  const width = Math.min(size.width, WIDEST) - 2;
  const head: readonly Line[] = [
    titleLine(snapshot, width),
    [["  "], [introOf(snapshot), "dim"]],
    [],
    barLine(snapshot, width),
  ];
  const counters: readonly Line[] = [[], ...counterLines(snapshot, width), []];
  const proof = proofLine(snapshot.tally, width);
  // Where not all of it fits, the news is dropped first, then the processes, then the lines above the losses.
  const room = size.height - head.length - counters.length - 1;
  const processes = belowGap(
    snapshot.processes.map((each) => processLine(each, snapshot.tally, width)),
    room,
  );
  const news = belowGap(snapshot.news.slice(-MOST_NEWS).map(newsLine), room - processes.length);
  return [...[...head, ...processes, ...counters].slice(0, size.height - 1), proof, ...news];
}

/** An empty line, and the last of these lines that fit below it. */
function belowGap(lines: readonly Line[], room: number): readonly Line[] {
  return room < 2 ? [] : [[], ...lines.slice(1 - room)];
}

/** The last picture, which stays on the terminal. */
export function drawEnd(snapshot: Snapshot): readonly Line[] {
  const width = WIDEST - 20;
  return [[], barLine(snapshot, width), [], ...counterLines(snapshot, width), [], proofLine(snapshot.tally, width), []];
}

/** The same in one line, for output that is not a terminal. */
export function drawBrief({ elapsedMs, orderCount, tally, processes }: Snapshot): Line {
  const isRight = tally.balanceCents === tally.expectedCents;
  const parts = [
    `charged ${count(tally.charged)} of ${count(orderCount)}`,
    `in progress ${tally.inHand}`,
    `killed ${killsOf(processes)}`,
    `taken over ${tally.takenOver}`,
    `duplicates ignored ${tally.ignored}`,
    `late commits refused ${tally.refused}`,
    `lost ${tally.lost}`,
    `charged twice ${tally.twice}`,
    `balance ${isRight ? "right" : "WRONG"}`,
  ];
  return [[`${clock(elapsedMs)}  ${parts.join(" | ")}`]];
}

function titleLine({ elapsedMs, lengthMs }: Snapshot, width: number): Line {
  const title = "for work that must happen once";
  const time = `${clock(elapsedMs)} of about ${clock(lengthMs)}`;
  return [["  "], [" PAWL ", "good"], [`  ${title}`, "bold"], [right(time, width - 10 - title.length)]];
}

function introOf({ elapsedMs, orderCount, processes, calm }: Snapshot): string {
  if (processes.some(({ state }) => state === "starting") && elapsedMs === 0) return "The processes are starting.";
  if (calm) return "The kills are over, and the remaining orders are being charged.";
  return `${count(orderCount)} orders, one SQLite file, ${processes.length} processes, a kill -9 every second.`;
}

function barLine({ tally, orderCount }: Snapshot, width: number): Line {
  const label = `  ${count(tally.charged)} of ${count(orderCount)} charged`.padStart(25);
  const cells = Math.max(10, width - 2 - label.length);
  const share = (orders: number) => Math.round((cells * orders) / orderCount);
  const done = Math.min(cells, share(tally.charged));
  const open = Math.min(cells, share(tally.placed)) - done;
  return [
    ["  "],
    ["█".repeat(done), "green"],
    ["▒".repeat(Math.max(0, open)), "yellow"],
    ["░".repeat(cells - done - Math.max(0, open)), "dim"],
    [label, "bold"],
  ];
}

function processLine(view: ProcessView, { doneBy }: Tally, width: number): Line {
  const { name, pid, state, killCount, inHand, does } = view;
  const isUp = state !== "killed" && state !== "gone";
  const counts = `${does} ${count(doneBy.get(name) ?? 0).padStart(5)}   killed ${String(killCount).padStart(2)}`;
  const [said, style] = doing(state, inHand);
  const saidWidth = width - 2 - 10 - 9 - counts.length - 1;
  return [
    ["  "],
    [name.padEnd(10), "bold"],
    [(isUp ? String(pid ?? "") : "").padEnd(9), "dim"],
    [said.padEnd(saidWidth).slice(0, saidWidth), style],
    [` ${counts}`],
  ];
}

function doing(state: PlaceState, inHand: readonly string[] | null): readonly [string, Style] {
  const orders = inHand === null || inHand.length === 0 ? "" : `, ${countOf(inHand.length)} in progress`;
  switch (state) {
    case "starting":
      return ["○ starting", "dim"];
    case "killed":
      return [`✕ killed${orders}`, "red"];
    case "frozen":
      return [`‖ frozen${orders}`, "cyan"];
    case "stopping":
    case "gone":
      return ["○ closed", "dim"];
    case "working":
      if (inHand === null) return ["● taking orders", "green"];
      return inHand.length === 0 ? ["● waiting for orders", "dim"] : [`● charging ${inHand.join(" ")}`, "green"];
  }
}

function counterLines({ tally, processes }: Snapshot, width: number): readonly Line[] {
  const rows: readonly (readonly [string, number, string, number])[] = [
    ["orders placed", tally.placed, "processes killed", killsOf(processes)],
    ["charged", tally.charged, "orders taken over", tally.takenOver],
    ["in progress", tally.inHand, "duplicate deliveries ignored", tally.ignored],
    ["waiting", tally.waiting, "late commits refused", tally.refused],
  ];
  const column = Math.floor((width - 8) / 2);
  return rows.map(([left, leftCount, label, labelCount]) => [
    ["  "],
    [left, "dim"],
    [right(count(leftCount), column - left.length), "bold"],
    ["      "],
    [label, "dim"],
    [right(count(labelCount), column - label.length), "bold"],
  ]);
}

function proofLine({ lost, twice, balanceCents, expectedCents }: Tally, width: number): Line {
  const isRight = balanceCents === expectedCents;
  const losses = ` lost ${lost} `;
  const repeats = ` charged twice ${twice} `;
  const balance = ` balance ${money(balanceCents)} ${isRight ? "=" : "≠"} ${money(expectedCents)} `;
  const expected = "expected ";
  const isWide = losses.length + repeats.length + balance.length + expected.length + 6 <= width;
  return [
    ["  "],
    [losses, lost === 0 ? "good" : "bad"],
    ["  "],
    [repeats, twice === 0 ? "good" : "bad"],
    ["  "],
    [isWide ? balance + expected : balance, isRight ? "good" : "bad"],
  ];
}

function newsLine({ atMs, what, sentence }: News): Line {
  return [["  "], [clock(atMs), "dim"], ["  "], [what.padEnd(11), NEWS_STYLE[what]], [sentence]];
}

const killsOf = (processes: readonly ProcessView[]): number =>
  processes.reduce((total, { killCount }) => total + killCount, 0);

/** What a process with this number of orders was doing. */
export const amid = (orders: number): string =>
  orders === 0 ? "while it was idle" : `in the middle of ${countOf(orders)}`;

export const countOf = (orders: number): string => (orders === 1 ? "1 order" : `${orders} orders`);

const right = (text: string, width: number): string => text.padStart(Math.max(text.length + 1, width));

function clock(ms: number): string {
  const seconds = Math.floor(ms / 1000);
  return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
}
