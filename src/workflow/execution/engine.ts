/**
 * What an execution needs of the worker that it belongs to (`worker.ts`).
 */

import type { Held } from "../../kernel/claim/claim.ts";
import type { Address } from "../../kernel/contract.ts";
import type { Tx } from "../../kernel/decision.ts";
import type { Kernel } from "../../kernel/kernel.ts";
import type { AcquireTokensOptions, RateLimitOptions } from "../../rate/rate.ts";
import type { RunEvent, RunListener } from "../events.ts";
import type { HandOver } from "../flow/hand-over.ts";
import type { RunValue } from "../stored.ts";

/** What `ctx` needs of the worker: turns in rate limits, and checks. */
export interface Turns {
  /** Refuses what could not be stored: in the commit it would be too late for the code to catch it. */
  checkValue?(value: unknown): void;
  /** Whether this process has not declared yet that a semaphore has this many permits. */
  declares(name: string, permits: number): boolean;
  limit(
    name: string,
    options: RateLimitOptions,
  ): {
    checkWish?(wish: Pick<AcquireTokensOptions, "count" | "key" | "timeout">): void;
    recordOf(key: string | undefined): Address;
    reserveIn(
      tx: Tx,
      wish: Pick<AcquireTokensOptions, "count" | "key" | "timeout">,
    ): { readonly isGranted: boolean; readonly waitMs: number };
  };
}

/** What executions of one process share. */
export interface Engine extends Turns {
  readonly kernel: Kernel;
  readonly leaseMs: number;
  /** For how long workers may contradict a run's history before it is parked. */
  readonly contradictionMs: number;
  /** The code here contradicts the run's history, or something that it needs is missing here: it is left to other workers for a while. */
  shun(run: string): void;
  /** True once the worker takes no more runs and releases those that it has. */
  readonly isStopping: boolean;
  /** Notes whose code runs from now on. */
  running(run: string): void;
  /** How long a run of this workflow is kept after it has ended with this status; null is forever. */
  keptMs(workflow: string, status: string): number | null;
  /** Whether runs of this pool of the workflow are worked on here. */
  takes(workflow: string, pool: string): boolean;
  /**
   * The code of this run has ended, and only that is left to be written. Returns how that commit takes the run that it admits for this process; undefined
   * if the run holds no place.
   */
  ending(held: Held, value: RunValue): HandOver | undefined;
  /** Whether a listener wants events of this type. */
  isWanted(type: RunEvent["type"]): boolean;
  emit(event: RunEvent): void;
  readonly around: RunListener["around"];
}
