/**
 * Goal: what grows without end is data that the user asked to keep, and nothing else.
 * Method: a busy year in the simulated time of `openTest`: runs of several workflows with retention that complete, fail, time out and are
 * canceled, with children, signals with ids, slots of their trees, locks, semaphores, rate limits and machines; idempotency keys, dedupe and
 * actions beside them. The rows of every space are counted, deleted ones that wait to be swept and log entries included, after each half of
 * the year: a space that has more rows after the second half than after the first must be in the list of what is kept.
 */

import { expect, test, vi } from "vitest";
import { machine, NonRetryableError, type Pawl, signal, workflow } from "../../src/index.ts";
import { MemoryDatabase } from "../../src/stores/memory/memory.ts";
import { openTest, type TestPawl } from "../../src/testing/index.ts";

const DAYS = 364;
const RUNS_A_DAY = 6;
const TIMES_A_DAY = 3;
/** Sweeps come once for so many records, so there may be this many more of a kind at one moment than at another. */
const SAWTOOTH = 300;

const go = signal<number>("go");
const retention = { completed: "3 days", failed: "10 days", canceled: "3 days", timed_out: "3 days" };

const child = workflow({ name: "child", retention }, async (ctx, day: number) => {
  await ctx.slot("of the tree").set(day);
  return ctx.step("half", () => day / 2);
});
const order = workflow({ name: "order", retention, timeout: "2 days" }, async (ctx, day: number) => {
  await ctx.slot("note").set(day);
  const { value } = await ctx.waitForSignal(go);
  await ctx.lock(`stock-${day}`, () => ctx.step("reserve", () => value));
  await ctx.rateLimit("mail", { max: 10, per: "1s" }).acquire({ key: `customer-${day}` });
  return ctx.call(child, day);
});
const broken = workflow({ name: "broken", retention }, async (ctx) => {
  await ctx.step("never", () => {
    throw new NonRetryableError("never");
  });
});
const kept = workflow("kept", async () => 1);
const ticket = machine("ticket", { initial: "open", transitions: { open: ["closed"], closed: [] } });

/** What the test asks to keep: these may grow, by this many in a half of the year at most. */
const KEPT: Readonly<Record<string, number>> = {
  // A workflow without retention: one run a day.
  run: DAYS / 2,
  // Machines are kept until they are deleted.
  "machine/kept": (TIMES_A_DAY * DAYS) / 2,
  // The number of permits is kept for each name that was used.
  "lock/semaphore": (TIMES_A_DAY * DAYS) / 2,
  // The runs above have two entries each, and the machines one.
  "log entries": DAYS + (TIMES_A_DAY * DAYS) / 2,
};
const keptTicket = machine("kept", { initial: "open", transitions: { open: ["closed"], closed: [] } });

/** One day of a busy year. */
async function live(pawl: TestPawl, day: number): Promise<void> {
  const runs = await Promise.all(
    Array.from({ length: RUNS_A_DAY }, (_, i) => pawl.start(order, day, { id: `order-${day}-${i}` })),
  );
  await Promise.all([
    pawl.start(broken, undefined, { id: `broken-${day}` }),
    pawl.start(kept, undefined, { id: `kept-${day}` }),
  ]);
  // One is canceled, one is left to its timeout, and one is canceled before it has begun.
  const [canceled, , ...others] = runs;
  for (const run of others) {
    await run.signal(go, day, { id: `signal-${day}` });
    await run.signal(go, day, { id: `signal-${day}` });
  }
  await canceled?.cancel();
  await (await pawl.start(order, day, { id: `late-${day}`, delay: "1 day" })).cancel();
  await plain(pawl, day);
  await pawl.clock.advance("1 day");
}

/** What a process does beside its runs, several times a day. */
async function plain(pawl: Pawl, day: number): Promise<void> {
  for (let time = day * TIMES_A_DAY; time < (day + 1) * TIMES_A_DAY; time++) {
    await pawl.lock(`door-${time}`, () => {});
    const permit = await pawl.semaphore(`api-${time}`, { permits: 2 }).tryAcquire();
    if (permit.ok) await permit.hold.release();
    await pawl.rateLimit("api", { max: 100, per: "1s" }).acquire({ key: `tenant-${time}` });
    await pawl.idempotent(`key-${time}`, { ttl: "1 day" }, () => time);
    await pawl.dedupe("consumer", `message-${time}`, () => time, { ttl: "1 day" });
    const { id } = await pawl.actions.create({ expiresIn: "1 day" });
    if (time % 2 === 0) await pawl.actions.consume(id, {});
    const tickets = pawl.machine(ticket);
    await tickets.create(`t-${time}`);
    await tickets.transition(`t-${time}`, "closed", { eventId: `e-${time}` });
    if (time >= 2 * TIMES_A_DAY) await tickets.delete(`t-${time - TIMES_A_DAY}`);
    await pawl.machine(keptTicket).create(`k-${time}`);
  }
}

/** The rows of each space, and the log entries of them all; spaces that are of one run, or one lock, count as one. */
function census(database: MemoryDatabase): Map<string, number> {
  const counts = new Map<string, number>();
  const add = (name: string, count: number) => counts.set(name, (counts.get(name) ?? 0) + count);
  for (const { rows, logs } of database.backup().namespaces.values()) {
    for (const { space } of rows.values()) add(space.replace(/^(slot\/run|ticket\/\w+|inbox)\/.*/, "$1/…"), 1);
    for (const { length } of logs.values()) add("log entries", length);
  }
  return counts;
}

test("after a busy year, only what the user asked to keep has grown", { timeout: 600_000 }, async () => {
  const connect = vi.spyOn(MemoryDatabase.prototype, "connect");
  const pawl = openTest();
  const database = connect.mock.contexts[0] as MemoryDatabase;
  connect.mockRestore();
  pawl.work([order, child, broken, kept]);
  const halves: Map<string, number>[] = [];
  for (let day = 1; day <= DAYS; day++) {
    await live(pawl, day);
    if (day === DAYS / 2 || day === DAYS) halves.push(census(database));
  }
  const [first, second] = halves as [Map<string, number>, Map<string, number>];
  const grown = [...second].map(([space, count]) => [space, count - (first.get(space) ?? 0)] as const);
  console.info(JSON.stringify({ first: Object.fromEntries(first), second: Object.fromEntries(second) }));
  expect(grown.filter(([space, more]) => more > (KEPT[space] ?? 0) + SAWTOOTH)).toEqual([]);
  // Of the others, no more than those of the last three weeks: ten days, seven more as deleted rows, and some until the next sweep.
  expect((second.get("run") ?? 0) - DAYS).toBeLessThan(21 * (2 * RUNS_A_DAY + 2));
  await pawl.close();
});
