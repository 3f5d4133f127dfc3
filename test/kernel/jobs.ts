/** What the tests of workers share: a job, and a worker on a bench that notes down what it is given. */

import type { Held } from "../../src/kernel/claim/claim.ts";
import { Worker, type WorkerOptions } from "../../src/kernel/claim/worker.ts";
import type { Row } from "../../src/kernel/contract.ts";
import { type Address, address } from "../../src/kernel/contract.ts";
import type { Kernel } from "../../src/kernel/kernel.ts";
import type { Lease } from "../../src/kernel/lease.ts";
import type { Bench } from "./kit.ts";

export const job = address("job", "one");

export async function rowOf(kernel: Kernel, at: Address): Promise<Row> {
  const [row = null] = await kernel.read([at]);
  if (row === null) throw new Error(`${at.key} is not there`);
  return row;
}

export async function make(kernel: Kernel, at: Address, dueMs: number | null, kind = "job"): Promise<void> {
  await kernel.transact((tx) => tx.record(at).write({ value: 0, kind, dueMs }), [at]);
}

export const done = (held: Held) =>
  held.rest(
    () => null,
    (record) => record.write({ value: Number(record.value) + 1 }),
  );

/** A worker, with what it was told to work on and what failed. */
export function workOn(on: Bench, options: Partial<WorkerOptions> = {}) {
  const worked: string[] = [];
  const failures: unknown[] = [];
  const worker = new Worker(on.kernel, {
    kinds: ["job"],
    by: "ann",
    leaseMs: 3_000,
    failed: (error) => failures.push(error),
    work: async (held) => {
      await done(held);
    },
    ...options,
    ...(options.work === undefined
      ? {}
      : {
          work: async (held: Held, lease: Lease) => {
            worked.push(held.at.key);
            await options.work?.(held, lease);
          },
        }),
  });
  return { worker, worked, failures };
}
