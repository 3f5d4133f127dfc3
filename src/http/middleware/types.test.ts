/**
 * Goal: middleware does not weaken the types that a handler has without it, and `scope` has the types of the framework.
 * Method: handlers of real apps, whose types are compared by the compiler (`npm run check`); each is also sent a request, so that the
 * apps are more than types.
 */

import { once } from "node:events";
import { createServer, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import express from "express";
import fastify, { type FastifyRequest as FullFastifyRequest } from "fastify";
import { type Context, Hono } from "hono";
import { hc } from "hono/client";
import { validator } from "hono/validator";
import { afterEach, beforeEach, describe, expect, expectTypeOf, test } from "vitest";
import { open } from "../../index.ts";
import type { Pawl, TransactOptions } from "../../pawl.ts";
import type { Tx } from "../../tx.ts";
import type { HttpAttempt } from "./core.ts";
import { expressIdempotency } from "./express.ts";
import { fastifyIdempotency } from "./fastify.ts";
import { idempotentFetch } from "./fetch.ts";
import { honoIdempotency } from "./hono.ts";
import { nextIdempotency } from "./next.ts";

type MaybeAttempt = HttpAttempt<Tx, TransactOptions> | undefined;

let pawl: Pawl;
beforeEach(async () => {
  pawl = await open("memory:");
});
afterEach(() => pawl.close());

const headers = { "idempotency-key": "k", "content-type": "application/json", authorization: "ann" };

describe("Express", () => {
  interface SignedIn extends express.Request {
    readonly user: { readonly id: string };
  }

  async function post(app: express.Express, path: string, body: unknown): Promise<unknown> {
    const server = app.listen(0, "127.0.0.1");
    await once(server, "listening");
    try {
      const { port } = server.address() as AddressInfo;
      const init = { method: "POST", headers, body: JSON.stringify(body) };
      return await (await fetch(`http://127.0.0.1:${port}${path}`, init)).json();
    } finally {
      server.closeAllConnections();
      server.close();
    }
  }

  test("a handler has the parameters of its path, and scope has what earlier middleware added", async () => {
    const app = express();
    app.use((req, _res, next) => {
      Object.assign(req, { user: { id: req.get("authorization") } });
      next();
    });
    const idempotency = expressIdempotency(pawl, { scope: (req: SignedIn) => req.user.id });
    app.post("/orders/:id/:line", express.json(), idempotency, (req, res) => {
      expectTypeOf(req.params.id).toEqualTypeOf<string>();
      expectTypeOf<keyof typeof req.params>().toEqualTypeOf<"id" | "line">();
      expectTypeOf(idempotency.attempt(req)).toEqualTypeOf<MaybeAttempt>();
      expectTypeOf(res).toExtend<express.Response>();
      res.json({ ...req.params, attempt: idempotency.attempt(req)?.attempt });
    });
    expect(await post(app, "/orders/7/2", {})).toEqual({ id: "7", line: "2", attempt: 1 });
  });

  test("a handler with types of its own keeps them, as does a router", async () => {
    const app = express();
    const idempotency = expressIdempotency(pawl, { scope: (req: express.Request) => req.get("authorization") ?? "" });
    const router = express.Router();
    router.post<"/orders/:id", { id: string }, { count: number }, { count: number }>(
      "/orders/:id",
      idempotency,
      (req, res) => {
        expectTypeOf(req.body).toEqualTypeOf<{ count: number }>();
        expectTypeOf(idempotency.attempt(req)).toEqualTypeOf<MaybeAttempt>();
        expectTypeOf(res.json).parameter(0).toEqualTypeOf<{ count: number } | undefined>();
        res.json({ count: req.body.count + 1 });
      },
    );
    app.use(express.json(), router);
    expect(await post(app, "/orders/7", { count: 1 })).toEqual({ count: 2 });
  });

  test("a request of node:http works, with its URL and its parsed body", async () => {
    interface Parsed extends IncomingMessage {
      readonly originalUrl: string;
      readonly body: unknown;
    }
    const idempotency = expressIdempotency(pawl, { scope: (req: Parsed) => req.socket.remoteAddress ?? "" });
    const server = createServer((req, res) => {
      const parsed: Parsed = Object.assign(req, { originalUrl: req.url ?? "/", body: undefined });
      void idempotency(parsed, res, () => void res.end(String(idempotency.attempt(parsed)?.attempt)));
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    const { port } = server.address() as AddressInfo;
    const response = await fetch(`http://127.0.0.1:${port}/`, { method: "POST", headers: { "idempotency-key": "k" } });
    expect(await response.text()).toBe("1");
    server.closeAllConnections();
    server.close();
  });
});

describe("Fastify", () => {
  test("a route has its own body, query and reply, and scope has what a request was decorated with", async () => {
    interface SignedIn extends FullFastifyRequest {
      readonly caller: string;
    }
    const app = fastify();
    app.decorateRequest("caller", "");
    app.addHook("onRequest", async (request) => {
      Object.assign(request, { caller: request.headers.authorization });
    });
    const idempotency = fastifyIdempotency(pawl, { scope: (request: SignedIn) => request.caller });
    await app.register(idempotency);
    app.post<{ Body: { count: number }; Params: { id: string }; Reply: { count: number; id: string } }>(
      "/orders/:id",
      async (request, reply) => {
        expectTypeOf(request.body).toEqualTypeOf<{ count: number }>();
        expectTypeOf(request.params).toEqualTypeOf<{ id: string }>();
        expectTypeOf(idempotency.attempt(request)).toEqualTypeOf<MaybeAttempt>();
        return reply.send({ count: request.body.count + 1, id: request.params.id });
      },
    );
    const payload = { count: 1 };
    const response = await app.inject({ method: "POST", url: "/orders/7", headers, payload });
    expect(response.json()).toEqual({ count: 2, id: "7" });
    await app.close();
  });

  test("registered in place, scope has Fastify's request without an annotation", async () => {
    const app = fastify();
    await app.register(
      fastifyIdempotency(pawl, {
        scope: (request) => {
          expectTypeOf(request).toExtend<FullFastifyRequest>();
          return request.ip;
        },
      }),
    );
    app.post("/", async () => ({ ok: true }));
    expect((await app.inject({ method: "POST", url: "/", headers, payload: {} })).json()).toEqual({ ok: true });
    await app.close();
  });
});

describe("Hono", () => {
  type Env = { Variables: { user: string } };

  test("a handler has its path, its validated input and the app's variables, and a client sees its responses", async () => {
    const idempotency = honoIdempotency(pawl, { scope: (c: Context<Env>) => c.get("user") });
    const app = new Hono<Env>()
      .use(async (c, next) => {
        c.set("user", c.req.header("authorization") ?? "");
        await next();
      })
      .post(
        "/orders/:id",
        idempotency,
        validator("json", (value) => value as { count: number }),
        (c) => {
          expectTypeOf(c.req.param("id")).toEqualTypeOf<string>();
          expectTypeOf(c.req.valid("json")).toEqualTypeOf<{ count: number }>();
          expectTypeOf(c.get("user")).toEqualTypeOf<string>();
          expectTypeOf(idempotency.attempt(c)).toEqualTypeOf<MaybeAttempt>();
          return c.json({ id: c.req.param("id"), count: c.req.valid("json").count + 1 }, 201);
        },
      );
    const client = hc<typeof app>("http://shop", { fetch: app.request });
    const response = await client.orders[":id"].$post({ param: { id: "7" }, json: { count: 1 } }, { headers });
    expectTypeOf(response.status).toEqualTypeOf<201>();
    const body = await response.json();
    expectTypeOf(body).toEqualTypeOf<{ id: string; count: number }>();
    expect(body).toEqual({ id: "7", count: 2 });
  });

  test("used for many paths, it leaves the handlers' types alone as well", async () => {
    const app = new Hono<Env>();
    app.use("/orders/*", honoIdempotency(pawl, { scope: (c: Context<Env>) => c.req.header("authorization") ?? "" }));
    app.post("/orders/:id", (c) => {
      expectTypeOf(c.req.param("id")).toEqualTypeOf<string>();
      return c.text(c.req.param("id"));
    });
    expect(await (await app.request("/orders/7", { method: "POST", headers })).text()).toBe("7");
  });
});

describe("web-standard handlers", () => {
  class Special extends Request {
    readonly country = "ch";
  }

  test("the platform's own request reaches scope and handler", async () => {
    const handle = idempotentFetch(
      pawl,
      (request: Special, attempt) => {
        expectTypeOf(attempt).toEqualTypeOf<MaybeAttempt>();
        return new Response(request.country);
      },
      { scope: (request) => request.country },
    );
    expectTypeOf(handle).toEqualTypeOf<(request: Special) => Promise<Response>>();
    expect(await (await handle(new Special("http://shop/", { method: "POST", headers }))).text()).toBe("ch");
  });

  test("so does Next's, with the route's params; a fingerprint is taken of a plain copy", async () => {
    const POST = nextIdempotency(
      pawl,
      async (request: Special, context: { readonly params: Promise<{ readonly id: string }> }) => {
        const { id } = await context.params;
        return new Response(`${request.country} ${id}`);
      },
      {
        scope: (request) => request.country,
        fingerprint: (request) => {
          expectTypeOf(request).toEqualTypeOf<Request>();
          return request.url;
        },
      },
    );
    const request = new Special("http://shop/", { method: "POST", headers });
    expect(await (await POST(request, { params: Promise.resolve({ id: "7" }) })).text()).toBe("ch 7");
  });
});
