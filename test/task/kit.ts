/**
 * What the tests of tasks share: a receiver that behaves as it is told, and keeps a ledger of all that reached it.
 */

import { createServer, type IncomingHttpHeaders, type ServerResponse } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import { onTestFinished } from "vitest";
import { type CreatedTask, httpTasks, type Pawl, type TaskInfo } from "../../src/index.ts";

/** Keys for signal tokens. */
export const KEYS = { actions: { keys: { current: "k", ring: { k: new Uint8Array(32).fill(7) } } } };
export const SECRET = `whsec_${Buffer.alloc(32, 3).toString("base64")}`;

/** A handle's part in the work, with calls to this machine. */
export const TASKS = httpTasks({ secrets: SECRET, allow: ["127.0.0.1/32"] });

export interface Seen {
  readonly path: string;
  readonly method: string;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
  readonly key: string;
  readonly attempt: number;
  readonly fence: number;
}

/** What the receiver does with a request. */
export type Behavior = (response: ServerResponse, seen: Seen) => void;

export interface Receiver {
  readonly url: string;
  readonly seen: Seen[];
  /** What is done with requests from now on, one after the other; the last one is done again. */
  behave(...behaviors: Behavior[]): void;
  /** Connections that are open. */
  connections(): number;
}

export const reply =
  (status = 200, body = "fine", headers: Record<string, string> = {}): Behavior =>
  (response) =>
    void response.writeHead(status, headers).end(body);

/** Never replies. */
export const silence: Behavior = () => {};

export const dies: Behavior = (response) => void response.socket?.destroy();
export const resets: Behavior = (response) => void response.socket?.resetAndDestroy();
export const closesHalfway: Behavior = (response) => {
  response.writeHead(200, { "content-length": "100" });
  response.write("half", () => response.socket?.destroy());
};
/** A byte now and then, without an end. */
export const drips: Behavior = (response) => {
  response.writeHead(200);
  const timer = setInterval(() => response.write("."), 1);
  response.on("close", () => clearInterval(timer));
};
export const sendsTenGigabytes: Behavior = (response) => {
  response.writeHead(200, { "content-length": "10000000000" });
  const chunk = Buffer.alloc(65_536);
  const more = (): void => {
    while (!response.destroyed && response.write(chunk));
  };
  response.on("drain", more);
  more();
};

export async function receiver(...behaviors: Behavior[]): Promise<Receiver> {
  let script = behaviors.length === 0 ? [reply()] : behaviors;
  const seen: Seen[] = [];
  const sockets = new Set<Socket>();
  const server = createServer((request, response) => {
    let body = "";
    request.on("error", () => {});
    request.on("data", (part) => {
      body += part;
    });
    request.on("end", () => {
      const { url = "", method = "", headers } = request;
      const one: Seen = {
        path: url,
        method,
        headers,
        body,
        key: String(headers["idempotency-key"]),
        attempt: Number(headers["pawl-attempt"]),
        fence: Number(headers["pawl-fence"]),
      };
      seen.push(one);
      const [behavior = reply()] = script;
      if (script.length > 1) script = script.slice(1);
      behavior(response, one);
    });
  });
  server.on("connection", (socket) => {
    sockets.add(socket);
    socket.on("error", () => {});
    socket.on("close", () => sockets.delete(socket));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/hook`,
    seen,
    behave(...next) {
      script = next;
    },
    connections: () => sockets.size,
  };
}

/** The task when it has its outcome. */
export const ended = (pawl: Pawl, { task }: Pick<CreatedTask, "task">): Promise<TaskInfo> =>
  pawl.tasks.get(task.id, { wait: "60s" });

/** The token of a task that waits for a signal. */
export function tokenOf({ signalToken }: CreatedTask): string {
  if (signalToken === null) throw new Error("the task has no token");
  return signalToken;
}
