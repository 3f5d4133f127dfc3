/**
 * What a contender of the comparison of tasks is: something that keeps a task durably and calls a URL for it.
 *
 * All of them make the same call, a POST of the same body to a receiver in a process of its own (task-receiver.ts), over connections that are kept.
 * Libraries for jobs call it with `callReceiver`; Pawl's tasks call by themselves. A call that is repeated counts once: the receiver counts keys.
 *
 * Leaves out: what is measured (task-protocols.ts), and how each is used (a file for each).
 */

import { Agent, request } from "node:http";
import type { Ground, Peer } from "./peer.ts";

export interface TaskPeer extends Omit<Peer, "open" | "store"> {
  readonly store: "postgres" | "sqlite" | "redis";
  open(ground: TaskGround): Promise<TaskSession>;
}

export interface TaskGround extends Ground {
  /** Where the calls go. */
  readonly targetUrl: string;
  /** The socket of a Redis server, for those that need one. */
  readonly redis: string;
}

/** A contender in this process, which creates tasks; it calls the receiver for them from `work` until `stop`. */
export interface TaskSession {
  /** Creates a task, and is done when the task is sure to happen. */
  create(key: string): Promise<unknown>;
  work(): Promise<void>;
  /** Lets the calls in progress finish. */
  stop(): Promise<void>;
  close(): Promise<void>;
}

/** How many calls a contender may make at a time. */
export const CONCURRENCY = 100;

export const BODY = JSON.stringify({ order: "ord_000000", total: 1999, currency: "EUR" });

/** The header that tells the receiver which task it is. */
export const KEY_HEADER = "x-bench-key";

const agent = new Agent({ keepAlive: true, maxSockets: CONCURRENCY });

/** What a job does: the call, over a connection that is kept; anything but 200 is an error. */
export function callReceiver(targetUrl: string, key: string): Promise<void> {
  return new Promise((resolve, reject) => {
    const headers = {
      "content-type": "application/json",
      "content-length": Buffer.byteLength(BODY),
      [KEY_HEADER]: key,
    };
    const call = request(targetUrl, { method: "POST", agent, headers }, (reply) => {
      reply.resume();
      reply.on("end", () =>
        reply.statusCode === 200 ? resolve() : reject(new Error(`the receiver replied ${reply.statusCode}`)),
      );
      reply.on("error", reject);
    });
    call.on("error", reject);
    call.end(BODY);
  });
}
