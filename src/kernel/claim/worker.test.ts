/**
 * Goal: a worker takes what is due, and leaves nothing behind when it stops. Leases and failures have files of their own.
 * Method: workers on a memory database with a clock that is moved by hand; a peer stands for another process.
 */

import { describe, expect, test } from "vitest";
import { done, job, make, rowOf, workOn } from "../../../test/kernel/jobs.ts";
import { bench, drained, gate } from "../../../test/kernel/kit.ts";
import { address } from "../contract.ts";
import { wake } from "./claim.ts";
import type { Worker, WorkerOptions } from "./worker.ts";

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

  test("an urgent chore is done at the poll although no place is free", async () => {
    const on = bench();
    const { promise: busy, resolve: end } = Promise.withResolvers<void>();
    const due = address("chores", "one");
    const chore = (at: typeof due) =>
      on.kernel.transact((tx) => tx.record(at).write({ value: "done", dueMs: null }), [at]);
    await make(on.kernel, job, on.clock.wallMs());
    const { worker } = workOn(on, {
      concurrency: 1,
      pollMs: 5_000,
      chores: [{ kind: "chore", isUrgent: true, chore }],
      work: async (held) => {
        await busy;
        await held.rest(() => null);
      },
    });
    await drained();
    const nowMs = on.clock.wallMs();
    await on.kernel.transact((tx) => tx.record(due).write({ value: "due", kind: "chore", dueMs: nowMs }), [due]);
    await on.clock.advance(5_001);
    await on.clock.advance(5_001);
    expect(await rowOf(on.kernel, due)).toMatchObject({ dueMs: null });
    end();
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

describe("places for records that another commit claims", () => {
  test("can be reserved while the worker reads what is due, and are then not given to what it finds", async () => {
    const on = bench();
    const { worker, worked } = workOn(on, { concurrency: 2, work: async (held) => void (await done(held)) });
    await drained();
    const read = gate();
    const due = on.kernel.due.bind(on.kernel);
    on.kernel.due = async (query) => {
      await read.opened;
      return due(query);
    };
    await make(on.kernel, job, on.clock.wallMs());
    await drained();
    expect(worker.reserve(3)).toBe(2);
    read.open();
    await drained();
    expect(worked).toEqual([]);
    worker.release(2);
    await drained();
    expect(worked).toEqual(["one"]);
    await worker.stop();
  });

  test("and are looked for again if they became free while another process was faster", async () => {
    const on = bench();
    const { worker, worked } = workOn(on, {
      concurrency: 2,
      pollMs: 1_000_000,
      work: async (held) => void (await done(held)),
    });
    await drained();
    const two = address("job", "two");
    const dueMs = on.clock.wallMs() + 10;
    await make(on.kernel, job, dueMs);
    await make(on.kernel, two, dueMs);
    const read = gate();
    const due = on.kernel.due.bind(on.kernel);
    on.kernel.due = async (query) => {
      await read.opened;
      return due(query);
    };
    await on.clock.advance(10);
    expect(worker.reserve(1)).toBe(1);
    on.store.commits.push(async (batch, pass) => {
      // It is not there now, as if another process had it.
      on.store.found = (found) => ({ ...found, rows: found.rows.map(() => null) });
      worker.release(1);
      const receipt = await pass(batch);
      on.store.found = (found) => found;
      return receipt;
    });
    read.open();
    await drained();
    expect(worked.toSorted()).toEqual(["one", "two"]);
    await worker.stop();
  });

  test("go to what was due and got none, before they can be reserved", async () => {
    const on = bench();
    const first = gate();
    const { worker, worked } = workOn(on, {
      concurrency: 1,
      work: async (held) => {
        if (held.at.key === "one") await first.opened;
        await done(held);
      },
    });
    await make(on.kernel, job, on.clock.wallMs());
    await drained();
    await make(on.kernel, address("job", "two"), on.clock.wallMs());
    await drained();
    const read = gate();
    const due = on.kernel.due.bind(on.kernel);
    on.kernel.due = async (query) => {
      await read.opened;
      return due(query);
    };
    first.open();
    await drained();
    expect(worker.reserve(1)).toBe(0);
    read.open();
    await drained();
    expect(worked).toEqual(["one", "two"]);
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
