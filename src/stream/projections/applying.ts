/**
 * Applying events to one generation of a projection. The rows that events make and the progress of the generation are one commit: in Pawl's records, or
 * in one transaction with SQL of the user's.
 *
 * An event that cannot be applied is recorded as the failure of the generation, with the events before it applied, and `Unapplied` is thrown.
 */

import type { Held } from "../../kernel/claim/claim.ts";
import type { Address, FollowedEntry, Row, Sql } from "../../kernel/contract.ts";
import type { Tx } from "../../kernel/decision.ts";
import type { Draft } from "../../kernel/draft.ts";
import { ClosedError, FencedError, PawlError, StoreError } from "../../kernel/errors.ts";
import type { Kernel } from "../../kernel/kernel.ts";
import { type Log, messageOf } from "../../kernel/log.ts";
import { plainly, runInSql } from "../../kernel/sql/in-sql.ts";
import { withFrames } from "../../kernel/stack.ts";
import type { StreamEvent } from "../event.ts";
import { isHeldBack } from "./decide.ts";
import type { ProjectionRules, RowRules, SqlRules } from "./definition.ts";
import { holdBack, swap } from "./generations.ts";
import { applyAll, keysOf, Rows } from "./rows.ts";
import { type GenerationValue, generationAt, type ProjectionValue, projectionAt, RETIRED } from "./stored.ts";

const MAX_MESSAGE = 2000;

/** How events move a generation on: from where, and to where after all of them, or after the first `done`. */
export interface Move {
  /** What the events were made of, one for each. */
  readonly entries: readonly FollowedEntry[];
  isAt(value: GenerationValue): boolean;
  after(value: GenerationValue, done: number | undefined): GenerationValue;
}

/** Thrown where an event cannot be applied, to end the following. */
export class Unapplied extends Error {}

/** Where an event is. */
type EventPlace = Pick<FollowedEntry, "key" | "version">;

/** Writes one generation, for the worker that holds it. */
export class GenerationWriter {
  readonly #kernel: Kernel;
  readonly #rules: ProjectionRules;
  readonly #held: Held;
  readonly #log: Log | undefined;
  #value: GenerationValue | undefined;
  /** It is not being built: readers see it, or it is given up. That does not change any more. */
  #isBuilt = false;

  constructor(kernel: Kernel, rules: ProjectionRules, held: Held, log: Log | undefined) {
    this.#kernel = kernel;
    this.#rules = rules;
    this.#held = held;
    this.#log = log;
  }

  /** It is known that it is not being built. */
  get isBuilt(): boolean {
    return this.#isBuilt;
  }

  /** Reads the generation. */
  async look(): Promise<GenerationValue> {
    this.#value = await this.#held.look((record) => record.value as GenerationValue);
    return this.#value;
  }

  /** The generation as it was last read. */
  async lastSeen(): Promise<GenerationValue> {
    return this.#value ?? (await this.look());
  }

  /** Makes the tables of a generation in SQL, once. */
  async setUp(): Promise<void> {
    const { isSetUp, generation } = await this.lastSeen();
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
    await this.look();
  }

  /** Applies events, and moves the generation on, in one commit. Returns false, with nothing written, if the generation is not where it was. */
  apply(events: readonly StreamEvent[], move: Move): Promise<boolean> {
    return this.#rules.is === "rows"
      ? this.#applyRows(this.#rules, events, move)
      : this.#applySql(this.#rules, events, move);
  }

  async #applyRows(rules: RowRules, events: readonly StreamEvent[], { entries, isAt, after }: Move): Promise<boolean> {
    const { generation } = await this.lastSeen();
    const keyed = events.map((event) => keysOf(this.#kernel.ports, rules, event, generation));
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
      return { isCommitted: true, failed, entry: failed === undefined ? undefined : entries[failed.index] };
    });
    // In a commit of its own: when the decision above runs again, the stack of what is thrown is another one.
    if (result.failed !== undefined && result.entry !== undefined)
      throw await this.failed(result.failed.error, result.entry);
    return result.isCommitted;
  }

  /** The user's rows and the cursor in one transaction. */
  async #applySql(rules: SqlRules, events: readonly StreamEvent[], { isAt, after }: Move): Promise<boolean> {
    const { generation } = await this.lastSeen();
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

  /**
   * Lets readers see a generation that is built and has caught up with the one that they see. Under load both get ahead, and it might never find the other one
   * where it is itself: once it is less than a page behind, the other one is held back. Returns whether readers see it.
   */
  async swap(cursor: number, isAtEnd: boolean): Promise<boolean> {
    if (this.#isBuilt) return false;
    const value = await this.lastSeen();
    const { building, live } = (await this.#read<ProjectionValue>(projectionAt(value.projection)))?.value ?? {};
    if (building !== value.generation) {
      this.#isBuilt = true;
      return false;
    }
    const seen =
      live === undefined ? undefined : await this.#read<GenerationValue>(generationAt(this.#rules.name, live));
    // The first one is seen when it has all events.
    const isBehind = seen === undefined ? !isAtEnd : seen.value.cursor > cursor;
    if (isBehind && !isAtEnd) return false;
    if (!isBehind && (await this.#swap(value, live, cursor))) return true;
    await this.#held.commit((record, tx) => holdBack(tx, record.value as GenerationValue, record.fence));
    return false;
  }

  async #swap(value: GenerationValue, live: number | undefined, cursor: number): Promise<boolean> {
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

  /** Whether this generation, which readers see, has to stay where it is for the one that is about to take its place. */
  async isHeldBack(): Promise<boolean> {
    const [value, nowMs] = await this.#held.look((record, tx) => [record.value as GenerationValue, tx.nowMs] as const);
    const { heldFor } = value;
    if (heldFor === undefined) return false;
    const builder = await this.#read<GenerationValue>(generationAt(value.projection, heldFor.generation));
    const { row } = builder ?? {};
    const known = row && {
      ...row,
      isHeld: row.holder !== null && row.kind !== RETIRED,
      hasFailed: builder?.value.failure !== undefined,
    };
    if (isHeldBack(heldFor, known, nowMs)) return true;
    await this.#held.commit((record) => {
      const { heldFor: found, ...rest } = record.value as GenerationValue;
      if (found?.fence === heldFor.fence && found.generation === heldFor.generation) record.write({ value: rest });
    });
    return false;
  }

  async #read<T>(at: Address): Promise<{ readonly row: Row; readonly value: T } | undefined> {
    const [row] = await this.#kernel.read([at]);
    return row == null || row.value === null ? undefined : { row, value: this.#kernel.decode(row, row.value) as T };
  }

  /** What an archive, or a key that is not there, throws is recorded as a failure. */
  async orUnapplied<T>(read: () => Promise<T>): Promise<T> {
    try {
      return await read();
    } catch (error) {
      if (isOfStore(error)) throw error;
      throw await this.failed(error);
    }
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
      throw await this.failed(error, placeOf(event));
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
      throw await this.failed(error, placeOf(event));
    }
  }

  /** Records that the generation does not get ahead, and where. Returns what to throw. */
  async failed(error: unknown, at: EventPlace = NO_EVENT): Promise<Unapplied> {
    await this.#held.commit((record, tx) => recordFailure(record, tx, at, error));
    return this.#unapplied(at, error);
  }

  #unapplied({ key, version }: EventPlace, error: unknown): Unapplied {
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
const NO_EVENT: EventPlace = { key: "", version: 0 };

const placeOf = (event: StreamEvent | undefined): EventPlace =>
  event === undefined ? NO_EVENT : { key: event.stream, version: event.version };

/** The decision found that something else had changed: the transaction is rolled back. */
class NotDecided extends Error {}

function recordFailure(record: Draft, tx: Tx, { key: stream, version }: EventPlace, error: unknown): void {
  const value = record.value as GenerationValue;
  const message = messageOf(error).slice(0, MAX_MESSAGE).toWellFormed();
  const code = error instanceof PawlError ? { code: error.code } : {};
  const failure = {
    count: (value.failure?.count ?? 0) + 1,
    message,
    ...withFrames(error),
    ...code,
    atMs: tx.nowMs,
    stream,
    version,
  };
  record.write({ value: { ...value, failure } satisfies GenerationValue });
}
