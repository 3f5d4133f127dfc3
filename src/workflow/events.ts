/**
 * Events: what happens in the runs of this process, for logs, live views and tracing.
 */

import type { RunStatus } from "./stored.ts";

/** What any event may have; each type says what it surely has. */
interface OfRun {
  readonly workflow: string;
  readonly run: string;
  readonly step?: string;
  readonly attempt?: number;
  readonly status?: RunStatus;
  readonly error?: unknown;
  readonly message?: string;
  readonly data?: unknown;
}

interface OfStep extends OfRun {
  readonly step: string;
}

export type RunEvent =
  /** Work on it began, for the first time or again; or it was released until something is due, or for another worker. */
  | (OfRun & { readonly type: "run.started" | "run.resumed" | "run.rested" })
  | (OfRun & { readonly type: "run.ended"; readonly status: RunStatus; readonly error?: unknown })
  /** It waits for an operator; `message` says why. */
  | (OfRun & { readonly type: "run.parked"; readonly message: string })
  /** Another worker holds it, or may; or something went wrong here, and it is tried again. */
  | (OfRun & { readonly type: "run.lost" | "run.trouble"; readonly error: unknown })
  | (OfStep & { readonly type: "step.started"; readonly attempt: number })
  | (OfStep & { readonly type: "step.completed" })
  | (OfStep & { readonly type: "step.failed"; readonly error: unknown })
  /** An attempt failed, and there will be another. */
  | (OfStep & { readonly type: "step.retried"; readonly attempt: number; readonly error: unknown })
  /** The code of the run does something that is surely a mistake, and that has no effect; `message` says what. */
  | (OfRun & { readonly type: "run.warning"; readonly message: string })
  /** From `ctx.log`. */
  | (OfRun & { readonly type: "log"; readonly message: string; readonly data?: unknown });

/** An event without the run it is about. */
export type EventBody<E = RunEvent> = E extends OfRun ? Omit<E, "workflow" | "run"> : never;

/** Receives the events of a worker. */
export interface RunListener {
  (event: RunEvent): void;
  /** Called for the attempt of the `step.started` event: it runs `work` and returns what that returned, unchanged. For tracing. */
  readonly around?: (<T>(event: RunEvent, work: () => T) => T) | undefined;
}
