/**
 * Goal: a worker keeps its leases while it works, and stops what it lost.
 * Method: workers on a memory database with a clock that is moved by hand; a peer stands for another process.
 */

import { describe, expect, test } from "vitest";
import { done, job, make, rowOf, workOn } from "../../../test/kernel/jobs.ts";
import { bench, drained, gate, storeError } from "../../../test/kernel/kit.ts";
import { address } from "../contract.ts";
import { FencedError, LeaseUncertainError } from "../errors.ts";
import { claimDue } from "./claim.ts";

/** Ends when the signal aborts, and says why. */
const aborted = (abortSignal: AbortSignal) =>
  new Promise<unknown>((resolve) => abortSignal.addEventListener("abort", () => resolve(abortSignal.reason)));

describe("leases", () => {
  test("are renewed while the work lasts, and nobody else gets it", async () => {
    const on = bench();
    await make(on.kernel, job, on.clock.wallMs());
    const finish = gate();
    const { worker, worked, failures } = workOn(on, {
      work: async (held, { abortSignal }) => {
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
      work: async (held, { abortSignal }) => {
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
        begun.push({ tries: held.tries, isSafe: (held.lease?.safeUntilMs ?? 0) > on.clock.nowMs() });
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
      work: async (_, { abortSignal }) => {
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
      work: async (_, { abortSignal }) => {
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
      work: async (_, { abortSignal }) => {
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
      work: async (held, { abortSignal }) => {
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
