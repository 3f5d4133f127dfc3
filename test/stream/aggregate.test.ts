/**
 * Goal: commands of an aggregate keep its invariant, also beside plain appends and other versions of the reducers, on every store.
 * Method: two handles on one database; races for the last unit; events that are appended without the aggregate; reducers that change.
 */

import { describe, expect, expectTypeOf, test } from "vitest";
import { aggregate, CommandRefusedError, event, NonRetryableError, reaction } from "../../src/index.ts";
import { codeOf } from "../kernel/kit.ts";
import { EVERY, onStores, PATIENCE } from "../workflow/kit.ts";
import { account, all, Deposited, deposits, Opened, Withdrawn } from "./kit.ts";

test("reducers of events with different data have their types", () => {
  const Named = event<{ readonly name: string }>("Named");
  const counted = aggregate("counted", {
    initial: { sum: 0, names: [] as readonly string[] },
    on: [
      [Deposited, ({ sum, names }, { amount }) => ({ sum: sum + amount, names })],
      [Named, ({ sum, names }, { name }) => ({ sum, names: [...names, name] })],
      [Opened, (state) => state],
    ],
    commands: {
      rename: ({ sum }, name: string, { emit }) => {
        emit(Named({ name }));
        return sum;
      },
    },
  });
  expectTypeOf(counted).toExtend<{ readonly name: string }>();
  // @ts-expect-error the data of Named has no amount
  aggregate("wrong", { initial: 0, on: [[Named, (n: number, { amount }) => n + amount]] });
});

const range = (length: number) => Array.from({ length }, (_, i) => i);

onStores(EVERY, (place) => {
  describe("a command", () => {
    test("appends what it emits, and returns what it returned, with its type", async () => {
      const pawl = await place.open();
      const ann = pawl.aggregate(account, "ann");
      const deposited = await ann.execute("deposit", { amount: 10 }, { actor: "teller" });
      expectTypeOf(deposited.output).toEqualTypeOf<number>();
      expect(deposited).toEqual({ stream: "ann", output: 10, version: 1, ids: [expect.any(String)] });
      expect((await ann.execute("withdraw", { amount: 4 })).output).toBe(6);
      expect(await ann.execute("move")).toMatchObject({ output: { balance: 6, version: 2 }, version: 4 });
      expect(await ann.execute("look")).toEqual({ stream: "ann", output: 6, version: 4, ids: [] });
      expect(await ann.state()).toEqual({ state: { balance: 6, count: 4 }, version: 4 });
      const [first] = await all(pawl.stream("ann").read());
      expect(first).toMatchObject({ name: "Deposited", id: deposited.ids[0], actor: "teller" });
    });

    test("that refuses appends nothing, and says why", async () => {
      const pawl = await place.open();
      const ann = pawl.aggregate(account, "ann");
      const refused = await ann.execute("withdraw", { amount: 1 }).catch((error: unknown) => error);
      expect(refused).toBeInstanceOf(CommandRefusedError);
      expect(refused).toMatchObject({
        data: {
          aggregate: "account",
          stream: "ann",
          command: "withdraw",
          reason: "insufficient_funds",
          details: { balance: 0 },
        },
      });
      expect(await ann.tryExecute("withdraw", { amount: 1 })).toEqual({
        ok: false,
        code: "command_refused",
        reason: "insufficient_funds",
        details: { balance: 0 },
      });
      expect(await pawl.stream("ann").head()).toBe(0);
    });

    test("is refused also if it catches its own refusal, and one that emitted before it", async () => {
      const pawl = await place.open();
      const stubborn = aggregate("stubborn", {
        initial: 0,
        on: [[Deposited, (n) => n + 1]],
        commands: {
          go: (_n, _: undefined, { emit, refuse }) => {
            emit(Deposited({ amount: 1 }));
            try {
              refuse("no");
            } catch {
              // It ignores its own refusal.
            }
          },
        },
      });
      expect(await pawl.aggregate(stubborn, "s").tryExecute("go")).toMatchObject({ ok: false, reason: "no" });
      expect(await pawl.stream("s").head()).toBe(0);
    });

    test("of 60 that take from 20, 20 do, from two processes, and beside plain appends", async () => {
      const [one, two] = [await place.open(), await place.open()];
      await one.aggregate(account, "ann").execute("deposit", { amount: 20 });
      const taken = await Promise.all(
        range(60).map(async (n) => {
          const pawl = n % 2 ? one : two;
          if (n % 10 === 0) await pawl.stream("ann").append([Opened()]);
          return pawl.aggregate(account, "ann").tryExecute("withdraw", { amount: 1 });
        }),
      );
      expect(taken.filter(({ ok }) => ok).length).toBe(20);
      expect(await one.aggregate(account, "ann").state()).toEqual({ state: { balance: 0, count: 21 }, version: 27 });
    });

    test("sees what the same decision appended before it", async () => {
      const pawl = await place.open();
      const append = (count: number) =>
        pawl.transact((tx) => {
          tx.stream("ann").append(deposits(count));
          const seen = tx.aggregate(account, "ann").state.balance;
          tx.aggregate(account, "ann").execute("withdraw", { amount: 1 });
          tx.stream("ann").append([Opened(), Withdrawn({ amount: 1 })]);
          return [seen, tx.aggregate(account, "ann").state.balance, tx.aggregate(account, "ann").version];
        });
      expect(await append(2)).toEqual([3, 1, 5]);
      // The stored state lacks the last two events.
      expect(await append(3)).toEqual([7, 5, 11]);
      await pawl.stream("ann").append(deposits(1));
      expect(await append(1)).toEqual([7, 5, 16]);
      expect(await pawl.aggregate(account, "ann").state()).toMatchObject({ state: { balance: 5 }, version: 16 });
    });

    test("of a reaction sees what that emitted to the same stream", async () => {
      const pawl = await place.open();
      const copy = reaction("copy", { on: [Opened] }, async (_, { emit, commit }) => {
        emit("ann", deposits(2));
        await commit((tx) => tx.aggregate(account, "ann").execute("withdraw", { amount: 3 }));
      });
      pawl.work([copy]);
      await pawl.stream("ann").append(deposits(1));
      await pawl.stream("doors").append([Opened()]);
      await expect
        .poll(async () => (await pawl.reactions.target("copy", "doors").catch(() => null))?.handled, PATIENCE)
        .toBe(1);
      expect(await pawl.aggregate(account, "ann").state()).toMatchObject({ state: { balance: 1 }, version: 4 });
    });

    test("works together with everything else of a decision, and is brought up to date where its state is behind", async () => {
      const pawl = await place.open();
      await pawl.stream("ann").append(deposits(4));
      const order = pawl.slot("order", { initial: "none" });
      const pay = (amount: number) =>
        pawl.transact((tx) => {
          tx.slot(order).set(`paid ${amount}`);
          const { output } = tx.aggregate(account, "ann").execute("withdraw", { amount });
          return [output, tx.aggregate(account, "ann").state.balance, tx.aggregate(account, "ann").version];
        });
      expect(await pay(7)).toEqual([3, 3, 5]);
      expect(await codeOf(pay(4))).toBe("command_refused");
      expect([(await order.get()).value, await pawl.stream("ann").head()]).toEqual(["paid 7", 5]);
      const both = await pawl.transact((tx) => {
        const refused = tx.aggregate(account, "ann").tryExecute("withdraw", { amount: 4 });
        tx.aggregate(account, "bob").execute("deposit", { amount: 1 });
        return refused.ok;
      });
      expect([both, (await pawl.aggregate(account, "bob").state()).state.balance]).toEqual([false, 1]);
    });

    test("that does not exist, or is asynchronous, is refused, and nothing is written", async () => {
      const pawl = await place.open();
      const odd = aggregate("odd", { initial: 0, on: [], commands: { later: async () => 1, toString: () => 1 } });
      expect(await codeOf(pawl.aggregate(odd, "s").execute("constructor" as "later"))).toBe("invalid_argument");
      expect(await codeOf(pawl.aggregate(odd, "s").execute("later"))).toBe("decision_async");
      expect((await pawl.aggregate(odd, "s").execute("toString")).output).toBe(1);
    });
  });

  describe("the state", () => {
    test("is that of a version, or of a time", async () => {
      const pawl = await place.open();
      const ann = pawl.aggregate(account, "ann");
      for (const amount of [1, 2, 3]) await ann.execute("deposit", { amount });
      const at = (await all(pawl.stream("ann").read())).map((one) => one.at);
      expect((await ann.state({ asOf: 0 })).state.balance).toBe(0);
      expect(await ann.state({ asOf: 2 })).toEqual({ state: { balance: 3, count: 2 }, version: 2 });
      await expect(ann.state({ asOf: 4 })).rejects.toThrow(
        /at most 3, .*: a number is a version; give a time as a Date/,
      );
      await expect(ann.state({ asOf: "2030-01-01" as never })).rejects.toThrow(
        "asOf must be the version of an event, a whole number, or a time, a Date",
      );
      expect((await ann.state({ asOf: new Date(0) })).version).toBe(0);
      expect((await ann.state({ asOf: at[2] ?? new Date(0) })).version).toBe(3);
    });

    test("is folded again by reducers that have changed, and two versions side by side do not undo each other's", async () => {
      const [one, two] = [await place.open(), await place.open()];
      const counting = (version: string, step: number) =>
        aggregate("counting", {
          initial: { count: 0 },
          on: [[Deposited, ({ count }) => ({ count: count + step })]],
          version,
          commands: {
            add: ({ count }, _: undefined, { emit }) => {
              emit(Deposited({ amount: 1 }));
              return count;
            },
          },
        });
      const [old, now] = [counting("1", 1), counting("2", 10)];
      await one.stream("s").append(deposits(150));
      for (const n of range(5)) {
        expect((await one.aggregate(old, "s").execute("add")).output).toBe(150 + 2 * n);
        expect((await two.aggregate(now, "s").execute("add")).output).toBe(10 * (151 + 2 * n));
      }
      // Each has its own state, and reads only what the other one appended since.
      const [row] = await one.kernel.read([{ space: "stream", key: "s", text: "stream\ns" }]);
      const { folds } = JSON.parse(row?.value ?? "") as { folds: { counting: { version: number }[] } };
      expect(folds.counting.map(({ version }) => version)).toEqual([160, 159]);
    });

    test("detects that a reducer has changed by its source text", async () => {
      const pawl = await place.open();
      const first = aggregate("sum", {
        initial: 0,
        on: [[Deposited, (n, { amount }) => n + amount]],
        commands: { look: (n) => n },
      });
      const second = aggregate("sum", {
        initial: 0,
        on: [[Deposited, (n, { amount }) => n + 2 * amount]],
        commands: { look: (n) => n },
      });
      await pawl.stream("s").append(deposits(3));
      expect((await pawl.aggregate(first, "s").execute("look")).output).toBe(6);
      expect((await pawl.aggregate(second, "s").execute("look")).output).toBe(12);
    });

    test("of events in an older shape is folded from the newest one", async () => {
      const pawl = await place.open();
      const first = event<{ cents: number }>("Paid");
      const second = event<{ amount: number }>("Paid", {
        shape: 2,
        upcast: { 1: (old: { cents: number }) => ({ amount: old.cents / 100 }) },
      });
      const paid = aggregate("paid", { initial: 0, on: [[second, (n, { amount }) => n + amount]] });
      await pawl.stream("s").append([first({ cents: 150 }), second({ amount: 2 })]);
      expect((await pawl.aggregate(paid, "s").state()).state).toBe(3.5);
    });

    test("that a reducer tries to change in place is refused, and stays", async () => {
      const pawl = await place.open();
      const pushing = aggregate("pushing", {
        initial: { amounts: [] as number[] },
        on: [
          [
            Withdrawn,
            (state, { amount }) => {
              state.amounts.push(amount);
              return state;
            },
          ],
          [Deposited, ({ amounts }, { amount }) => ({ amounts: [...amounts, amount] })],
        ],
        commands: {
          deposit: (_s, amount: number, { emit }) => emit(Deposited({ amount })),
          withdraw: (_s, amount: number, { emit }) => emit(Withdrawn({ amount })),
        },
      });
      // Nor the one before the first event, which all streams begin with.
      await expect(pawl.aggregate(pushing, "t").execute("withdraw", 2)).rejects.toMatchObject({
        code: "user_function_failed",
        cause: expect.any(TypeError),
      });
      expect((await pawl.aggregate(pushing, "t").state()).state).toEqual({ amounts: [] });
      const s = pawl.aggregate(pushing, "s");
      await s.execute("deposit", 1);
      await expect(s.execute("withdraw", 2)).rejects.toMatchObject({
        code: "user_function_failed",
        cause: expect.any(TypeError),
      });
      expect(await s.state()).toEqual({ state: { amounts: [1] }, version: 1 });
    });

    test("what a command or a reducer throws says where; errors of classes of the user's own are thrown as they are", async () => {
      class OutOfStock extends Error {}
      const pawl = await place.open();
      const shop = aggregate("shop", {
        initial: 0,
        on: [[Withdrawn, () => JSON.parse("?") as number]],
        commands: {
          bug: (): never => {
            throw new Error("boom");
          },
          own: (): never => {
            throw new OutOfStock("none left");
          },
          unretryable: (): never => {
            throw new NonRetryableError("never");
          },
          withdraw: (_s, amount: number, { emit }) => emit(Withdrawn({ amount })),
        },
      });
      const s = pawl.aggregate(shop, "s");
      await expect(s.execute("bug")).rejects.toMatchObject({
        code: "user_function_failed",
        message: 'command "bug" of shop "s" threw: boom',
        data: { what: 'command "bug" of shop "s"' },
        cause: new Error("boom"),
      });
      await expect(s.execute("own")).rejects.toBeInstanceOf(OutOfStock);
      await expect(s.execute("unretryable")).rejects.toBeInstanceOf(NonRetryableError);
      await expect(s.execute("withdraw", 1)).rejects.toMatchObject({
        code: "user_function_failed",
        message: expect.stringContaining('the reducer of "Withdrawn" in shop "s", at event 1, threw: '),
        cause: expect.any(SyntaxError),
      });
      expect(await pawl.stream("s").head()).toBe(0);
    });
  });
});
