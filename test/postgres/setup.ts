/**
 * The PostgreSQL server that a whole test run shares: vitest's main process keeps it, and starts it when it is first asked.
 *
 * Test files run in processes of their own, so they ask over HTTP, on 127.0.0.1, by `freshDatabase` of server.ts. A run
 * that never asks starts no server. When `PAWL_TEST_POSTGRES` names a server, nobody asks.
 *
 * A database that is no longer used is dropped here, after the request for it was answered: the server writes everything to disk before it
 * drops a database, which takes half a second that no test has to wait for.
 */

import { once } from "node:events";
import type { Server } from "node:http";
import { createServer } from "node:http";
import type { PostgresServer } from "./server.ts";
import { dropDatabaseOn, sharedServerVariable, startPostgres } from "./server.ts";

let keeper: Server | undefined;
let started: Promise<PostgresServer> | undefined;
let dropping: Promise<void> = Promise.resolve();

export async function setup(): Promise<void> {
  // The short and the long suite are two projects, each of which calls this: in one run they share a server.
  if (process.env[sharedServerVariable] !== undefined) return;
  keeper = createServer((request, response) => {
    started ??= startPostgres();
    started.then(
      (server) => {
        response.end(server.url);
        if (request.method === "DELETE") drop(server, decodeURIComponent(request.url?.slice(1) ?? ""));
      },
      (error) => response.writeHead(500).end(String(error)),
    );
  });
  keeper.listen(0, "127.0.0.1");
  await once(keeper, "listening");
  const address = keeper.address();
  if (address === null || typeof address === "string") throw new Error("the keeper of the shared server has no port");
  process.env[sharedServerVariable] = `http://127.0.0.1:${address.port}`;
}

/** Drops one database after the other. One that is left, for whatever reason, goes with the server. */
function drop(server: PostgresServer, name: string): void {
  dropping = dropping.then(() => dropDatabaseOn(server.url, name)).catch(() => {});
}

export async function teardown(): Promise<void> {
  keeper?.close();
  await (await started?.catch(() => undefined))?.destroy();
}
