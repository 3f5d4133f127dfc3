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
  checkList,
  checkOptions,
  checkVersion,
  type Duration,
  optionNames,
} from "../../kernel/check.ts";
import type { Codec } from "../../kernel/codec/codec.ts";
import type { Put, Store } from "../../kernel/contract.ts";
import { InvalidArgumentError } from "../../kernel/errors.ts";
import { Kernel } from "../../kernel/kernel.ts";
import type { Origin } from "../../kernel/origin.ts";
import { KEYS_OPTIONS } from "../../kernel/seal/ring.ts";
import { nodePorts } from "../../node/ports.ts";
import { trapAmbient } from "../../node/trap.ts";
import { Pawl, type ScopedPawl } from "../../pawl.ts";
import { scheduleRules } from "../../schedule/definition.ts";
import { CREATED_QUEUE, declaredQueueOf } from "../../schedule/stored.ts";
import { MemoryDatabase } from "../../stores/memory/memory.ts";
import { type Archive, checkArchive } from "../../stream/closing/archive.ts";
import { checkSubjectKeys, type SubjectKeys } from "../../stream/personal/keys.ts";
import { type Projection, projectionRules } from "../../stream/projections/definition.ts";
import { GENERATIONS, type GenerationValue, generationQueueOf } from "../../stream/projections/stored.ts";
import { aroundHandler, reactionRules } from "../../stream/reactions/definition.ts";
import {
  BLOCKED,
  type DeadLetter,
  deadSpaceOf,
  REACTIONS,
  routerQueueOf,
  type TargetValue,
  targetQueueOf,
  targetSpaceOf,
} from "../../stream/reactions/stored.ts";
import type { Worker } from "../../worker.ts";
import type { WithInput } from "../../workflow/definitions/context-types.ts";
import { type AnyWorkflow, definitionOf, type Workflow } from "../../workflow/definitions/definition.ts";
import { HistoryContradictionError, RunEndedError } from "../../workflow/errors.ts";
import type { RunEvent, RunListener } from "../../workflow/events.ts";
import { PAUSED } from "../../workflow/flow/stored.ts";
import type { Run, RunInfo, StartOptions } from "../../workflow/runs/run.ts";
import {
  ENDED,
  newQueueOf,
  queuedQueueOf,
  queueOf,
  RUNS,
  type RunStatus,
  type RunValue,
} from "../../workflow/stored.ts";
import { Random } from "../sim/random.ts";
import { type RunsView, STANDING_LEASE_MS, TestClock } from "./clock.ts";
import { type Around, aroundSteps, type StubUse, stubUseOf } from "./steps.ts";
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
   * is not awaited, a failure that is never observed, a step handle that is used after its step. So does a reaction that blocks a target or makes a
   * dead letter, and a projection that cannot apply an event. Default: true.
   */
  readonly strict?: boolean | undefined;
  /** The names of reactions and projections that may fail without failing the test. Default: none. */
  readonly mayFail?: readonly string[] | undefined;
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
  mayFail: true,
  actions: true,
  subjectKeys: true,
  archive: true,
} as const satisfies Record<keyof OpenTestOptions, true>;

const OPTIONS = optionNames<OpenTestOptions>(OPEN_TEST);

/** A workflow's code makes a mistake that would be unnoticed in production. `openTest({ strict: false })` allows it. */
export class WorkflowMistakeError extends Error {
  override readonly name = "WorkflowMistakeError";
}

/** A reaction blocked a target or made a dead letter, or a projection does not get ahead. `openTest({ mayFail: [name] })` allows it. */
export class StreamFailureError extends Error {
  override readonly name = "StreamFailureError";
}

/** A run in a test: like any other, but the clock advances while the test waits for its result or a status. */
export type TestRun<Output = unknown> = Run<Output> & {
  /** Waits until the run has this status, or one of these. Throws `run_ended` if it has ended with another. */
  until(status: RunStatus | readonly RunStatus[]): Promise<RunInfo>;
};

/** Opens a Pawl in memory, with a clock that the test moves. */
export function openTest(options: OpenTestOptions = {}): TestPawl {
  return new TestEnvironment(options).open(undefined, undefined, true);
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
  readonly #mayFail: ReadonlySet<string>;
  readonly #capabilities: CapabilityOptions;
  /** A connection for reads that are not reported to the clock. */
  readonly #reader: Store;
  readonly #kinds = new Set<string>();
  /** The queues of schedules that a worker takes. */
  readonly #scheduleKinds = new Set<string>();
  /** Where the targets of reactions are that have a worker. */
  readonly #targetSpaces = new Set<string>();
  /** Says what a run waits for; of the process that was opened last. */
  #whyWaiting: (run: string) => Promise<string | undefined> = async () => undefined;

  constructor(options: OpenTestOptions = {}) {
    checkOptions(options, OPTIONS);
    const {
      now = START_MS,
      namespace = "test",
      seed = 1,
      codec,
      strict = true,
      mayFail = [],
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
    checkList(mayFail, "mayFail");
    this.#mayFail = new Set(mayFail.map((name) => checkId(name, "the name of a reaction or a projection")));
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

  /**
   * Returns the handle of a new process. `interceptor` can crash it at any call of its store; `around` wraps the functions of its steps. `isOnly`: there is
   * no other process.
   */
  open(interceptor?: CallInterceptor, around?: Around, isOnly = false): TestPawl {
    const isAlive = (): boolean => interceptor?.isAlive ?? true;
    const store = new InterceptedStore(this.#database.connect(this.#namespace), interceptor, () =>
      this.clock.noteActivity(),
    );
    const ports = {
      clock: this.clock.portFor(isAlive),
      chance: { random: () => this.#random.unit(), uuid: () => this.#random.uuid(), stamp: this.#random.stamp },
      trap: trapAmbient,
      bodies: nodePorts.bodies,
      standingLeaseMs: isOnly ? STANDING_LEASE_MS : undefined,
    };
    const kernel = new Kernel(store, ports, { namespace: this.#namespace, codec: this.#codec });
    const tracked: Around = (name, run) => {
      const inner = around === undefined ? run : around(name, run);
      return (...given) => this.clock.track(`step "${name}"`, inner(...given));
    };
    const prepare = (definition: WorkDefinition): WorkDefinition => this.#prepare(definition, tracked);
    const strictness = this.#isStrict ? { mayFail: this.#mayFail, isOnly } : undefined;
    const opened = new TestPawl(kernel, this.clock, prepare, strictness, this.#capabilities);
    this.#whyWaiting = async (run) => (isAlive() ? (await opened.whyWaiting({ run })).says : undefined);
    return opened;
  }

  /** A definition as it is worked on here: the clock waits for its functions, and knows its records. */
  #prepare(definition: WorkDefinition, tracked: Around): WorkDefinition {
    this.#scheduleKinds.add(CREATED_QUEUE);
    const schedule = scheduleRules(definition);
    if (schedule !== undefined) this.#scheduleKinds.add(declaredQueueOf(schedule.by));
    const workflow = definitionOf(definition);
    if (workflow !== undefined) {
      this.#kinds.add(queuedQueueOf(definition.name));
      for (const pool of [undefined, ...(workflow.flow?.pools?.names ?? [])])
        for (const kind of [queueOf, newQueueOf]) this.#kinds.add(kind(definition.name, pool));
      return aroundSteps(definition as AnyWorkflow, tracked);
    }
    const projection = projectionRules(definition);
    if (projection !== undefined) this.#kinds.add(generationQueueOf(projection.name, projection.by));
    const reaction = reactionRules(definition);
    if (reaction === undefined) return definition;
    const { name } = reaction;
    this.#kinds.add(routerQueueOf(name)).add(targetQueueOf(name));
    this.#targetSpaces.add(targetSpaceOf(name));
    return aroundHandler(
      reaction,
      (handler) =>
        (...given) =>
          this.clock.track(`the handler of reaction "${name}"`, handler(...given)),
    );
  }

  async #rows(space = RUNS) {
    return this.#reader.list({ space, prefix: "", after: null, limit: ALL });
  }

  /** Records that a worker holds all the time: being held says nothing about them. */
  async #standing() {
    const rows = await Promise.all([this.#rows(REACTIONS), this.#rows(GENERATIONS)]);
    return rows.flat().filter(({ holder }) => holder === null);
  }

  async pending(): ReturnType<RunsView["pending"]> {
    const { nowMs } = this.clock;
    let nextDueMs = Number.POSITIVE_INFINITY;
    let isHeld = false;
    const spaces = [this.#rows(), this.#standing(), ...Array.from(this.#targetSpaces, (space) => this.#rows(space))];
    for (const { kind, holder, dueMs } of (await Promise.all(spaces)).flat()) {
      // A run without a worker, or overdue and unclaimed, does not continue by itself.
      if (kind === null || !this.#kinds.has(kind) || dueMs === null) continue;
      if (holder !== null) isHeld = true;
      else if (dueMs > nowMs) nextDueMs = Math.min(nextDueMs, dueMs);
    }
    const ticks = await this.#reader.due({ kinds: [...this.#scheduleKinds], limit: 1 });
    return { isHeld, nextDueMs: Number.isFinite(nextDueMs) ? nextDueMs : null, nextTickMs: ticks.nextDueMs };
  }

  async describe(): Promise<string> {
    const open = (await this.#rows()).filter(({ status }) => !ENDED.has(status ?? ""));
    if (open.length === 0) return "every run has ended";
    const paused = new Map(
      (await this.#rows(PAUSED)).flatMap(({ key, value }) => (value === null ? [] : [[newQueueOf(key), key]])),
    );
    const described = open.slice(0, 5).map(async ({ key, kind, status }) => {
      // A run that cannot be read, or a handle that is closed, is no reason to say nothing.
      const says = await this.#whyWaiting(key).catch(() => undefined);
      const name = `run "${key}" `;
      const why = says?.startsWith(name) ? says.slice(name.length) : says;
      const is = `is ${status}`;
      const state = status === "running" || why === undefined ? is : why.startsWith(is) ? why : `${is}: ${why}`;
      const isKnown = kind === null || this.#kinds.has(kind);
      const workflow = paused.get(kind ?? "");
      const isPaused = workflow === undefined ? "" : `, and its workflow "${workflow}" is paused`;
      return `${name}${state}${isKnown ? "" : ", and its workflow has no worker"}${isPaused}`;
    });
    const more = open.length - described.length;
    return [...(await Promise.all(described)), ...(more > 0 ? [`${more} more`] : [])].join("; ");
  }
}

/** What may fail without failing the test. */
interface Strictness {
  readonly mayFail: ReadonlySet<string>;
  /** There is no other process, so what none of its runs did was not done at all. */
  readonly isOnly: boolean;
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
  readonly #strictness: Strictness | undefined;
  /** Stubs of the workflows that are worked on here, and the names of workflows of which a run has ended. */
  readonly #stubs = new Map<StubUse, string>();
  readonly #ended = new Set<string>();
  #closing: Promise<void> | undefined;

  /** @internal */
  constructor(
    kernel: Kernel,
    clock: TestClock,
    prepare: (definition: WorkDefinition) => WorkDefinition,
    strictness: Strictness | undefined,
    capabilities: CapabilityOptions,
  ) {
    super(kernel, capabilities);
    this.clock = clock;
    this.#strictness = strictness;
    if (strictness !== undefined)
      kernel.listen((puts = []) => {
        for (const put of puts) {
          const failure = failureIn(kernel, put, strictness.mayFail);
          if (failure !== undefined) clock.fail(failure);
          if (this.#stubs.size > 0 && put.row.space === RUNS && ENDED.has(put.row.status ?? "")) this.#noteEnd(put);
        }
      });
    Object.assign(this, this.#verbs({ ...(this as Pawl) }, prepare));
  }

  /** Those that are different here, made of those of any handle. */
  #verbs(
    any: Pick<Pawl, "work" | "start" | "run" | "projection">,
    prepare: (definition: WorkDefinition) => WorkDefinition,
  ): object {
    return {
      work: (definitions: readonly WorkDefinition[], options?: WorkOptions): Worker => {
        if (Array.isArray(definitions) && this.#strictness?.isOnly === true) this.#noteStubs(definitions);
        return any.work(Array.isArray(definitions) ? definitions.map(prepare) : definitions, {
          warm: 0,
          ...options,
          on: this.#watched(options?.on),
        });
      },
      ...this.#inTimeOf(any),
    };
  }

  #inTimeOf(any: Pick<Pawl, "start" | "run" | "projection">): object {
    return {
      projection: (given: Projection) => {
        const handle = any.projection(given);
        const waitFor = handle.waitFor.bind(handle);
        const inTime = (...asked: Parameters<typeof waitFor>) => this.clock.during(waitFor(...asked));
        return Object.assign(handle, { waitFor: inTime });
      },
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
    if (this.#strictness === undefined) return on;
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

  #noteStubs(definitions: readonly WorkDefinition[]): void {
    for (const definition of definitions) {
      const use = definitionOf(definition) === undefined ? undefined : stubUseOf(definition);
      if (use !== undefined) this.#stubs.set(use, definition.name);
    }
  }

  #noteEnd({ row }: Put): void {
    if (row.value !== null) this.#ended.add((this.kernel.decode(row, row.value) as RunValue).workflow);
  }

  /** A stub that no step has asked for, while others ran for real, is misspelled or superfluous. */
  #checkStubs(): void {
    for (const [{ unused, real }, workflow] of this.#stubs)
      if (this.#ended.has(workflow) && unused.size > 0 && real.size > 0)
        throw new WorkflowMistakeError(
          `no run of "${workflow}" had a step for the stub ${listed(unused)}, and these steps ran for real: ${listed(real)}. ` +
            'Correct the name, or say withSteps(…, { others: "run", unused: "allow" })',
        );
  }

  /** Closes the handle; steps in progress get their time to end. */
  override close(): Promise<void> {
    this.#closing ??= this.clock.during(super.close()).then(() => this.#checkStubs());
    return this.#closing;
  }
}

const listed = (names: Iterable<string>): string => Array.from(names, (name) => `"${name}"`).join(", ");

/** What a commit says that only an operator would notice. */
function failureIn(kernel: Kernel, { was, row }: Put, mayFail: ReadonlySet<string>): Error | undefined {
  const { space, key, status } = row;
  if (row.value === null) return undefined;
  const [family = "", name = ""] = splitSpace(space);
  const isExpected = mayFail.has(name);
  if (family === TARGETS && status === BLOCKED && was?.status !== BLOCKED && !isExpected) {
    const { failure } = kernel.decode(row, row.value) as TargetValue;
    return new StreamFailureError(
      `target "${key}" of reaction "${name}" is blocked: ${failure?.message ?? "no reason"}`,
    );
  }
  if (family === LETTERS && !isExpected) {
    const { message, actor } = kernel.decode(row, row.value) as DeadLetter;
    // One that an operator asked for is no failure.
    if (actor === undefined && (was === null || was.value === null))
      return new StreamFailureError(`an event of reaction "${name}" became a dead letter: ${message}`);
  }
  if (space === GENERATIONS) {
    const { projection, failure } = kernel.decode(row, row.value) as GenerationValue;
    if (failure === undefined || mayFail.has(projection)) return undefined;
    // It is tried again by itself: the test is told once.
    const before = was === null || was.value === null ? undefined : (kernel.decode(was, was.value) as GenerationValue);
    if (before?.failure !== undefined) return undefined;
    const { stream, version, message } = failure;
    const where = version === 0 ? "" : ` at event ${version} of stream "${stream}"`;
    return new StreamFailureError(`projection "${projection}" does not get ahead${where}: ${message}`);
  }
  return undefined;
}

const [TARGETS, LETTERS] = [targetSpaceOf(""), deadSpaceOf("")];

/** The family of a space, and the reaction that it belongs to. */
function splitSpace(space: string): readonly [family: string, name: string] {
  const end = space.indexOf("/") + 1;
  return [space.slice(0, end), space.slice(end)];
}

function mistakeIn(event: RunEvent): Error | undefined {
  if (event.type === "run.warning") return new WorkflowMistakeError(`run "${event.run}": ${event.message}`);
  if (event.type === "run.trouble" && event.error instanceof HistoryContradictionError) return event.error;
  return undefined;
}
