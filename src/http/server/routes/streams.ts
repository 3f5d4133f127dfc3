/**
 * Streams of events: `pawl.stream`, `pawl.events`.
 *
 * A page of events and a live view of them have the same address: with `Accept: text/event-stream` the response continues as events are appended.
 */

import { z } from "@hono/zod-openapi";
import { CursorAheadError } from "../../../stream/errors.ts";
import type { StreamEvent } from "../../../stream/event.ts";
import { event } from "../../../stream/event.ts";
import type { FollowedEvent, ReadStreamOptions } from "../../../stream/reading.ts";
import { streamAt } from "../../../stream/stored.ts";
import { isAt, looks } from "../changes.ts";
import type { Cursors } from "../cursors.ts";
import { etagOf, expectedBy, isKnown, matching } from "../etag.ts";
import { kernelOf, type ServedVerbs } from "../handle.ts";
import { idSchema } from "../ids.ts";
import { given, pageOf, pageQuery, takePage } from "../pages.ts";
import { Problem, refuse } from "../problem.ts";
import { add, type Routing } from "../route.ts";
import { anyValue, count, list, moment, time, version } from "../schemas.ts";
import { type Feed, lastEventId, sendEvents, wantsEvents } from "../sse.ts";
import { fromWire, toWire } from "../values.ts";

const TAG = "streams";
const id = idSchema("The id of the stream.", "account-42");
const params = { id };

const fields = {
  stream: z.string(),
  version,
  id: z.string(),
  name: z.string(),
  data: anyValue.optional(),
  shape: z.number().int(),
  at: time,
  actor: z.string().optional(),
  correlationId: z.string().optional(),
  causationId: z.string().optional(),
};
const Event = z.object(fields).openapi("Event");
const EventPage = pageOf(Event).extend({
  next: z.string().nullable().openapi({ description: "The `from` of the next page; null at the end." }),
});
const Followed = z.object({ ...fields, cursor: z.string() }).openapi("FollowedEvent");

const show = <E extends StreamEvent>(one: E) => ({ ...one, data: toWire(one.data) });

function limitOf(limit = 100): number {
  if (limit < 1 || limit > 1000) throw refuse("invalid_request", "limit must be from 1 to 1000.");
  return limit;
}

export function streams(routing: Routing): void {
  add(routing, {
    method: "get",
    path: "/v1/streams/{id}",
    tag: TAG,
    operation: "getStream",
    summary: "Gets the version of a stream: that of its last event",
    scope: "read",
    params,
    headers: ["If-None-Match"],
    returns: {
      200: z
        .object({ id: z.string(), version: version.openapi({ description: "0 if there is no event." }) })
        .openapi("Stream"),
      304: null,
    },
    refuses: ["invalid_id"],
    handle: async ({ pawl, params, header }) => {
      const head = await pawl.stream(params.id).head();
      const headers = { etag: etagOf(head) };
      if (isKnown(header("if-none-match"), head)) return { status: 304, headers };
      return { status: 200, headers, json: { id: params.id, version: head } };
    },
  });

  add(routing, {
    method: "post",
    path: "/v1/streams/{id}/events",
    tag: TAG,
    operation: "appendEvents",
    summary: "Appends events, all or none",
    scope: "write",
    params,
    headers: ["If-Match", "If-None-Match"],
    body: z.strictObject({
      events: z
        .array(z.strictObject({ name: idSchema("The name of the event.", "Deposited"), data: anyValue.optional() }))
        .min(1),
      expectedVersion: version.optional().openapi({ description: "0 if the stream must not exist yet." }),
      correlationId: z.string().optional(),
      causationId: z.string().optional(),
    }),
    returns: {
      201: z.object({ stream: z.string(), version, ids: list(z.string()) }).openapi("Appended"),
    },
    refuses: [
      "concurrency_conflict",
      "stream_closed",
      "invalid_id",
      "invalid_argument",
      "invalid_value",
      "value_too_large",
    ],
    decide: ({ params, body: { events, expectedVersion, ...origin }, header }) => {
      const expected = expectedBy({
        match: header("if-match"),
        noneMatch: header("if-none-match"),
        inBody: expectedVersion,
      });
      const made = events.map(({ name, data }) => event<unknown>(name)(fromWire(data)));
      const options = given({ ...origin, expectedVersion: expected ?? expectedVersion });
      return (tx) => {
        const appended = matching(expected, () => tx.stream(params.id).append(made, options));
        return { status: 201, json: appended, headers: { etag: etagOf(appended.version) } };
      };
    },
  });

  add(routing, {
    method: "get",
    path: "/v1/streams/{id}/events",
    tag: TAG,
    operation: "readStream",
    summary: "Reads the events of a stream, or follows them",
    description:
      "With `Accept: text/event-stream`, events are sent as they are appended; the id of each is its version, and `Last-Event-ID` continues after it.",
    scope: "read",
    params,
    query: {
      from: count(
        Number.MAX_SAFE_INTEGER,
        "The first version. Default: 1, or the last one where it is read backwards.",
      ).optional(),
      direction: z.enum(["forwards", "backwards"]).optional(),
      limit: pageQuery.limit,
    },
    headers: ["Last-Event-ID"],
    returns: { 200: EventPage.openapi("StreamEvents") },
    sends: "text/event-stream",
    refuses: ["invalid_id", "invalid_argument", "events_archived"],
    handle: async ({ pawl, root, params, query: { from, direction, limit }, header, ...waiter }) => {
      const most = limitOf(limit);
      if (wantsEvents(header("accept"))) {
        const last = lastEventId(header("last-event-id"));
        const at = streamAt(params.id);
        const wake = looks(kernelOf(root), isAt(at), waiter.abortSignal);
        const read = eventsFrom(pawl, params.id, last === undefined ? (from ?? 1) : last + 1);
        return sendEvents(routing, waiter, { wake, read });
      }
      const backwards = direction === "backwards";
      const options: ReadStreamOptions = given({ from, backwards });
      const { items, hasMore } = await takePage(pawl.stream(params.id).read(options), most, show);
      const last = items.at(-1)?.version;
      const next = last === undefined || !hasMore ? undefined : backwards ? last - 1 : last + 1;
      return { status: 200, json: { items, next: next === undefined || next === 0 ? null : String(next) } };
    },
  });

  add(routing, {
    method: "get",
    path: "/v1/events",
    tag: TAG,
    operation: "readEvents",
    summary: "Reads the events of all streams in one order, or follows them",
    description: "`next` is a cursor: it continues after what was looked at, also when no event was found.",
    scope: "read",
    query: {
      ...pageQuery,
      prefix: z.string().optional().openapi({ description: "Only events of streams whose ids begin with this." }),
      correlationId: z.string().optional(),
      since: moment.optional(),
      until: moment.optional(),
    },
    headers: ["Last-Event-ID"],
    returns: { 200: pageOf(Followed).openapi("Events") },
    sends: "text/event-stream",
    refuses: ["invalid_id", "invalid_argument", "cursor_ahead", "events_archived", "event_gone"],
    handle: async ({ pawl, root, namespace, query: { limit, ...query }, header, ...waiter }) => {
      const most = limitOf(limit);
      const cursors = await routing.cursors.of(namespace);
      const opened = (cursor: string | undefined) => (cursor === undefined ? undefined : cursors.open(cursor));
      if (wantsEvents(header("accept"))) {
        const options = { ...query, after: opened(header("last-event-id") ?? query.after) };
        const { space } = streamAt("any");
        const wake = looks(kernelOf(root), (row) => row.space === space, waiter.abortSignal);
        return sendEvents(routing, waiter, { wake, read: allAfter(pawl, given(options), cursors) });
      }
      const reading = pawl.events.read(given({ ...query, after: opened(query.after) }));
      const shown = (one: FollowedEvent) => show({ ...one, cursor: cursors.ofEvent(one.cursor) });
      const { items } = await takePage<FollowedEvent, ReturnType<typeof shown>>(reading, most, shown).catch((error) => {
        throw sealed(error, cursors);
      });
      return { status: 200, json: { items, next: cursors.ofPlace(reading.cursor) } };
    },
  });
}

/** An error of a reading, without the positions. */
function sealed(error: unknown, { ofPlace }: Cursors): unknown {
  if (!(error instanceof CursorAheadError)) return error;
  const { code, data } = error;
  const detail = "the cursor is ahead of the store: it was put back in time";
  return new Problem(409, code, detail, { data: { cursor: ofPlace(data.cursor), upTo: ofPlace(data.upTo) } });
}

function eventsFrom(pawl: ServedVerbs, stream: string, from: number): Feed["read"] {
  let next = Math.max(1, from);
  return async function* () {
    if ((await pawl.stream(stream).head()) < next) return undefined;
    for await (const one of pawl.stream(stream).read({ from: next })) {
      next = one.version + 1;
      yield { id: String(one.version), event: one.name, data: show(one) };
    }
    return undefined;
  };
}

function allAfter(
  pawl: ServedVerbs,
  options: NonNullable<Parameters<ServedVerbs["events"]["read"]>[0]>,
  cursors: Cursors,
): Feed["read"] {
  let { after } = options;
  return async function* () {
    const reading = pawl.events.read({ ...options, ...(after === undefined ? {} : { after }) });
    try {
      for await (const one of reading as AsyncIterable<FollowedEvent>) {
        after = one.cursor;
        const cursor = cursors.ofEvent(one.cursor);
        yield { id: cursor, event: one.name, data: show({ ...one, cursor }) };
      }
    } catch (error) {
      throw sealed(error, cursors);
    }
    after = reading.cursor;
    return undefined;
  };
}
