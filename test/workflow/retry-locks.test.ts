/**
 * Goal: after a retry, a run waits for no lock that its code has released or does not wait for, whatever way the repaired code asks for it.
 * Method: workflows that fail in plain code, and are retried with code that locks in another way (`retry-order.test.ts` has the same for
 * everything else).
 */

import { beforeEach, describe, expect, test } from "vitest";
import { type Context, type Workflow, workflow } from "../../src/index.ts";
import { openTest, type TestPawl } from "../../src/testing/index.ts";
import { before, isMended, mend, retried, unmend } from "./repaired.ts";

beforeEach(unmend);

describe("a lock", () => {
  const holder = workflow("holder", async (ctx) => ctx.lock("l", () => ctx.sleep("1 hour")));

  /** Another run holds the lock for an hour. */
  async function hold(pawl: TestPawl): Promise<void> {
    pawl.work([holder]);
    await (await pawl.start(holder)).until("waiting");
  }

  /** Stops the worker in the middle of a step that runs at most once. */
  async function parked(pawl: TestPawl, it: Workflow<undefined, unknown>) {
    const worker = pawl.work([it]);
    const run = await pawl.start(it, undefined, { id: "it" });
    await run.until("running");
    await pawl.clock.during(worker.stop({ timeout: 1 }));
    pawl.work([it]);
    await run.until("parked");
    mend();
    return run;
  }

  const isHeld = (ctx: Context, pawl: TestPawl): Promise<boolean> =>
    Promise.resolve(
      ctx.step("is held", async () => (await pawl.mutex("l").inspect()).holders.some(({ run }) => run === "it")),
    );

  test("that was busy when it was tried is waited for by code that acquires it first", async () => {
    await using pawl = openTest();
    await hold(pawl);
    const after = await retried(
      pawl,
      async (ctx) => (await ctx.mutex("l").tryAcquire()).ok,
      async (ctx) => {
        const { release } = await ctx.mutex("l").acquire();
        const wasHeld = await isHeld(ctx, pawl);
        await release();
        return [wasHeld, (await ctx.mutex("l").tryAcquire()).ok];
      },
    );
    expect(before).toBe(false);
    expect(after).toEqual([true, false]);
  });

  test("in whose queue the run had a place is waited for by code that acquires it", async () => {
    await using pawl = openTest();
    await hold(pawl);
    const after = await retried(
      pawl,
      async (ctx) => (await ctx.mutex("l").enqueue()).granted,
      (ctx) => ctx.lock("l", () => isHeld(ctx, pawl)),
    );
    expect([before, after]).toEqual([false, true]);
  });

  test("that was waited for in vain is waited for by code that has the time", async () => {
    await using pawl = openTest();
    await hold(pawl);
    const after = await retried(
      pawl,
      async (ctx) => {
        const late = await ctx
          .mutex("l")
          .acquire({ timeout: "1 minute" })
          .catch((error: { code: string }) => error.code);
        await ctx.step("handled", () => 1);
        return late;
      },
      (ctx) => ctx.lock("l", () => isHeld(ctx, pawl)),
    );
    expect([before, after]).toEqual(["lock_timeout", true]);
  });

  test("that is held twice: a release is of the hold that it was of", async () => {
    await using pawl = openTest();
    const permits = () => pawl.semaphore("s", { permits: 5 });
    const after = await retried(
      pawl,
      async (ctx) => {
        const semaphore = ctx.semaphore("s", { permits: 5 });
        await semaphore.acquire();
        const second = await semaphore.acquire();
        return second.release();
      },
      async (ctx) => {
        const semaphore = ctx.semaphore("s", { permits: 5 });
        const first = await semaphore.acquire();
        const second = await semaphore.acquire();
        const released = [await first.release(), await second.release()];
        const holders = await ctx.step("look", async () => (await permits().inspect()).holders.length);
        return [...released, holders];
      },
    );
    expect(after).toEqual([{ released: true }, { released: true }, 0]);
  });

  test("to read and to write, in the other order", async () => {
    await using pawl = openTest();
    const modes = async (): Promise<unknown> =>
      (await pawl.rwlock("rw").read.inspect()).holders.map(({ mode }) => mode);
    const read = (ctx: Context, name: string) => ctx.rwlock("rw").read.with(() => ctx.step(`read ${name}`, modes));
    const write = (ctx: Context, name: string) => ctx.rwlock("rw").write.with(() => ctx.step(`write ${name}`, modes));
    const after = await retried(
      pawl,
      async (ctx) => [await read(ctx, "a"), await write(ctx, "a")],
      async (ctx) => [await write(ctx, "b"), await read(ctx, "b"), await write(ctx, "a"), await read(ctx, "a")],
    );
    expect(after).toEqual([["exclusive"], ["shared"], ["exclusive"], ["shared"]]);
  });

  test("that a parked run holds twice: what the code releases is released", async () => {
    await using pawl = openTest();
    const it = workflow("it", async (ctx) => {
      const semaphore = ctx.semaphore("s", { permits: 5 });
      const holds = [await semaphore.acquire(), await semaphore.acquire()] as const;
      const released = await holds[isMended ? 0 : 1].release();
      await ctx.step.atMostOnce("send", () => (isMended ? "sent" : new Promise<string>(() => {})), {
        reconcile: () => (isMended ? { done: false } : { unknown: true }),
      });
      const again = await holds[isMended ? 1 : 0].release();
      const holders = await ctx.step("look", async () => {
        return (await pawl.semaphore("s", { permits: 5 }).inspect()).holders.length;
      });
      return [released, again, holders];
    });
    const run = await parked(pawl, it);
    await run.retry();
    expect(await run.result()).toEqual([{ released: true }, { released: true }, 0]);
  });

  test("that a parked run holds is not waited for by the run itself when its code asks in another way", async () => {
    await using pawl = openTest();
    let isFirst = true;
    const it = workflow("it", async (ctx) => {
      const body = () =>
        ctx.step.atMostOnce("send", () => (isMended ? "sent" : new Promise<string>(() => {})), {
          reconcile: () => (isMended ? { done: false } : { unknown: true }),
        });
      return isFirst ? ctx.lock("l", body) : ctx.lock("l", body, { timeout: "1 minute" });
    });
    const run = await parked(pawl, it);
    isFirst = false;
    await run.retry();
    expect(await run.result()).toBe("sent");
  });

  const holdersOf = (ctx: Context, pawl: TestPawl): Promise<number> =>
    Promise.resolve(ctx.step("holders", async () => (await pawl.rwlock("rw").read.inspect()).holders.length));

  test("that new code releases is free from then on, although a release from before the retry is remembered", async () => {
    await using pawl = openTest();
    const read = (ctx: Context) => ctx.rwlock("rw").read.with(() => "read");
    const after = await retried(pawl, read, async (ctx) => {
      const tried = await ctx.rwlock("rw").write.tryAcquire();
      const released = tried.ok && (await tried.hold.release());
      return [released, await holdersOf(ctx, pawl), await read(ctx)];
    });
    expect(after).toEqual([{ released: true }, 0, "read"]);
  });

  test("that was lost before the retry is not said to be lost where new code has it", async () => {
    await using pawl = openTest();
    const lost = (ctx: Context) =>
      ctx
        .lock("l", () => ctx.step("take it away", () => pawl.mutex("l").forceRelease({ by: "ann", reason: "test" })))
        .catch((error: { code: string }) => error.code);
    const after = await retried(
      pawl,
      async (ctx) => {
        const code = await lost(ctx);
        await ctx.step("handled", () => 1);
        return code;
      },
      async (ctx) => [await ctx.lock("l", () => "held", { timeout: "1 minute" }), await lost(ctx)],
    );
    expect([before, after]).toEqual(["lock_lost", ["held", "lock_lost"]]);
  });

  test("that was released before the retry is not waited for when another one is acquired again", async () => {
    await using pawl = openTest();
    pawl.work([holder]);
    const after = await retried(
      pawl,
      async (ctx) => {
        await ctx.lock("other", () => 1);
        await ctx.lock("l", () => 1);
        await ctx.step("other run", async () => {
          await (await pawl.start(holder, undefined, { id: "holder" })).until("waiting");
        });
      },
      async (ctx) => {
        await ctx.lock("other", () => ctx.step("new", () => 1));
        const value = await ctx.lock("l", () => 2);
        return [value, await ctx.step("status", async () => (await pawl.run("holder").status()).status)];
      },
    );
    expect(after).toEqual([2, "waiting"]);
  });

  test("that lost a race is not waited for by the run itself where its code acts under it", async () => {
    await using pawl = openTest();
    // Once it was granted, it is waited for as long as it takes.
    const read = (ctx: Context, body: () => Promise<number>) =>
      ctx.rwlock("rw").read.with(body, { timeout: "1 minute" });
    const writer = workflow("writer", async (ctx, delayMs: number) => {
      await ctx.sleep(delayMs);
      await ctx.rwlock("rw").write.with(() => ctx.sleep("1 hour"));
    });
    pawl.work([writer]);
    const after = await retried(
      pawl,
      async (ctx) => {
        await read(ctx, async () => 1);
        await ctx.step("other run", async () => {
          await (await pawl.start(writer, 0)).until("waiting");
          // Comes when the run waits already.
          await pawl.start(writer, 60_000);
        });
      },
      async (ctx) => {
        await ctx.race([ctx.rwlock("rw").write.acquire(), ctx.step("quick", () => 1)]);
        return read(ctx, () => holdersOf(ctx, pawl));
      },
    );
    expect(after).toBe(1);
  });

  test("that its own new code holds meanwhile cannot be had again: a deadlock, and no contradiction", async () => {
    await using pawl = openTest();
    const read = (ctx: Context) => ctx.rwlock("rw").read.with(() => holdersOf(ctx, pawl));
    const after = await retried(
      pawl,
      (ctx) => ctx.rwlock("rw").read.with(() => 1),
      async (ctx) => {
        const { ok } = await ctx.rwlock("rw").write.tryAcquire();
        return [ok, await read(ctx).catch((error: { code: string }) => error.code)];
      },
    );
    expect(after).toEqual([true, "deadlock"]);
  });
});
