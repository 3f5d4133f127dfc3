/**
 * What is logged about runs: the events that someone must know of although no listener is set.
 */

import { StoreError } from "../kernel/errors.ts";
import type { Log } from "../kernel/log.ts";
import { HistoryContradictionError } from "./errors.ts";
import type { RunEvent } from "./events.ts";

/** A store that cannot be reached is logged after this long, and then no more often than this. */
const OUTAGE_MS = { first: 5000, again: 60_000 };
/** After this long without a failure, the outage is over. */
const OVER_MS = 15_000;

export class RunLines {
  readonly #log: Log;
  readonly #nowMs: () => number;
  #outage: { readonly sinceMs: number; lastMs: number; loggedMs: number } | undefined;

  constructor(log: Log, nowMs: () => number) {
    this.#log = log;
    this.#nowMs = nowMs;
  }

  told(event: RunEvent): void {
    const which = `run "${event.run}" of "${event.workflow}"`;
    switch (event.type) {
      case "run.parked":
        this.#log.error(`${which} is parked until an operator resolves it: ${event.message}`);
        return;
      case "run.ended":
        if (event.status === "failed") this.#log.warn(`${which} failed: ${messageOf(event.error)}`);
        return;
      case "run.warning":
        this.#log.warn(`${which}: ${event.message}`);
        return;
      case "run.trouble":
        if (event.error instanceof HistoryContradictionError)
          this.#log.error(`${event.error.message}. It is left to workers with other code`);
        else if (event.error instanceof StoreError) this.#storeFailed(event.error);
        else this.#log.warn(`${event.run === "" ? "the worker" : which} had trouble: ${messageOf(event.error)}`);
        return;
    }
  }

  #storeFailed(error: StoreError): void {
    const nowMs = this.#nowMs();
    if (this.#outage === undefined || nowMs - this.#outage.lastMs > OVER_MS)
      this.#outage = { sinceMs: nowMs, lastMs: nowMs, loggedMs: Number.NEGATIVE_INFINITY };
    const outage = this.#outage;
    outage.lastMs = nowMs;
    const isLong = nowMs - outage.sinceMs >= OUTAGE_MS.first;
    if (!isLong || nowMs - outage.loggedMs < OUTAGE_MS.again) return;
    outage.loggedMs = nowMs;
    const seconds = Math.round((nowMs - outage.sinceMs) / 1000);
    this.#log.error(`the worker has not reached its store for ${seconds} s (${error.code}): ${error.message}`);
  }
}

/** The types of events that are logged, so that others cost nothing. */
export const LOGGED: ReadonlySet<RunEvent["type"]> = new Set<RunEvent["type"]>([
  "run.parked",
  "run.ended",
  "run.warning",
  "run.trouble",
]);

const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));
