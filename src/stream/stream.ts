/**
 * Event streams: what happened to one thing, in order, and appended only.
 *
 * A stream is one record, and its events are the record's log. An append is a decision under the record's lock: of two that expect the same
 * version, one succeeds (G11), also where the stream does not exist yet, which is version 0. Appends of many callers share a commit.
 *
 * Guarantees: versions have no gaps; one success for each `expectedVersion` (G11); all streams are read in one order that no later commit
 * changes (G12).
 * Out of scope: what follows from an event. Start a run in the same `transact`, or define a reaction.
 */

import { checkList, checkOptions, checkVersion, optionNames } from "../kernel/check.ts";
import type { Tx } from "../kernel/decision.ts";
import { InvalidArgumentError } from "../kernel/errors.ts";
import type { Kernel } from "../kernel/kernel.ts";
import { checkOrigin, NO_ORIGIN, type Origin } from "../kernel/origin.ts";
import { checkEvents, MOST_EVENTS } from "./decide.ts";
import { ConcurrencyError, StreamClosedError } from "./errors.ts";
import type { AnyEventType, NewEvent, StreamEvent } from "./event.ts";
import { type DataOf, type ReadStreamOptions, readStream } from "./reading.ts";
import { type Appended, type AppendRequest, append } from "./records.ts";
import { streamAt } from "./stored.ts";

export interface AppendOptions extends Origin {
  /** The version that the stream must have: 0 if it must not exist yet. Default: any; the events are appended at the end. */
  readonly expectedVersion?: number | undefined;
}

export type TryAppend =
  | ({ readonly ok: true } & Appended)
  | { readonly ok: false; readonly code: "concurrency_conflict" | "stream_closed"; readonly version: number };

const APPEND_OPTIONS = optionNames<AppendOptions>({
  expectedVersion: true,
  actor: true,
  correlationId: true,
  causationId: true,
});

/** One stream. */
export class Stream {
  readonly id: string;
  readonly #kernel: Kernel;
  readonly #origin: Origin;

  /** @internal */
  constructor(kernel: Kernel, id: string, origin: Origin = NO_ORIGIN) {
    this.id = streamAt(id).key;
    this.#kernel = kernel;
    this.#origin = origin;
  }

  /** Appends events, all or none. Throws `concurrency_conflict` if the stream is not at `expectedVersion`, and `stream_closed`. */
  async append(events: readonly NewEvent[], options?: AppendOptions): Promise<Appended> {
    const request = this.#request(events, options);
    return this.#kernel.mending(() => this.#kernel.transact((tx) => append(tx, request), [streamAt(this.id)]));
  }

  /** Appends events, or returns that the stream is at another version or closed. */
  async tryAppend(events: readonly NewEvent[], options?: AppendOptions): Promise<TryAppend> {
    const request = this.#request(events, options);
    return this.#kernel.mending(() => this.#kernel.transact((tx) => tryAppend(tx, request), [streamAt(this.id)]));
  }

  /**
   * Reads the events in order, or backwards, in pages. With `events`, only events of those types are read, with their data in its newest shape
   * and with its type.
   */
  read<const Types extends readonly AnyEventType[]>(
    options: ReadStreamOptions<Types> & { readonly events: Types },
  ): AsyncGenerator<StreamEvent<DataOf<Types>>>;
  read(options?: ReadStreamOptions): AsyncGenerator<StreamEvent>;
  read(options?: ReadStreamOptions): AsyncGenerator<StreamEvent> {
    return readStream(this.#kernel, this.id, options);
  }

  #request(events: readonly NewEvent[], options: AppendOptions | undefined): AppendRequest {
    return { ...this.#origin, ...appendRequest(this.id, events, options) };
  }

  /** The version of the last event; 0 if there is none. */
  async head(): Promise<number> {
    const [row] = await this.#kernel.read([streamAt(this.id)]);
    return row?.head ?? 0;
  }
}

/** One stream inside `transact`. */
export class TxStream {
  readonly #tx: Tx;
  readonly #id: string;

  /** @internal */
  constructor(tx: Tx, id: string) {
    this.#tx = tx;
    this.#id = streamAt(id).key;
  }

  /** Appends events, if this commit happens. Throws `concurrency_conflict` if the stream is not at `expectedVersion`, and `stream_closed`. */
  append(events: readonly NewEvent[], options?: AppendOptions): Appended {
    return append(this.#tx, appendRequest(this.#id, events, options));
  }

  /** Appends events, if this commit happens, or returns that the stream is at another version or closed. */
  tryAppend(events: readonly NewEvent[], options?: AppendOptions): TryAppend {
    return tryAppend(this.#tx, appendRequest(this.#id, events, options));
  }

  /** The version of the last event; 0 if there is none. */
  get head(): number {
    return this.#tx.record(streamAt(this.#id)).head;
  }
}

export function tryAppend(tx: Tx, request: AppendRequest): TryAppend {
  try {
    return { ok: true, ...append(tx, request) };
  } catch (error) {
    if (!(error instanceof ConcurrencyError) && !(error instanceof StreamClosedError)) throw error;
    return { ok: false, code: error.code, version: error.data.version };
  }
}

export function appendRequest(stream: string, events: readonly NewEvent[], options: AppendOptions = {}): AppendRequest {
  checkList(events, "the events");
  checkOptions(options, APPEND_OPTIONS);
  if (events.length > MOST_EVENTS) throw new InvalidArgumentError("the events", `must be at most ${MOST_EVENTS}`);
  const { expectedVersion } = options;
  if (expectedVersion !== undefined) checkVersion(expectedVersion, "expectedVersion");
  // Copied: the caller's list may change before the decision runs.
  return { stream, events: [...checkEvents(events)], expectedVersion, ...checkOrigin(options) };
}
