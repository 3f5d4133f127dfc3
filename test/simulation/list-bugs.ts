/**
 * Bugs after which committed decisions are not serializable, each to be caught by the scenario of lists. Most of them leave every key
 * right when looked at alone.
 */

import type { SimulateOptions } from "../../src/testing/index.ts";
import type { Bug } from "./bugs.ts";
import { lists } from "./scenarios/lists.ts";

const DECISION = "kernel/decision.ts";
const DRAFT = "kernel/draft.ts";
const FLIGHT = "kernel/flight.ts";
const BATCHER = "kernel/batcher.ts";
const MEMORY = "stores/memory/memory.ts";
const SIMULATED = "testing/sim/store.ts";

const LOCK = "          this.#database.locks.set(text, transaction);\n";
const LOCK_AND_READ = `${LOCK}          rows.push((await this.inner.read([key]))[0] ?? null);`;

const bug = (name: string, file: string, from: string, to: string, options?: SimulateOptions): Bug => ({
  name,
  caughtBy: lists.name,
  ...(options === undefined ? {} : { options }),
  edits: [{ file, from, to }],
});

/** Everything meets at one moment, and nothing else goes wrong. */
const MEETINGS: SimulateOptions = { calm: true, reorder: 0.8, overtake: 0.2 };

export const listBugs: readonly Bug[] = [
  bug("write skew: rows that are read are not locked", SIMULATED, LOCK, ""),
  bug(
    "write skew by absence: keys that are absent are not locked",
    SIMULATED,
    LOCK_AND_READ,
    "          const [row] = await this.inner.read([key]);\n          if (row) this.#database.locks.set(text, transaction);\n          rows.push(row ?? null);",
  ),
  bug(
    "phantom: keys that turn up late are read without a lock",
    SIMULATED,
    "        verdict = batch.decide(await lock(verdict.lock));",
    "        const rows = await this.inner.read(verdict.lock);\n        const nowMs = (transaction.nowMs ??= this.#database.memory.nowMs());\n        verdict = batch.decide({ nowMs, fenceFloor: this.#database.memory.fenceFloor, rows });",
  ),
  bug(
    "lost update: a row is written although it moved",
    MEMORY,
    "was.id === now.id && was.version === now.version && was.stamp === now.stamp;",
    "was.id === now.id;",
  ),
  bug(
    "read skew: several rows are read at several moments",
    SIMULATED,
    "  override watch(",
    "  override read(keys) {\n    return Promise.all(keys.map(async (key) => (await super.read([key]))[0] ?? null));\n  }\n\n  override watch(",
    MEETINGS,
  ),
  bug(
    "torn batch: one row is written a moment before the others",
    SIMULATED,
    "      const receipt = await this.inner.commit({ ...batch, lock: [], decide: () => ({ puts }) });",
    '      const isStill = (await this.inner.read(puts.map(({ row }) => row))).every((row, i) => row?.version === puts[i]?.was?.version);\n      if (isStill && puts.length > 1) {\n        await this.inner.commit({ ...batch, lock: [], decide: () => ({ puts: puts.slice(0, 1) }) });\n        await this.#stop("commit: write the rest");\n      }\n      const rest = isStill && puts.length > 1 ? puts.slice(1) : puts;\n      const written = await this.inner.commit({ ...batch, lock: [], decide: () => ({ puts: rest }) });\n      const receipt = written.committed ? { ...written, ids: (await this.inner.read(puts.map(({ row }) => row))).map((row) => row?.id ?? 0) } : written;',
    MEETINGS,
  ),
  bug(
    "aborted write: what a decision wrote before it threw stays",
    DECISION,
    'if (outcome.is === "done") merge(run);',
    'if (outcome.is !== "void") merge(run);',
  ),
  bug(
    "unchecked read: what is known of a row is used without writing it",
    DECISION,
    '  if (run.isUnchecked(outcome)) return { is: "void", wanted: "lock" };\n',
    "",
  ),
  {
    name: "absence unread: a key that turns up late is taken for absent",
    caughtBy: lists.name,
    edits: [
      {
        file: DECISION,
        from: "import { type Cell, checkNumbers, Draft, type DraftContext }",
        to: "import { Cell, checkNumbers, Draft, type DraftContext }",
      },
      {
        file: DECISION,
        from: "    const cell = this.#view.cells.get(at.text);\n",
        to: "    const cells = this.#view.cells as Map<string, Cell>;\n    if (!cells.has(at.text)) cells.set(at.text, new Cell(at, null));\n    const cell = cells.get(at.text);\n",
      },
    ],
  },
  bug(
    "the order of lives: versions start again after a deletion",
    DRAFT,
    "          ? { ...now, dueMs: null }",
    "          ? { ...now, dueMs: null, version: 0 }",
  ),
  bug(
    "not yet true: decisions are answered before the commit",
    FLIGHT,
    "    return { puts };",
    "    this.committed();\n    return { puts };",
  ),
  bug(
    "never true: a batch whose rows have moved is reported as committed",
    BATCHER,
    ": flight.moved(receipt.moved, receipt.isHeld);",
    ": this.#committed(flight, undefined, 0);",
  ),
];
