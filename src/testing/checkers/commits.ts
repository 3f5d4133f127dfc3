/**
 * Checks the numbers of every record, over all commits of a simulated database in order.
 */

import { keyText, type Put, type Row } from "../../kernel/contract.ts";
import { BrokenPromiseError, type World } from "../sim/world.ts";

/** Throws unless the versions, fences and logs of all records are consistent (G6, G7, G8). */
export function checkCommits(world: World): void {
  const rows = new Map<string, Seen>();
  for (const { nowMs, puts } of world.database.commits)
    for (const put of puts) {
      const text = keyText(put.row);
      const before = rows.get(text);
      checkPut(before, put, nowMs);
      rows.set(text, { row: put.row, topFence: Math.max(before?.topFence ?? 0, put.row.fence) });
    }
}

/** The last state of a record, and the highest fence that any record of this name ever had. */
interface Seen {
  readonly row: Row;
  readonly topFence: number;
}

const isSame = (was: Row, seen: Row | undefined): boolean =>
  was.value === seen?.value && was.head === seen.head && was.fence === seen.fence && was.holder === seen.holder;

function checkPut(seen: Seen | undefined, { was, row, entries }: Put, nowMs: number): void {
  const must = (condition: boolean, law: string) => {
    if (!condition) throw new BrokenPromiseError(`${row.space} ${row.key}: ${law}`);
  };
  must(was === null || row.version > was.version, "a version did not rise");
  must(was === null || was.version === seen?.row.version, "a write was made on an old version");
  // Versions repeat after a rewind of the store.
  must(was === null || isSame(was, seen?.row), "a write was made on a row that the store does not have");
  must(row.head === (was?.head ?? 0) + entries.length, "the head does not count the entries");
  for (const [i, entry] of entries.entries()) must(entry.version === (was?.head ?? 0) + 1 + i, "the log has a gap");
  must(row.fence >= (was?.fence ?? 0), "a fence fell");
  const isSameHold = was !== null && was.holder !== null && row.holder === was.holder && row.fence === was.fence;
  if (isSameHold) must((row.dueMs ?? 0) >= (was.dueMs ?? 0), `the lease of ${row.holder} was cut short`);
  if (row.fence === (was?.fence ?? 0)) return;
  must(row.fence > (seen?.topFence ?? 0), "a claim did not lift the fence above all before");
  // A lock's fence belongs to the holders in its value, which `checkLocks` checks.
  if (row.space.startsWith("lock/")) return;
  // Of several decisions in one commit only the combined effect is visible: it may have been released before, or after.
  if (was !== null && row.version > was.version + 1) return;
  must(row.holder !== null, "a fence rose without a holder");
  if (was === null || was.holder === null) return;
  const earlyMs = (was.dueMs ?? 0) - nowMs;
  must(earlyMs <= 0, `it was claimed ${earlyMs} ms before the lease of ${was.holder} ended`);
}
