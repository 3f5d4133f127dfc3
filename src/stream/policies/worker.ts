/**
 * This process at work on policies: it finds the streams that they are about, and does what is due, in a sweep loop beside everything else
 * (`kernel/sweep-loop.ts`): once a minute, a few streams at a time, with rests.
 */

import { backoffMs } from "../../kernel/backoff.ts";
import type { Queue, WorkPart, WorkSettings } from "../../kernel/capability.ts";
import { ClosedError, InvalidArgumentError } from "../../kernel/errors.ts";
import type { Kernel } from "../../kernel/kernel.ts";
import { pause } from "../../kernel/ports.ts";
import { SweepLoop } from "../../kernel/sweep-loop.ts";
import { archiveFor } from "../closing/archive.ts";
import type { Streams } from "../closing/streams.ts";
import { Application } from "./applying.ts";
import type { PolicyRules } from "./definition.ts";
import { ensurePolicy, findStreams } from "./finding.ts";
import { policyQueueOf, policyStreamQueueOf } from "./stored.ts";

/** How long a look for streams may take, so that those that are due are not kept waiting. */
const FINDING_MS = 30_000;
const RETRY = { firstMs: 100, longestMs: 10_000 };

export interface PolicyHost {
  readonly streams: Streams;
  /** Receives what archives throw. */
  readonly failed: (error: unknown) => void;
  readonly stopping: AbortSignal;
}

/** What a worker that knows a policy does: it finds streams, and looks at those that are due. */
export function policyQueues(kernel: Kernel, rules: PolicyRules, host: PolicyHost): readonly Queue[] {
  const application = new Application(kernel, host.streams, rules, host.failed);
  return [
    { kind: policyQueueOf(rules.name), chore: () => find(kernel, rules, host.stopping) },
    { kind: policyStreamQueueOf(rules.name), chore: (at) => application.apply(at) },
  ];
}

/** Finds streams page by page, and rests for as long as each page took. What is left is found by the next look. */
async function find(kernel: Kernel, rules: PolicyRules, stopping: AbortSignal): Promise<void> {
  const { clock } = kernel.ports;
  const startedMs = clock.nowMs();
  for (let pageMs = startedMs; !stopping.aborted && (await findStreams(kernel, rules)); pageMs = clock.nowMs()) {
    if (clock.nowMs() - startedMs >= FINDING_MS) return;
    await pause(clock, Math.max(1, clock.nowMs() - pageMs), stopping);
  }
}

export class PolicyWorker implements WorkPart {
  readonly ready: Promise<void>;
  readonly #kernel: Kernel;
  readonly #stopping = new AbortController();
  readonly #failed: (error: unknown) => void;
  readonly #loop: SweepLoop;

  constructor(kernel: Kernel, streams: Streams, policies: readonly PolicyRules[], { failed }: WorkSettings) {
    this.#kernel = kernel;
    this.#failed = failed;
    const names = new Set<string>();
    for (const { name, archive, discard } of policies) {
      if (names.has(name))
        throw new InvalidArgumentError("what to work on", `must not have two policies named "${name}"`);
      names.add(name);
      archiveFor(kernel, { archive, discard });
    }
    const host: PolicyHost = { streams, failed, stopping: this.#stopping.signal };
    const queues = policies.flatMap((rules) => policyQueues(kernel, rules, host));
    this.#loop = new SweepLoop(kernel, queues, failed);
    this.ready = Promise.all(policies.map((rules) => this.#ensure(rules))).then(() => {});
  }

  /** Begins nothing more, and waits for what is under way; after `timeoutMs`, no longer. What an archive did not finish is begun again elsewhere. */
  async stop(timeoutMs: number | undefined): Promise<void> {
    this.#stopping.abort();
    const stopped = this.#loop.stop();
    if (timeoutMs === undefined) return stopped;
    const ended = new AbortController();
    await Promise.race([
      stopped.finally(() => ended.abort("ended")),
      pause(this.#kernel.ports.clock, timeoutMs, ended.signal),
    ]);
  }

  /** Makes the rules here those that count, as soon as the store serves. */
  async #ensure(rules: PolicyRules): Promise<void> {
    for (let failures = 1; !this.#stopping.signal.aborted; failures++)
      try {
        return await ensurePolicy(this.#kernel, rules);
      } catch (error) {
        if (error instanceof ClosedError) return;
        this.#failed(error);
        await pause(this.#kernel.ports.clock, backoffMs(RETRY, failures), this.#stopping.signal);
      }
  }
}
