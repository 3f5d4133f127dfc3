/**
 * Measures how long other processes block this one: in single calls to SQLite, and in its event loop.
 *
 * Ten processes on two cores are starved of CPU most of the time, and no lock is the cause. So Linux is asked how the
 * time was spent: what a thread neither ran nor stood ready to run, it slept. A call to SQLite that waits for a lock sleeps;
 * one that is starved does not. COMMIT is left out, as it sleeps for its own disk. Elsewhere than on Linux all the time
 * counts.
 */

import { openSync, readSync } from "node:fs";
import { DatabaseSync, StatementSync } from "node:sqlite";

/** What the main thread did since the start, in milliseconds: ran, and stood ready without a CPU. */
function accounted(): { ranMs: number; starvedMs: number } {
  if (schedstat === undefined) return { ranMs: 0, starvedMs: 0 };
  const length = readSync(schedstat, buffer, 0, buffer.length, 0);
  const [ran, starved] = buffer.toString("latin1", 0, length).split(" ").map(Number);
  return { ranMs: (ran ?? 0) / 1e6, starvedMs: (starved ?? 0) / 1e6 };
}

const buffer = Buffer.alloc(128);
const schedstat = openSchedstat();

function openSchedstat(): number | undefined {
  try {
    return openSync("/proc/self/schedstat", "r");
  } catch {
    return undefined;
  }
}

export interface Waits {
  /** Calls to SQLite that were measured. */
  calls: number;
  /** Of those, attempts to take the write lock, and how many found it taken. */
  begins: number;
  busy: number;
  /** The longest that one call slept. */
  sleptMs: number;
  /** The longest that one call took, starved or not. */
  tookMs: number;
}

/** Measures every call to SQLite from now on, except COMMIT. */
export function meterSqlite(): Waits {
  const waits: Waits = { calls: 0, begins: 0, busy: 0, sleptMs: 0, tookMs: 0 };
  const measured = <T>(sql: string, call: () => T): T => {
    if (sql === "commit") return call();
    const before = accounted();
    const switchesBefore = process.resourceUsage().voluntaryContextSwitches;
    const startedMs = performance.now();
    waits.calls += 1;
    if (sql === "begin immediate") waits.begins += 1;
    try {
      return call();
    } catch (error) {
      if (sql === "begin immediate") waits.busy += 1;
      throw error;
    } finally {
      const tookMs = performance.now() - startedMs;
      const after = accounted();
      const sleptMs = tookMs - (after.ranMs - before.ranMs) - (after.starvedMs - before.starvedMs);
      // Who slept gave up the CPU. A machine that is itself held back loses time without giving anything up.
      const gaveUp = process.resourceUsage().voluntaryContextSwitches > switchesBefore;
      waits.tookMs = Math.max(waits.tookMs, tookMs);
      if (gaveUp) waits.sleptMs = Math.max(waits.sleptMs, sleptMs);
    }
  };
  for (const name of ["run", "get", "all"] as const) {
    const original = StatementSync.prototype[name];
    Object.defineProperty(StatementSync.prototype, name, {
      value(this: StatementSync, ...values: unknown[]) {
        return measured(this.sourceSQL, () => Reflect.apply(original, this, values));
      },
    });
  }
  const { exec } = DatabaseSync.prototype;
  DatabaseSync.prototype.exec = function (this: DatabaseSync, sql: string) {
    return measured(sql, () => exec.call(this, sql));
  };
  return waits;
}

export interface Gaps {
  /** The longest between two turns of the event loop, without the time that it was starved. */
  longestMs: number;
  turns: number;
}

/** Watches the event loop by a timer of 5 ms, until `stop`. */
export function meterLoop(): { gaps: Gaps; stop: () => void } {
  const gaps: Gaps = { longestMs: 0, turns: 0 };
  let lastMs = performance.now();
  let last = accounted();
  const tick = (): void => {
    const nowMs = performance.now();
    const now = accounted();
    gaps.turns += 1;
    gaps.longestMs = Math.max(gaps.longestMs, nowMs - lastMs - (now.starvedMs - last.starvedMs));
    lastMs = nowMs;
    last = now;
  };
  const timer = setInterval(tick, 5);
  return {
    gaps,
    stop: () => {
      tick();
      clearInterval(timer);
    },
  };
}

/** The fault that the measures must notice: connections that wait for the lock inside SQLite. */
export function plantBusyTimeout(ms: number): void {
  const { prepare } = DatabaseSync.prototype;
  DatabaseSync.prototype.prepare = function (this: DatabaseSync, ...args: Parameters<typeof prepare>) {
    if (args[0] === "begin immediate") this.exec(`pragma busy_timeout = ${ms}`);
    return prepare.apply(this, args);
  };
}
