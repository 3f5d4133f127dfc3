/**
 * What a run writes, commit by commit: seen by letting one run, so that the bare group commit writes the very same rows. The same for
 * whatever else writes one record in several commits (`turnsSeen`).
 */

import { workflow } from "../src/index.ts";
import type { Entry, Put, Row } from "../src/kernel/contract.ts";
import { nodePorts, wallMs } from "../src/node/ports.ts";
import { type Pawl, pawlOn } from "../src/pawl.ts";
import { MemoryDatabase } from "../src/stores/memory/memory.ts";
import { commitCount, type Plan, stepAt } from "./plan.ts";

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

/** One commit to a record. */
export interface SeenTurn {
  readonly row: Row;
  /** The columns that it changes, by their names in the tables; all of them in the first one. */
  readonly columns: readonly Column[];
  readonly entries: readonly Entry[];
}

/** Lets one record be written as the plan says, and returns its commits. */
export type See = (namespace: string, plan: Plan) => Promise<readonly SeenTurn[]>;

export type Column = (typeof COLUMNS)[number];

const COLUMNS = ["version", "fence", "wakes", "tries", "holder", "kind", "status", "due", "head", "value"] as const;

/** The value of a column, and whether that is a number. */
export function cellOf(row: Row, column: Column): string | number | null {
  return column === "due" ? row.dueMs : row[column];
}

export const NUMBERS: ReadonlySet<Column> = new Set(["version", "fence", "wakes", "tries", "due", "head"]);

/** The commits that write records of this space while `play` works on a handle of its own. */
export async function turnsSeen(
  namespace: string,
  space: string,
  play: (pawl: Pawl) => Promise<unknown>,
): Promise<readonly SeenTurn[]> {
  const store = new MemoryDatabase(wallMs).connect(namespace);
  const puts: Put[] = [];
  const commit = store.commit.bind(store);
  store.commit = (batch) =>
    commit({
      ...batch,
      decide: (found) => {
        const verdict = batch.decide(found);
        if ("puts" in verdict) puts.push(...verdict.puts.filter(({ row }) => row.space === space));
        return verdict;
      },
    });
  await using pawl = pawlOn(store, nodePorts, { namespace });
  await play(pawl);
  return puts.map(({ was, row, entries }): SeenTurn => {
    const columns = was === null ? COLUMNS : COLUMNS.filter((column) => cellOf(was, column) !== cellOf(row, column));
    return { row, columns, entries };
  });
}

/** The commits of one run of the plan. */
export async function turnsOfRun(namespace: string, plan: Plan): Promise<readonly SeenTurn[]> {
  const turns = await turnsSeen(namespace, plan.space, async (pawl) => {
    const worker = pawl.work([stepsWorkflow]);
    stepsGive(plan.values);
    const run = await pawl.start(stepsWorkflow, plan.commitsPerRecord - 1);
    await run.result();
    await worker.stop();
  });
  if (turns.length !== plan.commitsPerRecord) throw new Error(`a run wrote ${turns.length} times`);
  return turns;
}

/** What one turn of all callers writes, where each of them writes a record of its own, or all of them one record. */
export function turnAt(plan: Plan, seen: readonly SeenTurn[], turn: number): SeenTurn {
  const share = plan.hot
    ? seen.slice(turn * plan.callers, (turn + 1) * plan.callers)
    : seen.slice(stepAt(plan, turn), stepAt(plan, turn) + 1);
  const [first, last] = [share[0], share.at(-1)];
  if (first === undefined || last === undefined) throw new Error("there is no such turn");
  return { row: last.row, columns: first.columns, entries: share.flatMap(({ entries }) => entries) };
}

/** How many commits to one record the plan has, in order to see them. */
export function commitsSeen(plan: Plan): number {
  return plan.hot ? commitCount(plan) : plan.commitsPerRecord;
}
