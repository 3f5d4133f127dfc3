/**
 * Goal: where a store does not reply at all, every call ends with its patience and a moment more (G34), and what its caller gets is true: `outcome_unknown` only where it may
 * have been written, and what was reported as not written is never written later.
 * Method: stores whose commits, settlements and reads hang until a gate opens, on a clock that is moved by hand.
 */

import { describe, expect, test } from "vitest";
import { a, add, b, hasEnded, held, sumOf } from "../../test/kernel/batches.ts";
import { bench, codeOf, gate } from "../../test/kernel/kit.ts";
import { StoreError } from "./errors.ts";

const PATIENCE_MS = 3000;
/** At most a second more. */
const LATEST_MS = PATIENCE_MS + 1000;
const options = { lanes: 2, patienceMs: PATIENCE_MS };

describe("a store that does not reply", () => {
  test("to a commit whose decision has not run: nothing is written, then or later", async () => {
    const { kernel, store, clock } = bench(options);
    const opens = gate();
    store.commits.push(held(opens));
    const call = codeOf(kernel.transact(add(a), [a]));
    await clock.advance(PATIENCE_MS - 1);
    expect(await hasEnded(call)).toBe(false);
    await clock.advance(LATEST_MS - PATIENCE_MS + 1);
    expect(await call).toBe("store_unreachable");
    opens.open();
    await clock.advance(100);
    expect(await sumOf(kernel, a)).toBe(0);
    expect(await kernel.transact(add(a), [a])).toBe(1);
  });

  test("to a commit that was sent: its outcome is unknown, and it is not sent again", async () => {
    const { kernel, store, clock } = bench(options);
    const opens = gate();
    store.commits.push(async (batch, pass) => {
      const receipt = await pass(batch);
      await opens.opened;
      return receipt;
    });
    const call = codeOf(kernel.transact(add(a), [a]));
    await clock.advance(LATEST_MS);
    expect(await call).toBe("outcome_unknown");
    opens.open();
    await clock.advance(100);
    expect(await sumOf(kernel, a)).toBe(1);
    expect(store.batches.length).toBe(1);
  });

  test("to what finds out the outcome: each caller has its own patience", async () => {
    const { kernel, store, clock } = bench({ ...options, lanes: 2 });
    await kernel.transact(add(a), [a]);
    const opens = gate();
    store.commits.push(async (batch, pass) => {
      await pass(batch);
      throw new StoreError("outcome_unknown", "settle", "the reply is lost");
    });
    store.settles.push(
      ...Array.from({ length: 2 }, () => async (pass: () => Promise<{ epoch: number; sequence: number }>) => {
        await opens.opened;
        return pass();
      }),
    );
    const first = codeOf(kernel.transact(add(a), [a]));
    await clock.advance(PATIENCE_MS / 2);
    // It needs the same record, so it waits for the first one's flight.
    const second = codeOf(kernel.transact(add(a), [a]));
    await clock.advance(LATEST_MS - PATIENCE_MS / 2);
    expect(await first).toBe("outcome_unknown");
    expect(await hasEnded(second)).toBe(false);
    await clock.advance(PATIENCE_MS / 2);
    expect(await second).toBe("store_unreachable");
    opens.open();
    await clock.advance(100);
    expect(await sumOf(kernel, a)).toBe(2);
  });

  test("to a read: it ends with its patience", async () => {
    const { kernel, store, clock } = bench(options);
    store.read = () => new Promise(() => {});
    const call = codeOf(kernel.read([a]));
    await clock.advance(PATIENCE_MS - 1);
    expect(await hasEnded(call)).toBe(false);
    await clock.advance(200);
    expect(await call).toBe("store_unreachable");
  });

  test("but to others it does: a call that waits for its turn is not given up", async () => {
    const { kernel, store, clock } = bench({ lanes: 2, patienceMs: PATIENCE_MS });
    const opens = gate();
    store.commits.push(held(opens));
    const slow = kernel.transact(add(a), [a]);
    for (let i = 0; i < 5; i++) {
      await clock.advance(1000);
      await kernel.transact(add(b), [b]);
    }
    expect(await hasEnded(slow)).toBe(false);
    opens.open();
    expect(await slow).toBe(1);
  });

  test("no timer is left when all calls have ended", async () => {
    const { kernel, clock } = bench(options);
    await kernel.transact(add(a), [a]);
    await kernel.read([a]);
    await clock.advance(0);
    expect(clock.timerCount).toBe(0);
  });
});
