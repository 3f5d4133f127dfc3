/**
 * Bugs that idempotency keys and dedupe could have, each caught by their scenario.
 */

import type { Bug } from "./bugs.ts";
import { idempotency } from "./scenarios/idempotency.ts";

const DECIDE = "idempotency/decide.ts";
const RECORDS = "idempotency/records.ts";
const ATTEMPT = "idempotency/attempt.ts";
const DEDUPE = "idempotency/dedupe.ts";

const caughtBy = idempotency.name;

export const idempotencyBugs: Bug[] = [
  {
    name: "an attempt that was taken over still commits",
    caughtBy,
    edits: [
      { file: ATTEMPT, from: "    if (!isHolder(record, this.#held)) throw", to: "    if (!record.exists) throw" },
    ],
  },
  {
    name: "the effect is one commit, and its answer the next",
    caughtBy,
    edits: [
      {
        file: ATTEMPT,
        from: "    const answer = (tx: Tx): string => {\n      const record = this.#mine(tx);\n      const ok = effect(tx);\n      refusePromise(ok);\n",
        to: "    const ok = await this.#kernel.transact((tx) => (this.#mine(tx), effect(tx)), touches);\n    refusePromise(ok);\n    const answer = (tx: Tx): string => {\n      const record = this.#mine(tx);\n",
      },
    ],
  },
  {
    name: "a live attempt can be taken over",
    caughtBy,
    edits: [
      {
        file: DECIDE,
        from: '  if (leftMs === 0) return { is: "take_over" };\n',
        to: '  if (leftMs < 4_000) return { is: "take_over" };\n',
      },
    ],
  },
  {
    name: "a take-over does not lift the fence",
    caughtBy,
    edits: [
      {
        file: RECORDS,
        from: "    fence: nextFence(record.fence, tx.fenceFloor),\n",
        to: "    fence: isTakeOver ? record.fence : nextFence(record.fence, tx.fenceFloor),\n",
      },
    ],
  },
  {
    name: "an interrupted attempt is not taken over",
    caughtBy,
    edits: [
      {
        file: DECIDE,
        from: '  if (leftMs === 0) return { is: "take_over" };\n',
        to: "",
      },
    ],
  },
  {
    name: "another request gets the stored result",
    caughtBy,
    edits: [{ file: DECIDE, from: '  if (key.fingerprint !== call.fingerprint) return { is: "mismatch" };\n', to: "" }],
  },
  {
    name: "work that failed frees a key that another caller holds by now",
    caughtBy,
    edits: [
      {
        file: ATTEMPT,
        from: "      return await this.#end(free);\n",
        to: "      return await this.#kernel.transact((tx) => (free(tx.record(this.#call.at)), null), [this.#call.at]);\n",
      },
    ],
  },
  {
    name: "a message is marked in a commit of its own",
    caughtBy,
    edits: [
      {
        file: DEDUPE,
        from: "    const marked = (tx: Tx): Deduplicated<T> => {\n      if (!mark(tx, at, ttlMs)) return AGAIN;\n",
        to: "    if (!(await kernel.transact((tx) => mark(tx, at, ttlMs), [at]))) return AGAIN;\n    const marked = (tx: Tx): Deduplicated<T> => {\n",
      },
    ],
  },
  {
    name: "a message is marked when its effect is committed, not with it",
    caughtBy,
    edits: [
      {
        file: DEDUPE,
        from: "      if (!mark(tx, at, ttlMs)) return AGAIN;\n      const value",
        to: "      if (tx.record(at).exists) return AGAIN;\n      const value",
      },
      {
        file: DEDUPE,
        from: "    return kernel.mending(() => kernel.transact(marked, [at, ...touches]));\n",
        to: "    const made = await kernel.mending(() => kernel.transact(marked, [at, ...touches]));\n    await kernel.transact((tx) => mark(tx, at, ttlMs), [at]);\n    return made;\n",
      },
    ],
  },
];
