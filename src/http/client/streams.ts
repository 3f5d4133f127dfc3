/**
 * Event streams over HTTP: appended and read, and followed as they grow.
 *
 * Definitions of events are used for their types and names. Events are read in the shape in which they are stored: conversions of older shapes are code, and that is not
 * here.
 */

import type { AnyEventType, NewEvent, StreamEvent } from "../../stream/event.ts";
import type { DataOf, FollowedEvent } from "../../stream/reading.ts";
import type { Appended } from "../../stream/records.ts";
import type { AppendOptions, TryAppend } from "../../stream/stream.ts";
import { invalidArgument, isPawlError } from "./errors.ts";
import { ABORTED, moment, plain, type Sendings, sent, types } from "./options.ts";
import { valueIn } from "./runs.ts";
import { shown } from "./shapes.ts";
import { follow } from "./sse.ts";
import { path, type Transport } from "./transport.ts";

/** An event to append: what an event type makes, or a name and data. */
export type ClientEvent = NewEvent | { readonly name: string; readonly data?: unknown };

export interface ClientReadOptions<Types extends readonly AnyEventType[] = readonly AnyEventType[]> {
  /** The first version. Default: 1, or the last one where it is read backwards. */
  readonly from?: number | undefined;
  /** From newer to older. Default: false. */
  readonly backwards?: boolean | undefined;
  /** Only events of these types. Default: all. */
  readonly events?: Types | undefined;
}

export interface ClientFollowOptions<Types extends readonly AnyEventType[] = readonly AnyEventType[]> {
  /** The first version. Default: 1. */
  readonly from?: number | undefined;
  /** Only events of these types. Default: all. */
  readonly events?: Types | undefined;
  readonly abortSignal?: AbortSignal | undefined;
}

export interface ClientReadEventsOptions<Types extends readonly AnyEventType[] = readonly AnyEventType[]> {
  /** Continues after the event with this `cursor`. Default: the beginning. */
  readonly after?: string | undefined;
  /** Only events of these types. Default: all. */
  readonly events?: Types | undefined;
  readonly correlationId?: string | undefined;
  /** Only events that were committed at this time or later. */
  readonly since?: Date | number | undefined;
  /** Only events that were committed before this time. */
  readonly until?: Date | number | undefined;
}

const PAGE = 500;

/** The actor is the key of the client. */
const APPEND: Sendings<Omit<AppendOptions, "actor">> = {
  expectedVersion: plain,
  correlationId: plain,
  causationId: plain,
};
const READ: Sendings<ClientReadOptions> = { from: plain, backwards: plain, events: types };
const FOLLOW: Sendings<ClientFollowOptions> = { from: plain, events: types, ...ABORTED };
const READ_ALL: Sendings<ClientReadEventsOptions> = {
  after: plain,
  events: types,
  correlationId: plain,
  since: moment,
  until: moment,
};
const FOLLOW_ALL = { ...READ_ALL, ...ABORTED };

/** One stream. */
export class ClientStream {
  readonly id: string;
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport, id: string) {
    this.id = id;
    this.#transport = transport;
  }

  /** Appends events, all or none. Throws `concurrency_conflict` if the stream is not at `expectedVersion`, and `stream_closed`. */
  async append(events: readonly ClientEvent[], options: Omit<AppendOptions, "actor"> = {}): Promise<Appended> {
    if (!Array.isArray(events)) throw invalidArgument("the events", "must be an array");
    const body = { ...sent(options, APPEND), events: events.map(wireOf) };
    return (await this.#transport.post(path("streams", this.id, "events"), body)) as Appended;
  }

  /** Appends events, or returns that the stream is at another version or closed. */
  async tryAppend(events: readonly ClientEvent[], options?: Omit<AppendOptions, "actor">): Promise<TryAppend> {
    try {
      return { ok: true, ...(await this.append(events, options)) };
    } catch (error) {
      for (const code of ["concurrency_conflict", "stream_closed"] as const)
        if (isPawlError(error, code)) return { ok: false, code, version: error.data.version };
      throw error;
    }
  }

  /** Reads the events in order, or backwards, up to what is there. */
  read<const Types extends readonly AnyEventType[]>(
    options: ClientReadOptions<Types> & { readonly events: Types },
  ): AsyncGenerator<StreamEvent<DataOf<Types>>>;
  read(options?: ClientReadOptions): AsyncGenerator<StreamEvent>;
  async *read(options: ClientReadOptions = {}): AsyncGenerator<StreamEvent> {
    sent(options, READ);
    const direction = options.backwards === true ? "backwards" : "forwards";
    for (let from: string | number | null | undefined = options.from; from !== null; ) {
      const query = { from, direction, limit: PAGE };
      const json = await this.#transport.get(path("streams", this.id, "events"), query);
      const page = eventsIn<StreamEvent>(json);
      for (const event of page.items) if (isOf(event, options.events)) yield event;
      from = page.next;
    }
  }

  /** Reads the events in order, then each as it is appended. Ends when it is aborted. */
  follow<const Types extends readonly AnyEventType[]>(
    options: ClientFollowOptions<Types> & { readonly events: Types },
  ): AsyncGenerator<StreamEvent<DataOf<Types>>>;
  follow(options?: ClientFollowOptions): AsyncGenerator<StreamEvent>;
  async *follow(options: ClientFollowOptions = {}): AsyncGenerator<StreamEvent> {
    const request = { path: path("streams", this.id, "events"), query: sent(options, FOLLOW) };
    const { events, abortSignal } = options;
    for await (const { data } of follow(this.#transport, request, abortSignal)) {
      const event = shown<StreamEvent>(data, ["data"]);
      if (isOf(event, events)) yield event;
    }
  }

  /** The version of the last event; 0 if there is none. */
  async head(): Promise<number> {
    const json = await this.#transport.get(path("streams", this.id));
    return (json as { readonly version: number }).version;
  }
}

/** The events of all streams. */
export class ClientEvents {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Reads the events of all streams in one order, up to what is there; `cursor` of each is where to continue after it. */
  read<const Types extends readonly AnyEventType[]>(
    options: ClientReadEventsOptions<Types> & { readonly events: Types },
  ): AsyncGenerator<FollowedEvent<DataOf<Types>>>;
  read(options?: ClientReadEventsOptions): AsyncGenerator<FollowedEvent>;
  async *read(options: ClientReadEventsOptions = {}): AsyncGenerator<FollowedEvent> {
    const query = sent(options, READ_ALL);
    for (let after = options.after; ; ) {
      const json = await this.#transport.get(path("events"), { ...query, after, limit: PAGE });
      const page = eventsIn<FollowedEvent>(json);
      for (const event of page.items) if (isOf(event, options.events)) yield event;
      if (page.items.length === 0 || page.next === null) return;
      after = page.next;
    }
  }

  /** The same, then each event as it is appended. Ends when it is aborted. */
  follow<const Types extends readonly AnyEventType[]>(
    options: ClientReadEventsOptions<Types> & {
      readonly events: Types;
      readonly abortSignal?: AbortSignal | undefined;
    },
  ): AsyncGenerator<FollowedEvent<DataOf<Types>>>;
  follow(
    options?: ClientReadEventsOptions & { readonly abortSignal?: AbortSignal | undefined },
  ): AsyncGenerator<FollowedEvent>;
  async *follow(
    options: ClientReadEventsOptions & { readonly abortSignal?: AbortSignal | undefined } = {},
  ): AsyncGenerator<FollowedEvent> {
    const query = sent(options, FOLLOW_ALL);
    for await (const { data, id } of follow(this.#transport, { path: path("events"), query }, options.abortSignal)) {
      const event = { cursor: id ?? "", ...shown<StreamEvent>(data, ["data"]) };
      if (isOf(event, options.events)) yield event;
    }
  }
}

function wireOf(event: ClientEvent): unknown {
  const { name, data } = event;
  const { shape = 1, personal } = event as { readonly shape?: number; readonly personal?: unknown };
  // The server would store the fields in the clear, and the data as if it were of the first shape.
  if (personal !== undefined)
    throw invalidArgument(`the event "${name}"`, "must have no personal fields: append it where the definition is");
  if (shape !== 1)
    throw invalidArgument(`the event "${name}"`, "must be of shape 1: append it where the definition is");
  return { name, ...valueIn("data", data) };
}

const eventsIn = <E>(json: unknown): { readonly items: readonly E[]; readonly next: string | null } =>
  shown(json, ["data"]);

const isOf = ({ name }: StreamEvent, types: readonly AnyEventType[] | undefined): boolean =>
  types === undefined || types.some((type) => type.name === name);
