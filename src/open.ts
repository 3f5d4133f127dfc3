/**
 * `open`: checks the options, chooses the store, and makes a handle.
 */

import { ACTIONS_OPTIONS, type ActionPorts, type ActionsOptions } from "./action/core.ts";
import { HashGate } from "./action/gate.ts";
import {
  checkBoolean,
  checkDuration,
  checkId,
  checkOptions,
  type Duration,
  optionNames,
  utf8Length,
} from "./kernel/check.ts";
import type { Codec } from "./kernel/codec/codec.ts";
import type { Store } from "./kernel/contract.ts";
import { InvalidArgumentError } from "./kernel/errors.ts";
import { checkLogger, Log, type Logger } from "./kernel/log.ts";
import type { Ports } from "./kernel/ports.ts";
import { KEYS_OPTIONS } from "./kernel/seal/ring.ts";
import { nodePorts, unguessable, wallMs } from "./node/ports.ts";
import { trapAmbient } from "./node/trap.ts";
import { type Pawl, pawlOn } from "./pawl.ts";
import { isUrl, locationOf } from "./store-location.ts";
import { MemoryDatabase } from "./stores/memory/memory.ts";
import type { PgPool } from "./stores/postgres/connections.ts";
import { poolFor } from "./stores/postgres/pool.ts";
import { openPostgres } from "./stores/postgres/postgres.ts";
import type { Finding } from "./stores/postgres/requirements.ts";
import { openSqlite } from "./stores/sqlite/sqlite.ts";
import { type Archive, checkArchive } from "./stream/closing/archive.ts";
import { checkSubjectKeys, type SubjectKeys } from "./stream/personal/keys.ts";
import { checkRetention, type Retention } from "./workflow/definitions/retention.ts";

export interface OpenOptions {
  /**
   * The path of an SQLite file, created if it does not exist, also as "sqlite:x.db", "file:///abs/x.db" or a `URL` of a file.
   * Default: `pawl.db`. "postgres://…" for a PostgreSQL database. "memory:" is for tests. Whatever looks like something else is
   * refused; a file of such a name is "./name". Or a store of your own, in a namespace of its choosing, that passes
   * `storeConformance` of `pawl/testing`.
   */
  readonly store?: string | URL | Store;
  /** The Pool of `pg` that the application already has, instead of a connection string. */
  readonly pool?: PgPool;
  /** The PostgreSQL schema of Pawl's tables, created if it does not exist. Default: "pawl". */
  readonly schema?: string;
  /** Keeps applications or tenants that share a database apart. */
  readonly namespace?: string;
  /** How values become text. Wrap `jsonCodec` to encrypt or compress. */
  readonly codec?: Codec;
  /** The longest encoded value. Default: 1 MiB. */
  readonly maxValueBytes?: number;
  /** How long a call waits for a store that is busy or unreachable. Default: 30 s. */
  readonly patience?: Duration;
  /** "full" survives power loss. "process" survives only the death of the process, and is faster. */
  readonly durability?: "full" | "process";
  /** Runs each decision twice, and traps the ambient clock, chance, timers and fetch in it. On by default for "memory:". */
  readonly checkPurity?: boolean;
  /** Pepper and keys of one-time actions; the keys are also those of the personal fields of events. */
  readonly actions?: ActionsOptions;
  /** Where the keys of people are, if not in Pawl's own records: then a backup of the database does not have them. */
  readonly subjectKeys?: SubjectKeys;
  /**
   * Where lines go about what an operator should know: a run that failed, is parked or contradicts its history, a store that cannot be
   * reached, a run that no worker takes. `console`, pino, or anything with `warn` and `error`; `false` for none. Default: stderr, unless
   * the worker has a listener (`on`).
   */
  readonly logger?: Logger | false;
  /**
   * How long runs are kept after they have ended, for workflows that do not say so themselves: "30 days", "forever", or a time for each
   * outcome. The workers of this handle delete them then. Default: "forever".
   */
  readonly retention?: Retention;
  /**
   * Where `pawl.streams` puts the events that it removes from the store, and from where they are read again: `jsonLinesArchive(folder)`, or an object
   * of your own. Default: none.
   */
  readonly archive?: Archive;
}

/** Opens a store: `open()` is SQLite in ./pawl.db, `open("postgres://…")` is a server, `open("memory:")` is for tests. */
export async function open(): Promise<Pawl>;
export async function open(store: string | URL | OpenOptions, more?: Omit<OpenOptions, "store">): Promise<Pawl>;
export async function open(...given: readonly unknown[]): Promise<Pawl> {
  const options = checkGiven(given);
  const where = options.store ?? "pawl.db";
  const namespace = checkId(options.namespace ?? "default", "the namespace");
  const patienceMs = checkDuration(options.patience ?? "30s", "patience");
  const durability = options.durability ?? "full";
  if (durability !== "full" && durability !== "process")
    throw new InvalidArgumentError("durability", 'must be "full" or "process"');
  const { codec, maxValueBytes } = options;
  if (codec !== undefined && (typeof codec?.encode !== "function" || typeof codec.decode !== "function"))
    throw new InvalidArgumentError("the codec", "must have the methods encode and decode");
  if (maxValueBytes !== undefined && !(Number.isSafeInteger(maxValueBytes) && maxValueBytes > 0))
    throw new InvalidArgumentError("maxValueBytes", "must be a whole number above 0");
  const logger = checkLogger(options.logger);
  const retention = checkRetention(options.retention, "the retention");
  const archive = options.archive === undefined ? undefined : checkArchive(options.archive);
  if (options.checkPurity !== undefined) checkBoolean(options.checkPurity, "checkPurity");
  checkOptions(options.actions, ACTIONS_OPTIONS, "actions");
  checkOptions(options.actions?.keys, KEYS_OPTIONS, "the keys of actions");
  checkSubjectKeys(options.subjectKeys);
  const location = typeof where === "string" || isUrl(where) ? locationOf(where) : undefined;
  const isMemory = location?.is === "memory";
  const ports: Ports = (options.checkPurity ?? isMemory) ? { ...nodePorts, trap: trapAmbient } : nodePorts;
  let opened: Store;
  const postgres = {
    namespace,
    ports,
    durability,
    patienceMs,
    schema: checkSchema(options.schema ?? "pawl"),
    warned,
  };
  if (options.pool !== undefined) opened = await openPostgres({ ...postgres, pool: checkPool(options) });
  else if (location === undefined) opened = checkStore(where as Store);
  else if (location.is === "postgres")
    opened = await openPostgres({ ...postgres, ...(await poolFor(location.url, patienceMs)) });
  else if (location.is === "memory") opened = new MemoryDatabase(wallMs).connect(namespace);
  else opened = await openSqlite({ path: location.path, namespace, ports, wallMs, durability, patienceMs });
  const log = logger === false ? undefined : new Log(logger ?? stderr, ports.clock, logger === undefined);
  const actions = { options: options.actions, ports: actionPorts };
  const { subjectKeys } = options;
  const settings = { namespace, patienceMs, codec, maxValueBytes, actions, subjectKeys, log, retention, archive };
  const pawl = pawlOn(opened, ports, settings);
  try {
    await pawl.check();
    return pawl;
  } catch (error) {
    await pawl.close();
    throw error;
  }
}

/** All handles of a process share the limit on concurrent PIN hashes. */
const actionPorts: ActionPorts = { randomBytes: unguessable, gate: new HashGate() };

/** Findings that do not prevent opening are process warnings. */
function warned({ code, sentence }: Finding): void {
  process.emitWarning(sentence, { type: "PawlWarning", code });
}

const OPTIONS = optionNames<OpenOptions>({
  store: true,
  pool: true,
  schema: true,
  namespace: true,
  codec: true,
  maxValueBytes: true,
  patience: true,
  durability: true,
  checkPurity: true,
  actions: true,
  subjectKeys: true,
  logger: true,
  retention: true,
  archive: true,
});

/** The default place for lines. */
const stderr: Logger = {
  warn: (message) => void process.stderr.write(`${message}\n`),
  error: (message) => void process.stderr.write(`${message}\n`),
};

/** Unknown arguments are refused: opening the wrong file would go unnoticed for long. */
function checkGiven(given: readonly unknown[]): OpenOptions {
  if (given.length === 0) return {};
  const [store, more] = given;
  if (store === undefined) throw notGiven("what to open");
  const isPlace = typeof store === "string" || isUrl(store);
  const options: OpenOptions = { ...(isPlace ? { store } : plain(store)), ...plain(more) };
  checkOptions(options, OPTIONS);
  const missing = (["store", "pool"] as const).find((name) => Object.hasOwn(options, name));
  if (missing !== undefined && options.store === undefined && options.pool === undefined)
    throw notGiven(`the ${missing}`);
  return options;
}

/** Usually a variable of the environment that is not set: each container would get a file of its own, and lose it. */
const notGiven = (what: string): InvalidArgumentError =>
  new InvalidArgumentError(what, "must not be undefined: is a variable not set? For SQLite in ./pawl.db, write open()");

function plain(options: unknown): object {
  if (options === undefined) return {};
  if (!isPlain(options))
    throw new InvalidArgumentError("what to open", "must be a path, or an object of options, as in open({ pool })");
  return options;
}

/** Refuses a promise that was not awaited, a pool or a date: without options, each would open ./pawl.db. */
function isPlain(options: unknown): options is object {
  if (typeof options !== "object" || options === null) return false;
  const prototype: unknown = Object.getPrototypeOf(options);
  return prototype === null || Object.getPrototypeOf(prototype) === null;
}

const STORE_METHODS = [
  "settle",
  "commit",
  "read",
  "list",
  "entries",
  "follow",
  "due",
  "sweep",
  "prune",
  "watch",
  "close",
] as const;

/** A store is one writer: two kernels on it would take each other's commits for their own. */
const taken = new WeakSet<Store>();

function checkStore(store: Store): Store {
  const isStore =
    typeof store === "object" && store !== null && STORE_METHODS.every((name) => typeof store[name] === "function");
  if (!isStore || !Number.isInteger(store.lanes) || store.lanes < 1)
    throw new InvalidArgumentError("the store", "must be a path, or a store with its methods and at least one lane");
  for (const name of ["isRemote", "hasOneWriter"] as const)
    if (typeof store[name] !== "boolean")
      throw new InvalidArgumentError("the store", `must have ${name}, true or false`);
  if (taken.has(store)) throw new InvalidArgumentError("the store", "must not be opened twice: connect another");
  taken.add(store);
  return store;
}

/** PostgreSQL truncates longer names silently, so two of them could be the same. */
function checkSchema(schema: unknown): string {
  const name = checkId(schema, "the schema");
  if (utf8Length(name) > 63) throw new InvalidArgumentError("the schema", "must not be longer than 63 bytes");
  if (name.startsWith("pg_"))
    throw new InvalidArgumentError("the schema", 'must not begin with "pg_", which is PostgreSQL\'s');
  return name;
}

function checkPool({ pool, store }: OpenOptions): PgPool {
  if (store !== undefined) throw new InvalidArgumentError("the pool", "must not be given together with a store");
  if (typeof pool?.connect !== "function") throw new InvalidArgumentError("the pool", "must be a Pool of pg");
  // A connection that pipelines by itself takes only queries of its own kind.
  if ((pool as { options?: { pipeline?: unknown } }).options?.pipeline === true)
    throw new InvalidArgumentError(
      "the pool",
      "must be one without `pipeline`: Pawl sends its statements together anyway",
    );
  return pool;
}
