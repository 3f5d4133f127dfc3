/**
 * Schedules: `pawl.schedules`.
 */

import { z } from "@hono/zod-openapi";
import { ScheduleNotFoundError } from "../../../schedule/errors.ts";
import { idSchema, ownKey } from "../ids.ts";
import { given, pageOf, pageQuery, readPage, unreadable } from "../pages.ts";
import { add, type Routing } from "../route.ts";
import { anyValue, count, duration, list, moment, text, time, timeOrNull } from "../schemas.ts";
import { fromWire } from "../values.ts";

const TAG = "schedules";
const name = idSchema("The name of the schedule.", "nightly");
const params = { name };
const NOT_FOUND = ["schedule_not_found", "invalid_id"] as const;

const Info = z
  .object({
    name: z.string(),
    state: z.enum(["active", "paused", "ended", "undeclared"]),
    isDeclared: z.boolean(),
    revision: z.number().int().nullable(),
    cron: z.string().nullable(),
    everyMs: z.number().int().nullable(),
    at: list(time).nullable(),
    timezone: z.string().nullable(),
    overlap: z.enum(["skip", "queue", "cancel-running", "allow"]),
    workflow: z.string(),
    createdAt: time,
    nextAt: timeOrNull,
    dueAt: timeOrNull,
    lastTick: z.object({ scheduledAt: time, outcome: z.string() }).nullable(),
    lastFired: z.object({ scheduledAt: time, run: z.string() }).nullable(),
    queued: list(time),
    fired: z.number().int(),
    skipped: z.number().int(),
    missed: z.number().int(),
    failed: z.number().int(),
    paused: z.object({ since: time, reason: z.string().nullable() }).nullable(),
  })
  .openapi("Schedule");

const Entry = z
  .object({
    version: z.number().int(),
    outcome: z.string(),
    scheduledAt: time,
    until: timeOrNull,
    count: z.number().int().nullable(),
    reason: z.string().nullable(),
    run: z.string().nullable(),
    by: z.string().nullable(),
    at: time,
  })
  .openapi("ScheduleEntry");

/** Without its type, the document would allow anything in its place. */
const nothing = z.null().openapi({ type: "null" });
const overlaps = [
  z.enum(["skip", "queue", "cancel-running", "allow"]),
  z.strictObject({ queue: z.number().openapi({ type: "integer", minimum: 1 }) }),
] as const;
const catchUps = [z.enum(["none", "last"]), z.number()] as const;
const plan = {
  cron: z.string().optional(),
  every: duration.optional(),
  at: z.union([moment, z.array(moment)]).optional(),
  timezone: z.string().optional(),
  overlap: z.union(overlaps).optional(),
  catchUp: z.union(catchUps).optional(),
  jitter: duration.optional(),
  starts: moment.optional(),
  ends: moment.optional(),
  max: z.number().optional().openapi({ type: "integer", minimum: 1 }),
};
/** What an update can take away. */
const removable = {
  timezone: plan.timezone.nullable(),
  overlap: z.union([...overlaps, nothing]).optional(),
  catchUp: z.union([...catchUps, nothing]).optional(),
  jitter: plan.jitter.nullable(),
  starts: plan.starts.nullable(),
  ends: plan.ends.nullable(),
  max: plan.max.nullable(),
};
const PLAN_REFUSALS = [
  "invalid_cron",
  "invalid_timezone",
  "invalid_duration",
  "invalid_argument",
  "invalid_value",
  "schema_mismatch",
] as const;

export function schedules(routing: Routing): void {
  add(routing, {
    method: "post",
    path: "/v1/schedules",
    tag: TAG,
    operation: "createSchedule",
    summary: "Creates a schedule, which starts runs of a workflow",
    description: "Exactly one of `cron`, `every` and `at` is given.",
    scope: "write",
    body: z.strictObject({
      name,
      workflow: idSchema("The name of the workflow.", "report"),
      input: anyValue.optional(),
      ...plan,
    }),
    returns: { 201: Info },
    refuses: ["schedule_exists", "schedule_declared", "invalid_id", ...PLAN_REFUSALS],
    handle: async ({ pawl, body: { name, workflow, input, ...options } }) => ({
      status: 201,
      json: await pawl.schedules.create(name, given(options), workflow, fromWire(input)),
    }),
  });

  add(routing, {
    method: "get",
    path: "/v1/schedules",
    tag: TAG,
    operation: "listSchedules",
    summary: "Lists schedules, in the order of their names",
    scope: "read",
    query: { prefix: z.string().optional(), ...pageQuery },
    returns: { 200: pageOf(Info).extend({ unreadable }).openapi("Schedules") },
    handle: async ({ pawl, query }) => {
      const page = await readPage(query, async (part) => {
        const { schedules: items, ...rest } = await pawl.schedules.list(given({ ...query, ...part }));
        return { items, ...rest };
      });
      return { status: 200, json: page };
    },
  });

  add(routing, {
    method: "get",
    path: "/v1/schedules/{name}",
    tag: TAG,
    operation: "getSchedule",
    summary: "Gets a schedule",
    scope: "read",
    params,
    returns: { 200: Info },
    refuses: NOT_FOUND,
    handle: async ({ pawl, params }) => {
      const info = await pawl.schedules.get(params.name);
      if (info === null) throw new ScheduleNotFoundError(params.name);
      return { status: 200, json: info };
    },
  });

  add(routing, {
    method: "patch",
    path: "/v1/schedules/{name}",
    tag: TAG,
    operation: "updateSchedule",
    summary: "Changes a schedule that was created at run time",
    scope: "write",
    params,
    description: "What is null becomes the default again.",
    body: z.strictObject({ input: anyValue.optional(), ...plan, ...removable }),
    returns: { 200: Info },
    refuses: [...NOT_FOUND, "schedule_declared", ...PLAN_REFUSALS],
    handle: async ({ pawl, params, body: { input, ...options } }) => {
      const changes = given({ ...options, input: fromWire(input) });
      return { status: 200, json: await pawl.schedules.update(params.name, changes) };
    },
  });

  add(routing, {
    method: "delete",
    path: "/v1/schedules/{name}",
    tag: TAG,
    operation: "deleteSchedule",
    summary: "Deletes a schedule; its runs stay",
    scope: "write",
    params,
    returns: { 200: z.object({ deleted: z.boolean() }).openapi("DeletedSchedule") },
    refuses: ["schedule_declared", "invalid_id"],
    handle: async ({ pawl, params }) => ({ status: 200, json: await pawl.schedules.delete(params.name) }),
  });

  add(routing, {
    method: "post",
    path: "/v1/schedules/{name}/pause",
    tag: TAG,
    operation: "pauseSchedule",
    summary: "Lets a schedule tick no more until it is resumed",
    scope: "operate",
    params,
    body: z.strictObject({ reason: text.optional() }),
    returns: { 200: Info },
    refuses: NOT_FOUND,
    handle: async ({ pawl, params, body }) => ({
      status: 200,
      json: await pawl.schedules.pause(params.name, given(body)),
    }),
  });

  add(routing, {
    method: "post",
    path: "/v1/schedules/{name}/resume",
    tag: TAG,
    operation: "resumeSchedule",
    summary: "Lets a schedule tick again, from now on",
    scope: "operate",
    params,
    returns: { 200: Info },
    refuses: NOT_FOUND,
    handle: async ({ pawl, params }) => ({ status: 200, json: await pawl.schedules.resume(params.name) }),
  });

  add(routing, {
    method: "post",
    path: "/v1/schedules/{name}/trigger",
    tag: TAG,
    operation: "triggerSchedule",
    summary: "Starts a run now",
    scope: "operate",
    params,
    body: z.strictObject({
      id: idSchema(
        "The id of this trigger: the same again is the same run. Default: the `Idempotency-Key`, for each API key.",
        "2030-01-01",
      ).optional(),
    }),
    returns: { 201: z.object({ run: z.string() }).openapi("TriggeredSchedule") },
    refuses: [...NOT_FOUND, "schedule_code_missing"],
    handle: async ({ pawl, params, body: { id }, idempotencyKey, keyId }) => ({
      status: 201,
      json: await pawl.schedules.trigger(params.name, given({ id: id ?? ownKey(keyId, idempotencyKey) })),
    }),
  });

  add(routing, {
    method: "post",
    path: "/v1/schedules/{name}/backfill",
    tag: TAG,
    operation: "backfillSchedule",
    summary: "Starts the runs of ticks in the past",
    scope: "operate",
    params,
    body: z.strictObject({
      from: moment,
      to: moment,
      limit: z.number().optional().openapi({ type: "integer", minimum: 1, maximum: 1000 }),
    }),
    returns: { 200: z.object({ runs: list(z.string()), next: timeOrNull }).openapi("Backfilled") },
    refuses: [...NOT_FOUND, "schedule_code_missing", "invalid_argument"],
    handle: async ({ pawl, params, body }) => ({
      status: 200,
      json: await pawl.schedules.backfill(params.name, given(body)),
    }),
  });

  add(routing, {
    method: "get",
    path: "/v1/schedules/{name}/preview",
    tag: TAG,
    operation: "previewSchedule",
    summary: "Lists the next times of a schedule",
    scope: "read",
    params,
    query: { count: count(1000, "How many. Default: 10.").optional(), from: moment.optional() },
    returns: { 200: z.object({ items: list(time), next: z.null() }).openapi("SchedulePreview") },
    refuses: [...NOT_FOUND, "invalid_argument"],
    handle: async ({ pawl, params, query }) => ({
      status: 200,
      json: { items: await pawl.schedules.preview(params.name, given(query)), next: null },
    }),
  });

  add(routing, {
    method: "get",
    path: "/v1/schedules/{name}/history",
    tag: TAG,
    operation: "getScheduleHistory",
    summary: "Says what became of the ticks of a schedule, the newest first",
    scope: "read",
    params,
    query: {
      limit: pageQuery.limit,
      after: count(Number.MAX_SAFE_INTEGER, "The `next` of the page before.").optional(),
    },
    returns: { 200: pageOf(Entry).openapi("ScheduleHistory") },
    refuses: NOT_FOUND,
    handle: async ({ pawl, params, query: { limit, after: before } }) => {
      const { entries: items, next } = await pawl.schedules.history(params.name, given({ limit, before }));
      return { status: 200, json: { items, next: next === null ? null : String(next) } };
    },
  });
}
