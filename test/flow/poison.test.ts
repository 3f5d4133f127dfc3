/**
 * Goal: a run whose keys cannot be computed is parked after its tries, counted at the claim, as one whose code is poison (G21), and still passes the
 * limits of its workflow when it is retried.
 * Method: claims of processes that died at the gate are written into the record, as they would have been; the worker then claims it.
 */

import { expect, test } from "vitest";
import { type Pawl, type RunEvent, signal, workflow } from "../../src/index.ts";
import { openTest } from "../../src/testing/index.ts";
import { runAt } from "../../src/workflow/stored.ts";
import { resultOf } from "../workflow/kit.ts";

const go = signal("go");

/** The run was claimed so often by processes that died. */
const claimed = (pawl: Pawl, id: string, tries: number): Promise<unknown> =>
  pawl.kernel.transact((tx) => tx.record(runAt(id)).write({ tries }), [runAt(id)]);

const limited = (key: (input: string) => string) =>
  workflow({ name: "job", tries: 3, concurrency: { max: 1, key } }, async (ctx, input: string) => {
    await ctx.waitForSignal(go);
    return input;
  });

test("a run that was claimed as often as it may be is parked, and its keys are not computed again", async () => {
  await using pawl = openTest();
  const calls: string[] = [];
  const run = await pawl.start("job", "poison", { id: "poison" });
  await claimed(pawl, "poison", 3);
  const events: RunEvent[] = [];
  const job = limited((input) => String(calls.push(input)));
  pawl.work([job], { on: (event) => void events.push(event) });
  const parked = await run.until("parked");
  expect(parked.parkedReason).toBe("it was claimed 4 times without getting anywhere");
  expect(calls).toEqual([]);
  expect(events.filter(({ type }) => type === "run.parked")).toMatchObject([{ workflow: "job", run: "poison" }]);
});

test("its last try is still one", async () => {
  await using pawl = openTest();
  const run = await pawl.start("job", "slow", { id: "slow" });
  await claimed(pawl, "slow", 2);
  pawl.work([limited((input) => input)]);
  await run.until("waiting");
});

test("a run that collects starts is parked too, and begins with all of them when it is retried", async () => {
  await using pawl = openTest();
  const job = workflow(
    { name: "job", tries: 3, batch: { size: 2, maxWait: "1 hour" } },
    async (_, list: readonly string[]) => [...list],
  );
  const run = await pawl.start(job, "a");
  await pawl.start(job, "b");
  await claimed(pawl, run.id, 3);
  pawl.work([job]);
  await run.until("parked");
  // The next start begins another run.
  expect((await pawl.start(job, "c")).id).not.toBe(run.id);
  await run.retry();
  expect(await resultOf(run)).toEqual(["a", "b"]);
});

for (const how of ["parked", "failed"] as const)
  test(`runs that were ${how} before they began pass the limit when they are retried`, async () => {
    await using pawl = openTest();
    const ids = ["a", "b"];
    for (const id of ids) {
      await pawl.start("job", id, { id });
      if (how === "parked") await claimed(pawl, id, 3);
    }
    const broken = limited(() => {
      throw new Error("no key");
    });
    const worker = pawl.work([broken]);
    const runs = ids.map((id) => pawl.run(id));
    for (const run of runs) await run.until(how);
    await worker.stop();
    pawl.work([limited(() => "one")]);
    for (const run of runs) await run.retry();
    const statuses = async () => (await Promise.all(runs.map((run) => run.status()))).map(({ status }) => status);
    await expect.poll(async () => (await statuses()).toSorted()).toEqual(["queued", "waiting"]);
    for (const run of runs) await run.signal(go);
    for (const run of runs) expect(await resultOf(run)).toBe(run.id);
  });
