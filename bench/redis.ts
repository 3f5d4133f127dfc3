/**
 * Redis, for the comparison of locks: a server of our own, a client of a few lines, and the usual lock.
 *
 * The server is Debian's `redis-server`, if it is there, on a Unix socket in a folder of its own, with every write synced before it is
 * answered (`appendfsync always`), which is what our commits do. The client sends whatever is asked for in the same turn of the event loop in one piece and
 * matches the replies in order: which is as pipelined as Redis can be. The lock is `SET key token NX PX`, tried again after a while
 * when it is taken, and a compare-and-delete in Lua.
 */

import { spawn, spawnSync } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { createConnection, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

export interface RedisServer {
  /** The path of its socket. */
  readonly place: string;
  /** Such as "Redis 7.0.15". */
  readonly version: string;
  stop(): Promise<void>;
}

/** Says what is installed, or null. */
export function findRedis(): string | null {
  const { status, stdout } = spawnSync("redis-server", ["--version"], { encoding: "utf8" });
  const version = /v=([\d.]+)/.exec(stdout ?? "")?.[1];
  return status === 0 && version !== undefined ? `Redis ${version}` : null;
}

const STARTS_WITHIN_MS = 5000;

export async function startRedis(parent = tmpdir()): Promise<RedisServer> {
  const version = findRedis();
  if (version === null) throw new Error("there is no redis-server");
  const folder = mkdtempSync(join(parent, "redis-"));
  // Paths of sockets must be short, whatever the folder of the data is.
  const sockets = mkdtempSync(join(tmpdir(), "redis-"));
  const place = join(sockets, "socket");
  const settings = ["--port", "0", "--unixsocket", place, "--dir", folder, "--save", "", "--daemonize", "no"];
  const durable = ["--appendonly", "yes", "--appendfsync", "always"];
  const server = spawn("redis-server", [...settings, ...durable], { stdio: "ignore" });
  const ended = once(server, "exit");
  process.once("exit", () => server.kill("SIGKILL"));
  const stop = async () => {
    server.kill("SIGTERM");
    await ended;
    for (const path of [folder, sockets]) rmSync(path, { recursive: true, force: true });
  };
  const giveUpAtMs = performance.now() + STARTS_WITHIN_MS;
  for (;;)
    try {
      const redis = await Redis.connect(place);
      const [, always] = (await redis.send("config", "get", "appendfsync")) as string[];
      redis.close();
      if (always !== "always") throw new Error(`the server syncs "${always}" instead of always`);
      return { place, version, stop };
    } catch (error) {
      if (performance.now() < giveUpAtMs && server.exitCode === null) await sleep(20);
      else {
        await stop();
        throw error;
      }
    }
}

/** A reply of the server: text, a number, nothing, or several of them. */
export type Reply = string | number | null | readonly Reply[];

interface Asked {
  readonly resolve: (reply: Reply) => void;
  readonly reject: (error: Error) => void;
}

export class Redis {
  readonly #socket: Socket;
  readonly #asked: Asked[] = [];
  #first = 0;
  #rest = "";
  #out: string[] = [];

  static async connect(place: string): Promise<Redis> {
    const socket = createConnection(place);
    await once(socket, "connect");
    return new Redis(socket);
  }

  constructor(socket: Socket) {
    this.#socket = socket;
    // One byte is one character, so that lengths are those of the protocol.
    socket.setEncoding("latin1");
    socket.on("data", (text: string) => this.#receive(text));
    socket.on("close", () => {
      for (const { reject } of this.#asked.splice(this.#first)) reject(new Error("the connection was closed"));
    });
    socket.on("error", () => {});
  }

  send(...words: readonly string[]): Promise<Reply> {
    return new Promise((resolve, reject) => {
      this.#asked.push({ resolve, reject });
      if (this.#out.length === 0) process.nextTick(() => this.#flush());
      this.#out.push(
        `*${words.length}\r\n${words.map((word) => `$${Buffer.byteLength(word)}\r\n${word}\r\n`).join("")}`,
      );
    });
  }

  close(): void {
    this.#socket.destroy();
  }

  #flush(): void {
    this.#socket.write(this.#out.join(""));
    this.#out = [];
  }

  #receive(text: string): void {
    const all = this.#rest + text;
    let at = 0;
    for (;;) {
      const found = parse(all, at);
      if (found === undefined) break;
      at = found.end;
      const asked = this.#asked[this.#first++];
      if (found.value instanceof Error) asked?.reject(found.value);
      else asked?.resolve(found.value);
    }
    this.#rest = all.slice(at);
    if (this.#first < 10_000) return;
    this.#asked.splice(0, this.#first);
    this.#first = 0;
  }
}

/** One reply, or undefined if it is not there whole. */
function parse(text: string, at: number): { readonly value: Reply | Error; readonly end: number } | undefined {
  const lineEnd = text.indexOf("\r\n", at);
  if (lineEnd < 0) return undefined;
  const line = text.slice(at + 1, lineEnd);
  const next = lineEnd + 2;
  switch (text[at]) {
    case "+":
      return { value: line, end: next };
    case "-":
      return { value: new Error(line), end: next };
    case ":":
      return { value: Number(line), end: next };
    case "$": {
      const length = Number(line);
      if (length < 0) return { value: null, end: next };
      const end = next + length;
      return text.length < end + 2 ? undefined : { value: text.slice(next, end), end: end + 2 };
    }
    case "*": {
      const items: Reply[] = [];
      let end = next;
      for (let left = Number(line); left > 0; left--) {
        const item = parse(text, end);
        if (item === undefined) return undefined;
        items.push(item.value instanceof Error ? item.value.message : item.value);
        end = item.end;
      }
      return { value: items, end };
    }
    default:
      throw new Error(`not a reply: ${JSON.stringify(text.slice(at, at + 20))}`);
  }
}

const LEASE_MS = "30000";
const RELEASE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";

/** Acquires the lock as soon as a try succeeds. Returns the function that releases it. */
export async function redisLock(redis: Redis, name: string, pollMs: () => number): Promise<() => Promise<unknown>> {
  const token = randomUUID();
  while ((await redis.send("set", name, token, "nx", "px", LEASE_MS)) === null) await sleep(pollMs());
  return async () => {
    if ((await redis.send("evalsha", await scriptOf(redis), "1", name, token)) !== 1) throw new Error("it was lost");
  };
}

const scripts = new WeakMap<Redis, Promise<Reply>>();

/** The script is sent once, as clients do it. */
async function scriptOf(redis: Redis): Promise<string> {
  const known = scripts.get(redis) ?? redis.send("script", "load", RELEASE);
  scripts.set(redis, known);
  return String(await known);
}
