/**
 * Closing the books of streams: `pawl.streams`.
 *
 * `close` ends a stream: it writes a tombstone, archives the events, removes them from the store, and may restart the stream with an opening event
 * (`close.ts`). `prune` removes events behind a folded state while the stream stays open (`prune.ts`). Both are a few commits, each of which says in the
 * stream's value how far it got; a call that was interrupted is repeated with the same arguments, and does the rest. Each method here checks its arguments.
 *
 * Guarantees: nothing is removed before the archive has stored it, and is said to be removed before it is (`removing.ts`).
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
import { InvalidArgumentError } from "../../kernel/errors.ts";
import { fingerprintOf } from "../../kernel/fingerprint.ts";
import type { Kernel } from "../../kernel/kernel.ts";
import { NO_ORIGIN, type Origin } from "../../kernel/origin.ts";
import { checkEvents } from "../decide.ts";
import type { NewEvent } from "../event.ts";
import { listPolicies, removePolicy, type StreamPolicyInfo } from "../policies/status.ts";
import { streamAt } from "../stored.ts";
import { type Archive, archiveFor } from "./archive.ts";
import { type ClosedStream, type Closing, closeStream } from "./close.ts";
import { versionAt } from "./entries.ts";
import { checkPath } from "./lines.ts";
import { type PrunedStream, pruneStream } from "./prune.ts";
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

export interface PruneOptions {
  /** The first version to keep, or the time of the oldest event to keep. */
  readonly before: number | Date;
  /** Where the events go. Default: the archive of the handle (`open({ archive })`). */
  readonly archive?: Archive | undefined;
  /** The events are not archived, and no state need have them: they are lost. Default: false. */
  readonly discard?: boolean | undefined;
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

export interface ExportOptions {
  /**
   * "kept": of streams whose older events were removed and cannot be read here, only those that are kept are written, and `partial` names the streams.
   * Default: all events; where that cannot be, `events_archived` is thrown.
   */
  readonly from?: "kept" | undefined;
}

export interface ImportOptions {
  /** Checks and counts, and appends nothing. Default: false. */
  readonly dryRun?: boolean | undefined;
}

const IMPORT_OPTIONS = optionNames<ImportOptions>({ dryRun: true });
const EXPORT_OPTIONS = optionNames<ExportOptions>({ from: true });
const EXPORT_WHICH = optionNames<{ prefix: string }>({ prefix: true });
const PRUNE_OPTIONS = optionNames<PruneOptions>({ before: true, archive: true, discard: true });

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
    return closeStream(this.#kernel, streamAt(stream), this.#closing(options));
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
    const before =
      typeof options.before === "number"
        ? checkVersion(options.before, "before")
        : await versionAt(this.#kernel, at, checkDate(options.before, "before"));
    return pruneStream(this.#kernel, at, before, archive);
  }

  /**
   * Writes the events of a stream, or of all streams whose ids begin with `prefix`, as JSON Lines, to a file, which appears when it is complete, or to a
   * stream of Node, which is not ended. Data is written as plain JSON, also where the codec of the handle encrypts. Throws `events_archived`
   where events were removed and this handle cannot read them, unless it is to write those that are kept.
   */
  async export(
    which: string | { readonly prefix: string },
    to: string | ExportTarget,
    options: ExportOptions = {},
  ): Promise<Exported> {
    if (typeof which === "string") checkId(which, "the stream's id");
    else {
      checkObject(which, "which streams");
      checkOptions(which, EXPORT_WHICH, "which streams");
      checkPrefix(which.prefix, "the prefix");
    }
    if (typeof to === "string") checkPath(to, "the path");
    else if (typeof to !== "object" || to === null || typeof to.write !== "function")
      throw new InvalidArgumentError("where to export", "must be a path, or a stream that can be written to");
    checkOptions(options, EXPORT_OPTIONS);
    if (options.from !== undefined && options.from !== "kept") throw new InvalidArgumentError("from", 'must be "kept"');
    return exportStreams(this.#kernel, which, to, options.from === "kept");
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
}
