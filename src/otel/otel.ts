/**
 * OpenTelemetry for workflows: `pawl.work(workflows, { on: telemetry() })`.
 *
 * It makes spans and metrics of a worker's events. An *execution* (`stretch` in a metric's name) is the work on a run from the claim until it rests, ends or is lost: one
 * span, `run <workflow>`, with a child `step <name>` for each attempt of a step. The executions of a run are in one trace, across processes
 * and days (`trace.ts`). The first one is linked to the span in which the run was started, if the same process begins it.
 *
 * While a step's function runs, the span of its attempt is active (`around`), so that the function's own spans are part of the trace. The SDK
 * takes the times of spans; only the durations of the metrics are measured here.
 *
 * Guarantees: nothing here can fail a run. Memory is bounded: an execution whose end is never reported is ended when the same run is
 * claimed again, or when too many others have begun since. It then has the outcome `abandoned`.
 * Out of scope: the SDK. Without one, nothing is recorded. Use one `telemetry()` for one worker, because run ids are unique in one store.
 */

import {
  type Attributes,
  type Context,
  context,
  isSpanContextValid,
  type MeterProvider,
  metrics,
  ROOT_CONTEXT,
  type Span,
  SpanStatusCode,
  type Tracer,
  type TracerProvider,
  trace,
} from "@opentelemetry/api";
import { checkOptions, optionNames } from "../kernel/check.ts";
import { InvalidArgumentError } from "../kernel/errors.ts";
import { nodePorts } from "../node/ports.ts";
import type { RunEvent } from "../workflow/events.ts";
import { type Instruments, makeInstruments } from "./instruments.ts";
import { contextOf } from "./trace.ts";

export interface TelemetryOptions {
  /** Receives the spans. Default: the provider that is registered with the API. */
  readonly tracerProvider?: TracerProvider | undefined;
  /** Receives the metrics. Default: the provider that is registered with the API when `telemetry` is called. */
  readonly meterProvider?: MeterProvider | undefined;
  /** Added to every span and every measurement. */
  readonly attributes?: Attributes | undefined;
  /** The fraction of runs that are traced. Every process decides the same for a run. Default: 1 (all). */
  readonly sampleRatio?: number | undefined;
}

const OPTIONS = optionNames<TelemetryOptions>({
  tracerProvider: true,
  meterProvider: true,
  attributes: true,
  sampleRatio: true,
});

/** The value of the option `on` of `pawl.work`. */
export interface Telemetry {
  (event: RunEvent): void;
  /** Runs the function of the attempt that this `step.started` event reported, with the attempt's span active. */
  readonly around: <T>(event: RunEvent, work: () => T) => T;
}

/** Makes spans and metrics of a worker's events. */
export function telemetry(options: TelemetryOptions = {}): Telemetry {
  const recorder = new Recorder(options);
  return Object.assign((event: RunEvent) => recorder.on(event), {
    around: <T>(event: RunEvent, work: () => T): T => recorder.around(event, work),
  });
}

/** The outcomes of executions and attempts, and whether each is an error even if no error is known. */
const isError = {
  rested: false,
  ended: false,
  parked: true,
  lost: true,
  trouble: true,
  completed: false,
  failed: true,
  retried: true,
  abandoned: false,
} as const;

type Outcome = keyof typeof isError;

interface OpenSpan {
  readonly span: Span;
  readonly startedMs: number;
  /** The attributes of its metrics. */
  readonly labels: Attributes;
}

interface OpenExecution extends OpenSpan {
  readonly context: Context;
  readonly attempts: Map<string, OpenSpan>;
}

interface Ending {
  readonly outcome: Outcome;
  readonly status?: string | undefined;
  readonly error?: unknown;
  /** What went wrong, if there is no error. */
  readonly reason?: string | undefined;
}

/** The most open executions. A worker has 100 by default. */
const MAX_OPEN = 10_000;

class Recorder {
  readonly #tracer: Tracer;
  readonly #instruments: Instruments;
  readonly #attributes: Attributes;
  readonly #sampleRatio: number;
  readonly #executions = new Map<string, OpenExecution>();

  constructor(options: TelemetryOptions) {
    checkOptions(options, OPTIONS);
    const { tracerProvider, meterProvider, attributes = {}, sampleRatio = 1 } = options;
    if (tracerProvider !== undefined && typeof tracerProvider?.getTracer !== "function")
      throw new InvalidArgumentError("the tracerProvider", "must have getTracer");
    if (meterProvider !== undefined && typeof meterProvider?.getMeter !== "function")
      throw new InvalidArgumentError("the meterProvider", "must have getMeter");
    if (typeof attributes !== "object" || attributes === null || Array.isArray(attributes))
      throw new InvalidArgumentError("the attributes", "must be an object");
    if (!(typeof sampleRatio === "number" && sampleRatio >= 0 && sampleRatio <= 1))
      throw new InvalidArgumentError("the sample ratio", "must be a number from 0 to 1");
    this.#tracer = (tracerProvider ?? trace.getTracerProvider()).getTracer("pawl");
    this.#instruments = makeInstruments((meterProvider ?? metrics.getMeterProvider()).getMeter("pawl"));
    this.#attributes = { ...attributes };
    this.#sampleRatio = sampleRatio;
  }

  on(event: RunEvent): void {
    const { type, status, error, message } = event;
    const labels = { ...this.#attributes, "pawl.workflow": event.workflow };
    switch (type) {
      case "run.started":
        this.#instruments.runsStarted.add(1, labels);
        this.#beginExecution(event, labels);
        return;
      case "run.resumed":
        this.#beginExecution(event, labels);
        return;
      case "run.rested":
        this.#endExecution(event.run, { outcome: "rested", status: "waiting" });
        return;
      case "run.ended":
        this.#instruments.runsEnded.add(1, { ...labels, "pawl.status": status });
        // A cancellation is not an error.
        if (status === "completed" || status === "canceled")
          this.#endExecution(event.run, { outcome: "ended", status });
        else this.#endExecution(event.run, { outcome: "ended", status, error, reason: status });
        return;
      case "run.parked":
        this.#instruments.runsParked.add(1, labels);
        this.#endExecution(event.run, { outcome: "parked", status: "parked", reason: message });
        return;
      case "run.lost":
        this.#endExecution(event.run, { outcome: "lost", error });
        return;
      case "run.trouble":
        // The run is then released or parked; in both cases this execution is over.
        this.#endExecution(event.run, { outcome: "trouble", error });
        return;
      case "step.started":
        this.#beginAttempt(event);
        return;
      case "step.completed":
        this.#endAttempt(event, { outcome: "completed" });
        return;
      case "step.failed":
        this.#endAttempt(event, { outcome: "failed", error });
        return;
      case "step.retried":
        this.#endAttempt(event, { outcome: "retried", error });
        return;
      case "log":
        this.#executions.get(event.run)?.span.addEvent(message ?? "log");
    }
  }

  around<T>(event: RunEvent, work: () => T): T {
    const attempt = this.#executions.get(event.run)?.attempts.get(event.step ?? "");
    // Starts from the root context: the active one belongs to the code that woke the run.
    return attempt === undefined ? work() : context.with(trace.setSpan(ROOT_CONTEXT, attempt.span), work);
  }

  #beginExecution({ type, workflow, run }: RunEvent, labels: Attributes): void {
    this.#endExecution(run, { outcome: "abandoned" });
    if (this.#executions.size >= MAX_OPEN) {
      const [oldest] = this.#executions.keys();
      if (oldest !== undefined) this.#endExecution(oldest, { outcome: "abandoned" });
    }
    const parent = contextOf(workflow, run, this.#sampleRatio);
    const starter = type === "run.started" ? trace.getSpanContext(context.active()) : undefined;
    const links = starter !== undefined && isSpanContextValid(starter) ? [{ context: starter }] : [];
    const span = this.#tracer.startSpan(
      `run ${workflow}`,
      { attributes: { ...labels, "pawl.run": run }, links },
      parent,
    );
    const startedMs = nodePorts.clock.nowMs();
    this.#executions.set(run, { span, startedMs, labels, context: trace.setSpan(parent, span), attempts: new Map() });
    this.#instruments.runsActive.add(1, labels);
  }

  /** Ends the execution of a run, and abandons its open attempts. */
  #endExecution(run: string, ending: Ending): void {
    const execution = this.#executions.get(run);
    if (execution === undefined) return;
    this.#executions.delete(run);
    const { executionDuration, runsActive } = this.#instruments;
    runsActive.add(-1, execution.labels);
    for (const attempt of execution.attempts.values()) this.#recordAttempt(attempt, { outcome: "abandoned" });
    executionDuration.record(endSpan(execution, ending), { ...execution.labels, "pawl.outcome": ending.outcome });
  }

  #beginAttempt({ run, step = "", attempt = 1 }: RunEvent): void {
    const execution = this.#executions.get(run);
    if (execution === undefined) return;
    const before = execution.attempts.get(step);
    if (before !== undefined) this.#recordAttempt(before, { outcome: "retried", reason: "the step was retried" });
    // The id of a step is its name, with "#" and a number if the name was used before.
    const [name = ""] = step.split("#");
    const labels = { ...execution.labels, "pawl.step": name };
    const span = this.#tracer.startSpan(
      `step ${name}`,
      {
        attributes: { ...labels, "pawl.run": run, "pawl.step_id": step, "pawl.attempt": attempt },
      },
      execution.context,
    );
    execution.attempts.set(step, { span, startedMs: nodePorts.clock.nowMs(), labels });
  }

  /** Ignores an attempt whose begin was not reported, as when a step's outcome was reconciled. */
  #endAttempt({ run, step = "" }: RunEvent, ending: Ending): void {
    const attempts = this.#executions.get(run)?.attempts;
    const attempt = attempts?.get(step);
    if (attempts === undefined || attempt === undefined) return;
    attempts.delete(step);
    this.#recordAttempt(attempt, ending);
  }

  #recordAttempt(attempt: OpenSpan, ending: Ending): void {
    const labels = { ...attempt.labels, "pawl.outcome": ending.outcome };
    const type = ending.error === undefined ? {} : { "error.type": typeOf(ending.error) };
    this.#instruments.stepAttempts.add(1, { ...labels, ...type });
    this.#instruments.stepDuration.record(endSpan(attempt, ending), labels);
  }
}

/** Ends a span and returns its duration in seconds. */
function endSpan({ span, startedMs }: OpenSpan, { outcome, status, error, reason }: Ending): number {
  span.setAttribute("pawl.outcome", outcome);
  if (status !== undefined) span.setAttribute("pawl.status", status);
  if (error !== undefined) {
    // A thrown value that is neither an error nor a string is described by its type.
    const thrown = error instanceof Error || typeof error === "string" ? error : `something of type ${typeof error}`;
    span.setAttribute("error.type", typeOf(error));
    span.recordException(thrown);
    span.setStatus({ code: SpanStatusCode.ERROR, message: thrown instanceof Error ? thrown.message : thrown });
  } else if (isError[outcome] || reason !== undefined)
    span.setStatus({ code: SpanStatusCode.ERROR, ...(reason === undefined ? {} : { message: reason }) });
  span.end();
  return (nodePorts.clock.nowMs() - startedMs) / 1000;
}

/** Returns the error's code, or its name if it has none: an attribute with few values. */
function typeOf(error: unknown): string {
  if (!(error instanceof Error)) return typeof error;
  return "code" in error && typeof error.code === "string" ? error.code : error.name;
}
