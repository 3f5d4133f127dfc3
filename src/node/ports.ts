/**
 * The real clock and the real chance. Nothing else in `src/` may touch the ambient ones, so that all of it can be simulated.
 */

import { AsyncLocalStorage } from "node:async_hooks";
import { randomBytes, randomUUID } from "node:crypto";
import type { Ports, Scope } from "../kernel/ports.ts";
import { startWatchdog } from "./watchdog.ts";

/** `setTimeout` fires at once for more than 2^31 - 1 milliseconds, so longer waits are cut up. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

function after(ms: number, callback: () => void): () => void {
  // Measured, not counted, so that many pieces do not add up their delays.
  const endMs = performance.now() + ms;
  let timer = setTimeout(tick, Math.min(ms, LONGEST_TIMER_MS));
  function tick() {
    const leftMs = endMs - performance.now();
    if (!(leftMs > 0)) callback();
    else timer = setTimeout(tick, Math.min(Math.ceil(leftMs), LONGEST_TIMER_MS));
  }
  return () => clearTimeout(timer);
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

export const nodePorts: Ports = {
  clock: {
    // Monotonic: waiting is not disturbed by somebody who sets the clock.
    nowMs: () => performance.now(),
    after,
    soon: (callback) => void setImmediate(callback),
  },
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
