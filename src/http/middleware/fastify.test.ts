/**
 * Goal: the plugin satisfies its laws in an app of Fastify, whatever a handler sends.
 * Method: the laws of all adapters against a real server; then what only Fastify does.
 */

import { Readable } from "node:stream";
import fastify from "fastify";
import { describe, expect, test } from "vitest";
import { adapterLaws, CALLER } from "../../../test/idempotency/adapters.ts";
import { sleep } from "../../../test/sql/grounds.ts";
import { Idempotency } from "../../idempotency/idempotency.ts";
import { open } from "../../index.ts";
import { plainly } from "../../kernel/sql/in-sql.ts";
import { type FastifyRequest, fastifyIdempotency } from "./fastify.ts";

adapterLaws(
  "fastifyIdempotency",
  async (pawl, shop, options) => {
    const app = fastify();
    const idempotency = fastifyIdempotency(pawl, {
      ...options,
      scope: (request: FastifyRequest) => String(request.headers[CALLER] ?? ""),
    });
    await app.register(idempotency);
    app.all("/*", async (request, reply) => {
      const path = request.url.split("?")[0] ?? "";
      const { status, headers, body } = await shop.handle(path, request.body, idempotency.attempt(request));
      reply.code(status);
      for (const [name, value] of headers) reply.header(name, value);
      return reply.send(Array.isArray(body) ? Readable.from(body) : (body ?? undefined));
    });
    const url = await app.listen({ port: 0, host: "127.0.0.1" });
    return {
      fetch: (path, init) => fetch(`${url}${path}`, init),
      close: async () => {
        app.server.closeAllConnections();
        await app.close();
      },
    };
  },
  { readsRequest: false },
);

describe("fastifyIdempotency alone", () => {
  const scope = () => "ann";
  const headers = { "idempotency-key": "k" };

  test("an object, a web response and its stream are sent and sent again", async () => {
    await using pawl = await open("memory:");
    const app = fastify();
    await app.register(fastifyIdempotency(new Idempotency(pawl.kernel, plainly), { scope }));
    app.post("/object", async () => ({ a: 1 }));
    app.post("/response", async () => new Response("text", { status: 202, headers: { "x-a": "1" } }));
    for (const [url, status, body] of [
      ["/object", 200, '{"a":1}'],
      ["/response", 202, "text"],
    ] as const)
      for (const replayed of [undefined, "true"]) {
        const response = await app.inject({ method: "POST", url, headers: { "idempotency-key": url } });
        expect([response.statusCode, response.body]).toEqual([status, body]);
        expect(response.headers["idempotent-replayed"]).toBe(replayed);
      }
    await app.close();
  });

  test("it applies to the instance that it is registered on, and to no other", async () => {
    await using pawl = await open("memory:");
    const app = fastify();
    let handled = 0;
    app.register((inner, _options, done) => {
      inner.register(fastifyIdempotency(new Idempotency(pawl.kernel, plainly), { scope }));
      // Routes are made once their plugins are there.
      inner.after(() => inner.post("/inner", async () => ({ handled: ++handled })));
      done();
    });
    app.post("/outer", async () => ({ handled: ++handled }));
    for (const url of ["/inner", "/inner", "/outer", "/outer"]) await app.inject({ method: "POST", url, headers });
    expect(handled).toBe(3);
    await app.close();
  });

  test("an incomplete body, and a reply that bypasses Fastify, free the key", async () => {
    await using pawl = await open("memory:");
    const app = fastify();
    let handled = 0;
    await app.register(fastifyIdempotency(new Idempotency(pawl.kernel, plainly), { scope, lease: 50 }));
    app.post("/broken", async (_request, reply) => {
      handled += 1;
      const pieces = (async function* () {
        yield "a";
        if (handled === 1) throw new Error("broken off");
      })();
      return reply.send(Readable.from(pieces));
    });
    app.post("/round", async (_request, reply) => {
      handled += 1;
      reply.hijack();
      reply.raw.end("round");
    });
    const post = (url: string) => app.inject({ method: "POST", url, headers: { "idempotency-key": url } });
    expect((await post("/broken")).statusCode).toBe(500);
    expect((await post("/broken")).body).toBe("a");
    expect(handled).toBe(2);
    expect((await post("/round")).body).toBe("round");
    expect((await post("/round")).statusCode).toBe(409);
    await sleep(100);
    expect((await post("/round")).body).toBe("round");
    expect(handled).toBe(4);
    await app.close();
  });
});
