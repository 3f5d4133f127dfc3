/**
 * Bugs that the PostgreSQL store could have, each with the scenario that must catch it. They are planted one at a time into the
 * real source; a bug that no schedule catches is a hole in the simulator on PostgreSQL.
 */

import type { SimulateOptions } from "../../src/testing/index.ts";
import type { Edit } from "../simulation/plant.ts";
import { mailbox } from "../simulation/scenarios/mailbox.ts";
import { registers } from "../simulation/scenarios/register.ts";
import { exclusion } from "./exclusion.ts";

export interface PostgresBug {
  readonly name: string;
  readonly caughtBy: string;
  /** Faults that the bug needs, so that few schedules are enough. */
  readonly options: SimulateOptions;
  readonly edits: readonly Edit[];
}

const COMMIT = "stores/postgres/commit.ts";
const MARKS = "stores/postgres/marks.ts";
const STORE = "stores/postgres/postgres.ts";
const ROWS = "stores/postgres/rows.ts";
const WRITE = "stores/postgres/write.ts";

export const postgresBugs: readonly PostgresBug[] = [
  {
    name: "a batch of an older epoch is written",
    caughtBy: registers.name,
    options: { lateRequest: 0.2, crash: 0 },
    edits: [
      { file: MARKS, from: "and epoch = $3::text::bigint returning at`", to: "and $3::text <> '' returning at`" },
    ],
  },
  {
    name: "settling does not end the epoch",
    caughtBy: registers.name,
    options: { lateRequest: 0.2, crash: 0 },
    edits: [{ file: MARKS, from: "set epoch = w.epoch + 1,", to: "set epoch = w.epoch," }],
  },
  {
    name: "the mark does not say which batch was written",
    caughtBy: registers.name,
    options: { lostReply: 0.1, crash: 0 },
    edits: [
      { file: MARKS, from: "set sequence = $4::text::bigint,", to: "set sequence = least(0, $4::text::bigint)," },
    ],
  },
  {
    name: "a connection that breaks while committing counts as a failure",
    caughtBy: registers.name,
    options: { lostReply: 0.1, crash: 0 },
    edits: [{ file: STORE, from: 'failure(error, progress.stage === "committing");', to: "failure(error, false);" }],
  },
  {
    name: "a known row is written although it moved",
    caughtBy: mailbox.name,
    // What it breaks never ends, so it is not waited for as long as usual.
    options: { calm: true, reorder: 0.9, faultsMs: 30_000, healMs: 60_000 },
    edits: [{ file: WRITE, from: " and r.version = v.was and r.stamp = v.was_stamp", to: "" }],
  },
  {
    name: "what is appended to a log is not written",
    caughtBy: mailbox.name,
    options: { calm: true },
    edits: [
      { file: WRITE, from: "(entries.length > 0 ? APPENDED : 0)", to: "(entries.length > 1000 ? APPENDED : 0)" },
      { file: WRITE, from: "if (entries.length > 0)", to: "if (entries.length > 1000)" },
    ],
  },
  {
    name: "absent keys are not guarded",
    caughtBy: exclusion.name,
    options: { calm: true, reorder: 0.9 },
    edits: [{ file: COMMIT, from: "({ placeholder }) => placeholder === null);", to: "() => false);" }],
  },
  {
    name: "rows are read without being locked",
    caughtBy: exclusion.name,
    options: { calm: true, reorder: 0.9 },
    edits: [{ file: ROWS, from: "for no key update $" + "{skip}\n", to: "\n" }],
  },
];
