/**
 * `openTest`: a Pawl for tests, in memory and with a clock of its own.
 *
 * It is used like any other: `work`, `start`, `signal`. Time is stopped, for the store and for the process, until the test moves it with
 * `clock.advance` or waits: `run.result()` and `run.until(status)` advance it as far as needed.
 *
 * Guarantees: the same test sees the same ids, times and order each time.
 * Out of scope: differences between stores. `step.tx` needs SQL, so its steps need stubs here.
 */

import { ACTIONS_OPTIONS, type ActionsOptions } from "../../action/core.ts";
import type { CapabilityOptions, WorkDefinition, WorkOptions } from "../../capabilities.ts";
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
import type { Origin } from "../../kernel/origin.ts";
import { KEYS_OPTIONS } from "../../kernel/seal/ring.ts";
import { nodePorts } from "../../node/ports.ts";
import { trapAmbient } from "../../node/trap.ts";
import { Pawl, type ScopedPawl } from "../../pawl.ts";
import { MemoryDatabase } from "../../stores/memory/memory.ts";
import { type Archive, checkArchive } from "../../stream/closing/archive.ts";
import { checkSubjectKeys, type SubjectKeys } from "../../stream/personal/keys.ts";
import type { Worker } from "../../worker.ts";
import type { WithInput } from "../../workflow/definitions/context-types.ts";
import { type AnyWorkflow, definitionOf, type Workflow } from "../../workflow/definitions/definition.ts";
import { HistoryContradictionError, RunEndedError } from "../../workflow/errors.ts";
import type { RunEvent, RunListener } from "../../workflow/events.ts";
import type { Run, RunInfo, StartOptions } from "../../workflow/runs/run.ts";
import { ENDED, queueOf, RUNS, type RunStatus } from "../../workflow/stored.ts";
import { Random } from "../sim/random.ts";
import { type RunsView, TestClock } from "./clock.ts";
import { type Around, aroundSteps } from "./steps.ts";
import { type CallInterceptor, InterceptedStore } from "./store.ts";

export interface OpenTestOptions {
  /** The initial time. Default: the beginning of 2030. */
  readonly now?: Date | number | undefined;
  readonly namespace?: string | undefined;
  readonly codec?: Codec | undefined;
  /** The seed of all random numbers. Default: 1. */
  readonly seed?: number | undefined;
  /**
   * Whether a mistake of a workflow's code fails the test as soon as it is detected: code that contradicts its history, an operation that
   * is not awaited, a failure that is never observed, a step handle that is used after its step. Default: true.
   */
  readonly strict?: boolean | undefined;
  /** As of `open`: pepper and keys of one-time actions; the keys are also those of the personal fields of events. */
  readonly actions?: ActionsOptions | undefined;
  /** As of `open`: where the keys of people are, if not in Pawl's own records. */
  readonly subjectKeys?: SubjectKeys | undefined;
  /** As of `open`: where events go before they are removed. Default: none. */
  readonly archive?: Archive | undefined;
}

/** The names of the options of `openTest`. */
export const OPEN_TEST = {
  now: true,
  namespace: true,
  codec: true,
  seed: true,
  strict: true,
  actions: true,
  subjectKeys: true,
  archive: true,
} as const satisfies Record<keyof OpenTestOptions, true>;

const OPTIONS = optionNames<OpenTestOptions>(OPEN_TEST);

/** A workflow's code makes a mistake that would be unnoticed in production. `openTest({ strict: false })` allows it. */
export class WorkflowMistakeError extends Error {
  override readonly name = "WorkflowMistakeError";
}

/** A run in a test: like any other, but the clock advances while the test waits for its result or a status. */
export type TestRun<Output = unknown> = Run<Output> & {
  /** Waits until the run has this status, or one of these. Throws `run_ended` if it has ended with another. */
  until(status: RunStatus | readonly RunStatus[]): Promise<RunInfo>;
};

/** Opens a Pawl in memory, with a clock that the test moves. */
export function openTest(options: OpenTestOptions = {}): TestPawl {
  return new TestEnvironment(options).open();
}

const START_MS = Date.UTC(2030, 0, 1);
const ALL = 1_000_000;

/** One database and one clock, for the processes of a test. @internal */
export class TestEnvironment implements RunsView {
  readonly clock: TestClock;
  readonly #database: MemoryDatabase;
  readonly #namespace: string;
  readonly #random: Random;
  readonly #codec: Codec | undefined;
  readonly #isStrict: boolean;
  readonly #capabilities: CapabilityOptions;
  /** A connection for reads that are not reported to the clock. */
  readonly #reader: Store;
  readonly #kinds = new Set<string>();

  constructor(options: OpenTestOptions = {}) {
    checkOptions(options, OPTIONS);
    const {
      now = START_MS,
      namespace = "test",
      seed = 1,
      codec,
      strict = true,
      actions,
      subjectKeys,
      archive,
    } = options;
    checkOptions(actions, ACTIONS_OPTIONS, "actions");
    checkOptions(actions?.keys, KEYS_OPTIONS, "the keys of actions");
    checkSubjectKeys(subjectKeys);
    this.#capabilities = {
      actions: { options: actions },
      subjectKeys,
      archive: archive === undefined ? undefined : checkArchive(archive),
    };
    checkBoolean(strict, "strict");
    this.#isStrict = strict;
    const startMs = checkDate(now, "the initial time");
    checkVersion(seed, "the seed");
    if (codec !== undefined && (typeof codec?.encode !== "function" || typeof codec.decode !== "function"))
      throw new InvalidArgumentError("the codec", "must have the methods encode and decode");
    this.clock = new TestClock(startMs, this);
    this.#namespace = checkId(namespace, "the namespace");
    this.#random = new Random(seed);
    this.#codec = codec;
    this.#database = new MemoryDatabase(() => this.clock.nowMs);
    this.#reader = this.#database.connect(this.#namespace);
  }

  /** Returns the handle of a new process. `interceptor` can crash it at any call of its store; `around` wraps the functions of its steps. */
  open(interceptor?: CallInterceptor, around?: Around): TestPawl {
    const isAlive = (): boolean => interceptor?.isAlive ?? true;
    const store = new InterceptedStore(this.#database.connect(this.#namespace), interceptor, () =>
      this.clock.noteActivity(),
    );
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
    return new TestPawl(kernel, this.clock, prepare, this.#isStrict, this.#capabilities);
  }

  async #rows() {
    return this.#reader.list({ space: RUNS, prefix: "", after: null, limit: ALL });
  }

  async pending(): Promise<{ readonly isHeld: boolean; readonly nextDueMs: number | null }> {
    const { nowMs } = this.clock;
    let nextDueMs = Number.POSITIVE_INFINITY;
    let isHeld = false;
    for (const { kind, holder, dueMs } of await this.#rows()) {
      // A run without a worker, or overdue and unclaimed, does not continue by itself.
      if (kind === null || !this.#kinds.has(kind) || dueMs === null) continue;
      if (holder !== null) isHeld = true;
      else if (dueMs > nowMs) nextDueMs = Math.min(nextDueMs, dueMs);
    }
    return { isHeld, nextDueMs: Number.isFinite(nextDueMs) ? nextDueMs : null };
  }

  async describe(): Promise<string> {
    const open = (await this.#rows()).filter(({ status }) => !ENDED.has(status ?? ""));
    if (open.length === 0) return "every run has ended";
    const described = open.slice(0, 5).map(({ key, kind, status }) => {
      const isKnown = kind === null || this.#kinds.has(kind);
      return `run "${key}" is ${status}${isKnown ? "" : ", and its workflow has no worker"}`;
    });
    const more = open.length - described.length;
    return [...described, ...(more > 0 ? [`${more} more`] : [])].join(", ");
  }
}

/** The handle of one request in a test (`with`). */
export type ScopedTestPawl = Omit<ScopedPawl, "start" | "run" | "with"> &
  Pick<TestPawl, "start" | "run"> & { with(origin: Origin): ScopedTestPawl };

/** A Pawl for tests, returned by `openTest`. */
export class TestPawl extends Pawl {
  readonly clock: TestClock;
  /** As any other, but no code is kept in memory while a run waits, so that every wait is a replay. `warm` changes that. */
  declare readonly work: Pawl["work"];
  declare readonly start: {
    <Input, Output>(
      workflow: Workflow<Input, Output>,
      ...rest: WithInput<Input, StartOptions>
    ): Promise<TestRun<Output>>;
    (workflow: string, input?: unknown, options?: StartOptions): Promise<TestRun>;
  };
  declare readonly run: {
    <Output>(workflow: Workflow<never, Output>, id: string): TestRun<Output>;
    (workflow: string, id: string): TestRun;
    (id: string): TestRun;
  };
  readonly #isStrict: boolean;
  #closing: Promise<void> | undefined;

  /** @internal */
  constructor(
    kernel: Kernel,
    clock: TestClock,
    prepare: (workflow: AnyWorkflow) => AnyWorkflow,
    isStrict: boolean,
    capabilities: CapabilityOptions,
  ) {
    super(kernel, capabilities);
    this.clock = clock;
    this.#isStrict = isStrict;
    Object.assign(this, this.#verbs({ ...(this as Pawl) }, prepare));
  }

  /** Those that are different here, made of those of any handle. */
  #verbs(any: Pick<Pawl, "work" | "start" | "run">, prepare: (workflow: AnyWorkflow) => AnyWorkflow): object {
    return {
      work: (definitions: readonly WorkDefinition[], options?: WorkOptions): Worker =>
        any.work(
          definitions.map((one) => (definitionOf(one) === undefined ? one : prepare(one as AnyWorkflow))),
          { warm: 0, ...options, on: this.#watched(options?.on) },
        ),
      ...this.#inTimeOf(any),
    };
  }

  #inTimeOf(any: Pick<Pawl, "start" | "run">): object {
    return {
      start: async (...given: Parameters<Pawl["start"]>) => this.#inTime(await any.start(...given)),
      run: (...given: Parameters<Pawl["run"]>) => this.#inTime(any.run(...given)),
    };
  }

  /** As any other, but its runs are those of tests. */
  override with(origin: Origin): ScopedTestPawl {
    const scoped = super.with(origin);
    const again = (more: Origin): ScopedTestPawl => this.with({ ...origin, ...more });
    return { ...scoped, ...this.#inTimeOf(scoped), with: again } as ScopedTestPawl;
  }

  /** Detects mistakes of the code, and calls the test's own listener. */
  #watched(on: RunListener | undefined): RunListener | undefined {
    if (!this.#isStrict) return on;
    // The listener may return a promise that rejects, which the worker handles.
    const watch = (event: RunEvent): unknown => {
      const mistake = mistakeIn(event);
      if (mistake !== undefined) this.clock.fail(mistake);
      return on?.(event);
    };
    return Object.assign(watch, { around: on?.around });
  }

  /** Advances the clock while the test waits for the run. */
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
    const check = (): void => void run.status().then(({ status }) => seen(status), reject);
    // Effects of earlier calls come first: a run that was just signaled is no longer waiting.
    await this.clock.quiet();
    const unlisten = this.kernel.listen((puts) => {
      if (puts === undefined) return check();
      for (const { row } of puts) if (row.space === RUNS && row.key === run.id) seen(row.status as RunStatus);
    });
    try {
      check();
      await this.clock.during(promise);
    } finally {
      unlisten();
    }
    return run.status();
  }

  /** Closes the handle; steps in progress get their time to end. */
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
