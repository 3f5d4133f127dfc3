/**
 * What the tests of the client share: a proxy that loses replies, and a server with a client of it.
 */

import { once } from "node:events";
import { createServer, request as httpRequest, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { onTestFinished } from "vitest";
import { type Client, type ClientOptions, createClient } from "../../src/http/client/index.ts";
import type { AppOptions, ServeOptions } from "../../src/http/server/index.ts";
import type { Pawl } from "../../src/index.ts";
import { served } from "../http/kit.ts";

/** How long a condition may take to become true; only ends a test that hangs. */
export const PATIENCE = 60_000;

/** A client of a server of its own, with the key of an administrator. */
export async function connected(
  options: ServeOptions & AppOptions = {},
  client: Partial<ClientOptions> = {},
  given?: Pawl,
): Promise<{ readonly client: Client; readonly pawl: Pawl; readonly url: string; readonly key: string }> {
  const { pawl, url, key } = await served(options, given);
  const text = await key(["admin"]);
  return { client: createClient({ url, key: text, ...client }), pawl, url, key: text };
}

/** What happens to the reply of a request. */
export type Fate = "pass" | "drop" | "break";

export interface Proxy {
  readonly url: string;
  /** Requests that came, as method and path. */
  readonly requests: string[];
  /** Cuts all connections. */
  cut(): void;
}

/**
 * A proxy before a server. Of a reply that is dropped, nothing arrives after the server has sent all of it; one that breaks ends in the
 * middle of its body.
 */
export async function proxyTo(
  url: string,
  fateOf: (method: string, path: string, count: number) => Fate,
): Promise<Proxy> {
  const requests: string[] = [];
  const target = new URL(url);
  const handle = (req: IncomingMessage, res: ServerResponse): void => {
    const { method = "", url: path = "" } = req;
    requests.push(`${method} ${path}`);
    const fate = fateOf(method, path, requests.length);
    const options = { host: target.hostname, port: target.port, method, path, headers: req.headers };
    const upstream = httpRequest(options, (reply) => {
      if (fate === "pass") {
        res.writeHead(reply.statusCode ?? 502, reply.headers);
        reply.pipe(res);
        return;
      }
      const chunks: Buffer[] = [];
      reply.on("data", (chunk: Buffer) => chunks.push(chunk));
      reply.on("end", () => {
        if (fate === "break") {
          res.writeHead(reply.statusCode ?? 502, reply.headers);
          res.write(Buffer.concat(chunks).subarray(0, 1));
        }
        res.destroy();
      });
    });
    upstream.on("error", () => res.destroy());
    res.on("close", () => upstream.destroy());
    req.pipe(upstream);
  };
  const server = createServer(handle);
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const close = async (): Promise<void> => {
    server.closeAllConnections();
    server.close();
  };
  onTestFinished(close);
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    requests,
    cut: () => server.closeAllConnections(),
  };
}
