// biome-ignore-all lint/style/noRestrictedGlobals: the receiver of the example is a real one.

// A call to another service that is made until it succeeds. The service is down for the first two attempts; each of them has the same key.

import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { httpTasks, open, type TaskResponse } from "pawl";

let requests = 0;
const keys = new Set<unknown>();
const service = createServer((request, response) => {
  requests += 1;
  keys.add(request.headers["idempotency-key"]);
  response.writeHead(requests < 3 ? 503 : 201).end(requests < 3 ? "later" : "booked");
});
service.listen(0, "127.0.0.1");
await once(service, "listening");
const { port } = service.address() as AddressInfo;

await using pawl = await open("shop.db");
// This machine is a private address, which no task may call unless the operator says so.
pawl.work([httpTasks({ allow: ["127.0.0.1/32"] })]);

const { task } = await pawl.tasks.create({
  targetUrl: `http://127.0.0.1:${port}/bookings`,
  body: { order: 42 },
  retry: { attempts: 5, delay: "10 ms" },
  idempotencyKey: "book-42",
});

const { status, outcome } = await pawl.tasks.get(task.id, { wait: "1 minute" });
console.log(status, outcome?.by, (outcome?.value as TaskResponse | undefined)?.body);
for (const attempt of await pawl.tasks.attempts(task.id)) console.log(attempt.number, attempt.status, attempt.body);
console.log(keys.size, "key");

service.closeAllConnections();
service.close();

// Output:
// completed response booked
// 1 503 later
// 2 503 later
// 3 201 booked
// 1 key
