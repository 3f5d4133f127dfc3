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
import { valueIn } from "./runs.ts";
import { momentOf, sent, shown } from "./shapes.ts";
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
    const body = { ...sent(options), events: events.map(wireOf) };
    return (await this.#transport.call({ method: "POST", path: path("streams", this.id, "events"), body })) as Appended;
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
    const direction = options.backwards === true ? "backwards" : "forwards";
    for (let from: string | number | null | undefined = options.from; from !== null; ) {
      const request = { method: "GET", path: path("streams", this.id, "events") } as const;
      const json = await this.#transport.call({ ...request, query: { from, direction, limit: PAGE } });
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
  async *follow({ from, events, abortSignal }: ClientFollowOptions = {}): AsyncGenerator<StreamEvent> {
    const request = { path: path("streams", this.id, "events"), query: { from } };
    for await (const { data } of follow(this.#transport, request, abortSignal)) {
      const event = shown<StreamEvent>(data, ["data"]);
      if (isOf(event, events)) yield event;
    }
  }

  /** The version of the last event; 0 if there is none. */
  async head(): Promise<number> {
    const json = await this.#transport.call({ method: "GET", path: path("streams", this.id) });
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
    const query = queryOf(options);
    for (let after = options.after; ; ) {
      const request = { method: "GET", path: path("events"), query: { ...query, after, limit: PAGE } } as const;
      const page = eventsIn<FollowedEvent>(await this.#transport.call(request));
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
    const query = { ...queryOf(options), after: options.after };
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

const queryOf = ({ correlationId, since, until }: ClientReadEventsOptions): Record<string, unknown> => ({
  correlationId,
  ...(since === undefined ? {} : { since: momentOf(since) }),
  ...(until === undefined ? {} : { until: momentOf(until) }),
});
