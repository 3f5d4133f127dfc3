// The HTTP API as a part of a Hono application, under a prefix.

import { Hono } from "hono";
import { open } from "pawl";
import { apiKeys, createApp } from "pawl/server";

await using pawl = await open("shop.db");
const api = createApp(pawl, { prefix: "/pawl" });

const app = new Hono();
app.get("/", (c) => c.text("the shop"));
app.mount("/pawl", api.fetch);

const { key } = await apiKeys(pawl).create({ name: "shop", scopes: ["read", "write"] });
const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
const body = JSON.stringify({ value: 42 });
const stored = await app.request("/pawl/v1/slots/answer", { method: "PUT", headers, body });
console.log(stored.headers.get("etag"), await (await app.request("/")).text());

// Output:
// "1" the shop
