/**
 * The server for Node: `serve(pawl)` serves HTTP on a port, until it is closed.
 *
 * Limits on connections come before the app: headers within 10 s and 16 KiB, the whole request within 30 s, and so many connections. When there are
 * more, the one that has been idle for longest is closed; if none is idle, the new one gets 503, unless it asks for `/livez` or `/readyz`.
 * What is not HTTP is refused as problem+json too.
 *
 * `close` takes no new work and lets requests finish, at most for its `timeout`; what waits, in long polls and event streams, ends immediately.
 * By default it listens on loopback; it refuses any other address as long as no API key can be used.
 */

import { createServer, type IncomingMessage, type Server as NodeServer, type ServerResponse } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import { getRequestListener } from "@hono/node-server";
import { checkCount, checkDuration, checkOptions, checkText, type Duration, optionNames } from "../../kernel/check.ts";
import { InvalidArgumentError } from "../../kernel/errors.ts";
import { type Ports, pause } from "../../kernel/ports.ts";
import { createApp, stateOf } from "./app.ts";
import { kernelOf, type ServedPawl } from "./handle.ts";
import { apiKeys } from "./keys/keys.ts";
import { type OwnCode, type Problem, refuse, retryAfter, serverClosing } from "./problem.ts";
import { lastResponse, rawProblem, respond } from "./respond.ts";
import { APP_OPTIONS, type AppOptions } from "./settings.ts";

export interface ServeOptions extends AppOptions {
  /** Default: 7295. 0 is any that is free. */
  readonly port?: number | undefined;
  /** Default: "127.0.0.1". */
  readonly hostname?: string | undefined;
  /** How long the headers of a request may take to arrive. Default: 10 s. */
  readonly headersTimeout?: Duration | undefined;
  /** How long a whole request may take to arrive. Default: 30 s. */
  readonly requestTimeout?: Duration | undefined;
  /** The most connections at the same time. Default: 10,000. */
  readonly connections?: number | undefined;
}

/** A server that listens. */
export interface Server {
  /** Where it listens: "http://127.0.0.1:7295". */
  readonly url: string;
  readonly port: number;
  /** Takes no more work, lets requests finish for at most `timeout`, and closes. Default: 10 s. A second call waits for the first. */
  close(options?: { readonly timeout?: Duration | undefined }): Promise<void>;
}

const SERVE_OPTIONS = optionNames<Omit<ServeOptions, keyof AppOptions>>({
  port: true,
  hostname: true,
  headersTimeout: true,
  requestTimeout: true,
  connections: true,
});
const CLOSE_OPTIONS = optionNames<{ timeout?: unknown }>({ timeout: true });

const PORT = 7295;
const MAX_HEADER_BYTES = 16 * 1024;
/** Beyond the limit on connections, so many more are let in to be refused, or to ask for health. */
const SPARE = 100;
const LOOPBACK = new Set(["127.0.0.1", "::1", "localhost"]);
const HEALTH = ["/livez", "/readyz"];

/** Serves the API of a handle over HTTP. The handle stays the caller's to close, after the server. */
export async function serve(pawl: ServedPawl, options: ServeOptions = {}): Promise<Server> {
  const { ports } = kernelOf(pawl);
  checkOptions(options, new Set([...SERVE_OPTIONS, ...APP_OPTIONS]));
  const { port = PORT, hostname = "127.0.0.1", headersTimeout, requestTimeout, connections, ...rest } = options;
  if (!Number.isInteger(port) || port < 0 || port > 65_535)
    throw new InvalidArgumentError("the port", "must be a whole number from 0 to 65535");
  checkText(hostname, "the hostname", 255);
  const app = createApp(pawl, rest);
  if (!LOOPBACK.has(hostname) && (rest.keys === "none" || !(await apiKeys(pawl).hasUsable())))
    throw new InvalidArgumentError(
      "the hostname",
      `must be 127.0.0.1, ::1 or localhost as long as no API key can be used, not ${JSON.stringify(hostname)}: create a key first`,
    );
  const door = new Door(app, ports, {
    headersMs: checkDuration(headersTimeout ?? "10s", "headersTimeout"),
    requestMs: checkDuration(requestTimeout ?? "30s", "requestTimeout"),
    connections: checkCount(connections ?? 10_000, "connections", 1_000_000),
  });
  return door.open(port, hostname);
}

interface DoorLimits {
  readonly headersMs: number;
  readonly requestMs: number;
  readonly connections: number;
}

/** The connections of a server. */
class Door {
  readonly #app: ReturnType<typeof createApp>;
  readonly #ports: Ports;
  readonly #limits: DoorLimits;
  readonly #server: NodeServer;
  /** Open connections, and how many requests each is waiting for; those that have been idle for longest come first. */
  readonly #sockets = new Map<Socket, number>();
  /** The paths that are served whatever the limit on connections, and while it closes. */
  readonly #health: ReadonlySet<string>;
  #closing: Promise<void> | undefined;

  constructor(app: ReturnType<typeof createApp>, ports: Ports, limits: DoorLimits) {
    this.#app = app;
    this.#ports = ports;
    this.#limits = limits;
    const prefix = stateOf(app)?.settings.prefix ?? "";
    this.#health = new Set(["", prefix].flatMap((before) => HEALTH.map((path) => before + path)));
    const listener = getRequestListener((request, env) => app.fetch(request, env), {
      overrideGlobalObjects: false,
      errorHandler: () =>
        respond(refuse("invalid_request", "The request has no valid Host or address."), this.#newId()),
    });
    this.#server = createServer(
      {
        headersTimeout: limits.headersMs,
        requestTimeout: limits.requestMs,
        connectionsCheckingInterval: Math.min(500, limits.headersMs),
        maxHeaderSize: MAX_HEADER_BYTES,
        keepAliveTimeout: 60_000,
        // The listener refuses its absence, as a problem.
        requireHostHeader: false,
      },
      (incoming, outgoing) => this.#request(incoming, outgoing, listener),
    );
    this.#server.maxConnections = limits.connections + SPARE;
    this.#server.on("connection", (socket) => this.#connected(socket));
    this.#server.on("clientError", (error, socket) => this.#refused(error, socket as Socket));
    // An offer to switch protocols, or to wait before the body is sent, is not taken up.
    this.#server.on("checkContinue", (incoming, outgoing) => this.#request(incoming, outgoing, listener));
    this.#server.on("checkExpectation", (_, outgoing) => this.#turnAway(outgoing, EXPECTATION));
    this.#server.on("connect", (_, socket) => this.#end(socket as Socket, METHOD));
  }

  async open(port: number, hostname: string): Promise<Server> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    this.#server.once("error", reject);
    this.#server.listen(port, hostname, resolve);
    await promise;
    this.#server.off("error", reject);
    const address = this.#server.address() as AddressInfo;
    const host = address.family === "IPv6" ? `[${address.address}]` : address.address;
    return {
      url: `http://${host}:${address.port}`,
      port: address.port,
      close: async (options) => {
        checkOptions(options, CLOSE_OPTIONS);
        this.#closing ??= this.#close(checkDuration(options?.timeout ?? "10s", "the timeout"));
        return this.#closing;
      },
    };
  }

  #connected(socket: Socket): void {
    this.#sockets.set(socket, 0);
    socket.once("close", () => this.#sockets.delete(socket));
    if (this.#sockets.size <= this.#limits.connections) return;
    for (const [one, requests] of this.#sockets)
      if (requests === 0 && one !== socket) {
        one.destroy();
        return;
      }
  }

  #request(
    incoming: IncomingMessage,
    outgoing: ServerResponse,
    listener: (incoming: IncomingMessage, outgoing: ServerResponse) => Promise<void>,
  ): void {
    const { socket } = incoming;
    this.#count(socket, 1);
    outgoing.once("close", () => {
      this.#count(socket, -1);
      if (this.#closing !== undefined) socket.destroySoon();
    });
    const [path = ""] = (incoming.url ?? "").split("?");
    const isHealth = this.#health.has(path);
    if (this.#closing !== undefined && !isHealth) this.#turnAway(outgoing, serverClosing);
    else if (this.#sockets.size > this.#limits.connections && !isHealth) this.#turnAway(outgoing, FULL);
    else void listener(incoming, outgoing);
  }

  /** A connection moves to the end of the list with each request. */
  #count(socket: Socket, change: number): void {
    const requests = this.#sockets.get(socket);
    if (requests === undefined) return;
    this.#sockets.delete(socket);
    this.#sockets.set(socket, requests + change);
  }

  /** It may be a request that was sent without waiting for the response before it, which is sent first. */
  #turnAway(outgoing: ServerResponse, problem: () => Problem): void {
    const { status, headers, body } = lastResponse(problem(), this.#newId());
    outgoing.writeHead(status, headers).end(body);
  }

  /** What the parser of HTTP refuses. */
  #refused(error: Error & { readonly code?: string }, socket: Socket): void {
    // A reset needs no response, and a response that has begun cannot be replaced.
    const { _httpMessage: response } = socket as { readonly _httpMessage?: ServerResponse | null };
    if (error.code === "ECONNRESET" || !socket.writable || response?.headersSent === true) {
      socket.destroy(error);
      return;
    }
    this.#end(socket, PARSER[error.code ?? ""] ?? MALFORMED);
  }

  #end(socket: Socket, problem: () => Problem): void {
    socket.end(rawProblem(problem(), this.#newId()), () => socket.destroySoon());
  }

  #newId(): string {
    return this.#ports.chance.uuid();
  }

  async #close(timeoutMs: number): Promise<void> {
    const closed = new AbortController();
    const ended = new Promise<void>((resolve) => {
      this.#server.close(() => {
        closed.abort();
        resolve();
      });
    });
    stateOf(this.#app)?.close();
    for (const [socket, requests] of this.#sockets) if (requests === 0) socket.destroySoon();
    await pause(this.#ports.clock, timeoutMs, closed.signal);
    for (const socket of this.#sockets.keys()) socket.destroy();
    await ended;
  }
}

const own = (code: OwnCode, detail: string) => (): Problem => refuse(code, detail);

const METHOD = own("method_not_allowed", "There is no such method.");
const EXPECTATION = own("invalid_request", "Expect can only be 100-continue.");
const MALFORMED = own("invalid_request", "The request is not valid HTTP.");
const PARSER: Readonly<Record<string, () => Problem>> = {
  HPE_HEADER_OVERFLOW: own("headers_too_large", "The headers may have at most 16 KiB."),
  HPE_INVALID_METHOD: METHOD,
  ERR_HTTP_REQUEST_TIMEOUT: own("request_timeout", "The request did not arrive in time."),
};
const FULL = (): Problem =>
  refuse("too_many_connections", "The server has as many connections as it allows: try again later.", {
    headers: retryAfter(1),
  });
