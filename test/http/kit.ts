/**
 * A server on a handle in memory, with keys, and requests to it.
 */

import { expect, onTestFinished } from "vitest";
import { type AppOptions, apiKeys, type Scope, type ServeOptions, serve } from "../../src/http/server/index.ts";
import { open, type Pawl } from "../../src/index.ts";

/** What a response was. */
export interface Got {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  readonly json: Record<string, unknown>;
}

export type Send = (method: string, path: string, body?: unknown, headers?: Record<string, string>) => Promise<Got>;

export interface Served {
  readonly pawl: Pawl;
  readonly url: string;
  /** Requests with the key of an administrator. */
  readonly send: Send;
  /** Requests with a key that may only do this. */
  as(scopes: readonly Scope[], namespace?: string): Promise<Send>;
  /** Creates a key. */
  key(scopes: readonly Scope[], namespace?: string): Promise<string>;
  close(options?: { readonly timeout?: number }): Promise<void>;
}

/** A server of its own for one test, closed at its end. */
export async function served(options: ServeOptions & AppOptions = {}, given?: Pawl): Promise<Served> {
  const pawl = given ?? (await open("memory:", { logger: false }));
  const server = await serve(pawl, { port: 0, logger: false, ...options });
  const key = async (scopes: readonly Scope[], namespace?: string): Promise<string> =>
    (await apiKeys(pawl).create({ name: "test", scopes, ...(namespace === undefined ? {} : { namespace }) })).key;
  onTestFinished(async () => {
    await server.close({ timeout: 0 });
    if (given === undefined) await pawl.close();
  });
  const admin = await key(["admin"]);
  return {
    pawl,
    url: server.url,
    send: sender(server.url, admin),
    as: async (scopes, namespace) => sender(server.url, await key(scopes, namespace)),
    key,
    close: (how) => server.close(how),
  };
}

/** Requests with a key, or without one. A body that is a text or bytes is sent as it is. */
export function sender(url: string, key?: string): Send {
  return async (method, path, body, headers = {}) => {
    const isRaw = typeof body === "string" || body instanceof Uint8Array;
    const response = await fetch(`${url}${path}`, {
      method,
      headers: {
        ...(key === undefined ? {} : { authorization: `Bearer ${key}` }),
        ...(body === undefined ? {} : { "content-type": "application/json" }),
        ...headers,
      },
      ...(body === undefined ? {} : { body: isRaw ? (body as string) : JSON.stringify(body) }),
    });
    const text = await response.text();
    let json: Record<string, unknown> = {};
    try {
      json = JSON.parse(text);
    } catch {
      // Not every response is JSON.
    }
    return { status: response.status, headers: response.headers, text, json };
  };
}

/** The status and the code of a refusal. */
export const refusal = ({ status, json }: Got) => ({ status, code: json["code"] });

/** A server-sent event. */
export interface Shown {
  readonly id: string | undefined;
  readonly event: string;
  readonly data: unknown;
}

/** Reads events until there are this many, or the stream ends. */
export async function follow(kit: Served, path: string, count: number, last?: string, key?: string): Promise<Shown[]> {
  const stop = new AbortController();
  onTestFinished(() => stop.abort());
  const response = await fetch(`${kit.url}${path}`, {
    headers: {
      authorization: `Bearer ${key ?? (await kit.key(["read"]))}`,
      accept: "text/event-stream",
      ...(last === undefined ? {} : { "last-event-id": last }),
    },
    signal: stop.signal,
  });
  expect(response.headers.get("content-type")).toBe("text/event-stream");
  const shown: Shown[] = [];
  let text = "";
  for await (const chunk of response.body?.pipeThrough(new TextDecoderStream()) ?? []) {
    text += chunk;
    for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
      const block = text.slice(0, end);
      text = text.slice(end + 2);
      const field = (name: string) => new RegExp(`^${name}: (.*)$`, "m").exec(block)?.[1];
      const data = field("data");
      if (data !== undefined) shown.push({ id: field("id"), event: field("event") ?? "", data: JSON.parse(data) });
      if (shown.length === count) {
        stop.abort();
        return shown;
      }
    }
  }
  return shown;
}
