/**
 * Log: one line for what an operator should know and nobody else may be told, such as a run that is parked.
 *
 * Lines are rate-limited, so that an outage or a broken deploy does not fill a disk; how many were left out is said with the next line.
 */

import { InvalidArgumentError } from "./errors.ts";
import type { Clock } from "./ports.ts";

/** What lines are given to: `console`, pino, or anything with these two methods. */
export interface Logger {
  warn(message: string): void;
  error(message: string): void;
}

/** At most this many lines in this time. */
const MOST_LINES = 20;
const PER_MS = 10_000;

/** Calls what a user gave to be told of something. What it throws, or its promise rejects with, must not stop the work, nor end the process. */
export function callQuietly(call: () => unknown): void {
  try {
    const given = call();
    if (given !== undefined) Promise.resolve(given).catch(() => {});
  } catch {
    // As a promise that rejects.
  }
}

export class Log {
  readonly #logger: Logger;
  readonly #clock: Pick<Clock, "nowMs">;
  /** The lines are the default ones: a listener of the user's own replaces them. */
  readonly isDefault: boolean;
  #sinceMs = Number.NEGATIVE_INFINITY;
  #lines = 0;
  #leftOut = 0;

  constructor(logger: Logger, clock: Pick<Clock, "nowMs">, isDefault: boolean) {
    this.#logger = logger;
    this.#clock = clock;
    this.isDefault = isDefault;
  }

  warn(message: string): void {
    this.#write("warn", message);
  }

  error(message: string): void {
    this.#write("error", message);
  }

  #write(level: keyof Logger, message: string): void {
    const nowMs = this.#clock.nowMs();
    if (nowMs - this.#sinceMs >= PER_MS) {
      this.#sinceMs = nowMs;
      this.#lines = 0;
    }
    if (this.#lines >= MOST_LINES) {
      this.#leftOut += 1;
      return;
    }
    this.#lines += 1;
    const leftOut = this.#leftOut === 0 ? "" : ` (${this.#leftOut} lines before this one were left out)`;
    this.#leftOut = 0;
    callQuietly(() => this.#logger[level](`pawl: ${message}${leftOut}`));
  }
}

/** What the option `logger` says; undefined where nothing is to be logged. */
export function checkLogger(logger: unknown): Logger | false | undefined {
  if (logger === undefined || logger === false) return logger;
  const isLogger =
    typeof logger === "object" &&
    logger !== null &&
    "warn" in logger &&
    "error" in logger &&
    typeof logger.warn === "function" &&
    typeof logger.error === "function";
  if (!isLogger)
    throw new InvalidArgumentError("the logger", "must have warn and error, as console and pino have, or be false");
  return logger as unknown as Logger;
}
