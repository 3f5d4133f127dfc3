/**
 * Bursts: many concurrent operations of both writers whose effect does not depend on their order. If one of them wins, the result is the
 * number of winners, and not which one it is.
 */

import { claimDue, Held, wake } from "../../../src/kernel/claim/claim.ts";
import type { Address } from "../../../src/kernel/contract.ts";
import { ACCOUNTS, COUNTERS, type Draw, TIMER_KINDS, type Writer } from "../draw.ts";
import { LEASE_MS, Planned, type World } from "../world.ts";
import { byKey, drawHand, drawHolder, inHand, take } from "./claims.ts";
import { type Kind, kind, pickKind } from "./operation.ts";
import { localRecordKinds } from "./records.ts";
import { localSlotKinds, plusOne } from "./slots.ts";

/** Which writer does what: one after another, so that both are in it. */
const writer = (index: number): Writer => (index % 2 === 0 ? 0 : 1);

function times<T>(count: number, act: (index: number) => Promise<T>): Promise<T[]> {
  return Promise.all(Array.from({ length: count }, (_, index) => act(index)));
}

const inOrder = (numbers: readonly number[]): number[] => [...numbers].sort((a, b) => a - b);

interface Transfer {
  readonly from: string;
  readonly to: string;
  readonly amount: number;
  /** Which of the two accounts are declared. */
  readonly declared: readonly string[];
  readonly throws: boolean;
}

function drawTransfer(draw: Draw): Transfer {
  const from = draw.pick(ACCOUNTS);
  const to = draw.pick(ACCOUNTS);
  const declared = draw.pick([[], [from], [to], [from, to]]);
  return { from, to, amount: draw.from(1, 100), declared, throws: draw.chance(0.15) };
}

function transfer(on: World, by: Writer, { from, to, amount, declared, throws }: Transfer): Promise<unknown> {
  const pawl = on.pawl(by);
  const account = (name: string) => pawl.slot<number>(name, { initial: 1000 });
  const [source, target] = [account(from), account(to)];
  return on.attempt(() =>
    pawl.transact(
      (tx) => {
        tx.slot(source).update((balance) => balance - amount);
        if (throws) throw new Planned("half-way between two accounts");
        tx.slot(target).update((balance) => balance + amount);
        return "moved";
      },
      { touches: declared.map(account) },
    ),
  );
}

/** Many create the same slot concurrently: one of them succeeds. */
async function create(on: World, at: string, count: number): Promise<unknown> {
  await on.pawl(0).slot(at).delete();
  const tries = await times(count, (index) =>
    on.pawl(writer(index)).slot<number>(at).trySet(index, { expectedVersion: 0 }),
  );
  const winners = tries.flatMap(({ ok }, index) => (ok ? [index] : []));
  const { value, version } = await on.pawl(1).slot<number>(at).get();
  const versions = tries.map((answer) => (answer.ok ? answer.version : answer.current));
  return {
    winners: winners.length,
    isTheirs: value === winners[0],
    isOne: versions.every((one) => one === version),
    version,
  };
}

/** The holder commits several times without waiting, while others write to the same record. */
async function pipeline(on: World, held: Held, commits: number, others: number): Promise<unknown> {
  const own = times(commits, () =>
    on.attempt(() =>
      held.commit((record) => {
        record.write({ value: plusOne(record.value) });
        record.append("one of many", null);
        return "counted";
      }),
    ),
  );
  const theirs = times(others, (index) =>
    on.kernel(writer(index)).transact(
      (tx) => {
        const record = tx.record(held.at);
        if (record.exists) record.write({ status: "seen by many" });
      },
      [held.at],
    ),
  );
  const [answers] = await Promise.all([own, theirs]);
  return { at: held.at.text, answers };
}

export const burstKinds: readonly Kind[] = [
  kind(
    "burst of anything on different slots",
    2,
    (draw) =>
      draw.some(draw.cast.slots, draw.from(2, 14)).map((at) => pickKind(localSlotKinds, draw).makeFor(at, draw)),
    (on, operations) => Promise.all(operations.map((operation) => operation.run(on))),
  ),
  kind(
    "burst of anything on different records",
    2,
    (draw) =>
      draw.some(draw.cast.records, draw.from(2, 21)).map((at) => pickKind(localRecordKinds, draw).makeFor(at, draw)),
    (on, operations) => Promise.all(operations.map((operation) => operation.run(on))),
  ),
  kind(
    "burst of increments",
    2,
    (draw) => ({ counters: draw.some(COUNTERS, draw.from(1, 3)), count: draw.from(2, 30) }),
    async (on, { counters, count }) => {
      const versions = await Promise.all(
        counters.map((counter) =>
          times(count, async (index) => (await on.pawl(writer(index)).slot(counter).update(plusOne)).version),
        ),
      );
      const ends = await Promise.all(counters.map((counter) => on.pawl(0).slot(counter).get()));
      return { versions: versions.map(inOrder), ends };
    },
  ),
  kind(
    "burst of creations",
    1,
    (draw) => ({ at: draw.slot(), count: draw.from(2, 12), value: draw.value() }),
    async (on, { at, count, value }) => [await create(on, at, count), await on.pawl(0).slot<unknown>(at).set(value)],
  ),
  kind(
    "burst of transfers",
    2,
    (draw) => Array.from({ length: draw.from(2, 20) }, () => drawTransfer(draw)),
    async (on, transfers) => {
      const answers = await Promise.all(transfers.map((one, index) => transfer(on, writer(index), one)));
      const ends = await Promise.all(ACCOUNTS.map((account) => on.pawl(1).slot(account, { initial: 1000 }).get()));
      return { answers, ends };
    },
  ),
  kind(
    "burst of appends to one log",
    1.5,
    (draw) => ({ at: draw.record(), count: draw.from(2, 20), data: draw.value() }),
    async (on, { at, count, data }) => {
      const append = (index: number) =>
        on.kernel(writer(index)).transact(
          (tx) => {
            const record = tx.record(at);
            if (!record.exists) record.write({ value: "made for its log" });
            return record.append("many", data);
          },
          [at],
        );
      return inOrder(await times(count, append));
    },
  ),
  kind(
    "burst of claims",
    1,
    (draw) => ({ kinds: draw.some(TIMER_KINDS, draw.from(1, 4)), count: draw.from(2, 5), hand: drawHand(draw) }),
    async (on, { kinds, count, hand }) => {
      const options = { kinds, by: "a racer", leaseMs: LEASE_MS, limit: 1000 };
      const found = await times(count, (index) => claimDue(on.kernel(writer(index)), options));
      const held = byKey(found.flatMap((one) => one.held));
      // Who won is up to the store, so the first writer continues with all of them.
      for (const one of held) one.abandon();
      const rows = await on.kernel(0).read(held.map(({ at }) => at));
      return take(
        on,
        hand,
        rows
          .map((row, index) => (row === null ? held[index] : new Held(on.kernel(0), row)))
          .filter((one) => one !== undefined),
      );
    },
  ),
  kind(
    "burst of wake-ups",
    1,
    (draw) => ({ at: draw.bell(), count: draw.from(2, 10) }),
    (on, { at, count }) => times(count, (index) => on.kernel(writer(index)).transact((tx) => wake(tx, at), [at])),
  ),
  kind(
    "burst of commits by a holder and others",
    2,
    (draw) => ({ hand: drawHolder(draw), commits: draw.from(2, 10), others: draw.from(0, 4) }),
    async (on, { hand, commits, others }) => {
      const held = inHand(on, hand);
      return held === undefined ? "nothing in this hand" : pipeline(on, held, commits, others);
    },
  ),
  kind(
    "burst of decisions on all records, some of which throw",
    0.5,
    (draw) => ({ throwing: draw.some(draw.cast.records, 5), value: draw.value() }),
    async (on, { throwing, value }) => {
      const write = (at: Address, index: number) =>
        on.attempt(() =>
          on.kernel(writer(index)).transact(
            (tx) => {
              tx.record(at).write({ value });
              if (throwing.includes(at)) throw new Planned("one of many");
              return tx.record(at).version;
            },
            [at],
          ),
        );
      return Promise.all(on.cast.records.map(write));
    },
  ),
];
