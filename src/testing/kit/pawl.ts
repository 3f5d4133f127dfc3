/**
 * `openTest`: a Pawl for tests, in memory and in a time of its own.
 *
 * It is used as any other: `work`, `start`, `signal`. Time stands still, for the store and for the process, until the test moves it with
 * `clock.advance` or waits for something: `run.result()` and `run.until(status)` let it pass by itself, as far as is needed.
 *
 * Promises: the same test sees the same ids, times and order each time.
 * Leaves out: what another store does otherwise. `step.tx` needs SQL, so its steps need stubs here.
 */

import {
  checkBoolean,
  checkDate,
  checkDuration,
  checkId,
  checkOptions,
  checkVersion,
  type Duration,
  optionNames,
} from "../../kernel/check.ts";
import type { Codec } from "../../kernel/codec/codec.ts";
import type { Store } from "../../kernel/contract.ts";
import { InvalidArgumentError } from "../../kernel/errors.ts";
import { Kernel } from "../../kernel/kernel.ts";
import { nodePorts } from "../../node/ports.ts";
import { trapAmbient } from "../../node/trap.ts";
import { Pawl } from "../../pawl.ts";
import { MemoryDatabase } from "../../stores/memory/memory.ts";
import type { WithInput } from "../../workflow/context.ts";
import type { AnyWorkflow, Workflow } from "../../workflow/definition.ts";
import { HistoryContradictionError, RunEndedError } from "../../workflow/errors.ts";
import type { RunEvent, RunListener } from "../../workflow/events.ts";
import { queueOf, RUNS } from "../../workflow/run.ts";
import type { Run, RunInfo, StartOptions } from "../../workflow/runs.ts";
import { ENDED, type RunStatus } from "../../workflow/words.ts";
import type { RunWorker, WorkOptions } from "../../workflow/worker.ts";
import { Random } from "../sim/random.ts";
import { type Scene, TestClock } from "./clock.ts";
import { type Around, aroundSteps } from "./steps.ts";
import { type Gate, GatedStore } from "./store.ts";

export interface OpenTestOptions {
  /** What the clock says at first; the beginning of 2030 unless said otherwise. */
  readonly now?: Date | number | undefined;
  readonly namespace?: string | undefined;
  readonly codec?: Codec | undefined;
  /** Where chance comes from; 1 unless said otherwise. */
  readonly seed?: number | undefined;
  /**
   * Whether a mistake of a workflow's code fails the test as soon as it is noticed: code that contradicts its history, an operation that
   * is not awaited, a failure that is never observed, a handle of a step that is used late. Default: true.
   */
  readonly strict?: boolean | undefined;
}

const OPTIONS = optionNames<OpenTestOptions>({ now: true, namespace: true, codec: true, seed: true, strict: true });

/** The code of a workflow makes a mistake that would go unnoticed in production. `openTest({ strict: false })` lets it pass. */
export class WorkflowMistakeError extends Error {
  override readonly name = "WorkflowMistakeError";
}

/** A run in a test: as any other, and time passes while its result or a status is waited for. */
export type TestRun<Output = unknown> = Run<Output> & {
  /** Waits until the run has this status, or one of these. Throws `run_ended` when it has ended otherwise. */
  until(status: RunStatus | readonly RunStatus[]): Promise<RunInfo>;
};

/** Opens a Pawl in memory, with a clock that the test moves. */
export function openTest(options: OpenTestOptions = {}): TestPawl {
  return new Laboratory(options).open();
}

const START_MS = Date.UTC(2030, 0, 1);
const ALL = 1_000_000;

/** One database and one clock, for the processes of a test. @internal */
export class Laboratory implements Scene {
  readonly clock: TestClock;
  readonly #database: MemoryDatabase;
  readonly #namespace: string;
  readonly #random: Random;
  readonly #codec: Codec | undefined;
  readonly #isStrict: boolean;
  /** To look without being seen. */
  readonly #eye: Store;
  readonly #kinds = new Set<string>();

  constructor(options: OpenTestOptions = {}) {
    checkOptions(options, OPTIONS);
    const { now = START_MS, namespace = "test", seed = 1, codec, strict = true } = options;
    checkBoolean(strict, "strict");
    this.#isStrict = strict;
    const startMs = checkDate(now, "what the clock says at first");
    checkVersion(seed, "the seed");
    if (codec !== undefined && (typeof codec?.encode !== "function" || typeof codec.decode !== "function"))
      throw new InvalidArgumentError("the codec", "must have encode and decode");
    this.clock = new TestClock(startMs, this);
    this.#namespace = checkId(namespace, "the namespace");
    this.#random = new Random(seed);
    this.#codec = codec;
    this.#database = new MemoryDatabase(() => this.clock.nowMs);
    this.#eye = this.#database.connect(this.#namespace);
  }

  /** A process with a handle. `gate` may end it at any call of its store; `around` is put around the functions of its steps. */
  open(gate?: Gate, around?: Around): TestPawl {
    const isAlive = (): boolean => gate?.isOpen ?? true;
    const store = new GatedStore(this.#database.connect(this.#namespace), gate, () => this.clock.stir());
    const ports = {
      clock: this.clock.portFor(isAlive),
      chance: { random: () => this.#random.unit(), uuid: () => this.#random.uuid(), stamp: this.#random.stamp },
      trap: trapAmbient,
      bodies: nodePorts.bodies,
    };
    const kernel = new Kernel(store, ports, { namespace: this.#namespace, codec: this.#codec });
    const tracked: Around = (name, run) => {
      const inner = around === undefined ? run : around(name, run);
      return (...given) => this.clock.track(name, inner(...given));
    };
    const prepare = (workflow: AnyWorkflow): AnyWorkflow => {
      this.#kinds.add(queueOf(workflow.name));
      return aroundSteps(workflow, tracked);
    };
    return new TestPawl(kernel, this.clock, prepare, this.#isStrict);
  }

  async #rows() {
    return this.#eye.list({ space: RUNS, prefix: "", after: null, limit: ALL });
  }

  async look(): Promise<{ readonly isHeld: boolean; readonly nextDueMs: number | null }> {
    const { nowMs } = this.clock;
    let nextDueMs = Number.POSITIVE_INFINITY;
    let isHeld = false;
    for (const { kind, holder, dueMs } of await this.#rows()) {
      // What nobody here works on, or is overdue without being taken, will not go on by itself.
      if (kind === null || !this.#kinds.has(kind) || dueMs === null) continue;
      if (holder !== null) isHeld = true;
      else if (dueMs > nowMs) nextDueMs = Math.min(nextDueMs, dueMs);
    }
    return { isHeld, nextDueMs: Number.isFinite(nextDueMs) ? nextDueMs : null };
  }

  async tell(): Promise<string> {
    const open = (await this.#rows()).filter(({ status }) => !ENDED.has(status ?? ""));
    if (open.length === 0) return "every run has ended";
    const told = open.slice(0, 5).map(({ key, kind, status }) => {
      const isKnown = kind === null || this.#kinds.has(kind);
      return `run "${key}" is ${status}${isKnown ? "" : ", and nobody works on its workflow"}`;
    });
    return [...told, ...(open.length > told.length ? [`${open.length - told.length} more`] : [])].join(", ");
  }
}

/** A Pawl for tests, as `openTest` gives it. */
export class TestPawl extends Pawl {
  readonly clock: TestClock;
  readonly #prepare: (workflow: AnyWorkflow) => AnyWorkflow;
  readonly #isStrict: boolean;
  #closing: Promise<void> | undefined;

  /** @internal */
  constructor(kernel: Kernel, clock: TestClock, prepare: (workflow: AnyWorkflow) => AnyWorkflow, isStrict: boolean) {
    super(kernel);
    this.clock = clock;
    this.#isStrict = isStrict;
    this.#prepare = prepare;
  }

  /** As any other, but no code is kept in memory while a run waits, so that every wait is a replay, unless `warm` says otherwise. */
  override work(workflows: readonly AnyWorkflow[], options?: WorkOptions): RunWorker {
    const prepared = workflows.map((workflow) => this.#prepare(workflow));
    return super.work(prepared, { warm: 0, ...options, on: this.#watched(options?.on) });
  }

  /** Notices mistakes of the code besides telling the test's own listener. */
  #watched(on: RunListener | undefined): RunListener | undefined {
    if (!this.#isStrict) return on;
    // What it gives may be a promise that rejects, which the worker sees to.
    const watch = (event: RunEvent): unknown => {
      const mistake = mistakeIn(event);
      if (mistake !== undefined) this.clock.fail(mistake);
      return on?.(event);
    };
    return Object.assign(watch, { around: on?.around });
  }

  override start<Input, Output>(
    workflow: Workflow<Input, Output>,
    ...rest: WithInput<Input, StartOptions>
  ): Promise<TestRun<Output>>;
  override start(workflow: string, input?: unknown, options?: StartOptions): Promise<TestRun>;
  override async start(
    workflow: string | { readonly name: string },
    input?: unknown,
    options?: StartOptions,
  ): Promise<TestRun> {
    const run =
      typeof workflow === "string"
        ? await super.start(workflow, input, options)
        : await super.start<unknown, unknown>(workflow, input, options);
    return this.#inTime(run);
  }

  override run<Output>(workflow: Workflow<never, Output>, id: string): TestRun<Output>;
  override run(workflow: string, id: string): TestRun;
  override run(id: string): TestRun;
  override run(...given: [id: string] | [workflow: string | { readonly name: string }, id: string]): TestRun {
    if (given.length === 1) return this.#inTime(super.run(given[0]));
    const [workflow, id] = given;
    return this.#inTime(super.run(typeof workflow === "string" ? workflow : workflow.name, id));
  }

  /** Lets time pass while the run is waited for. */
  #inTime(run: Run): TestRun {
    const { clock } = this;
    const result = run.result.bind(run);
    return Object.assign(run, {
      result: async (options?: { readonly timeout?: Duration | undefined; readonly abortSignal?: AbortSignal }) => {
        const unmark =
          options?.timeout === undefined ? () => {} : clock.mark(checkDuration(options.timeout, "the timeout"));
        return clock.during(result(options)).finally(unmark);
      },
      until: (status: RunStatus | readonly RunStatus[]) => this.#until(run, [status].flat()),
    });
  }

  async #until(run: Run, wanted: readonly RunStatus[]): Promise<RunInfo> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const seen = (status: RunStatus): void => {
      if (wanted.includes(status)) resolve();
      else if (ENDED.has(status)) reject(new RunEndedError(run.id, status));
    };
    const look = (): void => void run.status().then(({ status }) => seen(status), reject);
    // What was set off before has its turn first: a run that was just signaled no longer merely waits.
    await this.clock.quiet();
    const unlisten = this.kernel.listen((puts) => {
      if (puts === undefined) return look();
      for (const { row } of puts) if (row.space === RUNS && row.key === run.id) seen(row.status as RunStatus);
    });
    try {
      look();
      await this.clock.during(promise);
    } finally {
      unlisten();
    }
    return run.status();
  }

  /** Gives everything back; steps under way have their time to end. */
  override close(): Promise<void> {
    this.#closing ??= this.clock.during(super.close());
    return this.#closing;
  }
}

function mistakeIn(event: RunEvent): Error | undefined {
  if (event.type === "run.warning") return new WorkflowMistakeError(`run "${event.run}": ${event.message}`);
  if (event.type === "run.trouble" && event.error instanceof HistoryContradictionError) return event.error;
  return undefined;
}
