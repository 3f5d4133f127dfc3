/**
 * What takes part in a comparison. A further database or a peer is one more of these.
 *
 * `open` gets a database of its own; what a contender needs to be ready (schema, statements, handles) is made
 * there or before the clock starts in `run`. A commit counts when it is as durable as the store promises by default.
 */

import type { Place } from "./ground.ts";
import type { Plan } from "./plan.ts";

export interface Contender {
  readonly name: string;
  open(place: Place): Promise<Session>;
}

export interface Session {
  run(plan: Plan): Promise<Timing>;
  close(): Promise<void>;
}

export interface Timing {
  readonly ms: number;
  /** How many transactions it took, which shows how many commits shared one. */
  readonly transactions: number;
  /** How long each commit took; only where there is one caller. */
  readonly latenciesMs: readonly number[];
}
