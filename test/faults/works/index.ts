/** Every kind of work that the crew does under faults. */

import { claims } from "./claims.ts";
import { deposits } from "./deposits.ts";
import { lists } from "./lists.ts";
import { locks } from "./locks.ts";
import { registers } from "./registers.ts";
import { requests } from "./requests.ts";
import { runs } from "./runs.ts";
import type { Work } from "./work.ts";

export const works: readonly Work[] = [deposits, registers, claims, runs, locks, lists, requests];
