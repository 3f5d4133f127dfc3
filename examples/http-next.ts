// The HTTP API in Next.js, as app/api/pawl/[...path]/route.ts: a handler there is a function from Request to Response.

import { open } from "pawl";
import { apiKeys, createApp } from "pawl/server";

await using pawl = await open("shop.db");
const app = createApp(pawl, { prefix: "/api/pawl" }); // the requests still have this path

const handler = (request: Request): Response | Promise<Response> => app.fetch(request);

export { handler as DELETE, handler as GET, handler as PATCH, handler as POST, handler as PUT };

const { key } = await apiKeys(pawl).create({ name: "shop", scopes: ["write"] });
const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
const body = JSON.stringify({ workflow: "greet", id: "r1" });
const started = await handler(new Request("http://shop/api/pawl/v1/runs", { method: "POST", headers, body }));
console.log(started.status, started.headers.get("location"));

// Output:
// 201 /api/pawl/v1/runs/r1
