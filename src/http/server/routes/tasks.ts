/**
 * HTTP tasks, and signals by token: `pawl.tasks`.
 *
 * An `Idempotency-Key` is that of the task, so a repeated creation returns the same task and the same signal token, which is stored only sealed.
 */

import { z } from "@hono/zod-openapi";
import { IdempotencyMismatchError } from "../../../idempotency/errors.ts";
import { TokenNotFoundError } from "../../../task/errors.ts";
import type { TaskInfo } from "../../../task/info.ts";
import type { TaskOutcome } from "../../../task/outcome.ts";
import type { DeadTaskStatus } from "../../../task/tasks.ts";
import { namespaceOf } from "../../../task/token.ts";
import type { RunStatus } from "../../../workflow/stored.ts";
import { STATUSES } from "../../../workflow/stored.ts";
import { idSchema, ownKey } from "../ids.ts";
import { all, checkFilter, given, pageOf, pageQuery, readPage, readSealedPage, unreadable } from "../pages.ts";
import { add, type Routing } from "../route.ts";
import { anyValue, duration, durationText, list, moment, text, time, timeOrNull } from "../schemas.ts";
import { fromWire, toWire } from "../values.ts";
import { checkWait, isCutShort } from "../wait.ts";

const TAG = "tasks";
const id = idSchema("The id of the task.", "task-1");
const params = { id };
const NOT_FOUND = ["task_not_found", "invalid_id"] as const;
/** Of what reads the request of the task. */
const READS = [...NOT_FOUND, "run_unreadable"] as const;
const status = z.enum(STATUSES as readonly [RunStatus, ...RunStatus[]]);
const dead = z.enum(["failed", "timed_out", "expired"]) satisfies z.ZodType<DeadTaskStatus>;

const Failure = z.object({ code: z.string(), message: z.string() });

const Outcome = z
  .object({
    status: z.enum(["completed", "failed", "canceled", "timed_out", "expired"]),
    by: z.enum(["response", "signal", "timeout", "cancel"]),
    value: anyValue.optional().openapi({ description: "The response of the target, or the value of the signal." }),
    error: Failure.exactOptional(),
    reason: z.string().exactOptional(),
    at: time,
  })
  .openapi("TaskOutcome");

const Info = z
  .object({
    id: z.string(),
    status,
    targetUrl: z.string(),
    method: z.string(),
    tags: list(z.string()),
    createdAt: time,
    scheduledAt: timeOrNull,
    endedAt: timeOrNull,
    waitsForSignal: z.boolean(),
    onCompleteUrl: z.string().nullable(),
    outcome: Outcome.nullable(),
  })
  .openapi("Task");

const Created = z
  .object({
    task: Info,
    signalToken: z.string().nullable().openapi({ description: "Allows its holder to complete the task; a secret." }),
    isNew: z.boolean(),
  })
  .openapi("CreatedTask");

const Attempt = z
  .object({
    number: z.number().int(),
    fence: z.number().int(),
    startedAt: time,
    durationMs: z.number(),
    status: z.number().int().nullable(),
    headers: z.record(z.string(), z.string()).readonly(),
    body: z.string(),
    isCut: z.boolean(),
    error: Failure.nullable(),
  })
  .openapi("TaskAttempt");

const Delivery = z
  .object({
    id: z.string(),
    url: z.string(),
    status: z.string(),
    attempts: z.number().int(),
    lastStatus: z.number().int().nullable(),
    lastError: Failure.nullable(),
    createdAt: time,
    deliveredAt: timeOrNull,
  })
  .openapi("TaskDelivery");

const showOutcome = (outcome: TaskOutcome) => ({ ...outcome, value: toWire(outcome.value) });
const show = (task: TaskInfo) => ({ ...task, outcome: task.outcome === null ? null : showOutcome(task.outcome) });

const integer = (minimum: number) => z.number().openapi({ type: "integer", minimum });

export function tasks(routing: Routing): void {
  add(routing, {
    method: "post",
    path: "/v1/tasks",
    tag: TAG,
    operation: "createTask",
    summary: "Creates a task: a call that is made until it succeeds, and may then wait for a signal",
    description:
      "The same id or `Idempotency-Key` with the same request is the same task, as it is now, with the same signal token: the status is 200 then, and `isNew` false. Another request under it is refused.",
    scope: "write",
    body: z.strictObject({
      targetUrl: z.string(),
      method: z.string().optional(),
      headers: z.record(z.string(), z.string()).optional(),
      body: anyValue.optional().openapi({ description: "A text is sent as it is, anything else as JSON." }),
      timeout: duration.optional(),
      retry: z
        .strictObject({
          attempts: integer(1).optional(),
          delay: duration.optional(),
          factor: z.number().optional(),
          maxDelay: duration.optional(),
          jitter: z.number().optional(),
        })
        .optional(),
      retryStatuses: z.array(z.union([z.literal("5xx"), z.number()])).optional(),
      concurrency: z.strictObject({ key: z.string(), max: integer(1) }).optional(),
      rateLimit: z.strictObject({ key: z.string(), max: integer(1), per: duration }).optional(),
      id: id.optional(),
      idempotencyKey: z
        .string()
        .optional()
        .openapi({ description: "Default: the `Idempotency-Key`, for each API key." }),
      delay: duration.optional(),
      at: moment.optional(),
      priority: z.number().optional().openapi({ type: "integer", minimum: -100, maximum: 100 }),
      tags: z.array(z.string()).optional(),
      onCompleteUrl: z.string().optional(),
      waitForSignal: z.boolean().optional(),
      maxWaitTime: duration.optional(),
    }),
    returns: { 200: Created, 201: Created },
    refuses: [
      "invalid_target",
      "target_forbidden",
      "idempotency_mismatch",
      "run_conflict",
      "keys_missing",
      "invalid_id",
      "invalid_duration",
      "invalid_argument",
      "invalid_value",
    ],
    isIdempotent: true,
    handle: async ({ pawl, body: { body, ...options }, idempotencyKey, keyId }) => {
      const key = options.idempotencyKey ?? ownKey(keyId, idempotencyKey);
      const request = given({ ...options, body: fromWire(body), idempotencyKey: key });
      const created = await pawl.tasks
        .create(request as Parameters<typeof pawl.tasks.create>[0])
        .catch((error: unknown) => {
          // The client knows the key that it sent.
          const isOwn = error instanceof IdempotencyMismatchError && options.idempotencyKey === undefined;
          throw isOwn && idempotencyKey !== undefined ? new IdempotencyMismatchError(idempotencyKey) : error;
        });
      const location = `${routing.settings.prefix}/v1/tasks/${encodeURIComponent(created.task.id)}`;
      const isReplayed = !created.isNew && idempotencyKey !== undefined;
      return {
        status: created.isNew ? 201 : 200,
        json: { ...created, task: show(created.task) },
        headers: { location, ...(isReplayed ? { "idempotent-replayed": "true" } : {}) },
      };
    },
  });

  add(routing, {
    method: "get",
    path: "/v1/tasks",
    tag: TAG,
    operation: "listTasks",
    summary: "Lists tasks",
    scope: "read",
    query: {
      status: z.union([status, z.array(status)]).optional(),
      tag: z.string().optional(),
      prefix: z.string().optional(),
      order: z.enum(["newest", "oldest", "id"]).optional(),
      ...pageQuery,
    },
    returns: { 200: pageOf(Info).extend({ unreadable }).openapi("Tasks") },
    handle: async ({ pawl, namespace, query }) => {
      const read = async (part: { readonly limit: number; readonly after: string | undefined }) => {
        const { tasks: found, ...rest } = await pawl.tasks.list(given({ ...query, ...part }));
        return { items: found.map(show), ...rest };
      };
      const cursors = () => routing.cursors.of(namespace);
      const page = await (query.order === "id" ? readPage(query, read) : readSealedPage(query, cursors, read));
      return { status: 200, json: page };
    },
  });

  add(routing, {
    method: "get",
    path: "/v1/tasks/{id}",
    tag: TAG,
    operation: "getTask",
    summary: "Gets a task as it is now, or waits for its outcome",
    scope: "read",
    params,
    query: { wait: durationText.optional() },
    returns: { 200: Info },
    refuses: [...READS, "invalid_duration"],
    handle: async ({ pawl, params, query: { wait }, abortSignal, enter }) => {
      const leave = wait === undefined || checkWait(wait) === 0 ? undefined : enter();
      try {
        const options = leave === undefined ? {} : given({ wait, abortSignal });
        return { status: 200, json: show(await pawl.tasks.get(params.id, options)) };
      } catch (error) {
        // The server is being closed, or the client is gone: the task as it is now.
        if (!isCutShort(error, abortSignal)) throw error;
        return { status: 200, json: show(await pawl.tasks.get(params.id)) };
      } finally {
        leave?.();
      }
    },
  });

  add(routing, {
    method: "post",
    path: "/v1/tasks/{id}/cancel",
    tag: TAG,
    operation: "cancelTask",
    summary: "Cancels a task that has no outcome yet, and returns the outcome of the first",
    scope: "write",
    params,
    body: z.strictObject({ reason: text.optional() }),
    returns: { 200: z.object({ canceled: z.boolean(), outcome: Outcome }).openapi("CanceledTask") },
    refuses: NOT_FOUND,
    decide:
      ({ params, body }) =>
      (tx) => {
        const { canceled, outcome } = tx.tasks.cancel(params.id, given(body));
        return { status: 200, json: { canceled, outcome: showOutcome(outcome) } };
      },
  });

  add(routing, {
    method: "post",
    path: "/v1/tasks/redrive",
    tag: TAG,
    operation: "redriveTasks",
    summary: "Sends dead tasks again: those that failed, timed out or expired",
    scope: "operate",
    body: z.strictObject({
      status: z.union([dead, z.array(dead)]).optional(),
      tag: z.string().optional(),
      prefix: z.string().optional(),
      all,
    }),
    returns: { 200: z.object({ redriven: z.number().int(), unreadable }).openapi("RedrivenTasks") },
    refuses: ["invalid_id", "invalid_argument"],
    handle: async ({ pawl, body: { all, ...filter } }) => {
      checkFilter(filter, all);
      return { status: 200, json: await pawl.tasks.redriveAll(given(filter)) };
    },
  });

  add(routing, {
    method: "post",
    path: "/v1/tasks/{id}/redrive",
    tag: TAG,
    operation: "redriveTask",
    summary: "Sends a dead task again, with the same key and token",
    scope: "operate",
    params,
    returns: { 200: Info },
    refuses: [...READS, "task_not_dead"],
    handle: async ({ pawl, params }) => ({ status: 200, json: show(await pawl.tasks.redrive(params.id)) }),
  });

  add(routing, {
    method: "get",
    path: "/v1/tasks/{id}/attempts",
    tag: TAG,
    operation: "listTaskAttempts",
    summary: "Lists the attempts of a task, each with its result",
    scope: "read",
    params,
    returns: { 200: z.object({ items: list(Attempt), next: z.null() }).openapi("TaskAttempts") },
    refuses: NOT_FOUND,
    handle: async ({ pawl, params }) => ({
      status: 200,
      json: { items: await pawl.tasks.attempts(params.id), next: null },
    }),
  });

  add(routing, {
    method: "get",
    path: "/v1/tasks/{id}/deliveries",
    tag: TAG,
    operation: "listTaskDeliveries",
    summary: "Lists the notifications of `onCompleteUrl`",
    scope: "read",
    params,
    returns: { 200: z.object({ items: list(Delivery), next: z.null() }).openapi("TaskDeliveries") },
    refuses: NOT_FOUND,
    handle: async ({ pawl, params }) => ({
      status: 200,
      json: { items: await pawl.tasks.deliveries(params.id), next: null },
    }),
  });

  add(routing, {
    method: "post",
    path: "/v1/signals/{token}",
    tag: TAG,
    operation: "signalTask",
    summary: "Completes or fails the task of a token",
    description:
      "The token is all that is needed. The same signal again gets the same response; a later one gets the outcome as a refusal. A GET settles nothing.",
    scope: null,
    params: { token: z.string().openapi({ description: "The signal token of a task.", example: "sig_4fS…" }) },
    query: {
      namespace: z.string().optional().openapi({ description: "Where the task is. Default: what the token says." }),
    },
    body: z.strictObject({ status: z.enum(["completed", "failed"]), value: anyValue.optional() }),
    returns: { 200: z.object({ task: z.string(), outcome: Outcome, isNew: z.boolean() }).openapi("SignaledTask") },
    refuses: ["token_not_found", "task_settled", "task_timed_out", "invalid_value", "value_too_large"],
    isIdempotent: true,
    handle: async ({ params, body: { status, value }, query: { namespace }, handleOf }) => {
      const pawl = await handleOf(namespace ?? namespaceOf(params.token));
      if (pawl === undefined) throw new TokenNotFoundError();
      const { outcome, ...signaled } = await pawl.tasks.signal(params.token, { status, value: fromWire(value) });
      return { status: 200, json: { ...signaled, outcome: showOutcome(outcome) } };
    },
  });
}
