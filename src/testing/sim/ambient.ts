/**
 * Catches simulated code that reaches for ambient time, chance or timers: it would make two runs of one seed differ.
 *
 * While a simulation runs, the globals work as before and take note of who called. Test runners share the process and keep
 * calling them; what comes from `node_modules` or Node itself is let be.
 */

import { replaceAmbient } from "../../node/ambient.ts";

export class AmbientWatch {
  readonly end: () => void;
  /** The first forbidden call and where it was made. */
  caught: string | undefined;

  constructor() {
    this.end = replaceAmbient(({ name, shown }, original) => (...args) => {
      // Microtasks are no stranger here: the scheduler waits for all of them.
      if (name !== "queueMicrotask") this.#note(shown);
      return original(...args);
    });
  }

  #note(shown: string): void {
    if (this.caught !== undefined) return;
    // The message, this function, the replacement: the caller comes next, but for a proxy between them.
    const frames = new Error("who calls?").stack?.split("\n").slice(3) ?? [];
    const caller = frames.find((frame) => !frame.includes("/node/ambient."))?.trim() ?? "";
    // The real ports are those of handles outside the simulation, which may have something left to do.
    if (caller === "" || /node_modules|node:|\/node\/ports\./.test(caller)) return;
    this.caught = `${shown} called ${caller}`;
  }
}
