/**
 * Goal: actions keep their guarantees on PostgreSQL too, where records are locked over a network and several processes really conflict.
 * Method: one story of each capability, and the races, through separate handles on one server.
 */

import { createHash } from "node:crypto";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Actions } from "../../src/action/actions.ts";
import { open } from "../../src/open.ts";
import type { Pawl } from "../../src/pawl.ts";
import { type FreshDatabase, freshDatabase } from "../postgres/server.ts";
import { refusal, SECRETS } from "./kit.ts";

const PROCESSES = 4;
let database: FreshDatabase;
const handles: Pawl[] = [];
const processes: Actions[] = [];

beforeAll(async () => {
  database = await freshDatabase();
  const slowHash = async (secret: Uint8Array, salt: Uint8Array) =>
    createHash("sha256").update(secret).update(salt).digest();
  for (let i = 0; i < PROCESSES; i++) {
    const pawl = await open(database.url);
    handles.push(pawl);
    processes.push(new Actions(pawl.kernel, { ...SECRETS, retention: 0 }, { slowHash }));
  }
});

afterAll(async () => {
  await Promise.all(handles.map((pawl) => pawl.close()));
  await database.drop();
});

const process = (i: number): Actions => processes[i % PROCESSES] as Actions;

describe("on PostgreSQL", () => {
  test("400 concurrent clients: one winner, which gets the same result again", async () => {
    const { id } = await process(0).create({ payload: { percent: 10 }, owner: "ann" });
    const ask = () =>
      Promise.all(Array.from({ length: 400 }, (_, i) => process(i).tryConsume(id, { consumerKey: `k${i}` })));
    const winnersOf = (answers: Awaited<ReturnType<typeof ask>>) => answers.flatMap(({ ok }, i) => (ok ? [i] : []));
    const first = await ask();
    expect(winnersOf(first).length).toBe(1);
    const second = await ask();
    expect(winnersOf(second)).toEqual(winnersOf(first));
    expect(second.find(({ ok }) => ok)).toMatchObject({ replayed: true, payload: { percent: 10 } });
  });

  test("of 20 uses, exactly 20 of 100 clients have one, and each counts once", async () => {
    await process(0).create({ id: "seats", uses: 20, payload: "licence" });
    const answers = await Promise.all(
      Array.from({ length: 200 }, (_, i) => process(i).tryConsume("seats", { consumerKey: `k${i % 100}` })),
    );
    expect(answers.filter((answer) => answer.ok && !answer.replayed).length).toBe(20);
    expect(new Set(answers.flatMap(({ ok }, i) => (ok ? [i % 100] : []))).size).toBe(20);
  });

  test("of 100 concurrent wrong PINs, five count", async () => {
    await process(0).create({ id: "pin", pin: "1234" });
    const codes = await Promise.all(
      Array.from({ length: 100 }, async (_, i) => {
        const answer = await process(i).tryConsume("pin", { pin: "0000" });
        return answer.ok ? "ok" : answer.code;
      }),
    );
    expect(codes.filter((code) => code === "invalid_pin").length).toBe(5);
    expect(await process(1).get("pin")).toMatchObject({ state: "locked" });
  });

  test("claim, take-over, completion and cancelation", async () => {
    await process(0).createMany([{ id: "c1", payload: 1 }, { id: "c2" }]);
    const mine = await process(0).claim("c1", { lease: 10 });
    const theirs = await retried(() => process(1).claim("c1"));
    expect(theirs.fence).toBeGreaterThan(mine.fence);
    expect(await refusal(process(0).complete("c1", mine))).toMatchObject({ code: "fenced" });
    expect(await process(1).complete("c1", theirs)).toMatchObject({ payload: 1 });
    await process(2).cancel("c2", { by: "bob" });
    expect(await refusal(process(3).consume("c2"))).toMatchObject({ code: "canceled", by: "bob" });
  });

  test("lists by owner, state and page, and sweeping", async () => {
    const list = Array.from({ length: 25 }, (_, i) => ({ id: `l${i}`, owner: "cy", uses: 1 + (i % 2), expiresIn: 1 }));
    await process(0).createMany(list);
    const found: (string | null)[] = [];
    for (let after: string | null = null; ; ) {
      const page: Awaited<ReturnType<Actions["list"]>> = await process(1).list({ owner: "cy", limit: 10, after });
      found.push(...page.actions.map(({ id }) => id));
      after = page.next;
      if (after === null) break;
    }
    expect(new Set(found)).toEqual(new Set(list.map(({ id }) => id)));
    expect(found.length).toBe(25);
    await new Promise((resolve) => setTimeout(resolve, 5));
    expect((await process(1).list({ state: "expired", owner: "cy" })).actions.length).toBe(25);
    while (!(await process(2).sweep(10)).isDone);
    expect((await process(1).list({ owner: "cy" })).actions).toEqual([]);
    expect(await process(1).get("l0")).toBeNull();
  });
});

/** Asks again until the lease of another has ended. */
async function retried<T>(ask: () => Promise<T>): Promise<T> {
  for (let i = 0; ; i++) {
    try {
      return await ask();
    } catch (error) {
      if (i > 100) throw error;
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
  }
}
