/**
 * Bugs that actions could have, planted one at a time; the scenario of actions must catch each.
 */

import type { SimulateOptions } from "../../src/testing/index.ts";
import type { Bug } from "./bugs.ts";
import { actions } from "./scenarios/actions.ts";

const DECIDE = "action/decide.ts";
const RECORDS = "action/records.ts";

/** Processes crash, replies are lost, and all calls overlap. */
const LOSSES: SimulateOptions = { calm: true, crash: 0.02, lostReply: 0.05, reorder: 0.5, overtake: 0.1 };
/** Processes are paused for longer than their leases. */
const PAUSES: SimulateOptions = { calm: true, pause: 0.02, reorder: 0.5 };

export const actionBugs: Bug[] = [
  {
    name: "an action has one use more than it should",
    caughtBy: actions.name,
    options: LOSSES,
    edits: [
      {
        file: DECIDE,
        from: '  if (action.used >= usesOf(action)) return "consumed";',
        to: '  if (action.used > usesOf(action)) return "consumed";',
      },
    ],
  },
  {
    name: "the winner is not known when it asks again",
    caughtBy: actions.name,
    options: LOSSES,
    edits: [
      {
        file: RECORDS,
        from: "  const last = isShared || consumer === undefined ? rest : { ...rest, consumer };",
        to: "  const last = rest;",
      },
    ],
  },
  {
    name: "a consumer that asks again takes a second use",
    caughtBy: actions.name,
    options: LOSSES,
    edits: [
      {
        file: RECORDS,
        from: "  if (isShared && consumer !== undefined) tx.record(useAt(ref, consumer)).write({ value: rest });\n",
        to: "",
      },
    ],
  },
  {
    name: "a repeated call returns another time",
    caughtBy: actions.name,
    options: LOSSES,
    edits: [
      {
        file: RECORDS,
        from: "  if (before !== undefined) return replayed(tx, taker.ref, value, before, deps);",
        to: "  if (before !== undefined) return replayed(tx, taker.ref, value, { ...before, atMs: tx.nowMs }, deps);",
      },
    ],
  },
  {
    name: "check-then-act: a PIN is counted when it was found wrong",
    caughtBy: actions.name,
    options: { calm: true, reorder: 0.8 },
    edits: [
      {
        file: RECORDS,
        from: '  record.write({ value: now, status: statusOf(now) });\n  note(record, "tried"',
        to: '  note(record, "tried"',
      },
      {
        file: RECORDS,
        from: "  if (proof?.isCounted === true && !isProven) return",
        to: "  if (proof?.isCounted === true && !isProven) record.write({ value: tried(value), status: statusOf(tried(value)) });\n  if (proof?.isCounted === true && !isProven) return",
      },
    ],
  },
  {
    name: "a wrong PIN consumes",
    caughtBy: actions.name,
    options: { calm: true },
    edits: [
      {
        file: RECORDS,
        from: "  if (proof === undefined || !isRightPin(pin, proof.hash)) return { value, isProven: false };",
        to: "  if (proof === undefined) return { value, isProven: isRightPin(pin, pin.hash) };",
      },
    ],
  },
  {
    name: "a claimer that lost its lease completes",
    caughtBy: actions.name,
    options: PAUSES,
    edits: [
      {
        file: RECORDS,
        from: "  if (mine !== undefined) return replayed(tx, ref, value, mine, deps);\n  if (!isHeldUnder(record, fence))",
        to: "  if (mine !== undefined) return replayed(tx, ref, value, mine, deps);\n  if (record.holder === null)",
      },
    ],
  },
  {
    name: "a live claim is given to another",
    caughtBy: actions.name,
    options: { calm: true, reorder: 0.5 },
    edits: [
      {
        file: DECIDE,
        from: "  if (leaseEndsAtMs === null || leaseEndsAtMs <= nowMs) return undefined;",
        to: "  if (leaseEndsAtMs === null || leaseEndsAtMs > 0) return undefined;",
      },
    ],
  },
  {
    name: "what is used up can be canceled",
    caughtBy: actions.name,
    options: { calm: true, reorder: 0.8 },
    edits: [
      {
        file: DECIDE,
        from: '  if (state === "consumed" || state === "expired") return refuseState(action, taking.nowMs);\n',
        to: "",
      },
    ],
  },
  {
    name: "an action that is there is made again",
    caughtBy: actions.name,
    options: LOSSES,
    edits: [
      {
        file: RECORDS,
        from: "  if (record.exists) {\n    if (!isSameRequest",
        to: "  if (record.head > 9) {\n    if (!isSameRequest",
      },
    ],
  },
];
