/**
 * `crashEverywhere`: a run in a process that dies before and after every single call of its store, and must come to the same end.
 *
 * It runs once without a crash, to count the calls. Then it runs again for each call, twice: once the process dies before the call, so
 * that nothing of it happens, and once after it, so that it happened and nobody heard. A peer on the same database then goes on. The
 * caller who started the run asks again, as one does who heard nothing, and hears the end from the peer.
 *
 * Death is silence: nothing that the process waited for comes any more, so no `finally` runs, as with kill -9. The outside lives on:
 * it is made by the test, anew for each run.
 *
 * Promises: every call of the store is tried, and an end that differs is reported with the call.
 */

import { checkOptions, optionNames } from "../../kernel/check.ts";
import { jsonCodec } from "../../kernel/codec/json.ts";
import { InvalidArgumentError } from "../../kernel/errors.ts";
import type { WithInput } from "../../workflow/context.ts";
import { type AnyWorkflow, definitionOf, type Workflow } from "../../workflow/definition.ts";
import { RunFailedError } from "../../workflow/errors.ts";
import type { RunStatus } from "../../workflow/words.ts";
import { Laboratory, type OpenTestOptions, type TestPawl, type TestRun } from "./pawl.ts";
import type { Around } from "./steps.ts";
import { type Gate, never } from "./store.ts";

/** Where the process died: before or after this call of its store. */
export interface CrashPoint {
  readonly when: "before" | "after";
  /** 1 for the process's first call. */
  readonly call: number;
  /** Which one it is, such as "commit". */
  readonly kind: string;
}

/** How one run came out. */
export interface CrashedRun<Output, World> {
  /** Null for the run without a crash. */
  readonly crash: CrashPoint | null;
  readonly status: RunStatus;
  /** What it returned, if it completed. */
  readonly value: Output | undefined;
  /** What ended it otherwise. */
  readonly error: unknown;
  /** How often the function of each step ran, by the step's name. */
  readonly ran: Readonly<Record<string, number>>;
  readonly world: World;
}

export interface CrashOptions<Input, Output, World> extends OpenTestOptions {
  readonly input?: Input;
  /** Makes the outside, anew for each run. */
  readonly world?: (() => World) | undefined;
  /** What the processes work on, with that outside; the workflow as it is unless said otherwise. */
  readonly workflows?: ((world: World) => readonly AnyWorkflow[]) | undefined;
  /** What happens from outside while it runs: signals, cancellation. */
  readonly script?: ((run: TestRun<Output>, pawl: TestPawl, world: World) => Promise<void>) | undefined;
  /** Looks at each run when it has ended, and throws if something is wrong with it. */
  readonly check?: ((run: CrashedRun<Output, World>) => void | Promise<void>) | undefined;
  /** A run may be parked after a crash, because a step that runs at most once may or may not have happened. */
  readonly mayPark?: boolean | undefined;
  /** What they return may differ, because it depends on the time or on chance. */
  readonly mayDiffer?: boolean | undefined;
}

const OPTIONS = optionNames<CrashOptions<unknown, unknown, unknown>>({
  now: true,
  namespace: true,
  codec: true,
  seed: true,
  strict: true,
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
  /** How often each step's function ran in one run: at least, and at most. */
  readonly steps: Readonly<Record<string, { readonly least: number; readonly most: number }>>;
  /** How many of the runs were parked. */
  readonly parked: number;
}

/** After a crash, the run did not come to the end that it comes to without one. */
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

/** Runs a workflow with a crash before and after each call of its store. Throws `CrashError` at the first that goes wrong. */
export async function crashEverywhere<Input, Output, World = undefined>(
  workflow: Workflow<Input, Output>,
  ...[options = {}]: undefined extends Input
    ? [options?: CrashOptions<Input, Output, World>]
    : [options: CrashOptions<Input, Output, World> & { readonly input: Input }]
): Promise<CrashReport> {
  if (definitionOf(workflow) === undefined)
    throw new InvalidArgumentError("the workflow", "must be one, as workflow() gives it");
  checkOptions(options, OPTIONS);
  const calm = new Doom(null);
  const first = await runOnce(workflow, options, calm);
  const runs = [first];
  for (let call = 1; call <= calm.calls.length; call++)
    for (const when of ["before", "after"] as const) {
      const run = await runOnce(workflow, options, new Doom({ when, call, kind: calm.calls[call - 1] ?? "" }));
      const isFine =
        textOf(run, options.mayDiffer) === textOf(first, options.mayDiffer) ||
        (run.status === "parked" && options.mayPark === true);
      if (!isFine) throw new CrashError(run.crash, `it ${told(run)}; without a crash it ${told(first)}`);
      runs.push(run);
    }
  return report(runs);
}

/** Counts a process's calls, and ends it at one of them. @internal */
export class Doom implements Gate {
  readonly point: CrashPoint | null;
  readonly calls: string[] = [];
  readonly #died = Promise.withResolvers<void>();
  isOpen = true;

  constructor(point: CrashPoint | null) {
    this.point = point;
  }

  get died(): Promise<void> {
    return this.#died.promise;
  }

  async pass<T>(call: string, effect: () => Promise<T>): Promise<T> {
    if (!this.isOpen) return never();
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
      // The dead hear no answers, whenever they asked.
      if (!this.isOpen) await never();
    }
  }

  #die(): void {
    this.isOpen = false;
    this.#died.resolve();
  }
}

const RUN_ID = "run-1";

async function runOnce<Input, Output, World>(
  workflow: Workflow<Input, Output>,
  options: CrashOptions<Input, Output, World>,
  doom: Doom,
): Promise<CrashedRun<Output, World>> {
  const { now, namespace, codec, seed, strict } = options;
  const laboratory = new Laboratory({ now, namespace, codec, seed, strict });
  const { clock } = laboratory;
  // Without a function that makes one, `World` is undefined.
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
  const process = laboratory.open(doom, counted);
  const caller = laboratory.open();
  let peer: TestPawl | undefined;
  const takenOver = doom.died.then(() => {
    peer = laboratory.open(undefined, counted);
    peer.work(workflows);
  });
  try {
    process.work(workflows);
    await clock.during(Promise.race([process.start(workflow, ...rest), takenOver]));
    const run = await caller.start(workflow, ...rest);
    await options.script?.(run, caller, world);
    const ended = await outcomeOf(run);
    const seen = { crash: doom.point, ...ended, ran: Object.fromEntries(counts), world };
    await options.check?.(seen);
    return seen;
  } catch (error) {
    if (error instanceof CrashError) throw error;
    throw new CrashError(doom.point, error instanceof Error ? error.message : String(error), { cause: error });
  } finally {
    for (const pawl of [peer, caller, doom.isOpen ? process : undefined]) await pawl?.close();
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

/** What must be the same with and without a crash. */
function textOf({ status, value, error }: CrashedRun<unknown, unknown>, mayDiffer: boolean | undefined): string {
  if (mayDiffer === true) return status;
  return jsonCodec.encode([status, value, error === undefined ? null : String(error)], NOWHERE);
}

const NOWHERE = { namespace: "", space: "", key: "" };

function told({ status, value, error }: CrashedRun<unknown, unknown>): string {
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
