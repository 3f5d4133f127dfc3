/**
 * A pooler in transaction mode, in front of PostgreSQL, that keeps as little as such poolers may.
 *
 * Many clients share few server connections. A client gets one when it sends something, and loses it as soon as the server reports that no
 * transaction is open any more; the next time it gets the one that has been free for longest, and so usually another. What a session stores
 * (prepared statements, settings, LISTEN) stays with the server connection, for other clients to find; with `forgets`, prepared statements
 * are dropped as well. A notification reaches the client that has that server connection at the moment, or none.
 *
 * Guarantees: messages pass unchanged and in order; a client that disconnects in the middle of a transaction ends the server connection,
 * and with it the transaction; everything that passed is counted.
 * Out of scope: passwords, TLS, COPY and cancelling. All clients use the role of the address given at the start.
 */

import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net";

export interface PoolerCounts {
  clients: number;
  /** How often a client was given a server connection. */
  turns: number;
  /** How often it was another one than it had before. */
  changes: number;
  /** Statements that were prepared under a name. */
  namedParses: number;
  /** Notifications that found nobody. */
  notificationsLost: number;
}

export interface PoolerOptions {
  readonly serverConnections?: number;
  /** Whether each server connection drops what was prepared on it before it is handed on. */
  readonly forgets?: boolean;
}

export class Pooler {
  readonly counts: PoolerCounts = { clients: 0, turns: 0, changes: 0, namedParses: 0, notificationsLost: 0 };
  readonly #upstream: URL;
  readonly #max: number;
  readonly #forgets: boolean;
  readonly #listener: Server;
  readonly #clients = new Set<Client>();
  readonly #servers = new Set<ServerLine>();
  readonly #free: ServerLine[] = [];
  readonly #waiting: Client[] = [];
  #connecting = 0;
  #isClosed = false;

  private constructor(upstream: string, { serverConnections = 3, forgets = false }: PoolerOptions) {
    this.#upstream = new URL(upstream);
    this.#max = serverConnections;
    this.#forgets = forgets;
    this.#listener = createServer((socket) => this.#accept(socket));
  }

  static async start(upstream: string, options: PoolerOptions = {}): Promise<Pooler> {
    const pooler = new Pooler(upstream, options);
    while (pooler.#servers.size < pooler.#max) await pooler.#open();
    pooler.#listener.listen(0, "127.0.0.1");
    await once(pooler.#listener, "listening");
    return pooler;
  }

  /** The database of the server, through the pooler. */
  get url(): string {
    const url = new URL(this.#upstream);
    url.hostname = "127.0.0.1";
    url.port = String((this.#listener.address() as AddressInfo).port);
    return url.href;
  }

  get serverConnections(): number {
    return this.#servers.size;
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    const closed = new Promise((resolve) => this.#listener.close(resolve));
    for (const client of this.#clients) client.socket.destroy();
    for (const server of this.#servers) server.socket.destroy();
    await closed;
  }

  #accept(socket: Socket): void {
    this.counts.clients += 1;
    const client = new Client(socket);
    this.#clients.add(client);
    let isGreeted = false;
    const messages = new Messages(false);
    socket.on("data", (chunk) => {
      for (const message of messages.read(chunk)) {
        if (isGreeted) this.#said(client, message);
        else if (message.readInt32BE(4) === PROTOCOL_3) {
          isGreeted = true;
          messages.areTyped = true;
          this.#greet(client);
        } else socket.write("N");
      }
    });
    socket.on("error", () => {});
    socket.on("close", () => this.#left(client));
  }

  /** A client gets what the server sent to us, without knowing from which connection. */
  #greet(client: Client): void {
    client.greets = true;
    this.#waiting.push(client);
    this.#serve();
  }

  #said(client: Client, message: Buffer): void {
    const type = message[0];
    if (type === PARSE && message[5] !== 0) this.counts.namedParses += 1;
    if (type === TERMINATE) client.socket.end();
    else if (client.server !== null) client.server.ask(message);
    else {
      if (client.unsaid.length === 0) this.#waiting.push(client);
      client.unsaid.push(message);
      this.#serve();
    }
  }

  /** Gives server connections to those who wait, first come, first served. */
  #serve(): void {
    while (this.#waiting.length > 0) {
      const server = this.#free.shift();
      if (server === undefined) {
        // One was lost.
        if (this.#servers.size + this.#connecting < this.#max) this.#open().catch(() => {});
        return;
      }
      const client = this.#waiting.shift();
      if (client === undefined || client.socket.destroyed) {
        this.#free.unshift(server);
        continue;
      }
      if (client.greets) {
        client.greets = false;
        client.socket.write(server.greeting);
        this.#free.push(server);
      } else this.#link(client, server);
    }
  }

  #link(client: Client, server: ServerLine): void {
    this.counts.turns += 1;
    if (client.last !== null && client.last !== server) this.counts.changes += 1;
    client.last = server;
    client.server = server;
    server.client = client;
    for (const message of client.unsaid.splice(0)) server.ask(message);
  }

  #open(): Promise<void> {
    this.#connecting += 1;
    const socket = connect({ host: this.#upstream.hostname, port: Number(this.#upstream.port), noDelay: true });
    const server = new ServerLine(socket);
    const database = decodeURIComponent(this.#upstream.pathname.slice(1));
    socket.write(startUp({ user: decodeURIComponent(this.#upstream.username), database }));
    const messages = new Messages(true);
    const said: Buffer[] = [];
    return new Promise((resolve, reject) => {
      socket.on("data", (chunk) => {
        for (const message of messages.read(chunk)) {
          if (this.#servers.has(server)) this.#answered(server, message);
          else {
            said.push(message);
            if (message[0] !== READY) continue;
            server.greeting = Buffer.concat(said);
            this.#connecting -= 1;
            this.#servers.add(server);
            this.#release(server);
            resolve();
          }
        }
      });
      socket.on("error", reject);
      socket.on("close", () => {
        if (!this.#servers.delete(server)) this.#connecting -= 1;
        const at = this.#free.indexOf(server);
        if (at >= 0) this.#free.splice(at, 1);
        server.client?.socket.destroy();
        if (!this.#isClosed) this.#serve();
        reject(new Error("the server ended the connection"));
      });
    });
  }

  #answered(server: ServerLine, message: Buffer): void {
    const { client } = server;
    if (client === null) {
      if (message[0] === NOTIFICATION) this.counts.notificationsLost += 1;
      if (message[0] === READY) this.#release(server);
      return;
    }
    client.socket.write(message);
    if (message[0] !== READY) return;
    server.unanswered -= 1;
    if (server.unanswered > 0 || message[5] !== IDLE) return;
    server.client = null;
    client.server = null;
    if (this.#forgets) server.socket.write(FORGET);
    else this.#release(server);
  }

  #release(server: ServerLine): void {
    this.#free.push(server);
    this.#serve();
  }

  #left(client: Client): void {
    this.#clients.delete(client);
    const { server } = client;
    if (server === null) return;
    server.client = null;
    server.socket.destroy();
  }
}

class Client {
  readonly socket: Socket;
  /** It has just arrived, and waits to be greeted. */
  greets = false;
  server: ServerLine | null = null;
  last: ServerLine | null = null;
  readonly unsaid: Buffer[] = [];

  constructor(socket: Socket) {
    this.socket = socket;
    socket.setNoDelay(true);
  }
}

class ServerLine {
  readonly socket: Socket;
  greeting: Buffer = Buffer.alloc(0);
  client: Client | null = null;
  /** Messages that the server will answer with "ready". */
  unanswered = 0;

  constructor(socket: Socket) {
    this.socket = socket;
  }

  ask(message: Buffer): void {
    if (message[0] === SYNC || message[0] === QUERY) this.unanswered += 1;
    this.socket.write(message);
  }
}

const PROTOCOL_3 = 196_608;
const [PARSE, SYNC, QUERY, TERMINATE, READY, NOTIFICATION, IDLE] = [..."PSQXZAI"].map((letter) => letter.charCodeAt(0));

function startUp(parameters: Readonly<Record<string, string>>): Buffer {
  const pairs = Object.entries(parameters).flat();
  const body = Buffer.from(`${pairs.join("\0")}\0\0`);
  const message = Buffer.alloc(8 + body.length);
  message.writeInt32BE(message.length, 0);
  message.writeInt32BE(PROTOCOL_3, 4);
  body.copy(message, 8);
  return message;
}

const FORGET = (() => {
  const text = Buffer.from("deallocate all\0");
  const header = Buffer.from("Q\0\0\0\0");
  header.writeInt32BE(4 + text.length, 1);
  return Buffer.concat([header, text]);
})();

/** Cuts what arrives into messages: a type, unless it is a client's first, then a length that counts itself, then the body. */
class Messages {
  areTyped: boolean;
  #unread: Buffer = Buffer.alloc(0);

  constructor(areTyped: boolean) {
    this.areTyped = areTyped;
  }

  *read(chunk: Buffer): Generator<Buffer> {
    this.#unread = this.#unread.length === 0 ? chunk : Buffer.concat([this.#unread, chunk]);
    for (;;) {
      const start = this.areTyped ? 1 : 0;
      if (this.#unread.length < start + 4) return;
      const length = start + this.#unread.readInt32BE(start);
      if (this.#unread.length < length) return;
      const message = this.#unread.subarray(0, length);
      this.#unread = this.#unread.subarray(length);
      yield message;
    }
  }
}
