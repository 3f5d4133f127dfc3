/**
 * Goal: Pawl works inside the transactions of common libraries, and understands how they wrap the server's errors.
 * Method: the same laws through `pg`, Drizzle, Kysely, Knex, TypeORM and Prisma, each with the executor of its example; and a connection
 * cut at COMMIT, where the library cannot know the outcome, but both sides must agree.
 */

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Pawl } from "../../src/index.ts";
import { FaultyProxy } from "../faults/proxy.ts";
import { type Ground, postgresGround, refusal, sleep } from "./grounds.ts";
import { connectShop, postgresLibraries, type Shop } from "./libraries/library.ts";

const ODD = `it's "so" \\ $1 ?? ? :name %s {} \${} 😀`;

describe.each(postgresLibraries)("within a transaction of %s", (name) => {
  let ground: Ground;
  let pawl: Pawl;
  let shop: Shop;
  beforeAll(async () => {
    ground = await postgresGround();
    const plain = await ground.connect();
    await plain.query("create table orders (id text primary key, item text not null)");
    await plain.end();
    pawl = await ground.open();
    shop = await connectShop(name, ground.where);
  });
  afterAll(async () => {
    await shop.close();
    await pawl.close();
    await ground.leave();
  });

  /** Which of the two sides of an order are there. */
  const sidesOf = async (id: string) => {
    const plain = await ground.connect();
    const rows = await plain.query("select from orders where id = ?", id);
    await plain.end();
    return [rows.length === 1, (await pawl.slot(id).get()).version > 0];
  };

  test("both sides are committed, and the answer is the decision's", async () => {
    const answer = await shop.order("both", (executor) =>
      pawl.within(executor, (tx) => tx.slot(pawl.slot<string>("both")).set(ODD)),
    );
    expect(answer).toEqual({ version: 1 });
    expect(await sidesOf("both")).toEqual([true, true]);
    expect((await pawl.slot<string>("both").get()).value).toBe(ODD);
  });

  test("a decision that refuses leaves neither", async () => {
    const mine = new RangeError("sold out");
    const error = await refusal(() =>
      shop.order("refused", (executor) =>
        pawl.within(executor, (tx) => {
          tx.slot(pawl.slot<string>("refused")).set("x");
          throw mine;
        }),
      ),
    );
    expect(error).toBe(mine);
    expect(await sidesOf("refused")).toEqual([false, false]);
  });

  test("what is thrown after it leaves neither", async () => {
    await refusal(() =>
      shop.order("after", async (executor) => {
        await pawl.within(executor, (tx) => tx.slot(pawl.slot<string>("after")).set("x"));
        throw new Error("on second thoughts");
      }),
    );
    expect(await sidesOf("after")).toEqual([false, false]);
  });

  test("where the refusal is caught, the rest is committed", async () => {
    await shop.order("caught", async (executor) => {
      const refused = pawl.within(executor, (tx) => {
        tx.slot(pawl.slot<string>("caught")).set("x");
        throw new Error("no");
      });
      await refused.catch(() => {});
    });
    expect(await sidesOf("caught")).toEqual([true, false]);
  });

  test("keys that turn up late, and names with everything in them", async () => {
    const [first, second] = [`${ODD}/1`, `${ODD}/2`];
    await pawl.slot<string>(first).set(second);
    await shop.order("late", (executor) =>
      pawl.within(executor, (tx) => {
        const { value } = tx.slot(pawl.slot<string>(first)).get();
        tx.slot(pawl.slot<string>(value ?? "")).set("found");
        tx.slot(pawl.slot<string>("late")).set("x");
      }),
    );
    expect((await pawl.slot<string>(second).get()).value).toBe("found");
    expect(await sidesOf("late")).toEqual([true, true]);
  });

  test("another isolation level is refused, and neither side is there", async () => {
    const within = (executor: Shop["loose"]) =>
      pawl.within(executor, (tx) => tx.slot(pawl.slot<string>("serial")).set("x"));
    const error = await refusal(() => shop.order("serial", within, { isSerializable: true }));
    expect(error).toMatchObject({ code: "store_unfit" });
    expect(error.message).toMatch(/READ COMMITTED, and this one is SERIALIZABLE/);
    expect(await sidesOf("serial")).toEqual([false, false]);
  });

  test("concurrent orders, on one slot, are all counted", async () => {
    const counter = pawl.slot<number>("counter", { initial: 0 });
    const order = (i: number) =>
      shop.order(`at-once/${i}`, (executor) =>
        pawl.within(executor, (tx) => tx.slot(counter).update((n) => n + 1), { touches: [counter] }),
      );
    const orders = Array.from({ length: 8 }, (_, i) => order(i));
    const batches = Array.from({ length: 8 }, () => counter.update((n) => n + 1));
    await Promise.all([...orders, ...batches]);
    expect(await counter.get()).toEqual({ value: 16, version: 16 });
  });

  test("outside a transaction it is refused, and nothing is written", async () => {
    const error = await refusal(() => pawl.within(shop.loose, (tx) => tx.slot(pawl.slot<string>("loose")).set("x")));
    expect(error.message).toMatch(/needs an open transaction: call it inside one/);
    expect((await pawl.slot("loose").get()).version).toBe(0);
  });

  test("a row that cannot be locked is reported as busy, and the library rolls back", async () => {
    const slot = pawl.slot<number>("held");
    await slot.set(1);
    const plain = await ground.connect();
    await plain.query("begin");
    await pawl.within(plain.executor, (tx) => tx.slot(slot).set(2));
    const error = await refusal(() =>
      shop.order("held", async (executor) => {
        if (typeof executor === "function") await executor("set local lock_timeout = '50ms'", []);
        else if ("query" in executor) await executor.query("set local lock_timeout = '50ms'", []);
        return pawl.within(executor, (tx) => tx.slot(slot).set(3));
      }),
    );
    expect(error).toMatchObject({ code: "store_busy", data: { remedy: "retry" } });
    await plain.query("commit");
    await plain.end();
    expect((await slot.get()).value).toBe(2);
    expect((await sidesOf("held"))[0]).toBe(false);
  });
});

describe("when the connection to the server is cut at COMMIT", () => {
  let ground: Ground;
  let proxy: FaultyProxy;
  let pawl: Pawl;
  beforeAll(async () => {
    ground = await postgresGround();
    const plain = await ground.connect();
    await plain.query("create table orders (id text primary key, item text not null)");
    await plain.end();
    pawl = await ground.open();
    proxy = await FaultyProxy.start(Number(new URL(ground.where).port));
  });
  afterAll(async () => {
    await proxy.close();
    await pawl.close();
    await ground.leave();
  });

  const moments = [
    ["its reply is lost: both sides are there", () => proxy.dropCommitReplies(1), true],
    ["it is lost itself: neither side is", () => proxy.dropRequests(1), false],
  ] as const;
  const rows = postgresLibraries.flatMap((name) => moments.map((moment) => [name, ...moment] as const));
  test.each(rows)("by %s, and %s", async (name, _, strike, isThere) => {
    const shop = await connectShop(name, proxy.urlOf(ground.where));
    const id = `${name} ${isThere}`;
    await shop.order(`${id} before`, async () => {});
    await refusal(() =>
      shop.order(id, async (executor) => {
        await pawl.within(executor, (tx) => tx.slot(pawl.slot<string>(id)).set("x"));
        strike();
      }),
    );
    // The server may still be at it.
    await sleep(50);
    const plain = await ground.connect();
    const found = await plain.query("select from orders where id = ?", id);
    await plain.end();
    expect(found.length === 1).toBe(isThere);
    expect((await pawl.slot(id).get()).version > 0).toBe(isThere);
    // The library goes on, with another connection.
    await shop.order(`${id} after`, async () => {}).catch(() => shop.order(`${id} after`, async () => {}));
    await shop.close();
  });
});
