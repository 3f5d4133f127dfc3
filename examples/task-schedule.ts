// biome-ignore-all lint/style/noRestrictedGlobals: the receiver of the example is a real one.

// A service that is called every hour. A schedule starts runs of a workflow, and tasks are runs of `httpTask`: each tick is a task.

import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { httpTask, httpTasks, open, schedule, type TaskResponse } from "pawl";

const service = createServer((_, response) => void response.end("synchronized"));
service.listen(0, "127.0.0.1");
await once(service, "listening");
const { port } = service.address() as AddressInfo;

const hourly = schedule("sync", { cron: "0 * * * *", overlap: "skip" }, httpTask, {
  targetUrl: `http://127.0.0.1:${port}/sync`,
  timeout: "5 minutes",
  retry: { attempts: 10 },
});

await using pawl = await open("shop.db");
const worker = pawl.work([httpTasks({ allow: ["127.0.0.1/32"] }), hourly]);
await worker.ready;

// Not to wait for the hour, it is triggered here.
const { run } = await pawl.schedules.trigger("sync");
const { id, status, outcome } = await pawl.tasks.get(run ?? "", { wait: "1 minute" });
console.log(id.startsWith("sync/"), status, (outcome?.value as TaskResponse | undefined)?.body);
console.log((await pawl.tasks.list({ prefix: "sync/" })).tasks.length, "task");

service.closeAllConnections();
service.close();

// Output:
// true completed synchronized
// 1 task
