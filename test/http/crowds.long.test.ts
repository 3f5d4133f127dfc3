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

/** As many as the system lets one process open, and at most 10,000. */
function crowd(): number {
  const { userLimits } = process.report.getReport() as unknown as {
    readonly userLimits: { readonly open_files: { readonly soft: number | "unlimited" } };
  };
  const { soft } = userLimits.open_files;
  const count = Math.min(10_000, soft === "unlimited" ? Number.POSITIVE_INFINITY : soft - 500);
  expect(count, "the limit on open files (ulimit -n) is too low for this test").toBeGreaterThan(1000);
  return count;
}

test("16: 10,000 idle connections: others are served, and those that are too many make room", async () => {
  const count = crowd();
  const { url, send, mostMiB, enter } = await crowded({ connections: count - 100 });
  const beforeMiB = await mostMiB();
  let closed = 0;
  for (let i = 0; i < count; i += 1) (await enter("")).on("close", () => closed++).resume();
  // The oldest make room for the last ones.
  await expect.poll(() => closed).toBeGreaterThanOrEqual(100);
  for (let i = 0; i < 10; i += 1) {
    expect((await fetch(`${url}/livez`)).status).toBe(200);
    expect((await send("PUT", "/v1/slots/x", { value: i })).status).toBe(200);
  }
  expect(closed).toBeLessThan(200);
  expect((await mostMiB()) - beforeMiB).toBeLessThan(500);
});

test("12: thousands of requests that arrive byte by byte end with 408, and others are served meanwhile", async () => {
  const count = Math.min(3000, crowd());
  const { url, key, send, mostMiB, enter } = await crowded({ headersTimeout: "2s", requestTimeout: "4s" });
  const beforeMiB = await mostMiB();
  const head = `PUT /v1/slots/y HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${key}\r\ncontent-type: application/json\r\n`;
  const statuses = new Map<string, number>();
  let open = 0;
  for (let i = 0; i < count; i += 1) {
    // Of two, one never ends its headers, and one its body.
    const isBody = i % 2 === 0;
    const socket = await enter(isBody ? `${head}content-length: 1000000\r\n\r\n{"value":"` : head);
    open += 1;
    const trickle = setInterval(() => socket.write("x"), 200);
    let text = "";
    socket.on("data", (chunk) => {
      text += chunk;
    });
    socket.on("close", () => {
      clearInterval(trickle);
      open -= 1;
      const status = /^HTTP\/1\.1 (\d+)/.exec(text)?.[1] ?? "none";
      statuses.set(status, (statuses.get(status) ?? 0) + 1);
    });
  }
  while (open > 0) {
    expect((await fetch(`${url}/livez`)).status).toBe(200);
    expect((await send("PUT", "/v1/slots/x", { value: 1 })).status).toBe(200);
  }
  // A response may be lost where its connection is closed with bytes that were not read.
  const refused = (statuses.get("408") ?? 0) + (statuses.get("none") ?? 0);
  expect(refused, JSON.stringify([...statuses])).toBe(count);
  expect(statuses.get("408")).toBeGreaterThan(count / 2);
  expect((await mostMiB()) - beforeMiB).toBeLessThan(500);
});
