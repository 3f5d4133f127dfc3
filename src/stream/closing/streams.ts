/**
 * Closing the books of streams: `pawl.streams`.
 *
 * `close` ends a stream: it writes a tombstone, archives the events, removes them from the store, and may restart the stream with an opening event.
 * `prune` removes events behind a folded state while the stream stays open. Both are a few commits, each of which says in the stream's value how far it
 * got; a call that was interrupted is repeated with the same arguments, and does the rest.
 *
 * Guarantees: no event follows a tombstone until the restart, also in a race (the check is under the record's lock). Nothing is removed before the archive
 * has stored it, and is said to be removed before it is. Versions continue after a restart.
 * Out of scope: what an archive does with its events later.
 */

import {
  checkBoolean,
  checkDate,
  checkId,
  checkObject,
  checkOptions,
  checkPrefix,
  checkText,
  checkVersion,
  optionNames,
} from "../../kernel/check.ts";
import type { Address, StoredEntry } from "../../kernel/contract.ts";
import type { Tx } from "../../kernel/decision.ts";
import { InvalidArgumentError } from "../../kernel/errors.ts";
import { fingerprintOf } from "../../kernel/fingerprint.ts";
import type { Kernel } from "../../kernel/kernel.ts";
import { NO_ORIGIN, type Origin } from "../../kernel/origin.ts";
import { pause } from "../../kernel/ports.ts";
import { checkEvents } from "../decide.ts";
import {
  ConcurrencyError,
  EventGoneError,
  StreamClosedError,
  StreamInUseError,
  StreamNotFoundError,
} from "../errors.ts";
import type { NewEvent } from "../event.ts";
import { SubjectForgottenError } from "../personal/errors.ts";
import { listPolicies, removePolicy, type StreamPolicyInfo } from "../policies/status.ts";
import { putAside } from "../reactions/routing.ts";
import { deadAt, reactionAt } from "../reactions/stored.ts";
import { toEntries, writeEntries } from "../records.ts";
import {
  CLOSED_EVENT,
  firstVersionOf,
  REMOVED,
  type RemovedValue,
  type StoredEvent,
  type StreamValue,
  statusOf,
  streamAt,
} from "../stored.ts";
import { type Archive, archiveFor, archiveOf, canReadArchive, writeToArchive } from "./archive.ts";
import {
  type CloseRequest,
  decideClose,
  decidePrune,
  type Removal,
  type StreamState,
  withRemoved,
  withTombstone,
} from "./decide.ts";
import { PAGE, readFirstVersion, readStreamValue, versionAt } from "./entries.ts";
import { checkPath } from "./lines.ts";
import { checkNotNeeded, type EventAt, routersOf, unrouted } from "./needs.ts";
import { type Exported, type ExportTarget, exportStreams, type Imported, importStreams } from "./transfer.ts";

export interface CloseOptions {
  /** The version of the last event, or of the tombstone where it is closed already. Default: any; the stream is closed after the last one. */
  readonly expectedVersion?: number | undefined;
  /** Where the events go. Default: the archive of the handle (`open({ archive })`). */
  readonly archive?: Archive | undefined;
  /** The events are not archived: they are lost. Default: false. */
  readonly discard?: boolean | undefined;
  /**
   * An opening event, with which the stream is open again. Default: it stays closed. Folded states and rows of projections do not begin anew: the event is
   * applied to what they are, so its reducer must replace the state (`(_, { balance }) => ({ balance })`). One that adds to it, as that of a
   * deposit would, makes 600 of a balance of 300.
   */
  readonly restart?: NewEvent | undefined;
  /** Who closes it, and why: both are kept with the tombstone. Default of the actor: that of the handle (`pawl.with`). */
  readonly actor?: string | undefined;
  readonly reason?: string | undefined;
  /** Closes although reactions need its events: those that were not routed become dead letters, others are read from the archive. Default: false. */
  readonly force?: boolean | undefined;
}

export interface ClosedStream {
  /** The version of the tombstone. */
  readonly version: number;
  /** How many events were archived. */
  readonly archived: number;
  /** The version of the opening event, if the stream was restarted. */
  readonly restartedAt?: number;
}

export interface PruneOptions {
  /** The first version to keep, or the time of the oldest event to keep. */
  readonly before: number | Date;
  /** Where the events go. Default: the archive of the handle (`open({ archive })`). */
  readonly archive?: Archive | undefined;
  /** The events are not archived, and no state need have them: they are lost. Default: false. */
  readonly discard?: boolean | undefined;
}

export interface PrunedStream {
  /** The first version that the store keeps. */
  readonly firstVersion: number;
  /** How many events this call archived. */
  readonly archived: number;
}

const CLOSE_OPTIONS = optionNames<CloseOptions>({
  expectedVersion: true,
  archive: true,
  discard: true,
  restart: true,
  actor: true,
  reason: true,
  force: true,
});
export interface ImportOptions {
  /** Checks and counts, and appends nothing. Default: false. */
  readonly dryRun?: boolean | undefined;
}

const IMPORT_OPTIONS = optionNames<ImportOptions>({ dryRun: true });
const EXPORT_WHICH = optionNames<{ prefix: string }>({ prefix: true });
const PRUNE_OPTIONS = optionNames<PruneOptions>({ before: true, archive: true, discard: true });

/**
 * How often a closing begins again because events were appended before the tombstone. After that the tombstone is written wherever the stream ends, and
 * reactions may have to handle the last events before they are removed.
 */
const MOST_ROUNDS = 5;
/** How many events are removed in one step. */
const STEP = 1000;

/** What the commits of a closing write. */
interface Closing extends CloseRequest {
  readonly archive: Archive | undefined;
  readonly opening: NewEvent | undefined;
  /** Of the tombstone and of the opening event. */
  readonly origin: Origin;
  readonly reason: string | undefined;
  readonly isForced: boolean;
}

/** What says that events may be removed. */
interface Marked {
  readonly value: StreamValue;
  readonly removedUpTo: number;
}

export class Streams {
  readonly #kernel: Kernel;
  readonly #origin: Origin;

  /** @internal */
  constructor(kernel: Kernel, origin: Origin = NO_ORIGIN) {
    this.#kernel = kernel;
    this.#origin = origin;
  }

  /**
   * Closes a stream: from then on it takes no events and commands, its events are in the archive, and the store keeps a tombstone. With `restart`, it is
   * open again, and begins with that event. Repeat the call after a failure: it continues where it stopped. Throws `stream_in_use` while reactions
   * need its events, `stream_not_found`, `concurrency_conflict`, `archive_incomplete`, what the archive throws, and, before anything is written, what an
   * append of the opening event would throw. A stream that is closed when it throws (`data.isClosed`) is left to the next call: see `stream_in_use` and
   * `subject_forgotten`.
   */
  async close(stream: string, options: CloseOptions = {}): Promise<ClosedStream> {
    const at = streamAt(stream);
    const closing = this.#closing(options);
    let isRehearsed = false;
    for (let round = 1, tombstone: number | undefined; ; ) {
      const state = await readStreamValue(this.#kernel, at);
      const step = decideClose(state, { ...closing, tombstone });
      if (!isRehearsed && closing.opening !== undefined && (step.is === "close" || step.is === "archive")) {
        await orStaysClosed(state, at, () => this.#rehearse(at, closing.opening as NewEvent, closing));
        isRehearsed = true;
      }
      switch (step.is) {
        case "missing":
          throw new StreamNotFoundError(at.key);
        case "conflict":
          throw new ConcurrencyError(at.key, closing.expectedVersion ?? tombstone ?? 0, state?.head ?? 0);
        case "close": {
          const head = state?.head ?? 0;
          if (!closing.isForced) await checkNotNeeded(this.#kernel, at, head);
          const isAnywhere = closing.expectedVersion === undefined && round > MOST_ROUNDS;
          tombstone = await this.#writeTombstone(at, isAnywhere ? undefined : head, closing);
          round += 1;
          break;
        }
        case "archive":
          tombstone = step.version;
          await this.#archive(at, step, closing);
          break;
        case "remove": {
          const { version, archived } = step;
          tombstone = version;
          await this.#remove(at, version - 1);
          if (closing.opening === undefined) return { version, archived };
          await orStaysClosed(state, at, () => this.#restart(at, version, closing.opening as NewEvent, closing));
          break;
        }
        case "restarted": {
          const { version, archived, restartedAt } = step;
          return { version, archived, restartedAt };
        }
      }
    }
  }

  /**
   * Archives and removes the events before a version, or a time, of a stream that stays open. A state of an aggregate must have them, unless they are
   * discarded. Repeat the call after a failure: it continues where it stopped. Throws `stream_in_use` while reactions need them, `stream_not_found`,
   * `stream_closed`, `archive_incomplete`, and what the archive throws.
   */
  async prune(stream: string, options: PruneOptions): Promise<PrunedStream> {
    const at = streamAt(stream);
    checkObject(options, "the options");
    checkOptions(options, PRUNE_OPTIONS);
    const archive = archiveFor(this.#kernel, options);
    const isDiscarded = archive === undefined;
    const before =
      typeof options.before === "number"
        ? checkVersion(options.before, "before")
        : await versionAt(this.#kernel, at, checkDate(options.before, "before"));
    const request = { before: Math.max(1, before), isDiscarded };
    let archived = 0;
    for (;;) {
      const state = await readStreamValue(this.#kernel, at);
      const step = decidePrune(state, request);
      switch (step.is) {
        case "missing":
          throw new StreamNotFoundError(at.key);
        case "closed":
          throw new StreamClosedError(at.key, state?.head ?? 0);
        case "beyond":
          throw new InvalidArgumentError(
            "before",
            `must be at most ${step.most}: the last event of stream "${at.key}" stays`,
          );
        case "unfolded":
          throw new InvalidArgumentError(
            "before",
            `must be at most ${step.most}: no aggregate has a stored state of stream "${at.key}" with later events. Run a command of one, which may emit nothing, or give discard: true`,
          );
        case "archive": {
          const { to } = step;
          await checkNotNeeded(this.#kernel, at, to);
          const passed = await this.#pass(at, step, archive);
          if (passed === undefined) break;
          await checkNotNeeded(this.#kernel, at, to);
          const isMarked = await this.#mark(at, (now) =>
            decidePrune(now, request).is === "archive"
              ? { value: withRemoved(now.value, to + 1, passed), removedUpTo: passed.position }
              : undefined,
          );
          if (isMarked) ({ archived } = passed);
          break;
        }
        case "remove": {
          const firstVersion = firstVersionOf(state?.value ?? {});
          await this.#remove(at, firstVersion - 1);
          return { firstVersion, archived };
        }
      }
    }
  }

  /**
   * Writes the events of a stream, or of all streams whose ids begin with `prefix`, as JSON Lines, to a file, which appears when it is complete, or to a
   * stream of Node, which is not ended. Data is written as plain JSON, also where the codec of the handle encrypts. Throws `events_archived`.
   */
  async export(which: string | { readonly prefix: string }, to: string | ExportTarget): Promise<Exported> {
    if (typeof which === "string") checkId(which, "the stream's id");
    else {
      checkObject(which, "which streams");
      checkOptions(which, EXPORT_WHICH, "which streams");
      checkPrefix(which.prefix, "the prefix");
    }
    if (typeof to === "string") checkPath(to, "the path");
    else if (typeof to !== "object" || to === null || typeof to.write !== "function")
      throw new InvalidArgumentError("where to export", "must be a path, or a stream that can be written to");
    return exportStreams(this.#kernel, which, to);
  }

  /**
   * Appends the events of an export, with their ids, versions, times and origins: from a file, or from its content in pieces. To reactions they are new
   * events. An import that was interrupted can be repeated. Throws `stream_exists` where a stream has other events, and `archive_damaged`.
   */
  async import(from: string | AsyncIterable<string | Uint8Array>, options: ImportOptions = {}): Promise<Imported> {
    checkOptions(options, IMPORT_OPTIONS);
    const { dryRun = false } = options;
    if (typeof from === "string") checkPath(from, "the path");
    else if (typeof from !== "object" || from === null || typeof from[Symbol.asyncIterator] !== "function")
      throw new InvalidArgumentError("what to import", "must be a path, or the content of a file in pieces");
    return importStreams(this.#kernel, from, checkBoolean(dryRun, "dryRun"));
  }

  /** What policies have done, in the order of their names: all that a worker has ever known. */
  policies(): Promise<readonly StreamPolicyInfo[]> {
    return listPolicies(this.#kernel);
  }

  /**
   * Removes what is stored of a policy that no code has any more; streams stay as they are. A worker that has its code and begins later makes it new.
   * Returns whether there was one.
   */
  removePolicy(policy: string): Promise<boolean> {
    return removePolicy(this.#kernel, policy);
  }

  #closing(options: CloseOptions): Closing {
    checkOptions(options, CLOSE_OPTIONS);
    const { expectedVersion, restart, actor, reason, force = false } = options;
    if (expectedVersion !== undefined) checkVersion(expectedVersion, "expectedVersion");
    const [opening] = restart === undefined ? [] : checkEvents([restart]);
    return {
      expectedVersion,
      archive: archiveFor(this.#kernel, options),
      opening,
      restart: opening === undefined ? undefined : fingerprintOf([opening.name, opening.shape, opening.data]),
      origin: actor === undefined ? this.#origin : { ...this.#origin, actor: checkId(actor, "the actor") },
      reason: reason === undefined ? undefined : checkText(reason, "the reason"),
      isForced: checkBoolean(force, "force"),
    };
  }

  /** Returns the version of the tombstone; undefined, with nothing written, if the stream has moved on since it was looked at. */
  #writeTombstone(at: Address, head: number | undefined, closing: Closing): Promise<number | undefined> {
    const { origin, reason } = closing;
    const { actor, correlationId, causationId } = origin;
    return this.#kernel.transact(
      (tx) => {
        const record = tx.record(at);
        const value = record.value as StreamValue | undefined;
        if (value === undefined || value.closed !== undefined || record.head !== (head ?? record.head))
          return undefined;
        const tombstone: StoredEvent = {
          id: tx.uuid(),
          data: reason === undefined ? {} : { reason },
          ...(actor === undefined ? {} : { actor }),
          ...(correlationId === undefined ? {} : { correlation: correlationId }),
          ...(causationId === undefined ? {} : { causation: causationId }),
        };
        const version = record.append(CLOSED_EVENT, tombstone, { isFollowed: true });
        const closed = withTombstone(value, version);
        record.write({ value: closed, status: statusOf(closed) });
        return version;
      },
      [at],
    );
  }

  async #archive(
    at: Address,
    range: { readonly version: number; readonly from: number; readonly to: number },
    closing: Closing,
  ): Promise<void> {
    const { version, to } = range;
    const passed = await this.#pass(at, range, closing.archive);
    // Another call has archived and removed them meanwhile.
    if (passed === undefined) return;
    if (closing.isForced) await this.#putAside(at, to, closing);
    else await this.#untilNotNeeded(at, to, closing);
    const { archived, position } = passed;
    await this.#mark(at, ({ value }) => {
      const { closed } = value;
      if (closed?.version !== version || closed.archived !== undefined) return undefined;
      return {
        value: { ...withRemoved(value, version, passed), closed: { ...closed, archived } },
        removedUpTo: position,
      };
    });
  }

  /**
   * Archiving may have taken long: a reaction may have been reset or have begun since, or a projection is built again. The stream is closed by now, so this does
   * not refuse, but waits for them. A projection that is being built reads the events from the archive, where it can. Throws `stream_in_use` with
   * `isClosed` where they do not come to an end.
   */
  async #untilNotNeeded(at: Address, upTo: number, { archive }: Closing): Promise<void> {
    const { clock } = this.#kernel.ports;
    const giveUpAtMs = clock.nowMs() + this.#kernel.patienceMs;
    const isReadable = archive !== undefined && archive === archiveOf(this.#kernel) && canReadArchive(this.#kernel);
    for (let waitMs = 10; ; waitMs = Math.min(2 * waitMs, 1_000))
      try {
        return await checkNotNeeded(this.#kernel, at, upTo, { isClosed: true, areBuilt: !isReadable });
      } catch (error) {
        if (!(error instanceof StreamInUseError) || clock.nowMs() >= giveUpAtMs) throw error;
        await pause(clock, waitMs);
      }
  }

  /** Passes events to the archive, if there is one. Returns undefined if others have removed them meanwhile. */
  async #pass(
    at: Address,
    range: { readonly from: number; readonly to: number },
    archive: Archive | undefined,
  ): Promise<(Removal & { readonly archived: number }) | undefined> {
    const source = new StoreSource(this.#kernel, at, range);
    try {
      let archived = 0;
      if (archive !== undefined) archived = await writeToArchive(archive, at.key, range, source.read());
      else for await (const _ of source.read());
      return { archived, names: source.names, position: source.position };
    } catch (error) {
      if (source.isRemoved) return undefined;
      throw error;
    }
  }

  /** Events that reactions have not routed become dead letters, so that none is left out silently. */
  async #putAside(at: Address, upTo: number, { origin: { actor }, reason }: Closing): Promise<void> {
    const why = {
      message: "its stream was closed by force before it was routed",
      ...(actor === undefined ? {} : { actor }),
      ...(reason === undefined ? {} : { reason }),
    };
    let page: { readonly reaction: string; readonly event: EventAt }[] = [];
    const write = async (): Promise<void> => {
      const byReaction = Map.groupBy(page, ({ reaction }) => reaction);
      const records = [
        ...Array.from(byReaction.keys(), reactionAt),
        ...page.map(({ reaction, event }) => deadAt(reaction, at.key, event.version)),
      ];
      await this.#kernel.transact((tx) => {
        for (const [reaction, found] of byReaction) {
          const events = found.map(({ event }) => event);
          putAside(tx, reaction, at.key, events, why);
        }
      }, records);
      page = [];
    };
    for await (const found of unrouted(this.#kernel, at, upTo, await routersOf(this.#kernel))) {
      page.push(found);
      if (page.length === PAGE) await write();
    }
    if (page.length > 0) await write();
  }

  async #remove(at: Address, upTo: number): Promise<void> {
    while ((await this.#kernel.prune(at, upTo, STEP)) > 0);
  }

  /** Throws what the restart would throw, while the stream has all of its events: too large a value, a person who was forgotten, keys that are missing. */
  async #rehearse(at: Address, opening: NewEvent, { origin }: Closing): Promise<void> {
    const rehearsed = new Error("nothing is written");
    const decide = (tx: Tx): never => {
      toEntries(tx, tx.record(at), [opening], origin);
      throw rehearsed;
    };
    try {
      await this.#kernel.mending(() => this.#kernel.transact(decide, [at]));
    } catch (error) {
      if (error !== rehearsed) throw error;
    }
  }

  async #restart(at: Address, tombstone: number, opening: NewEvent, { restart, origin }: Closing): Promise<void> {
    const reopen = (tx: Tx): void => {
      const record = tx.record(at);
      const { closed, ...value } = (record.value ?? {}) as StreamValue;
      if (closed?.version !== tombstone) return;
      const { version, archived = 0 } = closed;
      const restarted = { version, archived, at: record.head + 1, hash: restart ?? "" };
      const open: StreamValue = { ...value, restarted };
      record.write({ value: open, status: statusOf(open) });
      writeEntries(record, toEntries(tx, record, [opening], origin));
    };
    await this.#kernel.mending(() => this.#kernel.transact(reopen, [at]));
  }

  /** Says that events of a stream may be removed, under its lock. Returns whether that was said. */
  #mark(at: Address, change: (state: StreamState) => Marked | undefined): Promise<boolean> {
    return this.#kernel.transact(
      (tx) => {
        const record = tx.record(at);
        if (!record.exists) return false;
        const changed = change({ head: record.head, value: record.value as StreamValue });
        if (changed === undefined) return false;
        const { removedUpTo, value } = changed;
        const all = tx.record(REMOVED);
        const { upTo = 0 } = (all.value ?? {}) as Partial<RemovedValue>;
        all.write({ value: { upTo: Math.max(removedUpTo, upTo) } satisfies RemovedValue });
        record.write({ value: { ...value, removedAt: all.version }, status: statusOf(value) });
        return true;
      },
      [at, REMOVED],
    );
  }
}

/** A person may be forgotten while the events are archived: then the opening event is refused, and the stream is closed already. */
async function orStaysClosed(state: StreamState | undefined, at: Address, act: () => Promise<void>): Promise<void> {
  try {
    await act();
  } catch (error) {
    if (!(error instanceof SubjectForgottenError) || state?.value.closed === undefined) throw error;
    throw new SubjectForgottenError(error.data.subject, at.key);
  }
}

/** The events to archive, as the store has them. */
class StoreSource {
  readonly #kernel: Kernel;
  readonly #at: Address;
  readonly #from: number;
  readonly #to: number;
  readonly names = new Set<string>();
  /** That of the last one. */
  position = 0;
  /** Another call has removed them while they were read. */
  isRemoved = false;

  constructor(kernel: Kernel, at: Address, { from, to }: { readonly from: number; readonly to: number }) {
    this.#kernel = kernel;
    this.#at = at;
    this.#from = from;
    this.#to = to;
  }

  async *read(): AsyncGenerator<StoredEntry> {
    for (let next = this.#from; next <= this.#to; ) {
      const { entries: page } = await this.#kernel.entryPage(this.#at, next - 1, Math.min(PAGE, this.#to - next + 1));
      if (page.length === 0 || page[0]?.version !== next) {
        this.isRemoved = (await readFirstVersion(this.#kernel, this.#at)) > next;
        throw new EventGoneError(this.#at.key, next);
      }
      for (const entry of page) {
        if (entry.version !== next) throw new EventGoneError(this.#at.key, next);
        next += 1;
        this.names.add(entry.name);
        this.position = entry.position;
        yield entry;
      }
    }
  }
}
