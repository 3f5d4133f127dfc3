/**
 * A line whose first run cannot be read: the list of a line is in the records of its runs, so the runs after it cannot be found from there. The decision that
 * meets it takes the line out of its ring (`places.ts`), and the line is due: a worker finds the run after it by its own record, which names the one before,
 * and puts the line back.
 *
 * The run that cannot be read leaves the line and is pending: a worker that can read it puts it at the end of its line, and one that cannot parks it
 * when it has tried as often as the workflow allows.
 */

import type { Address, Row } from "../../kernel/contract.ts";
import type { Tx } from "../../kernel/decision.ts";
import type { Kernel } from "../../kernel/kernel.ts";
import { readRun } from "../history/read-run.ts";
import { queuedQueueOf, RUNS, runAt } from "../stored.ts";
import { nextLane } from "./decide.ts";
import { type After, skipUnreadable } from "./places.ts";
import { BROKEN_LINE, type LineValue } from "./stored.ts";

/** How many runs are read together. */
const PAGE = 500;
/** How many runs that cannot be read leave their lines in one commit. */
const MOST_RELEASED = 50;

/** Puts the line back into a ring, without its first run if that cannot be read here. */
export async function mendLine(kernel: Kernel, at: Address): Promise<void> {
  const [row] = await kernel.read([at]);
  if (row?.value == null || row.kind !== BROKEN_LINE) return;
  const line = kernel.decode(row, row.value) as LineValue;
  const after = await findAfter(kernel, at.key, row, line);
  const runs = [...after.released, ...(after.next === undefined ? [] : [after.next.run])];
  await kernel.transact((tx: Tx) => skipUnreadable(tx, at.key, after), [at, ...runs.map(runAt)]);
}

/** Finds what comes after the first run of the line. */
async function findAfter(kernel: Kernel, id: string, { version }: Row, line: LineValue): Promise<After> {
  const lane = nextLane(line.lanes);
  if (lane === undefined) return { first: undefined, version, next: undefined, released: [] };
  const [priority, first] = lane;
  const unreadable: string[] = [];
  const members = new Map<string, NonNullable<After["next"]>>();
  for await (const row of queuedRuns(kernel, line.workflow)) {
    const { gate } = readRun(kernel, row).value ?? {};
    if (gate === undefined) {
      if (unreadable.length < MOST_RELEASED) unreadable.push(row.key);
      continue;
    }
    const { queued } = gate;
    if (gate.line !== id || (gate.priority ?? 0) !== priority || queued === undefined || row.key === first) continue;
    const next = { run: row.key, prev: queued.prev, sinceMs: queued.sinceMs };
    if (queued.prev === first) return { first, version, next, released: [first] };
    members.set(row.key, next);
  }
  // The one after it cannot be read either: those that follow a run which is not there, the one that waits longest first.
  const [next] = [...members.values()]
    .filter(({ prev }) => prev === null || !members.has(prev))
    .sort((one, other) => one.sinceMs - other.sinceMs);
  return { first, version, next, released: [...new Set([first, ...unreadable])] };
}

async function* queuedRuns(kernel: Kernel, workflow: string): AsyncGenerator<Row> {
  const kinds = [queuedQueueOf(workflow)];
  for (let after: string | null = null; ; ) {
    const rows: readonly Row[] = await kernel.list({ space: RUNS, prefix: "", kinds, after, limit: PAGE });
    yield* rows;
    if (rows.length < PAGE) return;
    after = rows.at(-1)?.key ?? null;
  }
}
