// A receiver with a table of its own, where attempts may overlap: the first attempt is slow, is given up by its task, and writes after the second one. Each attempt
// has a higher fence than the one before, and the table keeps the highest that it has seen: what an older attempt writes is refused.

import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { DatabaseSync } from "node:sqlite";
import { buffer } from "node:stream/consumers";
import { httpTasks, open } from "pawl";
import { verifyWebhook } from "pawl/webhook";

// Both sides have it, and neither has it in its code.
const secret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3";

const db = new DatabaseSync("receiver.db");
db.exec("create table invoice (key text primary key, fence integer not null, text text not null)");
const write = db.prepare(`
  insert into invoice (key, fence, text) values (?, ?, ?)
  on conflict (key) do update set fence = excluded.fence, text = excluded.text where excluded.fence > fence
`);

const goOn = Promise.withResolvers<void>();
const lateIsDone = Promise.withResolvers<void>();
const service = createServer(async (request, response) => {
  const headers = request.headers as Record<string, string>;
  const { task } = await verifyWebhook({ headers, body: await buffer(request) }, { secrets: secret });
  if (task === null) return void response.writeHead(400).end();
  // The first attempt is slow.
  if (task.attempt === 1) await goOn.promise;
  const { changes } = write.run(task.key, task.fence, `written by attempt ${task.attempt}`);
  console.log("attempt", task.attempt, changes === 1 ? "is written" : "is refused: a newer one was here");
  response.writeHead(changes === 1 ? 200 : 409).end();
  if (task.attempt === 1) lateIsDone.resolve();
});
service.listen(0, "127.0.0.1");
await once(service, "listening");
const { port } = service.address() as AddressInfo;

await using pawl = await open("shop.db");
pawl.work([httpTasks({ secrets: secret, allow: ["127.0.0.1/32"] })]);
const { task } = await pawl.tasks.create({
  targetUrl: `http://127.0.0.1:${port}/invoices`,
  body: { order: 42 },
  timeout: "300 ms",
  retry: { delay: "10 ms" },
});
await pawl.tasks.get(task.id, { wait: "1 minute" });
goOn.resolve();
await lateIsDone.promise;
console.log(db.prepare("select text from invoice").get()?.["text"]);

service.closeAllConnections();
service.close();
db.close();

// Output:
// attempt 2 is written
// attempt 1 is refused: a newer one was here
// written by attempt 2
