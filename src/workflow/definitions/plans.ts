/**
 * Plans: what is to be done for an operation, as the code started it.
 */

import type { Sql, SyncDatabase } from "../../kernel/contract.ts";
import type { Tx } from "../../kernel/decision.ts";
import type { Retry } from "../../kernel/retry.ts";
import type { SqlExecutor } from "../../kernel/sql/executors.ts";
import type { LockRef, Mode } from "../../lock/stored.ts";
import type { TxSlot } from "../../slot/slot.ts";
import type { StartFlow } from "../runs/start.ts";

/** The argument of a step's function. */
export interface StepHandle<Progress = unknown> {
  /** The same each time this step runs, and no other step's: pass it on as an idempotency key. */
  readonly key: string;
  /** 1 for the first attempt. */
  readonly attempt: number;
  /** Aborts when the run is canceled or times out, when the attempt does, when the lease is lost, and when the worker shuts down. */
  readonly abortSignal: AbortSignal;
  /** What the last `heartbeat` of an earlier attempt left, if any. */
  readonly progress: Progress | undefined;
  /** Says that the step is alive, and keeps how far it is. */
  heartbeat(progress?: Progress): void;
}

/** Whether a step that may have happened did. */
export type Reconciled<T> =
  | { readonly done: true; readonly value: T }
  | { readonly done: false }
  | { readonly unknown: true };

export type StepMode =
  | { readonly is: "plain"; readonly run: (step: StepHandle) => unknown }
  | {
      readonly is: "once";
      readonly run: (step: StepHandle) => unknown;
      readonly reconcile: ((step: { readonly key: string }) => unknown) | undefined;
    }
  | { readonly is: "sql"; readonly run: (sql: Sql, step: StepHandle) => unknown }
  | { readonly is: "sync"; readonly run: (db: SyncDatabase, step: StepHandle) => unknown }
  | { readonly is: "within"; readonly run: WithinFunction };

/** Opens a transaction, does its work in it, and calls `record` before it commits. */
export type WithinFunction = (
  record: (executor: SqlExecutor, value?: unknown) => Promise<void>,
  step: StepHandle,
) => unknown;

export interface StepPlan {
  readonly kind: "step";
  readonly mode: StepMode;
  readonly retry: Retry;
  /** For an attempt, and for all of them with the waits between. */
  readonly timeoutMs: number | null;
  readonly totalTimeoutMs: number | null;
  /** The longest time between two heartbeats. */
  readonly heartbeatMs: number | null;
  /** Reserves a turn in a rate limit; each attempt takes one. */
  readonly turn?: RatePlan["reserve"] | undefined;
  /** The name of that limit. */
  readonly rateLimit?: string | undefined;
}

export interface SleepPlan {
  readonly kind: "sleep";
  readonly ms: number | null;
  readonly untilMs: number | null;
}

export interface SignalPlan {
  readonly kind: "signal";
  readonly names: readonly string[];
  readonly timeoutMs: number | null;
}

export interface ChildPlan {
  readonly kind: "child";
  readonly workflow: string;
  readonly childId: string | undefined;
  readonly input: unknown;
  /** Of the input; null where the id is made for this operation, so that no other input can be under it. */
  readonly fingerprint: string | null;
  readonly timeoutMs: number | null;
  /** The code waits for its result, not only for its start. */
  readonly waits: boolean;
  /** What it passes before it begins, if the code of its workflow is here. */
  readonly flow?: StartFlow | undefined;
  /** What happens to it when the parent ends first. */
  readonly whenParentEnds: "cancel" | "leave";
}

export interface SlotPlan {
  readonly kind: "slot";
  readonly space: string;
  readonly key: string;
  readonly initial: unknown;
  /** What `act` does, and the scope of the slot. */
  readonly verb: string;
  readonly act: (slot: TxSlot<unknown, unknown>) => unknown;
}

/** An append or a command: a decision on one stream. */
export interface StreamPlan {
  readonly kind: "stream";
  readonly stream: string;
  /** What `act` does. */
  readonly verb: string;
  readonly act: (tx: Tx) => unknown;
}

export interface LockPlan {
  readonly kind: "lock";
  readonly refs: readonly LockRef[];
  readonly mode: Mode;
  readonly permits: number | null;
  readonly declares: boolean;
  /** Whether it takes a place in the queue. */
  readonly queue: boolean;
  /** Whether it settles immediately, granted or not. */
  readonly isTry: boolean;
  readonly timeoutMs: number | null;
  /** The operation whose place in the queue it takes over. */
  readonly resumes?: string | undefined;
}

export interface UnlockPlan {
  readonly kind: "unlock";
  /** The operation that got it. */
  readonly of: string;
}

export interface RatePlan {
  readonly kind: "rate";
  /** How much of what is reserved. */
  readonly verb: string;
  /** Reserves a turn, and returns how long it is until then. */
  readonly reserve: (tx: Tx) => { readonly isGranted: boolean; readonly waitMs: number };
}

export type Plan =
  | StepPlan
  | SleepPlan
  | SignalPlan
  | ChildPlan
  | SlotPlan
  | StreamPlan
  | LockPlan
  | UnlockPlan
  | RatePlan;
