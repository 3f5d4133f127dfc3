/**
 * What a run writes, commit by commit: seen by letting one run, so that the bare group commit writes the very same rows.
 */

import { workflow } from "../src/index.ts";
import type { Entry, Put, Row } from "../src/kernel/contract.ts";
import { nodePorts, wallMs } from "../src/node/ports.ts";
import { pawlOn } from "../src/pawl.ts";
import { MemoryDatabase } from "../src/stores/memory/memory.ts";
import type { Plan } from "./plan.ts";

/** What the steps give; the same for all runs of a plan. */
let given: readonly unknown[] = [];

/** The workflow of all runs that are measured. What its steps do costs nothing. */
export const stepsWorkflow = workflow("steps", async (ctx, count: number) => {
  for (let step = 0; step < count; step++) await ctx.step("charge", () => given[step]);
  return count;
});

export function stepsGive(values: readonly unknown[]): void {
  given = values;
}

/** One commit to a run's record. */
export interface RunTurn {
  readonly row: Row;
  /** The columns that it changes, by their names in the tables; all of them in the first one. */
  readonly columns: readonly Column[];
  readonly entries: readonly Entry[];
}

export type Column = (typeof COLUMNS)[number];

const COLUMNS = ["version", "fence", "wakes", "tries", "holder", "kind", "status", "due", "head", "value"] as const;

/** The value of a column, and whether that is a number. */
export function cellOf(row: Row, column: Column): string | number | null {
  return column === "due" ? row.dueMs : row[column];
}

export const NUMBERS: ReadonlySet<Column> = new Set(["version", "fence", "wakes", "tries", "due", "head"]);

/** The commits of one run of the plan. */
export async function turnsOfRun(namespace: string, plan: Plan): Promise<readonly RunTurn[]> {
  const store = new MemoryDatabase(wallMs).connect(namespace);
  const puts: Put[] = [];
  const commit = store.commit.bind(store);
  store.commit = (batch) =>
    commit({
      ...batch,
      decide: (found) => {
        const verdict = batch.decide(found);
        if ("puts" in verdict) puts.push(...verdict.puts);
        return verdict;
      },
    });
  await using pawl = pawlOn(store, nodePorts, { namespace });
  const worker = pawl.work([stepsWorkflow]);
  stepsGive(plan.values);
  const run = await pawl.start(stepsWorkflow, plan.commitsPerRecord - 1);
  await run.result();
  await worker.stop();
  const turns = puts.map(({ was, row, entries }): RunTurn => {
    const columns = was === null ? COLUMNS : COLUMNS.filter((column) => cellOf(was, column) !== cellOf(row, column));
    return { row, columns, entries };
  });
  if (turns.length !== plan.commitsPerRecord) throw new Error(`a run wrote ${turns.length} times`);
  return turns;
}
