/**
 * Goal: a process that starts before its database waits for it up to its patience, and no longer; errors that waiting does not fix are
 * reported immediately.
 * Method: a real server that is stopped and started, a role without connections, and a proxy in front of the server that rejects the first
 * connections as a server does, and counts them all.
 */

import { once } from "node:events";
import { createServer, type Server, type Socket, connect as socketTo } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { StoreError } from "../../src/kernel/errors.ts";
import { open } from "../../src/open.ts";
import { type PostgresServer, startPostgres } from "./server.ts";

let server: PostgresServer;
beforeAll(async () => {
  server = await startPostgres();
});
afterAll(() => server?.destroy());

const ends: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

/** Opens, works, and closes: the new value, or the code and message with which it was refused. */
async function outcome(url: string, patience: number): Promise<string> {
  try {
    await using pawl = await open(url, { patience });
    await pawl.slot<number>("n", { initial: 0 }).update((n) => n + 1);
    return "works";
  } catch (error) {
    if (error instanceof StoreError) return `${error.code}: ${error.message}`;
    throw error;
  }
}

async function asAdmin(...texts: readonly string[]): Promise<void> {
  const client = new pg.Client({ connectionString: server.url });
  await client.connect();
  for (const text of texts) await client.query(text);
  await client.end();
}

/** One message of the server's: this connection is refused. */
function refusal(code: string, message: string): Buffer {
  const fields = `SFATAL\0VFATAL\0C${code}\0M${message}\0\0`;
  const head = Buffer.alloc(5);
  head.write("E");
  head.writeInt32BE(Buffer.byteLength(fields) + 4, 1);
  return Buffer.concat([head, Buffer.from(fields)]);
}

/** A way to the server on which the first connections are turned away. */
class Door {
  readonly #sockets = new Set<Socket>();
  readonly #listener: Server;
  attempts = 0;

  constructor(turnedAway: number, code: string) {
    this.#listener = createServer((socket) => {
      this.attempts += 1;
      this.#keep(socket);
      if (this.attempts <= turnedAway) {
        socket.once("data", () => socket.end(refusal(code, "turned away")));
        return;
      }
      const through = this.#keep(socketTo(server.port, "127.0.0.1"));
      socket.pipe(through).pipe(socket);
    });
  }

  #keep(socket: Socket): Socket {
    this.#sockets.add(socket);
    return socket.on("error", () => {}).on("close", () => this.#sockets.delete(socket));
  }

  async open(): Promise<string> {
    this.#listener.listen(0, "127.0.0.1");
    await once(this.#listener, "listening");
    ends.push(async () => {
      for (const socket of this.#sockets) socket.destroy();
      this.#listener.close();
    });
    const address = this.#listener.address();
    const url = new URL(server.url);
    url.port = typeof address === "object" ? String(address?.port) : "";
    return url.href;
  }
}

describe("a server that is down", () => {
  test("is waited for", async () => {
    await server.stop();
    const opening = outcome(server.url, 30_000);
    await sleep(1000);
    await server.start();
    expect(await opening).toBe("works");
  });

  test("is not waited for longer than the patience option", async () => {
    await server.stop();
    ends.push(() => server.start());
    expect(await outcome(server.url, 300)).toMatch(
      /^store_unreachable: the server cannot be reached: connect ECONNREFUSED/,
    );
  });
});

describe("a server that turns connections away for a while", () => {
  const reasons = [
    { code: "57P03", why: "it is starting", refused: "store_unreachable: the server is starting or stopping" },
    { code: "53300", why: "it has too many", refused: "store_busy: the server has no free connection" },
  ];

  test.each(reasons)("is asked again: $why", async ({ code }) => {
    const door = new Door(3, code);
    expect(await outcome(await door.open(), 30_000)).toBe("works");
    expect(door.attempts).toBeGreaterThan(3);
  });

  test.each(reasons)("is given up when the patience ends: $why", async ({ code, refused }) => {
    const door = new Door(Number.POSITIVE_INFINITY, code);
    expect(await outcome(await door.open(), 1000)).toContain(refused);
    expect(door.attempts).toBeGreaterThan(1);
  });

  test("is asked again when a role has no connection to spare", async () => {
    await asAdmin("create role crowded login connection limit 0", "grant create on database postgres to crowded");
    ends.push(() => asAdmin("drop owned by crowded cascade", "drop role crowded"));
    const url = new URL(server.url);
    url.username = "crowded";
    const schema = "crowded";
    await expect(open(url.href, { schema, patience: 1000 })).rejects.toMatchObject({ code: "store_busy" });
    const opening = open(url.href, { schema, patience: "30s" });
    await sleep(300);
    await asAdmin("alter role crowded connection limit 20");
    await (await opening).close();
  });
});

describe("what waiting does not cure is reported after one attempt", () => {
  test.each([
    { code: "28P01", why: "a wrong password", refused: /^store_unreachable: the server rejected the login/ },
    { code: "28000", why: "an unknown role", refused: /^store_unreachable: the server rejected the login/ },
    { code: "3D000", why: "an unknown database", refused: /^store_unreachable: the database does not exist/ },
  ])("$why", async ({ code, refused }) => {
    const door = new Door(Number.POSITIVE_INFINITY, code);
    expect(await outcome(await door.open(), 30_000)).toMatch(refused);
    expect(door.attempts).toBe(1);
  });

  test("a database that is unknown to the server itself", async () => {
    const door = new Door(0, "");
    const url = new URL(await door.open());
    url.pathname = "/nowhere";
    expect(await outcome(url.href, 30_000)).toMatch(/^store_unreachable: the database does not exist/);
    expect(door.attempts).toBe(1);
  });

  test("a server that is not fit", async () => {
    await asAdmin("create database unfit encoding 'SQL_ASCII' template template0");
    const door = new Door(0, "");
    const url = new URL(await door.open());
    url.pathname = "/unfit";
    expect(await outcome(url.href, 30_000)).toMatch(/^store_unfit: the encoding of the database is SQL_ASCII/);
    expect(door.attempts).toBe(1);
  });
});
