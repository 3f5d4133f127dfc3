/**
 * What is printed: tables for people, JSON for programs.
 *
 * A table is aligned and, on a terminal, cut to its width: the widest columns give way first, but what the next command needs is never cut. Colors are used on a terminal only, and not with NO_COLOR.
 * Programs get one JSON document on one line, or one for each item of a list.
 *
 * Guarantees: what is stored cannot act on the terminal. Control characters and marks that turn the direction of text are shown as their code points, in tables
 * and messages; in JSON they are escaped, so the data is the same.
 */

export type Style = "plain" | "bold" | "dim" | "red" | "green" | "yellow" | "cyan";

const CODES: Record<Exclude<Style, "plain">, number> = { bold: 1, dim: 2, red: 31, green: 32, yellow: 33, cyan: 36 };

export const painted = (text: string, style: Style, color: boolean): string =>
  color && style !== "plain" && text !== "" ? `\u001b[${CODES[style]}m${text}\u001b[0m` : text;

// --------------------------------------------------------------------------------------------------------- text

/**
 * Control characters, line separators, marks and overrides of the direction of text, invisible characters that have no width, and halves of surrogate
 * pairs.
 */
const UNSAFE = /[\p{Cc}\p{Cs}\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\u{e0000}-\u{e007f}]/gu;

const SHORT: Readonly<Record<string, string>> = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };

const codePoint = (char: string): string => {
  const hex = (char.codePointAt(0) ?? 0).toString(16);
  return hex.length > 4 ? `\\u{${hex}}` : `\\u${hex.padStart(4, "0")}`;
};

/** A text of someone else, safe to print on one line. */
export const escaped = (text: string): string => text.replace(UNSAFE, (char) => SHORT[char] ?? codePoint(char));

/** As JSON on one line; a parser reads the same data. */
export function jsonLine(value: unknown): string {
  return (JSON.stringify(value) ?? "null").replace(UNSAFE, (char) =>
    char.length === 1
      ? codePoint(char)
      : [...Array(char.length).keys()].map((at) => codePoint(char.charAt(at))).join(""),
  );
}

/** How many columns a terminal needs for a text without unsafe characters. */
export function widthOf(text: string): number {
  let width = 0;
  for (const char of text) width += columnsOf(char);
  return width;
}

const NO_WIDTH = /^(?:[\p{Mn}\p{Me}]|\u200c|\u200d)$/u;
/** East Asian wide characters and emoji. */
const WIDE =
  /^[\u1100-\u115f\u2e80-\u303e\u3041-\u33ff\u3400-\u4dbf\u4e00-\u9fff\ua000-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6\u{1f300}-\u{1f64f}\u{1f680}-\u{1f6ff}\u{1f900}-\u{1f9ff}\u{20000}-\u{3fffd}]$/u;

const columnsOf = (char: string): number => (char < "\u0300" ? 1 : NO_WIDTH.test(char) ? 0 : WIDE.test(char) ? 2 : 1);

/** The text in at most `width` columns; what was cut is shown as "…". */
export function cut(text: string, width: number): string {
  if (widthOf(text) <= width) return text;
  if (width <= 0) return "";
  let used = 0;
  let kept = "";
  for (const char of text) {
    used += columnsOf(char);
    if (used > width - 1) break;
    kept += char;
  }
  return `${kept}…`;
}

const padded = (text: string, width: number, isRight: boolean): string => {
  const spaces = " ".repeat(Math.max(0, width - widthOf(text)));
  return isRight ? spaces + text : text + spaces;
};

// -------------------------------------------------------------------------------------------------------- cells

/** A time as people read it: UTC, to the second. */
const TIME = /^(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:\.\d+)?Z$/;

/** Any value as the text of a cell. */
export function shown(value: unknown): string {
  if (value === null || value === undefined) return "";
  if (typeof value === "string") {
    const time = TIME.exec(value);
    return time === null ? escaped(value) : `${time[1]} ${time[2]}Z`;
  }
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (Array.isArray(value) && value.every((one) => typeof one !== "object" || one === null))
    return value.map(shown).join(", ");
  return typeof value === "object" ? escaped(JSON.stringify(value)) : String(value);
}

const STYLES: Readonly<Record<string, Style>> = {
  completed: "green",
  active: "green",
  ok: "green",
  running: "cyan",
  waiting: "yellow",
  queued: "yellow",
  pending: "yellow",
  paused: "yellow",
  undeclared: "yellow",
  warning: "yellow",
  failed: "red",
  timed_out: "red",
  expired: "red",
  parked: "red",
  blocked: "red",
  problem: "red",
  revoked: "red",
  canceled: "dim",
};

/** The color of a status word. */
export const statusStyle = (status: string): Style => STYLES[status] ?? "plain";

/** "1 task", "2 tasks". */
export const counted = (count: number, noun: string): string => `${count} ${noun}${count === 1 ? "" : "s"}`;

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

export function bytesShown(bytes: number): string {
  let left = bytes;
  let unit = 0;
  for (; left >= 1024 && unit < UNITS.length - 1; unit++) left /= 1024;
  return `${unit === 0 ? left : left.toFixed(1)} ${UNITS[unit]}`;
}

// ------------------------------------------------------------------------------------------------------- tables

export interface Column<Item> {
  readonly title: string;
  readonly of: (item: Item) => unknown;
  readonly isRight?: boolean;
  /** The cell is a status word. */
  readonly isStatus?: boolean;
  /** The cell is never cut, as the id that the next command is given. */
  readonly isWhole?: boolean;
}

export interface Look {
  /** The columns of the terminal; undefined where there is none, and nothing is cut. */
  readonly width?: number | undefined;
  readonly color: boolean;
}

const GAP = 2;
/** A column is not made narrower than this, or than its title. */
const NARROWEST = 6;

/** The lines of a table, its titles first. */
export function tableLines<Item>(
  columns: readonly Column<Item>[],
  items: readonly Item[],
  { width, color }: Look,
): readonly string[] {
  const cells = items.map((item) => columns.map(({ of }) => shown(of(item))));
  const wanted = columns.map(({ title }, at) =>
    Math.max(widthOf(title), ...cells.map((row) => widthOf(row[at] ?? ""))),
  );
  const widths =
    width === undefined
      ? wanted
      : narrowed(
          wanted,
          columns.map(({ title, isWhole }, at) =>
            isWhole === true ? (wanted[at] ?? 0) : Math.max(title.length, NARROWEST),
          ),
          width,
        );
  const line = (texts: readonly string[], styleOf: (at: number) => Style): string => {
    const last = texts.length - 1;
    const parts = texts.map((text, at) => {
      const fitted = cut(text, widths[at] ?? 0);
      const isRight = columns[at]?.isRight === true;
      const aligned = at === last && !isRight ? fitted : padded(fitted, widths[at] ?? 0, isRight);
      return painted(aligned, styleOf(at), color);
    });
    return parts.join(" ".repeat(GAP)).trimEnd();
  };
  const titles = line(
    columns.map(({ title }) => title),
    () => "bold",
  );
  return [
    titles,
    ...cells.map((row) => line(row, (at) => (columns[at]?.isStatus === true ? statusStyle(row[at] ?? "") : "plain"))),
  ];
}

/** Takes from the widest column, one at a time, until all fit; what then still does not fit is left to the terminal, which begins another line. */
function narrowed(wanted: readonly number[], least: readonly number[], width: number): readonly number[] {
  const widths = [...wanted];
  let over = widths.reduce((sum, one) => sum + one, 0) + GAP * (widths.length - 1) - width;
  while (over > 0) {
    let widest = -1;
    for (const [at, one] of widths.entries())
      if (one > (least[at] ?? 0) && (widest < 0 || one > (widths[widest] ?? 0))) widest = at;
    if (widest < 0) return widths;
    widths[widest] = (widths[widest] ?? 0) - 1;
    over -= 1;
  }
  return widths;
}

/** The lines of one thing: its fields below each other. Fields without a value are left out. */
export function fieldLines(
  fields: readonly (readonly [name: string, value: unknown])[],
  look: Look,
): readonly string[] {
  const there = fields.filter(([, value]) => value !== null && value !== undefined && shown(value) !== "");
  const names = Math.max(0, ...there.map(([name]) => widthOf(name)));
  return there.map(([name, value]) => {
    const text = shown(value);
    const room = look.width === undefined ? text : cut(text, Math.max(NARROWEST, look.width - names - GAP));
    const style = name === "status" || name === "state" ? statusStyle(text) : "plain";
    return `${painted(padded(name, names, false), "dim", look.color)}${" ".repeat(GAP)}${painted(room, style, look.color)}`;
  });
}

/** The lines that say where an error was thrown. */
export const framesShown = (of: string, stack: string | undefined): readonly string[] =>
  stack === undefined ? [] : ["", `stack of ${of}:`, ...stack.split("\n").map((frame) => `  ${escaped(frame)}`)];
