/**
 * One of several processes that work on the same lists: for `run.ts`.
 *
 * It works until a line comes in, writes the transactions of each window to a file of its own, and says a line when that is done.
 * Arguments: one JSON object.
 */

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { type Edit, plant } from "../../simulation/plant.ts";

export interface ClientArguments {
  /** A path or an address, as `open` takes it. */
  readonly store: string;
  readonly namespace: string;
  readonly process: number;
  readonly processes: number;
  readonly seed: number;
  readonly callers: number;
  readonly pairCallers: number;
  readonly windowMs: number;
  readonly windowSize: number;
  /** Where the windows are written to. */
  readonly folder: string;
  /** Mistakes to plant into the source before it is loaded. */
  readonly edits?: readonly Edit[];
}

const args = JSON.parse(process.argv[2] ?? "") as ClientArguments;
if (args.edits !== undefined) plant(args.edits);
const { openClient } = await import("../client.ts");
const { Workload } = await import("../workload.ts");
const { lineOf } = await import("../log.ts");
const { Random } = await import("../../../src/testing/sim/random.ts");

const client = await openClient(args.store, { namespace: args.namespace });
const workload = new Workload({
  ...args,
  ...client,
  random: new Random(args.seed * 1000 + args.process),
  nowMs: () => Number(process.hrtime.bigint() / 1000n) / 1000,
  sleep: (ms) => new Promise((resolve) => setTimeout(resolve, ms)),
  closed(window, transactions) {
    writeFileSync(
      join(args.folder, `${window}.${args.process}`),
      transactions.map((one) => `${lineOf(one)}\n`).join(""),
    );
    process.stdout.write(`${window} ${transactions.length}\n`);
  },
});
createInterface({ input: process.stdin }).on("line", () => workload.stop());
process.stdout.write("ready\n");
await workload.run();
await client.close();
process.exit(0);
