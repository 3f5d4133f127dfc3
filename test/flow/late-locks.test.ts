/**
 * Goal: a start is of the moment at which it has its locks, also where it gets some of them late: what other processes commit meanwhile was before it.
 * Method: two processes on one PostgreSQL database, where a commit locks records in several rounds. Between the first and the second round of a start in one
 * process, the other process commits.
 */

import { expect, test } from "vitest";
import { open, type Pawl, workflow } from "../../src/index.ts";
import type { Found, Store, Verdict } from "../../src/kernel/contract.ts";
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
  const run = await at.late.start(job, undefined, { id: "second" });
  await at.acted;
  expect((await run.status()).status).toBe("pending");
  await expect(at.other.start(job, undefined, { id: "third" })).rejects.toMatchObject({ code: "rate_limited" });
});

test("a start that comes too late for a batch is in the next one, and of a time after it", async () => {
  const taken: (readonly number[])[] = [];
  const job = workflow(
    { name: "job", batch: { size: 10, maxWait: 200 } },
    async (ctx, items: readonly number[]) => void (await ctx.step("take", () => void taken.push(items))),
  );
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
});
