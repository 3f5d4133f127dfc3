/**
 * What is logged about runs: the events that an operator must know of although no listener is set.
 */

import { type Log, messageOf } from "../../kernel/log.ts";
import { HistoryContradictionError } from "../errors.ts";
import type { RunEvent } from "../events.ts";
import type { RunStatus } from "../stored.ts";

export function logRunEvent(log: Log, event: RunEvent): void {
  const which = `run "${event.run}" of "${event.workflow}"`;
  switch (event.type) {
    case "run.parked":
      log.error(`${which} is parked until an operator resolves it: ${event.message}`);
      return;
    case "run.ended":
      if (IS_LOGGED[event.status]) log.warn(`${which} failed: ${messageOf(event.error)}`);
      return;
    case "run.warning":
      log.warn(`${which}: ${event.message}`);
      return;
    case "run.trouble":
      if (event.error instanceof HistoryContradictionError)
        log.error(`${event.error.message}. It is left to workers with other code`);
      else log.trouble(event.error, event.run === "" ? undefined : which);
      return;
  }
}

/** Whether the end of a run with this status is logged. */
const IS_LOGGED: Readonly<Record<RunStatus, boolean>> = {
  failed: true,
  completed: false,
  canceled: false,
  timed_out: false,
  expired: false,
  pending: false,
  queued: false,
  running: false,
  waiting: false,
  parked: false,
};

/** The types of events that are logged, so that others cost nothing. */
export const LOGGED: ReadonlySet<RunEvent["type"]> = new Set<RunEvent["type"]>([
  "run.parked",
  "run.ended",
  "run.warning",
  "run.trouble",
]);
