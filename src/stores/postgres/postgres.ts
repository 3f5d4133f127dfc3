/**
 * The PostgreSQL store: any number of processes on any number of machines.
 *
 * A batch is one transaction, in one round trip or two (`commit.ts`). What the user's own SQL is part of is in `shared.ts` and `joint.ts`.
 *
 * Each lane has a mark, one row with an epoch and the sequence of the last batch, written by the batch itself. When a reply is lost,
 * `settle` raises the epoch, which waits for a commit still in progress and refuses one that arrives later; then the mark says whether the
 * batch was committed.
 *
 * Guarantees: G1 by the server's own log; G2 by the marks; G18, because a commit that did not wait for the standby counts as unknown; G19
 * through `failure.ts`.
 */

import { settledWithin } from "../../kernel/closing.ts";
import type {
  Batch,
  DuePage,
  DueQuery,
  Executor,
  FollowPage,
  FollowQuery,
  Joined,
  Joining,
  Key,
  ListQuery,
  Receipt,
  Row,
  SharedWork,
  SqlStore,
  StoredEntry,
} from "../../kernel/contract.ts";
import { ClosedError, endedEarly, StoreError, staleEpoch } from "../../kernel/errors.ts";
import type { Ports } from "../../kernel/ports.ts";
import { Commits, type Progress } from "./commit.ts";
import { type Connection, ConnectionPool, type PgPool, REPLY_MS } from "./connections.ts";
import { failure, isAssertion, isServerError, isUnprepared } from "./failure.ts";
import { type FollowStatements, followStatements, toFollowPage } from "./followed.ts";
import { JoinedTransactions } from "./joined.ts";
import { type JointStatements, join, jointStatements } from "./joint.ts";
import { type MarkStatements, markStatements } from "./marks.ts";
import { Notifications } from "./notifications.ts";
import { SpareNumbers } from "./numbers.ts";
import { type Call, type Result, type Statement, statement } from "./pipeline.ts";
import { type QueryStatements, queryStatements, toDuePage, toEntries, toRows } from "./queries.ts";
import { Reads, standbyError } from "./reads.ts";
import { checkSchema, checkServer, type Finding, NO_LISTEN, readSettings, throwIfRefused } from "./requirements.ts";
import { retryUntil } from "./retry.ts";
import { isPlaceholder, type RowStatements, rowStatements, toRow } from "./rows.ts";
import { MIGRATIONS, type Migration, migrate, quoted, tooOld } from "./schema.ts";
import { type SharedSetup, type Stage, shareTransaction } from "./shared.ts";
import {
  BEGIN,
  BEGIN_READING,
  CLOCK,
  COMMIT,
  ENDED,
  endTransaction,
  pinForReading,
  pinForSharing,
  pinForWaiting,
  pinForWriting,
  type ServerTransaction,
  SHARED_MS,
  STALE,
} from "./statements.ts";
import { pruneStatement, sweepStatement } from "./sweep.ts";
import { markOf, markValues, writing } from "./write.ts";

export interface PostgresOptions {
  readonly pool: PgPool;
  /** Ends the pool when the store is closed. Set if Pawl made the pool. */
  readonly endPool?: (() => Promise<void>) | undefined;
  readonly schema: string;
  readonly namespace: string;
  readonly ports: Ports;
  readonly durability: "full" | "process";
  readonly patienceMs: number;
  /** Called with each finding that does not prevent opening. */
  readonly warned?: ((finding: Finding) => void) | undefined;
  /** How long a transaction shared with the user's SQL may be open. Default: 30 s. */
  readonly sharedMs?: number | undefined;
  /** The store's clock as SQL; for tests. */
  readonly clock?: string | undefined;
  readonly lanes?: number | undefined;
  /** The schema's history; for tests of migrations. */
  readonly migrations?: readonly Migration[] | undefined;
}

const LANES = 4;
/** How long a failed `open` waits for its pool to end. */
const END_POOL_MS = 250;

/** Checks the server, brings the schema up to date, and connects. Waits up to `patienceMs` for a server that is not up yet. */
export async function openPostgres(options: PostgresOptions): Promise<PostgresStore> {
  const { pool, schema, ports, patienceMs, durability, warned } = options;
  const connections = new ConnectionPool({ pool, clock: ports.clock, replyMs: Math.min(REPLY_MS, patienceMs) });
  const giveUpAtMs = ports.clock.nowMs() + patienceMs;
  connections.giveUpAtMs = giveUpAtMs;
  const use = <T>(work: (connection: Connection) => Promise<T>): Promise<T> =>
    retryUntil(ports, giveUpAtMs, () => connections.use(work));
  try {
    const findings = [...checkServer(await use(readSettings), durability)];
    throwIfRefused(findings);
    const migrations = options.migrations ?? MIGRATIONS(quoted(schema));
    await migrate({ connections, schema, clock: ports.clock, patienceMs, migrations });
    throwIfRefused(await use((connection) => checkSchema(connection, schema)));
    const store = new PostgresStore(connections, options);
    if (!(await retryUntil(ports, giveUpAtMs, () => store.receivesNotifications()))) findings.push(NO_LISTEN);
    for (const finding of findings) warned?.(finding);
    connections.giveUpAtMs = Number.POSITIVE_INFINITY;
    return store;
  } catch (error) {
    connections.close();
    // A connection that is still being made ends by itself, and is not waited for.
    if (options.endPool !== undefined) await settledWithin(ports.clock, END_POOL_MS, options.endPool());
    throw failure(error, false);
  }
}

/** Detects that the server was restarted, or that another server took its place: each has its own start time. */
class Servers {
  readonly #changed: () => void;
  #last: string | null | undefined;

  constructor(changed: () => void) {
    this.#changed = changed;
  }

  /** Takes the result of a transaction's first statement. */
  observe(pinned: Result | undefined): void {
    const startedAt = pinned?.rows[0]?.[1];
    if (startedAt === undefined) return;
    const last = this.#last;
    this.#last = startedAt;
    if (last !== undefined && last !== startedAt) this.#changed();
  }
}

export class PostgresStore implements SqlStore {
  readonly lanes: number;
  readonly isRemote = true;
  readonly hasOneWriter = false;
  /** Half of the pool; the other half is for commits, leases, claims and reads. */
  readonly maxShared: number;
  readonly #options: PostgresOptions;
  readonly #connections: ConnectionPool;
  readonly #namespace: string;
  readonly #writer: string;
  /** The newest schema that this release knows. */
  readonly #knownSchema: number;
  readonly #rows: RowStatements;
  readonly #queries: QueryStatements;
  readonly #follow: FollowStatements;
  readonly #sweep: (namespace: string, limit: number) => Call;
  readonly #prune: ReturnType<typeof pruneStatement>;
  readonly #reads: Reads;
  readonly #servers = new Servers(() => {
    // The new server may assign the numbers that the old one reserved.
    this.#spare.drop();
    this.#restarted();
  });
  #restarted: () => void = () => {};
  readonly #pinned: Readonly<Record<"writing" | "waiting" | "reading" | "sharing", Call>>;
  readonly #sharedMs: number;
  readonly #joint: JointStatements;
  readonly #marks: MarkStatements;
  readonly #notifications: Notifications;
  readonly #commits: Commits;
  readonly #joined: JoinedTransactions;
  readonly #spare: SpareNumbers;
  /** Lanes whose mark was written. If one of them has no mark, the store has lost it. */
  readonly #settled = new Set<number>();
  /** How many placeholders this process has inserted since its last sweep. */
  #placeholders = 0;
  #closing: Promise<void> | undefined;

  constructor(connections: ConnectionPool, options: PostgresOptions) {
    const { schema, namespace, ports, durability, patienceMs } = options;
    const s = quoted(schema);
    const clock = options.clock ?? CLOCK;
    const replyMs = Math.min(REPLY_MS, patienceMs);
    this.lanes = options.lanes ?? LANES;
    this.maxShared = Math.max(1, Math.floor(connections.size / 2));
    this.#sharedMs = options.sharedMs ?? SHARED_MS;
    this.#options = options;
    this.#connections = connections;
    this.#namespace = namespace;
    this.#writer = ports.chance.uuid();
    this.#knownSchema = (options.migrations ?? MIGRATIONS(s)).length;
    this.#rows = rowStatements(s, clock);
    this.#queries = queryStatements(s, clock);
    this.#follow = followStatements(s, clock, schema, namespace);
    this.#sweep = sweepStatement(s, clock);
    this.#prune = pruneStatement(s);
    const isDurable = durability === "full";
    this.#pinned = {
      writing: pinForWriting(replyMs, isDurable),
      waiting: pinForWaiting(replyMs, isDurable),
      reading: pinForReading(replyMs),
      // A little later than this process gives up, because its error message is clearer.
      sharing: pinForSharing(this.#sharedMs + REPLY_MS, isDurable),
    };
    const observe = (pinned: Result | undefined): void => this.#servers.observe(pinned);
    this.#reads = new Reads(connections, this.#pinned.reading, observe);
    this.#spare = new SpareNumbers(ports.clock);
    this.#commits = new Commits({
      namespace,
      writer: this.#writer,
      rows: this.#rows,
      write: writing(s, clock),
      announce: this.#follow.announce,
      pinned: this.#pinned,
      spare: this.#spare,
      observe,
      madePlaceholders: (count) => this.#sweepPlaceholders(count),
    });
    this.#joined = new JoinedTransactions(ports.clock, this.#reads, async () => {
      await this.#run(this.#call(this.#marks.joined, this.#writer, namespace));
      this.#notifications.notify();
    });
    this.#joint = jointStatements(s, clock, this.#knownSchema, this.#follow.announceOnce);
    this.#marks = markStatements(s, clock);
    this.#notifications = new Notifications({
      connections,
      clock: ports.clock,
      channel: statement(`${schema}\n${namespace}`).name,
      writer: this.#writer,
      readMarks: async () =>
        (await this.#read(this.#call(this.#marks.all, namespace, this.#writer))).rows[0]?.[0] ?? "",
      announce: async () => void (await this.#run(this.#call(this.#marks.announce, this.#writer, namespace))),
      hasListeners: async () =>
        (await this.#reads.read(this.#call(this.#marks.hasListeners, namespace, this.#writer))).rows[0]?.[0] === "t",
    });
  }

  /** Whether notifications from the server arrive at this process. */
  receivesNotifications(): Promise<boolean> {
    return this.#notifications.test();
  }

  #call(of: Statement, ...values: readonly (string | null)[]): Call {
    return { statement: of, values };
  }

  async settle(lane: number): Promise<{ epoch: number; sequence: number }> {
    this.#check();
    if (!Number.isInteger(lane) || lane < 0)
      throw new RangeError(`lane ${lane} does not exist: this store has ${this.lanes} lanes`);
    const settle = this.#call(this.#marks.settle, this.#writer, String(lane), this.#namespace);
    try {
      return await this.#connections.use(async (connection) => {
        connection.began();
        const oldest = this.#call(this.#marks.lockOldest);
        const results = await connection.send([BEGIN, this.#pinned.writing, oldest, settle, COMMIT]);
        connection.ended();
        const refusal = this.#tooOld(results[2]);
        if (refusal !== undefined) throw refusal;
        if (connection.isUnreplicated)
          throw new StoreError("store_unreachable", "retry", "the standby has not confirmed the mark yet");
        const [epoch, sequence, isNew] = results[3]?.rows[0] ?? [];
        const isLost = isNew === "t" && this.#settled.has(lane);
        this.#settled.add(lane);
        return { epoch: Number(epoch), sequence: isLost ? -1 : Number(sequence) };
      });
    } catch (error) {
      throw failure(error, false);
    }
  }

  /** Returns an error if the oldest schema whose releases may write is newer than what this release knows. */
  #tooOld(oldest: Result | undefined): StoreError | undefined {
    const number = Number(oldest?.rows[0]?.[0] ?? 0);
    return number > this.#knownSchema ? tooOld(this.#options.schema, number, this.#knownSchema) : undefined;
  }

  /**
   * Returns the error for a batch whose epoch is over and that wrote nothing: its lane was settled, or a migration excluded this release.
   */
  async #epochOver(): Promise<StoreError> {
    const oldest = await this.#reads.read(this.#call(this.#marks.oldest)).catch(() => undefined);
    return this.#tooOld(oldest) ?? staleEpoch();
  }

  async commit(batch: Batch): Promise<Receipt> {
    this.#check();
    const progress: Progress = { stage: "outside", nowMs: null, fenceFloor: null, bytesRead: 0, absent: new Map() };
    try {
      const receipt = await this.#connections.use((connection) => this.#commits.commit(connection, batch, progress));
      if (receipt.committed && receipt.ids.length > 0) this.#notifications.notify();
      return receipt;
    } catch (error) {
      throw isAssertion(error, STALE) ? await this.#epochOver() : failure(error, progress.stage === "committing");
    }
  }

  /** The process that inserts placeholders sweeps them, some hundred at a time. */
  #sweepPlaceholders(count: number): void {
    this.#placeholders += count;
    if (this.#placeholders < SWEEP_EVERY) return;
    this.#placeholders = 0;
    // After a failed sweep, the next one removes them.
    this.sweep(2 * SWEEP_EVERY).catch(() => {});
  }

  join(executor: Executor, batch: Joining): Promise<Joined> {
    this.#check();
    const ended = (xid: string) => this.#joined.hasEnded(xid);
    return join(executor, this.#joint, this.#namespace, batch, ended, (count) => this.#sweepPlaceholders(count));
  }

  async share<T>(
    batch: Pick<Batch, "lane" | "epoch" | "sequence">,
    work: SharedWork<T>,
    dropped?: AbortSignal,
  ): Promise<T> {
    this.#check();
    const setup: SharedSetup = {
      clock: this.#options.ports.clock,
      limitMs: this.#sharedMs,
      pinned: this.#pinned.sharing,
      mark: this.#call(this.#marks.mark, ...markValues(markOf(this.#writer, batch))),
      observe: (pinned) => this.#servers.observe(pinned),
      dropped,
    };
    const stage: Stage = { at: "begin" };
    try {
      const value = await this.#connections.use(
        (connection) => shareTransaction(connection, setup, stage, work),
        dropped,
      );
      this.#notifications.notify();
      return value;
    } catch (error) {
      if (dropped?.aborted === true && stage.at !== "commit") {
        await this.#endOnServer(stage.transaction);
        throw dropped.reason;
      }
      // Errors thrown by the work pass through.
      if (stage.at === "work") throw error;
      // A pooler switched the connection before anything was done. From now on, nothing is prepared.
      if (stage.at === "begin" && isServerError(error) && isUnprepared(error)) return this.share(batch, work, dropped);
      if (isAssertion(error, ENDED)) throw endedEarly();
      throw isAssertion(error, STALE) ? await this.#epochOver() : failure(error, stage.at === "commit");
    }
  }

  /**
   * The server notices only at the end of a statement that its client has gone. Until then the transaction would keep its locks, which a step that runs again
   * elsewhere may need.
   */
  async #endOnServer(transaction: ServerTransaction | undefined): Promise<void> {
    if (transaction === undefined) return;
    try {
      const over = new AbortController();
      const cancel = this.#options.ports.clock.after(END_MS, () =>
        over.abort(new Error("the server does not respond")),
      );
      await this.#connections
        .use((connection) => connection.send([endTransaction(transaction)], END_MS), over.signal)
        .finally(cancel);
    } catch {
      // Then its statement ends it, or the limit of the transaction.
    }
  }

  async read(keys: readonly Key[]): Promise<readonly (Row | null)[]> {
    const rows: (Row | null)[] = keys.map(() => null);
    for (const columns of (await this.#read(this.#rows.read(this.#namespace, keys))).rows) {
      const index = Number(columns[0]) - 1;
      const key = keys[index];
      const row = key === undefined ? null : toRow(key, columns, 1);
      if (row !== null && !isPlaceholder(row)) rows[index] = row;
    }
    return rows;
  }

  async list(query: ListQuery): Promise<readonly Row[]> {
    return toRows(query.space, await this.#read(this.#queries.list(this.#namespace, query)));
  }

  async entries(key: Key, after: number, limit: number, maxBytes?: number): Promise<readonly StoredEntry[]> {
    return toEntries(await this.#read(this.#queries.entries(this.#namespace, key, after, limit, maxBytes)));
  }

  /** In a transaction of its own, because the entries must be read in a later snapshot than the horizon; still one round trip. */
  async follow(query: FollowQuery): Promise<FollowPage> {
    this.#check();
    const { horizon, follow } = this.#follow;
    const calls = [BEGIN_READING, this.#pinned.reading, horizon, follow(query), COMMIT];
    try {
      const [, pinned, upTo, page] = await this.#connections.use(async (connection) => {
        connection.began();
        const results = await connection.send(calls);
        connection.ended();
        return results;
      });
      // A standby does not know which transactions are appending.
      if (pinned?.rows[0]?.[0] !== "f" || upTo === undefined || page === undefined) throw standbyError();
      this.#servers.observe(pinned);
      return toFollowPage(query, upTo, page);
    } catch (error) {
      throw failure(error, false);
    }
  }

  async due(query: DueQuery): Promise<DuePage> {
    return toDuePage(await this.#read(this.#queries.due(this.#namespace, query)), query.limit);
  }

  async sweep(limit: number): Promise<number> {
    this.#check();
    try {
      const result = await this.#run(this.#sweep(this.#namespace, limit));
      return Number(result?.rows[0]?.[0]);
    } catch (error) {
      throw failure(error, false);
    }
  }

  async prune(key: Key, upTo: number, limit: number): Promise<number> {
    this.#check();
    try {
      const result = await this.#run(this.#prune(this.#namespace, key, upTo, limit));
      return Number(result?.rows[0]?.[0]);
    } catch (error) {
      throw failure(error, false);
    }
  }

  watchRestarts(restarted: () => void): void {
    this.#restarted = restarted;
  }

  watch(changed: () => void): () => void {
    this.#check();
    return this.#notifications.watch(changed);
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    await this.#joined.close();
    await this.#notifications.close();
    try {
      await this.#run(this.#call(this.#marks.forget, this.#writer));
    } catch {
      // Marks that are left behind are swept later.
    }
    this.#connections.close();
    await this.#options.endPool?.();
  }

  /** Runs one statement that writes, in a transaction begun as read-write: a session's default may be read-only. */
  #run(call: Call): Promise<Result | undefined> {
    return this.#connections.use(async (connection) => {
      connection.began();
      const results = await connection.send([BEGIN, this.#pinned.writing, call, COMMIT]);
      connection.ended();
      return results[2];
    });
  }

  /** Runs one statement in one snapshot. */
  #read(call: Call): Promise<Result> {
    this.#check();
    return this.#reads.read(call);
  }

  #check(): void {
    if (this.#closing !== undefined) throw new ClosedError();
  }
}

const SWEEP_EVERY = 256;
/** How long a transaction may take to be ended on the server. */
const END_MS = 1000;
