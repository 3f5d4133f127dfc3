/**
 * Absurd: functions in PostgreSQL, and a small client of them that claims tasks by polling.
 *
 * The client is on npm, the functions (absurd.sql) are not: they come with absurdctl, from elsewhere. So this contender
 * takes part when `--absurd-schema` names that file, of the same release as the client.
 */

import { readFileSync } from "node:fs";
import { Absurd, type JsonValue } from "absurd-sdk";
import pg from "pg";
import { charge, type Peer, versionOf } from "./peer.ts";

const CONCURRENCY = 100;
const POOL_SIZE = 20;
const POLL_SECONDS = 0.01;

export function absurd(schemaFile: string): Peer {
  const schema = readFileSync(schemaFile, "utf8");
  return {
    id: "absurd",
    name: "Absurd (PostgreSQL)",
    version: versionOf("absurd-sdk"),
    store: "postgres",
    settings:
      `concurrency ${CONCURRENCY} (its default is 1), a pool of ${POOL_SIZE}, polling for work every ${POLL_SECONDS * 1000} ms ` +
      "when idle (its default is 250); polling for a result is fixed: after 50 ms, then twice as long each time, up to 1 s.",
    async open({ database }) {
      const pool = new pg.Pool({ connectionString: database, max: POOL_SIZE });
      pool.on("error", () => {});
      const { rows } = await pool.query("select 1 from pg_namespace where nspname = 'absurd'");
      if (rows.length === 0) await pool.query(schema);
      const client = new Absurd({ db: pool, queueName: "bench" });
      await client.createQueue();
      client.registerTask<{ steps: number }, number>({ name: "work" }, async ({ steps }, context) => {
        for (let step = 0; step < steps; step++) await context.step("charge", async () => charge(step));
        return steps;
      });
      const worker = await client.startWorker({ concurrency: CONCURRENCY, pollInterval: POLL_SECONDS });
      const submit = async (steps: number) => {
        const { taskID } = await client.spawn("work", { steps });
        return {
          result: async () => {
            const outcome = await client.awaitTaskResult(taskID);
            if (outcome.state !== "completed") throw new Error(`a task of Absurd ended as ${outcome.state}`);
            return numberFrom(outcome.result);
          },
        };
      };
      return {
        submit,
        run: async (steps) => (await submit(steps)).result(),
        close: async () => {
          await worker.close();
          await pool.end();
        },
      };
    },
  };
}

function numberFrom(value: JsonValue | undefined): number {
  if (typeof value === "number") return value;
  throw new Error("a task of Absurd did not return a number");
}
