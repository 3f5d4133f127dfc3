/**
 * BullMQ on Redis, whose processor calls the receiver. Each write of Redis is synced before it is acknowledged (`appendfsync always`), as the
 * commits of the others are.
 */

import { Queue, Worker } from "bullmq";
import { versionOf } from "./peer.ts";
import { CONCURRENCY, callReceiver, type TaskPeer } from "./task-peer.ts";

const QUEUE = "tasks";

export const bullmq: TaskPeer = {
  id: "bullmq",
  name: "BullMQ (Redis, appendfsync always)",
  version: versionOf("bullmq"),
  store: "redis",
  settings: `concurrency ${CONCURRENCY}, removeOnComplete, enableAutoPipelining; add() for each job.`,
  async open({ redis, targetUrl }) {
    const connection = { path: redis, maxRetriesPerRequest: null, enableAutoPipelining: true };
    const queue = new Queue(QUEUE, { connection, defaultJobOptions: { removeOnComplete: true } });
    await queue.waitUntilReady();
    await queue.obliterate({ force: true });
    let worker: Worker | undefined;
    return {
      create: (key) => queue.add("call", { key }),
      work: async () => {
        worker = new Worker<{ key: string }>(QUEUE, ({ data }) => callReceiver(targetUrl, data.key), {
          connection,
          concurrency: CONCURRENCY,
        });
        worker.on("error", () => {});
        await worker.waitUntilReady();
      },
      stop: async () => void (await worker?.close()),
      close: async () => void (await queue.close()),
    };
  },
};
