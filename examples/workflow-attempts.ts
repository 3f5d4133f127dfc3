// biome-ignore-all lint/style/noRestrictedImports: the step of the example takes real time.

// An import that is interrupted: the second attempt resumes where the first one stopped. What the first attempt left behind, here a
// timer that calls heartbeat(), has no effect any more, and is reported.

import { setTimeout as pause } from "node:timers/promises";
import { open, workflow } from "pawl";

const rows = ["a", "b", "c", "d"];

const load = workflow("load", (ctx) =>
  ctx.step(
    "import",
    async ({ attempt, progress = 0, heartbeat, abortSignal }) => {
      console.log(`attempt ${attempt} begins at row ${progress}`);
      for (let row = Number(progress); row < rows.length; row += 1) {
        if (attempt === 1 && row === 2) {
          void pause(20).then(() => heartbeat(3));
          throw new Error("connection lost");
        }
        heartbeat(row + 1);
        await pause(1, undefined, { signal: abortSignal });
      }
      return rows.length;
    },
    { timeout: "1 minute", totalTimeout: "10 minutes", heartbeat: "10s", retry: { delay: "50ms", jitter: 0 } },
  ),
);

await using pawl = await open("rows.db");
pawl.work([load], { on: (event) => event.type === "run.warning" && console.log(event.message) });
console.log("rows:", await (await pawl.start(load)).result());

// Output:
// attempt 1 begins at row 0
// heartbeat() was called after attempt 1 of step "import" was over: it has no effect
// attempt 2 begins at row 2
// rows: 4
