/**
 * Schedules: what users define. A schedule says when runs of a workflow are started, and with which input.
 */

import { checkId, checkVersion } from "../kernel/check.ts";
import { InvalidArgumentError } from "../kernel/errors.ts";
import { fingerprintOf, hash } from "../kernel/fingerprint.ts";
import { checkSchemaNow, type StandardSchema } from "../kernel/schema.ts";
import { definitionToStart, type Workflow } from "../workflow/definitions/definition.ts";
import { checkPlan, DECLARED_OPTIONS, type DeclaredScheduleOptions } from "./options.ts";
import type { Plan, Target } from "./stored.ts";

/** A tick, as the function that makes the input sees it. */
export interface Tick {
  /** The time of the tick. It is due at this time, and may be decided later. */
  readonly scheduledAt: Date;
  /** The time of the last tick that started a run; undefined for the first one, and in a backfill. */
  readonly lastScheduledAt: Date | undefined;
}

/** The input of the runs: a value, or a pure function of the tick, which is called in the commit that starts the run. */
export type ScheduleInput<Input> = undefined extends Input
  ? [input?: Input | ((tick: Tick) => Input)]
  : [input: Input | ((tick: Tick) => Input)];

/** A schedule that is declared in code, for `pawl.work`. */
export interface Schedule {
  readonly name: string;
}

/** What is known of a schedule that is declared in code. */
export interface ScheduleRules {
  readonly name: string;
  /** Names this definition: two that differ in anything have different ones. */
  readonly by: string;
  readonly revision: number;
  readonly plan: Plan;
  readonly target: Target;
  readonly makeInput: ((tick: Tick) => unknown) | undefined;
  /** Checks what `makeInput` returns. */
  readonly schema: StandardSchema | undefined;
}

const definitions = new WeakMap<object, ScheduleRules>();

/**
 * Defines a schedule: a run of the workflow for each tick. Give it to `pawl.work`: it fires while a worker declares it. The input is a value, or a pure
 * function of the tick.
 */
export function schedule<Input>(
  name: string,
  options: DeclaredScheduleOptions,
  workflow: Workflow<Input, unknown>,
  ...rest: ScheduleInput<Input>
): Schedule;
export function schedule(
  name: string,
  options: DeclaredScheduleOptions,
  workflow: string,
  input?: unknown | ((tick: Tick) => unknown),
): Schedule;
export function schedule(
  name: string,
  options: DeclaredScheduleOptions,
  workflow: string | { readonly name: string },
  input?: unknown,
): Schedule {
  checkId(name, "the schedule's name");
  const plan = checkPlan(options, name, DECLARED_OPTIONS);
  const revision = checkVersion(options.revision ?? 0, `schedule "${name}": revision`);
  const makeInput = typeof input === "function" ? (input as (tick: Tick) => unknown) : undefined;
  const target = targetOf(workflow, makeInput === undefined ? { value: input } : undefined);
  const code = makeInput === undefined ? fingerprintOf(target.input?.value) : `function ${String(makeInput)}`;
  const by = hash(name, String(revision), fingerprintOf(plan), target.workflow, String(target.timeoutMs), code);
  const defined: Schedule = Object.freeze({ name });
  const schema = definitionToStart(workflow)?.input;
  definitions.set(defined, { name, by, revision, plan, target, makeInput, schema });
  return defined;
}

/** What is started, checked. Throws `schema_mismatch` for an input that the workflow does not take. */
export function targetOf(
  workflow: string | { readonly name: string },
  input: { readonly value: unknown } | undefined,
): Target {
  const name = checkId(typeof workflow === "string" ? workflow : workflow?.name, "the workflow");
  const definition = definitionToStart(workflow);
  const timeoutMs = definition?.timeoutMs ?? null;
  return {
    workflow: name,
    ...(input === undefined
      ? {}
      : { input: { value: checkSchemaNow(definition?.input, input.value, "the schedule's input") } }),
    ...(timeoutMs === null ? {} : { timeoutMs }),
  };
}

/** The input of a tick's run. A function must return it, not a promise of it; what it returns is checked by the workflow's schema, as a value was. */
export function inputOf(target: Target, rules: ScheduleRules | undefined, tick: Tick): unknown {
  const makeInput = rules?.makeInput;
  if (makeInput === undefined) return target.input?.value;
  const input = makeInput(tick);
  if (typeof (input as PromiseLike<unknown> | undefined)?.then === "function") {
    void Promise.resolve(input).catch(() => {});
    throw new InvalidArgumentError("the schedule's input", "must be returned, not a promise: do the work in a step");
  }
  return checkSchemaNow(rules?.schema, input, "the schedule's input");
}

/** What is known of a schedule; undefined if it is none. @internal */
export function scheduleRules(schedule: unknown): ScheduleRules | undefined {
  return typeof schedule === "object" && schedule !== null ? definitions.get(schedule) : undefined;
}
