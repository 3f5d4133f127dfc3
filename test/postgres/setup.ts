/**
 * The PostgreSQL server that a whole test run shares: vitest's main process keeps it, and starts it when it is first asked.
 *
 * Test files run in processes of their own, so they ask over HTTP, on 127.0.0.1, by `freshDatabase` of server.ts. A run
 * that never asks starts no server. When `PAWL_TEST_POSTGRES` names a server, nobody asks.
 *
 * It also has the data folders that other servers are copies of, because initdb takes half a second of processor time.
 *
 * A database that is no longer used is dropped here, after the request for it was answered: the server writes everything to disk before it
 * drops a database, which takes half a second that no test has to wait for. A request that says so waits, and gets the reason of a failure. One that
 * cannot be dropped is named at the end of the run, and goes with the server.
 */

import { once } from "node:events";
import type { Server } from "node:http";
import { createServer } from "node:http";
import type { TestProject } from "vitest/node";
import { memoryFolder } from "../node/memory-folder.ts";
import { makeTemplates, preparePrograms } from "./programs.ts";
import type { PostgresServer, PostgresVersion } from "./server.ts";
import { dropDatabaseOn, sharedServerVariable, startPostgres } from "./server.ts";

let keeper: Server | undefined;
let started: Promise<PostgresServer> | undefined;
let dropping: Promise<void> = Promise.resolve();
let hasEnded = false;
const notDropped: string[] = [];

/** Set when a project of the run keeps to the disk. Each project has its own copy of this module, so what they share is in the environment. */
const onDiskVariable = "PAWL_TEST_ON_DISK";

export async function setup({ name }: TestProject): Promise<void> {
  if (name === "long") process.env[onDiskVariable] = "yes";
  // The short and the long suite are projects, each of which calls this: in one run they share a server.
  if (process.env[sharedServerVariable] !== undefined) return;
  makeTemplates();
  keeper = createServer((request, response) => {
    reply(request.method, request.url ?? "").then(
      (text) => response.end(text),
      (error) => response.writeHead(500).end(String(error)),
    );
  });
  keeper.listen(0, "127.0.0.1");
  await once(keeper, "listening");
  const address = keeper.address();
  if (address === null || typeof address === "string") throw new Error("the keeper of the shared server has no port");
  process.env[sharedServerVariable] = `http://127.0.0.1:${address.port}`;
}

/** The URL of the shared server; or, for `/template/18`, a data folder of that version, for servers that processes start on their own. */
async function reply(method: string | undefined, path: string): Promise<string> {
  // In memory, unless long tests share it: see memory-folder.ts. All projects are set up by now.
  const folder = process.env[onDiskVariable] === undefined ? memoryFolder() : null;
  if (folder !== null) process.env["TMPDIR"] = folder;
  const [, template] = /^\/template\/(\d+)$/.exec(path) ?? [];
  if (template !== undefined) return (await preparePrograms(Number(template) as PostgresVersion)).template;
  started ??= startPostgres();
  const server = await started;
  if (method === "DELETE") await dropOn(server, new URL(path, server.url));
  return server.url;
}

/** Drops one database after the other; immediately, if the request waits for it. */
async function dropOn(server: PostgresServer, { pathname, searchParams }: URL): Promise<void> {
  const name = decodeURIComponent(pathname.slice(1));
  if (searchParams.has("wait")) return dropPatiently(server, name);
  dropping = dropping
    .then(() => (hasEnded ? undefined : dropPatiently(server, name)))
    .catch((error) => {
      if (!hasEnded) notDropped.push(`${name}: ${error}`);
    });
}

const TRIES = 5;

/** The server gives up when a connection that it ended has not gone after five seconds, as may happen where a process gets no processor time. */
async function dropPatiently(server: PostgresServer, name: string): Promise<void> {
  for (let tries = 1; ; tries += 1)
    try {
      return await dropDatabaseOn(server.url, name);
    } catch (error) {
      if (tries === TRIES || hasEnded) throw error;
    }
}

export async function teardown(): Promise<void> {
  hasEnded = true;
  if (notDropped.length > 0) console.error(`databases that could not be dropped:\n${notDropped.join("\n")}`);
  keeper?.close();
  await (await started?.catch(() => undefined))?.destroy();
}
