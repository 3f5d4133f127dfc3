/**
 * Pawl's HTTP tasks, on PostgreSQL and on SQLite: the library of this repository, from its sources, with what it comes with.
 */

import { join } from "node:path";
import { httpTasks, open } from "../../src/index.ts";
import { BODY, CONCURRENCY, KEY_HEADER, type TaskPeer, type TaskSession } from "./task-peer.ts";

const shared = { version: "of this repository", settings: `concurrency ${CONCURRENCY}` } as const;

export const pawlTasksPostgres: TaskPeer = {
  ...shared,
  id: "pawl",
  name: "Pawl (PostgreSQL)",
  store: "postgres",
  open: ({ database, targetUrl }) => openPawl(database, targetUrl),
};

export const pawlTasksSqlite: TaskPeer = {
  ...shared,
  id: "pawl-sqlite",
  name: "Pawl (SQLite)",
  store: "sqlite",
  open: ({ folder, targetUrl }) => openPawl(join(folder, "pawl.db"), targetUrl),
};

async function openPawl(place: string, targetUrl: string): Promise<TaskSession> {
  const pawl = await open(place);
  let worker: { stop(): Promise<void> } | undefined;
  return {
    create: (key) =>
      pawl.tasks.create({ targetUrl, headers: { "content-type": "application/json", [KEY_HEADER]: key }, body: BODY }),
    work: async () => {
      worker = pawl.work([httpTasks({ allow: ["127.0.0.0/8"] })], { concurrency: CONCURRENCY });
    },
    stop: async () => void (await worker?.stop()),
    close: () => pawl.close(),
  };
}
