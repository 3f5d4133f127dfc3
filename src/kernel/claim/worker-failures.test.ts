/**
 * Goal: a worker tries again what failed, later each time, and work that keeps failing harms no other.
 * Method: workers on a memory database with a clock that is moved by hand; a peer stands for another process.
 */

import { describe, expect, test } from "vitest";
import { done, job, make, rowOf, workOn } from "../../../test/kernel/jobs.ts";
import { bench, drained, gate, storeError } from "../../../test/kernel/kit.ts";
import { address } from "../contract.ts";

describe("work that fails", () => {
  test("is tried again, later each time, and reported each time", async () => {
    const on = bench();
    await make(on.kernel, job, on.clock.wallMs());
    const startedMs = on.clock.nowMs();
    const triedAtMs: number[] = [];
    const tries: number[] = [];
    const { worker, failures } = workOn(on, {
      work: async (held) => {
        triedAtMs.push(on.clock.nowMs() - startedMs);
        tries.push(held.tries);
        throw new RangeError("no luck");
      },
    });
    await on.clock.advance(200_000);
    const delays = triedAtMs.slice(1).map((ms, i) => ms - (triedAtMs[i] ?? 0));
    expect(delays.slice(0, 11)).toEqual([100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 51_200, 60_000]);
    expect(tries.slice(0, 4)).toEqual([1, 2, 3, 4]);
    expect(failures.length).toBe(triedAtMs.length);
    expect(failures[0]).toBeInstanceOf(RangeError);
    expect(await rowOf(on.kernel, job)).toMatchObject({ holder: null });
    await worker.stop();
  });

  test("and then succeeds starts from the first try next time", async () => {
    const on = bench();
    await make(on.kernel, job, on.clock.wallMs());
    const tries: number[] = [];
    const { worker } = workOn(on, {
      work: async (held) => {
        tries.push(held.tries);
        if (tries.length < 3) throw new Error("no luck");
        await held.rest((tx) => tx.nowMs + 1_000);
      },
    });
    await on.clock.advance(2_500);
    expect(tries).toEqual([1, 2, 3, 1, 1]);
    await worker.stop();
  });

  test("does not keep others from being worked on", async () => {
    const on = bench();
    await make(on.kernel, address("job", "bad"), on.clock.wallMs() - 1);
    await make(on.kernel, job, on.clock.wallMs());
    const { worker } = workOn(on, {
      concurrency: 1,
      work: async (held) => {
        if (held.at.key === "bad") throw new Error("always");
        await done(held);
      },
    });
    await on.clock.advance(50);
    expect(await rowOf(on.kernel, job)).toMatchObject({ value: "1" });
    await worker.stop();
  });

  test("by ending without giving the record back leaves it to the end of the lease", async () => {
    const on = bench();
    await make(on.kernel, job, on.clock.wallMs());
    const tries: number[] = [];
    const { worker } = workOn(on, {
      work: async (held) => {
        tries.push(held.tries);
      },
    });
    await on.clock.advance(2_999);
    expect(tries).toEqual([1]);
    await on.clock.advance(1);
    expect(tries).toEqual([1, 2]);
    await worker.stop();
  });

  test.each([
    [2, 16],
    [3, 4],
    [4, 1],
    [9, 1],
  ])("%i times makes it a suspect: of such, %i are taken at a time", async (tries, most) => {
    const on = bench();
    for (let i = 0; i < 20; i++) {
      const at = address("job", `j${i}`);
      await make(on.kernel, at, on.clock.wallMs());
      await on.kernel.transact((tx) => tx.record(at).write({ tries }), [at]);
    }
    const ends: (() => void)[] = [];
    const { worker, worked } = workOn(on, {
      leaseMs: 60_000,
      concurrency: 30,
      work: async (held) => {
        await new Promise<void>((resolve) => ends.push(resolve));
        await done(held);
      },
    });
    for (let i = 0; i < 10; i++) await drained();
    expect(worked.length).toBe(most);
    // Those that lasted make room for the next.
    await on.clock.advance(3_000);
    for (let i = 0; i < 10; i++) await drained();
    expect(worked.length).toBe(Math.min(20, 2 * most));
    const stopped = worker.stop();
    for (const end of ends) end();
    await on.clock.finish(stopped);
  });

  test.each([
    { maxTries: 1, tries: 0, most: 20 },
    { maxTries: 2, tries: 0, most: 20 },
    { maxTries: 2, tries: 1, most: 1 },
    { maxTries: 3, tries: 1, most: 20 },
    { maxTries: 3, tries: 2, most: 1 },
    { maxTries: 4, tries: 2, most: 16 },
    { maxTries: 4, tries: 3, most: 1 },
    { maxTries: 5, tries: 3, most: 4 },
    { maxTries: 5, tries: 4, most: 1 },
  ])("$tries times of $maxTries: the last try is alone ($most at a time)", async ({ maxTries, tries, most }) => {
    const on = bench();
    for (let i = 0; i < 20; i++) {
      const at = address("job", `j${i}`);
      await make(on.kernel, at, on.clock.wallMs());
      await on.kernel.transact((tx) => tx.record(at).write({ tries }), [at]);
    }
    const end = gate();
    const { worker, worked } = workOn(on, {
      leaseMs: 60_000,
      concurrency: 30,
      maxTries: () => maxTries,
      work: async (held) => {
        await end.opened;
        await done(held);
      },
    });
    for (let i = 0; i < 10; i++) await drained();
    expect(worked.length).toBe(most);
    const stopped = worker.stop();
    end.open();
    await on.clock.finish(stopped);
  });

  test("the last try shares its process with none that was tried before", async () => {
    const on = bench();
    const tried = { last: 2, again: 1, fresh: 0, later: 1 };
    const due = async (name: keyof typeof tried) => {
      const at = address("job", name);
      await make(on.kernel, at, on.clock.wallMs());
      await on.kernel.transact((tx) => tx.record(at).write({ tries: tried[name] }), [at]);
    };
    for (const name of ["last", "again", "fresh"] as const) await due(name);
    const ends: (() => void)[] = [];
    const { worker, worked } = workOn(on, {
      leaseMs: 60_000,
      maxTries: () => 3,
      work: async (held) => {
        await new Promise<void>((resolve) => ends.push(resolve));
        await done(held);
      },
    });
    for (let i = 0; i < 10; i++) await drained();
    expect(new Set(worked)).toEqual(new Set(["again", "fresh"]));
    await on.clock.advance(3_000);
    for (let i = 0; i < 10; i++) await drained();
    expect(worked).toContain("last");
    await due("later");
    for (let i = 0; i < 10; i++) await drained();
    expect(worked).not.toContain("later");
    await on.clock.advance(3_000);
    for (let i = 0; i < 10; i++) await drained();
    expect(worked).toContain("later");
    const stopped = worker.stop();
    for (const end of ends) end();
    await on.clock.finish(stopped);
  });

  test("again and again makes it a suspect: in the end such are taken one at a time, beside those that are not", async () => {
    const on = bench();
    const names = ["one", "two", "three", "good"].map((name) => address("job", name));
    for (const at of names) {
      await make(on.kernel, at, on.clock.wallMs());
      if (at.key !== "good") await on.kernel.transact((tx) => tx.record(at).write({ tries: 4 }), [at]);
    }
    const ends: (() => void)[] = [];
    const { worker, worked } = workOn(on, {
      leaseMs: 60_000,
      work: async (held) => {
        await new Promise<void>((resolve) => ends.push(resolve));
        await done(held);
      },
    });
    await drained();
    expect(worked.length).toBe(2);
    expect(worked).toContain("good");
    // One that ends, and one that lasts, make room for the next.
    ends.at(-1)?.();
    await on.clock.advance(10);
    expect(worked.length).toBe(3);
    await on.clock.advance(2_980);
    expect(worked.length).toBe(3);
    await on.clock.advance(20);
    expect(worked.length).toBe(4);
    for (const end of ends) end();
    await on.clock.finish(worker.stop());
  });

  test("suspects that are due, however many, do not keep others behind them from being taken", async () => {
    const on = bench();
    for (let i = 0; i < 60; i++) {
      const at = address("job", `s${i}`);
      await make(on.kernel, at, on.clock.wallMs() - 1000);
      await on.kernel.transact((tx) => tx.record(at).write({ tries: 4 }), [at]);
    }
    for (let i = 0; i < 5; i++) await make(on.kernel, address("job", `good${i}`), on.clock.wallMs());
    const end = gate();
    const { worker, worked } = workOn(on, {
      leaseMs: 60_000,
      concurrency: 4,
      work: async (held) => {
        if (held.at.key.startsWith("s")) await end.opened;
        await done(held);
      },
    });
    for (let i = 0; i < 100; i++) await on.clock.advance(10);
    expect(worked.filter((key) => key.startsWith("good")).length).toBe(5);
    expect(worked.filter((key) => key.startsWith("s")).length).toBe(1);
    const stopped = worker.stop();
    end.open();
    await on.clock.finish(stopped);
  });

  test("may have removed its record: there is nothing to put back", async () => {
    const on = bench();
    await make(on.kernel, job, on.clock.wallMs());
    const { worker, failures } = workOn(on, {
      work: async (held) => {
        await held.commit((record) => record.remove());
      },
    });
    await on.clock.advance(20_000);
    expect(failures).toEqual([]);
    expect(await rowOf(on.kernel, job)).toMatchObject({ value: null });
    await worker.stop();
  });

  test("a store that cannot be claimed from is reported and asked again", async () => {
    const on = bench();
    await make(on.kernel, job, on.clock.wallMs());
    on.store.commits.push(async () => {
      throw storeError("store_full", "fail");
    });
    const { worker, failures } = workOn(on, { pollMs: 5_000 });
    await on.clock.advance(5_000);
    expect(failures).toMatchObject([{ code: "store_full" }]);
    expect(await rowOf(on.kernel, job)).toMatchObject({ value: "1" });
    await worker.stop();
  });
});
