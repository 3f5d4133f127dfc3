/** The scenarios that every run of the simulator goes through. */

import type { Scenario, SimulateOptions } from "../../../src/testing/index.ts";
import { actions } from "./actions.ts";
import { closings } from "./closing.ts";
import { admissions, collections } from "./flow.ts";
import { forgetting } from "./forgetting.ts";
import { idempotency } from "./idempotency.ts";
import { jobs, recovery, timers } from "./jobs.ts";
import { lists } from "./lists.ts";
import { circles, handoffs, locks } from "./locks.ts";
import { machines } from "./machines.ts";
import { mailbox } from "./mailbox.ts";
import { notices } from "./notices.ts";
import { payments } from "./payments.ts";
import { projections } from "./projections.ts";
import { reactions } from "./reactions.ts";
import { registers } from "./register.ts";
import { rewoundClaims, rewoundLists, rewoundRuns } from "./rewinds.ts";
import { schedules } from "./schedules.ts";
import { servedTasks } from "./served-tasks.ts";
import { streams } from "./streams.ts";
import { tasks } from "./tasks.ts";
import { transfers } from "./transfers.ts";
import { families, letters, meetings, orders, poison } from "./workflows.ts";

export interface NamedScenario {
  readonly name: string;
  readonly options?: SimulateOptions;
  readonly scenario: Scenario;
  /** Seeds that broke it once. */
  readonly regressions?: readonly number[];
}

export const scenarios: readonly NamedScenario[] = [
  transfers,
  registers,
  jobs,
  recovery,
  mailbox,
  timers,
  payments,
  orders,
  meetings,
  letters,
  families,
  poison,
  locks,
  handoffs,
  circles,
  actions,
  idempotency,
  machines,
  reactions,
  notices,
  streams,
  closings,
  projections,
  forgetting,
  admissions,
  collections,
  schedules,
  lists,
  tasks,
  servedTasks,
  rewoundLists,
  rewoundClaims,
  rewoundRuns,
];
