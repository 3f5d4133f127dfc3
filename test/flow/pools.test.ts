/**
 * Goal: a worker takes the runs of its pools and no others, however they are started; runs of a pool that no worker takes keep no other waiting, and are
 * taken when one comes.
 * Method: two processes on each store that take different pools; runs note which of them executes them.
 */

import { expect, test } from "vitest";
import { type Pawl, type Run, signal, type WorkflowOptions, workflow } from "../../src/index.ts";
import { codeOf } from "../kernel/kit.ts";
import { EVERY, endLease, onStores, PATIENCE, reaches, resultOf } from "../workflow/kit.ts";
import { wrongPlaces } from "./checker.ts";

const go = signal("go");

interface Video {
  readonly region: string;
  readonly waits?: boolean;
}

const POOLS = { key: ({ region }: Video) => region, names: ["eu", "us", "asia"] };

/** The workflow as a process has it, which names itself as the result. */
const convertIn = (by: string, options: Partial<WorkflowOptions<Video, string>> = {}) =>
  workflow<Video, string>({ name: "convert", pools: POOLS, ...options }, async (ctx, { waits }) => {
    const first = await ctx.step("first", () => by);
    if (waits === true) await ctx.waitForSignal(go);
    return `${first} ${await ctx.step("last", () => by)}`;
  });

onStores(EVERY, (place) => {
  const two = async (options: Partial<WorkflowOptions<Video, string>> = {}): Promise<readonly [Pawl, Pawl]> => {
    const [eu, us] = [await place.open(), await place.open()];
    eu.work([convertIn("eu", options)], { pools: { convert: ["eu"] } });
    us.work([convertIn("us", options)], { pools: { convert: ["us"] } });
    return [eu, us];
  };

  test("runs are taken by the workers of their pool, however they are started", async () => {
    const [eu, us] = await two();
    const other = await place.open();
    const convert = convertIn("nobody");
    const parent = workflow("parent", async (ctx, region: string) => ctx.call(convert, { region }));
    us.work([parent]);
    for (const region of ["eu", "us"]) {
      const runs: readonly Run<unknown>[] = [
        await eu.start(convert, { region }),
        await us.start(convert, { region }, { delay: 5 }),
        await other.start(convert, { region }),
        await other.start("convert", { region }),
        await other.start("convert", { region }, { delay: 5 }),
        await us.transact((tx) => tx.start(convert, { region })).then((id) => us.run(id)),
        await us.start(parent, region),
      ];
      for (const run of runs) expect(await resultOf(run)).toBe(`${region} ${region}`);
    }
    expect((await other.runs.list({ workflow: "convert" })).runs).toHaveLength(14);
    expect((await other.runs.list({ workflow: convert })).runs).toHaveLength(14);
  });

  test("runs of a pool that no worker takes wait, are listed, and keep no others waiting", async () => {
    const [eu] = await two();
    const asian: Run<string>[] = [];
    const convert = convertIn("nobody");
    for (let n = 0; n < 30; n++) asian.push(await eu.start(convert, { region: "asia" }));
    expect(await resultOf(await eu.start(convert, { region: "eu" }))).toBe("eu eu");
    const { runs } = await eu.runs.list({ workflow: "convert", status: "pending" });
    expect(runs).toHaveLength(30);
    // One that says nothing takes all.
    const all = await place.open();
    all.work([convertIn("all")]);
    for (const run of asian) expect(await resultOf(run)).toBe("all all");
  });

  test("a run stays in its pool when it has begun: after a wait, a crash, a retry, and in line", async () => {
    const [eu, us] = await two({ concurrency: { max: 1 } });
    const convert = convertIn("nobody", { concurrency: { max: 1 } });
    const first = await us.start(convert, { region: "eu", waits: true });
    const second = await us.start(convert, { region: "us", waits: true });
    const third = await us.start("convert", { region: "eu" });
    await reaches(first, "waiting");
    await first.signal(go);
    expect(await resultOf(first)).toBe("eu eu");
    await reaches(second, "waiting");
    await endLease(eu, second.id);
    await second.signal(go);
    expect(await resultOf(second)).toBe("us us");
    expect(await resultOf(third)).toBe("eu eu");
    await expect.poll(() => wrongPlaces(eu.kernel), PATIENCE).toEqual([]);
  });

  test("the pools of a workflow share what a worker takes of it", async () => {
    const pawl = await place.open();
    let now = 0;
    let most = 0;
    const convert = workflow<Video>({ name: "convert", pools: POOLS }, async (ctx) => {
      await ctx.step("count", async () => {
        now += 1;
        most = Math.max(most, now);
        await new Promise((resolve) => setTimeout(resolve, 2));
        now -= 1;
      });
    });
    const runs = [];
    for (let n = 0; n < 12; n++) runs.push(await pawl.start(convert, { region: POOLS.names[n % 3] ?? "" }));
    pawl.work([convert], { perWorkflow: { convert: 2 } });
    for (const run of runs) await resultOf(run);
    expect(most).toBe(2);
  });

  test("a worker that died is replaced by one of its pool", async () => {
    const dying = await place.openHandle();
    const us = await place.open();
    us.work([convertIn("us")], { pools: { convert: ["us"] } });
    dying.pawl.work([convertIn("dead")], { pools: { convert: ["eu"] } });
    const run = await us.start(convertIn("nobody"), { region: "eu", waits: true });
    await reaches(run, "waiting");
    dying.die();
    await run.signal(go);
    // It is due, and the worker that is there takes others.
    expect(await resultOf(await us.start(convertIn("nobody"), { region: "us" }))).toBe("us us");
    expect((await run.status()).status).toBe("waiting");
    const eu = await place.open();
    eu.work([convertIn("eu")], { pools: { convert: ["eu"] } });
    expect(await resultOf(run)).toBe("dead eu");
  });
});

test("pools that are wrong are refused", async () => {
  const { open } = await import("../../src/index.ts");
  await using pawl = await open("memory:");
  const convert = convertIn("one");
  const work = (pools: unknown) => codeOf((async () => pawl.work([convert], { pools: pools as never }))());
  expect(await work({ other: ["eu"] })).toBe("invalid_argument");
  expect(await work({ convert: ["mars"] })).toBe("invalid_argument");
  expect(await work({ convert: "eu" })).toBe("invalid_argument");
  expect(await work([["eu"]])).toBe("invalid_argument");
  expect(await codeOf(pawl.start(convert, { region: "mars" }))).toBe("invalid_argument");
  const make = (pools: unknown) => codeOf((async () => convertIn("one", { pools: pools as never }))());
  expect(await make({ key: () => "a", names: [] })).toBe("invalid_argument");
  expect(await make({ key: () => "a", names: ["a/b"] })).toBe("invalid_argument");
  expect(await make({ key: "a", names: ["a"] })).toBe("invalid_argument");
});
