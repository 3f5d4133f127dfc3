/**
 * OpenWorkflow, on PostgreSQL and on SQLite: a worker claims runs by polling, and a caller polls for the result.
 *
 * Its client asks for a result once a second, which cannot be set; so callers that wait for each run see whole seconds, and
 * its capacity is better seen where all runs are submitted together.
 */

import { join } from "node:path";
import { OpenWorkflow } from "openworkflow";
import { BackendPostgres } from "openworkflow/postgres";
import { BackendSqlite } from "openworkflow/sqlite";
import { charge, type Peer, type PeerSession, versionOf } from "./peer.ts";

const CONCURRENCY = 100;
const version = versionOf("openworkflow");

const fixed = "polling is fixed: for work 100 ms and up to 1 s when idle, for a result every second.";

export const openWorkflowPostgres: Peer = {
  id: "openworkflow",
  name: "OpenWorkflow (PostgreSQL)",
  version,
  store: "postgres",
  settings: `concurrency ${CONCURRENCY} (its guide starts at 10), the pool of postgres.js as it comes (10); ${fixed}`,
  open: async ({ database }) => work(await BackendPostgres.connect(database)),
};

export const openWorkflowSqlite: Peer = {
  id: "openworkflow-sqlite",
  name: "OpenWorkflow (SQLite)",
  version,
  store: "sqlite",
  settings: `concurrency ${CONCURRENCY}, WAL and synchronous FULL as they come; ${fixed}`,
  open: async ({ folder }) => work(BackendSqlite.connect(join(folder, "openworkflow.sqlite"))),
};

async function work(backend: BackendPostgres | BackendSqlite): Promise<PeerSession> {
  const client = new OpenWorkflow({ backend });
  const workflow = client.defineWorkflow<{ steps: number }, number>({ name: "work" }, async ({ input, step }) => {
    for (let index = 0; index < input.steps; index++)
      await step.run({ name: `charge-${index}` }, async () => charge(index));
    return input.steps;
  });
  const worker = client.newWorker({ concurrency: CONCURRENCY });
  await worker.start();
  return {
    submit: (steps) => workflow.run({ steps }),
    run: async (steps) => (await workflow.run({ steps })).result(),
    close: async () => {
      await worker.stop();
      await backend.stop();
    },
  };
}
