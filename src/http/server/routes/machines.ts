/**
 * State machines: `pawl.machine`, for the machines that the app was given.
 */

import { z } from "@hono/zod-openapi";
import { type Machine, rulesOf } from "../../../machine/definition.ts";
import { MachineNotFoundError } from "../../../machine/errors.ts";
import { type MachineInstance, movedOrThrow, type ParkedEvent } from "../../../machine/results.ts";
import { etagOf, expectedBy, isKnown, unmatched } from "../etag.ts";
import { idSchema } from "../ids.ts";
import { given, pageOf, pageQuery, readEntries, readPage, unreadable } from "../pages.ts";
import { refuse } from "../problem.ts";
import { add, Refused, type Routing } from "../route.ts";
import { anyValue, count, list, text, time, version } from "../schemas.ts";
import { fromWire, toWire } from "../values.ts";

const TAG = "machines";
const name = idSchema("The name of the machine.", "order");
const id = idSchema("The id of the instance.", "o-1");
const params = { name, id };
const UNKNOWN = ["machine_unknown", "machine_not_found", "invalid_id"] as const;

const Parked = z.object({
  to: z.string(),
  at: time,
  actor: z.string().optional(),
  reason: z.string().optional(),
  eventId: z.string().optional(),
});

const instance = {
  id: z.string(),
  state: z.string(),
  data: anyValue.optional(),
  version,
  allowed: list(z.string()),
  parked: list(Parked as z.ZodType<ParkedEvent>),
};
const Instance = z.object(instance).openapi("MachineInstance");

const Moved = z
  .object({
    ...instance,
    outcome: z.enum(["moved", "parked"]),
    deduplicated: z.boolean(),
    applied: list(z.string()),
  })
  .openapi("Transitioned");

const Entry = z
  .object({
    version,
    at: time,
    outcome: z.string(),
    from: z.string().nullable(),
    to: z.string(),
    actor: z.string().optional(),
    reason: z.string().optional(),
    eventId: z.string().optional(),
    data: anyValue.optional(),
    code: z.string().optional(),
    why: z.string().optional(),
    parkedAs: z.number().int().optional(),
  })
  .openapi("MachineEvent");

const show = <I extends MachineInstance>(one: I) => ({ ...one, data: toWire(one.data) });
const asking = { actor: idSchema("Default: the key.", "ann").optional(), reason: text.optional() };

export function machines(routing: Routing): void {
  const machineOf = (wanted: string): Machine => {
    const machine = routing.settings.machines.get(wanted);
    if (machine === undefined) throw refuse("machine_unknown", `The server knows no machine "${wanted}".`);
    return machine;
  };

  add(routing, {
    method: "get",
    path: "/v1/machines/{name}",
    tag: TAG,
    operation: "listMachineInstances",
    summary: "Lists the instances of a machine, in the order of their ids",
    scope: "read",
    params: { name },
    query: { state: z.union([z.string(), z.array(z.string())]).optional(), ...pageQuery },
    returns: { 200: pageOf(Instance).extend({ unreadable }).openapi("MachineInstances") },
    refuses: ["machine_unknown"],
    handle: async ({ pawl, params, query }) => {
      const machine = pawl.machine(machineOf(params.name));
      const page = await readPage(query, async (part) => {
        const { instances, ...rest } = await machine.list(given({ ...query, ...part }));
        return { items: instances.map(show), ...rest };
      });
      return { status: 200, json: page };
    },
  });

  add(routing, {
    method: "post",
    path: "/v1/machines/{name}/{id}",
    tag: TAG,
    operation: "createMachineInstance",
    summary: "Creates an instance, in the initial state",
    scope: "write",
    params,
    body: z.strictObject({ data: anyValue.optional(), ...asking }),
    returns: { 201: Instance },
    refuses: [...UNKNOWN, "machine_exists", "invalid_value"],
    decide: ({ params, body: { data, ...options }, keyId }) => {
      const machine = machineOf(params.name);
      const all = given({ ...by(keyId), ...options, data: fromWire(data) });
      return (tx) => {
        const created = tx.machine(machine).create(params.id, all);
        return { status: 201, json: show(created), headers: { etag: etagOf(created.version) } };
      };
    },
  });

  add(routing, {
    method: "get",
    path: "/v1/machines/{name}/{id}",
    tag: TAG,
    operation: "getMachineInstance",
    summary: "Gets an instance as it is now",
    scope: "read",
    params,
    headers: ["If-None-Match"],
    returns: { 200: Instance, 304: null },
    refuses: UNKNOWN,
    handle: async ({ pawl, params, header }) => {
      const found = await pawl.machine(machineOf(params.name)).get(params.id);
      if (found === null) throw new MachineNotFoundError(params.name, params.id);
      const headers = { etag: etagOf(found.version) };
      if (isKnown(header("if-none-match"), found.version)) return { status: 304, headers };
      return { status: 200, headers, json: show(found) };
    },
  });

  add(routing, {
    method: "post",
    path: "/v1/machines/{name}/{id}/transition",
    tag: TAG,
    operation: "transitionMachine",
    summary: "Moves an instance to another state",
    description: "An attempt that is refused is in the history, too.",
    scope: "write",
    params,
    headers: ["If-Match"],
    body: z.strictObject({
      to: z.string(),
      data: anyValue.optional(),
      patch: z.record(z.string(), z.unknown()).optional(),
      expectedVersion: version.optional(),
      whenEarly: z.enum(["refuse", "park"]).optional(),
      eventId: idSchema("A second event with the same id has no effect.", "evt_1").optional(),
      ...asking,
    }),
    returns: { 200: Moved },
    refuses: [...UNKNOWN, "illegal_transition", "guard_refused", "event_conflict", "parking_full", "version_conflict"],
    decide: ({ params, body: { to, data, patch, expectedVersion, ...options }, header, keyId }) => {
      const expected = expectedBy({ match: header("if-match"), inBody: expectedVersion });
      const machine = machineOf(params.name);
      const all = given({
        ...by(keyId),
        ...options,
        expectedVersion: expected ?? expectedVersion,
        data: fromWire(data),
        patch: patch === undefined ? undefined : (fromWire(patch) as object),
      });
      return (tx) => {
        const result = tx.machine(machine).tryTransition(params.id, to, all as never);
        try {
          const moved = movedOrThrow(rulesOf(machine), params.id, result);
          return { status: 200, json: show(moved), headers: { etag: etagOf(moved.version) } };
        } catch (error) {
          // Its entry in the history is committed.
          return new Refused(unmatched(expected, error));
        }
      };
    },
  });

  add(routing, {
    method: "get",
    path: "/v1/machines/{name}/{id}/history",
    tag: TAG,
    operation: "getMachineHistory",
    summary: "Gets the audit log of an instance, refused attempts included",
    scope: "read",
    params,
    query: {
      limit: pageQuery.limit,
      after: count(Number.MAX_SAFE_INTEGER, "The version to continue after.").optional(),
    },
    returns: { 200: pageOf(Entry).openapi("MachineHistory") },
    refuses: UNKNOWN,
    handle: async ({ pawl, params, query }) => {
      const machine = pawl.machine(machineOf(params.name));
      const page = await readEntries(query, async (part) => {
        const entries = await machine.history(params.id, part);
        return entries.map((entry) => ({ ...entry, data: toWire(entry.data) }));
      });
      if (page.items.length === 0 && (query.after ?? 0) === 0) throw new MachineNotFoundError(params.name, params.id);
      return { status: 200, json: page };
    },
  });
}

const by = (keyId: string | null) => (keyId === null ? {} : { actor: `key:${keyId}` });
