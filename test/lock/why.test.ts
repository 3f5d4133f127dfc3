/**
 * Goal: "why is this waiting?" returns the chain, in sentences: for a run, a lock and a waiter, down to a holder that can continue, or
 * an operator who has to decide.
 * Method: situations that are built by hand, each asked about from every side.
 */

import { describe, expect, test } from "vitest";
import { type Context, signal, workflow } from "../../src/index.ts";
import { openTest, type TestPawl } from "../../src/testing/index.ts";

const go = signal<string>("go");
const never = () => new Promise<never>(() => {});

const keeper = workflow("keeper", async (ctx: Context, names: readonly string[]) => {
  const take = async ([name, ...rest]: readonly string[]): Promise<string> => {
    if (name === undefined) {
      await ctx.waitForSignal(go);
      return "done";
    }
    return ctx.lock(name, () => take(rest));
  };
  return take(names);
});

/** A run that comes to rest with these locks, as far as they are granted. */
async function keep(pawl: TestPawl, id: string, ...names: readonly string[]) {
  const run = await pawl.start(keeper, names, { id });
  await run.until("waiting");
  return run;
}

const kinds = (chain: readonly { readonly is: string; readonly name: string }[]) =>
  chain.map(({ is, name }) => `${is} ${name}`);

describe("a lock", () => {
  test("that is free is reported as free, and without waiters", async () => {
    await using pawl = openTest();
    expect(await pawl.whyWaiting({ lock: "m" })).toEqual({
      isWaiting: false,
      says: 'mutex "m" is free',
      chain: [{ is: "lock", name: "m", says: 'mutex "m" is free' }],
    });
    expect((await pawl.whyWaiting({ lock: "m", kind: "semaphore" })).says).toBe('semaphore "m" is free');
  });

  test("that is held in plain code is reported with its holder, fence and end of lease", async () => {
    await using pawl = openTest({ now: new Date("2031-05-01T00:00:00Z") });
    const { fence } = await pawl.mutex("m").acquire({ by: "nightly import" });
    await pawl.rwlock("rw").read.acquire();
    const { says, chain } = await pawl.whyWaiting({ lock: "m" });
    expect(says).toBe(
      `mutex "m" is held; "nightly import" holds mutex "m" under fence ${fence}, until 2031-05-01T00:00:30.000Z unless it renews`,
    );
    expect(kinds(chain)).toEqual(["lock m", "plain nightly import"]);
    expect((await pawl.whyWaiting({ lock: "rw", kind: "rwlock" })).says).toMatch(
      /^rwlock "rw" is held; plain code holds rwlock "rw" under fence \d+, until /,
    );
  });

  test("that is held without waiters makes no run wait", async () => {
    await using pawl = openTest();
    await pawl.mutex("m").acquire();
    expect((await pawl.whyWaiting({ lock: "m" })).isWaiting).toBe(false);
    await pawl.mutex("m").enqueue();
    expect((await pawl.whyWaiting({ lock: "m" })).isWaiting).toBe(true);
  });

  test("is reported with the number of waiters and all holders", async () => {
    await using pawl = openTest();
    const s = pawl.semaphore("s", { permits: 2 });
    for (const by of ["a", "b", "c", "d"]) await s.enqueue({ by });
    const { says, chain } = await pawl.whyWaiting({ lock: "s", kind: "semaphore" });
    expect(says).toMatch(/^semaphore "s" has 2 holders, and 2 wait; "a" holds .*; "b" holds /);
    expect(kinds(chain)).toEqual(["lock s", "plain a", "plain b"]);
    const first = await s.inspect({ limit: 1 });
    await s.removeWaiter(first.waiters[0]?.ticket ?? "", { by: "x", reason: "y" });
    expect((await pawl.whyWaiting({ lock: "s", kind: "semaphore" })).says).toMatch(/has 2 holders, and 1 waits;/);
  });
});

describe("a waiter", () => {
  test("in plain code gets the name of the holder; one that does not wait is reported as such", async () => {
    await using pawl = openTest();
    await pawl.mutex("m").acquire({ by: "ann" });
    const entered = await pawl.mutex("m").enqueue({ by: "bob" });
    const ticket = entered.granted ? "" : entered.place.ticket;
    const why = await pawl.whyWaiting({ lock: "m", waiter: ticket });
    expect(why.isWaiting).toBe(true);
    expect(why.says).toMatch(/^"bob" waits for mutex "m"; mutex "m" is held, and 1 waits.*; "ann" holds mutex "m"/);
    expect(kinds(why.chain)).toEqual(["plain bob", "lock m", "plain ann"]);
    const none = await pawl.whyWaiting({ lock: "m", waiter: "unknown" });
    expect(none.says).toMatch(/^"unknown" does not wait for mutex "m"/);
    expect(none.isWaiting).toBe(false);
  });

  test("that is a run is reported as a run", async () => {
    await using pawl = openTest();
    pawl.work([keeper]);
    await keep(pawl, "r1", "m");
    await keep(pawl, "r2", "m");
    const [waiter] = (await pawl.mutex("m").inspect()).waiters;
    const { says, chain } = await pawl.whyWaiting({ lock: "m", waiter: waiter?.ticket });
    expect(says).toMatch(
      /^run "r2" waits for mutex "m"; mutex "m" is held, and 1 waits.*; run "r1" waits for signal "go"/,
    );
    expect(kinds(chain)).toEqual(["run r2", "lock m", "run r1"]);
  });
});

describe("a run", () => {
  test("is followed from lock to run to lock, down to plain code", async () => {
    await using pawl = openTest();
    pawl.work([keeper]);
    await pawl.mutex("c").acquire({ by: "ann" });
    await keep(pawl, "r1", "b", "c");
    await keep(pawl, "r2", "a", "b");
    await keep(pawl, "r3", "a");
    const why = await pawl.whyWaiting({ run: "r3" });
    expect(why.isWaiting).toBe(true);
    expect(kinds(why.chain)).toEqual(["run r3", "lock a", "run r2", "lock b", "run r1", "lock c", "plain ann"]);
    expect(why.chain.map(({ says }) => says)).toEqual([
      'run "r3" waits for mutex "a"',
      'mutex "a" is held, and 1 waits, this one first',
      'run "r2" waits for mutex "b"',
      'mutex "b" is held, and 1 waits, this one first',
      'run "r1" waits for mutex "c"',
      'mutex "c" is held, and 1 waits, this one first',
      expect.stringMatching(/^"ann" holds mutex "c" under fence \d+, until .* unless it renews$/),
    ]);
    expect(why.says).toBe(why.chain.map(({ says }) => says).join("; "));
    // The lock that it waits for is explained in the same way.
    expect(kinds((await pawl.whyWaiting({ lock: "b" })).chain)).toEqual(["lock b", "run r1", "lock c", "plain ann"]);
  });

  test("that waits for several locks together is explained for each", async () => {
    await using pawl = openTest();
    const both = workflow("both", async (ctx) => ctx.lock(["a", "b"], () => "acquired"));
    pawl.work([keeper, both]);
    await keep(pawl, "r1", "a");
    await pawl.mutex("b").acquire({ by: "ann" });
    const run = await pawl.start(both, undefined, { id: "both" });
    await run.until("waiting");
    const { chain, says } = await pawl.whyWaiting({ run: "both" });
    expect(says).toMatch(/^run "both" waits for mutex "a" and mutex "b"; /);
    expect(kinds(chain)).toEqual(["run both", "lock a", "run r1", "lock b", "plain ann"]);
  });

  test("that waits for a parked run: an operator has to decide, and why", async () => {
    await using pawl = openTest();
    const stuck = workflow({ name: "stuck", tries: 1 }, async (ctx) => ctx.lock("m", never));
    pawl.work([keeper, stuck]);
    await (await pawl.start(stuck, undefined, { id: "parked" })).until("parked");
    await keep(pawl, "r1", "m");
    const { says, chain } = await pawl.whyWaiting({ run: "r1" });
    expect(says).toMatch(/run "parked" is parked and keeps its locks until an operator resolves it: .+/);
    expect(kinds(chain)).toEqual(["run r1", "lock m", "run parked"]);
    expect((await pawl.whyWaiting({ run: "parked" })).says).toMatch(/^run "parked" is parked/);
  });

  test("that waits for a child is followed to what the child waits for", async () => {
    await using pawl = openTest();
    const child = workflow("child", async (ctx) => ctx.lock("m", () => "acquired"));
    const parent = workflow("parent", async (ctx) => ctx.call(child, undefined, { id: "child" }));
    pawl.work([parent, child]);
    await pawl.mutex("m").acquire({ by: "ann" });
    await (await pawl.start(parent, undefined, { id: "parent" })).until("waiting");
    await pawl.clock.advance(1);
    const { chain, says } = await pawl.whyWaiting({ run: "parent" });
    expect(kinds(chain)).toEqual(["run parent", "run child", "lock m", "plain ann"]);
    expect(says).toMatch(/^run "parent" waits for its child "child" since \S+; run "child" waits for mutex "m"; /);
  });

  test("that sleeps, waits for a signal, has ended or is running is reported as such", async () => {
    await using pawl = openTest({ now: new Date("2031-05-01T00:00:00Z") });
    const sleeps = workflow("sleeps", async (ctx) => ctx.sleep("1 hour"));
    const works = workflow("works", async (ctx) => ctx.step("work", () => pawl.clock.sleep("10s")));
    pawl.work([keeper, sleeps, works]);
    await (await pawl.start(sleeps, undefined, { id: "sleeps" })).until("waiting");
    const slept = await pawl.whyWaiting({ run: "sleeps" });
    expect(slept.says).toMatch(/^run "sleeps" sleeps until 2031-05-01T01:00:00.000Z since 2031-05-01T00:00:00/);
    expect(slept.isWaiting).toBe(true);
    const run = await keep(pawl, "signals");
    const signaled = await pawl.whyWaiting({ run: "signals" });
    expect(signaled.says).toMatch(/^run "signals" waits for signal "go" since 2031/);
    expect(signaled.isWaiting).toBe(true);
    await run.signal(go, "on");
    await run.result();
    const ended = await pawl.whyWaiting({ run: "signals" });
    expect(ended).toMatchObject({ isWaiting: false, says: 'run "signals" has ended: it is completed' });
    const working = await pawl.start(works, undefined, { id: "works" });
    await pawl.clock.advance(1);
    const worked = await pawl.whyWaiting({ run: "works" });
    expect(worked.isWaiting).toBe(false);
    expect(worked.says).toMatch(
      /^run "works" is running attempt 1 of step "work" since 2031.*, and worker ".+" holds it until/,
    );
    await working.result();
  });

  test("in a circle that a timeout will end: they wait for each other", async () => {
    await using pawl = openTest();
    const cross = workflow("cross", async (ctx, [first, second]: readonly string[]) =>
      ctx.lock(first ?? "", async () => {
        await ctx.sleep("1s");
        return ctx.lock(second ?? "", () => "acquired", { timeout: "1 hour" });
      }),
    );
    pawl.work([cross]);
    for (const [id, ...names] of [
      ["r1", "a", "b"],
      ["r2", "b", "a"],
    ])
      await pawl.start(cross, names, { id });
    await pawl.clock.advance("1 minute");
    const { chain, says } = await pawl.whyWaiting({ run: "r1" });
    expect(kinds(chain)).toEqual(["run r1", "lock b", "run r2", "lock a", "run r1"]);
    expect(says).toMatch(/run "r1" is in this chain already: they wait for each other$/);
  });

  test("behind others in the queue of a free lock: those are named, with what they wait for", async () => {
    await using pawl = openTest();
    const both = workflow("both", async (ctx) => ctx.lock(["a", "b"], () => "acquired"));
    pawl.work([keeper, both]);
    await pawl.mutex("a").acquire({ by: "ann" });
    await (await pawl.start(both, undefined, { id: "both" })).until("waiting");
    await keep(pawl, "r1", "b");
    const { says } = await pawl.whyWaiting({ run: "r1" });
    // b is free: it is reserved for the first in its queue, which waits for a.
    expect(says).toMatch(/run "both"/);
    expect(says).toMatch(/"ann" holds mutex "a"/);
  });

  test("a chain that is too long is cut off", async () => {
    await using pawl = openTest();
    pawl.work([keeper]);
    for (let n = 0; n < 30; n++) await keep(pawl, `r${n}`, `m${n}`, ...(n === 0 ? [] : [`m${n - 1}`]));
    const { chain, isWaiting } = await pawl.whyWaiting({ run: "r29" });
    expect(isWaiting).toBe(true);
    expect(chain.length).toBeGreaterThan(15);
    expect(chain.length).toBeLessThan(60);
    // It was not a circle, and is not reported as one.
    expect(chain.at(-1)?.says).not.toMatch(/wait for each other/);
  });
});
