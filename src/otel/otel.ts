/**
 * OpenTelemetry for workflows: `pawl.work(workflows, { on: telemetry() })`.
 *
 * A worker tells what happens in its runs, and this makes spans and measurements of it. A *stretch* is the work on a run from the
 * moment that it is taken until it rests, ends or is lost: one span, `run <workflow>`, with a child `step <name>` for each attempt at a
 * step. The stretches of a run are in one trace, across processes and days (`trace.ts`). The first one is linked to the span in which the
 * run was started, if its own process begins it.
 *
 * While a step's function runs, the span of its attempt is the active one (`around`), so that what the function does becomes part
 * of the trace. Times are the SDK's own; only durations that are measured as metrics are taken here.
 *
 * Promises: nothing here can fail a run. What is remembered is bounded: a stretch whose end is never told is ended when the same run is
 * taken again, or when too many others have come since. What such a stretch left behind has the outcome `abandoned`.
 * Leaves out: the SDK. Without one, everything here does nothing. One `telemetry()` is for one worker, as run ids are for one store.
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
  /** Whose spans they are; the one that is registered with the API unless said otherwise. */
  readonly tracerProvider?: TracerProvider | undefined;
  /** Whose measurements they are; the one that is registered with the API when `telemetry` is called unless said otherwise. */
  readonly meterProvider?: MeterProvider | undefined;
  /** Put on every span and every measurement. */
  readonly attributes?: Attributes | undefined;
  /** This part of the runs is traced, 1 (all) unless said otherwise. Every process decides alike for a run. */
  readonly sampleRatio?: number | undefined;
}

const OPTIONS = optionNames<TelemetryOptions>({
  tracerProvider: true,
  meterProvider: true,
  attributes: true,
  sampleRatio: true,
});

/** What `pawl.work` takes as `on`. */
export interface Telemetry {
  (event: RunEvent): void;
  /** Runs the function of the attempt that this `step.started` told of, with the attempt's span as the active one. */
  readonly around: <T>(event: RunEvent, work: () => T) => T;
}

/** Makes spans and measurements of what a worker tells. */
export function telemetry(options: TelemetryOptions = {}): Telemetry {
  const recorder = new Recorder(options);
  return Object.assign((event: RunEvent) => recorder.on(event), {
    around: <T>(event: RunEvent, work: () => T): T => recorder.around(event, work),
  });
}

/** How a stretch or an attempt can come out, and whether that is a fault even if nothing is known to have been thrown. */
const isFault = {
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

type Outcome = keyof typeof isFault;

/** Something under way. */
interface Open {
  readonly span: Span;
  readonly startedMs: number;
  /** What is measured of it is measured under these. */
  readonly labels: Attributes;
}

interface Stretch extends Open {
  readonly context: Context;
  readonly attempts: Map<string, Open>;
}

interface Ending {
  readonly outcome: Outcome;
  readonly status?: string | undefined;
  /** What was thrown. */
  readonly error?: unknown;
  /** What went wrong, where nothing was thrown. */
  readonly reason?: string | undefined;
}

/** So many stretches may be open. A worker has 100 at a time, unless it is told otherwise. */
const MAX_OPEN = 10_000;

class Recorder {
  readonly #tracer: Tracer;
  readonly #instruments: Instruments;
  readonly #attributes: Attributes;
  readonly #sampleRatio: number;
  readonly #stretches = new Map<string, Stretch>();

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
        this.#take(event, labels);
        return;
      case "run.resumed":
        this.#take(event, labels);
        return;
      case "run.rested":
        this.#leave(event.run, { outcome: "rested", status: "waiting" });
        return;
      case "run.ended":
        this.#instruments.runsEnded.add(1, { ...labels, "pawl.status": status });
        // To be canceled is no fault.
        if (status === "completed" || status === "canceled") this.#leave(event.run, { outcome: "ended", status });
        else this.#leave(event.run, { outcome: "ended", status, error, reason: status });
        return;
      case "run.parked":
        this.#instruments.runsParked.add(1, labels);
        this.#leave(event.run, { outcome: "parked", status: "parked", reason: message });
        return;
      case "run.lost":
        this.#leave(event.run, { outcome: "lost", error });
        return;
      case "run.trouble":
        // The run is put back or parked after this; either way, this stretch is over.
        this.#leave(event.run, { outcome: "trouble", error });
        return;
      case "step.started":
        this.#try(event);
        return;
      case "step.completed":
        this.#settle(event, { outcome: "completed" });
        return;
      case "step.failed":
        this.#settle(event, { outcome: "failed", error });
        return;
      case "step.retried":
        this.#settle(event, { outcome: "retried", error });
        return;
      case "log":
        this.#stretches.get(event.run)?.span.addEvent(message ?? "log");
    }
  }

  around<T>(event: RunEvent, work: () => T): T {
    const attempt = this.#stretches.get(event.run)?.attempts.get(event.step ?? "");
    // Nothing else is carried over: what is active here belongs to whoever woke the run.
    return attempt === undefined ? work() : context.with(trace.setSpan(ROOT_CONTEXT, attempt.span), work);
  }

  /** A run is taken. */
  #take({ type, workflow, run }: RunEvent, labels: Attributes): void {
    this.#leave(run, { outcome: "abandoned" });
    if (this.#stretches.size >= MAX_OPEN) {
      const [oldest] = this.#stretches.keys();
      if (oldest !== undefined) this.#leave(oldest, { outcome: "abandoned" });
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
    this.#stretches.set(run, { span, startedMs, labels, context: trace.setSpan(parent, span), attempts: new Map() });
    this.#instruments.runsActive.add(1, labels);
  }

  /** This process is done with a run, for now or for good; what still ran in it was given up. */
  #leave(run: string, ending: Ending): void {
    const stretch = this.#stretches.get(run);
    if (stretch === undefined) return;
    this.#stretches.delete(run);
    const { stretchDuration, runsActive } = this.#instruments;
    runsActive.add(-1, stretch.labels);
    for (const attempt of stretch.attempts.values()) this.#endAttempt(attempt, { outcome: "abandoned" });
    stretchDuration.record(endOf(stretch, ending), { ...stretch.labels, "pawl.outcome": ending.outcome });
  }

  /** An attempt at a step begins. */
  #try({ run, step = "", attempt = 1 }: RunEvent): void {
    const stretch = this.#stretches.get(run);
    if (stretch === undefined) return;
    const before = stretch.attempts.get(step);
    if (before !== undefined) this.#endAttempt(before, { outcome: "retried", reason: "the step was tried again" });
    // The id of a step is its name, and after "#" what tells it from others of that name.
    const [name = ""] = step.split("#");
    const labels = { ...stretch.labels, "pawl.step": name };
    const span = this.#tracer.startSpan(
      `step ${name}`,
      {
        attributes: { ...labels, "pawl.run": run, "pawl.step_id": step, "pawl.attempt": attempt },
      },
      stretch.context,
    );
    stretch.attempts.set(step, { span, startedMs: nodePorts.clock.nowMs(), labels });
  }

  /** An attempt is over. One that nobody saw begin, as when a step's outcome was found out and not made, is none. */
  #settle({ run, step = "" }: RunEvent, ending: Ending): void {
    const attempts = this.#stretches.get(run)?.attempts;
    const attempt = attempts?.get(step);
    if (attempts === undefined || attempt === undefined) return;
    attempts.delete(step);
    this.#endAttempt(attempt, ending);
  }

  #endAttempt(attempt: Open, ending: Ending): void {
    const labels = { ...attempt.labels, "pawl.outcome": ending.outcome };
    const type = ending.error === undefined ? {} : { "error.type": typeOf(ending.error) };
    this.#instruments.stepAttempts.add(1, { ...labels, ...type });
    this.#instruments.stepDuration.record(endOf(attempt, ending), labels);
  }
}

/** Ends a span; answers how many seconds it was open. */
function endOf({ span, startedMs }: Open, { outcome, status, error, reason }: Ending): number {
  span.setAttribute("pawl.outcome", outcome);
  if (status !== undefined) span.setAttribute("pawl.status", status);
  if (error !== undefined) {
    // Whoever throws what is neither an error nor a text has it named by its type.
    const thrown = error instanceof Error || typeof error === "string" ? error : `something of type ${typeof error}`;
    span.setAttribute("error.type", typeOf(error));
    span.recordException(thrown);
    span.setStatus({ code: SpanStatusCode.ERROR, message: thrown instanceof Error ? thrown.message : thrown });
  } else if (isFault[outcome] || reason !== undefined)
    span.setStatus({ code: SpanStatusCode.ERROR, ...(reason === undefined ? {} : { message: reason }) });
  span.end();
  return (nodePorts.clock.nowMs() - startedMs) / 1000;
}

/** What kind of error it is, of few kinds: its code, if it has one, or its name. */
function typeOf(error: unknown): string {
  if (!(error instanceof Error)) return typeof error;
  return "code" in error && typeof error.code === "string" ? error.code : error.name;
}
