/**
 * The ambient globals: those through which code can use time, randomness, timers or I/O that it did not get as an argument.
 *
 * They can be replaced temporarily, by the trap for impure decisions and by the simulator. That finds mistakes; it is not a sandbox.
 */

export interface Ambient {
  readonly owner: object;
  readonly name: string;
  /** How the call is written, for messages. */
  readonly call: string;
  /** What a decision must do instead. */
  readonly instead: string;
}

const TIME = "use nowMs of tx, or of a command's context";
const CHANCE = "use tx.random() or tx.uuid(), or uuid() of a command's context";
const OUTSIDE = "do it before or after the decision";

const AMBIENT: readonly Ambient[] = [
  { owner: Date, name: "now", call: "Date.now()", instead: TIME },
  { owner: performance, name: "now", call: "performance.now()", instead: TIME },
  { owner: Math, name: "random", call: "Math.random()", instead: CHANCE },
  { owner: crypto, name: "randomUUID", call: "crypto.randomUUID()", instead: CHANCE },
  { owner: crypto, name: "getRandomValues", call: "crypto.getRandomValues()", instead: CHANCE },
  { owner: globalThis, name: "setTimeout", call: "setTimeout()", instead: OUTSIDE },
  { owner: globalThis, name: "setInterval", call: "setInterval()", instead: OUTSIDE },
  { owner: globalThis, name: "setImmediate", call: "setImmediate()", instead: OUTSIDE },
  { owner: globalThis, name: "queueMicrotask", call: "queueMicrotask()", instead: OUTSIDE },
  { owner: globalThis, name: "fetch", call: "fetch()", instead: OUTSIDE },
];

const RealDate = Date;

/**
 * Replaces each of them with what `replacement` returns. It also gets `new Date()` and `Date()`, which read the clock, while
 * `new Date(value)` does not. Returns a function that restores them.
 */
export function replaceAmbient(
  replacement: (ambient: Ambient, original: (...args: unknown[]) => unknown) => (...args: unknown[]) => unknown,
): () => void {
  const undo: (() => void)[] = [];
  const replace = (owner: object, name: string, value: unknown) => {
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
    replace(
      ambient.owner,
      ambient.name,
      replacement(ambient, (...args) => Reflect.apply(original, ambient.owner, args)),
    );
  }
  const clockRead = { owner: globalThis, name: "Date", call: "new Date() without a time", instead: TIME };
  const readClock = replacement(clockRead, () => new RealDate());
  const watched = new Proxy(RealDate, {
    construct: (target, args, newTarget) =>
      args.length === 0 ? (readClock() as object) : (Reflect.construct(target, args, newTarget) as object),
    apply: () => String(readClock()),
  });
  replace(globalThis, "Date", watched);
  return () => {
    for (const step of undo.reverse()) step();
  };
}
