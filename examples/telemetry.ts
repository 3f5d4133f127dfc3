// OpenTelemetry: one trace for each run, in whichever processes it executes, and metrics. You choose the SDK; here it keeps the spans in memory.

import { InMemorySpanExporter, type ReadableSpan, SimpleSpanProcessor, TracerProvider } from "@opentelemetry/sdk-trace";
import { open, workflow } from "pawl";
import { telemetry, traceIdOf } from "pawl/otel";

const exporter = new InMemorySpanExporter();
const tracerProvider = new TracerProvider({ spanProcessors: [new SimpleSpanProcessor({ exporter })] });

let calls = 0;
const order = workflow("order", async (ctx) => {
  await ctx.step(
    "charge",
    () => {
      calls += 1;
      if (calls === 1) throw new Error("the bank is busy");
    },
    { retry: { delay: "10ms" } },
  );
  await ctx.sleep("20ms");
  await ctx.step("ship", () => "on its way");
});

await using pawl = await open("memory:");
await using worker = pawl.work([order], { on: telemetry({ tracerProvider }) });

const run = await pawl.start(order, undefined, { id: "order-42" });
await run.result();
await worker.stop();

const spans = exporter.getFinishedSpans();
const isOf = (parent: ReadableSpan) => (span: ReadableSpan) =>
  span.parentSpanContext?.spanId === parent.spanContext().spanId;
for (const stretch of spans.filter(({ name }) => name === "run order")) {
  console.log(stretch.name, stretch.attributes["pawl.status"]);
  for (const { name, attributes } of spans.filter(isOf(stretch)))
    console.log(" ", name, attributes["pawl.attempt"], attributes["pawl.outcome"]);
}
console.log(spans.every((span) => span.spanContext().traceId === traceIdOf("order", "order-42")));

// Output:
// run order waiting
//   step charge 1 retried
//   step charge 2 completed
// run order completed
//   step ship 1 completed
// true
