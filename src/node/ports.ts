/**
 * The real clock and the real randomness. Nothing else in `src/` may use the ambient ones, so that all of it can be simulated.
 *
 * The clock for waiting counts a suspension as elapsed time. The monotonic clock of a machine that sleeps, or of a virtual machine that
 * is paused, may stop meanwhile; a process that used only this clock would assume after an hour that its lease of 30 s has just begun. So when
 * the wall clock has gained more than a second on the monotonic one, the gain is added. The clock never goes back, and a wall clock that is
 * set back has no effect.
 *
 * A wall clock that is set forward by an hour cannot be distinguished from a suspension of an hour, and is treated as one:
 * - leases: a holder assumes that its lease is over and stops with `lease_uncertain`, or renews it first. No other process can take it
 *   before it ends by the store's clock. On SQLite the store's clock is the wall clock, and the lease is in fact over;
 * - the last known time of the store's clock is out of date, so it is read again;
 * - patience: a call that waits for a busy or unreachable store gives up with its next attempt, with a correct error;
 * - total timeouts of steps, `ctx.now()` and the delay before the next attempt of a step include the hour until the run is claimed
 *   again: such a step may fail too early, and such an attempt may be an hour late. Nothing runs twice because of it.
 * All of this stops too early at worst. The opposite, to treat a suspension as a clock that was set, could lead to two holders.
 *
 * `after` uses only the monotonic clock: a timer is never early, and one that is set before a suspension may be late by its length. Code
 * that must know whether a time has come compares with `nowMs`.
 */

import { AsyncLocalStorage } from "node:async_hooks";
import { randomBytes, randomUUID } from "node:crypto";
import type { Clock, Ports, Scope } from "../kernel/ports.ts";
import { openHttp } from "./http.ts";
import { startWatchdog } from "./watchdog.ts";

/** `setTimeout` fires immediately for more than 2^31 - 1 milliseconds, so longer waits are split. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

/** Smaller gains come from the resolution of the clocks and from small corrections of the wall clock. */
const SUSPENDED_MS = 1000;

export interface ClockSources {
  /** Never goes back; may stop while the machine is suspended. */
  readonly monotonicMs: () => number;
  /** Counts suspensions; may be set. */
  readonly wallMs: () => number;
}

export function makeClock({ monotonicMs, wallMs }: ClockSources): Clock {
  /** How far the wall clock was ahead of the monotonic one at the last reading. */
  let aheadMs = wallMs() - monotonicMs();
  let suspendedMs = 0;
  return {
    nowMs() {
      let runMs = monotonicMs();
      let gainedMs = wallMs() - runMs - aheadMs;
      if (gainedMs > SUSPENDED_MS) {
        // A process that is delayed between the two readings would count the same time twice.
        runMs = monotonicMs();
        gainedMs = Math.min(gainedMs, wallMs() - runMs - aheadMs);
      }
      if (gainedMs > SUSPENDED_MS) suspendedMs += gainedMs;
      if (gainedMs > SUSPENDED_MS || gainedMs < 0) aheadMs += gainedMs;
      return runMs + suspendedMs;
    },

    after(ms, callback) {
      // Measured each time, so that the delays of the parts do not add up.
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

/** A UUID of version 7: the time, a count within the millisecond, and random bits. */
function orderedId(): string {
  const nowMs = Date.now();
  count = nowMs > lastMs ? 0 : count + 1;
  // After an overflow of the count, or with a clock that was set back, the last time is used.
  lastMs = count > 0xfff ? lastMs + 1 : Math.max(lastMs, nowMs);
  if (count > 0xfff) count = 0;
  const time = lastMs.toString(16).padStart(12, "0");
  return `${time.slice(0, 8)}-${time.slice(8)}-7${count.toString(16).padStart(3, "0")}-${randomUUID().slice(19)}`;
}

function scope<Known>(): Scope<Known> {
  const storage = new AsyncLocalStorage<Known>();
  return { run: (known, code) => storage.run(known, code), current: () => storage.getStore() };
}

/** Binds a callback to the current async context, as timers do: it sees the values of all scopes. */
export const bound = (callback: () => void): (() => void) => AsyncLocalStorage.bind(callback);

export const nodePorts: Ports = {
  clock: makeClock({ monotonicMs: () => performance.now(), wallMs: () => Date.now() }),
  // The original functions, so that `tx.random()` works while the trap is set.
  chance: { random: Math.random, uuid: () => randomUUID(), orderedId },
  bodies: scope(),
  holding: scope(),
  watchdog: (limitMs) => startWatchdog({ limitMs }),
  http: () => openHttp(),
};

/** The machine's clock. */
export const wallMs = (): number => Date.now();

/** Returns cryptographically random bytes. */
export const unguessable = (size: number): Uint8Array => randomBytes(size);
