/**
 * Goal: whatever the framework, a delivery that is genuine is handled once, and any other is refused before it is handled.
 * Method: the same laws for a receiver in each framework, behind a real server where the framework has one; deliveries are signed by the reference
 * implementation.
 */

import { once } from "node:events";
import { createServer, type Server } from "node:http";
import { type AddressInfo, connect } from "node:net";
import { serve } from "@hono/node-server";
import express from "express";
import { fastify } from "fastify";
import { Hono } from "hono";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import {
  expressWebhook,
  fastifyWebhook,
  honoWebhook,
  type ReceivedWebhook,
  type WebhookOptions,
  webhookFetch,
} from "../../src/http/webhook/index.ts";
import { open, type Pawl, type TransactOptions, type Tx } from "../../src/index.ts";
import { type Gate, gate } from "../kernel/kit.ts";
import { NEW, OLD, type Signed, sign } from "./kit.ts";

type Delivery = ReceivedWebhook<Tx, TransactOptions>;
/** What the application does: returns status and body. */
type Handle = (delivery: Delivery) => Promise<readonly [number, string]>;

interface Receiver {
  readonly url: string;
  close(): Promise<void>;
}

/** Its body is read by a parser that comes before, with a limit of its own. */
const AFTER_PARSER = "Express after express.raw";

const receivers: Record<string, (pawl: Pawl, options: WebhookOptions, handle: Handle) => Promise<Receiver>> = {
  Express: (pawl, options, handle) => listenExpress(pawl, options, handle, []),
  [AFTER_PARSER]: (pawl, options, handle) =>
    listenExpress(pawl, options, handle, [express.raw({ type: () => true, limit: "10mb" })]),
  "node:http": async (pawl, options, handle) => {
    const webhook = expressWebhook(pawl, options);
    const server = createServer((request, res) => {
      const req = Object.assign(request, { originalUrl: request.url ?? "/" });
      const reply = (error: unknown): Promise<unknown> =>
        (error === undefined ? handle(webhook.delivery(req)) : Promise.reject(error))
          .catch(failed)
          .then(([status, body]) => res.writeHead(status).end(body));
      void webhook(req, res, (error) => void reply(error));
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    return running(server);
  },
  Fastify: async (pawl, options, handle) => {
    const app = fastify();
    const webhook = fastifyWebhook(pawl, options);
    await app.register(async (hooks) => {
      await hooks.register(webhook);
      hooks.post("/hook", async (request, reply) => {
        const [status, body] = await handle(webhook.delivery(request));
        return reply.code(status).send(body);
      });
    });
    await app.listen({ port: 0, host: "127.0.0.1" });
    const { port } = app.server.address() as AddressInfo;
    return {
      url: `http://127.0.0.1:${port}/hook`,
      close: async () => {
        app.server.closeAllConnections();
        await app.close();
      },
    };
  },
  Hono: (pawl, options, handle) => {
    const app = new Hono();
    // Hono logs errors of handlers otherwise, and here they are intended.
    app.onError((error, c) => c.text(String(error), 500));
    const webhook = honoWebhook(pawl, options);
    app.post("/hook", webhook, async (c) => {
      const [status, body] = await handle(webhook.delivery(c));
      return new Response(body, { status });
    });
    return listenFetch((request) => app.fetch(request));
  },
  "Next and other functions of a Request": (pawl, options, handle) => {
    const post = webhookFetch(
      pawl,
      async (delivery, _request: Request, context: { readonly params: Promise<{ id: string }> }) => {
        const [status, body] = await handle(delivery);
        expect(await context.params).toEqual({ id: "7" });
        return new Response(body, { status });
      },
      options,
    );
    return listenFetch((request) => post(request, { params: Promise.resolve({ id: "7" }) }));
  },
};

const failed = (error: unknown): readonly [number, string] => [500, String(error)];

async function listenExpress(
  pawl: Pawl,
  options: WebhookOptions,
  handle: Handle,
  before: express.RequestHandler[],
): Promise<Receiver> {
  const app = express();
  const webhook = expressWebhook(pawl, options);
  app.post("/hook", ...before, webhook, async (req, res) => {
    const [status, body] = await handle(webhook.delivery(req));
    res.status(status).send(body);
  });
  // Errors of handlers are intended in these tests, so they are not logged.
  const quietly: express.ErrorRequestHandler = (error, _req, res, _next) => void res.status(500).send(String(error));
  app.use(quietly);
  const server = app.listen(0, "127.0.0.1");
  await once(server, "listening");
  return running(server);
}

async function listenFetch(handle: (request: Request) => Response | Promise<Response>): Promise<Receiver> {
  const server = serve({ fetch: handle, port: 0, hostname: "127.0.0.1" });
  await once(server, "listening");
  return running(server as Server);
}

function running(server: Server): Receiver {
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}/hook`,
    close: async () => {
      server.closeAllConnections();
      server.close();
    },
  };
}

describe.each(Object.entries(receivers))("a receiver in %s", (name, start) => {
  let pawl: Pawl;
  let receiver: Receiver | undefined;
  let handled: Delivery[];
  let slow: Gate;
  let arrived: Gate;
  beforeEach(async () => {
    pawl = await open("memory:");
    handled = [];
    slow = gate();
    arrived = gate();
  });
  afterEach(async () => {
    slow.open();
    await receiver?.close();
    await pawl.close();
  });

  const handle: Handle = async (delivery) => {
    handled.push(delivery);
    const { kind } = JSON.parse(delivery.text || "{}") as { kind?: string };
    if (kind === "slow") {
      arrived.open();
      await slow.opened;
    }
    if (kind === "broken" && handled.length === 1) return [503, "broken"];
    if (kind === "refused" && handled.length === 1) return [404, "refused"];
    if (kind === "throws" && handled.length === 1) throw new Error("a mistake");
    return [201, `handled ${handled.length}`];
  };
  const serveWith = async (options: Partial<WebhookOptions> = {}): Promise<void> => {
    receiver = await start(pawl, { secrets: OLD, consumer: "orders", ...options }, handle);
  };
  const deliver = async ({ headers, body }: Signed): Promise<readonly [number, string, Headers]> => {
    const type = { "content-type": "application/json" };
    const response = await fetch(receiver?.url ?? "", {
      method: "POST",
      headers: { ...type, ...headers },
      body: body as string,
    });
    return [response.status, await response.text(), response.headers];
  };
  const codeOf = ([status, body]: readonly [number, string, Headers]) => [status, JSON.parse(body).code];

  test("a genuine delivery is handled, with its task and its bytes", async () => {
    await serveWith();
    const task = { "pawl-task-id": "t-1", "pawl-attempt": "2", "pawl-fence": "9" };
    const [status, body] = await deliver(sign({ id: "m1", body: '{ "a": "ü" }', headers: task }));
    expect([status, body]).toEqual([201, "handled 1"]);
    expect(handled[0]?.json()).toEqual({ a: "ü" });
    expect(handled[0]?.text).toBe('{ "a": "ü" }');
    expect(handled[0]?.task).toEqual({ id: "t-1", attempt: 2, fence: 9, key: "m1" });
    expect(handled[0]?.attempt.attempt).toBe(1);
  });

  test("a delivery that is repeated gets the same reply, and is not handled again", async () => {
    await serveWith();
    await deliver(sign({ id: "m1", body: "{}" }));
    const [status, body, headers] = await deliver(sign({ id: "m1", body: "{}", atMs: Date.now() - 2000 }));
    expect([status, body, headers.get("idempotent-replayed"), handled.length]).toEqual([201, "handled 1", "true", 1]);
    expect((await deliver(sign({ id: "m2", body: "{}" })))[1]).toBe("handled 2");
  });

  test("two consumers of one handle both handle a delivery", async () => {
    await serveWith();
    await deliver(sign({ id: "m1", body: "{}" }));
    await receiver?.close();
    await serveWith({ consumer: "bills" });
    await deliver(sign({ id: "m1", body: "{}" }));
    expect(handled.length).toBe(2);
  });

  test("a repetition with another body is refused", async () => {
    await serveWith();
    await deliver(sign({ id: "m1", body: "{}" }));
    expect(codeOf(await deliver(sign({ id: "m1", body: '{"a":1}' })))).toEqual([422, "idempotency_mismatch"]);
  });

  test("a delivery that is not signed is refused, and not handled", async () => {
    await serveWith();
    expect(codeOf(await deliver(sign({ id: "m1", body: "{}", secret: NEW })))).toEqual([401, "signature_invalid"]);
    expect(codeOf(await deliver({ headers: {}, body: "{}" }))).toEqual([401, "signature_invalid"]);
    expect(handled).toEqual([]);
    await receiver?.close();
    await serveWith({ secrets: [OLD, NEW] });
    expect((await deliver(sign({ id: "m1", body: "{}", secret: NEW })))[0]).toBe(201);
  });

  test("one that was signed long ago is refused", async () => {
    await serveWith();
    const old = sign({ id: "m1", body: "{}", atMs: Date.now() - 3_600_000 });
    expect(codeOf(await deliver(old))).toEqual([401, "timestamp_out_of_range"]);
    expect(handled).toEqual([]);
  });

  test("a body that is too long is refused, with and without a declared length, and not read to its end", async () => {
    await serveWith({ maxBodyBytes: 1000 });
    const long = sign({ id: "m1", body: JSON.stringify({ a: "x".repeat(5000) }) });
    expect(codeOf(await deliver(long))).toEqual([413, "body_too_large"]);
    if (name !== AFTER_PARSER) expect(await chunked(receiver?.url ?? "", long.headers)).toMatch(/^HTTP\/1\.1 413 /);
    expect(handled).toEqual([]);
    expect((await deliver(sign({ id: "m2", body: "{}" })))[0]).toBe(201);
  });

  test("while it is being handled, another attempt is asked to come again, with a status that senders retry", async () => {
    await serveWith();
    const first = deliver(sign({ id: "m1", body: '{"kind":"slow"}' }));
    await arrived.opened;
    const again = await deliver(sign({ id: "m1", body: '{"kind":"slow"}' }));
    expect(codeOf(again)).toEqual([503, "idempotency_in_progress"]);
    expect(Number(again[2].get("retry-after"))).toBeGreaterThan(0);
    slow.open();
    expect((await first)[1]).toBe("handled 1");
    expect((await deliver(sign({ id: "m1", body: '{"kind":"slow"}' })))[1]).toBe("handled 1");
  });

  test.each(["broken", "refused", "throws"])("a delivery whose handling failed is handled again: %s", async (kind) => {
    await serveWith();
    const body = JSON.stringify({ kind });
    expect((await deliver(sign({ id: "m1", body })))[0]).toBeGreaterThanOrEqual(400);
    expect((await deliver(sign({ id: "m1", body }))).slice(0, 2)).toEqual([201, "handled 2"]);
    const [first = 0, second = 0] = handled.map(({ attempt }) => attempt.fence);
    expect(second).toBeGreaterThan(first);
  });
});

/** Sends a body of unknown length that does not end, and returns the first line of the reply. */
async function chunked(url: string, headers: Record<string, string>): Promise<string> {
  const { hostname, port, pathname } = new URL(url);
  const socket = connect(Number(port), hostname);
  await once(socket, "connect");
  const lines = Object.entries({
    ...headers,
    host: "x",
    "content-type": "application/json",
    "transfer-encoding": "chunked",
  });
  socket.write(`POST ${pathname} HTTP/1.1\r\n${lines.map(([name, value]) => `${name}: ${value}\r\n`).join("")}\r\n`);
  for (let i = 0; i < 4; i++) socket.write(`3e8\r\n${"x".repeat(1000)}\r\n`);
  const [reply] = await once(socket, "data");
  socket.destroy();
  return String(reply).split("\r\n")[0] ?? "";
}

describe("a receiver", () => {
  test("`commit` makes effect and reply one commit, once for all attempts", async () => {
    await using pawl = await open("memory:");
    const paid = pawl.slot<number>("paid", { initial: 0 });
    const post = webhookFetch(
      pawl,
      async ({ attempt }) => {
        await attempt.commit((tx) => ({ json: { paid: tx.slot(paid).update((sum) => sum + 5).value } }));
        throw new Error("after the commit");
      },
      { secrets: OLD, consumer: "bank" },
    );
    const request = () =>
      new Request("http://bank/hook", { method: "POST", ...(sign({ id: "m1", body: "{}" }) as RequestInit) });
    const replies = [await post(request()).catch(() => null), await post(request())];
    expect(await replies[1]?.json()).toEqual({ paid: 5 });
    expect((await paid.get()).value).toBe(5);
  });

  test("what `commit` stored is the reply, whatever its status: its effect is there, and does not happen again", async () => {
    await using pawl = await open("memory:");
    const paid = pawl.slot<number>("paid", { initial: 0 });
    let handled = 0;
    const post = webhookFetch(
      pawl,
      async ({ attempt }) => {
        handled += 1;
        const isRefused = handled === 1;
        await attempt.commit((tx) => {
          const { value } = tx.slot(paid).update((sum) => sum + 5);
          if (isRefused) throw new Error("nothing is committed");
          return { status: 500, json: { paid: value } };
        });
        return new Response("not sent");
      },
      { secrets: OLD, consumer: "bank" },
    );
    const request = () =>
      new Request("http://bank/hook", { method: "POST", ...(sign({ id: "m1", body: "{}" }) as RequestInit) });
    await expect(post(request())).rejects.toThrow("nothing is committed");
    for (const replayed of [null, "true"]) {
      const reply = await post(request());
      expect([reply.status, reply.headers.get("idempotent-replayed")]).toEqual([500, replayed]);
      expect(await reply.json()).toEqual({ paid: 5 });
    }
    expect(handled).toBe(2);
  });

  test("a body that a parser has read is refused in Express: its bytes are gone", async () => {
    await using pawl = await open("memory:");
    const app = express();
    app.use(
      express.json(),
      expressWebhook(pawl, { secrets: OLD, consumer: "x" }),
      (_req, res) => void res.end("handled"),
    );
    const quietly: express.ErrorRequestHandler = (error, _req, res, _next) => void res.status(500).send(String(error));
    app.use(quietly);
    const server = app.listen(0, "127.0.0.1");
    await once(server, "listening");
    const { url, close } = running(server);
    const { headers, body } = sign({ id: "m1", body: "{}" });
    const response = await fetch(url, {
      method: "POST",
      headers: { ...headers, "content-type": "application/json" },
      body,
    });
    expect([response.status, await response.text()]).toEqual([500, expect.stringContaining("before the body parser")]);
    await close();
  });

  test("Fastify's parser gets the bytes: a route has its parsed body", async () => {
    await using pawl = await open("memory:");
    const app = fastify();
    await app.register(fastifyWebhook(pawl, { secrets: OLD, consumer: "x" }));
    app.post<{ Body: { item: string } }>("/hook", async (request) => ({ item: request.body.item }));
    const { headers, body } = sign({ id: "m1", body: '{"item":"cup"}' });
    const reply = await app.inject({
      method: "POST",
      url: "/hook",
      headers: { ...headers, "content-type": "application/json" },
      payload: body,
    });
    expect([reply.statusCode, reply.body]).toEqual([200, '{"item":"cup"}']);
    await app.close();
  });

  test("a route without the middleware has no delivery", async () => {
    await using pawl = await open("memory:");
    const webhook = honoWebhook(pawl, { secrets: OLD, consumer: "x" });
    const app = new Hono().post("/hook", (c) => c.text(webhook.delivery(c).id));
    app.onError((error, c) => c.text(error.message, 500));
    expect(await (await app.request("/hook", { method: "POST" })).text()).toMatch(/add it to this route/);
  });
});
