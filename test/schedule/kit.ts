/** What the tests of schedules share: the time of a schedule is put back, as if no worker had been there since. */

import type { Pawl, ScheduleEntry } from "../../src/index.ts";
import { type ScheduleValue, scheduleAt } from "../../src/schedule/stored.ts";

/** Ticks of the last `ms` were not decided, and `active` is the run of the one before. It is due now. Returns the moment from which on they count. */
export async function putBack(pawl: Pawl, name: string, ms: number, active?: string): Promise<number> {
  const at = scheduleAt(name);
  return pawl.kernel.transact(
    (tx) => {
      const record = tx.record(at);
      const cursorMs = tx.nowMs - ms;
      const value: ScheduleValue = { ...(record.value as ScheduleValue), cursorMs };
      record.write({ value: active === undefined ? value : { ...value, active: [active] }, dueMs: tx.nowMs });
      return cursorMs;
    },
    [at],
  );
}

/** The history in short, the oldest first: the outcome of each tick. */
export async function wordsOf(pawl: Pawl, name: string): Promise<string[]> {
  const { entries } = await pawl.schedules.history(name, { limit: 1000 });
  return entries.map(inShort).reverse();
}

export const inShort = ({ outcome, count }: ScheduleEntry): string => (count === 1 ? outcome : `${outcome} ${count}`);
