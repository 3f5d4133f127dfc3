/**
 * The table: every public function and method, its arguments and the fields of its options, each with its kind (`values.ts`).
 *
 * A row says what is called, on what, and with which good arguments; a field that is attacked replaces the good one. `arguments.test.ts`
 * compares the rows with the exported types, so a new function, parameter or option that is not here fails the tests.
 */

import { type Machine, type Pawl, projection, type Slot, signal, type Tx, type Workflow } from "../../src/index.ts";
import type { Context } from "../../src/workflow/execution/context.ts";
import { account, Deposited } from "../stream/kit.ts";

/** What an argument takes: a kind, or an object of fields (with good values for those that must be there). */
export type Kind = string | Fields;

export interface Fields {
  /** The kind of the object as a whole; null where it is not attacked as a whole. */
  readonly kind: string | null;
  readonly fields: Readonly<Record<string, Kind>>;
  /** Good values, for fields that the others need. */
  readonly good: Readonly<Record<string, unknown>>;
  /** The fields depend on a type parameter, so the compiler cannot list them. */
  readonly isUnlisted?: true;
}

export const options = (
  fields: Readonly<Record<string, Kind>>,
  good: Readonly<Record<string, unknown>> = {},
  kind: string | null = "options?",
): Fields => ({ kind, fields, good });

/** Whether an argument is made of options: others, such as handles and loggers, may have members of their own. */
export const isOptions = ({ kind }: Fields): boolean => kind === null || /^(options|object|retention)\??$/.test(kind);

/** What there is to call. */
export interface Stage {
  readonly pawl: Pawl;
  readonly echo: Workflow<unknown, unknown>;
  readonly light: Machine<"red" | "green", number, number | undefined>;
  readonly slot: Slot<number>;
}

export interface Row {
  /** Parameters in order. */
  readonly takes: Readonly<Record<string, Kind>>;
  /** Good arguments, in order; options are made from their fields. */
  readonly good?: (stage: Stage) => readonly unknown[];
  /** Other signatures of the same function. */
  readonly overloads?: readonly Omit<Row, "overloads">[];
}

/** An owner of methods: where it comes from, and its rows by their names. */
export interface Owner {
  readonly where: "plain" | "tx" | "ctx";
  /** What the methods are called on, or the function itself where the name is empty. */
  readonly on: (stage: Stage, inside: { readonly tx: Tx; readonly ctx: Context }) => unknown;
  readonly rows: Readonly<Record<string, Row>>;
}

const none: Row = { takes: {} };

const EXPECTING = options({ expectedVersion: "version?" });
const SLOT_ROWS: Owner["rows"] = {
  get: none,
  set: { takes: { value: "value", options: EXPECTING }, good: () => [1, {}] },
  trySet: {
    takes: { value: "value", options: options({ expectedVersion: "version" }, { expectedVersion: 1 }, "options") },
    good: () => [1, { expectedVersion: 1 }],
  },
  update: { takes: { change: "function" } },
  delete: { takes: { options: EXPECTING }, good: () => [{}] },
};

const ACTION_FIELDS = {
  activeAt: "time?",
  expiresAt: "time?",
  expiresIn: "duration?",
  id: "id?",
  maxPinTries: "count?",
  owner: "id?",
  payload: "value",
  pin: "pin?",
  reason: "text?",
  tags: "ids?",
  uses: "count?",
};
const ASKING = { by: "id?", reason: "text?" };
const CONSUMING = { ...ASKING, consumerKey: "id?" };
const TARGET = options({ ref: "id" }, {}, "id");
const HELD = options({ ...ASKING, fence: "fence" }, { fence: 1 }, "options");
const COMPLETING = options({ ...CONSUMING, fence: "fence" }, { fence: 1 }, "options");

const usingActions = (consuming: Fields, claiming: Fields): Owner["rows"] =>
  Object.fromEntries(
    (
      [
        ["abandon", { id: "id", options: HELD }],
        ["complete", { id: "id", options: COMPLETING }],
        ["consume", { id: "id", options: consuming }],
        ["claim", { id: "id", options: claiming }],
        ["cancel", { target: TARGET, options: options(ASKING) }],
      ] as const
    ).flatMap(([name, takes]) => {
      const row: Row = { takes, good: () => ["there", { ...takes.options.good }] };
      return [
        [name, row],
        [`try${name[0]?.toUpperCase()}${name.slice(1)}`, row],
      ];
    }),
  );

const START = options({
  at: "time?",
  delay: "duration?",
  id: "id?",
  ifExists: "choice?",
  priority: "priority?",
  tags: "ids?",
  ttl: "duration?",
});
const START_ROW: Row = {
  takes: { workflow: "workflow", input: "value", options: START },
  good: ({ echo }) => [echo, 1, {}],
};

const LEASE = { lease: "lease?" };
const ACQUIRE = { abortSignal: "abortSignal?", by: "id?", timeout: "duration?" };
const RATE_FIELDS = { burst: "count?", max: "count", per: "positive", strict: "boolean?" };
const RATE = options(RATE_FIELDS, { max: 1, per: "1s" }, "options");
const PAGE = { after: "version?", limit: "count?" };
const RETRY = options({
  attempts: "count?",
  delay: "duration?",
  factor: "factor?",
  jitter: "share?",
  maxDelay: "duration?",
  when: "function?",
});

const RETENTION = options(
  { canceled: "duration?", completed: "duration?", expired: "duration?", failed: "duration?", timed_out: "duration?" },
  {},
  "retention?",
);

const TASK_GOOD = { targetUrl: "https://example.com/", waitForSignal: true };
const TASK = options(
  {
    at: "time?",
    body: "value",
    concurrency: options({ key: "id", max: "count" }, { key: "a", max: 1 }),
    delay: "duration?",
    headers: "headers?",
    id: "id?",
    idempotencyKey: "id?",
    maxWaitTime: "duration?",
    method: "method?",
    onCompleteUrl: "url?",
    priority: "priority?",
    rateLimit: options({ key: "id", max: "count", per: "positive" }, { key: "a", max: 1, per: "1s" }),
    retry: options({
      attempts: "count?",
      delay: "duration?",
      factor: "factor?",
      jitter: "share?",
      maxDelay: "duration?",
    }),
    retryStatuses: "statuses?",
    tags: "ids?",
    targetUrl: "url",
    timeout: "positive?",
    waitForSignal: "boolean?",
  },
  TASK_GOOD,
  "object",
);
const SIGNAL_TOKEN = `sig_${"a".repeat(43)}`;
const TASK_SIGNAL = options({ status: "choice", value: "value" }, { status: "completed" }, "object");
/** What can be done with tasks in a decision, too. */
const TASK_ROWS: Owner["rows"] = {
  create: { takes: { options: TASK }, good: () => [TASK_GOOD] },
  cancel: { takes: { id: "id", options: options({ reason: "text?" }) }, good: () => ["there", {}] },
  signal: { takes: { token: "unchecked", signal: TASK_SIGNAL }, good: () => [SIGNAL_TOKEN, { status: "completed" }] },
  trySignal: {
    takes: { token: "unchecked", signal: TASK_SIGNAL },
    good: () => [SIGNAL_TOKEN, { status: "completed" }],
  },
};

const TRANSITION = options({
  actor: "id?",
  data: "value",
  eventId: "id?",
  expectedVersion: "version?",
  patch: "object?",
  reason: "text?",
  update: "function?",
  whenEarly: "choice?",
});
const CREATE = {
  takes: {
    id: "id",
    options: { ...options({ actor: "id?", data: "unchecked", reason: "text?" }), isUnlisted: true },
  },
  good: () => ["new", {}],
} satisfies Row;
const MOVE = {
  takes: { id: "id", to: "choice", options: TRANSITION },
  good: () => ["there", "green", {}],
} satisfies Row;
const MACHINE_ROWS: Owner["rows"] = {
  create: CREATE,
  tryCreate: CREATE,
  get: { takes: { id: "id" } },
  transition: MOVE,
  tryTransition: MOVE,
};

const STEP_FIELDS = {
  heartbeat: "duration?",
  id: "id?",
  rateLimit: options({ ...RATE_FIELDS, key: "id?", name: "id" }, { name: "api", max: 1, per: "1s" }),
  retry: RETRY,
  semaphore: options({ name: "id", permits: "count?" }, { name: "api" }),
  timeout: "duration?",
  totalTimeout: "duration?",
};
const STEP: Row = {
  takes: { name: "id", run: "function", options: options(STEP_FIELDS) },
  good: () => ["step", () => 1, {}],
};
const { retry: _retry, ...ONCE_FIELDS } = STEP_FIELDS;

const CHILD: Row = {
  takes: { workflow: "definition", input: "value", options: options({ id: "id?", whenParentEnds: "choice?" }) },
  good: ({ echo }) => [echo, 1, {}],
};
const TIMEOUT = options({ timeout: "duration?" });
const TOKENS = { count: "count?", key: "id?" };

const WORK_OPTIONS = {
  concurrency: "count?",
  lease: "lease?",
  on: "function?",
  parkContradictedAfter: "duration?",
  perWorkflow: "object?",
  pools: "object?",
  warm: "number?",
  watchdog: "duration?",
};

const SCHEDULE_FIELDS = {
  at: "times?",
  catchUp: "catchUp?",
  cron: "cron?",
  ends: "time?",
  every: "positive?",
  jitter: "duration?",
  max: "count?",
  overlap: options({ queue: "count" }, { queue: 1 }, "overlap?"),
  starts: "time?",
  timezone: "timezone?",
};
const HOURLY = { every: "1 hour" };

const ARCHIVE = options({ read: "function?", write: "function" }, { write: async () => {} }, "handle?");

export const OPEN_FIELDS = {
  actions: options({
    keys: options({ current: "id", ring: "object" }, { current: "a", ring: { a: new Uint8Array(32) } }),
    pepper: "peppers?",
    pepperChange: "choice?",
    retention: "duration?",
  }),
  checkPurity: "boolean?",
  codec: "handle?",
  durability: "choice?",
  archive: ARCHIVE,
  logger: options({ error: "function", warn: "function" }, { error: () => {}, warn: () => {} }, "handle?"),
  maxValueBytes: "count?",
  namespace: "id?",
  patience: "duration?",
  pool: "handle?",
  retention: RETENTION,
  schema: "id?",
  subjectKeys: options(
    { create: "function", destroy: "function", get: "function" },
    { create: () => {}, destroy: () => {}, get: () => {} },
    "handle?",
  ),
};

const IDEMPOTENT = { fingerprint: "fingerprint", scope: "secret?", ttl: "positive?" };
const DEDUPE = options({ touches: "list?", ttl: "positive?" });

const ORIGIN = { actor: "id?", causationId: "id?", correlationId: "id?" };
const APPEND: Row = {
  takes: { events: "list", options: options({ ...ORIGIN, expectedVersion: "version?" }) },
  good: () => [[Deposited({ amount: 1 })], {}],
};
/** What a command takes is up to the command; options are attacked by the stream's own tests. */
const EXECUTE: Row = { takes: { command: "id", rest: "unchecked" }, good: () => ["deposit", { amount: 1 }] };
/** Asked of whatever was read: it must not throw. */
const ANY_EVENT = options(
  {
    actor: "unchecked",
    at: "unchecked",
    causationId: "unchecked",
    correlationId: "unchecked",
    data: "unchecked",
    id: "unchecked",
    name: "unchecked",
    shape: "unchecked",
    stream: "unchecked",
    version: "unchecked",
  },
  {},
  "unchecked",
);
const AGGREGATE = options({ name: "unchecked" }, {}, "handle");

const sqlSums = projection.sql("sums in sql", { on: [Deposited] }, () => {});
const PROJECTION_ROWS: Owner["rows"] = {
  status: none,
  rebuild: { takes: { options: options({ from: "choice?" }) } },
  delete: none,
  waitFor: {
    takes: {
      appended: options({ stream: "id", version: "version" }, { stream: "account", version: 0 }, "handle"),
      options: TIMEOUT,
    },
    good: () => [{ stream: "account", version: 0 }, {}],
  },
};

/** An operation on the targets of a reaction that match. */
const FILTERED: Row = {
  takes: {
    reaction: "id",
    filter: options({ dryRun: "boolean?", prefix: "prefix?", status: "choice?", target: "id?" }, {}, "options"),
  },
  good: () => ["mail", {}],
};

const FREE: Owner["rows"] = {
  event: {
    takes: {
      name: "id",
      options: options({
        personal: options(
          { fields: "list", subject: "function" },
          { fields: ["email"], subject: () => "ann" },
          "object?",
        ),
        schema: "handle?",
        shape: "count?",
        upcast: "object?",
      }),
    },
    good: () => ["Happened", {}],
  },
  isForgotten: { takes: { value: "unchecked" }, good: () => ["ann"] },
  aggregate: {
    takes: {
      name: "id",
      definition: options(
        { commands: "object?", initial: "unchecked", on: "list", startFrom: "choice?", version: "id?" },
        { initial: 0, on: [] },
        "object",
      ),
    },
    good: () => ["sum", { initial: 0, on: [] }],
  },
  projection: {
    takes: {
      name: "id",
      options: options(
        { from: "choice?", key: "function?", on: "list", version: "id?" },
        { on: [Deposited] },
        "object",
      ),
      apply: "function",
    },
    good: () => ["sums", { on: [Deposited] }, () => 1],
  },
  jsonLinesArchive: { takes: { folder: "text" }, good: () => ["archive"] },
  schedule: {
    takes: {
      name: "id",
      options: options({ ...SCHEDULE_FIELDS, revision: "version?" }, HOURLY, "object"),
      workflow: "workflow",
      input: "scheduleInput",
    },
    good: ({ echo }) => ["nightly", HOURLY, echo, 1],
  },
  httpTasks: {
    takes: {
      options: options({
        allow: "ranges?",
        allowPorts: "ports?",
        maxResponseBytes: "count?",
        retention: RETENTION,
        secrets: "webhookSecrets?",
      }),
    },
    good: () => [{}],
  },
  streamPolicy: {
    takes: {
      name: "id",
      options: options(
        {
          archive: ARCHIVE,
          close: options({ idleFor: "positive" }, { idleFor: "1 day" }, "object?"),
          discard: "boolean?",
          prefix: "prefix",
          prune: options({ keep: "count?", olderThan: "positive?" }, { keep: 5 }, "object?"),
        },
        { close: { idleFor: "1 day" }, prefix: "account-" },
        "object",
      ),
    },
    good: () => ["old", { close: { idleFor: "1 day" }, prefix: "account-" }],
  },
  reaction: {
    takes: {
      name: "id",
      options: options(
        {
          concurrency: "count?",
          from: "choice?",
          group: "id?",
          lease: "lease?",
          on: "list",
          retry: RETRY,
          target: "choice?",
          timeout: "duration?",
        },
        { on: [Deposited] },
        "object",
      ),
      handler: "function",
    },
    good: () => ["mail", { on: [Deposited] }, () => {}],
  },
  open: {
    takes: {
      store: options({ ...OPEN_FIELDS, store: "store?" }, { store: "memory:" }, null),
      more: options(OPEN_FIELDS, {}, "options?"),
    },
    good: () => ["memory:", {}],
    overloads: [none],
  },
  workflow: {
    takes: {
      name: "id",
      options: options(
        {
          batch: options({ key: "function?", maxWait: "duration", size: "count" }, { maxWait: 1, size: 2 }),
          concurrency: options(
            { excess: "choice?", key: "function?", max: "count", name: "id?" },
            { max: 1 },
            "object?",
          ),
          debounce: options(
            { key: "function?", maxWait: "duration?", merge: "function?", period: "duration" },
            { period: 1 },
          ),
          fairness: options({ key: "function", weight: "function?" }, { key: String }),
          grace: "duration?",
          input: "handle?",
          name: "id",
          output: "handle?",
          pools: options({ key: "function", names: "ids" }, { key: String, names: ["a"] }),
          priority: "function?",
          rateLimit: options({ ...RATE_FIELDS, excess: "choice?", key: "function?" }, { max: 1, per: "1s" }),
          retention: RETENTION,
          retry: RETRY,
          throttle: options({ key: "function?", max: "count?", per: "positive" }, { per: "1s" }),
          timeout: "duration?",
          tries: "count?",
          ttl: "duration?",
        },
        { name: "flow" },
        null,
      ),
      body: "function",
    },
    good: () => ["flow", undefined, async () => 1],
  },
  signal: { takes: { name: "id", schema: "handle?" }, good: () => ["go"] },
  machine: {
    takes: {
      name: "id",
      definition: options(
        {
          guards: "object?",
          initial: "choice",
          initialData: "unchecked",
          maxParked: "count?",
          transitions: "object",
          unknown: "choice?",
        },
        { initial: "red", transitions: { red: [] } },
        "object",
      ),
    },
    good: () => ["light", { initial: "red", transitions: { red: [] } }],
  },
  transformed: { takes: { inner: "handle", transform: "handle" } },
  checkFence: {
    takes: { sql: "handle", resource: "id", fence: "fence" },
    good: () => [async () => [{ fence: 1 }], "disk", 1],
  },
  checkFenceSync: {
    takes: { db: "handle", resource: "id", fence: "fence" },
    good: () => [{ prepare: () => ({ all: () => [{ fence: 1 }] }) }, "disk", 1],
  },
  isReplayed: { takes: { error: "unchecked" } },
  // Asked of whatever was caught: it must not throw.
  isPawlError: { takes: { error: "unchecked", code: "unchecked" } },
};

export const OWNERS: Readonly<Record<string, Owner>> = {
  "": { where: "plain", on: () => undefined, rows: FREE },
  Pawl: {
    where: "plain",
    on: ({ pawl }) => pawl,
    rows: {
      close: none,
      with: {
        takes: { origin: options({ actor: "id?", causationId: "id?", correlationId: "id?" }, {}, "object") },
        good: () => [{}],
      },
      start: START_ROW,
      run: {
        takes: { workflow: "workflow", id: "id" },
        good: ({ echo }) => [echo, "there"],
        overloads: [{ takes: { id: "id" } }],
      },
      work: {
        takes: { definitions: "list", options: options(WORK_OPTIONS) },
        good: ({ echo }) => [[echo], {}],
      },
      slot: {
        takes: { name: "id", options: options({ initial: "value", run: "id?", workflow: "workflow?" }) },
        good: () => ["slot", {}],
      },
      lock: {
        takes: { names: "names", work: "function", options: options({ ...ACQUIRE, ...LEASE }) },
        good: () => ["door", () => 1, {}],
      },
      mutex: { takes: { names: "names", options: options(LEASE) }, good: () => ["door", {}] },
      semaphore: { takes: { name: "id", options: options({ ...LEASE, permits: "count?" }) }, good: () => ["api", {}] },
      rwlock: { takes: { name: "id", options: options(LEASE) }, good: () => ["door", {}] },
      rateLimit: { takes: { name: "id", options: RATE }, good: () => ["mail", { max: 1, per: "1s" }] },
      machine: { takes: { machine: "handle" } },
      stream: { takes: { id: "id" } },
      forget: {
        takes: { subject: "id", options: options({ actor: "id?", reason: "text?" }) },
        good: () => ["someone", {}],
      },
      aggregate: { takes: { aggregate: AGGREGATE, stream: "id" }, good: () => [account, "account"] },
      projection: {
        takes: { projection: options({ name: "unchecked" }, {}, "unchecked") },
        good: () => [sqlSums],
        overloads: [{ takes: { projection: "id" } }],
      },
      idempotent: {
        takes: {
          key: "id",
          options: options({ ...IDEMPOTENT, lease: "lease?", storeErrors: "function?" }),
          fn: "function",
        },
        good: () => ["key", {}, () => 1],
      },
      dedupe: {
        takes: { consumer: "id", messageId: "id", decide: "function", options: DEDUPE },
        good: () => ["mailer", "m-1", () => 1, {}],
      },
      whyWaiting: {
        takes: {
          subject: options({ kind: "choice?", lock: "id", run: "id", waiter: "id?" }, { lock: "door" }, "object"),
        },
        good: () => [{ lock: "door" }],
      },
      transact: {
        takes: { decide: "function", options: options({ touches: "list?" }) },
        good: () => [() => 1, {}],
      },
      within: {
        takes: { executor: "handle", decide: "function", options: options({ touches: "list?" }) },
        good: () => [async () => [], () => 1, {}],
      },
    },
  },
  "Pawl.dedupe": {
    where: "plain",
    on: ({ pawl }) => pawl.dedupe,
    rows: {
      sql: {
        takes: { consumer: "id", messageId: "id", work: "function", options: options({ ttl: "positive?" }) },
        good: () => ["mailer", "m-1", async () => 1, {}],
      },
    },
  },
  "Pawl.transact": {
    where: "plain",
    on: ({ pawl }) => pawl.transact,
    rows: { sql: { takes: { work: "function" } } },
  },
  "Pawl.workflows": {
    where: "plain",
    on: ({ pawl }) => pawl.workflows,
    rows: {
      pause: { takes: { workflow: "workflow", options: options({ reason: "text?" }) }, good: ({ echo }) => [echo, {}] },
      resume: { takes: { workflow: "workflow" }, good: ({ echo }) => [echo] },
      paused: none,
    },
  },
  "Pawl.runs": {
    where: "plain",
    on: ({ pawl }) => pawl.runs,
    rows: {
      delete: { takes: { id: "id" } },
      list: {
        takes: {
          options: options({
            endedAfter: "time?",
            endedBefore: "time?",
            startedAfter: "time?",
            startedBefore: "time?",
            after: "cursor?",
            limit: "count?",
            order: "choice?",
            prefix: "prefix?",
            status: "choices?",
            tag: "id?",
            workflow: "workflow?",
          }),
        },
        good: () => [{}],
      },
    },
  },
  "Pawl.slots": {
    where: "plain",
    on: ({ pawl }) => pawl.slots,
    rows: {
      list: { takes: { options: options({ after: "id?", limit: "count?", prefix: "prefix?" }) }, good: () => [{}] },
    },
  },
  Actions: {
    where: "plain",
    on: ({ pawl }) => pawl.actions,
    rows: {
      create: { takes: { options: options(ACTION_FIELDS) }, good: () => [{}] },
      prepare: { takes: { options: options(ACTION_FIELDS) }, good: () => [{}] },
      createMany: { takes: { list: "list" } },
      get: { takes: { target: TARGET } },
      history: { takes: { target: TARGET, options: options(PAGE) }, good: () => ["there", {}] },
      list: {
        takes: {
          options: options({
            after: "cursor?",
            createdAfter: "time?",
            createdBefore: "time?",
            limit: "count?",
            owner: "id?",
            state: "choices?",
            tag: "id?",
          }),
        },
        good: () => [{}],
      },
      sweep: { takes: { limit: "count?" } },
      ...usingActions(options({ ...CONSUMING, pin: "pin?" }), options({ ...CONSUMING, ...LEASE, pin: "pin?" })),
    },
  },
  Run: {
    where: "plain",
    on: ({ pawl, echo }) => pawl.run(echo as Workflow<never, unknown>, "there"),
    rows: {
      status: none,
      retry: { takes: { options: options({ steps: "ids?" }) }, good: () => [{}] },
      result: {
        takes: { options: options({ abortSignal: "abortSignal?", timeout: "duration?" }) },
        good: () => [{ timeout: 1 }],
      },
      history: { takes: { options: options(PAGE) }, good: () => [{}] },
      signal: {
        takes: { signal: "definition", input: "value", options: options({ id: "id?" }) },
        good: () => [{ name: "go" }, 1, {}],
      },
      cancel: { takes: { options: options({ force: "boolean?", reason: "text?" }) }, good: () => [{}] },
      resolveStep: {
        takes: { step: "id", answer: options({ done: "boolean", value: "value" }, { done: true }, "object") },
        good: () => ["pay", { done: true }],
      },
    },
  },
  Worker: {
    where: "plain",
    on: ({ pawl, echo }) => pawl.work([echo as Workflow<never, unknown>]),
    rows: { stop: { takes: { options: TIMEOUT }, good: () => [{}] } },
  },
  Slot: {
    where: "plain",
    on: ({ slot }) => slot,
    rows: {
      ...SLOT_ROWS,
      watch: { takes: { options: options({ abortSignal: "abortSignal?" }) }, good: () => [{}] },
    },
  },
  Lock: {
    where: "plain",
    on: ({ pawl }) => pawl.mutex("door"),
    rows: {
      acquire: { takes: { options: options(ACQUIRE) }, good: () => [{}] },
      tryAcquire: { takes: { options: options({ by: "id?" }) }, good: () => [{}] },
      enqueue: { takes: { options: options({ by: "id?" }) }, good: () => [{}] },
      with: { takes: { work: "function", options: options(ACQUIRE) }, good: () => [() => 1, {}] },
      inspect: { takes: { options: options({ limit: "count?" }) }, good: () => [{}] },
      history: { takes: { options: options(PAGE) }, good: () => [{}] },
      removeWaiter: {
        takes: {
          ticket: "id",
          intervention: options({ by: "id", reason: "text" }, { by: "ann", reason: "r" }, "object"),
        },
        good: () => ["ticket", { by: "ann", reason: "r" }],
      },
      forceRelease: {
        takes: {
          intervention: options({ by: "id", reason: "text", ticket: "id?" }, { by: "ann", reason: "r" }, "object"),
        },
        good: () => [{ by: "ann", reason: "r" }],
      },
    },
  },
  Hold: { where: "plain", on: ({ pawl }) => pawl.mutex("free").acquire(), rows: { release: none, renew: none } },
  LockPlace: {
    where: "plain",
    async on({ pawl }) {
      const entered = await pawl.mutex("door").enqueue();
      return entered.granted ? undefined : entered.place;
    },
    rows: {
      acquire: {
        takes: { options: options({ abortSignal: "abortSignal?", timeout: "duration?" }) },
        good: () => [{ timeout: 1 }],
      },
      leave: none,
      position: none,
      renew: none,
    },
  },
  RateLimit: {
    where: "plain",
    on: ({ pawl }) => pawl.rateLimit("mail", { max: 1000, per: "1s" }),
    rows: {
      acquire: {
        takes: { options: options({ ...TOKENS, abortSignal: "abortSignal?", timeout: "duration?" }) },
        good: () => [{}],
      },
      tryAcquire: { takes: { options: options(TOKENS) }, good: () => [{}] },
      inspect: { takes: { options: options({ key: "id?" }) }, good: () => [{}] },
    },
  },
  MachineHandle: {
    where: "plain",
    on: ({ pawl, light }) => pawl.machine(light),
    rows: {
      ...MACHINE_ROWS,
      delete: { takes: { id: "id" }, good: () => ["there"] },
      history: { takes: { id: "id", options: options(PAGE) }, good: () => ["there", {}] },
      list: { takes: { options: options({ after: "id?", limit: "count?", state: "choices?" }) }, good: () => [{}] },
    },
  },
  Stream: {
    where: "plain",
    on: ({ pawl }) => pawl.stream("account"),
    rows: {
      append: APPEND,
      tryAppend: APPEND,
      head: none,
      read: {
        takes: { options: options({ backwards: "boolean?", events: "list?", from: "count?" }) },
        good: () => [{}],
      },
    },
  },
  Streams: {
    where: "plain",
    on: ({ pawl }) => pawl.streams,
    rows: {
      close: {
        takes: {
          stream: "id",
          options: options(
            {
              actor: "id?",
              archive: ARCHIVE,
              discard: "boolean?",
              expectedVersion: "version?",
              force: "boolean?",
              reason: "text?",
              restart: "handle?",
            },
            { archive: { write: async () => {} } },
          ),
        },
        good: () => ["account", { archive: { write: async () => {} } }],
      },
      prune: {
        takes: {
          stream: "id",
          options: options(
            { archive: ARCHIVE, before: "version", discard: "boolean?" },
            { archive: { write: async () => {} }, before: 1 },
            "options",
          ),
        },
        good: () => ["account", { archive: { write: async () => {} }, before: 1 }],
      },
      export: {
        takes: {
          which: options({ prefix: "prefix" }, { prefix: "there" }, null),
          // A path as well: the stream's own tests attack it.
          to: options({ write: "function" }, { write: () => {} }, "unchecked"),
          options: options({ from: "choice?" }),
        },
        good: () => [{ prefix: "there" }, { write: () => {} }, {}],
      },
      policies: none,
      removePolicy: { takes: { policy: "id" }, good: () => ["old"] },
      import: {
        takes: { from: "unchecked", options: options({ dryRun: "boolean?" }) },
        good: () => [(async function* () {})(), {}],
      },
    },
  },
  Schedules: {
    where: "plain",
    on: ({ pawl }) => pawl.schedules,
    rows: {
      create: {
        takes: {
          name: "id",
          options: options(SCHEDULE_FIELDS, HOURLY, "object"),
          workflow: "workflow",
          input: "value",
        },
        good: ({ echo }) => ["created", HOURLY, echo, 1],
      },
      update: {
        takes: { name: "id", options: options({ ...SCHEDULE_FIELDS, input: "value" }, HOURLY, "object") },
        good: () => ["created", HOURLY],
      },
      delete: { takes: { name: "id" }, good: () => ["deleted"] },
      get: { takes: { schedule: "schedule" }, good: () => ["created"] },
      list: { takes: { options: options({ after: "id?", limit: "count?", prefix: "prefix?" }) }, good: () => [{}] },
      pause: {
        takes: { schedule: "schedule", options: options({ reason: "text?" }) },
        good: () => ["created", {}],
      },
      resume: { takes: { schedule: "schedule" }, good: () => ["created"] },
      trigger: {
        takes: { schedule: "schedule", options: options({ id: "id?" }) },
        good: () => ["created", {}],
      },
      backfill: {
        takes: {
          schedule: "schedule",
          options: options({ from: "time", limit: "count?", to: "time" }, { from: 0, to: 1 }, "object"),
        },
        good: () => ["created", { from: 0, to: 1 }],
      },
      preview: {
        takes: {
          schedule: options(SCHEDULE_FIELDS, HOURLY, null),
          options: options({ count: "count?", from: "time?" }),
        },
        good: () => [HOURLY, {}],
      },
      history: {
        takes: { schedule: "schedule", options: options({ before: "version?", limit: "count?" }) },
        good: () => ["created", {}],
      },
    },
  },
  Events: {
    where: "plain",
    on: ({ pawl }) => pawl.events,
    rows: {
      read: {
        takes: {
          options: options({
            after: "cursor?",
            correlationId: "id?",
            events: "list?",
            from: "choice?",
            prefix: "prefix?",
            since: "time?",
            until: "time?",
          }),
        },
        good: () => [{}],
      },
    },
  },
  Reactions: {
    where: "plain",
    on: ({ pawl }) => pawl.reactions,
    rows: {
      list: none,
      get: { takes: { reaction: "id" }, good: () => ["mail"] },
      pause: { takes: { reaction: "id" }, good: () => ["mail"] },
      resume: { takes: { reaction: "id" }, good: () => ["mail"] },
      removeEvent: { takes: { reaction: "id", name: "id" }, good: () => ["mail", "Happened"] },
      target: { takes: { reaction: "id", target: "id" }, good: () => ["mail", "there"] },
      targets: {
        takes: {
          reaction: "id",
          options: options({ after: "text?", limit: "count?", prefix: "prefix?", status: "choice?" }),
        },
        good: () => ["mail", {}],
      },
      ...Object.fromEntries(
        ["pauseTargets", "prioritize", "reset", "resumeTargets", "unblock"].map((name) => [name, FILTERED]),
      ),
      skip: {
        takes: {
          reaction: "id",
          target: "id",
          options: options({ actor: "id", reason: "text" }, { actor: "ann", reason: "bad" }, "object"),
        },
        good: () => ["mail", "there", { actor: "ann", reason: "bad" }],
      },
      deadLetters: {
        takes: { reaction: "id", options: options({ after: "text?", limit: "count?" }) },
        good: () => ["mail", {}],
      },
      redrive: {
        takes: {
          reaction: "id",
          letter: options({ stream: "id", target: "id?", version: "fence" }, { stream: "there", version: 1 }, "handle"),
        },
        good: () => ["mail", { stream: "there", version: 1 }],
      },
    },
  },
  Projections: { where: "plain", on: ({ pawl }) => pawl.projections, rows: { list: none } },
  ProjectionHandle: {
    where: "plain",
    on: ({ pawl }) => pawl.projection("sums"),
    rows: {
      ...PROJECTION_ROWS,
      get: { takes: { key: "id" }, good: () => ["there"] },
      list: { takes: { options: options({ after: "id?", limit: "count?", prefix: "prefix?" }) }, good: () => [{}] },
    },
  },
  SqlProjectionHandle: { where: "plain", on: ({ pawl }) => pawl.projection(sqlSums), rows: PROJECTION_ROWS },
  ForgottenSubjects: {
    where: "plain",
    on: ({ pawl }) => pawl.forgotten,
    rows: {
      list: { takes: { options: options({ after: "text?", limit: "count?" }) }, good: () => [{}] },
      reapply: { takes: { subjects: "list" }, good: () => [["someone"]] },
    },
  },
  AggregateHandle: {
    where: "plain",
    on: ({ pawl }) => pawl.aggregate(account, "account"),
    rows: {
      execute: EXECUTE,
      tryExecute: EXECUTE,
      state: { takes: { options: options({ asOf: "version?" }) }, good: () => [{}] },
    },
  },
  EventType: { where: "plain", on: () => Deposited, rows: { is: { takes: { event: ANY_EVENT }, good: () => [{}] } } },
  Signal: {
    where: "plain",
    on: () => signal("go"),
    rows: {
      is: {
        takes: { received: options({ ok: "boolean", signal: "unchecked" }, { ok: true, signal: "go" }, "handle") },
        good: () => [{ ok: true, signal: "go" }],
      },
    },
  },
  Machine: { where: "plain", on: ({ light }) => light, rows: { toSvg: none, toText: none } },
  Tx: {
    where: "tx",
    on: (_stage, { tx }) => tx,
    rows: {
      start: START_ROW,
      signal: {
        takes: { run: "id", signal: "definition", input: "value", options: options({ id: "id?" }) },
        good: () => ["there", { name: "go" }, 1, {}],
      },
      lock: { takes: { lock: "handle" } },
      slot: { takes: { slot: "handle" } },
      machine: { takes: { machine: "handle" } },
      stream: { takes: { id: "id" } },
      aggregate: { takes: { aggregate: AGGREGATE, stream: "id" }, good: () => [account, "account"] },
      rateLimit: { takes: { limit: "handle" } },
      idempotent: {
        takes: { key: "id", options: options(IDEMPOTENT), decide: "function" },
        good: () => ["key", {}, () => 1],
      },
      dedupe: {
        takes: { consumer: "id", messageId: "id", options: options({ ttl: "positive?" }) },
        good: () => ["mailer", "m-1", {}],
      },
      random: none,
      uuid: none,
    },
  },
  TxSlot: { where: "tx", on: ({ slot }, { tx }) => tx.slot(slot), rows: SLOT_ROWS },
  TxStream: {
    where: "tx",
    on: (_stage, { tx }) => tx.stream("account"),
    rows: { append: APPEND, tryAppend: APPEND },
  },
  TxAggregate: {
    where: "tx",
    on: (_stage, { tx }) => tx.aggregate(account, "account"),
    rows: { execute: EXECUTE, tryExecute: EXECUTE },
  },
  TxLock: {
    where: "tx",
    on: ({ pawl }, { tx }) => tx.lock(pawl.mutex("door")),
    rows: { check: { takes: { hold: "handle" } }, release: { takes: { hold: "handle" } }, get: none, take: none },
  },
  TxMachine: { where: "tx", on: ({ light }, { tx }) => tx.machine(light), rows: MACHINE_ROWS },
  TxRateLimit: {
    where: "tx",
    on: ({ pawl }, { tx }) => tx.rateLimit(pawl.rateLimit("mail", { max: 1000, per: "1s" })),
    rows: {
      take: { takes: { count: "count?", options: options({ key: "id?" }) }, good: () => [1, {}] },
      tryTake: { takes: { count: "count?", options: options({ key: "id?" }) }, good: () => [1, {}] },
    },
  },
  Tasks: {
    where: "plain",
    on: ({ pawl }) => pawl.tasks,
    rows: {
      ...TASK_ROWS,
      get: {
        takes: { id: "id", options: options({ abortSignal: "abortSignal?", wait: "duration?" }) },
        good: () => ["there", {}],
      },
      list: {
        takes: {
          options: options({
            after: "id?",
            limit: "count?",
            order: "choice?",
            prefix: "prefix?",
            status: "choices?",
            tag: "id?",
          }),
        },
        good: () => [{}],
      },
      redrive: { takes: { id: "id" }, good: () => ["there"] },
      redriveAll: {
        takes: { filter: options({ prefix: "prefix?", status: "choices?", tag: "id?" }) },
        good: () => [{}],
      },
      attempts: { takes: { id: "id" }, good: () => ["there"] },
      deliveries: { takes: { id: "id" }, good: () => ["there"] },
    },
  },
  TxTasks: { where: "tx", on: (_stage, { tx }) => tx.tasks, rows: TASK_ROWS },
  TxActions: {
    where: "tx",
    on: (_stage, { tx }) => tx.actions,
    rows: {
      create: { takes: { action: options(ACTION_FIELDS) }, good: () => [{ id: "new" }] },
      get: { takes: { target: TARGET } },
      ...usingActions(options(CONSUMING), options({ ...CONSUMING, ...LEASE })),
    },
  },
  Context: {
    where: "ctx",
    on: (_stage, { ctx }) => ctx,
    rows: {
      all: { takes: { operations: "operations" } },
      allSettled: { takes: { operations: "operations" } },
      race: { takes: { operations: "array" } },
      call: CHILD,
      start: CHILD,
      lock: { takes: { names: "names", code: "function", options: TIMEOUT }, good: () => ["free", () => 1, {}] },
      // It goes to the listeners of this process, and nowhere else.
      log: { takes: { message: "unchecked", data: "unchecked" }, good: () => ["hello"] },
      mutex: { takes: { names: "names" } },
      now: none,
      random: none,
      uuid: none,
      rateLimit: { takes: { name: "id", options: RATE }, good: () => ["mail", { max: 1, per: "1s" }] },
      rwlock: { takes: { name: "id" } },
      shield: { takes: { code: "function" } },
      semaphore: { takes: { name: "id", options: options({ permits: "count?" }) }, good: () => ["api", {}] },
      sleep: { takes: { duration: "duration" } },
      sleepUntil: { takes: { time: "time" } },
      slot: {
        takes: { name: "id", options: options({ initial: "value", scope: "choice?" }) },
        good: () => ["slot", {}],
      },
      stream: { takes: { id: "id" } },
      aggregate: { takes: { aggregate: AGGREGATE, stream: "id" }, good: () => [account, "account"] },
      step: STEP,
      waitForAny: { takes: { signals: "list", options: TIMEOUT }, good: () => [[{ name: "go" }], {}] },
      waitForSignal: { takes: { signal: "definition", options: TIMEOUT }, good: () => [{ name: "go" }, {}] },
    },
  },
  "Context.step": {
    where: "ctx",
    on: (_stage, { ctx }) => ctx.step,
    rows: {
      tx: STEP,
      atMostOnce: {
        takes: { name: "id", run: "function", options: options({ ...ONCE_FIELDS, reconcile: "function?" }) },
        good: () => ["once", () => 1, {}],
      },
    },
  },
  "Context.step.tx": { where: "ctx", on: (_stage, { ctx }) => ctx.step.tx, rows: { sync: STEP, within: STEP } },
  RunStream: {
    where: "ctx",
    on: (_stage, { ctx }) => ctx.stream("account"),
    rows: { append: APPEND, tryAppend: APPEND, head: none },
  },
  RunAggregate: {
    where: "ctx",
    on: (_stage, { ctx }) => ctx.aggregate(account, "account"),
    rows: { execute: EXECUTE, tryExecute: EXECUTE, state: none },
  },
  RunSlot: { where: "ctx", on: (_stage, { ctx }) => ctx.slot("there", { scope: "global" }), rows: SLOT_ROWS },
  RunLock: {
    where: "ctx",
    on: (_stage, { ctx }) => ctx.mutex("free"),
    rows: {
      acquire: { takes: { options: TIMEOUT }, good: () => [{}] },
      tryAcquire: none,
      enqueue: none,
      with: { takes: { code: "function", options: TIMEOUT }, good: () => [() => 1, {}] },
    },
  },
  RunLockHold: { where: "ctx", on: (_stage, { ctx }) => ctx.mutex("free").acquire(), rows: { release: none } },
  RunPlace: {
    where: "ctx",
    async on(_stage, { ctx }) {
      const entered = await ctx.mutex("door").enqueue();
      return entered.granted ? undefined : entered.place;
    },
    rows: { acquire: { takes: { options: TIMEOUT }, good: () => [{}] }, leave: none },
  },
  RunRateLimit: {
    where: "ctx",
    on: (_stage, { ctx }) => ctx.rateLimit("mail", { max: 1000, per: "1s" }),
    rows: {
      acquire: { takes: { options: options({ ...TOKENS, timeout: "duration?" }) }, good: () => [{}] },
    },
  },
};

/** Exported names whose members are not called by users with arguments of their own: each with the reason. */
export const ELSEWHERE: Readonly<Record<string, string>> = {
  AggregateDefinition: "an argument of aggregate(), which is here",
  AnyEventType: "an EventType, which is here",
  Archive: "implemented by the user; what it stores is checked (test/stream/closing.test.ts)",
  AtMostOnceOptions: "callbacks that the user writes",
  CommandContext: "what a command is given: its own tests attack it (decide.test.ts)",
  Attempt: "what the function of `idempotent` is given: its own tests attack it (attempt.test.ts)",
  Codec: "implemented by the user; what it gives is checked by Encoding",
  Dedupe: "the type of pawl.dedupe, which is here",
  Forgotten: "the type of FORGOTTEN, which takes nothing",
  ExportTarget: "implemented by the user, or of Node",
  IdempotentOptions: "callbacks that the user writes",
  Logger: "implemented by the user",
  Operation: "a promise: what it takes is what promises take",
  PersonalOptions: "callbacks that the user writes",
  PgClient: "of pg",
  ReactionContext: "what a handler is given: its own tests attack it (test/stream/reactions.test.ts)",
  ProjectionOptions: "callbacks that the user writes",
  SqlProjectionOptions: "callbacks that the user writes",
  ScopedPawl: "a Pawl with an origin: its verbs are those of Pawl",
  ReadableEvent: "an EventType, which is here",
  PgPool: "of pg",
  RetryOptions: "callbacks that the user writes",
  RunListener: "implemented by the user",
  Sql: "of the database driver, which checks its own arguments",
  StepFunction: "the type of ctx.step, which is here",
  StepHandle: "what a step is given; any progress that can be stored is taken",
  SubjectKeys: "implemented by the user; what it gives is checked (src/stream/personal/keys.test.ts)",
  SyncDatabase: "of the database driver",
  SyncSql: "of the database driver",
  SyncStatement: "of the database driver",
  Transact: "the type of pawl.transact, which is here",
  Transform: "implemented by the user",
  TransitionOptions: "callbacks that the user writes",
  WorkOptions: "callbacks that the user writes",
  Batch: "callbacks that the user writes",
  BatchWorkflowOptions: "callbacks that the user writes",
  ConcurrencyLimit: "callbacks that the user writes",
  Debounce: "callbacks that the user writes",
  Fairness: "callbacks that the user writes",
  FlowOptions: "callbacks that the user writes",
  Pools: "callbacks that the user writes",
  StartRate: "callbacks that the user writes",
  Throttle: "callbacks that the user writes",
  WorkflowOptions: "callbacks that the user writes",
};

/** Members of public classes that belong to the engine. */
export const ENGINE: ReadonlySet<string> = new Set(["RateLimit.reserveIn"]);
