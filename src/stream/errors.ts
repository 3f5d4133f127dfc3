/**
 * Errors of streams and aggregates. When one is thrown, nothing was appended, unless its description says so.
 */

import { PawlError } from "../kernel/errors.ts";

/** The stream is not at the version that the caller expected: read what came in between (after `data.expectedVersion`), decide again, and retry. */
export class ConcurrencyError extends PawlError<
  "concurrency_conflict",
  { readonly stream: string; readonly expectedVersion: number; readonly version: number }
> {
  constructor(stream: string, expectedVersion: number, version: number) {
    super(
      "concurrency_conflict",
      `stream "${stream}" is at version ${version}, not at ${expectedVersion}: read the events in between, and decide again`,
      { stream, expectedVersion, version },
    );
  }
}

/** The command refused: an invariant would be broken. `data.reason` and `data.details` are what the command gave to `refuse`. */
export class CommandRefusedError extends PawlError<
  "command_refused",
  {
    readonly aggregate: string;
    readonly stream: string;
    readonly command: string;
    readonly reason: string;
    readonly details: unknown;
  }
> {
  constructor(aggregate: string, stream: string, command: string, reason: string, details: unknown) {
    super("command_refused", `command "${command}" of ${aggregate} "${stream}" was refused: ${reason}`, {
      aggregate,
      stream,
      command,
      reason,
      details,
    });
  }
}

/**
 * The stored state of an aggregate lacks events of its stream, which a decision cannot read. `pawl.transact` reads them and decides again; in
 * `transact.sql` and `within`, call `pawl.aggregate(…).state()` before.
 */
export class FoldBehindError extends PawlError<
  "fold_behind",
  { readonly aggregate: string; readonly stream: string; readonly version: number; readonly head: number }
> {
  constructor(aggregate: string, stream: string, version: number, head: number) {
    super(
      "fold_behind",
      `the state of ${aggregate} "${stream}" has ${version} of ${head} events: call pawl.aggregate(…).state() before the transaction`,
      { aggregate, stream, version, head },
    );
  }
}

/** An event has a shape that the code does not know: a newer release wrote it. Deploy the code with this shape first. */
export class EventShapeError extends PawlError<
  "event_shape_unknown",
  { readonly event: string; readonly shape: number; readonly known: number }
> {
  constructor(event: string, shape: number, known: number) {
    super("event_shape_unknown", `event "${event}" has shape ${shape}, and this code knows shapes up to ${known}`, {
      event,
      shape,
      known,
    });
  }
}

/** The cursor is ahead of the store, which was put back in time: what was read after `data.upTo` may be gone. Read again from there. */
export class CursorAheadError extends PawlError<"cursor_ahead", { readonly cursor: string; readonly upTo: string }> {
  constructor(cursor: string, upTo: string) {
    super("cursor_ahead", `the cursor ${cursor} is ahead of the store, which is at ${upTo}: it was put back in time`, {
      cursor,
      upTo,
    });
  }
}

/** There is no reaction of this name in the store: no worker has ever known it. */
export class ReactionNotFoundError extends PawlError<"reaction_not_found", { readonly reaction: string }> {
  constructor(reaction: string) {
    super("reaction_not_found", `there is no reaction "${reaction}": give it to pawl.work first`, { reaction });
  }
}

/** The reaction has no such target: no event was routed to it yet. */
export class TargetNotFoundError extends PawlError<
  "target_not_found",
  { readonly reaction: string; readonly target: string }
> {
  constructor(reaction: string, target: string) {
    super("target_not_found", `reaction "${reaction}" has no target "${target}"`, { reaction, target });
  }
}

/** There is no such dead letter: it was sent again already, or never was one. `pawl.reactions.deadLetters` lists those that there are. */
export class DeadLetterNotFoundError extends PawlError<
  "dead_letter_not_found",
  { readonly reaction: string; readonly stream: string; readonly version: number }
> {
  constructor(reaction: string, stream: string, version: number) {
    super(
      "dead_letter_not_found",
      `reaction "${reaction}" has no dead letter of event ${version} of stream "${stream}": it was sent again already, or never was one`,
      { reaction, stream, version },
    );
  }
}

/** There is no projection of this name in the store: no worker has begun it yet, or it was deleted, and no worker was started with it since. */
export class ProjectionNotFoundError extends PawlError<"projection_not_found", { readonly projection: string }> {
  constructor(projection: string) {
    super(
      "projection_not_found",
      `there is no projection "${projection}": no worker has begun it, or it was deleted; a worker that is started with it (pawl.work) builds it`,
      { projection },
    );
  }
}

/** The projection is built for the first time and has not caught up: reading a part of it would be wrong. Try again later. */
export class ProjectionBuildingError extends PawlError<"projection_building", { readonly projection: string }> {
  constructor(projection: string) {
    super(
      "projection_building",
      `projection "${projection}" is being built for the first time: read it when it has caught up`,
      { projection },
    );
  }
}

/**
 * The projection did not get to the event within `timeout`. It may be there later. `data.reason` says what keeps it, if that is known: no worker, or an event that
 * cannot be applied; so does `status`.
 */
export class ProjectionTimeoutError extends PawlError<
  "projection_timeout",
  {
    readonly projection: string;
    readonly stream: string;
    readonly version: number;
    readonly timeoutMs: number;
    readonly reason: string | null;
  }
> {
  constructor(projection: string, stream: string, version: number, timeoutMs: number, reason: string | null) {
    super(
      "projection_timeout",
      `projection "${projection}" did not get to event ${version} of stream "${stream}" within ${timeoutMs} ms${reason === null ? "" : `: ${reason}`}`,
      { projection, stream, version, timeoutMs, reason },
    );
  }
}

/** `emit` or `commit` was called after the attempt was over, or after `commit`. It has no effect; emit before `commit`, and await both. */
export class ReactionOverError extends PawlError<
  "reaction_over",
  { readonly reaction: string; readonly verb: string }
> {
  constructor(reaction: string, verb: string) {
    super(
      "reaction_over",
      `${verb} was called in reaction "${reaction}" after commit or defer, or after the attempt was over: it has no effect`,
      { reaction, verb },
    );
  }
}

/** The handler took longer than `timeout`. It is tried again like any failure. */
export class ReactionTimeoutError extends PawlError<
  "reaction_timeout",
  { readonly reaction: string; readonly timeoutMs: number }
> {
  constructor(reaction: string, timeoutMs: number) {
    super("reaction_timeout", `the handler of reaction "${reaction}" took longer than ${timeoutMs} ms`, {
      reaction,
      timeoutMs,
    });
  }
}

/** The store has lost an event: it is not in its stream any more, and was not removed by Pawl. Restore the stream; a target that needs the event can skip it. */
export class EventGoneError extends PawlError<"event_gone", { readonly stream: string; readonly version: number }> {
  constructor(stream: string, version: number) {
    super("event_gone", `event ${version} of stream "${stream}" is not there any more`, { stream, version });
  }
}

/** The stream is closed: it takes no more events and commands. Append to another stream, or restart it with `pawl.streams.close(…, { restart })`. */
export class StreamClosedError extends PawlError<
  "stream_closed",
  { readonly stream: string; readonly version: number }
> {
  constructor(stream: string, version: number) {
    super("stream_closed", `stream "${stream}" was closed with version ${version}: it takes no more events`, {
      stream,
      version,
    });
  }
}

/** There is no such stream to close or prune: it has no events. */
export class StreamNotFoundError extends PawlError<"stream_not_found", { readonly stream: string }> {
  constructor(stream: string) {
    super("stream_not_found", `there is no stream "${stream}": it has no events`, { stream });
  }
}

/** A reaction, and how many events of a stream it has not handled. */
export interface EventsLeft {
  readonly reaction: string;
  readonly events: number;
}

/** A projection, and how many events of a stream it lacks. */
export interface EventsLacking {
  readonly projection: string;
  readonly events: number;
}

/**
 * Reactions or projections have not handled all events that are to be removed. Wait for them, unblock or skip what is blocked, or close with `force`, which leaves
 * what they need to the archive. The stream is as it was; only where `data.isClosed` is true, it has its tombstone already: repeat the call, which
 * does the rest.
 */
export class StreamInUseError extends PawlError<
  "stream_in_use",
  {
    readonly stream: string;
    readonly reactions: readonly EventsLeft[];
    readonly projections: readonly EventsLacking[];
    readonly isClosed: boolean;
  }
> {
  constructor(
    stream: string,
    reactions: readonly EventsLeft[],
    projections: readonly EventsLacking[],
    isClosed: boolean,
  ) {
    const list = [
      ...reactions.map(({ reaction, events }) => `reaction "${reaction}" (${events})`),
      ...projections.map(({ projection, events }) => `projection "${projection}" (${events})`),
    ];
    const state = isClosed
      ? ". The stream is closed already, and keeps them: call close again, which does the rest"
      : "";
    super("stream_in_use", `events of stream "${stream}" are still needed: ${list.join(", ")}${state}`, {
      stream,
      reactions,
      projections,
      isClosed,
    });
  }
}

/**
 * Events that are needed were removed from the store, and this handle cannot read them: open it with the `archive` that has them (one with `read`), or
 * begin with what is kept, from `data.firstVersion` on.
 */
export class EventsArchivedError extends PawlError<
  "events_archived",
  { readonly stream: string; readonly firstVersion: number; readonly wanted: number }
> {
  constructor(stream: string, firstVersion: number, wanted: number) {
    super(
      "events_archived",
      `event ${wanted} of stream "${stream}" was removed from the store, which keeps ${firstVersion} and later: open with an archive that can read it`,
      { stream, firstVersion, wanted },
    );
  }
}

/** The archive did not store what it was given, so nothing was removed. Repair it, and call again. */
export class ArchiveIncompleteError extends PawlError<
  "archive_incomplete",
  { readonly stream: string; readonly events: number; readonly stored: number }
> {
  constructor(stream: string, events: number, stored: number, reason: string) {
    super("archive_incomplete", `the archive did not store the ${events} events of stream "${stream}": ${reason}`, {
      stream,
      events,
      stored,
    });
  }
}

/** What an archive or an export has of a stream was changed or is damaged. Restore it from a copy. */
export class ArchiveDamagedError extends PawlError<
  "archive_damaged",
  { readonly where: string; readonly line: number; readonly reason: string }
> {
  constructor(where: string, line: number, reason: string) {
    super("archive_damaged", `${where} is damaged at line ${line}: ${reason}`, { where, line, reason });
  }
}

/** The stream to import exists, with other events. Import into another namespace, or leave it out. */
export class StreamExistsError extends PawlError<
  "stream_exists",
  { readonly stream: string; readonly version: number }
> {
  constructor(stream: string, version: number) {
    super("stream_exists", `stream "${stream}" exists, and its event ${version} is not the one to import`, {
      stream,
      version,
    });
  }
}
