// The HTTP API as a part of an Express application. It reads the body itself, so it comes before express.json().

import { get } from "node:http";
import type { AddressInfo } from "node:net";
import { text } from "node:stream/consumers";
import { getRequestListener } from "@hono/node-server";
import express from "express";
import { open } from "pawl";
import { createApp } from "pawl/server";

await using pawl = await open("shop.db");
const api = createApp(pawl, { prefix: "/pawl" });

const app = express();
app.use("/pawl", getRequestListener(api.fetch));
app.use(express.json());

const server = app.listen(0, "127.0.0.1", () => {
  const { port } = server.address() as AddressInfo;
  get({ port, path: "/pawl/v1/slots/answer", agent: false }, async (response) => {
    console.log(response.statusCode, JSON.parse(await text(response)).code);
    server.close();
  });
});
await new Promise((resolve) => server.once("close", resolve));

// Output:
// 401 unauthorized
