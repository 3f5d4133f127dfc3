/** The options of `pawl.work` that only runs know. */

import { type Duration, optionNames } from "../../kernel/check.ts";
import type { RunListener } from "../events.ts";

export interface RunWorkOptions {
  /** How many runs of a workflow are worked on concurrently, by its name, as in `{ report: 2 }`. Default: `concurrency` for all together. */
  readonly perWorkflow?: Readonly<Record<string, number>> | undefined;
  /**
   * Which pools of a workflow this process takes, by its name, as in `{ convert: ["eu"] }`, where the workflow has pools. Runs of other pools are left
   * to other workers. Default: all of them.
   */
  readonly pools?: Readonly<Record<string, readonly string[]>> | undefined;
  /** How many resting runs keep their code in memory. Default: 1,000. */
  readonly warm?: number | undefined;
  /** When code blocks the process for this long, its run is named and the process ended, so that other workers continue. Default: 60 s. */
  readonly watchdog?: Duration | false | undefined;
  /**
   * A run whose history the code contradicts is released to workers with other code, as during a deploy. It is parked after
   * this long. Default: 10 minutes.
   */
  readonly parkContradictedAfter?: Duration | undefined;
  /** Receives everything that happens in this worker's runs. What it throws, or its promise rejects with, is ignored. */
  readonly on?: RunListener | undefined;
}

export const RUN_WORK_OPTIONS = optionNames<RunWorkOptions>({
  perWorkflow: true,
  pools: true,
  warm: true,
  watchdog: true,
  parkContradictedAfter: true,
  on: true,
});
