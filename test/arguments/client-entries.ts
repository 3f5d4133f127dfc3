/**
 * The table of the methods of `pawl/client`, which are calls of a server. They take what the library's methods with the same names take, so their rows are those of the
 * library; what differs is written out.
 *
 * They are called on a client whose `fetch` is an app on the handle of the stage. A method that returns a handle or a generator sends nothing by itself: it is
 * called together with the first thing that is done with what it returned.
 */

import { type Client, createClient } from "../../src/http/client/index.ts";
import { apiKeys, createApp, type ServedPawl } from "../../src/http/server/index.ts";
import { OWNERS, type Owner, options, type Row, type Stage } from "./table.ts";

async function clientOf({ pawl, light }: Stage): Promise<Client> {
  const served = pawl as ServedPawl;
  const app = createApp(served, { logger: false, machines: [light] });
  const { key } = await apiKeys(served).create({ name: "attacker", scopes: ["admin"] });
  const fetch = async (url: string, init: RequestInit): Promise<Response> => app.fetch(new Request(url, init));
  return createClient({ url: "http://localhost", key, fetch, patience: 0 });
}

type Method = (...args: readonly unknown[]) => unknown;

/** The first thing that is done with what methods return. */
const FIRST: Readonly<Record<string, string>> = {
  machine: "list",
  mutex: "tryAcquire",
  projection: "status",
  rateLimit: "tryAcquire",
  run: "status",
  semaphore: "tryAcquire",
  slot: "get",
  stream: "head",
};

async function actOn(returned: unknown, name: string): Promise<unknown> {
  if (typeof returned !== "object" || returned === null) return returned;
  const first = FIRST[name];
  if (first !== undefined) return Reflect.apply(Reflect.get(returned, first) as Method, returned, []);
  // A list is a page when it is awaited.
  if (!(Symbol.asyncIterator in returned) || "then" in returned) return returned;
  const generator = returned as AsyncGenerator;
  try {
    return await generator.next();
  } finally {
    await generator.return(undefined);
  }
}

/** A part of the client, of which each method acts when it is called. */
const acting =
  (part: (client: Client, stage: Stage) => object): Owner["on"] =>
  async (stage) => {
    const target = part(await clientOf(stage), stage);
    return new Proxy(target, {
      get(_, name) {
        const method: unknown = Reflect.get(target, name);
        if (typeof method !== "function") return method;
        return async (...args: readonly unknown[]) =>
          actOn(Reflect.apply(method as Method, target, args), String(name));
      },
    });
  };

/** The row of a method of the library. */
function rowOf(owner: string, name: string): Row {
  const row = OWNERS[owner]?.rows[name];
  if (row === undefined) throw new Error(`the table has no row for ${owner}.${name}`);
  return row;
}

const rowsOf = (owner: string, ...names: readonly string[]): Record<string, Row> =>
  Object.fromEntries(names.map((name) => [name, rowOf(owner, name)]));

const LEASE = { lease: "lease?" };
const FOLLOW_EVENTS = { after: "cursor?", correlationId: "id?", events: "list?", since: "time?", until: "time?" };
const ABORTED = { abortSignal: "abortSignal?" };
const SIGNAL = options({ id: "id?" });
const none: Row = { takes: {} };

/** The actor is the API key. */
const APPEND: Row = {
  takes: {
    events: "list",
    options: options({ causationId: "id?", correlationId: "id?", expectedVersion: "version?" }),
  },
  good: () => [[{ name: "Deposited", data: 1 }], {}],
};

/** Their options depend on the type of the data. */
const CREATE_INSTANCE: Row = {
  takes: { id: "id", options: { ...options({ actor: "id?", reason: "text?" }), isUnlisted: true } },
  good: () => ["new", {}],
};
const TRANSITION: Row = {
  takes: {
    id: "id",
    to: "choice",
    options: {
      ...options({ actor: "id?", data: "value", eventId: "id?", expectedVersion: "version?", reason: "text?" }),
      isUnlisted: true,
    },
  },
  good: () => ["there", "green", {}],
};

const owner = (on: Owner["on"], rows: Owner["rows"]): Owner => ({ where: "plain", on, rows });

export const CLIENT_OWNERS: Readonly<Record<string, Owner>> = {
  Client: owner(
    acting((client) => client),
    {
      ...rowsOf("Pawl", "machine", "rateLimit", "semaphore", "start", "stream"),
      projection: { takes: { projection: "id" }, good: () => ["sums"] },
      dedupe: {
        takes: { consumer: "id", messageId: "id", options: options({ ttl: "positive?" }) },
        good: () => ["mailer", "m-1", {}],
      },
      lock: {
        takes: {
          name: "id",
          work: "function",
          options: options({ ...ABORTED, ...LEASE, by: "id?", timeout: "duration?" }),
        },
        good: () => ["free", () => 1, {}],
      },
      mutex: { takes: { name: "id", options: options(LEASE) }, good: () => ["free", {}] },
      // The server does not check that the run is one of the workflow, which is not sent.
      run: {
        takes: { workflow: "unchecked", id: "id" },
        good: ({ echo }) => [echo, "there"],
        overloads: [{ takes: { id: "id" } }],
      },
      // The initial value is for the caller, and is not sent.
      slot: { takes: { name: "id", options: options({ initial: "unchecked" }) }, good: () => ["slot", {}] },
      using: { takes: { options: options({ ...ABORTED, patience: "duration?" }) }, good: () => [{}] },
      whyWaiting: {
        takes: {
          subject: options({ kind: "choice?", lock: "id", run: "id", waiter: "id?" }, { lock: "door" }, "object"),
        },
        good: () => [{ lock: "door" }],
      },
    },
  ),
  ClientActions: owner(
    acting(({ actions }) => actions),
    {
      ...rowsOf("Actions", "create", "get", "history", "list"),
      ...rowsOf("Actions", "abandon", "cancel", "claim", "complete", "consume"),
      ...rowsOf("Actions", "tryAbandon", "tryCancel", "tryClaim", "tryComplete", "tryConsume"),
    },
  ),
  ClientEvents: owner(
    acting(({ events }) => events),
    {
      read: { takes: { options: options(FOLLOW_EVENTS) }, good: () => [{}] },
      follow: {
        takes: {
          options: options({ ...FOLLOW_EVENTS, ...ABORTED }),
        },
        good: () => [{}],
      },
    },
  ),
  ClientKeys: owner(
    acting(({ keys }) => keys),
    {
      create: {
        takes: {
          options: options(
            { expiresAt: "time?", name: "text", namespace: "id?", scopes: "choices" },
            { name: "key", scopes: ["read"] },
            "options",
          ),
        },
        good: () => [{ name: "key", scopes: ["read"] }],
      },
      get: { takes: { id: "id" } },
      history: { takes: { id: "id" } },
      list: { takes: { options: options({ after: "id?", limit: "count?", namespace: "id?" }) }, good: () => [{}] },
      revoke: { takes: { id: "id" } },
      rotate: { takes: { id: "id", options: options({ grace: "duration?" }) }, good: () => ["there", {}] },
    },
  ),
  ClientLock: owner(
    acting((client) => client.mutex("free")),
    {
      ...rowsOf("Lock", "acquire", "history", "inspect", "tryAcquire", "with"),
      forceRelease: {
        takes: { given: options({ reason: "text", ticket: "id?" }, { reason: "stuck" }, "object") },
        good: () => [{ reason: "stuck" }],
      },
    },
  ),
  ClientMachine: owner(
    acting((client, { light }) => client.machine(light)),
    {
      ...rowsOf("MachineHandle", "get", "history", "list"),
      create: CREATE_INSTANCE,
      transition: TRANSITION,
      tryCreate: CREATE_INSTANCE,
      tryTransition: TRANSITION,
    },
  ),
  ClientRateLimit: owner(
    acting((client) => client.rateLimit("mail", { max: 1000, per: "1s" })),
    {
      ...rowsOf("RateLimit", "acquire", "tryAcquire"),
      inspect: { takes: { options: options({ key: "id?" }) }, good: () => [{}] },
    },
  ),
  ClientProjections: owner(
    acting(({ projections }) => projections),
    rowsOf("Projections", "list"),
  ),
  ClientProjection: owner(
    acting((client) => client.projection("sums")),
    rowsOf("ProjectionHandle", "delete", "rebuild", "status"),
  ),
  ClientReactions: owner(
    acting(({ reactions }) => reactions),
    {
      ...rowsOf("Reactions", "deadLetters", "get", "list", "pause", "redrive", "resume", "targets"),
      ...rowsOf("Reactions", "pauseTargets", "prioritize", "reset", "resumeTargets", "unblock"),
      skip: {
        takes: { reaction: "id", target: "id", options: options({ reason: "text" }, { reason: "bad" }, "object") },
        good: () => ["mail", "there", { reason: "bad" }],
      },
    },
  ),
  ClientRun: owner(
    acting((client) => client.run("there")),
    {
      ...rowsOf("Run", "cancel", "resolveStep", "result", "retry", "status"),
      follow: { takes: { options: options(ABORTED) }, good: () => [{}] },
      history: { takes: { options: options({ after: "version?", limit: "count?" }) }, good: () => [{}] },
      signal: {
        ...rowOf("Run", "signal"),
        overloads: [
          {
            takes: { signal: "definition", payload: "value", options: SIGNAL },
            good: () => [{ name: "go" }, 1, {}],
          },
        ],
      },
    },
  ),
  ClientRuns: owner(
    acting(({ runs }) => runs),
    {
      ...rowsOf("Pawl.runs", "delete", "list"),
      change: {
        takes: {
          change: options(
            {
              action: "choice",
              after: "cursor?",
              all: "boolean?",
              filter: options({ prefix: "prefix?", status: "choices?", tag: "id?", workflow: "workflow?" }),
              // Each id has an outcome of its own in what is returned.
              ids: "unchecked",
              limit: "count?",
              reason: "text?",
            },
            { action: "cancel", ids: ["none"] },
            "object",
          ),
        },
        good: () => [{ action: "cancel", ids: ["none"] }],
      },
    },
  ),
  ClientSchedules: owner(
    acting(({ schedules }) => schedules),
    {
      ...rowsOf(
        "Schedules",
        "backfill",
        "create",
        "delete",
        "get",
        "history",
        "list",
        "pause",
        "resume",
        "trigger",
        "update",
      ),
      preview: {
        takes: { schedule: "schedule", options: options({ count: "count?", from: "time?" }) },
        good: () => ["created", {}],
      },
    },
  ),
  ClientSlot: owner(
    acting((client) => client.slot("there")),
    rowsOf("Slot", "delete", "get", "set", "trySet", "update", "watch"),
  ),
  ClientSlots: owner(
    acting(({ slots }) => slots),
    rowsOf("Pawl.slots", "list"),
  ),
  ClientStream: owner(
    acting((client) => client.stream("account")),
    {
      ...rowsOf("Stream", "head", "read"),
      append: APPEND,
      tryAppend: APPEND,
      follow: { takes: { options: options({ ...ABORTED, events: "list?", from: "version?" }) }, good: () => [{}] },
    },
  ),
  ClientTasks: owner(
    acting(({ tasks }) => tasks),
    {
      ...rowsOf("Tasks", "attempts", "cancel", "create", "deliveries", "get", "list", "redrive", "redriveAll"),
      ...rowsOf("Tasks", "signal", "trySignal"),
    },
  ),
  ClientWorkflows: owner(
    acting(({ workflows }) => workflows),
    rowsOf("Pawl.workflows", "pause", "paused", "resume"),
  ),
  ClientHold: owner(
    acting(() => ({})),
    { release: none, renew: none },
  ),
};
