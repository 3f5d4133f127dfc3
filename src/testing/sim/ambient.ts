/**
 * Catches simulated code that reaches for ambient time, chance or timers: it would make two runs of one seed differ.
 *
 * While a simulation runs, the globals are replaced by ones that work as before and take note of who called. Test runners
 * share the process and keep calling them; what comes from `node_modules` or Node itself is let be.
 */

interface Spied {
  readonly owner: object;
  readonly name: string;
  readonly shown: string;
}

const SPIED: readonly Spied[] = [
  { owner: Date, name: "now", shown: "Date.now()" },
  { owner: Math, name: "random", shown: "Math.random()" },
  { owner: performance, name: "now", shown: "performance.now()" },
  { owner: crypto, name: "randomUUID", shown: "crypto.randomUUID()" },
  { owner: crypto, name: "getRandomValues", shown: "crypto.getRandomValues()" },
  { owner: globalThis, name: "setTimeout", shown: "setTimeout()" },
  { owner: globalThis, name: "setInterval", shown: "setInterval()" },
  { owner: globalThis, name: "setImmediate", shown: "setImmediate()" },
  { owner: globalThis, name: "fetch", shown: "fetch()" },
];

export class AmbientWatch {
  readonly #restore: (() => void)[] = [];
  /** The first forbidden call and where it was made. */
  caught: string | undefined;

  constructor() {
    for (const { owner, name, shown } of SPIED) {
      const original: unknown = Reflect.get(owner, name);
      if (typeof original !== "function") continue;
      const own = Object.getOwnPropertyDescriptor(owner, name);
      const note = () => this.#note(shown);
      const spy = (...args: unknown[]): unknown => {
        note();
        return Reflect.apply(original, owner, args);
      };
      Object.defineProperty(owner, name, {
        value: spy,
        configurable: true,
        writable: true,
        enumerable: own?.enumerable ?? true,
      });
      this.#restore.push(() => {
        if (own === undefined) Reflect.deleteProperty(owner, name);
        else Object.defineProperty(owner, name, own);
      });
    }
  }

  end(): void {
    for (const undo of this.#restore.splice(0).reverse()) undo();
  }

  #note(shown: string): void {
    if (this.caught !== undefined) return;
    // The error, this function, the note, the spy: the caller comes next.
    const caller = new Error().stack?.split("\n")[4]?.trim() ?? "";
    if (caller === "" || caller.includes("node_modules") || caller.includes("node:")) return;
    this.caught = `${shown} called ${caller}`;
  }
}
