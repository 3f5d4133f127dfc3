/**
 * Scale: what must not cost more when there is more of it. A run's late steps, runs that sleep, runs that wake together, a long history,
 * a long stream, many targets of a reaction, runs in line, schedules.
 *
 * All of it goes through the public API, with a worker in the same process, as users have it.
 */

import type { Case } from "./comparisons.ts";
import { longHistory } from "./scale-history.ts";
import { fairTurns, queuedRuns } from "./scale-queued.ts";
import { firingSchedules, sleepingSchedules } from "./scale-schedules.ts";
import { sleepingRuns, wakingRuns } from "./scale-sleepers.ts";
import { stepCurve } from "./scale-steps.ts";
import { laggingTargets, longStream, waitingTargets } from "./scale-streams.ts";

export const scaleCases: readonly Case[] = [
  stepCurve,
  sleepingRuns,
  wakingRuns,
  longHistory,
  longStream,
  waitingTargets,
  laggingTargets,
  queuedRuns,
  fairTurns,
  firingSchedules,
  sleepingSchedules,
];

/** Those that are done soon where a commit is a round trip. */
export const shortScaleCases: readonly Case[] = [
  stepCurve,
  wakingRuns,
  longStream,
  waitingTargets,
  laggingTargets,
  queuedRuns,
  fairTurns,
  firingSchedules,
  sleepingSchedules,
];
