/**
 * The guards of the races: for each, the smallest edit of the source that removes it, and the race that then fails.
 *
 * A guard that is missing from the source, or is there twice, is noticed, because each edit must find its text exactly once.
 */

import type { Edit } from "../simulation/plant.ts";
import { races } from "./races.ts";

export interface Guard {
  /** What is missing, as the end of "a race is lost …". */
  readonly name: string;
  /** The name of the race. */
  readonly race: string;
  readonly edits: readonly Edit[];
}

const raceWith = (part: string): string => races.find(({ name }) => name.includes(part))?.name ?? part;

const ACTION = { decide: "action/decide.ts", records: "action/records.ts", actions: "action/actions.ts" };
const KEYS = { decide: "idempotency/decide.ts", records: "idempotency/records.ts", attempt: "idempotency/attempt.ts" };
const MACHINE = { decide: "machine/decide.ts", records: "machine/records.ts" };

const oneUseMore: Edit = {
  file: ACTION.decide,
  from: '  if (action.used >= usesOf(action)) return "consumed";',
  to: '  if (action.used > usesOf(action)) return "consumed";',
};

export const guards: readonly Guard[] = [
  {
    name: "if a message that is marked is handled all the same",
    race: raceWith("webhook"),
    edits: [
      {
        file: KEYS.records,
        from: "  const record = tx.record(at);\n  if (record.exists && isMarked(record, tx.nowMs)) return false;\n",
        to: "  const record = tx.record(at);\n",
      },
    ],
  },
  {
    name: "if a message is not marked in the commit of its effect",
    race: raceWith("webhook"),
    edits: [
      {
        file: KEYS.records,
        from: "  record.write({ value: true, kind: MARKS, dueMs: tx.nowUpperBoundMs + ttlMs });\n",
        to: "",
      },
    ],
  },
  {
    name: "if any state can be entered from any other",
    race: raceWith("order.shipped before"),
    edits: [{ file: MACHINE.decide, from: "  if (!allowed.includes(to)) {\n", to: "  if (allowed === null) {\n" }],
  },
  {
    name: "if a parked event is not applied when its turn comes",
    race: raceWith("order.shipped before"),
    edits: [
      { file: MACHINE.decide, from: "    if (event === undefined) break;\n", to: "    if (event !== null) break;\n" },
    ],
  },
  {
    name: "if an early event is refused although it may be parked",
    race: raceWith("order.shipped before"),
    edits: [
      {
        file: MACHINE.decide,
        from: "    if (!attempt.mayPark || !canReach(rules, from, to))\n",
        to: "    if (attempt !== null || !canReach(rules, from, to))\n",
      },
    ],
  },
  {
    name: "if the id of an event is not remembered",
    race: raceWith("order.shipped before"),
    edits: [
      {
        file: MACHINE.records,
        from: "  if (!result.deduplicated) event?.write(",
        to: "  if (result.deduplicated) event?.write(",
      },
    ],
  },
  {
    name: "if a machine may be left for a state that excludes the one it is in",
    race: raceWith("concurrent with a cancellation"),
    edits: [{ file: MACHINE.decide, from: "  if (!allowed.includes(to)) {\n", to: "  if (allowed === null) {\n" }],
  },
  {
    name: "if a retry takes a live attempt over",
    race: raceWith("overlaps a slow first attempt"),
    edits: [
      {
        file: KEYS.decide,
        from: '  if (leftMs === 0) return { is: "take_over" };\n',
        to: '  if (leftMs >= 0) return { is: "take_over" };\n',
      },
    ],
  },
  {
    name: "if an answer that is stored is not the answer",
    race: raceWith("overlaps a slow first attempt"),
    edits: [{ file: KEYS.decide, from: '  if (key.status !== "in_progress") return { is: "replay" };\n', to: "" }],
  },
  {
    name: "if another request under the key is answered",
    race: raceWith("overlaps a slow first attempt"),
    edits: [
      { file: KEYS.decide, from: '  if (key.fingerprint !== call.fingerprint) return { is: "mismatch" };\n', to: "" },
    ],
  },
  {
    name: "if an attempt that was taken over still commits",
    race: raceWith("taken over"),
    edits: [
      { file: KEYS.attempt, from: "    if (!isHolder(record, this.#held)) throw", to: "    if (!record.exists) throw" },
    ],
  },
  {
    name: "if a second click takes the first one over",
    race: raceWith("clicked twice"),
    edits: [
      {
        file: KEYS.decide,
        from: '  if (leftMs === 0) return { is: "take_over" };\n',
        to: '  if (leftMs >= 0) return { is: "take_over" };\n',
      },
    ],
  },
  {
    name: "if a click after the order was made makes another",
    race: raceWith("clicked twice"),
    edits: [{ file: KEYS.decide, from: '  if (key.status !== "in_progress") return { is: "replay" };\n', to: "" }],
  },
  {
    name: "if a decision does not find the answer of an earlier one",
    race: raceWith("whose work is one decision"),
    edits: [
      {
        file: KEYS.records,
        from: "  if (found !== null) return { text: found, isReplay: true };\n",
        to: "",
      },
    ],
  },
  { name: "if a coupon has one use more than it should", race: raceWith("1,000 clients"), edits: [oneUseMore] },
  {
    name: "if the winner is not known when it asks again",
    race: raceWith("1,000 clients"),
    edits: [
      {
        file: ACTION.records,
        from: "  const last = isShared || consumer === undefined ? rest : { ...rest, consumer };",
        to: "  const last = rest;",
      },
    ],
  },
  {
    name: "if nobody is told who used it",
    race: raceWith("1,000 clients"),
    edits: [
      {
        file: ACTION.decide,
        from: '  return { code: "already_used", usedAt: new Date(atMs), by: by ?? null };',
        to: '  return { code: "already_used", usedAt: new Date(atMs), by: by === undefined ? null : null };',
      },
    ],
  },
  {
    name: "if to look at a link is to use it",
    race: raceWith("mail scanner"),
    edits: [
      {
        file: ACTION.actions,
        from: "    const ref = refOfTarget(target);\n    const [[row = null], nowMs]",
        to: "    const ref = refOfTarget(target);\n    await this.tryConsume(String(target));\n    const [[row = null], nowMs]",
      },
    ],
  },
  { name: "if a link can be used twice", race: raceWith("mail scanner"), edits: [oneUseMore] },
  { name: "if a ticket opens a second gate", race: raceWith("two gates"), edits: [oneUseMore] },
  {
    name: "if a ticket that is claimed is given to another turnstile",
    race: raceWith("two turnstiles"),
    edits: [
      {
        file: ACTION.decide,
        from: "  if (leaseEndsAtMs === null || leaseEndsAtMs <= nowMs) return undefined;",
        to: "  if (leaseEndsAtMs === null || leaseEndsAtMs > 0) return undefined;",
      },
    ],
  },
  {
    name: "if a turnstile that lost its lease completes",
    race: raceWith("two turnstiles"),
    edits: [
      {
        file: ACTION.records,
        from: "  if (mine !== undefined) return replayed(tx, ref, value, mine, deps);\n  if (!isHeldUnder(record, fence))",
        to: "  if (mine !== undefined) return replayed(tx, ref, value, mine, deps);\n  if (record.holder === null)",
      },
    ],
  },
  { name: "if a licence has one seat more than it should", race: raceWith("three seats"), edits: [oneUseMore] },
  {
    name: "if a machine that starts again takes a second seat",
    race: raceWith("three seats"),
    edits: [
      {
        file: ACTION.records,
        from: "  if (isShared && consumer !== undefined) tx.record(useAt(ref, consumer)).write({ value: rest });\n",
        to: "",
      },
    ],
  },
];
