/** Outgoing HTTP over real sockets: where a request goes, and what becomes of each way in which a server can behave. */

import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { type AddressInfo, createServer as createTcpServer, type Socket, type Server as TcpServer } from "node:net";
import { afterEach, describe, expect, test } from "vitest";
import type { HttpClient, HttpReply } from "../kernel/http.ts";
import { openHttp } from "./http.ts";

const PATIENCE = { timeout: 60_000, interval: 5 };
const closings: (() => void)[] = [];
afterEach(() => {
  for (const close of closings.splice(0)) close();
});

type Handler = (request: IncomingMessage, response: ServerResponse) => void;

async function listen(server: Server | TcpServer): Promise<number> {
  const sockets = new Set<Socket>();
  server.on("connection", (socket: Socket) => {
    sockets.add(socket);
    socket.on("error", () => {});
    socket.on("close", () => sockets.delete(socket));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  closings.push(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return (server.address() as AddressInfo).port;
}

const served = (handle: Handler): Promise<number> => listen(createServer(handle));

function opened(resolve?: (hostname: string) => Promise<readonly string[]>): HttpClient {
  const client = openHttp(resolve === undefined ? {} : { resolve });
  closings.push(() => client.close());
  return client;
}

const call = (
  client: HttpClient,
  port: number,
  {
    host = "shop.example",
    path = "/a?b=c",
    mostBytes = 1000,
    abortSignal = new AbortController().signal,
    method = "POST",
  } = {},
): Promise<HttpReply> =>
  client.send({
    url: new URL(`http://${host}:${port}${path}`),
    address: "127.0.0.1",
    method,
    headers: { "x-a": "1" },
    body: method === "GET" ? undefined : "hello",
    mostBytes,
    abortSignal,
  });

describe("a request", () => {
  test("goes to the address, and names the host", async () => {
    const port = await served((request, response) => {
      let body = "";
      request.on("data", (part) => {
        body += part;
      });
      request.on("end", () => response.end(`${request.method} ${request.url} ${request.headers.host} ${body}`));
    });
    const { status, body } = await call(opened(), port);
    expect(status).toBe(200);
    expect(String(body)).toBe(`POST /a?b=c shop.example:${port} hello`);
  });

  test("never resolves the name", async () => {
    const port = await served((_, response) => void response.end("fine"));
    const client = opened(() => Promise.reject(new Error("it was resolved")));
    expect((await call(client, port, { host: "no-such-host.invalid" })).status).toBe(200);
  });

  test("keeps its connection for the next one", async () => {
    const sockets = new Set<unknown>();
    const port = await served(({ socket }, response) => {
      sockets.add(socket);
      response.end("fine");
    });
    const client = opened();
    for (let i = 0; i < 3; i++) await call(client, port);
    expect(sockets.size).toBe(1);
  });

  test("is sent once: on a kept connection that the server closes, it is an error, and the next one has a new connection", async () => {
    let connections = 0;
    // Replies once on each connection, and closes it when the next request arrives.
    const port = await listen(
      createTcpServer((socket) => {
        connections += 1;
        let requests = 0;
        socket.on("data", () => {
          requests += 1;
          if (requests > 1) socket.resetAndDestroy();
          else socket.write("HTTP/1.1 200 OK\r\nconnection: keep-alive\r\ncontent-length: 2\r\n\r\nok");
        });
      }),
    );
    const client = opened();
    expect(String((await call(client, port)).body)).toBe("ok");
    await expect(call(client, port)).rejects.toThrow("ECONNRESET");
    expect(connections).toBe(1);
    expect(String((await call(client, port)).body)).toBe("ok");
    expect(connections).toBe(2);
  });

  test("to a port where nothing listens is an error", async () => {
    const server = createTcpServer();
    const port = await listen(server);
    await new Promise((resolve) => server.close(resolve));
    await expect(call(opened(), port)).rejects.toMatchObject({ code: "ECONNREFUSED" });
  });
});

describe("a body", () => {
  const BODIES = ["", "GET /other HTTP/1.1\r\nhost: inside\r\n\r\n", "ü", new Uint8Array([0, 255, 13, 10])] as const;
  /** Method and framing of the first request that arrives, and everything after its headers. */
  const arrived = async (method: string, body: string | Uint8Array): Promise<[string, Buffer]> => {
    const all = Promise.withResolvers<Buffer>();
    const port = await listen(
      createTcpServer((socket) => {
        const parts: Buffer[] = [];
        socket.on("data", (part) => {
          parts.push(part);
          if (Buffer.concat(parts).includes("\r\n\r\n"))
            socket.write("HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n");
        });
        socket.on("close", () => all.resolve(Buffer.concat(parts)));
      }),
    );
    const url = new URL(`http://shop.example:${port}/`);
    const request = {
      url,
      address: "127.0.0.1",
      headers: {},
      mostBytes: 1000,
      abortSignal: new AbortController().signal,
    };
    await opened().send({ ...request, method, body });
    const bytes = await all.promise;
    const end = bytes.indexOf("\r\n\r\n");
    const framing = String(bytes.subarray(0, end))
      .split("\r\n")
      .filter((line) => /^(content-length|transfer-encoding):/i.test(line));
    return [framing.join().toLowerCase(), bytes.subarray(end + 4)];
  };

  test.each(["DELETE", "POST", "PUT", "PATCH"])(
    "of a %s has its length, so that nothing of it is another request",
    async (method) => {
      for (const body of BODIES) {
        const [framing, sent] = await arrived(method, body);
        expect(sent).toEqual(Buffer.from(body as string));
        expect(framing).toBe(`content-length: ${sent.length}`);
      }
    },
  );
});

describe("a reply", () => {
  test("that is a redirect is returned, and not followed", async () => {
    const seen: (string | undefined)[] = [];
    const port = await served((request, response) => {
      seen.push(request.url);
      response.writeHead(302, { location: "http://169.254.169.254/" }).end();
    });
    const { status, headers } = await call(opened(), port);
    expect([status, headers["location"]]).toEqual([302, "http://169.254.169.254/"]);
    expect(seen).toHaveLength(1);
  });

  test("has one text for each header", async () => {
    const port = await served((_, response) => void response.writeHead(200, { "set-cookie": ["a=1", "b=2"] }).end());
    expect((await call(opened(), port)).headers["set-cookie"]).toBe("a=1, b=2");
  });

  test("is whole whether its body comes in several parts or there is none", async () => {
    const port = await served((request, response) => {
      if (request.url === "/none") return void response.end();
      request.resume().on("end", () => {
        response.write("first, ");
        setImmediate(() => response.end("second"));
      });
    });
    const client = opened();
    expect(await call(client, port, { path: "/none" })).toMatchObject({ isCut: false, body: Buffer.alloc(0) });
    expect(String((await call(client, port)).body)).toBe("first, second");
  });

  test("of exactly the limit is whole; one more byte is cut off", async () => {
    const port = await served((request, response) => void response.end("x".repeat(Number(request.url?.slice(1)))));
    const client = opened();
    expect(await call(client, port, { path: "/1000" })).toMatchObject({ isCut: false, body: Buffer.alloc(1000, "x") });
    expect(await call(client, port, { path: "/1001" })).toMatchObject({ isCut: true, body: Buffer.alloc(1000, "x") });
  });

  test("without an end is cut off at the limit, and its connection closed", async () => {
    const closed = Promise.withResolvers<number>();
    const port = await served((_, response) => {
      let sent = 0;
      const more = (): void => {
        while (!response.destroyed && response.write("x".repeat(10_000))) sent += 10_000;
      };
      response.on("drain", more);
      response.on("close", () => closed.resolve(sent));
      more();
    });
    const { isCut, body } = await call(opened(), port);
    expect([isCut, body.length]).toEqual([true, 1000]);
    await closed.promise;
  });

  test.each([
    ["before its head", (socket: Socket) => socket.destroy()],
    ["by a reset", (socket: Socket) => socket.resetAndDestroy()],
    ["in the middle of its head", (socket: Socket) => socket.end("HTTP/1.1 200 O")],
    ["in the middle of its body", (socket: Socket) => socket.end("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf")],
    [
      "in the middle of a chunk",
      (socket: Socket) => socket.end("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n9\r\nhalf"),
    ],
    ["with something else than HTTP", (socket: Socket) => socket.end("SSH-2.0-OpenSSH\r\n")],
    ["with a head of 64 KiB", (socket: Socket) => socket.end(`HTTP/1.1 200 OK\r\nx: ${"y".repeat(65_536)}\r\n\r\n`)],
    [
      "with another protocol",
      (socket: Socket) => socket.end("HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n"),
    ],
  ])("that ends %s is an error", async (_, behave) => {
    const port = await listen(createTcpServer((socket) => void socket.once("data", () => behave(socket))));
    await expect(call(opened(), port)).rejects.toBeInstanceOf(Error);
  });
});

describe("an abort", () => {
  test.each([
    ["before the head", "HTTP/1.1 20"],
    ["while the body drips", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n"],
  ])("closes the connection: %s", async (_, sent) => {
    const closed = Promise.withResolvers<void>();
    const arrived = Promise.withResolvers<void>();
    const port = await listen(
      createTcpServer((socket) => {
        socket.on("close", () => closed.resolve());
        socket.once("data", () => socket.write(sent, () => arrived.resolve()));
      }),
    );
    const abort = new AbortController();
    const reply = call(opened(), port, { abortSignal: abort.signal });
    reply.catch(() => {});
    await arrived.promise;
    abort.abort(new Error("enough"));
    await expect(reply).rejects.toThrow("enough");
    await closed.promise;
  });

  test("before the request sends nothing", async () => {
    let requests = 0;
    const port = await served((_, response) => {
      requests += 1;
      response.end();
    });
    await expect(call(opened(), port, { abortSignal: AbortSignal.abort(new Error("enough")) })).rejects.toThrow(
      "enough",
    );
    expect(requests).toBe(0);
  });
});

test("a client that is closed has no connections", async () => {
  let open = 0;
  const server = createServer((_, response) => void response.end("fine"));
  server.on("connection", (socket) => {
    open += 1;
    socket.on("close", () => {
      open -= 1;
    });
  });
  const port = await listen(server);
  const client = opened();
  await Promise.all([call(client, port), call(client, port)]);
  expect(open).toBe(2);
  client.close();
  await expect.poll(() => open, PATIENCE).toBe(0);
});

describe("names", () => {
  test("are resolved by the system", async () => {
    const addresses = await opened().resolve("localhost");
    expect(addresses.some((address) => address === "127.0.0.1" || address === "::1")).toBe(true);
  });

  test("that are asked for together are resolved once, and again afterwards", async () => {
    let asked = 0;
    const client = opened(async () => {
      asked += 1;
      return [`10.0.0.${asked}`];
    });
    const together = await Promise.all([client.resolve("a"), client.resolve("a")]);
    expect(together).toEqual([["10.0.0.1"], ["10.0.0.1"]]);
    expect(await client.resolve("a")).toEqual(["10.0.0.2"]);
  });
});
