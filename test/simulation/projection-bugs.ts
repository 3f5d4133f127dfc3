/** Bugs to be planted into projections, each of which the simulator must find. */

import type { Bug } from "./bugs.ts";
import { projections } from "./scenarios/projections.ts";

const WORKER = "stream/projections/worker.ts";
const APPLYING = "stream/projections/applying.ts";
const DECIDE = "stream/projections/decide.ts";
const GENERATIONS = "stream/projections/generations.ts";
const HANDLE = "stream/projections/projections.ts";

const caughtBy = projections.name;

export const projectionBugs: readonly Bug[] = [
  {
    name: "rows are written although the cursor has moved",
    caughtBy,
    edits: [
      { file: APPLYING, from: "      if (!isAt(value)) return { isCommitted: false };\n", to: "" },
      {
        file: APPLYING,
        from: "      return await this.#held.commit(decide);",
        to: "      return await this.#kernel.transact((tx) => decide(tx.record(this.#held.at), tx), [this.#held.at]);",
      },
    ],
  },
  {
    name: "the cursor is moved before the rows are written",
    caughtBy,
    edits: [
      {
        file: APPLYING,
        from: "    const result = await this.#orFailed(events[0], (record, tx) => {",
        to: "    await this.#held.commit((record) => record.write({ value: after(record.value as GenerationValue, undefined) }));\n    const result = await this.#orFailed(events[0], (record, tx) => {",
      },
      { file: APPLYING, from: "      if (!isAt(value)) return { isCommitted: false };\n", to: "" },
    ],
  },
  {
    name: "a generation is shown although it is behind",
    caughtBy,
    edits: [
      {
        file: DECIDE,
        from: "value?.building !== mine.generation || (liveCursor ?? 0) > mine.cursor",
        to: "value?.building !== mine.generation",
      },
      {
        file: APPLYING,
        from: "    const isBehind = seen === undefined ? !isAtEnd : seen.value.cursor > cursor;\n",
        to: "    const isBehind = false;\n",
      },
      { file: WORKER, from: "        reached: (cursor, isAtEnd) => this.#reached(cursor, isAtEnd),\n", to: "" },
      {
        file: WORKER,
        from: "      await this.#writer.setUp();\n",
        to: "      await this.#writer.setUp();\n      await this.#writer.swap(0, true);\n",
      },
    ],
  },
  {
    name: "a reader reads the rows of a generation that was replaced",
    caughtBy,
    edits: [
      {
        file: HANDLE,
        from: "      if (this.#liveOf(pointer) !== guess) continue;\n",
        to: "      this.#liveOf(pointer);\n",
      },
    ],
  },
  {
    name: "the rows of a retired generation are removed before it is replaced",
    caughtBy,
    edits: [
      {
        file: GENERATIONS,
        from: "  const change = decideBuild(value, codes, by, tx.record(projectionAt(name)).version);\n",
        to: "  const change = decideBuild(value, codes, by, tx.record(projectionAt(name)).version);\n  if (value?.live !== undefined) retire(tx, name, value.live);\n",
      },
    ],
  },
];
