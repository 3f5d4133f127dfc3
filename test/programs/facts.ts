/**
 * What the store's commits say of runs, for the oracle: claims, records of steps, retries and ends, each with its place in the order of commits.
 */

import { hash } from "../../src/kernel/fingerprint.ts";
import type { World } from "../../src/testing/sim/world.ts";
import { EFFECTS } from "./database.ts";

export interface StepRecord {
  readonly id: string;
  readonly key: string;
  readonly isOk: boolean;
  /** The place of its commit, and who made it. */
  readonly at: number;
  readonly by: string | null;
}

export interface RunHistory {
  /** By worker: where it claimed the run. */
  readonly claims: Map<string, number[]>;
  readonly records: StepRecord[];
  readonly retries: number[];
  /** Names of all facts, in order, with the place of their commits. */
  readonly facts: { readonly name: string; readonly at: number }[];
}

export interface Facts {
  readonly runs: ReadonlyMap<string, RunHistory>;
  /** How often each statement of `step.tx` took effect, by its key "run/step/key". */
  readonly effects: ReadonlyMap<string, number>;
}

/** The name of a step without its id and number. */
export const nameOf = (id: string): string => id.replace(/#.*$/, "");

export function readFacts(world: World): Facts {
  const runs = new Map<string, RunHistory>();
  const effects = new Map<string, number>();
  for (const [at, { puts }] of world.database.commits.entries())
    for (const { was, row, entries } of puts) {
      if (row.space === EFFECTS) effects.set(row.key, (effects.get(row.key) ?? 0) + 1);
      if (row.space !== "run") continue;
      const history: RunHistory = runs.get(row.key) ?? { claims: new Map(), records: [], retries: [], facts: [] };
      runs.set(row.key, history);
      if (row.fence > (was?.fence ?? 0) && row.holder !== null)
        history.claims.set(row.holder, [...(history.claims.get(row.holder) ?? []), at]);
      const { incarnation = 1 } = JSON.parse(row.value ?? "{}") as { incarnation?: number };
      for (const { name, data } of entries) {
        history.facts.push({ name, at });
        if (name === "retried") history.retries.push(at);
        if (!name.startsWith("step ")) continue;
        const id = name.slice("step ".length);
        const key = hash("simulated", row.key, String(incarnation), id);
        history.records.push({ id, key, isOk: !/^\{"error"/.test(data), at, by: was?.holder ?? null });
      }
    }
  return { runs, effects };
}
