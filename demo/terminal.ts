/**
 * The terminal: styled lines, cut to its width, and a screen that is redrawn in place.
 *
 * The live screen is the terminal's alternate screen, so that resizing leaves no remains and leaving it restores the previous
 * content. A frame is written in one piece, line over line without clearing first, so it does not flicker.
 *
 * Guarantees: no color where NO_COLOR is set or the output is not a terminal; the cursor is restored by `leave`.
 */

import type { WriteStream } from "node:tty";

export type Style = "plain" | "bold" | "dim" | "red" | "green" | "yellow" | "cyan" | "good" | "bad";

/** A line is a list of texts, each with its style; the widths of texts are measured before they are styled. */
export type Line = readonly (readonly [text: string, style?: Style])[];

const CODES: Record<Exclude<Style, "plain">, string> = {
  bold: "1",
  dim: "2",
  red: "31",
  green: "32",
  yellow: "33",
  cyan: "36",
  good: "1;30;42",
  bad: "1;37;41",
};

const ESC = "\u001b[";

/** Whether frames can be drawn on it. */
export function isScreen(out: WriteStream): boolean {
  return out.isTTY === true && process.env["TERM"] !== "dumb";
}

/** By no-color.org: set and not empty, whatever its value. */
export function hasColor(out: WriteStream): boolean {
  return isScreen(out) && (process.env["NO_COLOR"] ?? "") === "";
}

/** The line as text, no wider than `width`. */
export function paint(line: Line, options: { readonly width?: number; readonly color: boolean }): string {
  let left = options.width ?? Number.POSITIVE_INFINITY;
  let painted = "";
  for (const [text, style = "plain"] of line) {
    const cut = text.length > left ? text.slice(0, left) : text;
    left -= cut.length;
    painted += options.color && style !== "plain" && cut !== "" ? `${ESC}${CODES[style]}m${cut}${ESC}0m` : cut;
  }
  return painted;
}

export class Screen {
  readonly #out: WriteStream;
  readonly #color: boolean;
  #entered = false;

  constructor(out: WriteStream) {
    this.#out = out;
    this.#color = hasColor(out);
  }

  get width(): number {
    return this.#out.columns;
  }

  get height(): number {
    return this.#out.rows;
  }

  draw(lines: readonly Line[]): void {
    const enter = this.#entered ? "" : `${ESC}?1049h${ESC}?25l`;
    this.#entered = true;
    const painted = lines
      .slice(0, this.height)
      .map((line) => `${paint(line, { width: this.width, color: this.#color })}${ESC}K`);
    // Terminals with synchronized output show the frame when it is complete; the others ignore the marks around it.
    this.#out.write(`${enter}${ESC}?2026h${ESC}H${painted.join("\r\n")}${ESC}J${ESC}?2026l`);
  }

  leave(): void {
    if (!this.#entered) return;
    this.#entered = false;
    this.#out.write(`${ESC}?25h${ESC}?1049l`);
  }
}

/** Prints lines that stay. */
export function print(out: WriteStream, lines: readonly Line[]): void {
  for (const line of lines) out.write(`${paint(line, { color: hasColor(out) })}\n`);
}
