/** Bugs that forgetting a person could have, each caught by the simulated clerk. */

import type { Bug } from "./bugs.ts";
import { forgetting } from "./scenarios/forgetting.ts";

const FORGOTTEN = "stream/personal/forgotten.ts";
const SUBJECTS = "stream/personal/subjects.ts";
const RECORDS = "stream/records.ts";
const PROJECTIONS = "stream/projections/decide.ts";
const GENERATIONS = "stream/projections/generations.ts";
const PERSONAL = "stream/personal/decide.ts";

const caughtBy = forgetting.name;

export const forgettingBugs: readonly Bug[] = [
  {
    name: "folded states stay when a person is forgotten",
    caughtBy,
    edits: [
      {
        file: FORGOTTEN,
        from: "          if (record.exists) record.write({ value: withoutFolds(record.value as StreamValue) });\n",
        to: "",
      },
    ],
  },
  {
    name: "a state that was folded before a person was forgotten is used after it",
    caughtBy,
    edits: [
      { file: RECORDS, from: "caughtUp !== undefined && caughtUp.erased === erasedIn(record.value)", to: "true" },
      { file: RECORDS, from: "  if (fold.erased === erasedIn(record.value)) writeFold(", to: "  writeFold(" },
      { file: "stream/aggregates.ts", from: "before.erased === stored.erased && ", to: "" },
    ],
  },
  {
    name: "a personal event is appended although its person was forgotten",
    caughtBy,
    edits: [
      {
        file: SUBJECTS,
        from: '      case "forgotten":\n        throw new SubjectForgottenError(subject);\n      case "here":',
        to: '      case "forgotten":\n        return bytesFrom(() => tx.uuid(), KEY_BYTES);\n      case "here":',
      },
    ],
  },
  {
    name: "projections are not built again when a person is forgotten",
    caughtBy,
    edits: [{ file: FORGOTTEN, from: "    await refreshAll(this.#kernel);\n", to: "" }],
  },
  {
    name: "a person who is forgotten while a projection is built stays in it",
    caughtBy,
    edits: [
      {
        file: PROJECTIONS,
        from: '  return value.building === undefined ? "build" : "mark";',
        to: '  return value.building === undefined ? "build" : "nothing";',
      },
    ],
  },
  {
    name: "the rows of a generation that was replaced stay",
    caughtBy,
    edits: [
      { file: GENERATIONS, from: "    if (rows.length === 0) break;\n", to: "    if (rows.length >= 0) break;\n" },
    ],
  },
  {
    name: "a stream does not count that its folded states were dropped",
    caughtBy,
    edits: [{ file: PERSONAL, from: "erased: (personal?.erased ?? 0) + 1", to: "erased: personal?.erased ?? 0" }],
  },
];
