// Fastify: the plugin applies to the routes of the instance that it is registered on, and each route keeps its own types.

import fastify, { type FastifyRequest } from "fastify";
import { open } from "pawl";
import { fastifyIdempotency } from "pawl/middleware";

// What the authentication plugin puts into the request.
declare module "fastify" {
  interface FastifyRequest {
    user: string;
  }
}

interface Order {
  readonly item: string;
  readonly count: number;
}

await using pawl = await open("shop.db");
const stock = pawl.slot<number>("stock", { initial: 10 });

const app = fastify();
app.decorateRequest("user", "");
app.addHook("onRequest", async (request) => {
  request.user = request.headers.authorization ?? "anonymous";
});

const idempotency = fastifyIdempotency(pawl, { scope: (request: FastifyRequest) => request.user });
await app.register(idempotency);

app.post<{ Body: Order }>("/orders", async (request, reply) => {
  const { item, count } = request.body; // an Order, as without the plugin
  await idempotency.attempt(request)?.commit((tx) => {
    const left = tx.slot(stock).update((now) => now - count).value;
    return { status: 201, json: { item, left } };
  });
  return reply.send();
});

const payload: Order = { item: "cup", count: 2 };
for (const authorization of ["ann", "ann", "bob"]) {
  const headers = { authorization, "idempotency-key": "order-1" };
  const response = await app.inject({ method: "POST", url: "/orders", headers, payload });
  console.log(authorization, response.statusCode, response.body, response.headers["idempotent-replayed"] ?? "first");
}
await app.close();

// Output:
// ann 201 {"item":"cup","left":8} first
// ann 201 {"item":"cup","left":8} true
// bob 201 {"item":"cup","left":6} first
