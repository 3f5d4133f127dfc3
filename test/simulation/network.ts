/**
 * HTTP in a simulated world: servers that are processes, and clients of them.
 *
 * A server is the app of `pawl/server` without a socket: a request goes to its handler, in the process of the server, and the response comes back. On the
 * way, requests and responses are released by the scheduler like all other calls, so a server can die before a request arrives, while it
 * handles it, and after the commit but before the response. Connections of a dead server break when it starts again; before that, its clients only see
 * that there is no response. A request may be refused, may arrive after its client has given up, and its response may be lost.
 *
 * Clients are those of `pawl/client`, with the time and chance of their process.
 */

import { Client } from "../../src/http/client/client.ts";
import { Transport } from "../../src/http/client/transport.ts";
import { platform } from "../../src/http/platform/platform.ts";
import { appOf } from "../../src/http/server/app.ts";
import type { Routing } from "../../src/http/server/route.ts";
import type { Process, World } from "../../src/testing/index.ts";

type App = ReturnType<typeof appOf>;

interface Server {
  readonly process: Process;
  app: App | undefined;
  /** Breaks the connections. */
  readonly broken: Set<() => void>;
}

export class Network {
  readonly #world: World;
  readonly #routes: readonly ((routing: Routing) => void)[];
  readonly #servers = new Map<string, Server>();

  /** Its servers have these routes. */
  constructor(world: World, routes: readonly ((routing: Routing) => void)[]) {
    this.#world = world;
    this.#routes = routes;
  }

  /** The process is a server from now on, under its name. */
  serve(process: Process): void {
    const before = this.#servers.get(process.name);
    this.#servers.set(process.name, { process, app: undefined, broken: new Set() });
    for (const broken of before?.broken ?? []) broken();
  }

  /** A client of one of the servers. */
  client(process: Process, server: string): Client {
    const { clock, chance } = process.ports;
    return new Client(
      new Transport({
        url: `http://${server}.example`,
        key: undefined,
        fetch: (url, init) => this.#fetch(process, server, url, init),
        platform: {
          ...platform,
          nowMs: clock.nowMs,
          runningMs: () => this.#world.nowMs,
          after: clock.after,
          random: chance.random,
          uuid: chance.uuid,
        },
        patienceMs: 60_000,
        attemptMs: 30_000,
        abortSignal: undefined,
      }),
    );
  }

  async #fetch(client: Process, name: string, url: string, init: RequestInit): Promise<Response> {
    const { faults, random, scheduler } = this.#world;
    const { signal } = init;
    await client.arrive(`${init.method} ${url}`);
    signal?.throwIfAborted();
    const server = this.#servers.get(name);
    if (server?.process.isAlive !== true || faults.strikes("httpError")) throw new TypeError("connection refused");
    const { promise: lost, reject } = Promise.withResolvers<never>();
    const broken = (): void => reject(new TypeError("connection reset"));
    const givenUp = (): void => reject(signal?.reason);
    server.broken.add(broken);
    signal?.addEventListener("abort", givenUp);
    try {
      if (faults.strikes("httpLate")) {
        scheduler.after(random.below(60_000), () => void this.#handle(server, url, init));
        throw new TypeError("connection reset");
      }
      const response = await Promise.race([this.#handle(server, url, init), lost]);
      if (faults.strikes("httpTimeout")) return await lost;
      await client.arrive(`${init.method} ${url}: response`);
      return response;
    } finally {
      server.broken.delete(broken);
      signal?.removeEventListener("abort", givenUp);
    }
  }

  /** What the server does with a request, which it gets when it is scheduled: never, if it is dead by then. */
  async #handle(server: Server, url: string, { method, headers, body }: RequestInit): Promise<Response> {
    const { process } = server;
    await process.arrive("request");
    server.app ??= appOf(process.pawl, { keys: "none", logger: false }, this.#routes);
    const response = await server.app.fetch(new Request(url, { method, headers, body } as RequestInit));
    const text = await response.text();
    await process.arrive("response");
    return new Response(text, response);
  }
}
