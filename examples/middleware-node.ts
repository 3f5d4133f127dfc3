// biome-ignore-all lint/style/noRestrictedGlobals: the client of the example is a real one.

// node:http without a framework: the middleware for Express needs the parsed body and the URL, and calls `next` when the handler is to run.

import { once } from "node:events";
import { createServer, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import { json } from "node:stream/consumers";
import { open } from "pawl";
import { expressIdempotency } from "pawl/middleware";

interface Parsed extends IncomingMessage {
  readonly originalUrl: string;
  readonly body: unknown;
}

await using pawl = await open("shop.db");
let handled = 0;

const idempotency = expressIdempotency(pawl, {
  scope: (req: Parsed) => req.headers.authorization ?? "anonymous",
});

const server = createServer(async (req, res) => {
  const parsed: Parsed = Object.assign(req, { originalUrl: req.url ?? "/", body: await json(req) });
  await idempotency(parsed, res, (error) => {
    if (error !== undefined) {
      res.writeHead(500).end();
      return;
    }
    handled += 1;
    res.writeHead(201, { "content-type": "application/json" });
    res.end(JSON.stringify({ order: handled, body: parsed.body }));
  });
});
server.listen(0, "127.0.0.1");
await once(server, "listening");
const { port } = server.address() as AddressInfo;

for (let i = 0; i < 2; i++) {
  const response = await fetch(`http://127.0.0.1:${port}/orders`, {
    method: "POST",
    headers: { authorization: "ann", "idempotency-key": "order-1" },
    body: JSON.stringify({ item: "cup" }),
  });
  console.log(response.status, await response.text(), response.headers.get("idempotent-replayed") ?? "first");
}

server.closeAllConnections();
server.close();

// Output:
// 201 {"order":1,"body":{"item":"cup"}} first
// 201 {"order":1,"body":{"item":"cup"}} true
