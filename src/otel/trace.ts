/**
 * One trace for each run, in all processes that execute it and however long it sleeps in between.
 *
 * Nothing is stored for it: the trace's id is a hash of the workflow's name and the run's id, so every process computes the same one.
 * The OpenTelemetry API does not let callers choose the id of a trace, but a span can have a parent in another process. So all spans of the
 * run get an artificial parent, with that trace id and a span id from the same hash. The parent itself is never exported: viewers show its
 * children side by side, at the top of the trace.
 *
 * A parent-based sampler uses the parent's sampling flag instead of its own decision. So the decision is made here, from the last 56 bits of
 * the trace's id, as in OpenTelemetry's consistent sampling: all processes decide the same, and a run is traced completely or not at all.
 *
 * Out of scope: namespaces. Two runs with the same id in two stores that use one collector share a trace.
 */

import { createHash } from "node:crypto";
import { type Context, ROOT_CONTEXT, TraceFlags, trace } from "@opentelemetry/api";
import { checkId } from "../kernel/check.ts";

/** Returns the id of the trace with all spans of a run: for a link from a log or a page to the trace. */
export function traceIdOf(workflow: string, run: string): string {
  return digestOf(checkId(workflow, "the workflow"), checkId(run, "the run's id")).slice(0, 32);
}

/** Returns the context with the artificial parent of a run's spans, which every process can compute. */
export function contextOf(workflow: string, run: string, sampleRatio: number): Context {
  const digest = digestOf(workflow, run);
  const traceId = digest.slice(0, 32);
  return trace.setSpanContext(ROOT_CONTEXT, {
    traceId,
    spanId: digest.slice(32, 48),
    traceFlags: isSampled(traceId, sampleRatio) ? TraceFlags.SAMPLED : TraceFlags.NONE,
    isRemote: true,
  });
}

/** A higher ratio includes all traces of a lower one. */
export function isSampled(traceId: string, sampleRatio: number): boolean {
  return BigInt(`0x${traceId.slice(-14)}`) >= BigInt(Math.round((1 - sampleRatio) * 2 ** 56));
}

function digestOf(workflow: string, run: string): string {
  return createHash("sha256")
    .update(JSON.stringify(["pawl", workflow, run]))
    .digest("hex");
}
