/**
 * The trap for impure decisions: while one runs, reaching for ambient time, chance or I/O throws.
 *
 * It replaces the global functions for the length of one synchronous call. It finds honest mistakes in tests; it is no sandbox.
 */

import { DecisionImpureError } from "../kernel/errors.ts";

interface Ambient {
  readonly owner: object;
  readonly name: string;
  readonly shown: string;
  readonly instead: string;
}

const TIME = "use tx.nowMs";
const CHANCE = "use tx.random() or tx.uuid()";
const OUTSIDE = "do it before or after the decision";

const AMBIENT: readonly Ambient[] = [
  { owner: Date, name: "now", shown: "Date.now()", instead: TIME },
  { owner: performance, name: "now", shown: "performance.now()", instead: TIME },
  { owner: Math, name: "random", shown: "Math.random()", instead: CHANCE },
  { owner: crypto, name: "randomUUID", shown: "crypto.randomUUID()", instead: CHANCE },
  { owner: crypto, name: "getRandomValues", shown: "crypto.getRandomValues()", instead: CHANCE },
  { owner: globalThis, name: "setTimeout", shown: "setTimeout()", instead: OUTSIDE },
  { owner: globalThis, name: "setInterval", shown: "setInterval()", instead: OUTSIDE },
  { owner: globalThis, name: "setImmediate", shown: "setImmediate()", instead: OUTSIDE },
  { owner: globalThis, name: "queueMicrotask", shown: "queueMicrotask()", instead: OUTSIDE },
  { owner: globalThis, name: "fetch", shown: "fetch()", instead: OUTSIDE },
];

/** `new Date()` and `Date()` read the clock; `new Date(value)` does not. */
const TimelessDate = new Proxy(Date, {
  construct(target, args, newTarget) {
    if (args.length === 0) throw new DecisionImpureError(`new Date() without a time is not allowed, ${TIME}`);
    return Reflect.construct(target, args, newTarget);
  },
  apply() {
    throw new DecisionImpureError(`Date() is not allowed, ${TIME}`);
  },
});

/** Runs the decision with the trap set. Asked for inside itself, it is set already. */
export function trapAmbient<T>(decision: () => T): T {
  if (globalThis.Date === TimelessDate) return decision();
  const restore: (() => void)[] = [];
  const replace = (owner: object, name: string, value: unknown) => {
    const own = Object.getOwnPropertyDescriptor(owner, name);
    Object.defineProperty(owner, name, {
      value,
      configurable: true,
      writable: true,
      enumerable: own?.enumerable ?? true,
    });
    restore.push(() => {
      if (own === undefined) Reflect.deleteProperty(owner, name);
      else Object.defineProperty(owner, name, own);
    });
  };
  try {
    for (const { owner, name, shown, instead } of AMBIENT)
      replace(owner, name, () => {
        throw new DecisionImpureError(`${shown} is not allowed, ${instead}`);
      });
    replace(globalThis, "Date", TimelessDate);
    return decision();
  } finally {
    for (const undo of restore.reverse()) undo();
  }
}
