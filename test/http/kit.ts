/**
 * A server on a handle in memory, with keys, and requests to it.
 */

import { onTestFinished } from "vitest";
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
