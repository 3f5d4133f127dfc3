/**
 * Slots: `pawl.slot`, `pawl.slots`.
 */

import { z } from "@hono/zod-openapi";
import type { Slot as SlotHandle } from "../../../slot/slot.ts";
import { isAt, looks } from "../changes.ts";
import { etagOf, expectedBy, isKnown, matching } from "../etag.ts";
import { kernelOf } from "../handle.ts";
import { idSchema } from "../ids.ts";
import { given, pageOf, pageQuery, readPage, unreadable } from "../pages.ts";
import { add, type Routing } from "../route.ts";
import { anyValue, version } from "../schemas.ts";
import { type Feed, sendEvents } from "../sse.ts";
import { fromWire, toWire } from "../values.ts";

const TAG = "slots";
/** A look reads the whole value. */
const LOOK_MS = 5000;
const name = idSchema("The name of the slot.", "visits");

const Slot = z
  .object({
    name: z.string(),
    version: version.openapi({ description: "0 if nothing is stored." }),
    value: anyValue.optional().openapi({ description: "Left out if nothing is stored." }),
  })
  .openapi("Slot");

const Slots = pageOf(Slot).extend({ unreadable }).openapi("Slots");

const Written = z.object({ name: z.string(), version }).openapi("WrittenSlot");

export function slots(routing: Routing): void {
  add(routing, {
    method: "get",
    path: "/v1/slots",
    tag: TAG,
    operation: "listSlots",
    summary: "Lists slots in the order of their names",
    scope: "read",
    query: { prefix: z.string().optional().openapi({ description: "Only names that begin with this." }), ...pageQuery },
    returns: { 200: Slots },
    handle: async ({ pawl, query }) => {
      const page = await readPage(query, async (part) => {
        const { slots, ...rest } = await pawl.slots.list(given({ ...query, ...part }));
        return { items: slots.map(({ value, ...slot }) => ({ ...slot, value: toWire(value) })), ...rest };
      });
      return { status: 200, json: page };
    },
  });

  add(routing, {
    method: "get",
    path: "/v1/slots/{name}",
    tag: TAG,
    operation: "getSlot",
    summary: "Gets the value of a slot, and its version",
    scope: "read",
    params: { name },
    headers: ["If-None-Match"],
    returns: { 200: Slot, 304: null },
    handle: async ({ pawl, params, header }) => {
      const slot = await pawl.slot(params.name).get();
      const headers = { etag: etagOf(slot.version) };
      if (isKnown(header("if-none-match"), slot.version)) return { status: 304, headers };
      return { status: 200, headers, json: { name: params.name, version: slot.version, value: toWire(slot.value) } };
    },
  });

  add(routing, {
    method: "put",
    path: "/v1/slots/{name}",
    tag: TAG,
    operation: "setSlot",
    summary: "Stores a value",
    scope: "write",
    params: { name },
    headers: ["If-Match", "If-None-Match"],
    body: z
      .strictObject({
        value: anyValue,
        expectedVersion: version.optional().openapi({ description: "Refused unless the slot is at this version." }),
      })
      .openapi({ required: ["value"] }),
    returns: { 200: Written },
    refuses: ["version_conflict", "invalid_value", "value_too_large"],
    decide: ({ pawl, params, body, header }) => {
      const expected = expectedBy({
        match: header("if-match"),
        noneMatch: header("if-none-match"),
        inBody: body.expectedVersion,
      });
      const options = given({ expectedVersion: expected ?? body.expectedVersion });
      const slot = pawl.slot(params.name);
      const value = fromWire(body.value);
      return (tx) => {
        const written = matching(expected, () => tx.slot(slot).set(value, options));
        return { status: 200, headers: { etag: etagOf(written.version) }, json: { name: params.name, ...written } };
      };
    },
  });

  add(routing, {
    method: "delete",
    path: "/v1/slots/{name}",
    tag: TAG,
    operation: "deleteSlot",
    summary: "Removes the value",
    scope: "write",
    params: { name },
    headers: ["If-Match"],
    returns: { 200: z.object({ deleted: z.boolean() }).openapi("DeletedSlot") },
    refuses: ["version_conflict"],
    decide: ({ pawl, params, header }) => {
      const expected = expectedBy({ match: header("if-match") });
      const options = given({ expectedVersion: expected });
      const slot = pawl.slot(params.name);
      return (tx) => ({ status: 200, json: matching(expected, () => tx.slot(slot).delete(options)) });
    },
  });

  add(routing, {
    method: "get",
    path: "/v1/slots/{name}/events",
    tag: TAG,
    operation: "followSlot",
    summary: "Follows the value of a slot, as server-sent events",
    description:
      "The value now, unless its version is that of `Last-Event-ID`, then each newer one; one that was soon replaced may be left out. The id of an event is the version.",
    scope: "read",
    params: { name },
    headers: ["Last-Event-ID"],
    returns: {},
    sends: "text/event-stream",
    refuses: ["invalid_id", "too_many_waiting"],
    handle: async ({ pawl, root, params, header, ...waiter }) => {
      const slot = pawl.slot(params.name);
      const wake = looks(kernelOf(root), isAt(slot.touches), waiter.abortSignal, LOOK_MS);
      return sendEvents(routing, waiter, { wake, read: newest(slot, header("last-event-id")) });
    },
  });
}

/** Reads the value, unless its version is the last one that was sent. */
function newest(slot: SlotHandle<unknown>, last: string | undefined): Feed["read"] {
  let seen = last;
  return async function* () {
    const { value, version } = await slot.get();
    if (String(version) === seen) return undefined;
    seen = String(version);
    yield { id: seen, event: "value", data: { name: slot.name, version, value: toWire(value) } };
    return undefined;
  };
}
