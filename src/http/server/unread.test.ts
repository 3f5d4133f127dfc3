/** What streams hold is bounded in bytes, in time, and in how many read concurrently. */

import { expect, test } from "vitest";
import type { Clock } from "../../kernel/ports.ts";
import { type Reader, Unread } from "./unread.ts";

/** A clock on which time passes when the test says so. */
function stopped() {
  const timers = new Set<() => void>();
  const clock: Clock = {
    nowMs: () => 0,
    soon: (callback) => callback(),
    after: (_ms, callback) => {
      timers.add(callback);
      return () => void timers.delete(callback);
    },
  };
  return { clock, pass: () => timers.forEach((callback) => void callback()) };
}

const ANN = { namespace: "ann", keyId: "a1" };
const BOB = { namespace: "bob", keyId: "b1" };

function holding(mostBytes: number) {
  const { clock, pass } = stopped();
  const unread = new Unread(clock, mostBytes);
  const dropped: string[] = [];
  const hold = (name: string, bytes: number, reader = ANN): (() => void) => {
    const release = unread.hold(reader, bytes, () => {
      dropped.push(name);
      release();
    });
    return release;
  };
  return { unread, dropped, hold, pass };
}

test("beyond the bound, those that have been waited for longest are dropped, and never the newest", () => {
  const { dropped, hold } = holding(100);
  hold("a", 60);
  const b = hold("b", 40);
  expect(dropped).toEqual([]);
  b();
  hold("c", 40);
  hold("d", 1);
  expect(dropped).toEqual(["a"]);
  hold("e", 1000);
  expect(dropped).toEqual(["a", "c", "d"]);
});

test("a client that takes too long is dropped, and one that has taken all is not", () => {
  const { dropped, hold, pass } = holding(100);
  hold("a", 1);
  hold("b", 1)();
  pass();
  expect(dropped).toEqual(["a"]);
});

test("beyond the bound, those of the tenant that holds the most are dropped, however long others have been waited for", () => {
  const { dropped, hold } = holding(100);
  hold("b1", 10, BOB);
  for (const name of ["a1", "a2", "a3"]) hold(name, 30);
  hold("a4", 30);
  expect(dropped).toEqual(["a1"]);
  hold("b2", 20, BOB);
  expect(dropped).toEqual(["a1", "a2"]);
  // The newest is sent, and no other tenant is disconnected for it; with the next one, it is one among others.
  hold("b3", 1000, BOB);
  expect(dropped).toEqual(["a1", "a2", "b1", "b2"]);
  hold("a5", 10);
  expect(dropped).toEqual(["a1", "a2", "b1", "b2", "b3"]);
});

test("only some read concurrently, and each has its turn, also after one that fails", async () => {
  const { unread } = holding(100);
  let reading = 0;
  let most = 0;
  const turns = Array.from({ length: 50 }, (_, i) =>
    unread.turn(ANN, async () => {
      most = Math.max(most, ++reading);
      await Promise.resolve();
      reading -= 1;
      if (i === 3) throw new Error("unreadable");
    }),
  );
  const settled = await Promise.allSettled(turns);
  expect(most).toBe(8);
  expect(settled.filter(({ status }) => status === "rejected")).toHaveLength(1);
});

/** Who has the turns, where all streams came at once, each of `from` in this order: those that read immediately, and then those in line. */
async function turnsOf(
  from: readonly { readonly reader: Reader; readonly streams: number }[],
): Promise<readonly string[]> {
  const { unread } = holding(100);
  const turns: string[] = [];
  await Promise.all(
    from.flatMap(({ reader, streams }) =>
      Array.from({ length: streams }, () => unread.turn(reader, async () => void turns.push(reader.keyId ?? ""))),
    ),
  );
  return turns;
}

test("tenants take turns, however many streams of one wait", async () => {
  const turns = await turnsOf([
    { reader: ANN, streams: 208 },
    { reader: BOB, streams: 2 },
    { reader: { namespace: "cid", keyId: "c1" }, streams: 1 },
  ]);
  expect(turns).toHaveLength(211);
  expect(turns.slice(8, 14)).toEqual(["a1", "b1", "c1", "a1", "b1", "a1"]);
});

test("a tenant with many keys has no more turns, and its keys take them in turn", async () => {
  const turns = await turnsOf([
    { reader: ANN, streams: 20 },
    { reader: { ...ANN, keyId: "a2" }, streams: 20 },
    { reader: { ...ANN, keyId: "a3" }, streams: 20 },
    { reader: BOB, streams: 3 },
  ]);
  expect(turns.slice(8, 15)).toEqual(["a1", "b1", "a2", "b1", "a3", "b1", "a1"]);
});
