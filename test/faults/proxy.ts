/**
 * A TCP proxy in front of PostgreSQL that does to connections what networks do.
 *
 * Whatever goes through can be cut, held up for a while in either direction without being closed, or refused. It reads the
 * server's messages (a type, a length, a body) and knows the one that says COMMIT: it can lose just that reply, so that the
 * commit has happened and the client never gets the reply, or deliver it late. It can lose a request, whole or by its second half.
 *
 * Guarantees: bytes pass unchanged and in order, or not at all; everything done to them is counted.
 * Out of scope: what is inside TLS. A client that encrypts is passed through and never found to commit.
 */

import { connect, createServer, type Server, type Socket } from "node:net";

export interface ProxyCounts {
  connections: number;
  /** How often the port was closed. */
  refusals: number;
  /** Connections that were cut for its own sake, and those held up. */
  cut: number;
  stalled: number;
  commitRepliesSeen: number;
  commitRepliesDropped: number;
  commitRepliesDelayed: number;
  requestsDropped: number;
  switches: number;
}

/** Which way bytes go: from the client to the server, from the server to the client. */
export type Direction = "up" | "down" | "both";

/** What happens to the next reply to a COMMIT. */
type ReplyFault = { readonly drop: true } | { readonly delayMs: number };

/** Ports that neither the system nor the test servers pick for themselves, so that none is taken while it is closed. */
const PORTS = { first: 10_000, count: 6_000 };

export class FaultyProxy {
  readonly counts: ProxyCounts = {
    connections: 0,
    refusals: 0,
    cut: 0,
    stalled: 0,
    commitRepliesSeen: 0,
    commitRepliesDropped: 0,
    commitRepliesDelayed: 0,
    requestsDropped: 0,
    switches: 0,
  };
  readonly #connections = new Set<Connection>();
  readonly #replyFaults: ReplyFault[] = [];
  readonly #requestFaults: ("whole" | "second half")[] = [];
  /** New connections are held up as well until then. */
  #stalledUntilMs = 0;
  #stallDirection: Direction = "both";
  #server: Server | undefined;
  #port = 0;
  #upstreamPort: number;
  #isClosed = false;

  private constructor(upstreamPort: number) {
    this.#upstreamPort = upstreamPort;
  }

  static async start(upstreamPort: number): Promise<FaultyProxy> {
    const proxy = new FaultyProxy(upstreamPort);
    for (let tries = 1; ; tries++) {
      try {
        await proxy.#listen(PORTS.first + Math.floor(Math.random() * PORTS.count));
        return proxy;
      } catch (error) {
        if (tries === 50) throw error;
      }
    }
  }

  get port(): number {
    return this.#port;
  }

  get connections(): readonly Connection[] {
    return [...this.#connections];
  }

  /** The same address, but through the proxy. */
  urlOf(url: string): string {
    const through = new URL(url);
    through.hostname = "127.0.0.1";
    through.port = String(this.#port);
    return through.href;
  }

  /** Resets every connection. */
  cutAll(): number {
    const all = this.connections;
    for (const connection of all) connection.cut();
    return all.length;
  }

  /** Delays everything for this long, including new connections. */
  stallAll(ms: number, direction: Direction = "both"): void {
    this.#stalledUntilMs = performance.now() + ms;
    this.#stallDirection = direction;
    for (const connection of this.#connections) connection.stall(ms, direction);
  }

  /** Accepts no new connections for this long: the port is closed. Existing ones continue. */
  async refuse(ms: number): Promise<void> {
    const server = this.#server;
    if (server === undefined) return;
    this.#server = undefined;
    const port = this.#port;
    server.close();
    this.counts.refusals += 1;
    await new Promise((resolve) => setTimeout(resolve, ms));
    if (port === this.#port && !this.#isClosed) await this.#listen(port);
  }

  /** Loses the replies to the next COMMITs: they happen, and the client is disconnected before it gets the reply. */
  dropCommitReplies(count: number): void {
    for (let i = 0; i < count; i++) this.#replyFaults.push({ drop: true });
  }

  /** Delays the reply to the next COMMIT for this long, and everything after it on its connection. */
  delayCommitReply(ms: number): void {
    this.#replyFaults.push({ delayMs: ms });
  }

  /** Loses the next requests: the client is cut off, and the server saw nothing of it, or the first half. */
  dropRequests(count: number, what: "whole" | "second half" = "whole"): void {
    for (let i = 0; i < count; i++) this.#requestFaults.push(what);
  }

  /** Faults that were ordered and have found nothing to strike yet. */
  get pendingFaults(): number {
    return this.#replyFaults.length + this.#requestFaults.length;
  }

  /** Takes back what has not struck yet. */
  disarm(): void {
    this.#replyFaults.length = 0;
    this.#requestFaults.length = 0;
  }

  /** From now on everybody is led to another server; who is connected to the old one is cut off. */
  switchTo(upstreamPort: number): void {
    this.#upstreamPort = upstreamPort;
    this.counts.switches += 1;
    for (const connection of this.connections) connection.close();
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    const server = this.#server;
    this.#server = undefined;
    const closed = new Promise<void>((resolve) => (server === undefined ? resolve() : server.close(() => resolve())));
    for (const connection of this.connections) connection.close();
    await closed;
  }

  #listen(port: number): Promise<void> {
    return new Promise((resolve, reject) => {
      const server = createServer((client) => this.#accept(client));
      server.once("error", reject);
      server.listen(port, "127.0.0.1", () => {
        this.#server = server;
        this.#port = port;
        resolve();
      });
    });
  }

  #accept(client: Socket): void {
    this.counts.connections += 1;
    const connection = new Connection(client, this.#upstreamPort, {
      counts: this.counts,
      nextReplyFault: () => this.#replyFaults.shift(),
      nextRequestFault: () => this.#requestFaults.shift(),
      closed: () => this.#connections.delete(connection),
    });
    this.#connections.add(connection);
    const stalledMs = this.#stalledUntilMs - performance.now();
    if (stalledMs > 0) connection.stall(stalledMs, this.#stallDirection);
  }
}

interface Owner {
  readonly counts: ProxyCounts;
  readonly nextReplyFault: () => ReplyFault | undefined;
  readonly nextRequestFault: () => "whole" | "second half" | undefined;
  readonly closed: () => void;
}

/** One client's connection and the one to the server that belongs to it. */
export class Connection {
  readonly #client: Socket;
  readonly #server: Socket;
  readonly #owner: Owner;
  readonly #up: Lane;
  readonly #down: Lane;
  readonly #greeting = new Greeting();
  readonly #replies = new Replies();
  #isClosed = false;

  constructor(client: Socket, upstreamPort: number, owner: Owner) {
    this.#client = client;
    this.#owner = owner;
    this.#server = connect({ port: upstreamPort, host: "127.0.0.1", noDelay: true });
    client.setNoDelay(true);
    this.#up = new Lane(client, this.#server, (chunk) => this.#request(chunk));
    this.#down = new Lane(this.#server, client, (chunk) => this.#reply(chunk));
    for (const [socket, lane] of [
      [client, this.#up],
      [this.#server, this.#down],
    ] as const) {
      socket.on("error", () => {});
      // What one side sent before it left reaches the other side first.
      socket.on("close", () => lane.afterwards(() => this.close()));
    }
  }

  /** Ends it for both sides simultaneously, as a lost network path would. */
  cut(): void {
    if (this.#isClosed) return;
    this.#owner.counts.cut += 1;
    this.close();
  }

  /** Delays its bytes for this long, and then forwards them. */
  stall(ms: number, direction: Direction = "both"): void {
    if (this.#isClosed) return;
    this.#owner.counts.stalled += 1;
    if (direction !== "down") this.#up.hold(ms);
    if (direction !== "up") this.#down.hold(ms);
  }

  /** The same as `cut`, but not counted as a fault. */
  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#up.end();
    this.#down.end();
    for (const socket of [this.#client, this.#server]) socket.resetAndDestroy();
    this.#owner.closed();
  }

  #request(chunk: Buffer): void {
    const isGreeting = !this.#greeting.isOver;
    const asked = this.#greeting.read(chunk);
    if (asked > 0) this.#replies.expectBareBytes(asked);
    // A connection that never came about is another fault.
    const fault = isGreeting ? undefined : this.#owner.nextRequestFault();
    if (fault === undefined) {
      this.#up.pass(chunk);
      return;
    }
    this.#owner.counts.requestsDropped += 1;
    if (fault === "second half") this.#up.pass(chunk.subarray(0, Math.ceil(chunk.length / 2)));
    this.#up.hold(Number.POSITIVE_INFINITY);
    // Give the first half its time to arrive.
    setTimeout(() => this.close(), fault === "whole" ? 0 : 20);
  }

  #reply(chunk: Buffer): void {
    let passed = 0;
    for (const at of this.#replies.commitsIn(chunk)) {
      this.#owner.counts.commitRepliesSeen += 1;
      const fault = this.#owner.nextReplyFault();
      if (fault === undefined) continue;
      this.#down.pass(chunk.subarray(passed, at));
      passed = at;
      if ("drop" in fault) {
        this.#owner.counts.commitRepliesDropped += 1;
        this.close();
        return;
      }
      this.#owner.counts.commitRepliesDelayed += 1;
      this.#down.hold(fault.delayMs);
    }
    this.#down.pass(chunk.subarray(passed));
  }
}

/** One direction of a connection: passes on, or keeps for later. */
class Lane {
  readonly #from: Socket;
  readonly #to: Socket;
  readonly #kept: Buffer[] = [];
  #holdUntilMs = 0;
  #timer: NodeJS.Timeout | undefined;
  #afterwards: (() => void) | undefined;

  constructor(from: Socket, to: Socket, read: (chunk: Buffer) => void) {
    this.#from = from;
    this.#to = to;
    from.on("data", read);
    to.on("drain", () => {
      if (!this.#isHeld) from.resume();
    });
  }

  get #isHeld(): boolean {
    return this.#holdUntilMs > 0;
  }

  pass(chunk: Buffer): void {
    if (chunk.length === 0) return;
    if (this.#isHeld) this.#kept.push(chunk);
    else if (!this.#to.write(chunk)) this.#from.pause();
  }

  /** A longer hold swallows a shorter one. */
  hold(ms: number): void {
    const untilMs = performance.now() + ms;
    if (untilMs <= this.#holdUntilMs) return;
    this.#holdUntilMs = untilMs;
    clearTimeout(this.#timer);
    if (Number.isFinite(ms)) this.#timer = setTimeout(() => this.#release(), ms);
  }

  /** Calls back when everything that came has been passed on. */
  afterwards(callback: () => void): void {
    if (this.#isHeld) this.#afterwards = callback;
    else callback();
  }

  end(): void {
    clearTimeout(this.#timer);
    this.#kept.length = 0;
    this.#afterwards = undefined;
  }

  #release(): void {
    this.#holdUntilMs = 0;
    for (const chunk of this.#kept.splice(0)) this.#to.write(chunk);
    this.#from.resume();
    this.#afterwards?.();
  }
}

const SSL_REQUEST = 80_877_103;
const GSS_REQUEST = 80_877_104;

/** What a client says first: perhaps a wish for encryption, which is answered by one bare byte, and then its start-up. */
class Greeting {
  #seen = Buffer.alloc(0);
  isOver = false;

  /** How many bare bytes the server will answer with. */
  read(chunk: Buffer): number {
    let asked = 0;
    if (this.isOver) return asked;
    this.#seen = Buffer.concat([this.#seen, chunk]);
    while (this.#seen.length >= 8) {
      const code = this.#seen.readInt32BE(4);
      if (code !== SSL_REQUEST && code !== GSS_REQUEST) {
        this.isOver = true;
        break;
      }
      asked += 1;
      this.#seen = this.#seen.subarray(8);
    }
    return asked;
  }
}

const COMMAND_COMPLETE = "C".charCodeAt(0);
const YES_TO_ENCRYPTION = ["S", "G"].map((letter) => letter.charCodeAt(0));
const COMMIT_TAG = Buffer.from("COMMIT\0");
const HEADER_LENGTH = 5;

/** Reads the server's messages as they come, in whatever pieces. */
class Replies {
  #bareBytes = 0;
  #isEncrypted = false;
  /** The header of the current message, as far as it has come, and how much of its body is still to come. */
  readonly #header = Buffer.alloc(HEADER_LENGTH);
  #headerLength = 0;
  #bodyLeft = 0;
  /** The body of a message that may say COMMIT. */
  #tag: Buffer | undefined;
  #startedAt = 0;

  expectBareBytes(count: number): void {
    this.#bareBytes += count;
  }

  /** Where in this piece each reply to a COMMIT starts; 0 if it started before. */
  commitsIn(chunk: Buffer): number[] {
    const found: number[] = [];
    this.#startedAt = 0;
    for (let at = 0; at < chunk.length && !this.#isEncrypted; ) {
      if (this.#bareBytes > 0) {
        this.#bareBytes -= 1;
        this.#isEncrypted = YES_TO_ENCRYPTION.includes(chunk[at] ?? 0);
        at += 1;
        continue;
      }
      if (this.#headerLength < HEADER_LENGTH) {
        if (this.#headerLength === 0) this.#startedAt = at;
        const taken = chunk.copy(this.#header, this.#headerLength, at, at + HEADER_LENGTH - this.#headerLength);
        this.#headerLength += taken;
        at += taken;
        if (this.#headerLength < HEADER_LENGTH) break;
        this.#bodyLeft = this.#header.readInt32BE(1) - 4;
        const isCommit = this.#header[0] === COMMAND_COMPLETE && this.#bodyLeft === COMMIT_TAG.length;
        this.#tag = isCommit ? Buffer.alloc(0) : undefined;
      }
      const end = Math.min(chunk.length, at + this.#bodyLeft);
      if (this.#tag !== undefined) this.#tag = Buffer.concat([this.#tag, chunk.subarray(at, end)]);
      this.#bodyLeft -= end - at;
      at = end;
      if (this.#bodyLeft > 0) break;
      this.#headerLength = 0;
      if (this.#tag?.equals(COMMIT_TAG)) found.push(this.#startedAt);
    }
    return found;
  }
}
