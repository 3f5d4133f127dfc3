/** What the tests of retried runs share: code that fails at its end until it is mended, and is other code then. */

import { expect } from "vitest";
import { type Context, type Workflow, workflow } from "../../src/index.ts";
import { replayHistory, saveHistory, type TestPawl } from "../../src/testing/index.ts";

export type Code = (ctx: Context) => Promise<unknown>;

export let isMended = false;
/** What the first code returned. */
export let before: unknown;

export function mend(isDone = true): void {
  isMended = isDone;
}

/** Before each test of a file that uses this: files can share a process, where this one is loaded once. */
export function unmend(): void {
  isMended = false;
  before = undefined;
}

/** Code that fails at its end until it is mended, and is other code then. */
export const repaired = (first: Code, second: Code): Workflow<undefined, unknown> =>
  workflow("it", async (ctx) => {
    if (isMended) return second(ctx);
    before = await first(ctx);
    throw new TypeError("not mended");
  });

export async function failed(pawl: TestPawl, it: Workflow<undefined, unknown>, warm = 1000) {
  pawl.work([it], { warm });
  const run = await pawl.start(it, undefined, { id: "it" });
  await expect(run.result()).rejects.toMatchObject({ code: "run_failed" });
  isMended = true;
  return run;
}

/** Runs the first code, retries the run with the second one, and returns what that returned. */
export async function retried(pawl: TestPawl, first: Code, second: Code, warm = 1000): Promise<unknown> {
  const it = repaired(first, second);
  const run = await failed(pawl, it, warm);
  await run.retry();
  const value = await run.result();
  expect(await replayHistory(it, await saveHistory(pawl, run))).toEqual({ ok: true, status: "completed", value });
  return value;
}
