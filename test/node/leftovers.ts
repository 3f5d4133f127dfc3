/**
 * Fails a file of the short suite that leaves replaced timers or clocks behind: the files after it in the same process would wait forever, and none of
 * them would be the cause.
 */

import { afterAll, expect } from "vitest";

const read = () => ({
  Date: globalThis.Date,
  "Date.now": Date.now,
  "performance.now": performance.now,
  "Math.random": Math.random,
  setTimeout: globalThis.setTimeout,
  clearTimeout: globalThis.clearTimeout,
  setInterval: globalThis.setInterval,
  clearInterval: globalThis.clearInterval,
  setImmediate: globalThis.setImmediate,
  queueMicrotask: globalThis.queueMicrotask,
  "process.nextTick": process.nextTick,
});

const before = read();

afterAll(() => {
  const after: Readonly<Record<string, unknown>> = read();
  const replaced = Object.entries(before).filter(([name, original]) => after[name] !== original);
  expect(replaced.map(([name]) => `${name} is replaced`)).toEqual([]);
});
