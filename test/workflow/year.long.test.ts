/**
 * Goal: what grows without end is data that the user asked to keep, and nothing else.
 * Method: a busy year in the simulated time of `openTest`: runs of several workflows with retention that complete, fail, time out and are
 * canceled, with children of their own and shared ones, signals with ids, slots of their trees, locks, semaphores, rate limits and machines;
 * in plain code locks that are waited for, idempotency keys, dedupe and actions. Nearly all of them have names of their own, made anew each day.
 * The rows of every space are counted at the end of each quarter, deleted ones that wait to be swept and log entries included. A space that
 * has more rows at the end of the year than in the middle must be in the list of what is kept, and the spaces must be those that are known
 * here, so that a new kind of record has to be thought about.
 */

import { expect, test, vi } from "vitest";
import { machine, NonRetryableError, type Pawl, signal, workflow } from "../../src/index.ts";
import { MemoryDatabase } from "../../src/stores/memory/memory.ts";
import { openTest, type TestPawl } from "../../src/testing/index.ts";

const DAYS = 364;
/** Weeks have five busy days. */
const BUSY_DAYS = (DAYS / 7) * 5;
/** How often each thing is done in a day; a space that keeps all of it has grown by 390 rows between the counts that are compared. */
const TIMES = 3;
/** Sweeps come once for a number of records, so there may be this many more of a kind at one moment than at another. */
const SAWTOOTH = 270;

const go = signal<number>("go");
const retention = { completed: "3 days", failed: "10 days", canceled: "3 days", timed_out: "3 days" };

const part = workflow({ name: "part", retention }, async (ctx, day: number) => {
  await ctx.slot("of the tree").set(day);
  return ctx.step("half", () => day / 2);
});
const shared = workflow({ name: "shared", retention }, async (ctx, day: number) => {
  await ctx.sleep("1 minute");
  return day;
});
const order = workflow(
  { name: "order", retention, timeout: "2 days" },
  async (ctx, given: { id: string; day: number }) => {
    const { id, day } = given;
    await ctx.slot("note").set(day);
    await ctx.slot("last", { scope: "workflow" }).set(day);
    const { value } = await ctx.waitForSignal(go);
    await ctx.lock([`stock-${day}`, `shelf-${id}`], () => ctx.step("reserve", () => value));
    await ctx.semaphore(`packers-${id}`, { permits: 2 }).with(() => ctx.sleep("1 minute"));
    await ctx.step("call", () => value, { semaphore: { name: `line-${id}`, permits: 1 } });
    await ctx.rateLimit("mail", { max: 10, per: "1s" }).acquire({ key: `customer-${id}` });
    return Promise.all([ctx.call(part, day), ctx.call(shared, day, { id: `shared-${day}`, whenParentEnds: "leave" })]);
  },
);
const broken = workflow({ name: "broken", retention }, async (ctx) => {
  await ctx.step("never", () => {
    throw new NonRetryableError("never");
  });
});
const kept = workflow("kept", async () => 1);
const ticket = machine("ticket", { initial: "open", transitions: { open: ["closed"], closed: [] } });
const keptTicket = machine("kept", { initial: "open", transitions: { open: ["closed"], closed: [] } });

/** Every space there is, and by how many rows it may grow in half a year because the test asks to keep them. */
const SPACES: Readonly<Record<string, number>> = {
  // A workflow without retention: one run on each busy day.
  run: BUSY_DAYS / 2,
  inbox: 0,
  "run-waiters": 0,
  "signal-id": 0,
  "slot/run/…": 0,
  // One slot, which is the workflow's.
  "slot/workflow/order": 0,
  slot: 0,
  "lock/mutex": 0,
  "lock/rwlock": 0,
  "lock/semaphore": 0,
  "ticket/…": 0,
  "rate/api": 0,
  "rate/mail": 0,
  // Machines are kept until they are deleted.
  "machine/kept": (TIMES * BUSY_DAYS) / 2,
  "machine/ticket": 0,
  "machine-event/ticket": 0,
  idempotent: 0,
  "dedupe/consumer": 0,
  action: 0,
  "action-owner/…": 0,
  // The runs above have two entries each, and the machines one.
  "log entries": BUSY_DAYS + (TIMES * BUSY_DAYS) / 2,
};

/** One day of a busy year. */
async function live(pawl: TestPawl, day: number): Promise<void> {
  const start = (id: string) => pawl.start(order, { id, day }, { id: `order-${id}` });
  const ids = Array.from({ length: TIMES }, (_, i) => `${day}-${i}`);
  // The second one never gets its signal, so it times out; the third is canceled before it has begun.
  const [canceled, , delayed, ...runs] = await Promise.all([
    start(`${day}-canceled`),
    start(`${day}-late`),
    pawl.start(order, { id: `${day}-delayed`, day }, { id: `delayed-${day}`, delay: "1 day" }),
    ...ids.map(start),
    pawl.start(broken, undefined, { id: `broken-${day}` }),
    pawl.start(kept, undefined, { id: `kept-${day}` }),
  ]);
  const orders = runs.slice(0, TIMES);
  for (const id of ["a", "b", "a"])
    await Promise.all(orders.map((run) => pawl.run(order, run.id).signal(go, day, { id: `${id}-${day}` })));
  await Promise.all([canceled.cancel(), delayed.cancel(), ...ids.map((_, i) => plain(pawl, day * TIMES + i))]);
}

/** What a process does besides its runs. */
async function plain(pawl: Pawl, time: number): Promise<void> {
  const door = await pawl.mutex(`door-${time}`).acquire();
  const next = pawl.lock(`door-${time}`, () => {});
  await pawl.rwlock(`file-${time}`).read.with(() => {});
  await door.release();
  await next;
  const permit = await pawl.semaphore(`api-${time}`, { permits: 2 }).tryAcquire();
  if (permit.ok) await permit.hold.release();
  await pawl.rateLimit("api", { max: 100, per: "1s" }).acquire({ key: `tenant-${time}` });
  await pawl.idempotent(`key-${time}`, { ttl: "1 day" }, () => time);
  await pawl.dedupe("consumer", `message-${time}`, () => time, { ttl: "1 day" });
  await actions(pawl, time);
  const slot = pawl.slot<number>(`note-${time}`);
  await slot.set(time);
  await slot.delete();
  const tickets = pawl.machine(ticket);
  await tickets.create(`t-${time}`);
  await tickets.transition(`t-${time}`, "closed", { eventId: `e-${time}` });
  await tickets.delete(`t-${time}`);
  await pawl.machine(keptTicket).create(`k-${time}`);
}

async function actions(pawl: Pawl, time: number): Promise<void> {
  const one = await pawl.actions.create({ expiresIn: "1 day" });
  if (time % 2 === 0) await pawl.actions.consume(one.id, {});
  const many = await pawl.actions.create({ expiresIn: "1 day", owner: `owner-${time}`, uses: 3 });
  await pawl.actions.consume(many.id, {});
}

/** The rows of each space, and the log entries of them all; spaces that are of one run, one lock or one owner count as one. */
function census(database: MemoryDatabase): Map<string, number> {
  const counts = new Map<string, number>();
  const add = (name: string, count: number) => counts.set(name, (counts.get(name) ?? 0) + count);
  for (const { rows, logs } of database.backup().namespaces.values()) {
    for (const { space } of rows.values()) add(space.replace(/^(slot\/run|ticket|inbox|action-owner)\/.*/, "$1/…"), 1);
    for (const { length } of logs.values()) add("log entries", length);
  }
  return counts;
}

test("after a busy year, only what the user asked to keep has grown", { timeout: 600_000 }, async () => {
  const connect = vi.spyOn(MemoryDatabase.prototype, "connect");
  const pawl = openTest({ strict: false });
  const database = connect.mock.contexts[0] as MemoryDatabase;
  connect.mockRestore();
  pawl.work([order, part, shared, broken, kept]);
  const quarters: Map<string, number>[] = [];
  const seen = new Set<string>();
  for (let day = 1; day <= DAYS; day++) {
    if (day % 7 > 1) await live(pawl, day);
    await pawl.clock.advance("1 day");
    if (day % 7 === 0) for (const space of census(database).keys()) seen.add(space);
    if (day % (DAYS / 4) === 0) quarters.push(census(database));
  }
  const [, middle, , end] = quarters as [
    Map<string, number>,
    Map<string, number>,
    Map<string, number>,
    Map<string, number>,
  ];
  console.info(
    [...seen]
      .sort()
      .map((space) => `${space}: ${quarters.map((counts) => counts.get(space) ?? 0).join(", ")}`)
      .join("\n"),
  );
  expect([...seen].sort()).toEqual(Object.keys(SPACES).sort());
  const grown = [...end].map(([space, count]) => [space, count - (middle.get(space) ?? 0)] as const);
  expect(grown.filter(([space, more]) => more > (SPACES[space] ?? 0) + SAWTOOTH)).toEqual([]);
  // Of the runs with retention, no more than those of the last three weeks: ten days, seven more as deleted rows, and some until the sweep.
  expect((end.get("run") ?? 0) - BUSY_DAYS).toBeLessThan(21 * (3 * TIMES + 5));
  expect(await runsLeft(pawl)).toBe(BUSY_DAYS);
  await pawl.close();
});

/** How many runs there are when the retention of all others has ended. */
async function runsLeft(pawl: TestPawl): Promise<number> {
  for (let day = 0; day < 15; day++) await pawl.clock.advance("1 day");
  return (await pawl.kernel.list({ space: "run", prefix: "", after: null, limit: 10_000 })).length;
}
