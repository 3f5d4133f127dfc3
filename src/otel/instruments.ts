/**
 * What is measured. Attributes are few and of few values: workflow, step, outcome and status, never the id of a run.
 */

import type { Counter, Histogram, Meter, UpDownCounter } from "@opentelemetry/api";

export interface Instruments {
  readonly runsStarted: Counter;
  readonly runsEnded: Counter;
  readonly runsParked: Counter;
  readonly runsActive: UpDownCounter;
  readonly stretchDuration: Histogram;
  readonly stepAttempts: Counter;
  readonly stepDuration: Histogram;
}

/** In seconds: from a step that asks a cache to one that encodes a film. */
const BOUNDARIES = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800];

export function makeInstruments(meter: Meter): Instruments {
  const duration = (description: string) => ({
    description,
    unit: "s",
    advice: { explicitBucketBoundaries: [...BOUNDARIES] },
  });
  return {
    runsStarted: meter.createCounter("pawl.runs.started", {
      description: "Runs that were begun by the process that started them",
      unit: "{run}",
    }),
    runsEnded: meter.createCounter("pawl.runs.ended", {
      description: "Runs that ended here, by their status",
      unit: "{run}",
    }),
    runsParked: meter.createCounter("pawl.runs.parked", {
      description: "Runs that were parked here for a person to look at",
      unit: "{run}",
    }),
    runsActive: meter.createUpDownCounter("pawl.runs.active", {
      description: "Runs that are being worked on here",
      unit: "{run}",
    }),
    stretchDuration: meter.createHistogram(
      "pawl.stretch.duration",
      duration("How long a run was worked on until it rested or ended"),
    ),
    stepAttempts: meter.createCounter("pawl.step.attempts", {
      description: "Attempts at steps, by their outcome",
      unit: "{attempt}",
    }),
    stepDuration: meter.createHistogram("pawl.step.duration", duration("How long an attempt at a step took")),
  };
}
