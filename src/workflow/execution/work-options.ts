/** The options of `pawl.work` that only runs know, and what is checked of them with the workflows that are worked on. */

import { checkCount, checkList, checkObject, type Duration, optionNames } from "../../kernel/check.ts";
import { InvalidArgumentError } from "../../kernel/errors.ts";
import type { Definition } from "../definitions/definition.ts";
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

/** The pools that are taken: those that are given, or all. */
export function checkPools(
  given: RunWorkOptions["pools"],
  definitions: ReadonlyMap<string, Definition>,
): ReadonlyMap<string, ReadonlySet<string>> {
  const taken = new Map<string, ReadonlySet<string>>();
  for (const { name, flow } of definitions.values()) if (flow?.pools !== undefined) taken.set(name, flow.pools.names);
  if (given === undefined) return taken;
  checkObject(given, "pools");
  if (Array.isArray(given)) throw new InvalidArgumentError("pools", "must be an object of lists by workflow");
  for (const [name, list] of Object.entries(given)) {
    const all = taken.get(name);
    if (all === undefined)
      throw new InvalidArgumentError("pools", `must name workflows that are worked on and have pools, not "${name}"`);
    checkList(list, `pools of "${name}"`);
    const unknown = list.find((pool) => !all.has(pool));
    if (unknown !== undefined)
      throw new InvalidArgumentError(`pools of "${name}"`, `must be pools that the workflow has, not "${unknown}"`);
    taken.set(name, new Set(list));
  }
  return taken;
}

/** How many runs of a workflow are worked on at most, by its name. */
export function checkPerWorkflow(
  given: RunWorkOptions["perWorkflow"],
  definitions: ReadonlyMap<string, Definition>,
): ReadonlyMap<string, number> {
  if (given === undefined) return new Map();
  checkObject(given, "perWorkflow");
  if (Array.isArray(given)) throw new InvalidArgumentError("perWorkflow", "must be an object of numbers by workflow");
  return new Map(
    Object.entries(given).map(([name, count]) => {
      if (!definitions.has(name))
        throw new InvalidArgumentError("perWorkflow", `must name workflows that are worked on, not "${name}"`);
      return [name, checkCount(count, `perWorkflow of "${name}"`)];
    }),
  );
}
