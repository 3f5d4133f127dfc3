/**
 * The handle that the server serves: a `Pawl`, as `open` returns it.
 *
 * The type is put together from the verbs of the capabilities, because the layers do not let HTTP import the handle itself, which is above it.
 */

import type { ActionTxVerbs, ActionVerbs } from "../../action/capability.ts";
import type { IdempotencyTxVerbs, IdempotencyVerbs } from "../../idempotency/capability.ts";
import type { Sync } from "../../kernel/decision.ts";
import { InvalidArgumentError } from "../../kernel/errors.ts";
import { Kernel } from "../../kernel/kernel.ts";
import type { Origin } from "../../kernel/origin.ts";
import type { LockVerbs } from "../../lock/capability.ts";
import type { MachineTxVerbs, MachineVerbs } from "../../machine/capability.ts";
import type { RateTxVerbs, RateVerbs } from "../../rate/capability.ts";
import type { ScheduleVerbs } from "../../schedule/capability.ts";
import type { SlotTxVerbs, SlotVerbs } from "../../slot/capability.ts";
import type { StreamTxVerbs, StreamVerbs } from "../../stream/capability.ts";
import type { TaskTxVerbs, TaskVerbs } from "../../task/capability.ts";
import type { WorkflowTxVerbs, WorkflowVerbs } from "../../workflow/capability.ts";

/** What a route's decision works with: the `tx` of the handle. */
export interface ServedTx
  extends SlotTxVerbs,
    RateTxVerbs,
    ActionTxVerbs,
    IdempotencyTxVerbs,
    MachineTxVerbs,
    StreamTxVerbs,
    WorkflowTxVerbs,
    TaskTxVerbs {}

/** The verbs of a request: those of the handle, with the API key as the actor of what it causes. */
export interface ServedVerbs
  extends SlotVerbs,
    LockVerbs,
    RateVerbs,
    ActionVerbs,
    IdempotencyVerbs<ServedTx, never>,
    MachineVerbs,
    StreamVerbs,
    WorkflowVerbs,
    ScheduleVerbs,
    TaskVerbs {
  transact<T>(decide: (tx: ServedTx) => Sync<T>): Promise<T>;
}

/** The part of a `Pawl` that the server uses. */
export interface ServedPawl extends ServedVerbs {
  with(origin: Origin): ServedVerbs;
}

/** The kernel behind a handle. */
export function kernelOf(pawl: ServedPawl): Kernel {
  const { kernel } = (pawl ?? {}) as { readonly kernel?: unknown };
  if (!(kernel instanceof Kernel)) throw new InvalidArgumentError("the handle", "must be a Pawl, as open returns it");
  return kernel;
}
