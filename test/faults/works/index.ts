/** Every kind of work that the crew does under faults, and those that it does where commits are lost on purpose (`lossy.ts`). */

import { appends } from "./appends.ts";
import { claims } from "./claims.ts";
import { deposits } from "./deposits.ts";
import { limits } from "./limits.ts";
import { lists } from "./lists.ts";
import { locks } from "./locks.ts";
import { registers } from "./registers.ts";
import { requests } from "./requests.ts";
import { runs } from "./runs.ts";
import { streams } from "./streams.ts";
import { ticks } from "./ticks.ts";
import { trips } from "./trips.ts";
import type { Work } from "./work.ts";

export const works: readonly Work[] = [
  deposits,
  registers,
  claims,
  runs,
  locks,
  lists,
  requests,
  streams,
  limits,
  ticks,
];

/** What a worker process may be told to do, by name. */
export const allWorks: readonly Work[] = [...works, appends, trips];
