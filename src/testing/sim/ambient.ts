/**
 * Detects simulated code that uses ambient time, randomness or timers: two executions of one seed would differ.
 *
 * During a simulation, the globals work as before and record their callers. Test runners share the process and also call them; calls from
 * `node_modules` and from Node itself are ignored.
 */

import { replaceAmbient } from "../../node/ambient.ts";

export class AmbientWatch {
  readonly end: () => void;
  /** The first forbidden call, with its caller. */
  caught: string | undefined;

  constructor() {
    this.end = replaceAmbient(({ name, call }, original) => (...args) => {
      // Microtasks are allowed: the scheduler waits for all of them.
      if (name !== "queueMicrotask") this.#record(call);
      return original(...args);
    });
  }

  #record(call: string): void {
    if (this.caught !== undefined) return;
    // The first three lines are the message, this function and the replacement. The caller comes next, perhaps after a proxy.
    const frames = new Error("caller").stack?.split("\n").slice(3) ?? [];
    const caller = frames.find((frame) => !frame.includes("/node/ambient."))?.trim() ?? "";
    // The real ports are used by handles outside the simulation, which may have pending work.
    if (caller === "" || /node_modules|node:|\/node\/ports\./.test(caller)) return;
    this.caught = `${call} called ${caller}`;
  }
}
