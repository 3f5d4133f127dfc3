/**
 * The capabilities of a handle, in one list. This is the only file that names them all: `Pawl` and `Tx` go through the list, and so do
 * workers and sweeps.
 */

import { type ActionSetup, type ActionTxVerbs, type ActionVerbs, actionCapability } from "./action/capability.ts";
import { type IdempotencyTxVerbs, type IdempotencyVerbs, idempotencyCapability } from "./idempotency/capability.ts";
import type { Capability } from "./kernel/capability.ts";
import type { Kernel } from "./kernel/kernel.ts";
import type { Log } from "./kernel/log.ts";
import type { Prepare } from "./kernel/sql/in-sql.ts";
import { type LockTxVerbs, type LockVerbs, lockCapability } from "./lock/capability.ts";
import { type MachineTxVerbs, type MachineVerbs, machineCapability } from "./machine/capability.ts";
import { type RateTxVerbs, type RateVerbs, rateCapability } from "./rate/capability.ts";
import { RateLimits } from "./rate/rate.ts";
import { type ScheduleVerbs, scheduleCapability } from "./schedule/capability.ts";
import type { Schedule } from "./schedule/definition.ts";
import { type SlotTxVerbs, type SlotVerbs, slotCapability } from "./slot/capability.ts";
import { type StreamTxVerbs, type StreamVerbs, streamCapability } from "./stream/capability.ts";
import type { Archive } from "./stream/closing/archive.ts";
import type { SubjectKeys } from "./stream/personal/keys.ts";
import type { StreamPolicy } from "./stream/policies/definition.ts";
import type { Projection, SqlProjection } from "./stream/projections/definition.ts";
import type { Reaction } from "./stream/reactions/definition.ts";
import { type TaskTxVerbs, type TaskVerbs, taskCapability } from "./task/capability.ts";
import type { HttpTasks } from "./task/definition.ts";
import type { SharedWorkOptions } from "./worker.ts";
import { type WorkflowTxVerbs, type WorkflowVerbs, workflowCapability } from "./workflow/capability.ts";
import type { AnyWorkflow } from "./workflow/definitions/definition.ts";
import type { RetentionPolicy } from "./workflow/definitions/retention.ts";
import type { RunWorkOptions } from "./workflow/execution/work-options.ts";
import { runHooks } from "./workflow/locks/locks.ts";
import { Runs } from "./workflow/runs/runs.ts";

/** What `pawl.work` takes: the definitions of every capability that has some, and the options of all of them. */
export type WorkDefinition = AnyWorkflow | Reaction | Projection | SqlProjection | StreamPolicy | Schedule | HttpTasks;
export interface WorkOptions extends SharedWorkOptions, RunWorkOptions {}

/** What capabilities are made with. */
export interface CapabilityOptions {
  readonly log?: Log | undefined;
  readonly retention?: RetentionPolicy | undefined;
  readonly actions?: ActionSetup | undefined;
  readonly subjectKeys?: SubjectKeys | undefined;
  readonly archive?: Archive | undefined;
}

/** The verbs of all capabilities on the handle. */
export interface Verbs<Face, Touch>
  extends SlotVerbs,
    LockVerbs,
    RateVerbs,
    ActionVerbs,
    IdempotencyVerbs<Face, Touch>,
    MachineVerbs,
    StreamVerbs,
    WorkflowVerbs,
    ScheduleVerbs,
    TaskVerbs {}

/** The verbs of all capabilities inside a decision. */
export interface TxVerbs
  extends SlotTxVerbs,
    LockTxVerbs,
    RateTxVerbs,
    ActionTxVerbs,
    IdempotencyTxVerbs,
    MachineTxVerbs,
    StreamTxVerbs,
    WorkflowTxVerbs,
    TaskTxVerbs {}

export function capabilitiesOf<Face, Touch>(
  kernel: Kernel,
  prepare: Prepare<Face, Touch>,
  { actions, archive, log, retention, subjectKeys }: CapabilityOptions,
): readonly Capability[] {
  const rates = new RateLimits(kernel);
  const runs = new Runs(kernel, rates, log, retention);
  return [
    slotCapability(kernel),
    lockCapability(kernel, runHooks),
    rateCapability(kernel, rates),
    actionCapability(kernel, actions),
    idempotencyCapability(kernel, prepare),
    machineCapability(kernel),
    streamCapability(kernel, prepare, { log, archive, keys: actions?.options?.keys, subjectKeys }),
    // Before workflows: the workflow of tasks is not worked on as one.
    taskCapability(kernel, runs, actions?.options?.keys),
    workflowCapability(kernel, runs),
    scheduleCapability(kernel, log),
  ];
}
