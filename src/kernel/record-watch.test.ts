/**
 * Goal: whoever waits for a record is told of it as it is, and of nothing that was so before.
 * Method: a kernel on a memory store whose reads are answered when the test says so.
 */

import { expect, test } from "vitest";
import { bench, drained, gate } from "../../test/kernel/kit.ts";
import { address, type Row } from "./contract.ts";
import { RecordWatch } from "./record-watch.ts";

const at = address("thing", "one");

function looking() {
  const on = bench();
  const records = new RecordWatch(on.kernel, { isOfInterest: () => true, burstMs: 5 });
  const seen: string[] = [];
  const watch = (name: string) =>
    records.watch(at, {
      seen: (row: Row | null) => {
        seen.push(`${name} ${row?.value}`);
        return false;
      },
      failed: () => {},
    });
  const write = (value: number) => on.kernel.transact((tx) => tx.record(at).write({ value }), [at]);
  return { ...on, records, seen, watch, write };
}

test("a commit of this process is told to all who wait", async () => {
  const { watch, write, seen } = looking();
  watch("ann");
  await write(1);
  watch("bob");
  await write(2);
  expect(seen).toEqual(["ann 1", "ann 2", "bob 2"]);
});

test("what was read before somebody came is not told to them", async () => {
  const { kernel, store, records, watch, write, seen } = looking();
  await write(1);
  const { opened, open } = gate();
  const read = store.inner.read.bind(store.inner);
  store.inner.read = async (keys) => {
    const rows = await read(keys);
    await opened;
    return rows;
  };
  watch("ann");
  const look = records.look(at);
  await drained();
  await kernel.transact((tx) => tx.record(at).write({ value: 2 }), [at]);
  watch("bob");
  open();
  await look;
  expect(seen).toEqual(["ann 2", "ann 1"]);
});

test("who stopped to wait is told nothing more", async () => {
  const { records, watch, write, seen } = looking();
  await write(1);
  const stop = watch("ann");
  const look = records.look(at);
  stop();
  await look;
  await write(2);
  expect(seen).toEqual([]);
});

test("all who wait are looked for in one read, now and then", async () => {
  const { clock, watch, seen, peer } = looking();
  watch("ann");
  watch("bob");
  await peer().transact((tx) => tx.record(at).write({ value: 7 }), [at]);
  await clock.advance(6_000);
  expect(new Set(seen)).toEqual(new Set(["ann 7", "bob 7"]));
});
