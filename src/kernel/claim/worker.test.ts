/**
 * Goal: a worker takes what is due, keeps its leases while it works, stops what it lost, tries again what failed, and
 * leaves nothing behind when it stops.
 * Method: workers on a memory database with a clock that is moved by hand; a peer stands for another process.
 */

import { describe, expect, test } from "vitest";
import { type Bench, bench, drained, gate, storeError } from "../../../test/kernel.fixture.ts";
import type { Row } from "../contract.ts";
import { type Address, address } from "../contract.ts";
import { FencedError, LeaseUncertainError } from "../errors.ts";
import type { Kernel } from "../kernel.ts";
import { claimDue, type Held, wake } from "./claim.ts";
import { Worker, type WorkerOptions } from "./worker.ts";

const job = address("job", "one");

async function rowOf(kernel: Kernel, at: Address): Promise<Row> {
  const [row = null] = await kernel.read([at]);
  if (row === null) throw new Error(`${at.key} is not there`);
  return row;
}

async function make(kernel: Kernel, at: Address, dueMs: number | null, kind = "job"): Promise<void> {
  await kernel.transact((tx) => tx.record(at).write({ value: 0, kind, dueMs }), [at]);
}

const done = (held: Held) =>
  held.rest(
    () => null,
    (record) => record.write({ value: Number(record.value) + 1 }),
  );

/** A worker, with what it was told to work on and what failed. */
function workOn(on: Bench, options: Partial<WorkerOptions> = {}) {
  const worked: string[] = [];
  const failures: unknown[] = [];
  const worker = new Worker(on.kernel, {
    kinds: ["job"],
    by: "ann",
    leaseMs: 3_000,
    failed: (error) => failures.push(error),
    work: async (held) => {
      await done(held);
    },
    ...options,
    ...(options.work === undefined
      ? {}
      : {
          work: async (held: Held, abortSignal: AbortSignal) => {
            worked.push(held.at.key);
            await options.work?.(held, abortSignal);
          },
        }),
  });
  return { worker, worked, failures };
}

/** Ends when the signal aborts, and says why. */
const aborted = (abortSignal: AbortSignal) =>
  new Promise<unknown>((resolve) => abortSignal.addEventListener("abort", () => resolve(abortSignal.reason)));

describe("taking work", () => {
  test("what is due already is worked on at once", async () => {
    const on = bench();
    await make(on.kernel, job, on.clock.wallMs());
    const { worker } = workOn(on);
    await drained();
    expect(await rowOf(on.kernel, job)).toMatchObject({ value: "1", holder: null });
    await worker.stop();
  });

  test("what this process commits is worked on without waiting for a poll", async () => {
    const on = bench();
    const { worker } = workOn(on, { pollMs: 1_000_000 });
    await drained();
    await make(on.kernel, job, on.clock.wallMs());
    await drained();
    expect(await rowOf(on.kernel, job)).toMatchObject({ value: "1" });
    await worker.stop();
  });

  test("what another process commits, too", async () => {
    const on = bench();
    const { worker } = workOn(on, { pollMs: 1_000_000 });
    await drained();
    await make(on.peer(), job, on.clock.wallMs());
    await drained();
    expect(await rowOf(on.kernel, job)).toMatchObject({ value: "1" });
    await worker.stop();
  });

  test("a timer is worked on when it fires, not before and not a poll later", async () => {
    const on = bench();
    await make(on.kernel, job, on.clock.wallMs() + 700);
    const { worker } = workOn(on, { pollMs: 1_000_000 });
    await on.clock.advance(699);
    expect(await rowOf(on.kernel, job)).toMatchObject({ value: "0" });
    await on.clock.advance(1);
    expect(await rowOf(on.kernel, job)).toMatchObject({ value: "1" });
    await worker.stop();
  });

  test("a wake-up that was lost is made up for by the poll", async () => {
    const on = bench();
    on.store.watch = () => () => {};
    const { worker } = workOn(on, { pollMs: 5_000 });
    await drained();
    await make(on.peer(), job, on.clock.wallMs());
    await on.clock.advance(4_999);
    expect(await rowOf(on.kernel, job)).toMatchObject({ value: "0" });
    await on.clock.advance(1);
    expect(await rowOf(on.kernel, job)).toMatchObject({ value: "1" });
    await worker.stop();
  });

  test("a record of another kind is left alone", async () => {
    const on = bench();
    await make(on.kernel, job, on.clock.wallMs(), "mail");
    const { worker } = workOn(on);
    await on.clock.advance(20_000);
    expect(await rowOf(on.kernel, job)).toMatchObject({ value: "0", tries: 0 });
    await worker.stop();
  });

  test("no more at a time than it may, and the next as soon as one is done", async () => {
    const on = bench();
    const finish = gate();
    const all = Array.from({ length: 5 }, (_, i) => address("job", `k${i}`));
    for (const at of all) await make(on.kernel, at, on.clock.wallMs());
    let now = 0;
    let most = 0;
    const { worker, worked } = workOn(on, {
      concurrency: 2,
      pollMs: 1_000_000,
      work: async (held) => {
        now += 1;
        most = Math.max(most, now);
        await finish.opened;
        await done(held);
        now -= 1;
      },
    });
    await drained();
    expect(worked.length).toBe(2);
    finish.open();
    await drained();
    await drained();
    expect(worked.length).toBe(5);
    expect(most).toBe(2);
    await worker.stop();
  });

  test("a thousand records are each worked on once by two workers", async () => {
    const on = bench();
    const all = Array.from({ length: 1_000 }, (_, i) => address("job", `k${i}`));
    await on.kernel.transact((tx) => {
      for (const at of all) tx.record(at).write({ value: 0, kind: "job", dueMs: tx.nowMs });
    }, all);
    const first = workOn(on, { concurrency: 20 });
    const second = workOn({ ...on, kernel: on.peer() }, { concurrency: 20, by: "bob" });
    const values = async () => new Set((await on.kernel.read(all)).map((row) => row?.value));
    for (let i = 0; i < 100 && (await values()).has("0"); i++) await on.clock.advance(10);
    expect(await values()).toEqual(new Set(["1"]));
    await on.clock.finish(Promise.all([first.worker.stop(), second.worker.stop()]));
    expect([...first.failures, ...second.failures]).toEqual([]);
  });

  for (const who of ["this process", "another process"] as const)
    test(`news from ${who} while it works is not slept over: it looks again, and then rests`, async () => {
      const on = bench();
      await make(on.kernel, job, on.clock.wallMs());
      const looked = gate();
      const answers: string[] = [];
      const { worker, failures } = workOn(on, {
        work: async (held) => {
          for (let i = 0; i < 10; i++) {
            await held.look((record) => record.value);
            if (i === 0) await looked.opened;
            answers.push(await held.rest(() => null));
            if (answers.at(-1) === "rested") return;
          }
        },
      });
      await drained();
      const waker = who === "this process" ? on.kernel : on.peer();
      await waker.transact((tx) => wake(tx, job), [job]);
      looked.open();
      await drained();
      expect(answers).toEqual(["woken", "rested"]);
      expect(failures).toEqual([]);
      await worker.stop();
    });
});

describe("leases", () => {
  test("are renewed while the work lasts, and nobody else gets it", async () => {
    const on = bench();
    await make(on.kernel, job, on.clock.wallMs());
    const finish = gate();
    const { worker, worked, failures } = workOn(on, {
      work: async (held, abortSignal) => {
        await finish.opened;
        expect(abortSignal.aborted).toBe(false);
        await done(held);
      },
    });
    const peer = on.peer();
    for (let i = 0; i < 30; i++) {
      await on.clock.advance(500);
      expect((await claimDue(peer, { kinds: ["job"], by: "bob", leaseMs: 3_000, limit: 1 })).held).toEqual([]);
    }
    finish.open();
    await drained();
    expect(worked).toEqual(["one"]);
    expect(failures).toEqual([]);
    expect(await rowOf(on.kernel, job)).toMatchObject({ value: "1", tries: 0, holder: null });
    await worker.stop();
  });

  test("that another took over end the work, which cannot write any more", async () => {
    const on = bench();
    await make(on.kernel, job, on.clock.wallMs());
    let reason: unknown;
    const { worker, failures } = workOn(on, {
      work: async (held, abortSignal) => {
        reason = await aborted(abortSignal);
        await done(held);
      },
    });
    await drained();
    // Time passes for the store alone, as it does for a process that was stopped.
    await on.peer().transact(
      (tx) => {
        const record = tx.record(job);
        record.write({ fence: record.fence + 1, holder: "bob", dueMs: tx.nowMs + 60_000 });
      },
      [job],
    );
    await on.clock.advance(3_000);
    expect(reason).toBeInstanceOf(FencedError);
    expect(failures).toEqual([expect.any(FencedError)]);
    expect(await rowOf(on.kernel, job)).toMatchObject({ holder: "bob", value: "0" });
    await on.clock.finish(worker.stop());
  });

  test("that were granted too late begin nothing, and count as no try", async () => {
    const on = bench({ patienceMs: 60_000 });
    await make(on.kernel, job, on.clock.wallMs());
    const silent = gate();
    on.store.commits.push(async (batch, pass) => {
      const receipt = await pass(batch);
      await silent.opened;
      return receipt;
    });
    const begun: unknown[] = [];
    const { worker } = workOn(on, {
      work: async (held) => {
        begun.push({ tries: held.tries, isSafe: held.safeUntilMs > on.clock.nowMs() });
        await done(held);
      },
    });
    await on.clock.advance(3_000);
    silent.open();
    await on.clock.advance(1_000);
    expect(begun).toEqual([{ tries: 1, isSafe: true }]);
    await on.clock.finish(worker.stop());
  });

  test("that cannot be renewed by their end are uncertain, and the work is told", async () => {
    const on = bench({ patienceMs: 60_000 });
    await make(on.kernel, job, on.clock.wallMs());
    const told: number[] = [];
    const startedMs = on.clock.nowMs();
    const { worker } = workOn(on, {
      work: async (_, abortSignal) => {
        const reason = await aborted(abortSignal);
        if (reason instanceof LeaseUncertainError) told.push(on.clock.nowMs() - startedMs);
      },
    });
    await drained();
    const silent = gate();
    on.store.commits.push(async (batch, pass) => {
      await silent.opened;
      return pass(batch);
    });
    await on.clock.advance(2_999);
    expect(told).toEqual([]);
    await on.clock.advance(1);
    expect(told).toEqual([3_000]);
    silent.open();
    await on.clock.finish(worker.stop());
  });

  test("are counted from before their last renewal was asked for", async () => {
    const on = bench({ patienceMs: 60_000 });
    await make(on.kernel, job, on.clock.wallMs());
    let reason: unknown;
    const { worker } = workOn(on, {
      work: async (_, abortSignal) => {
        reason = await aborted(abortSignal);
      },
    });
    // Renewed each second, last at 9 s; from 9.5 s on, the store is silent.
    await on.clock.advance(9_500);
    const silent = gate();
    on.store.commits.push(async (batch, pass) => {
      await silent.opened;
      return pass(batch);
    });
    await on.clock.advance(2_499);
    expect(reason).toBeUndefined();
    await on.clock.advance(1);
    expect(reason).toBeInstanceOf(LeaseUncertainError);
    silent.open();
    await on.clock.finish(worker.stop());
  });

  test("of all its records are uncertain when the store is silent, however many there are", async () => {
    const on = bench({ patienceMs: 60_000 });
    const all = Array.from({ length: 450 }, (_, i) => address("job", `k${i}`));
    await on.kernel.transact((tx) => {
      for (const at of all) tx.record(at).write({ value: 0, kind: "job", dueMs: tx.nowMs });
    }, all);
    let told = 0;
    let isOver = false;
    const { worker, worked } = workOn(on, {
      concurrency: 500,
      work: async (_, abortSignal) => {
        // What is claimed once more afterwards is of no interest.
        if (isOver) return;
        await aborted(abortSignal);
        told += 1;
      },
    });
    await drained();
    expect(worked.length).toBe(450);
    const silent = gate();
    on.store.commits.push(async (batch, pass) => {
      await silent.opened;
      return pass(batch);
    });
    await on.clock.advance(3_000);
    const toldInTime = told;
    isOver = true;
    silent.open();
    on.clock.advance(10_000).catch(() => {});
    await drained();
    expect(toldInTime).toBe(450);
    await on.clock.finish(worker.stop());
  });

  test("are still renewed while the store is busy for a moment", async () => {
    const on = bench();
    await make(on.kernel, job, on.clock.wallMs());
    const finish = gate();
    let isAborted: boolean | undefined;
    const { worker } = workOn(on, {
      work: async (held, abortSignal) => {
        await finish.opened;
        isAborted = abortSignal.aborted;
        await done(held);
      },
    });
    await drained();
    for (let i = 0; i < 5; i++)
      on.store.commits.push(async () => {
        throw storeError("store_busy", "retry");
      });
    await on.clock.advance(10_000);
    finish.open();
    await drained();
    expect(isAborted).toBe(false);
    expect(await rowOf(on.kernel, job)).toMatchObject({ value: "1", tries: 0 });
    await worker.stop();
  });

  test("a renewal that fails for good is reported, and the next one keeps the lease", async () => {
    const on = bench();
    await make(on.kernel, job, on.clock.wallMs());
    const finish = gate();
    const { worker, failures, worked } = workOn(on, {
      work: async (held) => {
        await finish.opened;
        await done(held);
      },
    });
    await drained();
    on.store.commits.push(async () => {
      throw storeError("store_full", "fail");
    });
    await on.clock.advance(9_000);
    finish.open();
    await drained();
    expect(failures).toMatchObject([{ code: "store_full" }]);
    expect(worked).toEqual(["one"]);
    await worker.stop();
  });
});

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

describe("stopping", () => {
  test("waits for what is being worked on, renews it meanwhile, and takes nothing more", async () => {
    const on = bench();
    await make(on.kernel, job, on.clock.wallMs());
    const finish = gate();
    const { worker, worked, failures } = workOn(on, {
      work: async (held) => {
        await finish.opened;
        await done(held);
      },
    });
    await drained();
    let stopped = false;
    const stopping = worker.stop().then(() => {
      stopped = true;
    });
    await make(on.kernel, address("job", "two"), on.clock.wallMs());
    await on.clock.advance(20_000);
    expect(stopped).toBe(false);
    expect(await rowOf(on.kernel, job)).toMatchObject({ holder: "ann", tries: 1 });
    finish.open();
    await on.clock.finish(stopping);
    expect(worked).toEqual(["one"]);
    expect(failures).toEqual([]);
    expect(await rowOf(on.kernel, job)).toMatchObject({ value: "1" });
    expect(await rowOf(on.kernel, address("job", "two"))).toMatchObject({ value: "0", tries: 0 });
  });

  test("of an idle worker is immediate, and leaves no timer and no watcher", async () => {
    const on = bench();
    const { worker } = workOn(on);
    await on.clock.advance(12_345);
    await worker.stop();
    await worker.stop();
    expect(on.clock.timerCount).toBe(0);
    expect(on.store.watchers).toBe(0);
  });

  test("while it is claiming still works on what it got", async () => {
    const on = bench();
    await make(on.kernel, job, on.clock.wallMs());
    const claimed = gate();
    on.store.commits.push(async (batch, pass) => {
      await claimed.opened;
      return pass(batch);
    });
    const { worker, worked } = workOn(on, { work: async (held) => void (await done(held)) });
    await drained();
    const stopping = worker.stop();
    await drained();
    claimed.open();
    await on.clock.finish(stopping);
    expect(worked).toEqual(["one"]);
    expect(await rowOf(on.kernel, job)).toMatchObject({ value: "1", holder: null });
    expect(on.clock.timerCount).toBe(0);
  });

  test("does not keep the store busy while it waits", async () => {
    const on = bench();
    await make(on.kernel, job, on.clock.wallMs());
    const finish = gate();
    const { worker } = workOn(on, {
      work: async (held) => {
        await finish.opened;
        await done(held);
      },
    });
    await drained();
    const sent = on.store.batches.length;
    const stopping = worker.stop();
    for (let i = 0; i < 10; i++) await drained();
    expect(on.store.batches.length - sent).toBeLessThan(5);
    finish.open();
    await on.clock.finish(stopping);
  });
});

describe("options that make no sense", () => {
  const bad: [string, Partial<WorkerOptions>, string][] = [
    ["a lease of nothing", { leaseMs: 0 }, "invalid_duration"],
    ["a lease of less than nothing", { leaseMs: -5 }, "invalid_duration"],
    ["a lease that is no number", { leaseMs: Number.NaN }, "invalid_duration"],
    ["a lease of ten years", { leaseMs: 3650 * 86_400_000 }, "invalid_duration"],
    ["no concurrency", { concurrency: 0 }, "invalid_argument"],
    ["a negative concurrency", { concurrency: -1 }, "invalid_argument"],
    ["half a record at a time", { concurrency: 1.5 }, "invalid_argument"],
    ["a poll that is no time", { pollMs: Number.NaN }, "invalid_duration"],
    ["no name", { by: "" }, "invalid_id"],
    ["a kind that is no name", { kinds: ["a\u0000b"] }, "invalid_id"],
  ];
  test.each(bad)("%s is refused at once", async (_, options, code) => {
    const on = bench();
    await make(on.kernel, job, on.clock.wallMs());
    let worker: Worker | undefined;
    let refusal: unknown;
    try {
      worker = workOn(on, options).worker;
    } catch (error) {
      refusal = error;
    }
    await drained();
    await worker?.stop();
    expect(refusal).toMatchObject({ code });
    expect(await rowOf(on.kernel, job)).toMatchObject({ tries: 0, holder: null });
  });
});
