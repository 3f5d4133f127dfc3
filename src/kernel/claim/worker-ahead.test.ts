/**
 * Goal: a worker that is behind claims ahead of its free places, so that these are not empty while it claims; and what waits for a place meanwhile takes
 * nothing from others.
 * Method: a worker with two places on a memory database whose reads take 10 ms, with a clock that is moved by hand.
 */

import { expect, test } from "vitest";
import { done, make, rowOf, workOn } from "../../../test/kernel/jobs.ts";
import { bench } from "../../../test/kernel/kit.ts";
import { address } from "../contract.ts";
import { pause } from "../ports.ts";
import type { Held } from "./claim.ts";
import type { WorkerOptions } from "./worker.ts";

const PLACES = 2;
const WORK_MS = 5;
const READ_MS = 10;
const jobs = Array.from({ length: 3000 }, (_, i) => address("job", `k${i}`));

/** A worker with more to do than it can, which has been at work for a while: so it knows its rate. */
async function behind({ workMs = WORK_MS, ...options }: Partial<WorkerOptions> & { readonly workMs?: number } = {}) {
  const on = bench();
  const read = on.store.due.bind(on.store);
  on.store.due = async (query) => {
    await pause(on.clock, READ_MS);
    return read(query);
  };
  const nowMs = on.clock.wallMs();
  for (const at of jobs) await make(on.kernel, at, nowMs);
  const most = { working: 0 };
  const waiting = new Set<Held>();
  const working = new Set<Held>();
  const { worker, worked } = workOn(on, {
    concurrency: PLACES,
    waits: (held) => void waiting.add(held),
    ...options,
    work: async (held) => {
      waiting.delete(held);
      working.add(held);
      most.working = Math.max(most.working, working.size);
      await pause(on.clock, workMs);
      await done(held);
      working.delete(held);
    },
  });
  await on.clock.advance(2500);
  return { on, worker, worked, most, waiting, working };
}

test("a worker that is behind leaves no place empty while it claims, and works on no more than it may", async () => {
  const { on, most, worker, worked } = await behind();
  const before = worked.length;
  await on.clock.advance(1000);
  expect(worked.length - before).toBeGreaterThan((0.95 * PLACES * 1000) / WORK_MS);
  expect(most.working).toBe(PLACES);
  expect(worked).toEqual(jobs.slice(0, worked.length).map(({ key }) => key));
  await on.clock.finish(worker.stop());
});

test("without a place for what waits it claims nothing ahead", async () => {
  const { on, worked, waiting, worker } = await behind({ waits: undefined });
  const before = worked.length;
  await on.clock.advance(1000);
  expect(worked.length - before).toBeLessThanOrEqual((PLACES * 1000) / (WORK_MS + READ_MS) + PLACES);
  expect(waiting.size).toBe(0);
  await on.clock.finish(worker.stop());
});

test("it claims what it does while three claims are made, and again when half of that is left", async () => {
  const { on, waiting, worker } = await behind();
  const rate = PLACES / WORK_MS;
  let most = 0;
  for (let ms = 0; ms < 200; ms++) {
    await on.clock.advance(1);
    most = Math.max(most, waiting.size);
    expect(waiting.size).toBeGreaterThan(0);
  }
  expect(most).toBeGreaterThan(rate * READ_MS);
  expect(most).toBeLessThanOrEqual(rate * 3 * READ_MS + PLACES);
  await on.clock.finish(worker.stop());
});

test("work that lasts is not claimed ahead", async () => {
  const { on, waiting, worker } = await behind({ workMs: 1_000 });
  expect(waiting.size).toBe(0);
  await on.clock.finish(worker.stop());
});

test("a worker that stops leaves what waits to others, as it was", async () => {
  const { on, waiting, worker } = await behind();
  const left = [...waiting];
  expect(left.length).toBeGreaterThan(0);
  await on.clock.finish(worker.stop());
  for (const { at } of left) expect(await rowOf(on.kernel, at)).toMatchObject({ holder: null, tries: 0, value: "0" });
});

test("the place of a record that leaves can be kept for another commit, before what waits takes it", async () => {
  const { on, waiting, working, worker } = await behind();
  const [leaves, other] = working;
  if (leaves === undefined || other === undefined) throw new Error("places are empty");
  const before = waiting.size;
  expect(before).toBeGreaterThan(0);
  expect(worker.reserve(1)).toBe(0);
  expect(worker.leaving(leaves, () => worker.reserve(1))).toBe(1);
  expect(waiting.size).toBe(before);
  worker.release(1);
  expect(waiting.size).toBe(before - 1);
  worker.leaving(other, () => {});
  expect(waiting.size).toBe(before - 2);
  await on.clock.finish(worker.stop());
});

test("nothing is claimed ahead while suspects are due, which get free places only", async () => {
  const { on, waiting, worker } = await behind();
  const nowMs = on.clock.wallMs();
  const suspect = address("job", "suspect");
  await on.kernel.transact(
    (tx) => tx.record(suspect).write({ value: 0, kind: "job", dueMs: nowMs - 1e6, tries: 5 }),
    [suspect],
  );
  await on.clock.advance(500);
  expect(await rowOf(on.kernel, suspect)).toMatchObject({ value: "1" });
  expect(waiting.size).toBeLessThan(20);
  await on.clock.finish(worker.stop());
});
