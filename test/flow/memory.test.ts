/**
 * Goal: a run that waits in line leaves nothing in the memory of the process that started it.
 */

import { expect, it } from "vitest";
import { open, workflow } from "../../src/index.ts";
import { runAt } from "../../src/workflow/stored.ts";

it("the row of a run that is queued is not kept by the process that started it, though it has room to work on it", async () => {
  await using pawl = await open("memory:");
  const { promise: isLetThrough, resolve } = Promise.withResolvers<void>();
  const exporting = workflow({ name: "export", concurrency: { max: 1 } }, async (ctx) => {
    await ctx.step("export", () => isLetThrough);
  });
  pawl.work([exporting]);
  const first = await pawl.start(exporting);
  const second = await pawl.start(exporting);
  expect(await second.status()).toMatchObject({ status: "queued" });
  expect(pawl.kernel.held(runAt(first.id))).toBeDefined();
  expect(pawl.kernel.held(runAt(second.id))).toBeUndefined();
  resolve();
  await Promise.all([first.result(), second.result()]);
});
