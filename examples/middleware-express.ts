// biome-ignore-all lint/style/noNamespace: Express's types are extended in one.
// biome-ignore-all lint/style/noRestrictedGlobals: the client of the example is a real one.

// Express: a client whose order was carried out, and whose response was lost, sends it again. The order is placed once, and both
// requests get the same response.

import { once } from "node:events";
import type { AddressInfo } from "node:net";
import express, { type Request } from "express";
import { open } from "pawl";
import { expressIdempotency } from "pawl/middleware";

// What the authentication middleware puts into the request.
declare global {
  namespace Express {
    interface Request {
      user?: { readonly id: string };
    }
  }
}

await using pawl = await open("shop.db");
const stock = pawl.slot<number>("stock", { initial: 10 });

const idempotency = expressIdempotency(pawl, {
  scope: (req: Request) => req.user?.id ?? "anonymous",
  required: true,
});

const app = express();
app.use((req, _res, next) => {
  req.user = { id: req.get("authorization") ?? "anonymous" };
  next();
});

app.post("/orders/:item", express.json(), idempotency, async (req, res) => {
  const { item } = req.params; // a string, as without the middleware
  await idempotency.attempt(req)?.commit((tx) => {
    const left = tx.slot(stock).update((count) => count - 1).value;
    return { status: 201, json: { item, left } };
  });
  res.end();
});

const server = app.listen(0, "127.0.0.1");
await once(server, "listening");
const { port } = server.address() as AddressInfo;

async function order(key: string | undefined, body: object): Promise<void> {
  const response = await fetch(`http://127.0.0.1:${port}/orders/cup`, {
    method: "POST",
    headers: {
      authorization: "ann",
      "content-type": "application/json",
      ...(key === undefined ? {} : { "idempotency-key": key }),
    },
    body: JSON.stringify(body),
  });
  const replayed = response.headers.get("idempotent-replayed") === "true" ? ", replayed" : "";
  const { code, ...rest } = (await response.json()) as { code?: string };
  console.log(`${response.status}${replayed}`, code ?? JSON.stringify(rest));
}

await order("order-1", { color: "red" });
await order("order-1", { color: "red" });
await order("order-1", { color: "blue" });
await order(undefined, { color: "red" });

server.closeAllConnections();
server.close();

// Output:
// 201 {"item":"cup","left":9}
// 201, replayed {"item":"cup","left":9}
// 422 idempotency_mismatch
// 400 idempotency_key_missing
