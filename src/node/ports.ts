/**
 * The real clock and the real chance. Nothing else in `src/` may touch the ambient ones, so that all of it can be simulated.
 *
 * The clock for waiting counts a suspension as elapsed time. The monotonic clock of a machine that sleeps, or of a virtual machine
 * that is paused, may stand still meanwhile, and a process that goes by it alone believes after an hour that its lease of 30 s has just
 * begun. So where the wall clock has gained more than a second on the monotonic one, the gain is added. The clock never goes back,
 * and a wall clock that is set back changes nothing.
 *
 * A wall clock that is set forward by an hour looks the same as a suspension of an hour, and is taken for one:
 * - leases: a holder believes that its lease is over and stops with `lease_uncertain`, or renews it first. No other process can take it
 *   before the store's clock says so. On SQLite the store's clock is the wall clock, and the lease is in fact over;
 * - the store's clock as it was last heard is out of date, so the store is asked again;
 * - patience: a call that waits for a busy or unreachable store gives up with its next attempt, with an error that is true;
 * - timeouts of steps in total, `ctx.now()` and the delay before the next attempt of a step count the hour until the run is claimed
 *   anew: such a step may fail too early, and such an attempt may come an hour late. Nothing is run twice for it.
 * All of that errs towards stopping. The contrary, to take a suspension for a clock that was set, would err towards two holders.
 *
 * `after` goes by the monotonic clock alone: a timer is never early, and one that is set before a suspension may be late by as long.
 * Whoever must know whether a time has come compares with `nowMs`.
 */

import { AsyncLocalStorage } from "node:async_hooks";
import { randomBytes, randomUUID } from "node:crypto";
import type { Clock, Ports, Scope } from "../kernel/ports.ts";
import { startWatchdog } from "./watchdog.ts";

/** `setTimeout` fires at once for more than 2^31 - 1 milliseconds, so longer waits are cut up. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

/** Less is the coarseness of the clocks, and the small corrections of a wall clock that is kept right. */
const SUSPENDED_MS = 1000;

export interface ClockSources {
  /** Never goes back; may stand still while the machine is suspended. */
  readonly monotonicMs: () => number;
  /** Counts suspensions; may be set. */
  readonly wallMs: () => number;
}

export function makeClock({ monotonicMs, wallMs }: ClockSources): Clock {
  /** How far the wall clock is ahead of the monotonic one, without what was not counted yet. */
  let aheadMs = wallMs() - monotonicMs();
  let suspendedMs = 0;
  return {
    nowMs() {
      let runMs = monotonicMs();
      let gainedMs = wallMs() - runMs - aheadMs;
      if (gainedMs > SUSPENDED_MS) {
        // A process that is held up between the two readings would count the same time twice.
        runMs = monotonicMs();
        gainedMs = Math.min(gainedMs, wallMs() - runMs - aheadMs);
      }
      if (gainedMs > SUSPENDED_MS) suspendedMs += gainedMs;
      if (gainedMs > SUSPENDED_MS || gainedMs < 0) aheadMs += gainedMs;
      return runMs + suspendedMs;
    },

    after(ms, callback) {
      // Measured, not counted, so that many pieces do not add up their delays.
      const endMs = monotonicMs() + ms;
      let timer = setTimeout(tick, Math.min(ms, LONGEST_TIMER_MS));
      function tick() {
        const leftMs = endMs - monotonicMs();
        if (!(leftMs > 0)) callback();
        else timer = setTimeout(tick, Math.min(Math.ceil(leftMs), LONGEST_TIMER_MS));
      }
      return () => clearTimeout(timer);
    },

    soon: (callback) => void setImmediate(callback),
  };
}

let lastMs = 0;
let count = 0;

/** A UUID of version 7: the time, a count within the millisecond, and chance. */
function orderedId(): string {
  const nowMs = Date.now();
  count = nowMs > lastMs ? 0 : count + 1;
  // A full count, or a clock that was set back, goes on from where it was.
  lastMs = count > 0xfff ? lastMs + 1 : Math.max(lastMs, nowMs);
  if (count > 0xfff) count = 0;
  const time = lastMs.toString(16).padStart(12, "0");
  return `${time.slice(0, 8)}-${time.slice(8)}-7${count.toString(16).padStart(3, "0")}-${randomUUID().slice(19)}`;
}

function scope<Known>(): Scope<Known> {
  const storage = new AsyncLocalStorage<Known>();
  return { run: (known, code) => storage.run(known, code), current: () => storage.getStore() };
}

/** Calls back where it was set going, as timers do: what a scope knows there is known in the callback. */
export const bound = (callback: () => void): (() => void) => AsyncLocalStorage.bind(callback);

export const nodePorts: Ports = {
  clock: makeClock({ monotonicMs: () => performance.now(), wallMs: () => Date.now() }),
  // Taken now, so that a decision may draw through its tape while the trap is set.
  chance: { random: Math.random, uuid: () => randomUUID(), orderedId },
  bodies: scope(),
  holding: scope(),
  watchdog: (limitMs) => startWatchdog({ limitMs }),
};

/** The machine's clock. */
export const wallMs = (): number => Date.now();

/** Unguessable bytes. */
export const unguessable = (size: number): Uint8Array => randomBytes(size);
