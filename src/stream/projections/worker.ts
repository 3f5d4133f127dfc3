/**
 * This process at work on projections: one worker at a time follows the events for each generation whose code it has.
 *
 * Each page of events is one commit: the rows that they make, and the cursor. An event that cannot be applied stops its generation, with the events
 * before it applied, and is tried again with a growing delay; other projections continue. A generation that has caught up and is being built is shown
 * to readers, in one commit.
 */

import { backoffMs } from "../../kernel/backoff.ts";
import type { WorkPart, WorkSettings } from "../../kernel/capability.ts";
import type { Held } from "../../kernel/claim/claim.ts";
import { startWorker, type Worker } from "../../kernel/claim/worker.ts";
import type { Address, FollowedEntry, FollowPage, Row, Sql } from "../../kernel/contract.ts";
import { refusePromise, type Tx } from "../../kernel/decision.ts";
import type { Draft } from "../../kernel/draft.ts";
import { deepFreeze } from "../../kernel/encoding.ts";
import { ClosedError, FencedError, InvalidArgumentError, StoreError } from "../../kernel/errors.ts";
import type { Kernel } from "../../kernel/kernel.ts";
import type { Lease } from "../../kernel/lease.ts";
import { type Log, messageOf } from "../../kernel/log.ts";
import { pause } from "../../kernel/ports.ts";
import { plainly, runInSql } from "../../kernel/sql/in-sql.ts";
import { canReadArchive } from "../closing/archive.ts";
import { archivedPage, checkNoneRemoved, isSameProgress, readRemovedUpTo } from "../closing/entries.ts";
import { EventGoneError, EventsArchivedError } from "../errors.ts";
import type { StreamEvent } from "../event.ts";
import { follow, type Place, restWhateverCame } from "../following.ts";
import { lostIn } from "../lost.ts";
import { toEvents } from "../reading.ts";
import type { ProjectionRules, RowRules, SqlRules } from "./definition.ts";
import { ensureGeneration, swap } from "./generations.ts";
import { type GenerationValue, generationQueueOf, projectionAt, rowAt } from "./stored.ts";

/** The lease is short, because readers wait for a whole projection when the process of its worker dies. */
const LEASE_MS = 5_000;
/** After an event that could not be applied. */
const FAILED = { firstMs: 1_000, longestMs: 60_000 };
const RETRY = { firstMs: 100, longestMs: 10_000 };
const MAX_MESSAGE = 2000;

export class ProjectionWorker implements WorkPart {
  readonly #kernel: Kernel;
  readonly #stopping = new AbortController();
  readonly #worker: Worker;
  readonly #failed: (error: unknown) => void;
  readonly #log: Log | undefined;

  constructor(
    kernel: Kernel,
    projections: readonly ProjectionRules[],
    { by, leaseMs, failed }: WorkSettings,
    log: Log | undefined,
  ) {
    this.#kernel = kernel;
    this.#log = log;
    this.#failed = (error) => {
      if (!(error instanceof FencedError)) failed(error);
    };
    const rules = new Map<string, ProjectionRules>();
    for (const one of projections) {
      if (rules.has(one.name))
        throw new InvalidArgumentError("what to work on", `must not have two projections named "${one.name}"`);
      rules.set(one.name, one);
    }
    this.#worker = startWorker(kernel, {
      by,
      failed: this.#failed,
      leaseMs: Math.min(leaseMs, LEASE_MS),
      kinds: Array.from(rules.values(), ({ name, by: code }) => generationQueueOf(name, code)),
      // Each is held all the time: the generation that readers see, and one that is built beside it.
      concurrency: 2 * rules.size,
      work: async (held, lease) => {
        const { projection } = await held.look((record) => record.value as GenerationValue);
        const found = rules.get(projection);
        if (found !== undefined) await new Builder(kernel, found, held, lease, this.#stopping.signal, log).work();
      },
    });
    for (const one of rules.values()) void this.#ensure(one);
  }

  async stop(timeoutMs: number | undefined): Promise<void> {
    this.#stopping.abort();
    await this.#worker.stop(timeoutMs);
  }

  /** Begins a generation of this code, where there is none, as soon as the store serves. */
  async #ensure(rules: ProjectionRules): Promise<void> {
    for (let failures = 1; !this.#stopping.signal.aborted; failures++)
      try {
        const isOurs = await this.#kernel.transact((tx) => ensureGeneration(tx, rules), [projectionAt(rules.name)]);
        if (!isOurs)
          this.#log?.warn(
            `projection "${rules.name}" was built by other code since the code here was last at work: it is left to workers that have that code. To go back to the code here, call rebuild`,
          );
        return;
      } catch (error) {
        if (error instanceof ClosedError) return;
        this.#failed(error);
        await pause(this.#kernel.ports.clock, backoffMs(RETRY, failures), this.#stopping.signal);
      }
  }
}

/** How events move a generation on: from where, and to where after all of them, or after the first `done`. */
interface Move {
  /** What the events were made of, one for each. */
  readonly entries: readonly FollowedEntry[];
  isAt(value: GenerationValue): boolean;
  after(value: GenerationValue, done: number | undefined): GenerationValue;
}

/** Thrown where an event cannot be applied, to end the following. */
class Unapplied extends Error {}

/** Work on one generation. */
class Builder {
  readonly #kernel: Kernel;
  readonly #rules: ProjectionRules;
  readonly #held: Held;
  readonly #lease: Lease;
  readonly #stopping: AbortSignal;
  readonly #log: Log | undefined;
  #value: GenerationValue | undefined;
  /** The highest position of removed events, when it was last found that none is lacking. */
  #checkedUpTo = 0;

  constructor(
    kernel: Kernel,
    rules: ProjectionRules,
    held: Held,
    lease: Lease,
    stopping: AbortSignal,
    log: Log | undefined,
  ) {
    this.#kernel = kernel;
    this.#rules = rules;
    this.#held = held;
    this.#lease = lease;
    this.#stopping = stopping;
    this.#log = log;
  }

  async work(): Promise<void> {
    const { types } = this.#rules;
    const { cursor, failure } = await this.#look();
    try {
      await this.#setUp();
      await this.#applyArchived();
      await this.#checkNoneRemoved(cursor);
      await follow(this.#kernel, this.#held, this.#lease, this.#stopping, {
        names: [...types.keys()],
        // One at a time after a failure, so that it is known which event failed.
        limit: failure === undefined ? undefined : 1,
        look: () => this.#place(),
        commit: (from, page) => this.#commit(from, page),
        caughtUp: (cursor) => this.#swap(cursor),
      });
    } catch (error) {
      if (!(error instanceof Unapplied)) throw error;
      // Also where the lease has ended because the user's SQL kept the file locked: otherwise it would be tried again at once.
      await this.#restAfterFailure();
      return;
    }
    if (!this.#lease.isOver) await restWhateverCame(this.#held, (tx) => tx.nowMs);
  }

  async #look(): Promise<GenerationValue> {
    this.#value = await this.#held.look((record) => record.value as GenerationValue);
    return this.#value;
  }

  #place(): Promise<Place> {
    return this.#held.look(({ value, wakes }) => ({
      cursor: (value as GenerationValue).cursor,
      isPaused: false,
      wakes,
    }));
  }

  async #restAfterFailure(): Promise<void> {
    const { failure } = await this.#look();
    const delayMs = Math.round(backoffMs(FAILED, failure?.count ?? 1, this.#kernel.ports.chance));
    await restWhateverCame(this.#held, (tx) => tx.nowMs + delayMs);
  }

  /** Applies a page of events. Throws `Unapplied`, with the events before it applied, where one cannot be. */
  async #commit(from: number, page: FollowPage): Promise<boolean> {
    await this.#checkNoneRemoved(from);
    const events: StreamEvent[] = [];
    const [lost] = await lostIn(this.#kernel, page);
    let unread: { readonly entry: Pick<FollowedEntry, "key" | "version">; readonly error: unknown } | undefined =
      lost === undefined ? undefined : { entry: lost, error: new EventGoneError(lost.key, lost.version) };
    // Keys of personal fields may have to be asked for, and not be there.
    const opened = await this.#orUnapplied(() => toEvents(this.#kernel, page.entries, this.#rules.types));
    for (const [index, entry] of page.entries.entries())
      try {
        if (lost !== undefined && entry.position > lost.position) break;
        const event = opened[index]?.();
        if (event !== undefined) events.push(event);
      } catch (error) {
        unread = { entry, error };
        break;
      }
    const upTo = unread === undefined ? page.upTo : (page.entries[events.length - 1]?.position ?? from);
    const isNone = events.length === 0 && unread !== undefined;
    const applied =
      isNone ||
      (await this.#apply(events, {
        entries: page.entries,
        isAt: ({ cursor }) => cursor === from,
        after: (value, done) => ({
          ...value,
          cursor: done === undefined ? upTo : (page.entries[done - 1]?.position ?? from),
        }),
      }));
    if (applied && unread !== undefined) {
      await this.#held.commit((record, tx) => recordFailure(record, tx, unread.entry, unread.error));
      throw this.#unapplied(unread.entry, unread.error);
    }
    return applied;
  }

  /** Events that are not in it yet, and were removed, would be missing without a word: it does not get ahead then. */
  async #checkNoneRemoved(after: number): Promise<void> {
    const names = [...this.#rules.types.keys()];
    const { archivedUpTo = 0 } = this.#value ?? (await this.#look());
    try {
      const place = { after: Math.max(after, archivedUpTo), names };
      this.#checkedUpTo = await checkNoneRemoved(this.#kernel, place, this.#checkedUpTo);
    } catch (error) {
      if (error instanceof EventsArchivedError) throw await this.#failed(undefined, error);
      throw error;
    }
  }

  /** A generation that begins reads events that were removed from the archive, stream by stream, before it follows the others. */
  async #applyArchived(): Promise<void> {
    const names = new Set(this.#rules.types.keys());
    const upTo = await readRemovedUpTo(this.#kernel);
    for (;;) {
      const value = await this.#look();
      const { cursor, archivedUpTo = 0, archived: from = { after: null } } = value;
      if (cursor > 0 || archivedUpTo >= upTo || !canReadArchive(this.#kernel) || this.#lease.isOver) return;
      const page = await this.#orUnapplied(() => archivedPage(this.#kernel, from, names));
      if (page === undefined) {
        await this.#held.commit((record) => {
          const { archived: _, ...rest } = record.value as GenerationValue;
          record.write({ value: { ...rest, archivedUpTo: upTo } satisfies GenerationValue, tries: 1 });
        });
        continue;
      }
      const { entries, next } = page;
      const opened = await this.#orUnapplied(() => toEvents(this.#kernel, entries, this.#rules.types));
      const events = await this.#orUnapplied(async () => opened.flatMap((open) => open() ?? []));
      const known = entries.filter(({ name }) => names.has(name));
      await this.#apply(events, {
        entries: known,
        isAt: (now) => now.cursor === 0 && isSameProgress(now.archived ?? { after: null }, from),
        after: (now, done) => {
          const failed = done === undefined ? undefined : known[done];
          const archived =
            failed === undefined ? next : { after: from.after, stream: failed.key, version: failed.version - 1 };
          return { ...now, archived };
        },
      });
    }
  }

  /** What an archive, or a key that is not there, throws is recorded as a failure. */
  async #orUnapplied<T>(read: () => Promise<T>): Promise<T> {
    try {
      return await read();
    } catch (error) {
      if (isOfStore(error)) throw error;
      throw await this.#failed(undefined, error);
    }
  }

  /** Applies events, and moves the generation on, in one commit. Returns false, with nothing written, if the generation is not where it was. */
  #apply(events: readonly StreamEvent[], move: Move): Promise<boolean> {
    return this.#rules.is === "rows"
      ? this.#applyRows(this.#rules, events, move)
      : this.#applySql(this.#rules, events, move);
  }

  async #applyRows(rules: RowRules, events: readonly StreamEvent[], { entries, isAt, after }: Move): Promise<boolean> {
    const { generation } = this.#value ?? (await this.#look());
    const keyed = events.map((event) => keysOf(rules, event, generation));
    const result = await this.#orFailed(events[0], (record, tx) => {
      const value = record.value as GenerationValue;
      if (!isAt(value)) return { isCommitted: false };
      const rows = new Rows(
        tx,
        keyed.flatMap((one) => ("keys" in one ? one.keys : [])),
      );
      const failed = applyAll(rules, rows, events, keyed);
      rows.write();
      const { failure: _, ...rest } = value;
      const isAhead = failed === undefined || failed.index > 0;
      // A generation that gets ahead is not what ends its processes.
      record.write({ value: after(isAhead ? rest : value, failed?.index), tries: 1 });
      const entry = failed === undefined ? undefined : entries[failed.index];
      if (failed !== undefined && entry !== undefined) recordFailure(record, tx, entry, failed.error);
      return { isCommitted: true, failed, entry };
    });
    if (result.failed !== undefined && result.entry !== undefined)
      throw this.#unapplied(result.entry, result.failed.error);
    return result.isCommitted;
  }

  /** The user's rows and the cursor in one transaction. */
  async #applySql(rules: SqlRules, events: readonly StreamEvent[], { isAt, after }: Move): Promise<boolean> {
    const { generation } = this.#value ?? (await this.#look());
    const [first] = events;
    return this.#inSql(
      first,
      async (sql) => {
        if (events.length > 0) await rules.apply(events, sql, { generation });
      },
      (record) => {
        const { failure: _, ...value } = record.value as GenerationValue;
        if (!isAt(value)) return false;
        record.write({ value: after(value, undefined), tries: 1 });
        return true;
      },
    );
  }

  /** Makes the tables of a generation in SQL, once. */
  async #setUp(): Promise<void> {
    const { isSetUp, generation } = this.#value ?? (await this.#look());
    const rules = this.#rules;
    if (rules.is !== "sql" || rules.setUp === undefined || isSetUp === true) return;
    await this.#inSql(
      undefined,
      async (sql) => {
        await rules.setUp?.(sql, { generation });
      },
      (record) => {
        record.write({ value: { ...(record.value as GenerationValue), isSetUp: true } satisfies GenerationValue });
        return true;
      },
    );
    await this.#look();
  }

  /** Lets readers see a generation that is built and has caught up. */
  async #swap(cursor: number): Promise<boolean> {
    const value = this.#value ?? (await this.#look());
    const [row] = await this.#kernel.read([projectionAt(value.projection)]);
    const { building, live } = (row == null || row.value === null ? {} : this.#kernel.decode(row, row.value)) as {
      building?: number;
      live?: number;
    };
    if (building !== value.generation) return false;
    const decide = (record: Draft, tx: Tx): boolean => {
      const { failure: _, ...stored } = record.value as GenerationValue;
      // Events of others may have passed since it was stored; nothing of this projection has.
      if (swap(tx, stored, Math.max(cursor, stored.cursor)) === undefined) return false;
      record.write({ value: { ...stored, cursor: Math.max(cursor, stored.cursor) } });
      return true;
    };
    const rules = this.#rules;
    if (rules.is !== "sql" || rules.swap === undefined) return this.#held.commit(decide);
    const { generation } = value;
    return this.#inSql(
      undefined,
      async (sql) => {
        await rules.swap?.(sql, { generation, previous: live ?? null });
      },
      (record, tx) => {
        // Another generation became the one that readers see since it was read: what the user's function did is rolled back.
        const now = tx.record(projectionAt(value.projection)).value as { live?: number } | undefined;
        return now?.live === live && decide(record, tx);
      },
    );
  }

  /** Runs SQL of the user's, and then a decision on the record, in one transaction. It is rolled back if the decision returns false. */
  async #inSql(
    event: StreamEvent | undefined,
    work: (sql: Sql) => Promise<void>,
    decide: (record: Draft, tx: Tx) => boolean,
  ): Promise<boolean> {
    let written: Row | undefined;
    let isWorking = false;
    try {
      await this.#kernel.share((sql, join) =>
        runInSql(sql, join, plainly, async (sql, commit) => {
          isWorking = true;
          await work(sql);
          isWorking = false;
          const isDecided = await commit((tx) => {
            const record = this.#held.record(tx);
            const isDecided = decide(record, tx);
            written = record.row ?? undefined;
            return isDecided;
          });
          if (!isDecided) throw new NotDecided();
        }),
      );
    } catch (error) {
      if (error instanceof NotDecided) return false;
      // A function of the user's that took too long, or ended the transaction, and not a store that does not serve.
      const isRefused = isWorking && error instanceof StoreError && error.data.remedy === "fail";
      if (isOfStore(error) && !isRefused) throw error;
      throw await this.#failed(event, error);
    }
    if (written !== undefined) this.#kernel.hold(this.#held.at, written);
    return true;
  }

  /** Commits a decision on the record. What it throws, as for a row that cannot be stored, is recorded as the failure of this event. */
  async #orFailed<T>(event: StreamEvent | undefined, decide: (record: Draft, tx: Tx) => T): Promise<T> {
    try {
      return await this.#held.commit(decide);
    } catch (error) {
      if (isOfStore(error)) throw error;
      throw await this.#failed(event, error);
    }
  }

  async #failed(event: StreamEvent | undefined, error: unknown): Promise<Unapplied> {
    const at = event === undefined ? NO_EVENT : { key: event.stream, version: event.version };
    await this.#held.commit((record, tx) => recordFailure(record, tx, at, error));
    return this.#unapplied(at, error);
  }

  #unapplied({ key, version }: Pick<FollowedEntry, "key" | "version">, error: unknown): Unapplied {
    const where = version === 0 ? "" : ` at event ${version} of stream "${key}"`;
    const message = `projection "${this.#rules.name}" does not get ahead${where}: ${messageOf(error)}`;
    this.#log?.error(message);
    return new Unapplied(message);
  }
}

/** Of the store, or of another worker, and not of the user's function. */
const isOfStore = (error: unknown): boolean =>
  error instanceof FencedError || error instanceof ClosedError || error instanceof StoreError;

/** For a failure before the first event. */
const NO_EVENT = { key: "", version: 0 };

/** The decision found that something else had changed: the transaction is rolled back. */
class NotDecided extends Error {}

function recordFailure(
  record: Draft,
  tx: Tx,
  { key: stream, version }: Pick<FollowedEntry, "key" | "version">,
  error: unknown,
): void {
  const value = record.value as GenerationValue;
  const message = messageOf(error).slice(0, MAX_MESSAGE).toWellFormed();
  const failure = { count: (value.failure?.count ?? 0) + 1, message, atMs: tx.nowMs, stream, version };
  record.write({ value: { ...value, failure } satisfies GenerationValue });
}

type Keyed = { readonly keys: readonly { readonly key: string; readonly at: Address }[] } | { readonly error: unknown };

/** The rows that an event changes. */
function keysOf({ name, key }: RowRules, event: StreamEvent, generation: number): Keyed {
  try {
    const found = key(event);
    refusePromise(found);
    const all: readonly unknown[] = found === undefined ? [] : Array.isArray(found) ? found : [found];
    // Checked as every id is, so that a promise or a number is reported.
    return { keys: all.map((one) => ({ key: one as string, at: rowAt(name, generation, one as string) })) };
  } catch (error) {
    return { error };
  }
}

/** Applies events in order. Returns the first that cannot be applied; what it did to rows is undone. */
function applyAll(
  { apply }: RowRules,
  rows: Rows,
  events: readonly StreamEvent[],
  keyed: readonly Keyed[],
): { readonly index: number; readonly error: unknown } | undefined {
  for (const [index, event] of events.entries())
    try {
      const found = keyed[index];
      if (found === undefined) continue;
      if ("error" in found) throw found.error;
      for (const { key, at } of found.keys) {
        const after = apply(rows.get(at), event, key);
        refusePromise(after);
        rows.set(at, after);
      }
      rows.keep();
    } catch (error) {
      rows.undo();
      return { index, error };
    }
  return undefined;
}

/** The rows that a page of events changes: each is written once, with what the last of them made of it. */
class Rows {
  readonly #tx: Tx;
  readonly #kept = new Map<string, { readonly at: Address; readonly value: unknown }>();
  /** What the event that is being applied did. */
  readonly #changed = new Map<string, { readonly at: Address; readonly value: unknown }>();

  constructor(tx: Tx, all: readonly { readonly at: Address }[]) {
    this.#tx = tx;
    const distinct = new Map(all.map(({ at }) => [at.text, at]));
    tx.load([...distinct.values()]);
  }

  get(at: Address): unknown {
    const found = this.#changed.get(at.text) ?? this.#kept.get(at.text);
    return found === undefined ? this.#tx.record(at).value : found.value;
  }

  /** A row that cannot be stored is the failure of its event, also if a later event would replace it. */
  set(at: Address, value: unknown): void {
    if (value !== undefined) this.#tx.record(at).encode(value);
    deepFreeze(value);
    this.#changed.set(at.text, { at, value });
  }

  keep(): void {
    for (const [text, change] of this.#changed) this.#kept.set(text, change);
    this.#changed.clear();
  }

  undo(): void {
    this.#changed.clear();
  }

  write(): void {
    for (const { at, value } of this.#kept.values()) {
      const record = this.#tx.record(at);
      if (value !== undefined) record.write({ value });
      else if (record.exists) record.remove();
    }
  }
}
