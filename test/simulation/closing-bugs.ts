/** Bugs that the closing of streams could have, each caught by the simulated closings. */

import type { Bug } from "./bugs.ts";
import { closings } from "./scenarios/closing.ts";

const APPLYING = "stream/policies/applying.ts";
const CLOSE = "stream/closing/close.ts";
const DECIDE = "stream/closing/decide.ts";
const NEEDS = "stream/closing/needs.ts";
const POLICY = "stream/policies/decide.ts";
const RECORDS = "stream/records.ts";

const caughtBy = closings.name;

export const closingBugs: readonly Bug[] = [
  {
    name: "an append does not look whether the stream is closed",
    caughtBy,
    edits: [{ file: RECORDS, from: "  if (record.status === CLOSED)", to: "  if (record.head < 0)" }],
  },
  {
    name: "two calls that restart a stream both do",
    caughtBy,
    edits: [
      {
        file: CLOSE,
        from: "    if (closed?.version !== tombstone) return;\n    const { version, archived = 0 } = closed;",
        to: "    const { version, archived = 0 } = closed ?? { version: tombstone };",
      },
    ],
  },
  {
    name: "events are removed that a reaction has not routed",
    caughtBy,
    edits: [{ file: NEEDS, from: "add(reaction, 1);", to: "add(reaction, 0);" }],
  },
  {
    name: "events are removed that a target has not handled",
    caughtBy,
    edits: [
      {
        file: NEEDS,
        from: "add(router.name, await unhandled(kernel, router, at.key, upTo));",
        to: "add(router.name, 0 * (await unhandled(kernel, router, at.key, upTo)));",
      },
    ],
  },
  {
    name: "only the last event is archived",
    caughtBy,
    edits: [
      {
        file: DECIDE,
        from: "from: firstVersionOf(value), to: version - 1 };",
        to: "from: version - 1, to: version - 1 };",
      },
    ],
  },
  {
    name: "events are removed before it is said that they may be",
    caughtBy,
    edits: [
      { file: DECIDE, from: "    firstVersion: Math.max(before, firstVersion),\n", to: "    firstVersion: before,\n" },
    ],
  },
  {
    name: "a tombstone moves all states to it",
    caughtBy,
    edits: [{ file: DECIDE, from: "(fold.version === version - 1 && ", to: "(fold.version > 0 && " }],
  },
  {
    name: "a policy closes a stream whatever was appended since it was looked at",
    caughtBy,
    edits: [{ file: APPLYING, from: "{ ...where, expectedVersion: head, reason", to: "{ ...where, reason" }],
  },
  {
    name: "a policy does not end what a dead worker began",
    caughtBy,
    edits: [{ file: POLICY, from: "closedAt === taken.head + 1", to: "closedAt === -1" }],
  },
];
