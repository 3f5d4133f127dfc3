/**
 * Goal: a crowd of clients that take and give nothing costs little memory, and does not keep others from being served (attacks 12 and 16).
 * Method: a server in a process of its own, thousands of connections to it, and the most memory that the process has had.
 *
 * The limits on memory are far above what is used, and far below what it would be without the bounds.
 */

import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import type { AppOptions, ServeOptions } from "../../src/http/server/index.ts";
import { Child, spawnNode } from "../node/child.ts";
import { sender } from "./kit.ts";

async function crowded(options: ServeOptions & AppOptions) {
  const child = new Child(
    spawnNode(join(import.meta.dirname, "children/server.ts"), [JSON.stringify(options)]),
    "server.ts",
  );
  onTestFinished(() => child.signal("SIGKILL"));
  const { url, key } = JSON.parse(await child.line()) as { readonly url: string; readonly key: string };
  const mostMiB = async (): Promise<number> => {
    child.tell("memory");
    return Number(await child.line());
  };
  const sockets: Socket[] = [];
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
  });
  const { hostname, port } = new URL(url);
  /** A client that sends this, and reads nothing. */
  const enter = async (text: string): Promise<Socket> => {
    const socket = connect(Number(port), hostname);
    socket.on("error", () => {});
    sockets.push(socket);
    await once(socket, "connect");
    if (text !== "") socket.write(text);
    return socket;
  };
  const send = sender(url, key);
  const waiting = async (): Promise<number> =>
    Number(/^pawl_http_waiting (\d+)$/m.exec((await send("GET", "/metrics")).text)?.[1]);
  return { url, key, send, mostMiB, enter, waiting };
}

const requestOf = (path: string, key: string): string =>
  `GET ${path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${key}\r\naccept: text/event-stream\r\n\r\n`;

test("1,000 streams of one key that are not read, and values of 1 MB", async () => {
  const { key, send, mostMiB, enter, waiting } = await crowded({ limits: { waitingPerKey: 1000 } });
  for (let i = 0; i < 1000; i += 1) (await enter(requestOf("/v1/slots/x/events", key))).pause();
  await expect.poll(waiting).toBe(1000);
  const beforeMiB = await mostMiB();
  for (let i = 0; (await waiting()) > 100; i += 1)
    expect((await send("PUT", "/v1/slots/x", { value: `${i} ${"x".repeat(1_000_000)}` })).status).toBe(200);
  const afterMiB = await mostMiB();
  expect(afterMiB - beforeMiB).toBeLessThan(1000);
});
