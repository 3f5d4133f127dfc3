/**
 * Routes: each is one object that says what a request looks like, what it needs, what it returns, and the one call of the library that it makes.
 *
 * The object is the only source: the validation, the types of the handler, and the operation in the OpenAPI document are made of it. What all
 * routes share is done here, in this order: the key and its scope, the body, the shape of the request, the idempotency key, the call.
 *
 * A route whose call can be a decision has `decide`: with an idempotency key, its response is stored in the commit of its effect.
 */

import { createRoute, type OpenAPIHono, z } from "@hono/zod-openapi";
import type { Context } from "hono";
import type { Kernel } from "../../kernel/kernel.ts";
import type { Clock } from "../../kernel/ports.ts";
import { KEY_HEADER, parseKey } from "../middleware/key.ts";
import { type Reply, replyOf } from "../middleware/reply.ts";
import { type Caller, type Callers, checkScope } from "./auth.ts";
import { type Body, readBody } from "./body.ts";
import type { RequestMetrics } from "./counts.ts";
import type { CursorKey } from "./cursors.ts";
import type { ServedPawl, ServedTx, ServedVerbs } from "./handle.ts";
import { type Again, type Decided, decideOnce, once } from "./idempotency.ts";
import { checkTarget } from "./ids.ts";
import type { Scope } from "./keys/decide.ts";
import type { ApiKeys } from "./keys/keys.ts";
import {
  type LibraryCode,
  OWN_CODES,
  type OwnCode,
  type ProblemStatus,
  problemOf,
  refuse,
  STATUS_OF,
  TITLES,
} from "./problem.ts";
import { problemText } from "./respond.ts";
import type { Settings } from "./settings.ts";
import type { Reader, Unread } from "./unread.ts";
import { DISPLACED, type Waiting } from "./wait.ts";

/** What is known of a request beside its route. */
export interface Env {
  readonly Variables: {
    requestId: string;
    caller: Caller;
    body: Body;
  };
}

export type App = OpenAPIHono<Env>;

type Shape = Readonly<Record<string, z.ZodType>>;
type Shaped<S extends Shape> = { readonly [Name in keyof S]: z.output<S[Name]> };

/** Where a response is written to. */
export interface Connection {
  readonly writableNeedDrain: boolean;
  on(event: "drain" | "close", listener: () => void): Connection;
  off(event: "drain" | "close", listener: () => void): Connection;
  destroy(): void;
}

/** The part of a request that waits. */
export interface Waiter {
  /** Undefined where no Node server passes it along. */
  readonly connection: Connection | undefined;
  readonly reader: Reader;
  /** Aborted when the client is gone or the server closes, and with a refusal when the API key of a request that waits has ended. */
  readonly abortSignal: AbortSignal;
  /** Takes a place for requests that wait, and returns how to free it; undefined if there is none. */
  readonly enter: () => (() => void) | undefined;
}

/** What a handler gets. */
export interface Call<Params extends Shape, Query extends Shape, B extends z.ZodType> extends Caller, Waiter {
  readonly params: Shaped<Params>;
  readonly query: Shaped<Query>;
  readonly body: z.output<B>;
  /** A header of the request. */
  header(name: string): string | undefined;
  /** Throws `scope_missing`, for what needs another scope than the route. */
  needs(scope: Scope): void;
  readonly requestId: string;
  /** The handle of a namespace, for a route without a key. */
  handleOf(namespace: string | undefined): Promise<ServedVerbs | undefined>;
  /** The `Idempotency-Key` of the request. */
  readonly idempotencyKey: string | undefined;
}

/** What a handler returns: a status and its JSON, or a response that it made itself. */
export interface Answer<T> {
  readonly status: number;
  readonly json?: T;
  readonly headers?: Readonly<Record<string, string>>;
}

/** A refusal that is committed, because it leaves something behind: an entry in a history. */
export class Refused {
  readonly error: unknown;

  constructor(error: unknown) {
    this.error = error;
  }
}

/** The call of a route as a decision: pure, and it may run more than once. What it throws drops all that it did. */
export type Deciding<T> = (tx: ServedTx) => Answer<T> | Refused;

export interface RouteOptions<
  Params extends Shape,
  Query extends Shape,
  B extends z.ZodType,
  R extends Readonly<Record<number, z.ZodType | null>>,
> {
  readonly method: "get" | "post" | "put" | "patch" | "delete";
  /** Below the prefix, with parameters in braces: "/v1/runs/{id}". */
  readonly path: string;
  readonly tag: string;
  /** The name of the operation in generated clients. */
  readonly operation: string;
  readonly summary: string;
  readonly description?: string;
  /** What the key must be allowed to do; null for a route that needs no key. */
  readonly scope: Scope | null;
  readonly params?: Params;
  readonly query?: Query;
  readonly body?: B;
  /** Headers that the route uses, for the document. */
  readonly headers?: readonly ("If-Match" | "If-None-Match" | "Last-Event-ID")[];
  /** What it returns for each status; null for no body. */
  readonly returns: R;
  /** The call itself recognizes repeated requests. */
  readonly isIdempotent?: boolean;
  /** What of the response may be stored for repeated requests, where it has a secret; undefined if nothing may. Default: all of it. */
  readonly kept?: (json: Returned<R>, body: z.output<B>) => unknown;
  /** Whether the response to a decision has a secret, so that it is stored sealed with the API key; without keys it is not stored. */
  readonly isSecret?: (body: z.output<B>) => boolean;
  /** Members of the body that are secrets: requests are not compared by them. */
  readonly secrets?: readonly string[];
  /** It also sends this media type, for some requests. */
  readonly sends?: string;
  /** Codes of refusals besides those of every route. */
  readonly refuses?: readonly (LibraryCode | OwnCode)[];
  /** Gives the response again that was not kept, by a call that recognizes it as repeated; undefined if that is not possible. */
  readonly again?: (call: Call<Params, Query, B>) => Promise<Answer<Returned<R>> | undefined>;
  /** The call as a decision; undefined where this request cannot be one, and `handle` does it. What is slow is done before it is returned. */
  readonly decide?: (
    call: Call<Params, Query, B>,
  ) => Deciding<Returned<R>> | undefined | Promise<Deciding<Returned<R>> | undefined>;
  /** The call, if it is not a decision. */
  readonly handle?: (call: Call<Params, Query, B>) => Promise<Answer<Returned<R>> | Response>;
}

type Returned<R> = { [Status in keyof R]: R[Status] extends z.ZodType ? z.input<R[Status]> : never }[keyof R];

/** What every route of an app needs. */
export interface Routing {
  readonly app: App;
  readonly pawl: ServedPawl;
  readonly kernel: Kernel;
  readonly clock: Clock;
  /** The OpenAPI document, which has all routes when the first request comes. */
  readonly document: () => object;
  readonly requests: RequestMetrics;
  /** The namespace of the handle itself. */
  readonly namespace: string;
  readonly keys: ApiKeys;
  readonly cursors: CursorKey;
  readonly callers: Callers;
  readonly settings: Settings;
  readonly closing: AbortSignal;
  readonly waiting: Waiting;
  readonly unread: Unread;
}

/** The parts that all problems have. */
export const ProblemSchema = z
  .object({
    type: z.string(),
    title: z.string(),
    status: z.number().int(),
    code: z.string().openapi({ description: "A stable code to branch on." }),
    detail: z.string(),
    data: z.unknown().optional(),
    requestId: z.string(),
  })
  .openapi("Problem");

/** Refusals that every route with a key may give. */
const COMMON: readonly (LibraryCode | OwnCode)[] = [
  "invalid_request",
  "unauthorized",
  "scope_missing",
  "rate_limited",
  "internal",
  "store_busy",
];
const COMMON_WITH_BODY: readonly (LibraryCode | OwnCode)[] = [
  "invalid_json",
  "request_timeout",
  "request_too_large",
  "not_json",
  "idempotency_key_malformed",
  "idempotency_in_progress",
  "idempotency_mismatch",
];

/** A body that took longer than this was sent with a key that may have ended meanwhile. */
const SLOW_BODY_MS = 1000;

const MALFORMED = "Idempotency-Key must be one string of 1 to 255 visible ASCII characters.";

const HEADERS = {
  "If-Match": "The version that the request expects, as the ETag of a response.",
  "If-None-Match": "An ETag that the client has: the response is 304 if it is still the same.",
  "Last-Event-ID": "The id of the last event that the client has seen: the stream continues after it.",
  "Idempotency-Key":
    "Repeating a request with the same key has one effect and gets the same response. The keys of two API keys are independent.",
} as const;

/** `If-None-Match` of a write. */
const NOTHING_YET = "`*`: refused if anything is stored already.";

/** Adds a route to the app. */
export function add<
  R extends Readonly<Record<number, z.ZodType | null>>,
  Params extends Shape = Record<never, z.ZodType>,
  Query extends Shape = Record<never, z.ZodType>,
  B extends z.ZodType = z.ZodUndefined,
>(routing: Routing, options: RouteOptions<Params, Query, B, R>): void {
  const { app, callers, clock, settings, closing, waiting } = routing;
  const { method, path, scope, body } = options;
  const changes = method !== "get";
  const route = createRoute({
    method,
    path,
    tags: [options.tag],
    operationId: options.operation,
    summary: options.summary,
    description: [options.description, neededOf(scope)].filter((part) => part !== undefined).join(" "),
    security: scope === null ? [] : [{ key: [scope] }],
    request: {
      params: z.strictObject(options.params ?? {}),
      query: z.strictObject(options.query ?? {}),
      headers: headersOf(options.headers ?? [], changes),
      ...(body === undefined
        ? {}
        : {
            body: {
              required: !body.safeParse({}).success,
              content: { "application/json": { schema: body as z.ZodType } },
            },
          }),
    },
    responses: responsesOf(options, changes),
  });
  const authorize = async (c: Context<Env>, next: () => Promise<void>): Promise<void> => {
    checkTarget(c.req.path, c.req.url);
    const caller = await callers.of(c.req.raw, c.env, scope);
    c.set("caller", caller);
    if (changes) {
      const beganMs = clock.nowMs();
      const read = await readBody(c.req.raw, settings);
      // A caller could begin requests with a key, and end them after it was revoked.
      if (clock.nowMs() - beganMs >= SLOW_BODY_MS) await caller.verifyAgain();
      if (read.json !== undefined && body === undefined) throw refuse("invalid_request", "This request takes no body.");
      c.set("body", read);
      // The validation gets what was parsed here. No body is one without members, whatever the Content-Type says.
      Object.assign(c.req, {
        json: async () => (read.bytes.length === 0 ? {} : read.json),
        arrayBuffer: async () => read.bytes.buffer,
      });
    }
    await next();
  };
  app.on([method], [path.replaceAll(/\/{(.+?)}/g, "/:$1")], authorize);
  app.openapi(route, (async (c: Context<Env>) => {
    const caller = c.get("caller");
    if (changes) refuseConditions(c, options.headers ?? []);
    const valid = c.req.valid.bind(c.req) as (target: string) => never;
    const parsed = changes ? parseKey(c.req.header(KEY_HEADER)) : { is: "missing" as const };
    if (parsed.is === "malformed") throw refuse("idempotency_key_malformed", MALFORMED);
    const key = parsed.is === "key" ? parsed.key : undefined;
    const given = body === undefined ? (undefined as never) : valid("json");
    const ended = new AbortController();
    const call: Call<Params, Query, B> = {
      ...caller,
      params: valid("param"),
      query: valid("query"),
      body: given,
      header: (name) => c.req.header(name),
      needs: (one) => checkScope(caller, one),
      connection: (c.env as { readonly outgoing?: Connection } | undefined)?.outgoing,
      reader: { namespace: caller.namespace, keyId: caller.keyId },
      abortSignal: AbortSignal.any([c.req.raw.signal, closing, ended.signal]),
      enter: () => {
        const leave = waiting.enter(caller, () => ended.abort(DISPLACED));
        if (leave === undefined) return undefined;
        const unwatch = caller.watch((refusal) => ended.abort(refusal));
        return () => {
          unwatch();
          leave();
        };
      },
      requestId: c.get("requestId"),
      idempotencyKey: key,
      handleOf: (namespace) => callers.handleOf(namespace),
    };
    const decide = await options.decide?.(call);
    const handle = async (): Promise<Answer<Returned<R>> | Response> => {
      if (decide === undefined && options.handle !== undefined) return options.handle(call);
      if (decide === undefined) throw new Error(`the route ${path} has no call for this request`);
      const answer = await caller.pawl.transact(decide);
      if (answer instanceof Refused) throw answer.error;
      return answer;
    };
    if (key === undefined || options.isIdempotent === true) {
      const answer = await handle();
      return answer instanceof Response ? answer : json(answer);
    }
    const { search: query } = new URL(c.req.url);
    const { bytes, json: sent } = c.get("body");
    const request = {
      caller,
      key,
      method,
      path: c.req.path,
      query,
      ifMatch: c.req.header("if-match"),
      ifNoneMatch: c.req.header("if-none-match"),
      body: options.secrets === undefined ? bytes : without(sent, options.secrets),
      maxBytes: settings.bodyBytes,
    };
    const { again: repeat } = options;
    const again: Again | undefined =
      repeat === undefined
        ? undefined
        : async () => {
            const answer = await repeat(call);
            return answer === undefined ? undefined : json(answer);
          };
    /** What of the answer is stored. */
    const keptOf = (answer: Answer<Returned<R>>): Answer<unknown> | undefined => {
      if (options.kept === undefined || answer.json === undefined) return answer;
      const kept = options.kept(answer.json, given);
      return kept === answer.json ? answer : kept === undefined ? undefined : { ...answer, json: kept };
    };
    if (decide !== undefined) {
      const isSecret = options.isSecret?.(given) === true;
      const decided = (tx: ServedTx): Decided => {
        const answer = decide(tx);
        if (answer instanceof Refused) {
          const reply = refusalOf(answer);
          return { reply, kept: reply };
        }
        const reply = replyTo(answer);
        if (isSecret) return { reply, kept: caller.seal?.seal(reply, key) };
        const kept = keptOf(answer);
        return { reply, kept: kept === answer ? reply : kept === undefined ? undefined : replyTo(kept) };
      };
      return decideOnce(request, decided, again, isSecret ? (stored) => caller.seal?.open(stored, key) : undefined);
    }
    const handled = async () => {
      const answer = await handle();
      if (answer instanceof Response) return { response: answer, kept: answer };
      const response = json(answer);
      const kept = keptOf(answer);
      return { response, kept: kept === answer ? response : kept === undefined ? undefined : json(kept) };
    };
    return once(request, handled, again);
  }) as never);
}

/** Refuses a condition that this write would not check. */
function refuseConditions(c: Context<Env>, checked: readonly string[]): void {
  for (const name of ["If-Match", "If-None-Match"])
    if (!checked.includes(name) && c.req.header(name) !== undefined)
      throw refuse("invalid_request", `${name} has no effect on this request: send it without.`);
}

const neededOf = (scope: Scope | null): string => (scope === null ? "Needs no key." : `Needs the scope \`${scope}\`.`);

/** An answer in the form in which it is stored. */
function replyTo({ status, json: body, headers }: Answer<unknown>): Reply {
  return replyOf({ status, json: body, headers: { "cache-control": "no-store", ...headers } });
}

/** The same for a refusal. */
function refusalOf({ error }: Refused): Reply {
  const problem = problemOf(error);
  if (problem === undefined) throw error;
  const { status, headers } = problem;
  const all = { "content-type": "application/problem+json", "cache-control": "no-store", ...headers };
  return { status, headers: Object.entries(all), body: problemText(problem, "") };
}

/** The body without these members. */
function without(body: unknown, names: readonly string[]): unknown {
  if (typeof body !== "object" || body === null) return body;
  return Object.fromEntries(Object.entries(body).filter(([name]) => !names.includes(name)));
}

function json({ status, json: body, headers }: Answer<unknown>): Response {
  const text = body === undefined ? null : JSON.stringify(body);
  return new Response(text, {
    status,
    headers: {
      ...(text === null ? {} : { "content-type": "application/json" }),
      "cache-control": "no-store",
      ...headers,
    },
  });
}

function headersOf(names: readonly (keyof typeof HEADERS)[], changes: boolean): z.ZodObject {
  const all = changes ? [...names, "Idempotency-Key" as const] : names;
  const shape = all.map((name) => {
    const description = changes && name === "If-None-Match" ? NOTHING_YET : HEADERS[name];
    return [name.toLowerCase(), z.string().optional().openapi({ description })];
  });
  return z.looseObject(Object.fromEntries(shape));
}

type Responses = Parameters<typeof createRoute>[0]["responses"];

function responsesOf(
  {
    returns,
    refuses = [],
    sends,
    body,
    headers = [],
  }: Pick<
    RouteOptions<Shape, Shape, z.ZodType, Readonly<Record<number, z.ZodType | null>>>,
    "returns" | "refuses" | "sends" | "body" | "headers"
  >,
  changes: boolean,
): Responses {
  const responses: Record<number, Responses[string]> = {};
  for (const [status, schema] of Object.entries(returns)) {
    const content = {
      ...(schema === null ? {} : { "application/json": { schema } }),
      ...(sends === undefined || status !== "200" ? {} : { [sends]: { schema: z.string() } }),
    };
    responses[Number(status)] = {
      description: DESCRIPTIONS[status] ?? "Done.",
      ...(schema === null ? {} : { content }),
    };
  }
  if (sends !== undefined && !(200 in returns))
    responses[200] = { description: "Events.", content: { [sends]: { schema: z.string() } } };
  const codes = new Set([...COMMON, ...(changes || body !== undefined ? COMMON_WITH_BODY : []), ...refuses]);
  const byStatus = Map.groupBy(codes, statusOf);
  if (headers.includes("If-Match")) byStatus.set(412, ["version_conflict"]);
  for (const [status, list] of byStatus)
    responses[status] = {
      description: `${TITLES[status]}: ${list.map((code) => `\`${code}\``).join(", ")}.`,
      content: { "application/problem+json": { schema: ProblemSchema } },
    };
  return responses;
}

const statusOf = (code: LibraryCode | OwnCode): ProblemStatus =>
  code in STATUS_OF ? STATUS_OF[code as LibraryCode] : OWN_CODES[code as OwnCode];

const DESCRIPTIONS: Readonly<Record<string, string>> = {
  "200": "Done.",
  "201": "Created.",
  "202": "Not ended yet.",
  "204": "Done.",
  "304": "Not modified.",
};
