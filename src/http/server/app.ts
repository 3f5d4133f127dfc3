/**
 * The HTTP API of Pawl: `createApp(pawl)` is a Hono application in which each route is one call of the library.
 *
 * A request meets, in this order: its id, the lookup of its route, its API key, the body, the validation, its idempotency key, the call. Whatever is thrown
 * on the way becomes problem+json (`problem.ts`); what only the operator may see goes to the log, under the id that the client gets.
 *
 * The app holds nothing but caches: any number of processes can serve one store.
 */

import { OpenAPIHono, type z } from "@hono/zod-openapi";
import type { Context, Hono } from "hono";
import { routePath } from "hono/route";
import { Allowances } from "./allowance.ts";
import { Callers } from "./auth.ts";
import { RequestMetrics } from "./counts.ts";
import { CursorKey } from "./cursors.ts";
import { docs } from "./docs.ts";
import { kernelOf, type ServedPawl } from "./handle.ts";
import { health } from "./health.ts";
import { pathOf } from "./ids.ts";
import { apiKeys } from "./keys/keys.ts";
import { metrics } from "./metrics.ts";
import { documentOf, openapi } from "./openapi.ts";
import { isForOperator, Problem, problemOf, refuse } from "./problem.ts";
import { respond } from "./respond.ts";
import type { App, Env, Routing } from "./route.ts";
import { actions } from "./routes/actions.ts";
import { dedupe } from "./routes/dedupe.ts";
import { keys } from "./routes/keys.ts";
import { locks } from "./routes/locks.ts";
import { machines } from "./routes/machines.ts";
import { projections } from "./routes/projections.ts";
import { rates } from "./routes/rates.ts";
import { reactions } from "./routes/reactions.ts";
import { runs } from "./routes/runs.ts";
import { schedules } from "./routes/schedules.ts";
import { slots } from "./routes/slots.ts";
import { streams } from "./routes/streams.ts";
import { tasks } from "./routes/tasks.ts";
import { workflows } from "./routes/workflows.ts";
import { type AppOptions, checkApp, type Settings } from "./settings.ts";
import { Unread } from "./unread.ts";
import { Waiting } from "./wait.ts";

/** What `serve` needs of an app, beside its requests. @internal */
export interface AppState {
  readonly settings: Settings;
  /** Ends what waits: long polls and event streams. */
  close(): void;
}

const states = new WeakMap<object, AppState>();

/** @internal */
export const stateOf = (app: object): AppState | undefined => states.get(app);

/**
 * Makes the HTTP API of a handle, as a Hono application: serve it with `serve`, or mount `app.fetch` in an application of your own. What it gets through
 * `namespaces` and the handle itself are yours to close.
 */
export function createApp(pawl: ServedPawl, options: AppOptions = {}): Hono {
  return appOf(pawl, options, ROUTES);
}

/** An app with these routes only: to make all of them takes longer than most requests. @internal */
export function appOf(pawl: ServedPawl, options: AppOptions, all: readonly ((routing: Routing) => void)[]): Hono {
  const kernel = kernelOf(pawl);
  const { clock, chance } = kernel.ports;
  const settings = checkApp(options, clock);
  const { prefix, requests, log } = settings;
  const closing = new AbortController();
  const app: App = new OpenAPIHono<Env>({
    getPath: (request, given) => pathOf(request, given?.env, prefix),
    defaultHook: (result) => {
      if (result.success) return;
      const issues = result.error.issues.map(closest).map(({ path, message }) => ({ path: path.join("."), message }));
      const [first] = issues;
      const at = first === undefined || first.path === "" ? "" : ` at ${first.path}`;
      throw refuse(
        "invalid_request",
        `The ${PARTS[result.target] ?? result.target} is not valid${at}: ${first?.message}`,
        {
          data: { in: result.target, issues },
        },
      );
    },
  });
  const counts = new RequestMetrics();
  app.use(async (c, next) => {
    const id = chance.uuid();
    const startedMs = clock.nowMs();
    c.set("requestId", id);
    try {
      await next();
    } catch (error) {
      // Hono passes on what is not an Error, and it would appear nowhere.
      throw error instanceof Error ? error : new Error("something that is not an Error was thrown", { cause: error });
    }
    // A response to HEAD is sent without its body, so nothing else would end a stream of events.
    if (c.req.raw.method === "HEAD") await c.res.body?.cancel();
    c.res.headers.set("x-request-id", id);
    // The pattern of the route, and not the path: that has ids.
    counts.count(c.req.method, routePath(c, -1), c.res.status, clock.nowMs() - startedMs);
  });
  const allowances = requests === undefined ? undefined : new Allowances(pawl, clock, requests);
  const { namespace } = kernel;
  const own = apiKeys(pawl);
  const routing: Routing = {
    app,
    pawl,
    kernel,
    document: documentOf(app, prefix),
    requests: counts,
    clock,
    namespace,
    keys: own,
    cursors: new CursorKey(kernel),
    callers: new Callers(pawl, namespace, own, settings, allowances),
    settings,
    closing: closing.signal,
    waiting: new Waiting(settings.waiting, settings.waitingPerKey),
    unread: new Unread(clock, settings.unreadBytes),
  };
  for (const routes of all) routes(routing);
  app.onError((error, c) => {
    const id = c.get("requestId");
    const problem = problemOf(error);
    if (problem === undefined || isForOperator(error)) log?.error(`request ${id} failed: ${error.stack}`);
    return respond(problem ?? refuse("internal", INTERNAL), id);
  });
  const methods = new Methods(app, prefix);
  app.notFound((c) => respond(methods.refusal(c), c.get("requestId") ?? chance.uuid()));
  states.set(app, { settings, close: () => closing.abort() });
  return app as unknown as Hono;
}

type Issue = z.core.$ZodIssue;

/** Of a value that is none of several alternatives, what is wrong with the one that it comes closest to. */
function closest(issue: Issue): Issue {
  if (issue.code !== "invalid_union") return issue;
  const depthOf = ([first]: readonly Issue[]): number => first?.path.length ?? 0;
  const [best] = issue.errors.toSorted((a, b) => a.length - b.length || depthOf(b) - depthOf(a));
  const [first] = best ?? [];
  if (first === undefined) return issue;
  const inner = closest(first);
  return { ...inner, path: [...issue.path, ...inner.path] };
}

const INTERNAL = "Something went wrong here; the operator's log has it under this request's id.";

/** In the order of the document. */
const ROUTES = [
  runs,
  workflows,
  slots,
  locks,
  rates,
  actions,
  dedupe,
  machines,
  streams,
  reactions,
  projections,
  schedules,
  tasks,
  keys,
  openapi,
  docs,
  health,
  metrics,
] as const;

const PARTS: Readonly<Record<string, string>> = { json: "body", param: "path", query: "query", header: "headers" };

/** Which methods a path has, for what no route takes. */
class Methods {
  readonly #paths: { readonly pattern: RegExp; readonly method: string }[] = [];
  readonly #prefix: string;

  constructor(app: App, prefix: string) {
    this.#prefix = prefix;
    for (const { method, path } of app.routes) {
      if (method === "ALL") continue;
      const pattern = new RegExp(`^${path.replace(/[.*+?^${}()|[\]\\]/g, "\\$&").replace(/\/:[^/]+/g, "/[^/]+")}$`);
      this.#paths.push({ pattern, method });
    }
  }

  refusal(c: Context): Problem {
    const { path, method } = c.req;
    const allowed = new Set(this.#paths.filter(({ pattern }) => pattern.test(path)).map((one) => one.method));
    if (allowed.size > 0) {
      const allow = [...allowed].join(", ");
      return refuse("method_not_allowed", `${method} is not possible here; ${allow} is.`, { headers: { allow } });
    }
    if (/^\/v1\/.*(?:\/\/|\/$)/.test(path))
      return new Problem(400, "invalid_id", "an id in the path must not be empty");
    const document = `${this.#prefix}/v1/openapi.json`;
    return refuse("route_not_found", `There is no such route. The API is described at ${document}.`);
  }
}
