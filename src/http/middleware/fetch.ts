/**
 * Idempotent handlers of web-standard requests: a function from `Request` to `Response`, as in Deno, Bun, workers and many frameworks.
 * `core.ts` says how a request is handled.
 *
 * A request is identified by its method, path, query and body bytes. The body is read from a copy, and the handler gets the original request.
 * The response, a stream too, is read up to `maxBodyBytes` before it is sent; the rest of a longer one is streamed, and it is not stored.
 */

import { createHash } from "node:crypto";
import { checkFunction } from "../../kernel/check.ts";
import { readUpTo } from "./body.ts";
import {
  type BegunRequest,
  type HttpAttempt,
  type IdempotentHandle,
  MiddlewareCore,
  type MiddlewareOptions,
  type Outcome,
  type PendingRequest,
  tooLargeRequest,
} from "./core.ts";
import { KEY_HEADER } from "./key.ts";
import { type HeaderList, type Reply, storedBody, storedHeaders } from "./reply.ts";

/**
 * Makes a handler idempotent. For a request without a key, where none is required, the handler is called without an attempt. `R` is the
 * platform's request, which `scope` and the handler get; `fingerprint` gets a copy, which is a plain `Request`.
 */
export function idempotentFetch<TxView, TxOptions, R extends Request = Request>(
  pawl: IdempotentHandle<TxView, TxOptions>,
  handler: (request: R, attempt?: HttpAttempt<TxView, TxOptions>) => Response | Promise<Response>,
  options: MiddlewareOptions<R, Request>,
): (request: R) => Promise<Response> {
  const core = new MiddlewareCore(pawl, options);
  checkFunction(handler, "the handler");
  return (request) => handleFetch(core, request, (attempt) => handler(request, attempt));
}

/** @internal */
export async function handleFetch<TxView, TxOptions, R extends Request>(
  core: MiddlewareCore<TxView, TxOptions, R, Request>,
  request: R,
  handle: (attempt?: HttpAttempt<TxView, TxOptions>) => Response | Promise<Response>,
): Promise<Response> {
  const begun = await beginFetch(core, request, () => core.scope(request), core.fingerprint);
  if (begun.is === "pass") return handle();
  if (begun.is === "reply") return responseOf(begun.reply);
  return handlePending(begun.pending, core.maxBodyBytes, handle);
}

/** Runs a handler, and stores its response before it is returned. @internal */
export async function handlePending<TxView, TxOptions>(
  pending: PendingRequest<TxView, TxOptions>,
  maxBodyBytes: number,
  handle: (attempt: HttpAttempt<TxView, TxOptions>) => Response | Promise<Response>,
): Promise<Response> {
  let response: Response;
  try {
    response = await handle(pending.attempt);
  } catch (error) {
    await pending.fail(error);
    throw error;
  }
  return finishFetch(pending, response, maxBodyBytes);
}

/** @internal */
export function beginFetch<TxView, TxOptions>(
  core: MiddlewareCore<TxView, TxOptions, never, never>,
  request: Request,
  scope: () => string | Promise<string>,
  fingerprint: ((request: Request) => unknown) | undefined,
): Promise<BegunRequest<TxView, TxOptions>> {
  return core.begin({
    method: request.method,
    key: request.headers.get(KEY_HEADER),
    scope,
    fingerprint: async () => {
      if (fingerprint !== undefined) return { of: await fingerprint(request.clone()) };
      return fingerprintOf(request, core.maxBodyBytes);
    },
  });
}

async function fingerprintOf(
  request: Request,
  maxBytes: number,
): Promise<{ readonly of: unknown } | { readonly refusal: Reply }> {
  const bytes = await copyBody(request, maxBytes);
  if (bytes === null) return { refusal: tooLargeRequest(maxBytes) };
  const { pathname, search } = new URL(request.url);
  return { of: describe(request.method, pathname, search, bytes) };
}

/** The body of a request, which can still be read; null if it exceeds the limit. @internal */
export async function copyBody(request: Request, maxBytes: number): Promise<Uint8Array | null> {
  // A request whose header says that it is too long is refused before it is read.
  if (Number(request.headers.get("content-length") ?? 0) > maxBytes) return null;
  const copy = request.clone();
  const body = await readUpTo(copy.body, maxBytes);
  if (body.isWhole) return body.bytes;
  await Promise.allSettled([body.stream.cancel(), request.body?.cancel()]);
  return null;
}

/** The fingerprint of a request. A parsed body is compared as a value. */
export function describe(method: string, path: string, query: string, body: unknown): unknown {
  const isBytes = body instanceof Uint8Array;
  return { method: method.toUpperCase(), path, query, body: isBytes ? { bytes: digest(body) } : { value: body } };
}

const digest = (bytes: Uint8Array): string => createHash("sha256").update(bytes).digest("base64url");

/** Stores the response, and returns the one to send. @internal */
export async function finishFetch<TxView, TxOptions>(
  pending: PendingRequest<TxView, TxOptions>,
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
    // An incomplete body is not a reply.
    await pending.fail(error);
    throw error;
  }
  const instead = await pending.finish(outcome);
  if (instead !== null) {
    if (body instanceof ReadableStream) await body.cancel();
    return responseOf(instead);
  }
  // `Response.error()` has status 0: it cannot be constructed again, and has no body.
  if (response.status < 200) return response;
  const { status, statusText, headers } = response;
  return new Response(body as Sendable, { status, statusText, headers });
}

/** A response in the form in which it is stored. @internal */
export const replyFrom = (response: Response, bytes: Uint8Array): Reply => ({
  status: response.status,
  headers: storedHeaders(listOf(response.headers)),
  body: storedBody(bytes),
});

const listOf = (headers: Headers): HeaderList => [...headers];

/** The body type of the Response constructor, which does not accept a Uint8Array of any buffer. */
type Sendable = ConstructorParameters<typeof Response>[0];

export function responseOf({ status, headers, body }: Reply): Response {
  return new Response(body as Sendable, { status, headers: headers.map(([name, value]) => [name, value]) });
}
