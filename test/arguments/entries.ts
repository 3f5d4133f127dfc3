/**
 * The table of the other entry points: `pawl/middleware`, `pawl/server`, `pawl/testing` and `pawl/otel`; the rest is in `http-entries.ts`.
 */

import * as middleware from "../../src/http/middleware/index.ts";
import * as server from "../../src/http/server/index.ts";
import * as main from "../../src/index.ts";
import * as otel from "../../src/otel/index.ts";
import * as testing from "../../src/testing/index.ts";
import { CLIENT, WEBHOOK } from "./http-entries.ts";
import { ELSEWHERE, ENGINE, type Fields, OPEN_FIELDS, OWNERS, type Owner, options } from "./table.ts";

/** One entry point: what it exports, its rows, and what is not attacked here. */
export interface EntryPoint {
  readonly path: string;
  readonly module: object;
  readonly owners: Readonly<Record<string, Owner>>;
  /** Those whose methods are calls of a server; `client.test.ts` attacks them. */
  readonly remote?: Readonly<Record<string, Owner>>;
  readonly elsewhere: Readonly<Record<string, string>>;
  readonly engine: ReadonlySet<string>;
  /** Paths that the compiler finds and no row needs. */
  readonly besides: readonly string[];
}

const GATE_FIELDS = {
  fingerprint: "function?",
  lease: "lease?",
  maxBodyBytes: "count?",
  methods: "ids?",
  required: "boolean?",
  scope: "function",
  storeStatus: "function?",
  ttl: "positive?",
};
const GATE = options(GATE_FIELDS, { scope: () => "ann" }, "options");
const HANDLE: Fields = { kind: "handle", fields: { idempotent: "function" }, good: {} };
const TRPC = options(
  {
    fingerprint: "function?",
    key: "function",
    lease: "lease?",
    required: "boolean?",
    scope: "function",
    storeErrors: "function?",
    ttl: "positive?",
  },
  { key: () => "key", scope: () => "ann" },
  "options",
);

const onGate = { takes: { pawl: HANDLE, options: GATE }, good: ({ pawl }: { pawl: unknown }) => [pawl, GATE.good] };
const onFetch = {
  takes: { pawl: HANDLE, handler: "function", options: GATE },
  good: ({ pawl }: { pawl: unknown }) => [pawl, () => new Response(), GATE.good],
};

const MIDDLEWARE: EntryPoint = {
  path: "src/http/middleware/index.ts",
  module: middleware,
  owners: {
    "": {
      where: "plain",
      on: () => undefined,
      rows: {
        expressIdempotency: onGate,
        fastifyIdempotency: onGate,
        honoIdempotency: onGate,
        idempotentFetch: onFetch,
        nextIdempotency: onFetch,
        trpcIdempotency: {
          takes: { pawl: HANDLE, options: TRPC },
          good: ({ pawl }) => [pawl, TRPC.good],
        },
      },
    },
  },
  elsewhere: {
    ExpressIdempotency: "takes the framework's request, and gives nothing for another",
    ExpressResponse: "of the framework",
    FastifyIdempotency: "takes the framework's request, and gives nothing for another",
    FastifyInstance: "of the framework",
    FastifyReply: "of the framework",
    HonoContext: "of the framework",
    HonoIdempotency: "takes the framework's context, and gives nothing for another",
    HttpAttempt: "what a handler is given: Attempt of the main entry point",
    IdempotentHandle: "the part of Pawl that is needed",
    MiddlewareOptions: "callbacks that the user writes",
    TrpcCall: "of the framework",
    TrpcOptions: "callbacks that the user writes",
  },
  engine: new Set(),
  besides: [],
};

const PAWL: Fields = { kind: "handle", fields: {}, good: {} };
const APP_FIELDS = {
  keys: "choice?",
  limits: options({
    bodyBytes: "count?",
    depth: "count?",
    keyless: options({ max: "count", per: "duration" }, { max: 1, per: 1 }),
    members: "count?",
    requests: options({ max: "count", per: "duration" }, { max: 1, per: 1 }),
    waiting: "count?",
    waitingPerKey: "count?",
    unreadBytes: "count?",
  }),
  logger: { kind: "handle?", fields: { error: "unchecked", warn: "unchecked" }, good: {} } as Fields,
  machines: "list?",
  metrics: "function?",
  namespaces: "function?",
  prefix: "mount?",
  trustedProxies: "ranges?",
};

/** The members of the handle that the server uses: it is handed in whole. */
const MEMBERS = [
  "actions",
  "aggregate",
  "dedupe",
  "events",
  "events.read",
  "forget",
  "forgotten",
  "idempotent",
  "lock",
  "machine",
  "mutex",
  "projection",
  "projections",
  "rateLimit",
  "reactions",
  "run",
  "runs",
  "runs.delete",
  "runs.list",
  "rwlock",
  "schedules",
  "semaphore",
  "slot",
  "slots",
  "slots.list",
  "start",
  "stream",
  "streams",
  "tasks",
  "transact",
  "whyWaiting",
  "with",
  "workflows",
  "workflows.pause",
  "workflows.paused",
  "workflows.resume",
];

const SERVER: EntryPoint = {
  path: "src/http/server/index.ts",
  module: server,
  owners: {
    "": {
      where: "plain",
      on: () => undefined,
      rows: {
        apiKeys: { takes: { pawl: PAWL }, good: ({ pawl }) => [pawl] },
        createApp: { takes: { pawl: PAWL, options: options(APP_FIELDS) }, good: ({ pawl }) => [pawl, {}] },
        runMetrics: { takes: {}, good: () => [] },
        serve: {
          takes: {
            pawl: PAWL,
            options: options({
              ...APP_FIELDS,
              connections: "count?",
              headersTimeout: "duration?",
              hostname: "hostname?",
              port: "port?",
              requestTimeout: "duration?",
            }),
          },
          // What is good would listen, so that what is bad is refused for itself.
          good: ({ pawl }) => [pawl, { port: 0 }],
        },
      },
    },
    ApiKeys: {
      where: "plain",
      on: ({ pawl }) => server.apiKeys(pawl as server.ServedPawl),
      rows: {
        create: {
          takes: {
            options: options(
              { by: "text?", expiresAt: "unchecked", name: "text", namespace: "id?", scopes: "choices" },
              { name: "key", scopes: ["read"] },
              "options",
            ),
          },
          good: () => [{ name: "key", scopes: ["read"] }],
        },
        get: { takes: { id: "id" }, good: () => ["there"] },
        history: { takes: { id: "id" }, good: () => ["there"] },
        list: { takes: { options: options({ after: "id?", limit: "count?", namespace: "id?" }) }, good: () => [{}] },
        revoke: { takes: { id: "id", options: options({ by: "text?" }) }, good: () => ["there", {}] },
        rotate: {
          takes: { id: "id", options: options({ by: "text?", grace: "duration?" }) },
          good: () => ["there", {}],
        },
      },
    },
  },
  elsewhere: {
    AppOptions: "callbacks that the user writes",
    RunMetrics: "a listener: told by the worker",
    ServeOptions: "callbacks that the user writes",
    ServedPawl: "the part of Pawl that is needed",
    ServedVerbs: "the part of Pawl that is needed",
    Server: "takes a timeout when it is closed, of a server that listens",
  },
  engine: new Set(),
  besides: ["apiKeys", "createApp", "serve"].flatMap((name) => MEMBERS.map((member) => `${name}(pawl).${member}`)),
};

const PROBABILITIES = [
  "busy",
  "clockJump",
  "clockSkew",
  "crash",
  "delay",
  "diskFull",
  "httpError",
  "httpLate",
  "httpTimeout",
  "lateRequest",
  "lostReply",
  "lostRequest",
  "lostWake",
  "mixedVersions",
  "overtake",
  "pause",
  "poison",
  "reorder",
  "rewind",
  "serialization",
  "storeClockJump",
];

const SIMULATE = options(
  {
    ...Object.fromEntries(PROBABILITIES.map((name) => [name, "share?"])),
    calm: "boolean?",
    faultsMs: "duration?",
    firstSeed: "number?",
    healMs: "duration?",
    seeds: "count?",
  },
  { seeds: 1 },
  "options",
);

const OPEN_TEST_FIELDS = {
  actions: OPEN_FIELDS.actions,
  archive: OPEN_FIELDS.archive,
  codec: "handle?",
  mayFail: "ids?",
  namespace: "id?",
  now: "time?",
  seed: "number?",
  strict: "boolean?",
  subjectKeys: OPEN_FIELDS.subjectKeys,
};
const CRASH_FIELDS = {
  ...OPEN_TEST_FIELDS,
  check: "unchecked",
  input: "unchecked",
  mayDiffer: "unchecked",
  mayPark: "unchecked",
  script: "unchecked",
  workflows: "unchecked",
  world: "unchecked",
};

const TESTING: EntryPoint = {
  path: "src/testing/index.ts",
  module: testing,
  owners: {
    "": {
      where: "plain",
      on: () => undefined,
      rows: {
        openTest: {
          takes: {
            options: options(OPEN_TEST_FIELDS),
          },
          good: () => [{}],
        },
        simulate: {
          takes: { name: "text", options: SIMULATE, scenario: "function" },
          good: () => ["nothing", SIMULATE.good, async () => {}],
        },
        storeConformance: {
          takes: {
            options: options(
              { differences: "list?", open: "function", patienceMs: "duration?" },
              { open: async () => undefined },
              "options",
            ),
          },
          good: () => [{ open: async () => undefined }],
        },
        stub: {
          takes: { result: "unchecked", options: options({ error: "unchecked", failures: "number?" }) },
          good: () => [1, {}],
        },
        withSteps: {
          takes: {
            original: "definition",
            stubs: "object",
            options: options({ others: "choice?", unused: "choice?" }),
          },
          good: ({ echo }) => [echo, {}, {}],
        },
        crashEverywhere: {
          takes: { workflow: "definition", argument1: { ...options(CRASH_FIELDS), isUnlisted: true } },
          good: ({ echo }) => [echo, {}],
        },
        replayHistory: { takes: { workflow: "definition", history: "text" }, good: ({ echo }) => [echo, ""] },
        saveHistory: {
          takes: { pawl: "handle", run: options({ id: "id" }, {}, "id") },
          good: ({ pawl }) => [pawl, "there"],
        },
      },
    },
    TestClock: {
      where: "plain",
      on: () => testing.openTest().clock,
      rows: {
        advance: { takes: { duration: "duration" } },
        sleep: { takes: { duration: "duration" } },
        during: { takes: { something: "unchecked" } },
        now: { takes: {} },
      },
    },
  },
  elsewhere: {
    Batch: "of the store contract: between the kernel and a store",
    ConformanceOptions: "callbacks that the user writes",
    CrashOptions: "callbacks that the user writes",
    Harness: "implemented by the user",
    HarnessClock: "implemented by the user",
    History: "a list of what was observed",
    Law: "takes nothing",
    Model: "implemented by the user",
    Process: "of the simulator",
    Service: "implemented by the user",
    Store: "of the store contract: between the kernel and a store",
    TestPawl: "a Pawl: the same arguments as in the main entry point",
    World: "of the simulator",
    describe: "takes reports of simulate",
    isLinearizable: "takes a history that was observed",
    neverStruck: "takes reports of simulate",
  },
  engine: new Set(),
  besides: [],
};

const OTEL: EntryPoint = {
  path: "src/otel/index.ts",
  module: otel,
  owners: {
    "": {
      where: "plain",
      on: () => undefined,
      rows: {
        telemetry: {
          takes: {
            options: options({
              attributes: "object?",
              meterProvider: "handle?",
              sampleRatio: "share?",
              tracerProvider: "handle?",
            }),
          },
          good: () => [{}],
        },
        traceIdOf: { takes: { workflow: "id", run: "id" }, good: () => ["flow", "run"] },
      },
    },
  },
  elsewhere: { Telemetry: "a listener: told by the worker" },
  engine: new Set(),
  besides: [],
};

export const ENTRIES: readonly EntryPoint[] = [
  {
    path: "src/index.ts",
    module: main,
    owners: OWNERS,
    elsewhere: ELSEWHERE,
    engine: ENGINE,
    // `machine<Data>()` takes nothing, and gives the function that has a row.
    besides: ["machine()"],
  },
  MIDDLEWARE,
  SERVER,
  TESTING,
  OTEL,
  CLIENT,
  WEBHOOK,
];
