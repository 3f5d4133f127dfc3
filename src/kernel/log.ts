/**
 * Log: one line for each event that an operator should know of and that no caller receives, such as a parked run.
 *
 * Lines are rate-limited, so that an outage or a broken deploy does not fill a disk; the next line says how many were left out.
 */

import { InvalidArgumentError, StoreError } from "./errors.ts";
import type { Clock } from "./ports.ts";

/** Receives the lines: `console`, pino, or any object with these two methods. */
export interface Logger {
  warn(message: string): void;
  error(message: string): void;
}

/** At most `MOST_LINES` lines per `PER_MS`. */
const MOST_LINES = 20;
const PER_MS = 10_000;

/** A store that cannot be reached is logged after this long, and then at most once in this time. */
const OUTAGE_MS = { first: 5000, again: 60_000 };
/** After this long without a failure, the outage is over. */
const OVER_MS = 15_000;

/** Calls a listener of the user. If it throws, or its promise rejects, the error is ignored: it must neither stop the work nor end the process. */
export function callQuietly(call: () => unknown): void {
  try {
    const returned = call();
    if (returned !== undefined) Promise.resolve(returned).catch(() => {});
  } catch {
    // Ignored, as a rejection is.
  }
}

export const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));

export class Log {
  readonly #logger: Logger;
  readonly #clock: Pick<Clock, "nowMs">;
  /** No logger was given, so a listener of the user replaces the lines. */
  readonly isDefault: boolean;
  #sinceMs = Number.NEGATIVE_INFINITY;
  #lines = 0;
  #leftOut = 0;
  #outage: { readonly sinceMs: number; lastMs: number; loggedMs: number } | undefined;

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

  /** What a worker, or something that it works on, failed with. A store that is not reached is one line for a whole outage. */
  trouble(error: unknown, of = "the worker"): void {
    if (error instanceof StoreError) this.#storeFailed(error);
    else this.warn(`${of} had trouble: ${messageOf(error)}`);
  }

  #storeFailed(error: StoreError): void {
    const nowMs = this.#clock.nowMs();
    if (this.#outage === undefined || nowMs - this.#outage.lastMs > OVER_MS)
      this.#outage = { sinceMs: nowMs, lastMs: nowMs, loggedMs: Number.NEGATIVE_INFINITY };
    const outage = this.#outage;
    outage.lastMs = nowMs;
    const isLong = nowMs - outage.sinceMs >= OUTAGE_MS.first;
    if (!isLong || nowMs - outage.loggedMs < OUTAGE_MS.again) return;
    outage.loggedMs = nowMs;
    const seconds = Math.round((nowMs - outage.sinceMs) / 1000);
    this.error(`the worker has not reached its store for ${seconds} s (${error.code}): ${error.message}`);
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

/** Checks the option `logger`: a logger, false for none, undefined for the default. Throws `invalid_argument`. */
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
    throw new InvalidArgumentError(
      "the logger",
      "must have the methods warn and error, as console and pino do, or be false",
    );
  return logger as unknown as Logger;
}
