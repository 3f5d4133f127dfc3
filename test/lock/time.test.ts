/**
 * Goal: a lock in plain code is lost only to a lease that ended or to an operator, at its time and not before.
 * Method: processes whose clock is moved by hand, so that a lease can be examined one millisecond before its end and at its end.
 */

import { describe, expect, test } from "vitest";
import { type Lock, LockLostError, LockRemovedError, type PawlError } from "../../src/index.ts";
import { codeOf, drained, gate } from "../kernel/kit.ts";
import { acquireNow, OPERATOR, outcomeOf, type Peer, Processes, queueUp, recordOf, whoOf } from "./kit.ts";

describe("time", () => {
  const LEASE_MS = 30_000;

  test("a lease ends at its end, not before; then the next waiter is granted, and the former holder gets the details", async () => {
    const processes = new Processes();
    const [ann, bob] = [processes.process(), processes.process()];
    const lost = await acquireNow(ann.pawl.mutex("m"), "ann");
    const { abortSignal } = lost;
    const { opened, open } = gate();
    const working = codeOf(ann.pawl.lock("other", () => opened));
    await drained();
    const bobs = outcomeOf(bob.pawl.mutex("m").acquire({ by: "bob" }));
    const others = outcomeOf(bob.pawl.mutex("other").acquire({ by: "bob" }));
    await drained();
    ann.pause();
    await processes.advance(LEASE_MS - 1);
    expect([bobs.state, others.state]).toEqual(["pending", "pending"]);
    await processes.advance(1);
    expect([bobs.state, others.state]).toEqual(["acquired", "acquired"]);
    expect(bobs.value?.fence).toBeGreaterThan(lost.fence);
    // Ann knows nothing of it yet.
    expect(abortSignal.aborted).toBe(false);
    await expect(ann.pawl.transact((tx) => tx.lock(ann.pawl.mutex("m")).check(lost))).rejects.toThrow(LockLostError);
    await ann.resume();
    await processes.advance(1);
    expect(abortSignal.aborted).toBe(true);
    expect(["lock_lost", "lease_uncertain"]).toContain((abortSignal.reason as PawlError).code);
    expect(await lost.renew()).toBe(false);
    expect(await lost.release()).toEqual({ released: false });
    open();
    expect(await working).toBe("lock_lost");
    expect(whoOf((await bob.pawl.mutex("m").inspect()).holders)).toEqual(["bob"]);
    expect(whoOf((await bob.pawl.mutex("other").inspect()).holders)).toEqual(["bob"]);
  });

  test("a lease that ended without waiters is renewed, under the same fence", async () => {
    const processes = new Processes();
    const ann = processes.process();
    const lock = ann.pawl.mutex("m");
    const hold = await acquireNow(lock);
    ann.pause();
    await processes.advance(3 * LEASE_MS);
    await ann.pawl.transact((tx) => tx.lock(lock).check(hold));
    await ann.resume();
    expect(await hold.renew()).toBe(true);
    expect(hold.abortSignal.aborted).toBe(false);
    expect((await lock.inspect()).holders).toMatchObject([{ fence: hold.fence }]);
    expect((await lock.inspect()).holders[0]?.until?.getTime()).toBe(processes.clock.wallMs() + LEASE_MS);
  });

  test("a lock whose lease ended is granted to the next request, also to tryAcquire", async () => {
    const processes = new Processes();
    const [ann, bob] = [processes.process(), processes.process()];
    const hold = await acquireNow(ann.pawl.mutex("m"));
    ann.pause();
    await processes.advance(LEASE_MS);
    const bobs = await acquireNow(bob.pawl.mutex("m"));
    expect(bobs.fence).toBeGreaterThan(hold.fence);
    // Asked now, it says immediately that another may hold it.
    expect(hold.abortSignal.aborted).toBe(true);
    await ann.resume();
    expect(await hold.renew()).toBe(false);
  });

  test("a lease is renewed automatically for as long as its process lives", async () => {
    const processes = new Processes();
    const [ann, bob] = [processes.process(), processes.process()];
    const hold = await acquireNow(ann.pawl.mutex("m"));
    const bobs = outcomeOf(bob.pawl.mutex("m").acquire());
    await processes.advance(20 * LEASE_MS);
    expect(bobs.state).toBe("pending");
    expect(hold.abortSignal.aborted).toBe(false);
    expect((await bob.pawl.mutex("m").inspect()).waiting).toBe(1);
    await hold.release();
    await processes.advance(1);
    expect(bobs.state).toBe("acquired");
  });

  test("a waiter whose own lease ended is skipped, enters the queue again at its end, and is granted then", async () => {
    const processes = new Processes();
    const [ann, bob, cid] = [processes.process(), processes.process(), processes.process()];
    const hold = await acquireNow(ann.pawl.mutex("m"));
    const bobs = outcomeOf(bob.pawl.mutex("m").acquire({ by: "bob" }));
    await drained();
    const cids = outcomeOf(cid.pawl.mutex("m").acquire({ by: "cid" }));
    await drained();
    const { waiters } = await ann.pawl.mutex("m").inspect();
    expect(whoOf(waiters)).toEqual(["bob", "cid"]);
    bob.pause();
    // Its place lasts as long as its lease.
    await processes.advance(LEASE_MS - 1);
    expect(whoOf((await ann.pawl.mutex("m").inspect()).waiters)).toEqual(["bob", "cid"]);
    await processes.advance(1);
    await hold.release();
    expect(whoOf((await ann.pawl.mutex("m").inspect()).holders)).toEqual(["cid"]);
    await processes.advance(1);
    expect([bobs.state, cids.state]).toEqual(["pending", "acquired"]);
    const anns = outcomeOf(ann.pawl.mutex("m").acquire({ by: "ann" }));
    await drained();
    await bob.resume();
    await processes.advance(LEASE_MS / 3);
    expect(whoOf((await ann.pawl.mutex("m").inspect()).waiters)).toEqual(["ann", "bob"]);
    await cids.value?.release();
    await processes.advance(1);
    expect([anns.state, bobs.state]).toEqual(["acquired", "pending"]);
    await anns.value?.release();
    await processes.advance(1);
    expect(bobs.state).toBe("acquired");
  });

  test("a waiter that dies is not granted at the last millisecond of its lease's end", async () => {
    for (const [afterMs, holder] of [
      [LEASE_MS - 1, "bob"],
      [LEASE_MS, "cid"],
    ] as const) {
      const processes = new Processes();
      const [ann, bob, cid] = [processes.process(), processes.process(), processes.process()];
      const hold = await acquireNow(ann.pawl.mutex("m"));
      await queueUp(bob.pawl.mutex("m"), "bob");
      await queueUp(cid.pawl.mutex("m", { lease: "12 hours" }), "cid");
      bob.die();
      await processes.advance(afterMs);
      await hold.release();
      expect(whoOf((await ann.pawl.mutex("m").inspect()).holders)).toEqual([holder]);
    }
  });

  test("thousands of dead waiters are skipped, and the live one behind them is granted", async () => {
    const processes = new Processes({ checksPurity: false });
    const [ann, bob, cid] = [processes.process(), processes.process(), processes.process()];
    // With a lease that needs no renewal, no process looks at the queue before the lock is released.
    const hold = await acquireNow(ann.pawl.mutex("m", { lease: "12 hours" }));
    await Promise.all(Array.from({ length: 2_500 }, () => queueUp(bob.pawl.mutex("m"))));
    const cids = outcomeOf(cid.pawl.mutex("m", { lease: "12 hours" }).acquire({ by: "cid" }));
    await drained();
    bob.die();
    await processes.advance(LEASE_MS);
    expect(await recordOf(ann.pawl, "m")).toMatchObject({ waiting: 2_501 });
    expect(await hold.release()).toEqual({ released: true });
    // That is more than one commit does, but the waiter completes it within seconds.
    expect((await recordOf(ann.pawl, "m"))?.waiting).toBeGreaterThan(0);
    for (let s = 0; s < 10 && cids.state === "pending"; s++) await processes.advance(1000);
    expect(cids.state).toBe("acquired");
    expect(await recordOf(ann.pawl, "m")).toMatchObject({ waiting: 0, first: null, last: null });
  });

  test("more than a thousand readers behind a writer are granted when it is done", async () => {
    const processes = new Processes({ checksPurity: false });
    const [ann, bob] = [processes.process(), processes.process()];
    const writer = await acquireNow(ann.pawl.rwlock("rw", { lease: "12 hours" }).write);
    const { read } = bob.pawl.rwlock("rw", { lease: "12 hours" });
    const turns = Array.from({ length: 1_010 }, () => outcomeOf(read.acquire()));
    await drained();
    expect(await writer.release()).toEqual({ released: true });
    const holders = async () => (await recordOf(ann.pawl, "rw", "rwlock"))?.holders.length ?? 0;
    for (let s = 0; s < 10 && (await holders()) < 1_010; s++) await processes.advance(1000);
    expect(await holders()).toBe(1_010);
    expect(turns.every(({ state }) => state === "acquired")).toBe(true);
  });

  test("a late holder has lost it to a waiter, also if no process has looked since", async () => {
    const processes = new Processes();
    const [ann, bob] = [processes.process(), processes.process()];
    const lock = ann.pawl.mutex("m");
    const hold = await acquireNow(lock);
    await queueUp(bob.pawl.mutex("m", { lease: "12 hours" }), "bob");
    ann.pause();
    bob.pause();
    await processes.advance(LEASE_MS - 1);
    await ann.pawl.transact((tx) => tx.lock(lock).check(hold));
    await processes.advance(1);
    expect((await lock.inspect()).holders.length).toBe(1);
    await expect(ann.pawl.transact((tx) => tx.lock(lock).check(hold))).rejects.toThrow(LockLostError);
    expect(await hold.renew()).toBe(false);
    expect(whoOf((await lock.inspect()).holders)).toEqual(["bob"]);
  });

  test("a late waiter has lost its place to those behind it, also if no process has looked since", async () => {
    const processes = new Processes();
    const [ann, bob, cid] = [processes.process(), processes.process(), processes.process()];
    await acquireNow(ann.pawl.mutex("m", { lease: "12 hours" }));
    const bobs = outcomeOf(bob.pawl.mutex("m").acquire({ by: "bob" }));
    await drained();
    await queueUp(cid.pawl.mutex("m", { lease: "12 hours" }), "cid");
    const waiters = async () => whoOf((await ann.pawl.mutex("m").inspect()).waiters);
    bob.pause();
    await processes.advance(LEASE_MS);
    expect(await waiters()).toEqual(["bob", "cid"]);
    await bob.resume();
    await processes.advance(1);
    expect(await waiters()).toEqual(["cid", "bob"]);
    expect(bobs.state).toBe("pending");
  });

  test("a lock that was acquired in a decision is free again after its lease, because no process renews it", async () => {
    const processes = new Processes();
    const [ann, bob] = [processes.process(), processes.process()];
    const { fence } = await ann.pawl.transact((tx) => tx.lock(ann.pawl.mutex("m")).take());
    const bobs = outcomeOf(bob.pawl.mutex("m").acquire());
    await processes.advance(LEASE_MS - 1);
    expect(bobs.state).toBe("pending");
    await processes.advance(1);
    expect(bobs.state).toBe("acquired");
    expect(bobs.value?.fence).toBeGreaterThan(fence);
  });

  test("a wait ends at its timeout, and not one millisecond before", async () => {
    const processes = new Processes();
    const [ann, bob] = [processes.process(), processes.process()];
    await acquireNow(ann.pawl.mutex("m"));
    const bobs = outcomeOf(bob.pawl.mutex("m").acquire({ timeout: "90s" }));
    await processes.advance(89_999);
    expect(bobs.state).toBe("pending");
    await processes.advance(1);
    expect(bobs).toMatchObject({ state: "refused", error: { code: "lock_timeout", data: { timeoutMs: 90_000 } } });
  });

  test.each([
    ["received", 10],
    ["not received yet", 0],
  ])("a place that is left after its grant (%s) passes the lock to the next", async (_, ms) => {
    const processes = new Processes();
    const [ann, bob, cid] = [processes.process(), processes.process(), processes.process()];
    const hold = await acquireNow(ann.pawl.mutex("m"));
    const bobs = await queueUp(bob.pawl.mutex("m"), "bob");
    await queueUp(cid.pawl.mutex("m"), "cid");
    await hold.release();
    if (ms > 0) await processes.advance(ms);
    expect(whoOf((await ann.pawl.mutex("m").inspect()).holders)).toEqual(["bob"]);
    await bobs.leave();
    expect(whoOf((await ann.pawl.mutex("m").inspect()).holders)).toEqual(["cid"]);
  });

  test.each([
    ["received", 10],
    ["not received yet", 0],
  ])("a process that closes releases a grant (%s) that its code had not asked for yet", async (_, ms) => {
    const processes = new Processes();
    const [ann, bob, cid] = [processes.process(), processes.process(), processes.process()];
    const hold = await acquireNow(ann.pawl.mutex("m"));
    await queueUp(bob.pawl.mutex("m"), "bob");
    await queueUp(cid.pawl.mutex("m"), "cid");
    await hold.release();
    if (ms > 0) await processes.advance(ms);
    await processes.clock.finish(bob.pawl.close());
    expect(whoOf((await ann.pawl.mutex("m").inspect()).holders)).toEqual(["cid"]);
  });

  test.each(["timeout", "abort"])("a grant at the same moment as a %s is held, or released", async (how) => {
    const processes = new Processes();
    const [ann, bob] = [processes.process(), processes.process()];
    const hold = await acquireNow(ann.pawl.mutex("m"));
    const abort = new AbortController();
    const options = how === "timeout" ? { timeout: 1000 } : { abortSignal: abort.signal };
    const bobs = outcomeOf(bob.pawl.mutex("m").acquire(options));
    await processes.advance(500);
    // It receives both together: the end of its timeout, and then its grant.
    bob.pause();
    await processes.advance(500);
    await hold.release();
    abort.abort(new Error("never mind"));
    await bob.resume();
    await processes.advance(100);
    expect(bobs.state).not.toBe("pending");
    if (how === "abort") expect(bobs.state).toBe("refused");
    const { holders } = await ann.pawl.mutex("m").inspect();
    expect(holders.map(({ ticket }) => ticket)).toEqual(bobs.value === undefined ? [] : [bobs.value.ticket]);
  });

  test("a place that is not renewed ends with its lease, and the live one behind it is granted", async () => {
    const processes = new Processes();
    const [ann, bob, cid] = [processes.process(), processes.process(), processes.process()];
    const hold = await acquireNow(ann.pawl.mutex("m"));
    const bobs = await queueUp(bob.pawl.mutex("m"), "bob");
    const cids = outcomeOf(cid.pawl.mutex("m").acquire({ by: "cid" }));
    await processes.advance(LEASE_MS);
    await hold.release();
    expect(whoOf((await ann.pawl.mutex("m").inspect()).holders)).toEqual(["cid"]);
    await processes.advance(1);
    expect(cids.state).toBe("acquired");
    expect(await bobs.renew()).toBe(false);
    expect(await codeOf(bobs.acquire())).toBe("place_lost");
    await bobs.leave();
  });

  test("a place that is renewed in time is kept, and so is the grant that came to it", async () => {
    const processes = new Processes();
    const [ann, bob] = [processes.process(), processes.process()];
    const hold = await acquireNow(ann.pawl.mutex("m"));
    const bobs = await queueUp(bob.pawl.mutex("m"), "bob");
    const cids = outcomeOf(ann.pawl.mutex("m").acquire({ by: "cid" }));
    for (let times = 0; times < 3; times++) {
      await processes.advance(LEASE_MS - 1);
      expect(await bobs.renew()).toBe(true);
    }
    await hold.release();
    for (let times = 0; times < 3; times++) {
      await processes.advance(LEASE_MS - 1);
      expect(await bobs.renew()).toBe(true);
    }
    const held = await bobs.acquire();
    // From here on it is a hold like any other.
    await processes.advance(3 * LEASE_MS);
    expect(held.abortSignal.aborted).toBe(false);
    expect(cids.state).toBe("pending");
    await held.release();
    await processes.advance(1);
    expect(cids.state).toBe("acquired");
  });

  test("a grant to a place whose owner no longer asks for it lasts for one lease", async () => {
    const processes = new Processes();
    const [ann, bob] = [processes.process(), processes.process()];
    const hold = await acquireNow(ann.pawl.mutex("m"));
    const bobs = await queueUp(bob.pawl.mutex("m"), "bob");
    const cids = outcomeOf(ann.pawl.mutex("m").acquire({ by: "cid" }));
    await processes.advance(LEASE_MS - 1);
    await hold.release();
    await processes.advance(LEASE_MS - 1);
    expect(whoOf((await ann.pawl.mutex("m").inspect()).holders)).toEqual(["bob"]);
    await processes.advance(10);
    expect(cids.state).toBe("acquired");
    expect(await codeOf(bobs.acquire())).toBe("place_lost");
  });

  test("a handle that is closed leaves its places", async () => {
    const processes = new Processes();
    const [ann, bob] = [processes.process(), processes.process()];
    const hold = await acquireNow(ann.pawl.mutex("m"));
    await queueUp(bob.pawl.mutex("m"), "bob");
    await bob.pawl.close();
    expect((await ann.pawl.mutex("m").inspect()).waiting).toBe(0);
    await hold.release();
    await acquireNow(ann.pawl.mutex("m"));
  });

  test.each([
    ["this process", 0],
    ["another process", 1],
  ])("a waiter that %s removes is notified immediately, also one of several locks", async (_, by) => {
    const processes = new Processes();
    const peers = [processes.process(), processes.process()];
    const operator = peers[by] ?? peers[0];
    const [ann] = peers;
    await acquireNow(ann?.pawl.mutex("m") as Lock);
    const turns = [
      outcomeOf((ann as Peer).pawl.mutex("m").acquire({ by: "a" })),
      outcomeOf((ann as Peer).pawl.mutex(["k", "m"]).acquire({ by: "b" })),
      outcomeOf((ann as Peer).pawl.mutex("m").acquire({ by: "c" })),
    ];
    await processes.advance(5);
    const { waiters } = await (ann as Peer).pawl.mutex("m").inspect();
    expect(whoOf(waiters).sort()).toEqual(["a", "b", "c"]);
    for (const waiter of waiters.filter((one) => one.by !== "c"))
      await operator?.pawl.mutex("m").removeWaiter(waiter.ticket, OPERATOR);
    await processes.advance(5);
    expect(turns.map(({ state }) => state)).toEqual(["refused", "refused", "pending"]);
    for (const turn of turns.slice(0, 2)) expect(turn.error).toBeInstanceOf(LockRemovedError);
    expect((await (ann as Peer).pawl.mutex("k").history()).map(({ name }) => name)).toEqual(["removed"]);
  });

  test.each([
    ["this process", 0],
    ["another process", 1],
  ])("a holder whose lock %s releases by force is notified immediately, also one of several locks", async (_, by) => {
    const processes = new Processes();
    const peers = [processes.process(), processes.process()];
    const [ann] = peers;
    const operator = (peers[by] ?? ann) as Peer;
    const { pawl } = ann as Peer;
    const holds = [
      await acquireNow(pawl.mutex("m")),
      await acquireNow(pawl.mutex(["a", "b"])),
      await acquireNow(pawl.semaphore("s", { permits: 2 })),
      await acquireNow(pawl.semaphore("s", { permits: 2 })),
    ];
    const signals = holds.map(({ abortSignal }) => abortSignal);
    await processes.advance(LEASE_MS / 10);
    await operator.pawl.mutex("m").forceRelease(OPERATOR);
    await operator.pawl.mutex("b").forceRelease(OPERATOR);
    await operator.pawl.semaphore("s").forceRelease({ ...OPERATOR, ticket: holds[2]?.ticket });
    // The commits of other processes are looked at together, within a tenth of a second.
    await processes.advance(by === 0 ? 0 : 100);
    expect(signals.map(({ aborted }) => aborted)).toEqual([true, true, true, false]);
    expect(signals[0]?.reason).toBeInstanceOf(LockLostError);
    // A hold that is young when it happens is notified a moment later.
    const young = await acquireNow(pawl.mutex("m"));
    const { abortSignal } = young;
    await operator.pawl.mutex("m").forceRelease(OPERATOR);
    await processes.advance(200);
    expect(abortSignal.aborted).toBe(true);
    expect(await holds[3]?.renew()).toBe(true);
  });

  test("a removed waiter that was alive all the time gets lock_removed, and does not enter the queue again", async () => {
    const processes = new Processes();
    const [ann, bob] = [processes.process(), processes.process()];
    await acquireNow(ann.pawl.mutex("m"));
    const waiter = await queueUp(bob.pawl.mutex("m"));
    const turn = outcomeOf(waiter.acquire());
    await processes.advance(5 * LEASE_MS);
    await ann.pawl.mutex("m").removeWaiter(waiter.ticket, OPERATOR);
    await processes.advance(LEASE_MS);
    expect(turn.error).toBeInstanceOf(LockRemovedError);
    expect((await ann.pawl.mutex("m").inspect()).waiting).toBe(0);
  });

  test("a store that does not reply until the lease may be over: the holder is notified before another can be granted", async () => {
    const processes = new Processes();
    const [ann, bob] = [processes.process(), processes.process()];
    const hold = await acquireNow(ann.pawl.mutex("m"));
    const { abortSignal } = hold;
    const { opened, open } = gate();
    const bobs = outcomeOf(bob.pawl.mutex("m").acquire());
    await drained();
    ann.cutOff(opened);
    await processes.advance(LEASE_MS - 1);
    expect([abortSignal.aborted, bobs.state]).toEqual([false, "pending"]);
    await processes.advance(1);
    expect(abortSignal.reason).toMatchObject({ code: "lease_uncertain" });
    expect(bobs.state).toBe("acquired");
    open();
    await processes.advance(1000);
    expect(await hold.release()).toEqual({ released: false });
    expect(await bobs.value?.renew()).toBe(true);
  });

  test("a lock that is not used is removed, and is granted under higher fences afterwards, also when no row of it is left", async () => {
    const processes = new Processes();
    const ann = processes.process();
    const fences = [];
    for (const days of [0, 0.1, 10]) {
      await processes.advance(days * 24 * 3_600_000);
      if (days > 0) {
        // A process that waits for something sweeps locks.
        const other = await acquireNow(ann.pawl.mutex("other"));
        const waiter = outcomeOf(ann.pawl.mutex("other").acquire({ timeout: 10_000 }));
        await processes.advance(10_000);
        expect(waiter.state).toBe("refused");
        await other.release();
        expect(await recordOf(ann.pawl, "m")).toBeUndefined();
        await processes.database.connect("test").sweep(1000);
      }
      const hold = await acquireNow(ann.pawl.mutex("m"));
      fences.push(hold.fence);
      await hold.release();
    }
    expect(fences).toEqual([...new Set(fences)].sort((a, b) => a - b));
    // What an operator did to it is kept.
    await acquireNow(ann.pawl.mutex("m"));
    await ann.pawl.mutex("m").forceRelease(OPERATOR);
    await processes.advance(24 * 3_600_000);
    expect((await ann.pawl.mutex("m").history()).length).toBe(1);
  });
});
