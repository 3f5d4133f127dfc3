/**
 * The PostgreSQL store: any number of processes on any number of machines.
 *
 * A locked batch takes two round trips: begin, lock and read the rows, read the clock; then write, mark and commit. An optimistic batch,
 * whose rows are assumed, takes one. Rows that others have locked are skipped, so that a process that was stopped in the middle of a batch
 * keeps no one waiting; the server ends its transaction after `LOCKS_HELD_MS`. A batch that was put off too often waits for its rows, in
 * sorted order, and gives up after the same time.
 *
 * Each lane has a mark, one row with an epoch and the sequence of the last batch, written by the batch itself. When a reply is lost,
 * `settle` raises the epoch, which waits for a commit still under way and refuses one that comes later; then the mark tells.
 *
 * Promises: G1 by the server's own log; G2 by the marks; G18, because a commit that did not wait for the standby counts as
 * unknown; G19 through `failure.ts`.
 */

import {
  type Batch,
  type DuePage,
  type DueQuery,
  type Executor,
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
import { Bell } from "./bell.ts";
import { failure, isAssertion, isServerError, isUnprepared, LostLineError } from "./failure.ts";
import { type Finding, factsOf, judge, missingRights, NO_LISTEN, refuseUnfit } from "./fitness.ts";
import { type JointStatements, join, jointStatements } from "./joint.ts";
import { type Line, LinePool, type PgPool } from "./lines.ts";
import { type LookStatements, lookStatements, toDuePage, toEntries, toRows } from "./looks.ts";
import { type MarkStatements, markStatements } from "./marks.ts";
import { patiently } from "./reach.ts";
import { Reads } from "./reads.ts";
import { COLUMNS, isPlaceholder, placeholderOf, type RowStatements, rowStatements, toRow } from "./rows.ts";
import { MIGRATIONS, type Migration, migrate, quoted, tooOld } from "./schema.ts";
import {
  BEGIN,
  CLOCK,
  COMMIT,
  ENDED,
  MOVED,
  pinForReading,
  pinForSharing,
  pinForWaiting,
  pinForWriting,
  ROLLBACK,
  SHARED_MS,
  STALE,
  stillShared,
  TIGHTEN,
} from "./statements.ts";
import { sweepStatement } from "./sweep.ts";
import { type Answer, type Call, type Statement, statement } from "./train.ts";
import { type Mark, markValues, writing } from "./write.ts";

export interface PostgresOptions {
  readonly pool: PgPool;
  /** Ends the pool when the store is closed; for a pool of our own. */
  readonly endPool?: (() => Promise<void>) | undefined;
  readonly schema: string;
  readonly namespace: string;
  readonly ports: Ports;
  readonly durability: "full" | "process";
  readonly patienceMs: number;
  /** Told of what is not as it should be, but can be lived with. */
  readonly warned?: ((finding: Finding) => void) | undefined;
  /** How long a transaction that is the user's as well may be open. Default: 30 s. */
  readonly sharedMs?: number | undefined;
  /** The store's clock as SQL; for tests. */
  readonly clock?: string | undefined;
  readonly lanes?: number | undefined;
  /** The schema's history; for tests of migrations. */
  readonly migrations?: readonly Migration[] | undefined;
}

const LANES = 4;
/** For so long numbers that were reserved ahead are used. */
const SPARE_MS = 1000;
/** No answer takes longer, or the connection counts as lost. */
const ANSWER_MS = 5000;

/** Checks the server, brings the schema up to date, and connects. A server that is not up yet is waited for, as long as patience lasts. */
export async function openPostgres(options: PostgresOptions): Promise<PostgresStore> {
  const { pool, schema, ports, patienceMs, durability, warned } = options;
  const lines = new LinePool({ pool, clock: ports.clock, answerMs: Math.min(ANSWER_MS, patienceMs) });
  const giveUpAtMs = ports.clock.nowMs() + patienceMs;
  const use = <T>(work: (line: Line) => Promise<T>): Promise<T> => patiently(ports, giveUpAtMs, () => lines.use(work));
  try {
    const findings = [...judge(await use(factsOf), durability)];
    refuseUnfit(findings);
    const migrations = options.migrations ?? MIGRATIONS(quoted(schema));
    await migrate({ lines, schema, clock: ports.clock, patienceMs, migrations });
    refuseUnfit(await use((line) => missingRights(line, schema)));
    const store = new PostgresStore(lines, options);
    if (!(await patiently(ports, giveUpAtMs, () => store.hears()))) findings.push(NO_LISTEN);
    for (const finding of findings) warned?.(finding);
    return store;
  } catch (error) {
    lines.close();
    await options.endPool?.();
    throw failure(error, false);
  }
}

/** What a transaction has so far. */
interface Underway {
  /** `outside`: not begun. `open`: its rows are being locked and decided on. `committing`: COMMIT is on its way. */
  stage: "outside" | "open" | "committing";
  nowMs: number | null;
  bytesRead: number;
  /** Keys that are absent: the number that the row would get, and the placeholder that stands for the record, if it has one. */
  readonly absent: Map<string, Absent>;
}

interface Absent {
  readonly key: Key;
  readonly id: number;
  readonly placeholder: Row | null;
}

/** Notices that another server answers than before, or that the server was started again: each has its own start time. */
class Servers {
  readonly #changed: () => void;
  #last: string | null | undefined;

  constructor(changed: () => void) {
    this.#changed = changed;
  }

  /** With what a transaction's first statement returned. */
  answered(pinned: Answer | undefined): void {
    const startedAt = pinned?.rows[0]?.[1];
    if (startedAt === undefined) return;
    const last = this.#last;
    this.#last = startedAt;
    if (last !== undefined && last !== startedAt) this.#changed();
  }
}

export class PostgresStore implements SqlStore {
  readonly lanes: number;
  /** Half of the pool: the other half is for commits, leases, claims and reads. */
  readonly maxShared: number;
  readonly #options: PostgresOptions;
  readonly #lines: LinePool;
  readonly #namespace: string;
  readonly #writer: string;
  /** The newest schema that this release knows. */
  readonly #knownSchema: number;
  readonly #rows: RowStatements;
  readonly #write: ReturnType<typeof writing>;
  readonly #looks: LookStatements;
  readonly #sweep: (namespace: string, limit: number) => Call;
  readonly #reads: Reads;
  readonly #servers = new Servers(() => {
    // Numbers that another server reserved may be given out again by this one.
    this.#spare = { ids: [], untilMs: 0 };
    this.#restarted();
  });
  #restarted: () => void = () => {};
  readonly #pinned: Readonly<Record<"writing" | "waiting" | "reading" | "sharing", Call>>;
  readonly #sharedMs: number;
  readonly #joint: JointStatements;
  readonly #marks: MarkStatements;
  readonly #bell: Bell;
  /** Transactions of others that hold something of ours, and are not known to have ended. */
  readonly #joined = new Set<string>();
  /** Numbers for rows to come. */
  #spare: { readonly ids: readonly number[]; readonly untilMs: number } = { ids: [], untilMs: 0 };
  /** Lanes that have a mark, unless the store has lost it. */
  readonly #settled = new Set<number>();
  /** How many this process has made since it last swept. */
  #placeholders = 0;
  #closing: Promise<void> | undefined;

  constructor(lines: LinePool, options: PostgresOptions) {
    const { schema, namespace, ports, durability, patienceMs } = options;
    const s = quoted(schema);
    const clock = options.clock ?? CLOCK;
    const answerMs = Math.min(ANSWER_MS, patienceMs);
    this.lanes = options.lanes ?? LANES;
    this.maxShared = Math.max(1, Math.floor(lines.size / 2));
    this.#sharedMs = options.sharedMs ?? SHARED_MS;
    this.#options = options;
    this.#lines = lines;
    this.#namespace = namespace;
    this.#writer = ports.chance.uuid();
    this.#knownSchema = (options.migrations ?? MIGRATIONS(s)).length;
    this.#rows = rowStatements(s, clock);
    this.#write = writing(s, clock);
    this.#looks = lookStatements(s, clock);
    this.#sweep = sweepStatement(s, clock);
    const isDurable = durability === "full";
    this.#pinned = {
      writing: pinForWriting(answerMs, isDurable),
      waiting: pinForWaiting(answerMs, isDurable),
      reading: pinForReading(answerMs),
      // A little later than this process gives up, which has the better words for it.
      sharing: pinForSharing(this.#sharedMs + ANSWER_MS, isDurable),
    };
    this.#reads = new Reads(lines, this.#pinned.reading, (pinned) => this.#servers.answered(pinned));
    this.#joint = jointStatements(s, clock, this.#knownSchema);
    this.#marks = markStatements(s, clock);
    this.#bell = new Bell({
      lines,
      clock: ports.clock,
      channel: statement(`${schema}\n${namespace}`).name,
      writer: this.#writer,
      readMarks: async () =>
        (await this.#read(this.#call(this.#marks.all, namespace, this.#writer))).rows[0]?.[0] ?? "",
      announce: async () => void (await this.#run(this.#call(this.#marks.listens, this.#writer, namespace))),
      hasListeners: async () =>
        (await this.#reads.ask(this.#call(this.#marks.heard, namespace, this.#writer))).rows[0]?.[0] === "t",
    });
  }

  /** Whether notifications arrive here. */
  hears(): Promise<boolean> {
    return this.#bell.test();
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
      throw new RangeError(`this store has ${this.lanes} lanes, and lane ${lane} is not one of them`);
    const settle = this.#call(this.#marks.settle, this.#writer, String(lane), this.#namespace);
    try {
      return await this.#lines.use(async (line) => {
        line.began();
        const oldest = this.#call(this.#marks.lockOldest);
        const answers = await line.send([BEGIN, this.#pinned.writing, oldest, settle, COMMIT]);
        line.ended();
        const refusal = this.#tooOld(answers[2]);
        if (refusal !== undefined) throw refusal;
        if (line.isUnreplicated)
          throw new StoreError("store_unreachable", "retry", "the standby has not confirmed the mark yet");
        const [epoch, sequence, isNew] = answers[3]?.rows[0] ?? [];
        const isLost = isNew === "t" && this.#settled.has(lane);
        this.#settled.add(lane);
        return { epoch: Number(epoch), sequence: isLost ? -1 : Number(sequence) };
      });
    } catch (error) {
      throw failure(error, false);
    }
  }

  /** The error, if the oldest schema whose releases may write is newer than what this release knows. */
  #tooOld(oldest: Answer | undefined): StoreError | undefined {
    const number = Number(oldest?.rows[0]?.[0] ?? 0);
    return number > this.#knownSchema ? tooOld(this.#options.schema, number, this.#knownSchema) : undefined;
  }

  /** A batch's epoch is over, so nothing was written: because its lane was settled, or because a migration shut this release out. */
  async #epochOver(): Promise<StoreError> {
    const oldest = await this.#reads.ask(this.#call(this.#marks.oldest)).catch(() => undefined);
    return this.#tooOld(oldest) ?? staleEpoch();
  }

  async commit(batch: Batch): Promise<Receipt> {
    this.#check();
    const under: Underway = { stage: "outside", nowMs: null, bytesRead: 0, absent: new Map() };
    try {
      const receipt = await this.#lines.use((line) => this.#commit(line, batch, under));
      if (receipt.committed && receipt.ids.length > 0) this.#bell.tell();
      return receipt;
    } catch (error) {
      throw isAssertion(error, STALE) ? await this.#epochOver() : failure(error, under.stage === "committing");
    }
  }

  async #commit(line: Line, batch: Batch, under: Underway): Promise<Receipt> {
    const isOptimistic = batch.lock.length === 0 && !batch.needsClock;
    let verdict = batch.decide(isOptimistic ? NOTHING_FOUND : await this.#find(line, batch, batch.lock, under));
    while ("lock" in verdict) verdict = batch.decide(await this.#find(line, batch, verdict.lock, under));
    const { puts } = verdict;
    if (puts.length === 0) return this.#leave(line, under);
    const wasOpen = under.stage === "open";
    try {
      return await this.#finish(line, batch, puts, under);
    } catch (error) {
      if (isMoved(error)) return { committed: false, moved: await this.#moved(line, puts, under) };
      if (!isWaitedForInVain(error)) throw error;
      line.ended();
      await line.send([ROLLBACK]);
      // An optimistic batch may have waited for any of its rows; one that has locked its rows can only have waited for what it makes.
      const waited = wasOpen ? puts.filter(({ was }) => was === null) : puts;
      const moved = [...waited.map(({ row }) => row), ...absentKeys(under)];
      return { committed: false, moved, isHeld: wasOpen };
    }
  }

  /** Locks and reads these rows, and those of an earlier round stay locked. Only the first round may wait: it is sorted. */
  async #find(line: Line, batch: Batch, keys: readonly Key[], under: Underway): Promise<Found> {
    const isFirst = under.stage === "outside";
    const mayWait = isFirst && batch.mayWait === true;
    const maxBytes = batch.maxBytes === undefined ? undefined : Math.max(0, batch.maxBytes - under.bytesRead);
    const isPatient = mayWait && keys.length > 1;
    const calls = isFirst ? [BEGIN, isPatient ? this.#pinned.waiting : this.#pinned.writing] : [];
    if (keys.length > 0) calls.push(this.#rows.lock(this.#namespace, keys, { mayWait, maxBytes }));
    calls.push(this.#rows.clock);
    line.began();
    const answers = await line.send(calls);
    under.stage = "open";
    if (isFirst) this.#servers.answered(answers[1]);
    const [now, floor] = answers.at(-1)?.rows[0] ?? [];
    // One time for the whole commit, however many rounds it takes.
    under.nowMs ??= Number(now);
    const rows: (Row | null | undefined)[] = keys.map(() => undefined);
    let isFull = false;
    for (const columns of keys.length > 0 ? (answers.at(-2)?.rows ?? []) : []) {
      const index = Number(columns[0]) - 1;
      const key = keys[index];
      // Skipped because another has it, or because enough was read.
      isFull ||= columns[LEFT_UNREAD] != null;
      if (key === undefined || columns[1] === null || columns[LEFT_UNREAD] != null) continue;
      const row = columns[2] === null ? null : toRow(key, columns, 1);
      const placeholder = row !== null && isPlaceholder(row) ? row : null;
      const isAbsent = row === null || placeholder !== null;
      rows[index] = isAbsent ? null : row;
      under.bytesRead += row?.value?.length ?? 0;
      if (isAbsent) under.absent.set(keyText(key), { key, id: Number(columns[1]), placeholder });
    }
    return { nowMs: under.nowMs, fenceFloor: Number(floor), rows, isFull };
  }

  /** Nothing is to be written. What was decided still holds only if what was absent is absent, at one moment. */
  async #leave(line: Line, under: Underway): Promise<Receipt> {
    // Nothing was asked of the server either.
    if (under.stage === "outside") return { committed: true, nowMs: 0, ids: [] };
    const absent = absentKeys(under);
    const calls = absent.length > 0 ? [this.#rows.stillAbsent(this.#namespace, absent), COMMIT] : [COMMIT];
    try {
      await line.send(calls);
      line.ended();
      return { committed: true, nowMs: under.nowMs ?? 0, ids: [] };
    } catch (error) {
      if (!isMoved(error)) throw error;
      return { committed: false, moved: absent };
    }
  }

  async #finish(line: Line, batch: Batch, puts: readonly Put[], under: Underway): Promise<Receipt> {
    const { ids, missing } = await this.#ids(line, puts, under);
    const absent = new Map(under.absent);
    for (const { row } of puts) if (absent.size > 0) absent.delete(keyText(row));
    const onlyRead = [...absent.values()].filter(({ placeholder }) => placeholder === null);
    const placeholders = onlyRead.map(({ key, id }) => placeholderOf(key, id, under.nowMs ?? 0));
    // What had a placeholder takes its row.
    const written = puts.map((put) => {
      const was = put.was ?? under.absent.get(keyText(put.row))?.placeholder ?? null;
      return was === put.was ? put : { ...put, was };
    });
    const write = this.#write(
      this.#markOf(batch),
      this.#namespace,
      written.concat(placeholders),
      ids.concat(onlyRead.map(({ id }) => id)),
      under.nowMs,
    );
    const calls = under.stage === "open" ? [write] : [BEGIN, this.#pinned.writing, write];
    const writtenAt = calls.length - 1;
    // What needed numbers will need as many again.
    if (missing > 0) calls.push(this.#rows.reserve(missing));
    calls.push(COMMIT);
    line.began();
    under.stage = "committing";
    const answers = await line.send(calls);
    line.ended();
    this.#checkCommitted(line, answers.at(-1));
    if (missing > 0) this.#keepSpare(numbersOf(answers.at(-2)));
    this.#sweepPlaceholders(placeholders.length);
    return { committed: true, nowMs: under.nowMs ?? Number(answers[writtenAt]?.rows[0]?.[2]), ids };
  }

  /** Placeholders are swept away by those who made them, some hundred at a time. */
  #sweepPlaceholders(count: number): void {
    this.#placeholders += count;
    if (this.#placeholders < SWEEP_EVERY) return;
    this.#placeholders = 0;
    // A sweep that fails is made up for by the next one.
    this.sweep(2 * SWEEP_EVERY).catch(() => {});
  }

  /** The number of each row: its own, the one that came with its absence, or a new one. */
  async #ids(
    line: Line,
    puts: readonly Put[],
    under: Underway,
  ): Promise<{ readonly ids: number[]; readonly missing: number }> {
    const ids = puts.map(({ was, row }) => was?.id ?? under.absent.get(keyText(row))?.id);
    const missing = ids.filter((id) => id === undefined).length;
    if (missing === 0) return { ids: ids as number[], missing };
    let fresh = this.#takeSpare(missing);
    if (fresh.length < missing) {
      const [answer] = await line.send([this.#rows.reserve(missing - fresh.length)]);
      fresh = fresh.concat(numbersOf(answer));
    }
    let taken = 0;
    return { ids: ids.map((id) => id ?? (fresh[taken++] as number)), missing };
  }

  /** Numbers that were reserved a moment ago; older ones would make new rows look old. */
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

  #checkCommitted(line: Line, answer: Answer | undefined): void {
    // A transaction that failed answers COMMIT too, with another word.
    if (answer?.tag !== "COMMIT")
      throw new StoreError("store_refused", "retry", "the server rolled the transaction back");
    if (line.isUnreplicated)
      throw new StoreError("outcome_unknown", "settle", "the commit did not wait for the synchronous standby");
  }

  /** Which rows are not what the batch took them for; all of them, if that cannot be seen any more. */
  async #moved(line: Line, puts: readonly Put[], under: Underway): Promise<readonly Key[]> {
    const keys = [...puts.map(({ row }) => row), ...absentKeys(under)];
    line.ended();
    const answers = await line.send([ROLLBACK, this.#pinned.reading, this.#rows.read(this.#namespace, keys)]);
    const rows = new Map(answers[2]?.rows.map((columns) => [Number(columns[0]) - 1, columns]));
    const moved = keys.filter((key, index) => {
      const was = puts[index]?.was ?? under.absent.get(keyText(key))?.placeholder ?? null;
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
      const value = await this.#lines.use(async (line) => {
        line.began();
        const [, pinned] = await line.send([BEGIN, this.#pinned.sharing]);
        this.#servers.answered(pinned);
        stage.at = "work";
        const value = await this.#bounded(line, work(...sharers(line, this.#sharedMs)));
        stage.at = "commit";
        const answers = await line.send([stillShared(), mark, COMMIT]);
        line.ended();
        this.#checkCommitted(line, answers.at(-1));
        return value;
      });
      this.#bell.tell();
      return value;
    } catch (error) {
      // What the work throws is its own.
      if (stage.at === "work") throw error;
      // A pooler handed the connection on before anything was done; from now on nothing is prepared.
      if (stage.at === "begin" && isServerError(error) && isUnprepared(error)) return this.share(batch, work);
      if (isAssertion(error, ENDED)) throw endedEarly();
      throw isAssertion(error, STALE) ? await this.#epochOver() : failure(error, stage.at === "commit");
    }
  }

  /** The work of a shared transaction must end in time, and ends with its connection. */
  #bounded<T>(line: Line, work: Promise<T>): Promise<T> {
    const limitMs = this.#sharedMs;
    return new Promise((resolve, reject) => {
      const cancel = this.#options.ports.clock.after(limitMs, () => {
        line.destroy();
        const message = `transact.sql was not done after ${limitMs} ms: its transaction was rolled back`;
        reject(new StoreError("store_busy", "fail", message));
      });
      line.whenLost(() => {
        const lost = failure(new LostLineError("the connection was lost, and nothing was committed"), false);
        reject(line.wasIdle ? new StoreError("store_busy", "fail", IDLE) : lost);
      });
      work.then(resolve, reject).finally(() => {
        cancel();
        line.whenLost(undefined);
      });
    });
  }

  /** Looks now and then whether somebody's transaction is over, and tells the others if it was committed. */
  async #hasEnded(xid: string): Promise<boolean> {
    const { clock } = this.#options.ports;
    this.#joined.add(xid);
    for (let waitMs = 2; waitMs < 20_000 && this.#joined.has(xid); waitMs *= 1.5) {
      await pause(clock, waitMs);
      const isCommitted = await this.#lookAfter(xid);
      if (isCommitted !== undefined) return isCommitted;
    }
    this.#joined.delete(xid);
    return false;
  }

  /** Whether it was committed; undefined while that is open. */
  async #lookAfter(xid: string): Promise<boolean | undefined> {
    const status = this.#call(XACT_STATUS, xid);
    const said = (await this.#reads.ask(status)).rows[0]?.[0];
    if (said === "in progress") return undefined;
    this.#joined.delete(xid);
    if (said !== "committed") return false;
    // It has no mark, so those who poll are told by one.
    await this.#run(this.#call(this.#marks.joined, this.#writer, this.#namespace));
    this.#bell.tell();
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
    return toRows(query.space, await this.#read(this.#looks.list(this.#namespace, query)));
  }

  async entries(key: Key, after: number, limit: number): Promise<readonly StoredEntry[]> {
    return toEntries(await this.#read(this.#looks.entries(this.#namespace, key, after, limit)));
  }

  async due(query: DueQuery): Promise<DuePage> {
    return toDuePage(await this.#read(this.#looks.due(this.#namespace, query)), query.limit);
  }

  async sweep(limit: number): Promise<number> {
    this.#check();
    try {
      const answer = await this.#run(this.#sweep(this.#namespace, limit));
      return Number(answer?.rows[0]?.[0]);
    } catch (error) {
      throw failure(error, false);
    }
  }

  watchRestarts(restarted: () => void): void {
    this.#restarted = restarted;
  }

  watch(changed: () => void): () => void {
    this.#check();
    return this.#bell.watch(changed);
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    // A last look at transactions of others that we had a part in.
    await Promise.allSettled([...this.#joined].map((xid) => this.#lookAfter(xid)));
    this.#joined.clear();
    await this.#bell.close();
    try {
      await this.#run(this.#call(this.#marks.forget, this.#writer));
    } catch {
      // Marks that are left behind are swept up later.
    }
    this.#lines.close();
    await this.#options.endPool?.();
  }

  /** One statement that writes, in a transaction begun as such: by default a session's transactions may be read-only. */
  #run(call: Call): Promise<Answer | undefined> {
    return this.#lines.use(async (line) => {
      line.began();
      const answers = await line.send([BEGIN, this.#pinned.writing, call, COMMIT]);
      line.ended();
      return answers[2];
    });
  }

  /** One statement in one snapshot. */
  #read(call: Call): Promise<Answer> {
    this.#check();
    return this.#reads.ask(call);
  }

  #check(): void {
    if (this.#closing !== undefined) throw new ClosedError();
  }
}

const XACT_STATUS = statement("select pg_xact_status($1::text::xid8)");

/** The user's own statements, and Pawl's after them: from then on the transaction may not be idle for long. */
function sharers(line: Line, sharedMs: number): [Sql, Executor] {
  let isTight = false;
  const sql: Sql = {
    async query<Row>(text: string, values: readonly unknown[] = []) {
      const { rows, rowCount } = await line.ask(text, values, sharedMs + ANSWER_MS);
      return { rows: rows as Row[], rowCount: rowCount ?? 0 };
    },
  };
  const executor: Executor = async (text, value) => {
    if (!isTight) await line.ask(TIGHTEN, [], ANSWER_MS);
    isTight = true;
    return (await line.ask(text, value === undefined ? [] : [value], sharedMs + ANSWER_MS)).rows;
  };
  return [sql, executor];
}

const absentKeys = ({ absent }: Underway): Key[] => Array.from(absent.values(), ({ key }) => key);

const numbersOf = (answer: Answer | undefined): readonly number[] => answer?.rows.map(([id]) => Number(id)) ?? [];

const NOTHING_FOUND: Found = { nowMs: null, fenceFloor: 0, rows: [] };

/** Where the columns of a locked row say that it was left unread. */
const LEFT_UNREAD = 1 + COLUMNS.split(", ").length;
const SWEEP_EVERY = 256;

const IDLE =
  "transact.sql was idle for more than two seconds after tx, and its transaction was rolled back: after tx, await nothing but tx";

/** Rows were not what the batch took them for. */
const isMoved = (error: unknown): boolean =>
  isAssertion(error, MOVED) || (isServerError(error) && error.code === "23505" && error.table === "record");

/** Another transaction kept a row, or a key that it is making, for longer than a batch waits. */
const isWaitedForInVain = (error: unknown): boolean => isServerError(error) && error.code === "55P03";
