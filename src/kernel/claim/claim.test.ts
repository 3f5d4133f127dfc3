/**
 * Goal: a due record goes to one claimer, who keeps it while it renews, is told when it was taken over, and misses no
 * wake-up.
 * Method: two kernels on one memory database, as two processes are, and a clock that is moved by hand.
 */

import { describe, expect, test, vi } from "vitest";
import { type Bench, bench, codeOf, storeError } from "../../../test/kernel/kit.ts";
import type { Row } from "../contract.ts";
import { type Address, address } from "../contract.ts";
import type { Kernel } from "../kernel.ts";
import { claimDue, claim as claimIn, Held, wake } from "./claim.ts";

const job = address("job", "one");
const other = address("job", "other");

async function rowOf(kernel: Kernel, at: Address): Promise<Row> {
  const [row = null] = await kernel.read([at]);
  if (row === null) throw new Error(`${at.key} is not there`);
  return row;
}

async function make(kernel: Kernel, at: Address, dueMs: number | null, kind = "job"): Promise<void> {
  await kernel.transact((tx) => tx.record(at).write({ value: 0, kind, dueMs }), [at]);
}

const claim = (kernel: Kernel, by = "ann", limit = 10) =>
  claimDue(kernel, { kinds: ["job"], by, leaseMs: 1_000, limit });

async function claimOne(kernel: Kernel, by = "ann"): Promise<Held> {
  const { held } = await claim(kernel, by);
  const [one] = held;
  if (one === undefined) throw new Error("nothing was due");
  return one;
}

/** A record that is due now, in one process, with another beside it. */
async function due(options: Parameters<typeof bench>[0] = {}): Promise<Bench & { other: Kernel }> {
  const on = bench(options);
  await make(on.kernel, job, on.clock.wallMs());
  return { ...on, other: on.peer() };
}

const count = (record: { value: unknown; write(changes: { value: unknown }): void }) =>
  record.write({ value: Number(record.value) + 1 });

test("a record that has become due for something else is not taken", async () => {
  const { kernel, clock } = bench();
  const at = address("job", "one");
  await make(kernel, at, clock.wallMs());
  const { due } = kernel;
  // Found as one kind, and then made due as another.
  kernel.due = async (query) => {
    const page = await due.call(kernel, query);
    await kernel.transact((tx) => tx.record(at).write({ kind: "done" }), [at]);
    return page;
  };
  const { held, tried } = await claimDue(kernel, { kinds: ["job"], by: "ann", leaseMs: 1_000, limit: 5 });
  expect([tried, held.length]).toEqual([1, 0]);
});

test("suspects on a page cost no decision each", async () => {
  const { kernel, clock } = bench();
  for (let n = 0; n < 50; n++) {
    const at = address("job", `j${n}`);
    await make(kernel, at, clock.wallMs());
    if (n !== 40) await kernel.transact((tx) => tx.record(at).write({ tries: 3 }), [at]);
  }
  const transact = vi.spyOn(kernel, "transact");
  const options = { kinds: ["job"], by: "ann", leaseMs: 1_000, limit: 5, look: 100, mostTries: () => 2 };
  const { held, suspects, tried } = await claimDue(kernel, options);
  expect(held.map(({ at }) => at.key)).toEqual(["j40"]);
  expect(suspects).toHaveLength(49);
  expect([tried, transact.mock.calls.length]).toEqual([1, 1]);
});

describe("claiming", () => {
  test("takes what is due, counts the try and starts a lease", async () => {
    const { kernel, clock } = await due();
    const held = await claimOne(kernel);
    const lease = { holder: "ann", tries: 1, dueMs: clock.wallMs() + 1_000, fence: held.fence };
    expect(await rowOf(kernel, job)).toMatchObject(lease);
    expect(held).toMatchObject({ tries: 1, at: job });
    expect(held.fence).toBeGreaterThanOrEqual(clock.wallMs());
  });

  test("of two at once, one wins", async () => {
    const { kernel, other } = await due();
    const both = await Promise.all([claim(kernel, "ann"), claim(other, "bob")]);
    expect(both.map(({ held }) => held.length).sort()).toEqual([0, 1]);
  });

  test("two in one process: one wins", async () => {
    const { kernel } = await due();
    const both = await Promise.all([claim(kernel, "ann"), claim(kernel, "bob")]);
    expect(both.map(({ held }) => held.length).sort()).toEqual([0, 1]);
  });

  test("takes the longest due first, no more than asked for, and only of its kinds", async () => {
    const { kernel, clock } = bench();
    const nowMs = clock.wallMs();
    await make(kernel, address("job", "later"), nowMs - 1);
    await make(kernel, address("job", "sooner"), nowMs - 5);
    await make(kernel, address("job", "third"), nowMs);
    await make(kernel, address("job", "foreign"), nowMs - 9, "mail");
    const first = await claim(kernel, "ann", 2);
    expect(first.held.map(({ at }) => at.key)).toEqual(["sooner", "later"]);
    const second = await claim(kernel, "ann", 2);
    expect(second.held.map(({ at }) => at.key)).toEqual(["third"]);
    expect([first.isFull, second.isFull]).toEqual([true, false]);
    expect((await claim(kernel)).held).toEqual([]);
  });

  test("says how long until the next comes due", async () => {
    const { kernel, clock } = bench();
    expect(await claim(kernel)).toMatchObject({ held: [], nextInMs: null });
    await make(kernel, job, clock.wallMs() + 70);
    expect(await claim(kernel)).toMatchObject({ held: [], nextInMs: 70 });
    await clock.advance(69);
    expect(await claim(kernel)).toMatchObject({ held: [], nextInMs: 1 });
    await clock.advance(1);
    expect((await claim(kernel)).held.length).toBe(1);
    expect(await claim(kernel)).toMatchObject({ held: [], nextInMs: 1_000 });
  });

  test("after the lease has ended, the record goes to another with a higher fence and another try", async () => {
    const { kernel, other, clock } = await due();
    const old = await claimOne(kernel);
    await clock.advance(999);
    expect((await claim(other, "bob")).held).toEqual([]);
    await clock.advance(1);
    const next = await claimOne(other, "bob");
    expect(next.fence).toBeGreaterThan(old.fence);
    expect(next.tries).toBe(2);
  });

  test("fences rise also when the store's clock stands still or steps back", async () => {
    const { kernel } = await due();
    let last = 0;
    for (let i = 0; i < 5; i++) {
      const held = await claimOne(kernel);
      expect(held.fence).toBeGreaterThan(last);
      last = held.fence;
      await held.rest((tx) => tx.nowMs);
    }
  });

  test("fences rise also through deletion, a sweep and making it again", async () => {
    const { kernel, store, clock, database } = await due();
    const first = await claimOne(kernel);
    await first.commit((record) => record.remove());
    database.fenceFloor = 0;
    await clock.advance(8 * 86_400_000);
    expect(await store.sweep(10)).toBe(1);
    await make(kernel, job, clock.wallMs());
    expect((await claimOne(kernel)).fence).toBeGreaterThan(first.fence);
  });

  test("a store that refuses every claim is heard; one that refuses some is not", async () => {
    const { kernel, store } = await due();
    store.commits.push(async () => {
      throw storeError("store_full", "fail");
    });
    expect(await codeOf(claim(kernel))).toBe("store_full");
    expect((await claim(kernel)).held.length).toBe(1);
  });

  const bad: [string, object, string][] = [
    ["no limit", { limit: 0 }, "invalid_argument"],
    ["a lease of nothing", { leaseMs: 0 }, "invalid_duration"],
    ["a lease of ten years", { leaseMs: 3650 * 86_400_000 }, "invalid_duration"],
    ["nobody", { by: "" }, "invalid_id"],
    ["a kind that is no name", { kinds: ["job", "\u0000"] }, "invalid_id"],
  ];
  test.each(bad)("with %s is refused, and nothing is claimed", async (_, change, code) => {
    const { kernel } = await due();
    const options = { kinds: ["job"], by: "ann", leaseMs: 1_000, limit: 10, ...change };
    expect(await codeOf(claimDue(kernel, options))).toBe(code);
    expect(await rowOf(kernel, job)).toMatchObject({ holder: null, tries: 0 });
  });
});

describe("the holder", () => {
  test("commits without a lock, again and again", async () => {
    const { kernel, store } = await due();
    const held = await claimOne(kernel);
    const sent = store.batches.length;
    for (let i = 0; i < 3; i++) await held.commit(count);
    expect(store.batches.slice(sent).map((batch) => batch.lock.length)).toEqual([0, 0, 0]);
    expect(await rowOf(kernel, job)).toMatchObject({ value: "3" });
  });

  test("keeps the record while it renews", async () => {
    const { kernel, other, clock } = await due();
    const held = await claimOne(kernel);
    for (let i = 0; i < 5; i++) {
      await clock.advance(900);
      await held.renew(1_000);
      expect((await claim(other, "bob")).held).toEqual([]);
    }
    await held.commit(count);
    expect(await rowOf(kernel, job)).toMatchObject({ holder: "ann", fence: held.fence, tries: 1, value: "1" });
  });

  test("keeps its rights after the end of the lease, as long as nobody took over", async () => {
    const { kernel, clock } = await due();
    const held = await claimOne(kernel);
    await clock.advance(60_000);
    await held.commit(count);
    await held.renew(1_000);
    expect(await rowOf(kernel, job)).toMatchObject({ holder: "ann", dueMs: clock.wallMs() + 1_000, value: "1" });
  });

  test("is not disturbed by somebody else's write to the record", async () => {
    const { kernel, other } = await due();
    const held = await claimOne(kernel);
    await other.transact((tx) => tx.record(job).write({ status: "seen" }), [job]);
    await held.commit(count);
    expect(await rowOf(kernel, job)).toMatchObject({ status: "seen", value: "1" });
  });

  const verbs: [string, (held: Held) => Promise<unknown>][] = [
    ["commit", (held) => held.commit(count)],
    ["look", (held) => held.look((record) => record.value)],
    ["renew", (held) => held.renew(1_000)],
    ["rest", (held) => held.rest(() => null)],
    ["remove it", (held) => held.commit((record) => record.remove())],
    ["append", (held) => held.commit((record) => record.append("x", 1))],
    ["write to another record", (held) => held.commit((_, tx) => tx.record(other).write({ value: "stale" }))],
    ["learn anything from a commit that only reads", (held) => held.commit((record) => record.value)],
  ];
  for (const [how, takeOver] of [
    [
      "was taken over by another process",
      async ({ other, clock }: Bench & { other: Kernel }) => {
        await clock.advance(1_000);
        await claimOne(other, "bob");
      },
    ],
    [
      "was taken over in its own process",
      async ({ kernel, clock }: Bench) => {
        await clock.advance(1_000);
        await claimOne(kernel, "bob");
      },
    ],
    [
      "was taken over and given back",
      async ({ other, clock }: Bench & { other: Kernel }) => {
        await clock.advance(1_000);
        await (await claimOne(other, "bob")).rest(() => null);
      },
    ],
    [
      "was removed by another",
      async ({ other }: Bench & { other: Kernel }) => {
        await other.transact((tx) => tx.record(job).remove(), [job]);
      },
    ],
  ] as const)
    test.each(verbs)(`of a record that ${how} can no longer %s`, async (_, verb) => {
      const on = await due();
      const held = await claimOne(on.kernel);
      await takeOver(on);
      const before = await rowOf(on.kernel, job);
      expect(await codeOf(verb(held))).toBe("fenced");
      expect(await rowOf(on.kernel, job)).toEqual(before);
      expect((await on.kernel.read([other]))[0]).toBeNull();
    });

  test("is told both fences", async () => {
    const { kernel, other, clock } = await due();
    const old = await claimOne(kernel);
    await clock.advance(1_000);
    const next = await claimOne(other, "bob");
    await expect(old.commit(count)).rejects.toMatchObject({
      code: "fenced",
      data: { name: "job one", fence: old.fence, current: next.fence },
    });
  });

  test("that was taken over, and whose process has seen that, is forgotten when it is abandoned", async () => {
    const { kernel, other, clock } = await due();
    const held = await claimOne(kernel);
    await clock.advance(1_000);
    const next = await claimOne(other, "bob");
    // A look under the lock, as of somebody who starts or signals it here.
    await kernel.transact((tx) => tx.record(job).exists, [job]);
    expect(kernel.held(job)?.fence).toBe(next.fence);
    held.abandon();
    expect(kernel.held(job)).toBeUndefined();
  });

  test("that this process holds anew is not forgotten with the claim before", async () => {
    const { kernel, clock } = await due();
    const held = await claimOne(kernel);
    await clock.advance(1_000);
    const next = await claimOne(kernel);
    held.abandon();
    expect(kernel.held(job)?.fence).toBe(next.fence);
  });

  test("may look and commit after it abandoned the record, only not for free", async () => {
    const { kernel, store } = await due();
    const held = await claimOne(kernel);
    held.abandon();
    await held.commit(count);
    expect(store.batches.at(-1)?.lock.length).toBe(1);
    expect(await rowOf(kernel, job)).toMatchObject({ holder: "ann", value: "1" });
  });
});

describe("resting", () => {
  test("does not sleep over news that its own decision makes", async () => {
    const { kernel, clock } = bench();
    await make(kernel, job, clock.wallMs());
    const held = await claimOne(kernel);
    expect(
      await held.rest(
        () => null,
        (_record, tx) => void wake(tx, job),
      ),
    ).toBe("rested");
    expect(await rowOf(kernel, job)).toMatchObject({ holder: null, dueMs: clock.wallMs() });
  });

  test("gives the record back until its time, with what was written, and forgets the tries", async () => {
    const { kernel, clock } = await due();
    const held = await claimOne(kernel);
    const answer = await held.rest(
      (tx) => tx.nowMs + 500,
      (record) => record.write({ value: "done", status: "asleep" }),
    );
    expect(answer).toBe("rested");
    const asleep = { holder: null, tries: 0, dueMs: clock.wallMs() + 500, value: '"done"', status: "asleep" };
    expect(await rowOf(kernel, job)).toMatchObject({ ...asleep, fence: held.fence });
    expect((await claim(kernel)).held).toEqual([]);
    await clock.advance(500);
    expect((await claimOne(kernel)).tries).toBe(1);
  });

  test("for ever is resting without a time", async () => {
    const { kernel, clock } = await due();
    await (await claimOne(kernel)).rest(() => null);
    await clock.advance(365 * 86_400_000);
    expect(await claim(kernel)).toMatchObject({ held: [], nextInMs: null });
  });

  test("is over when it is done: a second rest is refused", async () => {
    const { kernel } = await due();
    const held = await claimOne(kernel);
    await held.rest(() => null);
    expect(await codeOf(held.rest(() => null))).toBe("fenced");
  });

  test("may remove the record in the same commit", async () => {
    const { kernel } = await due();
    const held = await claimOne(kernel);
    expect(
      await held.rest(
        () => null,
        (record) => record.remove(),
      ),
    ).toBe("rested");
    expect(await rowOf(kernel, job)).toMatchObject({ value: null, holder: null });
  });

  test("a decision that throws leaves the record held", async () => {
    const { kernel } = await due();
    const held = await claimOne(kernel);
    const refused = held.rest(
      () => null,
      () => {
        throw new RangeError("not yet");
      },
    );
    await expect(refused).rejects.toThrow(RangeError);
    expect(await rowOf(kernel, job)).toMatchObject({ holder: "ann", value: "0" });
    expect(await held.rest(() => null)).toBe("rested");
  });

  for (const who of ["another process", "the same process"] as const)
    test(`a wake-up by ${who} between the look and the rest is not lost`, async () => {
      const { kernel, other } = await due();
      const held = await claimOne(kernel);
      const waker = who === "another process" ? other : kernel;
      await held.look((record) => record.value);
      expect(await waker.transact((tx) => wake(tx, job), [job])).toBe(true);
      expect(
        await held.rest(
          () => null,
          (record) => record.write({ value: "missed" }),
        ),
      ).toBe("woken");
      expect(await rowOf(kernel, job)).toMatchObject({ holder: "ann", value: "0" });
      await held.look((record) => record.value);
      expect(await held.rest(() => null)).toBe("rested");
    });

  test("a wake-up between the claim and the first rest is not lost, even without a look", async () => {
    const { kernel, other } = await due();
    const held = await claimOne(kernel);
    await other.transact((tx) => wake(tx, job), [job]);
    expect(await held.rest(() => null)).toBe("woken");
  });

  test("a wake-up in the same batch, right after the claim, is not lost", async () => {
    const { kernel, store } = await due();
    const sent = store.batches.length;
    const claiming = kernel.transact((tx) => claimIn(tx, job, { by: "ann", leaseMs: 1_000 }), [job]);
    const waking = kernel.transact((tx) => wake(tx, job), [job]);
    const [row] = await Promise.all([claiming, waking]);
    expect(store.batches.length - sent).toBe(1);
    if (row === undefined) throw new Error("it was due");
    expect(await new Held(kernel, row).rest(() => null)).toBe("woken");
  });
});

describe("waking", () => {
  test("makes one that rests due at once", async () => {
    const { kernel, clock } = await due();
    await (await claimOne(kernel)).rest((tx) => tx.nowMs + 60_000);
    await kernel.transact((tx) => wake(tx, job), [job]);
    expect(await rowOf(kernel, job)).toMatchObject({ wakes: 1, dueMs: clock.wallMs() });
    expect((await claim(kernel)).held.length).toBe(1);
  });

  test("hands no live lease away", async () => {
    const { kernel, other, clock } = await due();
    const held = await claimOne(kernel);
    await other.transact((tx) => wake(tx, job), [job]);
    expect(await rowOf(kernel, job)).toMatchObject({ holder: "ann", wakes: 1, dueMs: clock.wallMs() + 1_000 });
    expect((await claim(other, "bob")).held).toEqual([]);
    await held.commit(count);
  });

  test("of what is not there says so, and makes nothing", async () => {
    const { kernel } = bench();
    expect(await kernel.transact((tx) => wake(tx, job), [job])).toBe(false);
    expect(await kernel.read([job])).toEqual([null]);
    await make(kernel, job, null);
    await kernel.transact((tx) => tx.record(job).remove(), [job]);
    expect(await kernel.transact((tx) => wake(tx, job), [job])).toBe(false);
    expect(await rowOf(kernel, job)).toMatchObject({ value: null, wakes: 0 });
  });
});

describe("what the holder's process remembers of the record", () => {
  test("is no ground for a refusal once another has changed it", async () => {
    const { kernel, other } = await due();
    const held = await claimOne(kernel);
    await other.transact((tx) => tx.record(job).write({ value: 7 }), [job]);
    const answer = held.commit((record) => {
      const seen = record.value;
      record.write({ value: 8 });
      if (seen !== 7) throw new Error("decided on what was there before");
      return seen;
    });
    expect(await answer).toBe(7);
    expect((await rowOf(kernel, job)).value).toBe("8");
  });

  test("does not hide a wake-up that came after the look", async () => {
    const { kernel, other } = await due();
    const held = await claimOne(kernel);
    await other.transact((tx) => wake(tx, job), [job]);
    await held.look(() => {});
    await other.transact((tx) => wake(tx, job), [job]);
    await held.commit(count);
    expect(await held.rest(() => null)).toBe("woken");
    await held.look(() => {});
    expect(await held.rest(() => null)).toBe("rested");
  });

  test("a claim that waits for a locked row keeps none of the others waiting", async () => {
    const { kernel } = await due();
    const seen: string[] = [];
    const { held } = await claimDue(kernel, {
      kinds: ["job"],
      by: "ann",
      leaseMs: 1_000,
      limit: 10,
      granted: (one) => seen.push(one.at.key),
    });
    expect(seen).toEqual(held.map((one) => one.at.key));
    expect(seen).toEqual(["one"]);
  });
});
