// Goal: a lease is renewed in time while its process can, and is given up before another can hold it.
// Method: a clock that moves by hand, and renewals whose answers the test decides.

import { describe, expect, test } from "vitest";
import { ManualClock } from "../../test/kernel/kit.ts";
import { ClosedError, FencedError, LeaseUncertainError } from "./errors.ts";
import { fencedOrRenewed, type Lease, Leases } from "./lease.ts";

const LEASE_MS = 3000;

function setUp(renew: () => Promise<unknown> = async () => undefined, leftMs = LEASE_MS) {
  const clock = new ManualClock(0);
  const renewedAtMs: number[] = [];
  const lost: unknown[] = [];
  const failed: unknown[] = [];
  const leases = new Leases(clock);
  const keep = (): Lease =>
    leases.keep({
      leaseMs: LEASE_MS,
      safeUntilMs: clock.nowMs() + leftMs,
      renew: () => {
        renewedAtMs.push(clock.nowMs());
        return renew();
      },
      lost: (reason) => lost.push(reason),
      failed: (error) => failed.push(error),
    });
  return { clock, renewedAtMs, lost, failed, keep };
}

describe("a lease", () => {
  test("is renewed at each third of its length", async () => {
    const { clock, renewedAtMs, lost, keep } = setUp();
    const lease = keep();
    await clock.advance(3500);
    expect(renewedAtMs).toEqual([1000, 2000, 3000]);
    expect(lease.safeUntilMs).toBe(6000);
    expect(lost).toEqual([]);
    lease.stop();
    expect(clock.timerCount).toBe(0);
  });

  test("that is over soon costs no timer of its own, and leaves none behind", () => {
    const { clock, keep } = setUp();
    const leases = [keep(), keep(), keep()];
    expect(clock.timerCount).toBe(1);
    for (const lease of leases) lease.stop();
    expect(clock.timerCount).toBe(0);
  });

  test("is renewed, and given up, in time also if the clock of the process was set back", async () => {
    const SET_BACK_MS = 1_000_000;
    const { clock, renewedAtMs, keep } = setUp(undefined, LEASE_MS + SET_BACK_MS);
    keep();
    await clock.advance(LEASE_MS);
    expect(renewedAtMs.length).toBeGreaterThan(0);
    const { clock: other, lost, keep: keepUnserved } = setUp(() => new Promise(() => {}), LEASE_MS + SET_BACK_MS);
    keepUnserved();
    await other.advance(2 * LEASE_MS);
    expect(lost).toEqual([expect.any(LeaseUncertainError)]);
  });

  test("that the caller learned of late is renewed immediately", async () => {
    const { clock, renewedAtMs, keep } = setUp(undefined, LEASE_MS / 3);
    keep();
    await clock.advance(1);
    expect(renewedAtMs).toEqual([0]);
  });

  test("is asked for again soon while the store does not serve, and lost at its end", async () => {
    const { clock, renewedAtMs, lost, failed, keep } = setUp(async () => {
      throw new Error("unreachable");
    });
    const lease = keep();
    await clock.advance(2999);
    expect(lost).toEqual([]);
    expect(renewedAtMs.slice(0, 3)).toEqual([1000, 1300, 1600]);
    expect(failed).toHaveLength(renewedAtMs.length);
    await clock.advance(1);
    expect(lost).toEqual([expect.any(LeaseUncertainError)]);
    expect(lease.abortSignal.reason).toBe(lost[0]);
    expect(clock.timerCount).toBe(0);
  });

  test("that was saved by a late renewal is not lost", async () => {
    let isUp = false;
    const { clock, lost, keep } = setUp(async () => {
      if (!isUp) throw new Error("unreachable");
      return undefined;
    });
    keep();
    await clock.advance(2000);
    isUp = true;
    await clock.advance(2000);
    expect(lost).toEqual([]);
  });

  test("is lost when the store says so, once", async () => {
    const reason = new FencedError("job one", 1, 2);
    const { clock, renewedAtMs, lost, keep } = setUp(() => fencedOrRenewed(Promise.reject(reason)));
    const lease = keep();
    await clock.advance(10_000);
    expect(lost).toEqual([reason]);
    expect(renewedAtMs).toEqual([1000]);
    expect(lease.isOver).toBe(true);
    expect(await lease.renew()).toBe(false);
  });

  test("is lost with its handle", async () => {
    const { clock, lost, keep } = setUp(async () => {
      throw new ClosedError();
    });
    keep();
    await clock.advance(1000);
    expect(lost).toEqual([expect.any(ClosedError)]);
  });

  test("counts as lost when its signal is read after its end, although no timer has fired", () => {
    const { clock, lost, keep } = setUp();
    const lease = keep();
    clock.spend(LEASE_MS);
    expect(lost).toEqual([]);
    expect(lease.abortSignal.reason).toBeInstanceOf(LeaseUncertainError);
    expect(lost).toHaveLength(1);
  });

  test("that was stopped is neither renewed nor lost", async () => {
    const { clock, renewedAtMs, lost, keep } = setUp();
    const lease = keep();
    await clock.advance(1500);
    lease.stop();
    await clock.advance(10_000);
    lease.lose(new Error("too late"));
    expect(renewedAtMs).toEqual([1000]);
    expect(lost).toEqual([]);
    expect(lease.lostReason).toBeUndefined();
  });
});
