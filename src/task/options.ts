/**
 * Options of tasks, and their checks, which run before anything is written. What is checked becomes the input of the task's run.
 */

import {
  checkCount,
  checkDate,
  checkDuration,
  checkId,
  checkList,
  checkObject,
  checkOptions,
  checkText,
  type Duration,
  optionNames,
  utf8Length,
} from "../kernel/check.ts";
import { jsonCodec } from "../kernel/codec/json.ts";
import { InvalidArgumentError } from "../kernel/errors.ts";
import { checkRetry } from "../kernel/retry.ts";
import { isPlain } from "../machine/decide.ts";
import { checkPriority } from "../workflow/definitions/flow.ts";
import { ALL_5XX, MOST_ATTEMPTS } from "./decide.ts";
import type { StoredRetry, TaskInput } from "./stored.ts";
import { checkTarget } from "./target.ts";

export interface TaskConcurrency {
  /** Tasks with the same key share the limit. */
  readonly key: string;
  /** How many of them have begun and have not ended; those that wait for a signal count, too. */
  readonly max: number;
}

export interface TaskRateLimit {
  /** Tasks with the same key share the limit. */
  readonly key: string;
  /** How many of them begin in `per`. */
  readonly max: number;
  readonly per: Duration;
}

/** How a call is tried again. */
export interface TaskRetry {
  /** How often it is tried in total; 1 for no retry. Default: 5; at most 1,000. */
  readonly attempts?: number | undefined;
  /** The wait before the second attempt. Default: 1 s. */
  readonly delay?: Duration | undefined;
  /** What the wait is multiplied by each time. Default: 2. */
  readonly factor?: number | undefined;
  /** The longest wait. Default: 1 minute, or `delay` where that is longer. */
  readonly maxDelay?: Duration | undefined;
  /** How much of the wait is random, 0 to 1. Default: 0.5. */
  readonly jitter?: number | undefined;
}

const RETRY = optionNames<TaskRetry>({ attempts: true, delay: true, factor: true, maxDelay: true, jitter: true });

/** What a task calls. A schedule takes the same: `schedule(name, { cron }, httpTask, { targetUrl })`. */
export interface TaskRequest {
  /** Where the call goes: http or https, and no private address or port of a database unless the operator allows it (`httpTasks`). */
  readonly targetUrl: string | URL;
  /** Default: "POST". */
  readonly method?: string | undefined;
  readonly headers?: Headers | Readonly<Record<string, string>> | undefined;
  /** A text or bytes are sent as they are; anything else as JSON. At most 1 MiB. */
  readonly body?: unknown;
  /** How long an attempt may take, from resolving the name to the end of the response. Default: 30 s; at most 1 hour. */
  readonly timeout?: Duration | undefined;
  /** How the call is tried again after a network error, a timeout, or one of `retryStatuses`. Default: 5 attempts, after 1 s, 2 s, 4 s, 8 s. */
  readonly retry?: TaskRetry | undefined;
  /** After which statuses the call is tried again. A 410 never is. Default: 408, 429 and "5xx". */
  readonly retryStatuses?: readonly (number | "5xx")[] | undefined;
  /** How many tasks with this key may have begun together; the others wait in line. */
  readonly concurrency?: TaskConcurrency | undefined;
  /** How many tasks with this key may begin in a time; the others wait for their turn. */
  readonly rateLimit?: TaskRateLimit | undefined;
}

export interface TaskOptions extends TaskRequest {
  /** The task's id. The same id with the same request is the same task. Default: a new id. */
  readonly id?: string | undefined;
  /** The same key with the same request is the same task, with the same signal token; another request under it is refused. */
  readonly idempotencyKey?: string | undefined;
  /** Begins this much later. Not together with `at`. */
  readonly delay?: Duration | undefined;
  /** Begins at this time. Not together with `delay`. */
  readonly at?: Date | number | undefined;
  /** Where tasks wait in line: one of a higher priority goes first. A whole number from -100 to 100. Default: 0. */
  readonly priority?: number | undefined;
  /** Words to find it by. */
  readonly tags?: readonly string[] | undefined;
  /** Gets a signed POST when the task has its outcome. */
  readonly onCompleteUrl?: string | URL | undefined;
  /** The task is completed by a signal, after the call has succeeded or before. Needs the key ring of `open({ actions: { keys } })`. */
  readonly waitForSignal?: boolean | undefined;
  /** How long it waits for the signal once the call has succeeded. Default: 1 day. */
  readonly maxWaitTime?: Duration | undefined;
}

const REQUEST = {
  targetUrl: true,
  method: true,
  headers: true,
  body: true,
  timeout: true,
  retry: true,
  retryStatuses: true,
  concurrency: true,
  rateLimit: true,
} as const;
export const REQUEST_OPTIONS = optionNames<TaskRequest>(REQUEST);
export const TASK_OPTIONS = optionNames<TaskOptions>({
  ...REQUEST,
  id: true,
  idempotencyKey: true,
  delay: true,
  at: true,
  priority: true,
  tags: true,
  onCompleteUrl: true,
  waitForSignal: true,
  maxWaitTime: true,
});
const CONCURRENCY = optionNames<TaskConcurrency>({ key: true, max: true });
const RATE_LIMIT = optionNames<TaskRateLimit>({ key: true, max: true, per: true });

const MOST_BODY_BYTES = 1024 * 1024;
const LONGEST_TIMEOUT_MS = 3_600_000;
export const WAIT_MS = 24 * 3_600_000;
const MOST_HEADERS = 50;
const LONGEST_HEADER = 4096;
const MOST_STATUSES = 50;

/** What every attempt sets itself, and what belongs to the connection; names are folded first. */
const OWN_HEADERS =
  /^(webhook-|pawl-|idempotency-key$|host$|connection$|keep-alive$|proxy-|te$|trailer$|transfer-encoding$|upgrade$|content-length$|expect$)/;
/**
 * Between a proxy and the code of the receiver, names become variables: `webhook-id` and `webhook_id` are both HTTP_WEBHOOK_ID, and some fold every sign to one.
 * So a name counts as reserved, too, if only signs distinguish it from one that is.
 */
const folded = (name: string): string => name.replaceAll(/[^a-z0-9]/g, "-");
const TOKEN = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
/** Visible characters of ASCII, spaces and tabs: no line ends, and nothing that would be sent in another encoding. */
const FIELD = /^[\t\x20-\x7e]*$/;

/** The request of a task as it is stored, without what only one task has: its key and its token. */
export function checkTaskRequest(given: TaskRequest): TaskInput {
  const { method = "POST", timeout, retry, retryStatuses, concurrency, rateLimit } = given;
  const { body, type } = checkBody(given.body);
  const headers = checkHeaders(given.headers, type);
  const verb = checkMethod(method);
  if (body !== undefined && (verb === "GET" || verb === "HEAD"))
    throw new InvalidArgumentError("the body", `must not be given with the method ${verb}`);
  return {
    url: checkTarget(given.targetUrl).href,
    ...(verb === "POST" ? {} : { method: verb }),
    ...(Object.keys(headers).length === 0 ? {} : { headers }),
    ...(body === undefined ? {} : { body }),
    ...(timeout === undefined ? {} : { timeoutMs: checkTimeout(timeout) }),
    ...(retry === undefined ? {} : { retry: checkTaskRetry(retry) }),
    ...(retryStatuses === undefined ? {} : { retryStatuses: checkStatuses(retryStatuses) }),
    ...(concurrency === undefined ? {} : { concurrency: checkConcurrency(concurrency) }),
    ...(rateLimit === undefined ? {} : { rateLimit: checkRateLimit(rateLimit) }),
  };
}

/** A creation, checked: what is stored of it, and what says when it begins. */
export interface CheckedTask {
  readonly id: string | undefined;
  readonly idempotencyKey: string | undefined;
  readonly input: TaskInput;
  readonly start: {
    readonly delay: number | undefined;
    readonly at: number | undefined;
    readonly priority: number | undefined;
    readonly tags: readonly string[] | undefined;
  };
  readonly waitsForSignal: boolean;
}

export function checkTask(given: TaskOptions): CheckedTask {
  checkObject(given, "the task");
  checkOptions(given, TASK_OPTIONS, "the task");
  const { id, idempotencyKey, delay, at, priority, tags, onCompleteUrl, waitForSignal = false, maxWaitTime } = given;
  if (typeof waitForSignal !== "boolean") throw new InvalidArgumentError("waitForSignal", "must be true or false");
  if (maxWaitTime !== undefined && !waitForSignal)
    throw new InvalidArgumentError("maxWaitTime", "must not be given without waitForSignal");
  if (delay !== undefined && at !== undefined)
    throw new InvalidArgumentError("the task", "must not have both delay and at: each says when it begins");
  const start = {
    delay: delay === undefined ? undefined : checkDuration(delay, "the delay"),
    at: at === undefined ? undefined : checkDate(at, "the time to begin at"),
    priority: priority === undefined ? undefined : checkPriority(priority),
    tags,
  };
  if (tags !== undefined) checkList(tags, "the tags");
  for (const tag of tags ?? []) checkId(tag, "the tag");
  return {
    id: id === undefined ? undefined : checkId(id, "the task's id"),
    idempotencyKey: idempotencyKey === undefined ? undefined : checkId(idempotencyKey, "the idempotencyKey"),
    input: {
      ...checkTaskRequest(given),
      ...(onCompleteUrl === undefined ? {} : { onCompleteUrl: checkTarget(onCompleteUrl, "the onCompleteUrl").href }),
      ...(waitForSignal
        ? { maxWaitMs: maxWaitTime === undefined ? WAIT_MS : checkDuration(maxWaitTime, "maxWaitTime") }
        : {}),
    },
    start,
    waitsForSignal: waitForSignal,
  };
}

function checkMethod(method: unknown): string {
  const verb = typeof method === "string" ? method.toUpperCase() : "";
  if (!["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"].includes(verb))
    throw new InvalidArgumentError("the method", 'must be "GET", "HEAD", "POST", "PUT", "PATCH" or "DELETE"');
  return verb;
}

function checkBody(body: unknown): { readonly body?: string | Uint8Array; readonly type?: string } {
  if (body === undefined) return {};
  const isBytes = body instanceof Uint8Array;
  const sent = isBytes ? Uint8Array.from(body) : typeof body === "string" ? body : asJson(body);
  if (typeof sent === "string" && !sent.isWellFormed())
    throw new InvalidArgumentError("the body", "must not contain lone surrogates");
  if ((typeof sent === "string" ? utf8Length(sent) : sent.length) > MOST_BODY_BYTES)
    throw new InvalidArgumentError("the body", `must not be longer than ${MOST_BODY_BYTES} bytes`);
  return {
    body: sent,
    type: isBytes
      ? "application/octet-stream"
      : typeof body === "string"
        ? "text/plain; charset=utf-8"
        : "application/json",
  };
}

const NOWHERE = { namespace: "", space: "", key: "" };

function asJson(body: unknown): string {
  // Refuses promises, instances of classes, cycles and the like, of which JSON would make something else.
  jsonCodec.encode(body, NOWHERE);
  const text = JSON.stringify(body, onlyJson);
  if (typeof text === "string") return text;
  throw notJson();
}

function onlyJson(_key: string, value: unknown): unknown {
  const isOther = value instanceof Map || value instanceof Set || value instanceof Error || ArrayBuffer.isView(value);
  const isNoNumber = typeof value === "bigint" || (typeof value === "number" && !Number.isFinite(value));
  if (isOther || isNoNumber) throw notJson();
  return value;
}

const notJson = (): InvalidArgumentError =>
  new InvalidArgumentError("the body", "must be a text, bytes, or what JSON can hold");

function checkHeaders(given: TaskRequest["headers"], type: string | undefined): Record<string, string> {
  const headers: Record<string, string> = {};
  if (given !== undefined) {
    checkObject(given, "the headers");
    if (Array.isArray(given)) throw new InvalidArgumentError("the headers", "must be an object, not a list");
    const isHeaders = given instanceof Headers;
    const entries: readonly (readonly [string, unknown])[] = isHeaders ? [...given] : Object.entries(given);
    // Of a Map, there are none: its headers would be left out.
    if (entries.length === 0 && !isHeaders && !isPlain(given))
      throw new InvalidArgumentError("the headers", "must be a plain object, or Headers");
    if (entries.length > MOST_HEADERS) throw new InvalidArgumentError("the headers", `must be at most ${MOST_HEADERS}`);
    for (const [key, value] of entries) {
      const name = key.toLowerCase();
      if (!TOKEN.test(key)) throw new InvalidArgumentError("the headers", "must have names that HTTP allows");
      if (OWN_HEADERS.test(folded(name)))
        throw new InvalidArgumentError(
          `the header "${name}"`,
          "must not be given: every attempt sets it itself, or one that receivers may take for the same",
        );
      if (name in headers) throw new InvalidArgumentError(`the header "${name}"`, "must not be given twice");
      // The value may be secret, so it is not repeated.
      if (typeof value !== "string" || value.length > LONGEST_HEADER || !FIELD.test(value))
        throw new InvalidArgumentError(
          `the header "${name}"`,
          `must be a text of at most ${LONGEST_HEADER} visible ASCII characters, without line ends`,
        );
      headers[name] = value;
    }
  }
  if (type !== undefined && headers["content-type"] === undefined) headers["content-type"] = type;
  return headers;
}

function checkTimeout(timeout: Duration): number {
  const ms = checkDuration(timeout, "the timeout");
  if (ms < 1 || ms > LONGEST_TIMEOUT_MS) throw new InvalidArgumentError("the timeout", "must be from 1 ms to 1 hour");
  return ms;
}

function checkTaskRetry(retry: TaskRetry): StoredRetry {
  checkOptions(retry, RETRY, "the retry");
  const { when: _when, ...policy } = checkRetry(retry);
  if (policy.attempts > MOST_ATTEMPTS)
    throw new InvalidArgumentError("the retry's attempts", `must be at most ${MOST_ATTEMPTS}`);
  return policy;
}

function checkStatuses(given: NonNullable<TaskRequest["retryStatuses"]>): readonly number[] {
  checkList(given, "the retryStatuses");
  if (given.length > MOST_STATUSES)
    throw new InvalidArgumentError("the retryStatuses", `must be at most ${MOST_STATUSES}`);
  return given.map((status) => {
    if (status === "5xx") return ALL_5XX;
    if (!Number.isInteger(status) || status < 300 || status > 599)
      throw new InvalidArgumentError("the retryStatuses", 'must be statuses from 300 to 599, or "5xx"');
    return status;
  });
}

function checkConcurrency(given: TaskConcurrency): TaskConcurrency {
  checkOptions(given ?? null, CONCURRENCY, "the concurrency");
  return {
    key: checkId(given.key, "the concurrency's key"),
    max: checkCount(given.max, "the concurrency's max", 1_000_000),
  };
}

function checkRateLimit(given: TaskRateLimit): NonNullable<TaskInput["rateLimit"]> {
  checkOptions(given ?? null, RATE_LIMIT, "the rateLimit");
  const perMs = checkDuration(given.per, "the rateLimit's per");
  if (perMs < 1) throw new InvalidArgumentError("the rateLimit's per", "must be 1 ms or more");
  return {
    key: checkId(given.key, "the rateLimit's key"),
    max: checkCount(given.max, "the rateLimit's max", 1_000_000),
    perMs,
  };
}

/** The reason of a cancellation. */
export const checkReason = (reason: unknown): string | undefined =>
  reason === undefined ? undefined : checkText(reason, "the reason");
