// Hono: variables of the context, parameters of the path and the types of responses are those of the app.

import { type Context, Hono } from "hono";
import { open } from "pawl";
import { honoIdempotency } from "pawl/middleware";

type Env = { Variables: { user: string } };

await using pawl = await open("shop.db");
const stock = pawl.slot<number>("stock", { initial: 10 });

const idempotency = honoIdempotency(pawl, { scope: (c: Context<Env>) => c.get("user") });

const app = new Hono<Env>();
app.use(async (c, next) => {
  c.set("user", c.req.header("authorization") ?? "anonymous");
  await next();
});

app.post("/orders/:item", idempotency, async (c) => {
  const item = c.req.param("item"); // a string, as without the middleware
  await idempotency.attempt(c)?.commit((tx) => {
    const left = tx.slot(stock).update((count) => count - 1).value;
    return { status: 201, json: { item, left, user: c.get("user") } };
  });
  return c.body(null, 201);
});

for (const authorization of ["ann", "ann", "bob"]) {
  const headers = { authorization, "idempotency-key": "order-1" };
  const response = await app.request("/orders/cup", { method: "POST", headers });
  console.log(response.status, await response.text(), response.headers.get("idempotent-replayed") ?? "first");
}

// Output:
// 201 {"item":"cup","left":9,"user":"ann"} first
// 201 {"item":"cup","left":9,"user":"ann"} true
// 201 {"item":"cup","left":8,"user":"bob"} first
