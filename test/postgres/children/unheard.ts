/**
 * A process without listeners for errors of connections, so that an error that Pawl does not handle ends it.
 *
 * The server ends connections that Pawl has checked out: one just as it is checked out, the one that listens, and one in the middle of a
 * commit. The first needs a relay, which appends the server's final error to its first message. Prints what it survived.
 *
 * Out of scope: connections that are idle in the application's pool. The application must listen to those.
 */

import { once } from "node:events";
import { type AddressInfo, connect, createServer } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import { open } from "../../../src/open.ts";

const [, , url = ""] = process.argv;
const admin = new pg.Client({ connectionString: url });
await admin.connect();

const relay = { isFatal: false, fatal: 0 };
const READY = Buffer.from("Z\0\0\0\x05I");
const fields = "SFATAL\0VFATAL\0C57P01\0Mterminating connection due to administrator command\0\0";
const FATAL = Buffer.concat([Buffer.from("E\0\0\0\0"), Buffer.from(fields)]);
FATAL.writeInt32BE(FATAL.length - 1, 1);

const listener = createServer((client) => {
  const server = connect(Number(new URL(url).port), new URL(url).hostname);
  client.on("data", (chunk) => server.write(chunk));
  server.on("data", (chunk) => {
    if (!relay.isFatal || !chunk.subarray(-READY.length).equals(READY)) return client.write(chunk);
    relay.isFatal = false;
    relay.fatal += 1;
    return client.end(Buffer.concat([chunk, FATAL]));
  });
  for (const [one, other] of [
    [client, server],
    [server, client],
  ] as const) {
    one.on("error", () => {});
    one.on("close", () => other.destroy());
  }
});
listener.listen(0, "127.0.0.1");
await once(listener, "listening");
const through = new URL(url);
through.port = String((listener.address() as AddressInfo).port);

/** Ends connections of this process where that is what they do. */
async function endThose(where: string): Promise<void> {
  const text = `select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'unheard' and ${where}`;
  while ((await admin.query(text)).rowCount === 0) await sleep(5);
}

const pool = new pg.Pool({ connectionString: through.href, application_name: "unheard", idleTimeoutMillis: 1 });
const pawl = await open({ pool, schema: "unheard" });
const slot = pawl.slot<number>("n", { initial: 0 });
await slot.update((n) => n + 1);
// Let all connections be closed, so that the next is a new one.
while (pool.totalCount > 0) await sleep(5);
relay.isFatal = true;
await slot.update((n) => n + 1);
console.log(`${relay.fatal} ended when it was checked out`);

const stop = pawl.kernel.listen(() => {});
await endThose("query like 'listen %'");
await sleep(300);
console.log("one ended that listened");

await admin.query(`create function public.dawdle() returns trigger language plpgsql as
  $$ begin perform pg_sleep(0.3); return new; end $$`);
await admin.query(
  "create trigger dawdle before update on unheard.record for each row execute function public.dawdle()",
);
const counting = slot.update((n) => n + 1);
await endThose("wait_event = 'PgSleep'");
await admin.query("drop trigger dawdle on unheard.record");
await counting;
console.log("one ended that worked");

console.log(`counted ${(await slot.update((n) => n + 1)).value}`);
stop();
await pawl.close();
await pool.end();
await admin.end();
listener.close();
