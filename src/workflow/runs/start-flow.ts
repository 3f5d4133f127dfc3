/**
 * What a start has to pass, as a process that knows the workflow computes it before the decision.
 */

import { collectKey, type Flow, gateRequest, type OpenRate } from "../definitions/flow.ts";
import type { StartFlow } from "./start.ts";

/** Calls the user's functions for the keys of this input. `given` is what the start itself says. */
export function startFlow(
  flow: Flow,
  input: unknown,
  given: { readonly priority?: number | undefined; readonly ttlMs?: number | undefined },
  openRate: OpenRate,
): StartFlow {
  const { collect } = flow;
  const { priority, ttlMs = flow.ttlMs } = given;
  return {
    request: gateRequest(flow, input, priority, openRate),
    priority,
    ttlMs,
    collect: collect === undefined ? undefined : { by: collect, key: collectKey(flow.workflow, collect, input) },
  };
}
