/**
 * The pools that workflows have: a list for each workflow, so that its runs are found by its name alone. A pool that was in use stays in it.
 */

import type { Kernel } from "../../kernel/kernel.ts";
import { poolsAt } from "../stored.ts";

/** The pools that are known of this workflow. */
export async function poolsOf(kernel: Kernel, workflow: string): Promise<readonly string[]> {
  const at = poolsAt(workflow);
  const [row] = await kernel.read([at]);
  return row?.value == null ? [] : (kernel.decode(at, row.value) as readonly string[]);
}

/** Adds pools to the list; nothing is written if it has them. */
export async function declarePools(kernel: Kernel, workflow: string, names: Iterable<string>): Promise<void> {
  const known = new Set(await poolsOf(kernel, workflow));
  const missing = [...names].filter((name) => !known.has(name));
  if (missing.length === 0) return;
  const at = poolsAt(workflow);
  await kernel.transact(
    (tx) => {
      const record = tx.record(at);
      const before = (record.value ?? []) as readonly string[];
      record.write({ value: [...new Set([...before, ...missing])] });
    },
    [at],
  );
}
