/**
 * A plugin for Fastify; in a handler, `attempt(request)` returns the attempt.
 *
 *     const idempotency = fastifyIdempotency(pawl, { scope: (request: FastifyRequest) => accountOf(request) });
 *     await app.register(idempotency);
 *     app.post<{ Body: Order }>("/orders", async (request, reply) => { … });
 *
 * It applies to all routes of the instance that it is registered on; `methods` and `required` narrow that. The types of the request are
 * those of `scope`, whose parameter is annotated with Fastify's own type; a handler keeps the types of its route.
 *
 * A reply that bypasses Fastify, with `reply.hijack()` or `reply.raw`, is not stored: the key is free again when its lease has ended.
 */

import { Readable } from "node:stream";
import { readUpTo } from "./body.ts";
import { listOf } from "./capture.ts";
import {
  type BegunRequest,
  type HttpAttempt,
  type IdempotentHandle,
  MiddlewareCore,
  type MiddlewareOptions,
  type Outcome,
  type PendingRequest,
} from "./core.ts";
import { KEY_HEADER } from "./key.ts";
import { bytesOf, fingerprintOfParsed, headerOf, headersOf, type NodeRequest } from "./node.ts";
import { type Reply, storedBody, storedHeaders } from "./reply.ts";

/** The part of Fastify's request that is used. */
export interface FastifyRequest {
  readonly method: string;
  readonly url: string;
  readonly headers: NodeRequest["headers"];
  readonly body?: unknown;
  readonly rawBody?: unknown;
  readonly raw: NodeRequest;
}

/** The part of Fastify's reply that is used. */
export interface FastifyReply {
  readonly statusCode: number;
  code(status: number): unknown;
  header(name: string, value: unknown): unknown;
  removeHeader(name: string): unknown;
  getHeaders(): Readonly<Record<string, unknown>>;
  send(payload?: unknown): unknown;
  readonly raw: { once(event: "close", listener: () => void): unknown };
}

/** The part of a Fastify instance that is used. */
export interface FastifyInstance<R> {
  addHook(name: "preHandler", hook: (request: R, reply: FastifyReply) => Promise<unknown>): unknown;
  addHook(name: "onSend", hook: (request: R, reply: FastifyReply, payload: unknown) => Promise<unknown>): unknown;
}

export interface FastifyIdempotency<TxView, TxOptions, R> {
  (instance: FastifyInstance<FastifyRequest>): Promise<void>;
  /** The same; `app.register(fastifyIdempotency(…))` infers the type of the request from it. */
  (instance: FastifyInstance<R>): Promise<void>;
  /** Returns the attempt that a handler runs in; undefined for a request without a key. */
  attempt(request: FastifyRequest): HttpAttempt<TxView, TxOptions> | undefined;
}

/** Makes the routes of an instance idempotent. Annotate the parameter of `scope`: `(request: FastifyRequest) => …`. */
export function fastifyIdempotency<TxView, TxOptions, R extends FastifyRequest>(
  pawl: IdempotentHandle<TxView, TxOptions>,
  options: MiddlewareOptions<R>,
): FastifyIdempotency<TxView, TxOptions, R> {
  const core = new MiddlewareCore(pawl, options);
  const handling = new FastifyHandling<TxView, TxOptions, R>(core.maxBodyBytes, (request) =>
    core.begin({
      method: request.method,
      key: headerOf(request, KEY_HEADER),
      scope: () => core.scope(request),
      fingerprint: async () => {
        const { fingerprint } = core;
        if (fingerprint !== undefined) return { of: await fingerprint(request) };
        return { of: fingerprintOfParsed(request.raw, request.url, request.body, request.rawBody) };
      },
    }),
  );
  const plugin = async (instance: FastifyInstance<FastifyRequest> | FastifyInstance<R>): Promise<void> => {
    // What `scope` reads from a request was set by plugins that came before.
    const hooks = instance as FastifyInstance<R>;
    hooks.addHook("preHandler", async (request, reply) => ((await handling.begin(request, reply)) ? undefined : reply));
    hooks.addHook("onSend", handling.onSend);
  };
  return Object.assign(plugin, {
    [SKIP_OVERRIDE]: true,
    attempt: (request: FastifyRequest) => handling.attemptOf(request),
  });
}

/** Makes Fastify apply the hooks to the instance that a plugin is registered on, instead of to a new one. */
export const SKIP_OVERRIDE = Symbol.for("skip-override");

/** Runs handlers as `begin` says, and stores their replies. @internal */
export class FastifyHandling<TxView, TxOptions, R extends FastifyRequest> {
  readonly #pending = new WeakMap<FastifyRequest, PendingRequest<TxView, TxOptions>>();
  readonly #maxBodyBytes: number;
  readonly #begin: (request: R) => Promise<BegunRequest<TxView, TxOptions>>;

  constructor(maxBodyBytes: number, begin: (request: R) => Promise<BegunRequest<TxView, TxOptions>>) {
    this.#maxBodyBytes = maxBodyBytes;
    this.#begin = begin;
  }

  attemptOf(request: FastifyRequest): HttpAttempt<TxView, TxOptions> | undefined {
    return this.#pending.get(request)?.attempt;
  }

  /** Returns false if the reply was sent, so that no handler may run. */
  async begin(request: R, reply: FastifyReply): Promise<boolean> {
    const begun = await this.#begin(request);
    if (begun.is === "reply") {
      rewrite(reply, begun.reply);
      reply.send(payloadOf(begun.reply));
      return false;
    }
    if (begun.is === "pending") {
      const { pending } = begun;
      this.#pending.set(request, pending);
      // The client has disconnected, or the reply bypassed the hooks.
      reply.raw.once("close", () => {
        if (this.#pending.has(request)) pending.lapse();
      });
    }
    return true;
  }

  readonly onSend = async (request: R, reply: FastifyReply, payload: unknown): Promise<unknown> => {
    const pending = this.#pending.get(request);
    if (pending === undefined) return payload;
    this.#pending.delete(request);
    const { outcome, send } = await read(reply, payload, this.#maxBodyBytes).catch(async (error: unknown) => {
      // An incomplete body is not a reply.
      await pending.fail(error);
      throw error;
    });
    const instead = await pending.finish(outcome);
    if (instead === null) return send;
    rewrite(reply, instead);
    return payloadOf(instead);
  };
}

/** Returns what to store of a payload, and the payload to send: a stream is replaced by what was read from it. */
async function read(
  reply: FastifyReply,
  payload: unknown,
  maxBytes: number,
): Promise<{ readonly outcome: Outcome; readonly send: unknown }> {
  if (payload instanceof Response) {
    const { status, headers } = payload;
    const body = await readUpTo(payload.body, maxBytes);
    if (!body.isWhole) return { outcome: { tooLarge: true }, send: new Response(body.stream, { status, headers }) };
    const all = { status, headers: storedHeaders([...listOf(reply.getHeaders()), ...headers]) };
    const text = body.bytes.length === 0 ? null : Buffer.from(body.bytes);
    return {
      outcome: { reply: { ...all, body: storedBody(body.bytes) } },
      send: new Response(text, { status, headers }),
    };
  }
  const stream = streamOf(payload);
  if (stream === undefined) {
    const bytes = typeof payload === "string" || payload instanceof Uint8Array ? bytesOf(payload) : new Uint8Array(0);
    return { outcome: bytes.length > maxBytes ? { tooLarge: true } : { reply: replyOf(reply, bytes) }, send: payload };
  }
  const body = await readUpTo(stream, maxBytes);
  if (!body.isWhole) return { outcome: { tooLarge: true }, send: Readable.from(body.stream) };
  return { outcome: { reply: replyOf(reply, body.bytes) }, send: Buffer.from(body.bytes) };
}

function streamOf(payload: unknown): ReadableStream<Uint8Array> | undefined {
  if (payload instanceof ReadableStream) return payload;
  if (typeof payload !== "object" || payload === null || !("pipe" in payload)) return undefined;
  return ReadableStream.from(bytesIn(payload as unknown as AsyncIterable<string | Uint8Array>));
}

async function* bytesIn(chunks: AsyncIterable<string | Uint8Array>): AsyncGenerator<Uint8Array> {
  for await (const chunk of chunks) yield bytesOf(chunk);
}

const replyOf = (reply: FastifyReply, bytes: Uint8Array): Reply => ({
  status: reply.statusCode,
  headers: storedHeaders(listOf(reply.getHeaders())),
  body: storedBody(bytes),
});

function rewrite(reply: FastifyReply, instead: Reply): void {
  for (const name of Object.keys(reply.getHeaders())) reply.removeHeader(name);
  reply.code(instead.status);
  for (const [name, value] of headersOf(instead)) reply.header(name, value);
}

const payloadOf = ({ body }: Reply): string | Buffer | undefined =>
  body === null ? undefined : Buffer.from(bytesOf(body));
