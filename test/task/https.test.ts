/**
 * Goal: a call over HTTPS reaches only the server whose name the URL has, at the address that was checked.
 * Method: a receiver whose certificates are made here, by an authority that this process trusts or by another one; a resolver that gives the receiver's
 * address for every name, so that a name is only what TLS and `Host` make of it.
 */

import { createServer } from "node:https";
import { type AddressInfo, createServer as createTcpServer, type Socket } from "node:net";
import type { TLSSocket } from "node:tls";
import { expect, onTestFinished, test } from "vitest";
import type { Pawl, TaskInfo } from "../../src/index.ts";
import { openHttp } from "../../src/node/http.ts";
import { nodePorts, wallMs } from "../../src/node/ports.ts";
import { pawlOn } from "../../src/pawl.ts";
import { MemoryDatabase } from "../../src/stores/memory/memory.ts";
import { authority, type Certificate, daysFromNow } from "./certificates.ts";
import { ended, TASKS } from "./kit.ts";

const trusted = authority("the authority of the tests");
const stranger = authority("an authority that nobody knows");

interface Seen {
  /** The name that the client asked for in the TLS handshake; false if none. */
  readonly servername: string | false | null | undefined;
  readonly host: string | undefined;
  /** The address that the client connected to. */
  readonly address: string | undefined;
}

interface SecureReceiver {
  readonly port: number;
  /** What came through the handshake. */
  readonly seen: Seen[];
  connections(): number;
}

async function receiver(shown: Certificate): Promise<SecureReceiver> {
  const seen: Seen[] = [];
  const sockets = new Set<Socket>();
  let connections = 0;
  const server = createServer({ cert: shown.cert, key: shown.key }, (request, response) => {
    const { servername, localAddress } = request.socket as TLSSocket & { servername?: string | false };
    seen.push({ servername, host: request.headers.host, address: localAddress });
    request.resume().on("end", () => response.end("fine"));
  });
  server.on("connection", (socket: Socket) => {
    connections += 1;
    sockets.add(socket);
    socket.on("error", () => {});
    socket.on("close", () => sockets.delete(socket));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return { port: (server.address() as AddressInfo).port, seen, connections: () => connections };
}

/** A handle whose calls trust one authority, and for which every name has the address of the receiver; a second look at a name finds nothing there. */
function opened(): { readonly pawl: Pawl; readonly asked: string[] } {
  const asked: string[] = [];
  const resolve = async (name: string): Promise<readonly string[]> => {
    const isAgain = asked.includes(name);
    asked.push(name);
    return [isAgain ? "127.0.0.254" : "127.0.0.1"];
  };
  const ports = { ...nodePorts, http: () => openHttp({ ca: trusted.cert, resolve }) };
  const pawl = pawlOn(new MemoryDatabase(wallMs).connect("default"), ports, { namespace: "default" });
  onTestFinished(() => pawl.close());
  pawl.work([TASKS]);
  return { pawl, asked };
}

const call = async (pawl: Pawl, targetUrl: string): Promise<TaskInfo> =>
  ended(pawl, await pawl.tasks.create({ targetUrl, retry: { attempts: 1 } }));

test("a call asks for the name of the URL, in the handshake and as Host, at the address that was checked", async () => {
  const { port, seen } = await receiver(trusted.issue(["shop.example"]));
  const { pawl, asked } = opened();
  const task = await call(pawl, `https://shop.example:${port}/hook`);
  expect(task.outcome).toMatchObject({ status: "completed", value: { status: 200, body: "fine" } });
  expect(seen).toEqual([{ servername: "shop.example", host: `shop.example:${port}`, address: "127.0.0.1" }]);
  expect(asked).toEqual(["shop.example"]);
});

test("a URL with an address asks for no name, and the certificate must have the address", async () => {
  const { port, seen } = await receiver(trusted.issue(["127.0.0.1"]));
  const { pawl } = opened();
  expect((await call(pawl, `https://127.0.0.1:${port}/`)).status).toBe("completed");
  expect(seen).toEqual([{ servername: false, host: `127.0.0.1:${port}`, address: "127.0.0.1" }]);
  const named = await receiver(trusted.issue(["shop.example"]));
  expect((await call(pawl, `https://127.0.0.1:${named.port}/`)).status).toBe("failed");
  expect(named.seen).toEqual([]);
});

const refused: readonly (readonly [rule: string, shown: () => Certificate, says: RegExp])[] = [
  ["for another name", () => trusted.issue(["other.example"]), /shop\.example.*altnames: DNS:other\.example/],
  // The connection goes to this address, but it is not what the URL has.
  ["for the address only", () => trusted.issue(["127.0.0.1", "other.example"]), /shop\.example.*altnames: /],
  ["for a name below it", () => trusted.issue(["www.shop.example"]), /shop\.example.*DNS:www\.shop\.example/],
  ["that expired", () => trusted.issue(["shop.example"], { from: daysFromNow(-9), until: daysFromNow(-1) }), /expired/],
  [
    "of tomorrow",
    () => trusted.issue(["shop.example"], { from: daysFromNow(1), until: daysFromNow(9) }),
    /not yet valid/,
  ],
  ["of an unknown authority", () => stranger.issue(["shop.example"]), /unable to verify|unable to get .*issuer/],
  ["that it signed itself", () => stranger, /self-signed certificate/],
];

test.each(refused)("a server with a certificate %s gets nothing, and the attempt says why", async (_, shown, says) => {
  const { port, seen, connections } = await receiver(shown());
  const { pawl } = opened();
  const task = await call(pawl, `https://shop.example:${port}/hook`);
  expect(task).toMatchObject({ status: "failed", outcome: { error: { code: "network" } } });
  expect(await pawl.tasks.attempts(task.id)).toMatchObject([
    { number: 1, status: null, error: { code: "network", message: expect.stringMatching(says) } },
  ]);
  expect([seen, connections()]).toEqual([[], 1]);
});

test("a connection that is kept for one name is not used for another", async () => {
  const { port, seen, connections } = await receiver(trusted.issue(["shop.example"]));
  const { pawl } = opened();
  expect((await call(pawl, `https://shop.example:${port}/`)).status).toBe("completed");
  const other = await call(pawl, `https://other.example:${port}/`);
  expect(other.outcome).toMatchObject({ status: "failed", error: { code: "network" } });
  expect(seen).toHaveLength(1);
  expect(connections()).toBe(2);
});

test("a server without TLS gets a handshake, and nothing in the clear", async () => {
  const got: Buffer[] = [];
  const server = createTcpServer((socket) => {
    socket.on("error", () => {});
    socket.once("data", (bytes) => {
      got.push(bytes);
      socket.end("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => void server.close());
  const { pawl } = opened();
  const task = await call(pawl, `https://shop.example:${(server.address() as AddressInfo).port}/secret-path`);
  expect(task.outcome).toMatchObject({ status: "failed", error: { code: "network" } });
  expect(got).toHaveLength(1);
  expect(String(got)).not.toMatch(/POST|secret-path/);
});
