/**
 * The PostgreSQL server that a whole test run shares: vitest's main process keeps it, and starts it when it is first asked.
 *
 * Test files run in processes of their own, so they ask over HTTP, on 127.0.0.1, by `freshDatabase` of server.ts. A run
 * that never asks starts no server. When `PAWL_TEST_POSTGRES` names a server, nobody asks.
 */

import { once } from "node:events";
import type { Server } from "node:http";
import { createServer } from "node:http";
import type { PostgresServer } from "./server.ts";
import { sharedServerVariable, startPostgres } from "./server.ts";

let keeper: Server | undefined;
let started: Promise<PostgresServer> | undefined;

export async function setup(): Promise<void> {
  keeper = createServer((_request, response) => {
    started ??= startPostgres();
    started.then(
      (server) => response.end(server.url),
      (error) => response.writeHead(500).end(String(error)),
    );
  });
  keeper.listen(0, "127.0.0.1");
  await once(keeper, "listening");
  const address = keeper.address();
  if (address === null || typeof address === "string") throw new Error("the keeper of the shared server has no port");
  process.env[sharedServerVariable] = `http://127.0.0.1:${address.port}`;
}

export async function teardown(): Promise<void> {
  keeper?.close();
  await (await started?.catch(() => undefined))?.destroy();
}
