// The HTTP API on a port of its own: a run is started and its result awaited by a program that knows nothing but HTTP.

import { open, workflow } from "pawl";
import { apiKeys, createApp, runMetrics, serve } from "pawl/server";

const greet = workflow("greet", async (ctx, name: string) => ctx.step("greet", () => `hello ${name}`));

await using pawl = await open("shop.db");
const metrics = runMetrics();
pawl.work([greet], { on: metrics });

const { key } = await apiKeys(pawl).create({ name: "shop", scopes: ["read", "write"] }); // shown once, stored as a hash
const server = await serve(pawl, { port: 0, metrics }); // 127.0.0.1; any other address needs a key to exist
console.log(new URL(server.url).hostname);
await server.close(); // lets requests finish

const app = createApp(pawl, { metrics }); // the same without a port
const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
const body = JSON.stringify({ workflow: "greet", input: "ann", id: "greet-ann" });
const started = await app.request("/v1/runs", { method: "POST", headers, body });
console.log(started.status, await started.text());
const result = await app.request("/v1/runs/greet-ann/result?wait=25s", { headers });
console.log(result.status, await result.text());

// Output:
// 127.0.0.1
// 201 {"id":"greet-ann"}
// 200 {"id":"greet-ann","status":"completed","value":"hello ann"}
