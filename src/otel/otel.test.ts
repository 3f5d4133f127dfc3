/**
 * Goal: the events of a worker become one trace for each run, and metrics, even if some events are missing.
 * Method: the real SDK with exporters in memory. Runs of a real worker show that the events fit; tables of hand-made events show
 * the result of each, of duplicates and of missing events. Modules are counted in processes of their own.
 */

import { spawnSync } from "node:child_process";
import { context, type Span, SpanStatusCode, trace } from "@opentelemetry/api";
import { AsyncLocalStorageContextManager } from "@opentelemetry/context-async-hooks";
import {
  AggregationTemporality,
  InMemoryMetricExporter,
  MeterProvider,
  PeriodicExportingMetricReader,
} from "@opentelemetry/sdk-metrics";
import {
  InMemorySpanExporter,
  NoopSpanProcessor,
  ParentBasedSampler,
  type ReadableSpan,
  SimpleSpanProcessor,
  TraceIdRatioBasedSampler,
  TracerProvider,
} from "@opentelemetry/sdk-trace";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { open, RunCanceledError, type RunEvent, signal, workflow } from "../index.ts";
import { type TelemetryOptions, telemetry, traceIdOf } from "./index.ts";
import { isSampled } from "./trace.ts";

beforeAll(() => void context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable()));
afterAll(() => context.disable());

/** A telemetry whose spans and measurements can be read. */
function observe(options: TelemetryOptions = {}, sampler?: ParentBasedSampler) {
  const spans = new InMemorySpanExporter();
  const order = new Beginnings();
  const tracerProvider = new TracerProvider({
    spanProcessors: [new SimpleSpanProcessor({ exporter: spans }), order],
    ...(sampler === undefined ? {} : { sampler }),
  });
  const metrics = new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE);
  const reader = new PeriodicExportingMetricReader({ exporter: metrics, exportIntervalMillis: 3_600_000 });
  const meterProvider = new MeterProvider({ readers: [reader] });
  return {
    on: telemetry({ tracerProvider, meterProvider, ...options }),
    tracer: tracerProvider.getTracer("the user's own"),
    spans: () => spans.getFinishedSpans(),
    /** Spans as lines, children below their parents and indented, in the order in which they began. */
    tree: () => treeOf(order.sorted(spans.getFinishedSpans())),
    /** Every point of a metric: what it is labelled with, and its sum or count. */
    async points(name: string) {
      await meterProvider.forceFlush();
      const all =
        metrics
          .getMetrics()
          .at(-1)
          ?.scopeMetrics.flatMap((scope) => scope.metrics) ?? [];
      const found = all.find(({ descriptor }) => descriptor.name === name);
      return (found?.dataPoints ?? []).map(({ attributes, value }) => ({
        ...attributes,
        value: typeof value === "number" ? value : value.count,
      }));
    },
  };
}

/** Remembers the order in which spans began: their times may be the same. */
class Beginnings extends NoopSpanProcessor {
  readonly #ids: string[] = [];

  override onStart(span: Span): void {
    this.#ids.push(span.spanContext().spanId);
  }

  sorted(spans: readonly ReadableSpan[]): ReadableSpan[] {
    const placeOf = (span: ReadableSpan) => this.#ids.indexOf(span.spanContext().spanId);
    return [...spans].sort((a, b) => placeOf(a) - placeOf(b));
  }
}

function treeOf(spans: readonly ReadableSpan[], parent?: ReadableSpan): string[] {
  const ids = new Set(spans.map((span) => span.spanContext().spanId));
  const isBelow = (span: ReadableSpan) =>
    parent === undefined
      ? !ids.has(span.parentSpanContext?.spanId ?? "")
      : span.parentSpanContext?.spanId === parent.spanContext().spanId;
  return spans
    .filter(isBelow)
    .flatMap((span) => [describeSpan(span), ...treeOf(spans, span).map((line) => `  ${line}`)]);
}

function describeSpan({ name, attributes, status }: ReadableSpan): string {
  const shown = ["pawl.attempt", "pawl.outcome", "pawl.status"].flatMap((key) => String(attributes[key] ?? "") || []);
  return [name, ...shown, ...(status.code === SpanStatusCode.ERROR ? ["!"] : [])].join(" ");
}

const exceptionsOf = (span: ReadableSpan | undefined) =>
  span?.events.filter(({ name }) => name === "exception").map((event) => event.attributes?.["exception.message"]);

/** Makes an event of one run. */
const runEvent = (type: RunEvent["type"], more: Partial<RunEvent> = {}): RunEvent =>
  // By hand they may also lack what they always have.
  ({ type, workflow: "order", run: "order-1", ...more }) as RunEvent;

describe("the runs of a worker", () => {
  const go = signal<string>("go");

  test("a run with a retry, a wait and a failure is one trace", async () => {
    const { on, spans, tree } = observe();
    await using pawl = await open("memory:");
    let tries = 0;
    const order = workflow("order", async (ctx) => {
      await ctx.step(
        "charge",
        () => {
          tries += 1;
          if (tries === 1) throw new Error("busy");
        },
        { retry: { attempts: 3, delay: 1, jitter: 0 } },
      );
      await ctx.sleep(20);
      await ctx.waitForSignal(go);
      await ctx.step(
        "ship",
        () => {
          throw new TypeError("no ship");
        },
        { retry: { attempts: 1 } },
      );
    });
    await using _ = pawl.work([order], { on });
    const run = await pawl.start(order, undefined, { id: "order-1" });
    await expect.poll(async () => (await run.status()).status).toBe("waiting");
    await expect.poll(() => spans().length).toBeGreaterThanOrEqual(4);
    await run.signal(go, "now");
    await expect(run.result()).rejects.toThrow("no ship");
    await expect.poll(() => tree().at(-1)).toBe("  step ship 1 failed !");

    expect(tree()).toEqual([
      "run order rested waiting",
      "  step charge 1 retried !",
      "  step charge 2 completed",
      "run order rested waiting",
      "run order ended failed !",
      "  step ship 1 failed !",
    ]);
    expect(new Set(spans().map((span) => span.spanContext().traceId))).toEqual(
      new Set([traceIdOf("order", "order-1")]),
    );
    const ship = spans().find(({ name }) => name === "step ship");
    expect(ship?.attributes).toEqual({
      "pawl.workflow": "order",
      "pawl.run": "order-1",
      "pawl.step": "ship",
      "pawl.step_id": "ship",
      "pawl.attempt": 1,
      "pawl.outcome": "failed",
      "error.type": "TypeError",
    });
    expect(exceptionsOf(ship)).toEqual(["no ship"]);
    expect(ship?.status.message).toBe("no ship");
  });

  test("the first execution is linked to the span in which the run was started, and to no other", async () => {
    const { on, spans, tracer } = observe();
    await using pawl = await open("memory:");
    const order = workflow("order", async (ctx, name: string) => ctx.step("greet", () => name));
    await using _ = pawl.work([order], { on });
    const requests = ["a", "b", "c"].map((id) =>
      tracer.startActiveSpan(id, async (span: Span) => {
        const run = await pawl.start(order, id, { id });
        span.end();
        await run.result();
      }),
    );
    await Promise.all(requests);
    await expect.poll(() => spans().filter(({ name }) => name === "run order").length).toBe(3);
    for (const run of spans().filter(({ name }) => name === "run order")) {
      const request = spans().find(({ name }) => name === run.attributes["pawl.run"]);
      expect(run.links.map((link) => link.context.spanId)).toEqual([request?.spanContext().spanId]);
    }
  });

  test("an error of the listener fails no run", async () => {
    const broken = {
      getTracer: () => ({
        startSpan: () => {
          throw new Error("broken");
        },
        startActiveSpan: () => {},
      }),
    };
    const on = telemetry({ tracerProvider: broken as never });
    await using pawl = await open("memory:");
    const order = workflow("order", async (ctx) => ctx.step("greet", () => "hello"));
    await using _ = pawl.work([order], { on });
    expect(await (await pawl.start(order)).result()).toBe("hello");
  });

  // Left for the hook: until the worker runs a step's function through `on.around`, no code makes its span active.
  test("what a step's function does is below the step's span", async () => {
    const { on, tree, tracer } = observe();
    await using pawl = await open("memory:");
    const order = workflow("order", async (ctx) =>
      Promise.all(
        ["a", "b"].map((name) =>
          ctx.step(name, async () => {
            await Promise.resolve();
            tracer.startActiveSpan(`inside ${name}`, (span) => span.end());
          }),
        ),
      ),
    );
    await using _ = pawl.work([order], { on });
    await (await pawl.start(order)).result();
    await expect.poll(() => tree().length).toBe(5);
    expect(tree()).toEqual([
      "run order ended completed",
      "  step a 1 completed",
      "    inside a",
      "  step b 1 completed",
      "    inside b",
    ]);
  });
});

describe("events", () => {
  const rows: { readonly rule: string; readonly events: readonly RunEvent[]; readonly tree: readonly string[] }[] = [
    {
      rule: "an execution ends when its run rests",
      events: [runEvent("run.started"), runEvent("run.rested")],
      tree: ["run order rested waiting"],
    },
    {
      rule: "a completed run is no error",
      events: [runEvent("run.resumed"), runEvent("run.ended", { status: "completed" })],
      tree: ["run order ended completed"],
    },
    {
      rule: "a canceled run is no error",
      events: [
        runEvent("run.resumed"),
        runEvent("run.ended", { status: "canceled", error: new RunCanceledError("order-1", undefined) }),
      ],
      tree: ["run order ended canceled"],
    },
    {
      rule: "a timed-out run is an error",
      events: [runEvent("run.resumed"), runEvent("run.ended", { status: "timed_out", error: new Error("late") })],
      tree: ["run order ended timed_out !"],
    },
    {
      rule: "a run that throws undefined has failed too",
      events: [runEvent("run.resumed"), runEvent("run.ended", { status: "failed", error: undefined })],
      tree: ["run order ended failed !"],
    },
    {
      rule: "a parked run is an error",
      events: [runEvent("run.resumed"), runEvent("run.parked", { message: "may or may not have happened" })],
      tree: ["run order parked parked !"],
    },
    {
      rule: "a lost run is an error, and its running step is abandoned",
      events: [
        runEvent("run.resumed"),
        runEvent("step.started", { step: "charge", attempt: 1 }),
        runEvent("run.lost", { error: new Error("fenced") }),
      ],
      tree: ["run order lost !", "  step charge 1 abandoned"],
    },
    {
      rule: "trouble ends an execution, and later events add none",
      events: [runEvent("run.resumed"), runEvent("run.trouble", { error: new Error("oh") }), runEvent("run.parked")],
      tree: ["run order trouble !"],
    },
    {
      rule: "a step that is retried later has failed this time",
      events: [
        runEvent("run.resumed"),
        runEvent("step.started", { step: "charge", attempt: 4 }),
        runEvent("step.retried", { step: "charge", attempt: 4, error: new Error("busy") }),
        runEvent("run.rested"),
      ],
      tree: ["run order rested waiting", "  step charge 4 retried !"],
    },
    {
      rule: "an attempt that follows another means that the other failed",
      events: [
        runEvent("run.resumed"),
        runEvent("step.started", { step: "charge", attempt: 1 }),
        runEvent("step.started", { step: "charge", attempt: 2 }),
        runEvent("step.completed", { step: "charge" }),
        runEvent("run.rested"),
      ],
      tree: ["run order rested waiting", "  step charge 1 retried !", "  step charge 2 completed"],
    },
    {
      rule: "an error outcome is an error even without a reason",
      events: [
        runEvent("run.resumed"),
        runEvent("step.started", { step: "charge", attempt: 1 }),
        runEvent("step.failed", { step: "charge" }),
        runEvent("run.parked"),
        runEvent("run.resumed"),
        runEvent("run.lost"),
        runEvent("run.resumed"),
        runEvent("run.trouble"),
      ],
      tree: ["run order parked parked !", "  step charge 1 failed !", "run order lost !", "run order trouble !"],
    },
    {
      rule: "concurrent steps have separate spans, named without their numbers",
      events: [
        runEvent("run.resumed"),
        runEvent("step.started", { step: "charge#=eu", attempt: 1 }),
        runEvent("step.started", { step: "charge#=us#2", attempt: 1 }),
        runEvent("step.failed", { step: "charge#=us#2", error: "a text" }),
        runEvent("step.completed", { step: "charge#=eu" }),
        runEvent("run.rested"),
      ],
      tree: ["run order rested waiting", "  step charge 1 completed", "  step charge 1 failed !"],
    },
    {
      rule: "a run that is claimed again ends the execution whose end was not reported",
      events: [
        runEvent("run.resumed"),
        runEvent("step.started", { step: "charge", attempt: 1 }),
        runEvent("run.resumed"),
        runEvent("run.rested"),
      ],
      tree: ["run order abandoned", "  step charge 1 abandoned", "run order rested waiting"],
    },
    {
      rule: "ends without a reported beginning make no spans",
      events: [
        runEvent("run.rested"),
        runEvent("run.parked"),
        runEvent("run.trouble", { run: "", workflow: "" }),
        runEvent("step.started", { step: "charge", attempt: 1 }),
        runEvent("step.completed", { step: "charge" }),
        runEvent("log", { message: "hello" }),
        runEvent("run.resumed"),
        runEvent("step.completed", { step: "found out, not done" }),
        runEvent("run.rested"),
      ],
      tree: ["run order rested waiting"],
    },
  ];
  test.each(rows)("$rule", ({ events, tree: expected }) => {
    const { on, tree } = observe();
    for (const event of events) on(event);
    expect(tree()).toEqual(expected);
  });

  const thrown = [
    { what: "an error", error: new RangeError("too far"), type: "RangeError", message: "too far" },
    {
      what: "an error with a code",
      error: Object.assign(new Error("no"), { code: "ENO" }),
      type: "ENO",
      message: "no",
    },
    { what: "a text", error: "a text", type: "string", message: "a text" },
    { what: "anything", error: { secret: 1 }, type: "object", message: "something of type object" },
    { what: "nothing", error: null, type: "object", message: "something of type object" },
  ];
  test.each(thrown)("$what that was thrown is an exception of the attempt", ({ error, type, message }) => {
    const { on, spans } = observe();
    on(runEvent("run.resumed"));
    on(runEvent("step.started", { step: "charge", attempt: 1 }));
    on(runEvent("step.failed", { step: "charge", error }));
    const [span] = spans();
    expect(span?.attributes["error.type"]).toBe(type);
    expect(span?.status).toEqual({ code: SpanStatusCode.ERROR, message });
    expect(exceptionsOf(span)).toEqual([message]);
  });

  test("what a run logs is in its span", () => {
    const { on, spans } = observe();
    for (const event of [runEvent("run.resumed"), runEvent("log", { message: "half-way" }), runEvent("run.rested")])
      on(event);
    expect(spans()[0]?.events.map(({ name }) => name)).toEqual(["half-way"]);
  });

  test("executions that never end are forgotten, the oldest first", () => {
    const { on, spans } = observe();
    for (let count = 0; count < 10_003; count += 1) on(runEvent("run.resumed", { run: `order-${count}` }));
    expect(spans().map(({ attributes }) => attributes["pawl.run"])).toEqual(["order-0", "order-1", "order-2"]);
    on(runEvent("run.rested", { run: "order-0" }));
    expect(spans()).toHaveLength(3);
    on(runEvent("run.rested", { run: "order-3" }));
    expect(spans()).toHaveLength(4);
  });
});

describe("the active span", () => {
  test("is the attempt's while its function runs, also after it has awaited something", async () => {
    const { on, tree, tracer } = observe();
    const started = runEvent("step.started", { step: "charge", attempt: 1 });
    on(runEvent("run.resumed"));
    on(started);
    const answer = await on.around(started, async () => {
      await new Promise((resolve) => setTimeout(resolve, 1));
      tracer.startActiveSpan("inside", (span) => span.end());
      return 7;
    });
    expect(answer).toBe(7);
    expect(trace.getActiveSpan()).toBeUndefined();
    on(runEvent("step.completed", { step: "charge" }));
    on(runEvent("run.rested"));
    expect(tree()).toEqual(["run order rested waiting", "  step charge 1 completed", "    inside"]);
  });

  test("a function whose step was not reported runs, and its error is thrown", () => {
    const { on } = observe();
    expect(on.around(runEvent("step.started", { step: "charge" }), () => 7)).toBe(7);
    on(runEvent("run.resumed"));
    on(runEvent("step.started", { step: "charge", attempt: 1 }));
    const fails = () => {
      throw new Error("mine");
    };
    expect(() => on.around(runEvent("step.started", { step: "charge" }), fails)).toThrow("mine");
  });

  // A query of Prisma, Drizzle or Knex is sent by calling its `then`: a second call would send it again.
  test("the result of a function is not touched", () => {
    const { on } = observe();
    on(runEvent("run.resumed"));
    on(runEvent("step.started", { step: "charge", attempt: 1 }));
    let calls = 0;
    // biome-ignore lint/suspicious/noThenProperty: it stands for a query that is sent when it is awaited.
    const query = { then: () => (calls += 1) };
    expect(on.around(runEvent("step.started", { step: "charge" }), () => query)).toBe(query);
    expect(calls).toBe(0);
  });
});

describe("the trace", () => {
  test("its id never changes", () => {
    expect(traceIdOf("order", "order-1")).toBe("25c4258e6ebe9ad3aa6881a4e223ecf7");
  });

  test("it is another one for another run or workflow", () => {
    const ids = [
      traceIdOf("a", "b"),
      traceIdOf("a", "c"),
      traceIdOf("b", "b"),
      traceIdOf("ab", "c"),
      traceIdOf("a", "bc"),
    ];
    expect(new Set(ids).size).toBe(5);
    for (const id of ids) expect(id).toMatch(/^[0-9a-f]{32}$/);
  });

  test("independent processes write the same one, below the same parent", () => {
    const [one, two] = [observe(), observe()];
    for (const { on } of [one, two]) for (const event of [runEvent("run.resumed"), runEvent("run.rested")]) on(event);
    const [a, b] = [one.spans()[0], two.spans()[0]];
    expect(a?.spanContext().traceId).toBe(b?.spanContext().traceId);
    expect(a?.parentSpanContext).toEqual(b?.parentSpanContext);
    expect(a?.parentSpanContext?.isRemote).toBe(true);
    expect(a?.spanContext().spanId).not.toBe(b?.spanContext().spanId);
  });

  test.each([
    { ratio: 0, count: 0, tolerance: 0 },
    { ratio: 0.1, count: 200, tolerance: 60 },
    { ratio: 1, count: 2000, tolerance: 0 },
  ])("a ratio of $ratio traces that part of the runs, whatever the sampler's own", ({ ratio, count, tolerance }) => {
    const sampler = new ParentBasedSampler({ root: new TraceIdRatioBasedSampler(0.5) });
    const { on, spans } = observe({ sampleRatio: ratio }, sampler);
    for (let index = 0; index < 2000; index += 1) {
      on(runEvent("run.resumed", { run: `order-${index}` }));
      on(runEvent("step.started", { run: `order-${index}`, step: "charge", attempt: 1 }));
      on(runEvent("run.rested", { run: `order-${index}` }));
    }
    expect(Math.abs(spans().length / 2 - count)).toBeLessThanOrEqual(tolerance);
  });

  test("a higher ratio includes the runs of a lower one", () => {
    for (let index = 0; index < 500; index += 1) {
      const id = traceIdOf("order", String(index));
      if (isSampled(id, 0.2)) expect(isSampled(id, 0.3)).toBe(true);
    }
  });

  test.each([-0.1, 1.1, Number.NaN])("a ratio of %s is refused", (sampleRatio) => {
    expect(() => telemetry({ sampleRatio })).toThrow("the sample ratio");
  });
});

describe("the measurements", () => {
  test("runs and attempts are counted and timed, by few attributes", async () => {
    const { on, points } = observe({ attributes: { region: "eu" } });
    const labels = { region: "eu", "pawl.workflow": "order" };
    for (const event of [
      runEvent("run.started"),
      runEvent("run.started", { run: "order-2" }),
      runEvent("run.resumed", { run: "order-3" }),
      runEvent("step.started", { step: "charge", attempt: 1 }),
      runEvent("step.retried", { step: "charge", error: new TypeError("busy") }),
      runEvent("step.started", { step: "charge", attempt: 2 }),
      runEvent("step.completed", { step: "charge" }),
      runEvent("step.started", { step: "charge#2", attempt: 1 }),
      runEvent("step.completed", { step: "charge#2" }),
      runEvent("run.ended", { status: "completed" }),
      runEvent("run.parked", { run: "order-2", message: "unknown" }),
    ])
      on(event);
    expect(await points("pawl.runs.started")).toEqual([{ ...labels, value: 2 }]);
    expect(await points("pawl.runs.ended")).toEqual([{ ...labels, "pawl.status": "completed", value: 1 }]);
    expect(await points("pawl.runs.parked")).toEqual([{ ...labels, value: 1 }]);
    expect(await points("pawl.runs.active")).toEqual([{ ...labels, value: 1 }]);
    expect(await points("pawl.stretch.duration")).toEqual([
      { ...labels, "pawl.outcome": "ended", value: 1 },
      { ...labels, "pawl.outcome": "parked", value: 1 },
    ]);
    const step = { ...labels, "pawl.step": "charge" };
    expect(await points("pawl.step.attempts")).toEqual([
      { ...step, "pawl.outcome": "retried", "error.type": "TypeError", value: 1 },
      { ...step, "pawl.outcome": "completed", value: 2 },
    ]);
    expect(await points("pawl.step.duration")).toEqual([
      { ...step, "pawl.outcome": "retried", value: 1 },
      { ...step, "pawl.outcome": "completed", value: 2 },
    ]);
  });

  test("no run is active when all executions have ended, with any outcome", async () => {
    const { on, points } = observe();
    for (const type of ["run.rested", "run.ended", "run.parked", "run.lost", "run.trouble"] as const) {
      on(runEvent("run.resumed"));
      on(runEvent("run.resumed"));
      on(runEvent(type));
      on(runEvent(type));
    }
    expect(await points("pawl.runs.active")).toEqual([{ "pawl.workflow": "order", value: 0 }]);
  });

  test("the run of a real worker is measured", async () => {
    const { on, points } = observe();
    await using pawl = await open("memory:");
    const order = workflow("order", async (ctx) => {
      await ctx.step("charge", () => new Promise((resolve) => setTimeout(resolve, 5)));
      await ctx.sleep(5);
    });
    await using _ = pawl.work([order], { on });
    await (await pawl.start(order)).result();
    await expect.poll(() => points("pawl.runs.active")).toEqual([{ "pawl.workflow": "order", value: 0 }]);
    expect(await points("pawl.runs.ended")).toEqual([
      { "pawl.workflow": "order", "pawl.status": "completed", value: 1 },
    ]);
    expect(await points("pawl.stretch.duration")).toEqual([
      { "pawl.workflow": "order", "pawl.outcome": "rested", value: 1 },
      { "pawl.workflow": "order", "pawl.outcome": "ended", value: 1 },
    ]);
  });
});

describe("what is loaded", () => {
  /** Whether a module of OpenTelemetry is resolved when this one is imported, in a process of its own. */
  function loads(specifier: string): boolean {
    const script = `
      import { registerHooks } from "node:module";
      let isLoaded = false;
      registerHooks({ resolve: (name, context, next) => {
        if (name.includes("opentelemetry")) isLoaded = true;
        return next(name, context);
      } });
      await import(${JSON.stringify(specifier)});
      console.log(isLoaded);
    `;
    const args = [
      "--conditions=pawl-source",
      "--disable-warning=ExperimentalWarning",
      "--input-type=module",
      "-e",
      script,
    ];
    const { stdout, stderr } = spawnSync(process.execPath, args, { cwd: import.meta.dirname, encoding: "utf8" });
    expect(stderr).toBe("");
    return JSON.parse(stdout) as boolean;
  }

  test.each(["pawl", "pawl/testing"])("%s alone does not load OpenTelemetry", (specifier) => {
    expect(loads(specifier)).toBe(false);
  });

  test("pawl/otel needs it", () => {
    expect(loads("pawl/otel")).toBe(true);
  });
});
