/**
 * Anomalies to be planted, each of which the checker must find: into the interleaved store as a weakness, and into the real source as an
 * edit. Edits are kept few and in one place: if the text they look for changes, the test fails, and they are adapted here.
 */

import type { Anomaly } from "../../src/testing/checkers/lists/report.ts";
import type { Edit } from "../simulation/plant.ts";
import type { Weakness } from "./interleaved.ts";

export interface Weakened {
  readonly name: string;
  readonly weakness: Weakness;
  /** What the checker may call it. */
  readonly anomalies: readonly Anomaly[];
}

export const weaknesses: readonly Weakened[] = [
  {
    name: "lost update: rows that moved are written over",
    weakness: { overwrites: true },
    anomalies: ["lost update", "vanished"],
  },
  {
    name: "write skew: present rows that are read are not locked",
    weakness: { locks: (row) => row === null },
    anomalies: ["G2", "G-single"],
  },
  {
    name: "write skew by absence: absent rows are not locked",
    weakness: { locks: (row) => row !== null },
    anomalies: ["G2", "G-single"],
  },
  {
    name: "late keys are read without a lock",
    weakness: { locks: (_, isLate) => !isLate },
    anomalies: ["G2", "G-single"],
  },
  {
    name: "phantom by absence: an absent row that turns up late is not locked",
    weakness: { locks: (row, isLate) => !(isLate && row === null) },
    anomalies: ["G2", "G-single"],
  },
  {
    name: "read skew: several rows are read at several moments",
    weakness: { readsApart: true },
    anomalies: ["G-single", "G2"],
  },
  {
    name: "torn read: a commit is written in two parts",
    weakness: { tears: true },
    // Half of a commit can look like anything: what is left of it depends on which half.
    anomalies: ["G-single", "G2", "G0", "G1a", "G1b", "G1c", "duplicate", "vanished", "never written"],
  },
  {
    name: "stale row: the last row read is assumed to be current",
    weakness: { remembers: true },
    anomalies: ["G-single", "G2"],
  },
  {
    name: "rows are read before they are locked",
    weakness: { looksEarly: true },
    anomalies: ["G-single", "G2"],
  },
  {
    name: "a batch that was refused is reported as committed",
    weakness: { lies: true },
    anomalies: ["lost update", "vanished"],
  },
  {
    name: "a commit is reported before it is written",
    weakness: { hurries: true },
    anomalies: ["lost update", "vanished"],
  },
  {
    name: "a commit whose reply was lost is made again",
    weakness: { forgets: true },
    anomalies: ["duplicate", "never written", "G1a"],
  },
  { name: "deletions are not written", weakness: { keeps: true }, anomalies: ["lost update", "vanished"] },
];

export interface PlantedEdit {
  readonly name: string;
  /** Where it is run: on the interleaved store in a process of its own, or on a real store with several processes. */
  readonly on: "interleaved" | "postgres" | "sqlite";
  readonly edits: readonly Edit[];
}

const COMMIT = "stores/postgres/commit.ts";
const DECISION = "kernel/decision.ts";
const ROWS = "stores/postgres/rows.ts";
const WRITE = "stores/postgres/write.ts";
const SQLITE = "stores/sqlite/sqlite.ts";

export const edits: readonly PlantedEdit[] = [
  {
    name: "aborted writes are visible: a decision that throws is merged",
    on: "interleaved",
    edits: [
      { file: DECISION, from: 'if (outcome.is === "done") merge(run);', to: 'if (outcome.is !== "void") merge(run);' },
    ],
  },
  {
    name: "unchecked read: a known row is read, not written, and not checked",
    on: "interleaved",
    edits: [
      { file: DECISION, from: '  if (run.isUnchecked(outcome)) return { is: "void", wanted: "lock" };\n', to: "" },
    ],
  },
  {
    name: "PostgreSQL: rows are read without being locked",
    on: "postgres",
    edits: [{ file: ROWS, from: "for no key update $" + "{skip}\n", to: "\n" }],
  },
  {
    name: "PostgreSQL: a value is written although its row has moved",
    on: "postgres",
    edits: [{ file: WRITE, from: " and r.version = v.was and r.stamp = v.was_stamp", to: "" }],
  },
  {
    name: "PostgreSQL: write skew by absence, no placeholder for an absent record that was only read",
    on: "postgres",
    edits: [{ file: COMMIT, from: "({ placeholder }) => placeholder === null);", to: "() => false);" }],
  },
  {
    name: "SQLite: a cached row is used although another process wrote it",
    on: "sqlite",
    edits: [{ file: SQLITE, from: "this.#cache.begin(this.#checkSchema());", to: "this.#cache.begin(1);" }],
  },
];
