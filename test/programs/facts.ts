/**
 * What the store's commits say of runs, for the oracle: claims, records of steps, retries and ends, each with its place in the order of commits.
 */

import type { Row } from "../../src/kernel/contract.ts";
import { hash } from "../../src/kernel/fingerprint.ts";
import type { World } from "../../src/testing/sim/world.ts";
import { ENDED, parseFact, type RunValue, type VersionRange } from "../../src/workflow/stored.ts";
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
  /** The starts of children, in order: the operation, and the child's run, which is another one after a restart. */
  readonly children: { readonly id: string; readonly run: string; readonly at: number }[];
  /** Children that had to end with it, and were neither over nor canceled when it ended. */
  readonly orphans: string[];
  /** Locks that it held or stood in line for although it had not asked, had been refused or had given them back, each with the place of the commit. */
  readonly surplus: { readonly lock: string; readonly at: number }[];
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
  const tracks = new Map<string, Track>();
  for (const [at, { puts }] of world.database.commits.entries()) {
    for (const { was, row, entries } of puts) {
      if (row.space === EFFECTS) effects.set(row.key, (effects.get(row.key) ?? 0) + 1);
      if (row.space !== "run") continue;
      const history: RunHistory = runs.get(row.key) ?? {
        claims: new Map(),
        records: [],
        retries: [],
        facts: [],
        children: [],
        orphans: [],
        surplus: [],
      };
      runs.set(row.key, history);
      const track = tracks.get(row.key) ?? new Track();
      tracks.set(row.key, track);
      track.put(row, entries);
      if (row.fence > (was?.fence ?? 0) && row.holder !== null)
        history.claims.set(row.holder, [...(history.claims.get(row.holder) ?? []), at]);
      // Its reply came when the lease may have ended: no work was begun, and what the process did under an earlier claim does not learn of it.
      if (was?.holder != null && row.holder === null && row.fence === was.fence && row.tries === was.tries - 1)
        history.claims.get(was.holder)?.pop();
      const { incarnation = 1 } = JSON.parse(row.value ?? "{}") as { incarnation?: number };
      for (const { name, data } of entries) {
        history.facts.push({ name, at });
        if (name === "retried") history.retries.push(at);
        const { word, id: operation } = parseFact(name);
        if (word === "child")
          history.children.push({ id: operation, run: (JSON.parse(data) as { run: string }).run, at });
        if (!name.startsWith("step ")) continue;
        const id = name.slice("step ".length);
        const key = hash("simulated", row.key, String(incarnation), id);
        history.records.push({ id, key, isOk: !/^\{"error"/.test(data), at, by: was?.holder ?? null });
      }
      const lock = track.surplus();
      if (lock !== undefined) history.surplus.push({ lock, at });
    }
    // All that the commit wrote is known by now.
    for (const { was, row } of puts) {
      if (row.space !== "run" || !ENDED.has(row.status ?? "") || ENDED.has(was?.status ?? "")) continue;
      for (const child of tracks.get(row.key)?.children.values() ?? [])
        if (tracks.get(child)?.isStopping === false) runs.get(row.key)?.orphans.push(child);
    }
  }
  return { runs, effects };
}

/** What the commits so far say of a run. */
class Track {
  /** Children that end with it and have not ended, by operation. */
  readonly children = new Map<string, string>();
  /** It is over, or is to stop. */
  isStopping = false;
  /** The facts of its locks, by version. */
  readonly #locks = new Map<number, { readonly word: string; readonly id: string }>();
  #holds: readonly string[] = [];
  /** Which facts do not count, and where the history lists more of them. */
  #skips: readonly VersionRange[] = [];
  #skipLists: readonly VersionRange[] = [];
  /** What the history lists, by version. */
  readonly #listed = new Map<number, readonly VersionRange[]>();

  put({ value, status, dueMs, head }: Row, entries: readonly { readonly name: string; readonly data: string }[]): void {
    const { cancel, holds = [], skips = [], skipLists = [] } = JSON.parse(value ?? "{}") as Partial<RunValue>;
    // One that resumes after it has stopped does not end, unless it is parked, and due for a worker that ends it.
    const isToEnd = cancel?.resumes !== true || (status === "parked" && dueMs !== null);
    this.isStopping = (cancel !== undefined && isToEnd) || ENDED.has(status ?? "");
    this.#holds = holds.map(({ id }) => id);
    this.#skips = skips;
    this.#skipLists = skipLists;
    for (const [index, { name, data }] of entries.entries()) {
      const { word, id } = parseFact(name);
      const version = head - entries.length + index + 1;
      if (word === "started") this.#restart();
      else if (word === "child") {
        const { run, endsWithParent } = JSON.parse(data) as { run: string; endsWithParent?: boolean };
        if (endsWithParent === true) this.children.set(id, run);
      } else if (word === "ended") this.children.delete(id);
      else if (word === "forgettable")
        this.#listed.set(version, (JSON.parse(data) as { facts?: readonly VersionRange[] }).facts ?? []);
      else if (LOCK_WORDS.has(word)) this.#locks.set(version, { word, id });
    }
  }

  #restart(): void {
    this.children.clear();
    this.#locks.clear();
    this.#listed.clear();
  }

  /** The facts that a retry has forgotten. Where they are many, the history lists them. */
  #forgotten(): readonly VersionRange[] {
    const lists = [...this.#listed].filter(([version]) => isWithin(this.#skipLists, version));
    return [...this.#skips, ...lists.flatMap(([, facts]) => facts)];
  }

  /** A lock of which the run has more, in hand or in line, than its history says that it was given or waits for. */
  surplus(): string | undefined {
    const open = new Map<string, number>();
    const asked = new Set<string>();
    const forgotten = this.#forgotten();
    for (const [version, { word, id }] of this.#locks) {
      if (isWithin(forgotten, version)) continue;
      const name = nameOf(id);
      const more = word === "unlock" || word === "denied" ? -1 : asked.has(id) ? 0 : 1;
      // What is refused immediately was never in line.
      if (word === "denied" && !asked.has(id)) continue;
      if (word !== "unlock") asked.add(id);
      open.set(name, (open.get(name) ?? 0) + more);
    }
    for (const id of this.#holds) {
      const name = nameOf(id);
      const left = (open.get(name) ?? 0) - 1;
      if (left < 0) return name;
      open.set(name, left);
    }
    return undefined;
  }
}

const isWithin = (ranges: readonly VersionRange[], version: number): boolean =>
  ranges.some(([first, last]) => version >= first && version <= last);

/** What gives a run a lock or a place in its line, and what ends that. A place that it keeps without waiting is none that a program asks for. */
const LOCK_WORDS: ReadonlySet<string> = new Set(["queued", "granted", "denied", "unlock"]);
