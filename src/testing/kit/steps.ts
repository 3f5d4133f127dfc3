/**
 * Replaces steps of a workflow by stubs, without a change to its code.
 *
 * The workflow's code gets a `ctx` whose `step` calls another function under the same name. The rest is unchanged: a stubbed step is
 * recorded, retried, timed out and keyed like any other.
 *
 * A stubbed `step.tx` is a plain step, because there is no SQL in memory: its stub runs again after a crash that loses its record, just as the
 * transaction would have been rolled back.
 */

import { checkObject, checkOptions, checkVersion, optionNames } from "../../kernel/check.ts";
import type { Sql } from "../../kernel/contract.ts";
import { InvalidArgumentError, NonRetryableError } from "../../kernel/errors.ts";
import type { AtMostOnceOptions, StepFunction, StepOptions } from "../../workflow/definitions/context-types.ts";
import { type AnyWorkflow, definitionOf, type Workflow, workflowOf } from "../../workflow/definitions/definition.ts";
import type { Reconciled, StepHandle } from "../../workflow/definitions/plans.ts";
import type { Context } from "../../workflow/execution/context.ts";
import type { Operation } from "../../workflow/execution/operation.ts";

/** One call of a stub. */
export interface StubCall {
  /** The run's id. */
  readonly run: string;
  /** The step's name. */
  readonly step: string;
  readonly key: string;
  readonly attempt: number;
}

/** Replaces a step's function in a test. `call` has the step and the run. */
export type StepStub<T = unknown> = (step: StepHandle, call: StubCall) => T | PromiseLike<T>;

/** A stub; for a step that runs at most once, optionally with a stub of `reconcile`. */
export type AnyStepStub<T = unknown> =
  | StepStub<T>
  | { readonly run: StepStub<T>; readonly reconcile: (step: { readonly key: string }) => Reconciled<T> };

/** Stubs by step, for steps with these results: `{ … } satisfies StubsOf<{ charge: Charge }>` checks names and results. */
export type StubsOf<Steps> = { readonly [Name in keyof Steps]?: AnyStepStub<Steps[Name]> };

/** A stub that records its calls. */
export interface Stub<T> extends StepStub<T> {
  readonly calls: readonly StubCall[];
}

export interface StubOptions {
  /** How often each step fails before it succeeds. Default: 0. */
  readonly failures?: number | undefined;
  /** The error of these failures. Default: an `Error` with the step's name. */
  readonly error?: unknown;
}

const STUB_OPTIONS = optionNames<StubOptions>({ failures: true, error: true });

/** Returns a stub that returns this result, or calls this function, and records its calls. */
export function stub<T>(result: T | StepStub<T>, options: StubOptions = {}): Stub<T> {
  const calls: StubCall[] = [];
  checkOptions(options, STUB_OPTIONS);
  const { failures = 0 } = options;
  checkVersion(failures, "the failures");
  const run = (step: StepHandle, call: StubCall): T | PromiseLike<T> => {
    calls.push(call);
    // Counted by key: after a crash that loses attempts, they are numbered from 1 again.
    if (calls.filter(({ key }) => key === call.key).length <= failures)
      throw options.error ?? new Error(`the stub of step "${call.step}" fails, as its option failures says`);
    return isStub(result) ? result(step, call) : result;
  };
  return Object.assign(run, { calls });
}

function isStub<T>(result: T | StepStub<T>): result is StepStub<T> {
  return typeof result === "function";
}

export interface WithStepsOptions {
  /** Steps without a stub fail ("refuse"), so that no test calls a real service by mistake, or run ("run"). Default: "refuse". */
  readonly others?: "refuse" | "run" | undefined;
  /**
   * With `others: "run"`, a stub that no run asked for fails the test when its Pawl is closed ("report"): it may be misspelled, and the real step ran. Where it is
   * for a branch that the test does not take: "allow". Default: "report".
   */
  readonly unused?: "report" | "allow" | undefined;
}

const WITH_STEPS_OPTIONS = optionNames<WithStepsOptions>({ others: true, unused: true });
const STUB_PARTS = optionNames<{ run: unknown; reconcile: unknown }>({ run: true, reconcile: true });

/** What the runs of a workflow with stubs asked for, by the names of steps. */
export interface StubUse {
  /** Stubs that no step has asked for so far. */
  readonly unused: Set<string>;
  /** Steps that ran for real. */
  readonly real: Set<string>;
}

const uses = new WeakMap<object, StubUse>();

/** What was used of the stubs of a workflow that `withSteps` returned; undefined where that does not matter. @internal */
export const stubUseOf = (workflow: object): StubUse | undefined => uses.get(workflow);

/** Returns the workflow with these steps replaced, by name. It has the same name and type; give it to `pawl.work` instead. */
export function withSteps<Input, Output>(
  original: Workflow<Input, Output>,
  stubs: Readonly<Record<string, AnyStepStub>>,
  options: WithStepsOptions = {},
): Workflow<Input, Output> {
  checkOptions(options, WITH_STEPS_OPTIONS);
  const { others = "refuse", unused = "report" } = options;
  if (others !== "refuse" && others !== "run") throw new InvalidArgumentError("others", 'must be "refuse" or "run"');
  if (unused !== "report" && unused !== "allow")
    throw new InvalidArgumentError("unused", 'must be "report" or "allow"');
  if (definitionOf(original) === undefined)
    throw new InvalidArgumentError("the workflow", "must be one that workflow() returned");
  checkObject(stubs, "the stubs");
  if (Array.isArray(stubs)) throw new InvalidArgumentError("the stubs", "must be an object of stubs by name");
  for (const [name, given] of Object.entries(stubs)) {
    const what = `the stub of step "${name}"`;
    if (typeof (typeof given === "object" ? given?.run : given) !== "function")
      throw new InvalidArgumentError(what, "must be a function, or an object with run and reconcile");
    if (typeof given === "object") checkOptions(given, STUB_PARTS, what);
  }
  const use: StubUse = { unused: new Set(Object.keys(stubs)), real: new Set() };
  const find = (name: string): AnyStepStub | undefined => {
    use.unused.delete(name);
    if (Object.hasOwn(stubs, name)) return stubs[name];
    if (others !== "run") return missing(name);
    use.real.add(name);
    return undefined;
  };
  const changed = withContext(original, (step, ctx) => stubbed(step, ctx.runId, find));
  if (others === "run" && unused === "report") uses.set(changed, use);
  return changed;
}

const missing = (name: string): StepStub => {
  return () => {
    throw new NonRetryableError(`step "${name}" has no stub: give it one, or let it run with { others: "run" }`);
  };
};

type Plain = <T>(name: string, run: (step: StepHandle) => T | PromiseLike<T>, options?: StepOptions) => Operation<T>;
type InSql = <T>(
  name: string,
  run: (sql: Sql, step: StepHandle) => T | PromiseLike<T>,
  options?: StepOptions,
) => Operation<T>;
type InSync = StepFunction["tx"]["sync"];
type Within = StepFunction["tx"]["within"];
type AtMostOnce = StepFunction["atMostOnce"];

const stepFunction = (plain: Plain, inSql: InSql, sync: InSync, within: Within, atMostOnce: AtMostOnce): StepFunction =>
  Object.assign(plain, { tx: Object.assign(inSql, { sync, within }), atMostOnce });

function stubbed(original: StepFunction, run: string, find: (name: string) => AnyStepStub | undefined): StepFunction {
  /** Returns the stub as a step's function. */
  const as = <T>(name: string, given: AnyStepStub) => {
    const act = typeof given === "function" ? given : given.run;
    return (step: StepHandle): T => act(step, { run, step: name, key: step.key, attempt: step.attempt }) as T;
  };
  const plain: Plain = (name, real, options) => {
    const found = find(name);
    return original(name, found === undefined ? real : as(name, found), options);
  };
  const inSql: InSql = (name, real, options) => {
    const found = find(name);
    return found === undefined ? original.tx(name, real, options) : original(name, as(name, found), options);
  };
  const sync: InSync = (name, real, options) => {
    const found = find(name);
    return found === undefined ? original.tx.sync(name, real, options) : original(name, as(name, found), options);
  };
  const within: Within = (name, real, options) => {
    const found = find(name);
    return found === undefined ? original.tx.within(name, real, options) : original(name, as(name, found), options);
  };
  const atMostOnce: AtMostOnce = <T>(
    name: string,
    real: (step: StepHandle) => T | PromiseLike<T>,
    options?: AtMostOnceOptions<T>,
  ) => {
    const found = find(name);
    if (found === undefined) return original.atMostOnce(name, real, options);
    // The real `reconcile` would call the real service.
    const reconcile =
      typeof found === "function" ? undefined : (at: { readonly key: string }) => found.reconcile(at) as Reconciled<T>;
    return original.atMostOnce<T>(name, as(name, found), { ...options, reconcile });
  };
  return stepFunction(plain, inSql, sync, within, atMostOnce);
}

/** Wraps the function of a step. @internal */
export type Around = <Given extends readonly unknown[], T>(
  name: string,
  run: (...given: Given) => T,
) => (...given: Given) => T;

/** Returns the workflow with the functions of all steps wrapped. @internal */
export function aroundSteps(original: AnyWorkflow, around: Around): AnyWorkflow {
  return withContext(original, (step) =>
    stepFunction(
      (name, run, options) => step(name, around(name, run), options),
      (name, run, options) => step.tx(name, around(name, run), options),
      (name, run, options) => step.tx.sync(name, around(name, run), options),
      (name, run, options) => step.tx.within(name, around(name, run), options),
      (name, run, options) => step.atMostOnce(name, around(name, run), options),
    ),
  );
}

/** Returns the same workflow with another `ctx.step`. */
function withContext<Input, Output>(
  original: Workflow<Input, Output>,
  change: (step: StepFunction, ctx: Context) => StepFunction,
): Workflow<Input, Output> {
  const definition = definitionOf(original);
  if (definition === undefined) throw new InvalidArgumentError("the workflow", "must be one that workflow() returned");
  const changed = workflowOf({
    ...definition,
    body: (ctx, given) => {
      // Each execution of a run has its own `ctx`, whose own property overrides that of the prototype.
      Object.defineProperty(ctx, "step", { value: change(ctx.step, ctx), configurable: true });
      return definition.body(ctx, given);
    },
  });
  return changed as Workflow<Input, Output>;
}
