/**
 * What a contender is: something that runs a workflow of N plain steps durably, and returns its result.
 *
 * All of them do the same work, `charge`, which is a function of ours and runs in our process, wherever its result is stored.
 * So it can be counted (`chargeCount`), and a contender that leaves out steps is found out (protocols.ts).
 *
 * Leaves out: what is measured of a contender (protocols.ts, costs.ts), and how each is used (a file for each).
 */

import { readFileSync } from "node:fs";
import { join } from "node:path";

export interface Peer {
  /** For the table: the library and its store. */
  readonly name: string;
  /** For `--only`. */
  readonly id: string;
  readonly version: string;
  readonly store: "postgres" | "sqlite" | "its own";
  /** What was set, and what cannot be set and matters, in a sentence or two. */
  readonly settings: string;
  open(ground: Ground): Promise<PeerSession>;
}

/** Where a contender may write. */
export interface Ground {
  /** An empty folder, removed afterwards. */
  readonly folder: string;
  /** A database for this contender alone, as a URL; asking fails where there is no PostgreSQL. */
  readonly database: string;
}

/** A contender at work: worker and caller are both in this process. */
export interface PeerSession {
  /** Starts a run of `steps` steps with a new id and waits for its result, which is the number of steps. */
  run(steps: number): Promise<number>;
  /** Starts a run, and is done when the run is sure to happen. */
  submit(steps: number): Promise<PeerRun>;
  close(): Promise<void>;
}

export interface PeerRun {
  /** The result of the run, which is its number of steps. */
  result(): Promise<number>;
}

export interface Charge {
  readonly step: number;
  readonly charge: string;
  readonly total: number;
  readonly currency: string;
}

let charges = 0;

/** What every step of every contender does. */
export function charge(step: number): Charge & { [key: string]: string | number } {
  charges++;
  return { step, charge: `ch_${String(step).padStart(6, "0")}`, total: 1999, currency: "EUR" };
}

/** How often a step was run in this process. */
export const chargeCount = (): number => charges;

/** The version of a package that is installed beside this file. */
export function versionOf(packageName: string): string {
  const manifest: unknown = JSON.parse(
    readFileSync(join(import.meta.dirname, "node_modules", packageName, "package.json"), "utf8"),
  );
  if (typeof manifest === "object" && manifest !== null && "version" in manifest) return String(manifest.version);
  throw new Error(`${packageName} does not say its version`);
}
