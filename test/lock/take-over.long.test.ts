/** The take-over of a run that holds a thousand locks, beside those of take-over.test.ts (G6, G7). */

import { expect, test } from "vitest";
import { workflow } from "../../src/index.ts";
import { gate } from "../kernel/kit.ts";
import { Processes } from "./kit.ts";

test("a take-over of a run that holds more locks than one commit can touch gives all of them new fences, and so does a retry", {
  timeout: 120_000,
}, async () => {
  const processes = new Processes();
  const [ann, bob] = [processes.process(), processes.process()];
  const fences: number[][] = [];
  let isBroken = true;
  // A thousand facts take as many turns of the event loop.
  const reaches = async (isThere: () => boolean | Promise<boolean>): Promise<void> => {
    for (let turn = 0; turn < 2_000 && !(await isThere()); turn++) await processes.advance(100);
  };
  const hasEnded = async (status: string) => (await bob.pawl.run("many", "one").status()).status === status;
  const { opened } = gate();
  let isUsed = false;
  const many = (meanwhile: () => Promise<unknown>) =>
    workflow("many", async (ctx) => {
      const locks = Array.from({ length: 1_030 }, (_, n) => ctx.mutex(`m${n}`).acquire());
      const held = await Promise.all(locks);
      await ctx.step("use", meanwhile);
      fences.push(held.map(({ fence }) => fence));
      if (isBroken) throw new TypeError("broken");
    });
  const use = (): Promise<void> => {
    isUsed = true;
    return opened;
  };
  ann.pawl.work([many(use)]);
  await ann.pawl.start("many", undefined, { id: "one" });
  await reaches(() => isUsed);
  const first = (await bob.pawl.mutex("m1029").inspect()).holders[0]?.fence ?? 0;
  ann.die();
  bob.pawl.work([many(async () => {})]);
  await reaches(() => hasEnded("failed"));
  expect(fences).toHaveLength(1);
  expect(Math.min(...(fences[0] ?? []))).toBeGreaterThan(first);
  isBroken = false;
  await bob.pawl.run("many", "one").retry();
  await reaches(() => hasEnded("completed"));
  expect(Math.min(...(fences.at(-1) ?? []))).toBeGreaterThan(Math.max(...(fences[0] ?? [])));
  expect((await bob.pawl.mutex("m1029").inspect()).holders).toEqual([]);
});
