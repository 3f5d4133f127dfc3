/**
 * The PostgreSQL store: any number of processes on any number of machines.
 *
 * A locked batch takes two round trips: begin, lock and read the rows, read the clock; then write, mark and commit. An optimistic batch,
 * whose rows are assumed, takes one. Rows that other transactions have locked are skipped, so that a process that stopped in the middle of
 * a batch delays no other; the server ends its transaction after `LOCKS_HELD_MS`. A batch that was postponed too often waits for its rows,
 * in sorted order, and gives up after the same time.
 *
 * Each lane has a mark, one row with an epoch and the sequence of the last batch, written by the batch itself. When a reply is lost,
 * `settle` raises the epoch, which waits for a commit still in progress and refuses one that arrives later; then the mark says whether the
 * batch was committed.
 *
 * Guarantees: G1 by the server's own log; G2 by the marks; G18, because a commit that did not wait for the standby counts as unknown; G19
 * through `failure.ts`.
 */

import {
  type Batch,
  type DuePage,
  type DueQuery,
  type Executor,
  type FollowPage,
  type FollowQuery,
  type Found,
  type Joined,
  type Joining,
  type Key,
  keyText,
  type ListQuery,
  type Put,
  type Receipt,
  type Row,
  type SharedWork,
  type Sql,
  type SqlStore,
  type StoredEntry,
} from "../../kernel/contract.ts";
import { ClosedError, endedEarly, StoreError, staleEpoch } from "../../kernel/errors.ts";
import { type Ports, pause } from "../../kernel/ports.ts";
import { type Connection, ConnectionPool, type PgPool } from "./connections.ts";
import { failure, isAssertion, isServerError, isUnprepared, LostConnectionError } from "./failure.ts";
import { type FollowStatements, followStatements, isFollowed, toFollowPage } from "./followed.ts";
import { type JointStatements, join, jointStatements } from "./joint.ts";
import { type MarkStatements, markStatements } from "./marks.ts";
import { Notifications } from "./notifications.ts";
import { type Call, type Result, type Statement, statement } from "./pipeline.ts";
import { type QueryStatements, queryStatements, toDuePage, toEntries, toRows } from "./queries.ts";
import { Reads, standbyError } from "./reads.ts";
import { checkSchema, checkServer, type Finding, NO_LISTEN, readSettings, throwIfRefused } from "./requirements.ts";
import { retryUntil } from "./retry.ts";
import { COLUMNS, isPlaceholder, placeholderOf, type RowStatements, rowStatements, toRow } from "./rows.ts";
import { MIGRATIONS, type Migration, migrate, quoted, tooOld } from "./schema.ts";
import {
  BEGIN,
  BEGIN_READING,
  CLOCK,
  COMMIT,
  ENDED,
  LIMIT_IDLE,
  MOVED,
  pinForReading,
  pinForSharing,
  pinForWaiting,
  pinForWriting,
  ROLLBACK,
  SHARED_MS,
  STALE,
  stillShared,
} from "./statements.ts";
import { pruneStatement, sweepStatement } from "./sweep.ts";
import { type Mark, markValues, writing } from "./write.ts";

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
/** How long row numbers that were reserved ahead are used. */
const SPARE_MS = 1000;
/** A connection whose reply takes longer counts as lost. */
const REPLY_MS = 5000;

/** Checks the server, brings the schema up to date, and connects. Waits up to `patienceMs` for a server that is not up yet. */
export async function openPostgres(options: PostgresOptions): Promise<PostgresStore> {
  const { pool, schema, ports, patienceMs, durability, warned } = options;
  const connections = new ConnectionPool({ pool, clock: ports.clock, replyMs: Math.min(REPLY_MS, patienceMs) });
  const giveUpAtMs = ports.clock.nowMs() + patienceMs;
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
    return store;
  } catch (error) {
    connections.close();
    await options.endPool?.();
    throw failure(error, false);
  }
}

/** The progress of a transaction. */
interface Progress {
  /** `outside`: not begun. `open`: its rows are being locked and decided on. `committing`: COMMIT was sent. */
  stage: "outside" | "open" | "committing";
  nowMs: number | null;
  bytesRead: number;
  /** Absent keys: the number that the row would get, and the row's placeholder, if it has one. */
  readonly absent: Map<string, Absent>;
}

interface Absent {
  readonly key: Key;
  readonly id: number;
  readonly placeholder: Row | null;
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
  readonly #write: ReturnType<typeof writing>;
  readonly #queries: QueryStatements;
  readonly #follow: FollowStatements;
  readonly #sweep: (namespace: string, limit: number) => Call;
  readonly #prune: ReturnType<typeof pruneStatement>;
  readonly #reads: Reads;
  readonly #servers = new Servers(() => {
    // The new server may assign the numbers that the old one reserved.
    this.#spare = { ids: [], untilMs: 0 };
    this.#restarted();
  });
  #restarted: () => void = () => {};
  readonly #pinned: Readonly<Record<"writing" | "waiting" | "reading" | "sharing", Call>>;
  readonly #sharedMs: number;
  readonly #joint: JointStatements;
  readonly #marks: MarkStatements;
  readonly #notifications: Notifications;
  /** The ids of joined transactions of the application that are not known to have ended. */
  readonly #joined = new Set<string>();
  /** Numbers reserved for new rows. */
  #spare: { readonly ids: readonly number[]; readonly untilMs: number } = { ids: [], untilMs: 0 };
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
    this.#write = writing(s, clock);
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
    this.#reads = new Reads(connections, this.#pinned.reading, (pinned) => this.#servers.observe(pinned));
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

  #markOf({ lane, epoch, sequence }: Pick<Batch, "lane" | "epoch" | "sequence">): Mark {
    return { writer: this.#writer, lane, epoch, sequence };
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
    const progress: Progress = { stage: "outside", nowMs: null, bytesRead: 0, absent: new Map() };
    try {
      const receipt = await this.#connections.use((connection) => this.#commit(connection, batch, progress));
      if (receipt.committed && receipt.ids.length > 0) this.#notifications.notify();
      return receipt;
    } catch (error) {
      throw isAssertion(error, STALE) ? await this.#epochOver() : failure(error, progress.stage === "committing");
    }
  }

  async #commit(connection: Connection, batch: Batch, progress: Progress): Promise<Receipt> {
    const isOptimistic = batch.lock.length === 0 && !batch.needsClock;
    let verdict = batch.decide(
      isOptimistic ? NOTHING_FOUND : await this.#find(connection, batch, batch.lock, progress),
    );
    while ("lock" in verdict) verdict = batch.decide(await this.#find(connection, batch, verdict.lock, progress));
    const { puts } = verdict;
    if (puts.length === 0) return this.#endUnwritten(connection, progress);
    const wasOpen = progress.stage === "open";
    try {
      return await this.#finish(connection, batch, puts, progress);
    } catch (error) {
      if (isMoved(error)) return { committed: false, moved: await this.#moved(connection, puts, progress) };
      if (!isLockTimeout(error)) throw error;
      connection.ended();
      await connection.send([ROLLBACK]);
      // An optimistic batch may have waited for any of its rows; one that has locked its rows only for those it inserts.
      const waited = wasOpen ? puts.filter(({ was }) => was === null) : puts;
      const moved = [...waited.map(({ row }) => row), ...absentKeys(progress)];
      return { committed: false, moved, isHeld: wasOpen };
    }
  }

  /** Locks and reads these rows. Those of earlier rounds stay locked. Only the first round may wait, because it is sorted. */
  async #find(connection: Connection, batch: Batch, keys: readonly Key[], progress: Progress): Promise<Found> {
    const isFirst = progress.stage === "outside";
    const mayWait = isFirst && batch.mayWait === true;
    const maxBytes = batch.maxBytes === undefined ? undefined : Math.max(0, batch.maxBytes - progress.bytesRead);
    const isPatient = mayWait && keys.length > 1;
    const calls = isFirst ? [BEGIN, isPatient ? this.#pinned.waiting : this.#pinned.writing] : [];
    if (keys.length > 0) calls.push(this.#rows.lock(this.#namespace, keys, { mayWait, maxBytes }));
    calls.push(this.#rows.clock);
    connection.began();
    const results = await connection.send(calls);
    progress.stage = "open";
    if (isFirst) this.#servers.observe(results[1]);
    const [now, floor] = results.at(-1)?.rows[0] ?? [];
    // One time for the whole commit, for any number of rounds.
    progress.nowMs ??= Number(now);
    const rows: (Row | null | undefined)[] = keys.map(() => undefined);
    let isFull = false;
    for (const columns of keys.length > 0 ? (results.at(-2)?.rows ?? []) : []) {
      const index = Number(columns[0]) - 1;
      const key = keys[index];
      // Skipped because another transaction has locked it, or because enough was read.
      isFull ||= columns[LEFT_UNREAD] != null;
      if (key === undefined || columns[1] === null || columns[LEFT_UNREAD] != null) continue;
      const row = columns[2] === null ? null : toRow(key, columns, 1);
      const placeholder = row !== null && isPlaceholder(row) ? row : null;
      const isAbsent = row === null || placeholder !== null;
      rows[index] = isAbsent ? null : row;
      progress.bytesRead += row?.value?.length ?? 0;
      if (isAbsent) progress.absent.set(keyText(key), { key, id: Number(columns[1]), placeholder });
    }
    return { nowMs: progress.nowMs, fenceFloor: Number(floor), rows, isFull };
  }

  /** Ends a transaction that writes nothing. Its decisions hold only if what was absent is still absent, in one snapshot. */
  async #endUnwritten(connection: Connection, progress: Progress): Promise<Receipt> {
    // No statement was sent either.
    if (progress.stage === "outside") return { committed: true, nowMs: 0, ids: [] };
    const absent = absentKeys(progress);
    const calls = absent.length > 0 ? [this.#rows.stillAbsent(this.#namespace, absent), COMMIT] : [COMMIT];
    try {
      await connection.send(calls);
      connection.ended();
      return { committed: true, nowMs: progress.nowMs ?? 0, ids: [] };
    } catch (error) {
      if (!isMoved(error)) throw error;
      return { committed: false, moved: absent };
    }
  }

  async #finish(connection: Connection, batch: Batch, puts: readonly Put[], progress: Progress): Promise<Receipt> {
    const { ids, missing } = await this.#ids(connection, puts, progress);
    const absent = new Map(progress.absent);
    for (const { row } of puts) if (absent.size > 0) absent.delete(keyText(row));
    const onlyRead = [...absent.values()].filter(({ placeholder }) => placeholder === null);
    const placeholders = onlyRead.map(({ key, id }) => placeholderOf(key, id, progress.nowMs ?? 0));
    // A new record reuses the row of its placeholder.
    const written = puts.map((put) => {
      const was = put.was ?? progress.absent.get(keyText(put.row))?.placeholder ?? null;
      return was === put.was ? put : { ...put, was };
    });
    const write = this.#write(
      this.#markOf(batch),
      this.#namespace,
      written.concat(placeholders),
      ids.concat(onlyRead.map(({ id }) => id)),
      progress.nowMs,
    );
    const calls = progress.stage === "open" ? [] : [BEGIN, this.#pinned.writing];
    if (isFollowed(puts)) calls.push(this.#follow.announce);
    const writtenAt = calls.push(write) - 1;
    // The next batch will probably need as many numbers again.
    if (missing > 0) calls.push(this.#rows.reserve(missing));
    calls.push(COMMIT);
    connection.began();
    progress.stage = "committing";
    const results = await connection.send(calls);
    connection.ended();
    this.#checkCommitted(connection, results.at(-1));
    if (missing > 0) this.#keepSpare(numbersOf(results.at(-2)));
    this.#sweepPlaceholders(placeholders.length);
    return { committed: true, nowMs: progress.nowMs ?? Number(results[writtenAt]?.rows[0]?.[2]), ids };
  }

  /** The process that inserts placeholders sweeps them, some hundred at a time. */
  #sweepPlaceholders(count: number): void {
    this.#placeholders += count;
    if (this.#placeholders < SWEEP_EVERY) return;
    this.#placeholders = 0;
    // After a failed sweep, the next one removes them.
    this.sweep(2 * SWEEP_EVERY).catch(() => {});
  }

  /** The number of each row: its own, the one reserved when it was found absent, or a new one. */
  async #ids(
    connection: Connection,
    puts: readonly Put[],
    progress: Progress,
  ): Promise<{ readonly ids: number[]; readonly missing: number }> {
    const ids = puts.map(({ was, row }) => was?.id ?? progress.absent.get(keyText(row))?.id);
    const missing = ids.filter((id) => id === undefined).length;
    if (missing === 0) return { ids: ids as number[], missing };
    let fresh = this.#takeSpare(missing);
    if (fresh.length < missing) {
      const [result] = await connection.send([this.#rows.reserve(missing - fresh.length)]);
      fresh = fresh.concat(numbersOf(result));
    }
    let taken = 0;
    return { ids: ids.map((id) => id ?? (fresh[taken++] as number)), missing };
  }

  /** Takes numbers that were reserved recently. Older numbers would make new rows look old. */
  #takeSpare(count: number): readonly number[] {
    const { ids, untilMs } = this.#spare;
    if (this.#options.ports.clock.nowMs() >= untilMs) return [];
    this.#spare = { ids: ids.slice(count), untilMs };
    return ids.slice(0, count);
  }

  #keepSpare(more: readonly number[]): void {
    const nowMs = this.#options.ports.clock.nowMs();
    const { ids, untilMs } = this.#spare;
    this.#spare = nowMs < untilMs ? { ids: ids.concat(more), untilMs } : { ids: more, untilMs: nowMs + SPARE_MS };
  }

  #checkCommitted(connection: Connection, result: Result | undefined): void {
    // The server completes the COMMIT of a failed transaction with the tag ROLLBACK.
    if (result?.tag !== "COMMIT")
      throw new StoreError("store_refused", "retry", "the server rolled the transaction back");
    if (connection.isUnreplicated)
      throw new StoreError("outcome_unknown", "settle", "the commit did not wait for the synchronous standby");
  }

  /** Returns the rows that differ from what the batch assumed, or all of them if the difference can no longer be seen. */
  async #moved(connection: Connection, puts: readonly Put[], progress: Progress): Promise<readonly Key[]> {
    const keys = [...puts.map(({ row }) => row), ...absentKeys(progress)];
    connection.ended();
    const results = await connection.send([ROLLBACK, this.#pinned.reading, this.#rows.read(this.#namespace, keys)]);
    const rows = new Map(results[2]?.rows.map((columns) => [Number(columns[0]) - 1, columns]));
    const moved = keys.filter((key, index) => {
      const was = puts[index]?.was ?? progress.absent.get(keyText(key))?.placeholder ?? null;
      const columns = rows.get(index);
      if (was === null || columns === undefined) return (was === null) !== (columns === undefined);
      const now = toRow(key, columns, 1);
      return now.id !== was.id || now.version !== was.version || now.stamp !== was.stamp;
    });
    return moved.length > 0 ? moved : keys;
  }

  join(executor: Executor, batch: Joining): Promise<Joined> {
    this.#check();
    const ended = (xid: string) => this.#hasEnded(xid);
    return join(executor, this.#joint, this.#namespace, batch, ended, (count) => this.#sweepPlaceholders(count));
  }

  async share<T>(batch: Pick<Batch, "lane" | "epoch" | "sequence">, work: SharedWork<T>): Promise<T> {
    this.#check();
    const mark = this.#call(this.#marks.mark, ...markValues(this.#markOf(batch)));
    const stage: { at: "begin" | "work" | "commit" } = { at: "begin" };
    try {
      const value = await this.#connections.use(async (connection) => {
        connection.began();
        const [, pinned] = await connection.send([BEGIN, this.#pinned.sharing]);
        this.#servers.observe(pinned);
        stage.at = "work";
        const value = await this.#bounded(connection, work(...sharedSql(connection, this.#sharedMs)));
        stage.at = "commit";
        const results = await connection.send([stillShared(), mark, COMMIT]);
        connection.ended();
        this.#checkCommitted(connection, results.at(-1));
        return value;
      });
      this.#notifications.notify();
      return value;
    } catch (error) {
      // Errors thrown by the work pass through.
      if (stage.at === "work") throw error;
      // A pooler switched the connection before anything was done. From now on, nothing is prepared.
      if (stage.at === "begin" && isServerError(error) && isUnprepared(error)) return this.share(batch, work);
      if (isAssertion(error, ENDED)) throw endedEarly();
      throw isAssertion(error, STALE) ? await this.#epochOver() : failure(error, stage.at === "commit");
    }
  }

  /** Rejects when the work of a shared transaction takes too long, or its connection is lost. */
  #bounded<T>(connection: Connection, work: Promise<T>): Promise<T> {
    const limitMs = this.#sharedMs;
    return new Promise((resolve, reject) => {
      const cancel = this.#options.ports.clock.after(limitMs, () => {
        connection.destroy();
        const message = `transact.sql was not done after ${limitMs} ms: its transaction was rolled back`;
        reject(new StoreError("store_busy", "fail", message));
      });
      connection.whenLost(() => {
        const lost = failure(new LostConnectionError("the connection was lost, and nothing was committed"), false);
        reject(connection.wasIdle ? new StoreError("store_busy", "fail", IDLE) : lost);
      });
      work.then(resolve, reject).finally(() => {
        cancel();
        connection.whenLost(undefined);
      });
    });
  }

  /** Polls whether a transaction of the application has ended, and notifies other processes if it was committed. */
  async #hasEnded(xid: string): Promise<boolean> {
    const { clock } = this.#options.ports;
    this.#joined.add(xid);
    for (let waitMs = 2; waitMs < 20_000 && this.#joined.has(xid); waitMs *= 1.5) {
      await pause(clock, waitMs);
      // A check that fails, because the server is unreachable or the store is being closed, is repeated later or not at all.
      const isCommitted = await this.#checkJoined(xid).catch(() => undefined);
      if (isCommitted !== undefined) return isCommitted;
    }
    this.#joined.delete(xid);
    return false;
  }

  /** Returns whether it was committed; undefined while it is in progress. */
  async #checkJoined(xid: string): Promise<boolean | undefined> {
    const status = (await this.#reads.read(this.#call(XACT_STATUS, xid))).rows[0]?.[0];
    if (status === "in progress") return undefined;
    this.#joined.delete(xid);
    if (status !== "committed") return false;
    // The transaction has no mark of its own, so this one tells the processes that poll.
    await this.#run(this.#call(this.#marks.joined, this.#writer, this.#namespace));
    this.#notifications.notify();
    return true;
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
    // Checks joined transactions one last time.
    await Promise.allSettled([...this.#joined].map((xid) => this.#checkJoined(xid)));
    this.#joined.clear();
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

const XACT_STATUS = statement("select pg_xact_status($1::text::xid8)");

/** The user's statements, and Pawl's after them. After Pawl's first statement, the transaction may not be idle for long. */
function sharedSql(connection: Connection, sharedMs: number): [Sql, Executor] {
  let isIdleLimited = false;
  const sql: Sql = {
    async query<Row>(text: string, values: readonly unknown[] = []) {
      const { rows, rowCount } = await connection.query(text, values, sharedMs + REPLY_MS);
      return { rows: rows as Row[], rowCount: rowCount ?? 0 };
    },
  };
  const executor: Executor = async (text, value) => {
    if (!isIdleLimited) await connection.query(LIMIT_IDLE, [], REPLY_MS);
    isIdleLimited = true;
    return (await connection.query(text, value === undefined ? [] : [value], sharedMs + REPLY_MS)).rows;
  };
  return [sql, executor];
}

const absentKeys = ({ absent }: Progress): Key[] => Array.from(absent.values(), ({ key }) => key);

const numbersOf = (result: Result | undefined): readonly number[] => result?.rows.map(([id]) => Number(id)) ?? [];

const NOTHING_FOUND: Found = { nowMs: null, fenceFloor: 0, rows: [] };

/** The index of the column that says that a locked row was left unread. */
const LEFT_UNREAD = 1 + COLUMNS.split(", ").length;
const SWEEP_EVERY = 256;

const IDLE =
  "transact.sql was idle for more than two seconds after tx, and its transaction was rolled back: after tx, await nothing but tx";

/** Rows differ from what the batch assumed. */
const isMoved = (error: unknown): boolean =>
  isAssertion(error, MOVED) || (isServerError(error) && error.code === "23505" && error.table === "record");

/** Another transaction held a row, or a key that it is inserting, for longer than a batch waits. */
const isLockTimeout = (error: unknown): boolean => isServerError(error) && error.code === "55P03";
