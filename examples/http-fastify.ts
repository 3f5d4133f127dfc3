// The HTTP API as a part of a Fastify application: in a scope of its own, in which Fastify leaves the body alone.

import { get } from "node:http";
import type { AddressInfo } from "node:net";
import { text } from "node:stream/consumers";
import { getRequestListener } from "@hono/node-server";
import fastify from "fastify";
import { open } from "pawl";
import { createApp } from "pawl/server";

await using pawl = await open("shop.db");
const listener = getRequestListener(createApp(pawl, { prefix: "/pawl" }).fetch);

const app = fastify();
await app.register((scope, _options, registered) => {
  scope.removeAllContentTypeParsers();
  scope.addContentTypeParser("*", (_request, _body, done) => done(null));
  scope.all("/pawl/*", async (request, reply) => {
    reply.hijack();
    await listener(request.raw, reply.raw);
  });
  registered();
});
await app.listen({ port: 0, host: "127.0.0.1" });

const { port } = app.server.address() as AddressInfo;
await new Promise<void>((resolve) => {
  get({ port, path: "/pawl/v1/slots/answer", agent: false }, async (response) => {
    console.log(response.statusCode, JSON.parse(await text(response)).code);
    resolve();
  });
});
await app.close();

// Output:
// 401 unauthorized
