/** Every kind of work that the crew does under faults. */

import { claims } from "./claims.ts";
import { deposits } from "./deposits.ts";
import { locks } from "./locks.ts";
import { registers } from "./registers.ts";
import { requests } from "./requests.ts";
import { runs } from "./runs.ts";
import type { Work } from "./work.ts";

export const works: readonly Work[] = [deposits, registers, claims, runs, locks];

/** The same, and requests under idempotency keys beside it. */
export const worksWithKeys: readonly Work[] = [...works, requests];
