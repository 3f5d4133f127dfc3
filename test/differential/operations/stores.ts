/**
 * What reaches the store in other ways: sweeps, batches with outdated assumptions, late batches, values that no
 * codec can read, neighbours in another namespace, handles that are closed, and decisions with more records than most.
 */

import {
  type Address,
  address,
  type Key,
  keyText,
  NEW_ROW,
  type Put,
  type Receipt,
  type Row,
} from "../../../src/kernel/contract.ts";
import type { Tx } from "../../../src/kernel/decision.ts";
import type { Draw } from "../draw.ts";
import { isSameEverywhere, type RawWriter, type World } from "../world.ts";
import { type Kind, kind } from "./operation.ts";
import { plusOne } from "./slots.ts";

const slotAt = (name: string): Key => ({ space: "slot", key: name });

const DAY_MS = 86_400_000;

/** Lets deleted rows be as old as those that are swept. */
async function age(raw: RawWriter, keys: readonly Key[]): Promise<void> {
  await raw.commit(keys, (rows) =>
    rows.flatMap((row) =>
      row !== null && row.value === null
        ? [{ was: row, row: { ...row, version: row.version + 1, dueMs: 1 }, entries: [] }]
        : [],
    ),
  );
}

/** Sweeps until nothing is left; returns how many were removed each time. */
async function sweepAll(on: World, sweepSome: () => Promise<number>): Promise<number[]> {
  const counts: number[] = [];
  do counts.push(await sweepSome());
  while (counts.at(-1) !== 0 && counts.length < 200);
  if (counts.length > 2) on.saw("sweep: in several goes");
  if (counts.length > 1) on.saw("sweep: some are gone");
  return counts;
}

async function sweep(on: World, limit: number, remove: readonly Address[]): Promise<unknown> {
  // Those that kernels have started would take some of them away.
  await on.swept();
  await on.kernel(0).transact((tx) => {
    for (const at of remove) tx.record(at).remove();
  }, remove);
  await on.swept();
  const { ours, theirs } = on.raw;
  const slots = on.cast.slots.map(slotAt);
  await age(ours, everything(on));
  await age(theirs, slots);
  const counts = await sweepAll(on, () => ours.store.sweep(limit));
  const left = (await theirs.store.read(slots)).map((row) => row?.version ?? null);
  return { counts, left, theirCounts: await sweepAll(on, () => theirs.store.sweep(limit)) };
}

const everything = ({ cast }: World): Key[] => [
  ...cast.slots.map(slotAt),
  ...cast.records,
  ...cast.timers,
  ...cast.bells,
];

/** Long enough that what was deleted is swept, and every lease has ended. */
const LEAP_MS = 8 * DAY_MS;

/** Time passes. A writer that has just seen what was deleted sweeps it, and makes some of it again. */
async function leap(on: World, args: { by: 0 | 1; limit: number; firstMs: number; slots: string[] }): Promise<unknown> {
  const { by, limit, firstMs, slots } = args;
  await on.swept();
  await on.ground.leap(LEAP_MS);
  const theirCounts = await sweepAll(on, () => on.raw.theirs.store.sweep(limit));
  // All that was leased is due now, since times that differ from clock to clock: they get times that are the same on each.
  const keys = everything(on).map(({ space, key }) => address(space, key));
  await on.raw.ours.commit(keys, (rows) =>
    rows.flatMap((row, index) =>
      row === null || row.value === null || row.dueMs === null || isSameEverywhere(row.dueMs)
        ? []
        : [{ was: row, row: { ...row, version: row.version + 1, dueMs: firstMs + index }, entries: [] }],
    ),
  );
  const seen = await on.kernel(by).transact((tx) => keys.map((at) => tx.record(at).version), keys);
  await on.swept();
  const counts = await sweepAll(on, () => on.sweep(by, limit));
  const made: unknown[] = [];
  for (const slot of slots) made.push(await on.pawl(by).slot<string>(slot).set("after all this time"));
  return { theirCounts, seen, counts, made };
}

const BELIEFS = ["right", "right", "older", "absent", "other"] as const;
type Belief = (typeof BELIEFS)[number];

/** A row that never existed. */
const NOBODYS_ID = 2_000_000_000;

function believe(at: Key, row: Row | null, belief: Belief): Put {
  const blank = { ...NEW_ROW, space: at.space, key: at.key };
  const believed = {
    right: row,
    older: row === null ? null : { ...row, version: row.version - 1 },
    absent: null,
    other: { ...(row ?? blank), id: NOBODYS_ID },
  }[belief];
  const was = believed ?? blank;
  const next = { ...was, version: was.version + 1, value: '"raw"', dueMs: was.value === null ? null : was.dueMs };
  return { was: believed, row: next, entries: [] };
}

async function commitOnBelief(on: World, beliefs: readonly (readonly [Address, Belief])[]): Promise<unknown> {
  const raw = on.raw.ours;
  const keys = beliefs.map(([at]) => at);
  const rows = await raw.store.read(keys);
  const puts = beliefs.map(([at, belief], index) => believe(at, rows[index] ?? null, belief));
  // Nothing is locked: the store has only the belief to go by.
  let receipt = await raw.commit([], () => puts);
  // A store may not see without a lock that a record is absent (`Receipt`).
  const absent = new Set(
    puts.flatMap(({ was, row }, index) => (was === null && rows[index] === null ? [keyText(row)] : [])),
  );
  const movedOf = (one: Receipt) => (one.committed ? [] : one.moved.map(keyText).filter((text) => !absent.has(text)));
  if (!receipt.committed && movedOf(receipt).length === 0) receipt = await raw.commit(keys, () => puts);
  on.saw(receipt.committed ? "raw batch: committed" : "raw batch: moved");
  if (!receipt.committed) return { moved: movedOf(receipt).sort() };
  return { ids: receipt.ids.length, rows: (await raw.store.read(keys)).map((row) => on.row(row)) };
}

async function commitLate(on: World, at: Address): Promise<unknown> {
  const old = await on.raw.ours.settle();
  await on.raw.ours.settle();
  return on.raw.ours.commitIn(old, [], () => [believe(at, null, "absent")]);
}

/** As if it had been claimed more often than the store's clock has had milliseconds: only the floor keeps such a fence in mind. */
async function raiseFence(on: World, at: Address): Promise<unknown> {
  await on.raw.ours.commit([at], ([row = null], fenceFloor) => {
    if (row === null) return [];
    const fence = Math.max(row.fence, fenceFloor, on.ground.nowMs()) + DAY_MS;
    return [{ was: row, row: { ...row, version: row.version + 1, fence }, entries: [] }];
  });
  const [row = null] = await on.kernel(0).read([at]);
  return on.row(row);
}

const UNREADABLE = ["~cipher:abc", "no JSON", '{"$unheard of":1}', '{"$date":"never"}', ""];

async function unreadable(on: World, at: string, text: string): Promise<unknown> {
  const raw = on.raw.ours;
  const key = slotAt(at);
  await raw.commit([key], ([row = null]) => {
    const put = believe(key, row, "right");
    return [{ ...put, row: { ...put.row, value: text } }];
  });
  const slot = on.pawl(0).slot<unknown>(at);
  const answers = [
    await on.attempt(() => slot.get()),
    await on.attempt(() => slot.update((value) => value)),
    await on.attempt(() => on.pawl(1).slots.list({ prefix: at })),
  ];
  return [...answers, await slot.set("readable again")];
}

async function neighbour(on: World, at: string, does: "set" | "delete" | "list", value: unknown): Promise<unknown> {
  const before = await on.pawl(0).slot(at).get();
  const theirs = on.neighbour.slot<unknown>(at);
  const answer = await on.attempt(() => {
    if (does === "set") return theirs.set(value);
    return does === "delete" ? theirs.delete() : on.neighbour.slots.list({ prefix: at });
  });
  return { answer, before, after: await on.pawl(1).slot(at).get() };
}

async function reopen(on: World, by: 0 | 1): Promise<unknown> {
  const closed = await on.reopen(by);
  return [
    await on.attempt(() => closed.slot("a").get()),
    await on.attempt(() => closed.slot<number>("a").set(1)),
    await on.pawl(by).slots.list({ limit: 3 }),
  ];
}

const many = (index: number): Address => address("many", `${index}`);

/** Counts on many records in one decision; all but a few are declared. */
async function countMany(on: World, by: 0 | 1, count: number, late: number): Promise<unknown> {
  const keys = Array.from({ length: count }, (_, index) => many(index));
  const decide = (tx: Tx) => {
    let sum = 0;
    for (const at of keys) {
      const record = tx.record(at);
      record.write({ value: plusOne(record.value) });
      sum += record.version;
    }
    return sum;
  };
  return on.kernel(by).transact(decide, keys.slice(late));
}

/** Numbers of records around which stores cut what they write into pieces, and the most there may be. */
const drawCount = (draw: Draw): number => (draw.chance(0.1) ? 1000 : draw.pick([2, 15, 16, 17, 63, 64, 65, 100, 200]));

export const storeKinds: readonly Kind[] = [
  kind(
    "store.sweep",
    2,
    (draw) => ({ limit: draw.from(1, 5), remove: draw.some(draw.cast.timers, 2) }),
    (on, { limit, remove }) => sweep(on, limit, remove),
  ),
  kind(
    "time passes",
    0.8,
    (draw) => ({
      by: draw.writer(),
      limit: draw.from(1, 20),
      firstMs: draw.pastTimesMs(100),
      slots: draw.some(draw.cast.slots, 3),
    }),
    (on, args) => leap(on, args),
  ),
  kind(
    "store.commit on a belief",
    3,
    (draw) => draw.some(draw.cast.records, draw.from(1, 5)).map((at) => [at, draw.pick(BELIEFS)] as const),
    (on, beliefs) => commitOnBelief(on, beliefs),
  ),
  kind(
    "store.commit too late",
    0.5,
    (draw) => draw.record(),
    (on, at) => commitLate(on, at),
  ),
  kind(
    "store.commit with a fence far ahead",
    2,
    (draw) => draw.timer(),
    (on, at) => raiseFence(on, at),
  ),
  kind(
    "slot that cannot be read",
    0.5,
    (draw) => ({ at: draw.slot(), text: draw.pick(UNREADABLE) }),
    (on, { at, text }) => unreadable(on, at, text),
  ),
  kind(
    "neighbour",
    3,
    (draw) => ({ at: draw.slot(), does: draw.pick(["set", "set", "delete", "list"] as const), value: draw.value() }),
    (on, { at, does, value }) => neighbour(on, at, does, value),
  ),
  kind(
    "handle closed and opened again",
    0.5,
    (draw) => draw.writer(),
    (on, by) => reopen(on, by),
  ),
  kind(
    "decision on many records",
    1,
    (draw) => ({ by: draw.writer(), count: drawCount(draw), late: draw.below(3) }),
    (on, { by, count, late }) => countMany(on, by, count, late),
  ),
  kind(
    "decision on too many records",
    0.1,
    (draw) => draw.writer(),
    (on, by) => countMany(on, by, 1001, 0),
  ),
  kind(
    "decision that gives a promise",
    0.3,
    (draw) => draw.record(),
    (on, at) => on.kernel(0).transact(async (tx) => tx.record(at).write({ value: "never" }), [at]),
  ),
  kind(
    "decision that uses the handle",
    0.3,
    (draw) => ({ at: draw.record(), slot: draw.slot() }),
    (on, { at, slot }) =>
      on.kernel(0).transact(
        (tx) => {
          tx.record(at).write({ value: "never" });
          void on.pawl(0).slot<string>(slot).set("never");
        },
        [at],
      ),
  ),
  kind(
    "decision that is over",
    0.3,
    (draw) => draw.record(),
    async (on, at) => {
      const kept: Tx[] = [];
      await on.kernel(0).transact((tx) => void kept.push(tx), [at]);
      return kept[0]?.record(at).value;
    },
  ),
];
