/**
 * DBOS: its workflows run in the process that starts them, and each step is written to PostgreSQL.
 *
 * DBOS is one for a process: it is launched on the database of the session and shut down with it. Its handle of a run
 * that was started here waits for the run itself and asks the database nothing.
 */

import { randomUUID } from "node:crypto";
import { DBOS } from "@dbos-inc/dbos-sdk";
import { charge, type Peer, versionOf } from "./peer.ts";

const POOL_SIZE = 20;

const work = DBOS.registerWorkflow(
  async (steps: number) => {
    for (let step = 0; step < steps; step++) await DBOS.runStep(async () => charge(step), { name: "charge" });
    return steps;
  },
  { name: "work" },
);

export const dbos: Peer = {
  id: "dbos",
  name: "DBOS (PostgreSQL)",
  version: versionOf("@dbos-inc/dbos-sdk"),
  store: "postgres",
  settings:
    `systemDatabasePoolSize ${POOL_SIZE} (its default is 10), logLevel "error"; started with DBOS.startWorkflow, ` +
    "without a queue; its handle waits in the process and does not poll.",
  async open({ database }) {
    DBOS.setConfig({
      name: "bench",
      systemDatabaseUrl: database,
      systemDatabasePoolSize: POOL_SIZE,
      logLevel: "error",
    });
    await DBOS.launch();
    const submit = async (steps: number) => {
      const handle = await DBOS.startWorkflow(work, { workflowID: randomUUID() })(steps);
      return { result: () => handle.getResult() };
    };
    return {
      submit,
      run: async (steps) => (await submit(steps)).result(),
      close: () => DBOS.shutdown(),
    };
  },
};
