/**
 * Goal: a lock in plain code is lost only to a lease that ended or to a person, at its time and not before.
 * Method: processes in a town whose clock is moved by hand, so that a lease can be looked at one millisecond before its end and at its end.
 */

import { describe, expect, test } from "vitest";
import { type Lock, LockLostError, LockRemovedError, type PawlError } from "../../src/index.ts";
import { codeOf, drained, gate } from "../kernel/kit.ts";
import { have, lineUp, outcomeOf, PERSON, type Peer, recordOf, Town, whoOf } from "./kit.ts";

describe("time", () => {
  const LEASE_MS = 30_000;

  test("a lease ends at its end, not before; then the next in line has it, and the one who lost it is told everything", async () => {
    const town = new Town();
    const [ann, bob] = [town.process(), town.process()];
    const lost = await have(ann.pawl.mutex("m"), "ann");
    const { abortSignal } = lost;
    const { opened, open } = gate();
    const working = codeOf(ann.pawl.lock("other", () => opened));
    await drained();
    const bobs = outcomeOf(bob.pawl.mutex("m").acquire({ by: "bob" }));
    const others = outcomeOf(bob.pawl.mutex("other").acquire({ by: "bob" }));
    await drained();
    ann.pause();
    await town.advance(LEASE_MS - 1);
    expect([bobs.state, others.state]).toEqual(["pending", "pending"]);
    await town.advance(1);
    expect([bobs.state, others.state]).toEqual(["had", "had"]);
    expect(bobs.value?.fence).toBeGreaterThan(lost.fence);
    // Ann knows nothing of it yet.
    expect(abortSignal.aborted).toBe(false);
    await expect(ann.pawl.transact((tx) => tx.lock(ann.pawl.mutex("m")).check(lost))).rejects.toThrow(LockLostError);
    await ann.resume();
    await town.advance(1);
    expect(abortSignal.aborted).toBe(true);
    expect(["lock_lost", "lease_uncertain"]).toContain((abortSignal.reason as PawlError).code);
    expect(await lost.renew()).toBe(false);
    expect(await lost.release()).toEqual({ released: false });
    open();
    expect(await working).toBe("lock_lost");
    expect(whoOf((await bob.pawl.mutex("m").inspect()).holders)).toEqual(["bob"]);
    expect(whoOf((await bob.pawl.mutex("other").inspect()).holders)).toEqual(["bob"]);
  });

  test("a lease that ended while nobody waited has harmed nobody: it is held on, under the same fence", async () => {
    const town = new Town();
    const ann = town.process();
    const lock = ann.pawl.mutex("m");
    const hold = await have(lock);
    ann.pause();
    await town.advance(3 * LEASE_MS);
    await ann.pawl.transact((tx) => tx.lock(lock).check(hold));
    await ann.resume();
    expect(await hold.renew()).toBe(true);
    expect(hold.abortSignal.aborted).toBe(false);
    expect((await lock.inspect()).holders).toMatchObject([{ fence: hold.fence }]);
    expect((await lock.inspect()).holders[0]?.until?.getTime()).toBe(town.clock.wallMs() + LEASE_MS);
  });

  test("a lease that ended is another's as soon as one asks, also one who would not wait", async () => {
    const town = new Town();
    const [ann, bob] = [town.process(), town.process()];
    const hold = await have(ann.pawl.mutex("m"));
    ann.pause();
    await town.advance(LEASE_MS);
    const bobs = await have(bob.pawl.mutex("m"));
    expect(bobs.fence).toBeGreaterThan(hold.fence);
    // Asked now, it says at once that it may be another's.
    expect(hold.abortSignal.aborted).toBe(true);
    await ann.resume();
    expect(await hold.renew()).toBe(false);
  });

  test("a lease is renewed by itself for as long as its process lives", async () => {
    const town = new Town();
    const [ann, bob] = [town.process(), town.process()];
    const hold = await have(ann.pawl.mutex("m"));
    const bobs = outcomeOf(bob.pawl.mutex("m").acquire());
    await town.advance(20 * LEASE_MS);
    expect(bobs.state).toBe("pending");
    expect(hold.abortSignal.aborted).toBe(false);
    expect((await bob.pawl.mutex("m").inspect()).waiting).toBe(1);
    await hold.release();
    await town.advance(1);
    expect(bobs.state).toBe("had");
  });

  test("a waiter whose own lease ended is passed over, gets in line again at the end, and has its turn then", async () => {
    const town = new Town();
    const [ann, bob, cid] = [town.process(), town.process(), town.process()];
    const hold = await have(ann.pawl.mutex("m"));
    const bobs = outcomeOf(bob.pawl.mutex("m").acquire({ by: "bob" }));
    await drained();
    const cids = outcomeOf(cid.pawl.mutex("m").acquire({ by: "cid" }));
    await drained();
    const { waiters } = await ann.pawl.mutex("m").inspect();
    expect(whoOf(waiters)).toEqual(["bob", "cid"]);
    bob.pause();
    // As long as its lease stands, so does its place.
    await town.advance(LEASE_MS - 1);
    expect(whoOf((await ann.pawl.mutex("m").inspect()).waiters)).toEqual(["bob", "cid"]);
    await town.advance(1);
    await hold.release();
    expect(whoOf((await ann.pawl.mutex("m").inspect()).holders)).toEqual(["cid"]);
    await town.advance(1);
    expect([bobs.state, cids.state]).toEqual(["pending", "had"]);
    const anns = outcomeOf(ann.pawl.mutex("m").acquire({ by: "ann" }));
    await drained();
    await bob.resume();
    await town.advance(LEASE_MS / 3);
    expect(whoOf((await ann.pawl.mutex("m").inspect()).waiters)).toEqual(["ann", "bob"]);
    await cids.value?.release();
    await town.advance(1);
    expect([anns.state, bobs.state]).toEqual(["had", "pending"]);
    await anns.value?.release();
    await town.advance(1);
    expect(bobs.state).toBe("had");
  });

  test("a waiter that dies is not granted at the last millisecond of its lease's end", async () => {
    for (const [afterMs, holder] of [
      [LEASE_MS - 1, "bob"],
      [LEASE_MS, "cid"],
    ] as const) {
      const town = new Town();
      const [ann, bob, cid] = [town.process(), town.process(), town.process()];
      const hold = await have(ann.pawl.mutex("m"));
      await lineUp(bob.pawl.mutex("m"), "bob");
      await lineUp(cid.pawl.mutex("m", { lease: "12 hours" }), "cid");
      bob.die();
      await town.advance(afterMs);
      await hold.release();
      expect(whoOf((await ann.pawl.mutex("m").inspect()).holders)).toEqual([holder]);
    }
  });

  test("thousands of dead waiters are passed over, and the living one behind them has its turn", async () => {
    const town = new Town({ checksPurity: false });
    const [ann, bob, cid] = [town.process(), town.process(), town.process()];
    // With a lease that needs no renewal, nobody looks at the line before the lock is given back.
    const hold = await have(ann.pawl.mutex("m", { lease: "12 hours" }));
    await Promise.all(Array.from({ length: 2_500 }, () => lineUp(bob.pawl.mutex("m"))));
    const cids = outcomeOf(cid.pawl.mutex("m", { lease: "12 hours" }).acquire({ by: "cid" }));
    await drained();
    bob.die();
    await town.advance(LEASE_MS);
    expect(await recordOf(ann.pawl, "m")).toMatchObject({ waiting: 2_501 });
    expect(await hold.release()).toEqual({ released: true });
    // That is more than one commit does, but whoever waits sees to it within seconds.
    expect((await recordOf(ann.pawl, "m"))?.waiting).toBeGreaterThan(0);
    for (let s = 0; s < 10 && cids.state === "pending"; s++) await town.advance(1000);
    expect(cids.state).toBe("had");
    expect(await recordOf(ann.pawl, "m")).toMatchObject({ waiting: 0, first: null, last: null });
  });

  test("more than a thousand readers behind a writer come in when it is done", async () => {
    const town = new Town({ checksPurity: false });
    const [ann, bob] = [town.process(), town.process()];
    const writer = await have(ann.pawl.rwlock("rw", { lease: "12 hours" }).write);
    const { read } = bob.pawl.rwlock("rw", { lease: "12 hours" });
    const turns = Array.from({ length: 1_010 }, () => outcomeOf(read.acquire()));
    await drained();
    expect(await writer.release()).toEqual({ released: true });
    const holders = async () => (await recordOf(ann.pawl, "rw", "rwlock"))?.holders.length ?? 0;
    for (let s = 0; s < 10 && (await holders()) < 1_010; s++) await town.advance(1000);
    expect(await holders()).toBe(1_010);
    expect(turns.every(({ state }) => state === "had")).toBe(true);
  });

  test("a holder that is late has lost it to one who waits, also if nobody has looked since", async () => {
    const town = new Town();
    const [ann, bob] = [town.process(), town.process()];
    const lock = ann.pawl.mutex("m");
    const hold = await have(lock);
    await lineUp(bob.pawl.mutex("m", { lease: "12 hours" }), "bob");
    ann.pause();
    bob.pause();
    await town.advance(LEASE_MS - 1);
    await ann.pawl.transact((tx) => tx.lock(lock).check(hold));
    await town.advance(1);
    expect((await lock.inspect()).holders.length).toBe(1);
    await expect(ann.pawl.transact((tx) => tx.lock(lock).check(hold))).rejects.toThrow(LockLostError);
    expect(await hold.renew()).toBe(false);
    expect(whoOf((await lock.inspect()).holders)).toEqual(["bob"]);
  });

  test("a waiter that is late has lost its place to those behind it, also if nobody has looked since", async () => {
    const town = new Town();
    const [ann, bob, cid] = [town.process(), town.process(), town.process()];
    await have(ann.pawl.mutex("m", { lease: "12 hours" }));
    const bobs = outcomeOf(bob.pawl.mutex("m").acquire({ by: "bob" }));
    await drained();
    await lineUp(cid.pawl.mutex("m", { lease: "12 hours" }), "cid");
    const waiters = async () => whoOf((await ann.pawl.mutex("m").inspect()).waiters);
    bob.pause();
    await town.advance(LEASE_MS);
    expect(await waiters()).toEqual(["bob", "cid"]);
    await bob.resume();
    await town.advance(1);
    expect(await waiters()).toEqual(["cid", "bob"]);
    expect(bobs.state).toBe("pending");
  });

  test("a lock that was taken in a decision is free again when its lease is over, as nobody renews it", async () => {
    const town = new Town();
    const [ann, bob] = [town.process(), town.process()];
    const { fence } = await ann.pawl.transact((tx) => tx.lock(ann.pawl.mutex("m")).take());
    const bobs = outcomeOf(bob.pawl.mutex("m").acquire());
    await town.advance(LEASE_MS - 1);
    expect(bobs.state).toBe("pending");
    await town.advance(1);
    expect(bobs.state).toBe("had");
    expect(bobs.value?.fence).toBeGreaterThan(fence);
  });

  test("a wait ends at its limit, and not one millisecond before", async () => {
    const town = new Town();
    const [ann, bob] = [town.process(), town.process()];
    await have(ann.pawl.mutex("m"));
    const bobs = outcomeOf(bob.pawl.mutex("m").acquire({ timeout: "90s" }));
    await town.advance(89_999);
    expect(bobs.state).toBe("pending");
    await town.advance(1);
    expect(bobs).toMatchObject({ state: "refused", error: { code: "lock_timeout", data: { timeoutMs: 90_000 } } });
  });

  test.each([
    ["heard of", 10],
    ["not heard of yet", 0],
  ])("a place that is left when its turn has come, %s, gives the lock to the next", async (_, ms) => {
    const town = new Town();
    const [ann, bob, cid] = [town.process(), town.process(), town.process()];
    const hold = await have(ann.pawl.mutex("m"));
    const bobs = await lineUp(bob.pawl.mutex("m"), "bob");
    await lineUp(cid.pawl.mutex("m"), "cid");
    await hold.release();
    if (ms > 0) await town.advance(ms);
    expect(whoOf((await ann.pawl.mutex("m").inspect()).holders)).toEqual(["bob"]);
    await bobs.leave();
    expect(whoOf((await ann.pawl.mutex("m").inspect()).holders)).toEqual(["cid"]);
  });

  test.each([
    ["heard of", 10],
    ["not heard of yet", 0],
  ])("a process that closes gives back what was its turn, %s, and nobody had asked for yet", async (_, ms) => {
    const town = new Town();
    const [ann, bob, cid] = [town.process(), town.process(), town.process()];
    const hold = await have(ann.pawl.mutex("m"));
    await lineUp(bob.pawl.mutex("m"), "bob");
    await lineUp(cid.pawl.mutex("m"), "cid");
    await hold.release();
    if (ms > 0) await town.advance(ms);
    await town.clock.finish(bob.pawl.close());
    expect(whoOf((await ann.pawl.mutex("m").inspect()).holders)).toEqual(["cid"]);
  });

  test.each(["timeout", "abort"])("a turn that came in the very moment of a %s is had, or given back", async (how) => {
    const town = new Town();
    const [ann, bob] = [town.process(), town.process()];
    const hold = await have(ann.pawl.mutex("m"));
    const abort = new AbortController();
    const options = how === "timeout" ? { timeout: 1000 } : { abortSignal: abort.signal };
    const bobs = outcomeOf(bob.pawl.mutex("m").acquire(options));
    await town.advance(500);
    // It hears of all of it at once: the end of its patience, and then its turn.
    bob.pause();
    await town.advance(500);
    await hold.release();
    abort.abort(new Error("never mind"));
    await bob.resume();
    await town.advance(100);
    expect(bobs.state).not.toBe("pending");
    if (how === "abort") expect(bobs.state).toBe("refused");
    const { holders } = await ann.pawl.mutex("m").inspect();
    expect(holders.map(({ ticket }) => ticket)).toEqual(bobs.value === undefined ? [] : [bobs.value.ticket]);
  });

  test("a place that is not renewed ends with its lease, and the living one behind it has its turn", async () => {
    const town = new Town();
    const [ann, bob, cid] = [town.process(), town.process(), town.process()];
    const hold = await have(ann.pawl.mutex("m"));
    const bobs = await lineUp(bob.pawl.mutex("m"), "bob");
    const cids = outcomeOf(cid.pawl.mutex("m").acquire({ by: "cid" }));
    await town.advance(LEASE_MS);
    await hold.release();
    expect(whoOf((await ann.pawl.mutex("m").inspect()).holders)).toEqual(["cid"]);
    await town.advance(1);
    expect(cids.state).toBe("had");
    expect(await bobs.renew()).toBe(false);
    expect(await codeOf(bobs.acquire())).toBe("place_lost");
    await bobs.leave();
  });

  test("a place that is renewed in time is kept, and so is the turn that came to it", async () => {
    const town = new Town();
    const [ann, bob] = [town.process(), town.process()];
    const hold = await have(ann.pawl.mutex("m"));
    const bobs = await lineUp(bob.pawl.mutex("m"), "bob");
    const cids = outcomeOf(ann.pawl.mutex("m").acquire({ by: "cid" }));
    for (let times = 0; times < 3; times++) {
      await town.advance(LEASE_MS - 1);
      expect(await bobs.renew()).toBe(true);
    }
    await hold.release();
    for (let times = 0; times < 3; times++) {
      await town.advance(LEASE_MS - 1);
      expect(await bobs.renew()).toBe(true);
    }
    const held = await bobs.acquire();
    // From here on it is a hold as any other.
    await town.advance(3 * LEASE_MS);
    expect(held.abortSignal.aborted).toBe(false);
    expect(cids.state).toBe("pending");
    await held.release();
    await town.advance(1);
    expect(cids.state).toBe("had");
  });

  test("a turn that comes to a place whose owner has moved on lasts for one lease", async () => {
    const town = new Town();
    const [ann, bob] = [town.process(), town.process()];
    const hold = await have(ann.pawl.mutex("m"));
    const bobs = await lineUp(bob.pawl.mutex("m"), "bob");
    const cids = outcomeOf(ann.pawl.mutex("m").acquire({ by: "cid" }));
    await town.advance(LEASE_MS - 1);
    await hold.release();
    await town.advance(LEASE_MS - 1);
    expect(whoOf((await ann.pawl.mutex("m").inspect()).holders)).toEqual(["bob"]);
    await town.advance(10);
    expect(cids.state).toBe("had");
    expect(await codeOf(bobs.acquire())).toBe("place_lost");
  });

  test("a handle that is closed leaves its places", async () => {
    const town = new Town();
    const [ann, bob] = [town.process(), town.process()];
    const hold = await have(ann.pawl.mutex("m"));
    await lineUp(bob.pawl.mutex("m"), "bob");
    await bob.pawl.close();
    expect((await ann.pawl.mutex("m").inspect()).waiting).toBe(0);
    await hold.release();
    await have(ann.pawl.mutex("m"));
  });

  test.each([
    ["this process", 0],
    ["another process", 1],
  ])("a waiter that %s removes knows it immediately, also one of several locks", async (_, by) => {
    const town = new Town();
    const peers = [town.process(), town.process()];
    const operator = peers[by] ?? peers[0];
    const [ann] = peers;
    await have(ann?.pawl.mutex("m") as Lock);
    const turns = [
      outcomeOf((ann as Peer).pawl.mutex("m").acquire({ by: "a" })),
      outcomeOf((ann as Peer).pawl.mutex(["k", "m"]).acquire({ by: "b" })),
      outcomeOf((ann as Peer).pawl.mutex("m").acquire({ by: "c" })),
    ];
    await town.advance(5);
    const { waiters } = await (ann as Peer).pawl.mutex("m").inspect();
    expect(whoOf(waiters).sort()).toEqual(["a", "b", "c"]);
    for (const waiter of waiters.filter((one) => one.by !== "c"))
      await operator?.pawl.mutex("m").removeWaiter(waiter.ticket, PERSON);
    await town.advance(5);
    expect(turns.map(({ state }) => state)).toEqual(["refused", "refused", "pending"]);
    for (const turn of turns.slice(0, 2)) expect(turn.error).toBeInstanceOf(LockRemovedError);
    expect((await (ann as Peer).pawl.mutex("k").history()).map(({ name }) => name)).toEqual(["removed"]);
  });

  test.each([
    ["this process", 0],
    ["another process", 1],
  ])("a holder whose lock %s forces away is told immediately, also one of several locks", async (_, by) => {
    const town = new Town();
    const peers = [town.process(), town.process()];
    const [ann] = peers;
    const operator = (peers[by] ?? ann) as Peer;
    const { pawl } = ann as Peer;
    const holds = [
      await have(pawl.mutex("m")),
      await have(pawl.mutex(["a", "b"])),
      await have(pawl.semaphore("s", { permits: 2 })),
      await have(pawl.semaphore("s", { permits: 2 })),
    ];
    const signals = holds.map(({ abortSignal }) => abortSignal);
    await town.advance(LEASE_MS / 10);
    await operator.pawl.mutex("m").forceRelease(PERSON);
    await operator.pawl.mutex("b").forceRelease(PERSON);
    await operator.pawl.semaphore("s").forceRelease({ ...PERSON, ticket: holds[2]?.ticket });
    // The commits of others are looked at together, and within a tenth of a second.
    await town.advance(by === 0 ? 0 : 100);
    expect(signals.map(({ aborted }) => aborted)).toEqual([true, true, true, false]);
    expect(signals[0]?.reason).toBeInstanceOf(LockLostError);
    // One that is young when it happens is told a moment later.
    const young = await have(pawl.mutex("m"));
    const { abortSignal } = young;
    await operator.pawl.mutex("m").forceRelease(PERSON);
    await town.advance(200);
    expect(abortSignal.aborted).toBe(true);
    expect(await holds[3]?.renew()).toBe(true);
  });

  test("a removed waiter that was alive all the time knows that a person removed it, and does not get in line again", async () => {
    const town = new Town();
    const [ann, bob] = [town.process(), town.process()];
    await have(ann.pawl.mutex("m"));
    const waiter = await lineUp(bob.pawl.mutex("m"));
    const turn = outcomeOf(waiter.acquire());
    await town.advance(5 * LEASE_MS);
    await ann.pawl.mutex("m").removeWaiter(waiter.ticket, PERSON);
    await town.advance(LEASE_MS);
    expect(turn.error).toBeInstanceOf(LockRemovedError);
    expect((await ann.pawl.mutex("m").inspect()).waiting).toBe(0);
  });

  test("a store that does not answer until the lease may be over: the holder is told before another can have it", async () => {
    const town = new Town();
    const [ann, bob] = [town.process(), town.process()];
    const hold = await have(ann.pawl.mutex("m"));
    const { abortSignal } = hold;
    const { opened, open } = gate();
    const bobs = outcomeOf(bob.pawl.mutex("m").acquire());
    await drained();
    ann.cutOff(opened);
    await town.advance(LEASE_MS - 1);
    expect([abortSignal.aborted, bobs.state]).toEqual([false, "pending"]);
    await town.advance(1);
    expect(abortSignal.reason).toMatchObject({ code: "lease_uncertain" });
    expect(bobs.state).toBe("had");
    open();
    await town.advance(1000);
    expect(await hold.release()).toEqual({ released: false });
    expect(await bobs.value?.renew()).toBe(true);
  });

  test("a lock that nobody uses is removed, and goes on under higher fences, also when nothing of it is left", async () => {
    const town = new Town();
    const ann = town.process();
    const fences = [];
    for (const days of [0, 0.1, 10]) {
      await town.advance(days * 24 * 3_600_000);
      if (days > 0) {
        // Somebody waits for something, so that somebody looks after locks.
        const other = await have(ann.pawl.mutex("other"));
        const waiter = outcomeOf(ann.pawl.mutex("other").acquire({ timeout: 10_000 }));
        await town.advance(10_000);
        expect(waiter.state).toBe("refused");
        await other.release();
        expect(await recordOf(ann.pawl, "m")).toBeUndefined();
        await town.database.connect("test").sweep(1000);
      }
      const hold = await have(ann.pawl.mutex("m"));
      fences.push(hold.fence);
      await hold.release();
    }
    expect(fences).toEqual([...new Set(fences)].sort((a, b) => a - b));
    // What a person did to it is not forgotten.
    await have(ann.pawl.mutex("m"));
    await ann.pawl.mutex("m").forceRelease(PERSON);
    await town.advance(24 * 3_600_000);
    expect((await ann.pawl.mutex("m").history()).length).toBe(1);
  });
});
