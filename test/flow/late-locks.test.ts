/**
 * Goal: a start counts as after what its records say, also where it gets some of them late: what other processes commit meanwhile was before it.
 * Method: two processes on one PostgreSQL database, where a commit locks records in several rounds and has the time of the first. Between the first and the
 * second round of a start in one process, the other process commits.
 */

import { expect, test } from "vitest";
import { open, type Pawl, workflow } from "../../src/index.ts";
import type { Found, Store, Verdict } from "../../src/kernel/contract.ts";
import { runAt } from "../../src/workflow/stored.ts";
import { connect } from "../postgres/kit.ts";
import { ownDatabase } from "../postgres/own-database.ts";
import { PATIENCE } from "../workflow/kit.ts";

const database = ownDatabase();

/** The first commit that asks for more locks in its second round gets them after `act`, which is given the time of the first. */
function betweenRounds(store: Store, act: (firstMs: number) => Promise<unknown>): { readonly acted: Promise<unknown> } {
  const { promise: acted, resolve } = Promise.withResolvers<unknown>();
  const commit = store.commit.bind(store);
  let hasBegun = false;
  let isOver = false;
  store.commit = (batch) => {
    let held: Verdict | undefined;
    const decide = (found: Found): Verdict => {
      if (held !== undefined && !isOver) return { lock: [] };
      const verdict = held ?? batch.decide(found);
      held = undefined;
      if (hasBegun || !("lock" in verdict)) return verdict;
      hasBegun = true;
      held = verdict;
      const acting = act(found.nowMs ?? 0);
      resolve(acting);
      const over = (): void => {
        isOver = true;
      };
      acting.then(over, over);
      return { lock: [] };
    };
    return commit({ ...batch, decide });
  };
  return { acted };
}

let namespaces = 0;

/** Two processes: `late` does `act` between the rounds of its first commit that has two. */
async function stage(act: (other: Pawl, firstMs: number) => Promise<unknown>) {
  const namespace = `late-${namespaces++}`;
  const other = await open({ store: await connect(database.url, { namespace }), namespace });
  const store = await connect(database.url, { namespace });
  const late = await open({ store, namespace });
  const { acted } = betweenRounds(store, (firstMs) => act(other, firstMs));
  const close = async (): Promise<void> => void (await Promise.all([late.close(), other.close()]));
  return { late, other, acted, [Symbol.asyncDispose]: close };
}

/** Waits until the store's clock is past this. */
async function passed(pawl: Pawl, ms: number): Promise<void> {
  while ((await pawl.kernel.transact((tx) => tx.nowMs, [])) <= ms);
}

test("a start within the rate is not refused", async () => {
  const job = workflow({ name: "job", rateLimit: { max: 2, per: "1 hour", excess: "reject" } }, async () => {});
  await using at = await stage(async (other, firstMs) => {
    await passed(other, firstMs);
    await other.start(job, undefined, { id: "first" });
  });
  const seen = at.late.slot("seen", { initial: 0 });
  // Its record is locked in the first round, and those of the start in the second.
  await at.late.transact((tx) => {
    tx.slot(seen).set(1);
    tx.start(job, undefined, { id: "second" });
  });
  await at.acted;
  expect((await at.late.run(job, "second").status()).status).toBe("pending");
  await expect(at.other.start(job, undefined, { id: "third" })).rejects.toMatchObject({ code: "rate_limited" });
});

test("a start within the rate does not wait", async () => {
  const job = workflow({ name: "job", rateLimit: { max: 2, per: "1 hour" } }, async () => {});
  let beganMs = 0;
  await using at = await stage(async (other, firstMs) => {
    beganMs = firstMs;
    await passed(other, firstMs);
    await other.start(job, undefined, { id: "first" });
  });
  const seen = at.late.slot("seen", { initial: 0 });
  await at.late.transact((tx) => {
    tx.slot(seen).set(1);
    tx.start(job, undefined, { id: "second" });
  });
  await at.acted;
  const [row] = await at.late.kernel.read([runAt("second")]);
  expect(row?.dueMs).toBe(beganMs);
});

/** How often each commit of the store asks for more locks. */
function countRounds(store: Store): { readonly rounds: readonly number[] } {
  const rounds: number[] = [];
  const commit = store.commit.bind(store);
  store.commit = (batch) => {
    const index = rounds.push(0) - 1;
    const decide = (found: Found): Verdict => {
      const verdict = batch.decide(found);
      if ("lock" in verdict) rounds[index] = (rounds[index] ?? 0) + 1;
      return verdict;
    };
    return commit({ ...batch, decide });
  };
  return { rounds };
}

test("the records of a start are locked together, alone and in a decision", async () => {
  const namespace = `late-${namespaces++}`;
  const store = await connect(database.url, { namespace });
  await using pawl = await open({ store, namespace });
  const options = {
    name: "job",
    concurrency: { max: 9 },
    rateLimit: { max: 9, per: "1 hour" },
    throttle: { per: 1 },
  } as const;
  const job = workflow(options, async () => {});
  const { rounds } = countRounds(store);
  await pawl.start(job, undefined, { id: "one" });
  await pawl.transact((tx) => void tx.start(job, undefined, { id: "two" }));
  expect(rounds.filter((count) => count > 0)).toEqual([]);
});

test.each([
  { by: "batch", options: { batch: { size: 10, maxWait: 200 } } },
  { by: "debounce", options: { debounce: { period: 200 } } },
])(
  "a start that comes too late for a run that collects is of the next one, and of a time after it: $by",
  async ({ options }) => {
    const taken: unknown[] = [];
    const job = workflow({ name: "job", ...options } as { name: string }, async (ctx, given: unknown) => {
      await ctx.step("take", () => void taken.push([given].flat()));
    });
    await using at = await stage(async (other) => {
      other.work([job]);
      // It is claimed, and takes what it has collected afterwards.
      const statuses = async () => (await other.runs.list({ workflow: "job" })).runs.map(({ status }) => status);
      await expect.poll(statuses, PATIENCE).toEqual(["running"]);
    });
    const first = await at.other.start(job, 1, { id: "first" });
    const second = await at.late.start(job, 2, { id: "second" });
    await at.acted;
    await second.result();
    expect(taken).toEqual([[1], [2]]);
    const { scheduledAt } = await first.status();
    expect((await second.status()).startedAt.getTime()).toBeGreaterThanOrEqual(
      scheduledAt?.getTime() ?? Number.POSITIVE_INFINITY,
    );
  },
);

test("a start lets a debounced run begin no earlier than one that was committed before it does", async () => {
  const job = workflow({ name: "job", debounce: { period: "1 hour" } }, async () => {});
  let dueMs: number | null | undefined;
  const dueOf = async (pawl: Pawl, id: string) => (await pawl.kernel.read([runAt(id)]))[0]?.dueMs;
  await using at = await stage(async (other, firstMs) => {
    await passed(other, firstMs);
    dueMs = await dueOf(other, (await other.start(job)).id);
  });
  const first = await at.other.start(job);
  const seen = at.late.slot("seen", { initial: 0 });
  await at.late.transact((tx) => {
    tx.slot(seen).set(1);
    tx.start(job);
  });
  await at.acted;
  expect(await dueOf(at.late, first.id)).toBe(dueMs);
});
