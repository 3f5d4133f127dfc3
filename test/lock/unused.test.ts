/**
 * Goal: locks that are not used are removed, also in applications without workers, and the permits of a semaphore no sooner than after 30 days.
 * Method: the simulated time of `openTest`; the records are counted in the store.
 */

import { expect, test } from "vitest";
import { type Pawl, workflow } from "../../src/index.ts";
import { openTest } from "../../src/testing/index.ts";
import { codeOf } from "../kernel/kit.ts";

const idle = workflow("idle", async () => {});

/** The names of locks that have a record. */
async function locksOf(pawl: Pawl, kind: "mutex" | "rwlock" | "semaphore"): Promise<string[]> {
  const rows = await pawl.kernel.list({ space: `lock/${kind}`, prefix: "", after: null, limit: 10_000 });
  return rows.map(({ key }) => key);
}

test("a semaphore that is not used for 30 days is removed with its permits; one that is used now and then stays", async () => {
  const pawl = openTest();
  pawl.work([idle]);
  const fences: number[] = [];
  const use = async (name: string, permits?: number): Promise<void> => {
    const hold = await pawl.semaphore(name, permits === undefined ? {} : { permits }).acquire();
    if (name === "rare") fences.push(hold.fence);
    await hold.release();
  };
  await use("rare", 2);
  await use("busy", 3);
  for (let day = 1; day <= 120; day++) {
    await pawl.clock.advance("1 day");
    if (day % 25 === 0) await use("busy");
    if (day === 29) await use("rare");
    if (day === 58) expect((await pawl.semaphore("rare").inspect()).permits).toBe(2);
  }
  expect(await locksOf(pawl, "semaphore")).toEqual(["busy"]);
  expect(await codeOf(pawl.semaphore("rare").acquire())).toBe("permits_undeclared");
  await use("busy");
  await use("rare", 1);
  await use("rare");
  expect((await pawl.semaphore("rare").inspect()).permits).toBe(1);
  // Fences rise throughout.
  expect(fences).toHaveLength(4);
  expect(fences).toEqual([...new Set(fences)].sort((a, b) => a - b));
  await pawl.close();
});

test("a semaphore that is held, or whose permits were changed, stays", async () => {
  const pawl = openTest();
  const holder = workflow("holder", async (ctx) => {
    await ctx.semaphore("held", { permits: 1 }).with(async () => {
      await ctx.sleep("200 days");
    });
  });
  pawl.work([holder]);
  await (await pawl.start(holder)).until("waiting");
  for (const permits of [1, 2]) await pawl.semaphore("changed", { permits }).with(() => {});
  for (let day = 0; day < 100; day++) await pawl.clock.advance("1 day");
  expect(await locksOf(pawl, "semaphore")).toEqual(["changed", "held"]);
  expect(await pawl.semaphore("held").tryAcquire()).toMatchObject({ ok: false });
  expect(await pawl.semaphore("changed").history()).toHaveLength(1);
  await pawl.close();
});

test("without workers, processes that create locks remove those that are not used", async () => {
  const pawl = openTest();
  let most = 0;
  for (let hour = 0; hour < 100; hour++) {
    const names = Array.from({ length: 20 }, (_, i) => `${hour}-${i}`);
    await Promise.all(names.map((name) => pawl.lock(name, () => {})));
    await Promise.all(names.map((name) => pawl.rwlock(name).read.with(() => {})));
    await pawl.clock.advance("1 hour");
    if (hour % 10 > 0) continue;
    const [mutexes, rwlocks] = [await locksOf(pawl, "mutex"), await locksOf(pawl, "rwlock")];
    most = Math.max(most, mutexes.length + rwlocks.length);
  }
  // 4000 were created. A sweep comes after 256 of them on average.
  expect(most).toBeLessThan(2500);
  await pawl.close();
});
