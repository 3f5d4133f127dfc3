/**
 * Definitions: `workflow` and `signal`, which need nothing opened and can be imported everywhere.
 *
 * The types flow from here: what a workflow takes and gives, and what a signal carries.
 */

import {
  checkCount,
  checkDuration,
  checkFunction,
  checkId,
  checkOptions,
  type Duration,
  optionNames,
} from "../../kernel/check.ts";
import { InvalidArgumentError } from "../../kernel/errors.ts";
import { checkRetry, type Retry, type RetryOptions } from "../../kernel/retry.ts";
import { checkIsSchema, type StandardSchema } from "../../kernel/schema.ts";
import type { Context } from "../execution/context.ts";
import { NOT_ASYNC_GENERATOR, type Operation } from "../execution/operation.ts";
import type { Received } from "./context-types.ts";
import { type Batch, checkFlow, type Flow, type FlowOptions } from "./flow.ts";
import { checkRetention, type Retention, type RetentionPolicy } from "./retention.ts";

/** The function of a workflow: an async function, or a generator that writes `yield*` before each operation. */
export type Body<Input, Output> = (
  ctx: Context,
  input: Input,
) => PromiseLike<Output> | Generator<Operation<unknown>, Output, unknown>;

/** Any function that can be one; `never` stands for an input that is not known here. */
type AnyBody = (ctx: Context, input: never) => PromiseLike<unknown> | Generator<Operation<unknown>, unknown, unknown>;

/** An input that may be left out, or has a default, is `Input | undefined`; a body without one takes undefined. */
type InputOf<B extends AnyBody> =
  Parameters<B> extends [unknown, infer Input]
    ? Input
    : 2 extends Parameters<B>["length"]
      ? Parameters<B>[1]
      : undefined;

type OutputOf<B extends AnyBody> =
  ReturnType<B> extends Generator<infer _Yield, infer Output, infer _Next>
    ? Output
    : ReturnType<B> extends PromiseLike<infer Output>
      ? Output
      : never;

/**
 * `Input` is what the function gets, and `Returned` what it returns. A schema may transform both: then a run is started with `Given`, which the schema of
 * the input takes, and its result is `Output`, which the schema of the output returns.
 */
export interface WorkflowOptions<Input, Returned, Given = unknown, Output = Returned> extends FlowOptions<Input> {
  readonly name: string;
  /**
   * Checks what the workflow is started with; any library that follows Standard Schema. `start` takes the input of the schema, and the function gets its
   * output. Throws `schema_mismatch` where the run is started.
   */
  readonly input?: StandardSchema<Given, Input> | undefined;
  /** Checks what it returns: it returns the input of the schema, and the run's result is its output. A run whose result is refused fails. */
  readonly output?: StandardSchema<Returned, Output> | undefined;
  /** How its steps are tried again. A step can have a policy of its own. */
  readonly retry?: RetryOptions | undefined;
  /** The code of a run that takes longer gets `run_timed_out`, and may clean up. Default: no timeout. */
  readonly timeout?: Duration | undefined;
  /** How long cleanup may take after a cancellation or a timeout; then the run is ended. Default: 1 hour. */
  readonly grace?: Duration | undefined;
  /** How often a run may be claimed without progress before it is parked. Default: 5. */
  readonly tries?: number | undefined;
  /**
   * How long its runs are kept after they have ended: "30 days", "forever", or a time for each outcome, as in
   * `{ completed: "7 days", failed: "90 days" }`. Default: as `open` says, otherwise forever.
   */
  readonly retention?: Retention | undefined;
  /** Only of a workflow whose function takes a list. */
  readonly batch?: undefined;
}

/** The options of a workflow that collects starts: its function gets the list of their inputs. */
export interface BatchWorkflowOptions<Input, Returned, Given = unknown, Output = Returned>
  extends Omit<WorkflowOptions<Input, Returned, Given, Output>, "batch"> {
  readonly batch: Batch<Input>;
}

const WORKFLOW_OPTIONS = optionNames<WorkflowOptions<unknown, unknown>>({
  name: true,
  input: true,
  output: true,
  retry: true,
  timeout: true,
  grace: true,
  tries: true,
  retention: true,
  concurrency: true,
  fairness: true,
  pools: true,
  rateLimit: true,
  throttle: true,
  debounce: true,
  batch: true,
  priority: true,
  ttl: true,
});

declare const INPUT: unique symbol;
declare const OUTPUT: unique symbol;
declare const CHECKED: unique symbol;
declare const GIVEN: unique symbol;

/**
 * A workflow. Give it to `pawl.work` where it is to run, and to `pawl.start` to start it with an `Input`. `Checked` is what its function gets where a schema
 * makes something else of the input; `never` stands for the input itself.
 */
export interface Workflow<Input = unknown, Output = unknown, Checked = never> {
  readonly name: string;
  readonly [INPUT]?: (input: Input) => void;
  readonly [OUTPUT]?: Output;
  readonly [CHECKED]?: (checked: Checked) => void;
}

/** What the function of a workflow gets: what it is started with where no schema is applied, as by another process that knows only its name. */
export type CheckedInput<Input, Checked> = [Checked] extends [never] ? Input : Checked;

/** A workflow that was defined with these types; `Given` is unknown where no schema says what it takes. */
type Defined<Input, Output, Given> = unknown extends Given ? Workflow<Input, Output> : Workflow<Given, Output, Input>;

/** A workflow of any input and output. */
export type AnyWorkflow = Workflow<never, unknown>;

/** What the engine knows of a workflow. */
export interface Definition {
  readonly name: string;
  readonly body: Body<unknown, unknown>;
  readonly input: StandardSchema | undefined;
  readonly output: StandardSchema | undefined;
  readonly retry: Retry;
  readonly timeoutMs: number | null;
  readonly graceMs: number;
  readonly maxTries: number;
  readonly retention: RetentionPolicy;
  /** When its runs begin; undefined for as soon as a worker has room. */
  readonly flow: Flow | undefined;
}

const definitions = new WeakMap<object, Definition>();
const MAX_TRIES = 5;
const GRACE_MS = 3_600_000;

export function workflow<B extends AnyBody>(name: string, body: B): Workflow<InputOf<B>, OutputOf<B>>;
export function workflow<Input, Returned = unknown, Given = unknown, Output = Returned>(
  options: BatchWorkflowOptions<Input, Returned, Given, Output>,
  body: Body<readonly Input[], Returned>,
): Defined<Input, Output, Given>;
export function workflow<Input = undefined, Returned = unknown, Given = unknown, Output = Returned>(
  options: WorkflowOptions<Input, Returned, Given, Output>,
  body: Body<Input, Returned>,
): Defined<Input, Output, Given>;
export function workflow(
  given: string | WorkflowOptions<unknown, unknown> | BatchWorkflowOptions<unknown, unknown>,
  body: AnyBody,
): Workflow<unknown, unknown> {
  const options = typeof given === "string" ? { name: given } : given;
  if (typeof options !== "object" || options === null)
    throw new InvalidArgumentError("the workflow", "must have a name, or an object of options with one");
  checkOptions(options, WORKFLOW_OPTIONS, "the workflow's options");
  checkFunction(body, "what the workflow does");
  if (Object.prototype.toString.call(body) === "[object AsyncGeneratorFunction]")
    throw new InvalidArgumentError("what the workflow does", NOT_ASYNC_GENERATOR);
  const { input, output, retry, timeout, grace, tries, retention } = options as WorkflowOptions<unknown, unknown>;
  checkIsSchema(input, "the workflow's input");
  checkIsSchema(output, "the workflow's output");
  const name = checkId(options.name, "the workflow's name");
  return workflowOf({
    name,
    body: body as Body<unknown, unknown>,
    input: input as StandardSchema | undefined,
    output: output as StandardSchema | undefined,
    retry: checkRetry(retry),
    timeoutMs: timeout === undefined ? null : checkDuration(timeout, "the workflow's timeout"),
    graceMs: grace === undefined ? GRACE_MS : checkDuration(grace, "the workflow's grace"),
    maxTries: tries === undefined ? MAX_TRIES : checkCount(tries, "the workflow's tries"),
    retention: checkRetention(retention, "the workflow's retention"),
    flow: checkFlow(name, options as FlowOptions<never>),
  });
}

/** A workflow with this definition. @internal */
export function workflowOf(definition: Definition): Workflow<unknown, unknown> {
  const defined: Workflow<unknown, unknown> = Object.freeze({ name: definition.name });
  definitions.set(defined, definition);
  return defined;
}

/** The definition behind a workflow, or undefined for a mere name. @internal */
export function definitionOf(workflow: unknown): Definition | undefined {
  return typeof workflow === "object" && workflow !== null ? definitions.get(workflow) : undefined;
}

const builtIns = new Map<string, Definition>();
const internals = new Set<string>();

/** A workflow that is part of this library. @internal */
export function builtInWorkflow(definition: Definition): Workflow<unknown, unknown> {
  builtIns.set(definition.name, definition);
  return workflowOf(definition);
}

/** A workflow whose runs only this library starts: their input is never checked, and what they send is signed. @internal */
export function internalWorkflow(definition: Definition): Workflow<unknown, unknown> {
  internals.add(definition.name);
  return workflowOf(definition);
}

/**
 * The definition of what is to be started from outside: a workflow, or the name of one that is part of this library, whose input is checked wherever it is
 * named. Throws for the name of an internal one.
 * @internal
 */
export function definitionToStart(workflow: unknown): Definition | undefined {
  const name = typeof workflow === "string" ? workflow : (workflow as { readonly name?: unknown } | undefined)?.name;
  if (typeof name === "string" && internals.has(name))
    throw new InvalidArgumentError("the workflow", `must not be "${name}": its runs are started by Pawl alone`);
  return definitionOf(workflow) ?? (typeof name === "string" ? builtIns.get(name) : undefined);
}

/**
 * What a run waits for, by name; `Payload` is what it carries. `Name` is the name as a literal type, where it is known. `Given` is what is sent where a schema
 * makes the payload of it; `unknown` stands for the payload itself.
 */
export interface Signal<Payload = undefined, Name extends string = string, Given = unknown> {
  readonly name: Name;
  readonly [GIVEN]?: () => Given;
  readonly schema: StandardSchema<unknown, Payload> | undefined;
  /** Whether what `ctx.waitForAny` returned is this signal; its value has this signal's type then. */
  is(received: { readonly ok: boolean; readonly signal?: string }): received is Received<Payload, Name>;
}

/** The signal's name, as it was defined; a text is no signal. @internal */
export function signalName(signal: unknown): string {
  if (typeof signal !== "object" || signal === null)
    throw new InvalidArgumentError("the signal", "must be one that signal() returned");
  return checkId((signal as { readonly name?: unknown }).name, "the signal");
}

/**
 * Defines a signal. With a schema, what is sent is checked: the sender gives the input of the schema, and the run receives its output.
 *
 * `signal("a")` and `signal("a", schema)` know their name as a type, so `received.signal === "a"` narrows what `ctx.waitForAny` returned.
 * TypeScript infers all type arguments or none: `signal<Payload>("a")` has the name `string`. Narrow with `approved.is(received)`, which works
 * for every signal, or write `signal<Payload, "a">("a")`.
 */
export function signal<Payload = undefined, const Name extends string = string, Given = unknown>(
  name: Name,
  schema?: StandardSchema<Given, Payload> | undefined,
): Signal<Payload, Name, Given> {
  checkId(name, "the signal's name");
  checkIsSchema(schema, "the signal's schema");
  const is = (received: { readonly ok: boolean; readonly signal?: string }): received is Received<Payload, Name> => {
    // A promise that was not awaited would never be the signal.
    if (typeof received?.ok !== "boolean")
      throw new InvalidArgumentError(
        "what was received",
        "must be what ctx.waitForSignal or ctx.waitForAny resolved with",
      );
    return received.ok && received.signal === name;
  };
  return Object.freeze({ name, schema, is });
}
