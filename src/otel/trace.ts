/**
 * One trace for each run, whichever processes work on it and however long it sleeps in between.
 *
 * Nothing is stored for that: the id of the trace is a hash of the workflow's name and the run's id, so every process finds the same one.
 * OpenTelemetry lets nobody choose the id of a trace, but it lets spans have a parent in another process. So a parent is made up, with that
 * trace and a span id out of the same hash, and all that is done for the run hangs below it. The parent itself is never exported: viewers
 * show its children side by side, as the top of the trace.
 *
 * A sampler that goes by the parent asks whether that one was sampled, and no longer decides by itself. So it is decided here, and again
 * by the trace's id, by its last 56 bits, as OpenTelemetry samples consistently: all processes decide alike, and a run is traced whole
 * or not at all.
 *
 * Leaves out: namespaces. Two runs with the same id of two stores, seen by one collector, share a trace.
 */

import { createHash } from "node:crypto";
import { type Context, ROOT_CONTEXT, TraceFlags, trace } from "@opentelemetry/api";
import { checkId } from "../kernel/check.ts";

/** The id of the trace in which all spans of a run are: for a link from a log or a page to the trace. */
export function traceIdOf(workflow: string, run: string): string {
  return digestOf(checkId(workflow, "the workflow"), checkId(run, "the run's id")).slice(0, 32);
}

/** What is active for a run before anything of it is: the parent that all processes know without having been told. */
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

/** The higher the ratio, the more traces; those of a lower ratio are among them. */
export function isSampled(traceId: string, sampleRatio: number): boolean {
  return BigInt(`0x${traceId.slice(-14)}`) >= BigInt(Math.round((1 - sampleRatio) * 2 ** 56));
}

function digestOf(workflow: string, run: string): string {
  return createHash("sha256")
    .update(JSON.stringify(["pawl", workflow, run]))
    .digest("hex");
}
