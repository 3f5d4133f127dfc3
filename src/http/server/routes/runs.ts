/**
 * Runs: `pawl.start`, `pawl.run`, `pawl.runs`, `pawl.whyWaiting`.
 */

import { z } from "@hono/zod-openapi";
import { signal } from "../../../workflow/definitions/definition.ts";
import type { HistoryEntry, Run, RunInfo } from "../../../workflow/runs/run.ts";
import { runAt, STATUSES } from "../../../workflow/stored.ts";
import { isAt, looks } from "../changes.ts";
import { kernelOf } from "../handle.ts";
import { idSchema } from "../ids.ts";
import { all, checkFilter, given, pageOf, pageQuery, readEntries, readPage, readSealedPage } from "../pages.ts";
import { problemOf } from "../problem.ts";
import { add, type Routing } from "../route.ts";
import { anyValue, count, duration, durationText, list, moment, text, time, timeOrNull } from "../schemas.ts";
import { type Feed, lastEventId, sendEvents } from "../sse.ts";
import { fromWire, toWire } from "../values.ts";
import { longPoll } from "../wait.ts";
import { Why } from "./why.ts";

const TAG = "runs";
const id = idSchema("The id of the run.", "fulfil-o-1");
const params = { id };
const status = z.enum(STATUSES as readonly [string, ...string[]]) as z.ZodType<RunInfo["status"]>;

const Activity = z
  .object({
    kind: z.string(),
    name: z.string(),
    isRunning: z.boolean(),
    attempt: z.number().int().nullable(),
    lastError: z.string().nullable(),
    nextAttemptAt: timeOrNull,
    until: timeOrNull,
    since: time,
    waitsFor: list(z.string()),
  })
  .openapi("RunActivity");

const Origin = z
  .object({
    actor: z.string().optional(),
    correlationId: z.string().optional(),
    causationId: z.string().optional(),
  })
  .openapi("Origin");

const Noted = z.object({ at: time, reason: z.string() });

const Info = z
  .object({
    id: z.string(),
    workflow: z.string(),
    status: z.string(),
    incarnation: z.number().int(),
    tags: list(z.string()),
    startedAt: time,
    scheduledAt: timeOrNull,
    endedAt: timeOrNull,
    worker: z.string().nullable(),
    leaseUntil: timeOrNull,
    dueAt: timeOrNull,
    parent: z.string().nullable(),
    origin: Origin as z.ZodType<RunInfo["origin"]>,
    isCancelRequested: z.boolean(),
    parkedReason: z.string().nullable(),
    contradicted: z.object({ since: time, reason: z.string() }).nullable(),
    trouble: Noted.nullable(),
    unreadable: z.string().nullable(),
    doing: list(Activity),
    doingCount: z.number().int(),
    doingAsOf: timeOrNull,
    error: anyValue.optional(),
  })
  .openapi("Run");

const show = (run: RunInfo) => ({ ...run, error: toWire(run.error) });

const Started = z.object({ id: z.string() }).openapi("StartedRun");

const Entry = z
  .object({ version: z.number().int(), name: z.string(), data: anyValue.optional(), at: time })
  .openapi("HistoryEntry");

const showEntry = <E extends Pick<HistoryEntry, "data">>(entry: E) => ({ ...entry, data: toWire(entry.data) });

const Ended = z
  .object({ id: z.string(), status: z.literal("completed"), value: anyValue.optional() })
  .openapi("RunResult");
const NotEnded = z.object({ id: z.string(), status: z.string() }).openapi("RunNotEnded");

const Canceled = z
  .object({
    status: z.string(),
    mayStillRun: z.object({ worker: z.string().nullable(), steps: list(z.string()) }).optional(),
  })
  .openapi("CanceledRun");

/** The most runs that one request changes. */
const MOST_BULK = 1000;
/** How many are changed concurrently. */
const TOGETHER = 16;

const Changed = z
  .object({
    items: list(
      z.object({ id: z.string(), ok: z.boolean(), code: z.string().optional(), detail: z.string().optional() }),
    ),
    next: z.string().nullable(),
  })
  .openapi("ChangedRuns");

const changing = { action: z.enum(["cancel", "retry", "delete"]), reason: text.optional() };

const NOT_FOUND = ["run_not_found", "invalid_id"] as const;

const cancelBody = z.strictObject({
  reason: text.optional(),
  force: z.boolean().optional().openapi({ description: "Ends it now. Needs the scope `operate`." }),
});

export function runs(routing: Routing): void {
  add(routing, {
    method: "post",
    path: "/v1/runs",
    tag: TAG,
    operation: "startRun",
    summary: "Starts a run of a workflow",
    description: "The same id again is the same run; with another input it is refused.",
    scope: "write",
    body: z.strictObject({
      workflow: idSchema("The name of the workflow.", "fulfil"),
      input: anyValue.optional(),
      id: idSchema("The id of the run. Default: a new one.", "fulfil-o-1").optional(),
      ifExists: z.enum(["join", "reject", "restart"]).optional(),
      delay: duration.optional(),
      at: moment.optional(),
      tags: z.array(z.string()).optional(),
      priority: z.number().optional(),
      ttl: duration.optional(),
    }),
    returns: { 201: Started },
    refuses: [
      "run_conflict",
      "run_exists",
      "concurrency_limit",
      "invalid_id",
      "invalid_duration",
      "invalid_argument",
      "invalid_value",
      "schema_mismatch",
      "value_too_large",
    ],
    decide: ({ body: { workflow, input, ...options } }) => {
      const value = fromWire(input);
      return (tx) => {
        const id = tx.start(workflow, value, given(options));
        const location = `/v1/runs/${encodeURIComponent(id)}`;
        return { status: 201, json: { id }, headers: { location: `${routing.settings.prefix}${location}` } };
      };
    },
  });

  add(routing, {
    method: "get",
    path: "/v1/runs",
    tag: TAG,
    operation: "listRuns",
    summary: "Lists runs",
    scope: "read",
    query: {
      workflow: z.string().optional(),
      status: z.union([status, z.array(status)]).optional(),
      tag: z.string().optional(),
      prefix: z.string().optional(),
      startedAfter: moment.optional(),
      startedBefore: moment.optional(),
      endedAfter: moment.optional(),
      endedBefore: moment.optional(),
      order: z.enum(["newest", "oldest", "id"]).optional(),
      ...pageQuery,
    },
    returns: { 200: pageOf(Info).openapi("Runs") },
    handle: async ({ pawl, namespace, query }) => {
      const read = async (part: { readonly limit: number; readonly after: string | undefined }) => {
        const page = await pawl.runs.list(given({ ...query, ...part }));
        return { items: page.runs.map(show), next: page.next };
      };
      const cursors = () => routing.cursors.of(namespace);
      const { items, next } = await (query.order === "id"
        ? readPage(query, read)
        : readSealedPage(query, cursors, read));
      return { status: 200, json: { items, next } };
    },
  });

  add(routing, {
    method: "get",
    path: "/v1/runs/{id}",
    tag: TAG,
    operation: "getRun",
    summary: "Gets a run as it is now",
    scope: "read",
    params,
    returns: { 200: Info },
    refuses: NOT_FOUND,
    handle: async ({ pawl, params }) => ({ status: 200, json: show(await pawl.run(params.id).status()) }),
  });

  add(routing, {
    method: "get",
    path: "/v1/runs/{id}/history",
    tag: TAG,
    operation: "getRunHistory",
    summary: "Gets the facts of a run's history, in order",
    scope: "read",
    params,
    query: {
      limit: pageQuery.limit,
      after: count(Number.MAX_SAFE_INTEGER, "The version to continue after.").optional(),
    },
    returns: { 200: pageOf(Entry).openapi("RunHistory") },
    refuses: NOT_FOUND,
    handle: async ({ pawl, params, query }) => ({
      status: 200,
      json: await readEntries(query, async (part) => (await pawl.run(params.id).history(part)).map(showEntry)),
    }),
  });

  add(routing, {
    method: "get",
    path: "/v1/runs/{id}/result",
    tag: TAG,
    operation: "getRunResult",
    summary: "Gets the result of a run, and waits for it if asked to",
    description:
      "With `wait`, the response comes when the run has ended, or after that time with 202. A run that ended in another way than with a result is a refusal with the code that says how.",
    scope: "read",
    params,
    query: { wait: durationText.optional() },
    returns: { 200: Ended, 202: NotEnded },
    refuses: [
      ...NOT_FOUND,
      "run_failed",
      "run_canceled",
      "run_timed_out",
      "run_expired",
      "run_parked",
      "run_unreadable",
    ],
    handle: async ({ pawl, params: { id }, query: { wait = 0 }, ...waiter }) => {
      const run = pawl.run(id);
      const result = await longPoll(waiter, wait, "result_timeout", (options) => run.result(options));
      if (result.isThere)
        return { status: 200, json: { id, status: "completed" as const, value: toWire(result.value) } };
      const { status } = await run.status();
      return { status: 202, json: { id, status } };
    },
  });

  add(routing, {
    method: "post",
    path: "/v1/runs/{id}/signals",
    tag: TAG,
    operation: "signalRun",
    summary: "Sends a signal to a run",
    description:
      "It is kept until the run receives it. A signal with an id that the run has already received is ignored.",
    scope: "write",
    params,
    body: z.strictObject({
      name: idSchema("The name of the signal.", "approved"),
      payload: anyValue.optional(),
      id: idSchema("The id of the signal, so that it counts once.", "approval-1").optional(),
    }),
    returns: { 200: z.object({ isNew: z.boolean() }).openapi("SentSignal") },
    refuses: [...NOT_FOUND, "run_ended", "invalid_value", "value_too_large"],
    decide: ({ params, body: { name, payload, id } }) => {
      const value = fromWire(payload);
      return (tx) => ({
        status: 200,
        json: { isNew: tx.signal<unknown>(params.id, signal(name), value, given({ id })) },
      });
    },
  });

  add(routing, {
    method: "post",
    path: "/v1/runs/{id}/cancel",
    tag: TAG,
    operation: "cancelRun",
    summary: "Asks a run to stop",
    scope: "write",
    params,
    body: cancelBody,
    returns: { 200: Canceled },
    refuses: NOT_FOUND,
    handle: async ({ pawl, params, body, needs }) => {
      if (body.force === true) needs("operate");
      return { status: 200, json: await pawl.run(params.id).cancel(given(body)) };
    },
  });

  add(routing, {
    method: "post",
    path: "/v1/runs/{id}/retry",
    tag: TAG,
    operation: "retryRun",
    summary: "Lets a run that failed or is parked continue",
    scope: "operate",
    params,
    body: z.strictObject({ steps: z.array(z.string()).optional() }),
    returns: { 204: null },
    refuses: [...NOT_FOUND, "run_conflict"],
    handle: async ({ pawl, params, body }) => {
      await pawl.run(params.id).retry(given(body));
      return { status: 204 };
    },
  });

  add(routing, {
    method: "post",
    path: "/v1/runs/{id}/resolve",
    tag: TAG,
    operation: "resolveStep",
    summary: "Resolves a step whose outcome is unknown, so that the run resumes",
    scope: "operate",
    params,
    body: z.strictObject({
      step: z.string(),
      done: z.boolean(),
      value: anyValue.optional().openapi({ description: "The result of the step, if it is done." }),
    }),
    returns: { 204: null },
    refuses: [...NOT_FOUND, "run_conflict", "invalid_value"],
    handle: async ({ pawl, params, body: { step, done, value } }) => {
      const answer = done ? { done, value: fromWire(value) } : { done };
      await pawl.run(params.id).resolveStep(step, answer);
      return { status: 204 };
    },
  });

  add(routing, {
    method: "delete",
    path: "/v1/runs/{id}",
    tag: TAG,
    operation: "deleteRun",
    summary: "Deletes a run that has ended",
    scope: "operate",
    params,
    returns: { 204: null },
    refuses: [...NOT_FOUND, "run_alive"],
    handle: async ({ pawl, params }) => {
      await pawl.runs.delete(params.id);
      return { status: 204 };
    },
  });

  add(routing, {
    method: "get",
    path: "/v1/runs/{id}/why",
    tag: TAG,
    operation: "whyRunWaits",
    summary: "Says why a run does not continue",
    scope: "read",
    params,
    returns: { 200: Why },
    refuses: NOT_FOUND,
    handle: async ({ pawl, params }) => ({ status: 200, json: await pawl.whyWaiting({ run: params.id }) }),
  });

  add(routing, {
    method: "post",
    path: "/v1/runs/bulk",
    tag: TAG,
    operation: "changeRuns",
    summary: "Cancels, retries or deletes many runs",
    description:
      "The runs are named, or chosen by a filter, of which one page is changed: `next` says where to continue. What was refused for one run does not stop the others.",
    scope: "operate",
    body: z.union([
      z.strictObject({ ...changing, ids: z.array(z.string()).max(MOST_BULK) }),
      z.strictObject({
        ...changing,
        filter: z.strictObject({
          workflow: z.string().optional(),
          status: z.union([status, z.array(status)]).optional(),
          tag: z.string().optional(),
          prefix: z.string().optional(),
        }),
        all,
        after: z.string().optional(),
        limit: z.number().int().min(1).max(MOST_BULK).optional(),
      }),
    ]),
    returns: { 200: Changed },
    refuses: ["invalid_id", "invalid_argument"],
    handle: async ({ pawl, namespace, body }) => {
      const { action, reason } = body;
      if ("filter" in body) checkFilter(body.filter, body.all);
      const cursors = await routing.cursors.of(namespace);
      const listed = ({ filter, after, limit = 100 }: Exclude<typeof body, { readonly ids: unknown }>) =>
        pawl.runs.list(given({ ...filter, after: after === undefined ? undefined : cursors.open(after), limit }));
      const page = "ids" in body ? undefined : await listed(body);
      const chosen = "ids" in body ? body.ids : (page?.runs.map((run) => run.id) ?? []);
      const change = {
        cancel: (run: string) => pawl.run(run).cancel(given({ reason })),
        retry: (run: string) => pawl.run(run).retry(),
        delete: (run: string) => pawl.runs.delete(run),
      }[action];
      const items: z.input<typeof Changed>["items"][number][] = [];
      for (let i = 0; i < chosen.length; i += TOGETHER)
        items.push(...(await Promise.all(chosen.slice(i, i + TOGETHER).map((run) => outcomeOf(run, change)))));
      return { status: 200, json: { items, next: page?.next == null ? null : cursors.ofRecord(page.next) } };
    },
  });

  add(routing, {
    method: "get",
    path: "/v1/runs/{id}/events",
    tag: TAG,
    operation: "followRun",
    summary: "Follows the history of a run, as server-sent events",
    description:
      "Each fact is an event, whose id is its version: `Last-Event-ID` continues after it. When the run has ended, an event `ended` says how, and the stream ends.",
    scope: "read",
    params,
    headers: ["Last-Event-ID"],
    returns: { 204: null },
    sends: "text/event-stream",
    refuses: [...NOT_FOUND, "too_many_waiting"],
    handle: async ({ pawl, root, params, header, ...waiter }) => {
      const run = pawl.run(params.id);
      const { endedAt } = await run.status();
      const last = lastEventId(header("last-event-id"));
      // 204 stops a browser that reconnects to a run that has ended.
      if (last !== undefined && endedAt !== null && (await run.history({ after: last, limit: 1 })).length === 0)
        return { status: 204 };
      const wake = looks(kernelOf(root), isAt(runAt(params.id)), waiter.abortSignal);
      return sendEvents(routing, waiter, { wake, read: historyAfter(run, last ?? 0) });
    },
  });
}

async function outcomeOf(id: string, change: (id: string) => Promise<unknown>) {
  try {
    await change(id);
    return { id, ok: true };
  } catch (error) {
    const problem = problemOf(error);
    if (problem === undefined) throw error;
    return { id, ok: false, code: problem.code, detail: problem.message };
  }
}

function historyAfter(run: Run, after: number): Feed["read"] {
  let last = after;
  return async function* () {
    // Before the history is read, so that nothing is missing when it says that the run has ended.
    const { endedAt, status } = await run.status();
    for (;;) {
      const read = async (part: { readonly after: number; readonly limit: number }) =>
        (await run.history(part)).map(showEntry);
      const { items, next } = await readEntries({ after: last, limit: 500 }, read);
      for (const entry of items) {
        last = entry.version;
        yield { id: String(last), event: entry.name, data: entry };
      }
      if (next === null) break;
    }
    if (endedAt === null) return undefined;
    yield { event: "ended", data: { status } };
    return "end";
  };
}
