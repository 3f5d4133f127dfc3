/**
 * `pawl.work`: this process at work on definitions, until `stop` or `close`.
 *
 * Each capability takes its own definitions (`Works` in `kernel/capability.ts`), and claims records for them with the one claim loop that there
 * is (`kernel/claim/worker.ts`). What they share is here: the name of the worker, its lease and its concurrency.
 */

import type { WorkOptions } from "./capabilities.ts";
import { type Capability, startAll, type WorkPart, type WorkSettings } from "./kernel/capability.ts";
import {
  checkCount,
  checkDuration,
  checkLease,
  checkList,
  checkOptions,
  type Duration,
  optionNames,
} from "./kernel/check.ts";
import { CLOSING_MS } from "./kernel/closing.ts";
import { InvalidArgumentError } from "./kernel/errors.ts";
import type { Log } from "./kernel/log.ts";

/** The options of `pawl.work` that all capabilities share. */
export interface SharedWorkOptions {
  /** How many runs are worked on concurrently; those that sleep or wait do not count. The same for each other capability. Default: 100. */
  readonly concurrency?: number | undefined;
  /** How long this process keeps a run, or another record, without renewing its lease. Default: 30 s. */
  readonly lease?: Duration | undefined;
}

const SHARED_OPTIONS = optionNames<SharedWorkOptions>({ concurrency: true, lease: true });

const STOP_OPTIONS = optionNames<{ timeout?: unknown }>({ timeout: true });
const LEASE_MS = 30_000;
const CONCURRENCY = 100;
const SUBJECT = "what to work on";

/** A part of this process that works on definitions, until `stop`. */
export class Worker {
  /** The name that its leases have: `worker` of a run's status. */
  readonly id: string;
  /**
   * Resolves when the store knows all definitions: from then on a reaction with `from: "now"` gets every event, and `pawl.reactions.get` finds it. Waits for as
   * long as the store does not serve. Never rejects: if the worker is stopped or the handle closed before that, it resolves too.
   */
  readonly ready: Promise<void>;
  readonly #parts: readonly WorkPart[];
  readonly #stopped: (worker: Worker) => void;

  /** @internal */
  constructor(id: string, parts: readonly WorkPart[], stopped: (worker: Worker) => void = () => {}) {
    this.id = id;
    this.#parts = parts;
    this.ready = Promise.all(parts.map((part) => part.ready)).then(() => {});
    this.#stopped = stopped;
  }

  /** Takes no more work, lets running steps finish, and releases the rest. After `timeout`, steps are aborted. */
  async stop(options?: { readonly timeout?: Duration | undefined }): Promise<void> {
    checkOptions(options, STOP_OPTIONS);
    const timeoutMs = options?.timeout === undefined ? undefined : checkDuration(options.timeout, "the timeout");
    await Promise.all(this.#parts.map((part) => part.stop(timeoutMs)));
    this.#stopped(this);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }
}

/** The workers of one handle. */
export class Workers {
  readonly #capabilities: readonly Capability[];
  readonly #log: Log | undefined;
  readonly #running = new Set<Worker>();

  constructor(capabilities: readonly Capability[], log?: Log | undefined) {
    this.#capabilities = capabilities;
    this.#log = log;
  }

  get isBusy(): boolean {
    return this.#running.size > 0;
  }

  /** Starts a worker: each definition goes to the capability that accepts it. */
  start(id: string, definitions: readonly unknown[], options: WorkOptions = {}): Worker {
    const workable = this.#capabilities.flatMap(({ works }) =>
      works === undefined ? [] : [{ works, accepted: [] as unknown[] }],
    );
    const names = new Set(SHARED_OPTIONS);
    for (const { works } of workable) for (const name of works.options ?? []) names.add(name);
    checkOptions(options, names);
    const settings: WorkSettings = {
      by: id,
      leaseMs: checkLease(options.lease ?? LEASE_MS, "the lease"),
      concurrency: checkCount(options.concurrency ?? CONCURRENCY, "the concurrency"),
      failed: (error) => this.#log?.trouble(error),
    };
    checkList(definitions, SUBJECT);
    if (definitions.length === 0) throw new InvalidArgumentError(SUBJECT, "must be at least one definition");
    for (let i = 0; i < definitions.length; i++) {
      const acceptor = workable.find(({ works }) => works.accepts(definitions[i]));
      if (acceptor === undefined)
        throw new InvalidArgumentError(
          SUBJECT,
          "must be what workflow, schedule, reaction, projection, projection.sql, streamPolicy or httpTasks returned: aggregates, machines and events need no worker",
        );
      acceptor.accepted.push(definitions[i]);
    }
    const parts = startAll(
      workable.flatMap(({ works, accepted }) =>
        accepted.length === 0 ? [] : [() => works.start(accepted, settings, options)],
      ),
    );
    const worker = new Worker(id, parts, () => this.#running.delete(worker));
    this.#running.add(worker);
    return worker;
  }

  /** Before the handle is closed: all of them finish or release what they work on. */
  async close(): Promise<void> {
    await Promise.allSettled(Array.from(this.#running, (worker) => worker.stop({ timeout: CLOSING_MS })));
  }
}
