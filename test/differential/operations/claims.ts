/**
 * Claims: records that become due, their holders, and wake-ups.
 *
 * A claim is kept in one of a few variables and used from there, also when it was lost long ago. Timers have times that are the same on
 * every clock, so it is known which of them a limited claim takes. Bells are woken at times of the store's own clock, so all that are due
 * are claimed together.
 */

import { claim, claimDue, Held, wake } from "../../../src/kernel/claim/claim.ts";
import type { Address } from "../../../src/kernel/contract.ts";
import { BELL_KINDS, type Draw, TIMER_KINDS, type Writer } from "../draw.ts";
import { LEASE_MS, Planned, type World } from "../world.ts";
import { type Kind, kind } from "./operation.ts";
import { plusOne } from "./slots.ts";

const HANDS = 6;
export const drawHand = (draw: Draw): number => draw.below(HANDS);

/** Whose turn it is to work: most often the one who claimed last, and at times one who lost its record long ago. */
export type Hand = number | "last";
export const drawHolder = (draw: Draw): Hand => (draw.chance(0.6) ? "last" : drawHand(draw));
export const inHand = (on: World, hand: Hand): Held | undefined => on.hands[hand === "last" ? on.lastHand : hand];

/** Puts what was claimed into hands, the first into the one named. Returns what is known of each. */
export function take(on: World, hand: number, held: readonly Held[]): unknown[] {
  return held.map((one, index) => {
    on.lastHand = (hand + index) % HANDS;
    on.hands[on.lastHand] = one;
    return { at: one.at.text, fence: on.fenceOf(one), tries: one.tries };
  });
}

export const byKey = (held: readonly Held[]): Held[] =>
  [...held].sort((a, b) => (a.at.text < b.at.text ? -1 : a.at.text > b.at.text ? 1 : 0));

/** An operation of the holder of a record. */
function heldKind<Args>(
  name: string,
  weight: number,
  choose: (draw: Draw) => Args,
  run: (on: World, held: Held, args: Args) => Promise<unknown>,
): Kind {
  return kind(
    name,
    weight,
    (draw) => ({ hand: drawHolder(draw), ...choose(draw) }),
    async (on, args) => {
      const held = inHand(on, args.hand);
      if (held === undefined) return "nothing in this hand";
      return { at: held.at.text, answer: await on.attempt(() => run(on, held, args)) };
    },
  );
}

/** Claims up to `limit` records of one kind of timer: the longest due, in this order. */
async function claimTimers(on: World, by: Writer, timers: string, limit: number, hand: number): Promise<unknown> {
  const holder = `writer ${by}`;
  const found = await claimDue(on.kernel(by), { kinds: [timers], by: holder, leaseMs: LEASE_MS, limit });
  on.saw(found.held.length === 0 ? "claim: nothing due" : found.isFull ? "claim: as many as requested" : "claim: some");
  if (found.held.some(({ tries }) => tries > 1)) on.saw("claim: tried before");
  return { held: take(on, hand, found.held), isFull: found.isFull, isMore: found.nextInMs !== null };
}

const COMMITS = ["count", "append", "both", "change", "look", "clock", "another", "remove", "throw"] as const;

function commit(held: Held, how: (typeof COMMITS)[number], another: Address): Promise<unknown> {
  return held.commit((record, tx) => {
    switch (how) {
      case "count":
        record.write({ value: plusOne(record.value) });
        return record.version;
      case "append":
        return record.append("worked", { version: record.version });
      case "both":
        record.write({ value: plusOne(record.value), status: `at ${record.version}` });
        record.append("worked", null);
        return [record.version, record.append("worked again", "")];
      case "change":
        record.write({ status: "changed by its holder" });
        return record.version;
      case "look":
        return [record.version, record.value, record.holder];
      case "clock":
        record.write({ value: plusOne(record.value) });
        return tx.nowMs > 0 && tx.fenceFloor >= tx.nowMs;
      case "another": {
        record.write({ value: plusOne(record.value) });
        const other = tx.record(another);
        other.write({ value: plusOne(other.value) });
        return [record.version, other.version];
      }
      case "remove":
        return record.remove();
      case "throw":
        record.write({ value: "never" });
        throw new Planned("the holder does not want to");
    }
  });
}

export const claimKinds: readonly Kind[] = [
  kind(
    "timer.set",
    8,
    (draw) => ({
      by: draw.writer(),
      at: draw.timer(),
      changes: { value: draw.below(10), kind: draw.pick(TIMER_KINDS), dueMs: draw.timeMs() },
    }),
    (on, { by, at, changes }) => on.kernel(by).transact((tx) => tx.record(at).write(changes), [at]),
  ),
  kind(
    "timer.claim",
    6,
    (draw) => ({ by: draw.writer(), timers: draw.pick(TIMER_KINDS), limit: draw.from(1, 3), hand: drawHand(draw) }),
    (on, { by, timers, limit, hand }) => claimTimers(on, by, timers, limit, hand),
  ),
  kind(
    "timer.claim one by name",
    3,
    (draw) => ({ by: draw.writer(), at: draw.timer(), hand: drawHand(draw) }),
    async (on, { by, at, hand }) => {
      const row = await on.kernel(by).transact((tx) => claim(tx, at, { by: "by name", leaseMs: LEASE_MS }), [at]);
      if (row === undefined) return "not to be had";
      return take(on, hand, [new Held(on.kernel(by), row)]);
    },
  ),
  kind(
    "timer.make and claim at once",
    2,
    (draw) => ({
      by: draw.writer(),
      at: draw.timer(),
      changes: { value: draw.value(), kind: draw.pick(TIMER_KINDS), dueMs: draw.pastMs() },
      hand: drawHand(draw),
    }),
    async (on, { by, at, changes, hand }) => {
      const row = await on.kernel(by).transact((tx) => {
        tx.record(at).write(changes);
        return claim(tx, at, { by: "its maker", leaseMs: LEASE_MS });
      }, []);
      return row === undefined ? "not to be had" : take(on, hand, [new Held(on.kernel(by), row)]);
    },
  ),
  kind(
    "timer.lapse",
    4,
    (draw) => ({ by: draw.writer(), at: draw.timer(), dueMs: draw.pastMs() }),
    // As if the lease had ended: the next claimer takes over, and the old holder is fenced.
    (on, { by, at, dueMs }) =>
      on.kernel(by).transact(
        (tx) => {
          const record = tx.record(at);
          if (!record.exists || record.holder === null) return "nobody holds it";
          record.write({ dueMs });
          return "lapsed";
        },
        [at],
      ),
  ),
  kind(
    "timer.claim with wrong options",
    0.6,
    (draw) =>
      draw.pick([{ leaseMs: 0 }, { leaseMs: 10 ** 10 }, { by: "" }, { kinds: ["timer", "\u0000"] }, { limit: 0 }]),
    (on, wrong) => claimDue(on.kernel(0), { kinds: ["timer"], by: "somebody", leaseMs: LEASE_MS, limit: 10, ...wrong }),
  ),
  kind(
    "bell.set",
    4,
    (draw) => ({
      by: draw.writer(),
      at: draw.bell(),
      changes: { value: draw.below(10), kind: draw.pick(BELL_KINDS), dueMs: draw.timeMs() },
    }),
    (on, { by, at, changes }) => on.kernel(by).transact((tx) => tx.record(at).write(changes), [at]),
  ),
  kind(
    "bell.wake",
    5,
    (draw) => ({ by: draw.writer(), at: draw.bell(), isDeclared: draw.chance(0.5) }),
    async (on, { by, at, isDeclared }) => {
      const woken = await on.kernel(by).transact((tx) => wake(tx, at), isDeclared ? [at] : []);
      on.saw(woken ? "wake: woken" : "wake: absent");
      const [row = null] = await on.kernel(by).read([at]);
      return [woken, on.row(row)];
    },
  ),
  kind(
    "bell.claim",
    4,
    (draw) => ({ by: draw.writer(), hand: drawHand(draw) }),
    async (on, { by, hand }) => {
      const options = { kinds: BELL_KINDS, by: "a ringer", leaseMs: 2 * LEASE_MS, limit: 1000 };
      const { held, isFull } = await claimDue(on.kernel(by), options);
      return { held: take(on, hand, byKey(held)), isFull };
    },
  ),
  heldKind(
    "held.commit",
    10,
    (draw) => ({ how: draw.pick(COMMITS), another: draw.record() }),
    (_, held, { how, another }) => commit(held, how, another),
  ),
  heldKind(
    "held.look",
    2,
    () => ({}),
    (_, held) => held.look((record) => [record.version, record.value, record.wakes]),
  ),
  heldKind(
    "held.renew",
    2,
    (draw) => ({ leaseMs: draw.pick([LEASE_MS, 2 * LEASE_MS]) }),
    async (on, held, { leaseMs }) => {
      await held.renew(leaseMs);
      const [row = null] = await on.kernel(0).read([held.at]);
      return on.row(row);
    },
  ),
  heldKind(
    "held.rest",
    4,
    (draw) => ({ dueMs: draw.timeMs(), does: draw.pick(["nothing", "count", "remove", "throw", "time"] as const) }),
    async (on, held, { dueMs, does }) => {
      const answer = await held.rest(
        () => (does === "time" ? -1 : dueMs),
        (record) => {
          if (does === "count") record.write({ value: plusOne(record.value), status: "rests" });
          if (does === "remove") record.remove();
          if (does === "throw") throw new Planned("not yet");
        },
      );
      on.saw(`rest: ${answer}`);
      return answer;
    },
  ),
  heldKind(
    "held.rest until now",
    1,
    () => ({}),
    // The order in which timers come due is known only without the store's own clock.
    (_, held) => (held.at.space === "bell" ? held.rest((tx) => tx.nowMs) : Promise.resolve("only bells")),
  ),
  heldKind(
    "held.abandon",
    1,
    () => ({}),
    async (_, held) => held.abandon(),
  ),
];
