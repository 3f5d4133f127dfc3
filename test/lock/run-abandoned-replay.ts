/**
 * Runs `abandoned-replay.ts` on sources without the guards against it: `node run-abandoned-replay.ts`. Prints what happened each time, as one
 * line of JSON.
 */

import { type Edit, plant } from "../simulation/plant.ts";

const EXECUTION = "workflow/execution/execution.ts";
const HELD_RUN = "workflow/execution/held-run.ts";

/** What keeps an execution that was abandoned during its replay from committing. Any one of them is enough. */
const guards: readonly Edit[] = [
  // After the replay: it is not treated as one that has seen the whole history.
  { file: EXECUTION, from: "        if (this.#isOver()) return await this.#ending.promise;\n", to: "" },
  { file: EXECUTION, from: "        run.checkReplayed();\n", to: "" },
  // Its phase is over, so it does nothing more.
  { file: EXECUTION, from: '    if (this.#phase !== "replaying") return;\n', to: '    this.#phase = "replaying";\n' },
  // Where it acquires lost locks again: nothing is appended unless the code has seen all that comes before.
  {
    file: HELD_RUN,
    from: "    if (head !== this.coroutine.head) throw",
    to: "    if (head < this.coroutine.head) throw",
  },
];

plant(guards);
const { runAbandoned } = await import("./abandoned-replay.ts");
// A read that fails ends the replay with an error, which needs no guard.
for (const way of ["its lease ended", "its worker was stopped"] as const)
  for (const isTaken of [false, true])
    console.log(JSON.stringify({ way, isTaken, ...(await runAbandoned(way, isTaken)) }));
// The processes do not end by themselves.
process.exit();
