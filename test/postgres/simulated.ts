/**
 * The simulator on PostgreSQL: simulated processes whose stores are the real one, on a real server, over unreliable connections.
 *
 * Each pipeline of statements is a port call. It stops before the server receives it and again before its reply arrives, and there the
 * scheduler decides, as it does for the store in memory: the process may crash or be suspended; the pipeline may be lost, arrive after its
 * sender has given up, or find the server busy or full; its reply may be lost or late. While the server works, the world is stopped, so
 * things happen on the server in the order that the seed chose. A suspended or dead process really holds its locks, until the server ends
 * its transaction after `LOCKS_HELD_MS` of the world's time. The server's clock is a row that follows the world's.
 *
 * Every commit is recorded when the server has done it, with what was decided, also if no process gets the reply; in the end, the tables
 * must have exactly what was recorded.
 *
 * Two runs of a seed need not be equal, so each seed runs once: the server's own timeouts, such as how long it waits for a row, run in real
 * time, and so does the order in which several listeners get a notification.
 * Out of scope: concurrent pipelines on the server. One at a time lets the scheduler choose the order; concurrent statements are tested by
 * the conformance suite and the tests with real faults.
 */

import { EventEmitter } from "node:events";
import pg from "pg";
import {
  type Batch,
  type Key,
  keyText,
  type Put,
  type Receipt,
  type Row,
  type Store,
} from "../../src/kernel/contract.ts";
import type { Ports } from "../../src/kernel/ports.ts";
import { nodePorts } from "../../src/node/ports.ts";
import { ConnectionPool, type PgClient, type PgPool } from "../../src/stores/postgres/connections.ts";
import { openPostgres, type PostgresOptions, PostgresStore } from "../../src/stores/postgres/postgres.ts";
import { LOCKS_HELD_MS } from "../../src/stores/postgres/statements.ts";
import { Database, type ProcessStore } from "../../src/testing/sim/database.ts";
import type { Process } from "../../src/testing/sim/process.ts";
import { BrokenPromiseError, type World } from "../../src/testing/sim/world.ts";
import type { DatabaseProvider } from "../../src/testing/simulate.ts";
import { type NamedScenario, scenarios } from "../simulation/scenarios/index.ts";
import { exclusion } from "./exclusion.ts";
import {
  brokenError,
  deliver,
  isSubmittable,
  type Reply,
  recorded,
  type Statement,
  type Submittable,
  Wire,
} from "./wire.ts";

const SCHEMA = "pawl";
const CLOCK = "(select ms from public.simulated_clock)";
/** How many connections a process may have: an application's pool can be a small one. */
const POOLS = [1, 2, 4, 8];
const LARGE_POOL = 8;
const ANSWER_MS = 5000;
/** How long a pipeline may be on its way when its sender has given up. */
const LATE_MS = 4000;

/** How long faults strike: shorter than in memory, because here each call takes real time. */
export const FAULTS_MS = 120_000;

/**
 * All that the simulator has, and one for what only a server's locks and snapshots can get wrong. A server is not put back to what it was
 * at every other call: test/faults/lossy.long.test.ts does that with real promotions and restores.
 */
export const postgresScenarios: readonly NamedScenario[] = [
  ...scenarios.filter(({ options }) => options?.rewind === undefined),
  exclusion,
];

/** A database on a server, for one world after another. */
export class PostgresGround implements DatabaseProvider {
  readonly isRepeatable = false;
  readonly #url: string;
  readonly admin: pg.Pool;
  /** Connections that nobody has, in no transaction. */
  readonly #spare: Wire[] = [];

  private constructor(url: string) {
    this.#url = url;
    this.admin = new pg.Pool({
      connectionString: url,
      max: 3,
      idleTimeoutMillis: 0,
      options: "-c synchronous_commit=off",
    });
    this.admin.on("error", () => {});
  }

  static async make(url: string): Promise<PostgresGround> {
    const ground = new PostgresGround(url);
    const options = {
      schema: SCHEMA,
      namespace: "none",
      ports: nodePorts,
      durability: "process",
      patienceMs: 30_000,
    } as const;
    const store = await openPostgres({ ...options, pool: ground.admin });
    await store.close();
    await ground.admin.query("create unlogged table public.simulated_clock as select 0::bigint as ms");
    return ground;
  }

  async open(): Promise<(world: World) => Database> {
    await this.admin.query(
      "delete from pawl.followed; delete from pawl.log; delete from pawl.record; delete from pawl.writer",
    );
    await this.admin.query("delete from pawl.meta where name = 'fence_floor'");
    return (world) => new WiredDatabase(this, world);
  }

  async wire(): Promise<Wire> {
    return this.#spare.pop() ?? Wire.connect(this.#url, this.admin);
  }

  /**
   * Takes a connection from whoever had it, and ends it. One that is in no transaction and does not listen is not worth the time:
   * for the server there is nothing to end, so it may serve another.
   */
  async takeBack(wire: Wire): Promise<void> {
    if (wire.isGone || wire.isInTransaction || wire.isListening) return wire.cut();
    wire.heard = undefined;
    wire.lost = undefined;
    this.#spare.push(wire);
  }

  async close(): Promise<void> {
    await Promise.all(this.#spare.splice(0).map((wire) => wire.cut()));
    await this.admin.end();
  }
}

/** What a batch decided, on its way to being written. */
interface Decided {
  readonly nowMs: number | null;
  readonly puts: readonly Put[];
}

/** A pipeline as the simulator sees it. */
interface Parcel {
  readonly label: string;
  readonly statements: readonly Statement[];
  readonly decided: Decided | undefined;
  readonly commits: boolean;
  readonly listens: boolean;
  readonly notifies: boolean;
}

const markOf = (...parts: readonly unknown[]): string => parts.join(" ");

function parcelOf(statements: readonly Statement[], underWay?: ReadonlyMap<string, Decided>): Parcel {
  const mark = statements.find(({ text }) => text.includes("set sequence"));
  const decided = mark === undefined ? undefined : underWay?.get(markOf(...mark.values.slice(1, 4)));
  const first = statements[0]?.text ?? "";
  const begins = first.startsWith("begin");
  const commits = statements.at(-1)?.text === "commit";
  const listens = first.startsWith("listen");
  const notifies = first.includes("pg_notify(");
  const settles = statements.some(({ text }) => text.includes("set epoch"));
  const label = () => {
    if (decided !== undefined) return "commit: write";
    if (listens) return "listen";
    if (notifies) return "notify";
    if (begins) return commits ? (settles ? "settle" : "sweep") : "commit: lock";
    if (commits) return "commit: nothing";
    return first === "rollback" ? "rollback" : "look";
  };
  return { label: label(), statements, decided, commits, listens, notifies };
}

/** Taken when the module loads, because a simulation replaces the global one. */
const realSetTimeout = setTimeout;

class WiredDatabase extends Database {
  readonly #ground: PostgresGround;
  readonly #world: World;
  /** Every connection of this world that is not given back or cut. */
  /** Up to which version the removal of entries was asked for, by key. */
  readonly #pruned = new Map<string, number>();
  readonly #wires = new Set<Wire>();
  #shownMs = 0;
  diskFullUntilMs = 0;
  readonly poolSize: number;
  readonly memory = { connect: (namespace: string): Store => this.#calmStore(namespace) };

  constructor(ground: PostgresGround, world: World) {
    super(() => world.nowMs);
    this.#ground = ground;
    this.#world = world;
    // Small pools do not listen, so a world where no wake-up may be lost has none.
    this.poolSize = world.faults.mix.lostWake > 0 ? world.random.pick(POOLS) : LARGE_POOL;
  }

  connect(process: Process, namespace: string): ProcessStore {
    return new WiredStore(new WiredPool(this.#world, this, process), this.#options(namespace, process.ports));
  }

  #calmStore(namespace: string): Store {
    const world = this.#world;
    const pool = new CalmPool(this);
    const clock = { nowMs: () => world.nowMs, after: () => () => {}, soon: queueMicrotask };
    const chance = { random: () => world.random.unit(), uuid: () => world.random.uuid() };
    const options = { ...this.#options(namespace, { clock, chance }), pool };
    return new PostgresStore(new ConnectionPool({ pool, clock, replyMs: ANSWER_MS }), options);
  }

  #options(namespace: string, ports: Ports): Omit<PostgresOptions, "pool"> {
    const { lanes } = this.#world;
    return { schema: SCHEMA, namespace, ports, lanes, durability: "process", patienceMs: ANSWER_MS, clock: CLOCK };
  }

  wire(): Promise<Wire> {
    const take = async () => {
      const wire = await this.#ground.wire();
      this.#wires.add(wire);
      return wire;
    };
    return this.#world.scheduler.outside(take());
  }

  /** Ends these connections for whoever had them, and with them what was open. */
  async cut(wires: readonly Wire[]): Promise<void> {
    const had = wires.filter((wire) => this.#wires.delete(wire));
    await this.#world.scheduler.outside(Promise.all(had.map((wire) => this.#ground.takeBack(wire))));
  }

  /** Lets the server have it. Nothing else happens meanwhile. */
  carry(wire: Wire, parcel: Parcel, raised?: string): Promise<Reply> {
    return this.#world.scheduler.outside(this.#carry(wire, parcel, raised));
  }

  async #carry(wire: Wire, parcel: Parcel, raised: string | undefined): Promise<Reply> {
    const nowMs = this.nowMs();
    if (nowMs !== this.#shownMs && parcel.statements.some(({ text }) => text.includes(CLOCK))) {
      await this.#ground.admin.query("update simulated_clock set ms = $1", [nowMs]);
      this.#shownMs = nowMs;
    }
    const listeners = parcel.notifies ? [...this.#wires].filter(({ isListening }) => isListening) : [];
    const heard = listeners.map(({ notifications }) => notifications);
    const reply = await wire.send(parcel.statements, raised);
    if (reply.error === undefined) {
      if (parcel.listens) wire.isListening = true;
      if (parcel.decided !== undefined && reply.answers.at(-1)?.tag === "COMMIT")
        await this.#note(parcel.decided, nowMs);
      const all = Promise.all(listeners.map((listener, i) => listener.hears(heard[i] ?? 0)));
      if (listeners.length > 0) await Promise.race([all, new Promise((resolve) => realSetTimeout(resolve, 1000))]);
    }
    this.#expireLater(wire);
    return reply;
  }

  async #note({ nowMs, puts }: Decided, serverMs: number): Promise<void> {
    const made = puts.filter(({ was }) => was === null).map(({ row }) => row);
    const { rows } =
      made.length === 0
        ? { rows: [] }
        : await this.#ground.admin.query<Row>(
            "select space, key, id from pawl.record where (space, key) in (select * from unnest($1::text[], $2::text[]))",
            [made.map(({ space }) => space), made.map(({ key }) => key)],
          );
    const ids = new Map(rows.map((row) => [keyText(row), Number(row.id)]));
    const id = ({ was, row }: Put): number => was?.id ?? ids.get(keyText(row)) ?? 0;
    this.commits.push({
      nowMs: nowMs ?? serverMs,
      puts: puts.map((put) => ({ ...put, row: { ...put.row, id: id(put) } })),
    });
  }

  /** The server does not let a transaction stand idle, and counts in the world's time. */
  #expireLater(wire: Wire): void {
    if (!wire.isInTransaction) return;
    const { pipelines } = wire;
    const { scheduler } = this.#world;
    scheduler.after(LOCKS_HELD_MS, () => {
      if (wire.pipelines !== pipelines || !wire.isInTransaction) return;
      scheduler.note("the server ends an idle transaction");
      void scheduler.outside(wire.expire());
    });
  }

  /** A process asks for the removal of these entries of a log. */
  notePrune(key: Key, upTo: number): void {
    this.#pruned.set(keyText(key), Math.max(upTo, this.#pruned.get(keyText(key)) ?? 0));
  }

  async end(): Promise<void> {
    await this.cut([...this.#wires]);
    await this.#verify();
  }

  /** The tables must have what was committed, and nothing else. */
  async #verify(): Promise<void> {
    const rows = new Map<string, Row>();
    for (const { puts } of this.commits) for (const { row } of puts) rows.set(keyText(row), row);
    const { rows: stored } = await this.#ground.admin.query<
      { entries: string; pruned: string | null } & Record<keyof Row | "due", string | null>
    >(
      `select r.*, (select count(*) from pawl.log where record = r.id) as entries,
         (select min(version) - 1 from pawl.log where record = r.id) as pruned
       from pawl.record r where version > 0`,
    );
    const broken = (law: string) => new BrokenPromiseError(`on the server: ${law}`);
    for (const { entries, pruned, due, ...row } of stored) {
      const text = `${row.space}\n${row.key}`;
      const noted = rows.get(text);
      rows.delete(text);
      if (noted === undefined) throw broken(`${row.space} ${row.key} is there and was never committed`);
      const found: Record<string, string | null> = { ...row, dueMs: due };
      for (const [name, value] of Object.entries(noted))
        if (found[name] !== (value === null ? null : String(value)))
          throw broken(`${row.space} ${row.key} has ${name} ${found[name]}, and ${value} was committed`);
      const gone = Number(pruned ?? noted.head);
      if (gone > (this.#pruned.get(text) ?? 0)) throw broken(`${row.space} ${row.key} lost its first ${gone} entries`);
      if (Number(entries) !== noted.head - gone)
        throw broken(`${row.space} ${row.key} has ${entries} entries of ${noted.head}, and ${gone} were removed`);
    }
    // What was deleted may have been swept away.
    for (const { space, key, value } of rows.values())
      if (value !== null) throw broken(`${space} ${key} was committed and is not there`);
  }
}

/** The real store. The pool is told what its batches decide, and finds it in the pipeline that has their mark. */
class WiredStore extends PostgresStore implements ProcessStore {
  readonly #pool: WiredPool;

  constructor(pool: WiredPool, options: Omit<PostgresOptions, "pool">) {
    super(new ConnectionPool({ pool, clock: options.ports.clock, replyMs: ANSWER_MS }), { ...options, pool });
    this.#pool = pool;
  }

  override async commit(batch: Batch): Promise<Receipt> {
    const mark = markOf(batch.lane, batch.epoch, batch.sequence);
    const decide: Batch["decide"] = (found) => {
      const verdict = batch.decide(found);
      if ("puts" in verdict) this.#pool.decide(mark, { nowMs: found.nowMs, puts: verdict.puts });
      return verdict;
    };
    try {
      return await super.commit({ ...batch, decide });
    } finally {
      this.#pool.decided.delete(mark);
    }
  }

  override prune(key: Key, upTo: number, limit: number): Promise<number> {
    this.#pool.database.notePrune(key, upTo);
    return super.prune(key, upTo, limit);
  }

  abandon(): void {
    this.#pool.abandon();
  }
}

/** The connections of one process. Those that are free are given out again; making one is a port call. */
class WiredPool implements PgPool {
  readonly world: World;
  readonly database: WiredDatabase;
  readonly process: Process;
  readonly #wires = new Set<Wire>();
  readonly #free: WiredClient[] = [];
  readonly #queue: (() => void)[] = [];
  /** As `pg`'s pools tell their size. */
  readonly options: { readonly max: number };
  /** What the batches under way have decided, by their marks. */
  readonly decided = new Map<string, Decided>();
  #count = 0;

  constructor(world: World, database: WiredDatabase, process: Process) {
    this.world = world;
    this.database = database;
    this.process = process;
    this.options = { max: database.poolSize };
  }

  async connect(): Promise<PgClient> {
    for (;;) {
      const free = this.#free.pop();
      if (free !== undefined) return free;
      if (this.#count < this.options.max) return this.#make();
      await new Promise<void>((resolve) => void this.#queue.push(resolve));
    }
  }

  async #make(): Promise<PgClient> {
    const { process, database } = this;
    const { faults } = this.world;
    this.#count += 1;
    await process.arrive("connect");
    if (faults.strikes("lostRequest")) throw this.#refused();
    const wire = await database.wire();
    this.#wires.add(wire);
    if (faults.strikes("lostReply")) {
      await this.cut(wire);
      throw this.#refused();
    }
    await process.arrive("connect: reply");
    return new WiredClient(this, wire);
  }

  #refused(): Error {
    this.gone();
    return new Error("connect ECONNREFUSED");
  }

  free(client: WiredClient): void {
    this.#free.push(client);
    this.#queue.shift()?.();
  }

  gone(): void {
    this.#count -= 1;
    this.#queue.shift()?.();
  }

  decide(mark: string, decided: Decided): void {
    this.decided.set(mark, decided);
    if (this.world.scheduler.keepsTrace)
      this.world.note(
        `  decided: ${decided.puts.map(({ row }) => `${row.space} ${row.key} v${row.version}`).join(", ")}`,
      );
  }

  async cut(wire: Wire): Promise<void> {
    this.leave(wire);
    await this.database.cut([wire]);
  }

  /** It is not the process's any more, and does not end with it. */
  leave(wire: Wire): void {
    this.#wires.delete(wire);
  }

  abandon(): void {
    const { scheduler, random } = this.world;
    scheduler.after(random.below(1000), () => void this.database.cut([...this.#wires]));
  }
}

/** One connection, as the store has it. */
class WiredClient implements PgClient {
  readonly #pool: WiredPool;
  readonly #wire: Wire;
  readonly #events = new EventEmitter();
  readonly #texts = new Map<string, string>();
  #isOnItsWay = false;
  #isDestroyed = false;
  /** Where the store reaches for the socket. */
  readonly connection = { stream: { destroy: () => this.#destroy() } };

  constructor(pool: WiredPool, wire: Wire) {
    this.#pool = pool;
    this.#wire = wire;
    wire.heard = (payload) => this.#notified(payload);
    wire.lost = () => this.#lost();
  }

  on(event: string, listener: (message: object) => void): void {
    this.#events.on(event, listener);
  }

  off(event: string, listener: (message: object) => void): void {
    this.#events.off(event, listener);
  }

  release(destroy?: Error | boolean): void {
    if (destroy === undefined || destroy === false) this.#pool.free(this);
    else {
      this.#destroy();
      this.#pool.gone();
    }
  }

  query(pipeline: object): void {
    if (!isSubmittable(pipeline)) throw new Error("only pipelines are simulated, and this is none");
    const parcel = parcelOf(recorded(pipeline, this.#texts), this.#pool.decided);
    this.#carry(pipeline, parcel).catch((error: unknown) => this.#pool.world.fail(error));
  }

  async #carry(pipeline: Submittable, parcel: Parcel): Promise<void> {
    const { world, process, database } = this.#pool;
    const { faults, random, scheduler } = world;
    this.#isOnItsWay = true;
    await process.arrive(parcel.label);
    this.#isOnItsWay = false;
    world.jumpStoreClock();
    // The sender has given up and closed its end. What it had sent may still arrive.
    if (this.#isDestroyed) return this.#late(parcel, faults.strikes("lateRequest"));
    if (faults.strikes("lostRequest")) return this.#break(pipeline);
    if (parcel.commits && faults.strikes("lateRequest")) {
      this.#pool.leave(this.#wire);
      scheduler.after(random.below(LATE_MS), () => void this.#late(parcel, true));
      return this.#fail(pipeline);
    }
    const reply = await database.carry(this.#wire, parcel, this.#raised(parcel));
    if (faults.strikes("lostReply")) return this.#break(pipeline);
    if (faults.strikes("delay")) await process.held(random.below(60_000));
    await process.arrive(`${parcel.label}: reply`);
    if (!this.#isDestroyed) deliver(pipeline, reply);
  }

  /** Nobody is there to hear of it any more. */
  async #late(parcel: Parcel, arrives: boolean): Promise<void> {
    if (arrives) await this.#pool.database.carry(this.#wire, parcel);
    await this.#pool.cut(this.#wire);
  }

  async #break(pipeline: Submittable): Promise<void> {
    await this.#pool.cut(this.#wire);
    this.#fail(pipeline);
  }

  #fail(pipeline: Submittable): void {
    this.#isDestroyed = true;
    deliver(pipeline, { answers: [], error: brokenError() });
    this.#emitEnd();
  }

  /** What the server fails with, if it fails. */
  #raised({ decided }: Parcel): string | undefined {
    const { world, database } = this.#pool;
    const { faults, random, nowMs } = world;
    if (decided !== undefined) {
      if (faults.strikes("serialization")) return "40001";
      if (decided.puts.length > 1 && faults.strikes("poison")) return "23514";
      if (faults.strikes("diskFull")) database.diskFullUntilMs = nowMs + random.below(2000);
      if (nowMs < database.diskFullUntilMs && !faults.healed) return "53100";
    }
    return faults.strikes("busy") ? random.pick(["55P03", "57014", "40P01"]) : undefined;
  }

  /** The store closes the socket: because it was broken, or because it has waited for long enough. */
  #destroy(): void {
    if (this.#isDestroyed) return;
    this.#isDestroyed = true;
    if (!this.#isOnItsWay) void this.#pool.cut(this.#wire);
  }

  #notified(payload: string): void {
    const { world, process } = this.#pool;
    if (!world.faults.strikes("lostWake")) {
      process.stop("wake-up", () => this.#events.emit("notification", { payload }));
      return;
    }
    if (world.random.chance(0.5)) return;
    // It is lost because the connection is.
    void this.#pool.cut(this.#wire).then(() => this.#lost());
  }

  #lost(): void {
    this.#pool.process.stop("connection lost", () => this.#emitEnd());
  }

  #emitEnd(): void {
    if (this.#events.listenerCount("error") > 0) this.#events.emit("error", brokenError());
    this.#events.emit("end");
  }
}

/** Connections on which nothing fails, for a look at what is there. */
class CalmPool implements PgPool {
  readonly #database: WiredDatabase;

  constructor(database: WiredDatabase) {
    this.#database = database;
  }

  async connect(): Promise<PgClient> {
    const wire = await this.#database.wire();
    const texts = new Map<string, string>();
    return {
      query: (pipeline: object) => {
        if (!isSubmittable(pipeline)) throw new Error("only pipelines are simulated, and this is none");
        const parcel = parcelOf(recorded(pipeline, texts));
        void this.#database.carry(wire, parcel).then((reply) => deliver(pipeline, reply));
      },
      release: () => void this.#database.cut([wire]),
      on: () => {},
      off: () => {},
    };
  }
}
