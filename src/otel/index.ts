/**
 * Every public name of `pawl/otel`, by hand. It needs the package `@opentelemetry/api`, which nothing else of Pawl's imports.
 */

export { type Telemetry, type TelemetryOptions, telemetry } from "./otel.ts";
export { traceIdOf } from "./trace.ts";
