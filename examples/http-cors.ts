// Pages of another origin may use the HTTP API: it sends no CORS headers of its own, so they come from the application that it is mounted in.

import { Hono } from "hono";
import { cors } from "hono/cors";
import { open } from "pawl";
import { apiKeys, createApp } from "pawl/server";

await using pawl = await open("shop.db");
const api = createApp(pawl, { prefix: "/pawl" });

const app = new Hono();
const exposeHeaders = ["ETag", "Location", "Retry-After", "X-Request-Id"];
app.use("/pawl/*", cors({ origin: "https://shop.example", exposeHeaders }));
app.mount("/pawl", api.fetch);

// What a browser asks before it sends a request with a key.
const origin = "https://shop.example";
const asked = await app.request("/pawl/v1/slots/answer", {
  method: "OPTIONS",
  headers: {
    origin,
    "access-control-request-method": "PUT",
    "access-control-request-headers": "authorization,content-type,idempotency-key",
  },
});
console.log(asked.status, asked.headers.get("access-control-allow-headers"));

const { key } = await apiKeys(pawl).create({ name: "shop", scopes: ["read"] });
const got = await app.request("/pawl/v1/slots/answer", { headers: { origin, authorization: `Bearer ${key}` } });
console.log(got.status, got.headers.get("access-control-allow-origin"), got.headers.get("etag"));

// Output:
// 204 authorization,content-type,idempotency-key
// 200 https://shop.example "0"
