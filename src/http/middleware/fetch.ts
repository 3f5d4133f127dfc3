/**
 * Idempotent handlers of web-standard requests: a function from `Request` to `Response`, as Deno, Bun, workers and many frameworks have
 * them. What happens to a request is said in `gate.ts`.
 *
 * A request is told by its method, path, query and body bytes; the body is read from a copy, and the handler gets the request as it came.
 * The response is read whole before it is sent, a stream too, up to `maxBodyBytes`; what is longer is sent on from there as it comes, and
 * not kept.
 */

import { createHash } from "node:crypto";
import { checkFunction } from "../../kernel/check.ts";
import { readUpTo } from "./body.ts";
import {
  type Entry,
  Gate,
  type HttpAttempt,
  type IdempotentHandle,
  type MiddlewareOptions,
  type Outcome,
  tooLargeRequest,
  type Visit,
} from "./gate.ts";
import { KEY_HEADER } from "./key.ts";
import { type HeaderList, type Reply, storedBody, storedHeaders } from "./reply.ts";

/**
 * Makes a handler idempotent. Without a key, where none is required, the handler is called without an attempt. `R` is the request of the
 * platform, which `scope` and the handler get as it came; `fingerprint` gets a copy, which is a plain `Request`.
 */
export function idempotentFetch<Face, Touch, R extends Request = Request>(
  pawl: IdempotentHandle<Face, Touch>,
  handler: (request: R, attempt?: HttpAttempt<Face, Touch>) => Response | Promise<Response>,
  options: MiddlewareOptions<R, Request>,
): (request: R) => Promise<Response> {
  const gate = new Gate(pawl, options);
  checkFunction(handler, "the handler");
  return (request) => handleFetch(gate, request, (attempt) => handler(request, attempt));
}

/** Sends a request through the gate. @internal */
export async function handleFetch<Face, Touch, R extends Request>(
  gate: Gate<Face, Touch, R, Request>,
  request: R,
  handle: (attempt?: HttpAttempt<Face, Touch>) => Response | Promise<Response>,
): Promise<Response> {
  const entry = await enterFetch(gate, request, () => gate.scope(request), gate.fingerprint);
  if (entry.is === "pass") return handle();
  if (entry.is === "reply") return responseOf(entry.reply);
  const { visit } = entry;
  let response: Response;
  try {
    response = await handle(visit.attempt);
  } catch (error) {
    await visit.fail(error);
    throw error;
  }
  return leaveFetch(visit, response, gate.maxBodyBytes);
}

/** @internal */
export function enterFetch<Face, Touch>(
  gate: Gate<Face, Touch, never, never>,
  request: Request,
  scope: () => string | Promise<string>,
  fingerprint: ((request: Request) => unknown) | undefined,
): Promise<Entry<Face, Touch>> {
  return gate.enter({
    method: request.method,
    key: request.headers.get(KEY_HEADER),
    scope,
    fingerprint: async () => {
      if (fingerprint !== undefined) return { of: await fingerprint(request.clone()) };
      return fingerprintOf(request, gate.maxBodyBytes);
    },
  });
}

async function fingerprintOf(
  request: Request,
  maxBytes: number,
): Promise<{ readonly of: unknown } | { readonly refusal: Reply }> {
  // Refused before a byte is read, if it says itself that it is too long.
  if (Number(request.headers.get("content-length") ?? 0) > maxBytes) return { refusal: tooLargeRequest(maxBytes) };
  const copy = request.clone();
  const body = await readUpTo(copy.body, maxBytes);
  if (!body.isWhole) {
    await Promise.allSettled([body.stream.cancel(), request.body?.cancel()]);
    return { refusal: tooLargeRequest(maxBytes) };
  }
  const { pathname, search } = new URL(request.url);
  return { of: describe(request.method, pathname, search, body.bytes) };
}

/** What tells one request from another. A body that was parsed already counts as the value that it is. */
export function describe(method: string, path: string, query: string, body: unknown): unknown {
  const isBytes = body instanceof Uint8Array;
  return { method: method.toUpperCase(), path, query, body: isBytes ? { bytes: digest(body) } : { value: body } };
}

const digest = (bytes: Uint8Array): string => createHash("sha256").update(bytes).digest("base64url");

/** Stores the response, and gives what is to be sent. @internal */
export async function leaveFetch<Face, Touch>(
  visit: Visit<Face, Touch>,
  response: Response,
  maxBytes: number,
): Promise<Response> {
  let outcome: Outcome;
  let body: ReadableStream<Uint8Array> | Uint8Array | null;
  try {
    const read = await readUpTo(response.body, maxBytes);
    body = read.isWhole ? (read.bytes.length === 0 ? null : read.bytes) : read.stream;
    outcome = read.isWhole ? { reply: replyFrom(response, read.bytes) } : { tooLarge: true };
  } catch (error) {
    // A body that breaks off is no reply.
    await visit.fail(error);
    throw error;
  }
  const instead = await visit.leave(outcome);
  if (instead !== null) {
    if (body instanceof ReadableStream) await body.cancel();
    return responseOf(instead);
  }
  // What cannot be made anew, such as a network error, had no body to be read.
  if (response.status < 200) return response;
  const { status, statusText, headers } = response;
  return new Response(body as Sendable, { status, statusText, headers });
}

const replyFrom = (response: Response, bytes: Uint8Array): Reply => ({
  status: response.status,
  headers: storedHeaders(listOf(response.headers)),
  body: storedBody(bytes),
});

const listOf = (headers: Headers): HeaderList => [...headers];

/** What a Response can be made of; the types want to know whose memory bytes are in. */
type Sendable = ConstructorParameters<typeof Response>[0];

/** A reply as a response. */
export function responseOf({ status, headers, body }: Reply): Response {
  return new Response(body as Sendable, { status, headers: headers.map(([name, value]) => [name, value]) });
}
