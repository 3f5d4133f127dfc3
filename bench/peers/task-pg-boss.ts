/**
 * pg-boss: jobs in PostgreSQL, whose handler calls the receiver.
 *
 * It is set up as its documentation says for throughput and for latency: NOTIFY for the queue, batches of jobs whose handlers run together, and the
 * next batch without a delay after a full one. A batch is fetched and completed by one statement each.
 */

import { PgBoss } from "pg-boss";
import { versionOf } from "./peer.ts";
import { CONCURRENCY, callReceiver, type TaskPeer } from "./task-peer.ts";

const QUEUE = "tasks";
const POOL = 20;
const FETCHERS = 2;

export const pgBoss: TaskPeer = {
  id: "pg-boss",
  name: "pg-boss (PostgreSQL)",
  version: versionOf("pg-boss"),
  store: "postgres",
  settings:
    `a pool of ${POOL} (its default is 10), useListenNotify and notify, batches of ${CONCURRENCY / FETCHERS} with perJobResults and ` +
    `burstWhenBatchFull, localConcurrency ${FETCHERS}; send() for each job.`,
  async open({ database, targetUrl }) {
    const boss = new PgBoss({ connectionString: database, max: POOL, useListenNotify: true });
    boss.on("error", () => {});
    boss.on("warning", () => {});
    await boss.start();
    await boss.createQueue(QUEUE, { notify: true });
    return {
      create: (key) => boss.send(QUEUE, { key }),
      work: async () => {
        await boss.work<{ key: string }>(
          QUEUE,
          {
            batchSize: CONCURRENCY / FETCHERS,
            localConcurrency: FETCHERS,
            burstWhenBatchFull: true,
            pollingIntervalSeconds: 0.5,
            notifyPollingIntervalSeconds: 0.5,
            perJobResults: true,
          },
          async (jobs) =>
            Promise.all(
              jobs.map(async ({ id, data }) => {
                await callReceiver(targetUrl, data.key);
                return { id, status: "completed" as const };
              }),
            ),
        );
      },
      stop: () => boss.offWork(QUEUE, { wait: true }),
      close: () => boss.stop({ graceful: false, close: true }),
    };
  },
};
