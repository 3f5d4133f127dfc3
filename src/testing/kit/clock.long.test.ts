// Goal: a test that would wait forever ends. It takes a hundred thousand timers to be sure.

import { expect, test } from "vitest";
import { workflow } from "../../index.ts";
import { openTest } from "./pawl.ts";

test("a wait that has no end is given up, with the runs in progress", async () => {
  await using pawl = openTest();
  const endless = workflow("endless", async (ctx) => {
    await ctx.step("hang", () =>
      pawl.clock.during(new Promise<void>(() => {})).catch(() => new Promise<void>(() => {})),
    );
  });
  pawl.work([endless]);
  const run = await pawl.start(endless, undefined, { id: "e" });
  await expect(run.result()).rejects.toThrow(
    'it did not happen within 100000 timers: run "e" is running; step "hang" has not ended',
  );
});
