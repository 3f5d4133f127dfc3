/**
 * The metrics. Attributes have few values: workflow, step, outcome and status, never the id of a run.
 */

import type { Counter, Histogram, Meter, UpDownCounter } from "@opentelemetry/api";

export interface Instruments {
  readonly runsStarted: Counter;
  readonly runsEnded: Counter;
  readonly runsParked: Counter;
  readonly runsActive: UpDownCounter;
  readonly executionDuration: Histogram;
  readonly stepAttempts: Counter;
  readonly stepDuration: Histogram;
}

/** In seconds: from a step that reads a cache to one that encodes a film. */
const BOUNDARIES = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800];

export function makeInstruments(meter: Meter): Instruments {
  const duration = (description: string) => ({
    description,
    unit: "s",
    advice: { explicitBucketBoundaries: [...BOUNDARIES] },
  });
  return {
    runsStarted: meter.createCounter("pawl.runs.started", {
      description: "Runs that were begun by the process that created them",
      unit: "{run}",
    }),
    runsEnded: meter.createCounter("pawl.runs.ended", {
      description: "Runs that ended in this process, by status",
      unit: "{run}",
    }),
    runsParked: meter.createCounter("pawl.runs.parked", {
      description: "Runs that this process parked for an operator",
      unit: "{run}",
    }),
    runsActive: meter.createUpDownCounter("pawl.runs.active", {
      description: "Runs that this process is executing",
      unit: "{run}",
    }),
    executionDuration: meter.createHistogram(
      "pawl.stretch.duration",
      duration("How long a run was executed until it rested or ended"),
    ),
    stepAttempts: meter.createCounter("pawl.step.attempts", {
      description: "Attempts of steps, by outcome",
      unit: "{attempt}",
    }),
    stepDuration: meter.createHistogram("pawl.step.duration", duration("How long an attempt of a step took")),
  };
}
