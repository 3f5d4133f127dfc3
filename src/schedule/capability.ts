/** Schedules as a capability of the handle. */

import type { Capability } from "../kernel/capability.ts";
import type { Kernel } from "../kernel/kernel.ts";
import type { Log } from "../kernel/log.ts";
import { scheduleRules } from "./definition.ts";
import { Schedules } from "./schedules.ts";
import { createdQueue, ScheduleWorker } from "./worker.ts";

export interface ScheduleVerbs {
  /** Schedules: those that are created at run time, and what can be done with any. */
  readonly schedules: Schedules;
}

export function scheduleCapability(kernel: Kernel, log?: Log | undefined): Capability {
  const schedules = new Schedules(kernel);
  const verbs: ScheduleVerbs = { schedules };
  return {
    verbs,
    queues: [createdQueue(kernel, log)],
    works: {
      accepts: (definition) => scheduleRules(definition) !== undefined,
      start: (definitions, settings) => {
        const all = definitions.flatMap((one) => scheduleRules(one) ?? []);
        const worker = new ScheduleWorker(kernel, all, settings, log);
        const forget = schedules.know(all);
        return {
          ready: worker.ready,
          stop: async (timeoutMs) => {
            forget();
            await worker.stop(timeoutMs);
          },
        };
      },
    },
  };
}
