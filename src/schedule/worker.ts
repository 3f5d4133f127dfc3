/**
 * This process at work on schedules that its code declares. It takes those whose definition is its own when they are due, and says once a minute that it lives,
 * where their ticks have not said so.
 *
 * Schedules that were created at run time are taken by every worker, as an urgent chore of its claim loop.
 */

import { backoffMs } from "../kernel/backoff.ts";
import type { Queue, WorkPart, WorkSettings } from "../kernel/capability.ts";
import { startWorker, type Worker } from "../kernel/claim/worker.ts";
import type { Address } from "../kernel/contract.ts";
import { ClosedError, InvalidArgumentError } from "../kernel/errors.ts";
import type { Kernel } from "../kernel/kernel.ts";
import type { Log } from "../kernel/log.ts";
import { pause } from "../kernel/ports.ts";
import { SWEEP_POLL_MS } from "../kernel/sweep-loop.ts";
import { declare } from "./declare.ts";
import type { ScheduleRules } from "./definition.ts";
import { ScheduleExistsError } from "./errors.ts";
import { CREATED_QUEUE, declaredQueueOf } from "./stored.ts";
import { fireSchedule } from "./ticks.ts";

const RETRY = { firstMs: 100, longestMs: 10_000 };
/** How many schedules are declared together. */
const TOGETHER = 500;
/** How many entries of a history are kept, and how many there may be before some are removed. */
export const HISTORY_KEPT = 1000;
const PRUNED_EVERY = 100;

/** What is done about a schedule that is due. A tick that could not start its run is logged: no caller receives that. */
async function lookAt(
  kernel: Kernel,
  at: Address,
  rules: ScheduleRules | undefined,
  log: Log | undefined,
): Promise<void> {
  const { head, failures } = await kernel.transact(
    (tx) => {
      const before = tx.record(at).head;
      const failures = fireSchedule(tx, at, rules);
      const { head } = tx.record(at);
      const isPruned = Math.floor(head / PRUNED_EVERY) > Math.floor(before / PRUNED_EVERY);
      return { head: isPruned ? head : 0, failures };
    },
    [at],
  );
  for (const failure of failures) log?.error(failure);
  if (head > HISTORY_KEPT) await kernel.prune(at, head - HISTORY_KEPT, 2 * PRUNED_EVERY);
}

/** The queue of schedules that were created at run time. */
export const createdQueue = (kernel: Kernel, log: Log | undefined): Queue => ({
  kind: CREATED_QUEUE,
  isUrgent: true,
  chore: (at) => lookAt(kernel, at, undefined, log),
});

export class ScheduleWorker implements WorkPart {
  readonly #kernel: Kernel;
  readonly #all: readonly ScheduleRules[];
  readonly #failed: (error: unknown) => void;
  readonly #stopping = new AbortController();
  readonly #worker: Worker;
  readonly #declaring: Promise<void>;
  readonly ready: Promise<void>;

  constructor(kernel: Kernel, all: readonly ScheduleRules[], settings: WorkSettings, log: Log | undefined) {
    this.#kernel = kernel;
    this.#all = all;
    this.#failed = settings.failed;
    const names = new Set<string>();
    for (const { name } of all) {
      if (names.has(name))
        throw new InvalidArgumentError("what to work on", `must not have two schedules named "${name}"`);
      names.add(name);
    }
    const queues = all.map(
      (rules): Queue => ({ kind: declaredQueueOf(rules.by), chore: (at) => lookAt(kernel, at, rules, log) }),
    );
    this.#worker = startWorker(kernel, {
      ...settings,
      kinds: [],
      chores: [...queues, ...kernel.sweeper.urgent],
      work: async () => {},
    });
    const declared = Promise.withResolvers<void>();
    this.ready = declared.promise;
    this.#declaring = this.#declareAll(declared.resolve).finally(declared.resolve);
  }

  async stop(timeoutMs: number | undefined): Promise<void> {
    this.#stopping.abort();
    await Promise.all([this.#worker.stop(timeoutMs), this.#declaring]);
  }

  async #declareAll(declared: () => void): Promise<void> {
    const { signal } = this.#stopping;
    for (let isFirst = true; !signal.aborted; isFirst = false) {
      for (let from = 0; from < this.#all.length; from += TOGETHER)
        await Promise.all(this.#all.slice(from, from + TOGETHER).map((rules) => this.#declare(rules, isFirst)));
      declared();
      await pause(this.#kernel.ports.clock, SWEEP_POLL_MS, signal);
    }
  }

  async #declare(rules: ScheduleRules, isFirst: boolean): Promise<void> {
    const { signal } = this.#stopping;
    for (let failures = 1; !signal.aborted; failures++)
      try {
        await declare(this.#kernel, rules, isFirst);
        return;
      } catch (error) {
        if (error instanceof ClosedError) return this.#stopping.abort();
        this.#failed(error);
        // Later it is tried again with all others.
        if (!isFirst || error instanceof ScheduleExistsError) return;
        await pause(this.#kernel.ports.clock, backoffMs(RETRY, failures, this.#kernel.ports.chance), signal);
      }
  }
}
