// biome-ignore-all lint/style/noRestrictedGlobals: the receiver of the example is a real one.

// A video service takes minutes, so it accepts the work at once and says later that it is done, with the token that the call carried.

import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { httpTasks, isPawlError, open } from "pawl";

const accepted = Promise.withResolvers<string>();
const service = createServer((request, response) => {
  response.writeHead(202).end();
  accepted.resolve(String(request.headers["pawl-signal-token"]));
});
service.listen(0, "127.0.0.1");
await once(service, "listening");
const { port } = service.address() as AddressInfo;

// Tokens are stored sealed: in production the key comes from your secrets.
const keys = { current: "2026", ring: { "2026": new Uint8Array(32).fill(1) } };
await using pawl = await open("shop.db", { actions: { keys } });
pawl.work([httpTasks({ allow: ["127.0.0.1/32"] })]);

const { task, signalToken } = await pawl.tasks.create({
  targetUrl: `http://127.0.0.1:${port}/convert`,
  body: { video: "cat.mov" },
  waitForSignal: true,
  maxWaitTime: "1 hour",
});
const token = await accepted.promise;
console.log("the call carried the token:", token === signalToken);

// Over HTTP this is POST /v1/signals/<token>.
const done = { status: "completed", value: { url: "https://example.com/cat.mp4" } } as const;
const { outcome } = await pawl.tasks.signal(token, done);
console.log(outcome.status, outcome.by, outcome.value);

// The service did not get the reply, and says it again: that is fine. Something else is too late, and learns the outcome.
console.log("again:", (await pawl.tasks.signal(token, done)).isNew ? "new" : "the same");
try {
  await pawl.tasks.signal(token, { status: "failed", value: "no space left" });
} catch (error) {
  if (isPawlError(error, "task_settled")) console.log(error.code, error.data.outcome.status);
}
console.log("canceled:", (await pawl.tasks.cancel(task.id)).canceled);

service.closeAllConnections();
service.close();

// Output:
// the call carried the token: true
// completed signal { url: 'https://example.com/cat.mp4' }
// again: the same
// task_settled completed
// canceled: false
