/** Workflows as a capability of the handle. */

import type { Capability } from "../kernel/capability.ts";
import { checkId, checkOptions, optionNames } from "../kernel/check.ts";
import type { Tx } from "../kernel/decision.ts";
import type { Kernel } from "../kernel/kernel.ts";
import type { SentWith, WithInput } from "./definitions/context-types.ts";
import { type AnyWorkflow, definitionOf, type Signal, type Workflow } from "./definitions/definition.ts";
import { RUN_WORK_OPTIONS } from "./execution/work-options.ts";
import type { PausedWorkflow } from "./flow/paused.ts";
import { type WaitReason, type WaitSubject, whyWaiting } from "./locks/why.ts";
import { Run, type RunListOptions, type RunPage, type SignalOptions, type StartOptions } from "./runs/run.ts";
import type { Runs } from "./runs/runs.ts";

export interface WorkflowVerbs {
  /** Starts a run. The same id again is the same run. A workflow whose code is not here can be started by its name. */
  start<Input, Output>(
    workflow: Workflow<Input, Output>,
    ...rest: WithInput<Input, StartOptions>
  ): Promise<Run<Output>>;
  start(workflow: string, input?: unknown, options?: StartOptions): Promise<Run>;
  /**
   * Returns a handle on a run that was started here or elsewhere. With the workflow, its result has a type, and a run of another workflow
   * is refused as `run_conflict`; by its id alone, the run may be of any workflow.
   */
  run<Output>(workflow: Workflow<never, Output>, id: string): Run<Output>;
  run(workflow: string, id: string): Run;
  run(id: string): Run;
  /** All runs. */
  readonly runs: {
    list(options?: RunListOptions): Promise<RunPage>;
    /**
     * Deletes a run that has ended, or whose record cannot be read: its record, its history, its inbox, the ids of its signals and, for the
     * root of a tree, the slots of the tree. Throws `run_alive` for any other run, and `run_not_found`.
     */
    delete(id: string): Promise<void>;
  };
  /** Workflows whose runs do not begin for now. */
  readonly workflows: {
    /**
     * Lets no more runs of a workflow begin, in all processes. Those that have begun continue; others wait, and none is lost. A name that no workflow has is
     * paused, too: only workers know which there are.
     */
    pause(workflow: string | AnyWorkflow, options?: { readonly reason?: string | undefined }): Promise<void>;
    /** Lets them begin again. Returns whether it was paused. */
    resume(workflow: string | AnyWorkflow): Promise<boolean>;
    /** Those that are paused. */
    paused(): Promise<readonly PausedWorkflow[]>;
  };
  /** Says why a run, or a waiter for a lock, does not continue: link by link, down to what would have to happen. */
  whyWaiting(subject: WaitSubject): Promise<WaitReason>;
}

export interface WorkflowTxVerbs {
  /** Starts a run, if this commit happens; returns its id. */
  start<Input>(workflow: Workflow<Input, unknown>, ...rest: WithInput<Input, StartOptions>): string;
  start(workflow: string, input?: unknown, options?: StartOptions): string;
  /** Sends a signal to a run, if this commit happens; returns whether it is new. */
  signal<Payload, Given = unknown>(
    run: string,
    signal: Signal<Payload, string, Given>,
    ...rest: WithInput<SentWith<Payload, Given>, SignalOptions>
  ): boolean;
}

const PAUSE_OPTIONS = optionNames<{ reason?: unknown }>({ reason: true });

type Named = string | { readonly name: string };

/** @internal */
export function workflowCapability(kernel: Kernel, runs: Runs): Capability {
  const verbs: WorkflowVerbs = {
    start: async (workflow: Named, input?: unknown, options?: StartOptions) => {
      const id = await runs.starter.start(workflow, input, options);
      return new Run(runs, nameOf(workflow), id);
    },
    run: (...given: [id: string] | [workflow: Named, id: string]) => {
      if (given.length === 1) return new Run(runs, undefined, checkId(given[0], "the run's id"));
      // A workflow that is undefined by mistake must not stand for any workflow.
      const [workflow, id] = given;
      return new Run(runs, checkId(nameOf(workflow), "the workflow"), checkId(id, "the run's id"));
    },
    runs: { list: (options) => runs.list(options), delete: (id) => runs.delete(id) },
    workflows: {
      pause: async (workflow, options) => {
        checkOptions(options, PAUSE_OPTIONS);
        return runs.paused.pause(nameOf(workflow), options);
      },
      resume: async (workflow) => runs.paused.resume(nameOf(workflow)),
      paused: () => runs.paused.list(),
    },
    whyWaiting: (subject) => whyWaiting(kernel, subject, (row) => runs.doing(row)),
  };
  return {
    verbs,
    view: {
      start: (tx: Tx, workflow: Named, input?: unknown, options?: StartOptions) =>
        runs.starter.startIn(tx, workflow, input, options),
      signal: (tx: Tx, run: string, signal: Signal<unknown>, payload?: unknown, options?: SignalOptions) =>
        runs.signalIn(tx, run, signal, payload, options),
    },
    scoped: (origin) => ({
      start: async (workflow: Named, input?: unknown, options?: StartOptions) => {
        const id = await runs.starter.start(workflow, input, options, origin);
        return new Run(runs, nameOf(workflow), id);
      },
    }),
    queues: runs.queues,
    check: () => runs.paused.read(),
    works: {
      options: RUN_WORK_OPTIONS,
      accepts: (definition) => definitionOf(definition) !== undefined,
      start: (definitions, settings, options) =>
        runs.work(
          definitions.flatMap((one) => definitionOf(one) ?? []),
          settings,
          options,
        ),
    },
  };
}

const nameOf = (workflow: Named): string => (typeof workflow === "string" ? workflow : workflow?.name);
