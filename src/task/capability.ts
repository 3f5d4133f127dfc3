/** Tasks as a capability of the handle. */

import type { Capability, View } from "../kernel/capability.ts";
import { InvalidArgumentError } from "../kernel/errors.ts";
import type { Kernel } from "../kernel/kernel.ts";
import type { RingKeys } from "../kernel/seal/ring.ts";
import type { Runs } from "../workflow/runs/runs.ts";
import { Core } from "./core.ts";
import { httpTask, taskSettings } from "./definition.ts";
import { Tasks } from "./tasks.ts";
import { TxTasks } from "./tx-tasks.ts";

export interface TaskVerbs {
  /** HTTP calls that are made until they succeed, and may then wait for a signal. */
  readonly tasks: Tasks;
}

export interface TaskTxVerbs {
  /** Tasks: created, completed and canceled in this commit. */
  readonly tasks: TxTasks;
}

/** @internal */
export function taskCapability(kernel: Kernel, runs: Runs, keys: RingKeys | undefined): Capability {
  const core = new Core(kernel, runs, keys);
  const verbs: TaskVerbs = { tasks: new Tasks(core) };
  const properties: View<TaskTxVerbs> = { tasks: (tx) => new TxTasks(tx, core) };
  return {
    verbs,
    properties,
    queues: core.queues,
    scoped: (origin) => ({ tasks: new Tasks(core, origin) }),
    mend: (error) => core.mend(error),
    works: {
      accepts: (definition) => taskSettings(definition) !== undefined || definition === httpTask,
      start: (definitions, shared, options) => {
        const [settings, ...more] = definitions.map(taskSettings);
        // The workflow alone has no secrets, and no list of addresses.
        if (settings === undefined || more.length > 0)
          throw new InvalidArgumentError("what to work on", "must have httpTasks() once, and not httpTask");
        return core.work(settings, shared, options);
      },
    },
  };
}
