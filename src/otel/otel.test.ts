/**
 * Goal: what a worker tells becomes one trace for each run, and numbers, whatever is told and whatever is not.
 * Method: the real SDK with exporters in memory. Runs of a real worker show that the events fit; events told by hand, in tables, show
 * what becomes of each, of those that come twice and of those that never come. Modules are counted in processes of their own.
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

/** A telemetry whose spans and measurements can be looked at. */
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

/** Events of one run, told by hand. */
const told = (type: RunEvent["type"], more: Partial<RunEvent> = {}): RunEvent =>
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

  test("the first stretch is linked to the span in which the run was started, and to no other", async () => {
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

  test("a listener that cannot be served fails no run", async () => {
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

  // Left for the hook: until the worker runs a step's function through `on.around`, nobody makes its span the active one.
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

describe("what becomes of events", () => {
  const rows: { readonly rule: string; readonly events: readonly RunEvent[]; readonly tree: readonly string[] }[] = [
    {
      rule: "a stretch ends when its run rests",
      events: [told("run.started"), told("run.rested")],
      tree: ["run order rested waiting"],
    },
    {
      rule: "a completed run has no fault",
      events: [told("run.resumed"), told("run.ended", { status: "completed" })],
      tree: ["run order ended completed"],
    },
    {
      rule: "to be canceled is no fault",
      events: [
        told("run.resumed"),
        told("run.ended", { status: "canceled", error: new RunCanceledError("order-1", undefined) }),
      ],
      tree: ["run order ended canceled"],
    },
    {
      rule: "to time out is one",
      events: [told("run.resumed"), told("run.ended", { status: "timed_out", error: new Error("late") })],
      tree: ["run order ended timed_out !"],
    },
    {
      rule: "a run that throws nothing at all has failed too",
      events: [told("run.resumed"), told("run.ended", { status: "failed", error: undefined })],
      tree: ["run order ended failed !"],
    },
    {
      rule: "a parked run is a fault",
      events: [told("run.resumed"), told("run.parked", { message: "may or may not have happened" })],
      tree: ["run order parked parked !"],
    },
    {
      rule: "a lost run is a fault, and the step that ran is given up",
      events: [
        told("run.resumed"),
        told("step.started", { step: "charge", attempt: 1 }),
        told("run.lost", { error: new Error("fenced") }),
      ],
      tree: ["run order lost !", "  step charge 1 abandoned"],
    },
    {
      rule: "trouble ends a stretch, and what is told after it adds none",
      events: [told("run.resumed"), told("run.trouble", { error: new Error("oh") }), told("run.parked")],
      tree: ["run order trouble !"],
    },
    {
      rule: "a step that is put off has failed this time",
      events: [
        told("run.resumed"),
        told("step.started", { step: "charge", attempt: 4 }),
        told("step.retried", { step: "charge", attempt: 4, error: new Error("busy") }),
        told("run.rested"),
      ],
      tree: ["run order rested waiting", "  step charge 4 retried !"],
    },
    {
      rule: "an attempt that follows another says that the other failed",
      events: [
        told("run.resumed"),
        told("step.started", { step: "charge", attempt: 1 }),
        told("step.started", { step: "charge", attempt: 2 }),
        told("step.completed", { step: "charge" }),
        told("run.rested"),
      ],
      tree: ["run order rested waiting", "  step charge 1 retried !", "  step charge 2 completed"],
    },
    {
      rule: "faults are faults although nobody says why",
      events: [
        told("run.resumed"),
        told("step.started", { step: "charge", attempt: 1 }),
        told("step.failed", { step: "charge" }),
        told("run.parked"),
        told("run.resumed"),
        told("run.lost"),
        told("run.resumed"),
        told("run.trouble"),
      ],
      tree: ["run order parked parked !", "  step charge 1 failed !", "run order lost !", "run order trouble !"],
    },
    {
      rule: "steps at the same time are told apart, and named without their numbers",
      events: [
        told("run.resumed"),
        told("step.started", { step: "charge#=eu", attempt: 1 }),
        told("step.started", { step: "charge#=us#2", attempt: 1 }),
        told("step.failed", { step: "charge#=us#2", error: "a text" }),
        told("step.completed", { step: "charge#=eu" }),
        told("run.rested"),
      ],
      tree: ["run order rested waiting", "  step charge 1 completed", "  step charge 1 failed !"],
    },
    {
      rule: "a run that is taken again ends the stretch whose end was never told",
      events: [
        told("run.resumed"),
        told("step.started", { step: "charge", attempt: 1 }),
        told("run.resumed"),
        told("run.rested"),
      ],
      tree: ["run order abandoned", "  step charge 1 abandoned", "run order rested waiting"],
    },
    {
      rule: "ends whose beginnings were never told make no spans",
      events: [
        told("run.rested"),
        told("run.parked"),
        told("run.trouble", { run: "", workflow: "" }),
        told("step.started", { step: "charge", attempt: 1 }),
        told("step.completed", { step: "charge" }),
        told("log", { message: "hello" }),
        told("run.resumed"),
        told("step.completed", { step: "found out, not done" }),
        told("run.rested"),
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
    on(told("run.resumed"));
    on(told("step.started", { step: "charge", attempt: 1 }));
    on(told("step.failed", { step: "charge", error }));
    const [span] = spans();
    expect(span?.attributes["error.type"]).toBe(type);
    expect(span?.status).toEqual({ code: SpanStatusCode.ERROR, message });
    expect(exceptionsOf(span)).toEqual([message]);
  });

  test("what a run logs is in its span", () => {
    const { on, spans } = observe();
    for (const event of [told("run.resumed"), told("log", { message: "half-way" }), told("run.rested")]) on(event);
    expect(spans()[0]?.events.map(({ name }) => name)).toEqual(["half-way"]);
  });

  test("stretches that never end are forgotten, the oldest first", () => {
    const { on, spans } = observe();
    for (let count = 0; count < 10_003; count += 1) on(told("run.resumed", { run: `order-${count}` }));
    expect(spans().map(({ attributes }) => attributes["pawl.run"])).toEqual(["order-0", "order-1", "order-2"]);
    on(told("run.rested", { run: "order-0" }));
    expect(spans()).toHaveLength(3);
    on(told("run.rested", { run: "order-3" }));
    expect(spans()).toHaveLength(4);
  });
});

describe("the active span", () => {
  test("is the attempt's while its function runs, also after it has awaited something", async () => {
    const { on, tree, tracer } = observe();
    const started = told("step.started", { step: "charge", attempt: 1 });
    on(told("run.resumed"));
    on(started);
    const answer = await on.around(started, async () => {
      await new Promise((resolve) => setTimeout(resolve, 1));
      tracer.startActiveSpan("inside", (span) => span.end());
      return 7;
    });
    expect(answer).toBe(7);
    expect(trace.getActiveSpan()).toBeUndefined();
    on(told("step.completed", { step: "charge" }));
    on(told("run.rested"));
    expect(tree()).toEqual(["run order rested waiting", "  step charge 1 completed", "    inside"]);
  });

  test("a function whose step nobody told of runs all the same, and what it throws is thrown", () => {
    const { on } = observe();
    expect(on.around(told("step.started", { step: "charge" }), () => 7)).toBe(7);
    on(told("run.resumed"));
    on(told("step.started", { step: "charge", attempt: 1 }));
    const fails = () => {
      throw new Error("mine");
    };
    expect(() => on.around(told("step.started", { step: "charge" }), fails)).toThrow("mine");
  });

  // A query of Prisma, Drizzle or Knex is sent by whoever calls its `then`: a second call would send it again.
  test("what a function gives is not touched", () => {
    const { on } = observe();
    on(told("run.resumed"));
    on(told("step.started", { step: "charge", attempt: 1 }));
    let calls = 0;
    // biome-ignore lint/suspicious/noThenProperty: it stands for a query that is sent when it is awaited.
    const query = { then: () => (calls += 1) };
    expect(on.around(told("step.started", { step: "charge" }), () => query)).toBe(query);
    expect(calls).toBe(0);
  });
});

describe("the trace", () => {
  test("its id is for ever", () => {
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

  test("processes that know nothing of each other write the same one, below the same parent", () => {
    const [one, two] = [observe(), observe()];
    for (const { on } of [one, two]) for (const event of [told("run.resumed"), told("run.rested")]) on(event);
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
      on(told("run.resumed", { run: `order-${index}` }));
      on(told("step.started", { run: `order-${index}`, step: "charge", attempt: 1 }));
      on(told("run.rested", { run: `order-${index}` }));
    }
    expect(Math.abs(spans().length / 2 - count)).toBeLessThanOrEqual(tolerance);
  });

  test("what a ratio takes, a higher one takes too", () => {
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
      told("run.started"),
      told("run.started", { run: "order-2" }),
      told("run.resumed", { run: "order-3" }),
      told("step.started", { step: "charge", attempt: 1 }),
      told("step.retried", { step: "charge", error: new TypeError("busy") }),
      told("step.started", { step: "charge", attempt: 2 }),
      told("step.completed", { step: "charge" }),
      told("step.started", { step: "charge#2", attempt: 1 }),
      told("step.completed", { step: "charge#2" }),
      told("run.ended", { status: "completed" }),
      told("run.parked", { run: "order-2", message: "unknown" }),
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

  test("nobody is worked on any more when all stretches have ended, however they did", async () => {
    const { on, points } = observe();
    for (const type of ["run.rested", "run.ended", "run.parked", "run.lost", "run.trouble"] as const) {
      on(told("run.resumed"));
      on(told("run.resumed"));
      on(told(type));
      on(told(type));
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

  test.each(["pawl", "pawl/testing"])("%s alone does without OpenTelemetry", (specifier) => {
    expect(loads(specifier)).toBe(false);
  });

  test("pawl/otel needs it", () => {
    expect(loads("pawl/otel")).toBe(true);
  });
});
