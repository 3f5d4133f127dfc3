/**
 * One call of the API: it is sent until it has a response, within the patience of the client.
 *
 * Every call that changes something has an `Idempotency-Key` of its own, the same for all of its attempts. Which failures are followed by another attempt, and when,
 * is decided in `decide.ts`. An attempt that has no response after `attemptTimeout` is given up, as if the connection had been lost.
 *
 * Guarantees: when the promise settles, nothing of the call is under way here; an abort of the caller rejects with the reason of the signal.
 */

import type { Duration } from "../../kernel/check.ts";
import type { Platform } from "../platform/platform.ts";
import { decideRetry, parseRetryAfter } from "./decide.ts";
import { msOf } from "./duration.ts";
import { invalidArgument, PawlHttpError } from "./errors.ts";
import { sendable } from "./options.ts";
import { lackOf, routeOf } from "./replies.ts";
import { withTimes } from "./shapes.ts";
import { fromWire } from "./values.ts";

export interface Request {
  readonly method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  /** Below /v1, encoded: what `path` returns. */
  readonly path: string;
  readonly query?: Readonly<Record<string, unknown>> | undefined;
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>> | undefined;
  readonly abortSignal?: AbortSignal | undefined;
  /** Running it again does no harm, even without its key. Default: for GET only. */
  readonly isRepeatable?: boolean;
  /** Whether a refusal is what the call is about, so that it is not sent again. Default: none is. */
  readonly isResult?: (error: PawlHttpError) => boolean;
  /** How long the server may take on purpose. */
  readonly waitMs?: number;
}

export interface TransportSetup {
  readonly url: string;
  readonly key: string | undefined;
  readonly fetch: (url: string, init: RequestInit) => Promise<Response>;
  readonly platform: Platform;
  readonly patienceMs: number;
  readonly attemptMs: number;
  readonly abortSignal: AbortSignal | undefined;
}

/** The `next` of the page before, where this is the request for another page. */
function continuesAfter({ method, query }: Request): string | undefined {
  const from = method === "GET" ? (query?.["after"] ?? query?.["from"]) : undefined;
  return from == null ? undefined : String(from);
}

/** A path from its parts; ids may have any characters. "." and "..", which every URL drops in whatever spelling, would make it the path of another route. */
export const path = (...parts: readonly string[]): string =>
  parts.map((part) => `/${encodeURIComponent(checkPart(part))}`).join("");

function checkPart(part: unknown): string {
  if (typeof part !== "string" || part === "")
    throw invalidArgument("an id or name", "must be a string that is not empty");
  if (!part.isWellFormed()) throw invalidArgument("an id or name", "must not contain lone surrogates");
  if (part === "." || part === "..")
    throw invalidArgument("an id or name", `must not be "${part}" here: no URL can have it in its path`);
  return part;
}

export class Transport {
  readonly #setup: TransportSetup;

  constructor(setup: TransportSetup) {
    this.#setup = setup;
  }

  get platform(): Platform {
    return this.#setup.platform;
  }

  get patienceMs(): number {
    return this.#setup.patienceMs;
  }

  get abortSignal(): AbortSignal | undefined {
    return this.#setup.abortSignal;
  }

  /** The same, with other options. */
  with(options: {
    readonly abortSignal?: AbortSignal | undefined;
    readonly patience?: Duration | undefined;
  }): Transport {
    const { abortSignal = this.#setup.abortSignal, patience } = options;
    const patienceMs = patience === undefined ? this.#setup.patienceMs : msOf(patience, "the patience");
    return new Transport({ ...this.#setup, abortSignal, patienceMs });
  }

  /** Sends a call and returns its JSON; undefined where there is none. Throws `PawlHttpError`. */
  async call(request: Request): Promise<unknown> {
    const response = await this.send(request);
    return response.json;
  }

  /** Reads what is there. */
  get(path: string, query?: Request["query"]): Promise<unknown> {
    return this.call({ method: "GET", path, query });
  }

  /** Changes something. */
  post(path: string, body?: unknown, isRepeatable = false): Promise<unknown> {
    return this.call({ method: "POST", path, body, isRepeatable });
  }

  /** The same, with what is in the response besides. */
  async send(request: Request): Promise<Received> {
    const abortSignal = anySignal([request.abortSignal, this.#setup.abortSignal]);
    const from = continuesAfter(request);
    // A `fetch` that responds without any input or output would let nothing else run while a list is read.
    if (from !== undefined) await sleep(this.#setup.platform, 0, abortSignal);
    const response = await this.#attempts(request, abortSignal, async (response) => {
      const { status, headers } = response;
      const route = routeOf(request.method, request.path);
      const json = jsonIn(await response.text(), route, response);
      if (from !== undefined && (json as { readonly next?: unknown } | undefined)?.next === from)
        throw unexpected(response, route, 'its "next" is where it began');
      return { status, headers, json };
    });
    return response;
  }

  /** Opens a stream of events: the response whose body is still to be read. */
  async open(request: Request, abortSignal: AbortSignal): Promise<Response> {
    const read = async (response: Response): Promise<Response> => {
      const type = response.headers.get("content-type");
      if (response.status === 204 || type?.startsWith("text/event-stream") === true) return response;
      // Its body is not what is followed.
      response.body?.cancel().catch(() => {});
      throw unexpected(response, routeOf("GET", request.path), "it is no event stream");
    };
    return this.#attempts(request, abortSignal, read, false);
  }

  async #attempts<T>(
    request: Request,
    abortSignal: AbortSignal | undefined,
    read: (response: Response) => Promise<T>,
    isWhole = true,
  ): Promise<T> {
    const { platform } = this.#setup;
    // What the server is asked to wait for is not its being slow.
    const patienceMs = this.#setup.patienceMs + (this.#setup.patienceMs === 0 ? 0 : (request.waitMs ?? 0));
    const { method, isRepeatable = method === "GET", isResult = () => false } = request;
    const beganMs = platform.runningMs();
    const key = method === "GET" ? {} : { "idempotency-key": platform.uuid() };
    // Once, and before the attempts: what cannot be sent now cannot be sent later.
    const init = this.#initOf(request, key);
    const address = `${this.#setup.url}/v1${request.path}${queryOf(request.query)}`;
    for (let attempt = 1; ; attempt += 1) {
      abortSignal?.throwIfAborted();
      try {
        return await this.#attempt(address, request.waitMs ?? 0, init, abortSignal, read, isWhole);
      } catch (error) {
        if (abortSignal?.aborted === true) throw abortSignal.reason;
        if (!(error instanceof PawlHttpError)) throw error;
        const elapsedMs = platform.runningMs() - beganMs;
        const moment = { attempt, elapsedMs, patienceMs, random: platform.random() };
        const waitMs = decideRetry(error, { isRepeatable, isResult: isResult(error) }, moment);
        if (waitMs === null) throw error;
        await sleep(platform, waitMs, abortSignal);
      }
    }
  }

  #initOf({ method, body, headers }: Request, key: Readonly<Record<string, string>>): RequestInit {
    const { key: apiKey } = this.#setup;
    return {
      method,
      headers: {
        accept: "application/json",
        ...(apiKey === undefined ? {} : { authorization: `Bearer ${apiKey}` }),
        ...(body === undefined ? {} : { "content-type": "application/json" }),
        ...key,
        ...headers,
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body, sendable) }),
    };
  }

  async #attempt<T>(
    address: string,
    waitMs: number,
    init: RequestInit,
    abortSignal: AbortSignal | undefined,
    read: (response: Response) => Promise<T>,
    isWhole: boolean,
  ): Promise<T> {
    const { url, fetch, platform, attemptMs } = this.#setup;
    const over = new AbortController();
    const cancel = platform.after(attemptMs + waitMs, () =>
      over.abort(new Error(`there was no response within ${attemptMs + waitMs} ms`)),
    );
    const signal = anySignal([abortSignal, over.signal]) as AbortSignal;
    try {
      const response = await fetch(address, { ...init, signal });
      if (!response.ok) throw refusalOf(response, await response.text(), platform.nowMs());
      // The body of a stream of events is read for as long as it lasts.
      if (!isWhole) cancel();
      return await read(response);
    } catch (error) {
      if (error instanceof PawlHttpError) throw error;
      const cause = over.signal.aborted ? over.signal.reason : error;
      throw new PawlHttpError({
        status: 0,
        code: "server_unreachable",
        message: `there was no response from ${url}: ${messageOf(cause)}`,
        cause,
      });
    } finally {
      cancel();
    }
  }
}

export interface Received {
  readonly status: number;
  readonly headers: Headers;
  readonly json: unknown;
}

const messageOf = (error: unknown): string => {
  const cause = error instanceof Error && error.cause instanceof Error ? `: ${error.cause.message}` : "";
  return error instanceof Error ? `${error.message}${cause}` : String(error);
};

/** An object has no text of its own. */
function textOf(name: string, value: unknown): string {
  if (typeof value === "object") throw invalidArgument(`"${name}"`, "must be a text, a number or a boolean");
  return String(sendable(name, value));
}

function queryOf(query: Request["query"]): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {}))
    for (const one of [value].flat()) if (one !== undefined && one !== null) search.append(name, textOf(name, one));
  const text = search.toString();
  return text === "" ? "" : `?${text}`;
}

/** The JSON of a response that succeeded; undefined for a route that returns none. */
function jsonIn(text: string, route: string, response: Response): unknown {
  let json: unknown;
  try {
    json = text === "" ? undefined : JSON.parse(text);
  } catch (cause) {
    throw unexpected(response, route, "it is not JSON, or not all of it", cause);
  }
  const lack = lackOf(route, json);
  if (lack !== undefined) throw unexpected(response, route, lack);
  return json;
}

/** A response that succeeded and is not one of the server. It is not sent again: the call may have had its effect. */
function unexpected({ status, headers }: Response, route: string, reason: string, cause?: unknown): PawlHttpError {
  return new PawlHttpError({
    status,
    code: "unexpected_response",
    message: `the response to ${route}, with status ${status}, is not one of a Pawl server: ${reason}; is the address right, and the proxy before it?`,
    data: { route, reason },
    requestId: headers.get("x-request-id"),
    cause,
  });
}

/** The error of a response that is a refusal, or that came from something between here and the server. */
function refusalOf({ status, headers }: Response, text: string, nowMs: number): PawlHttpError {
  const problem = problemOf(text);
  const retryAfterMs = parseRetryAfter(headers.get("retry-after"), nowMs);
  return new PawlHttpError({
    status,
    code: problem?.code ?? "unexpected_response",
    message: problem?.detail ?? `the response has status ${status}`,
    data: withTimes(fromWire(problem?.data)),
    requestId: problem?.requestId ?? headers.get("x-request-id"),
    retryAfterMs,
  });
}

interface Problem {
  readonly code: string;
  readonly detail?: string;
  readonly data?: unknown;
  readonly requestId?: string;
}

function problemOf(text: string): Problem | undefined {
  try {
    const json = JSON.parse(text) as Partial<Problem> | null;
    return typeof json?.code === "string" ? (json as Problem) : undefined;
  } catch {
    return undefined;
  }
}

/** A signal that aborts with the first of these. */
export function anySignal(signals: readonly (AbortSignal | undefined)[]): AbortSignal | undefined {
  const given = signals.filter((one) => one !== undefined);
  return given.length > 1 ? AbortSignal.any(given) : given[0];
}

/** Waits; rejects with the reason of the signal. */
export function sleep(platform: Platform, ms: number, abortSignal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    if (abortSignal?.aborted === true) return reject(abortSignal.reason);
    const aborted = (): void => {
      cancel();
      reject(abortSignal?.reason);
    };
    const cancel = platform.after(ms, () => {
      abortSignal?.removeEventListener("abort", aborted);
      resolve();
    });
    abortSignal?.addEventListener("abort", aborted, { once: true });
  });
}
