/**
 * Goal: ticks that wait for a run start when it has ended, whatever started that run; ticks that are due together begin in order, or only the newest does; and
 * what no caller receives is logged.
 * Method: the simulated time of `openTest`.
 */

import { describe, expect, it } from "vitest";
import { open, schedule, signal, workflow } from "../../src/index.ts";
import { tickRunId } from "../../src/schedule/stored.ts";
import { openTest } from "../../src/testing/index.ts";

const START = Date.UTC(2030, 0, 1);
const HOUR = 3_600_000;
const go = signal("go");
const waiting = workflow("waiting", async (ctx) => void (await ctx.waitForSignal(go)));
const tick = (name: string, n: number): string => tickRunId(name, START + n * HOUR);

describe("a tick that waits", () => {
  it("starts after one whose run was started by a backfill", async () => {
    await using pawl = openTest({ now: START });
    pawl.work([waiting]);
    await pawl.schedules.create("s", { every: "1 hour", overlap: "queue", max: 3 }, waiting);
    await pawl.clock.advance("3 hours");
    await pawl.schedules.backfill("s", { from: START + 2 * HOUR, to: START + 2 * HOUR });
    const [first, second, third] = [1, 2, 3].map((n) => pawl.run(waiting, tick("s", n)));
    await first?.signal(go);
    await first?.result();
    await second?.signal(go);
    await second?.result();
    await pawl.clock.advance("1s");
    expect(await third?.status()).toMatchObject({ status: "waiting" });
    expect(await pawl.schedules.get("s")).toMatchObject({ fired: 2, skipped: 1, queued: [] });
    await third?.signal(go);
  });

  it("starts after a run that was started while ticks did not wait", async () => {
    await using pawl = openTest({ now: START });
    pawl.work([waiting]);
    await pawl.schedules.create("s", { every: "1 hour", overlap: "skip", max: 2 }, waiting);
    await pawl.clock.advance("1 hour");
    await pawl.schedules.update("s", { overlap: "queue" });
    await pawl.clock.advance("1 hour");
    expect(await pawl.schedules.get("s")).toMatchObject({ fired: 1, queued: [new Date(START + 2 * HOUR)] });
    const first = pawl.run(waiting, tick("s", 1));
    await first.signal(go);
    await first.result();
    await pawl.clock.advance("1s");
    const second = pawl.run(waiting, tick("s", 2));
    expect(await second.status()).toMatchObject({ status: "waiting" });
    await second.signal(go);
  });
});

describe("ticks that are made up for together", () => {
  const begunAfter = async (options: { overlap?: "skip" | "allow" | "cancel-running" }): Promise<readonly number[]> => {
    await using pawl = openTest({ now: START });
    const begun: number[] = [];
    const job = workflow({ name: "job", concurrency: { max: 1 } }, async (ctx) => {
      await ctx.step("begin", () => void begun.push((ctx.scheduledAt.getTime() - START) / HOUR));
      await ctx.sleep("1 minute");
    });
    await pawl.schedules.create("s", { every: "1 hour", catchUp: 5, ...options }, job);
    await pawl.clock.advance("10 hours");
    await pawl.clock.advance("10 minutes");
    pawl.work([job]);
    await pawl.clock.advance("20 minutes");
    return begun;
  };

  it("begin in the order of their ticks", async () => {
    expect(await begunAfter({ overlap: "allow" })).toEqual([6, 7, 8, 9, 10]);
  });

  it("are only the newest, where runs do not overlap", async () => {
    expect(await begunAfter({})).toEqual([10]);
    expect(await begunAfter({ overlap: "cancel-running" })).toEqual([10]);
  });
});

it("with a delay that is longer than the interval, no tick is missed", async () => {
  await using pawl = openTest({ now: START });
  const brief = workflow("brief", async () => {});
  pawl.work([brief]);
  await pawl.schedules.create("s", { every: "1 minute", jitter: "5 minutes", overlap: "allow" }, brief);
  await pawl.clock.advance("3 hours");
  const { fired, missed } = (await pawl.schedules.get("s")) ?? {};
  expect(missed).toBe(0);
  expect(fired).toBeGreaterThan(170);
});

it("a tick that cannot start its run is logged, for declared schedules and for others", async () => {
  const lines: string[] = [];
  const logger = { warn: (line: string) => void lines.push(line), error: (line: string) => void lines.push(line) };
  await using pawl = await open("memory:", { logger });
  const job = workflow("job", async (_ctx, _input: { readonly n: number }) => {});
  const input = (): { readonly n: number } => {
    throw new Error("no number today");
  };
  const nightly = schedule("nightly", { every: "1s", max: 1 }, job, input);
  const worker = pawl.work([job, nightly]);
  await worker.ready;
  expect(await pawl.schedules.get("nightly")).toMatchObject({ state: "active" });
  await expect
    .poll(() => lines.join("\n"), { timeout: 30_000 })
    .toMatch(/schedule "nightly" could not start .*no number today/);
});
