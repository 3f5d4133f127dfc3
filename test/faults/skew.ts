/**
 * Clocks that are wrong, one for each worker process.
 *
 * Where libfaketime is installed it is loaded before everything else and changes what the system tells the process; a file says
 * by how much, and may be changed while the process runs. Elsewhere only the clock of JavaScript is set off, by an order to the
 * worker. The monotonic clock stays right in both cases: the ledger counts by it.
 */

import { existsSync, globSync, writeFileSync } from "node:fs";

export interface SkewedClock {
  /** What the process is started with. */
  readonly env: Readonly<Record<string, string>>;
  /** Sets the clock of the running process; returns false if the process must do so itself. */
  set(ms: number): boolean;
}

const PLACES = [
  "/usr/lib/*/faketime/libfaketimeMT.so.1",
  "/usr/lib/faketime/libfaketimeMT.so.1",
  "/usr/lib64/faketime/libfaketimeMT.so.1",
  "/usr/local/lib/faketime/libfaketimeMT.so.1",
];

/** Where libfaketime is, or null. */
export function findFaketime(): string | null {
  if (process.platform !== "linux") return null;
  return PLACES.flatMap((place) => (place.includes("*") ? globSync(place) : [place])).find(existsSync) ?? null;
}

/** A clock that is off by so much from the start. The file must be of this process alone. */
export function skewedClock(library: string | null, file: string, startMs: number): SkewedClock {
  if (library === null) return { env: {}, set: () => false };
  const write = (ms: number): void => writeFileSync(file, `${ms < 0 ? "-" : "+"}${Math.abs(ms) / 1000}\n`);
  write(startMs);
  return {
    env: {
      LD_PRELOAD: library,
      FAKETIME_TIMESTAMP_FILE: file,
      // It reads the file again after this many seconds.
      FAKETIME_CACHE_DURATION: "1",
      // The name was another in older releases.
      FAKETIME_DONT_FAKE_MONOTONIC: "1",
      DONT_FAKE_MONOTONIC: "1",
    },
    set: (ms) => {
      write(ms);
      return true;
    },
  };
}
