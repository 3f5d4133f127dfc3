/**
 * Goal: the middleware satisfies its laws in an app of Hono, and works with other middleware.
 * Method: the laws of all adapters on a real app; then what only Hono does.
 */

import { type Context, Hono } from "hono";
import { expect, test } from "vitest";
import { adapterLaws, CALLER, shopResponse } from "../../../test/idempotency/adapters.ts";
import { Idempotency } from "../../idempotency/idempotency.ts";
import { open } from "../../index.ts";
import { plainly } from "../../kernel/sql/in-sql.ts";
import { honoIdempotency } from "./hono.ts";

adapterLaws(
  "honoIdempotency",
  async (pawl, shop, options) => {
    const app = new Hono();
    const idempotency = honoIdempotency(pawl, { ...options, scope: (c) => c.req.raw.headers.get(CALLER) ?? "" });
    app.use(idempotency);
    app.onError((error, c) => c.text(error.message, 500));
    app.all("*", async (c) => {
      const body = c.req.method === "GET" ? null : await c.req.json();
      return shopResponse(await shop.handle(c.req.path, body, idempotency.attempt(c)));
    });
    return { fetch: async (path, init) => app.request(path, init), close: async () => {} };
  },
  { readsRequest: true },
);

test("middleware before it may have read the body, and middleware around it may add headers", async () => {
  await using pawl = await open("memory:");
  type Env = { Variables: { user: string } };
  const app = new Hono<Env>();
  let handled = 0;
  app.use(async (c, next) => {
    c.set("user", ((await c.req.json()) as { user: string }).user);
    await next();
    c.header("X-Around", "yes");
  });
  const keys = new Idempotency(pawl.kernel, plainly);
  app.post(
    "/orders",
    honoIdempotency(keys, { scope: (c: Context<Env>) => c.get("user"), required: true }),
    async (c) => {
      handled += 1;
      c.header("X-Handled", String(handled));
      return c.json({ handled, body: await c.req.json() }, 201);
    },
  );
  const send = (body: object) =>
    app.request("/orders", { method: "POST", headers: { "idempotency-key": "k" }, body: JSON.stringify(body) });
  const bodies: unknown[] = [];
  for (const replayed of [null, "true"]) {
    const response = await send({ user: "ann", item: 1 });
    expect(Object.fromEntries(response.headers)).toEqual({
      "content-type": "application/json",
      "x-handled": "1",
      "x-around": "yes",
      ...(replayed === null ? {} : { "idempotent-replayed": replayed }),
    });
    bodies.push(await response.json());
  }
  expect(bodies[0]).toEqual({ handled: 1, body: { user: "ann", item: 1 } });
  expect(bodies[1]).toEqual(bodies[0]);
  expect((await send({ user: "ann", item: 2 })).status).toBe(422);
  expect((await send({ user: "bob", item: 2 })).status).toBe(201);
});
