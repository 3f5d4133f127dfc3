/** Schedules as a capability of the handle. */

import type { Capability } from "../kernel/capability.ts";
import type { Kernel } from "../kernel/kernel.ts";
import { scheduleRules } from "./definition.ts";
import { Schedules } from "./schedules.ts";
import { createdQueue, ScheduleWorker } from "./worker.ts";

export interface ScheduleVerbs {
  /** Schedules: those that are created at run time, and what can be done with any. */
  readonly schedules: Schedules;
}

export function scheduleCapability(kernel: Kernel): Capability {
  const schedules = new Schedules(kernel);
  const verbs: ScheduleVerbs = { schedules };
  return {
    verbs,
    queues: [createdQueue(kernel)],
    works: {
      accepts: (definition) => scheduleRules(definition) !== undefined,
      start: (definitions, settings) => {
        const all = definitions.flatMap((one) => scheduleRules(one) ?? []);
        const worker = new ScheduleWorker(kernel, all, settings);
        const forget = schedules.know(all);
        return {
          stop: async (timeoutMs) => {
            forget();
            await worker.stop(timeoutMs);
          },
        };
      },
    },
  };
}
