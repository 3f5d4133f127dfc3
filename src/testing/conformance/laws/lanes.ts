/**
 * Lanes: epochs and sequences, by which a writer whose reply was lost finds the outcome of its batch.
 */

import assert from "node:assert/strict";
import { StoreError } from "../../../kernel/errors.ts";
import { at, blank, changing, making, type Rule, range, rule } from "../law-context.ts";

export const lanes: readonly Rule[] = [
  rule("a store has at least one lane, and every lane can be settled", async (context) => {
    const { store } = await context.connect();
    assert.ok(Number.isSafeInteger(store.lanes) && store.lanes >= 1, `it has ${store.lanes} lanes`);
    for (const lane of range(0, store.lanes)) {
      const { epoch, sequence } = await store.settle(lane);
      assert.ok(Number.isSafeInteger(epoch) && Number.isSafeInteger(sequence) && sequence >= 0);
    }
  }),

  rule("a store says whether it is remote, and whether it has one writer", async (context) => {
    const { store } = await context.connect();
    assert.equal(typeof store.isRemote, "boolean", `isRemote is ${store.isRemote}`);
    assert.equal(typeof store.hasOneWriter, "boolean", `hasOneWriter is ${store.hasOneWriter}`);
  }),

  rule("each settle starts a new epoch, above the last", async (context) => {
    const writer = await context.connect();
    let last = (await writer.settle()).epoch;
    for (let n = 0; n < 4; n++) {
      if (n % 2 === 1) await writer.makeOne(blank(`k${n}`));
      const { epoch } = await writer.settle();
      assert.ok(epoch > last, `epoch ${epoch} came after ${last}`);
      last = epoch;
    }
  }),

  rule("a batch of an older epoch is refused, however late it arrives, with the remedy settle", async (context) => {
    const writer = await context.connect();
    const old = await writer.settle();
    await writer.makeOne(blank("k"));
    const sequence = old.sequence + 1000;
    await writer.settle();
    for (let n = 0; n < 3; n++) {
      const late = writer.store.commit({
        lane: 0,
        epoch: old.epoch,
        sequence: sequence + n,
        lock: [],
        needsClock: false,
        decide: () => ({ puts: [making(blank("late"))] }),
      });
      await assert.rejects(late, (error: unknown) => {
        assert.ok(error instanceof StoreError, `not a StoreError: ${error}`);
        assert.equal(error.data.remedy, "settle");
        return true;
      });
      assert.equal(await writer.readOne(at("late")), null);
      await writer.makeOne(blank(`k${n}`));
      const settled = await writer.settle();
      assert.ok(settled.sequence < sequence, "a batch that was refused was counted");
    }
  }),

  rule("settle returns the last sequence that was committed", async (context) => {
    const writer = await context.connect();
    let { sequence } = await writer.settle();
    for (const step of [1, 1, 7, 1]) {
      const { epoch, sequence: last } = await writer.settle();
      assert.equal(last, sequence);
      for (const key of ["a", "b"]) {
        sequence += step;
        const batch = { lane: 0, epoch, sequence, lock: [], needsClock: false };
        const puts = [making(blank(`${key}${sequence}`))];
        const receipt = await writer.retryBusy(() => writer.store.commit({ ...batch, decide: () => ({ puts }) }));
        assert.ok(receipt.committed);
      }
    }
    assert.equal((await writer.settle()).sequence, sequence);
    assert.equal((await writer.settle()).sequence, sequence);
  }),

  rule("settle does not count a batch that was refused or that threw", async (context) => {
    const writer = await context.connect();
    const row = await writer.makeOne(blank("k"));
    const { sequence } = await writer.settle();
    const refused = await writer.commit({ decide: () => ({ puts: [making(blank("k"))] }) });
    assert.equal(refused.committed, false);
    assert.equal((await writer.settle()).sequence, sequence);
    const throws = (): never => {
      throw new Error("the decision throws");
    };
    await assert.rejects(writer.commit({ lock: [row], decide: throws }));
    assert.equal((await writer.settle()).sequence, sequence);
  }),

  rule("after a batch that wrote nothing, settle returns its sequence or the one before", async (context) => {
    const writer = await context.connect();
    await writer.settle();
    await writer.makeOne(blank("k"));
    const { sequence } = await writer.settle();
    await writer.found(at("k"));
    const settled = await writer.settle();
    assert.ok(
      settled.sequence === sequence || settled.sequence === sequence + 1,
      `settle returned ${settled.sequence}`,
    );
    await writer.makeOne(blank("j"));
    assert.equal((await writer.settle()).sequence, settled.sequence + 1);
  }),

  rule("writers settle independently of each other", async (context) => {
    const [writer, other] = await context.connectTwo();
    await writer.settle();
    await writer.makeOne(blank("mine"));
    const { sequence } = await writer.settle();
    const others = async (name: string) => {
      for (const n of range(0, 5)) {
        await other.settle();
        await other.makeOne(blank(`${name}-${n}`));
      }
    };
    await others("theirs");
    // In the epoch from before the other's, which must still be valid.
    await writer.makeOne(blank("mine too"));
    await others("more of theirs");
    assert.equal((await writer.settle()).sequence, sequence + 1);
  }),

  rule("lanes settle independently of each other", async (context) => {
    const writer = await context.connect();
    const all = range(0, writer.store.lanes);
    for (const lane of all) await writer.settle(lane);
    const write = (lane: number, key: string) =>
      writer.commit({ lane, decide: () => ({ puts: [making(blank(key))] }) });
    for (const lane of all) for (let n = 0; n <= lane; n++) assert.ok((await write(lane, `${lane}-${n}`)).committed);
    const said = new Map<number, number>();
    for (const lane of all) said.set(lane, (await writer.settle(lane)).sequence);
    for (const lane of all) {
      // Settling this lane leaves the epochs of the others as they are.
      await writer.settle(lane);
      for (const other of all.filter((one) => one !== lane)) {
        assert.ok((await write(other, `${other} beside ${lane}`)).committed);
        said.set(other, (said.get(other) ?? 0) + 1);
      }
      assert.equal((await writer.settle(lane)).sequence, said.get(lane));
    }
  }),

  rule("batches of different lanes run concurrently, and each gets its own result", async (context) => {
    const writer = await context.connect();
    const all = range(0, writer.store.lanes);
    const rows = await writer.make(...all.map((lane) => blank(`lane-${lane}`)));
    const receipts = await Promise.all(
      rows.map((row, lane) =>
        writer.commit({ lane, decide: () => ({ puts: [changing(row, { value: `by ${lane}` })] }) }),
      ),
    );
    assert.deepEqual(
      receipts.map((receipt) => (receipt.committed ? receipt.ids : "refused")),
      rows.map((row) => [row.id]),
    );
    assert.deepEqual(
      (await writer.read(...rows)).map((row) => row?.value),
      all.map((lane) => `by ${lane}`),
    );
  }),

  rule("after settle, the outcome of a batch in progress does not change", async (context) => {
    const [writer, other] = await context.connectTwo();
    for (let n = 0; n < 10; n++) {
      const { epoch, sequence } = await writer.settle();
      const key = at(`k${n}`);
      const puts = [making(blank(key.key))];
      const flight = writer.store.commit({
        lane: 0,
        epoch,
        sequence: sequence + 1,
        lock: n % 2 === 0 ? [] : [key],
        needsClock: false,
        decide: () => ({ puts }),
      });
      const ended = flight.then(
        (receipt) => receipt.committed,
        () => undefined,
      );
      const landed = (await writer.settle()).sequence > sequence;
      assert.equal((await other.readOne(key)) !== null, landed, "settle contradicts what is stored");
      const answer = await ended;
      if (answer !== undefined) assert.equal(answer, landed, "the receipt contradicts settle");
      assert.equal((await other.readOne(key)) !== null, landed, "the batch arrived after settle");
    }
  }),
];
