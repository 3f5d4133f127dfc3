/**
 * `crashEverywhere`: executes a workflow in a process that crashes before and after every call of its store; each time the run must end
 * in the same way.
 *
 * The workflow runs once without a crash, to count the calls. Then it runs twice for each call: once the process crashes before the call, so
 * that the call does not happen, and once after it, so that it happened and the reply is lost. Another process on the same database then
 * continues. The caller that started the run starts it again, as one does without a reply, and gets the result from that process.
 *
 * After a crash, nothing that the process waits for settles, so no `finally` runs, as with kill -9. The test's own `world` stands for external
 * services; it survives the crash, and is made anew for each run.
 *
 * Guarantees: every call of the store is tried, and a different end is reported with the call.
 */

import { checkOptions, optionNames } from "../../kernel/check.ts";
import { jsonCodec } from "../../kernel/codec/json.ts";
import { InvalidArgumentError } from "../../kernel/errors.ts";
import type { WithInput } from "../../workflow/definitions/context-types.ts";
import { type AnyWorkflow, definitionOf, type Workflow } from "../../workflow/definitions/definition.ts";
import { RunFailedError } from "../../workflow/errors.ts";
import type { RunStatus } from "../../workflow/stored.ts";
import { OPEN_TEST, type OpenTestOptions, TestEnvironment, type TestPawl, type TestRun } from "./pawl.ts";
import type { Around } from "./steps.ts";
import { type CallInterceptor, never } from "./store.ts";

/** Where the process crashed: before or after this call of its store. */
export interface CrashPoint {
  readonly when: "before" | "after";
  /** 1 for the process's first call. */
  readonly call: number;
  /** The name of the call, such as "commit". */
  readonly kind: string;
}

/** The outcome of one run. */
export interface CrashedRun<Output, World> {
  /** Null for the run without a crash. */
  readonly crash: CrashPoint | null;
  readonly status: RunStatus;
  /** The result, if it completed. */
  readonly value: Output | undefined;
  /** The error, if it did not. */
  readonly error: unknown;
  /** How often the function of each step ran, by the step's name. */
  readonly ran: Readonly<Record<string, number>>;
  readonly world: World;
}

export interface CrashOptions<Input, Output, World> extends OpenTestOptions {
  readonly input?: Input;
  /** Returns the external services, for each run anew. */
  readonly world?: (() => World) | undefined;
  /** Returns the workflows of the workers, for that world. Default: the workflow itself. */
  readonly workflows?: ((world: World) => readonly AnyWorkflow[]) | undefined;
  /** Acts on the run while it executes: signals, cancellation. */
  readonly script?: ((run: TestRun<Output>, pawl: TestPawl, world: World) => Promise<void>) | undefined;
  /** Checks each run after it has ended, and throws if something is wrong. */
  readonly check?: ((run: CrashedRun<Output, World>) => void | Promise<void>) | undefined;
  /** Allows a run to be parked after a crash, because a step that runs at most once may or may not have happened. Default: false. */
  readonly mayPark?: boolean | undefined;
  /** Allows results to differ, because they depend on time or randomness. Default: false. */
  readonly mayDiffer?: boolean | undefined;
}

const OPTIONS = optionNames<CrashOptions<unknown, unknown, unknown>>({
  ...OPEN_TEST,
  input: true,
  world: true,
  workflows: true,
  script: true,
  check: true,
  mayPark: true,
  mayDiffer: true,
});

export interface CrashReport {
  /** How many crashes were tried: two for each call of the store. */
  readonly crashes: number;
  /** The least and the most calls of each step's function in one run. */
  readonly steps: Readonly<Record<string, { readonly least: number; readonly most: number }>>;
  /** How many of the runs were parked. */
  readonly parked: number;
}

/** After a crash, the run did not end as it does without one. */
export class CrashError extends Error {
  override readonly name = "CrashError";
  readonly crash: CrashPoint | null;

  constructor(crash: CrashPoint | null, what: string, options?: { cause: unknown }) {
    const where =
      crash === null ? "without a crash" : `after a crash ${crash.when} store call ${crash.call} (${crash.kind})`;
    super(`${where}: ${what}`, options);
    this.crash = crash;
  }
}

/** Runs a workflow with a crash before and after each call of its store. Throws `CrashError` for the first run that ends differently. */
export async function crashEverywhere<Input, Output, World = undefined>(
  workflow: Workflow<Input, Output>,
  ...[options = {}]: undefined extends Input
    ? [options?: CrashOptions<Input, Output, World>]
    : [options: CrashOptions<Input, Output, World> & { readonly input: Input }]
): Promise<CrashReport> {
  if (definitionOf(workflow) === undefined)
    throw new InvalidArgumentError("the workflow", "must be one that workflow() returned");
  checkOptions(options, OPTIONS);
  const counting = new CrashInjector(null);
  const first = await runOnce(workflow, options, counting);
  const runs = [first];
  for (let call = 1; call <= counting.calls.length; call++)
    for (const when of ["before", "after"] as const) {
      const run = await runOnce(
        workflow,
        options,
        new CrashInjector({ when, call, kind: counting.calls[call - 1] ?? "" }),
      );
      const isFine =
        textOf(run, options.mayDiffer) === textOf(first, options.mayDiffer) ||
        (run.status === "parked" && options.mayPark === true);
      if (!isFine) throw new CrashError(run.crash, `it ${describe(run)}; without a crash it ${describe(first)}`);
      runs.push(run);
    }
  return report(runs);
}

/** Counts a process's calls, and crashes it at one of them. @internal */
export class CrashInjector implements CallInterceptor {
  readonly point: CrashPoint | null;
  readonly calls: string[] = [];
  readonly #died = Promise.withResolvers<void>();
  isAlive = true;

  constructor(point: CrashPoint | null) {
    this.point = point;
  }

  get died(): Promise<void> {
    return this.#died.promise;
  }

  async pass<T>(call: string, effect: () => Promise<T>): Promise<T> {
    if (!this.isAlive) return never();
    this.calls.push(call);
    const isLast = this.calls.length === this.point?.call;
    if (isLast && this.point?.when === "before") {
      this.#die();
      return never();
    }
    try {
      return await effect();
    } finally {
      if (isLast) this.#die();
      // Calls from before the crash get no reply either.
      if (!this.isAlive) await never();
    }
  }

  #die(): void {
    this.isAlive = false;
    this.#died.resolve();
  }
}

const RUN_ID = "run-1";

async function runOnce<Input, Output, World>(
  workflow: Workflow<Input, Output>,
  options: CrashOptions<Input, Output, World>,
  injector: CrashInjector,
): Promise<CrashedRun<Output, World>> {
  const { now, namespace, codec, seed, strict, mayFail, actions, subjectKeys, archive } = options;
  const environment = new TestEnvironment({
    now,
    namespace,
    codec,
    seed,
    strict,
    mayFail,
    actions,
    subjectKeys,
    archive,
  });
  const { clock } = environment;
  // Without the option, `World` is undefined.
  const world = options.world?.() as World;
  const workflows = options.workflows?.(world) ?? [workflow];
  const counts = new Map<string, number>();
  const counted: Around =
    (name, run) =>
    (...given) => {
      counts.set(name, (counts.get(name) ?? 0) + 1);
      return run(...given);
    };
  const rest = [options.input, { id: RUN_ID }] as unknown as WithInput<Input, { readonly id: string }>;
  const process = environment.open(injector, counted);
  const caller = environment.open();
  let successor: TestPawl | undefined;
  const takenOver = injector.died.then(() => {
    successor = environment.open(undefined, counted);
    successor.work(workflows);
  });
  try {
    process.work(workflows);
    await clock.during(Promise.race([process.start(workflow, ...rest), takenOver]));
    const run = await caller.start(workflow, ...rest);
    await options.script?.(run, caller, world);
    const ended = await outcomeOf(run);
    const seen = { crash: injector.point, ...ended, ran: Object.fromEntries(counts), world };
    await options.check?.(seen);
    return seen;
  } catch (error) {
    if (error instanceof CrashError) throw error;
    throw new CrashError(injector.point, error instanceof Error ? error.message : String(error), { cause: error });
  } finally {
    for (const pawl of [successor, caller, injector.isAlive ? process : undefined]) await pawl?.close();
  }
}

type Ended<Output> = Pick<CrashedRun<Output, unknown>, "status" | "value" | "error">;

async function outcomeOf<Output>(run: TestRun<Output>): Promise<Ended<Output>> {
  try {
    return { value: await run.result(), error: undefined, status: "completed" };
  } catch (error) {
    const { status } = await run.status();
    if (status === "pending" || status === "running" || status === "waiting") throw error;
    return { value: undefined, error: error instanceof RunFailedError ? error.cause : error, status };
  }
}

/** The part of the outcome that must be the same with and without a crash. */
function textOf({ status, value, error }: CrashedRun<unknown, unknown>, mayDiffer: boolean | undefined): string {
  if (mayDiffer === true) return status;
  return jsonCodec.encode([status, value, error === undefined ? null : String(error)], NOWHERE);
}

const NOWHERE = { namespace: "", space: "", key: "" };

function describe({ status, value, error }: CrashedRun<unknown, unknown>): string {
  if (status === "completed") return `completed with ${jsonCodec.encode(value, NOWHERE)}`;
  return `is ${status} with ${String(error)}`;
}

function report(runs: readonly CrashedRun<unknown, unknown>[]): CrashReport {
  const names = new Set(runs.flatMap(({ ran }) => Object.keys(ran)));
  const steps = [...names].map((name) => {
    const counts = runs.map(({ ran }) => ran[name] ?? 0);
    return [name, { least: Math.min(...counts), most: Math.max(...counts) }] as const;
  });
  return {
    crashes: runs.length - 1,
    steps: Object.fromEntries(steps),
    parked: runs.filter(({ status }) => status === "parked").length,
  };
}
