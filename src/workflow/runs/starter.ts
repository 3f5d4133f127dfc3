/**
 * Starting runs, for one handle: what a start says is checked, and becomes the request that the decision gets (`start.ts`).
 *
 * A start by a process that works on the workflow and has a place free also leases the run to it, in the same commit, and the run begins here immediately.
 */

import { checkDate, checkDuration, checkId, checkList, checkOptions, optionNames } from "../../kernel/check.ts";
import type { Address } from "../../kernel/contract.ts";
import type { Tx } from "../../kernel/decision.ts";
import { isImmutable } from "../../kernel/encoding.ts";
import { InvalidArgumentError } from "../../kernel/errors.ts";
import { fingerprintOf } from "../../kernel/fingerprint.ts";
import type { Kernel } from "../../kernel/kernel.ts";
import type { Origin } from "../../kernel/origin.ts";
import { checkSchema, checkSchemaNow } from "../../kernel/schema.ts";
import type { RateLimits } from "../../rate/rate.ts";
import { type Definition, definitionOf, definitionToStart } from "../definitions/definition.ts";
import { checkFlow, checkPriority, type Flow } from "../definitions/flow.ts";
import type { RunWorker } from "../execution/worker.ts";
import type { PausedWorkflows } from "../flow/paused.ts";
import { declarePools } from "../flow/pools.ts";
import { runAt } from "../stored.ts";
import type { StartOptions } from "./run.ts";
import { type Started, type StartRequest, startRun, touchedBy } from "./start.ts";
import { startFlow } from "./start-flow.ts";

const START_OPTIONS = optionNames<StartOptions>({
  id: true,
  ifExists: true,
  delay: true,
  at: true,
  tags: true,
  priority: true,
  ttl: true,
});

/** What else is decided in the commit that starts a run. */
export interface Along {
  readonly touches: readonly Address[];
  decide(tx: Tx, start: () => Started): Started;
}

const ALONE: Along = { touches: [], decide: (_tx, start) => start() };

const isEmpty = (given: object): boolean => Object.values(given).every((one) => one === undefined);

/** @internal */
export class Starter {
  readonly #kernel: Kernel;
  readonly #rates: RateLimits;
  /** Those of this handle. */
  readonly #workers: ReadonlySet<RunWorker>;
  readonly #paused: PausedWorkflows;
  readonly #declaredPools = new Set<string>();

  constructor(kernel: Kernel, rates: RateLimits, workers: ReadonlySet<RunWorker>, paused: PausedWorkflows) {
    this.#kernel = kernel;
    this.#rates = rates;
    this.#workers = workers;
    this.#paused = paused;
  }

  async start(
    workflow: string | { readonly name: string },
    input: unknown,
    options: StartOptions = {},
    origin?: Origin | undefined,
  ): Promise<string> {
    const definition = definitionToStart(workflow);
    const checked =
      definition?.input === undefined
        ? input
        : await checkSchema(definition.input, input, "the run's input", this.#kernel);
    const request = { ...this.#request(workflow, definition, checked, options, () => this.#newId()), origin };
    const pool = request.flow?.request.pool;
    if (pool !== undefined) await this.#declarePool(request.workflow, pool);
    const worker = this.#roomFor(request.workflow, pool);
    const lease = worker?.lease(request.workflow, pool);
    if (worker === undefined || lease === undefined || request.flow?.collect !== undefined) {
      const { id } = await this.#kernel.transact((tx) => startRun(tx, request), touchedBy(request));
      return id;
    }
    return (await this.#startHere(worker, { ...request, lease })).id;
  }

  /**
   * Starts a run of a built-in workflow with what a capability decides in the same commit. `decide` may also find that there is a run, and not start
   * it.
   */
  async startAlong(request: StartRequest, along: Along): Promise<Started> {
    const worker = this.#roomFor(request.workflow, undefined);
    const lease = worker?.lease(request.workflow);
    if (worker !== undefined && lease !== undefined && request.isMade === true)
      return this.#startHere(worker, { ...request, lease }, along);
    const touches = [...touchedBy(request), ...along.touches];
    return this.#kernel.transact((tx) => along.decide(tx, () => startRun(tx, request)), touches);
  }

  /** The request for a run of a built-in workflow. */
  requestFor(
    workflow: { readonly name: string },
    input: unknown,
    options: StartOptions,
    newId: () => string = () => this.#newId(),
  ): StartRequest {
    return this.#request(workflow, definitionOf(workflow), input, options, newId);
  }

  /** The commit that starts the run also leases it to this process, which begins immediately. */
  async #startHere(worker: RunWorker, request: StartRequest, along: Along = ALONE): Promise<Started> {
    const at = runAt(request.id);
    const kernel = this.#kernel;
    // What the run is begun with has passed through the codec, as at replay.
    const startedText = kernel.encode(at, { input: request.input });
    const input = isImmutable(request.input)
      ? request.input
      : (kernel.decodeFresh(at, startedText) as { input: unknown }).input;
    const safeUntilMs = kernel.ports.clock.nowMs() + worker.leaseMs;
    kernel.expect(at, true);
    worker.keepPlace();
    let started: Started | undefined;
    try {
      const decide = (tx: Tx): Started => along.decide(tx, () => startRun(tx, request, startedText));
      started = await kernel.transact(decide, [...touchedBy(request), ...along.touches]);
    } finally {
      worker.freePlace();
      kernel.expect(at, false);
    }
    if (started.isLeased) worker.adopt(request.id, input, safeUntilMs);
    // A new run that waits is not worked on here: nothing else would release its row from memory.
    else if (started.isNew) kernel.letGo(at);
    return started;
  }

  #newId(): string {
    const { chance } = this.#kernel.ports;
    return chance.orderedId?.() ?? chance.uuid();
  }

  #roomFor(workflow: string, pool: string | undefined): RunWorker | undefined {
    for (const worker of this.#workers) if (worker.lease(workflow, pool) !== undefined) return worker;
    return undefined;
  }

  /** Before the first start of a run of this pool by this handle. */
  async #declarePool(workflow: string, pool: string): Promise<void> {
    const text = `${pool}/${workflow}`;
    if (this.#declaredPools.has(text)) return;
    await declarePools(this.#kernel, workflow, [pool]);
    this.#declaredPools.add(text);
  }

  /** Starts a run in a decision. */
  startIn(tx: Tx, workflow: string | { readonly name: string }, input: unknown, options: StartOptions = {}): string {
    const definition = definitionToStart(workflow);
    const checked = checkSchemaNow(definition?.input, input, "the run's input");
    const request = this.#request(workflow, definition, checked, options, () => tx.uuid());
    tx.load(touchedBy(request));
    return startRun(tx, request).id;
  }

  #request(
    workflow: string | { readonly name: string },
    definition: Definition | undefined,
    input: unknown,
    options: StartOptions,
    newId: () => string,
  ): StartRequest {
    const name = checkId(typeof workflow === "string" ? workflow : workflow?.name, "the workflow");
    checkOptions(options, START_OPTIONS);
    const { id, ifExists = "join", delay, at, tags, priority, ttl } = options;
    if (tags !== undefined) checkList(tags, "the tags");
    if (ifExists !== "join" && ifExists !== "reject" && ifExists !== "restart")
      throw new InvalidArgumentError("ifExists", 'must be "join", "reject" or "restart"');
    const atMs = at === undefined ? undefined : checkDate(at, "the time to start at");
    if (at !== undefined && delay !== undefined)
      throw new InvalidArgumentError("the options", "must not have both delay and at: each says when the run begins");
    const given = {
      priority: priority === undefined ? undefined : checkPriority(priority),
      ttlMs: ttl === undefined ? undefined : checkDuration(ttl, "the ttl"),
    };
    const flow = definition?.flow ?? this.#flowHere(name) ?? (isEmpty(given) ? undefined : checkFlow(name, { ttl }));
    if (flow?.collect !== undefined && (delay !== undefined || atMs !== undefined))
      throw new InvalidArgumentError(
        "the time to start at",
        `cannot be given: "${name}" collects its starts, and begins when they are complete`,
      );
    if (flow?.collect !== undefined && ifExists === "restart")
      throw new InvalidArgumentError("ifExists", `must not be "restart": "${name}" collects its starts`);
    return {
      id: id === undefined ? newId() : checkId(id, "the run's id"),
      workflow: name,
      input,
      fingerprint: id === undefined ? null : fingerprintOf(input),
      isMade: id === undefined,
      tags: tags?.map((tag) => checkId(tag, "the tag")),
      delayMs: delay === undefined ? undefined : checkDuration(delay, "the delay"),
      atMs,
      timeoutMs: definition?.timeoutMs ?? null,
      flow:
        flow === undefined
          ? undefined
          : startFlow(flow, input, given, (limit, figures) => this.#rates.limit(limit, figures)),
      isPaused: this.#paused.has(name),
      ifExists,
    };
  }

  /** The flow of a workflow that is started by its name, if a worker of this handle knows it. */
  #flowHere(workflow: string): Flow | undefined {
    for (const worker of this.#workers) {
      const flow = worker.flowOf(workflow);
      if (flow !== undefined) return flow;
    }
    return undefined;
  }
}
