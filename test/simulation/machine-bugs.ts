/** Bugs that machines like these could have, each caught by the simulated machines. */

import type { Bug } from "./bugs.ts";
import { machines } from "./scenarios/machines.ts";

const DECIDE = "machine/decide.ts";
const MACHINE = "machine/machine.ts";
const RECORDS = "machine/records.ts";

export const machineBugs: readonly Bug[] = [
  {
    name: "a move is made that the definition does not have",
    caughtBy: machines.name,
    edits: [
      {
        file: DECIDE,
        from: "  if (!allowed.includes(to)) {\n",
        to: "  if (!allowed.includes(to) && attempt.mayPark) {\n",
      },
    ],
  },
  {
    name: "a refused attempt is not in the log",
    caughtBy: machines.name,
    edits: [
      {
        file: RECORDS,
        from: "  if (result.ok || isRecorded)",
        to: "  if (result.ok)",
      },
    ],
  },
  {
    name: "what a decision refused and threw is written all the same",
    caughtBy: machines.name,
    edits: [
      {
        file: MACHINE,
        from: "    return movedOrThrow(this.#rules, id, transition<State, Data>(this.#kernel, this.#tx, this.#rules, request, false));",
        to: "    return transition<State, Data>(this.#kernel, this.#tx, this.#rules, request, true) as never;",
      },
    ],
  },
  {
    name: "the id of an event is not remembered",
    caughtBy: machines.name,
    edits: [
      {
        file: RECORDS,
        from: "  if (!result.deduplicated) event?.write(",
        to: "  if (result.deduplicated) event?.write(",
      },
    ],
  },
  {
    name: "the id of a parked event that was refused in the end stays taken",
    caughtBy: machines.name,
    edits: [
      { file: RECORDS, from: "if (one.event !== undefined) tx.record(", to: "if (one.event === null) tx.record(" },
    ],
  },
  {
    name: "a parked event that has become legal waits for the next move",
    caughtBy: machines.name,
    edits: [
      {
        file: DECIDE,
        from: "    if (event === undefined) break;\n",
        to: "    if (event === undefined || applied.length > 0) break;\n",
      },
    ],
  },
  {
    name: "of parked events the last to come goes first",
    caughtBy: machines.name,
    edits: [{ file: DECIDE, from: "    const event = parked.find(", to: "    const event = parked.findLast(" }],
  },
  {
    name: "a parked event that can never come is kept",
    caughtBy: machines.name,
    edits: [
      {
        file: DECIDE,
        from: "    if (!canReach(rules, instance.state, event.to)) drop(",
        to: "    if (event === null) drop(",
      },
    ],
  },
  {
    name: "a patch takes the rest of the data away",
    caughtBy: machines.name,
    edits: [{ file: DECIDE, from: "  return { ...data, ...change.patch };", to: "  return { ...change.patch };" }],
  },
  {
    name: "more events are parked than may be",
    caughtBy: machines.name,
    edits: [{ file: DECIDE, from: "now.parked.length >= rules.maxParked", to: "now.parked.length > rules.maxParked" }],
  },
  {
    name: "a guard is not asked when a parked event has its turn",
    caughtBy: machines.name,
    edits: [
      {
        file: DECIDE,
        from: '    return verdict === true ? { next } : { code: "guard_refused", why: verdict };',
        to: '    return verdict === null ? { code: "guard_refused", why: verdict } : { next };',
      },
    ],
  },
];
