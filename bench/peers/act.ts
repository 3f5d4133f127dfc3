/**
 * Act, on PostgreSQL and on SQLite. Its newest store for PostgreSQL on npm brings a core of its own, which is older than the one that the store
 * for SQLite needs; both have what is measured.
 *
 * An append is a commit of its store, which is what an action ends with; a command is an action (`app.do`), which loads the
 * state, and commits with the version that it has seen. Two at the same moment are a ConcurrencyError or a violation of the unique index, and the
 * caller tries again. Reactions are drained in a loop, as its documentation says of workers.
 */

import { createRequire } from "node:module";
import { join } from "node:path";
import { act, InMemoryCache, type Scoped, type Store, state } from "@rotorsoft/act";
import { SqliteStore } from "@rotorsoft/act-sqlite";
import type pg from "pg";
import { z } from "zod";
import { type Charge, versionOf } from "./peer.ts";
import { again, atMost, checkLimit, outOf, type Reacting, type StreamPeer, type StreamSession } from "./stream-peer.ts";

const POOL_SIZE = 40;
/** How many streams a cycle of its reactions takes, and how many events of each. */
const TUNED = { streams: 100, events: 100 };
const DEFAULT = { streams: 10, events: 10 };
type Limits = typeof TUNED;
/** The older core has one limit, of events. */
const DRAIN_LIMIT = { tuned: 1000, default: 10 };
const SNAPSHOT_EVERY = 50;

/** Appends to the store for SQLite: with more than 20 its client refuses them ("All 20 of this client's connections are held by open transactions"). */
const APPENDS_AT_A_TIME = 10;
/** Commands read on other connections than they write on, and more of them at a time only get in each other's way ("SQLITE_BUSY"). */
const COMMANDS_AT_A_TIME = 1;

const actor = { id: "bench", name: "bench" };
const meta = { correlation: "bench", causation: {} };
const fields = { step: z.number(), charge: z.string(), total: z.number(), currency: z.string() };

/** What both cores have. */
interface App {
  do(action: string, target: object, payload: object): Promise<unknown>;
}
type Handler = (event: Handled) => Promise<void>;
type Handled = { readonly stream: string; readonly version: number; readonly data: object };
type CommitStore = Pick<Store, "commit" | "query" | "seed" | "dispose">;

const isConflict = (error: unknown): boolean =>
  error instanceof Error &&
  (isConflict(error.cause) ||
    error.name.includes("Concurrency") ||
    error.message.includes("Concurrency") ||
    error.message.includes("duplicate key") ||
    error.message.includes("UNIQUE constraint") ||
    error.message.includes("SQLITE_BUSY"));

function session(
  on: CommitStore,
  appWith: (handler: Handler) => { readonly app: App; cycle(): Promise<unknown> },
  atATime: { readonly appends: number; readonly commands: number },
  close: () => Promise<void>,
): StreamSession {
  const { app } = appWith(async () => {});
  const [append, command] = [atMost(atATime.appends), atMost(atATime.commands)];
  const commit = (stream: string, name: string, all: readonly object[]) =>
    again(
      () =>
        on.commit(
          stream,
          all.map((data) => ({ name, data: { ...data } })),
          meta,
        ),
      isConflict,
    );
  return {
    append: (stream, charge) => append(() => commit(stream, "Charged", [charge])),
    fill: (stream, charges) => commit(stream, "Charged", charges),
    command: (stream, charge) =>
      command(() => again(() => app.do("charge", { stream, actor }, { ...charge }), isConflict)),
    count: (stream) => {
      let count = 0;
      const add = ({ name }: { readonly name: unknown }) => {
        if (name === "Charged" || name === "Mailed") count += 1;
      };
      return on.query(add as never, { stream, stream_exact: true, limit: 1_000_000 }).then(() => count);
    },
    react: async (handle, emits): Promise<Reacting> => {
      let isStopped = false;
      const { cycle } = appWith(async ({ stream, version, data }) => {
        if (emits) await append(() => commit(outOf(stream), "Mailed", [data]));
        handle(stream, version);
      });
      const loop = (async () => {
        while (!isStopped) {
          await cycle();
          await new Promise((resolve) => setImmediate(resolve));
        }
      })();
      return {
        stop: async () => {
          isStopped = true;
          await loop;
        },
      };
    },
    close,
  };
}

// ---------------------------------------------------------------------------------------------------------- SQLite

function sqliteApp(handler: Handler, scoped: Scoped, { streams, events }: Limits) {
  const account = state({ Account: z.object({ count: z.number(), total: z.number() }) })
    .init(() => ({ count: 0, total: 0 }))
    .emits({ Charged: z.object(fields) })
    .patch({ Charged: ({ data }, { count, total }) => ({ count: count + 1, total: total + data.total }) })
    .on({ charge: z.object(fields) })
    .emit((charge, { state: { total } }) => {
      checkLimit(total, charge);
      return ["Charged", charge];
    })
    .build();
  const app = act()
    .withState(account)
    .on("Charged")
    .do(async function mail(event) {
      await handler(event);
    })
    .to(({ stream }) => ({ target: `mail-${stream}`, source: stream }))
    .build({ scoped, maxSubscribedStreams: 1_000_000 });
  const cycle = async () => {
    await app.correlate({ after: -1, limit: streams * events });
    await app.drain({ streamLimit: streams, eventLimit: events });
  };
  return { app: app as unknown as App, cycle };
}

const onSqlite = (limits: Limits): StreamPeer => ({
  id: limits === TUNED ? "act-sqlite" : "act-sqlite-default",
  name: limits === TUNED ? "Act (SQLite)" : "Act (SQLite), its default limits",
  version: `${versionOf("@rotorsoft/act-sqlite")} with core ${versionOf("@rotorsoft/act")}`,
  store: "sqlite",
  settings:
    "as it comes: WAL, synchronous FULL, the cache of states that is always on; its client refuses more than 20 concurrent transactions, so " +
    `${APPENDS_AT_A_TIME} appends and ${COMMANDS_AT_A_TIME} command at a time, which was the fastest; reactions by correlate and drain in a loop, ` +
    `streamLimit ${limits.streams}, eventLimit ${limits.events}, progress is written once for all of them; a target for each stream.`,
  isForReactions: limits === DEFAULT,
  async open({ folder }) {
    const one = new SqliteStore({ url: `file:${join(folder, "act.db")}` });
    await one.seed();
    const cache = new InMemoryCache();
    const appWith = (handler: Handler) => sqliteApp(handler, { store: one, cache }, limits);
    const atATime = { appends: APPENDS_AT_A_TIME, commands: COMMANDS_AT_A_TIME };
    return session(one, appWith, atATime, async () => {
      await one.dispose();
    });
  },
});

export const actSqlite = onSqlite(TUNED);
export const actSqliteDefault = onSqlite(DEFAULT);

// ------------------------------------------------------------------------------------------------------ PostgreSQL

/** What is used of the core that comes with the store; its types are not at hand. */
interface OldCore {
  act(): OldBuilder;
  state(name: string, schema: unknown): OldBuilder;
  store(store: unknown): unknown;
}
type OldBuilder = Readonly<Record<string, (...args: readonly unknown[]) => OldBuilder>>;
interface OldApp extends App {
  drain(): Promise<number>;
}

/** Loaded when it is first needed, because it reads a package.json of the current folder. */
function loadOld(): { core: OldCore; PostgresStore: new (config: object) => CommitStore & { _pool: pg.Pool } } {
  const require = createRequire(import.meta.url);
  const { PostgresStore } = require("@rotorsoft/act-pg");
  const core = createRequire(require.resolve("@rotorsoft/act-pg"))("@rotorsoft/act");
  return { core, PostgresStore };
}

function postgresApp({ act, state }: OldCore, handler: Handler, drainLimit: number) {
  const account = state("Account", z.object({ count: z.number(), total: z.number() }))
    ["init"]?.(() => ({ count: 0, total: 0 }))
    ["emits"]?.({ Charged: z.object(fields) })
    ["patch"]?.({
      Charged: ({ data }: { data: Charge }, { count, total }: { count: number; total: number }) => ({
        count: count + 1,
        total: total + data.total,
      }),
    })
    ["on"]?.("charge", z.object(fields))
    ["emit"]?.((charge: Charge, { total }: { total: number }) => {
      checkLimit(total, charge);
      return ["Charged", charge];
    })
    ["snap"]?.(({ patches }: { patches: number }) => patches >= SNAPSHOT_EVERY)
    ["build"]?.();
  const app = act()
    ["with"]?.(account)
    ["on"]?.("Charged")
    ["do"]?.(handler)
    ["to"]?.(({ stream }: { stream: string }) => stream)
    ["build"]?.(drainLimit) as unknown as OldApp;
  return { app, cycle: () => app.drain() };
}

/** The port keeps the first store that it is given, and each turn has a store of its own. */
let current: object = {};
const forwarding = new Proxy(
  {},
  {
    get: (_, name) => {
      const found: unknown = Reflect.get(current, name);
      return typeof found === "function" ? found.bind(current) : found;
    },
  },
);

const onPostgres = (drainLimit: number): StreamPeer => ({
  id: drainLimit === DRAIN_LIMIT.tuned ? "act" : "act-default",
  name: drainLimit === DRAIN_LIMIT.tuned ? "Act (PostgreSQL)" : "Act (PostgreSQL), its default limit",
  version: `${versionOf("@rotorsoft/act-pg")} with core ${versionOf("@rotorsoft/act-pg/node_modules/@rotorsoft/act")}`,
  store: "postgres",
  settings:
    `a pool of ${POOL_SIZE} (that of pg has 10), a snapshot after ${SNAPSHOT_EVERY} events, LOG_LEVEL fatal; ` +
    `reactions by drain in a loop, ${drainLimit} events at a time, progress is written once for all of them; a target for each stream.`,
  isForReactions: drainLimit === DRAIN_LIMIT.default,
  async open({ database }) {
    const { core, PostgresStore } = loadOld();
    const { hostname: host, port, username: user, password, pathname } = new URL(database);
    const one = new PostgresStore({
      host,
      port: Number(port),
      user: decodeURIComponent(user),
      password: decodeURIComponent(password),
      database: pathname.slice(1),
      max: POOL_SIZE,
    });
    // It has no listener of its own, and the database is dropped as soon as the turn is over, which may be before the last goodbye.
    one._pool.on("error", () => {});
    current = one;
    core.store(forwarding);
    await one.seed();
    const appWith = (handler: Handler) => postgresApp(core, handler, drainLimit);
    const atATime = { appends: Number.POSITIVE_INFINITY, commands: Number.POSITIVE_INFINITY };
    return session(one, appWith, atATime, async () => {
      await one.dispose();
    });
  },
});

export const actPostgres = onPostgres(DRAIN_LIMIT.tuned);
export const actPostgresDefault = onPostgres(DRAIN_LIMIT.default);
