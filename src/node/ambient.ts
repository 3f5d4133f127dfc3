/**
 * What is ambient: the globals through which code reaches for time, chance, timers or I/O without being handed them.
 *
 * They can be replaced for a while, by the trap for impure decisions and by the simulator. That finds honest mistakes; it is no
 * sandbox.
 */

export interface Ambient {
  readonly owner: object;
  readonly name: string;
  /** As people write it. */
  readonly shown: string;
  /** What a decision does instead. */
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

const RealDate = Date;

/**
 * Puts something of the caller's in the place of each, and tells it of `new Date()` and `Date()`, which read the clock where
 * `new Date(value)` does not. Answers how to undo it.
 */
export function replaceAmbient(
  replacement: (ambient: Ambient, original: (...args: unknown[]) => unknown) => (...args: unknown[]) => unknown,
): () => void {
  const undo: (() => void)[] = [];
  const put = (owner: object, name: string, value: unknown) => {
    const own = Object.getOwnPropertyDescriptor(owner, name);
    Object.defineProperty(owner, name, {
      value,
      configurable: true,
      writable: true,
      enumerable: own?.enumerable ?? true,
    });
    undo.push(() => {
      if (own === undefined) Reflect.deleteProperty(owner, name);
      else Object.defineProperty(owner, name, own);
    });
  };
  for (const ambient of AMBIENT) {
    const original: unknown = Reflect.get(ambient.owner, ambient.name);
    if (typeof original !== "function") continue;
    put(
      ambient.owner,
      ambient.name,
      replacement(ambient, (...args) => Reflect.apply(original, ambient.owner, args)),
    );
  }
  const clockRead = { owner: globalThis, name: "Date", shown: "new Date() without a time", instead: TIME };
  const readClock = replacement(clockRead, () => new RealDate());
  const watched = new Proxy(RealDate, {
    construct: (target, args, newTarget) =>
      args.length === 0 ? (readClock() as object) : (Reflect.construct(target, args, newTarget) as object),
    apply: () => String(readClock()),
  });
  put(globalThis, "Date", watched);
  return () => {
    for (const step of undo.reverse()) step();
  };
}
