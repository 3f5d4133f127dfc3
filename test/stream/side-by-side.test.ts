/**
 * Goal: releases side by side on one store do each their own, and nothing twice: workers that know different reactions, two versions of one reaction, and
 * two versions of an aggregate's reducers, which do not fold against each other.
 * Method: handles as processes have them. Effects are counted in streams, and calls of reducers by the reducers.
 */

import { expect, test } from "vitest";
import { aggregate, event, type Pawl, reaction } from "../../src/index.ts";
import { EVERY, onStores, PATIENCE } from "../workflow/kit.ts";
import { all, Deposited, deposits } from "./kit.ts";

const Mailed = event<{ readonly of: string; readonly by: string }>("Mailed");

const range = (length: number) => Array.from({ length }, (_, i) => i);

const isDone = async (pawl: Pawl, name: string, handled: number): Promise<boolean> => {
  const { targets } = await pawl.reactions.targets(name);
  return targets.reduce((sum, one) => sum + one.handled, 0) === handled;
};

onStores(EVERY, (place) => {
  test("workers that know different reactions, with one in common: each event is handled once by each reaction", async () => {
    const [one, two] = [await place.open(), await place.open()];
    const copy = (name: string, by: string) =>
      reaction(name, { on: [Deposited] }, (e, { emit }) => emit(name, [Mailed({ of: e.id, by })]));
    one.work([copy("first", "one"), copy("both", "one")]);
    two.work([copy("both", "two"), copy("second", "two")]);
    const ids: string[] = [];
    for (const n of range(20)) ids.push(...(await one.stream(`s-${n % 5}`).append(deposits(2))).ids);
    for (const name of ["first", "both", "second"]) {
      await expect.poll(() => isDone(one, name, 40), PATIENCE).toBe(true);
      const mailed = (await all(one.stream(name).read({ events: [Mailed] }))).map(({ data }) => data);
      expect(mailed.map(({ of }) => of).toSorted()).toEqual(ids.toSorted());
      if (name !== "both") expect(new Set(mailed.map(({ by }) => by)).size).toBe(1);
    }
  });

  test("two versions of one reaction, with other targets: each event is handled once, and one goes on where the other stops", async () => {
    const [one, two] = [await place.open(), await place.open()];
    const version = (by: string, targets: number) =>
      reaction("mail", { on: [Deposited], target: (e) => `${by}-${e.data.amount % targets}` }, (e, { emit }) =>
        emit("mails", [Mailed({ of: e.id, by })]),
      );
    const old = one.work([version("old", 2)]);
    two.work([version("new", 3)]);
    const ids: string[] = [];
    const send = async (count: number) => {
      for (const n of range(count)) ids.push(...(await one.stream(`s-${n % 4}`).append(deposits(3))).ids);
    };
    await send(10);
    // What the old version has routed is the new one's to handle as well.
    await old.stop();
    await send(10);
    await expect.poll(() => isDone(two, "mail", 60), PATIENCE).toBe(true);
    const mailed = (await all(two.stream("mails").read({ events: [Mailed] }))).map(({ data }) => data.of);
    expect(mailed.toSorted()).toEqual(ids.toSorted());
  });

  test("two versions of an aggregate's reducers: each folds an event once, and neither folds again because of the other", async () => {
    const options = { checkPurity: false };
    const [one, two] = [await place.open(options), await place.open(options)];
    const EVENTS = 400;
    const ROUNDS = 10;
    let folded = 0;
    const counting = (version: string, step: number) =>
      aggregate("counting", {
        initial: { count: 0 },
        on: [
          [
            Deposited,
            ({ count }) => {
              folded += 1;
              return { count: count + step };
            },
          ],
        ],
        version,
        commands: {
          add: ({ count }, _: undefined, { emit }) => {
            emit(Deposited({ amount: 1 }));
            return count;
          },
        },
      });
    const [old, now] = [counting("1", 1), counting("2", 10)];
    await one.stream("s").append(deposits(EVENTS));
    await one.aggregate(old, "s").execute("add");
    await two.aggregate(now, "s").execute("add");
    const first = folded;
    expect(first).toBeGreaterThanOrEqual(2 * EVENTS);
    for (const n of range(ROUNDS)) {
      expect((await one.aggregate(old, "s").execute("add")).output).toBe(EVENTS + 2 + 2 * n);
      expect((await two.aggregate(now, "s").execute("add")).output).toBe(10 * (EVENTS + 3 + 2 * n));
      // In a decision with other things, where the state is brought up to date outside.
      expect(await two.transact((tx) => tx.aggregate(old, "s").state.count)).toBe(EVENTS + 4 + 2 * n);
    }
    // Each command folds its own event and those of the other version since; a decision may run again, and then folds some of them again.
    expect(folded - first).toBeLessThan(20 * ROUNDS);
    expect(folded - first).toBeLessThan(EVENTS);
  });
});
