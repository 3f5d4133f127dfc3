/**
 * The receiver of the comparison of tasks: an HTTP server on loopback in a process of its own, which replies 200 and counts the keys it has seen.
 *
 * Its parent asks it over the channel of `fork`: for the number of keys, or to be told when that number has reached a goal, with how many calls there were.
 */

import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { fileURLToPath } from "node:url";
import { KEY_HEADER } from "./task-peer.ts";

type Request = { readonly reach: number } | { readonly clear: true };

export interface Receiver {
  readonly url: string;
  /** Forgets all keys. */
  clear(): Promise<void>;
  /** Resolves when so many keys were seen, with the number of calls until then. */
  reached(keys: number): Promise<number>;
  stop(): Promise<void>;
}

export async function startReceiver(): Promise<Receiver> {
  const child = fork(fileURLToPath(import.meta.url), { execArgv: process.execArgv });
  process.once("exit", () => child.kill("SIGKILL"));
  const { url } = (await replyOf(child)) as { url: string };
  const ask = async (request: Request): Promise<unknown> => {
    child.send(request);
    return replyOf(child);
  };
  return {
    url,
    clear: async () => void (await ask({ clear: true })),
    reached: async (reach) => ((await ask({ reach })) as { calls: number }).calls,
    stop: async () => {
      const ended = once(child, "exit");
      child.disconnect();
      await ended;
    },
  };
}

async function replyOf(child: ChildProcess): Promise<unknown> {
  const [reply] = await once(child, "message");
  return reply;
}

if (process.argv[1] === fileURLToPath(import.meta.url) && process.send !== undefined) {
  const keys = new Set<string>();
  let calls = 0;
  let goal = Number.POSITIVE_INFINITY;
  const look = (): void => {
    if (keys.size < goal) return;
    goal = Number.POSITIVE_INFINITY;
    process.send?.({ calls });
  };
  const server = createServer((request, reply) => {
    request.resume();
    request.on("end", () => {
      calls += 1;
      keys.add(String(request.headers[KEY_HEADER]));
      reply.writeHead(200, { "content-type": "text/plain", "content-length": 2 });
      reply.end("ok");
      look();
    });
  });
  server.keepAliveTimeout = 60_000;
  server.listen(0, "127.0.0.1", () => {
    const { port } = server.address() as AddressInfo;
    process.send?.({ url: `http://127.0.0.1:${port}/hook` });
  });
  process.on("message", (request: Request) => {
    if ("clear" in request) {
      keys.clear();
      calls = 0;
      process.send?.({});
    } else {
      goal = request.reach;
      look();
    }
  });
  process.on("disconnect", () => process.exit(0));
}
